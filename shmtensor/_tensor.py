"""Tensor: a view of a storage by offset, sizes and strides; NumPy does the arithmetic.

(The module has an underscore because `shmtensor.tensor` is the function that makes one, as in torch.)

A tensor holds the ndarray that is its view (`_array`) and, once something asks for it, the Storage. Tensors that NumPy
computed have no Storage object until then, which keeps arithmetic close to NumPy's own speed.

Type promotion, broadcasting and rounding are NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from . import operators
from .conversion import INTEGERS, SEQUENCES, array_from, empty_array, integer, refused, shape_from, view_shape
from .dtypes import BY_DTYPE, DEFAULT, DType, ElementType, class_named, dtype_of, each_type, require_supported
from .errors import DTypeError, IndexOutOfRange, InvalidArgument, LayoutError
from .memory import address_of, moving
from .storage import Storage, storage_of

SETTLED: Final = -1
_new = object.__new__
_ndarray = np.ndarray


class Tensor(operators.Operators):
    """A view of a storage. A bare Tensor is of float32.

    `Tensor(2, 3)` has these sizes and arbitrary content; `Tensor([[1, 2], [3, 4]])` has these values; `Tensor(storage)`
    is all of a storage, of the storage's type (the constructors of torch).

    Raises:
        InvalidArgument: sizes that are negative or impossible.
        DTypeError: values that do not convert, or (of a typed class) a storage of another type.
        OutOfMemory: no memory for it.
    """

    __slots__ = ("__weakref__", "_array", "_epoch", "_storage", "requires_grad")

    # Operators of an ndarray on the left leave the work to ours.
    __array_priority__ = 1000

    _array: NDArray[Any]  # the view; current while _epoch is the storage's
    _storage: Storage | None
    _epoch: int  # of the storage when _array was taken; SETTLED: it lies in a shared block, which never moves
    requires_grad: bool
    """Whether autograd records what happens to it."""

    def __new__(cls, *content: Any) -> Self:
        return cls._construct(content, None)

    @classmethod
    def _construct(cls, content: tuple[Any, ...], dtype: DType | None) -> Self:
        self = _new(cls)
        self.requires_grad = False
        self._storage = None
        self._epoch = 0
        first = content[0] if len(content) == 1 else None
        if isinstance(first, Storage):
            if dtype is not None and first.dtype != dtype:
                raise DTypeError(
                    f"a tensor of {dtype.name} was asked for over a {type(first).__name__} ({first.dtype.name}); "
                    f"use {BY_DTYPE[first.dtype].prefix}Tensor, or convert the values"
                )
            self._storage = first
            self._epoch = first._epoch
            self._array = first._flat
        elif first is None or isinstance(first, INTEGERS):
            shape, _ = shape_from(content or (0,), (dtype or DEFAULT).itemsize)
            self._array = empty_array(shape, dtype or DEFAULT)
        else:
            self._array = array_from(first, dtype or DEFAULT)
        return self

    # -- the view -----------------------------------------------------------------------------------------------------

    def _follow(self) -> NDArray[Any]:
        """Take the view again after the storage has moved."""
        storage = self._storage
        assert storage is not None
        with moving:
            old = self._array
            flat = storage._flat
            if self._epoch != storage._epoch:
                assert storage._bases is not None
                offset = address_of(old) - storage._bases[self._epoch]
                try:
                    self._array = np.ndarray(old.shape, old.dtype, flat, offset, old.strides)
                except (TypeError, ValueError) as error:
                    raise InvalidArgument(
                        f"a tensor of shape {old.shape} at byte {offset} reaches beyond its storage, which was resized "
                        f"to {flat.size} elements; resize the storage again, or make a new tensor"
                    ) from error
                self._epoch = storage._epoch
            return self._array

    def _live(self) -> NDArray[Any]:
        """The view, over the memory where the storage is now."""
        storage = self._storage
        if storage is None or storage._epoch == self._epoch:
            return self._array
        return self._follow()

    def storage(self) -> Storage:
        """The storage; the same object for all tensors on it. Does not block."""
        storage = self._storage
        if storage is None:
            with moving:  # two threads must not make two
                storage = self._storage
                if storage is None:
                    storage = storage_of(self._array)
                    self._epoch = storage._epoch
                    self._storage = storage
        return storage

    def _share(self, array: NDArray[Any]) -> Tensor:
        """A tensor on this one's storage with the view `array`."""
        storage = self._storage or self.storage()
        t = _new(Tensor)
        t._array = array
        t._storage = storage
        t._epoch = self._epoch
        t.requires_grad = False
        return t

    def _parts(self) -> tuple[Storage, int, tuple[int, ...], tuple[int, ...], bool]:
        """(storage that owns the memory, offset, size, stride, requires_grad): what a pickle of a tensor holds."""
        storage, first = self.storage()._root()
        return storage, first + self.storage_offset(), self.shape, self.stride(), self.requires_grad

    @staticmethod
    def _rebuild(
        storage: Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], requires_grad: bool = False
    ) -> Tensor:
        """A tensor on `storage` from what `_parts` gives. Does not block.

        Args:
            offset: first element in the storage.
            size, stride: in elements, one for each axis.

        Raises:
            InvalidArgument: it would reach beyond the storage.
        """
        dtype = storage.dtype
        width = dtype.itemsize
        t = _new(Tensor)
        t._epoch = storage._epoch
        flat = storage._flat
        if len(size) != len(stride) or offset < 0:
            raise InvalidArgument(f"offset {offset}, size {size} and stride {stride} describe no tensor")
        try:
            t._array = np.ndarray(size, dtype, flat, offset * width, tuple(s * width for s in stride))
        except (OverflowError, TypeError, ValueError) as error:
            raise InvalidArgument(
                f"offset {offset}, size {size} and stride {stride} reach beyond a storage of {flat.size} elements"
            ) from error
        t._storage = storage
        t.requires_grad = requires_grad
        return t

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self._array.shape

    def size(self, dim: int | None = None) -> Any:
        """Sizes of all axes, or of one. Does not block. Raises IndexOutOfRange."""
        return self._array.shape if dim is None else self._array.shape[self._axis(dim)]

    def stride(self, dim: int | None = None) -> Any:
        """Steps of all axes in elements, or of one. Does not block. Raises IndexOutOfRange."""
        array = self._array
        strides = tuple(s // array.itemsize for s in array.strides)
        return strides if dim is None else strides[self._axis(dim)]

    def storage_offset(self) -> int:
        """First element in the storage. Does not block."""
        storage = self.storage()
        array = self._live()
        return (address_of(array) - address_of(storage._flat)) // array.itemsize if array.size else 0

    def dim(self) -> int:
        """Number of axes. Does not block."""
        return self._array.ndim

    ndim = property(dim)

    def numel(self) -> int:
        """Number of elements. Does not block."""
        return self._array.size

    nelement = numel

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self._array.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._array.nbytes

    def element_size(self) -> int:
        """Bytes of one element. Does not block."""
        return self._array.itemsize

    def data_ptr(self) -> int:
        """Address of the first element in this process. Does not block."""
        return address_of(self._live())

    def is_contiguous(self) -> bool:
        """Whether the elements lie in order, without gaps. Does not block."""
        return self._array.flags.c_contiguous

    def is_shared(self) -> bool:
        """Whether other processes can have this memory. Does not block."""
        return self.storage().is_shared()

    def share_memory_(self, *, readonly: bool = False, copy_on_write: bool = False) -> Self:
        """Move the whole storage into shared memory; gives self. See Storage.share_memory_ for the arguments."""
        self.storage().share_memory_(readonly=readonly, copy_on_write=copy_on_write)
        self._live()
        return self

    def _axis(self, dim: Any) -> int:
        ndim = self._array.ndim
        if type(dim) is int and 0 <= dim < ndim:
            return dim
        if not isinstance(dim, INTEGERS) or not -ndim <= dim < ndim:
            raise IndexOutOfRange(
                f"asked for axis {dim!r} of a tensor of shape {self.shape}; use {-ndim} to {ndim - 1}"
            )
        return int(dim) % ndim

    def __repr__(self) -> str:
        array = self._live()
        values = np.array2string(array, separator=", ", prefix="tensor(", threshold=1000)
        grad = ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({values}, shape={self.shape}, dtype={array.dtype.name}, memory={self.storage()._place()}{grad})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self._array.size == 1 else str(self)

    # -- to NumPy and Python ------------------------------------------------------------------------------------------

    def numpy(self) -> NDArray[Any]:
        """An ndarray over the same memory, which it keeps alive. Does not block.

        It does not follow when the storage moves (`share_memory_`, `resize_`): take it after that.
        """
        return self._live().view()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._live().view(), dtype=dtype, copy=copy)  # the object itself stays ours

    def item(self) -> Any:
        """The only element as a Python value. Does not block. Raises InvalidArgument when there is not exactly one."""
        if self._array.size != 1:
            raise InvalidArgument(f"item() of a tensor of shape {self.shape}; index one element, or use tolist()")
        return self._live().item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python values. Does not block."""
        return self._live().tolist()

    def __bool__(self) -> bool:
        if self._array.size != 1:
            raise InvalidArgument(f"truth of a tensor of shape {self.shape} is ambiguous; use any or all of its values")
        return bool(self._live().item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self._array.dtype.kind not in "iub" or self._array.ndim:
            raise DTypeError(f"a tensor of {self.dtype.name} and shape {self.shape} is no index; use an integer scalar")
        return int(self.item())

    def __len__(self) -> int:
        if not self._array.ndim:
            raise DTypeError("len() of a tensor without axes; use numel()")
        return len(self._array)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return bool(self.eq(value)._array.any())

    # -- views --------------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Tensor:
        """Basic indexing gives a view (a tensor without axes for one element), indexing by arrays a copy, as in NumPy.

        Does not block.

        Raises:
            IndexOutOfRange: no such element.
            InvalidArgument: a step that is negative; a key that is no index.
        """
        storage = self._storage
        a = self._array if storage is None or storage._epoch == self._epoch else self._follow()
        kind = type(key)
        if kind is not int and kind is not slice:
            key = index_key(key)
        try:
            v = a[key]
            if type(v) is not _ndarray:  # NumPy made a scalar; a view without axes is wanted
                v = a[(*key, ...)] if type(key) is tuple else a[key, ...]
        except IndexError as error:
            raise IndexOutOfRange(f"index {key!r} of a tensor of shape {a.shape}: {error}") from error
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"index {key!r} of a tensor of shape {a.shape}: {error}") from error
        base = v.base
        if base is not a and (base is None or base is not a.base):
            return wrap(v)
        if kind is not int:
            for stride in v.strides:
                if stride < 0:
                    raise InvalidArgument(f"index {key!r} has a negative step; tensors have none: copy through numpy()")
        if storage is None and self._epoch != SETTLED:  # this and the view must follow the same one
            storage = self.storage()
        t = _new(Tensor)
        t._array = v
        t._storage = storage
        t._epoch = self._epoch
        t.requires_grad = False
        return t

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write a value, sequence, array or tensor to what `key` selects, broadcasting. Does not block.

        Raises:
            IndexOutOfRange: no such element.
            InvalidArgument: shapes that do not go together, or a value outside the range of the type.
            DTypeError: a value that is no number.
        """
        a = self._live()
        if type(key) is not int and type(key) is not slice:
            key = index_key(key)
        try:
            a[key] = value._live() if isinstance(value, Tensor) else value
        except IndexError as error:
            raise IndexOutOfRange(f"index {key!r} of a tensor of shape {a.shape}: {error}") from error
        except (OverflowError, TypeError, ValueError) as error:
            raise refused(error, f"writing to index {key!r} of", a) from error

    def view(self, *shape: Any) -> Tensor:
        """The same memory with other sizes; one of them may be -1, which means what is left. Does not block.

        Raises:
            InvalidArgument: another number of elements.
            LayoutError: the memory's layout has no such view; use reshape, which may copy.
        """
        storage = self._storage
        a = self._array if storage is None or storage._epoch == self._epoch else self._follow()
        sizes = view_shape(shape, a)
        if a.flags.c_contiguous:
            return self._share(a.reshape(sizes))
        try:
            return self._share(a.reshape(sizes, copy=False))
        except ValueError as error:
            raise LayoutError(
                f"a tensor of shape {a.shape} and strides {self.stride()} has no view of shape {sizes}; use reshape"
            ) from error

    def reshape(self, *shape: Any) -> Tensor:
        """`view` where the layout has one, else a copy with these sizes. Does not block.

        Raises:
            InvalidArgument: another number of elements.
        """
        a = self._live()
        sizes = view_shape(shape, a)
        result = a.reshape(sizes)
        return self._share(result) if a.flags.c_contiguous or np.may_share_memory(result, a) else wrap(result)

    def narrow(self, dim: int, start: int, length: int) -> Tensor:
        """The view of `length` steps from `start` along an axis. Does not block.

        Raises:
            IndexOutOfRange: no such axis or range.
        """
        axis = self._axis(dim)
        have = self._array.shape[axis]
        start, length = index_of(start), index_of(length)
        if start < 0:
            start += have
        if not 0 <= start <= have or not 0 <= length <= have - start:
            raise IndexOutOfRange(f"asked for {length} steps from {start} of axis {dim}, which has {have}")
        part = slice(start, start + length)
        return self._share(self._live()[(slice(None),) * axis + (part,) if axis else part])

    def select(self, dim: int, index: int) -> Tensor:
        """The view at one index of an axis, which is gone from it. Does not block. Raises IndexOutOfRange."""
        axis = self._axis(dim)
        have = self._array.shape[axis]
        if type(index) is not int:
            index = index_of(index)
        if not -have <= index < have:
            raise IndexOutOfRange(f"asked for index {index} of axis {dim}, which has {have}")
        return self._share(self._live()[(slice(None),) * axis + (index, ...)])

    def transpose(self, dim0: int, dim1: int) -> Tensor:
        """The view with two axes exchanged. Does not block. Raises IndexOutOfRange."""
        return self._share(self._live().swapaxes(self._axis(dim0), self._axis(dim1)))

    def t(self) -> Tensor:
        """The transpose of a matrix; a tensor of fewer axes as it is. Does not block. Raises InvalidArgument."""
        if self._array.ndim > 2:
            raise InvalidArgument(f"t() of a tensor of shape {self.shape}; it takes at most two axes: use transpose")
        return self._share(self._live().T)

    def contiguous(self) -> Tensor:
        """Itself when contiguous, else a copy that is. Does not block."""
        return self if self.is_contiguous() else wrap(np.ascontiguousarray(self._live()))

    def clone(self) -> Tensor:
        """A copy on the heap with a storage of its own. Does not block."""
        return wrap(self._live().copy())

    def to(self, dtype: Any) -> Tensor:
        """Itself when of this type, else a copy converted to it. Does not block. Raises DTypeError."""
        wanted = dtype_of(dtype)
        return self if wanted == self._array.dtype else wrap(self._live().astype(wanted))

    # -- by value -----------------------------------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """By value, with the whole storage; tensors on one storage pickled together share one afterwards."""
        return Tensor._rebuild, self._parts()

    def __copy__(self) -> Tensor:
        copy = self.clone()
        copy.requires_grad = self.requires_grad
        return copy

    # -- changing it --------------------------------------------------------------------------------------------------

    def fill_(self, value: Any) -> Self:
        """Set every element; gives self. Does not block. Raises InvalidArgument, DTypeError as assignment does."""
        self[...] = value
        return self

    def zero_(self) -> Self:
        """Set every element to 0; gives self. Does not block. Raises LayoutError where the memory is read-only."""
        return self.fill_(0)

    def copy_(self, source: Any) -> Self:
        """Copy values, broadcasting and converting their type; gives self. Does not block.

        Raises:
            InvalidArgument: shapes that do not go together.
            DTypeError: values that are no numbers.
        """
        a = self._live()
        values = source._live() if isinstance(source, Tensor) else array_from(source, None)
        try:
            np.copyto(a, values, casting="unsafe")
        except ValueError as error:
            raise refused(error, f"copying a tensor of shape {values.shape} to", a) from error
        return self

    def index_add_atomic_(self, dim: int, index: Any, source: Tensor, alpha: float = 1) -> Tensor:
        """`atomics.index_add_atomic_` on this tensor; gives self. Does not block. Raises as that does."""
        from .atomics import index_add_atomic_

        return index_add_atomic_(self, dim, index, source, alpha)

    # -- reductions ---------------------------------------------------------------------------------------------------

    def sum(self, dim: Any = None, keepdim: bool = False, **numpys: Any) -> Tensor:
        """Sum over all axes or some. Does not block. Raises IndexOutOfRange."""
        return self._reduce(np.add.reduce, dim, keepdim, **numpys)

    def mean(self, dim: Any = None, keepdim: bool = False, **numpys: Any) -> Tensor:
        """Mean over all axes or some. Does not block. Raises IndexOutOfRange."""
        return self._reduce(np.mean, dim, keepdim, **numpys)

    def min(self, dim: Any = None, keepdim: bool = False, **numpys: Any) -> Tensor:
        """Smallest value over all axes or some. Does not block. Raises IndexOutOfRange, InvalidArgument if empty."""
        return self._reduce(np.min, dim, keepdim, **numpys)

    def max(self, dim: Any = None, keepdim: bool = False, **numpys: Any) -> Tensor:
        """Largest value over all axes or some. Does not block. Raises IndexOutOfRange, InvalidArgument if empty."""
        return self._reduce(np.max, dim, keepdim, **numpys)

    def argmax(self, dim: int | None = None) -> Tensor:
        """Index of the largest value, flat or along an axis. Does not block. Raises as max."""
        return self._reduce(np.argmax, dim, False)

    def argmin(self, dim: int | None = None) -> Tensor:
        """Index of the smallest value, flat or along an axis. Does not block. Raises as min."""
        return self._reduce(np.argmin, dim, False)

    def all(self, dim: Any = None, keepdim: bool = False, **numpys: Any) -> Tensor:
        """Whether every value is true. Does not block. Raises IndexOutOfRange."""
        return self._reduce(np.all, dim, keepdim, **numpys)

    def any(self, dim: Any = None, keepdim: bool = False, **numpys: Any) -> Tensor:
        """Whether some value is true. Does not block. Raises IndexOutOfRange."""
        return self._reduce(np.any, dim, keepdim, **numpys)

    def _reduce(self, function: Callable[..., Any], dim: Any, keepdim: bool, **numpys: Any) -> Tensor:
        # `numpy.sum(tensor)` and its kin call the method of that name with NumPy's own keywords (axis, out, dtype).
        a = self._live()
        dim = numpys.pop("axis", dim)
        if dim is not None:
            dim = tuple(self._axis(d) for d in dim) if isinstance(dim, SEQUENCES) else self._axis(dim)
        try:
            return wrap(function(a, axis=dim, **{"keepdims": keepdim, **numpys}))
        except ValueError as error:
            raise refused(error, "reducing", a) from error

    __hash__ = object.__hash__  # comparison is by element


def wrap(array: Any) -> Tensor:
    """A tensor of what NumPy gave: an array of its own, or a scalar. Does not block. Raises DTypeError."""
    t = _new(Tensor)
    t._array = array if type(array) is _ndarray else np.asarray(array)
    t._storage = None
    t._epoch = 0
    t.requires_grad = False
    if t._array.dtype not in BY_DTYPE:
        require_supported(t._array.dtype)
    return t


def index_of(value: Any) -> int:
    """An integer, of whatever class. Raises InvalidArgument."""
    try:
        return integer(value)
    except TypeError:
        raise InvalidArgument(f"index {value!r} is not an integer; give one") from None


def index_key(key: Any) -> Any:
    """An index with its tensors as arrays."""
    if isinstance(key, tuple):
        return tuple([part._live() if isinstance(part, Tensor) else part for part in key])
    if isinstance(key, Tensor):
        return key._live()
    return key


operators.install(Tensor)


# -- typed classes, one for each row of the table ---------------------------------------------------------------------


class TypedTensor(type):
    """Class of FloatTensor and its kin: calling one makes a Tensor of its type; such tensors are instances of it."""

    _dtype: DType

    def __call__(cls, *content: Any) -> Any:
        return Tensor._construct(content, cls._dtype)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.dtype == cls._dtype


TENSOR_CLASSES: Final[dict[DType, type[Tensor]]] = {}
"""The class for each type that is there."""


def _make_class(row: ElementType) -> None:
    name = f"{row.prefix}Tensor"
    doc = f"Tensor of {row.name} elements. A tensor is an instance of it when its elements are of that type."
    body = {"__slots__": (), "__module__": __name__, "__qualname__": name, "__doc__": doc, "_dtype": row.dtype}
    globals()[name] = TENSOR_CLASSES[row.dtype] = TypedTensor(name, (Tensor,), body)  # type: ignore[assignment]


each_type(_make_class)


# fmt: off
if TYPE_CHECKING:  # checkers see no generated classes: one line for each row
    class ByteTensor(Tensor): ...
    class CharTensor(Tensor): ...
    class ShortTensor(Tensor): ...
    class IntTensor(Tensor): ...
    class LongTensor(Tensor): ...
    class HalfTensor(Tensor): ...
    class FloatTensor(Tensor): ...
    class DoubleTensor(Tensor): ...
    class BoolTensor(Tensor): ...
    class UInt16Tensor(Tensor): ...
    class UInt32Tensor(Tensor): ...
    class UInt64Tensor(Tensor): ...
    class ComplexFloatTensor(Tensor): ...
    class ComplexDoubleTensor(Tensor): ...
    class BFloat16Tensor(Tensor): ...
    class Float8E4M3Tensor(Tensor): ...
    class Float8E5M2Tensor(Tensor): ...
# fmt: on
else:

    def __getattr__(name):
        return class_named(globals(), name, "Tensor")
