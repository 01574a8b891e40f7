"""Access to the shared memory of segments and of the group, for overwriting it (native/base/layout.hpp)."""

from __future__ import annotations

import mmap
import os
import struct
from types import TracebackType

from shmtensor import _native
from shmtensor.manager import client, connection, protocol

LOCK, BLOCKS_HIGH, HOLDS_HIGH, HOLDS_RESERVED, FREE_HOLD, RETURNED, LIVE_BLOCKS = 64, 128, 132, 136, 140, 144, 148
LIVE_BYTES = 152
ARENA_BLOCKS, ARENA_HOLDS = 1 << 20, 1 << 22
BLOCK, HOLD = 32, 16
"""Bytes of a record and of an entry."""


class Forged:
    """The metadata of an arena, writable."""

    def __init__(self, manager: client.Manager, segment: int) -> None:
        reply, descriptors = manager._request(protocol.Map(segment))
        assert isinstance(reply, protocol.Segment) and not reply.flags & protocol.DEDICATED
        self.control = descriptors[0]
        os.close(descriptors[1])
        self.metadata = mmap.mmap(self.control, 0)

    def __enter__(self) -> Forged:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.metadata.close()
        os.close(self.control)

    def set(self, where: int, value: int, form: str = "<I") -> None:
        struct.pack_into(form, self.metadata, where, value)

    def get(self, where: int, form: str = "<I") -> int:
        (value,) = struct.unpack_from(form, self.metadata, where)
        return int(value)

    def block(self, index: int) -> int:
        """The place of a block's record: offset, size (8 bytes each), generation, count, next, where (4 each)."""
        return _native.PAGE + BLOCK * index

    def hold(self, index: int) -> int:
        """The place of a hold entry: word (8 bytes), mark, since (4 each)."""
        return _native.PAGE + BLOCK * ARENA_BLOCKS + HOLD * index


def group_table(address: str) -> mmap.mmap:
    """The group segment of a manager, mapped; slot n begins at PAGE + 64 * n with its word (8 bytes)."""
    fd = connection.connect(address)
    try:
        _welcome, group = connection.hello(connection.Requests(os.fsencode(address)), fd, protocol.OBSERVER)
    finally:
        os.close(fd)
    try:
        return mmap.mmap(group, 0)
    finally:
        os.close(group)
