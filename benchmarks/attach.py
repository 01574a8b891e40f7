"""Attaching: opening memory of another process, in a process that has already mapped its segment."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, collector_off, have, run_contender

COUNT = 100  # tensors of 4 KiB; torch needs two descriptors for each
BEGIN, END = "/benchmark-begin", "/benchmark-end"  # paths looked up before and after the calls that strace counts


# ---- contenders: the parent makes tensors, a spawned child opens them ------------------------------------------------


def native_attach(strace_mark: bool) -> float:
    """Seconds of a `Client.attach` and the release that follows, in the child."""
    import multiprocessing

    from shmtensor.manager import client

    manager = client.default()
    blocks = [manager.allocate(4096) for _ in range(COUNT + 1)]
    names = [(block.segment, block.index, block.generation) for block in blocks]
    return ask_child(multiprocessing.get_context("spawn"), attach_blocks, manager.address, names, strace_mark)


def attach_blocks(results: Connection, address: bytes, names: list[tuple[int, int, int]], strace_mark: bool) -> None:
    from shmtensor.manager import client

    attach = client.at(address).native.attach
    first = attach(*names[0])  # maps the segment
    times = []
    with collector_off():
        if strace_mark:
            os.path.exists(BEGIN)  # noqa: PTH110
        for _ in range(10):
            start = time.perf_counter()
            for segment, index, generation in names[1:]:
                attach(segment, index, generation)
            times.append((time.perf_counter() - start) / COUNT)
        if strace_mark:
            os.path.exists(END)  # noqa: PTH110
    del first
    results.send(statistics.median(times))


def shmtensor_unpickle() -> float:
    import shmtensor
    import shmtensor.multiprocessing as mp

    tensors = [shmtensor.ones(1024, shared=True) for _ in range(COUNT + 1)]
    return unpickle_in_child(mp, tensors)


def torch_unpickle(strategy: str) -> float:
    import torch
    import torch.multiprocessing as mp

    mp.set_sharing_strategy(strategy)
    tensors = [torch.ones(1024).share_memory_() for _ in range(COUNT + 1)]
    return unpickle_in_child(mp, tensors)


def unpickle_in_child(mp: Any, tensors: list[Any]) -> float:
    from multiprocessing.reduction import ForkingPickler

    pickles = [bytes(ForkingPickler.dumps(tensor)) for tensor in tensors]
    return ask_child(mp.get_context("spawn"), unpickle, type(tensors[0]).__module__.partition(".")[0], pickles)


def unpickle(results: Connection, library: str, pickles: list[bytes]) -> None:
    import importlib
    from multiprocessing.reduction import ForkingPickler

    importlib.import_module(library)
    first = ForkingPickler.loads(pickles[0])
    times = []
    with collector_off():
        for data in pickles[1:]:
            start = time.perf_counter()
            tensor = ForkingPickler.loads(data)
            times.append(time.perf_counter() - start)
            del tensor
    del first
    results.send(statistics.median(times))


def stdlib_attach() -> float:
    import multiprocessing
    from multiprocessing.shared_memory import SharedMemory

    memories = [SharedMemory(create=True, size=4096) for _ in range(COUNT + 1)]
    try:
        names = [memory.name for memory in memories]
        return ask_child(multiprocessing.get_context("spawn"), attach_stdlib, names)
    finally:
        for memory in memories:
            memory.close()
            memory.unlink()


def attach_stdlib(results: Connection, names: list[str]) -> None:
    from multiprocessing.shared_memory import SharedMemory

    times = []
    with collector_off():
        for name in names:
            start = time.perf_counter()
            memory = SharedMemory(name=name)
            memory.close()
            times.append(time.perf_counter() - start)
    results.send(statistics.median(times[1:]))


def ask_child(context: Any, target: Any, *arguments: object) -> float:
    """Runs target(connection, *arguments) in a child and returns what it sends. Waits for at most 120 s."""
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=target, args=(theirs, *arguments))
    child.start()
    theirs.close()
    try:
        if not ours.poll(120):
            raise TimeoutError(f"{target.__name__} did not answer within 120 s")
        return float(ours.recv())
    finally:
        child.join(10)
        if child.is_alive():
            child.kill()
            child.join()


# ---- rows ------------------------------------------------------------------------------------------------------------


def count_system_calls() -> int:
    """System calls of 1,000 attaches and releases between the marks, as counted by strace -f."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        run_contender("attach:native_attach", True, wrapper=("strace", "-f", "-o", str(trace)))
        lines = trace.read_text(errors="replace").splitlines()
    begin = next(number for number, line in enumerate(lines) if BEGIN in line)
    process = lines[begin].split()[0]
    inside = itertools.takewhile(lambda line: END not in line, lines[begin + 1 :])
    return sum(1 for line in inside if re.match(rf"{process} +\w+\(", line))


def measure() -> Iterator[Figure]:
    work = "attach a 4 KiB block of a known segment and release it"
    yield Figure(work, "shmtensor `Client.attach`", run_contender("attach:native_attach", False), "s")
    yield Figure(work, "stdlib `SharedMemory(name)` and close", run_contender("attach:stdlib_attach"), "s")
    work = "unpickle a shared 4 KiB tensor"
    yield Figure(work, "shmtensor", run_contender("attach:shmtensor_unpickle"), "s")
    if have("torch"):
        for strategy in ("file_descriptor", "file_system"):
            yield Figure(work, f"torch, {strategy}", run_contender("attach:torch_unpickle", strategy), "s")
    work = "system calls of 1,000 attaches and releases"
    if shutil.which("strace"):
        yield Figure(work, "shmtensor `Client.attach`", count_system_calls(), "", "0")
    else:
        yield Figure(work, "shmtensor `Client.attach`", None, "", "0", "strace is not installed")
