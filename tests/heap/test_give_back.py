"""Memory that really goes back: what is freed here, what the dead leave, and what others still map of it."""

from __future__ import annotations

import gc

import pytest
from manager_world import World, kill, line_of, tell, until
from memory_world import reserved_pages
from quota_world import MIB, Group

import shmtensor

pytestmark = pytest.mark.any_python


def test_empty_cache_gives_back_what_was_freed_and_says_how_much(here: World) -> None:
    gc.collect()
    shmtensor.empty_cache()  # of other groups that this process is in
    manager = Group(here).manager
    kept = manager.allocate(3 * MIB)
    memoryview(kept)[:] = bytes([7]) * (3 * MIB)
    freed = [manager.allocate(size) for size in (100, 70_000, 5 * MIB, 300 * MIB)]
    assert reserved_pages(here.server.pid) > 308 * MIB
    del freed
    assert reserved_pages(here.server.pid) > 308 * MIB, "kept for later"
    before = reserved_pages(here.server.pid)
    given = shmtensor.empty_cache()
    left = reserved_pages(here.server.pid)
    assert given == before - left and left <= 3 * MIB + 8192
    assert shmtensor.empty_cache() == 0
    assert bytes(memoryview(kept)) == bytes([7]) * (3 * MIB)
    again = manager.allocate(300 * MIB)
    memoryview(again)[::4096] = bytes(300 * MIB // 4096)
    assert manager.native.stats().owned == 2, "the segment is used again"
    del again, kept
    manager.close()


def test_empty_cache_starts_no_manager(here: World) -> None:
    assert here.run("import shmtensor\nprint(shmtensor.empty_cache())").strip() == "0"
    assert not here.managers()


def test_a_trimmed_arena_gives_its_pages_back_although_others_map_it(here: World) -> None:
    group = Group(here)
    manager = group.manager
    blocks = [manager.allocate(MIB) for _ in range(64)]
    peer = group.script(
        "mine = manager.attach(*map(int, sys.stdin.readline().split()))\nsay('mapped')\nsys.stdin.readline()\n"
        "say(bytes(mine) == bytes([9]) * (1 << 20))"
    )
    memoryview(blocks[30])[:] = bytes([9]) * MIB
    tell(peer, f"{blocks[30].segment} {blocks[30].index} {blocks[30].generation}")
    assert line_of(peer) == "mapped"
    assert reserved_pages(here.server.pid) >= 64 * MIB
    blocks.clear()  # the peer alone holds one now
    assert shmtensor.empty_cache() >= 63 * MIB
    assert reserved_pages(here.server.pid) == MIB
    tell(peer)
    assert line_of(peer) == "True"
    peer.wait()
    until(lambda: shmtensor.empty_cache() or not reserved_pages(here.server.pid), "the last block to come home")
    assert reserved_pages(here.server.pid) == 0
    manager.close()


@pytest.mark.parametrize("end", ["killed", "exits"])
def test_one_small_array_does_not_keep_the_gigabyte_of_its_dead_owner(here: World, end: str) -> None:
    group = Group(here)
    manager = group.manager
    owner = group.script(
        """
kept = [manager.allocate(200 << 20) for _ in range(4)]
small = manager.allocate(1000)
memoryview(small)[:] = b"small" * 200
kept += [manager.allocate(100 << 20), manager.allocate(300 << 20)]
say(small.segment, small.index, small.generation)
sys.stdin.readline()
os._exit(0)
"""
    )
    small = manager.attach(*map(int, line_of(owner).split()))
    assert reserved_pages(here.server.pid) >= 1200 * MIB
    if end == "killed":
        kill(owner)
    else:
        tell(owner)
        owner.wait()
    until(lambda: reserved_pages(here.server.pid) <= 64 * 1024, "the dead owner's pages to go")
    # The figures say the same, and the array is as it was.
    until(lambda: manager.stats().reserved_bytes <= 64 * 1024, "the figures to follow")
    assert manager.stats().live_bytes == 1000
    assert bytes(memoryview(small)) == b"small" * 200
    del small
    until(lambda: manager.stats().segments == 0, "the orphan to go")
    assert reserved_pages(here.server.pid) == 0
    manager.close()


def test_memory_pressure_makes_all_clients_give_back(here: World) -> None:
    """Three clients keep 60 MiB each for later; a fourth needs 200 of 240."""
    group = Group(here, "--max-bytes", "240M")
    code = """
kept = manager.allocate(60 << 20)
del kept
small = manager.allocate(64)
say(manager.native.stats().reserved >= 60 << 20)
for line in sys.stdin:
    small = manager.allocate(64)   # any allocation or release will do
    say(manager.native.stats().reserved < 2 << 20)
"""
    keepers = [group.script(code) for _ in range(3)]
    assert [line_of(keeper) for keeper in keepers] == ["True"] * 3
    manager = group.manager
    with pytest.raises(shmtensor.errors.QuotaExceeded):
        manager.allocate(200 * MIB)
    for keeper in keepers:
        tell(keeper)
    assert [line_of(keeper) for keeper in keepers] == ["True"] * 3
    block = manager.allocate(200 * MIB)
    assert reserved_pages(here.server.pid) <= 240 * MIB
    del block
    manager.close()
