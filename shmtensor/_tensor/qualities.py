"""What a tensor is: its device, type and kind, and whether two are alike; and functions of methods that ask for these.

Nothing in this module blocks.
"""

from __future__ import annotations

import inspect
from typing import Any

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
    """The number of its device: -1, for the CPU has none."""
    array_of(input)
    return -1


@operation(result=Result.VALUE, function=False, method=False, properties=("is_cuda", "is_sparse", "is_quantized"))
def _never(xp: Module, self: Array) -> bool:
    """False: there are only dense tensors of numbers in the memory of the CPU."""
    return False


@composed(function=False)
def is_pinned(self: Tensor) -> bool:
    """False: memory is not pinned for a GPU."""
    return False


@operation(result=Result.VALUE, function=False, method=False, properties=("is_cpu",))
def _always(xp: Module, self: Array) -> bool:
    """True: tensors are in the memory of the CPU."""
    return True


def _elsewhere(name: str) -> None:
    def move(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
        raise NotSupported(
            f"{name}(): this is shmtensor for the CPU; have torch copy it: torch.from_dlpack(x).{name}()"
        )

    move.__name__ = move.__qualname__ = name
    move.__doc__ = f"Raises NotSupported: this version has tensors on the CPU only, not for {name}."
    composed(function=False)(move)


for _name in ("cuda", "xpu", "ipu", "pin_memory"):
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
    """False: tensors made in `inference_mode` are as others."""
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
    """The bytes of its storage, as `storage().untyped()`: a ByteStorage over all of it, that is moved with it."""
    return self.storage().untyped()


# -- others ------------------------------------------------------------------------------------------------------------


@composed(function=False)
def repeat(self: Tensor, *repeats: Any) -> Tensor:
    """The tensor so many times along each axis; more numbers than axes give new axes, first. A copy.

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
    """Say whether gradients are recorded of what is computed with it; returns self.

    Raises DTypeError: True, for integers; GradientError: False, for the result of an operation.
    """
    self.requires_grad = requires_grad
    return self


__all__ = export(globals())
