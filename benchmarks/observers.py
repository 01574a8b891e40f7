"""Observers: the time of a program that puts and gets while `top` and the page watch its group."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

from benchmarks.measure import Figure, collector_off, run_contender

BLOCKS = 1_000  # live blocks
MESSAGES = 20_000  # in a window
PAIRS = 40  # pairs of windows
READER = """
import http.client, sys
from urllib.parse import urlsplit
at = urlsplit(sys.argv[1])
connection = http.client.HTTPConnection(at.netloc)
connection.request("GET", f"/events?{at.query}")
answer = connection.getresponse()
while answer.read1(1 << 20):
    pass
"""


@contextmanager
def started(*arguments: str, output: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end."""
    options = ["-P"] if sys.flags.safe_path else []  # otherwise it could import a package here that is not built
    process = subprocess.Popen([sys.executable, *options, *arguments], stdout=output, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def window(queue: object, value: object) -> tuple[float, float]:
    """Processor time and wall time, in seconds, of a message that is put and got."""
    put, get = queue.put, queue.get  # type: ignore[attr-defined]
    with collector_off():
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(MESSAGES):
            put(value)
            get()
        return (time.process_time() - cpu) / MESSAGES, (time.perf_counter() - wall) / MESSAGES


def watched() -> dict[str, float]:
    """Medians of windows with and without observers, in turn, and of the ratios of neighbours.

    In windows without them, the observers are stopped. A process that reads the page's frames stands in for a browser.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        os.chmod(folder, 0o700)  # noqa: PTH101
        os.environ["SHMTENSOR_RUNTIME_DIR"] = folder
        import shmtensor as st
        import shmtensor.multiprocessing as mp

        kept = [st.zeros(100, shared=True) for _ in range(BLOCKS)]
        queue, value = mp.SimpleQueue(), kept[0]
        command = ("-m", "shmtensor.manager")
        top = stack.enter_context(started(*command, "top", "--json", "--interval", "2"))
        page = stack.enter_context(started(*command, "page", output=subprocess.PIPE))
        assert page.stdout is not None
        url = page.stdout.readline().strip()
        assert urlsplit(url).query, "the page did not start"
        reader = stack.enter_context(started("-c", READER, url))
        observers = [top, page, reader]
        time.sleep(3)
        window(queue, value)
        without: list[tuple[float, float]] = []
        beside: list[tuple[float, float]] = []
        for _ in range(PAIRS):
            for to, word in ((beside, signal.SIGCONT), (without, signal.SIGSTOP)):
                for one in observers:
                    one.send_signal(word)
                to.append(window(queue, value))
        del queue, value, kept
    found = {"without": statistics.median(cpu for cpu, _ in without)}
    found["beside"] = statistics.median(cpu for cpu, _ in beside)
    pairs = list(zip(beside, without, strict=True))
    found["cpu"] = statistics.median(one[0] / other[0] for one, other in pairs)
    found["wall"] = statistics.median(one[1] / other[1] for one, other in pairs)
    return found


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    found: dict[str, float] = run_contender("observers:watched")
    work = f"put and get of a shared tensor, processor time, {BLOCKS:,} blocks alive"
    note = f"{found['cpu']:.3f} x without, of neighbouring windows; elapsed time {found['wall']:.3f} x"
    yield Figure(work, "shmtensor, nobody looks", found["without"], "s")
    yield Figure(work, "shmtensor, beside `top` and the page", found["beside"], "s", "1.01 x without", note)
