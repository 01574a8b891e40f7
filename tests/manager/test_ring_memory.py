"""The manager's binding of a ring: making one, and refusing memory that is not one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from shmtensor import _native

NUMBER = _native.FIRST_RING + 5


@pytest.fixture
def payload() -> Iterator[int]:
    fd = _native.make_payload("ring", _native.RING_BYTES)
    yield fd
    os.close(fd)


def test_a_new_ring_is_empty(payload: int) -> None:
    made = _native.RingMemory.make(payload, NUMBER)
    again = _native.RingMemory(payload)
    assert made.number == again.number == NUMBER
    assert made.size() == 0
    assert made.stats() == (0, 0, 0, 65536, 81920, 0, 0, 0, 0, 0, 0, 0, 0)
    assert not made.names(0) and not made.names(1)
    assert made.segments_to_undo(1) == []
    made.undo_transfers(1, {})
    again.watch(77)
    os.pwrite(payload, b"\1", 144)  # put_undo: an unfinished transfer of slot 0
    assert again.names(0)
    made.undo_transfers(0, {})
    assert not again.names(0)


def test_what_is_no_ring_is_refused(payload: int) -> None:
    with pytest.raises(ValueError, match="layout version"):
        _native.RingMemory(payload)
    with pytest.raises(OSError):
        _native.RingMemory(-1)
    for number in (0, _native.FIRST_RING - 1, _native.LAST_RING + 1):
        with pytest.raises(ValueError, match="number"):
            _native.RingMemory.make(payload, number)
    short = _native.make_payload("short", 4096)
    with pytest.raises(ValueError, match="size"):
        _native.RingMemory(short)
    os.close(short)


def test_a_closed_ring_says_so(payload: int) -> None:
    made = _native.RingMemory.make(payload, NUMBER)
    made.close()
    made.close()
    for ask in (
        made.size,
        made.stats,
        lambda: made.watch(77),
        lambda: made.segments_to_undo(1),
        lambda: made.names(1),
        lambda: made.number,
    ):
        with pytest.raises(ValueError, match="closed"):
            ask()


def test_a_transfer_in_a_segment_that_is_not_given_waits_and_one_in_a_segment_that_is_gone_does_not(
    payload: int,
) -> None:
    made = _native.RingMemory.make(payload, NUMBER)
    message = b"".join(n.to_bytes(4, "little") for n in (2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 1, 3, 0))
    os.pwrite(payload, message, 4 * _native.PAGE)
    os.pwrite(payload, (9 << 8 | 1).to_bytes(8, "little"), 144)
    assert made.segments_to_undo(9) == [77]
    assert made.segments_to_undo(8) == []
    with pytest.raises(_native.LockBusy):
        made.undo_transfers(9, {})
    assert made.names(9)
    made.undo_transfers(9, {77: None})
    assert not made.names(9)


def test_only_an_unused_dedicated_segment_is_handed_out_whole() -> None:
    metadata = _native.SegmentMetadata.create("test-metadata", 1, 0, 0, 1 << 20, True)
    metadata.hand_out(7)
    ((index, offset, size, generation, holds),) = metadata.blocks()
    assert (index, offset, size, generation) == (0, 0, 1 << 20, 1)
    assert [hold[:2] for hold in holds] == [(7, _native.HOLD_CLIENT)]
    with pytest.raises(ValueError, match="unused"):
        metadata.hand_out(7)
    group = _native.Group.create(1)
    with pytest.raises(PermissionError, match="replaced"):
        metadata.release_holds(7, group)
    group.lead()
    assert metadata.release_holds(7, group) == 1
    group.leave()
    assert metadata.stats().live_blocks == 0
    metadata.close()
    arena = _native.SegmentMetadata.create("test-metadata", 2, 0, 0, 1 << 30, False)
    with pytest.raises(ValueError, match="dedicated"):
        arena.hand_out(7)
    arena.close()
