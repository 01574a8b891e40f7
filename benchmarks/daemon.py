"""The manager: its start, the time of a request, its cost; and the cost of importing shmtensor."""

from __future__ import annotations

import array
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Figure, collector_off, run_contender, seconds_per_call

CLIENTS = 1_000
STARTS = 15
IMPORT = """
import time, numpy
start = time.perf_counter()
import shmtensor
imported = time.perf_counter()
shmtensor.zeros
print(imported - start, time.perf_counter() - start)
"""


# ---- a minimal client, which talks to a manager without the package's own client -------------------------------------


def connect(address: Path, flags: int = 0) -> socket.socket:
    """A client that has sent HELLO and received WELCOME. Raises OSError while no manager listens."""
    from shmtensor import _native
    from shmtensor.manager import protocol

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(30)
        connection.connect(str(address))
        connection.send(protocol.encode(protocol.Hello(protocol.PROTOCOL_VERSION, _native.LAYOUT_VERSION, flags)))
        data, ancillary, _, _ = connection.recvmsg(protocol.MAX_REPLY_BYTES, socket.CMSG_SPACE(8))
        for _, _, packed in ancillary:
            for descriptor in array.array("i", packed[: len(packed) - len(packed) % 4]):
                socket.close(descriptor)
        if data[4] != protocol.Welcome.TYPE & 0xFF:
            raise RuntimeError(f"the manager did not welcome a client: {data!r}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def serving(folder: str) -> Iterator[tuple[Path, subprocess.Popen[bytes], float]]:
    """`shmtensor-manager serve` in a process of its own: (address, process, seconds from start to first reply)."""
    address = Path(folder) / "bench.sock"
    start = time.perf_counter()
    command = [sys.executable, "-P", "-m", "shmtensor.manager", "serve", "--address", str(address)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                first = connect(address)
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if process.poll() is not None or time.perf_counter() - start > 30:
                    raise RuntimeError(f"the manager at {address} is not there (exit {process.poll()})") from None
                time.sleep(0.001)
        ready = time.perf_counter() - start
        first.close()
        yield address, process, ready
    finally:
        process.terminate()
        process.wait(30)


def private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


# ---- contenders ------------------------------------------------------------------------------------------------------


def ready() -> float:
    from shmtensor import _native, manager  # noqa: F401  not to be timed

    times = []
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory() as folder, serving(folder) as (_, _, seconds):
            times.append(seconds)
    return statistics.median(times)


def first_use() -> float:
    """Seconds of finding no manager, starting one and being its client, in a process that is up already."""
    from shmtensor.manager import client

    os.environ["SHMTENSOR_GROUP"] = os.urandom(8).hex()  # the manager of the last round may not have left yet
    start = time.perf_counter()
    client.default()
    return time.perf_counter() - start


def later_use() -> float:
    """The same while a manager runs, as for the second program of a user."""
    from shmtensor.manager import client

    with tempfile.TemporaryDirectory() as folder, serving(folder) as (address, _, _):
        os.environ["SHMTENSOR_MANAGER"] = os.fsdecode(address)
        start = time.perf_counter()
        client.default()
        return time.perf_counter() - start


def requests(clients: int) -> dict[str, float]:
    """Median seconds of a LOOKUP, and the manager's private bytes, with `clients` connected (at least one)."""
    from shmtensor.manager import client, protocol

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    with tempfile.TemporaryDirectory() as folder, serving(folder) as (address, process, _):
        manager = client.at(bytes(address))
        block = manager.allocate(4096)
        lookup = protocol.encode(protocol.Lookup(manager.export(block)), 1)
        connections = [connect(address) for _ in range(clients)]
        caller = connections[clients // 2]

        def request() -> None:
            caller.send(lookup)
            reply = caller.recv(protocol.MAX_REPLY_BYTES)
            if reply[4] != protocol.Block.TYPE:
                raise RuntimeError(f"LOOKUP was answered by {reply!r}")

        times = []
        with collector_off():
            for _ in range(5_000):
                start = time.perf_counter()
                request()
                times.append(time.perf_counter() - start)
        result = {"seconds": statistics.median(times[500:]), "private": float(private_bytes(process.pid))}
        for connection in connections:
            connection.close()
        del block
        return result


def machine_round_trip() -> float:
    """Seconds of a round trip over a socket pair between two processes in plain Python: the lower bound."""
    import os

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if (child := os.fork()) == 0:
        ours.close()
        while data := theirs.recv(1024):
            theirs.send(data)
        os._exit(0)
    theirs.close()

    def request() -> None:
        ours.send(b"x" * 80)
        ours.recv(1024)

    seconds = seconds_per_call(request, 100, 30)
    ours.close()
    os.waitpid(child, 0)
    return seconds


# ---- rows ------------------------------------------------------------------------------------------------------------


def import_times() -> tuple[float, float]:
    """(importing shmtensor, importing it and looking up its first name) after numpy, medians of fresh interpreters."""
    runs = []
    for _ in range(STARTS):
        done = subprocess.run(
            [sys.executable, "-P", "-c", IMPORT], capture_output=True, text=True, check=True, timeout=60
        )
        runs.append([float(word) for word in done.stdout.split()])
    return statistics.median(run[0] for run in runs), statistics.median(run[1] for run in runs)


def measure() -> Iterator[Figure]:
    yield Figure(
        "manager, from start to first reply", "shmtensor-manager serve", run_contender("daemon:ready"), "s", "150 ms"
    )
    starts = statistics.median(run_contender("daemon:first_use") for _ in range(STARTS))
    yield Figure("first need of shared memory in a program", "shmtensor, starts the manager", starts, "s")
    finds = statistics.median(run_contender("daemon:later_use") for _ in range(STARTS))
    yield Figure("first need of shared memory in a program", "shmtensor, finds one that runs", finds, "s")

    floor = run_contender("daemon:machine_round_trip")
    for clients in (1, CLIENTS):
        result = run_contender("daemon:requests", clients)
        work = f"a request, {clients:,} connected"
        yield Figure(work, "shmtensor LOOKUP", result["seconds"], "s", "150 us")
        yield Figure(work, "an echo over a socket pair", floor, "s")
        yield Figure(f"manager's private memory, {clients:,} connected", "shmtensor", result["private"], "B", "20 MB")

    imported, used = import_times()
    yield Figure("`import shmtensor` after `import numpy`", "shmtensor", imported, "s", "50 ms")
    yield Figure(
        "the same and `shmtensor.zeros`", "shmtensor", used, "s", "50 ms", "Tensor and Storage are loaded on first use"
    )
