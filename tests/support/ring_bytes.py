"""Writes a ring's shared memory by hand, as a process killed during a transfer leaves it (native/base/layout.hpp)."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import subprocess

from manager_world import World

from shmtensor import _native
from shmtensor.manager import client, protocol

NUMBER, PUT_LOCK, TAIL, PUT_UNDO, GET_LOCK, HEAD, GET_UNDO = 12, 64, 128, 144, 192, 256, 272
MESSAGES = 4 * _native.PAGE
UNITS = 2
"""The number of units of the message that is written here."""
ARENA_BLOCKS = 1 << 20


class RingBytes:
    """Writes into the ring in `block`."""

    def __init__(self, manager: client.Manager, block: _native.Block) -> None:
        self.manager = manager
        self.block = block
        self.view = memoryview(block)
        (self.number,) = struct.unpack_from("<I", self.view, NUMBER)

    def write_message(self, block: _native.Block, hold: int) -> None:
        """Write a message at the beginning, with one hold; not published."""
        message = (UNITS, 0, 1, 0, 0, 0, 0, block.segment, block.index, block.generation, hold, 0)
        struct.pack_into("<IIIIQQQQIIII", self.view, MESSAGES, *message)

    def note(self, where: int, slot: int) -> None:
        """An undo record at PUT_UNDO or GET_UNDO for the message."""
        struct.pack_into("<Q", self.view, where, slot << 8 | 1)

    def move(self, where: int) -> None:
        """Move TAIL or HEAD past the message."""
        struct.pack_into("<Q", self.view, where, UNITS << 32 | 1)

    def lock(self, where: int) -> None:
        """Take the mutex at PUT_LOCK or GET_LOCK; it is released only when this process ends."""
        assert ctypes.CDLL(None).pthread_mutex_lock(ctypes.c_void_p(self.block.address + where)) == 0

    def give(self, block: _native.Block, hold: int, owner: int, kind: int) -> None:
        """Set the owner and kind of a hold in an arena."""
        reply, descriptors = self.manager._request(protocol.Map(block.segment))
        assert isinstance(reply, protocol.Segment) and not reply.flags & protocol.DEDICATED
        with mmap.mmap(descriptors[0], 0) as metadata:
            at = _native.PAGE + 32 * ARENA_BLOCKS + 16 * hold
            struct.pack_into("<Q", metadata, at, block.index << 32 | owner << 8 | kind)
        for fd in descriptors:
            os.close(fd)


def start(here: World, manager: client.Manager, code: str, *arguments: str) -> subprocess.Popen[str]:
    """A child that is a client, runs `code` and reports that; it ends when it is killed."""
    head = (
        "import sys; from shmtensor import _native; from shmtensor.manager import client, protocol\n"
        "from ring_bytes import *\n"
        "m = client.at(sys.argv[1]); slot = m.native.slot\n"
    )
    text = head + code + "\nprint('done', flush=True); sys.stdin.readline()\n"
    process = here.script(text, os.fsdecode(manager.address), *arguments)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "done\n", process.stderr.read()
    return process


_WRITTEN = """
ring = RingBytes(m, m.open(b"/ring"))
block = m.allocate(4096)
hold, mark = m.ticket(block)
ring.write_message(block, hold)
"""
KILLED_IN_PUT = f"""{_WRITTEN}
ring.note(PUT_UNDO, slot)
ring.give(block, hold, ring.number, _native.HOLD_MESSAGE)
"""
KILLED_IN_GET_OF_ITS_OWN = f"""{_WRITTEN}
ring.note(GET_UNDO, slot)
ring.give(block, hold, slot, _native.HOLD_CLIENT)
ring.move(TAIL)
"""
KILLED_IN_GET = """
ring = RingBytes(m, m.open(b"/ring"))
block = m.attach(*map(int, sys.argv[2:5]))
ring.note(GET_UNDO, slot)
ring.give(block, int(sys.argv[5]), slot, _native.HOLD_CLIENT)
"""
