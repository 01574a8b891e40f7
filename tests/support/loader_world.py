"""Datasets for tests of loaders: with distinct samples, slow ones, failing ones, and ones that kill their worker."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import shmtensor as st
from shmtensor.data import IterableDataset, get_worker_info, sample_generator


class Numbered:
    """Samples (array of the index, index, its text), as trees of several kinds of leaves."""

    def __init__(self, length: int = 23, shape: tuple[int, ...] = (3, 4)) -> None:
        self.length, self.shape = length, shape

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.length:
            raise IndexError(index)
        return {"x": np.full(self.shape, index, np.float32), "pair": (index, str(index))}


class Rows:
    """Rows of one array."""

    def __init__(self, length: int = 64, shape: tuple[int, ...] = (5,)) -> None:
        self.x = np.arange(length * int(np.prod(shape)), dtype=np.float32).reshape(length, *shape)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index]


class Mixed(Rows):
    """Numbers of several types."""

    kinds: tuple[Any, ...] = (4, 4, 5.5, 5.5, 5.5, 5.5, True, np.float32(3))

    def __getitem__(self, index: int) -> Any:
        return self.kinds[index % 8] if index >= 16 else 1.5


class Slow(Rows):
    """Rows that take a while."""

    def __init__(self, length: int = 64, seconds: float = 0.002) -> None:
        super().__init__(length)
        self.seconds = seconds

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return self.x[index]


class Random(Rows):
    """Rows with noise from the sample's own generator."""

    def __getitem__(self, index: int) -> Any:
        return self.x[index] + sample_generator().random(5, dtype=np.float32)


class Filled(Rows):
    """Rows that are written in place."""

    def fill(self, index: int, out: Any) -> None:
        out[...] = self.x[index]


class Many(Rows):
    """Rows that are read several at a time."""

    def __getitems__(self, indices: list[int]) -> Any:
        return list(self.x[indices] + sample_generator().random(5, dtype=np.float32))


class Loud(Exception):
    """An exception whose constructor cannot be called with its arguments."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Failing(Rows):
    """Raises for one index."""

    def __init__(self, bad: int, kind: str) -> None:
        super().__init__()
        self.bad, self.kind = bad, kind

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            if self.kind == "key":
                raise KeyError("no such thing")
            if self.kind == "loud":
                raise Loud(1, 2)
            if self.kind == "stop":
                raise StopIteration
            if self.kind == "shape":
                return np.zeros(7, np.float32)
            if self.kind == "object":
                return object()
            if self.kind == "exit":
                os._exit(3)
            if self.kind == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            if self.kind == "hang":
                time.sleep(1000)
        return self.x[index]


class DiesOnce(Rows):
    """Kills the worker that loads one index, the first `times` times."""

    def __init__(self, bad: int, marks: str, times: int = 1) -> None:
        super().__init__()
        self.bad, self.marks, self.times = bad, marks, times

    def __getitem__(self, index: int) -> Any:
        if index == self.bad and get_worker_info() is not None:
            for number in range(self.times):
                try:
                    (Path(self.marks) / str(number)).touch(exist_ok=False)
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
        return self.x[index]


class Stream(IterableDataset[Any]):
    """Arrays of their numbers."""

    def __init__(self, length: int = 23) -> None:
        self.length = length

    def __iter__(self) -> Any:
        for number in range(self.length):
            yield np.full(3, number)


class Decoded(Stream):
    """A stream whose raw items are decoded by workers."""

    def __iter__(self) -> Any:
        return iter(range(self.length))

    def load(self, item: int) -> Any:
        return np.full(3, item) + sample_generator().integers(10)


class Epochs(Rows):
    """Samples that contain the epoch."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, index: int) -> Any:
        return np.array([index, self.epoch])


class Arrays:
    """Large arrays, private to each worker: the same one twice, one in Fortran order, one of text."""

    def __init__(self) -> None:
        self.rows = np.arange(1_000_000.0).reshape(1000, 1000)
        self.again = self.rows
        self.columns = np.asfortranarray(self.rows[:200])
        self.part = self.rows[:, :100]
        self.words = np.array(["word"] * 50_000)
        self.tensor = st.ones(100_000)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        before = self.rows[index, 0]
        self.rows[index] = -1
        self.tensor[index] = 0
        return {
            "before": before,
            "same": self.again is self.rows and self.again[index, 5] == -1,
            "columns": self.columns.flags.f_contiguous and self.columns[7, 3] == 7003,
            "others": self.part[7, 3] == 7003 and self.words[-1] == "word",
        }


class Unpacked(Rows):
    """Rows that are pickled as a temporary array."""

    def __getstate__(self) -> Any:
        self.pickled = getattr(self, "pickled", 0) + 1
        return self.x + self.pickled

    def __setstate__(self, state: Any) -> None:
        self.x = state
