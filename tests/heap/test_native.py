"""The extension module: blocks, holds, forks; and the programs of native/tests."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from manager_world import BOUND, until
from native_programs import program

from shmtensor import _native as native
from shmtensor.manager import client

FLOAT = np.dtype(np.float32)


@pytest.fixture
def mine() -> Iterator[native.Client]:
    manager = client.default()
    gc.collect()
    yield manager.native
    gc.collect()
    manager.native.check_invariants()


@pytest.mark.exhaustive
def test_every_failpoint_in_every_role() -> None:
    done = program("failpoints")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 never reached" in done.stdout


@pytest.mark.exhaustive
def test_stress_with_kills() -> None:
    done = program("stress", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "processes: ok" in done.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["ring", "reach", "cast", "sync", "timelines"])
def test_every_failpoint_of_a_structure_in_every_role(name: str) -> None:
    done = program(name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 never reached" in done.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["ring", "cast", "sync"])
def test_a_storm_of_kills_at_one_structure(name: str) -> None:
    done = program(name, "storm", "200")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 kills" in done.stdout


@pytest.mark.exhaustive
def test_ranges_and_metadata_against_a_model() -> None:
    done = program("ranges", "4")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_block_is_bytes(mine: native.Client) -> None:
    block = mine.allocate(1000)
    assert block.nbytes == 1000
    assert block.address % 64 == 0
    view = memoryview(block)
    view[:4] = b"abcd"
    assert bytes(block)[:4] == b"abcd"
    assert mine.allocate(1 << 20).address % native.PAGE == 0


def test_the_same_block_is_the_same_object(mine: native.Client) -> None:
    block = mine.allocate(64)
    again = mine.attach(block.segment, block.index, block.generation)
    assert again is block
    assert mine.redeem(block.segment, block.index, block.generation, *mine.ticket(block)) is block


def test_a_dying_block_may_be_opened_again(mine: native.Client) -> None:
    import weakref

    block = mine.allocate(64)
    name = (block.segment, block.index, block.generation)
    opened: list[native.Block] = []
    watch = weakref.ref(block, lambda _: opened.append(mine.attach(*name)))  # runs while the old object goes
    block.array(FLOAT, (16,))[:] = 4
    del block
    assert watch() is None
    assert (opened[0].array(FLOAT, (16,)) == 4).all()
    assert mine.attach(*name) is opened[0]
    opened.clear()
    with pytest.raises(native.BlockGone):
        mine.attach(*name)


def test_an_array_keeps_its_block(mine: native.Client) -> None:
    array = mine.allocate(4000).array(FLOAT, (10, 100))
    array[:] = 1
    name = (array.base.segment, array.base.index, array.base.generation)  # type: ignore[union-attr]
    view = array[3:, ::2].T
    del array
    others = [mine.allocate(4000) for _ in range(100)]
    for other in others:
        other.array(FLOAT, (1000,))[:] = 2
    assert (view == 1).all()
    del view
    with pytest.raises(native.BlockGone):
        mine.attach(*name)


@pytest.mark.parametrize(
    ("shape", "offset", "strides"),
    [
        ((1025,), 0, None),
        ((1,), 4096, None),
        ((1,), -4, None),
        ((2,), 0, (4096,)),
        ((2,), 0, (-4,)),
        ((1 << 40, 1 << 40), 0, None),
        ((2,), 0, (2**62,)),
        ((-1,), 0, None),
    ],
)
def test_an_array_cannot_leave_its_block(
    mine: native.Client, shape: tuple[int, ...], offset: int, strides: tuple[int, ...] | None
) -> None:
    block = mine.allocate(4096)
    with pytest.raises(ValueError, match=r"shape|strides"):
        block.array(FLOAT, shape, offset, strides)


def test_arrays_of_objects_are_refused(mine: native.Client) -> None:
    with pytest.raises(TypeError, match="Python objects"):
        mine.allocate(64).array(np.dtype(object), (1,))


def test_a_freed_name_stays_dead(mine: native.Client) -> None:
    block = mine.allocate(64)
    name = (block.segment, block.index, block.generation)
    del block
    again = mine.allocate(64)  # last in, first out: the same place
    assert (again.segment, again.index) == name[:2]
    assert again.generation != name[2]
    for wrong in (name, (name[0], 2**32 - 1, 1), (name[0], name[1] + 1000, 1)):
        with pytest.raises(native.BlockGone):
            mine.attach(*wrong)


def test_a_ticket_is_good_once_and_keeps_the_block(mine: native.Client) -> None:
    block = mine.allocate(64)
    block.array(FLOAT, (16,))[:] = 5
    name = (block.segment, block.index, block.generation)
    ticket = mine.ticket(block)
    del block
    arrived = mine.redeem(*name, *ticket)
    assert (arrived.array(FLOAT, (16,)) == 5).all()
    assert mine.redeem(*name, *ticket) is arrived  # read twice: attaches
    del arrived
    with pytest.raises(native.BlockGone):
        mine.redeem(*name, *ticket)


def test_sizes_out_of_range(mine: native.Client) -> None:
    for nbytes in (0, native.MAX_SEGMENT_BYTES + 1):
        with pytest.raises(ValueError, match="bytes"):
            mine.allocate(nbytes)
    with pytest.raises(TypeError):
        mine.allocate(-1)


def test_more_than_there_is(mine: native.Client) -> None:
    with pytest.raises(native.Refused):
        mine.allocate(1 << 45)
    mine.allocate(64)


def test_freed_memory_is_used_again_and_trimmed(mine: native.Client) -> None:
    block = mine.allocate(8 << 20)
    reserved, free = mine.stats().reserved, mine.stats().free
    del block
    block = mine.allocate(8 << 20)
    assert (mine.stats().reserved, mine.stats().free) == (reserved, free)  # the freed pages, and none besides
    del block
    reserved, free = mine.stats().reserved, mine.stats().free
    given = mine.trim()
    assert given >= 8 << 20
    assert mine.stats().reserved <= reserved - given
    assert mine.stats().free <= free - given
    block = mine.allocate(8 << 20)
    assert (block.array(np.dtype(np.uint8), (8 << 20,)) == 0).all()  # the system's zeros, not the old content


def test_a_large_block_has_a_segment_of_its_own(mine: native.Client) -> None:
    nbytes = native.DEDICATED_FROM + (1 << 20)
    block = mine.allocate(nbytes)
    segment = block.segment
    assert block.offset == 0
    del block
    assert mine.allocate(nbytes - 4096).segment == segment


def test_growing_blocks_share_their_segments(mine: native.Client) -> None:
    for step in range(40):
        mine.allocate(native.DEDICATED_FROM + 1 + (step << 20))
    segments = {mine.allocate(native.DEDICATED_FROM + (step << 20)).segment for step in range(1, 41)}
    assert len(segments) <= 3


@pytest.mark.exhaustive
def test_more_blocks_than_an_arena_has_records(mine: native.Client) -> None:
    before = mine.stats().reserved
    blocks = [mine.allocate(64) for _ in range((1 << 20) + 1000)]
    assert len({block.segment for block in blocks}) > 1
    assert mine.stats().reserved - before < 256 << 20
    del blocks
    mine.trim()


def test_little_room_in_dev_shm(tmp_path: Path) -> None:
    code = """
import os
from shmtensor import errors
from shmtensor.manager import client
client.set_strategy("file_system")
mine = client.default()
assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 400 << 20
large = mine.allocate(260 << 20)
del large  # kept for the next one of its size, but not when memory is short
kept = [mine.allocate(200 << 20)]
try:
    while True:
        kept.append(mine.allocate(1 << 20))
        memoryview(kept[-1])[:] = bytes([len(kept) % 256]) * (1 << 20)
except errors.OutOfMemory as problem:
    assert "/dev/shm" in str(problem), problem
for at, block in enumerate(kept[1:], 2):
    assert bytes(block) == bytes([at % 256]) * (1 << 20)
del kept[0]
mine.allocate(100 << 20)
mine.native.check_invariants()
"""
    inside = 'mount -t tmpfs -o size=400m tmpfs /dev/shm && exec "$0" -c "$1"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, timeout=BOUND, check=False).returncode:
        pytest.skip("no mount namespace of its own can be had here")
    command = [*unshare, "sh", "-c", inside, sys.executable, code]
    # With a manager of its own: one from outside would take its memory from the /dev/shm there.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHMTENSOR_")}
    environment["SHMTENSOR_RUNTIME_DIR"] = str(tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_a_forked_child_holds_what_it_inherited(mine: native.Client) -> None:
    block = mine.allocate(64)
    array = block.array(FLOAT, (16,))
    array[:] = 3
    name = (block.segment, block.index, block.generation)
    slot = mine.slot
    go, child_waits = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(child_waits)
        os.read(go, 1)
        try:
            mine.attach(*name)
            ok = mine.slot != slot and bool((array == 3).all()) and mine.allocate(64).nbytes == 64
        except BaseException:
            ok = False
        os._exit(0 if ok else 1)
    os.close(go)
    del block, array
    # The child holds it still, so it is not given out again.
    later = [mine.allocate(64) for _ in range(50)]
    for other in later:
        other.array(FLOAT, (16,))[:] = 9
    os.write(child_waits, b"x")
    os.close(child_waits)
    assert os.waitpid(pid, 0)[1] == 0

    def freed() -> bool:
        try:
            mine.attach(*name)
        except native.BlockGone:
            return True
        return False

    until(freed, "the manager to release what the child held")


def test_a_child_cloned_past_the_hooks_is_refused(mine: native.Client) -> None:
    code = """
import ctypes, os, sys
from shmtensor import _native
from shmtensor.manager import client
mine = client.default().native
block = mine.allocate(64)
libc = ctypes.CDLL(None)
pid = libc.syscall(56, 17, 0, 0, 0, 0)  # clone(SIGCHLD): a fork that runs no hooks
if pid == 0:
    try:
        mine.allocate(64)
    except _native.NotHeld:
        os._exit(0)
    os._exit(1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    if os.uname().machine != "x86_64":
        pytest.skip("the number of clone() is that of x86-64")
    assert subprocess.run([sys.executable, "-c", code], timeout=BOUND, check=False).returncode == 0


def test_threads_allocate_side_by_side(mine: native.Client) -> None:
    import threading

    failures: list[BaseException] = []

    def work(value: int) -> None:
        try:
            for i in range(2000):
                array = mine.allocate(64 + i % 500).array(np.dtype(np.uint8), (64,))
                array[:] = value
                assert (array == value).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert not failures


def test_shared_memory_stays_out_of_core_dumps(mine: native.Client) -> None:
    block = mine.allocate(64)
    wanted = f"{block.address - block.offset:x}-"
    flags = []
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            mapped = line if "/memfd:shmtensor" in line else ""
        elif words[0] == "VmFlags:" and mapped:
            flags.append((mapped.split("-")[0] + "-", words[1:]))
    assert any(start == wanted for start, _ in flags)
    assert len(flags) >= 3  # the group segment, the metadata, the payload
    assert all("dd" in each for _, each in flags)


def test_allocating_makes_no_system_call(tmp_path: Path) -> None:
    import shutil

    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    code = """
import os
from shmtensor.manager import client
mine = client.default().native
kept = mine.allocate(4096)
name = (kept.segment, kept.index, kept.generation)
def work():
    for _ in range(1000):
        mine.allocate(4096)
        mine.attach(*name)
        mine.redeem(*name, *mine.ticket(kept))
work()
os.write(2, b"BEGIN")
work()
os.write(2, b"END")
"""
    log = tmp_path / "calls"
    command = ["strace", "-o", log, sys.executable, "-c", code]
    subprocess.run(command, timeout=BOUND * 2, check=True, capture_output=True)
    lines = log.read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if '"BEGIN"' in line)
    end = next(i for i, line in enumerate(lines) if '"END"' in line)
    assert lines[begin + 1 : end] == []


def test_a_child_whose_fork_could_not_be_registered_cannot_look(mine: native.Client) -> None:
    code = """
import os, resource, sys
from shmtensor import errors
from shmtensor.manager import client
block = client.default().native.allocate(64)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), 64))
pid = os.fork()
if pid == 0:
    failed = 0
    mine = client.default().native
    for look in (lambda: memoryview(block), lambda: mine.allocate(64), mine.embryo):
        try:
            look()
        except errors.ClientUnavailable:
            failed += 1
    os._exit(3 - failed)
assert bytes(memoryview(block)[:0]) == b""
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=BOUND, check=False).returncode == 0


@pytest.mark.parametrize("kind", [native.Mutex, native.Units])
def test_a_lock_made_without_its_init_is_refused(kind: type) -> None:
    lock = kind.__new__(kind)
    for use in (lock.acquire, lock.release, lock.__enter__, lambda: lock.__exit__(None, None, None)):
        with pytest.raises(TypeError, match="__init__ of this lock"):
            use()


def test_a_group_whose_last_reference_goes_in_another_thread_stays_mapped_for_its_leader() -> None:
    """The leader's thread would follow the list of its mutexes into memory that is gone."""
    code = """
import threading
from shmtensor._native import Group
groups = [Group.create(i + 1) for i in range(6)]
for group in groups:
    group.lead()
box = [groups.pop(3)]
del group
thread = threading.Thread(target=box.clear)
thread.start()
thread.join()
for group in reversed(groups):
    group.leave()
print("left")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND)
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr
