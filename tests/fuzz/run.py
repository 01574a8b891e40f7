"""Fuzz the decoders under libFuzzer, then a live manager over real sockets; print the runs and the resources left.

    python tests/fuzz/run.py --driver build/fuzz/driver --runs 1000000 --messages 100000

`make fuzz` builds the driver and the instrumented extension beside it. The seed corpus is corpus.zip. New inputs go to
a directory of their own; with --keep, the smallest ones that reach the same code are merged into the corpus.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

import corpus  # noqa: E402

from shmtensor._native import LAYOUT_VERSION  # noqa: E402
from shmtensor.manager import protocol as p  # noqa: E402


def uses(pid: int) -> tuple[int, int]:
    """(resident KiB, descriptors) of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return resident, len(list(Path(f"/proc/{pid}/fd").iterdir()))


class Manager:
    """One in a directory of its own."""

    def __init__(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="shmt-fuzz-", dir="/tmp")
        self.address = f"{self.directory}/manager.sock"
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "shmtensor.manager", "serve", "--address", self.address]
        self.log = Path(self.directory, "log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None and self.process.stdout.readline()

    def close(self) -> None:
        assert self.process.poll() is None, "the manager ended: " + self.log.read_text()
        log = self.log.read_text()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        shutil.rmtree(self.directory)
        assert "Traceback" not in log, log


def decoders(driver: Path, runs: int, seconds: int, keep: bool) -> bool:
    """The fuzzer with a copy of the package that has the instrumented extension."""
    package = driver.parent / "package"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(ROOT / "shmtensor", package / "shmtensor", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for extension in driver.parent.glob("_native*.so"):
        shutil.copy(extension, package / "shmtensor")
    manager = Manager()
    found, seeds = driver.parent / "found", driver.parent / "corpus"
    found.mkdir(exist_ok=True)
    shutil.rmtree(seeds, ignore_errors=True)
    corpus.unpack(seeds)
    sites = [path for path in sys.path if path.endswith("-packages")]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(package), str(HERE), *sites]),
        "PYTHONHOME": sys.base_prefix,  # not the environment whose python comes first on the path
        "SHMTENSOR_FUZZ_MANAGER": manager.address,
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    }
    before = uses(manager.process.pid)
    started = time.monotonic()
    command = [driver, "-max_len=4096", "-print_final_stats=1", "-verbosity=1", f"-artifact_prefix={found.parent}/"]
    command += [f"-runs={runs}", f"-max_total_time={seconds}", "-rss_limit_mb=4096", "-timeout=60", found, seeds]
    log = driver.parent / "driver.log"
    with log.open("w+") as output:
        process = subprocess.Popen([str(word) for word in command], env=env, stdout=output, stderr=output)
        marks = []
        while process.poll() is None:
            time.sleep(1)
            with suppress(OSError, StopIteration):
                marks.append(uses(process.pid))
    text = log.read_text()
    last = [line for line in text.splitlines() if re.match(r"#\d+\s", line)]
    print(f"decoders: {last[-1] if last else 'none were run'}")
    for name in ("number_of_executed_units", "new_units_added", "peak_rss_mb"):
        print(f"    {name}: " + "".join(re.findall(rf"stat::{name}:\s*(\d+)", text)))
    marks = marks or [(0, 0)]
    parts = [marks[len(marks) * part // 4 - 1] for part in (1, 2, 4)]
    print(f"    {time.monotonic() - started:.0f} s; KiB resident and descriptors:")
    print(f"    of the fuzzer a quarter, half, and all of the way {parts}")
    print(f"    of its manager, which makes what it asks for, before {before}, after {uses(manager.process.pid)}")
    manager.close()
    if process.returncode:
        print(text[-4000:])
    if keep and not process.returncode:
        merge = [driver, "-merge=1", "-max_len=512", seeds, found]
        second = Manager()
        env["SHMTENSOR_FUZZ_MANAGER"] = second.address
        subprocess.run([str(word) for word in merge], env=env, check=True, capture_output=True)
        second.close()
        corpus.pack(seeds)
    return not process.returncode


# ------------------------------------------------------------------------------------------------------ a live manager

PATIENCE = 0.002  # seconds for a reply that may not come


def real(random_: random.Random) -> p.Message:
    """A message as a client might send it, but for STOP and RESTART."""
    number = random_.choice([0, 1, 2, 3, 5, 2**32, 2**63, random_.getrandbits(64)])
    name = random_.choice([b"/a", b"/torch_1_2", b"/" + b"x" * 62])
    return random_.choice(
        [
            p.Hello(p.PROTOCOL_VERSION, LAYOUT_VERSION, random_.choice([0, 0, 1, 2])),
            p.Embryo(random_.randrange(8200), random_.randrange(3)),
            p.Create(random_.choice([1, 4096, 1 << 20]), random_.choice([0, 1, 1, 2, 3])),
            p.Create(0, p.RING),
            p.Map(number),
            p.Return(number),
            p.Export(number, random_.randrange(4), 1),
            p.Lookup(name),
            p.Unexport(name),
            p.Bind(number, 0, 1, name),
            p.Event(number),
            p.CreateDevice(
                random_.choice([0, 1, 2 << 20]), random_.choice([0, 1]), 0, bytes([random_.randrange(1, 3)]) * 16
            ),
            p.Give(number),
            p.List(),
            p.Stats(),
            p.Collect(random_.choice([-1.0, 0.0, 1e9, float("inf")])),
            p.Goodbye(),
        ]
    )


def mutated(data: bytes, random_: random.Random) -> bytes:
    """Mostly with a change or two, cut, or longer."""
    changed = bytearray(data)
    for _ in range(random_.choice([0, 1, 1, 2, 4])):
        what = random_.randrange(4)
        if what == 0 and changed:
            changed[random_.randrange(len(changed))] = random_.getrandbits(8)
        elif what == 1 and changed:
            del changed[random_.randrange(len(changed)) :]
        elif what == 2:
            changed += random_.randbytes(random_.choice([1, 4, 64, 300]))
        elif changed:
            changed[random_.randrange(len(changed))] ^= 1 << random_.randrange(8)
    if bytes(changed[:4]) == p.MAGIC and len(changed) >= 6 and changed[4] in (p.Stop.TYPE, p.Restart.TYPE):
        changed[4] = p.List.TYPE
    return bytes(changed)


def batter(address: str, messages: int, seed: int) -> tuple[int, int]:
    """Send `messages` packets on ever new connections: (packets sent, connections)."""
    random_ = random.Random(seed)
    files = [os.open("/dev/null", os.O_RDONLY), os.memfd_create("fuzz"), *os.pipe()]
    sent = connections = 0
    while sent < messages:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(address)
            sock.settimeout(20)
            connections += 1
            with suppress(OSError):
                if random_.random() < 0.9:
                    sock.send(p.encode(p.Hello(p.PROTOCOL_VERSION, LAYOUT_VERSION), 1))
                    sent += 1
                for _ in range(random_.choice([1, 5, 30])):
                    data = mutated(p.encode(real(random_), random_.getrandbits(32)), random_) or b"\0"
                    if random_.random() < (0.8 if data[4:6] in (b"\x13\0", b"\x14\0") else 0.1):
                        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                        given = random_.choice([files[:1], files, [pair[0].fileno()], files * 60])
                        try:
                            socket.send_fds(sock, [data], given)
                        finally:
                            for end in pair:
                                end.close()
                    else:
                        sock.send(data)
                    sent += 1
                    if random_.random() < 0.8:
                        sock.setblocking(False)
                        with suppress(BlockingIOError):
                            drop(sock)
                        sock.settimeout(20)
                if random_.random() < 0.3:
                    sock.shutdown(socket.SHUT_WR)
                    while drop(sock):
                        pass
    for fd in files:
        os.close(fd)
    return sent, connections


def drop(sock: socket.socket) -> int:
    """Receive a packet and close what came with it; gives its length."""
    data, descriptors, _flags, _from = socket.recv_fds(sock, 2048, 8)
    for fd in descriptors:
        os.close(fd)
    return len(data)


def live(messages: int, seed: int) -> bool:
    manager = Manager()
    pid = manager.process.pid
    batter(manager.address, 2000, seed + 1)  # what is used first stays
    figures = [settled(pid)]
    started = time.monotonic()
    sent = connections = 0
    for part in range(4):
        more = batter(manager.address, messages // 4, seed + 2 + part)
        sent, connections = sent + more[0], connections + more[1]
        figures.append(settled(pid))
    print(f"a live manager: {sent} packets on {connections} connections in {time.monotonic() - started:.0f} s")
    print(f"    KiB resident and descriptors, before and after each quarter: {figures}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:  # it serves
        sock.connect(manager.address)
        sock.send(p.encode(p.Hello(p.PROTOCOL_VERSION, LAYOUT_VERSION), 1))
        data, descriptors, _flags, _from = socket.recv_fds(sock, 2048, 8)
        assert isinstance(p.decode_reply(data)[1], p.Welcome)
        for fd in descriptors:
            os.close(fd)
    manager.close()
    grown = figures[-1][0] - figures[1][0], figures[-1][1] - figures[0][1]
    print(f"    grown by {grown[0]} KiB since the first quarter, by {grown[1]} descriptors since the beginning")
    return grown[0] < 1024 and grown[1] <= 0


def settled(pid: int) -> tuple[int, int]:
    """What it uses once the last connections are gone."""
    found = uses(pid)
    for _ in range(40):
        time.sleep(0.25)
        now = uses(pid)
        if now == found:
            break
        found = now
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", type=Path, help="the fuzzer; without it only the live manager is fuzzed")
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=3600, help="end the fuzzer after this many")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="merge what was found into corpus.zip")
    chosen = parser.parse_args()
    fine = decoders(chosen.driver.resolve(), chosen.runs, chosen.seconds, chosen.keep) if chosen.driver else True
    fine = (live(chosen.messages, chosen.seed) if chosen.messages else True) and fine
    sys.exit(not fine)
