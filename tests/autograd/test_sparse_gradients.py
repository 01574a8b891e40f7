"""Sparse gradients: their rows, sums and factors, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import shmtensor as st
from shmtensor import errors
from shmtensor.autograd.sparse import SparseGradient


def rows(*at: int, values: Any = None, shape: tuple[int, ...] = (4, 2)) -> SparseGradient:
    made = st.tensor(values) if values is not None else st.ones(len(at), *shape[1:])
    return SparseGradient(st.tensor(at, dtype=st.int64), made, shape)


def test_rows_and_sizes() -> None:
    found = rows(2, 0, 2, values=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert not found.is_coalesced()
    assert (found.size(), found.size(0), found.size(-1)) == ((4, 2), 4, 2)
    assert found.to_dense().tolist() == [[3, 4], [0, 0], [6, 8], [0, 0]]
    whole = found.coalesce()
    assert whole.is_coalesced() and whole.coalesce() is whole
    assert whole.indices().tolist() == [[0, 2]] and whole.values().tolist() == [[3, 4], [6, 8]]
    assert found.detach() is found
    for name in ("indices", "values"):
        with pytest.raises(errors.InvalidArgument, match=rf"{name}\(\) of a sparse gradient .*; call coalesce\(\)"):
            getattr(found, name)()
    assert repr(rows(1, values=[[1.0, 2.0]])) == (
        "SparseGradient(indices=tensor([1]), values=tensor([[1., 2.]]), shape=(4, 2))"
    )


def test_a_gradient_without_rows() -> None:
    empty = rows().coalesce()
    assert empty.is_coalesced() and empty.indices().shape == (1, 0) and empty.values().shape == (0, 2)
    assert empty.to_dense().tolist() == [[0, 0]] * 4


def test_a_copy_has_memory_of_its_own() -> None:
    found = rows(1, 3).coalesce()
    copied = found.clone()
    found.values().mul_(5)
    assert copied.is_coalesced() and copied.values().tolist() == [[1, 1], [1, 1]]
    assert found.to_dense()[3].tolist() == [5, 5]


def test_sums_and_factors() -> None:
    found, other = rows(1, 1), rows(1, 3)
    assert (found + other).to_dense().tolist() == [[0, 0], [3, 3], [0, 0], [1, 1]]
    dense = st.ones(4, 2)
    assert (found + dense).tolist() == [[1, 1], [3, 3], [1, 1], [1, 1]] and dense.tolist() == [[1, 1]] * 4
    assert (found * 3).to_dense()[1].tolist() == (3 * found).to_dense()[1].tolist() == [6, 6]
    half = found.coalesce() / 4
    assert half.is_coalesced() and half.values().tolist() == [[0.5, 0.5]]
    with pytest.raises(errors.InvalidArgument, match=r"of shapes \(4, 2\) and \(5, 2\); give gradients of one shape"):
        found + rows(1, shape=(5, 2))
    with pytest.raises(TypeError):
        found + "rows"
    with pytest.raises(errors.InvalidArgument, match=r"shape \(4, 2\) with indices of shape \(1,\)"):
        SparseGradient(st.tensor([0]), st.ones(1, 3), (4, 2))
