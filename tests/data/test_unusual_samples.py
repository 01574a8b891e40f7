"""Samples, samplers and loaders that are unusual, without workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from shmtensor.data import (
    BucketSampler,
    DataLoader,
    IterableDataset,
    SharedList,
    default_collate,
    default_convert,
    ragged_collate,
)
from shmtensor.errors import DTypeError, InvalidArgument, SampleFailed, SampleMismatch, SampleTypeError


class Pair(Mapping[str, Any]):
    """A mapping that is not created from a dict."""

    def __init__(self, a: Any, b: Any) -> None:
        self._parts = {"a": a, "b": b}

    def __getitem__(self, key: str) -> Any:
        return self._parts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


def test_a_mapping_that_cannot_be_created_becomes_a_dict() -> None:
    found = default_convert(Pair(np.ones(1), "b"))
    assert type(found) is dict and found["a"].tolist() == [1] and found["b"] == "b"
    joined = default_collate([Pair(1, "x"), Pair(2, "y")])
    assert type(joined) is dict and joined["a"].tolist() == [1, 2] and list(joined["b"]) == ["x", "y"]


class Forward:
    """Indices in order, without a length."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(6))


class Own(Exception):
    """An exception of a program."""


class Unpicklable:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def __reduce__(self) -> Any:
        raise self._error


WRONG: Any = "yes"
WRONG_LENGTHS: Any = np.ones((2, 2))

REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a list beside a number": (
        lambda: default_collate([[1, 2], 3]), SampleMismatch, "sample 0 of the batch is a list, sample 1 a int; give"
    ),
    "a number beside a list": (
        lambda: default_collate([(1, 2), [3, 4], 5.0]), SampleMismatch, "sample 0 of the batch is a tuple, sample 2 a f"
    ),
    "shuffle": (
        lambda: DataLoader([1, 2], shuffle=WRONG), InvalidArgument, "shuffle must be True, False or None, not 'yes'"
    ),
    "lengths of two axes": (
        lambda: BucketSampler(WRONG_LENGTHS, batch_size=2), InvalidArgument,
        r"lengths have shape \(2, 2\); give one number for each sample",
    ),
    "a shared list": (
        lambda: SharedList([1, Unpicklable(Own("no"))]), DTypeError, "object 1, a .*Unpicklable, cannot be pickled: no"
    ),
    "a shared list, with an error of ours": (
        lambda: SharedList([1, Unpicklable(InvalidArgument("no"))]), InvalidArgument, "^no$"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        call()


class Batches:
    """Gets several samples at once: the loader asks for a quarter of a batch."""

    def __init__(self, get: Callable[[list[int]], Any]) -> None:
        self._get = get

    def __len__(self) -> int:
        return 8

    def __getitem__(self, key: int) -> int:
        return key

    def __getitems__(self, keys: list[int]) -> Any:
        return self._get(keys)


def fail(_keys: list[int]) -> Any:
    raise Own("no samples")


def test_several_samples_at_once() -> None:
    asked: list[int] = []

    def get(keys: list[int]) -> list[int]:
        asked.append(len(keys))
        return [10 * key for key in keys]

    loader: DataLoader[Any] = DataLoader(Batches(get), batch_size=8)
    (batch,) = loader
    assert batch.tolist() == [0, 10, 20, 30, 40, 50, 60, 70] and asked == [2] * 4
    with pytest.raises(Own, match="no samples"):
        next(iter(DataLoader(Batches(fail), batch_size=2)))
    with pytest.raises(SampleFailed, match="__getitems__ of the dataset returned 2 samples for 1 keys; return one for"):
        next(iter(DataLoader(Batches(lambda keys: [*keys, 5]), batch_size=2)))


class Broken(IterableDataset[Any]):
    """A stream that does not begin."""

    def __iter__(self) -> Iterator[Any]:
        raise Own("no stream")


def test_a_stream_that_does_not_begin() -> None:
    with pytest.raises(Own, match="no stream"):
        next(iter(DataLoader(Broken(), batch_size=2)))


def test_the_place_in_an_epoch_of_unknown_length() -> None:
    def loader(batch_size: int = 2) -> DataLoader[Any]:
        return DataLoader(range(6), batch_size=batch_size, sampler=Forward())

    first = loader()
    iterator = iter(first)
    assert next(iterator).tolist() == [0, 1]
    with pytest.warns(UserWarning, match="Forward has no state_dict"):
        state = first.state_dict()
    second = loader()
    with pytest.warns(UserWarning, match="Forward has no state_dict"):
        second.load_state_dict(state)
    assert [batch.tolist() for batch in second] == [[2, 3], [4, 5]]


@pytest.mark.parametrize("samples", [1, 3, 4])
def test_a_place_with_another_number_of_samples(samples: int) -> None:
    """A batch before the last one has `batch_size` samples."""
    loader: Any = DataLoader(range(6), batch_size=2)
    next(iter(loader))
    state = loader.state_dict()
    assert state["samples"] == 2
    with pytest.raises(InvalidArgument, match=rf"the state has {samples} samples in 1 batches, .* batches of 2; use"):
        DataLoader(range(6), batch_size=2).load_state_dict({**state, "samples": samples})


@pytest.mark.torch
@pytest.mark.exhaustive
def test_parts_of_torch_that_cannot_be_samples() -> None:
    torch = pytest.importorskip("torch")
    samples = [
        (torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged), "a nested torch tensor")
    ]
    if hasattr(torch, "float8_e8m0fnu"):  # torch 2.7 and newer
        unknown = torch.empty(2, dtype=torch.float8_e8m0fnu)
        samples.append((unknown, r"a torch tensor of torch.float8_e8m0fnu .*convert it to a type"))
    for sample, message in samples:
        with pytest.raises(SampleTypeError, match=message):
            default_collate([sample])


def test_ragged_batches_of_numbers_are_stacked() -> None:
    """What has no axis has no length."""
    found = ragged_collate([{"a": np.float32(1), "b": np.ones(1)}, {"a": np.float32(2), "b": np.ones(2)}])
    assert found["a"].tolist() == [1, 2] and found["b"].offsets.tolist() == [0, 1, 3]
    found = ragged_collate([np.array(1), np.array(2)])
    assert found.tolist() == [1, 2]
