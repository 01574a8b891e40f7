"""The fuzz target: the decoder of message bodies, and the walk over a ring with overwritten memory.

`Target.one` takes an input, whose first byte selects the decoder. Any exception that it raises is a bug.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from queue import Empty
from typing import Any

import numpy as np

import shmtensor
from shmtensor import _native, errors
from shmtensor.ipc import codec
from shmtensor.manager import client, protocol

EXPECTED = (errors.ShmTensorError, _native.BlockGone, _native.LockBusy)
RING_FIELDS = ((128, 8), (144, 8), (256, 8), (272, 8), (40, 4), (32, 8), (16, 4))
"""Of a ring's header, (offset, bytes): tail, its record, head, its record, capacity, reserved bytes, bound."""
READERS, MESSAGES = 4096, 16384
FIRST_BYTES = MESSAGES + 65536


def touch(array: np.ndarray[Any, Any]) -> None:
    """Read all elements; of many the two that lie farthest apart, since strides of 0 set no bound to their number."""
    if array.size <= 1 << 20:
        array.copy()
    else:
        array[tuple(-1 if stride < 0 else 0 for stride in array.strides)]
        array[tuple(0 if stride < 0 else -1 for stride in array.strides)]


class Target:
    """On the manager at `address`, which another process runs."""

    def __init__(self, address: str) -> None:
        self.manager = client.at(address)
        native = self.manager.native
        self.blocks = [self.manager.allocate(size) for size in (64, 1000, 4096, 70000)]
        block = self.manager.create_ring()
        self.view = memoryview(block)
        reply, descriptors = self.manager._request(protocol.Map(block.segment))
        self.memory = _native.RingMemory(descriptors[1])
        self.kept = reply, descriptors
        self.ring = _native.Ring(native, block, self._event)
        self.slot = native.slot
        self.fresh = bytes(self.view[:FIRST_BYTES])
        codec.load = self._load  # a pickle may do what it likes: it is not looked at

    @staticmethod
    def _event(_seconds: float) -> int:
        return os.open("/dev/null", os.O_RDWR)

    @staticmethod
    def _load(stream: memoryview, buffers: list[Any]) -> Any:
        return len(stream), [len(memoryview(buffer)) for buffer in buffers]

    def one(self, data: bytes) -> None:
        """Decode `data`, or lay it over a ring and walk that."""
        if not data:
            return
        if data[0] & 1:
            self.decode(data[1:], data[0] >> 1)
        else:
            self.walk(data[1:], data[0] >> 1)

    def decode(self, body: bytes, blocks: int) -> None:
        try:
            value = _native.unpack(body, self.blocks[: blocks % 5])
        except EXPECTED:
            return
        if isinstance(value, np.ndarray | shmtensor.Tensor):
            touch(np.asarray(value))

    def walk(self, data: bytes, what: int) -> None:
        self.view[:FIRST_BYTES] = self.fresh
        at = 0
        for number, (offset, size) in enumerate(RING_FIELDS):
            if what & 1 << number and len(data) - at >= size:
                self.view[offset : offset + size] = data[at : at + size]
                at += size
        rest = data[at : at + 65536]
        self.view[MESSAGES : MESSAGES + len(rest)] = rest
        (record,) = struct.unpack_from("<Q", self.view, 144)
        struct.pack_into("<Q", self.view, 144, record & ~0xFFFFFF00 | self.slot << 8)
        (capacity,) = struct.unpack_from("<I", self.view, 40)
        struct.pack_into("<I", self.view, 40, capacity & 0xFF00FFFF)  # a message of 1 GiB takes too long to copy
        self.memory.size()
        self.memory.stats()
        if self.memory.names(self.slot):
            with suppress(_native.LockBusy):
                self.memory.undo_transfers(self.slot, dict.fromkeys(self.memory.segments_to_undo(self.slot)))
        self.view[144:152] = self.view[272:280] = bytes(8)
        for _ in range(3):
            try:
                self.ring.get(False)
            except Empty:
                break
            except EXPECTED:
                continue


def seeds(target: Target) -> dict[str, bytes]:
    """Inputs to begin with: real bodies of every kind of value, and rings with messages in them."""
    values: dict[str, Any] = {
        "scalars": (None, True, False, 7, -(2**40), 1.5, 2j, "text", "\u20ac", "\U0001f600", b"bytes"),
        "nested": {"a": [1, (2, {"b": []})], "c": {}},
        "arrays": [np.arange(6).reshape(2, 3), np.asfortranarray(np.ones((3, 2), "f4")), np.zeros(0)],
        "blocks": [np.arange(1000.0), np.ones((5, 300), "c16")],
        "tensors": [shmtensor.ones(3), shmtensor.zeros((4, 5), shared=True)[1:, ::2]],
        "pickled": [{1, 2}, np.arange(2000.0)],
    }
    same = [1, 2]
    values["twice"] = [same, same, (same,)]
    found = {}
    for name, value in values.items():
        body, _blocks = _native.pack(target.manager.native, value)
        found[name] = bytes([len(_blocks) << 1 | 1]) + body
    body, _blocks = _native.pack(target.manager.native, [1, "a"])
    message = struct.pack("<IIIIQQQ", (40 + len(body) + 63) // 64, 0, 0, 0, len(body), 0, len(body)) + body
    found["ring"] = bytes([1 << 1]) + struct.pack("<Q", 1 << 32 | 1) + message
    held = struct.pack("<IIIIQQQ", 2, 0, 1, 0, 10, 0, 10) + struct.pack("<QIIII", 1, 0, 1, 0, 0) + body[:10]
    found["ring-holds"] = bytes([0b1111 << 1]) + struct.pack("<QQQQ", 2 << 32 | 1, 1, 0, 1) + held
    filler = struct.pack("<II", 1, 1) + bytes(56)
    found["ring-filler"] = bytes([0b10101 << 1]) + struct.pack("<QQI", 3 << 32 | 1, 0, 1024) + filler + message
    return found
