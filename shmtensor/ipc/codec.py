"""Encoding of values as messages: the Python part of native/python/codec.hpp, and messages as bytes for pipes.

The native codec encodes plain values by itself. Any other value is pickled here as a whole (protocol 5), with the
reducers of multiprocessing's pickler. Storages and arrays become out-of-band buffers. A storage's buffer is its shared
block, which the receiver uses in place. An array's buffer is copied into a new block, which becomes the memory of the
receiver's array. Both arrive as a memoryview.
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
from .._loading import integrate
from .._loading import load as load_module
from .._tensor.methods import Tensor
from ..dtypes import BY_DTYPE, dtype_of
from ..errors import ManagerUnavailable, MessageDamaged, SegmentLost, StaleHandle
from ..manager import client
from ..storage import STORAGE_CLASSES, Storage
from . import reductions
from .reductions import Rebuild


def default_client() -> _native.Client:
    """Return the native client of this process's manager. Blocks and raises as `client.default`."""
    return client.default().native


class _Message(threading.local):
    """The message that this thread is pickling."""

    native: _native.Client | None = None
    """The client whose blocks the message can refer to; None: the default manager's."""


_message = _Message()

_messages: Any = None  # shmtensor.gpu.messages, once a tensor on a device was sent or received
_registered: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})
_reducers: dict[type, Any] = {}


def reducers() -> dict[type, Any]:
    """Return the reducers of multiprocessing's pickler, with storages, arrays, queues and locks as blocks."""
    global _registered, _reducers
    plain, extra = copyreg.dispatch_table, ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    if (plain, extra) != _registered:
        integrate()  # torch has registered its own by now, if the program has imported it
        known = plain, extra = plain.copy(), extra.copy()
        shared = [cls for cls, reduce in extra.items() if reduce is reductions.reduce_shared]
        _reducers = {
            np.ndarray: reduce_array,
            **plain,
            **extra,
            **dict.fromkeys(shared, reduce_shared),
            Tensor: reductions.reduce_tensor,
            **dict.fromkeys(STORAGE_CLASSES.values(), reduce_storage),
        }
        _registered = known  # last: another thread that finds it has the reducers as well
    return _reducers


def _refers(block: _native.Block) -> bool:
    return block.client is (_message.native or default_client())


def reduce_storage(shared: Storage) -> Rebuild:
    """Reduce a storage to its block, out of band if the message can refer to it. Raises as the reducer."""
    return reductions.reduce_out_of_band(reductions.reduce_storage, shared, _refers)  # type: ignore[no-any-return]


def reduce_shared(shared: reductions.Shared) -> Any:
    """Reduce a queue or lock to its block, out of band if the message can refer to it."""
    return reductions.reduce_out_of_band(reductions.reduce_shared, shared, _refers)


def reduce_array(array: NDArray[Any]) -> Rebuild:
    """Reduce an array to an out-of-band buffer. It arrives writable, as with older pickle protocols."""
    flags = array.flags
    if array.dtype.isbuiltin == 2 and array.dtype in BY_DTYPE:  # such arrays export no buffer
        return rebuild_array, (array.view(f"u{array.itemsize}"), BY_DTYPE[array.dtype].name)
    if not flags.writeable or not (flags.c_contiguous or flags.f_contiguous):
        array = array.copy()
    return array.__reduce_ex__(5)  # type: ignore[return-value]


def rebuild_array(bits: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return an array of a type that is not built into NumPy, from its bits."""
    return bits.view(dtype_of(dtype))


def dump(native: _native.Client | None, value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Pickle a value. Returns (pickle, out-of-band buffers). Blocks only if a reducer does.

    Raises:
        Exception: as raised by pickling; then nothing is in flight.
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


def dump_by_value(native: _native.Client | None, value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Pickle a value as plain pickle does, for a process of another group. Returns (pickle, out-of-band buffers)."""
    buffers: list[pickle.PickleBuffer] = []
    return pickle.dumps(value, 5, buffer_callback=buffers.append), buffers


def describe_device(array: Any) -> Any:
    """Describe an array for a message, if it is on a device: `gpu.messages.describe`; None: it is not."""
    global _messages
    if _messages is None:
        if type(array).__module__.partition(".")[0] != "cupy":
            return None
        _messages = load_module("gpu.messages")
    return _messages.describe(array)


def rebuild_device(*description: Any) -> Any:
    """Return the array that a message describes: `gpu.messages.rebuild`."""
    global _messages
    if _messages is None:
        _messages = load_module("gpu.messages")
    return _messages.rebuild(*description)


def load(data: memoryview, buffers: list[Any]) -> Any:
    """Unpickle what `dump` returned. Does not block. Raises as unpickling does."""
    return pickle.loads(data, buffers=buffers)


# -- as bytes ---------------------------------------------------------------------------------------------------------

# A message without blocks is its body. With blocks it is: _TICKETED, manager address, a ticket for each block, body.
# (A body starts with another first byte, see native/python/codec_body.hpp.)
_TICKETED: Final = 3
_MARK: Final = bytes([_TICKETED])
_HEADER: Final = struct.Struct("<BII")  # _TICKETED, bytes of the address, bytes of the tickets
_TICKET: Final = struct.Struct("<QIIII")  # segment, block, generation, hold, mark


def encode_for_wire(value: Any) -> bytes:
    """Encode a value as a message that any process of the group can decode, once. Blocks as `client.default` does.

    Each block in it is held by a ticket. A message that cannot be sent must be passed to `withdraw`.

    Raises:
        OutOfMemory, ManagerError: an array or tensor could not be shared; then nothing is in flight.
        Exception: as raised by pickling; then nothing is in flight.
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
    """Decode a message. Blocks if a segment has to be requested from the manager.

    Raises:
        MessageDamaged: the bytes are not a message.
        SegmentLost: the manager ended before this process had mapped the memory.
        StaleHandle: the message was decoded before, and the memory has been freed since.
        Exception: as raised by unpickling, for example for a class that cannot be imported.
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
            f"the manager at {os.fsdecode(address)} ended before this process mapped {len(tickets) // _TICKET.size} "
            f"shared blocks of a message; keep the sender or its manager alive until then ({error})"
        ) from error


def withdraw(data: bytes) -> None:
    """Release the tickets of a message that could not be sent. Does not block."""
    if data[:1] == _MARK:
        address, tickets, _ = _open(data)
        manager = client.at(address)
        for ticket in _TICKET.iter_unpack(tickets):
            with suppress(StaleHandle, SegmentLost):  # the message was read after all, or its memory was truncated
                manager.redeem(*ticket)


def _open(data: bytes) -> tuple[bytes, memoryview, memoryview]:
    """Return (address, tickets, body) of a message with tickets."""
    view = memoryview(data)
    if len(view) >= _HEADER.size:
        _, length, nbytes = _HEADER.unpack_from(view)
        start = _HEADER.size + length
        end = start + nbytes
        if end <= len(view) and nbytes % _TICKET.size == 0:
            return bytes(view[_HEADER.size : start]), view[start:end], view[end:]
    raise MessageDamaged(f"a message of {len(data)} bytes is cut off before its list of shared blocks ends")
