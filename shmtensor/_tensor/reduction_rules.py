"""Gradient rules of reductions, and of running sums and products. Nothing in this module blocks."""

from __future__ import annotations

import math
from typing import Any

from ..storage.arguments import SEQUENCES
from .core import Tensor, index_of
from .dispatch import Array, Module, operation

Shape = tuple[int, ...]

# -- axes --------------------------------------------------------------------------------------------------------------


def reduced_axes(shape: Shape, dim: Any, axis: Any = None) -> Shape:
    """The numbers of the axes that a reduction went over; none of a tensor without axes."""
    dims = axis if dim is None else dim
    if dims is None or (isinstance(dims, SEQUENCES) and not len(dims)) or not shape:
        return tuple(range(len(shape)))
    return tuple([index_of(one) % len(shape) for one in (dims if isinstance(dims, SEQUENCES) else (dims,))])


def restored(x: Tensor, shape: Shape, axes: Shape) -> Tensor:
    """The result of a reduction, with the axes that it went over as axes of size 1."""
    return x.reshape([1 if i in axes else n for i, n in enumerate(shape)])


def count(shape: Shape, axes: Shape) -> int:
    """The number of elements that each result was computed from."""
    return math.prod([shape[i] for i in axes])


# -- sums and means ----------------------------------------------------------------------------------------------------


def of_sum(g: Tensor, x_shape: Shape, dim: Any, axis: Any) -> Tensor:
    """Of `sum`."""
    return restored(g, x_shape, reduced_axes(x_shape, dim, axis)).expand(x_shape)


def of_mean(g: Tensor, x_shape: Shape, dim: Any, axis: Any) -> Tensor:
    """Of `mean`."""
    axes = reduced_axes(x_shape, dim, axis)
    return (restored(g, x_shape, axes) / max(count(x_shape, axes), 1)).expand(x_shape)


def of_nansum(g: Tensor, x: Tensor, dim: Any, axis: Any) -> Tensor:
    """Of `nansum`."""
    return of_sum(g, x.shape, dim, axis) * ~x.isnan()


def of_nanmean(g: Tensor, x: Tensor, dim: Any, axis: Any) -> Tensor:
    """Of `nanmean`."""
    is_number, axes = ~x.isnan(), reduced_axes(x.shape, dim, axis)
    return restored(g, x.shape, axes) / is_number.sum(axes, keepdim=True) * is_number


def of_logsumexp(g: Tensor, x: Tensor, result: Tensor, dim: Any, axis: Any) -> Tensor:
    """Of `logsumexp`."""
    axes = reduced_axes(x.shape, dim, axis)
    return restored(g, x.shape, axes) * (x - restored(result, x.shape, axes)).exp()


# -- variances ---------------------------------------------------------------------------------------------------------


def _taken(dim: Any, unbiased: bool | None, correction: Any) -> tuple[Any, Any]:
    """The axes, and the correction that is subtracted from the number of elements."""
    if isinstance(dim, bool):  # var(x, unbiased)
        dim, unbiased = None, dim
    return dim, float(correction) if correction is not None else int(unbiased is None or unbiased)


def of_var(g: Tensor, x: Tensor, dim: Any, unbiased: bool | None, correction: Any, axis: Any = None) -> Tensor:
    """Of `var`."""
    taken: float
    dim, taken = _taken(dim, unbiased, correction)
    axes = reduced_axes(x.shape, dim, axis)
    x, g, free = x.conj(), restored(g, x.shape, axes), count(x.shape, axes) - taken
    apart = x - x.mean(axes, keepdim=True)
    if free <= 0:  # the variance is infinite, and NaN where all values are equal
        return g * g.new_full(x.shape, math.inf).masked_fill(apart == 0, math.nan)
    return (2 / free) * g * apart


def of_std(
    g: Tensor, x: Tensor, result: Tensor, dim: Any, unbiased: bool | None, correction: Any, axis: Any = None
) -> Tensor:
    """Of `std`: 0 where it is 0."""
    return of_var((g / (2 * result)).masked_fill(result == 0, 0), x, dim, unbiased, correction, axis)


def of_var_mean(g: Any, input: Tensor, dim: Any, unbiased: bool | None, correction: Any) -> Tensor:
    """Of `var_mean`."""
    over = None if isinstance(dim, bool) else dim
    return of_var(g[0], input, dim, unbiased, correction) + of_mean(g[1], input.shape, over, None)


def of_std_mean(g: Any, input: Tensor, result: Any, dim: Any, unbiased: bool | None, correction: Any) -> Tensor:
    """Of `std_mean`."""
    over = None if isinstance(dim, bool) else dim
    return of_std(g[0], input, result[0], dim, unbiased, correction) + of_mean(g[1], input.shape, over, None)


# -- elements that are the result --------------------------------------------------------------------------------------


def of_extreme(g: Tensor, x: Tensor, result: Tensor, dim: Any, axis: Any) -> Tensor:
    """Of `amax` and `amin`: elements that are the largest share the gradient."""
    axes = reduced_axes(x.shape, dim, axis)
    mask = x == restored(result, x.shape, axes)
    return restored(g, x.shape, axes) * mask / mask.sum(axes, keepdim=True)


def of_middle(g: Tensor, x: Tensor, result: Tensor) -> Tensor:
    """Of the median of all elements: elements that are equal to it, or NaN as it is, share the gradient."""
    mask = x.isnan() if bool(result.isnan()) else x == result
    return g * mask / mask.sum()


def of_found(g: Any, x_shape: Shape, result: Any, dim: Any) -> Tensor:
    """Of a reduction along an axis that gives elements and their indices."""
    return placed_back(g[0], result[1], x_shape, dim)


def placed_back(g: Tensor, at: Tensor, shape: Shape, dim: Any) -> Tensor:
    """Gradients at the indices that elements had along an axis, and zeros elsewhere."""
    if not shape:
        return g.reshape(())
    axes = reduced_axes(shape, dim)
    return g.new_zeros(shape).scatter(axes[0], restored(at, shape, axes), restored(g, shape, axes))


def of_running_extreme(g: Any, x_shape: Shape, result: Any, dim: int) -> Tensor:
    """Of `cummax` and `cummin`."""
    if not x_shape:
        return g[0]  # type: ignore[no-any-return]
    return g[0].new_zeros(x_shape).scatter_add(dim, result[1], g[0])  # type: ignore[no-any-return]


def of_quantile(g: Tensor, x: Tensor, q: Any, dim: Any, interpolation: str, skips_nan: bool = False) -> Tensor:
    """Of `quantile`, and of `nanquantile`, which skips NaN."""
    rows, whole = _rows(x, dim)
    low, high, share, _ = _neighbours(rows, q, interpolation, skips_nan)
    order = rows.argsort(dim=-1, stable=True)
    parts = g.reshape(-1, *rows.shape[:-1]).movedim(0, -1)
    made = g.new_zeros(rows.shape)
    made = made.scatter_add(-1, order.gather(-1, low), parts * (1 - share))
    made = made.scatter_add(-1, order.gather(-1, high), parts * share)
    return made.reshape(x.shape) if whole else made.movedim(-1, dim)


def of_parts(g: Tensor, x: Tensor, q: Tensor, dim: Any, interpolation: str, skips_nan: bool = False) -> Tensor:
    """Of `quantile` and `nanquantile`, with regard to the parts."""
    rows, _ = _rows(x, dim)
    low, high, _, steps = _neighbours(rows, q, interpolation, skips_nan)
    if interpolation != "linear":
        return g.new_zeros(q.shape)
    ordered = rows.sort(dim=-1)[0]
    apart = (ordered.gather(-1, high) - ordered.gather(-1, low)) * steps
    parts = g.reshape(-1, *rows.shape[:-1]).movedim(0, -1)
    return (parts * apart).reshape(-1, parts.shape[-1]).sum(0).reshape(q.shape)


def _rows(x: Tensor, dim: Any) -> tuple[Tensor, bool]:
    """The values with the axis in question last, and whether all are in it."""
    whole = dim is None or not x.ndim
    return (x.reshape(-1) if whole else x.movedim(dim, -1)), whole


def _neighbours(rows: Tensor, q: Any, interpolation: str, skips_nan: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each row and part the ranks of the two values around a quantile, and the share of the upper one.

    And for each row how many steps there are from the first rank to the last.
    """
    parts = (q.to(rows.dtype) if isinstance(q, Tensor) else rows.new_tensor(q)).reshape(-1)
    steps = ((~rows.isnan()).sum(-1, keepdim=True) - 1).clamp(min=0).to(rows.dtype)
    places = parts * steps
    if not skips_nan:
        places = places.masked_fill(rows.isnan().any(-1, keepdim=True), rows.shape[-1] - 1)
    places = _rounded(places, interpolation)
    first = places.floor()
    share = first.new_full(first.shape, 0.5) if interpolation == "midpoint" else places - first
    return first.long(), places.ceil().long(), share, steps


def _rounded(places: Tensor, interpolation: str) -> Tensor:
    """Fractional ranks, rounded as an interpolation does."""
    if interpolation == "lower":
        return places.floor()
    if interpolation == "higher":
        return places.ceil()
    return places.round() if interpolation == "nearest" else places


# -- products ----------------------------------------------------------------------------------------------------------


def of_prod(g: Tensor, x: Tensor, result: Tensor, dim: Any, axis: Any) -> Tensor:
    """Of `prod`, for values that are 0 too."""
    axes = reduced_axes(x.shape, dim, axis)
    if bool((x != 0).all()):
        return restored(g * result, x.shape, axes) / x
    others = tuple(i for i in range(len(x.shape)) if i not in axes)
    rows = x.permute(*others, *axes).reshape(*[x.shape[i] for i in others], -1)
    made = g.reshape(rows.shape[:-1]).unsqueeze(-1) * products_of_others(rows)
    turned = made.reshape([x.shape[i] for i in (*others, *axes)])
    return turned.permute(*[(*others, *axes).index(i) for i in range(len(x.shape))])


def products_of_others(rows: Tensor) -> Tensor:
    """For each element of the last axis, the product of the others on it."""
    n = rows.shape[-1]
    before = rows.cumulative_prod(axis=-1, include_initial=True).narrow(-1, 0, n)
    after = rows.flip(-1).cumulative_prod(axis=-1, include_initial=True).narrow(-1, 0, n).flip(-1)
    return before * after


def of_running_sum(g: Tensor, x_shape: Shape, axis: Any, include_initial: bool = False) -> Tensor:
    """Of running sums: the sums from each element on."""
    along = 0 if axis is None else axis
    if include_initial:
        g = g.narrow(along, 1, x_shape[along])
    return g.flip(along).cumsum(along).flip(along) if x_shape else g


def of_cumsum(g: Tensor, x_shape: Shape, dim: Any) -> Tensor:
    """Of `cumsum`."""
    return of_running_sum(g, x_shape, dim)


def of_running_product(g: Tensor, x: Tensor, axis: Any, include_initial: bool = False) -> Tensor:
    """Of running products, for values that are 0 too.

    With s[k] = g[k] + x[k + 1] s[k + 1], the gradient is s[k] times the product of what is before x[k].
    """
    if not x.ndim:
        return g
    along = (0 if axis is None else axis) % x.ndim
    n = x.shape[along]
    if include_initial:
        g = g.narrow(along, 1, n)
    before = x.cumulative_prod(axis=along, dtype=g.dtype, include_initial=True).narrow(along, 0, n)
    return before * _weighted_from_end(g, x.to(g.dtype), along)


def of_cumprod(g: Tensor, x: Tensor, dim: Any) -> Tensor:
    """Of `cumprod`."""
    return of_running_product(g, x, dim)


def of_logcumsumexp(g: Tensor, x: Tensor, result: Tensor, dim: int) -> Tensor:
    """Of `logcumsumexp`: with s[k] = g[k] + exp(r[k] - r[k + 1]) s[k + 1], it is exp(x[k] - r[k]) s[k]."""
    if not x.ndim:
        return g
    along = dim % x.ndim
    n = x.shape[along]
    if n < 2:
        return g
    factors = (-result.diff(1, along, prepend=result.narrow(along, 0, 1))).exp()
    return (x - result).exp() * _weighted_from_end(g, factors, along)


def _weighted_from_end(a: Tensor, factors: Tensor, axis: int) -> Tensor:
    """The numbers s with s[k] = a[k] + factors[k + 1] s[k + 1] along an axis."""
    if a.shape[axis] < 2:
        return a
    turned = factors.flip(axis).roll(1, axis)  # from the end: s'[k] = a'[k] + turned[k] s'[k - 1]
    return _weighted_sums(a.flip(axis), turned, axis).flip(axis)


def _of_weighted_sums(g: Tensor, factors: Tensor, result: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    made = _weighted_from_end(g, factors, axis)
    n = factors.shape[axis]
    before = result.new_zeros(result.shape).slice_scatter(result.narrow(axis, 0, n - 1), axis, 1, n)
    return made, made * before


@operation(name="weighted_sums", function=False, method=False, gradient={("x", "factors"): _of_weighted_sums})
def _weighted_sums(xp: Module, x: Array, factors: Array, axis: int) -> Array:
    """The numbers s with s[k] = x[k] + factors[k] s[k - 1] along an axis; the first factor is not used."""
    made = xp.moveaxis(x, axis, 0).copy()
    weights = xp.moveaxis(factors, axis, 0)
    for k in range(1, len(made)):
        made[k] += weights[k] * made[k - 1]
    return xp.moveaxis(made, 0, axis)


# -- others ------------------------------------------------------------------------------------------------------------


def of_diff(g: Tensor, x_shape: Shape, prepend: Any, append: Any, n: int, dim: int) -> tuple[Tensor | None, ...]:
    """Of `diff`: the differences of the gradient with zeros around it, and their parts."""
    if not n:
        return g, None, None
    along = dim % len(x_shape)
    sizes = [prepend.shape[along] if prepend is not None else 0, x_shape[along]]
    sizes.append(append.shape[along] if append is not None else 0)
    times = min(n, sum(sizes))
    zeros = g.new_zeros([times if i == along else size for i, size in enumerate(g.shape)])
    made = g.diff(times, along, prepend=zeros, append=zeros) * (-1) ** times
    first, own, last = made.split_with_sizes(sizes, along)
    return own, first if prepend is not None else None, last if append is not None else None


def of_match(g: Tensor, x: Tensor, other: Tensor, gain: float) -> tuple[Tensor, Tensor]:
    """Of `match`."""
    rows, others = x.reshape(x.shape[0], -1), other.reshape(other.shape[0], -1)
    mine = 2 * gain * (rows * g.sum(1).unsqueeze(1) - g @ others)
    theirs = 2 * gain * (others * g.sum(0).unsqueeze(1) - g.T @ rows)
    return mine.reshape(x.shape), theirs.reshape(other.shape)
