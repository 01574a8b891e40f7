"""Tensor: a view of a storage by offset, sizes and strides; NumPy does the arithmetic.

A tensor holds the ndarray that is its view (`_array`) and, once something asks for it, the Storage. Tensors that NumPy
computed have no Storage object until then, which keeps arithmetic close to NumPy's own speed.

This module has the view of a tensor, Python's and NumPy's protocols, and indexing. Operations are in the modules above
(`elementwise`, `shapes`, `statistical`, ...); `methods` makes methods of them. Types are torch's, broadcasting
and rounding NumPy's. Nothing in this module blocks, except `share_memory_`, which may ask the manager for memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from itertools import repeat
from operator import getitem
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from .._loading import load
from .._native import (
    TensorBase,
    count_change,
    is_device_array,
    is_recorded,
    overlaps,
    own_counter,
    set_output,
    share_counter,
)
from .._native import tensor as _tensor
from ..allocators.default import again as allocate_again
from ..allocators.default import out_of_heap
from ..devices import CPU, Device, device_of, of_array
from ..dtypes import (
    BY_DTYPE,
    DTYPES,
    DType,
    ElementType,
    NumpyType,
    class_named,
    default_float,
    dtype_of,
    each_type,
    require_supported,
)
from ..errors import DTypeError, GradientError, IndexOutOfRange, InvalidArgument, tensor_advice, type_name
from ..layouts import Layout, is_ordered, strided
from ..storage import Storage
from ..storage.arguments import INTEGERS, SEQUENCES, array_from, empty_array, integer, is_writable, refused, shape_from
from ..storage.regions import address_of, array_over, moving
from ..storage.storage import storage_of

if TYPE_CHECKING:
    from ._methods import Methods
else:
    Methods = object

SETTLED: Final = -1
_ndarray = np.ndarray


class Shape(tuple[int, ...]):
    """Sizes of all axes, as `x.size()` gives them: a tuple that `Tensor` takes as sizes, where others are values."""

    __slots__ = ()

    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


class Size(int):
    """`tensor.size`: the number of elements; called, the sizes of all axes or of one (the array API's and torch's)."""

    _tensor: Tensor

    def __call__(self, dim: int | None = None) -> Any:
        shape = self._tensor.shape
        return Shape(shape) if dim is None else shape[self._tensor._axis(dim)]

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)  # without the tensor


class Tensor(TensorBase, Methods):
    """A view of a storage. A bare Tensor is of float32.

    `Tensor(2, 3)` and `Tensor(x.size())` have these sizes and arbitrary content; `Tensor([[1, 2], [3, 4]])` has these
    values; `Tensor(storage)` is all of a storage, and `Tensor(x)` shares the memory of a tensor, of their types (the
    constructors of torch).

    Raises:
        InvalidArgument: sizes that are negative or impossible.
        DTypeError: values that do not convert, or (of a typed class) a storage or tensor of another type.
        OutOfMemory: no memory for it.
    """

    __module__ = "shmtensor"  # in pickles, so that a process that loads one imports all methods
    __slots__ = ()  # its attributes are fields of TensorBase, which also frees it

    _array: NDArray[Any]  # the view; current while _epoch is the storage's
    _storage: Storage | None
    _epoch: int  # of the storage when _array was taken; SETTLED: it lies in a shared block, which never moves
    _keeps_gradient: ClassVar[bool] = True  # whether a deepcopy has a copy of `grad`
    _base: Tensor | None  # of a view: its base; None: it was made under no_grad. Not set in others

    def __new__(cls, *content: Any) -> Self:
        return cls._construct(content, None)  # type: ignore[no-any-return]

    @classmethod
    def _construct(cls, content: tuple[Any, ...], dtype: NumpyType | None) -> Any:
        first = content[0] if len(content) == 1 else None
        if isinstance(first, Tensor):
            if dtype is not None and first.dtype != dtype:
                raise DTypeError(
                    f"a tensor of {dtype.name} was asked for over a tensor of {first.dtype.name}; convert it with to()"
                )
            return first._alias()
        self = object.__new__(cls)
        self._storage = None
        self._epoch = 0
        if isinstance(first, Storage):
            if dtype is not None and first.dtype != dtype:
                raise DTypeError(
                    f"a tensor of {dtype.name} was asked for over a {type(first).__name__} ({first.dtype.name}); "
                    f"use {BY_DTYPE[first._dtype].prefix}Tensor, or convert the values"
                )
            self._storage = first
            self._epoch = first._epoch
            self._array = first._flat
        elif first is None or isinstance(first, (*INTEGERS, Shape)):
            dtype = dtype or default_float()
            shape, _ = shape_from(content or (0,), dtype.itemsize)
            self._array = empty_array(shape, dtype)
        else:
            self._array = array_from(first, dtype or default_float())
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
                    self._array = array_over(flat, old.shape, old.dtype, offset, old.strides)
                    if not is_writable(old) and overlaps(old):
                        self._array.flags.writeable = False
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
        """The storage; the same object for all tensors on it."""
        storage = self._storage
        if storage is None:
            with moving:  # two threads must not make two
                storage = self._storage
                if storage is None:
                    storage = storage_of(self._array)
                    self._epoch = storage._epoch
                    self._storage = storage
                    share_counter(self)
        return storage

    def _located(self) -> tuple[NDArray[Any], Storage | None, int]:
        """The view, and the storage and its epoch when the view was taken; another thread may move the storage."""
        while True:
            storage, epoch = self._storage, self._epoch
            array = self._live()
            if self._array is array and self._epoch == epoch:
                return array, storage, epoch

    def _share(self, view: NDArray[Any], array: NDArray[Any], storage: Storage | None, epoch: int) -> Tensor:
        """A tensor on this one's storage with a view of `array`, which lies where `_located` returned."""
        if storage is None:
            storage = self.storage()
            epoch = self._epoch if self._array is array else 0  # if it was moved meanwhile, from its first place
        return _tensor(view, storage, epoch)

    def _alias(self) -> Tensor:
        place = self._located()
        return self._share(place[0][...], *place)

    def _parts(self) -> tuple[Any, ...]:
        """(storage that owns the memory, offset, size, stride, requires_grad): what a pickle of a tensor holds.

        And its type where that is not the storage's.
        """
        root, first = self.storage()._root()
        dtype = self._live().dtype
        offset = first // dtype.itemsize + self.storage_offset()
        if dtype == root.dtype:
            return root, offset, self.shape, self.stride(), self.requires_grad
        return root, offset, self.shape, self.stride(), self.requires_grad, dtype.name

    @staticmethod
    def _rebuild(
        storage: Storage,
        offset: int,
        size: tuple[int, ...],
        stride: tuple[int, ...],
        requires_grad: bool = False,
        dtype: Any = None,
    ) -> Tensor:
        """A tensor on `storage` from the result of `_parts`.

        Args:
            offset: first element in the storage.
            size, stride: in elements, one for each axis.
            dtype: type of the elements, where it is not the storage's.

        Raises:
            InvalidArgument: it would reach beyond the storage.
            DTypeError: requires_grad of integers.
        """
        kind = storage._dtype if dtype is None else dtype_of(dtype)
        width = kind.itemsize
        epoch, flat = storage._epoch, storage._flat
        if len(size) != len(stride) or offset < 0:
            raise InvalidArgument(
                f"offset {offset}, size {size} and stride {stride} do not describe a tensor; "
                "give integers, as many sizes as strides"
            )
        try:
            array = array_over(flat, size, kind, offset * width, tuple(s * width for s in stride))
        except (OverflowError, TypeError, ValueError) as error:
            raise InvalidArgument(
                f"offset {offset}, size {size} and stride {stride} reach beyond a storage of {flat.size} elements: "
                f"{error}"
            ) from error
        if isinstance(array, _ndarray) and not array.flags.c_contiguous and overlaps(array):
            array.flags.writeable = False
        made = _tensor(array, storage, epoch)
        if requires_grad:
            made.requires_grad = True
        return made

    # -- properties ----------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self._array.shape

    @property
    def size(self) -> Size:
        """Number of elements; called, `size()`, sizes of all axes, and `size(dim)` of one (raises IndexOutOfRange)."""
        size = Size(self._array.size)
        size._tensor = self
        return size

    def stride(self, dim: int | None = None) -> Any:
        """Steps of all axes in elements, or of one. Raises IndexOutOfRange."""
        array = self._array
        strides = tuple(s // array.itemsize for s in array.strides)
        return strides if dim is None else strides[self._axis(dim)]

    def storage_offset(self) -> int:
        """First element in the storage."""
        storage = self.storage()
        array = self._live()
        return (address_of(array) - address_of(storage._flat)) // array.itemsize if array.size else 0

    def dim(self) -> int:
        """Number of axes."""
        return self._array.ndim

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._array.ndim

    def numel(self) -> int:
        """Number of elements."""
        return self._array.size

    nelement = numel

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return DTYPES[self._array.dtype]

    @property
    def device(self) -> Device:
        """Where the memory is."""
        array = self._array
        return CPU if type(array) is _ndarray else of_array(array)

    @property
    def layout(self) -> Layout:
        """`shmtensor.strided`."""
        return strided

    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """Itself if it is on that device, else a copy there: `to(device)`, for the array API.

        Raises:
            InvalidArgument: no such device; a stream, though the current one is used.
            DeviceUnavailable: no GPU can be used.
        """
        if stream is not None:
            raise InvalidArgument(f"asked for stream {stream!r}; the current one is used: leave it out")
        return self.to(device_of(device))

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._array.nbytes

    def element_size(self) -> int:
        """Bytes of one element."""
        return self._array.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._array.itemsize

    def data_ptr(self) -> int:
        """Address of the first element in this process."""
        return address_of(self._live())

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the elements lie in order, without gaps; in the order of a memory format, if one is given.

        Raises InvalidArgument: not a memory format.
        """
        if memory_format is not None:
            return is_ordered(self._array, memory_format)
        return self._array.flags.c_contiguous

    def is_shared(self) -> bool:
        """Whether other processes can have this memory."""
        return self.storage().is_shared()

    def share_memory_(self, *, readonly: bool = False, copy_on_write: bool = False) -> Self:
        """Move the whole storage into shared memory; returns self. See Storage.share_memory_ for the arguments."""
        self.storage().share_memory_(readonly=readonly, copy_on_write=copy_on_write)
        self._live()
        return self

    def _axis(self, dim: Any) -> int:
        return axis_of(self._array, dim)

    def __repr__(self) -> str:
        return load("_tensor.printing").text_of(self)  # type: ignore[no-any-return]

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec or not self._array.ndim else str(self)

    # -- to NumPy and Python ------------------------------------------------------------------------------------------

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's description of the memory. The address in it is good until the storage moves, as `data_ptr()` is."""
        array = self._live()
        if not isinstance(array, _ndarray):
            raise AttributeError(f"a tensor on {self.device} has no __array_interface__; copy it to the host: x.cpu()")
        if array.dtype.isbuiltin != 1:  # the protocol has no name for it; NumPy asks __array__ next
            raise AttributeError(f"a tensor of {array.dtype.name} has no __array_interface__; view it as integers")
        return array.__array_interface__

    def tobytes(self) -> bytes:
        """The elements, in order, as bytes of their own."""
        return self._on_host().tobytes()

    def _on_host(self) -> NDArray[Any]:
        """The array in the processor's memory; for a tensor on a GPU a copy. Blocks until that is done."""
        array = self._live()
        return array if isinstance(array, _ndarray) else load("gpu.arrays").to_host(array)

    def _device_item(self, doing: str) -> Any:
        """`item()` of a tensor on a GPU. Blocks until it is computed. Raises InvalidArgument: not one element."""
        if self._array.size != 1:
            self._not_single(doing)
        return self._on_host().item()

    def _refuse_host(self) -> NoReturn:
        """Raise DTypeError: NumPy cannot read a tensor on a GPU."""
        raise DTypeError(f"a tensor on {self.device} cannot be converted to a NumPy array; use x.cpu() first")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if self.requires_grad or type(self._array) is not _ndarray:
            self.numpy()  # raises the error
        return np.array(self._live().view(), dtype=dtype, copy=copy)  # a view, so that nobody else gets `_array` itself

    def _not_single(self, doing: str) -> NoReturn:
        """The error of TensorBase where it needs one element. Raises InvalidArgument."""
        if doing == "truth of":
            raise InvalidArgument(f"truth of a tensor of shape {self.shape} is ambiguous; use any or all of its values")
        raise InvalidArgument(f"{doing} a tensor of shape {self.shape}; index one element, or use tolist()")

    def tolist(self) -> Any:
        """The elements as nested lists of Python values."""
        return self._on_host().tolist()

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self._array.dtype.kind not in "iu" or self._array.ndim:
            raise DTypeError(
                f"a tensor of {self.dtype.name} and shape {self.shape} is not an index; use an integer scalar"
            )
        return int(self.item())

    def __len__(self) -> int:
        if not self._array.ndim:
            raise DTypeError("len() of a tensor without axes; use numel()")
        return len(self._array)

    def __iter__(self) -> Iterator[Tensor]:
        return map(getitem, repeat(self), range(len(self)))

    def __contains__(self, value: Any) -> bool:
        found = self == value
        return bool(found.any()) if isinstance(found, Tensor) else found

    # -- elements -----------------------------------------------------------------------------------------------------

    def _index(self, key: Any) -> Tensor:
        """`self[key]` for keys that TensorBase does not handle: all but an integer or a slice.

        Basic indexing gives a view (a tensor without axes for one element), indexing by arrays a copy, as in NumPy.

        Raises:
            IndexOutOfRange: no such element.
            InvalidArgument: a key that is not an index.
        """
        place = a, storage, epoch = self._located()
        kind = type(key)
        try:
            if kind is not int and kind is not slice:
                key = index_key(key, a)
            v = a[key]
            if type(v) is not _ndarray and type(v) is not type(a):  # NumPy made a scalar; a view without axes is wanted
                v = a[(*key, ...)] if type(key) is tuple else a[key, ...]
        except (IndexError, MemoryError) as error:
            raise failed(error, f"index {key!r} of", a) from error
        except OverflowError as error:  # of 64 unsigned bits
            raise failed(IndexError(str(error)), f"index {key!r} of", a) from error
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"index {key!r} of a tensor of shape {a.shape}: {error}") from error
        base = v.base
        if base is not a and (base is None or base is not a.base):
            return wrap(v)
        if storage is None and epoch == SETTLED:  # no storage to follow
            return _tensor(v, None, SETTLED)
        return self._share(v, *place)

    def _assign(self, key: Any, value: Any) -> None:
        """`self[key] = value`: write a value, sequence, array or tensor to what `key` selects, broadcasting.

        Raises:
            IndexOutOfRange: no such element.
            InvalidArgument: incompatible shapes, or a value outside the range of the type.
            DTypeError: a value that is not a number.
        """
        a = self._live()
        try:
            if type(key) is not int and type(key) is not slice:
                key = index_key(key, a)
            value = value._live() if isinstance(value, Tensor) else value
            a[key] = value if type(a) is _ndarray else _moved_to(value, a)
        except FAILURES as error:
            if type(a) is _ndarray and is_device_array(value):
                a[key] = _moved_to(value, a)
                return
            raise failed(error, f"writing to index {key!r} of", a) from error

    # -- gradients ----------------------------------------------------------------------------------------------------

    @property
    def data(self) -> Tensor:
        """A tensor of the same memory whose changes autograd does not see. Setting it gives the tensor other memory.

        Raises DTypeError: set to something other than a tensor.
        """
        made = self._alias()
        own_counter(made)
        return made

    @data.setter
    def data(self, value: Tensor) -> None:
        self._array, self._storage, self._epoch = array_of(value), value.storage(), value._epoch

    def detach(self) -> Tensor:
        """A tensor of the same memory that is not part of the graph. In-place changes of it are counted."""
        return self._alias()

    def detach_(self) -> Self:
        """Leave the graph, and become a leaf that does not require grad; returns self."""
        set_output(self, None, 0)
        return self

    def _form(self) -> tuple[tuple[int, ...], NumpyType]:
        """The shape and the type of its gradients."""
        return self._array.shape, self._array.dtype

    # -- by value -----------------------------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with memory of its own, and one of its gradient. Raises GradientError: the result of an operation."""
        if self.requires_grad and not self.is_leaf:
            raise GradientError(
                f"deepcopy of a tensor of shape {self.shape} with requires_grad, the result of an operation; its graph "
                "is not copied: copy x.detach(), or use x.clone()"
            )
        rebuild, args, *state = self.__reduce_ex__(4)
        made: Self = rebuild(*deepcopy(args, memo))
        memo[id(self)] = made
        if state and state[0]:
            vars(made).update(deepcopy(state[0], memo))
        if self.grad is not None and self._keeps_gradient:
            made.grad = deepcopy(self.grad, memo)
        return made

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """By value, with the whole storage; tensors on one storage pickled together share one afterwards."""
        return Tensor._rebuild, self._parts()

    def __copy__(self) -> Tensor:
        """A tensor over the same memory, as in torch; `copy.deepcopy` and `clone` copy the elements."""
        return self._alias()

    # -- changing it --------------------------------------------------------------------------------------------------

    def fill_(self, value: Any) -> Self:
        """Set every element; returns self. Raises InvalidArgument, DTypeError as assignment does."""
        self[...] = value
        return self

    def zero_(self) -> Self:
        """Set every element to 0; returns self. Raises LayoutError where the memory is read-only."""
        return self.fill_(0)

    def copy_(self, src: Any, non_blocking: bool = False) -> Self:
        """Copy values, converting their type; returns self. They broadcast, or (as in TH) are as many, copied in order.

        Args:
            src: a tensor, array, number or nested sequence.
            non_blocking: do not wait for a copy from pinned memory to a GPU; otherwise it has no effect.

        Raises:
            InvalidArgument: shapes that do not broadcast, of other numbers of elements.
            DTypeError: values that are not numbers.
        """
        if isinstance(src, Tensor) and is_recorded((self, src)):
            self[...] = src if src.shape == self.shape or src.numel() != self.numel() else src.reshape(self.shape)
            return self
        count_change(self)
        a = self._live()
        values = src._live() if isinstance(src, Tensor) else src
        if type(a) is not _ndarray:
            return self._copy_across(a, values, non_blocking)
        if not isinstance(values, np.ndarray) or values.dtype not in BY_DTYPE:
            if is_device_array(values):
                return self._copy_across(a, values, non_blocking)
            values = array_from(src, a.dtype)
        if values.size == a.size and values.shape != a.shape:  # if it broadcasts, it differs only by axes of size 1
            values = values.reshape(a.shape)
        try:
            np.copyto(a, values, casting="unsafe")
        except FAILURES as error:
            raise failed(error, f"copying a tensor of shape {values.shape} to", a) from error
        return self

    def _copy_across(self, a: Any, values: Any, non_blocking: bool) -> Self:
        """`copy_` where one side is on a GPU."""
        arrays = load("gpu.arrays")
        if not isinstance(values, _ndarray) and not is_device_array(values):
            values = array_from(values, a.dtype)
        if values.size == a.size and values.shape != a.shape:
            values = values.reshape(a.shape)
        try:
            if isinstance(a, _ndarray):
                np.copyto(a, arrays.to_host(values), casting="unsafe")
            elif isinstance(values, _ndarray) and values.shape == a.shape:
                arrays.copy_in(a, values, non_blocking)
            else:
                a[...] = arrays.operand(values, a)
        except FAILURES as error:
            raise failed(error, f"copying a tensor of shape {values.shape} to", a) from error
        return self

    if TYPE_CHECKING:  # compared by element; the rest is in Methods

        def __eq__(self, other: object) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: object) -> Tensor: ...  # type: ignore[override]

    __hash__ = object.__hash__  # comparison is by element


Tensor._rebuild.__module__ = Tensor.__module__


def wrap(array: Any) -> Tensor:
    """A tensor of a result of NumPy: an array of its own, or a scalar. Raises DTypeError."""
    if type(array) is not _ndarray and not is_device_array(array):
        array = np.asarray(array)
    if array.dtype not in BY_DTYPE:
        require_supported(array.dtype)
    return _tensor(array)


def _moved_to(value: Any, array: Any) -> Any:
    """A value to write to an array on another device, as an array there. Raises DTypeError: not numbers."""
    arrays = load("gpu.arrays")
    return arrays.to_host(value) if isinstance(array, _ndarray) else arrays.operand(value, array)


def array_of(x: Any) -> NDArray[Any]:
    """The array of a tensor. Raises DTypeError: x is not a tensor."""
    try:
        return x._live()  # type: ignore[no-any-return]
    except AttributeError:
        raise DTypeError(f"expected a tensor, found a {type_name(x)}; {tensor_advice(x)}") from None


FAILURES: Final = (AttributeError, IndexError, MemoryError, OverflowError, TypeError, ValueError)
"""Exceptions that NumPy raises for arguments that it refuses."""
NUMPYS: Final = ("builtins", "numpy.exceptions", "numpy._core._exceptions")
"""Modules of these classes; exceptions of other modules, such as LinAlgError, say more and are kept."""


def failed(error: Exception, doing: str, array: NDArray[Any]) -> Exception:
    """Return shmtensor's error for one of NumPy's: IndexOutOfRange, OutOfMemory, else as `refused`."""
    if isinstance(error, MemoryError):
        return out_of_heap(getattr(error, "_total_size", array.nbytes))
    if isinstance(error, IndexError):
        return IndexOutOfRange(f"{doing} a tensor of shape {array.shape}: {error}")
    return refused(error, doing, array)


def again(error: Exception, doing: str, array: NDArray[Any], function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function(*arguments)` again if `error`, which it raised, was a lack of memory.

    Raises OutOfMemory if memory is still lacking, and the error of `failed` for any other `error`.
    """
    if isinstance(error, MemoryError) and not isinstance(array, _ndarray):
        raise load("gpu.driver").out_of_memory(array.device.id, array.nbytes) from error
    if isinstance(error, MemoryError):
        return allocate_again(partial(function, *arguments), getattr(error, "_total_size", array.nbytes), error)
    raise failed(error, doing, array) from error


def index_of(value: Any, what: str = "index") -> int:
    """An integer of any class except bool. Raises InvalidArgument."""
    try:
        return integer(value)
    except TypeError:
        raise InvalidArgument(f"{what} {value!r} is not an integer; give one") from None


def axis_of(a: Any, dim: Any) -> int:
    """The number of an axis of an array, from 0. Raises IndexOutOfRange, InvalidArgument: not an integer."""
    ndim: int = a.ndim
    if type(dim) is int and 0 <= dim < ndim:
        return dim
    if type(dim) is not int:
        dim = index_of(dim, "axis")
    if not -ndim <= dim < ndim:
        there = f"use {-ndim} to {ndim - 1}" if ndim else "it has none"
        raise IndexOutOfRange(f"asked for axis {dim} of a tensor of shape {a.shape}; {there}")
    return dim % ndim  # type: ignore[no-any-return]


def axes_of(a: Any, dims: Any) -> Any:
    """The numbers of one axis or of several; None for all of them. Raises as axis_of.

    A tensor without axes may be reduced along axis 0 or -1, as in torch: over nothing.
    """
    if dims is None:
        return None
    if not a.ndim:
        for one in dims if isinstance(dims, SEQUENCES) else (dims,):
            if index_of(one, "axis") not in (0, -1):
                axis_of(a, one)
        return ()
    return tuple([axis_of(a, one) for one in dims]) if isinstance(dims, SEQUENCES) else axis_of(a, dims)


def indices_of(values: Any, what: str = "sizes") -> tuple[int, ...]:
    """A sequence of integers. Raises InvalidArgument."""
    try:
        return tuple([one if type(one) is int else index_of(one, what) for one in values])
    except TypeError:
        raise InvalidArgument(f"{what} {values!r} is not a sequence of integers; give one") from None


def index_key(key: Any, indexed: Any = None) -> Any:
    """An index with arrays for its tensors, on the device of the indexed one. Bytes are masks, as TH's ByteTensors.

    They are copies: NumPy checks indices before it uses them, and another process might change them in between.
    """
    if isinstance(key, tuple):
        key = tuple([_index_array(part) if isinstance(part, Tensor) else part for part in key])
    elif isinstance(key, Tensor):
        key = _index_array(key)
    if indexed is None or type(indexed) is _ndarray:
        return key
    return load("gpu.arrays").index(key, indexed)


def _index_array(index: Tensor) -> NDArray[Any]:
    a = index._live()
    return a.astype(bool) if a.dtype == np.uint8 else a.copy()


OPERANDS: Final = (int, float, complex, np.ndarray, np.generic, list)
"""Types of operands, in addition to tensors."""


# -- typed classes, one for each row of the table ---------------------------------------------------------------------


class TypedTensor(type):
    """Class of FloatTensor and the others: a call makes a Tensor of its type; such tensors are instances of it."""

    _dtype: NumpyType

    def __call__(cls, *content: Any) -> Any:
        return Tensor._construct(content, cls._dtype)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.dtype == cls._dtype


TENSOR_CLASSES: Final[dict[NumpyType, type[Tensor]]] = {}
"""The class of each loaded type."""


def _make_class(row: ElementType) -> None:
    name = f"{row.prefix}Tensor"
    doc = f"Tensor of {row.name} elements. A tensor is an instance of it when its elements are of that type."
    body = {"__slots__": (), "__module__": __name__, "__qualname__": name, "__doc__": doc, "_dtype": row.dtype}
    globals()[name] = TENSOR_CLASSES[row.dtype] = TypedTensor(name, (Tensor,), body)  # type: ignore[assignment]


each_type(_make_class)


def __getattr__(name: str) -> Any:
    return class_named(globals(), name, "Tensor")
