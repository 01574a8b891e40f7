"""A private manager for a test: a runtime directory of its own, real processes, bounded waits."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from shmtensor import errors
from shmtensor._native import LAYOUT_VERSION
from shmtensor.manager import client, connection, protocol

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""
SUPPORT = Path(__file__).resolve().parent
"""Modules that tests, and programs that they start, import by plain names."""
BOUND = 20.0
"""Seconds that anything here may take before it counts as hanging."""
TORCH_BOUND = 60.0
"""The same, if children import torch."""
VARIABLES = ("SHMTENSOR_MANAGER", "SHMTENSOR_GROUP", "SHMTENSOR_RUNTIME_DIR", "XDG_RUNTIME_DIR")


def until(condition: Callable[[], Any], what: str, bound: float = BOUND) -> Any:
    """The first true value of `condition()`; fails after `bound` seconds."""
    deadline = time.monotonic() + bound
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {bound:g} s for {what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """True while the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_one_interrupt(text: str) -> bool:
    """True if one process printed one KeyboardInterrupt, which may have come while it handled another exception."""
    nested = text.count("During handling of the above exception, another exception occurred")
    lines = text.splitlines()
    while lines and lines[-1].startswith("when serializing "):  # notes of pickle, since Python 3.14
        lines.pop()
    return text.count("Traceback (most recent call last)") == 1 + nested and lines[-1:] == ["KeyboardInterrupt"]


def shm_names() -> set[str]:
    """Names of shmtensor in /dev/shm, without those of other running programs."""
    ours = str(os.getpid())
    makers = {path.name: path.name.split("_")[1] for path in Path("/dev/shm").glob("torch_*")}
    return {name for name, pid in makers.items() if pid == ours or not Path("/proc", pid).exists()}


def no_names_left(before: set[str]) -> None:
    """Check that no new name is left in /dev/shm.

    Names left by dead processes of other programs, such as tests that run at the same time, disappear within moments.
    """
    left = shm_names() - before
    ours = {name for name in left if name.startswith(f"torch_{os.getpid()}_")}
    assert not ours, f"left in /dev/shm: {sorted(ours)}"
    until(lambda: not left & shm_names(), f"{sorted(left)} to go from /dev/shm")


def _heeding_signals() -> list[str]:
    """A command prefix that resets the signals that a shell's background job, or nohup, makes us ignore."""
    names = ("SIGINT", "SIGHUP", "SIGTERM")
    ignored = [name for name in names if signal.getsignal(signal.Signals[name]) is signal.SIG_IGN]
    return ["env", f"--default-signal={','.join(ignored)}"] if ignored else []


class World:
    """A runtime directory and the processes started in it."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)
        self.env = {key: value for key, value in os.environ.items() if key not in VARIABLES}
        self.env["SHMTENSOR_RUNTIME_DIR"] = directory
        self.env["PYTHONPATH"] = f"{ROOT}:{SUPPORT}"
        self._visited: set[int] = set()
        self.processes: list[subprocess.Popen[str]] = []

    def popen(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*_heeding_signals(), sys.executable, "-W", "error", *arguments],
            env={**self.env, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def script(self, code: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a Python program; it may print, read lines, and must end by itself or be killed."""
        return self.popen("-c", code, *arguments, env=env)

    def run(self, code: str, *arguments: str, env: dict[str, str] | None = None) -> str:
        """Run a Python program to its end; returns its output."""
        process = self.script(code, *arguments, env=env)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert not err, err
        return out

    def command(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run `shmtensor-manager`."""
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "shmtensor.manager", *arguments],
            env={**self.env, **(env or {})},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def serve(self, *options: str, address: Path | None = None) -> bytes:
        """Start a manager in the foreground and wait until it listens; returns its address."""
        path = address or self.directory / "manager.sock"
        process = self.popen("-m", "shmtensor.manager", "serve", "--json", "--address", str(path), *options)
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        while not line.rstrip().endswith("}"):
            line += process.stdout.readline()
        self.server = process
        return os.fsencode(json.loads(line)["address"])

    def observe(self, address: bytes) -> dict[str, Any]:
        """STATS and LIST of a manager in one document."""
        with connection.Observer(address) as observer:
            listing = json.loads(observer.document(protocol.List()))
            return {**listing, "stats": json.loads(observer.document(protocol.Stats()))}

    def close(self) -> None:
        while Wire.made:
            Wire.made.pop().close()
        for process in self.processes:
            process.terminate()
            try:
                process.wait(BOUND)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(BOUND)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        until(self._is_over, "managers on demand to leave")

    def _is_over(self) -> bool:
        """Whether no manager is left here.

        Kills a manager whose only client is this process, which stays connected for life. Stops a background manager
        that a named object would keep for ever. Connects to one that still waits for its first client, so that it ends.
        """
        for path in self.directory.glob("*.sock"):
            with suppress(errors.ShmTensorError, OSError):  # it may end at any step here
                found = self.observe(os.fsencode(path))
                if {row["pid"] for row in found["clients"]} == {os.getpid()}:
                    os.kill(found["stats"]["pid"], signal.SIGKILL)
                elif found["stats"]["private"] and found["stats"]["idle_exit"] is None:
                    with connection.Observer(os.fsencode(path)) as observer:
                        observer.request(protocol.Stop())
                elif not found["clients"] and found["stats"]["pid"] not in self._visited:
                    self._visited.add(found["stats"]["pid"])
                    visitor = Wire(os.fsencode(path))
                    visitor.hello()
                    visitor.ask(protocol.Goodbye())
                    visitor.close()
        return not self.managers()

    def managers(self) -> list[int]:
        """Pids of the managers that serve in this directory."""
        found: list[int] = []
        is_complete = False
        while not found and not is_complete:
            is_complete = True
            for pid in [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]:
                try:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:  # it has ended; its successor may be newer than the list
                    is_complete = False
                    continue
                if os.fsencode(self.directory) in words and b"shmtensor.manager" in words and is_alive(pid):
                    found.append(pid)
        return found


@contextmanager
def world() -> Iterator[World]:
    """A World in a short path (paths of sockets are limited), removed afterwards."""
    directory = tempfile.mkdtemp(prefix="shmt-", dir="/tmp")
    made = World(directory)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(directory)
    for pid in (os.getpid(), *(process.pid for process in made.processes)):
        assert not list(Path("/dev/shm").glob(f"torch_{pid}_*"))


class Wire:
    """A client with hand-written messages, valid or not. Closed with the world at the latest."""

    made: ClassVar[list[Wire]] = []

    def __init__(self, address: bytes, sock: socket.socket | None = None) -> None:
        self.sock = sock or socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.made.append(self)
        self.sock.settimeout(BOUND)
        if sock is None:
            self.sock.connect(address)

    def send(self, message: protocol.Message, request_id: int = 1, descriptors: tuple[int, ...] = ()) -> None:
        self.send_bytes(protocol.encode(message, request_id), descriptors)

    def send_bytes(self, data: bytes, descriptors: tuple[int, ...] = ()) -> None:
        """Send one packet. A manager that has already refused and closed is no error: its reply can be received."""
        with contextlib.suppress(BrokenPipeError):
            if descriptors:
                socket.send_fds(self.sock, [data], list(descriptors))
            else:
                self.sock.send(data)

    def receive(self) -> tuple[int, protocol.Message, list[int]]:
        try:
            data, descriptors, _flags, _from = socket.recv_fds(self.sock, protocol.MAX_REPLY_BYTES + 1, 8)
        except ConnectionResetError:  # raised once, if it closed with unread data; its reply follows
            data, descriptors, _flags, _from = socket.recv_fds(self.sock, protocol.MAX_REPLY_BYTES + 1, 8)
        if not data:
            raise ConnectionError("the manager closed the connection")
        number, message = protocol.decode_reply(data)
        return number, message, list(descriptors)

    def ask(self, message: protocol.Message, request_id: int = 1) -> protocol.Message:
        """Send, receive, drop the descriptors."""
        self.send(message, request_id)
        number, reply, descriptors = self.receive()
        for fd in descriptors:
            os.close(fd)
        assert number == request_id
        return reply

    def hello(self, flags: int = 0) -> protocol.Welcome:
        reply = self.ask(protocol.Hello(protocol.PROTOCOL_VERSION, LAYOUT_VERSION, flags))
        assert isinstance(reply, protocol.Welcome), reply
        return reply

    def is_closed(self) -> bool:
        """Waits until the other side has closed; True if it did."""
        try:
            return self.sock.recv(4096) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.sock.close()


def live_in_arenas(listing: dict[str, Any]) -> int:
    """Live blocks that are not rings."""
    return sum(row["live_blocks"] for row in listing["segments"] if row["ring"] is None)


def reclaim() -> None:
    """Wait until nothing is held by garbage or by the dead."""
    gc.collect()
    until(lambda: all(is_alive(one["pid"]) for one in client.default().list()["clients"]), "the dead to be reclaimed")


def live_blocks() -> int:
    """Live blocks of the default manager that are not rings, once the dead have been reclaimed."""
    reclaim()
    return live_in_arenas(client.default().list())


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(BOUND)


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a script prints."""
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return line.strip()


def tell(process: subprocess.Popen[str], line: str = "") -> None:
    """Write a line to a script."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
