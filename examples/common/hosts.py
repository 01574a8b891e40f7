"""Hosts of programs: this machine, groups on it, or network namespaces, which programs see as separate machines."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from shmtensor.channel import keys

from .workers import ignoring_interrupts

PORT = 7000  # of the first channel of a host with a network of its own
ENDING = 15.0  # seconds that the other processes of a namespace may take to end
OWN_PIDS = ("unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")


class HostsError(Exception):
    """The hosts cannot be created here."""


@dataclass(frozen=True)
class Host:
    """A place where a program runs, and the address at which others reach it."""

    address: str
    first_port: int
    prefix: tuple[str, ...] = ()  # of the command line
    env: dict[str, str] = field(default_factory=dict)
    keys: Path | None = None

    def url(self, number: int = 0) -> str:
        """The address of the channel with this number."""
        return f"tcp://{self.address}:{self.first_port + number}"

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a Python program. Ctrl-C in the terminal does not reach it: the caller ends it."""
        more = () if self.keys is None else ("--keys", str(self.keys))
        command = [*self.prefix, sys.executable, *arguments, *more]
        with ignoring_interrupts():
            return subprocess.Popen(command, env={**os.environ, **self.env})


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    with ignoring_interrupts():
        for process in processes:
            if process.poll() is None:
                process.kill()
        for process in processes:
            process.wait()


@contextmanager
def on_this_machine(names: Sequence[str], channels: int) -> Iterator[list[Host]]:
    """All programs share memory."""
    first = free_ports(channels * len(names))
    yield [Host("127.0.0.1", first + channels * number) for number in range(len(names))]


@contextmanager
def in_groups(names: Sequence[str], channels: int) -> Iterator[list[Host]]:
    """Each program has a group of its own, so that messages go through TCP on the loopback."""
    first = free_ports(channels * len(names))
    yield [
        Host("127.0.0.1", first + channels * number, env={"SHMTENSOR_GROUP": f"{name}x{os.getpid()}"})
        for number, name in enumerate(names)
    ]


@contextmanager
def in_namespaces(names: Sequence[str], channels: int) -> Iterator[list[Host]]:
    """Each program has a network, a group and keys of its own; the networks are joined by a bridge.

    If `unshare` may create them, each also has its own PID and mount namespaces, as in a container: once its program
    has ended, no process of it runs.

    Raises:
        HostsError: this process may not create namespaces, or a program that is needed is missing.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise HostsError("--namespaces needs root, and the program `ip` (package iproute2)")
    separate = OWN_PIDS if can_run(*OWN_PIDS, "true") else ()
    with ExitStack() as stack:
        # Not in a user's directory, since the paths of sockets must be short.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shmt-", dir="/tmp")))
        keys.make_all(folder, names)
        bridge = f"shmt{os.getpid()}"
        stack.enter_context(network(bridge))
        ip("-n", bridge, "link", "add", "bridge", "type", "bridge")
        ip("-n", bridge, "link", "set", "bridge", "up")
        hosts = []
        for number, name in enumerate(names, 1):
            space, address = f"{bridge}-{name}", f"10.77.0.{number}"
            stack.enter_context(network(space))
            ip("-n", bridge, "link", "add", f"port{number}", "type", "veth", "peer", "eth0", "netns", space)
            ip("-n", bridge, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
            env = {"SHMTENSOR_GROUP": name, "SHMTENSOR_RUNTIME_DIR": str(folder)}
            hosts.append(Host(address, PORT, ("ip", "netns", "exec", space, *separate), env, folder / name))
        yield hosts


def free_ports(count: int) -> int:
    """The first of `count` consecutive ports that are unused at present.

    They are below those that the kernel gives to connections, which could take one before it is listened at.
    """
    lowest_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        first = random.randrange(1024, max(lowest_given, 8192) - count)
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


@contextmanager
def network(name: str) -> Iterator[None]:
    """A network namespace. At the end, wait for its managers and links, which end after their programs."""
    ip("netns", "add", name)
    try:
        yield
    finally:
        deadline = time.monotonic() + ENDING
        while ip("netns", "pids", name) and time.monotonic() < deadline:
            time.sleep(0.05)
        ip("netns", "delete", name)


def ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise HostsError(f"--namespaces: `ip {' '.join(arguments)}` says: {done.stderr.strip()}")
    return done.stdout


def can_run(*command: str) -> bool:
    return shutil.which(command[0]) is not None and not subprocess.run(command, capture_output=True).returncode


def name_of(code: int) -> str:
    """How a program ended, by its exit code; `unshare` and shells add 128 to the number of a signal."""
    number = -code if code < 0 else code - 128
    with suppress(ValueError):
        return f"got {signal.Signals(number).name}"
    return f"ended with exit code {code}"
