"""A runtime directory for every test session, which must end empty, and fixtures that many files use."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import signal
import tempfile
import types
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from manager_world import BOUND, World, no_names_left, shm_names, world

import shmtensor.multiprocessing as mp

# The same examples in each run, unless SHMTENSOR_PROFILE=random asks for new ones.
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("random", deadline=None)
settings.load_profile(os.environ.get("SHMTENSOR_PROFILE", "same"))

_directory = tempfile.mkdtemp(prefix="shmt-", dir="/tmp")  # short: a socket's path has a limit
for _variable in ("SHMTENSOR_MANAGER", "SHMTENSOR_GROUP", "XDG_RUNTIME_DIR"):
    os.environ.pop(_variable, None)
os.environ["SHMTENSOR_RUNTIME_DIR"] = _directory


def pytest_itemcollected(item: pytest.Item) -> None:
    """What is tested under several start methods is tested under forkserver in the exhaustive tier only."""
    callspec = getattr(item, "callspec", None)
    if callspec and any(isinstance(value, str) and value == "forkserver" for value in callspec.params.values()):
        item.add_marker(pytest.mark.exhaustive)


def pytest_collection() -> None:
    """What pytest collects stays: no collection of garbage need look through it, now or later."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Let the workers of pytest-xdist keep no reports, which each collection of garbage would look through."""
    if hasattr(item.config, "workerinput"):
        item.config.pluginmanager.get_plugin("terminalreporter").stats.clear()


def pytest_unconfigure() -> None:
    # Our own manager leaves after us, so its directory has to go from under it; it notices nothing.
    shutil.rmtree(_directory, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def nothing_left() -> Iterator[None]:
    before = shm_names()
    yield
    gc.collect()
    no_names_left(before)


@pytest.fixture(autouse=True)
def no_children_left() -> Iterator[None]:
    yield
    left = multiprocessing.active_children()
    for process in left:
        process.kill()
        process.join()
    assert not left, f"processes left running: {left}"


@pytest.fixture
def here() -> Iterator[World]:
    """A runtime directory of the test's own, and what it starts in there."""
    with world() as made:
        yield made


@pytest.fixture(params=("fork", "spawn", "forkserver"))
def ctx(request: pytest.FixtureRequest) -> Any:
    """The context of each start method."""
    return mp.get_context(request.param)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT as in a program in the foreground, here and in what is started: a shell's background job ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def in_time() -> Iterator[None]:
    """A wait that nothing ends fails instead of hanging."""

    def over(_number: int, _frame: types.FrameType | None) -> None:
        raise TimeoutError(f"this took {BOUND:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, BOUND)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
