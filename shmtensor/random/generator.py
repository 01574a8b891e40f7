"""Generator: a stream of random numbers, and the values that TH draws from it one at a time."""

from __future__ import annotations

import math
import os
import threading
import weakref
from typing import Any, Final, Self

import numpy as np

from .._native import RANDOM_STATE_BYTES, Twister
from .._tensor.core import Tensor, wrap
from ..errors import DTypeError, InvalidArgument, ShmTensorError, type_name
from ..storage.arguments import integer

STATE_BYTES: Final = RANDOM_STATE_BYTES
"""Elements of a saved state: the THGenerator of Torch7 on a 64-bit machine."""

_LEAST_SEED, _MOST_SEED = -(1 << 63), (1 << 64) - 1


# -- parameters, as the distributions take them -----------------------------------------------------------------------


def number(name: str, value: Any) -> float:
    """A finite number. Does not block. Raises DTypeError, InvalidArgument."""
    try:
        found = math.fsum((value,))  # float() would take text too
    except (TypeError, ValueError) as error:
        if isinstance(error, ShmTensorError):  # a tensor of several elements says so itself
            raise
        if isinstance(value, np.ndarray) and value.size != 1:
            raise InvalidArgument(f"{name} has shape {value.shape}; give a number, such as item() of it") from None
        raise DTypeError(f"{name} {value!r} is not a number; give a real number") from None
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise InvalidArgument(f"{name} {value!r} is not finite; give a finite number")
    return found


def interval(low: Any, high: Any) -> tuple[float, float]:
    """Bounds of a uniform distribution. Raises DTypeError, InvalidArgument."""
    a, b = number("low", low), number("high", high)
    if not a <= b:
        raise InvalidArgument(
            f"uniform from {low!r} to {high!r}: the lower bound is above the upper one; give the lower one first"
        )
    if math.isinf(b - a):
        raise InvalidArgument(
            f"uniform from {low!r} to {high!r}: their difference is not finite; give bounds closer to each other"
        )
    return a, b


def deviation(mean: Any, stdv: Any) -> tuple[float, float]:
    """Mean and standard deviation. Raises DTypeError, InvalidArgument."""
    pair = number("mean", mean), number("standard deviation", stdv)
    if pair[1] < 0:
        raise InvalidArgument(f"standard deviation {stdv!r} is negative; give one of at least 0")
    return pair


def rate(lambd: Any) -> tuple[float, float]:
    """The rate of an exponential distribution. Raises DTypeError, InvalidArgument."""
    found = number("lambd", lambd)
    if found <= 0:
        raise InvalidArgument(f"lambd {lambd!r} is not above 0; give a number above 0")
    return found, 0.0


def spread(median: Any, sigma: Any) -> tuple[float, float]:
    """Median and half width of a Cauchy distribution. Raises DTypeError, InvalidArgument."""
    pair = number("median", median), number("sigma", sigma)
    if pair[1] <= 0:
        raise InvalidArgument(f"sigma {sigma!r} is not above 0; give a number above 0")
    return pair


def between(p: Any) -> tuple[float, float]:
    """A probability that is neither 0 nor 1. Raises DTypeError, InvalidArgument."""
    found = number("p", p)
    if not 0 < found < 1:
        raise InvalidArgument(f"p {p!r} is not above 0 and below 1; give a number between them")
    return found, 0.0


def probability(p: Any) -> tuple[float, float]:
    """A probability. Raises DTypeError, InvalidArgument."""
    found = number("p", p)
    if not 0 <= found <= 1:
        raise InvalidArgument(f"p {p!r} is not a probability; give one from 0 to 1")
    return found, 0.0


def seed_from(value: Any) -> int:
    """A seed as the 64 bits that TH makes of it. Does not block. Raises DTypeError, InvalidArgument."""
    try:
        found = integer(value)
    except TypeError:
        raise DTypeError(f"seed {value!r} is not an integer; give one") from None
    if not _LEAST_SEED <= found <= _MOST_SEED:
        raise InvalidArgument(f"seed {found} has more than 64 bits; give one from {_LEAST_SEED} to {_MOST_SEED}")
    return found & _MOST_SEED


# -- the generator ----------------------------------------------------------------------------------------------------


class Generator:
    """TH's random generator: the Mersenne Twister MT19937, which gives the stream of `numpy.random.RandomState(seed)`.

    Each call of a distribution takes one draw of 32 bits; two calls of `normal` and `log_normal` share two draws
    (Box-Muller: the second value is kept for the next call, and seeding forgets it).

    Threads can share one: calls wait for each other. A process that is forked has a copy of it, which goes on with the
    same numbers, if it was seeded by hand or set to a state; one that has its seed from the system takes a new seed
    from the system, so that two processes never have the same numbers by accident. Pickles and copies hold the state.

    Args:
        seed: as `manual_seed`; None takes one from the system.

    Raises:
        DTypeError, InvalidArgument: not a seed.
    """

    __slots__ = ("__weakref__", "_from_system", "_lock", "_twister")

    _twister: Twister
    _lock: threading.RLock  # taken again by a signal handler or finalizer that draws in the middle of a fill
    _from_system: bool

    def __init__(self, seed: Any = None) -> None:
        self._lock = threading.RLock()
        self._from_system = seed is None
        self._twister = Twister(_system_seed() if seed is None else seed_from(seed))
        _generators.add(self)

    def manual_seed(self, seed: Any) -> Self:
        """Begin the stream of a seed; returns self. Does not block.

        Args:
            seed: an integer of at most 64 bits. The lower 32 make the stream, as in TH; negative ones count from 2**64.

        Raises:
            DTypeError, InvalidArgument: not a seed.
        """
        return self._begin(seed_from(seed), False)

    def seed(self) -> int:
        """Begin the stream of a seed from the system, and return the seed (64 bits). Does not block."""
        seed = _system_seed()
        self._begin(seed, True)
        return seed

    def initial_seed(self) -> int:
        """The seed that the stream began with, all 64 bits of it. Does not block."""
        return self._twister.initial_seed

    def _begin(self, seed: int, from_system: bool) -> Self:
        with self._lock:
            self._twister.seed(seed)
            self._from_system = from_system
        return self

    def get_state(self) -> Tensor:
        """The state, (5048,) uint8: TH's struct with the seed, the words and the kept normal value. Does not block."""
        with self._lock:
            saved = self._twister.save()
        return wrap(np.frombuffer(saved, np.uint8).copy())

    def set_state(self, state: Tensor) -> Self:
        """Continue from a state that `get_state` returned. Returns self. Does not block.

        Args:
            state: (5048,) uint8.

        Raises:
            DTypeError: not a tensor, or a tensor of another type.
            InvalidArgument: another length, or not the state of a generator; the generator is unchanged.
        """
        if not isinstance(state, Tensor) or state.dtype != np.uint8:
            found = f"a tensor of {state.dtype.name}" if isinstance(state, Tensor) else type_name(state)
            raise DTypeError(f"a state is a tensor of uint8, as get_state gives it; this is {found}")
        if state.shape != (STATE_BYTES,):
            raise InvalidArgument(f"a state has shape ({STATE_BYTES},); this tensor has shape {state.shape}")
        return self._restore(state._live().tobytes())

    def _restore(self, state: bytes) -> Self:
        with self._lock:
            if not self._twister.restore(state):
                raise InvalidArgument("these bytes are not the state of a generator; give what get_state returned")
            self._from_system = False
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            return _restored, (self._twister.save(),)

    def __repr__(self) -> str:
        return f"Generator(initial_seed={self.initial_seed()})"

    # -- one value at a time; none of these blocks --------------------------------------------------------------------

    def random(self) -> int:
        """The next draw: an integer of 32 bits. Does not block."""
        with self._lock:
            return self._twister.draw()

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """A value from `low` to below `high`. Does not block. Raises DTypeError, InvalidArgument: low above high."""
        pair = interval(low, high)
        with self._lock:
            return self._twister.uniform(*pair)

    def normal(self, mean: float = 0.0, stdv: float = 1.0) -> float:
        """A value of the normal distribution. Does not block. Raises DTypeError, InvalidArgument: stdv below 0."""
        pair = deviation(mean, stdv)
        with self._lock:
            return self._twister.normal(*pair)

    def exponential(self, lambd: float = 1.0) -> float:
        """A value whose density is lambd * exp(-lambd * x). Does not block. Raises DTypeError, InvalidArgument."""
        pair = rate(lambd)
        with self._lock:
            return self._twister.exponential(*pair)

    def cauchy(self, median: float = 0.0, sigma: float = 1.0) -> float:
        """A value of the Cauchy distribution. Does not block. Raises DTypeError, InvalidArgument: sigma from 0 down."""
        pair = spread(median, sigma)
        with self._lock:
            return self._twister.cauchy(*pair)

    def log_normal(self, mean: float = 1.0, stdv: float = 2.0) -> float:
        """Exp of a normal value of this mean and deviation. Does not block. Raises DTypeError, InvalidArgument."""
        pair = deviation(mean, stdv)
        with self._lock:
            return self._twister.log_normal(*pair)

    def geometric(self, p: float) -> int:
        """An integer i from 1, with probability (1 - p) * p**(i - 1): TH's p (torch's is 1 - p). Does not block.

        Raises:
            DTypeError, InvalidArgument: p not between 0 and 1.
        """
        pair = between(p)
        with self._lock:
            return int(self._twister.geometric(*pair))

    def bernoulli(self, p: float = 0.5) -> bool:
        """True with probability p. Does not block. Raises DTypeError, InvalidArgument: p not from 0 to 1."""
        pair = probability(p)
        with self._lock:
            return bool(self._twister.bernoulli(*pair))


def _system_seed() -> int:
    return int.from_bytes(os.urandom(8), "little")


def _restored(state: bytes) -> Generator:
    return Generator(0)._restore(state)


# -- the generator of a process ---------------------------------------------------------------------------------------

_generators: weakref.WeakSet[Generator] = weakref.WeakSet()

default_generator: Final = Generator()
"""The generator that functions use if none is given."""


def _in_child() -> None:
    for generator in _generators:
        # Another thread of the parent may have held the lock, in the middle of drawing numbers.
        generator._lock = threading.RLock()
        if generator._from_system:
            generator.seed()


os.register_at_fork(after_in_child=_in_child)


def generator_of(generator: Any) -> Generator:
    """The generator that an argument means: the default one for None. Raises DTypeError."""
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise DTypeError(f"generator is a {type_name(generator)}; give a shmtensor.random.Generator")
    return generator


def manual_seed(seed: Any) -> Generator:
    """`manual_seed` of the default generator. Returns that generator. Does not block. Raises as that function does."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """`seed` of the default generator. Does not block."""
    return default_generator.seed()


def initial_seed() -> int:
    """`initial_seed` of the default generator. Does not block."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """`get_state` of the default generator. Does not block."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """`set_state` of the default generator. Does not block. Raises as that function does."""
    default_generator.set_state(new_state)
