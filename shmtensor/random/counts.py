"""Random counts: the Poisson and the binomial distribution, element by element.

A call draws a seed of 128 bits from the generator, and the values from the stream of `numpy.random.RandomState` of that
seed, which NumPy does not change. Calls block while another thread draws from the generator.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from .._tensor.creation import zeros_like
from .._tensor.dispatch import Array, Module, export, operation
from ..errors import DTypeError, InvalidArgument
from .generator import Generator, generator_of

FUNCTIONS: Final = ("binomial", "poisson")
"""Functions of `shmtensor`, too."""


def _stream(generator: Generator | None) -> np.random.RandomState:
    source = generator_of(generator)
    words = np.empty(4, np.int64)
    with source._lock:
        source._twister.integers(1 << 32, 0, words)
    return np.random.RandomState(words.astype(np.uint32))


def _require_floats(name: str, a: Array) -> None:
    if a.dtype.kind not in "fV":
        raise DTypeError(f"{name} of a tensor of {a.dtype.name}; convert it to a floating-point type with to()")


@operation(method=False, gradient=lambda g: zeros_like(g))
def poisson(xp: Module, input: Array, generator: Generator | None = None) -> Array:
    """A tensor of counts from Poisson distributions, with the rates in `input`; the type is that of the rates.

    Blocks while another thread draws from the generator.

    Raises:
        DTypeError: rates that are not floating-point.
        InvalidArgument: a rate that is negative, NaN, or above 2**62.
    """
    _require_floats("poisson", input)
    rates = input.astype(xp.float64)
    if not ((rates >= 0) & (rates <= 2**62)).all():
        raise InvalidArgument("a rate is not from 0 to 2**62")
    return xp.asarray(_stream(generator).poisson(rates)).astype(input.dtype)


@operation(
    method=False,
    fails="binomial with probabilities of shape {prob.shape} and",
    gradient={"count": lambda g: zeros_like(g), "prob": lambda g: zeros_like(g)},
)
def binomial(xp: Module, count: Array, prob: Array, generator: Generator | None = None) -> Array:
    """A tensor of counts: how many of `count` trials have an outcome of probability `prob`. Both broadcast.

    Blocks while another thread draws from the generator. Numbers of trials are truncated to integers.

    Raises:
        DTypeError: tensors that are not floating-point, or of two types.
        InvalidArgument: a probability outside 0 to 1, a number of trials that is negative, NaN, or above 2**31 - 1;
            incompatible shapes.
    """
    _require_floats("binomial", count)
    if count.dtype != prob.dtype:
        raise DTypeError(
            f"binomial of a tensor of {count.dtype.name} and one of {prob.dtype.name}; convert one of them"
        )
    trials, chances = count.astype(xp.float64), prob.astype(xp.float64)
    if not ((chances >= 0) & (chances <= 1)).all():
        raise InvalidArgument("a probability is not from 0 to 1")
    if not ((trials >= 0) & (trials < 2**31)).all():
        raise InvalidArgument("a number of trials is not from 0 to 2**31 - 1")
    values = _stream(generator).binomial(trials.astype(xp.int64), chances)
    return xp.asarray(values).astype(count.dtype)


export(globals())
