"""What many elements come to: sums, extremes, truth; over all axes, or some, or along one.

Arguments have the array API's names (`axis`, `keepdims`) and torch's (`dim`, `keepdim`). None blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..dtypes import dtype_of
from ..errors import DTypeError, InvalidArgument
from ..storage.arguments import SEQUENCES
from .core import FAILURES, Tensor, array_of, failed, given, index_of, wrap

__all__ = [
    "all",
    "amax",
    "amin",
    "aminmax",
    "any",
    "argmax",
    "argmin",
    "bhistc",
    "count_nonzero",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "dist",
    "histc",
    "logcumsumexp",
    "logsumexp",
    "match",
    "max",
    "mean",
    "median",
    "min",
    "mode",
    "nanmean",
    "nansum",
    "prod",
    "quantile",
    "renorm",
    "std",
    "sum",
    "var",
]  # fmt: skip
METHODS: Final = [
    "aminmax", "bhistc", "cummax", "cummin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "diff", "dist",
    "histc", "logcumsumexp", "mode", "quantile", "renorm",
]  # fmt: skip
_IN_FLOAT32: Final = ("sum", "prod", "nansum", "mean", "nanmean", "logsumexp", "std", "var", "median")
RAISES: Final = "Does not block. Raises IndexOutOfRange (axes), InvalidArgument (no elements), DTypeError."


class Reduction(Protocol):
    """A function that reduces all axes or some."""

    def __call__(
        self, x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False, out: Tensor | None = None
    ) -> Tensor: ...


def _axes_of(x: Tensor, axis: Any) -> Any:
    if axis is None:
        return None
    return tuple(x._axis(one) for one in axis) if isinstance(axis, SEQUENCES) else x._axis(axis)


def _inexact(a: NDArray[Any]) -> NDArray[Any]:
    """Integers as floating-point numbers: their differences and powers may not be of their own type."""
    return a.astype(np.result_type(a.dtype, np.float32)) if a.dtype.kind in "biu" else a


def reduce(
    name: str, function: Callable[..., Any], x: Tensor, axis: Any, keepdims: bool, out: Tensor | None, **how: Any
) -> Tensor:
    """`function` of NumPy over axes of a tensor."""
    a = array_of(x)
    axes = _axes_of(x, axis)
    try:
        if a.dtype.isbuiltin == 2 and name in _IN_FLOAT32:  # bfloat16 and float8 would lose what they add
            kind = how.pop("dtype", a.dtype)
            result = np.asarray(function(a.astype(np.float32), axis=axes, keepdims=keepdims, **how)).astype(kind)
        else:
            result = function(a, axis=axes, keepdims=keepdims, **how)
    except FAILURES as error:
        raise failed(error, f"{name} over axes {axis} of", a) from error
    return wrap(result) if out is None else given(result, out, name)


def _typed(name: str, function: Callable[..., Any], doc: str) -> Reduction:
    def compute(
        x: Tensor,
        /,
        axis: Any = None,
        keepdims: bool = False,
        *,
        dtype: Any = None,
        out: Tensor | None = None,
        dim: Any = None,
        keepdim: bool = False,
    ) -> Tensor:
        how = {} if dtype is None else {"dtype": dtype_of(dtype)}
        return reduce(name, function, x, axis if dim is None else dim, keepdims or keepdim, out, **how)

    return _registered(  # type: ignore[no-any-return]
        compute, name, f"{doc} over all axes or some, of type `dtype` (default: NumPy's choice)."
    )


def _plain(name: str, function: Callable[..., Any], doc: str) -> Callable[..., Tensor]:
    def compute(
        x: Tensor,
        /,
        axis: Any = None,
        keepdims: bool = False,
        *,
        out: Tensor | None = None,
        dim: Any = None,
        keepdim: bool = False,
    ) -> Tensor:
        return reduce(name, function, x, axis if dim is None else dim, keepdims or keepdim, out)

    return _registered(compute, name, f"{doc} over all axes or some.")  # type: ignore[no-any-return]


def _corrected(name: str, function: Callable[..., Any], doc: str) -> Callable[..., Tensor]:
    def compute(
        x: Tensor,
        /,
        axis: Any = None,
        keepdims: bool = False,
        *,
        correction: float = 0.0,
        out: Tensor | None = None,
        dim: Any = None,
        keepdim: bool = False,
    ) -> Tensor:
        return reduce(name, function, x, axis if dim is None else dim, keepdims or keepdim, out, ddof=correction)

    text = f"{doc} over all axes or some. `correction` is taken from the number of elements (1: of a sample)."
    return _registered(compute, name, text)  # type: ignore[no-any-return]


def _one_axis(name: str, function: Callable[..., Any], doc: str) -> Callable[..., Tensor]:
    def compute(
        x: Tensor,
        /,
        axis: int | None = None,
        keepdims: bool = False,
        *,
        dim: int | None = None,
        keepdim: bool = False,
    ) -> Tensor:
        array_of(x)
        along = axis if dim is None else dim
        return reduce(name, function, x, None if along is None else x._axis(along), keepdims or keepdim, None)

    return _registered(compute, name, f"{doc}, in flat order or along an axis.")  # type: ignore[no-any-return]


def _registered(compute: Any, name: str, doc: str) -> Any:
    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"{doc}\n\n{RAISES}"
    METHODS.append(name)
    return compute


def _logsumexp(a: NDArray[Any], axis: Any, keepdims: bool) -> Any:
    a = _inexact(a)
    top = np.max(a, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):  # the log of 0, where every value is -inf
        summed = np.log(np.sum(np.exp(a - top), axis=axis, keepdims=True)) + top
    return summed if keepdims else np.squeeze(summed, axis=axis)


def _median(a: NDArray[Any], axis: Any, keepdims: bool) -> Any:
    axes = tuple(range(a.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    kept = [i for i in range(a.ndim) if i not in axes]
    rows = a.transpose([*kept, *axes]).reshape([*[a.shape[i] for i in kept], -1])
    if not rows.shape[-1]:
        raise ValueError("there are no elements")
    middle = (rows.shape[-1] - 1) // 2
    values = np.sort(rows, -1)[..., [middle, -1]]  # NaN is sorted to the end
    result = np.where(np.isnan(values[..., 1]), values[..., 1], values[..., 0])
    return result.reshape([1 if i in axes else n for i, n in enumerate(a.shape)]) if keepdims else result


sum = _typed("sum", np.add.reduce, "Sum")
prod = _typed("prod", np.multiply.reduce, "Product")
nansum = _typed("nansum", np.nansum, "Sum of what is a number")
mean = _plain("mean", np.mean, "Mean")
nanmean = _plain("nanmean", np.nanmean, "Mean of what is a number")
min = amin = _plain("min", np.minimum.reduce, "Smallest value")
max = amax = _plain("max", np.maximum.reduce, "Largest value")
all = _plain("all", np.logical_and.reduce, "Whether every value is true")
any = _plain("any", np.logical_or.reduce, "Whether some value is true")
median = _plain("median", _median, "Value in the middle, the smaller one of two (NaN where there is one)")
logsumexp = _plain("logsumexp", _logsumexp, "log(sum(exp(x)))")
std = _corrected("std", np.std, "Standard deviation")
var = _corrected("var", np.var, "Variance")
METHODS.extend(("amin", "amax"))
count_nonzero = _plain("count_nonzero", np.count_nonzero, "How many values are not zero")
argmax = _one_axis("argmax", np.argmax, "Index of the largest value")
argmin = _one_axis("argmin", np.argmin, "Index of the smallest value")


class MinMax(NamedTuple):
    """Smallest and largest values."""

    min: Tensor
    max: Tensor


class Found(NamedTuple):
    """Values, and where along the axis they stood."""

    values: Tensor
    indices: Tensor


def aminmax(x: Tensor, /, *, dim: Any = None, keepdim: bool = False) -> MinMax:
    """Smallest and largest values over all axes or some. Does not block. Raises as max."""
    return MinMax(min(x, axis=dim, keepdims=keepdim), max(x, axis=dim, keepdims=keepdim))


def quantile(x: Tensor, q: Any, /, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear") -> Tensor:
    """The value below which a part `q` (0 to 1, or several) of the values lies. Does not block. Raises as max."""
    parts = q._live() if isinstance(q, Tensor) else q
    a = array_of(x)
    axes = _axes_of(x, dim)
    try:
        return wrap(np.quantile(a, parts, axis=axes, keepdims=keepdim, method=interpolation))  # type: ignore[call-overload]
    except FAILURES as error:
        raise failed(error if a.size else ValueError("it has no elements"), f"quantile {parts} of", a) from error


# -- along an axis -----------------------------------------------------------------------------------------------------


def _along(x: Tensor, axis: int | None, name: str) -> int:
    """The axis to go along: the only one by default."""
    a = array_of(x)
    if axis is None:
        if a.ndim != 1:
            raise InvalidArgument(f"{name} of a tensor of shape {a.shape}; say along which axis")
        return 0
    return x._axis(axis)


def _accumulate(
    name: str, function: Any, x: Tensor, axis: int | None, dtype: Any, include_initial: bool, first: Any, out: Any
) -> Tensor:
    along = _along(x, axis, name)
    a = array_of(x)
    if dtype is None:  # as sums do: small integers count further
        dtype = function.reduce(np.empty(0, a.dtype), initial=first).dtype if a.dtype.kind in "biu" else a.dtype
    kind = dtype_of(dtype)
    if a.dtype.isbuiltin == 2:  # bfloat16 and float8 would lose what they add
        a, kind, narrow = a.astype(np.float32), np.dtype(np.float32), kind
    else:
        narrow = kind
    try:
        if include_initial:
            shape = list(a.shape)
            shape[along] += 1
            result = np.empty(shape, kind)
            parts = (slice(None),) * along
            result[(*parts, slice(0, 1))] = first
            function.accumulate(a, along, kind, result[(*parts, slice(1, None))])
        else:
            result = function.accumulate(a, along, kind)
    except FAILURES as error:
        raise failed(error, f"{name} along axis {axis} of", a) from error
    return given(result if kind is narrow else result.astype(narrow), out, name)


def cumulative_sum(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Sums of all elements so far, along an axis; `include_initial`: begins with 0.

    Does not block. Raises IndexOutOfRange; InvalidArgument: no axis given, of several.
    """
    return _accumulate("cumulative_sum", np.add, x, axis, dtype, include_initial, 0, out)


def cumulative_prod(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Products of all elements so far, along an axis; `include_initial`: begins with 1.

    Does not block. Raises IndexOutOfRange; InvalidArgument: no axis given, of several.
    """
    return _accumulate("cumulative_prod", np.multiply, x, axis, dtype, include_initial, 1, out)


def cumsum(x: Tensor, /, dim: int | None = None, *, dtype: Any = None, out: Tensor | None = None) -> Tensor:
    """`cumulative_sum` with torch's names. Does not block. Raises as that does."""
    return cumulative_sum(x, axis=dim, dtype=dtype, out=out)


def cumprod(x: Tensor, /, dim: int | None = None, *, dtype: Any = None, out: Tensor | None = None) -> Tensor:
    """`cumulative_prod` with torch's names. Does not block. Raises as that does."""
    return cumulative_prod(x, axis=dim, dtype=dtype, out=out)


def logcumsumexp(x: Tensor, /, dim: int) -> Tensor:
    """log of the sums of exp(x) so far, along an axis. Does not block. Raises IndexOutOfRange."""
    a = array_of(x)
    axis = x._axis(dim)
    try:
        return wrap(np.logaddexp.accumulate(_inexact(a), axis))
    except FAILURES as error:
        raise failed(error, f"logcumsumexp along axis {dim} of", a) from error


def cummax(x: Tensor, /, dim: int) -> Found:
    """Largest values so far along an axis, and where the last of each is. Does not block. Raises IndexOutOfRange."""
    return _running(x, dim, np.maximum)


def cummin(x: Tensor, /, dim: int) -> Found:
    """Smallest values so far along an axis, and where the last of each is. Does not block. Raises IndexOutOfRange."""
    return _running(x, dim, np.minimum)


def _running(x: Tensor, dim: int, function: Any) -> Found:
    a = array_of(x)
    axis = x._axis(dim)
    values = function.accumulate(a, axis)
    places = np.arange(a.shape[axis]).reshape([-1 if i == axis else 1 for i in range(a.ndim)])
    found = np.where((a == values) | np.isnan(a), places, 0)
    return Found(wrap(values), wrap(np.maximum.accumulate(found, axis)))


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Differences of neighbours along an axis, `n` times. Does not block. Raises IndexOutOfRange, InvalidArgument."""
    a = array_of(x)
    along = x._axis(axis)
    ends = {name: array_of(end) for name, end in (("prepend", prepend), ("append", append)) if end is not None}
    try:
        result = np.diff(a, n, along, **ends)
    except FAILURES as error:
        raise failed(error, f"differences along axis {axis} of", a) from error
    return wrap(result.copy() if result is a else result)


def mode(x: Tensor, /, dim: int = -1, keepdim: bool = False) -> Found:
    """The value met most often along an axis (the smallest of several), and where its last one stands.

    Does not block. Raises IndexOutOfRange; InvalidArgument: an axis without elements.
    """
    a = array_of(x)
    axis = x._axis(dim)
    rows = np.moveaxis(a, axis, -1)
    if not rows.shape[-1]:
        raise InvalidArgument(f"mode along axis {dim} of a tensor of shape {a.shape}; there is no element")
    order = np.argsort(rows, -1, stable=True)
    values = np.take_along_axis(rows, order, -1)
    place = np.arange(rows.shape[-1])
    begins = np.concatenate([np.ones((*rows.shape[:-1], 1), bool), values[..., 1:] != values[..., :-1]], -1)
    runs = place - np.maximum.accumulate(np.where(begins, place, 0), -1)  # how many equal ones came before
    best = np.argmax(runs, -1, keepdims=True)
    found = [np.take_along_axis(values, best, -1), np.take_along_axis(order, best, -1)]
    shaped = [np.moveaxis(one, -1, axis) if keepdim else one[..., 0] for one in found]
    return Found(wrap(shaped[0]), wrap(shaped[1]))


# -- TH's others -------------------------------------------------------------------------------------------------------


def dist(x: Tensor, other: Tensor, /, p: float = 2) -> Tensor:
    """The p-norm of the difference of two tensors. Does not block. Raises InvalidArgument: shapes."""
    a, b = array_of(x), array_of(other)
    try:
        return wrap(np.linalg.norm(np.subtract(_inexact(a), _inexact(b)).reshape(-1), p))
    except FAILURES as error:
        raise failed(error, f"the distance to a tensor of shape {b.shape} of", a) from error


def renorm(x: Tensor, /, p: float, dim: int, maxnorm: float) -> Tensor:
    """A copy whose parts along an axis have a p-norm of at most `maxnorm`. Does not block.

    Raises IndexOutOfRange; InvalidArgument: p or maxnorm; DTypeError: integers.
    """
    a = array_of(x)
    axis = x._axis(dim)
    if a.dtype.kind in "biu":
        raise DTypeError(f"renorm of a tensor of {a.dtype.name}; convert it to a floating-point type by to()")
    if not p > 0 or not maxnorm >= 0:
        raise InvalidArgument(f"renorm to {p}-norms of at most {maxnorm}; give p > 0 and a norm from 0")
    others = tuple(i for i in range(a.ndim) if i != axis)
    norms = np.linalg.vector_norm(a, axis=others, keepdims=True, ord=p) if others else np.abs(a)
    return wrap(np.where(norms > maxnorm, a * (maxnorm / (norms + 1e-7)), a).astype(a.dtype))


def histc(x: Tensor, /, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many values lie in each of `bins` equal parts of [min, max] (both the same: the smallest and largest value).

    Does not block. Raises InvalidArgument: fewer than one part, a range that is none.
    """
    a = array_of(x)
    return wrap(_histogram(a, a.reshape(-1), bins, min, max))


def bhistc(x: Tensor, /, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """`histc` of each row of a matrix, between the same bounds. Does not block. Raises InvalidArgument."""
    a = array_of(x)
    if a.ndim != 2:
        raise InvalidArgument(f"bhistc of a tensor of shape {a.shape}; give two axes")
    if min == max and a.size:
        min, max = a.min(), a.max()
    rows = [_histogram(a, row, bins, min, max) for row in a]
    return wrap(np.stack(rows) if rows else _histogram(a, a.reshape(-1), bins, min, max)[:0].reshape(0, bins))


def _histogram(a: NDArray[Any], values: NDArray[Any], bins: int, low: Any, high: Any) -> NDArray[Any]:
    if values.dtype.kind == "c":
        raise DTypeError(f"a histogram of a tensor of {a.dtype.name}; complex numbers have no order")
    values = _inexact(values)
    if low == high and values.size:
        low, high = values.min(), values.max()
    try:
        if not low <= high:
            raise ValueError(f"range [{low}, {high}]")
        counts = np.histogram(values, index_of(bins, "number of parts"), (float(low), float(high)))[0]
    except FAILURES as error:
        raise failed(error, f"a histogram of {bins} parts of", a) from error
    return counts.astype(a.dtype if a.dtype.kind == "f" else np.float32)


def match(x: Tensor, other: Tensor, /, gain: float = 1) -> Tensor:
    """`gain` times the squared distance of each row of a matrix to each of another (TH's). Does not block.

    Raises InvalidArgument: rows of different sizes.
    """
    a, b = array_of(x), array_of(other)
    width = math.prod(a.shape[1:])
    if a.ndim < 1 or b.ndim < 1 or math.prod(b.shape[1:]) != width:
        raise InvalidArgument(f"match of tensors of shapes {a.shape} and {b.shape}; give rows of one size")
    rows, others = _inexact(a).reshape(len(a), width), _inexact(b).reshape(len(b), width)
    apart = rows[:, None, :] - others[None, :, :]
    return wrap((gain * np.sum(apart * apart, axis=2)).astype(apart.dtype))
