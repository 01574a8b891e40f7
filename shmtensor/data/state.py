"""The position in an epoch: its batches in order, those that the program has, and the state to continue from."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from ..errors import InvalidArgument
from . import samplers

_KEYS: Final = ("seed", "epoch", "batches", "samples", "sampler", "beyond")
_SHAPING: Final = ("replacement", "shuffle", "window", "num_replicas")
"""Attributes of our samplers that their order depends on, besides seed, epoch and length."""


class Portion(NamedTuple):
    """The keys of one batch.

    Attributes:
        ordinal: number of batches of the epoch before it.
        start: number of samples of the epoch before it.
        keys: keys of its samples: an int64 array or a list; for a stream a range of positions.
    """

    ordinal: int
    start: int
    keys: Any


def listed(keys: Any) -> list[Any]:
    """Return keys as a list: integers of a 1-D array or tensor as Python's, others as iteration yields them."""
    if isinstance(keys, np.ndarray):
        return keys.tolist() if keys.ndim == 1 and keys.dtype.kind in "iu" else list(keys)
    if not hasattr(keys, "tolist"):
        return list(keys)
    found = keys.tolist()
    plain = isinstance(found, list) and all(type(key) is int for key in found)
    return found if plain else list(keys)


def _fixed(keys: Any) -> Any:
    """Return the keys of a batch as an int64 array, if they are one, or as a list."""
    is_plain = isinstance(keys, np.ndarray) and keys.ndim == 1 and keys.dtype == np.int64
    return keys if is_plain else listed(keys)


def _is_iterable(value: Any) -> bool:
    try:
        iter(value)
    except TypeError:
        return False
    return True


def portions(batches: Iterator[Any], skip: set[int], first: int) -> Iterator[Portion]:
    """Yield batches of keys, without those that were handed out before.

    Args:
        batches: the keys of each, as any iterable.
        skip: ordinals from `first` on that are left out.
        first: all ordinals before this are left out as well.

    Raises InvalidArgument: the keys of a batch cannot be iterated.
    """
    start = 0
    for ordinal, given in enumerate(batches):
        try:
            keys = _fixed(given)
        except TypeError:
            if _is_iterable(given):
                raise
            raise InvalidArgument(
                f"batch_sampler gave {given!r} for batch {ordinal}; it must yield the keys of a whole batch each time, "
                "such as [0, 1, 2]; to yield single keys, pass it as sampler"
            ) from None
        if ordinal >= first and ordinal not in skip:
            yield Portion(ordinal, start, keys)
        start += len(keys)


def stream_portions(length: int, skip: set[int], first: int) -> Iterator[Portion]:
    """As `portions`, for a stream whose end is not known: `keys` is a range of positions."""
    for ordinal in itertools.count(first):
        if ordinal not in skip:
            start = ordinal * length
            yield Portion(ordinal, start, range(start, start + length))


class Progress:
    """The batches of an epoch that the program has.

    Attributes:
        epoch: the epoch.
        batches: the program has all batches with ordinals below this.
        beyond: further ordinals that it has, if batches are handed out as they complete.
        samples: number of samples of all these batches.
        sampler: the state of the sampler's order, at the start of the epoch (`order_of`); None: it has none.
    """

    def __init__(
        self, epoch: int, batches: int = 0, beyond: set[int] | None = None, samples: int = 0, sampler: Any = None
    ) -> None:
        self.epoch: int = epoch
        self.batches: int = batches
        self.samples: int = samples
        self.sampler: Any = sampler
        self.beyond: set[int] = set(beyond or ())
        self.is_over = False

    @property
    def handed_out(self) -> int:
        """Number of batches that the program has."""
        return self.batches + len(self.beyond)

    def handed(self, ordinal: int, samples: int) -> None:
        """Count a batch."""
        self.samples += samples
        self.beyond.add(ordinal)
        while self.batches in self.beyond:
            self.beyond.remove(self.batches)
            self.batches += 1

    def state(self, seed: int, order: dict[str, Any]) -> dict[str, Any]:
        """The state as plain numbers and strings; `order` is `order_facts` of the loader."""
        return {
            "seed": seed,
            "epoch": self.epoch,
            "batches": self.batches,
            "beyond": sorted(self.beyond),
            "samples": self.samples,
            "sampler": self.sampler,
            "order": order,
        }


def progress_of(state: Any) -> tuple[int, Progress, dict[str, Any]]:
    """Return (seed, progress, order facts) of a state. Raises InvalidArgument: it is not the state of a loader."""
    try:
        *numbers, sampler, beyond = (state[key] for key in _KEYS)
        seed, epoch, batches, samples = map(operator.index, numbers)
        ahead = set(map(operator.index, beyond))
        if min(epoch, batches, samples) < 0 or (ahead and min(ahead) < batches):
            raise ValueError
        return seed, Progress(epoch, batches, ahead, samples, sampler), dict(state.get("order", ()))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidArgument(
            f"the state of a DataLoader is a dict with {', '.join(_KEYS)}, as state_dict() gives it; this is {state!r}"
        ) from None


def _with(sampler: Any, *names: str) -> Any:
    """Return the sampler, or the one inside a batch sampler, that has these attributes; None: neither has."""
    for one in (sampler, getattr(sampler, "sampler", None)):
        if all(hasattr(one, name) for name in names):
            return one
    return None


def is_restored(sampler: Any) -> bool:
    """Whether a sampler has what `order_of` gives and `set_order` takes."""
    ways = (("state_dict", "load_state_dict"), ("set_epoch", "epoch"))
    return any(_with(sampler, *names) is not None for names in ways)


def order_of(sampler: Any) -> Any:
    """Return the state of a sampler that determines its order: `state_dict()`, or its epoch; None: it has neither."""
    kept = _with(sampler, "state_dict", "load_state_dict")
    if kept is not None:
        return kept.state_dict()
    told = _with(sampler, "set_epoch", "epoch")
    return None if told is None else {"epoch": told.epoch}


def set_order(sampler: Any, state: Any) -> None:
    """Give a sampler a state of `order_of`."""
    kept = _with(sampler, "state_dict", "load_state_dict")
    told = _with(sampler, "set_epoch", "epoch")
    if kept is not None:
        kept.load_state_dict(state)
    elif told is not None:
        told.set_epoch(state["epoch"])


def order_facts(sampler: Any, batch_size: int | None) -> dict[str, Any]:
    """What the order of samples and batches follows from, besides seed and epoch. None: not known.

    Of samplers that are not ours, whose names and lengths may change without effect, only whether they have a state.
    The order of a SequentialSampler does not change where its dataset has grown.
    """
    below = getattr(sampler, "sampler", sampler)
    kind = type(below)
    is_ours = getattr(samplers, kind.__name__, None) is kind
    facts = {
        "sampler": kind.__name__ if is_ours else None,
        "has_state": is_restored(sampler),
        "length": _length(below) if is_ours and kind is not samplers.SequentialSampler else None,
        "batch_size": batch_size,
    }
    return facts | {name: getattr(below, name) for name in _SHAPING if is_ours and hasattr(below, name)}


def _length(sampler: Any) -> int | None:
    try:
        return len(sampler)
    except TypeError:  # its dataset has none
        return None


def require_order(found: dict[str, Any], own: dict[str, Any], batches: int) -> None:
    """Raise InvalidArgument if a state is in the middle of an epoch whose order this loader certainly does not have.

    Args:
        found: `order_facts` of the state.
        own: those of the loader.
        batches: how many were handed out; 0: the order of the epoch may be another one.
    """
    differ = [name for name in own if None not in (found.get(name), own[name]) and found[name] != own[name]]
    if batches and differ:
        theirs, ours = (", ".join(f"{name}={facts[name]!r}" for name in differ) for facts in (found, own))
        raise InvalidArgument(
            f"the state is after batch {batches} of an epoch with {theirs}, and this loader has {ours}: the rest of "
            "its order would be another one; make the loader with the dataset, sampler and batch_size of the one that "
            "the state comes from"
        )
