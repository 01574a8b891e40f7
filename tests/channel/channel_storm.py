"""Two hosts with one channel, and kills and resets of everything: each message arrives once, in order for each sender.

    python tests/channel/channel_storm.py [--kills 1000] [--resets 1000] [--seed 1] [--managers]

A host is a group of its own. On both hosts processes put and get on the same queue, are killed, and are replaced; so
are the link processes, their guards and, with --managers, the managers. A proxy between the hosts resets the
connections. Afterwards the logs are compared.
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
from link_proxy import LinkProxy

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import channel
from shmtensor.errors import SegmentLost

TIMEOUT = 30.0  # seconds after which an end is dead; longer than anything that the storm does to one
QUIET = 3.0


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
            fields = Path(f"/proc/{link}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0
        parent = int(fields[1])
        return parent if b"link.background" in Path(f"/proc/{parent}/cmdline").read_bytes() else 0


def host(options: argparse.Namespace) -> None:
    if options.host == "a":
        queue = channel.listen(options.address, maxsize=200, timeout=TIMEOUT)
        Path(options.directory, "address").write_text(queue.address)
    else:
        queue = channel.connect(options.address, timeout=TIMEOUT)
    Host(options.host, queue, options.directory, options.seed).run(options.kills, options.managers)
    Path(options.directory, f"lost-{options.host}").write_text(str(queue.stats().lost))
    while not Path(options.directory, "lost-b").exists():
        time.sleep(0.05)
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


def start_host(name: str, address: str, directory: Path, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, __file__, "--host", name, "--address", address, "--directory", str(directory)]
    arguments += ["--kills", str(options.kills // 2), "--seed", str(options.seed + ord(name))]
    arguments += ["--managers"] if options.managers else []
    environment = {**os.environ, "SHMTENSOR_GROUP": f"storm{name}{os.getpid()}"}
    return subprocess.Popen(arguments, env=environment)


def storm(options: argparse.Namespace) -> dict[str, Any]:
    directory = Path(tempfile.mkdtemp(prefix="shmt-storm-"))
    began = time.monotonic()
    chance = random.Random(options.seed)
    hosts = [start_host("a", "tcp://127.0.0.1:0", directory, options)]
    proxy = None
    try:
        while not Path(directory, "address").exists():
            assert hosts[0].poll() is None, "host a ended"
            time.sleep(0.02)
        port = int((directory / "address").read_text().rpartition(":")[2])
        proxy = LinkProxy(("127.0.0.1", port))
        hosts.append(start_host("b", proxy.url, directory, options))
        while not all((directory / f"killed-{name}").exists() for name in "ab") or proxy.resets < options.resets:
            assert all(process.poll() is None for process in hosts), [process.poll() for process in hosts]
            time.sleep(chance.uniform(0.0, 0.1))
            if proxy.resets < options.resets:
                proxy.reset(chance)
        (directory / "stop-producers").touch()
        while not all((directory / f"quiet-{name}").exists() for name in "ab"):
            assert all(process.poll() is None for process in hosts), [process.poll() for process in hosts]
            time.sleep(0.05)
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
        lossy = killed["get"] + sum(int((directory / f"lost-{name}").read_text()) for name in "ab")
        result = compare(directory, lossy)
        return {**result, "kills": dict(killed), "resets": proxy.resets, "seconds": round(time.monotonic() - began, 1)}
    finally:
        for process in hosts:
            if process.poll() is None:
                process.kill()
                process.wait()
        if proxy is not None:
            proxy.close()
        if not options.keep:
            shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--resets", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--managers", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--host", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host:
        host(options)
    else:
        print(json.dumps(storm(options), indent=1))


if __name__ == "__main__":
    main()
