"""Blocks of device memory as memory of CuPy, from which its arrays are made."""

from __future__ import annotations

import weakref
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from .. import _native
from ..manager import client
from . import driver, order, streams
from .order import Order

if TYPE_CHECKING:
    from ..manager.membership import Manager

_memories: Final[weakref.WeakValueDictionary[int, Any]] = weakref.WeakValueDictionary()
"""The memory of each block that this process uses, by the id of the block."""


@cache
def memory_class() -> Any:
    """Return the class BlockMemory, a subclass of a class of CuPy, which is imported only here."""
    import cupy

    class BlockMemory(cupy.cuda.UnownedMemory):  # type: ignore[misc]
        """A block of device memory, kept alive by arrays over it. Then its hold ends once no stream uses it."""

        block: _native.Block
        order: Order
        pending: tuple[int, int] | None
        """The timeline and point of the sender, until the point is known to be reached."""
        streams: list[Any]
        """Streams that use the memory: that of its allocation or receipt, and those that were recorded."""

        def array(self, dtype: Any, shape: tuple[int, ...], strides: Any = None, offset: int = 0) -> Any:
            """Return a CuPy array over this memory; strides and offset in bytes."""
            return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(self, offset), strides)

        @property
        def nbytes(self) -> int:
            """Bytes of the block."""
            return self.block.nbytes

        def record(self, stream: Any) -> None:
            """Record that a stream uses this memory, so that it is not released before the stream's work has ended."""
            if all(stream.ptr != known.ptr for known in self.streams):
                self.streams.append(stream)

        def expect(self, timeline: int, point: int) -> None:
            """Make the current stream wait for a sender's point. Does not block. Raises OwnerDied."""
            stream = cupy.cuda.get_current_stream(self.device_id)
            if self.order.wait(timeline, point, self.device_id, stream.ptr):
                self.pending = timeline, point
            self.record(stream)

        def check(self) -> None:
            """Raise OwnerDied if the content never arrived."""
            if self.pending is not None and self.order.is_over(*self.pending):
                self.pending = None

        def __del__(self) -> None:
            own = vars(self)  # lacks attributes if it was not constructed completely
            if "streams" in own and driver.is_in_use():
                for stream in own["streams"]:
                    if not own["order"].is_idle(self.device_id, stream.ptr):
                        order.keep_until_done(own["block"], self.device_id, stream)

    return BlockMemory


def memory_over(block: _native.Block) -> Any:
    """Return the BlockMemory of a block; the same object as long as it lives. Does not block."""
    known = _memories.get(id(block))
    if known is not None and known.block is block:
        return known
    import cupy

    device = block.device
    memory = memory_class()(block.address, block.nbytes, None, device)
    memory.block = block
    memory.order = order.of(manager_of(block.client))
    memory.pending = None
    memory.streams = [cupy.cuda.get_current_stream(device)]
    _memories[id(block)] = memory
    return memory


def manager_of(native: _native.Client) -> Manager:
    """Return the manager of a client of this process."""
    found = client.of(native)
    assert found is not None
    return found


def lend(array: Any, stream: int | None) -> None:
    """Record that another library uses an array, on one of its streams, as numbered by the array API."""
    memory = block_memory(array)
    if memory is not None:
        import cupy

        with cupy.cuda.Device(memory.device_id):
            memory.record(streams.of_handle(0 if stream is None or stream in (-1, 1) else stream))


def block_memory(array: Any) -> Any:
    """Return the BlockMemory of a CuPy array; None: it has other memory. Does not block.

    It is found even if another library of this process has passed the memory on, for example by DLPack.
    """
    memory = array.data.mem
    if type(memory) is memory_class():
        return memory
    if any(stride < 0 for stride in array.strides):  # the array does not begin at its lowest address
        return None
    nbytes = array.itemsize + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    block = _native.device_block_at(array.data.ptr, nbytes) if array.size else None
    return None if block is None else memory_over(block)
