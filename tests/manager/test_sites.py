"""Sampling of the lines that make shared blocks."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from manager_world import BOUND, World, is_alive, kill, line_of, tell, until
from refusing import limited, open_descriptors
from tiers import first

from shmtensor.manager import sites
from shmtensor.manager.connection import Observer
from shmtensor.manager.monitor.snapshot import Snapshot, take

PROGRAM = """
import os, signal, sys
import shmtensor as st
import shmtensor.multiprocessing as mp

queue = mp.Queue(name="work")
made = st.zeros(10, shared=True)  # line 7
private = st.ones(1000)
shared = st.ones(10).share_memory_()  # line 9
queue.put(private)  # line 10: two holds, of the message and of the tensor

def again():
    return [st.empty(3, shared=True) for _ in range(4)]  # line 13

many = again()
print(os.getpid(), flush=True)
"""
STAYS = "sys.stdin.readline()\n"


def program(here: World, every: str, code: str = PROGRAM + STAYS) -> tuple[subprocess.Popen[str], str]:
    """A program that samples, and the path of its file."""
    path = here.directory / "program.py"
    path.write_text(code)
    process = here.popen(str(path), env={"SHMTENSOR_SITES": every})
    line_of(process)
    return process, str(path)


def look(here: World) -> Snapshot:
    with Observer(str(here.directory / "manager.sock")) as observer:
        return take(observer, sampled=True)


def found_if(here: World, wanted: Callable[[Snapshot], bool]) -> Snapshot | None:
    found = look(here)
    return found if wanted(found) else None


def lines_of(found: Snapshot, path: str) -> list[int]:
    """Lines of the program for all holds on blocks, but for the memory of queues."""
    rings = {ring.segment for ring in found.rings}
    sampled = [hold.site for hold in found.holds if hold.segment not in rings and hold.site is not None]
    assert all(site.rpartition(":")[0] == path for site in sampled)
    return sorted(int(site.rpartition(":")[2]) for site in sampled)


def test_every_block_has_the_line_that_made_it(here: World) -> None:
    process, path = program(here, "1")
    found = look(here)
    assert lines_of(found, path) == [7, 9, 10, 10, 13, 13, 13, 13]
    (message,) = [hold for hold in found.holds if hold.kind == "message"]
    assert message.site == f"{path}:10"
    tell(process)
    assert process.wait(BOUND) == 0, process.stderr and process.stderr.read()


def test_every_nth_is_sampled(here: World) -> None:
    process, path = program(here, "3")
    assert lines_of(look(here), path) == [10, 10, 13]
    kill(process)


@pytest.mark.parametrize("every", first(["0", ""]))
def test_off(here: World, every: str) -> None:
    process, path = program(here, every)
    assert lines_of(look(here), path) == []
    assert not any("shmtensor-sites" in str(entry.resolve()) for entry in Path(f"/proc/{process.pid}/fd").iterdir())
    kill(process)


@pytest.mark.parametrize("wrong", first(["often", "-1", "1.5", "4294967296"]))
def test_what_is_no_number_of_blocks_is_refused(here: World, wrong: str) -> None:
    process = here.script("import shmtensor as st\nst.zeros(1, shared=True)", env={"SHMTENSOR_SITES": wrong})
    _, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert "InvalidArgument" in errors and "SHMTENSOR_SITES must be a number of blocks" in errors and wrong in errors


def test_a_forked_child_samples_its_own_and_keeps_what_its_parent_sampled(here: World) -> None:
    fork = """
sys.stdin.readline()
child = os.fork()
if child:
    own = st.zeros(5, shared=True)  # line 21
    print(child, flush=True)
    sys.stdin.readline()
else:
    own = st.zeros(5, shared=True)  # line 25
    signal.pause()
"""
    process, path = program(here, "1", PROGRAM + fork)
    tell(process)
    child = int(line_of(process))
    try:
        both = until(lambda: found_if(here, lambda one: {21, 25} <= set(lines_of(one, path))), "the child's block")
        assert {row.pid for row in both.processes} == {process.pid, child}
        kill(process)
        left = until(lambda: found_if(here, lambda one: len(one.processes) == 1), "the parent to be reclaimed")
        assert lines_of(left, path) == [7, 9, 10, 10, 13, 13, 13, 13, 25]
    finally:
        os.kill(child, signal.SIGKILL)
    until(lambda: not is_alive(child), "the child to end")


def test_a_spawned_child_samples(here: World) -> None:
    code = """
import os, sys
import shmtensor as st
import shmtensor.multiprocessing as mp

def make(queue, end):
    queue.put(st.zeros(3, shared=True))  # line 7
    end.wait()

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, end = context.Queue(), context.Event()
    child = context.Process(target=make, args=(queue, end))
    child.start()
    kept = queue.get()
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    end.set()
    child.join()
"""
    process, path = program(here, "1", code)
    assert 7 in lines_of(look(here), path)
    tell(process)
    assert process.wait(BOUND) == 0


def test_a_block_that_was_freed_and_made_again_has_its_new_line(here: World) -> None:
    code = """
import os, sys
import shmtensor as st
first = st.zeros(10, shared=True)  # line 4
del first
second = st.zeros(10, shared=True)  # line 6
print(os.getpid(), flush=True)
sys.stdin.readline()
"""
    process, path = program(here, "1", code)
    assert lines_of(look(here), path) == [6]
    kill(process)


def test_an_interrupt_while_a_site_is_noted_fails_the_allocation_and_loses_nothing(here: World) -> None:
    code = """
from shmtensor import _native
from shmtensor.manager import client
import shmtensor as st
def note(*block):
    raise KeyboardInterrupt
manager = client.default()
_native.sample_blocks(1, note)
for make in (lambda: st.zeros(10, shared=True), lambda: manager.allocate(64), lambda: st.ones(3).share_memory_()):
    try:
        make()
    except KeyboardInterrupt:
        print("interrupted")
_native.sample_blocks(0, None)
print(manager.native.stats().blocks)
"""
    assert here.run(code).split() == ["interrupted"] * 3 + ["0"]


def test_a_block_has_one_entry_whatever_its_generation() -> None:
    table = sites._Table()
    for generation in range(1, 10):
        table.add(7, 1, 5, generation, ("file.py", generation))
    found: dict[tuple[int, int, int], str] = {}
    sites._read(f"/proc/self/fd/{table.fd}", 7, set(), found)
    os.close(table.fd)
    assert found == {(1, 5, 9): "file.py:9"}


def test_a_full_table_forgets_some_blocks_and_never_mixes_them() -> None:
    table = sites._Table()
    for block in range(3 * sites.ENTRIES):
        table.add(7, 1, block, 1, ("file.py", block % 100))
    last = 3 * sites.ENTRIES - 1
    table.add(7, 1, last, 2, ("newer.py", 1))
    table.add(8, 1, last + 1, 1, ("other_group.py", 1))
    found: dict[tuple[int, int, int], str] = {}
    sites._read(f"/proc/self/fd/{table.fd}", 7, set(), found)
    os.close(table.fd)
    assert found.pop((1, last, 2)) == "newer.py:1"
    assert sites.ENTRIES * 0.9 < len(found) < sites.ENTRIES and (1, last, 1) not in found
    assert all(site == f"file.py:{block % 100}" for (_, block, _), site in found.items())


def test_sites_beyond_the_room_for_their_text_are_not_recorded() -> None:
    table = sites._Table()
    name = "a" * 1000
    for line in range(2 * sites.TEXT_BYTES // len(name)):
        table.add(7, 1, line, 1, (name, line))
    found: dict[tuple[int, int, int], str] = {}
    sites._read(f"/proc/self/fd/{table.fd}", 7, set(), found)
    os.close(table.fd)
    assert 200 < len(found) < 300 and all(site == f"{name}:{block}" for (_, block, _), site in found.items())


def test_a_file_that_is_no_table_is_not_read() -> None:
    fd = os.memfd_create("shmtensor-sites")
    found: dict[tuple[int, int, int], str] = {}
    for content in (b"", bytes(sites.TABLE_BYTES), b"\xff" * sites.TABLE_BYTES):
        os.pwrite(fd, content, 0)
        sites._read(f"/proc/self/fd/{fd}", 7, set(), found)
    os.close(fd)
    assert not found


def test_sampling_ends_where_there_is_no_memory_for_the_table(here: World) -> None:
    code = """
import os
def refuse(*_):
    raise OSError(12, "no memory")
os.memfd_create = refuse
import shmtensor as st
print(st.zeros(3, shared=True).sum().item(), st.zeros(3, shared=True).sum().item())
"""
    process = here.script(code, env={"SHMTENSOR_SITES": "1"})
    out, errors = process.communicate(timeout=BOUND)
    assert (out, errors) == ("0.0 0.0\n", "")


def test_a_limit_of_the_size_of_files_leaves_no_descriptor() -> None:
    before = open_descriptors()
    with limited(resource.RLIMIT_FSIZE, 4096), pytest.raises(OSError, match="File too large"):
        sites._Table()
    assert open_descriptors() == before


def test_processes_that_have_ended_have_no_sites() -> None:
    assert sites.of_processes([1 << 30], 1) == {}  # larger than any pid
