"""The measuring method: each contender in a process of its own, medians, one figure per row.

A contender is a function named "module:function" that takes JSON values and returns one. It runs in a fresh
interpreter with one thread per library and the garbage collector off while the clock runs.
"""

from __future__ import annotations

import datetime
import gc
import importlib
import importlib.util
import itertools
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
START = "import sys; sys.path.append(sys.argv.pop(1)); from benchmarks.measure import main; main()"
"""Imports an installed shmtensor in preference to the one beside this folder, which may not be built."""
TIMEOUT = 300.0  # seconds that one contender may take


@dataclass(frozen=True)
class Figure:
    """One row: the result of one contender for one piece of work. `value` is None if it could not be measured."""

    work: str
    contender: str
    value: float | None
    unit: str
    target: str = ""
    note: str = ""


class ContenderFailed(Exception):
    """A contender ended with an error; the message is the last line that it wrote."""


def have(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def run_contender(name: str, *arguments: object, wrapper: Sequence[str] = ()) -> Any:
    """Blocks until the contender has ended. Raises ContenderFailed."""
    command = [*wrapper, sys.executable, "-P", "-c", START, str(ROOT), name, json.dumps(arguments)]
    contender = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = contender.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(contender.pid, signal.SIGKILL)  # with the processes that it started
        contender.wait()
        raise ContenderFailed(f"{name}: did not end within {TIMEOUT:.0f} s") from None
    if contender.returncode != 0 or not output.strip():
        lines = errors.strip().splitlines() or [f"exit status {contender.returncode}"]
        raise ContenderFailed(f"{name}: {lines[-1]}")
    return json.loads(output.splitlines()[-1])


def seconds_per_call(function: Callable[[], object], calls: int, batches: int) -> float:
    """Median over batches of a batch's time divided by its calls, after one batch that is not counted."""
    times = []
    with collector_off():
        for _ in range(batches + 1):
            start = time.perf_counter()
            for _ in itertools.repeat(None, calls):
                function()
            times.append((time.perf_counter() - start) / calls)
    return statistics.median(times[1:])


@contextmanager
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def machine() -> str:
    """One line: processor, cores, memory, kernel, versions."""
    model = next((line.split(":", 1)[1].strip() for line in read_lines("/proc/cpuinfo") if "model name" in line), "")
    memory = next((int(line.split()[1]) for line in read_lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    versions = [f"{name} {importlib.import_module(name).__version__}" for name in ("numpy", "torch") if have(name)]
    return (
        f"{model or platform.machine()}, {os.cpu_count()} cores, {memory / 2**20:.0f} GiB, "
        f"Linux {platform.release()}, "
        f"{', '.join([f'Python {platform.python_version()}', *versions])}"
    )


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def read_lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def main() -> None:
    """The contender's side of run_contender()."""
    module, function = sys.argv[1].split(":")
    result = getattr(importlib.import_module(f"benchmarks.{module}"), function)(*json.loads(sys.argv[2]))
    print(json.dumps(result), flush=True)
