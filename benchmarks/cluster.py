"""Ray actors: 64 MiB, and a stream of 38.5 MB batches, from one to another, by handle and through Ray's store."""

from __future__ import annotations

import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.measure import ContenderFailed, Figure, collector_off, have, run_contender
from benchmarks.streams import BATCH

TURNS = 3
TRIES = 3
LOST = "not found in RDT object store"
CALLS = 200
BATCHES = 60
PENDING = 4
ELEMENTS = (64 << 20) // 4
HANDLE, PACKED = "shmtensor, `handle`", "shmtensor, `pack_handle`"
TRANSPORT = "shmtensor, tensor transport"
RAY = "Ray, its object store"
EMPTY, COPY = "an empty call", "`numpy.copyto` alone, warm memory"
CALL = "64 MiB as the argument of a call from one actor to another"
THERE = "64 MiB that an actor has returned, as the argument of a call"
CHAIN = "a call that returns 64 MiB, and one that gets it"
DIRECT = "stream of fresh 38.5 MB batches, an actor calls another"
RELAYED = "stream of fresh 38.5 MB batches, the driver passes references"
OURS = {CALL: PACKED, THERE: TRANSPORT, CHAIN: TRANSPORT, DIRECT: HANDLE, RELAYED: TRANSPORT}
TARGETS = {CALL: "1.3 x an empty call", THERE: "1.3 x an empty call", DIRECT: "5 x Ray's", RELAYED: "5 x Ray's"}


class Reader:
    """The actor that receives."""

    def nothing(self, value: Any = None) -> None:
        pass

    def open(self, value: bytes) -> None:
        from shmtensor.integrations.ray import open_handle

        open_handle(value)

    def read(self, value: Any) -> float:
        return float(value[::1024].sum())


def writer_class() -> Any:
    import ray

    import shmtensor as st
    from shmtensor.integrations.ray import handle, pack_handle, register

    register()

    class Writer:
        """The actor that makes tensors, and calls the other one."""

        def __init__(self, reader: Any) -> None:
            self.reader = reader
            self.array = np.ones(ELEMENTS, np.float32)
            self.tensor = st.ones(ELEMENTS, shared=True)

        @ray.method(tensor_transport="shmtensor")
        def give(self) -> Any:
            return self.tensor

        def give_array(self) -> Any:
            return self.array

        def nothing(self) -> None:
            pass

        @ray.method(tensor_transport="shmtensor")
        def fresh(self) -> Any:
            batch = st.empty(BATCH // 4, shared=True)
            np.copyto(batch.numpy(), self.array[: BATCH // 4])
            return batch

        def fresh_array(self) -> Any:
            batch = np.empty(BATCH // 4, np.float32)
            np.copyto(batch, self.array[: BATCH // 4])
            return batch

        def calls(self) -> dict[str, float]:
            reader = self.reader
            kinds: dict[str, tuple[int, Callable[[], Any]]] = {
                EMPTY: (1, reader.nothing.remote),
                HANDLE: (1, lambda: reader.nothing.remote(handle(self.tensor))),
                PACKED: (1, lambda: reader.open.remote(pack_handle(self.tensor))),
                RAY: (10, lambda: reader.nothing.remote(self.array)),
            }
            return medians(kinds)

        def streams(self) -> dict[str, float]:
            found = {}
            for name, make in ((HANDLE, self.fresh), (RAY, self.fresh_array)):
                wrap = handle if name == HANDLE else lambda batch: batch

                def send(make: Any = make, wrap: Any = wrap) -> tuple[Any, Any]:
                    batch = make()
                    return self.reader.read.remote(wrap(batch)), batch  # a handle does not keep the batch alive

                found[name] = rate(send)
            return found

    return Writer


def medians(kinds: dict[str, tuple[int, Callable[[], Any]]]) -> dict[str, float]:
    """Median seconds of the calls that each function begins. They take turns, some only in every n-th round."""
    import ray

    times: dict[str, list[float]] = {name: [] for name in kinds}
    with collector_off():
        for number in range(CALLS + 5):
            for name, (every, call) in kinds.items():
                if number % every == 0:
                    start = time.perf_counter()
                    ray.get(call())
                    times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found[2:]) for name, found in times.items()}


def rate(send: Callable[[], tuple[Any, Any]]) -> float:
    """Bytes per second from making the first batch until the last has been read, after a shorter warm-up run.

    Args:
        send: begins the call that reads a batch; returns its reference, and an object to keep until it has ended.
    """
    import ray

    found = 0.0
    for count in (BATCHES // 4, BATCHES):
        pending: deque[tuple[Any, Any]] = deque()
        with collector_off():
            start = time.perf_counter()
            for _ in range(count):
                pending.append(send())
                if len(pending) == PENDING:
                    ray.get(pending[0][0])
                    pending.popleft()  # not before: the tuple has the object to keep
            ray.get([reference for reference, _ in pending])
            found = count * BATCH / (time.perf_counter() - start)
    return found


def copying() -> float:
    source, target = np.ones(BATCH // 4, np.float32), np.zeros(BATCH // 4, np.float32)
    times = []
    for _ in range(10):
        start = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - start)
    return BATCH / statistics.median(times)


@contextmanager
def actors() -> Iterator[tuple[Any, Any]]:
    import ray

    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_rdt_fetch_fail_timeout_milliseconds": "5000"}
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=1 << 30,
        _temp_dir=os.path.join(os.environ["SHMTENSOR_RUNTIME_DIR"], "ray"),  # noqa: PTH118
    )
    try:
        writer = writer_class()
        reader = ray.remote(enable_tensor_transport=True)(Reader).remote()
        yield ray.remote(writer).remote(reader), reader
    finally:
        ray.shutdown()


def direct() -> dict[str, dict[str, float]]:
    """Figures, by work and contender, of an actor that calls another one."""
    import ray

    with actors() as (writer, _):
        found = {CALL: ray.get(writer.calls.remote()), DIRECT: ray.get(writer.streams.remote())}
    found[DIRECT][COPY] = copying()
    return found


def there() -> dict[str, dict[str, float]]:
    """Figures of a driver that passes the reference to one result repeatedly."""
    with actors() as (writer, reader):
        ours, theirs = writer.give.remote(), writer.give_array.remote()
        return {
            THERE: medians(
                {
                    EMPTY: (1, reader.nothing.remote),
                    TRANSPORT: (1, lambda: reader.nothing.remote(ours)),
                    RAY: (1, lambda: reader.nothing.remote(theirs)),
                }
            )
        }


def chain() -> dict[str, dict[str, float]]:
    """Figures of a driver that passes the reference to each result once."""
    with actors() as (writer, reader):
        return {
            CHAIN: medians(
                {
                    EMPTY: (1, lambda: reader.nothing.remote(writer.nothing.remote())),
                    TRANSPORT: (1, lambda: reader.nothing.remote(writer.give.remote())),
                    RAY: (5, lambda: reader.nothing.remote(writer.give_array.remote())),
                }
            )
        }


def relayed() -> dict[str, dict[str, float]]:
    """Figures of a stream of references that the driver passes on."""
    with actors() as (writer, reader):
        found = {
            TRANSPORT: rate(lambda: (reader.read.remote(writer.fresh.remote()), None)),
            RAY: rate(lambda: (reader.read.remote(writer.fresh_array.remote()), None)),
        }
    found[COPY] = copying()
    return {RELAYED: found}


def turn(name: str) -> dict[str, dict[str, float]]:
    """Figures of one run. If Ray loses a transfer (docs/cluster.md), the run is repeated."""
    for left in reversed(range(TRIES)):
        try:
            found: dict[str, dict[str, float]] = run_contender(f"cluster:{name}")
            return found
        except ContenderFailed as error:
            if not left or LOST not in str(error):
                raise
    raise AssertionError


def measure() -> Iterator[Figure]:
    if not have("ray"):
        yield Figure(CALL, HANDLE, None, "s", "", "ray is not installed")
        return
    turns = [
        {work: row for name in ("direct", "there", "chain", "relayed") for work, row in turn(name).items()}
        for _ in range(TURNS)
    ]
    for work, ours in OURS.items():
        found = {name: statistics.median(turn[work][name] for turn in turns) for name in turns[0][work]}
        is_rate = work in (DIRECT, RELAYED)
        for name in sorted(found, key=[PACKED, HANDLE, TRANSPORT, RAY, EMPTY, COPY].index):
            note = ""
            if is_rate and name == ours:
                note = f"{found[ours] / found[RAY]:.1f} x Ray's"
            elif not is_rate and name != EMPTY:
                note = f"{found[name] / found[EMPTY]:.2f} x {'two empty calls' if work == CHAIN else EMPTY}"
            target = TARGETS.get(work, "") if name == ours else ""
            yield Figure(work, name, found[name], "B/s" if is_rate else "s", target, note)
