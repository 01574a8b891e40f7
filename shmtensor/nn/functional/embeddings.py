"""Rows of tables by their indices, and sums of rows. Nothing in this module blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._tensor.core import Tensor
from ..._tensor.dispatch import Array, Module, Result, export
from ...autograd.sparse import SparseGradient
from ...errors import DTypeError, IndexOutOfRange, InvalidArgument
from .rows import function, hidden, row, sums_at


def _require_indices(name: str, at: Array, size: int) -> None:
    """Check indices of rows. Raises DTypeError, IndexOutOfRange."""
    if at.dtype.kind not in "iu":
        raise DTypeError(f"{name} with indices of {at.dtype.name}; give int64 or int32")
    if at.size and not (at.min() >= 0 and at.max() < size):
        worst = at.min() if at.min() < 0 else at.max()
        raise IndexOutOfRange(f"{name} with index {worst} into {size} rows; give indices from 0 to {size - 1}")


def _to_table(
    g: Tensor, weight_shape: tuple[int, ...], at: Tensor, ignored: int, by_frequency: bool, sparse: bool
) -> Any:
    """The gradient of a table."""
    if not sparse:
        return _look_back(g, at, weight_shape[0], ignored, by_frequency)
    rows = g.reshape(-1, *weight_shape[1:])
    flat = at.reshape(-1)
    if ignored >= 0:
        kept = flat != ignored
        rows, flat = rows[kept], flat[kept]
    if by_frequency:
        rows = rows / _counts(flat).unsqueeze(1)
    return SparseGradient(flat.to("int64"), rows, weight_shape)


@hidden(
    name="embedding",
    gradient={"weight": _to_table},
    fails="rows of",
)
def _look_up(xp: Module, weight: Array, at: Array, ignored: int, by_frequency: bool, sparse: bool) -> Array:
    """The rows at indices."""
    _require_indices("embedding", at, weight.shape[0])
    return xp.take(weight, at, axis=0)


@hidden(
    name="embedding_back",
    gradient={
        "output": lambda g, at, ignored, by_frequency: (
            _look_up(g, at, -1, False, False) * _factors(at, g, ignored, by_frequency)  # type: ignore[has-type]
        )
    },
)
def _look_back(xp: Module, output: Array, at: Array, size: int, ignored: int, by_frequency: bool) -> Array:
    """The sum of the rows that have each index."""
    flat = at.reshape(-1)
    made = sums_at(output.reshape(flat.size, *output.shape[at.ndim :]), flat, size)
    if by_frequency:
        counts = np.bincount(flat, minlength=size).astype(made.dtype)
        made /= np.maximum(counts, 1).reshape(-1, *[1] * (made.ndim - 1))
    if ignored >= 0:
        made[ignored] = 0
    return made


@hidden(name="embedding_factors")
def _factors(xp: Module, at: Array, like: Array, ignored: int, by_frequency: bool) -> Array:
    """The factor of each index: 0 if it is ignored, else 1, or 1 divided by how often it occurs."""
    made = (at != ignored).astype(like.dtype)
    if by_frequency and at.size:
        made = made / np.bincount(at.reshape(-1))[at]
    return made.astype(like.dtype, copy=False).reshape(*at.shape, *[1] * (like.ndim - 1))


@hidden(name="counts_of_indices")
def _counts(xp: Module, at: Array) -> Array:
    """How often each index occurs."""
    return np.bincount(at)[at] if at.size else at.copy()


@hidden(name="renormalized_rows", result=Result.SAME)
def _renormalize(xp: Module, weight: Array, at: Array, max_norm: float, norm_type: float) -> None:
    """Scale rows with a larger norm to `max_norm`, in place."""
    used = np.unique(at)
    _require_indices("embedding", used, weight.shape[0])
    rows = weight[used]
    norms = np.linalg.norm(rows, norm_type, axis=1)
    large = norms > max_norm
    weight[used[large]] = rows[large] * (max_norm / (norms[large] + 1e-7))[:, None].astype(weight.dtype)


def _limited(weight: Tensor, at: Tensor, max_norm: float | None, norm_type: float) -> None:
    if max_norm is not None:
        _renormalize(weight.detach(), at, max_norm, norm_type)


def _row_of(name: str, padding_idx: int | None, rows: int) -> int:
    """The row that gets no gradient; -1: none. Raises InvalidArgument."""
    if padding_idx is None:
        return -1
    if not -rows <= padding_idx < rows:
        raise InvalidArgument(f"{name} with padding_idx {padding_idx} of {rows} rows; give one of them")
    return padding_idx % rows


@function
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of a table at indices.

    Args:
        input: indices, integers of any shape.
        weight: the table, (rows, n).
        padding_idx: a row that gets no gradient.
        max_norm: rows that are used and have a larger norm are scaled to this norm first, in place.
        norm_type: order of these norms.
        scale_grad_by_freq: divide the gradient of a row by how often it is used.
        sparse: the gradient of the table is a `SparseGradient`.

    Returns:
        `(*input.shape, n)`.

    Raises:
        IndexOutOfRange: no such row.
        InvalidArgument: a table of other than two axes, or a padding_idx that it does not have.
        DTypeError: indices that are not integers.
    """
    if weight.ndim != 2:
        raise InvalidArgument(f"embedding in a table of shape {weight.shape}; give (rows, n)")
    ignored = _row_of("embedding", padding_idx, weight.shape[0])
    _limited(weight, input, max_norm, norm_type)
    return _look_up(weight, input, ignored, scale_grad_by_freq, sparse)


# -- bags --------------------------------------------------------------------------------------------------------------


@hidden(name="bags_of_indices")
def _bags(xp: Module, input: Array, offsets: Array | None, has_end: bool, ignored: int) -> tuple[Array, ...]:
    """Which indices count, the bag of each, and how many each bag has."""
    if offsets is None:
        starts = xp.arange(input.shape[0]) * input.shape[1]
    else:
        starts = offsets[:-1] if has_end else offsets
        if offsets.size and (offsets[0] or (offsets[1:] < offsets[:-1]).any() or offsets[-1] > input.size):
            raise InvalidArgument(
                f"embedding_bag with offsets from {offsets[0]} to {offsets[-1]}; give numbers from 0 to {input.size}, "
                "in order"
            )
    flat = input.reshape(-1)
    bag = np.searchsorted(starts, xp.arange(flat.size), side="right") - 1
    kept = np.flatnonzero(flat != ignored) if ignored >= 0 else xp.arange(flat.size)
    return kept, bag[kept], np.bincount(bag[kept], minlength=len(starts))


@hidden(name="largest_of_bags")
def _largest(xp: Module, rows: Array, bag: Array, count: int) -> tuple[Array, Array]:
    """Which row has the largest element of each bag and column, and which bags have any."""
    made = xp.zeros((count, rows.shape[1]), np.int64)
    full = xp.zeros((count, 1), bool)
    if bag.size:
        first = np.flatnonzero(np.append(True, bag[1:] != bag[:-1]))
        best = np.maximum.reduceat(rows, first, axis=0)
        which = np.searchsorted(bag[first], bag)
        place = np.where(rows == best[which], xp.arange(len(rows))[:, None], len(rows))
        made[bag[first]] = np.minimum.reduceat(place, first, axis=0) % len(rows)
        full[bag[first]] = True
    return made, full


@function
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum of the rows of a table in each of several bags of indices.

    Args:
        input: indices, (bags, size), or (n) with offsets.
        weight: the table, (rows, n).
        offsets: where each bag begins.
        max_norm, norm_type, scale_grad_by_freq, sparse: as for `embedding`.
        mode: "sum", "mean" or "max"; an empty bag gives 0.
        per_sample_weights: a factor for each index; only with "sum".
        include_last_offset: the last offset is the end of the last bag.
        padding_idx: indices of this row do not count.

    Returns:
        (bags, n).

    Raises as `embedding`, and InvalidArgument: other shapes, offsets or modes.
    """
    if mode not in ("sum", "mean", "max"):
        raise InvalidArgument(f"embedding_bag with mode {mode!r}; give 'sum', 'mean' or 'max'")
    if weight.ndim != 2 or input.ndim not in (1, 2) or (offsets is None) != (input.ndim == 2):
        raise InvalidArgument(
            f"embedding_bag of indices of shape {input.shape} in a table of shape {weight.shape}; give (bags, size) "
            "or (n) with offsets, and (rows, n)"
        )
    if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
        raise InvalidArgument(
            f"embedding_bag of mode {mode!r} with per_sample_weights of shape {per_sample_weights.shape}; give "
            f"{input.shape}, with mode 'sum'"
        )
    ignored = _row_of("embedding_bag", padding_idx, weight.shape[0])
    _limited(weight, input, max_norm, norm_type)
    found: Any = _bags(input, offsets, include_last_offset, ignored)
    kept, bag, counts = found
    rows = _look_up(weight, input.reshape(-1)[kept], -1, scale_grad_by_freq, sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1)[kept].unsqueeze(1)
    if mode == "max":
        largest: Any = _largest(rows.detach(), bag, counts.shape[0])
        if not rows.shape[0]:
            return rows.new_zeros((counts.shape[0], weight.shape[1])) + rows.sum()
        return rows.gather(0, largest[0]) * largest[1]  # type: ignore[no-any-return]
    made = _look_back(rows, bag, counts.shape[0], -1, False)
    return made if mode == "sum" else made / counts.clamp(min=1).unsqueeze(1)


@row()
def one_hot(xp: Module, input: Array, num_classes: int = -1) -> Array:
    """1 at the class of each element, in a new last axis, and 0 elsewhere; of int64.

    Args:
        num_classes: default: the largest class + 1.

    Raises:
        InvalidArgument: a class below 0 or not below num_classes; no elements and no num_classes.
        DTypeError: not integers.
    """
    if input.dtype.kind not in "iu":
        raise DTypeError(f"one_hot of a tensor of {input.dtype.name}; give int64")
    if (num_classes == -1 and not input.size) or num_classes < -1 or (num_classes == 0 and input.size):
        raise InvalidArgument(f"one_hot of {input.size} elements with num_classes {num_classes}; give a number from 1")
    count = int(input.max()) + 1 if num_classes == -1 else num_classes
    if input.size and not (input.min() >= 0 and input.max() < count):
        raise InvalidArgument(
            f"one_hot of classes from {input.min()} to {input.max()} with num_classes {count}; give classes from 0"
        )
    return (input[..., None] == xp.arange(count)).astype(xp.int64)


__all__ = export(globals())
