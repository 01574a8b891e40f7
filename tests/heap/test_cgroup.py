"""Memory cgroups: which limit applies, in versions 1 and 2, and a real cgroup that is filled to its limit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from manager_world import BOUND, World, until

from shmtensor import _native

pytestmark = pytest.mark.any_python

MIB = 1 << 20
GIB = 1 << 30
MEMORY = "MemTotal: 16777216 kB\nMemFree: 100 kB\nMemAvailable: 8388608 kB\n"
MACHINE = 8 * GIB - 16 * GIB // 64


class Tree:
    """A root with the files of /proc and of memory cgroups that the core reads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file("proc/meminfo", MEMORY)

    def file(self, path: str, content: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)

    def second(self, path: str, mount: str = "/sys/fs/cgroup", root: str = "/") -> None:
        self.file("proc/self/cgroup", f"0::{path}\n")
        self.file("proc/self/mountinfo", f"30 23 0:26 {root} {mount} rw,relatime shared:4 - cgroup2 cgroup2 rw\n")

    def first(self, path: str, root: str = "/") -> None:
        self.file("proc/self/cgroup", f"9:name=systemd:/\n4:cpu,memory:{path}\n0::/\n")
        self.file(
            "proc/self/mountinfo",
            f"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
            f"32 31 0:29 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,cpu,memory\n"
            f"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
        )

    def group(self, path: str, limit: object, used: int, stat: str = "anon 5\ninactive_file 0\n") -> None:
        self.file(f"{path}/memory.max", f"{limit}\n")
        self.file(f"{path}/memory.current", f"{used}\n")
        self.file(f"{path}/memory.stat", stat)

    def old_group(self, path: str, limit: int, used: int, stat: str = "inactive_file 0\n") -> None:
        self.file(f"{path}/memory.limit_in_bytes", f"{limit}\n")
        self.file(f"{path}/memory.usage_in_bytes", f"{used}\n")
        self.file(f"{path}/memory.stat", stat)

    def available(self) -> tuple[int, str]:
        return _native.memory_available(f"{self.root}/")

    def groups(self) -> list[tuple[str, int, int]]:
        return _native.memory_cgroups(f"{self.root}/")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_without_a_cgroup_the_machine_is_the_bound(tree: Tree) -> None:
    assert tree.available() == (MACHINE, "memory of the machine")
    assert tree.groups() == []


def test_a_cgroup_without_a_limit_is_none(tree: Tree) -> None:
    tree.second("/user/one")
    tree.group("sys/fs/cgroup/user/one", "max", GIB)
    assert tree.available() == (MACHINE, "memory of the machine")


def test_the_least_that_is_left_up_the_tree_counts(tree: Tree) -> None:
    tree.second("/user/one/two")
    tree.group("sys/fs/cgroup/user/one/two", 2 * GIB, 100 * MIB)
    tree.group("sys/fs/cgroup/user/one", "max", 900 * MIB)
    tree.group("sys/fs/cgroup/user", GIB, 900 * MIB)
    assert tree.available() == (124 * MIB, "memory cgroup")
    assert tree.groups() == [("/user/one/two", 100 * MIB, 2 * GIB), ("/user", 900 * MIB, GIB)]


def test_the_page_cache_that_goes_first_is_not_counted(tree: Tree) -> None:
    tree.second("/one")
    tree.group("sys/fs/cgroup/one", GIB, GIB, f"anon 1\nfile 9\ninactive_file {300 * MIB}\nactive_file 7\n")
    assert tree.available() == (300 * MIB, "memory cgroup")


def test_over_its_limit_a_cgroup_has_nothing_left(tree: Tree) -> None:
    tree.second("/one")
    tree.group("sys/fs/cgroup/one", MIB, 2 * MIB)
    assert tree.available() == (0, "memory cgroup")


def test_version_1_with_its_own_files_and_figures(tree: Tree) -> None:
    tree.first("/docker/abc")
    figures = f"inactive_file 1\nhierarchical_memory_limit 5\ntotal_inactive_file {10 * MIB}\n"
    tree.old_group("sys/fs/cgroup/memory/docker/abc", 500 * MIB, 300 * MIB, figures)
    tree.old_group("sys/fs/cgroup/memory/docker", 9223372036854771712, 3 * GIB)
    tree.old_group("sys/fs/cgroup/memory", 9223372036854771712, 3 * GIB)
    assert tree.groups() == [("/docker/abc", 290 * MIB, 500 * MIB)]
    assert tree.available() == (210 * MIB, "memory cgroup")


@pytest.mark.parametrize("old", [False, True])
def test_a_container_sees_a_part_of_the_tree(tree: Tree, old: bool) -> None:
    # Without a cgroup namespace the path begins at the host's root, and the mount shows the container's part of it.
    if old:
        tree.first("/docker/abc/inner", root="/docker/abc")
        tree.old_group("sys/fs/cgroup/memory/inner", GIB, 10 * MIB)
        tree.old_group("sys/fs/cgroup/memory", 100 * MIB, 10 * MIB)
    else:
        tree.second("/docker/abc/inner", root="/docker/abc")
        tree.group("sys/fs/cgroup/inner", GIB, 10 * MIB)
        tree.group("sys/fs/cgroup", 100 * MIB, 10 * MIB)
    assert tree.groups() == [("/inner", 10 * MIB, GIB), ("/", 10 * MIB, 100 * MIB)]
    assert tree.available() == (90 * MIB, "memory cgroup")


def test_wherever_it_is_mounted(tree: Tree) -> None:
    tree.second("/one", mount="/mnt/groups")
    tree.group("mnt/groups/one", 40 * MIB, 10 * MIB)
    assert tree.available() == (30 * MIB, "memory cgroup")


def test_files_that_make_no_sense_are_no_limit(tree: Tree) -> None:
    for text in ("", "0:\n", "::\n0::\n", "4:memory\n"):
        tree.file("proc/self/cgroup", text)
        for mounts in ("", "x - \n - cgroup2\n", "1 2 3 / \n"):
            tree.file("proc/self/mountinfo", mounts)
            assert tree.available() == (MACHINE, "memory of the machine")


# ----------------------------------------------------------------------------------------------------------- a real one


def own_memory_group() -> tuple[Path, bool] | None:
    """(directory of this process's memory cgroup, whether it is of version 1)."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for number, names, path in lines:
        old = "memory" in names.split(",")
        if not old and number != "0":
            continue
        for mount in mounts:
            kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
            if (kind == "cgroup" and "memory" in options) if old else kind == "cgroup2":
                directory = Path(mount[4]) / path.lstrip("/")
                if (directory / ("memory.limit_in_bytes" if old else "memory.max")).exists():
                    return directory, old
    return None


@pytest.fixture
def real() -> Iterator[tuple[Path, bool]]:
    """A memory cgroup of 192 MiB below this process's own, and whether it is of version 1."""
    found = own_memory_group()
    if found is None:
        pytest.skip("this process is in no memory cgroup that can be seen")
    own, old = found
    made = own / f"shmtensor-test-{os.getpid()}"
    try:
        made.mkdir()
        (made / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(192 * MIB))
    except OSError as problem:
        if made.exists():
            made.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {problem}")
    yield made, old
    # A manager that was started in it leaves after its last client.
    until(lambda: not (made / "cgroup.procs").read_text(), "the cgroup to be empty")
    made.rmdir()


JOIN = """
import os, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
from shmtensor import errors
from shmtensor.manager import client
manager = client.default()
"""

FILL = """
for again in range(3):
    kept = []
    try:
        while len(kept) < 400:
            block = manager.allocate(1 << 20)
            memoryview(block)[:] = bytes(range(256)) * 4096
            kept.append(block)
    except errors.OutOfMemory as problem:
        said = str(problem)
    print(len(kept), said, flush=True)
    assert all(bytes(memoryview(block)[-4:]) == b"\\xfc\\xfd\\xfe\\xff" for block in kept)
    kept.clear()
"""

ELSEWHERE = """
import shmtensor.multiprocessing as mp
queue = mp.Queue()
kept, tickets, put = [], [], 0
try:
    while True:
        kept.append(manager.allocate(1 << 20))
except errors.OutOfMemory:
    pass
try:                               # hold entries
    while len(tickets) < 100_000:
        tickets.append(manager.ticket(kept[0]))
except errors.OutOfMemory as problem:
    print(len(tickets), problem, flush=True)
try:                               # a larger ring
    while put < 1_000_000:
        queue.put(b"%08d" % put + bytes(4000))
        put += 1
except errors.OutOfMemory as problem:
    print(put, problem, flush=True)
pid = os.fork()                    # which needs a hold entry for each block
if not pid:
    try:
        memoryview(kept[0])
        print(0, "the child holds what it cannot", flush=True)
    except errors.ClientUnavailable as problem:
        print(len(kept), problem, flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
memoryview(kept[-1])[:] = bytes(1 << 20)
del kept[:40]
for n in range(put):
    assert queue.get() == b"%08d" % n + bytes(4000)
for n in range(2 * put + 100):
    queue.put(n)
assert [queue.get() for n in range(2 * put + 100)] == list(range(2 * put + 100))
tickets += [manager.ticket(kept[0]) for _ in range(5000)]
pid = os.fork()
if not pid:
    os._exit(len(memoryview(kept[0])) != 1 << 20)
assert os.waitpid(pid, 0)[1] == 0
print(len(tickets), "fine", flush=True)
"""


def run_in(here: World, directory: Path, code: str) -> list[tuple[int, str]]:
    """The lines that a program prints which is in the cgroup from its start: (number, text)."""
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(directory)],
        env=here.env,
        capture_output=True,
        text=True,
        timeout=3 * BOUND,
        check=False,
    )
    assert process.returncode == 0, (process.returncode, process.stderr)  # -9: the kernel killed it
    lines = [line.split(" ", 1) for line in process.stdout.splitlines()]
    return [(int(number), text) for number, text in lines]


def test_a_real_cgroup_is_filled_and_nobody_is_killed(here: World, real: tuple[Path, bool]) -> None:
    lines = run_in(here, real[0], JOIN + FILL)
    assert len(lines) == 3
    for count, said in lines:
        assert 60 <= count <= 160
        assert "limit hit: memory cgroup" in said
        assert "of 192.0 MiB free in cgroup /" in said and f"shmtensor-test-{os.getpid()}" in said


def test_in_a_full_cgroup_holds_queues_and_forks_are_refused_and_go_on_later(
    here: World, real: tuple[Path, bool]
) -> None:
    holds, ring, fork, end = run_in(here, real[0], JOIN + ELSEWHERE)
    assert 0 < holds[0] < 100_000 and "limit hit: memory cgroup" in holds[1]
    assert 0 < ring[0] < 1_000_000 and "making the queue larger" in ring[1] and "memory cgroup" in ring[1]
    assert fork[0] > 0 and "no memory to record its holds" in fork[1]
    assert end[0] > 5000 and end[1] == "fine"
