"""Gradients where an operation has next to nothing to do: no axes, no or one element, an exponent of 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmtensor
from shmtensor.errors import GradientError

INF, NAN = math.inf, math.nan
SQUARE, EYE = [[1.0, 2.0], [3.0, 5.0]], [[1.0, 0.0], [0.0, 1.0]]

# A function of t and tensors, their values, and the gradients of the sum of its result: torch has the same.
CASES: list[tuple[Callable[..., Any], list[Any], list[Any]]] = [
    (lambda t, x: t.cartesian_prod(x), [[1.0, 2, 3]], [[1.0, 1, 1]]),
    (lambda t, x: t.cummax(x, 0)[0], [2.0], [1.0]),
    (lambda t, x: t.max(x, 0)[0], [2.0], [1.0]),
    (lambda t, x: t.take_along_dim(x, t.tensor([1, 1, 3])), [[[1.0, 2, 3], [4, 5, 6]]], [[[0.0, 2, 0], [1, 0, 0]]]),
    (lambda t, x: x.index_select(0, t.tensor([], dtype=t.int64)), [SQUARE], [[[0.0, 0], [0, 0]]]),
    (lambda t, x: x.gather(0, t.zeros(0, 2, dtype=t.int64)), [SQUARE], [[[0.0, 0], [0, 0]]]),
    (lambda t, x: t.logcumsumexp(x, 1), [[[1.0], [2.0]]], [[[1.0], [1.0]]]),
    (lambda t, x: t.cumprod(x, 1), [[[0.0], [2.0]]], [[[1.0], [1.0]]]),
    (lambda t, x: t.diff(x, n=0), [[1.0, 4, 9]], [[1.0, 1, 1]]),
    (lambda t, x: t.var(x, False), [[1.0, 2.0]], [[-0.5, 0.5]]),
    (lambda t, x: t.var(x), [[1.0]], [[NAN]]),
    (lambda t, x: t.var(x, correction=2), [[1.0, 2.0]], [[INF, INF]]),
    (lambda t, x, y: t.tensordot(x, y, dims=([1], [0])), [SQUARE, EYE], [[[1.0, 1], [1, 1]], [[4.0, 4], [7, 7]]]),
    (lambda t, x, y: t.einsum("ij,jk", x, y), [SQUARE, EYE], [[[1.0, 1], [1, 1]], [[4.0, 4], [7, 7]]]),
    (lambda t, x, y: t.einsum("...j,j", x, y), [SQUARE, [1.0, 2]], [[[1.0, 2], [1, 2]], [4.0, 7]]),
    (lambda t, x: t.pdist(x), [[[1.0, 2.0]]], [[[0.0, 0.0]]]),
    (lambda t, x: t.pdist(x, 0.0), [SQUARE], [[[0.0, 0], [0, 0]]]),
    (lambda t, x, y: t.cdist(x, y, 0.0), [SQUARE, EYE], [[[0.0, 0], [0, 0]], [[0.0, 0], [0, 0]]]),
    (lambda t, x: t.renorm(x, INF, 0, 10.0), [SQUARE], [[[1.0, 1], [1, 1]]]),
    (lambda t, x: t.renorm(x, INF, 0, 1.0), [[[2.0, 1.0], [0.1, 0.2]]], [[[-0.25, 0.5], [1, 1]]]),
    (lambda t, x: t.linalg.matrix_power(x, 0), [SQUARE], [[[0.0, 0], [0, 0]]]),
    (lambda t, x: t.linalg.norm(x, 1), [SQUARE], [[[0.0, 1], [0, 1]]]),
    (lambda t, x: t.linalg.norm(x, "fro", (0, 1)), [[[3.0, 0.0], [0.0, 4.0]]], [[[0.6, 0], [0, 0.8]]]),
    (lambda t, x: t.linalg.norm(x, "nuc"), [[[3.0, 0.0], [0.0, 4.0]]], [EYE]),
    (lambda t, x: t.svd(x, compute_uv=False)[1], [[[3.0, 0.0], [0.0, 4.0]]], [EYE]),
    (
        lambda t, x, y: t.linalg.lstsq(x, y).solution,
        [[[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]], [[2.0], [4.0], [0.0]]],
        [[[-0.5, -0.5], [-0.25, -0.25], [0.0, 0.0]], [[0.5], [0.25], [0.0]]],
    ),
]

# As above, where torch refuses it, or records no gradient.
OURS: list[tuple[Callable[..., Any], list[Any], list[Any]]] = [
    (lambda t, x: t.renorm(x, 2, 0, 1.0), [[3.0, 0.5]], [[0.0, 1]]),
    (
        lambda t, x, y: t.tensordot(x, y, dims=t.tensor([[1], [0]])),
        [SQUARE, EYE],
        [[[1.0, 1], [1, 1]], [[4.0, 4], [7, 7]]],
    ),
    (lambda t, x, y: t.tensordot(x, y, dims=t.tensor(2)), [SQUARE, EYE], [EYE, SQUARE]),
    (
        lambda t, x: sum(one.sum() for one in t.lu_unpack(x, t.tensor([1, 2], dtype=t.int32), unpack_data=False)),
        [SQUARE],
        [[[0.0, 0], [0, 0]]],
    ),
    (lambda t, x: t.take_along_dim(x, t.tensor(0), 0), [2.0], [1.0]),
    (lambda t, x, q: t.quantile(x, q, interpolation="lower"), [[1.0, 2, 4], 0.3], [[1.0, 0, 0], 0.0]),
    (lambda t, x, q: t.quantile(x, q, interpolation="nearest"), [[1.0, 2, 4], 0.7], [[0.0, 1, 0], 0.0]),
    (lambda t, x: t.linalg.vander(x, N=1), [[1.0, 2, 3]], [[0.0, 0, 0]]),
    (lambda t, x: t.linalg.cond(x), [[[[]], [[]]]], [[[[]], [[]]]]),
    (
        lambda t, x, tau: t.linalg.householder_product(x, tau),
        [SQUARE, []],
        [[[0.0, 0], [0, 0]], []],
    ),
]


def of(t: Any, function: Callable[..., Any], values: list[Any]) -> list[Any]:
    leaves = [t.tensor(one, requires_grad=True) for one in values]
    return [one.tolist() for one in t.autograd.grad(function(t, *leaves).sum(), leaves)]


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_as_torch(t: Any, case: int) -> None:
    function, values, expected = CASES[case]
    for found, wanted in zip(of(t, function, values), expected, strict=True):
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


@pytest.mark.parametrize("case", range(len(OURS)))
def test_where_torch_has_none(case: int) -> None:
    function, values, expected = OURS[case]
    for found, wanted in zip(of(shmtensor, function, values), expected, strict=True):
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


def test_least_squares_of_one_vector() -> None:
    a, b = [[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]], [2.0, 4.0, 0.0]
    found = of(shmtensor, lambda t, x, y: t.linalg.lstsq(x, y).solution, [a, b])
    assert found == [[[-0.5, -0.5], [-0.25, -0.25], [0, 0]], [0.5, 0.25, 0]]


def test_what_multiplies_has_none() -> None:
    at, values = shmtensor.zeros(1, 2, dtype=shmtensor.int64), shmtensor.ones(1, 2, requires_grad=True)
    product = shmtensor.full((2, 2), 3.0).scatter(0, at, values, reduce="multiply")
    with pytest.raises(GradientError, match="scatter with reduce 'multiply' has no gradient; use scatter_reduce"):
        product.sum().backward()
