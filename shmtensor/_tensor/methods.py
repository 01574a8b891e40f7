"""Methods of tensors: `x.add(y)`, `x.add_(y)`, `x + y`, `x.sum(dim)`.

This module installs the methods of all rows, and defines those that are not functions. Nothing in it blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import DTypeError, tensor_advice, type_name
from ..linalg import routines as routines  # these have rows
from ..random import counts as counts
from ..random import distributions as distributions
from ..random import sampling as sampling
from ..storage import Storage
from ..storage.arguments import array_from, shape_from
from . import activations as activations  # these have rows
from . import arithmetic as arithmetic
from . import bounds as bounds
from . import combining as combining
from . import complex_parts as complex_parts
from . import conversions as conversions
from . import convolutions as convolutions
from . import copies as copies
from . import distances as distances
from . import dlpack as dlpack
from . import elementwise
from . import histograms as histograms
from . import in_place as in_place
from . import indexing as indexing
from . import inspection as inspection
from . import integration as integration
from . import joining as joining
from . import layouts as layouts
from . import logarithms as logarithms
from . import low_rank as low_rank
from . import mapping as mapping
from . import nan_statistics as nan_statistics
from . import numpy_protocols as numpy_protocols
from . import parts as parts
from . import products as products
from . import qualities as qualities
from . import ranges as ranges
from . import scattering as scattering
from . import selection as selection
from . import shapes as shapes
from . import sorting as sorting
from . import special as special
from . import spectrograms as spectrograms
from . import spread as spread
from . import statistical as statistical
from . import to_size as to_size
from . import uniques as uniques
from . import windows as windows
from .core import Tensor as Tensor
from .core import index_of, indices_of
from .dispatch import ROWS, Array, Module, Result, composed, export, operation

# -- methods alone -----------------------------------------------------------------------------------------------------


@composed(function=False)
def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Be a view of another storage (all of it, unless sizes are given), or what another tensor is; returns self.

    Without arguments an empty tensor. Raises InvalidArgument: it would reach beyond the storage.
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


@composed(function=False)
def resize_(self: Tensor, *sizes: Any) -> Tensor:
    """Take other sizes, dense, from the first element on; the storage grows when it must; returns self.

    New elements are arbitrary. Raises InvalidArgument: the storage cannot grow (shared, for one).
    """
    shape, nbytes = shape_from(sizes, self._array.itemsize)
    storage, offset = self.storage(), self.storage_offset()
    needed = offset * self._array.itemsize + nbytes
    if needed > storage.nbytes:
        storage.resize_(-(-needed // storage.element_size()))
    other = Tensor._rebuild(storage, offset, shape, _dense(shape), dtype=self._array.dtype)
    self._array, self._epoch = other._array, other._epoch
    return self


@composed(function=False)
def resize_as_(input: Tensor, the_template: Tensor) -> Tensor:
    """`resize_` to the sizes of another tensor; returns self. Raises as resize_ does."""
    return resize_(input, the_template.shape)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(shape[i + 1], 1)
    return tuple(strides)


@composed(function=False)
def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Say that gradients are not recorded; returns self. Raises NotSupported: True."""
    self.requires_grad = requires_grad
    return self


@operation(result=Result.SAME, function=False, fails="writing to")
def apply_(xp: Module, self: Array, function: Callable[[Any], Any]) -> Array:
    """Put `function(element)` in the place of each element; returns self. As slow as Python."""
    if not callable(function):
        raise DTypeError(f"apply_ of {function!r}; give a function of one element")
    values = array_from([function(value) for value in self.reshape(-1).tolist()], self.dtype)
    xp.copyto(self, values.reshape(self.shape), casting="unsafe")


@composed()
def addcmul(input: Tensor, tensor1: Any, tensor2: Any, *, value: float = 1, out: Any = None) -> Tensor:
    """`input + value * tensor1 * tensor2`. Raises InvalidArgument: shapes."""
    return elementwise.add(input, elementwise.multiply(elementwise.multiply(tensor1, tensor2), value), out=out)


@composed()
def addcdiv(input: Tensor, tensor1: Any, tensor2: Any, *, value: float = 1, out: Any = None) -> Tensor:
    """`input + value * tensor1 / tensor2`. Raises InvalidArgument: shapes."""
    return elementwise.add(input, elementwise.multiply(elementwise.divide(tensor1, tensor2), value), out=out)


@composed(function=False)
def where(self: Tensor, condition: Any, other: Any) -> Tensor:
    """Its elements where a condition is true, those of `other` elsewhere. Raises InvalidArgument, DTypeError."""
    return selection.where(condition, self, other)  # type: ignore[no-any-return]


@composed(function=False)
def index_add_atomic_(self: Tensor, dim: int, index: Any, source: Tensor, alpha: float = 1) -> Tensor:
    """`atomics.index_add_atomic_` on this tensor; returns self. Raises as that function does."""
    from ..atomics import index_add_atomic_

    return index_add_atomic_(self, dim, index, source, alpha)


@composed(function=False)
def addcmul_(self: Tensor, tensor1: Any, tensor2: Any, *, value: float = 1) -> Tensor:
    """`addcmul` in place; returns self. Raises InvalidArgument: shapes."""
    return elementwise.add(self, elementwise.multiply(elementwise.multiply(tensor1, tensor2), value), out=self)


@composed(function=False)
def addcdiv_(self: Tensor, tensor1: Any, tensor2: Any, *, value: float = 1) -> Tensor:
    """`addcdiv` in place; returns self. Raises InvalidArgument: shapes."""
    return elementwise.add(self, elementwise.multiply(elementwise.divide(tensor1, tensor2), value), out=self)


# -- installed ---------------------------------------------------------------------------------------------------------


def table() -> dict[str, Callable[..., Any]]:
    """Every method that is installed, by its name."""
    return {name: method for row in ROWS for name, method in row.methods.items()}


for _name, _method in table().items():
    setattr(Tensor, _name, _method)
for _one in ROWS:
    for _name, _value in _one.properties.items():
        setattr(Tensor, _name, property(_value, doc=_one.doc))

__all__ = export(globals())
