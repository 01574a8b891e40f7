"""Random arguments, and layers by name, so that either library can make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class Illegal(Exception):
    """The arguments do not fit the tensor for which they were drawn; others are drawn."""


class Leaf(np.ndarray):
    """Numbers that become a tensor of which the gradient is compared."""


def leaf(values: Any) -> Any:
    """Numbers that become a tensor of which the gradient is compared."""
    return np.asarray(values).view(Leaf)


class Draws:
    """Random arguments.

    Args:
        seed: the same seed gives the same arguments.
    """

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def number(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, inclusive."""
        return int(self.random.integers(low, high + 1))

    def one_of(self, *values: Any) -> Any:
        """One of some values."""
        return values[self.number(0, len(values) - 1)]

    def chance(self, probability: float = 0.5) -> bool:
        """True with this probability."""
        return bool(self.random.random() < probability)

    def sizes(self, count: int, low: int, high: int) -> Any:
        """An integer for all of some axes, or a tuple with one for each."""
        return self.number(low, high) if self.chance() else tuple([self.number(low, high) for _ in range(count)])

    def values(self, *shape: int) -> Any:
        """Normal numbers."""
        return self.random.standard_normal(shape)

    def positive(self, *shape: int) -> Any:
        """Numbers from 0.1 to 0.9."""
        return self.random.uniform(0.1, 0.9, shape)

    def classes(self, count: int, *shape: int) -> Any:
        """Integers below `count`."""
        return self.random.integers(0, count, shape)

    def signs(self, *shape: int) -> Any:
        """1 and -1."""
        return self.random.choice([-1.0, 1.0], shape)


@dataclass(frozen=True)
class Layer:
    """A module by its name in `nn`; arguments may be layers and arrays, also in lists, tuples and dictionaries."""

    name: str
    args: tuple[Any, ...] = ()
    how: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        shown = [repr(one) for one in self.args] + [f"{key}={one!r}" for key, one in self.how.items()]
        return f"{self.name}({', '.join(shown)})"

    @property
    def names(self) -> set[str]:
        """The names of this module and of those in its arguments."""
        return {self.name} | {name for one in (*self.args, *self.how.values()) for name in _names_in(one)}


def _names_in(value: Any) -> set[str]:
    if isinstance(value, Layer):
        return value.names
    if isinstance(value, dict):
        value = [*value.values()]
    return {name for one in value for name in _names_in(one)} if isinstance(value, list | tuple) else set()


def made(value: Any, library: Any, leaves: list[Any] | None = None) -> Any:
    """The same value with modules and tensors of a library; the tensor of each `Leaf` is added to `leaves`."""
    if isinstance(value, Layer):
        return getattr(library.nn, value.name)(*made(value.args, library), **made(value.how, library))
    if isinstance(value, dict):
        return {key: made(one, library, leaves) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([made(one, library, leaves) for one in value])
    if not isinstance(value, np.ndarray):
        return value
    tensor = library.from_numpy(np.array(value))
    if isinstance(value, Leaf) and leaves is not None:
        tensor.requires_grad = True
        leaves.append(tensor)
    return tensor


@dataclass
class Call:
    """The operands of one step.

    Args:
        library: torch or shmtensor.
        layers: the modules of the step.
        x: the result of the step before.
        given: other tensors and arguments.
        sides: other results, which are part of the loss.
        masks: random numbers of shmtensor's modules, by step; torch's computes with the same.
        number: the number of the step.
    """

    library: Any
    layers: Any
    x: Any
    given: dict[str, Any]
    sides: list[Any]
    masks: dict[int, Any]
    number: int


@dataclass(frozen=True)
class Step:
    """A part of a network: `run` returns its result."""

    run: Callable[[Call], Any]
    layers: tuple[Layer, ...]
    given: dict[str, Any] = field(default_factory=dict)
    only_eval: bool = False
    """Whether the step is random in training."""


def plain(call: Call) -> Any:
    """The only layer of the input."""
    return call.layers[0](call.x, **call.given)


def each_sample(call: Call) -> Any:
    """The only layer of each sample, which it gets without an axis of samples."""
    return call.library.stack([call.layers[0](one, **call.given) for one in call.x])


def step(name: str, *args: Any, **how: Any) -> Step:
    """A step of one layer."""
    return Step(plain, (Layer(name, args, how),))


def require(legal: bool) -> None:
    """Draw again unless a condition holds."""
    if not legal:
        raise Illegal
