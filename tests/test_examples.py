"""The examples run as a user runs them: in processes of their own. Nothing of theirs is left afterwards."""

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
from pathlib import Path

import pytest
from tiers import first

pytestmark = pytest.mark.any_python

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
BOUND = 60.0  # seconds that anything here may take


def wait_until(condition: Callable[[], bool], what: str, bound: float = BOUND) -> None:
    deadline = time.monotonic() + bound
    while not condition():
        assert time.monotonic() < deadline, f"not within {bound} s: {what}"
        time.sleep(0.02)


class Place:
    """A runtime directory of its own, so that every process that belongs to a test can be told by its environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("SHMTENSOR_")}
        self.env |= {"SHMTENSOR_RUNTIME_DIR": str(folder), "PYTHONUNBUFFERED": "1"}
        self.started: list[subprocess.Popen[str]] = []
        self.names = self.shared_names()

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

    @staticmethod
    def shared_names() -> set[str]:
        return {entry.name for entry in Path("/dev/shm").iterdir() if entry.name.startswith(("torch_", "sem.", "shmt"))}

    def processes(self) -> list[str]:
        """Command lines of all processes that were started with this runtime directory."""
        mark = f"SHMTENSOR_RUNTIME_DIR={self.folder}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append((entry / "cmdline").read_text().replace("\0", " "))
                except OSError:
                    continue  # it has ended, or is not ours
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
        # Other tests may be running and come and go: only what stays is a leak.
        wait_until(lambda: not self.shared_names() - self.names, "the names in /dev/shm are gone")


@pytest.fixture
def place() -> Iterator[Place]:
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


# ---- handle_exchange.py ----------------------------------------------------------------------------------------------


def test_unrelated_processes_exchange_a_tensor(place: Place) -> None:
    first = place.start("handle_exchange.py", "--timeout", str(BOUND))
    assert first.stdout is not None
    line = first.stdout.readline().strip()
    assert re.fullmatch(r"\(b'/.+', b'/torch_\d+_\d+', 25\)", line), (line, first.poll())

    second = place.start("handle_exchange.py", line)
    output, errors = second.communicate(timeout=BOUND)
    assert second.returncode == 0, errors
    assert output.count("1.") == 25  # it saw the ones

    output, errors = first.communicate(timeout=BOUND)
    assert first.returncode == 0, errors
    numbers = [float(word) for word in re.findall(r"\d+\.", output)]
    assert numbers == [float(number) for number in range(2, 27)]


def test_nobody_changes_the_tensor(place: Place) -> None:
    process = place.start("handle_exchange.py", "--timeout", "0.2")
    _, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert "nobody changed the tensor within 0.2 s" in errors


@pytest.mark.parametrize("text", ["", "(1, 2, 3)", "__import__('os')", "(b'a', b'b'", "(b'/tmp/x', b'/torch_1_2')"])
def test_text_that_is_no_handle(place: Place, text: str) -> None:
    process = place.start("handle_exchange.py", text)
    _, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 2
    assert "is not a tuple (bytes, bytes, int)" in errors


def test_handle_of_a_manager_that_is_not_there(place: Place) -> None:
    process = place.start("handle_exchange.py", f"(b'{place.folder}/none.sock', b'/torch_1_2', 25)")
    _, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert errors.startswith("handle_exchange: ") and "Traceback" not in errors
    assert f"{place.folder}/none.sock" in errors


# ---- hogwild.py ------------------------------------------------------------------------------------------------------


@pytest.fixture
def example_libraries() -> None:
    pytest.importorskip("sklearn", reason="the extra 'examples' is not installed")
    pytest.importorskip("matplotlib", reason="the extra 'examples' is not installed")


def wait_for_training(process: subprocess.Popen[str]) -> None:
    """Returns at the first line of progress, which is written once the workers run."""
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "1 process" in line, line + process.communicate(timeout=BOUND)[1]


def read_table(output: str) -> dict[int, float]:
    """Test accuracy by number of processes."""
    rows = re.findall(r"^ +(\d+) +[\d.]+ +[\d,]+ +([\d.]+)$", output, re.MULTILINE)
    return {int(processes): float(accuracy) for processes, accuracy in rows}


@pytest.mark.usefixtures("example_libraries")
@pytest.mark.parametrize("method", first(["fork", "spawn", "forkserver"]))
def test_hogwild_learns(place: Place, tmp_path: Path, method: str) -> None:
    plot = tmp_path / "plots" / "hogwild.png"
    process = place.start(
        "hogwild.py", "--processes", "2", "--epochs", "60", "--start-method", method, "--plot", str(plot)
    )
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    accuracies = read_table(output)
    assert accuracies.keys() == {1, 2}
    assert min(accuracies.values()) >= 0.95
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "2 processes 100%" in errors and "\r" not in errors  # lines where no terminal is


@pytest.mark.usefixtures("example_libraries")
def test_hogwild_says_when_it_has_not_learnt_enough(place: Place, tmp_path: Path) -> None:
    process = place.start("hogwild.py", "--processes", "2", "--epochs", "1", "--plot", str(tmp_path / "plot.png"))
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert len(read_table(output)) == 2
    assert re.search(r"hogwild: test accuracy 0\.\d+ is below 0\.95", errors)


@pytest.mark.usefixtures("example_libraries")
@pytest.mark.parametrize("method", first(["fork", "spawn"]))
@pytest.mark.usefixtures("interruptible")
def test_hogwild_stops_at_an_interrupt(place: Place, tmp_path: Path, method: str) -> None:
    process = place.start(
        "hogwild.py", "--epochs", "1000000", "--start-method", method, "--plot", str(tmp_path / "plot.png")
    )
    wait_for_training(process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to everyone
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "interrupted"
    assert "Traceback" not in errors
    assert not read_table(output)


@pytest.mark.usefixtures("example_libraries")
def test_hogwild_notices_a_killed_worker(place: Place, tmp_path: Path) -> None:
    process = place.start("hogwild.py", "--epochs", "1000000", "--start-method", "fork", "--plot", str(tmp_path / "p"))
    wait_for_training(process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        if b"hogwild.py" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(int(child), signal.SIGKILL)
    _, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert "died with exit code -9" in errors and "Traceback" not in errors


# ---- th_dot.py -------------------------------------------------------------------------------------------------------


def test_th_dot_writes_its_files_and_prints_the_number(place: Place, tmp_path: Path) -> None:
    for _ in range(2):
        process = place.start("th_dot.py", str(tmp_path))
        assert process.communicate(timeout=BOUND) == ("275.000000\n", "")
        assert process.returncode == 0
    assert (tmp_path / "x").read_text() == "1 2 3 4 5 6 7 8 9 10\n"
    assert (tmp_path / "y").read_text() == "10 9 8 7 6 5 4 3 2 1\n"


def test_th_dot_reads_numbers_as_others_write_them(place: Place, tmp_path: Path) -> None:
    x = [0.5, -1.25, 3e-3, 100, 0, 7, 8, 9, 10, 11]
    y = [2.0**power for power in range(10)]
    (tmp_path / "x").write_text("".join(f"{value}\n" for value in x))
    (tmp_path / "y").write_text("\t".join(map(str, y)))
    process = place.start("th_dot.py", str(tmp_path))
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    assert float(output) == pytest.approx(sum(a * b for a, b in zip(x, y, strict=True)) + sum(x), rel=1e-6)


@pytest.mark.parametrize(("content", "message"), [("1 2 3", "the file ends here"), ("1 2 three", "then 'three'")])
def test_th_dot_says_what_is_wrong_with_a_file(place: Place, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "y").write_text(content)
    process = place.start("th_dot.py", str(tmp_path))
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 1 and output == ""
    assert errors.startswith(f"th_dot: {tmp_path}/y at byte") and message in errors
