"""The tests of CPython that shmtensor.multiprocessing fails on purpose; docs/compatibility.md has the same list.

Each test that an entry covers must fail: if one passes, its entry is out of date, and the run fails.
"""

from __future__ import annotations

import fnmatch
import sys
from dataclasses import dataclass

METHODS = ("fork", "spawn", "forkserver")


@dataclass(frozen=True)
class Deviation:
    """Tests that fail, and the promise that they contradict."""

    tests: str
    """Class.method, with * for any text."""
    reason: str
    methods: tuple[str, ...] = METHODS
    since: tuple[int, int] = (3, 11)
    """First version of Python that has the tests, or fails them."""

    def covers(self, method: str, test: str) -> bool:
        """True when this test is to fail under this start method and interpreter."""
        return method in self.methods and sys.version_info >= self.since and fnmatch.fnmatchcase(test, self.tests)


DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        "_TestImportStar.test_import",
        "It looks for the source files of the standard package beside multiprocessing.__file__. "
        "shmtensor.multiprocessing is one module; it hands the standard submodules through, and they keep their files.",
    ),
    Deviation(
        "WithProcessesTestQueue.test_queue_feeder_donot_stop_onexc",
        "An object that cannot be pickled raises in put(), to whoever put it. The standard queue prints a traceback in "
        "a thread, and the test wants put() to return.",
    ),
    Deviation(
        "TestResourceTracker.test_resource_tracker",
        "It wants the name of a semaphore that a killed process left behind. Locks here have no names in the system, "
        "so none is left and no tracker has to take it away.",
    ),
    Deviation(
        "TestResourceTracker.test_resource_tracker_sigkill",
        "It wants a warning about the semaphores that leak with a killed tracker. There are none.",
    ),
    Deviation(
        "TestStartMethod.test_mixed_startmethod",
        "It wants a lock of a fork context to be refused by a spawned process. A lock here lies in no context's names, "
        "and any child can use it.",
        methods=("spawn",),
    ),
)

UNRELIABLE = ("WithThreadsTestPool.test_terminate",) if sys.version_info < (3, 13) else ()
"""Not run: what the interpreter's own multiprocessing passes or hangs in by chance. This one sleeps for minutes in a
thread that nobody can end, should the thread get that far before terminate()."""
