"""A model of the speed of a channel between hosts and its memory, checked against two network namespaces.

    python tests/channel/channel_model.py               # the check; needs root
    python tests/channel/channel_model.py --copy 1.5e9  # predictions for other networks

The rate of messages of `size` bytes between two ends is the smallest of these:

    link            rate / size                        capacity of the network
    processes       copy / size                        copies of the link processes, one core at each end
    window          ahead / (round trip + size / rate) messages that may be unacknowledged, in one round trip
    TCP             tcp / (round trip * size)          bytes that the kernels keep for a connection
    demand          prefetch / (round trip + size / rate)   messages that a taker has asked for

`ahead` is the number of messages that begin within `window` bytes, at least one. A listening end has one link process
and one link for all connected ends. Its memory contains at most the messages of its queue, one arriving message for
each end that puts, and the unacknowledged messages for each end that takes. A connected end is the same with one end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import numpy as np
from bad_network import ADDRESSES, BadNetwork, Weather, unavailable

from shmtensor import channel
from shmtensor.channel import keys

MIB = 1 << 20
SECONDS = 4.0  # that a measurement lasts
WARM = 1.0  # seconds before it
MTU = 65_000  # the link is a program: fewer packets are more bytes


# --------------------------------------------------------------------------------------------------------------- model


@dataclass(frozen=True)
class Case:
    """A channel, and the network between its ends."""

    size: int
    """Bytes of a message."""
    rate: float
    """Bytes per second of the link of the listening end."""
    round_trip: float = 0.0
    """Seconds."""
    window: int = 64 * MIB
    prefetch: int = 0
    """Of connected ends that take; 0: they put."""
    ends: int = 1
    """Connected ends."""


@dataclass(frozen=True)
class Machine:
    """What a host can do."""

    copy: float
    """Bytes per second that go through its link process, without a network that limits it."""
    tcp: float = 3 * MIB
    """Bytes in flight of one connection: what net.ipv4.tcp_wmem's maximum, 4 MiB, leaves for data."""


def throughput(case: Case, machine: Machine) -> tuple[float, str]:
    """Return (bytes per second over all connected ends, what limits it)."""
    sending = case.size / case.rate
    ahead = max(1, -(-case.window // case.size))
    limits = {
        "link": case.rate,
        "processes": machine.copy,
        "window": case.ends * ahead * case.size / (case.round_trip + sending),
    }
    if case.round_trip:
        limits["TCP"] = case.ends * machine.tcp / case.round_trip
    if case.prefetch:
        limits["demand"] = case.ends * case.prefetch * case.size / (case.round_trip + sending)
    what = min(limits, key=lambda name: limits[name])
    return limits[what], what


def memory(case: Case) -> float:
    """Return the most bytes of messages in the memory of the listening end."""
    ahead = min(case.prefetch, max(1, -(-case.window // case.size))) if case.prefetch else 1
    return (maxsize(case) + case.ends * ahead) * case.size


def maxsize(case: Case) -> int:
    """Return the bound of the queue, in messages."""
    return max(2, min(1000, 32 * MIB // case.size))


# --------------------------------------------------------------------------------------------------------------- check


def put_all(address: str, directory: str, encrypt: bool, size: int, window: int) -> None:
    """Put messages for as long as this process lives."""
    queue = channel.connect(address, keys=directory, encrypt=encrypt, window=window, timeout=30.0)
    data = np.ones(size, np.uint8)
    while True:
        queue.put(data)


def take_all(address: str, directory: str, encrypt: bool, size: int, window: int, prefetch: int) -> None:
    """Take messages for as long as this process lives."""
    queue = channel.connect(address, keys=directory, encrypt=encrypt, window=window, prefetch=prefetch, timeout=30.0)
    while True:
        queue.get()


def measure(address: str, directory: str, case: dict[str, Any]) -> None:
    """Listen; print bytes per second and the most memory, once the other host has begun."""
    size, window = case["size"], case["window"]
    queue = channel.listen(
        address, keys=directory, encrypt=False, window=window, timeout=30.0, maxsize=maxsize(Case(**case))
    )
    before = queue._manager.stats().live_bytes
    print(queue.address, flush=True)
    data = np.ones(size, np.uint8)
    taken = put = 0
    most = 0
    begin = end = 0.0
    while not end or time.monotonic() < end:
        if case["prefetch"]:
            queue.put(data)
            put += 1
            done = put - queue.qsize() - int(queue._end.window.stats().objects)
        else:
            queue.get()
            taken += 1
            done = taken
        now = time.monotonic()
        if not end and done:
            begin, first, end = now + WARM, None, now + WARM + SECONDS
        if end and now >= begin and first is None:
            begin, first = now, done
        if done % 8 == 0:
            most = max(most, queue._manager.stats().live_bytes - before)
    print(json.dumps([(done - first) * size / (now - begin), most]), flush=True)
    os._exit(0)


class Hosts:
    """Two namespaces with keys; programs of this file run in them."""

    def __init__(self, weather: Weather) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="shmt-model-", dir="/tmp"))
        keys.make_all(self.folder, "01")
        self.network = BadNetwork(weather, mtu=MTU)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, host: int, group: str, function: str, *arguments: Any) -> subprocess.Popen[str]:
        command = [sys.executable, __file__, "--run", function, json.dumps(arguments)]
        env = {**os.environ, "SHMTENSOR_GROUP": group, "SHMTENSOR_RUNTIME_DIR": str(self.folder)}
        prefix = self.network.prefix(host)
        self.started.append(subprocess.Popen([*prefix, *command], env=env, stdout=subprocess.PIPE, text=True))
        return self.started[-1]

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()
        self.network.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def hosts(weather: Weather) -> Iterator[Hosts]:
    made = Hosts(weather)
    try:
        yield made
    finally:
        made.close()


def measured(case: Case) -> tuple[float, float]:
    """Return (bytes per second, most bytes of messages at the listening end)."""
    rate = 0.0 if case.rate == float("inf") else case.rate
    with hosts(Weather(delay=case.round_trip / 2, rate=rate)) as two:
        listening = two.start(0, "a", "measure", f"tcp://{ADDRESSES[0]}:7000", str(two.folder / "0"), vars(case))
        assert listening.stdout is not None
        address = listening.stdout.readline().strip()
        common = address, str(two.folder / "1"), False, case.size, case.window
        for number in range(case.ends):
            if case.prefetch:
                two.start(1, f"b{number}", "take_all", *common, case.prefetch)
            else:
                two.start(1, f"b{number}", "put_all", *common)
        rate, most = json.loads(listening.stdout.readline())
        return rate, most


UNBOUNDED = float("inf")
CASES = [
    Case(8 * MIB, 50e6),
    Case(8 * MIB, 100e6, 0.010),
    Case(MIB, 100e6, 0.020),
    Case(100_000, 100e6, 0.020, window=MIB),
    Case(8 * MIB, 100e6, 0.100, window=MIB),
    Case(100, 100e6, 0.020, prefetch=1),
    Case(100, 100e6, 0.020, prefetch=32),
    Case(MIB, 100e6, 0.020, prefetch=1),
    Case(MIB, 50e6, 0.010, ends=4),
    Case(100_000, 100e6, 0.020, window=MIB, ends=4),
]


def described(case: Case) -> str:
    rate = "unbounded" if case.rate == UNBOUNDED else f"{case.rate / 1e6:g} MB/s"
    size = f"{case.size / MIB:g} MiB" if case.size >= MIB else f"{case.size:,} B"
    how = f"taken, prefetch={case.prefetch}" if case.prefetch else f"put, window {case.window / MIB:g} MiB"
    return f"{case.ends} | {size} | {how} | {rate} | {case.round_trip * 1e3:g} ms"


def amount(value: float, size: int) -> str:
    return f"{value / 1e6:.1f} MB/s" if size >= 10_000 else f"{value / size:,.0f} messages/s"


def header(*columns: str) -> None:
    print(f"| {' | '.join(columns)} |")
    print(f"| {' | '.join('---' for _ in columns)} |")


def check(repeats: int) -> None:
    copy = statistics.median(measured(Case(8 * MIB, UNBOUNDED))[0] for _ in range(repeats))
    print(f"without a limit: {copy / 1e6:.0f} MB/s\n")
    header(
        "ends", "message", "", "link", "round trip", "model", "measured", "ratio", "limit", "memory at most", "measured"
    )
    for case in CASES:
        found = [measured(case) for _ in range(repeats)]
        rate = statistics.median(one for one, _ in found)
        expected, what = throughput(case, Machine(copy))
        most = max(nbytes for _, nbytes in found)
        print(
            f"| {described(case)} | {amount(expected, case.size)} | {amount(rate, case.size)} | "
            f"{rate / expected:.2f} | {what} | {memory(case) / MIB:.1f} MiB | {most / MIB:.1f} MiB |",
            flush=True,
        )


NETWORKS = [("1 Gbit/s", 0.118e9, 0.0002), ("10 Gbit/s", 1.18e9, 0.0001), ("25 Gbit/s", 2.95e9, 0.00005),
            ("100 Gbit/s", 11.8e9, 0.00003), ("1 Gbit/s, another city", 0.118e9, 0.02)]  # fmt: skip


def extrapolate(machine: Machine) -> None:
    header("link of the listening end", "round trip", "ends", "8 MiB put", "limit", "1 MiB taken, prefetch=1", "limit")
    for name, rate, round_trip in NETWORKS:
        for ends in (1, 4, 16):
            put, why = throughput(Case(8 * MIB, rate, round_trip, ends=ends), machine)
            got, because = throughput(Case(MIB, rate, round_trip, prefetch=1, ends=ends), machine)
            print(
                f"| {name} | {round_trip * 1e3:g} ms | {ends} | {put / 1e9:.2f} GB/s | {why} | {got / 1e9:.2f} GB/s | "
                f"{because} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--copy", type=float, help="bytes per second of a link process, for the model alone")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        function, arguments = options.run
        {one.__name__: one for one in (measure, put_all, take_all)}[function](*json.loads(arguments))
    elif options.copy:
        extrapolate(Machine(options.copy))
    elif reason := unavailable():
        parser.error(reason)
    else:
        check(options.repeats)


if __name__ == "__main__":
    main()
