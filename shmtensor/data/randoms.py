"""Random numbers of samples: they depend on (seed, epoch, index), so they are equal for any number of workers.

While a sample is loaded, `sample_generator()` returns a NumPy generator for it. `Reseeding` seeds the global generators
of libraries before each sample, for code that draws from those. `get_worker_info()` tells which worker loads it.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.random import Philox
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

from .._loading import load
from ..errors import DTypeError, InvalidArgument, MissingExtra, type_name
from ..random.generator import Generator, default_generator
from ..storage.arguments import INTEGERS

_WORD: Final = (1 << 64) - 1


# -- seeds -------------------------------------------------------------------------------------------------------------


def mixed(*words: int) -> int:
    """Return 64 bits that depend on each word and their order: splitmix64, word by word. Does not block."""
    found = 0
    for word in words:
        found = (found + word + 0x9E3779B97F4A7C15) & _WORD
        found = ((found ^ found >> 30) * 0xBF58476D1CE4E5B9) & _WORD
        found = ((found ^ found >> 27) * 0x94D049BB133111EB) & _WORD
        found ^= found >> 31
    return found


def index_word(index: Any) -> int:
    """Return 64 bits for an index: an integer itself; for another key a digest of its `repr`. Does not block."""
    if isinstance(index, INTEGERS):
        return int(index) & _WORD
    return int.from_bytes(blake2b(repr(index).encode(errors="backslashreplace"), digest_size=8).digest(), "little")


def draw_seed(generator: Any = None) -> int:
    """Return a seed, 0 <= seed < 2**63, drawn from a generator as torch's loader draws its own. Does not block.

    Args:
        generator: shmtensor's (None: the default one), torch's or NumPy's.

    Raises:
        DTypeError: `generator` is none of these.
    """
    if generator is None:
        generator = default_generator
    if isinstance(generator, Generator):  # two draws of 32 bits, as in torch's random_() of an int64
        return (generator.random() << 32 | generator.random()) & (_WORD >> 1)
    if isinstance(generator, np.random.Generator):
        return int(generator.integers(1 << 63))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(generator, torch.Generator):
        return int(torch.empty((), dtype=torch.int64).random_(generator=generator))
    raise DTypeError(
        f"generator is of type {type_name(generator)}; give a shmtensor.Generator, NumPy's, torch's, or None"
    )


# -- the sample that is being loaded -----------------------------------------------------------------------------------


class _Key(ISeedSequence):
    """The source of Philox's key. Philox(key=) first gets a seed from the system, which takes three times as long."""

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        return np.array(self.key, np.uint64)


class _Current(threading.local):
    """The sample that this thread is loading."""

    sample: tuple[int, int, Any] | None = None  # seed, epoch, index
    generator: np.random.Generator | None = None


_current: Final = _Current()


def begin_sample(seed: int, epoch: int, index: Any) -> None:
    """Set the sample that this thread is loading. Does not block; takes far less than a microsecond."""
    _current.sample = (seed, epoch, index)
    _current.generator = None


def end_samples() -> None:
    """Record that this thread is not loading a sample. Does not block."""
    _current.sample = _current.generator = None


def generator_of(seed: int, epoch: int, index: Any) -> np.random.Generator:
    """Return the generator of a sample: Philox with key (mixed seed and epoch, index) and counter 0. Does not block."""
    return np.random.Generator(Philox(_Key((mixed(seed, epoch), index_word(index)))))  # type: ignore[arg-type]


def sample_generator() -> np.random.Generator:
    """Return a NumPy generator for the sample that this thread is loading. Does not block.

    It is the same object until the sample is done. Its numbers depend on the loader's seed, the epoch and the sample's
    index: they are the same for any number of workers and any order of loading. Outside of a loader, as in
    `dataset[3]`, it is a new generator with a seed from `shmtensor.default_generator`.

    Example:
        def __getitem__(self, index):
            return self.images[index] + sample_generator().normal(0, 0.1, 3)
    """
    generator = _current.generator
    if generator is None:
        sample = _current.sample
        if sample is None:
            return generator_of(draw_seed(), 0, 0)
        generator = _current.generator = generator_of(*sample)
    return generator


# -- libraries with a global generator ---------------------------------------------------------------------------------


_GIVE: Final = "give names of 'python', 'numpy', 'shmtensor', 'torch'"


class _Library:
    """Functions to seed one library, and to save and restore the state of its generator."""

    def __init__(
        self, seed: Callable[[int], Any], get_state: Callable[[], Any], set_state: Callable[[Any], Any], bits: int
    ) -> None:
        self.seed, self.get_state, self.set_state = seed, get_state, set_state
        self.most = (1 << bits) - 1


def _library(name: str) -> _Library:
    if name == "python":
        return _Library(random.seed, random.getstate, random.setstate, 64)
    if name == "numpy":
        return _Library(np.random.seed, np.random.get_state, np.random.set_state, 32)
    if name == "shmtensor":
        ours = default_generator
        return _Library(ours.manual_seed, ours.get_state, ours.set_state, 64)
    if name == "torch":
        try:
            import torch
        except ImportError as error:
            raise MissingExtra("reseed=('torch',) needs torch, which is not installed; leave it out") from error
        theirs = torch.default_generator
        return _Library(theirs.manual_seed, theirs.get_state, theirs.set_state, 63)
    raise InvalidArgument(f"reseed has {name!r}; {_GIVE}")


class Reseeding:
    """Seeds the generators of libraries for a sample: `Reseeding(("python", "numpy"))(seed, epoch, index)`.

    Each library gets a different seed. A pickle has only the names.

    Args:
        names: "python", "numpy", "shmtensor" or "torch"; one name, or several.

    Raises:
        InvalidArgument: an unknown name, or no names.
        MissingExtra: torch is not installed.
    """

    def __init__(self, names: str | Iterable[str]) -> None:
        if not isinstance(names, Iterable):
            raise InvalidArgument(f"reseed is {names!r}; {_GIVE}")
        given = [names] if isinstance(names, str) else list(names)
        self.names: tuple[str, ...] = tuple(name for place, name in enumerate(given) if name not in given[:place])
        self._libraries = [_library(name) for name in self.names]
        self._tags = [index_word(name) for name in self.names]

    def __call__(self, seed: int, epoch: int, index: Any) -> None:
        """Seed the libraries for a sample. Does not block."""
        base = mixed(seed, epoch, index_word(index))
        for library, tag in zip(self._libraries, self._tags, strict=True):
            library.seed(mixed(base, tag) & library.most)

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Restore the generators' states at the end of a `with` block, for loading in the caller's process."""
        states = [library.get_state() for library in self._libraries]
        try:
            yield
        finally:
            for library, state in zip(self._libraries, states, strict=True):
                library.set_state(state)

    def __reduce__(self) -> tuple[Any, ...]:
        return Reseeding, (self.names,)


# -- the worker --------------------------------------------------------------------------------------------------------


@dataclass
class WorkerInfo:
    """The result of `get_worker_info()`, with torch's names.

    Attributes:
        id: the worker's number, from 0.
        num_workers: number of workers.
        seed: a seed of this worker; samples should draw from `sample_generator()` instead.
        dataset: the dataset object of this worker.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_worker: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Return information about the calling worker; None in other processes. Does not block."""
    return _worker


def set_worker_info(info: WorkerInfo | None) -> None:
    """Set the result of `get_worker_info()` in this process. Does not block."""
    global _worker
    _worker = info


def begin_worker(info: WorkerInfo) -> None:
    """Set the result of `get_worker_info()`, and seed the libraries' generators, whose state forked workers share.

    If torch is imported, it computes with one thread from now on. Its `get_worker_info()` returns the same, if there is
    a dataset.
    """
    set_worker_info(info)
    random.seed(info.seed)
    np.random.seed(info.seed & 0xFFFFFFFF)
    default_generator.manual_seed(info.seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(info.seed)
        torch.set_num_threads(1)
        if info.dataset is not None and "torch.utils.data" in sys.modules:
            load("integrations.torch.loading").begin_worker(info.id, info.num_workers, info.seed, info.dataset)
