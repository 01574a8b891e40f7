"""Indices of equal elements, which torch does not define: the elements at them are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from torch_ops.comparing import Disagreement, compare_values

_DIM_AT = {"argsort": 0, "kthvalue": 1, "mode": 0, "sort": 0, "topk": 1}
"""Entries that give such indices, and which argument after the tensor names the axis."""


def concerns(name: str, sample: Any) -> bool:
    """Whether a sample's indices are not defined where elements are equal."""
    return name in _DIM_AT and not sample.kwargs.get("stable")


def check(name: str, sample: Any, expected: Any, found: Any) -> None:
    """Compare values, and the elements at the indices, which must differ. Raises Disagreement."""
    x = np.atleast_1d(sample.input.numpy())
    at, args = _DIM_AT[name], sample.args
    dim = sample.kwargs.get("dim", args[at] if len(args) > at else -1) % x.ndim
    is_ordered = sample.kwargs.get("sorted", args[3] if name == "topk" and len(args) > 3 else True)
    pair, ours = ((expected,), (found,)) if isinstance(expected, torch.Tensor) else (expected, found)
    where = _rows(ours[-1].numpy(), x, dim)
    if (np.diff(np.sort(where, dim), axis=dim) == 0).any():
        raise Disagreement("one index twice")
    if where.size and not 0 <= where.min() <= where.max() < x.shape[dim]:
        raise Disagreement(f"indices from {where.min()} to {where.max()}")
    values, chosen = (np.take_along_axis(x, i, dim) for i in (_rows(pair[-1].numpy(), x, dim), where))
    if not is_ordered:
        values, chosen = np.sort(values, dim), np.sort(chosen, dim)
    compare_values("elements at the indices", values, chosen)
    if len(pair) == 2:
        compare_values("values", np.take_along_axis(x, where, dim), _rows(ours[0].numpy(), x, dim))
        if is_ordered:
            compare_values("values", pair[0].numpy(), ours[0].numpy())


def _rows(found: np.ndarray, x: np.ndarray, dim: int) -> np.ndarray:
    """With the axis that is missing from a reduced result."""
    if not found.ndim:
        return found.reshape((1,) * x.ndim)
    return found if found.ndim == x.ndim else np.expand_dims(found, dim)
