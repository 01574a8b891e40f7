"""Samplers: the order of samples, and their batches. Random orders depend only on (seed, epoch).

Each iteration of a sampler is an epoch, counted from 0; `set_epoch` sets the next one. A loader calls `set_epoch` of
samplers that it created, and of others if its own `set_epoch` was called.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._tensor.core import Tensor
from .._tensor.creation import asarray
from ..errors import InvalidArgument
from ..random.generator import Generator
from ..random.sampling import multinomial, randint, randperm
from ..storage.arguments import require_integer
from .leaves import array_of
from .randoms import draw_seed, mixed

T_co = TypeVar("T_co", covariant=True)
Order = NDArray[np.int64]
Keys = Order | list[Any]


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} should be a boolean value, but got {name}={value}")
    return value


def _seed_and_epoch(sampler: Any, state: Any) -> tuple[int, int]:
    """Return the seed and epoch in a state. Raises InvalidArgument."""
    try:
        return int(state["seed"]), int(state["epoch"])
    except (KeyError, TypeError, ValueError):
        raise InvalidArgument(
            f"the state of a {type(sampler).__name__} has the integers 'seed' and 'epoch'; this is {state!r}"
        ) from None


class Sampler(Generic[T_co]):
    """Base of samplers. A subclass defines `__iter__`, over indices or lists of indices, and may define `__len__`."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration. It has no effect here, because the order is the same in all epochs."""


class _Ordered(Sampler[int]):
    """A sampler whose order is an array, or a list of other keys, which depends on the epoch."""

    epoch: int = 0
    """Epoch of the next iteration."""

    def order(self) -> Keys:
        """The indices of the epoch `self.epoch`, in order. Does not begin it. Does not block."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """Set which epoch the next iteration is. Does not block."""
        self.epoch = int(epoch)

    def _next(self) -> Any:
        """Return `order()`, and advance to the next epoch."""
        order = self.order()
        self.epoch += 1
        return order

    def __iter__(self) -> Iterator[int]:
        return _each(self._next())


def _each(order: Keys) -> Iterator[Any]:
    """Yield the keys of a list, or the elements of an array as Python's integers, converted in parts."""
    if isinstance(order, list):
        yield from order
        return
    for start in range(0, len(order), 1 << 14):
        yield from order[start : start + (1 << 14)].tolist()


class SequentialSampler(Sampler[int]):
    """All indices of a dataset, from 0.

    Args:
        data_source: an object with a `len()`.
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class _Random(_Ordered):
    """A sampler with a seed, which is drawn when it is first needed.

    `state_dict()` has the seed and epoch: the iteration after `load_state_dict` repeats the order that followed it.
    """

    def __init__(self, generator: Any, seed: int | None) -> None:
        self.generator = generator
        self._seed = None if seed is None else int(seed)

    @property
    def seed(self) -> int:
        """The seed; drawn from the generator, or the default one, if it was not given. Does not block."""
        if self._seed is None:
            self._seed = draw_seed(self.generator)
        return self._seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self._seed = int(seed)

    def _generator(self) -> Generator:
        """Return the generator of the epoch. In epoch 0 it has the sampler's seed, as in torch's RandomSampler."""
        return Generator(self.seed if self.epoch == 0 else mixed(self.seed, self.epoch))

    def state_dict(self) -> dict[str, Any]:
        """Seed, and epoch of the next iteration. Does not block."""
        return {"seed": self.seed, "epoch": self.epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict` was called. Does not block. Raises InvalidArgument: no such state."""
        self._seed, epoch = _seed_and_epoch(self, state_dict)
        self.epoch: int = epoch


class RandomSampler(_Random):
    """Indices of a dataset in random order, or drawn with replacement.

    Args:
        data_source: an object with a `len()`.
        replacement: draw with replacement: an index can be drawn again before all others were.
        num_samples: number of indices of an iteration; default: the length.
        generator: generator from which the seed is drawn, once; default `shmtensor.default_generator`.
        seed: the seed of all epochs, instead of a drawn one.

    Raises:
        InvalidArgument: replacement is not a bool, or num_samples (or the length) is not positive.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(generator, seed)
        self.data_source = data_source
        self.replacement: bool = _boolean("replacement", replacement)
        found = require_integer("num_samples", len(data_source) if num_samples is None else num_samples, 1)
        self._num_samples = None if num_samples is None else found

    @property
    def num_samples(self) -> int:
        """Number of indices of an iteration."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def order(self) -> Order:
        """The indices of the epoch `self.epoch`, in order. Does not begin it. Does not block."""
        n, wanted, generator = len(self.data_source), self.num_samples, self._generator()
        if n == 0:
            raise InvalidArgument(f"{wanted} samples cannot be drawn from a dataset that has none")
        if self.replacement:
            return _array(randint(n, (wanted,), generator=generator))
        rounds = [_array(randperm(n, generator=generator)) for _ in range(-(-wanted // n))]
        return (rounds[0] if len(rounds) == 1 else np.concatenate(rounds))[:wanted]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(_Random):
    """Given indices in random order.

    Args:
        indices: the indices, a sequence or array; they may be any keys of a dataset, and are returned unchanged.
        generator, seed: as for `RandomSampler`.
    """

    def __init__(self, indices: Sequence[Any], generator: Any = None, *, seed: int | None = None) -> None:
        super().__init__(generator, seed)
        self.indices = indices

    def order(self) -> Keys:
        """The indices of the epoch `self.epoch`, in order: an array if they are integers, else a list.

        Does not begin the epoch. Does not block.
        """
        places = _array(randperm(len(self.indices), generator=self._generator()))
        integers = _integers(self.indices)
        return [self.indices[place] for place in places.tolist()] if integers is None else integers[places]

    def __len__(self) -> int:
        return len(self.indices)


def _integers(indices: Sequence[Any]) -> Order | None:
    """Return the indices as an array; None: they are not 64-bit integers."""
    array = array_of(indices)
    if array is None:
        if not set(map(type, indices)) <= {int}:
            return None
        array = np.asarray(indices) if len(indices) else np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.dtype == np.uint64:
        return None
    return array.astype(np.int64, copy=False)


class WeightedRandomSampler(_Random):
    """Indices from 0, each with a probability proportional to its weight.

    Args:
        weights: a weight for each index, from 0; their sum need not be 1.
        num_samples: number of indices of an iteration.
        replacement: whether an index can be drawn again.
        generator, seed: as for `RandomSampler`.

    Raises:
        InvalidArgument: num_samples is not positive, replacement is not a bool, or weights are not a sequence of
            numbers; from an iteration without replacement: fewer weights are above 0 than samples are drawn.
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Any = None,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(generator, seed)
        self.num_samples: int = require_integer("num_samples", num_samples, 1)
        self.replacement: bool = _boolean("replacement", replacement)
        self.weights: Tensor = asarray(weights, dtype=np.float64)
        if self.weights.ndim != 1:
            raise InvalidArgument(
                f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}"
            )

    def order(self) -> Order:
        """The indices of the epoch `self.epoch`, in order. Does not begin it. Does not block."""
        return _array(multinomial(self.weights, self.num_samples, self.replacement, generator=self._generator()))

    def __len__(self) -> int:
        return self.num_samples


def _array(indices: Tensor) -> Order:
    return indices._live()


class BatchSampler(Sampler[list[int]]):
    """Lists of indices of another sampler.

    Args:
        sampler: a sampler, or any iterable of indices or other keys.
        batch_size: number of indices in a list.
        drop_last: drop a last list of fewer indices.

    Raises:
        InvalidArgument: batch_size is not positive, or drop_last is not a bool.
    """

    def __init__(self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool) -> None:
        self.batch_size: int = require_integer("batch_size", batch_size, 1)
        self.drop_last: bool = _boolean("drop_last", drop_last)
        self.sampler = sampler

    def set_epoch(self, epoch: int) -> None:
        """Call `set_epoch` of the sampler, if it has one. Does not block."""
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def batches(self) -> Iterator[Keys]:
        """Return the batches of an iteration: as int64 arrays if the sampler's order is an array, else as lists.

        The iteration begins at this call, not at its first batch, because the sampler's epoch may be set meanwhile.
        """
        own, theirs = type(self).__iter__, getattr(type(self.sampler), "__iter__", None)
        if own is not BatchSampler.__iter__ or theirs not in (_Ordered.__iter__, SequentialSampler.__iter__):
            return iter(self)
        sampler: Any = self.sampler
        in_order = theirs is SequentialSampler.__iter__
        order: Any = range(len(sampler)) if in_order else sampler._next()
        whole = len(order) - len(order) % self.batch_size if self.drop_last else len(order)
        starts = range(0, whole, self.batch_size)
        places = ((start, min(start + self.batch_size, whole)) for start in starts)
        return (np.arange(start, stop) if in_order else order[start:stop] for start, stop in places)

    def __iter__(self) -> Iterator[list[int]]:
        return self._lists(iter(self.sampler))

    def _lists(self, indices: Iterator[int]) -> Iterator[list[int]]:
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class BucketSampler(Sampler[list[int]]):
    """Batches of samples of similar length, in random order, so that little is padded.

    The samples of an epoch are shuffled and cut into windows; each window is sorted by length and cut into batches;
    then all batches are shuffled. Without shuffling, all samples are sorted, the shortest first.

    Args:
        lengths: the length of each sample, a sequence or array.
        batch_size: number of indices in a batch.
        drop_last: drop the one batch of fewer indices.
        shuffle: whether the order is random.
        window: number of batches in a window. A larger window means less padding, a smaller one more randomness.
        generator, seed: as for `RandomSampler`.

    Raises:
        InvalidArgument: batch_size or window is not positive, drop_last is not a bool, or lengths have more than one
            axis.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        drop_last: bool = False,
        *,
        shuffle: bool = True,
        window: int = 100,
        generator: Any = None,
        seed: int | None = None,
    ) -> None:
        self.lengths: NDArray[Any] = asarray(lengths)._live()
        if self.lengths.ndim != 1:
            raise InvalidArgument(f"lengths have shape {self.lengths.shape}; give one number for each sample")
        self.batch_size: int = require_integer("batch_size", batch_size, 1)
        self.window: int = require_integer("window", window, 1)
        self.drop_last: bool = _boolean("drop_last", drop_last)
        self.shuffle: bool = _boolean("shuffle", shuffle)
        self._random = RandomSampler(self.lengths, generator=generator, seed=seed) if len(self.lengths) else None

    def set_epoch(self, epoch: int) -> None:
        """Set which epoch the next iteration is. Does not block."""
        if self._random is not None:
            self._random.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Seed, and epoch of the next iteration. Does not block."""
        return {} if self._random is None else self._random.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict` was called. Does not block. Raises InvalidArgument: no such state."""
        if self._random is not None:
            self._random.load_state_dict(state_dict)

    def batches(self) -> Iterator[Order]:
        """Return the batches of an iteration, as int64 arrays. It begins at this call, as in `BatchSampler`."""
        if self._random is None:
            return iter(())
        size = self.batch_size
        if self.shuffle:
            state = self._random._generator()
            order = self._random._next()
            step = size * self.window
            parts = [order[start : start + step] for start in range(0, len(order), step)]
        else:
            parts = [np.arange(len(self.lengths))]
        found = []
        for part in parts:
            by_length = part[np.argsort(self.lengths[part], kind="stable")]
            found += [by_length[start : start + size] for start in range(0, len(part), size)]
        if self.drop_last and len(found[-1]) < size:
            found.pop()
        turns = _array(randperm(len(found), generator=state)) if self.shuffle else range(len(found))
        return (found[turn] for turn in turns)

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self.batches())

    def __len__(self) -> int:
        count = len(self.lengths)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


def _group() -> tuple[int, int]:
    """Return (number of ranks, rank) of torch.distributed if it is used, else from the variables that torchrun sets."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    try:
        return int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    except (KeyError, ValueError):
        raise InvalidArgument(
            "DistributedSampler needs num_replicas and rank where torch.distributed is not initialized and the "
            "environment has no WORLD_SIZE and RANK; give both"
        ) from None


class DistributedSampler(_Ordered):
    """The indices of a dataset for one of several processes. All processes have equally many.

    The same seed and epoch give torch's order. As in torch, it stays the same until `set_epoch` is called, on the
    sampler or the loader.

    Args:
        dataset: an object with a `len()`.
        num_replicas, rank: number of processes, and number of this one; default: those of torch.distributed or, if it
            is not used, the environment's WORLD_SIZE and RANK.
        shuffle: whether the order is random, from seed and epoch.
        seed: must be the same in all processes.
        drop_last: leave samples out, so that all processes have equally many; else some samples are used twice.

    Raises:
        InvalidArgument: a rank out of range, or no rank known.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            group = _group()
            num_replicas = group[0] if num_replicas is None else num_replicas
            rank = group[1] if rank is None else rank
        num_replicas, rank = require_integer("num_replicas", num_replicas, 1), require_integer("rank", rank)
        if not 0 <= rank < num_replicas:
            raise InvalidArgument(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset: Sized = dataset
        self.num_replicas: int = num_replicas
        self.rank: int = rank
        self.shuffle: bool = shuffle
        self.seed: int = seed
        self.drop_last: bool = drop_last
        count = len(dataset)
        self.num_samples: int = count // num_replicas if drop_last else -(-count // num_replicas)
        self.total_size: int = self.num_samples * num_replicas

    def order(self) -> Order:
        """The indices of this rank in the epoch `self.epoch`, in order. Does not block."""
        count = len(self.dataset)
        if self.shuffle:
            order = _array(randperm(count, generator=Generator(self.seed + self.epoch)))
        else:
            order = np.arange(count)
        order = np.resize(order, self.total_size) if count else order  # repeated from its start, or cut
        return order[self.rank :: self.num_replicas]

    def _next(self) -> Order:
        return self.order()

    def state_dict(self) -> dict[str, Any]:
        """Seed and epoch. Does not block."""
        return {"seed": self.seed, "epoch": self.epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict` was called. Does not block. Raises InvalidArgument: no such state."""
        self.seed, epoch = _seed_and_epoch(self, state_dict)
        self.epoch: int = epoch

    def __len__(self) -> int:
        return self.num_samples
