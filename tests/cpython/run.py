"""CPython's own tests of multiprocessing, run against shmtensor.multiprocessing.

    python tests/cpython/run.py [--methods fork spawn forkserver] [--kinds processes manager threads other]

The tests are `test._test_multiprocessing` of the running interpreter. A copy in a temporary directory is changed as a
user would change it: `import multiprocessing` becomes `import shmtensor.multiprocessing as multiprocessing`, also in
the programs that it starts. `from multiprocessing.X import Y` stays, as it may in a user's program.

The failing tests must be exactly those listed in deviations.py, and no test may leave a process behind.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import importlib.util
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from deviations import DEVIATIONS, METHODS

KINDS = ("processes", "other", "manager", "threads")
"""Longest first: the last to start should be short."""
BOUND = 20.0
"""Seconds that a job's processes may stay behind it."""
RUNTIME = "SHMTENSOR_RUNTIME_DIR"


def rewrite(text: str, module: str, directory: Path) -> str:
    """The interpreter's tests, which will lie in `directory`, as tests of `module`."""
    text = re.sub(
        r"\bimport multiprocessing(?:\.\w+)*(?: as (\w+))?",
        lambda found: f"import {module} as {found[1] or 'multiprocessing'}",
        text,
    )
    text = text.replace("from multiprocessing import", f"from {module} import")
    # One program runs without site-packages, where shmtensor is: it finds them by our path.
    text = text.replace(
        "'from test._test_multiprocessing import",
        f"'import sys; sys.path[:] = {json.dumps([str(directory), *sys.path])}; from _test_multiprocessing import",
    )
    return text.replace("test.test_multiprocessing_", "test_multiprocessing_")


def write_tests(directory: Path, module: str) -> None:
    """Make the modules that job.py runs."""
    spec = importlib.util.find_spec("test._test_multiprocessing")
    if spec is None or spec.origin is None:
        sys.exit(f"{sys.executable} has no test._test_multiprocessing (Debian: apt-get install libpython3-testsuite)")
    tests = Path(spec.origin)
    for source in (tests, *tests.parent.glob("mp_*.py")):  # mp_*.py are programs that the tests start
        (directory / source.name).write_text(rewrite(source.read_text(), module, directory))
    for method in METHODS:
        (directory / f"test_multiprocessing_{method}.py").write_text(
            "from _test_multiprocessing import install_tests_in_module_dict\n"
            f"install_tests_in_module_dict(globals(), {method!r})\n"
        )


@dataclass
class Job:
    """The tests of one start method and kind."""

    method: str
    kind: str
    directory: Path
    outcomes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Class.method -> (passed, skipped or failed; why)"""
    left: list[str] = field(default_factory=list)
    """Command lines of processes that stayed behind."""
    warnings: list[str] = field(default_factory=list)
    """What the tests themselves say is dangling."""
    seconds: float = 0.0

    def processes(self) -> list[int]:
        """Those that the tests started, however they were started: by the directory in their environment."""
        mark = f"{RUNTIME}={self.directory}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):  # ended, another user's, or no process
                if mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found

    def run(self) -> Job:
        """Run them all, however often a test hangs or takes the process with it."""
        begin = time.monotonic()
        self.directory.mkdir(mode=0o700)
        journal, log = self.directory / "journal", self.directory / "log"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SHMTENSOR_")}
        environment[RUNTIME] = str(self.directory)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(self.directory.parent), os.getenv("PYTHONPATH")]))
        command = [sys.executable, str(Path(__file__).with_name("job.py")), self.method, self.kind, str(journal)]
        while True:
            with log.open("w") as output:
                job = subprocess.Popen(
                    command, cwd=self.directory, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                )
            try:
                job.wait()
            except BaseException:
                self.end()
                raise
            printed = log.read_text(errors="replace")
            self.warnings += [line for line in printed.splitlines() if line.startswith("Warning -- ")]
            reached = self.read(journal)
            if job.returncode == 0:
                break
            self.end()
            if not reached:
                self.outcomes[f"{self.kind} tests"] = ("failed", f"status {job.returncode}, no test ran:\n{printed}")
                break
            test, outcome = reached
            if outcome != "started":
                self.outcomes[f"after {test}"] = ("failed", f"status {job.returncode}:\n{printed}")
                break
            reason = f"hung or took its process along (status {job.returncode}):\n{printed[-6000:]}"
            self.outcomes[test] = ("failed", reason)
            with journal.open("a") as file:
                file.write(json.dumps({"test": test, "outcome": "failed", "text": reason}) + "\n")
        deadline = time.monotonic() + BOUND
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.left = self.end()
        self.seconds = time.monotonic() - begin
        return self

    def read(self, journal: Path) -> tuple[str, str] | None:
        """Take the outcomes over; gives the last (test, outcome), if any."""
        reached = None
        if journal.exists():
            for line in journal.read_text().splitlines():
                entry = json.loads(line)
                reached = entry["test"], entry["outcome"]
                if entry["outcome"] != "started":
                    self.outcomes[entry["test"]] = entry["outcome"], entry["text"]
        return reached

    def end(self) -> list[str]:
        """Kill what is left; gives the command lines."""
        killed = []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                killed.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                os.kill(pid, signal.SIGKILL)
        return killed


def report(jobs: list[Job]) -> bool:
    """Print what came out; gives True when it is as deviations.py has it."""
    is_good = True
    used = set()
    for job in jobs:
        counts = collections.Counter(outcome for outcome, _ in job.outcomes.values())
        expected = 0
        for test, (outcome, text) in sorted(job.outcomes.items()):
            if outcome == "skipped":
                continue
            known = [deviation for deviation in DEVIATIONS if deviation.covers(job.method, test)]
            used.update(known)
            if outcome == "failed" and known:
                expected += 1
            elif outcome == "failed":
                is_good = False
                print(f"\nFAILED {job.method} {test}\n{text}")
            elif known:
                is_good = False
                print(f"\nPASSED, but is to fail by deviations.py: {job.method} {test}\n{known[0].reason}")
        if job.left:
            is_good = False
            print(f"\nLEFT by {job.method} {job.kind}:", *job.left, sep="\n    ")
        for warning in job.warnings:
            print(f"{job.method} {job.kind}: {warning}")
        print(
            f"{job.method:10} {job.kind:10} {counts.total():4} tests: {counts['passed']:4} passed, "
            f"{counts['skipped']:3} skipped, {expected:3} deviations, {counts['failed'] - expected:3} failed "
            f"({job.seconds:.0f} s)",
            flush=True,
        )
    return is_good


def main() -> int:
    parser = argparse.ArgumentParser(description="CPython's tests of multiprocessing against shmtensor.multiprocessing")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, help="start methods (all)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="which tests (all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time (one per core)")
    parser.add_argument("--module", default="shmtensor.multiprocessing", help="multiprocessing, to compare")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shmt-", dir="/tmp") as name:  # short: a socket's path has a limit
        directory = Path(name)
        write_tests(directory, options.module)
        jobs = [
            Job(method, kind, directory / f"{method}-{kind}")
            for kind, method in itertools.product(KINDS, METHODS)
            if kind in options.kinds and method in options.methods
        ]
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            done = list(pool.map(Job.run, jobs))
        is_good = report(done)
    reasons = collections.Counter(
        (text, job.method) for job in done for outcome, text in job.outcomes.values() if outcome == "skipped"
    )
    for (text, method), count in sorted(reasons.items()):
        print(f"skipped {count} ({method}): {text}")
    verdict = "as expected" if is_good else "NOT as expected"
    print(f"Python {sys.version.split()[0]}: {verdict}, {time.monotonic() - begin:.0f} s")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
