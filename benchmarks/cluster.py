"""Actors of Ray: a 64 MiB tensor and a stream of 38.5 MB batches from one to another, by handle and through its store."""

from __future__ import annotations

import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.measure import Figure, collector_off, have, run_contender
from benchmarks.streams import BATCH

TURNS = 3
CALLS = 300
BATCHES = 60
PENDING = 4
ELEMENTS = (64 << 20) // 4
OURS, HANDLE, THERE = "shmtensor, tensor transport", "shmtensor, `handle`", "shmtensor, tensor transport, put before"
RAY, RAY_THERE = "Ray, its object store", "Ray, its object store, put before"
EMPTY, COPY = "an empty call", "`numpy.copyto` alone, warm memory"
CALL = "a call with 64 MiB from one actor to another"
STREAM = "stream of fresh 38.5 MB batches from one actor to another"
TARGETS = {OURS: "1.3 x an empty call", HANDLE: "1.3 x an empty call"}


class Reader:
    """The actor that receives."""

    def nothing(self, value: Any = None) -> None:
        pass

    def read(self, value: Any) -> float:
        return float(value[::1024].sum())


class Writer:
    """The actor that calls the other one, and measures."""

    def __init__(self, reader: Any) -> None:
        import shmtensor as st
        from shmtensor.integrations.ray import handle, register

        register()
        self.st, self.handle, self.reader = st, handle, reader
        self.array = np.ones(ELEMENTS, np.float32)
        self.tensor = st.ones(ELEMENTS, shared=True)

    def transported(self, tensor: Any) -> Any:
        import ray

        return ray.put(tensor, _tensor_transport="shmtensor")

    def calls(self) -> dict[str, float]:
        """Median seconds of each call; the kinds take turns."""
        import ray

        reader = self.reader
        there, there_ray = self.transported(self.tensor), ray.put(self.array)
        kinds: dict[str, tuple[int, Callable[[], Any]]] = {
            EMPTY: (1, reader.nothing.remote),
            OURS: (1, lambda: reader.nothing.remote(self.transported(self.tensor))),
            THERE: (1, lambda: reader.nothing.remote(there)),
            HANDLE: (1, lambda: reader.nothing.remote(self.handle(self.tensor))),
            RAY: (10, lambda: reader.nothing.remote(self.array)),
            RAY_THERE: (1, lambda: reader.nothing.remote(there_ray)),
        }
        times: dict[str, list[float]] = {name: [] for name in kinds}
        with collector_off():
            for number in range(CALLS + 20):
                for name, (every, call) in kinds.items():
                    if number % every == 0:
                        start = time.perf_counter()
                        ray.get(call())
                        times[name].append(time.perf_counter() - start)
        return {name: statistics.median(found[2:]) for name, found in times.items()}

    def streams(self) -> dict[str, float]:
        """Bytes per second from making the first batch until the last has been read."""
        source = self.array[: BATCH // 4]

        def ours() -> Any:
            batch = self.st.empty(BATCH // 4, shared=True)
            np.copyto(batch.numpy(), source)
            return batch

        def theirs() -> Any:
            batch = np.empty(BATCH // 4, np.float32)
            np.copyto(batch, source)
            return batch

        kinds = {
            OURS: lambda: (self.transported(ours()), None),
            HANDLE: lambda: (lambda batch: (self.handle(batch), batch))(ours()),
            RAY: lambda: (theirs(), None),
        }
        return {name: self.stream(make) for name, make in kinds.items()} | {COPY: self.copying(source)}

    def stream(self, make: Callable[[], tuple[Any, Any]]) -> float:
        """As `streams`, of one kind; `make` returns what is passed, and what must be kept until it was read."""
        import ray

        rate = 0.0
        for count in (BATCHES // 4, BATCHES):
            pending: deque[tuple[Any, Any]] = deque()
            with collector_off():
                start = time.perf_counter()
                for _ in range(count):
                    value, kept = make()
                    pending.append((self.reader.read.remote(value), kept))
                    if len(pending) == PENDING:
                        ray.get(pending.popleft()[0])
                ray.get([reference for reference, _ in pending])
                rate = count * BATCH / (time.perf_counter() - start)
        return rate

    def copying(self, source: Any) -> float:
        target = np.zeros_like(source)
        times = []
        for _ in range(10):
            start = time.perf_counter()
            np.copyto(target, source)
            times.append(time.perf_counter() - start)
        return BATCH / statistics.median(times)


@contextmanager
def writer() -> Iterator[Any]:
    import ray

    from shmtensor.integrations.ray import register

    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=1 << 30,
        _temp_dir=os.path.join(os.environ["SHMTENSOR_RUNTIME_DIR"], "ray"),  # noqa: PTH118
    )
    try:
        register()
        reader = ray.remote(Reader).options(enable_tensor_transport=True).remote()
        yield ray.remote(Writer).options(enable_tensor_transport=True).remote(reader)
    finally:
        ray.shutdown()


def works(method: str) -> dict[str, float]:
    import ray

    with writer() as actor:
        found: dict[str, float] = ray.get(getattr(actor, method).remote())
        return found


def measure() -> Iterator[Figure]:
    if not have("ray"):
        yield Figure(CALL, OURS, None, "s", "", "ray is not installed")
        return
    turns = [(run_contender("cluster:works", "calls"), run_contender("cluster:works", "streams")) for _ in range(TURNS)]
    calls, streams = (
        {name: statistics.median(turn[which][name] for turn in turns) for name in turns[0][which]} for which in (0, 1)
    )
    for name in (HANDLE, OURS, THERE, RAY, RAY_THERE, EMPTY):
        note = "" if name == EMPTY else f"{calls[name] / calls[EMPTY]:.2f} x an empty call"
        yield Figure(CALL, name, calls[name], "s", TARGETS.get(name, ""), note)
    for name in (HANDLE, OURS, RAY, COPY):
        target = "5 x Ray's" if name in TARGETS else ""
        note = f"{streams[name] / streams[RAY]:.1f} x Ray's" if name in TARGETS else ""
        yield Figure(STREAM, name, streams[name], "B/s", target, note)
