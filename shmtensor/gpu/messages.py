"""Tensors on devices in messages: called by the native codec (native/python/codec_write.cpp, codec_read.cpp).

These functions run for each message, so they make few driver calls: one to write a point, and one to wait if it is not
reached yet.
"""

from __future__ import annotations

from typing import Any, Final

from .. import _native
from ..dtypes import BY_DTYPE
from ..errors import DTypeError
from . import arrays
from .memory import block_memory, memory_class, memory_over

_cupy: Final = arrays.module()  # raises DeviceUnavailable in a process that cannot use a GPU
MemoryPointer: Any = _cupy.cuda.MemoryPointer
get_current_stream: Any = _cupy.cuda.get_current_stream
_BlockMemory: Final = memory_class()
_NUMBERS: Final[dict[int, Any]] = {dtype.num: dtype for dtype in BY_DTYPE if dtype.isbuiltin == 1}
"""Element types by NumPy's numbers."""
_ndarray: Final = _cupy.ndarray


def describe(array: Any) -> Any:
    """Describe an array for a message, and mark the current stream's position as a point. Does not block.

    Returns:
        None: it is not on a device. False: it is on a device, but not in shared memory. Else (block, number of the
        element type, shape, strides and offset in bytes, timeline, point).

    Raises:
        OwnerDied: its content never arrived here.
        DTypeError: an element type that messages do not support.
        DeviceUnavailable: the driver refused.
    """
    if not isinstance(array, _ndarray):
        return None
    start = array.data
    memory = start.mem
    if type(memory) is not _BlockMemory:
        memory = block_memory(array)  # another library may have got it from us
        if memory is None:
            return False
    dtype = array.dtype
    if dtype.num not in _NUMBERS:
        raise DTypeError(f"a tensor of {dtype.name} on a GPU cannot be sent; view it as integers of that size")
    if memory.pending is not None:
        memory.check()
    device = memory.device_id
    timeline, point = memory.order.mark(device, get_current_stream(device).ptr)
    offset = start.ptr - memory.ptr if array.size else 0
    return memory.block, dtype.num, array.shape, array.strides, offset, timeline, point


def rebuild(block: _native.Block, number: int, shape: Any, strides: Any, offset: int, timeline: int, point: int) -> Any:
    """Return the array that a message describes. This thread's current stream waits for its content; the CPU does not.

    Raises:
        OwnerDied: the sender was killed before the content was computed.
        DeviceUnavailable: this process cannot use the device.
    """
    memory = memory_over(block)
    memory.expect(timeline, point)
    return _ndarray(shape, _NUMBERS[number], MemoryPointer(memory, offset), strides)


def mark(memory: Any) -> tuple[int, int]:
    """Return (timeline, point) that a receiver of a BlockMemory has to wait for. Raises as `describe`."""
    memory.check()
    made: tuple[int, int] = memory.order.mark(memory.device_id, get_current_stream(memory.device_id).ptr)
    return made


def flat_of(block: _native.Block, dtype: Any, size: int, timeline: int, point: int) -> Any:
    """Return an array of all elements of a received block. Raises as `rebuild`; ValueError: they do not fit."""
    memory = memory_over(block)
    memory.expect(timeline, point)
    return arrays.over(memory, (size,), dtype, 0, (dtype.itemsize,))
