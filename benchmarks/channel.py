"""Channels: on one machine beside `mp.Queue`, and between two network namespaces beside plain TCP, ZeroMQ and Ray."""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import START, Figure, collector_off, have, run_contender

TURNS = 5
LARGE = 64 << 20
REPEATS = 40
WARM = 12  # until all memory that is needed has been used once
INSIDE = 4  # messages that may be inside, as with ZeroMQ's limit of 2 at each end
SMALL = 100
HERE, THERE = "10.91.7.1", "10.91.7.2"
NAMESPACES = ("shmt-bench-a", "shmt-bench-b")
QUEUE, CHANNEL, ENCRYPTED = "`mp.Queue`", "`channel`", "`channel`, encrypted"
NO_COPY = "`channel`, `copy=False`"
TCP, RAY = "TCP, `recv_into`", "`ray.util.queue`"
ZMQ, CURVE = "ZeroMQ, `recv(copy=False)` and a copy", "ZeroMQ with CURVE, the same"


# ---------------------------------------------------------------------------------------------------- two namespaces


@contextmanager
def two_hosts() -> Iterator[tuple[list[str], list[str], str]]:
    """Commands that run a program in each of two network namespaces, and the address of the first.

    If this process may not create namespaces: both on this machine's loopback.
    """
    ip = shutil.which("ip")
    if ip is None or os.geteuid() != 0:
        yield [], [], "127.0.0.1"
        return
    a, b = NAMESPACES
    steps = [
        f"netns add {a}", f"netns add {b}", f"link add shmt0 netns {a} type veth peer name shmt1 netns {b}",
        f"-n {a} addr add {HERE}/24 dev shmt0", f"-n {b} addr add {THERE}/24 dev shmt1",
        *(f"-n {n} link set {device} up" for n, device in ((a, "shmt0"), (b, "shmt1"), (a, "lo"), (b, "lo"))),
    ]  # fmt: skip
    for name in NAMESPACES:
        subprocess.run([ip, "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
    try:
        for step in steps:
            subprocess.run([ip, *step.split()], check=True)
        yield [ip, "netns", "exec", a], [ip, "netns", "exec", b], HERE
    finally:
        for name in NAMESPACES:
            subprocess.run([ip, "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


def sender(wrapper: list[str], name: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Start a function of this module in a process of another group."""
    command = [*wrapper, sys.executable, "-P", "-c", START, str(Path(__file__).parents[1]), name, json.dumps(arguments)]
    environment = {**os.environ, "SHMTENSOR_GROUP": f"bench{os.getpid()}"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def rates(take: Callable[[], int], total: int) -> float:
    """Messages per second from the first to the last."""
    with collector_off():
        take()
        begin = time.perf_counter()
        got = 0
        while got < total:
            got += take()
        return got / (time.perf_counter() - begin)


# ------------------------------------------------------------------------------------------------------ large tensors


def large_tcp(address: str, other: list[str]) -> float:
    into = memoryview(np.ones(LARGE, np.uint8))
    with socket.create_server((address, 0)) as listener:
        process = sender(other, "channel:send_tcp", address, listener.getsockname()[1])
        connection, _ = listener.accept()

        def take() -> int:
            got = 0
            while got < LARGE:
                got += connection.recv_into(into[got:])
            return 1

        for _ in range(WARM):
            take()
        rate = rates(take, REPEATS - WARM - 1)
        connection.close()
        process.wait()
    return rate * LARGE


def send_tcp(address: str, port: int) -> None:
    data = memoryview(np.ones(LARGE, np.uint8))
    with socket.create_connection((address, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(REPEATS):
            connection.sendall(data)


def large_zmq(address: str, other: list[str], encrypt: bool) -> float:
    import zmq

    into = np.ones(LARGE, np.uint8)
    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        pull.set_hwm(2)
        public = ""
        if encrypt:
            key, pull.curve_secretkey = zmq.curve_keypair()
            pull.curve_server = True
            public = key.decode()
        process = sender(other, "channel:send_zmq", address, pull.bind_to_random_port(f"tcp://{address}"), public)

        def take() -> int:
            np.copyto(into, np.frombuffer(pull.recv(copy=False).buffer, np.uint8))
            return 1

        for _ in range(WARM):
            take()
        rate = rates(take, REPEATS - WARM - 1)
        process.wait()
    return rate * LARGE


def send_zmq(address: str, port: int, public: str) -> None:
    import zmq

    data = np.ones(LARGE, np.uint8)
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.set_hwm(2)
        if public:
            push.curve_serverkey = public.encode()
            push.curve_publickey, push.curve_secretkey = zmq.curve_keypair()
        push.connect(f"tcp://{address}:{port}")
        for _ in range(REPEATS):
            push.send(data, copy=False)


@contextmanager
def listening(address: str, encrypt: bool, maxsize: int = 0) -> Iterator[tuple[Any, str]]:
    """A channel with keys, and the directory of the other end's."""
    from shmtensor import channel
    from shmtensor.channel import keys

    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = keys.make_all(folder, ("ours", "theirs")).values()
        queue = channel.listen(f"tcp://{address}:0", keys=ours, encrypt=encrypt, window="256M", maxsize=maxsize)
        try:
            yield queue, str(theirs)
        finally:
            queue.close()


def large_channel(address: str, other: list[str], encrypt: bool, copy: bool) -> float:
    with listening(address, encrypt, INSIDE) as (queue, keys):
        process = sender(other, "channel:send_large", queue.address, keys, encrypt, copy)

        def take() -> int:
            queue.get(timeout=60)
            return 1

        for _ in range(WARM):
            take()
        rate = rates(take, REPEATS - WARM - 1)
        process.wait()
    return rate * LARGE


def send_large(address: str, keys: str, encrypt: bool, copy: bool) -> None:
    import shmtensor
    from shmtensor import channel

    queue = channel.connect(address, keys=keys, encrypt=encrypt, window="256M", timeout=20, copy=copy)
    data = shmtensor.ones(LARGE, dtype=shmtensor.uint8).share_memory_()
    for _ in range(REPEATS):
        queue.put(data)


# ----------------------------------------------------------------------------------------------------- small messages

BATCH, BATCHES = 1000, 400


def small_channel(address: str, other: list[str], encrypt: bool) -> float:
    with listening(address, encrypt) as (queue, keys):
        process = sender(other, "channel:send_small", queue.address, keys, encrypt)
        rate = rates(lambda: len(queue.get_many(BATCH, timeout=60)), BATCH * (BATCHES - 1))
        process.wait()
    return rate


def send_small(address: str, keys: str, encrypt: bool) -> None:
    from shmtensor import channel

    queue = channel.connect(address, keys=keys, encrypt=encrypt, timeout=20)
    data = [bytes(SMALL)] * BATCH
    for _ in range(BATCHES):
        queue.put_many(data)


def small_ray() -> float:
    import ray
    from ray.util.queue import Queue

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        queue = Queue()

        @ray.remote
        def put(queue: Any, batches: int) -> None:
            for _ in range(batches):
                queue.put_nowait_batch([bytes(SMALL)] * BATCH)

        batches = 40
        done = put.remote(queue, batches)
        taken = 0
        while taken < BATCH:
            taken += len(queue.get_nowait_batch(min(BATCH, queue.qsize())))
        begin, first = time.perf_counter(), taken
        while taken < BATCH * batches:
            taken += len(queue.get_nowait_batch(min(BATCH, queue.qsize())))
        rate = (taken - first) / (time.perf_counter() - begin)
        ray.get(done)
        return rate
    finally:
        ray.shutdown()


# --------------------------------------------------------------------------------------------------------- one machine


def local() -> dict[str, list[float]]:
    """Seconds for a message between two processes, by a queue and by a channel, which take turns."""
    import shmtensor.multiprocessing as mp
    from shmtensor import channel

    kinds: dict[str, Any] = {QUEUE: mp.Queue(maxsize=1000), CHANNEL: channel.listen("tcp://127.0.0.1:0", maxsize=1000)}
    context = mp.get_context("fork")
    found: dict[str, list[float]] = {}
    for turn in range(10):
        for what, messages, value in (("small", 60_000, 1), ("64 KiB array", 6_000, np.zeros(65536, np.uint8))):
            for name, queue in sorted(kinds.items(), reverse=bool(turn % 2)):  # the second one finds warmer memory
                child = context.Process(target=put_all, args=(queue, value, messages))
                child.start()
                with collector_off():
                    queue.get()
                    begin = time.perf_counter()
                    for _ in range(messages - 1):
                        queue.get()
                    seconds = (time.perf_counter() - begin) / (messages - 1)
                child.join()
                found.setdefault(f"{name} {what}", []).append(seconds)
    kinds[CHANNEL].close()
    return found


def put_all(queue: Any, value: Any, messages: int) -> None:
    for _ in range(messages):
        queue.put(value)


# ------------------------------------------------------------------------------------------------------------- memory


def peers(count: int) -> dict[str, float]:
    """Memory of the link process, in bytes, for each connected end that has nothing in flight."""
    from shmtensor import channel
    from shmtensor.channel import handshake
    from shmtensor.channel.address import parse

    queue = channel.listen("tcp://127.0.0.1:0", max_peers=count, timeout=60)
    link = queue._end.state.link_pid

    def used() -> int:
        lines = Path(f"/proc/{link}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty", "Pss_Shmem"))) * 1024

    hello = {
        "kind": "queue",
        "pickle": False,
        "incarnation": 1,
        "named": False,
        "number": 0,
        "received": 0,
        "timeout": 60.0,
    }
    before = used()
    connections = []
    for number in range(count):
        session = number.to_bytes(16, "little").hex()
        connections.append(handshake.connect(parse(queue.address), None, True, {**hello, "session": session})[0])
    while queue.stats().connected < count:
        time.sleep(0.01)
    after = used()
    for connection in connections:
        connection.close()
    queue.close()
    return {"each": (after - before) / count}


def measure() -> Iterator[Figure]:
    turns = run_contender("channel:local")
    for what in ("small", "64 KiB array"):
        pairs = list(zip(turns[f"{QUEUE} {what}"], turns[f"{CHANNEL} {what}"], strict=True))
        ratio = statistics.median(ours / queue for queue, ours in pairs)
        yield Figure(f"a message on one machine, {what}", QUEUE, statistics.median(q for q, _ in pairs), "s")
        yield Figure(
            f"a message on one machine, {what}", CHANNEL, statistics.median(c for _, c in pairs), "s",
            "1.1 x `mp.Queue`", f"{ratio:.2f} x, median of turns",
        )  # fmt: skip
    found: dict[str, list[float]] = {}
    with two_hosts() as (one, other, address):
        where = "two network namespaces" if one else "the loopback"
        for _ in range(TURNS):
            rows: list[tuple[str, str, tuple[bool, ...]]] = [(TCP, "large_tcp", ())]
            rows += [(NO_COPY, "large_channel", (False, False)), (CHANNEL, "large_channel", (False, True))]
            rows += [(ENCRYPTED, "large_channel", (True, True))]
            rows += [(ZMQ, "large_zmq", (False,)), (CURVE, "large_zmq", (True,))] if have("zmq") else []
            for name, function, arguments in rows:
                value = run_contender(f"channel:{function}", address, other, *arguments, wrapper=one)
                found.setdefault(f"large {name}", []).append(value)
            for name, encrypt in ((CHANNEL, False), (ENCRYPTED, True)):
                value = run_contender("channel:small_channel", address, other, encrypt, wrapper=one)
                found.setdefault(f"small {name}", []).append(value)
    work = f"64 MiB tensors between {where}"
    tcp = found[f"large {TCP}"]
    for name in (TCP, NO_COPY, CHANNEL, ENCRYPTED, ZMQ, CURVE):
        values = found.get(f"large {name}")
        if values is None:
            yield Figure(work, name, None, "B/s", "", "not installed")
            continue
        ratio = statistics.median(value / bound for value, bound in zip(values, tcp, strict=True))
        target = "0.8 x TCP, more than ZeroMQ" if name in (NO_COPY, CHANNEL) else ""
        yield Figure(work, name, statistics.median(values), "B/s", target, f"{ratio:.2f} x TCP")
    work = f"messages of {SMALL} B in batches between {where}"
    for name in (CHANNEL, ENCRYPTED):
        target = "300,000/s, 3 x Ray" if name == CHANNEL else ""
        yield Figure(work, name, statistics.median(found[f"small {name}"]), "1/s", target)
    ray = run_contender("channel:small_ray") if have("ray") else None
    yield Figure(work, RAY, ray, "1/s", "", "on one machine" if ray else "not installed")
    yield Figure(
        "memory of a connected end with nothing in flight", CHANNEL, run_contender("channel:peers", 1000)["each"], "B"
    )
