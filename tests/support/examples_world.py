"""Examples, run as a user runs them: in processes of their own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manager_world import no_names_left, shm_names

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
BOUND = 150.0  # seconds that anything here may take, even beside other programs


def wait_until(condition: Callable[[], bool], what: str, bound: float = BOUND) -> None:
    deadline = time.monotonic() + bound
    while not condition():
        assert time.monotonic() < deadline, f"not within {bound} s: {what}"
        time.sleep(0.02)


class Place:
    """A runtime directory of a test, so that every process of the test can be recognised by its environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("SHMTENSOR_")}
        self.env |= {"SHMTENSOR_RUNTIME_DIR": str(folder), "PYTHONUNBUFFERED": "1"}
        self.started: list[subprocess.Popen[str]] = []
        self.names = shm_names()

    def start(self, script: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / script), *arguments],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def owns(self, pid: int | str) -> bool:
        """Whether this process was started with this runtime directory, and has not ended."""
        mark = f"SHMTENSOR_RUNTIME_DIR={self.folder}".encode()
        try:
            return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False  # it has ended, or belongs to another user

    def processes(self) -> list[str]:
        """Command lines of all processes that were started with this runtime directory."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and self.owns(entry.name):
                with suppress(OSError):  # it has ended
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
        return found

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(BOUND)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        wait_until(lambda: not self.processes(), f"every process has ended; left are {self.processes()}")
        no_names_left(self.names)


@contextmanager
def a_place() -> Iterator[Place]:
    """A place; at the end, no process that was started there may be left."""
    # Not tmp_path: the address of a socket has at most 100 bytes.
    folder = Path(tempfile.mkdtemp(prefix="shmt"))
    place = Place(folder)
    try:
        yield place
        place.end()
    finally:
        for process in place.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


# ---- examples of training --------------------------------------------------------------------------------------------


def pids_of(process: subprocess.Popen[str]) -> list[int]:
    """Waits until the workers have been started, and returns their pids."""
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.fullmatch(r"pids ([\d ]+): kill one, and it is replaced\n", line)
    assert found, line + process.communicate(timeout=BOUND)[1]
    return [int(pid) for pid in found[1].split()]


def read_table(output: str) -> list[tuple[str, list[float]]]:
    """The label and the figures of each row of the table that a training example prints at the end."""
    rows = re.findall(r"^ *(\w[\w ]*?)((?: +[\d.,]+){4,})$", output, re.MULTILINE)
    return [(label, [float(word.replace(",", "")) for word in figures.split()]) for label, figures in rows]
