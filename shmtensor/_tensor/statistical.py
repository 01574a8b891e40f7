"""Reductions: sums, extremes and truth values, over all axes, some, or along one.

Arguments have the array API's names (`axis`, `keepdims`) and torch's (`dim`, `keepdim`). Nothing in this module blocks.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from ..dtypes import default_float, dtype_of
from ..errors import DTypeError, InvalidArgument
from ..storage.arguments import SEQUENCES
from . import norm_rules
from . import reduction_rules as rules
from .axes import dim_of
from .core import Tensor, axes_of, axis_of, index_of
from .dispatch import Array, Gradient, Module, Out, composed, export, operation
from .elementwise import log_of_sum, maximum, minimum
from .outputs import given_each
from .result_types import as_type, is_narrow, norms_of_vectors, require_floating, sortable, widened
from .spread import moments

_INT64: Final = np.dtype(np.int64)
RAISES: Final = "Raises IndexOutOfRange (axes), InvalidArgument (no elements), DTypeError."


class Reduction(Protocol):
    """A function that reduces all axes or some."""

    def __call__(
        self, x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False, out: Tensor | None = None
    ) -> Tensor: ...


def inexact(xp: Module, a: Array) -> Array:
    """Integers as floating-point numbers: their differences and powers may not be of their own type."""
    return a.astype(default_float()) if a.dtype.kind in "biu" else a


def reduced(function: Callable[..., Any], a: Array, axis: Any, keepdims: bool, **how: Any) -> Array:
    """`function` over axes of an array."""
    return function(a, axis=axes_of(a, axis), keepdims=keepdims, **how)


def reduced_in_float32(
    xp: Module, function: Callable[..., Any], a: Array, axis: Any, keepdims: bool, **how: Any
) -> Array:
    """`function` over axes; float16, bfloat16 and float8, which would lose precision, as float32."""
    kind = how.get("dtype", a.dtype)
    if is_narrow(kind):
        how.pop("dtype", None)
        wide = a.astype(kind, copy=False).astype(xp.float32)
        return as_type(xp.asarray(reduced(function, wide, axis, keepdims, **how)), kind)
    return reduced(function, a.astype(kind) if is_narrow(a.dtype) else a, axis, keepdims, **how)


def _dims(dim: Any, axis: Any) -> Any:
    """The axes that torch's `dim` and NumPy's `axis` name, one of which is not None; no axes means all of them."""
    dims = axis if dim is None else dim
    return None if isinstance(dims, SEQUENCES) and not dims else dims


def _whole(a: Array, dtype: Any) -> Any:
    """The type of running sums and products of an array: int64 for integers, unless one is given."""
    return dtype_of(dtype) if dtype is not None else _INT64 if a.dtype.kind in "biu" else a.dtype


def _typed(name: str, function: Callable[..., Any], doc: str, gradient: Gradient) -> Reduction:
    def compute(
        xp: Module,
        x: Array,
        /,
        dim: Any = None,
        keepdim: bool = False,
        *,
        dtype: Any = None,
        axis: Any = None,
        keepdims: bool = False,
    ) -> Array:
        along = None if dim is None and axis is None else _dims(dim, axis)
        own = x.dtype
        if dtype is None and own.isbuiltin == 1 and own.char not in "BHILQe":  # NumPy's choice for most is torch's
            return function(x, axis=axes_of(x, along), keepdims=keepdims or keepdim)
        kind = dtype_of(dtype) if dtype is not None else _INT64 if own.kind == "u" else own
        return reduced_in_float32(xp, function, x, along, keepdims or keepdim, dtype=kind)

    text = f"{doc} over all axes or some, of type `dtype` (default: the tensor's, of integers int64)."
    return _reduction(compute, name, text, gradient)


def _plain(
    name: str, function: Callable[..., Any], doc: str, *, keeps_bytes: bool = False, gradient: Gradient | None = None
) -> Callable[..., Tensor]:
    """A reduction by a function of NumPy; `keeps_bytes`: of uint8 it gives uint8."""

    def compute(
        xp: Module, x: Array, /, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False
    ) -> Array:
        along = None if dim is None and axis is None else _dims(dim, axis)
        result = reduced(function, x, along, keepdims or keepdim)
        return result.astype(x.dtype) if keeps_bytes and x.dtype == np.uint8 else result

    return _reduction(compute, name, f"{doc} over all axes or some.", gradient)


def _own(
    name: str, function: Callable[..., Any], doc: str, gradient: Gradient, *, integers: bool = False
) -> Callable[..., Tensor]:
    """A reduction of floating-point types; of `integers` inexact."""

    def compute(
        xp: Module,
        x: Array,
        /,
        dim: Any = None,
        keepdim: bool = False,
        *,
        dtype: Any = None,
        axis: Any = None,
        keepdims: bool = False,
    ) -> Array:
        along = None if dim is None and axis is None else _dims(dim, axis)
        a = x if dtype is None else x.astype(dtype_of(dtype))
        if a.dtype.kind in "biu":
            if not integers:
                raise DTypeError(
                    f"{name} of a tensor of {a.dtype.name}; give a floating-point dtype or convert it with to()"
                )
            a = inexact(xp, a)
        if a.dtype.isbuiltin == 1 and a.dtype.char != "e":
            return function(a, axis=axes_of(a, along), keepdims=keepdims or keepdim)
        return reduced_in_float32(xp, function, a, along, keepdims or keepdim)

    return _reduction(compute, name, f"{doc} over all axes or some.", gradient)


def _corrected(name: str, function: Callable[[Array], Array], doc: str, gradient: Gradient) -> Callable[..., Tensor]:
    """A reduction by a function of the variance."""

    def compute(
        xp: Module,
        x: Array,
        /,
        dim: Any = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float | None = None,
        axis: Any = None,
        keepdims: bool = False,
    ) -> Array:
        if unbiased is not None and correction is not None:
            raise InvalidArgument(f"{name} with unbiased={unbiased} and correction={correction}; give one of them")
        if isinstance(axis, bool):  # moments takes a bool for torch's std(x, unbiased)
            raise InvalidArgument(f"{name} over axis {axis}; give an integer")
        variance, _ = moments(xp, name, x, _dims(dim, axis), unbiased, keepdims or keepdim, correction)
        return as_type(function(variance), x.real.dtype)

    text = (
        f"{doc} over all axes or some. `correction` (default 1: of a sample) is subtracted from the number of elements."
    )
    return _reduction(compute, name, text, gradient)


def _one_axis(name: str, function: Callable[..., Any], doc: str) -> Callable[..., Tensor]:
    def compute(
        xp: Module,
        x: Array,
        /,
        dim: int | None = None,
        keepdim: bool = False,
        *,
        axis: int | None = None,
        keepdims: bool = False,
    ) -> Array:
        along = axis if dim is None else dim
        if along is not None:
            along = dim_of(x, along)
        return function(x, axis=along if x.ndim else None, keepdims=keepdims or keepdim)

    return _reduction(compute, name, f"{doc}, in flat order or along an axis.")


def _reduction(
    compute: Callable[..., Any], name: str, doc: str, gradient: Gradient | None = None
) -> Callable[..., Tensor]:
    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"{doc}\n\n{RAISES}"
    return operation(out=Out.COPIED, fails="{name} over axes {axis} of", gradient=gradient)(compute)


def _logsumexp(a: Array, axis: Any, keepdims: bool) -> Any:
    top = np.max(a.real, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):  # the log of 0, where every value is -inf
        summed = np.log(np.sum(np.exp(a - top), axis=axis, keepdims=True)) + top
    return summed if keepdims else np.squeeze(summed, axis=axis)


def _on_arrays(ours: Callable[..., Any], others: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy's arrays, and the one for arrays of other modules, which lack it."""
    return lambda a, **how: (ours if isinstance(a, np.ndarray) else others)(a, **how)


sum = _typed("sum", np.add.reduce, "Sum", rules.of_sum)
prod = _typed("prod", np.multiply.reduce, "Product", rules.of_prod)
nansum = _typed("nansum", np.nansum, "Sum of the values that are not NaN", rules.of_nansum)
mean = _own("mean", np.mean, "Mean", rules.of_mean)
nanmean = _own("nanmean", np.nanmean, "Mean of the values that are not NaN", rules.of_nanmean)
amin = _plain("amin", _on_arrays(np.minimum.reduce, np.min), "Smallest value", gradient=rules.of_extreme)
amax = _plain("amax", _on_arrays(np.maximum.reduce, np.max), "Largest value", gradient=rules.of_extreme)
all = _plain(
    "all", _on_arrays(np.logical_and.reduce, np.all), "Whether every value is true (uint8 for uint8)", keeps_bytes=True
)
any = _plain(
    "any", _on_arrays(np.logical_or.reduce, np.any), "Whether some value is true (uint8 for uint8)", keeps_bytes=True
)
logsumexp = _own("logsumexp", _logsumexp, "log(sum(exp(x)))", rules.of_logsumexp, integers=True)
std = _corrected("std", np.sqrt, "Standard deviation", rules.of_std)
var = _corrected("var", lambda variance: variance, "Variance", rules.of_var)
count_nonzero = _plain("count_nonzero", np.count_nonzero, "How many values are not zero")
argmax = _one_axis("argmax", np.argmax, "Index of the largest value")
argmin = _one_axis("argmin", np.argmin, "Index of the smallest value")


@operation(fails="a hash of", out=Out.COPIED)
def hash_tensor(xp: Module, x: Array, /, dim: Any = None, *, keepdim: bool = False, mode: int = 0) -> Array:
    """Exclusive or of the bits of all elements as float64 or int64, over all axes or some; uint64.

    Args:
        mode: 0, the only one.

    Raises:
        IndexOutOfRange (axes), DTypeError (complex numbers), InvalidArgument (mode).
    """
    if mode != 0:
        raise InvalidArgument(f"hash_tensor with mode {mode!r}; give 0")
    if x.dtype.kind == "c":
        raise DTypeError(f"hash_tensor of a tensor of {x.dtype.name}; it takes real numbers: use view_as_real")
    bits = x.astype(xp.int64 if x.dtype.kind in "biu" else xp.float64).view(xp.uint64)
    return reduced(xp.bitwise_xor.reduce, bits, _dims(dim, None), keepdim)


class MinMax(NamedTuple):
    """Smallest and largest values."""

    min: Tensor
    max: Tensor


class Found(NamedTuple):
    """Values, and their indices along the axis."""

    values: Tensor
    indices: Tensor


def _along_one(xp: Module, a: Array, dim: Any, keepdim: bool, place: Callable[[Array], Array]) -> Found:
    """The elements along an axis whose indices `place` finds in rows (the last axis), and these indices."""
    rows = a.reshape(1) if not a.ndim else a
    axis = axis_of(rows, dim)
    rows = xp.moveaxis(rows, axis, -1)
    at = xp.expand_dims(place(rows), -1)
    found = [xp.take_along_axis(rows, at, -1), at]
    if a.ndim == 0:
        return tuple([one.reshape(()) for one in found])  # type: ignore[return-value]
    return tuple([xp.moveaxis(one, -1, axis) if keepdim else one[..., 0] for one in found])  # type: ignore[return-value]


@operation(
    name="max", results=Found, function=False, method=False, fails="largest values along axis {dim} of",
    gradient=rules.of_found,
)  # fmt: skip
def _max_along(xp: Module, x: Array, /, dim: Any, keepdim: bool = False) -> Found:
    """Largest values along an axis, and the index of the first of each."""
    return _along_one(xp, x, dim, keepdim, lambda rows: xp.argmax(rows, -1))


@operation(
    name="min", results=Found, function=False, method=False, fails="smallest values along axis {dim} of",
    gradient=rules.of_found,
)  # fmt: skip
def _min_along(xp: Module, x: Array, /, dim: Any, keepdim: bool = False) -> Found:
    """Smallest values along an axis, and the index of the first of each."""
    return _along_one(xp, x, dim, keepdim, lambda rows: xp.argmin(rows, -1))


def _extreme(
    name: str, along: Callable[..., Found], every: Callable[..., Tensor], either: Callable[..., Tensor], which: str
) -> Callable[..., Any]:
    def compute(
        input: Tensor,
        dim: Any = None,
        keepdim: bool = False,
        *,
        other: Any = None,
        axis: Any = None,
        keepdims: bool = False,
        out: Any = None,
    ) -> Any:
        if isinstance(dim, Tensor | np.ndarray):
            dim, other = None, dim
        if other is not None:
            return either(input, other, out=out)
        dims = axis if dim is None else dim
        if dims is None:
            return every(input, keepdim=keepdim or keepdims, out=out)
        return into_pair(along(input, dims, keepdim or keepdims), out)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = (
        f"The {which} value; along an axis (values, indices); with another tensor the {which} of each two elements.\n\n"
        f"{RAISES}"
    )
    return composed()(compute)


def into_pair(found: Any, out: Any) -> Any:
    """Named results, or copied to a pair of tensors. Raises InvalidArgument, DTypeError."""
    return given_each(found, out, "results")


max = _extreme("max", _max_along, amax, maximum, "largest")
min = _extreme("min", _min_along, amin, minimum, "smallest")


def _middle(xp: Module, rows: Array) -> Array:
    """The index of the middle element of each row (the lower of two); of a NaN, if there is one."""
    if not rows.shape[-1]:
        raise ValueError("there are no elements")
    order = xp.argsort(sortable(xp, rows), -1, kind="stable")
    middle = order[..., (rows.shape[-1] - 1) // 2]
    if rows.dtype.kind in "iub":
        return middle
    nans = xp.isnan(rows)
    return xp.where(nans.any(-1), xp.argmax(nans, -1), middle)


@operation(
    name="median", results=Found, function=False, method=False, fails="the median along axis {dim} of",
    gradient=rules.of_found,
)  # fmt: skip
def _median_along(xp: Module, x: Array, /, dim: Any, keepdim: bool) -> Found:
    """Middle values along an axis, and their indices."""
    return _along_one(xp, x, dim, keepdim, partial(_middle, xp))


@operation(name="median", function=False, method=False, out=Out.COPIED, fails="the median of", gradient=rules.of_middle)
def _median(xp: Module, x: Array, /) -> Array:
    """Median of all elements. If there are none: NaN, or the smallest value of an integer type."""
    if not x.size:
        return xp.full((), xp.iinfo(x.dtype).min if x.dtype.kind in "iu" else xp.nan, x.dtype)
    flat = x.reshape(-1)
    return flat[_middle(xp, flat)]


@composed()
def median(input: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None, out: Any = None) -> Any:
    """The value in the middle, the smaller one of two; along an axis (values, indices). NaN where there is one.

    Raises IndexOutOfRange, InvalidArgument (an axis without elements), DTypeError.
    """
    dims = axis if dim is None else dim
    return _median(input, out=out) if dims is None else into_pair(_median_along(input, dims, keepdim), out)


@composed()
def aminmax(input: Tensor, *, dim: Any = None, keepdim: bool = False, out: Any = None) -> MinMax:
    """Smallest and largest values over all axes or along one. Raises as max."""
    return into_pair(MinMax(amin(input, dim=dim, keepdim=keepdim), amax(input, dim=dim, keepdim=keepdim)), out)  # type: ignore[no-any-return]


@operation(
    out=Out.COPIED,
    fails="quantile {q} of",
    gradient={
        "x": lambda g, x, q, dim, interpolation: rules.of_quantile(g, x, q, dim, interpolation),
        "q": lambda g, x, q, dim, interpolation: rules.of_parts(g, x, q, dim, interpolation),
    },
)
def quantile(
    xp: Module, x: Array, q: Any, /, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Array:
    """The value below which a part `q` (0 to 1, or several) of the values lies.

    Raises IndexOutOfRange, InvalidArgument (no elements, another part or interpolation), DTypeError (integers).
    """
    require_floating("quantile", x)
    if not x.size:
        raise InvalidArgument(
            f"quantile {q} of a tensor of shape {x.shape}: it has no elements; give at least one element"
        )
    parts = xp.asarray(q, x.dtype)
    return xp.quantile(x, parts, axis=axes_of(x, dim), keepdims=keepdim, method=interpolation).astype(x.dtype)


# -- along an axis -----------------------------------------------------------------------------------------------------


def _accumulate(
    xp: Module, name: str, function: Any, a: Array, axis: int | None, dtype: Any, include_initial: bool, first: Any
) -> Array:
    """Running sums or products along an axis, the only one by default."""
    if axis is None and a.ndim != 1:
        raise InvalidArgument(f"{name} of a tensor of shape {a.shape}; say along which axis")
    along = 0 if axis is None else axis_of(a, axis)
    if dtype is None:  # as for sums: small integers become int64
        dtype = np.add.reduce(np.empty(0, a.dtype)).dtype if a.dtype.kind in "biu" else a.dtype
    kind = dtype_of(dtype)
    narrow = kind
    if is_narrow(kind):  # it would lose precision
        a, kind = a.astype(kind, copy=False).astype(xp.float32), xp.dtype(xp.float32)
    elif is_narrow(a.dtype):
        a = a.astype(kind)
    if include_initial:
        shape = list(a.shape)
        shape[along] += 1
        result = xp.empty_like(a, dtype=kind, shape=shape)
        parts = (slice(None),) * along
        result[(*parts, slice(0, 1))] = first
        function.accumulate(a, along, kind, result[(*parts, slice(1, None))])
    else:
        result = function.accumulate(a, along, kind)
    return as_type(result, narrow)


@operation(out=Out.COPIED, fails="{name} along axis {axis} of", gradient=rules.of_running_sum)
def cumulative_sum(
    xp: Module,
    x: Array,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
) -> Array:
    """Sums of all elements so far, along an axis; `include_initial`: begins with 0.

    Raises IndexOutOfRange; InvalidArgument: no axis given, of several.
    """
    return _accumulate(xp, "cumulative_sum", xp.add, x, axis, dtype, include_initial, 0)


@operation(out=Out.COPIED, fails="{name} along axis {axis} of", gradient=rules.of_running_product)
def cumulative_prod(
    xp: Module,
    x: Array,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
) -> Array:
    """Products of all elements so far, along an axis; `include_initial`: begins with 1.

    Raises IndexOutOfRange; InvalidArgument: no axis given, of several.
    """
    return _accumulate(xp, "cumulative_prod", xp.multiply, x, axis, dtype, include_initial, 1)


@operation(out=Out.COPIED, fails="{name} along axis {axis} of", lifts=True, gradient=rules.of_cumsum)
def cumsum(xp: Module, x: Array, /, dim: int | None = None, *, dtype: Any = None) -> Array:
    """`cumulative_sum` with torch's names. Raises as that function does."""
    return _accumulate(xp, "cumsum", xp.add, x, dim, _whole(x, dtype), False, 0)


@operation(out=Out.COPIED, fails="{name} along axis {axis} of", lifts=True, gradient=rules.of_cumprod)
def cumprod(xp: Module, x: Array, /, dim: int | None = None, *, dtype: Any = None) -> Array:
    """`cumulative_prod` with torch's names. Raises as that function does."""
    return _accumulate(xp, "cumprod", xp.multiply, x, dim, _whole(x, dtype), False, 1)


@operation(out=Out.COPIED, fails="{name} along axis {axis} of", lifts=True, gradient=rules.of_logcumsumexp)
def logcumsumexp(xp: Module, x: Array, /, dim: int) -> Array:
    """Logarithms of the running sums of exp(x) along an axis. Raises IndexOutOfRange."""
    a, axis = inexact(xp, x), axis_of(x, dim)
    if a.dtype.kind != "c":
        wide = a.astype(widened(xp, a.dtype), copy=False)
        return as_type(xp.logaddexp.accumulate(wide, axis), a.dtype)
    made = a.copy()
    rows = xp.moveaxis(made, axis, 0)
    for i in range(1, len(rows)):
        rows[i] = log_of_sum(rows[i - 1], rows[i])
    return made


@operation(results=Found, fails="{name} along axis {axis} of", lifts=True, gradient=rules.of_running_extreme)
def cummax(xp: Module, x: Array, /, dim: int) -> Found:
    """Largest values so far along an axis, and the index of the last of each. Raises IndexOutOfRange."""
    return _running(xp, x, dim, xp.maximum)


@operation(results=Found, fails="{name} along axis {axis} of", lifts=True, gradient=rules.of_running_extreme)
def cummin(xp: Module, x: Array, /, dim: int) -> Found:
    """Smallest values so far along an axis, and the index of the last of each. Raises IndexOutOfRange."""
    return _running(xp, x, dim, xp.minimum)


def _running(xp: Module, a: Array, dim: int, function: Any) -> Found:
    axis = axis_of(a, dim)
    values = function.accumulate(a, axis)
    places = xp.arange(a.shape[axis]).reshape([-1 if i == axis else 1 for i in range(a.ndim)])
    found = xp.where((a == values) | xp.isnan(a), places, 0)
    return Found(values, xp.maximum.accumulate(found, axis))


@operation(
    out=Out.COPIED, fails="differences along axis {dim} of", gradient={("x", "prepend", "append"): rules.of_diff}
)
def diff(
    xp: Module,
    x: Array,
    /,
    n: int = 1,
    dim: int = -1,
    prepend: Array | None = None,
    append: Array | None = None,
) -> Array:
    """Differences of neighbours along an axis, `n` times; of truth values exclusive or.

    Raises IndexOutOfRange, InvalidArgument.
    """
    return differences(xp, x, n, dim, prepend, append)


def differences(xp: Module, x: Array, n: int, dim: int, prepend: Array | None, append: Array | None) -> Array:
    """The implementation of `diff`."""
    ends = {name: end for name, end in (("prepend", prepend), ("append", append)) if end is not None}
    along = axis_of(x, dim)
    length = x.shape[along] + np.sum([end.shape[along] for end in ends.values()], dtype=int)
    return xp.diff(x, builtins.min(index_of(n), int(length)), along, **ends)


@operation(results=Found, fails="{name} along axis {axis} of", lifts=True, gradient=rules.of_found)
def mode(xp: Module, x: Array, /, dim: int = -1, keepdim: bool = False) -> Found:
    """The most frequent value along an axis (the smallest of several), and the index of its last occurrence.

    Raises IndexOutOfRange; InvalidArgument: an axis without elements.
    """
    axis = axis_of(x, dim)
    rows = xp.moveaxis(x, axis, -1)
    if not rows.shape[-1]:
        raise InvalidArgument(f"mode along axis {dim} of a tensor of shape {x.shape}; the axis has no elements")
    order = xp.argsort(sortable(xp, rows), -1, kind="stable")
    values = xp.take_along_axis(rows, order, -1)
    place = xp.arange(rows.shape[-1])
    begins = xp.concatenate([xp.ones((*rows.shape[:-1], 1), bool), values[..., 1:] != values[..., :-1]], -1)
    runs = place - xp.maximum.accumulate(xp.where(begins, place, 0), -1)  # how many equal ones came before
    best = xp.argmax(runs, -1, keepdims=True)
    found = [xp.take_along_axis(values, best, -1), xp.take_along_axis(order, best, -1)]
    return tuple([xp.moveaxis(one, -1, axis) if keepdim else one[..., 0] for one in found])  # type: ignore[return-value]


# -- TH's others -------------------------------------------------------------------------------------------------------


@operation(fails="the distance to a tensor of shape {other.shape} of", gradient={("x", "other"): norm_rules.of_dist})
def dist(xp: Module, x: Array, other: Array, /, p: float = 2) -> Array:
    """The p-norm of the difference of two tensors. Raises InvalidArgument: shapes."""
    difference = xp.subtract(inexact(xp, x), inexact(xp, other)).reshape(-1)
    wide = difference.astype(widened(xp, difference.dtype), copy=False)
    return as_type(xp.asarray(xp.linalg.norm(wide, p)), difference.real.dtype)


@operation(out=Out.COPIED, in_place=True, gradient=norm_rules.of_renorm)
def renorm(xp: Module, x: Array, /, p: float, dim: int, maxnorm: float) -> Array:
    """A copy whose parts along an axis have a p-norm of at most `maxnorm`.

    Raises IndexOutOfRange; InvalidArgument: p or maxnorm; DTypeError: integers.
    """
    axis = axis_of(x, dim)
    if x.dtype.kind in "biu":
        raise DTypeError(f"renorm of a tensor of {x.dtype.name}; convert it to a floating-point type with to()")
    if not p > 0 or not maxnorm >= 0:
        raise InvalidArgument(f"renorm to {p}-norms of at most {maxnorm}; give p > 0 and a norm from 0")
    others = tuple(i for i in range(x.ndim) if i != axis)
    a = x.astype(widened(xp, x.dtype), copy=False)
    norms = norms_of_vectors(xp, a, axis=others, keepdims=True, ord=p) if others else xp.abs(a)
    return xp.where(norms > maxnorm, a * (maxnorm / (norms + 1e-7)), a).astype(x.dtype)


@operation(out=Out.COPIED, fails="a histogram of {bins} parts of")
def histc(xp: Module, x: Array, /, bins: int = 100, min: float = 0, max: float = 0) -> Array:
    """The number of values in each of `bins` equal bins of [min, max] (if equal: the smallest and largest value).

    Raises InvalidArgument: fewer than one bin, not a range.
    """
    return _histogram(xp, x, x.reshape(-1), bins, min, max)


@operation(fails="a histogram of {bins} parts of")
def bhistc(xp: Module, x: Array, /, bins: int = 100, min: float = 0, max: float = 0) -> Array:
    """`histc` of each row of a matrix, between the same bounds. Raises InvalidArgument."""
    if x.ndim != 2:
        raise InvalidArgument(f"bhistc of a tensor of shape {x.shape}; give two axes")
    if min == max and x.size:
        min, max = x.min(), x.max()
    rows = [_histogram(xp, x, row, bins, min, max) for row in x]
    return xp.stack(rows) if rows else _histogram(xp, x, x.reshape(-1), bins, min, max)[:0].reshape(0, bins)


def _histogram(xp: Module, a: Array, values: Array, bins: int, low: Any, high: Any) -> Array:
    if values.dtype.kind == "c":
        raise DTypeError(f"a histogram of a tensor of {a.dtype.name}; complex numbers have no order")
    values = inexact(xp, values)
    if low == high and values.size:
        low, high = values.min(), values.max()
    if not low <= high:
        raise ValueError(f"range [{low}, {high}]")
    counts = xp.histogram(values, index_of(bins, "number of parts"), (float(low), float(high)))[0]
    return counts.astype(a.dtype if a.dtype.kind == "f" else xp.float32)


@operation(method=False, gradient={("x", "other"): rules.of_match})
def match(xp: Module, x: Array, other: Array, /, gain: float = 1) -> Array:
    """`gain` times the squared distance of each row of a matrix to each of another (TH's).

    Raises InvalidArgument: rows of different sizes.
    """
    width = math.prod(x.shape[1:])
    if x.ndim < 1 or other.ndim < 1 or math.prod(other.shape[1:]) != width:
        raise InvalidArgument(f"match of tensors of shapes {x.shape} and {other.shape}; give rows of one size")
    rows, others = inexact(xp, x).reshape(len(x), width), inexact(xp, other).reshape(len(other), width)
    apart = rows[:, None, :] - others[None, :, :]
    return (gain * xp.sum(apart * apart, axis=2)).astype(apart.dtype)


__all__ = export(globals())
