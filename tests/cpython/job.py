"""The tests of one start method and kind, in a process of their own: `job.py METHOD KIND JOURNAL`.

The journal gets a line of JSON when a test starts and one when it has ended. A test that runs for longer than `BOUND`
ends this process. Started again with the same journal, it continues with the tests that are not in the journal.
Children started by spawn or forkserver run this file as well, under another name than "__main__".
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
import unittest
from pathlib import Path
from typing import Any

BOUND = 120.0
"""Seconds that one test may take; the longest take about 10."""


def kind_of(name: str) -> str:
    """processes, manager, threads (which of the three interfaces a class tests) or other."""
    for kind in ("processes", "manager", "threads"):
        if name.startswith(f"With{kind.title()}"):
            return kind
    return "other"


class Journal(unittest.TestResult):
    """Writes down what becomes of each test."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.started: set[str] = set()
        if path.exists():
            self.started = {json.loads(line)["test"] for line in path.read_text().splitlines()}
        self._file = path.open("a")
        self._problems: list[str] = []
        self._skipped: str | None = None

    def _write(self, test: str, outcome: str, text: str = "") -> None:
        self._file.write(json.dumps({"test": test, "outcome": outcome, "text": text}) + "\n")
        self._file.flush()

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._problems, self._skipped = [], None
        self._write(name_of(test), "started")
        faulthandler.dump_traceback_later(BOUND, exit=True)

    def stopTest(self, test: unittest.TestCase) -> None:
        faulthandler.cancel_dump_traceback_later()
        outcome = "failed" if self._problems else "skipped" if self._skipped is not None else "passed"
        self._write(name_of(test), outcome, "\n".join(self._problems) or self._skipped or "")
        super().stopTest(test)

    def _problem(self, test: Any, error: Any) -> None:
        text = self._exc_info_to_string(error, test)  # type: ignore[attr-defined]
        if isinstance(test, unittest.TestCase):
            self._problems.append(text)
        else:  # of a class or a module, before or after its tests
            self._write(str(test), "failed", text)

    addError = addFailure = _problem

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, error: Any) -> None:
        if error is not None:
            self._problem(test, error)

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._problems.append("expected to fail, by the interpreter's test, and passed")

    def addSkip(self, test: Any, reason: str) -> None:
        if isinstance(test, unittest.TestCase):
            self._skipped = reason
        else:  # a whole class or module: its tests are missing
            self._write(str(test), "skipped", reason)


def name_of(test: unittest.TestCase) -> str:
    """Class.method"""
    return f"{type(test).__qualname__}.{test._testMethodName}"


def main(method: str, kind: str, journal: str) -> None:
    """Run the tests of `kind` that the journal does not have yet."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, with their children
    from deviations import UNRELIABLE  # here, so that children need not find it

    result = Journal(Path(journal))
    module = __import__(f"test_multiprocessing_{method}")
    found = unittest.defaultTestLoader.loadTestsFromModule(module)
    chosen = unittest.TestSuite()
    for of_class in found:
        chosen.addTest(
            unittest.TestSuite(
                test
                for test in of_class
                if isinstance(test, unittest.TestCase)
                and kind_of(type(test).__name__) == kind
                and name_of(test) not in (*result.started, *UNRELIABLE)
            )
        )
    chosen.run(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
