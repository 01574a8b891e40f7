"""Functions of the tensor layer as methods: what `x.add(y)`, `x.add_(y)`, `x + y` and `x.sum(dim)` mean.

A function whose first argument is the tensor is a method as it is. What differs between a function and its method, or
is a method alone, stands here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..dtypes import TABLE, ElementType
from ..errors import DTypeError, tensor_advice, type_name
from ..linalg import routines
from ..random import distributions, sampling
from ..storage import Storage
from ..storage.arguments import array_from, shape_from
from . import special as special
from . import (
    dlpack,
    elementwise,
    inspection,
    numpy_protocols,
    products,
    selection,
    shapes,
    sorting,
    statistical,
)
from .core import Tensor as Tensor
from .core import array_of, index_of, indices_of
from .dispatch import ROWS

MODULES: Final = (
    dlpack, distributions, inspection, numpy_protocols, products, routines, sampling, selection, shapes, sorting,
    statistical,
)  # fmt: skip
"""Of each the names in METHODS become methods."""


# -- methods alone -----------------------------------------------------------------------------------------------------


def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Be a view of another storage (all of it, unless sizes are given), or what another tensor is; gives self.

    Without arguments an empty tensor. Does not block. Raises InvalidArgument: it would reach beyond the storage.
    """
    whole = size is None and stride is None and not storage_offset
    if isinstance(source, Tensor) and whole:
        other = source
    elif source is None:
        other = Tensor._construct((0,), self._array.dtype)
    elif isinstance(source, Storage | Tensor):
        storage = source if isinstance(source, Storage) else source.storage()
        first = index_of(storage_offset)
        shape = (len(storage) - first,) if size is None else indices_of(size)
        steps = _dense(shape) if stride is None else indices_of(stride, "strides")
        other = Tensor._rebuild(storage, first, shape, steps)
    else:
        raise DTypeError(f"set_ to a {type_name(source)}; give a storage or a tensor: {tensor_advice(source)}")
    self._array, self._storage, self._epoch = other._live(), other.storage(), other._epoch
    return self


def resize_(self: Tensor, *sizes: Any) -> Tensor:
    """Take other sizes, dense, from the first element on; the storage grows when it must; gives self.

    New elements are arbitrary. Does not block. Raises InvalidArgument: the storage cannot grow (shared, for one).
    """
    shape, nbytes = shape_from(sizes, self._array.itemsize)
    storage, offset = self.storage(), self.storage_offset()
    needed = offset * self._array.itemsize + nbytes
    if needed > storage.nbytes:
        storage.resize_(-(-needed // storage.element_size()))
    other = Tensor._rebuild(storage, offset, shape, _dense(shape), dtype=self._array.dtype)
    self._array, self._epoch = other._array, other._epoch
    return self


def resize_as_(self: Tensor, other: Tensor) -> Tensor:
    """`resize_` to the sizes of another tensor; gives self. Does not block. Raises as resize_ does."""
    return resize_(self, other.shape)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(shape[i + 1], 1)
    return tuple(strides)


def detach(self: Tensor) -> Tensor:
    """A view of the same memory, of which no gradients are recorded. Does not block."""
    return self._share(self._live())


def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Say that gradients are not recorded; returns self. Does not block. Raises NotSupported: True."""
    self.requires_grad = requires_grad
    return self


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """`to` the type of another tensor. Does not block."""
    return self.to(array_of(other).dtype)


def apply_(self: Tensor, function: Callable[[Any], Any]) -> Tensor:
    """Put `function(element)` in the place of each element; gives self. As slow as Python. Does not block."""
    a = array_of(self)
    if not callable(function):
        raise DTypeError(f"apply_ of {function!r}; give a function of one element")
    return self.copy_(array_from([function(value) for value in a.reshape(-1).tolist()], a.dtype).reshape(a.shape))


def addcmul(self: Tensor, tensor1: Any, tensor2: Any, *, value: float = 1) -> Tensor:
    """self + value * tensor1 * tensor2. Does not block. Raises InvalidArgument: shapes."""
    return elementwise.add(self, elementwise.multiply(elementwise.multiply(tensor1, tensor2), value))


def addcdiv(self: Tensor, tensor1: Any, tensor2: Any, *, value: float = 1) -> Tensor:
    """self + value * tensor1 / tensor2. Does not block. Raises InvalidArgument: shapes."""
    return elementwise.add(self, elementwise.multiply(elementwise.divide(tensor1, tensor2), value))


def index_add_atomic_(self: Tensor, dim: int, index: Any, source: Tensor, alpha: float = 1) -> Tensor:
    """`atomics.index_add_atomic_` on this tensor; gives self. Does not block. Raises as that does."""
    from ..atomics import index_add_atomic_

    return index_add_atomic_(self, dim, index, source, alpha)


def addcmul_(self: Tensor, tensor1: Any, tensor2: Any, *, value: float = 1) -> Tensor:
    """`addcmul` in place; gives self. Does not block. Raises InvalidArgument: shapes."""
    return elementwise.add(self, elementwise.multiply(elementwise.multiply(tensor1, tensor2), value), out=self)


def addcdiv_(self: Tensor, tensor1: Any, tensor2: Any, *, value: float = 1) -> Tensor:
    """`addcdiv` in place; gives self. Does not block. Raises InvalidArgument: shapes."""
    return elementwise.add(self, elementwise.multiply(elementwise.divide(tensor1, tensor2), value), out=self)


def _converter(row: ElementType) -> Callable[[Tensor], Tensor]:
    def convert(self: Tensor) -> Tensor:
        return self.to(row.dtype)

    convert.__doc__ = f"`to(shmtensor.{row.name})`: itself when it is {row.name}, else a copy. Does not block."
    return convert


def _new(make: str) -> Callable[..., Tensor]:
    def create(self: Tensor, *content: Any, dtype: Any = None, shared: bool = False) -> Tensor:
        from . import creation

        function: Callable[..., Tensor] = getattr(creation, make)
        return function(*content, dtype=self.dtype if dtype is None else dtype, shared=shared)

    create.__doc__ = f"`shmtensor.{make}`, of this tensor's type unless another is given; blocks and raises as that."
    return create


# -- methods from functions --------------------------------------------------------------------------------------------


def clip_(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """`clip` in place; gives self. Does not block. Raises InvalidArgument."""
    return selection.clip(self, min, max, out=self)


MADE: Final = ("compute", "convert", "create")
"""Names of the functions that are made here, each for one method."""


def table() -> dict[str, Callable[..., Any]]:
    """Every method that `install` makes, by its name. Does not block."""
    found: dict[str, Callable[..., Any]] = {}
    for row in ROWS:
        found.update({name: method for name, method in row.methods.items() if not name.startswith("__")})
    for module in MODULES:
        found.update({name: getattr(module, name) for name in module.METHODS})
    found.update({row.method: _converter(row) for row in TABLE})
    found.update({f"new_{name}": _new(name) for name in ("empty", "full", "ones", "tensor", "zeros")})
    alone = (
        set_, resize_, resize_as_, detach, requires_grad_, type_as, apply_, addcmul, addcmul_, addcdiv, addcdiv_, clip_,
        index_add_atomic_,
        shapes.view, shapes.view_as, shapes.reshape_as, shapes.expand, shapes.expand_as, shapes.permute,
    )  # fmt: skip
    found.update({function.__name__: function for function in alone})
    for name, method in found.items():
        if method.__name__ in MADE:
            method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    found.update(clamp_=clip_, reshape=shapes.reshape_method, flip=shapes.flip_method, tile=shapes.tile_method)
    return found


def operators() -> dict[str, Callable[..., Any]]:
    """Python's operators, by the names of their methods. Does not block."""
    return {
        name: method for row in ROWS for name, method in row.methods.items() if name.startswith("__")
    }


def install() -> None:
    """Make them all methods of Tensor. Does not block."""
    for name, method in {**table(), **operators()}.items():
        setattr(Tensor, name, method)


install()
