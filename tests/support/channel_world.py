"""Programs in another group, as on another machine, for tests of channels.

`python channel_world.py FUNCTION ARGUMENTS` runs one of `PROGRAMS`, which reads and writes JSON lines.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

BOUND = 30.0
_numbers = count()


class Elsewhere:
    """A program in a group of its own."""

    def __init__(self, function: str, *arguments: Any, group: str | None = None, prefix: tuple[str, ...] = ()) -> None:
        self.group = group or f"other{os.getpid()}x{next(_numbers)}"
        self.process = subprocess.Popen(
            [*prefix, sys.executable, __file__, function, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "SHMTENSOR_GROUP": self.group},
        )

    def say(self, value: Any = None) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the program ended with {self.process.wait(BOUND)}"
        return json.loads(line)

    def ask(self, value: Any = None) -> Any:
        self.say(value)
        return self.hear()

    def end(self) -> int:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        code = self.process.wait(BOUND)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def abandon(self) -> None:
        """End the program, whatever its state."""
        if self.process.poll() is None:
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self.process.wait(BOUND)


@contextmanager
def elsewhere(function: str, *arguments: Any, **options: Any) -> Iterator[Elsewhere]:
    program = Elsewhere(function, *arguments, **options)
    try:
        yield program
        assert program.end() == 0
    finally:
        program.abandon()


def until(is_so: Callable[[], Any], what: str, seconds: float = BOUND) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s until {what}"
        time.sleep(0.01)
    return found


def link_pids() -> set[int]:
    """Link processes and guards that run for this session's directory."""
    own = os.environ["SHMTENSOR_RUNTIME_DIR"].encode()
    found = set()
    for entry in Path("/proc").iterdir():  # not glob("*/cmdline"), which asks a process that may have ended
        with suppress(OSError, ValueError):
            line = (entry / "cmdline").read_bytes()
            if b"channel.link" in line and own in line:
                found.add(int(entry.name))
    return found


# ----------------------------------------------------------------------------------------------------------- programs


def say(value: Any = None) -> None:
    print(json.dumps(value), flush=True)


def heard() -> Iterator[Any]:
    for line in sys.stdin:
        yield json.loads(line)


def sums(value: Any) -> Any:
    """A description of a message, for the other side to compare."""
    import numpy as np

    if isinstance(value, dict):
        return {key: sums(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [sums(item) for item in value]
    if hasattr(value, "dtype"):
        array = np.asarray(value.float() if str(value.dtype).endswith("bfloat16") else value)
        return [type(value).__name__, str(value.dtype), list(value.shape), float(np.abs(array).sum())]
    return str(value) if isinstance(value, complex) else value.decode() if isinstance(value, bytes) else value


def command(address: str, options: dict[str, Any]) -> None:
    """Connect, and execute commands: ["put", value], ["get"], ..."""
    from shmtensor import channel
    from shmtensor.channel import opening

    clock = options.pop("clock", 0)  # seconds by which this machine's clock is fast
    opening.time_ns = lambda: time.time_ns() + int(clock * 1e9)
    queue = channel.connect(address, **options)
    say(queue.stats().is_listening)
    for name, *arguments in heard():
        try:
            if name == "put_array":
                import numpy as np

                queue.put(np.full(arguments[0], arguments[1], np.uint8), *arguments[2:])
                result = None
            elif name == "put_and_fill":
                import shmtensor

                tensor = shmtensor.ones(100_000)
                for _ in range(arguments[0]):
                    queue.put(tensor)
                tensor.fill_(arguments[1])
                result = None
            elif name == "stats":
                result = queue.stats().__dict__
            elif name == "link":
                result = queue._end.state.link_pid
            elif name == "close":
                result = queue.close()
            else:
                result = sums(getattr(queue, name)(*arguments))
            say(["ok", result])
        except Exception as problem:
            say([type(problem).__name__, str(problem)])


def produce(address: str, messages: int, options: dict[str, Any]) -> None:
    """Put numbers, and end at once."""
    from shmtensor import channel

    queue = channel.connect(address, **options)
    for number in range(messages):
        queue.put(number)


def read(address: str, options: dict[str, Any]) -> None:
    """Read from a broadcast: each line is a number of messages to read."""
    from shmtensor import channel

    topic = channel.connect(address, broadcast=True, **options)
    reader = topic.reader()
    say("reading")
    for number in heard():
        say([sums(reader.get(timeout=BOUND)) for _ in range(number)] if number else reader.missed)


def read_alone(address: str) -> None:
    """Read with a reader whose broadcast object is gone."""
    import gc

    from shmtensor import channel

    reader = channel.connect(address, broadcast=True).reader()
    gc.collect()
    say("reading")
    say(reader.get(timeout=BOUND))


def read_without_link(address: str) -> None:
    """Read while nothing but this process can start a link process: the link process and its guard are killed."""
    from shmtensor import channel

    topic = channel.connect(address, broadcast=True)
    reader = topic.reader()
    link = topic._end.state.link_pid
    guard = int(Path(f"/proc/{link}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(link, signal.SIGSTOP)  # so that it does not start another guard
    os.kill(guard, signal.SIGKILL)
    os.kill(link, signal.SIGKILL)
    say("reading")
    say(reader.get(timeout=BOUND))


def broadcast(address: str, messages: int) -> None:
    """Put numbers into a broadcast."""
    from shmtensor import channel

    topic = channel.connect(address, broadcast=True)
    for number in range(messages):
        topic.put(number)


def listen(options: dict[str, Any], messages: int = 0) -> None:
    """Listen, put numbers, and take them when asked; "problem" asks for that of the connection."""
    from shmtensor import channel

    queue = channel.listen(options.pop("address", "tcp://127.0.0.1:0"), **options)
    for number in range(messages):
        queue.put(number)
    say(queue.address)
    for number in heard():
        if number == "problem":
            say(queue.stats().problem)
        else:
            say([sums(queue.get(timeout=BOUND)) for _ in range(number)])


def hold_group() -> None:
    """Keep a group alive."""
    from shmtensor.manager import client

    client.default()
    say("here")
    for _ in heard():
        pass


PROGRAMS = {
    function.__name__: function
    for function in (command, produce, read, read_alone, read_without_link, broadcast, listen, hold_group)
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*json.loads(sys.argv[2]))
