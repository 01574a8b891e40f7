"""Whole tensors of random values: each element, in logical order, is what the next single call would give.

Values are computed in double (integers in 64 bits) and then rounded, or wrapped, to the type of the tensor. Where a
type is too coarse for it, a value can round up to the bound that the distribution stays below. While one tensor is
filled, other threads that draw from the same generator block.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._loading import load
from .._native import Twister
from .._tensor.core import Tensor, array_of
from .._tensor.creation import empty, zeros_like
from .._tensor.dispatch import Array, Module, Result, composed, export, operation
from .._tensor.options import with_options
from ..dtypes import NumpyType
from ..errors import DTypeError, InvalidArgument
from ..storage.arguments import empty_array, integer, read_only
from .generator import Generator, between, deviation, generator_of, interval, probability, rate, spread

FUNCTIONS: Final = ("bernoulli", "normal")
"""Functions of `shmtensor`; the others are those of `shmtensor.random`, and methods."""
METHODS: Final = (
    "bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_",
)  # fmt: skip

_CHUNK: Final = 8192
_INT64: Final = np.dtype(np.int64)
_FLOAT64: Final = np.dtype(np.float64)
"""Elements computed at a time: in their 64 KiB they are still in the cache when they are rounded."""
_DRAWS: Final = 1 << 32  # values of one draw
_BITS: Final = 1 << 64


def _draw(
    doing: str,
    array: NDArray[Any],
    dtype: NumpyType,
    generator: Generator | None,
    put: Callable[[Twister, NDArray[Any], int], object],
) -> None:
    """Fill an array, in logical order, with what `put` writes.

    Args:
        put: called with the twister, a contiguous piece of `dtype` to write to, and the place of its first element.
    """
    if not isinstance(array, np.ndarray):
        _on_host(array, lambda drawn: _draw(doing, drawn, dtype, generator, put))
        return
    if not array.flags.writeable:
        raise read_only(doing)
    source = generator_of(generator)
    flat = array.reshape(-1) if array.flags.c_contiguous else empty_array((array.size,), array.dtype)
    scratch = None if array.dtype == dtype else np.empty(min(array.size, _CHUNK), dtype)
    with source._lock:
        for at in range(0, flat.size, _CHUNK):
            part = flat[at : at + _CHUNK]
            if scratch is None:
                put(source._twister, part, at)
            else:
                piece = scratch[: part.size]
                put(source._twister, piece, at)
                # Values out of the range of a narrower type become infinite, or wrap, as in C.
                with np.errstate(over="ignore", invalid="ignore"):
                    part[...] = piece
    if not array.flags.c_contiguous:
        array[...] = flat.reshape(array.shape)


def _on_host(array: Array, draw: Callable[[NDArray[Any]], None]) -> None:
    """Draw into memory of the host, and copy it to an array on a GPU: it gets the same values as one on the host."""
    drawn = np.empty(array.shape, array.dtype)
    draw(drawn)
    load("gpu.arrays").copy_in(array, drawn)


def _fill(array: Array, name: str, pair: tuple[float, float], generator: Generator | None) -> None:
    """Values of a distribution of `Twister` for every element; of complex ones for the real part, then the other."""
    if not isinstance(array, np.ndarray):
        _on_host(array, lambda drawn: _fill(drawn, name, pair, generator))
        return
    if array.dtype.kind == "c":
        real = array.real
        array = np.lib.stride_tricks.as_strided(real, (*real.shape, 2), (*real.strides, real.itemsize))
    values_of = attrgetter(name)
    _draw(f"{name}_", array, _FLOAT64, generator, lambda twister, piece, _: values_of(twister)(*pair, piece))


def _require(doing: str, array: Array, kinds: str, wanted: str) -> None:
    if array.dtype.kind not in kinds:
        raise DTypeError(f"{doing} of a tensor of {array.dtype.name}; it takes {wanted}")


def _require_floats(doing: str, array: Array, also: str = "") -> None:
    _require(doing, array, "fV" + also, "floating-point types" + (" and complex ones" if also else ""))


def _require_reals(doing: str, array: Array) -> None:
    _require(doing, array, "biufV", "types that are not complex")


def _zeros(g: Tensor) -> Tensor:
    """The gradient of drawn values with respect to the previous content and to the parameters of the distribution."""
    return zeros_like(g)


# -- of floating-point types ------------------------------------------------------------------------------------------


@operation(result=Result.SAME, gradient=_zeros)
def uniform_(
    xp: Module, t: Array, /, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None
) -> Array:
    """Fill with values from `low` to below `high`, 2**32 different ones; returns t.

    Blocks while another thread draws from the generator. Of complex numbers the two parts are drawn one after the
    other, each between the bounds, as in torch.

    Raises:
        DTypeError: a tensor that is not floating-point or complex, or bounds that are not numbers.
        InvalidArgument: low above high, or bounds that are not finite.
        LayoutError: memory that is read-only here.
    """
    _require_floats("uniform_", t, "c")
    _fill(t, "uniform", interval(low, high), generator)


@operation(result=Result.SAME, gradient=dict.fromkeys(("t", "mean", "std"), _zeros))
def normal_(
    xp: Module,
    t: Array,
    /,
    mean: Any = 0.0,
    std: Any = 1.0,
    *,
    stdv: Any = None,
    generator: Generator | None = None,
) -> Array:
    """Fill with values of the normal distribution; returns t.

    Blocks while another thread draws from the generator. Of complex numbers the two parts are drawn one after the
    other, each with std / sqrt(2), as in torch.

    Args:
        mean, std: numbers, or tensors that broadcast to the shape of t. With a tensor among them the standard values
            are rounded to t's type first, and scaled and moved in it, as in TH.
        stdv: another name of `std`.

    Raises:
        DTypeError: a tensor that is not floating-point or complex, or arguments that are not numbers.
        InvalidArgument: a negative deviation, or incompatible shapes.
        LayoutError: memory that is read-only here.
    """
    _require_floats("normal_", t, "c")
    std = std if stdv is None else stdv
    means = _along(xp, mean, t) if isinstance(mean, xp.ndarray) else None
    stdvs = _along(xp, std, t) if isinstance(std, xp.ndarray) else None
    if stdvs is not None and not (stdvs >= 0).all():
        raise InvalidArgument("a standard deviation in the tensor is negative; give numbers of at least 0")
    middle, width = deviation(0.0 if means is not None else mean, 1.0 if stdvs is not None else std)
    if t.dtype.kind != "c" and means is None and stdvs is None:
        _fill(t, "normal", (middle, width), generator)
        return
    _fill(t, "normal", (0.0, width / math.sqrt(2) if t.dtype.kind == "c" else width), generator)
    if stdvs is not None:
        xp.multiply(t, stdvs, out=t)
    xp.add(t, t.dtype.type(middle) if means is None else means, out=t)


def _along(xp: Module, given: Array, array: Array) -> Array:
    """Means or deviations for each element, in the type of the array."""
    _require_floats("normal_ with means or deviations", given)
    try:
        spread_out = xp.broadcast_to(given, array.shape)
    except ValueError:
        raise InvalidArgument(
            f"means or deviations of shape {given.shape} for a tensor of shape {array.shape}; they must broadcast to it"
        ) from None
    return spread_out.astype(array.dtype, copy=xp.may_share_memory(given, array))


@composed(method=False)
@with_options
def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    stdv: Any = None,
    dtype: Any = None,
    shared: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """A tensor of normal values, each with a mean and deviation of its own.

    Blocks while another thread draws from the generator.

    Args:
        mean, std: tensors that broadcast with each other, or one of them a number.
        stdv: another name of `std`.
        size: the sizes of the result, if both are numbers.
        dtype: default that of the first tensor, and float32 without one.

    Raises:
        DTypeError, InvalidArgument: as normal_; no size for two numbers, or a size beside a tensor.
    """
    std = std if stdv is None else stdv
    tensors = [given for given in (mean, std) if isinstance(given, Tensor)]
    if (size is None) != bool(tensors):
        raise InvalidArgument("normal needs a size if mean and std are both numbers, and takes none otherwise")
    if not tensors:
        return normal_(empty(size, dtype=dtype, shared=shared), mean, std, generator=generator)
    try:
        shape = np.broadcast_shapes(*[one.shape for one in tensors])
    except ValueError:
        raise InvalidArgument(
            f"means of shape {tensors[0].shape} and deviations of shape {tensors[1].shape} do not match; "
            "give shapes that broadcast"
        ) from None
    made = empty(shape, dtype=tensors[0].dtype if dtype is None else dtype, shared=shared)
    return normal_(made, mean, std, generator=generator)


@operation(result=Result.SAME, gradient=_zeros)
def log_normal_(
    xp: Module,
    t: Array,
    /,
    mean: float = 1.0,
    std: float = 2.0,
    *,
    stdv: float | None = None,
    generator: Generator | None = None,
) -> Array:
    """Fill with exp of normal values; returns t. Blocks and raises as `uniform_`, for complex ones and std < 0 too.

    `stdv` is another name of `std`.
    """
    _require_floats("log_normal_", t)
    _fill(t, "log_normal", deviation(mean, std if stdv is None else stdv), generator)


@operation(result=Result.SAME, gradient=_zeros)
def exponential_(xp: Module, t: Array, /, lambd: float = 1.0, *, generator: Generator | None = None) -> Array:
    """Fill with values of density lambd * exp(-lambd * x); returns t. Blocks and raises as `log_normal_`."""
    _require_floats("exponential_", t)
    _fill(t, "exponential", rate(lambd), generator)


@operation(result=Result.SAME, gradient=_zeros)
def cauchy_(
    xp: Module, t: Array, /, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Array:
    """Fill with values of the Cauchy distribution; returns t. Blocks and raises as `log_normal_`."""
    _require_floats("cauchy_", t)
    _fill(t, "cauchy", spread(median, sigma), generator)


# -- of every type that is not complex --------------------------------------------------------------------------------


@operation(result=Result.SAME, gradient=_zeros)
def geometric_(xp: Module, t: Array, /, p: float, *, generator: Generator | None = None) -> Array:
    """Fill with integers i from 1, with probability p * (1 - p)**(i - 1); returns t.

    Blocks while another thread draws from the generator. p is torch's: the probability to stop (that of
    `Generator.geometric` is TH's, to go on). What an integer type cannot hold wraps around, as in C.

    Raises:
        DTypeError: a complex or bool tensor, or p that is not a number.
        InvalidArgument: p not between 0 and 1, or so small that 1 - p is 1.
        LayoutError: memory that is read-only here.
    """
    _require("geometric_", t, "iufV", "integer and floating-point types")
    pair = 1 - between(p)[0], 0.0
    if pair[0] == 1:
        raise InvalidArgument(f"p {p!r} is too close to 0: 1 - p is 1; give a larger one")
    if t.dtype.kind not in "iu":
        _fill(t, "geometric", pair, generator)
        return

    def put(twister: Twister, piece: NDArray[np.int64], _: int) -> None:
        values = np.empty(piece.size)
        twister.geometric(*pair, values)
        piece[...] = values

    _draw("geometric_", t, _INT64, generator, put)


@operation(result=Result.SAME, gradient=dict.fromkeys(("t", "p"), _zeros))
def bernoulli_(xp: Module, t: Array, /, p: Any = 0.5, *, generator: Generator | None = None) -> Array:
    """Fill with 1 with probability p, else 0; returns t.

    Blocks while another thread draws from the generator.

    Args:
        p: a number from 0 to 1, or a floating-point tensor of one for each element, which broadcasts to the shape of t.

    Raises:
        DTypeError: a complex tensor, or p that is not a number or tensor of a floating-point type.
        InvalidArgument: p outside 0 to 1, or of a shape that does not broadcast.
        LayoutError: memory that is read-only here.
    """
    _require_reals("bernoulli_", t)
    if not isinstance(p, xp.ndarray):
        _fill(t, "bernoulli", probability(p), generator)
        return
    _require_floats("bernoulli_ with probabilities", p)
    if not ((p >= 0) & (p <= 1)).all():
        raise InvalidArgument("a probability in the tensor is not from 0 to 1")
    try:
        chances = xp.broadcast_to(p, t.shape).reshape(-1)
    except ValueError:
        raise InvalidArgument(
            f"probabilities of shape {p.shape} for a tensor of shape {t.shape}; they must broadcast to it"
        ) from None
    if not isinstance(chances, np.ndarray):
        chances = load("gpu.arrays").to_host(chances)
    elif xp.may_share_memory(chances, t):
        chances = chances.copy()

    def put(twister: Twister, piece: NDArray[np.float64], at: int) -> None:
        twister.uniform(0.0, 1.0, piece)
        np.less_equal(piece, chances[at : at + piece.size].astype(np.float64), out=piece)

    _draw("bernoulli_", t, _FLOAT64, generator, put)


@composed()
@with_options
def bernoulli(input: Tensor, p: Any = None, *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """A tensor like a tensor of probabilities: 1 with the probability in its place, else 0. Raises as `bernoulli_`.

    Args:
        input: probabilities; with `p`, only its shape and type count.
        p: a probability for all elements.
        dtype: default that of `input`.
    """
    if p is None:
        _require_floats("bernoulli", array_of(input))
    made = empty(input.shape, dtype=array_of(input).dtype if dtype is None else dtype, device=input.device)
    return bernoulli_(made, input if p is None else p, generator=generator)


@operation(result=Result.SAME, gradient=_zeros)
def random_(xp: Module, t: Array, /, low: Any = None, high: Any = None, *, generator: Generator | None = None) -> Array:
    """Fill with integers: `random_()`, `random_(to)` from 0 to below it, `random_(from, to)`.

    Blocks while another thread draws from the generator. A value is a draw modulo the number of values, as in TH, so
    small ones are favoured by at most that number / 2**32. `random_()` goes from 0 to the largest value of the type
    (2**24 of float32, as TH has it), and below 2**32. More than 2**32 values from `from` to `to` take two draws each,
    as in torch.

    Raises:
        DTypeError: a complex tensor, or bounds that are not integers.
        InvalidArgument: from at or above to, or outside the type.
        LayoutError: memory that is read-only here.
    """
    _require_reals("random_", t)
    least, most = bounds_of(t.dtype)
    if low is None and high is None:
        first, count = 0, min(whole_numbers(t.dtype), _DRAWS)
    else:
        first, last = (0, low) if high is None else (low, high)
        try:
            first, count = integer(first), integer(last) - integer(first)
        except TypeError:
            raise DTypeError(f"random_ from {first!r} to {last!r}: give integers") from None
        if count <= 0:
            raise InvalidArgument(f"random_ from {first} to {last}: no integer to draw; `to` itself is not drawn")
        if first < least or first + count - 1 > most:
            raise InvalidArgument(
                f"random_ from {first} to {last} in a tensor of {t.dtype.name}, which holds {least} to {most}"
            )
    count, first = count % _BITS, first % _BITS
    _draw("random_", t, _INT64, generator, lambda twister, piece, _: twister.integers(count, first, piece))


def whole_numbers(dtype: NumpyType) -> int:
    """How many of 0, 1, 2, ... TH draws for a type: those up to its largest, or to 2**(bits of the mantissa)."""
    if dtype.kind in "biu":
        return bounds_of(dtype)[1] + 1
    return (1 << (int(_info(dtype).nmant) + 1)) + 1


def bounds_of(dtype: NumpyType) -> tuple[int, int]:
    """The least and the largest integer that random_ puts into a type."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return int(info.min), int(info.max)
    most = min(int(float(_info(dtype).max)), (1 << 63) - 1)
    return -most, most


def _info(dtype: NumpyType) -> Any:
    if dtype.isbuiltin == 1:
        return np.finfo(dtype)
    import ml_dtypes  # type: ignore[import-not-found,import-untyped,unused-ignore]

    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call, unused-ignore]


export(globals())
