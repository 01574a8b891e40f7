"""DLPack: tensors go to and come from other array libraries of this process without a copy.

The capsules are made and read in native code. docs/sharing.md describes who owns which memory, and for how long.
"""

from __future__ import annotations

from typing import Any, Final

from .. import _native
from .._loading import integrate, load
from .._native import is_device_array
from ..errors import InvalidArgument
from .core import Tensor, array_of, wrap
from .dispatch import composed, export

CPU: Final = (1, 0)
"""DLPack's name of the processor's memory, (device type, number)."""
CUDA: Final = 2
"""DLPack's number of the type of CUDA's devices."""


@composed(function=False)
def __dlpack__(
    self: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A DLPack capsule with the memory of this tensor, which it keeps alive. Does not block.

    It follows the array API. Memory that is read-only here is exported as such, or not at all.

    Args:
        stream: on a GPU the receiver's stream, which waits for the current one, as the array API numbers it; None: the
            default stream; -1: nothing waits. A processor has no streams.
        max_version: the newest version that the receiver understands; None: one before 1.
        dl_device: None, or where the tensor is.
        copy: True: the capsule has memory of its own. A copy is never needed, so None and False are the same.

    Raises:
        BufferError: another device; negative strides; read-only memory for a receiver before version 1; a dtype that
            DLPack does not have.
        InvalidArgument: a stream, or not a version.
        MemoryError: no memory for the copy.
    """
    if is_device_array(self._array):
        integrate()
        on_gpu: Any = (self.clone() if copy else self)._live()
        how: Any = {} if max_version is None else {"max_version": max_version}
        load("gpu.memory").lend(on_gpu, stream)
        return on_gpu.__dlpack__(stream=stream, **how)
    if stream is not None:
        raise InvalidArgument(f"stream {stream!r} was given for a tensor in the processor's memory; leave it out")
    if dl_device is not None and dl_device != CPU:
        raise BufferError(f"asked to export to DLPack device {dl_device!r}; tensors are on {CPU}: leave dl_device out")
    integrate()  # so that torch keeps the kind of the memory
    array = self.clone()._array if copy else self._live()
    if any(stride < 0 for stride in array.strides):
        raise BufferError(f"a tensor whose strides {array.strides} are negative, which crashes torch; export a clone()")
    try:
        versioned = max_version is not None and max_version[0] >= 1
    except (IndexError, TypeError):
        raise InvalidArgument(f"max_version {max_version!r} is not a version; give two integers, as (1, 0)") from None
    return _native.dlpack_export(array, versioned, bool(copy))


@composed(function=False)
def __dlpack_device__(self: Tensor) -> tuple[int, int]:
    """DLPack's name of where it is: (1, 0) is the processor's memory, (2, n) that of GPU n. Does not block."""
    array: Any = self._array
    return (CUDA, int(array.device.id)) if is_device_array(array) else CPU


@composed(method=False)
def to_dlpack(input: Tensor) -> Any:
    """A DLPack capsule with the memory of a tensor, of the version before 1. Raises as `__dlpack__`, and DTypeError."""
    array_of(input)
    return __dlpack__(input)


@composed(method=False)
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of an array of another library, which it keeps alive. Does not block.

    Memory of a shared tensor that was exported and comes back is recognized: the tensor is shared. Memory that the
    other library marked read-only is read-only here.

    Args:
        ext_tensor: anything with `__dlpack__` (an array of NumPy, torch, JAX, CuPy ...), or a DLPack capsule, which is
            consumed.
        device: "cpu": the other library copies its data to the host if necessary; None: a tensor where the data is,
            also on a GPU. The current stream waits for that of the other library.
        copy: True: always copy; False and None: never (False refuses what the other library has copied).

    Raises:
        AttributeError: an object without `__dlpack__`.
        BufferError: data on another device, of a type that no tensor has, not aligned, of a later major version of
            DLPack; copy=False for data that was copied.
        DTypeError: a dtype that NumPy has and tensors do not.
        InvalidArgument: a capsule that was consumed before, is not a DLPack capsule, or is inconsistent.
        MemoryError: no memory for the copy.
        Whatever `ext_tensor.__dlpack__` raises.
    """
    wanted = None if device is None else str(device)
    where = getattr(ext_tensor, "__dlpack_device__", None)
    if wanted != "cpu" and where is not None and int(where()[0]) == CUDA and not load("gpu.driver").status():
        integrate()
        made = wrap(load("gpu.arrays").module().from_dlpack(ext_tensor))
        if wanted is not None and wanted not in ("cuda", str(made.device)):
            raise BufferError(f"asked for a tensor on device {wanted!r}; the data is on {made.device}")
        return made.clone() if copy else made
    if wanted is not None and wanted != "cpu":
        raise BufferError(f"asked for a tensor on device {wanted!r}; the data is in the processor's memory: use x.to()")
    integrate()  # as above
    return wrap(_native.dlpack_import(ext_tensor, None if device is None else CPU, copy))


@composed(function=False)
def torch(self: Tensor) -> Any:
    """A torch tensor over the memory of this one, without a copy. Does not block.

    torch does not know read-only memory: a write to memory that is read-only here is a segmentation fault.

    Raises:
        ModuleNotFoundError: torch is not installed.
        BufferError: negative strides; a dtype that torch does not have.
    """
    return load("integrations.torch").to_torch(self)


@composed(method=False)
def from_torch(tensor: Any) -> Tensor:
    """A tensor over the memory of a torch tensor, without a copy, and without its gradients. Does not block.

    It is shared if the memory is shmtensor's.

    Raises:
        ModuleNotFoundError: torch is not installed.
        DTypeError: not a torch tensor, or of a type that tensors do not have.
        BufferError: a tensor on a device, sparse or conjugated.
    """
    return load("integrations.torch").from_torch(tensor)  # type: ignore[no-any-return]


__all__ = export(globals())
