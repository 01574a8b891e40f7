"""The page's data of a group: the figures of LIST, block by block, without requests to the manager for them."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forged import BLOCKS_HIGH, HOLDS_HIGH
from manager_world import BOUND, World, kill, line_of, tell, until

from shmtensor import _native
from shmtensor.manager import client, connection, protocol, ring_kinds
from shmtensor.manager.monitor.page import live
from shmtensor.manager.monitor.page.picture import ROW_BYTES, Picture, apply, difference, is_empty
from shmtensor.manager.monitor.page.sampler import Sampler

HOLD_CLIENT, HOLD_TICKET = _native.HOLD_CLIENT, _native.HOLD_TICKET


@pytest.fixture
def manager(here: World) -> Iterator[client.Manager]:
    made = client.at(here.serve())
    yield made
    made.close()


class Watcher:
    """Follows a feed, as a browser does. Closed with its feed."""

    def __init__(self, address: bytes, rate: float = 30.0) -> None:
        self.picture = Picture()
        self.count = 0
        self._frames: Any = live.Live(address, rate).frames()

    def until(self, condition: Any, what: str) -> Picture:
        def step() -> bool:
            frame = next(self._frames)
            if frame is not None:
                apply(self.picture, frame)
                self.count += 1
            return bool(condition(self.picture))

        until(step, what)
        return self.picture

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._frames.close()
        until(lambda: not any(one.name.startswith("page_") for one in threading.enumerate()), "the feed to end")


def rows(picture: Picture) -> dict[str, list[tuple[int, ...]]]:
    """Live blocks by segment: offset / 64, owner << 8 | kind, bytes, since, holds."""
    found = {key: list(struct.iter_unpack("<IIQII", blocks)) for key, blocks in picture.blocks.items()}
    return {key: [row for row in blocks if row[4]] for key, blocks in found.items()}


def totals(picture: Picture) -> tuple[int, int]:
    segments = picture.tables["segments"].values()
    return sum(row["blocks"] for row in segments), sum(row["live"] for row in segments)


def test_figures_are_those_of_list(here: World, manager: client.Manager) -> None:
    kept = [manager.allocate(nbytes) for nbytes in (100, 10_000, 70_000, 300_000, 64)]
    del kept[1]
    manager.ticket(kept[0])
    with Watcher(manager.address) as watcher:
        picture = watcher.until(lambda seen: totals(seen)[0] == 4, "the blocks")
        document = here.observe(manager.address)
        (listed,) = document["segments"]
        ((number, segment),) = picture.tables["segments"].items()
        assert int(number) == listed["id"] and segment["ring"] is None
        for shown, named in (("owner", "owner"), ("payload", "payload_bytes"), ("reserved", "reserved_bytes"),
                             ("live", "live_bytes"), ("blocks", "live_blocks")):  # fmt: skip
            assert segment[shown] == listed[named], shown
        kinds = {HOLD_CLIENT: "client", HOLD_TICKET: "ticket"}
        assert [(owner, kinds[kind], blocks, nbytes) for owner, kind, blocks, nbytes, _ in segment["holders"]] == [
            (row["slot"], row["kind"], row["blocks"], row["bytes"]) for row in listed["holders"]
        ]
        (blocks,) = rows(picture).values()
        own = next(row["slot"] for row in document["clients"] if row["pid"] == os.getpid())
        assert {holder for _, holder, *_ in blocks} == {own << 8 | HOLD_CLIENT}
        assert sorted((size, holds) for *_, size, _, holds in blocks) == [(64, 1), (100, 2), (70_000, 1), (300_000, 1)]
        assert all(offset * 64 + size <= segment["payload"] for offset, _, size, *_ in blocks)
        client_row = picture.tables["clients"][str(own)]
        assert (
            client_row["pid"] == os.getpid() and client_row["state"] == "client" and "python" in client_row["command"]
        )
        assert picture.tables["manager"]["manager"]["pid"] == here.server.pid
        del kept[-1], blocks
        picture = watcher.until(lambda seen: totals(seen)[0] == 3, "a block to go")
        assert len(next(iter(rows(picture).values()))) == 3
    with connection.Observer(manager.address) as observer:
        observer.request(protocol.Collect(0.0))  # the ticket, for which the next manager would wait


def test_blocks_cost_the_manager_no_request(
    here: World, manager: client.Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "ASK_SECONDS", 1000.0)
    kept = [manager.allocate(1000)]
    with Watcher(manager.address) as watcher:
        watcher.until(lambda seen: totals(seen)[0] == 1, "the first block")
        before = here.observe(manager.address)["stats"]["requests"]
        for number in range(2, 30):
            kept.append(manager.allocate(number * 64))
            watcher.until(lambda seen: totals(seen)[0] == number, "another block")  # noqa: B023
        asked = here.observe(manager.address)["stats"]["requests"] - before
        one = here.observe(manager.address)["stats"]["requests"] - before - asked
    assert watcher.count > 28
    assert asked == one, "requests of this test's own alone"


def test_nobody_watches(here: World, manager: client.Manager) -> None:
    """The feed then has no connection, no descriptor and no thread."""
    kept = manager.allocate(1000)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with Watcher(manager.address) as watcher:
        watcher.until(lambda seen: totals(seen)[0] == 1, "the block")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert kept is not None


CHILD = """
import sys, shmtensor as st
import shmtensor.multiprocessing as mp
kept = [st.zeros(1000, shared=True) for _ in range(50)]
queue = mp.Queue(maxsize=10)
for number in range(int(sys.argv[1])):
    queue.put(st.zeros(100))
print("ready", flush=True)
sys.stdin.readline()
"""


def test_queues_and_a_child_that_is_killed(here: World) -> None:
    address = here.serve()
    child = here.script(CHILD, "7", env={"SHMTENSOR_MANAGER": os.fsdecode(address)})
    line_of(child)
    with Watcher(address) as watcher:
        picture = watcher.until(lambda seen: totals(seen)[0] >= 57 and seen.tables["rings"], "the child's blocks")
        (ring,) = picture.tables["rings"].values()
        (listed,) = here.observe(address)["rings"]
        assert (ring["messages"], ring["max_messages"], ring["peak_messages"]) == (7, 10, 7)
        assert (ring["bytes"], ring["segment"]) == (listed["bytes"], listed["segment"])
        assert {row["pid"] for row in picture.tables["clients"].values() if row["state"] == "client"} == {child.pid}
        owners = {holder >> 8 for blocks in rows(picture).values() for _, holder, *_ in blocks}
        assert listed["ring"] in owners, "messages inside are the ring's"
        kill(child)
        picture = watcher.until(lambda seen: not totals(seen)[0] and not seen.tables["rings"], "all of it to go")
        assert not any(row["state"] == "client" for row in picture.tables["clients"].values())
        assert picture.blocks.keys() <= picture.tables["segments"].keys()


@pytest.mark.exhaustive
def test_a_manager_that_ends_and_comes_back(here: World) -> None:
    address = here.serve()
    first = here.server
    with Watcher(address) as watcher:
        watcher.until(lambda seen: seen.tables["manager"]["manager"].get("pid") == first.pid, "the manager")
        first.kill()
        first.wait(BOUND)
        watcher.until(lambda seen: "no manager" in seen.tables["manager"]["manager"]["problem"], "its end to be shown")
        here.serve()
        pid = here.server.pid
        watcher.until(lambda seen: seen.tables["manager"]["manager"].get("pid") == pid, "the next one")


def test_a_manager_that_is_stopped(here: World, manager: client.Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its group is shown as before, and that it does not answer."""
    monkeypatch.setattr(live, "ASK_SECONDS", 0.05)
    monkeypatch.setattr(live, "SILENT_SECONDS", 0.5)
    kept = [manager.allocate(100)]
    with Watcher(manager.address) as watcher:
        watcher.until(lambda seen: totals(seen)[0] == 1, "the block")
        here.server.send_signal(signal.SIGSTOP)
        try:
            watcher.until(lambda seen: "does not answer" in seen.tables["manager"]["manager"]["problem"], "the problem")
            kept.append(manager.allocate(100))
            watcher.until(lambda seen: totals(seen)[0] == 2, "a block that was made meanwhile")
        finally:
            here.server.send_signal(signal.SIGCONT)
        watcher.until(lambda seen: not seen.tables["manager"]["manager"]["problem"], "an answer")


def test_memory_that_cannot_be_seen(here: World) -> None:
    here.serve()
    with pytest.raises(Exception, match="cannot be seen from here"):
        Sampler(here.server.pid, 12345)


def test_a_slow_watcher_gets_everything_again(manager: client.Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "FRAMES_KEPT", 2)
    kept = []
    feed = live.Live(manager.address, 30.0)
    fast, slow = feed.frames(), feed.frames()
    with contextlib.closing(fast), contextlib.closing(slow):
        assert (next(slow) or {})["reset"]
        seen = Picture()
        for number in range(1, 8):
            kept.append(manager.allocate(64))
            while totals(seen)[0] < number:
                apply(seen, next(fast) or {"t": 0, "now": 0})
        again = next(slow)
        assert again is not None and again["reset"]
        late = Picture()
        apply(late, again)
        assert totals(late)[0] == 7


# ----------------------------------------------------------------------------------------------------------- the frames


def picture_of(blocks: bytes, **tables: dict[str, Any]) -> Picture:
    made = Picture()
    made.t, made.now = 5.0, 3
    made.tables |= tables
    made.blocks = {"1": blocks}
    return made


def row(number: int) -> bytes:
    return struct.pack("<IIQII", number, 1 << 8 | 1, 64, 1, 1)


def test_objects_of_stores_are_no_messages() -> None:
    rings = {"1": {"kind": ring_kinds.QUEUE, "messages": 3}, "2": {"kind": ring_kinds.STORE, "messages": 100}}
    assert picture_of(b"", rings=rings).totals()[4] == 3


def test_a_frame_has_only_what_changed() -> None:
    segments = {"1": {"blocks": 5000}}
    many = b"".join(map(row, range(5000)))
    before = picture_of(many, segments=segments, clients={"1": {"pid": 1}, "2": {"pid": 2}})
    changed = bytearray(many)
    changed[3000 * ROW_BYTES : 3001 * ROW_BYTES] = bytes(ROW_BYTES)
    after = picture_of(bytes(changed), segments=segments, clients={"2": {"pid": 3}, "4": {"pid": 4}})
    frame = difference(before, after)
    assert frame["clients"] == {"1": None, "2": {"pid": 3}, "4": {"pid": 4}} and "segments" not in frame
    ((segment, first, text),) = frame["blocks"]
    assert segment == "1" and first <= 3000 and len(text) < 1000
    seen = before.copy()
    apply(seen, frame)
    assert (seen.tables, seen.blocks) == (after.tables, after.blocks)
    assert before.tables["clients"] == {"1": {"pid": 1}, "2": {"pid": 2}}
    assert is_empty(difference(after, after.copy()))


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 1000])
@pytest.mark.parametrize("then", [0, 1, 256, 999, 2000])
def test_tables_that_grow_and_shrink(count: int, then: int) -> None:
    segments: dict[str, Any] = {"1": {}}
    before = picture_of(b"".join(map(row, range(count))), segments=segments)
    after = picture_of(b"".join(map(row, range(5, 5 + then))), segments=segments)
    seen = before.copy()
    apply(seen, difference(before, after))
    assert seen.blocks["1"].rstrip(b"\0") == after.blocks["1"].rstrip(b"\0")
    whole = Picture()
    apply(whole, difference(None, after))
    assert whole.blocks.get("1", b"") == after.blocks["1"]


def test_the_blocks_of_a_segment_that_ended_go() -> None:
    seen = picture_of(row(1), segments={"1": {}})
    apply(seen, {"t": 1.0, "now": 1, "segments": {"1": None}})
    assert not seen.blocks


WRONG: list[Any] = [
    [], 3, None, {}, {"t": 1.0}, {"t": "x", "now": 1}, {"t": float("nan"), "now": 1}, {"t": 1.0, "now": float("inf")},
    {"t": 1.0, "now": 1, "clients": []}, {"t": 1.0, "now": 1, "clients": {"1": 5}}, {"t": 1.0, "now": 1, "blocks": 4},
    {"t": 1.0, "now": 1, "blocks": [["1", 0, "*"]]}, {"t": 1.0, "now": 1, "blocks": [["1", -1, ""]]},
    {"t": 1.0, "now": 1, "blocks": [["1", 1 << 40, ""]]}, {"t": 1.0, "now": 1, "blocks": [["1", 0, "AAAA"]]},
    {"t": 1.0, "now": 1, "blocks": [[[], 0, ""]]}, {"t": 1.0, "now": 1, "blocks": [["1", "0", ""]]},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=map(str, range(len(WRONG))))
def test_what_is_not_a_frame(wrong: Any) -> None:
    with pytest.raises(ValueError):
        apply(Picture(), wrong)


# --------------------------------------------------------------------------------------------------------- the snapshot


@pytest.fixture
def metadata() -> Iterator[_native.SegmentMetadata]:
    made = _native.SegmentMetadata.create("page-test", 9, 3, 1, 1 << 30, False)
    yield made
    made.close()


def test_reading_needs_no_right_to_write_and_makes_no_pages(metadata: _native.SegmentMetadata) -> None:
    os.pwrite(metadata.fd, struct.pack("<II", 1 << 20, 1 << 22), BLOCKS_HIGH)
    pages = os.fstat(metadata.fd).st_blocks
    fd = os.open(f"/proc/self/fd/{metadata.fd}", os.O_RDONLY)
    try:
        seen = _native.observe_segment(fd)
    finally:
        os.close(fd)
    assert (seen.segment, seen.owner, seen.payload_bytes, seen.blocks, seen.holders) == (9, 3, 1 << 30, b"", [])
    assert os.fstat(metadata.fd).st_blocks == pages


def test_a_lock_that_is_held_makes_no_difference(manager: client.Manager) -> None:
    from forged import Forged

    kept = manager.allocate(5000)
    with Forged(manager, kept.segment) as forged:
        owner = struct.pack("<I", os.getpid())
        struct.pack_into("<4s", forged.metadata, 64, owner)  # the word of the mutex: as if this thread had it
        seen = _native.observe_segment(forged.control)
        struct.pack_into("<I", forged.metadata, 64, 0)
    assert len(seen.blocks) == ROW_BYTES


def test_tables_with_nonsense_in_them(metadata: _native.SegmentMetadata) -> None:
    with mmap.mmap(metadata.fd, 0) as forged:
        struct.pack_into("<II", forged, BLOCKS_HIGH, 0xFFFFFFFF, 0xFFFFFFFF)
        holds = _native.PAGE + 32 * (1 << 20)
        for at, block in enumerate((0, 1, 2, 3, (1 << 20) - 1, 1 << 20, 0xFFFFFFFF)):
            struct.pack_into("<QII", forged, holds + 16 * at, block << 32 | 7 << 8 | 1, 0, 5)
        for index, (offset, size) in enumerate(((64, 100), (1 << 30, 1), (0, (1 << 30) + 1), (0xFFFFFFFFFFFFFFFF, 1))):
            struct.pack_into("<QQII", forged, _native.PAGE + 32 * index, offset, size, 1, 1)
        struct.pack_into("<I", forged, HOLDS_HIGH, 100)
        seen = _native.observe_segment(metadata.fd)
    found = [one for one in struct.iter_unpack("<IIQII", seen.blocks) if one[4]]
    assert found[0] == (1, 7 << 8 | 1, 100, 5, 1)
    assert all(offset * 64 + size <= 1 << 30 for offset, _, size, *_ in found)
    assert len(found) == 2, "and the last one, whose record was never written"


def test_what_is_not_metadata(tmp_path: Any) -> None:
    for content in (b"", b"x" * 100, b"x" * 5000):
        path = tmp_path / "file"
        path.write_bytes(content)
        fd = os.open(path, os.O_RDONLY)
        with pytest.raises(ValueError, match="not segment metadata"):
            _native.observe_segment(fd)
        os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        _native.observe_segment(-1)


def test_segments_of_other_sizes_than_they_say(metadata: _native.SegmentMetadata) -> None:
    fd = os.memfd_create("page-test-short")
    os.write(fd, os.pread(metadata.fd, _native.PAGE, 0))
    with pytest.raises(ValueError, match="not segment metadata"):
        _native.observe_segment(fd)
    os.close(fd)


@pytest.mark.exhaustive
def test_blocks_that_change_while_they_are_read(here: World) -> None:
    """Every block shown lies in its segment and has a size that the writer uses."""
    address = here.serve()
    code = """
import shmtensor as st
kept = []
print("ready", flush=True)
for turn in range(3000):
    kept.append(st.zeros(16 * (1 + turn % 7), shared=True))
    if len(kept) > 500:
        del kept[::2]
print("done", flush=True)
input()
"""
    child = here.script(code, env={"SHMTENSOR_MANAGER": os.fsdecode(address)})
    line_of(child)
    with Watcher(address) as watcher:
        until_done = threading.Thread(target=line_of, args=(child,))
        until_done.start()
        pictures = 0
        while until_done.is_alive() or pictures < 5:
            picture = watcher.until(lambda seen: seen.tables["manager"], "a picture")
            pictures += 1
            for key, blocks in rows(picture).items():
                payload = picture.tables["segments"][key]["payload"]
                assert all(offset * 64 + size <= payload for offset, _, size, *_ in blocks)
        until_done.join(BOUND)
        watcher.until(lambda seen: sum(map(len, rows(seen).values())) == totals(seen)[0] > 0, "a quiet picture")
    tell(child)
