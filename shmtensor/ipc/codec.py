"""Values as messages: the part of native/python/codec.hpp that is Python's, and messages as bytes for pipes.

The core writes plain values by itself. What holds anything else comes here as a whole and is pickled (protocol 5) as
multiprocessing's pickler does it, with whatever reducers are registered there. Storages and arrays leave the pickle as
out-of-band buffers. A storage's buffer is its shared block, which the receiver gets as it is; an array's is copied into
a fresh block, over which the receiver's array then lies. Either arrives as a memoryview.
"""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import struct
import threading
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import _native
from .._tensor.methods import Tensor
from ..dtypes import BY_DTYPE, dtype_of
from ..errors import ManagerUnavailable, MessageDamaged, SegmentLost, StaleHandle, type_name
from ..manager import client
from ..storage import STORAGE_CLASSES, Storage
from . import reductions
from .reductions import Rebuild


def default_client() -> _native.Client:
    """The client of this process's manager, which is found or started. Blocks and raises as `client.default`."""
    return client.default().native


class _Message(threading.local):
    """The message that this thread is pickling."""

    native: _native.Client | None = None
    """The client whose blocks it can name; None: the default manager's."""


_message = _Message()

_registered: tuple[dict[Any, Any], dict[Any, Any], int] = ({}, {}, 0)
_reducers: dict[type, Any] = {}


def reducers() -> dict[type, Any]:
    """What multiprocessing's pickler has, but storages, arrays, queues and locks go by block. Does not block."""
    global _registered, _reducers
    shared = reductions.shared_classes
    if (copyreg.dispatch_table, ForkingPickler._extra_reducers, len(shared)) != _registered:  # type: ignore[attr-defined]
        known = (copyreg.dispatch_table.copy(), ForkingPickler._extra_reducers.copy(), len(shared))  # type: ignore[attr-defined]
        _reducers = {
            np.ndarray: reduce_array,
            **dict.fromkeys(shared, reduce_shared),
            **known[0],
            **known[1],
            Tensor: reductions.reduce_tensor,
            **dict.fromkeys(STORAGE_CLASSES.values(), reduce_storage),
        }
        _registered = known
    return _reducers


def reduce_storage(shared: Storage) -> Rebuild:
    """A storage whose block goes out of band, when the message can name it. Raises as `reductions.reduce_storage`."""
    if shared._view is None and type(shared._region) is not _native.View:
        region = shared.share_memory_()._region
        if isinstance(region, _native.Block) and region.client is (_message.native or default_client()):
            return rebuild_storage, (pickle.PickleBuffer(region), BY_DTYPE[shared.dtype].name, shared.size())
    return reductions.reduce_storage(shared)


def reduce_shared(shared: reductions.Shared) -> Any:
    """A queue or lock whose block goes out of band, when the message can name it."""
    return reductions.reduce_out_of_band(shared, _message.native or default_client())


def reduce_array(array: NDArray[Any]) -> Rebuild:
    """An array whose buffer goes out of band, and which arrives writable as it does by older protocols."""
    flags = array.flags
    if array.dtype.isbuiltin == 2 and array.dtype in BY_DTYPE:  # exports no buffer
        return rebuild_array, (array.view(f"u{array.itemsize}"), BY_DTYPE[array.dtype].name)
    if not flags.writeable or not (flags.c_contiguous or flags.f_contiguous):
        array = array.copy()
    return array.__reduce_ex__(5)  # type: ignore[return-value]


def rebuild_array(bits: NDArray[Any], dtype: str) -> NDArray[Any]:
    """An array of a type that NumPy has not built in, from its bits."""
    return bits.view(dtype_of(dtype))


def rebuild_storage(memory: memoryview, dtype: str, size: int) -> Storage:
    """The storage of a block that came along; the one that this process has already, if any.

    Raises:
        InvalidArgument: the block is no storage of that type and size. MessageDamaged: what came is no block.
    """
    block = memory.obj if isinstance(memory, memoryview) else memory
    if not isinstance(block, _native.Block):
        raise MessageDamaged(f"a message names a storage's block where it has a {type_name(block)}")
    return Storage._from_block(block, dtype_of(dtype), size)


def dump(native: _native.Client | None, value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """(pickle, its out-of-band buffers). Does not block, but for what reducers do.

    Raises:
        Whatever pickling raises; nothing is in flight then.
    """
    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    pickler = pickle.Pickler(file, 5, buffer_callback=buffers.append)
    pickler.dispatch_table = reducers()
    outer = _message.native
    _message.native = native
    try:
        reductions.dump(pickler, value)
    finally:
        _message.native = outer
    return file.getvalue(), buffers


def load(data: memoryview, buffers: list[Any]) -> Any:
    """What `dump` was given, from as many buffers as there were. Does not block. Raises what unpickling raises."""
    return pickle.loads(data, buffers=buffers)


# -- as bytes ---------------------------------------------------------------------------------------------------------

# A message without blocks is its body. One with blocks: _TICKETED, the manager's address, a ticket for each, the body.
# (A body starts with a number of its own, see native/python/codec_body.hpp.)
_TICKETED: Final = 3
_MARK: Final = bytes([_TICKETED])
_HEADER: Final = struct.Struct("<BII")  # _TICKETED, bytes of the address, bytes of the tickets
_TICKET: Final = struct.Struct("<QIIII")  # segment, block, generation, hold, mark


def encode_for_wire(value: Any) -> bytes:
    """A message that any process of the group may decode, once. Blocks as the default manager does, if it is needed.

    Every block in it is kept by a ticket. Whoever cannot send the message gives it to `withdraw`.

    Raises:
        Whatever pickling raises; OutOfMemory and ManagerError, when there is something to share. Nothing is in flight
        then.
    """
    try:
        body, tickets = _native.pack_tickets(None, value)
    except (_native.Refused, _native.LockBusy) as problem:
        client.default()._translate(problem)
    if not tickets:
        return body
    address = client.default().address
    return b"".join((_HEADER.pack(_TICKETED, len(address), len(tickets)), address, tickets, body))


def decode_from_wire(data: bytes) -> Any:
    """The value of a message. Blocks when the manager has to be asked for a segment.

    Raises:
        MessageDamaged: what is no message.
        SegmentLost: the manager has ended and this process had not mapped the memory.
        StaleHandle: the message was decoded before, and the memory has been freed since.
        Whatever unpickling raises: a class that cannot be imported, say.
    """
    if data[:1] != _MARK:
        return _native.unpack(data, [])
    address, tickets, body = _open(data)
    try:
        manager = client.at(address)
        try:
            return _native.unpack_tickets(manager.native, body, tickets)
        except (_native.Refused, _native.BlockGone, _native.LockBusy) as problem:
            manager._translate(problem)
    except ManagerUnavailable as error:
        raise SegmentLost(
            f"a message with {len(tickets) // _TICKET.size} shared blocks was sent through the manager at "
            f"{os.fsdecode(address)}, which has ended before this process mapped the memory; keep the sender or its "
            f"manager alive until then ({error})"
        ) from error


def withdraw(data: bytes) -> None:
    """Take back a message that could not be sent: what it kept in memory is free. Does not block."""
    if data[:1] == _MARK:
        address, tickets, _ = _open(data)
        manager = client.at(address)
        for ticket in _TICKET.iter_unpack(tickets):
            with suppress(StaleHandle, SegmentLost):  # somebody has read the message after all; or truncated its memory
                manager.redeem(*ticket)


def _open(data: bytes) -> tuple[bytes, memoryview, memoryview]:
    """(address, tickets, body) of a message that has tickets."""
    view = memoryview(data)
    if len(view) >= _HEADER.size:
        _, length, nbytes = _HEADER.unpack_from(view)
        start = _HEADER.size + length
        end = start + nbytes
        if end <= len(view) and nbytes % _TICKET.size == 0:
            return bytes(view[_HEADER.size : start]), view[start:end], view[end:]
    raise MessageDamaged(f"a message of {len(data)} bytes is cut off before its list of shared blocks ends")
