"""Two hosts with one channel, under kills and resets: each message arrives once, in order for each sender.

    python tests/channel/channel_storm.py [--kills 1000] [--resets 1000] [--seed 1] [--managers] [--namespaces]

A host is a group of its own. On both hosts, processes put and get on the same queue, are killed, and are replaced; so
are the link processes, their guards and, with --managers, the managers. A proxy between the hosts resets the
connections. With --namespaces (root), each host has its own network, processes, mounts and /dev/shm, and the link
between them also loses, repeats, delays and reorders packets. Afterwards, the logs are compared, and the memory of each
host must be the same as before.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import numpy as np
from bad_network import ADDRESSES, BadNetwork, Weather, unavailable
from link_proxy import LinkProxy

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import channel
from shmtensor.channel import keys
from shmtensor.errors import SegmentLost

TIMEOUT = 30.0  # seconds after which an end is dead; longer than anything that the storm does to one
QUIET = 3.0
PORT = 7000  # where hosts have networks of their own
WEATHER = Weather(loss=0.01, repeats=0.01, delay=0.0005, jitter=0.001)
SENT = (0, 16_000, 16_000, 200_000)  # bytes that a connection has sent before it is cut; it begins with about 4,000
RETURN_SECONDS = 30.0  # within which the memory of messages that were taken is free

MOST_RINGS = 1 << 20  # bytes by which the table of a window may grow: it keeps the size that it has needed

# ----------------------------------------------------------------------------------------------------------- one host


def produce(queue: channel.Channel, name: str, directory: str, stop: Any) -> None:
    """Put messages until told to stop. Each is in the log once `put` has returned."""
    chance = np.random.default_rng(zlib.crc32(name.encode()))
    log = os.open(Path(directory, f"put-{name}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in range(1 << 30):
        if stop.is_set():
            return
        size = int(chance.choice([0, 10, 300, 5000, 200_000], p=[0.3, 0.3, 0.2, 0.15, 0.05]))
        data = chance.integers(0, 255, size, dtype=np.uint8)
        value = shmtensor.from_numpy(data) if number % 3 == 0 else data
        queue.put({"from": name, "number": number, "sum": zlib.crc32(data.tobytes()), "data": value})
        os.write(log, b"%d\n" % number)


def consume(queue: channel.Channel, name: str, directory: str, stop: Any) -> None:
    """Take messages until told to stop, and log each."""
    log = os.open(Path(directory, f"got-{name}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while not stop.is_set():
        try:
            message = queue.get(timeout=0.2)
        except channel.Empty:
            continue
        except SegmentLost:  # its sender and the manager were killed before anybody had mapped its memory
            os.write(log, b"lost 0 0\n")
            continue
        whole = zlib.crc32(np.asarray(message["data"]).tobytes()) == message["sum"]
        os.write(log, b"%s %d %d\n" % (message["from"].encode(), message["number"], whole))


class Host:
    """What happens on one host: it keeps so many processes working, and kills them."""

    def __init__(self, name: str, queue: channel.Channel, directory: str, seed: int) -> None:
        self.name = name
        self.queue = queue
        self.directory = directory
        self.chance = random.Random(seed)
        self.stop_producers, self.stop_consumers = mp.Event(), mp.Event()
        self.workers: dict[Any, tuple[Any, str, Any]] = {}
        self.started = 0
        self.killed: collections.Counter[str] = collections.Counter()

    def start(self, work: Any, stop: Any) -> None:
        self.started += 1
        name = f"{self.name}{self.started}"
        worker = mp.get_context("fork").Process(target=work, args=(self.queue, name, self.directory, stop))
        worker.start()
        self.workers[worker] = work, name, stop

    def run(self, kills: int, managers: bool) -> None:
        for _ in range(2):
            self.start(produce, self.stop_producers)
            self.start(consume, self.stop_consumers)
        kinds = ["put", "get", "link", "guard"] + (["manager"] if managers else [])
        weights = [4, 4, 3, 1] + ([0.5] if managers else [])
        while sum(self.killed.values()) < kills:
            time.sleep(self.chance.uniform(0.0, 0.06))  # when a kill comes is what is random
            self.kill(self.chance.choices(kinds, weights)[0])
        Path(self.directory, f"killed-{self.name}").write_text(json.dumps(self.killed))
        self.until("stop-producers")
        self.stop_producers.set()
        self.join(produce)
        Path(self.directory, f"quiet-{self.name}").touch()
        self.until("stop-consumers")
        self.stop_consumers.set()
        self.join(consume)

    def memory(self) -> dict[str, int]:
        """Bytes of blocks that anything holds on this host: of the rings and tables of queues, and of all others."""
        segments = self.queue._end.manager.list()["segments"]
        rings = sum(one["live_bytes"] for one in segments if one["ring"] is not None)
        return {"rings": rings, "blocks": sum(one["live_bytes"] for one in segments) - rings}

    def memory_beyond(self, before: dict[str, int]) -> dict[str, int]:
        """What is held beyond `before`, once all other blocks are free or their time is over."""
        deadline = time.monotonic() + RETURN_SECONDS
        while (now := self.memory())["blocks"] > before["blocks"] and time.monotonic() < deadline:
            time.sleep(0.05)
        return {kind: now[kind] - before[kind] for kind in now}

    def until(self, file: str) -> None:
        while not Path(self.directory, file).exists():
            time.sleep(0.05)

    def join(self, work: Any) -> None:
        for worker, (does, _, _) in list(self.workers.items()):
            if does is work:
                worker.join(60)
                assert worker.exitcode == 0, f"{worker} ended with {worker.exitcode}"
                del self.workers[worker]

    def kill(self, kind: str) -> None:
        if kind in ("put", "get"):
            work = produce if kind == "put" else consume
            worker = self.chance.choice([w for w, (does, _, _) in self.workers.items() if does is work])
            worker.kill()
            worker.join()
            *_, stop = self.workers.pop(worker)
            self.start(work, stop)
        else:
            pid = self.pid_of(kind)
            if pid <= 1:
                return
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.killed[kind] += 1

    def pid_of(self, kind: str) -> int:
        end = self.queue._end
        if kind == "manager":
            return int(end.manager.stats().pid)
        link = int(end.state.link_pid)
        if kind == "link":
            return link
        try:
            parent = int(Path(f"/proc/{link}/stat").read_text().rpartition(")")[2].split()[1])
            words = Path(f"/proc/{parent}/cmdline").read_bytes()
        except OSError:
            return 0
        return parent if b"link.background" in words else 0


def host(options: argparse.Namespace) -> None:
    if options.host == "a":
        queue = channel.listen(options.address, maxsize=200, timeout=TIMEOUT, keys=options.keys)
        Path(options.directory, "address").write_text(queue.address)
    else:
        queue = channel.connect(options.address, timeout=TIMEOUT, keys=options.keys)
    here = Host(options.host, queue, options.directory, options.seed)
    before = here.memory()
    here.run(options.kills, options.managers)
    Path(options.directory, f"left-{options.host}").write_text(
        json.dumps({"lost": queue.stats().lost, "memory": here.memory_beyond(before)})
    )
    here.until("left-b")
    queue.close()


# --------------------------------------------------------------------------------------------------------- both hosts


def logs(directory: Path, kind: str) -> dict[str, list[list[bytes]]]:
    """The lines of each log, as words; the last one of a process that was killed may be cut off."""
    found = {}
    for path in directory.glob(f"{kind}-*"):
        lines = path.read_bytes().split(b"\n")[:-1]
        found[path.name.partition("-")[2]] = [line.split() for line in lines]
    return found


def compare(directory: Path, lossy: int) -> dict[str, int]:
    """Compare what was put with what arrived. `lossy`: consumers that were killed, each with a message in its hands."""
    put = {(name, int(line[0])) for name, lines in logs(directory, "put").items() for line in lines}
    got: collections.Counter[tuple[str, int]] = collections.Counter()
    for name, lines in logs(directory, "got").items():
        last: dict[str, int] = {}
        for sender, number, whole in lines:
            if sender == b"lost":
                lossy += 1
                continue
            key = sender.decode(), int(number)
            assert whole == b"1", f"the data of {key} is damaged"
            assert last.get(key[0], -1) < key[1], f"{name} got {key} after number {last[key[0]]} of that sender"
            last[key[0]] = key[1]
            got[key] += 1
    twice = [key for key, times in got.items() if times > 1]
    assert not twice, f"{len(twice)} messages arrived twice, such as {twice[:5]}"
    lost = put - set(got)
    assert len(lost) <= lossy, f"{len(lost)} messages were lost, such as {sorted(lost)[:5]}; {lossy} may be"
    return {"put": len(put), "got": len(got), "lost with a killed consumer": len(lost)}


class Loopback:
    """Two groups of this machine, and a proxy between them."""

    listen_at = "tcp://127.0.0.1:0"

    def __init__(self, directory: Path, seed: int) -> None:
        self.proxy: LinkProxy | None = None

    def prefix(self, name: str) -> list[str]:
        return []

    def options(self, name: str) -> list[str]:
        return []

    def join(self, address: str) -> str:
        """What the second host connects to."""
        self.proxy = LinkProxy(("127.0.0.1", int(address.rpartition(":")[2])))
        return self.proxy.url

    @property
    def resets(self) -> int:
        return 0 if self.proxy is None else self.proxy.resets

    def reset(self, chance: random.Random) -> None:
        assert self.proxy is not None
        self.proxy.reset(chance)

    def facts(self) -> dict[str, Any]:
        return {"resets": self.resets}

    def close(self) -> None:
        if self.proxy is not None:
            self.proxy.close()


class Namespaces:
    """Two hosts with networks, processes and shared memory of their own, joined by a bad network."""

    listen_at = f"tcp://{ADDRESSES[0]}:{PORT}"

    def __init__(self, directory: Path, seed: int) -> None:
        self.keys = keys.make_all(directory / "keys", "ab")
        self.network = BadNetwork(WEATHER, seed)

    def prefix(self, name: str) -> list[str]:
        return self.network.prefix("ab".index(name))

    def options(self, name: str) -> list[str]:
        return ["--keys", str(self.keys[name])]

    def join(self, address: str) -> str:
        """What the second host connects to."""
        return address

    @property
    def resets(self) -> int:
        return self.network.resets

    def reset(self, chance: random.Random) -> None:
        self.network.reset(chance.choice(SENT))

    def facts(self) -> dict[str, Any]:
        network = self.network
        packets = {"passed": network.passed, "lost": network.lost, "repeated": network.repeated}
        return {"resets": network.resets, "packets": packets}

    def close(self) -> None:
        self.network.close()


def start_host(
    name: str, address: str, directory: Path, place: Loopback | Namespaces, options: argparse.Namespace
) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, __file__, "--host", name, "--address", address, "--directory", str(directory)]
    arguments += ["--kills", str(options.kills // 2), "--seed", str(options.seed + ord(name))]
    arguments += ["--managers"] if options.managers else []
    environment = {**os.environ, "SHMTENSOR_GROUP": f"storm{name}{os.getpid()}"}
    return subprocess.Popen([*place.prefix(name), *arguments, *place.options(name)], env=environment)


def await_file(path: Path, hosts: list[subprocess.Popen[bytes]]) -> None:
    while not path.exists():
        assert all(process.poll() is None for process in hosts), [process.poll() for process in hosts]
        time.sleep(0.02)


def storm(options: argparse.Namespace) -> dict[str, Any]:
    directory = Path(tempfile.mkdtemp(prefix="shmt-storm-"))
    began = time.monotonic()
    chance = random.Random(options.seed)
    hosts: list[subprocess.Popen[bytes]] = []
    place = (Namespaces if options.namespaces else Loopback)(directory, options.seed)
    try:
        hosts.append(start_host("a", place.listen_at, directory, place, options))
        await_file(directory / "address", hosts)
        hosts.append(start_host("b", place.join((directory / "address").read_text()), directory, place, options))
        while not all((directory / f"killed-{name}").exists() for name in "ab") or place.resets < options.resets:
            assert all(process.poll() is None for process in hosts), [process.poll() for process in hosts]
            time.sleep(chance.uniform(0.0, 0.1))
            if place.resets < options.resets:
                place.reset(chance)
        (directory / "stop-producers").touch()
        for name in "ab":
            await_file(directory / f"quiet-{name}", hosts)
        sizes, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET:
            now = sum(path.stat().st_size for path in directory.glob("got-*"))
            if now != sizes:
                sizes, since = now, time.monotonic()
            time.sleep(0.05)
        (directory / "stop-consumers").touch()
        codes = [process.wait(120) for process in hosts]
        assert codes == [0, 0], codes
        killed = sum(
            (collections.Counter(json.loads((directory / f"killed-{n}").read_text())) for n in "ab"),
            collections.Counter(),
        )
        left = {name: json.loads((directory / f"left-{name}").read_text()) for name in "ab"}
        result = compare(directory, killed["get"] + sum(one["lost"] for one in left.values()))
        memory = {name: one["memory"] for name, one in left.items()}
        for name, one in memory.items():
            assert one["blocks"] <= 0, f"host {name}: {one['blocks']} bytes of messages did not come back"
            assert one["rings"] <= MOST_RINGS, f"host {name}: rings and tables grew by {one['rings']} bytes"
        seconds = round(time.monotonic() - began, 1)
        return {**result, "kills": dict(killed), **place.facts(), "bytes more than before": memory, "seconds": seconds}
    finally:
        for process in hosts:
            if process.poll() is None:
                process.kill()
                process.wait()
        place.close()
        if not options.keep:
            shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--resets", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--managers", action="store_true")
    parser.add_argument("--namespaces", action="store_true")
    parser.add_argument("--keep", action="store_true")
    for hidden in ("--host", "--address", "--directory", "--keys"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host:
        host(options)
        return
    if options.namespaces and (reason := unavailable()):
        parser.error(f"--namespaces: {reason}")
    print(json.dumps(storm(options), indent=1))


if __name__ == "__main__":
    main()
