"""Arrays on devices: the operations on CuPy's arrays that tensors and storages need. Higher layers do not use CuPy.

`module()` imports CuPy; after that, native code recognises its arrays, and operations on tensors use CuPy for them.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _native
from ..errors import DTypeError, NotSupported
from . import driver

_type: type[Any] | None = None  # cupy.ndarray, once loaded
_cupy: Any = None


def module() -> Any:
    """Return CuPy. The first call initialises CUDA. Raises DeviceUnavailable: no GPU, or no CuPy, with the reason."""
    global _cupy, _type
    if _cupy is None:
        driver.current()
        import cupy

        _type = cupy.ndarray
        _native.set_device_arrays(cupy.ndarray, cupy)
        _cupy = cupy
    return _cupy


def _after_fork() -> None:
    """In a forked child, make uses of CuPy raise, because it does not work after its parent has used it."""
    global _cupy
    _cupy = None


os.register_at_fork(after_in_child=_after_fork)


def special_function(name: str) -> Any:
    """Return a function of `cupyx.scipy.special`. Raises NotSupported: CuPy lacks it."""
    module()
    special = import_module("cupyx.scipy.special")
    try:
        return getattr(special, name)
    except AttributeError:
        raise NotSupported(f"CuPy has no {name}; compute it on the CPU: x.cpu()") from None


def is_on_device(array: Any) -> bool:
    """Whether an array is CuPy's. Does not import CuPy."""
    return _type is not None and isinstance(array, _type)


def adopt(array: Any) -> Any:
    """Return a CuPy array that came from elsewhere, such as DLPack, after importing CuPy here."""
    module()
    return array


def device_number(array: Any) -> int:
    """The number of the device of an array."""
    return int(array.device.id)


def address_of(array: Any) -> int:
    """The address of the first element on the device."""
    return int(array.data.ptr)


def empty(shape: Any, dtype: Any, device: int) -> Any:
    """Return an uninitialised array in private memory of a device. Raises OutOfMemory."""
    cupy = module()
    with cupy.cuda.Device(device):
        try:
            return cupy.empty(shape, dtype)
        except cupy.cuda.memory.OutOfMemoryError:
            raise driver.out_of_memory(device, int(np.prod(shape)) * np.dtype(dtype).itemsize) from None


def over(memory: Any, shape: Any, dtype: Any, offset: int, strides: Any) -> Any:
    """Return an array over memory of CuPy; offset and strides in bytes. Raises ValueError: it exceeds the memory."""
    cupy = module()
    nbytes = np.dtype(dtype).itemsize
    low, high = offset, offset + nbytes
    for size, stride in zip(shape, strides, strict=True):
        low, high = low + min((size - 1) * stride, 0), high + max((size - 1) * stride, 0)
    if 0 not in shape and not 0 <= low <= high <= memory.size:
        raise ValueError("strides is incompatible with shape of requested array and size of buffer")
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, offset), strides)


def part_of(flat: Any, shape: Any, dtype: Any, offset: int, strides: Any) -> Any:
    """Return an array over a part of `flat`; offset and strides in bytes. Raises ValueError: it exceeds `flat`."""
    return over(flat.data.mem, shape, dtype, address_of(flat) - flat.data.mem.ptr + offset, strides)


def strided(array: Any, shape: Any, strides: Any, offset: int = 0) -> Any:
    """Return a view of an array with other sizes and strides, `offset` bytes further on. Raises ValueError."""
    return part_of(array, shape, array.dtype, offset, strides)


def to_host(array: Any) -> NDArray[Any]:
    """Copy to CPU memory. Blocks until the copy is done. Raises OwnerDied: the content never arrived completely."""
    found: NDArray[Any] = module().asnumpy(array)
    memory = array.data.mem
    if getattr(memory, "pending", None) is not None:
        memory.check()
    return found


def to_device(array: Any, device: int, non_blocking: bool = False) -> Any:
    """Copy an array of the host, or of another device, to a device.

    Args:
        array: an array of NumPy or CuPy.
        device: number of the device.
        non_blocking: from pinned memory, return before the copy is done. The source is kept alive until then, and must
            not be changed.

    Raises:
        OutOfMemory: the device has no memory left.
    """
    cupy = module()
    made = empty(array.shape, array.dtype, device)
    with cupy.cuda.Device(device):
        if is_on_device(array):
            made[...] = array
        else:
            copy_in(made, array, non_blocking)
    return made


def copy_in(target: Any, values: NDArray[Any], non_blocking: bool = False) -> None:
    """Copy an array of the host to a device array of the same shape; types are converted on the host."""
    cupy = module()
    source = np.ascontiguousarray(values, target.dtype).reshape(target.shape)
    if not source.size:
        return
    device = device_number(target)
    stream = cupy.cuda.get_current_stream(device)
    if target.flags.c_contiguous:
        target.set(source, stream=stream)
    else:
        target[...] = cupy.asarray(source)
    if non_blocking and source is values:
        from . import order

        order.keep_until_done(source, device, stream)
    else:
        stream.synchronize()


def operand(value: Any, like: Any) -> Any:
    """Return an operand for an array on a device: a number unchanged, others as arrays there. Raises DTypeError."""
    if is_on_device(value) or isinstance(value, bool | int | float | complex):
        return value
    found = np.asarray(value)
    if found.dtype.kind not in "biufc":
        raise DTypeError(f"{value!r:.100} is not a number or an array of numbers; give one that NumPy can convert")
    return to_device(found, device_number(like))


def index(key: Any, array: Any) -> Any:
    """Return an index with its arrays on the device of the indexed array."""
    if isinstance(key, tuple):
        return tuple([index(part, array) for part in key])
    if isinstance(key, list):
        key = np.asarray(key, None if key else np.int64)
    if is_on_device(array):
        return to_device(key, device_number(array)) if isinstance(key, np.ndarray) else key
    return to_host(key) if is_on_device(key) else key
