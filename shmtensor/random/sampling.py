"""New tensors of random values, permutations, and draws of categories by their weights."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._tensor.core import Tensor
from .._tensor.creation import empty, empty_like
from .._tensor.dispatch import Array, Module, Out, composed, export, operation
from .._tensor.options import with_options
from ..errors import DTypeError, InvalidArgument, tensor_advice, type_name
from ..storage.arguments import empty_array, integer, shape_from
from .distributions import normal_, random_, uniform_, whole_numbers
from .generator import Generator, generator_of

FUNCTIONS: Final = (
    "multinomial", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm",
)  # fmt: skip
"""Functions of `shmtensor`; the others are those of `shmtensor.random`."""
METHODS: Final = ("multinomial",)

_INT64: Final = np.dtype(np.int64)

# -- new tensors ------------------------------------------------------------------------------------------------------


@composed(method=False)
@with_options
def rand(
    *shape: Any, size: Any = None, dtype: Any = None, shared: bool = False, generator: Generator | None = None
) -> Tensor:
    """A tensor of values from 0 to below 1: `uniform_` applied to `empty(...)`; arguments and errors of both."""
    return uniform_(empty(*shape, size=size, dtype=dtype, shared=shared), generator=generator)


@composed(method=False)
@with_options
def randn(
    *shape: Any, size: Any = None, dtype: Any = None, shared: bool = False, generator: Generator | None = None
) -> Tensor:
    """A tensor of normal values of mean 0 and deviation 1: `normal_` applied to `empty(...)`; arguments as `rand`."""
    return normal_(empty(*shape, size=size, dtype=dtype, shared=shared), generator=generator)


@composed(method=False)
@with_options
def randint(
    low: Any = None,
    high: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    shared: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """A tensor of integers: `randint(high, size)` from 0, `randint(low, high, size)`; `high` itself is not drawn.

    `random_` applied to `empty(...)`, with the arguments and errors of both.

    Args:
        size: an integer, or a sequence of them.
        dtype: default int64.
    """
    if size is None:
        low, high, size = None, low, high
    if high is None:
        low, high = None, low
    if high is None or size is None:
        raise InvalidArgument("randint without a bound or a size; give randint(high, size) or randint(low, high, size)")
    made = empty(size, dtype=_INT64 if dtype is None else dtype, shared=shared)
    return random_(made, 0 if low is None else low, high, generator=generator)


@composed(method=False)
@with_options(out=False)
def rand_like(
    input: Tensor,
    *,
    dtype: Any = None,
    memory_format: Any = None,
    shared: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """`rand` with the shape, and unless another is given the type, of `input`. Other arguments as `empty_like`."""
    return uniform_(_like(input, dtype, memory_format, shared), generator=generator)


@composed(method=False)
@with_options(out=False)
def randn_like(
    input: Tensor,
    *,
    dtype: Any = None,
    memory_format: Any = None,
    shared: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """`randn` with the shape, and unless another is given the type, of `input`. Other arguments as `empty_like`."""
    return normal_(_like(input, dtype, memory_format, shared), generator=generator)


@composed(method=False)
@with_options(out=False)
def randint_like(
    input: Tensor,
    low: Any = None,
    high: Any = None,
    *,
    dtype: Any = None,
    memory_format: Any = None,
    shared: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """`randint` with the shape, and unless another is given the type, of `input`.

    Args:
        low, high: a single bound is `high`, which is not drawn.
        dtype, memory_format, shared: as `empty_like`.
    """
    low, high = (0, low) if high is None else (0 if low is None else low, high)
    if high is None:
        raise InvalidArgument("randint_like without a bound; give randint_like(input, high)")
    return random_(_like(input, dtype, memory_format, shared), low, high, generator=generator)


def _like(t: Any, dtype: Any, memory_format: Any, shared: bool) -> Tensor:
    if not isinstance(t, Tensor):
        raise DTypeError(f"a {type_name(t)} has no shape to follow; {tensor_advice(t)}")
    return empty_like(t, dtype=dtype, memory_format=memory_format, shared=shared)


@composed(method=False)
@with_options
def randperm(n: Any, *, dtype: Any = None, shared: bool = False, generator: Generator | None = None) -> Tensor:
    """0 to n - 1 in random order, (n,): TH's exchanges, n - 1 draws. Blocks while another thread draws.

    Args:
        n: an integer from 0.
        dtype: default int64; any type but complex that holds n - 1.

    Raises:
        DTypeError: n that is not an integer, or a complex dtype.
        InvalidArgument: n negative, or more than the dtype can count.
        OutOfMemory, ManagerError: as `empty`.
    """
    count = _count("n", n)
    result = empty(count, dtype=_INT64 if dtype is None else dtype, shared=shared)
    if result.dtype.kind == "c":
        raise DTypeError(f"randperm in {result.dtype.name}; it takes types that are not complex")
    array = result._live()
    if count > (holds := whole_numbers(array.dtype)):
        raise InvalidArgument(f"randperm of {count} in {result.dtype.name}, which has only {holds} of these numbers")
    order = array if array.dtype == np.int64 else np.empty(count, np.int64)
    source = generator_of(generator)
    with source._lock:
        source._twister.permutation(order)
    if order is not array:
        array[...] = order.astype(array.dtype)
    return result


def _count(name: str, value: Any) -> int:
    try:
        found = integer(value)
    except TypeError:
        raise DTypeError(f"{name} {value!r} is not an integer; give one") from None
    if found < 0:
        raise InvalidArgument(f"{name} {found} is negative; give one from 0")
    return found


# -- categories -------------------------------------------------------------------------------------------------------


def _weights(doing: str, weights: Array, axes: tuple[int, ...]) -> NDArray[np.float64]:
    """The weights as a matrix of float64, a row for each distribution."""
    if weights.dtype.kind not in "fV":
        raise DTypeError(f"{doing} with weights in a tensor of {weights.dtype.name}; give a floating-point tensor")
    if weights.ndim not in axes or not weights.shape[-1]:
        raise InvalidArgument(
            f"{doing} with weights of shape {weights.shape}; give (categories,)"
            + (" or (distributions, categories)" if 2 in axes else "")
        )
    found = np.atleast_2d(weights).astype(np.float64)
    if not (np.isfinite(found) & (found >= 0)).all():
        raise InvalidArgument(f"{doing}: a weight is negative or not finite; give finite ones from 0")
    with np.errstate(over="ignore"):
        sums = found.sum(axis=1)
    if not ((sums > 0) & np.isfinite(sums)).all():
        raise InvalidArgument(
            f"{doing}: the weights of a distribution are all 0, or their sum is not finite; "
            "give at least one above 0, and a finite sum"
        )
    return found


@operation(out=Out.COPIED)
def multinomial(
    xp: Module,
    input: Array,
    num_samples: Any,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Array:
    """Categories drawn by their weights, int64. One draw each, row after row. Blocks while another thread draws.

    A category of weight 0 is never drawn. Without replacement each draw takes time in proportion to the categories.

    Args:
        input: the weights, (categories,) or (distributions, categories), floating-point, from 0; of any sum.
        num_samples: draws from each distribution, from 1.
        replacement: whether a category can be drawn again.

    Returns:
        (num_samples,) or (distributions, num_samples).

    Raises:
        DTypeError: weights that are not a floating-point tensor, or num_samples that is not an integer.
        InvalidArgument: weights of another shape, negative, not finite, or all 0; num_samples below 1, or without
            replacement above the number of categories that have a weight.
    """
    count = _count("num_samples", num_samples)
    if count < 1:
        raise InvalidArgument("num_samples is 0; draw at least one")
    rows = _weights("multinomial", input, (1, 2))
    if not replacement and len(rows) and (fewest := int((rows > 0).sum(axis=1).min())) < count:
        raise InvalidArgument(
            f"{count} draws without replacement from weights of shape {input.shape}; "
            f"a distribution has only {fewest} categories with a weight"
        )
    shape, _ = shape_from((len(rows), count), _INT64.itemsize)
    result = empty_array(shape, _INT64)
    source = generator_of(generator)
    with source._lock:
        for row, drawn in zip(rows, result, strict=True):
            (categories,) = row.nonzero()
            shares = np.empty(count)
            source._twister.uniform(0.0, 1.0, shares)
            upto = row[categories].cumsum()
            upto /= upto[-1]
            upto[-1] = 1
            if replacement:
                drawn[...] = categories[upto.searchsorted(shares)]
            else:
                _draw_without(categories, upto, shares, drawn)
    return result if input.ndim == 2 else result[0]


def _draw_without(
    categories: NDArray[np.int64], upto: NDArray[np.float64], shares: NDArray[np.float64], drawn: NDArray[np.int64]
) -> None:
    """Draw by cumulative shares, each category once: TH's update of the shares after each draw."""
    for at, share in enumerate(shares):
        upto[-1] = 1
        slot = int(upto.searchsorted(share))
        drawn[at] = categories[slot]
        lost = upto[slot] - (upto[slot - 1] if slot else 0.0)
        upto[slot:] -= lost
        upto = np.delete(upto, slot)
        categories = np.delete(categories, slot)
        upto /= 1.0 - lost


@operation(method=False)
def multinomial_alias_setup(xp: Module, weights: Array) -> tuple[Array, Array]:
    """Tables from which `multinomial_alias_draw` draws in constant time. Does not block.

    Each category i keeps the share q[i] of its slot and gives the rest to category J[i] (Walker's method, TH's order).

    Args:
        weights: (categories,), floating-point, from 0; their sum need not be 1.

    Returns:
        (J, q): int64 and the type of the weights, both (categories,).

    Raises:
        DTypeError, InvalidArgument: as `multinomial`.
    """
    (row,) = _weights("multinomial_alias_setup", weights, (1,))
    count = row.size
    q = (row / row.sum() * count).tolist()
    aliases = list(range(count))
    smaller = [i for i in range(count) if q[i] < 1]
    larger = [i for i in range(count) if q[i] >= 1]
    while smaller and larger:
        small, large = smaller.pop(), larger[-1]
        aliases[small] = large
        q[large] -= 1.0 - q[small]
        if q[large] < 1:
            smaller.append(larger.pop())
    for i in smaller + larger:  # these differ from 1 only by rounding
        q[i] = 1.0
    return xp.array(aliases, np.int64), xp.array(q).astype(weights.dtype)


@operation(method=False)
def multinomial_alias_draw(
    xp: Module, aliases: Array, q: Array, num_samples: Any, *, generator: Generator | None = None
) -> Array:
    """Categories drawn from the tables of `multinomial_alias_setup`, (num_samples,) int64; two draws each.

    Blocks while another thread draws.

    Raises:
        DTypeError: tables of other types, or num_samples that is not an integer.
        InvalidArgument: tables that multinomial_alias_setup cannot have returned; num_samples below 1.
    """
    count = _count("num_samples", num_samples)
    if count < 1:
        raise InvalidArgument("num_samples is 0; draw at least one")
    if aliases.dtype != np.int64 or q.dtype.kind not in "fV":
        raise DTypeError(
            "an alias table is an int64 tensor and a floating-point one; give what multinomial_alias_setup returned"
        )
    kept = q.astype(np.float64)
    if aliases.ndim != 1 or aliases.shape != kept.shape or not aliases.size:
        raise InvalidArgument(
            f"alias tables of shapes {aliases.shape} and {q.shape}; give what multinomial_alias_setup returned"
        )
    if not ((aliases >= 0) & (aliases < aliases.size)).all() or not ((kept >= 0) & (kept <= 1)).all():
        raise InvalidArgument(
            "an alias is not a category, or a share is not from 0 to 1; give what multinomial_alias_setup returned"
        )
    shape, _ = shape_from((count,), _INT64.itemsize)
    result = empty_array(shape, _INT64)
    draws = np.empty(2 * 8192)
    source = generator_of(generator)
    with source._lock:
        for at in range(0, count, 8192):
            part = result[at : at + 8192]
            values = draws[: 2 * part.size]
            source._twister.uniform(0.0, 1.0, values)
            slots = (values[0::2] * aliases.size).astype(np.int64)
            part[...] = np.where(values[1::2] <= kept[slots], slots, aliases[slots])
    return result


export(globals())
