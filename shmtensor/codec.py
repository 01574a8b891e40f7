"""Values as messages: the part of native/codec.hpp that is Python's, and messages as bytes for pipes.

The core writes plain values by itself. What holds anything else comes here as a whole and is pickled (protocol 5) as
multiprocessing's pickler does it, with whatever reducers are registered there. Storages and arrays leave the pickle as
out-of-band buffers. A storage's buffer is its shared block, which the receiver gets as it is; an array's is copied into
a fresh block, over which the receiver's array then lies.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
from multiprocessing import reduction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from . import _native, reductions
from ._tensor import Tensor
from .dtypes import dtype_of
from .errors import ManagerUnavailable, MessageDamaged, SegmentLost, ShmTensorError
from .manager import client
from .reductions import Rebuild
from .storage import STORAGE_CLASSES, Storage


def default_client() -> _native.Client:
    """The client of this process's manager, which is found or started. Blocks and raises as `client.default`."""
    return client.default().native


class Pickler(reduction.ForkingPickler):
    """multiprocessing's pickler, but storages and arrays go by block.

    Args:
        file: where the pickle goes.
        native: the client whose blocks a message can name; None: that of the default manager.
    """

    dump = reductions.dump

    def __init__(self, file: io.BytesIO, native: _native.Client | None) -> None:
        self.buffers: list[pickle.PickleBuffer] = []
        super().__init__(file, 5, True, self.buffers.append)
        self._native = native
        table: dict[type, Any] = self.dispatch_table
        table.setdefault(np.ndarray, reduce_array)
        table[Tensor] = reductions.reduce_tensor
        for storage_class in STORAGE_CLASSES.values():
            table[storage_class] = self._reduce_storage

    def _reduce_storage(self, shared: Storage) -> Rebuild:
        if shared._view is None:
            region = shared.share_memory_()._region
            if isinstance(region, _native.Block) and region.client is (self._native or default_client()):
                return rebuild_storage, (pickle.PickleBuffer(region), shared.dtype.char, shared.size())
        return reductions.reduce_storage(shared)


def reduce_array(array: NDArray[Any]) -> Rebuild:
    """An array whose buffer goes out of band, and which arrives writable as it does by older protocols."""
    flags = array.flags
    if not flags.writeable or not (flags.c_contiguous or flags.f_contiguous):
        array = array.copy()
    return array.__reduce_ex__(5)  # type: ignore[return-value]


def rebuild_storage(block: _native.Block, dtype: str, size: int) -> Storage:
    """The storage of a block that came along; the one that this process has already, if any. Raises InvalidArgument."""
    return Storage._from_block(block, dtype_of(dtype), size)


def dump(native: _native.Client | None, value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """(pickle, its out-of-band buffers). Does not block, but for what reducers do.

    Raises:
        Whatever pickling raises; nothing is in flight then.
    """
    file = io.BytesIO()
    pickler = Pickler(file, native)
    pickler.dump(value)
    return file.getvalue(), pickler.buffers


def load(data: memoryview, buffers: list[Any]) -> Any:
    """What `dump` was given, from as many buffers as there were. Does not block. Raises what unpickling raises."""
    return pickle.loads(data, buffers=buffers)


# -- as bytes ---------------------------------------------------------------------------------------------------------

# A message without blocks is its body. One with blocks: _TICKETED, the manager's address, a ticket for each, the body.
# (A body starts with a number of its own, see native/codec.cpp.)
_TICKETED: Final = 3
_HEADER: Final = struct.Struct("<BII")  # _TICKETED, bytes of the address, tickets
_TICKET: Final = struct.Struct("<QIIII")  # segment, block, generation, hold, mark


def encode_for_wire(value: Any) -> bytes:
    """A message that any process of the group may decode, once. Blocks as the default manager does, if it is needed.

    Every block in it is kept by a ticket. Whoever cannot send the message gives it to `withdraw`.

    Raises:
        Whatever pickling raises; OutOfMemory and ManagerError, when there is something to share. Nothing is in flight
        then.
    """
    try:
        body, blocks = _native.pack(None, value)
    except (_native.Refused, _native.LockBusy) as problem:
        client.default()._translate(problem)
    if not blocks:
        return body
    manager = client.default()
    tickets: list[tuple[int, int, int, int, int]] = []
    try:
        for block in blocks:
            ticket = manager.ticket(block)
            tickets.append((block.segment, block.index, block.generation, *ticket))
    except BaseException:
        _redeem(manager, tickets)
        raise
    header = _HEADER.pack(_TICKETED, len(manager.address), len(tickets))
    return b"".join((header, manager.address, *(_TICKET.pack(*ticket) for ticket in tickets), body))


def decode_from_wire(data: bytes) -> Any:
    """The value of a message. Blocks when the manager has to be asked for a segment.

    Raises:
        MessageDamaged: what is no message.
        SegmentLost: the manager has ended and this process had not mapped the memory.
        StaleHandle: the message was decoded before, and the memory has been freed since.
        Whatever unpickling raises: a class that cannot be imported, say.
    """
    if data[:1] != bytes([_TICKETED]):
        return _native.unpack(data, [])
    address, tickets, body = _open(data)
    try:
        blocks, problem = _redeem(client.at(address), tickets)
        if problem is not None:
            raise problem
    except ManagerUnavailable as error:
        raise SegmentLost(
            f"a message of {len(tickets)} blocks was sent through the manager at {os.fsdecode(address)}, which has "
            f"ended before this process mapped the memory; keep the sender or its manager alive until then ({error})"
        ) from error
    return _native.unpack(body, blocks)


def withdraw(data: bytes) -> None:
    """Take back a message that could not be sent: what it kept in memory is free. Does not block."""
    if data[:1] == bytes([_TICKETED]):
        address, tickets, _ = _open(data)
        _redeem(client.at(address), tickets)


def _open(data: bytes) -> tuple[bytes, list[tuple[int, int, int, int, int]], memoryview]:
    try:
        _, length, count = _HEADER.unpack_from(data)
        start = _HEADER.size + length
        end = start + count * _TICKET.size
        view = memoryview(data)
        tickets: Any = list(_TICKET.iter_unpack(view[start:end]))
    except struct.error:
        tickets, end = None, len(data)
    if tickets is None or end > len(data) or len(tickets) != count:
        raise MessageDamaged(f"a message of {len(data)} bytes is cut off within its list of tickets")
    return data[_HEADER.size : start], tickets, view[end:]


def _redeem(
    manager: client.Manager, tickets: list[tuple[int, int, int, int, int]]
) -> tuple[list[_native.Block], ShmTensorError | None]:
    """The blocks of all tickets that can be redeemed, and the first problem with another."""
    blocks = []
    problem = None
    for ticket in tickets:
        try:
            blocks.append(manager.redeem(*ticket))
        except ShmTensorError as error:
            problem = problem or error
    return blocks, problem
