"""Ray, for the same work as the transports: a tensor is an actor's argument or a value put into Ray's store."""

from __future__ import annotations

import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.measure import collector_off
from benchmarks.streams import MANY, MESSAGE, STREAMS

NAME = "Ray, an actor's argument"
NEEDS = "ray"


@contextmanager
def actor() -> Iterator[Any]:
    """The actor that plays the other process."""
    import ray

    class Part:
        def add_one(self, array: Any) -> Any:
            array = array.copy()  # the received array is read-only
            array[0] += 1
            return array

        def read(self, array: Any) -> float:
            return float(array[::1024].sum())

        def read_all(self, arrays: list[Any]) -> float:
            total = sum(float(array[0]) for array in arrays)
            return time.perf_counter() if total >= 0 else 0.0

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=1 << 30,
        _temp_dir=os.path.join(os.environ["SHMTENSOR_RUNTIME_DIR"], "ray"),  # noqa: PTH118
    )
    try:
        with collector_off():
            yield ray.remote(Part).options(num_cpus=1).remote()
    finally:
        ray.shutdown()


def handover() -> dict[str, float]:
    """Median seconds of a round trip."""
    import ray

    medians = {}
    with actor() as part:
        for words, nbytes, rounds in (("4 KiB", 4 << 10, 200), ("64 MiB", 64 << 20, 5)):
            array = np.zeros(nbytes // 4, np.float32)

            def turn(array: Any = array) -> None:
                ray.get(part.add_one.remote(array))

            turn()
            medians[f"{words} there and back through `Queue`"] = statistics.median(seconds(turn) for _ in range(rounds))
    return medians


def fresh() -> dict[str, float]:
    """The same figures as fresh.works."""
    import ray

    with actor() as part:
        rates = {}
        for work, (nbytes, _, scale) in STREAMS.items():
            source = np.ones(nbytes // 4, np.float32)
            count = 500 if nbytes < 1 << 20 else 20
            stream(part, source, count // 4)
            taken = seconds(lambda source=source, count=count: stream(part, source, count))
            rates[work] = count * (nbytes if scale == "B/s" else 1) / taken
        source = np.ones(1024, np.float32)
        times = []
        for _ in range(10):
            start = time.perf_counter()
            done = ray.get(part.read_all.remote([source.copy() for _ in range(MANY)]))
            times.append(done - start)
        rates[MESSAGE] = statistics.median(times)
    return rates


def stream(part: Any, source: Any, count: int) -> None:
    """Large tensors: four are under way at a time, as many as wait in the queues of the transports."""
    import ray

    large = source.nbytes > 1 << 20
    pending: deque[Any] = deque()
    for _ in range(count):
        pending.append(part.read.remote(ray.put(source) if large else source.copy()))
        if len(pending) == (4 if large else 256):
            ray.get(pending.popleft())
    ray.get(list(pending))


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
