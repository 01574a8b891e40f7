"""Files of the user under the numbers of lost descriptors: no operation touches them, on any side."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from manager_world import World
from strangers_world import KINDS
from tiers import first

import shmtensor
from shmtensor.manager import client

pytestmark = pytest.mark.any_python

PROGRAM = str(Path(__file__).parent / "support" / "strangers_world.py")
SCENARIOS = (
    "memory",
    "without_the_manager",
    "named",
    "views",
    "queues",
    "grown_without_the_manager",
    "broadcast",
    "forked",
    "spawned",
    "killed",
    "killed_first",
    "segments_alone",
    "mapped",
    "start_lock",
    "goodbye",
    "leaving",
)


def run(here: World, scenario: str, kind: str, directory: Path, **env: str) -> None:
    process = here.popen(PROGRAM, scenario, kind, str(directory), env=env)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "done\n", ""), err


@pytest.mark.parametrize("kind", first(KINDS))
@pytest.mark.parametrize("scenario", first(SCENARIOS, 3))
def test_files_under_our_numbers_are_left_alone(here: World, scenario: str, kind: str, tmp_path: Path) -> None:
    run(here, scenario, kind, tmp_path)


@pytest.mark.parametrize("kind", first(KINDS))
def test_giving_back_under_pressure(here: World, kind: str, tmp_path: Path) -> None:
    run(here, "pressure", kind, tmp_path, SHMTENSOR_MAX_BYTES="64M")


def test_locked_pages_are_given_back_through_the_descriptor(here: World) -> None:
    """madvise(MADV_REMOVE) refuses them."""
    manager = client.at(here.serve())
    block = manager.allocate(4 << 20)
    libc = ctypes.CDLL(None, use_errno=True)
    locked = libc.mlock2(ctypes.c_void_p(block.address), ctypes.c_size_t(1 << 20), 1)  # MLOCK_ONFAULT
    if locked != 0:
        pytest.skip("this process may not lock a MiB of memory (ulimit -l)")
    del block
    assert shmtensor.empty_cache() >= 4 << 20
    manager.close()
