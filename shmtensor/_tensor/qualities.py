"""Properties of tensors: device, type and kind, and whether two are alike; as methods and as functions.

Nothing in this module blocks.
"""

from __future__ import annotations

import inspect
from typing import Any

from .._native import is_device_array
from ..dtypes import BY_DTYPE
from ..errors import InvalidArgument, NotSupported
from ..storage import Storage
from .core import Tensor, array_of, indices_of
from .dispatch import Array, Module, Result, composed, export, operation
from .joining import tile
from .shapes import clone

# -- device ------------------------------------------------------------------------------------------------------------


@composed()
def get_device(input: Tensor) -> int:
    """The number of its GPU; -1: it is in the processor's memory."""
    array: Any = array_of(input)
    return int(array.device.id) if is_device_array(array) else -1


@operation(result=Result.VALUE, function=False, method=False, properties=("is_sparse", "is_quantized"))
def _never(xp: Module, self: Array) -> bool:
    """False: there are only dense tensors of numbers."""
    return False


@operation(result=Result.VALUE, function=False, method=False, properties=("is_cuda",))
def _on_gpu(xp: Module, self: Array) -> bool:
    """Whether it is in the memory of a GPU."""
    return is_device_array(self)


@composed(function=False)
def is_pinned(self: Tensor) -> bool:
    """Whether its memory is page-locked for copies to a GPU."""
    return self.storage().is_pinned()


@composed(function=False)
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """Itself if its memory is pinned or can be, else a copy in pinned memory: `Storage.pin_memory` has the errors."""
    if is_device_array(self._array):
        raise InvalidArgument(f"pin_memory of a tensor on {self.device}; only memory of the host is pinned")
    storage = self.storage()
    if storage.is_pinned() or (storage.is_shared() and storage.pin_memory(device) is storage):
        return self
    whole = clone(self.detach())
    return Tensor._rebuild(whole.storage().pin_memory(), 0, whole.shape, whole.stride(), self.requires_grad)


@operation(result=Result.VALUE, function=False, method=False, properties=("is_cpu",))
def _on_host(xp: Module, self: Array) -> bool:
    """Whether it is in the processor's memory."""
    return not is_device_array(self)


def _elsewhere(name: str) -> None:
    def move(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
        raise NotSupported(
            f"{name}(): shmtensor has tensors on the CPU and on CUDA GPUs; copy it with torch: torch.from_dlpack(x)."
            f"{name}()"
        )

    move.__name__ = move.__qualname__ = name
    move.__doc__ = "Always raises NotSupported: tensors are on the CPU or on CUDA GPUs."
    composed(function=False)(move)


for _name in ("xpu", "ipu"):
    _elsewhere(_name)


# -- type --------------------------------------------------------------------------------------------------------------


@composed()
def is_conj(input: Tensor) -> bool:
    """False: no tensor is conjugated lazily."""
    return False


@composed()
def is_neg(input: Tensor) -> bool:
    """False: no tensor is negated lazily."""
    return False


@composed()
def is_inference(input: Tensor) -> bool:
    """False: tensors made in `inference_mode` are ordinary ones."""
    return False


@composed(method=False)
def typename(obj: Any) -> str:
    """The name of an object's class with its module; of a tensor, that of its class: "shmtensor.FloatTensor"."""
    if isinstance(obj, Tensor):
        return f"shmtensor.{BY_DTYPE[array_of(obj).dtype].prefix}Tensor"
    kind = obj if inspect.isclass(obj) else obj.__class__
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


@composed(method=False)
def is_storage(obj: Any) -> bool:
    """Whether a value is a storage."""
    return isinstance(obj, Storage)


@composed(function=False)
def ndimension(self: Tensor) -> int:
    """Number of axes."""
    return self.dim()


@composed(method=False)
def numel(input: Tensor) -> int:
    """Number of elements."""
    return int(array_of(input).size)


@composed(function=False)
def storage_type(self: Tensor) -> Any:
    """The class of its storage."""
    return type(self.storage())


# -- two tensors -------------------------------------------------------------------------------------------------------


@composed(function=False)
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same view of the same storage: offset, sizes, strides and type."""
    array_of(tensor)
    same = self.storage() is tensor.storage() and self.storage_offset() == tensor.storage_offset()
    return same and (self.shape, self.stride(), self.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)


@composed(function=False)
def untyped_storage(self: Tensor) -> Storage:
    """The bytes of its storage, as `storage().untyped()`: a ByteStorage over all of it, which moves with it."""
    return self.storage().untyped()


# -- others ------------------------------------------------------------------------------------------------------------


@composed(function=False)
def repeat(self: Tensor, *repeats: Any) -> Tensor:
    """The tensor repeated along each axis; additional numbers add axes in front. A copy.

    Raises InvalidArgument: fewer numbers than axes, or negative ones.
    """
    times = indices_of(repeats[0] if len(repeats) == 1 and isinstance(repeats[0], list | tuple) else repeats)
    if len(times) < self.dim():
        raise InvalidArgument(f"repeat {times} times of a tensor of shape {self.shape}; give a number for each axis")
    return tile(self, times) if times else clone(self)


@composed(function=False)
def copy(self: Tensor) -> Tensor:
    """`clone()`, under NumPy's name."""
    return clone(self)


@composed(method=False)
def fill(input: Tensor, value: Any) -> Tensor:
    """A copy with every element set to a number. Raises as fill_ does."""
    return clone(input).fill_(value)


@composed(function=False)
def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Set whether gradients are recorded for computations with it; returns self.

    Raises DTypeError: True, for integers; GradientError: False, for the result of an operation.
    """
    self.requires_grad = requires_grad
    return self


__all__ = export(globals())
