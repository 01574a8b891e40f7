"""Segments that cannot be made, given back or found, and what is left of them: nothing."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from manager_world import World, until
from refusing import failing, free_descriptor, limited, open_descriptors

from shmtensor import _native
from shmtensor.manager import protocol
from shmtensor.manager.address import lock_path, own_uid
from shmtensor.manager.daemon import memory as memory_module
from shmtensor.manager.daemon import takeover
from shmtensor.manager.daemon.custodian import Custodian
from shmtensor.manager.daemon.journal import Journal, Past
from shmtensor.manager.daemon.memory import Memory, document, metadata_name, payload_name, remove_shm
from shmtensor.manager.daemon.records import Refusal, Segment
from shmtensor.manager.daemon.service import Service
from shmtensor.manager.daemon.state import State

pytestmark = pytest.mark.any_python


class Made:
    """A manager's state and memory, without the manager."""

    def __init__(self, path: Path) -> None:
        self.group = _native.Group.create(int.from_bytes(os.urandom(7), "little"))
        self.group.lead()
        for _ in range(9):  # that may exist
            self.group.take_segment_number()
        self.past = Past()
        self.past.group = self.group.group_id
        self.journal = Journal(os.fsencode(path), self.past)
        self.memory = Memory(self.group.group_id, self.journal)
        self.state = State(self.group, self.memory, 4)
        self.searches = 0
        self.service = Service(self.state, self.memory, dict, self._search)
        self.slot = self.state.add_client(os.getpid(), 0)

    def _search(self) -> bool:
        self.searches += 1
        return False

    def make(self, nbytes: int, named: bool = False, number: int = 5) -> memory_module.Made:
        return self.memory.make(number, (self.slot, 1), os.getpid(), nbytes, True, named)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    made = Made(tmp_path / "x.journal")
    before = open_descriptors()
    try:
        yield made
        made.state.segments.clear()
        assert open_descriptors() == before
    finally:
        made.journal.close()


def names() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob(f"torch_{os.getpid()}_*")}


# ----------------------------------------------------------------------------------------------------- made, given back


@pytest.mark.parametrize("what", ["memory", "named memory", "ring"])
def test_no_descriptor_for_the_metadata(made: Made, what: str) -> None:
    with (
        limited(resource.RLIMIT_NOFILE, free_descriptor() + 1),
        pytest.raises(OSError, match=os.strerror(errno.EMFILE)),
    ):
        if what == "ring":
            made.memory.make_ring(5, _native.FIRST_RING, made.slot)
        else:
            made.make(_native.PAGE, what == "named memory")
    assert not names()


def test_a_limit_of_the_size_of_files(made: Made) -> None:
    with limited(resource.RLIMIT_FSIZE, _native.PAGE), pytest.raises(OSError, match="File too large"):
        made.make(2 * _native.PAGE, named=True)
    assert not names()
    with limited(resource.RLIMIT_FSIZE, _native.PAGE), pytest.raises(OSError, match="File too large"):
        document({"text": "x" * 2 * _native.PAGE})


def test_a_name_that_another_program_has(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made.make(_native.PAGE, named=True)
    number = int(first.name.split(b"_")[2])
    numbers = [(number << 1).to_bytes(8, "little"), (2468).to_bytes(8, "little")]
    with monkeypatch.context() as patch:
        patch.setattr(os, "urandom", lambda _: numbers.pop(0))
        second = made.make(_native.PAGE, named=True, number=6)
    assert second.name == b"/torch_%d_1234" % os.getpid()
    for each in (first, second):
        each.metadata.close()
        os.close(each.payload)
        remove_shm(each.name)
        remove_shm(each.name)  # twice is harmless
    assert not names()


def test_pages_that_cannot_be_given_back(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    part = made.make(_native.PAGE)
    read_only = os.open(f"/proc/self/fd/{part.payload}", os.O_RDONLY)
    made.memory.punch(Segment(5, part.metadata, read_only, _native.PAGE, True, None, b"", None, b""), 0, _native.PAGE)
    assert f"]: cannot give pages of segment 5 back: {os.strerror(errno.EBADF)}\n" in capsys.readouterr().err
    for fd in (read_only, part.payload):
        os.close(fd)
    part.metadata.close()


def test_a_custodian_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    custodian = Custodian(b"/x.sock")
    before = open_descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", failing(errno.EAGAIN))
        with pytest.raises(BlockingIOError):
            custodian.keep(frozenset({1}), [0])
    assert open_descriptors() == before and not custodian.is_alive


# ------------------------------------------------------------------------------------------------------------- requests


def test_no_descriptor_for_a_ring(made: Made) -> None:
    """Its number is given to the next one."""
    with limited(resource.RLIMIT_NOFILE, free_descriptor() + 1), pytest.raises(OSError, match="Too many"):
        made.service.answer(made.slot, os.getpid(), protocol.Create(0, protocol.RING))
    number = made.state.ring_number()
    made.state.ring_not_made(number)
    assert number == _native.FIRST_RING == made.state.ring_number() and not made.state.rings


def test_no_descriptor_for_memory_of_a_device(made: Made) -> None:
    message = protocol.CreateDevice(1 << 20, 0, 0, b"x" * 16)
    with limited(resource.RLIMIT_NOFILE, free_descriptor() + 1), pytest.raises(OSError, match="Too many"):
        made.service.answer(made.slot, os.getpid(), message, (0,))
    assert not made.state.segments


def test_descriptors_of_memory_of_devices(made: Made) -> None:
    """A successor gets them from clients; until then it cannot pass them on."""

    def refused(message: protocol.Message) -> Refusal:
        with pytest.raises(Refusal) as caught:
            made.service.answer(made.slot, os.getpid(), message, (0,))
        return caught.value

    message = protocol.CreateDevice(1 << 20, 0, 0, b"x" * 16)
    reply: Any = made.service.answer(made.slot, os.getpid(), message, (0,)).reply
    segment = made.state.segments[reply.segment]
    os.close(segment.payload)
    segment.payload = -1
    found = refused(protocol.Map(reply.segment))
    assert found.code == protocol.PENDING and f"the descriptor of segment {reply.segment} yet" in str(found)
    assert made.service.answer(made.slot, os.getpid(), protocol.Give(reply.segment), (0,)).reply == protocol.Ok()
    assert made.service.answer(made.slot, os.getpid(), protocol.Map(reply.segment)).reply == reply
    other: Any = made.service.answer(made.slot, os.getpid(), protocol.Create(1 << 20)).reply
    found = refused(protocol.Give(other.segment))
    assert found.code == protocol.INVALID and "is not memory of a device" in str(found)
    assert refused(protocol.Map(99)).code == protocol.UNKNOWN
    for segment in list(made.state.segments.values()):
        made.memory.release(segment)


# ---------------------------------------------------------------------------------------------------------- taking over


def found(made: Made, shm: dict[bytes, int] | None = None) -> int:
    return takeover.adopt_segments(made.state, [os.getpid()], shm or {})


def test_what_only_has_the_name_of_a_segment_is_not_taken_over(made: Made) -> None:
    group = made.group.group_id
    parts = [os.memfd_create(metadata_name(group, 5)), os.memfd_create(payload_name(group, 5))]  # no metadata
    parts.append(os.memfd_create(payload_name(group, 6)))  # a payload alone
    lost = _native.SegmentMetadata.create(metadata_name(group, 7), 7, made.slot, 1, 2 * _native.PAGE, True, b"")
    assert found(made) == 0
    parts.append(os.memfd_create(payload_name(group, 7)))
    os.ftruncate(parts[-1], _native.PAGE)  # half of it
    assert found(made) == 0 and not made.state.segments
    os.ftruncate(parts[-1], 2 * _native.PAGE)
    assert found(made) == 1 and found(made) == 0 and list(made.state.segments) == [7]
    for fd in parts:
        os.close(fd)
    lost.close()
    made.memory.release(made.state.segments[7])


def test_a_block_as_large_as_a_ring_is_none(made: Made) -> None:
    part = made.make(_native.RING_BYTES)
    assert found(made) == 1
    (segment,) = made.state.segments.values()
    assert segment.ring is None and segment.owner == made.slot
    os.close(part.payload)
    part.metadata.close()
    made.memory.release(segment)


def test_a_ring_that_comes_too_late_is_lost(made: Made) -> None:
    metadata, payload, ring = made.memory.make_ring(5, _native.FIRST_RING, made.slot)
    made.state.complete()
    made.state.complete()  # twice is harmless
    assert found(made) == 0 and not made.state.segments and not made.state.rings
    metadata.close()
    os.close(payload)
    ring.close()


def test_a_group_that_is_none_or_cannot_be_opened(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.memfd_create(f"shmtensor-{made.group.group_id ^ 1:016x}")
    os.write(fd, b"another layout")
    assert takeover.find_group(made.group.group_id ^ 1, own_uid(), [os.getpid()]) is None
    os.close(fd)
    group = takeover.find_group(made.group.group_id, own_uid(), [os.getpid()])
    assert group is not None and group.group_id == made.group.group_id
    del group
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing(errno.ENOENT))
        assert takeover.find_group(made.group.group_id, own_uid(), [os.getpid()]) is None, "closed meanwhile"
        patch.setattr(os, "open", failing(errno.EMFILE))
        with pytest.raises(OSError, match="Too many open files"):
            takeover.find_group(made.group.group_id, own_uid(), [os.getpid()])


def test_a_manager_that_has_ended_is_not_asked() -> None:
    takeover.ask_to_look((1 << 31) - 1)  # larger than any pid


@pytest.mark.exhaustive
def test_a_manager_is_found_without_the_lists_of_the_kernel(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = here.serve()
    lock = Path(os.fsdecode(lock_path(path)))
    device = lock.stat().st_dev
    with monkeypatch.context() as patch:
        patch.setattr(takeover, "open", failing(errno.EACCES), raising=False)
        assert takeover.find_manager(path, device) == here.server.pid
        assert takeover.find_manager(path, device + 1) is None, "a file of that name elsewhere"
        patch.setattr(os, "open", failing(errno.ENOENT))
        assert takeover.find_manager(path, device) is None, "closed meanwhile"
    until(lambda: takeover.find_manager(path, device) == here.server.pid, "the kernel to list it")
