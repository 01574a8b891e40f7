"""Full file systems: a tiny /dev/shm with the strategy file_system, in the test's own mount namespace."""

from __future__ import annotations

import subprocess
import sys

import pytest
from manager_world import BOUND, World

pytestmark = pytest.mark.any_python

TINY = 'mount -t tmpfs -o size=8m,mode=1777 tmpfs /dev/shm && exec "$@"'


def run_with_tiny_shm(here: World, code: str) -> str:
    """What a program prints that has 8 MiB of /dev/shm, as its manager has."""
    try:
        allowed = subprocess.run(["unshare", "-m", "sh", "-c", TINY, "sh", "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare(1) here")
    if allowed.returncode:
        pytest.skip(f"a mount namespace with a tmpfs is not permitted: {allowed.stderr.decode().strip()}")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", TINY, "sh", sys.executable, "-W", "error", "-c", code],
        env=here.env,
        capture_output=True,
        text=True,
        timeout=3 * BOUND,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)  # -7 is SIGBUS
    assert not done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("size", [3000, 60_000, 1 << 20])
def test_named_memory_is_filled_and_used_again(here: World, size: int) -> None:
    code = f"""
import os
from shmtensor import errors
from shmtensor.manager import client
client.set_strategy("file_system")
manager = client.default()
for again in range(3):
    kept = []
    try:
        while True:
            block = manager.allocate({size})
            memoryview(block)[:] = bytes([len(kept) % 251]) * {size}
            kept.append(block)
    except errors.OutOfMemory as problem:
        said = str(problem)
    assert len(kept) * {size} > 5 << 20, len(kept)
    assert "size of the shared-memory file system" in said and "of 8.0 MiB free in /dev/shm" in said, said
    assert "use the strategy file_descriptor" in said and f"by pid {{os.getpid()}} (" in said, said
    assert all(memoryview(block)[-1] == n % 251 for n, block in enumerate(kept))
    manager.native.check_invariants()
    del block
    kept.clear()
print("fine")
"""
    assert run_with_tiny_shm(here, code) == "fine"


def test_one_that_never_fits_costs_the_others_nothing(here: World) -> None:
    code = """
from shmtensor import errors
from shmtensor.manager import client
client.set_strategy("file_system")
manager = client.default()
kept = manager.allocate(4 << 20)
for size in (9 << 20, 100 << 20, 400 << 20):
    try:
        manager.allocate(size)
        print("allocated", size)
    except errors.OutOfMemory:
        pass
memoryview(kept)[:] = bytes(4 << 20)
another = manager.allocate(2 << 20)
memoryview(another)[:] = bytes(2 << 20)
print("fine")
"""
    assert run_with_tiny_shm(here, code) == "fine"


def test_tensors_in_queues_and_named_memory_that_is_full(here: World) -> None:
    code = """
import numpy as np
import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor.manager import client
client.set_strategy("file_system")
queue = mp.Queue()
sent = 0
try:
    while True:
        queue.put(np.full(100_000, sent % 251, np.uint8))   # a copy of its own in shared memory
        sent += 1
except st.errors.OutOfMemory:
    pass
assert sent > 50, sent
for n in range(sent):
    got = queue.get()
    assert got[0] == got[-1] == n % 251
del got
tensor = st.empty(3 << 20, dtype=st.uint8).share_memory_()
tensor.fill_(3)
try:
    st.empty(6 << 20, dtype=st.uint8).share_memory_()
    print("shared")
except st.errors.OutOfMemory:
    pass
queue.put(tensor)
assert int(queue.get()[5]) == 3
print("fine")
"""
    assert run_with_tiny_shm(here, code) == "fine"


def test_memfds_do_not_depend_on_the_size_of_dev_shm(here: World) -> None:
    code = """
from shmtensor.manager import client
blocks = [client.default().allocate(20 << 20) for _ in range(3)]
for block in blocks:
    memoryview(block)[:] = bytes(20 << 20)
print("fine")
"""
    assert run_with_tiny_shm(here, code) == "fine"


def test_a_loader_and_named_memory_that_is_full(here: World) -> None:
    code = """
import numpy as np
import shmtensor as st
from shmtensor.data import DataLoader
from shmtensor.manager import client
client.set_strategy("file_system")
class Images:
    def __len__(self):
        return 320
    def __getitem__(self, index):
        return np.full((50, 1000), index % 251, np.uint8)
loader = DataLoader(Images(), 4, num_workers=2, persistent_workers=True, multiprocessing_context="fork")
for again in range(3):
    kept = []
    try:
        for batch in loader:
            kept.append(batch)
        print("all fitted")
    except st.errors.OutOfMemory as problem:
        assert "/dev/shm" in str(problem), problem
    assert len(kept) > 10, len(kept)
    assert all(batch[place, 0, 0] == batch[place, -1, -1] == (4 * n + place) % 251
               for n, batch in enumerate(kept) for place in range(4))
    del batch
    kept.clear()
    assert sum(len(batch) for batch in loader) == 320
print("fine")
"""
    assert run_with_tiny_shm(here, code) == "fine"
