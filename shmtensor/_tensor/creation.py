"""Functions that make tensors, on the heap or (`shared=True`) in shared memory of this process's manager.

`ranges` has those of evenly spaced values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import dtypes
from .._loading import load
from .._native import is_device_array, is_recorded
from .._native import tensor as _tensor
from ..allocators.default import out_of_heap
from ..allocators.managed import allocate, allocate_tensor
from ..devices import CPU, Device, device_of
from ..dtypes import BY_DTYPE, NumpyType, dtype_of
from ..errors import InvalidArgument, LayoutError, NotSupported, type_name
from ..layouts import axes_in_memory, dense_axes, preserve_format, require_strided
from ..storage import Storage
from ..storage.arguments import array_from, empty_array, shape_from
from ..storage.regions import checked_array
from .core import SETTLED, Tensor, array_of, index_of
from .dispatch import Array, Module, Out, composed, export, operation
from .dlpack import from_dlpack
from .options import Make, Place, on_device, pinned, pinned_place, place_of, requiring, type_for, with_options
from .outputs import given

_PLAIN = 1 << 40  # elements; larger sizes are checked more closely


@composed(method=False)
def from_numpy(array: NDArray[Any], shared: bool = False, allocator: Any = None) -> Tensor:
    """A tensor over the memory of an array, without a copy; each keeps it alive and sees the other's writes.

    Does not block, unless shared. Each call makes a storage of its own, so `share_memory_` of one tensor does not move
    another that was made from the same array, nor the array.

    Args:
        array: any shape; writable, native byte order, strides non-negative multiples of the item size.
        shared, allocator: as `asarray`: a copy in that memory, of whatever layout, unless the array lies there already.

    Raises:
        DTypeError: not an ndarray, or an object, structured, byte-swapped or unsupported dtype.
        LayoutError: read-only, or strides that a tensor cannot have; the message says to copy.
        OutOfMemory, ManagerError: shared, as `empty`.
    """
    if (shared or allocator is not None) and isinstance(array, np.ndarray):
        return asarray(array, shared=shared, allocator=allocator)
    if type(array) is not np.ndarray or not array.flags.carray or array.dtype not in BY_DTYPE:
        view = checked_array(array)
    else:
        view = array.view()  # the caller may set shape or flags of its own object
    return _tensor(view)


def _seldom(complete: Callable[..., Tensor]) -> Callable[[Make], Make]:
    """Give a function the parameters and the name of `complete`, which handles calls with rarely used keywords."""

    def decorate(make: Make) -> Make:
        complete.__name__ = complete.__qualname__ = make.__name__
        make.__signature__ = inspect.signature(complete)  # type: ignore[attr-defined]
        return make

    return decorate


def _empty(
    shape: Any = (),
    *more: Any,
    size: Any = None,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
    shared: bool = False,
    allocator: Any = None,
) -> Tensor:
    require_strided(layout)
    where = device_of(device)
    if pin_memory:
        place: Any = pinned_place(shared, allocator, out, where)
    else:
        place = shared if allocator is None else place_of(shared, allocator, out)
    sizes = _sizes(shape, more, size)
    if where is not CPU and out is None:
        return requiring(_empty_there(sizes, where, memory_format, dtype, place), requires_grad)
    if out is not None:
        return requiring(given(np.empty(sizes, type_for(out, dtype)), out, "empty"), requires_grad)
    made = formatted(sizes, memory_format, dtype=dtype, shared=place)
    return requiring(pinned(made) if pin_memory and shared else made, requires_grad)


def _empty_there(sizes: tuple[int, ...], device: Device, memory_format: Any, dtype: Any, shared: Any) -> Tensor:
    """`empty` on a GPU."""
    if isinstance(shared, Place) or axes_in_memory(memory_format, len(sizes)) is not None:
        return on_device(formatted(sizes, memory_format, dtype=dtype), device, shared)
    kind = dtypes.default if dtype is None else dtype_of(dtype)
    number = device.index or 0
    if shared:
        nbytes = shape_from(sizes, kind.itemsize)[1] if sizes else kind.itemsize
        return _tensor(load("allocators.cuda").allocate(number, nbytes).array(kind, sizes), None, SETTLED)
    return _tensor(load("gpu.arrays").empty(sizes, kind, number))


@composed(method=False)
@_seldom(_empty)
def empty(shape: Any = (), *more: Any, dtype: Any = None, shared: bool = False, **others: Any) -> Tensor:
    """A tensor of arbitrary content.

    Args:
        shape, size: a sequence of integers from 0; or the sizes one by one: `empty(2, 3)`.
        out: a tensor of these sizes, which is returned.
        dtype: default float32, or what `set_default_dtype` was given.
        layout: `shmtensor.strided`.
        device: "cpu", or "cuda", "cuda:1" and so on for a GPU.
        requires_grad: whether gradients are recorded for computations with it.
        pin_memory: in page-locked memory, for fast asynchronous copies to a GPU (docs/gpu.md). Pinning takes about 40
            us per MiB. With shared=True: shared memory, which is pinned if it has at least 64 KiB.
        memory_format: order of the elements in memory: `channels_last` for four axes, `channels_last_3d` for five.
        shared: in shared memory of this process's manager (the first one blocks until the manager is ready) instead of
            the heap.
        allocator: one of `shmtensor.allocators`, or an object with malloc and free: in its memory. It frees the memory
            after the last tensor and array over it.

    Raises:
        InvalidArgument: sizes that are negative or impossible; no such device or memory format; an allocator together
            with shared=True or `out`, or one whose memory cannot be used; pin_memory=True together with a device, an
            allocator or `out`.
        DTypeError: no such type, or not that of `out`.
        OutOfMemory: no memory, or a quota was reached.
        ManagerError: shared, and no manager can be reached or started.
        DeviceUnavailable: pin_memory=True or a device, and this process cannot use a GPU.
        NotSupported: another layout.
    """
    if others:
        return _empty(shape, *more, dtype=dtype, shared=shared, **others)
    kind = dtypes.default if dtype is None else dtype_of(dtype)
    if shared and not isinstance(shared, Place):
        made: Tensor | None = allocate_tensor(kind, (shape, *more) if more else shape)
        if made is not None:  # most calls
            return made
    sizes = (shape, *more)
    if type(shape) is int and not more and 0 <= shape <= _PLAIN:  # most calls
        nbytes = shape * kind.itemsize
    else:
        sizes, nbytes = shape_from(sizes, kind.itemsize)
    return _placed(sizes, kind, nbytes, shared) if shared else _tensor(empty_array(sizes, kind), None, 0)


def _placed(sizes: tuple[int, ...], kind: NumpyType, nbytes: int, shared: Any) -> Tensor:
    """`empty` in shared memory, or (a Place) in that of an allocator. Blocks and raises as that memory's malloc."""
    if not isinstance(shared, Place):
        return _tensor(allocate(nbytes).array(kind, sizes), None, SETTLED)
    storage: Storage = Storage._class_of(kind)(nbytes // kind.itemsize, allocator=shared.allocator)
    return _tensor(storage._flat.reshape(sizes), storage, storage._epoch)


def _sizes(shape: Any, more: tuple[Any, ...], size: Any) -> tuple[int, ...]:
    if size is not None and (more or shape != ()):
        raise InvalidArgument(f"asked for the sizes {(shape, *more)} and size={size!r}; give one of them")
    return shape_from((shape, *more) if size is None else (size,), 1)[0]


def formatted(sizes: tuple[int, ...], memory_format: Any, like: NDArray[Any] | None = None, **how: Any) -> Tensor:
    """`empty` with its elements in the order that a memory format means; with that of `like` if it is kept."""
    order = axes_in_memory(memory_format, len(sizes))
    if like is not None and not like.flags.c_contiguous and memory_format in (None, preserve_format):
        order = dense_axes(like.shape, like.strides)
    if order is None:
        return empty(sizes, **how)
    place = array, _, _ = (made := empty([sizes[i] for i in order], **how))._located()
    return made._share(array.transpose(np.argsort(order)), *place)


def _full_of(value: int) -> Callable[..., Tensor]:
    def complete(
        shape: Any = (),
        *more: Any,
        size: Any = None,
        out: Tensor | None = None,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        shared: bool = False,
        allocator: Any = None,
    ) -> Tensor:
        made = _empty(
            shape, *more, size=size, out=out, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory,
            shared=shared, allocator=allocator,
        )  # fmt: skip
        return requiring(made.fill_(value), requires_grad)

    return complete


_zeros, _ones = _full_of(0), _full_of(1)


@composed(method=False)
@_seldom(_zeros)
def zeros(shape: Any = (), *more: Any, dtype: Any = None, shared: bool = False, **others: Any) -> Tensor:
    """A tensor of zeros. Arguments, blocking and errors as `empty`."""
    if others:
        return _zeros(shape, *more, dtype=dtype, shared=shared, **others)
    if shared:
        return empty(shape, *more, dtype=dtype, shared=shared).fill_(0)
    kind = dtypes.default if dtype is None else dtype_of(dtype)
    sizes, nbytes = shape_from((shape, *more), kind.itemsize)
    try:
        return _tensor(np.zeros(sizes, kind))
    except MemoryError as error:
        raise out_of_heap(nbytes) from error


@composed(method=False)
@_seldom(_ones)
def ones(shape: Any = (), *more: Any, dtype: Any = None, shared: bool = False, **others: Any) -> Tensor:
    """A tensor of ones. Arguments, blocking and errors as `empty`."""
    if others:
        return _ones(shape, *more, dtype=dtype, shared=shared, **others)
    t = empty(shape, *more, dtype=dtype, shared=shared)
    t._live().fill(1)
    return t


@composed(method=False)
@with_options
def full(
    size: Any = None, fill_value: Any = None, *, shape: Any = None, dtype: Any = None, shared: bool = False
) -> Tensor:
    """A tensor of one value. Arguments, blocking and errors as `empty`.

    Args:
        size, shape: an integer, or a sequence of them.
        fill_value: a number, or a tensor of one element.
        dtype: default depends on the value: bool, int64 for integers, float32, complex64.

    Raises:
        InvalidArgument: also a value outside the range of the type.
    """
    if size is None or shape is not None:
        if fill_value is None and shape is not None:  # full(value, shape=sizes)
            size, fill_value = None, size
        size = _sizes((), (), size if shape is None else shape)
    if fill_value is None:
        raise InvalidArgument("full without a value; give fill_value")
    if dtype is None:
        dtype = array_from(fill_value, None).dtype
    return _filled(empty(size, dtype=dtype, shared=shared), fill_value)


def _filled(t: Tensor, value: Any) -> Tensor:
    if isinstance(value, int) and value < 0 and t.dtype.kind == "u" and -value <= np.iinfo(t.dtype).max:
        value += np.iinfo(t.dtype).max + 1  # as in torch, which wraps negative values here
    return t.fill_(value)


@composed(method=False)
@with_options(out=False)
def scalar_tensor(s: Any, *, dtype: Any = None, shared: bool = False) -> Tensor:
    """A tensor without axes of a number, float32 unless a type is given. Errors as `full`."""
    return full((), s, dtype=dtype_of(dtype), shared=shared)


@composed(method=False)
@with_options(out=False)
def tensor(data: Any, dtype: Any = None, device: Any = None, shared: bool = False) -> Tensor:
    """A tensor of a copy of values.

    Args:
        data: a number, nested sequences, an array or a tensor.
        dtype: default: an array's own, else bool, int64 for integers, float32, complex64.
        device, shared, allocator, requires_grad, pin_memory, layout: as `empty`.

    Raises:
        InvalidArgument: ragged nesting, or values outside the range of the type.
        DTypeError: values that are not numbers, or of an unsupported type.
        OutOfMemory, ManagerError, NotSupported: as `empty`.
    """
    values = array_from(_host_of(data), None if dtype is None else dtype_of(dtype))
    where = device_of(device)
    if device is None and isinstance(data, Tensor):
        where = data.device
    return made_of(values, shared) if where is CPU else on_device(_tensor(values), where, shared)


@composed(method=False)
@with_options(out=False)
def as_tensor(data: Any, dtype: Any = None, device: Any = None, *, shared: bool = False) -> Tensor:
    """`asarray` under torch's name."""
    return asarray(data, dtype=dtype, device=device, shared=shared)


@composed(method=False)
@with_options(out=False)
def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, shared: bool = False
) -> Tensor:
    """A tensor of values, over the same memory where that is possible.

    Does not block, unless shared.

    Args:
        obj: a tensor (returned unchanged), an array, anything with `__dlpack__` or the buffer protocol, nested
            sequences or a number.
        dtype: default as `tensor`.
        copy: True: always copy; False: never (raises InvalidArgument if a copy is needed); None: only if needed.
        shared, allocator: in shared memory, or that of an allocator, as `empty`; values in other memory are copied.

    Raises:
        InvalidArgument, DTypeError: as `tensor`; no such device.
        OutOfMemory, ManagerError: shared, as `empty`.
    """
    wanted = None if dtype is None else dtype_of(dtype)
    if device is not None or (isinstance(obj, Tensor) and is_device_array(obj._array)):
        return _on(obj, wanted, device, copy, shared)
    if not shared:
        return _over(obj, wanted, copy)
    found = _over(obj, wanted, None if copy else copy)
    if not copy and _lies_in(found, shared):
        return found
    _allow(copy, f"a {type_name(obj)} that lies in other memory")
    if is_recorded((found,)):
        return empty(found.shape, dtype=found.dtype, shared=shared).copy_(found)
    return made_of(found._live(), shared)


def _on(obj: Any, wanted: NumpyType | None, device: Any, copy: bool | None, shared: Any) -> Tensor:
    """`asarray` on a device, or of a tensor on one."""
    where = obj.device if device is None and isinstance(obj, Tensor) else device_of(device)
    if where is CPU and not (isinstance(obj, Tensor) and is_device_array(obj._array)):
        return asarray(obj, dtype=wanted, copy=copy, shared=shared)
    found = _over(obj, wanted, copy)
    if found.device != where:
        _allow(copy, f"a {type_name(obj)} on {found.device} as a tensor on {where}")
        found = found.to(where)
    return found.share_memory_() if shared else found


def _host_of(data: Any) -> Any:
    return data._on_host() if isinstance(data, Tensor) else data


def _lies_in(x: Tensor, shared: Any) -> bool:
    return x.storage().allocator is shared.allocator if isinstance(shared, Place) else x.is_shared()


def _over(obj: Any, wanted: NumpyType | None, copy: bool | None) -> Tensor:
    if isinstance(obj, Tensor):
        if copy or (wanted is not None and wanted != obj.dtype):
            _allow(copy, f"a tensor of {obj.dtype.name} as {wanted}")
            return converted(obj, array_of(obj).dtype if wanted is None else wanted)
        return obj
    array = obj
    if not isinstance(obj, np.ndarray) and not isinstance(obj, bool | int | float | complex | list | tuple):
        if hasattr(obj, "__dlpack__"):
            with suppress(BufferError):  # it cannot export its memory; other ways may work
                return _over(from_dlpack(obj, copy=copy), wanted, None if copy else copy)
        if hasattr(obj, "__array__"):
            array = np.asarray(obj)
        else:
            with suppress(TypeError):  # it has no buffer
                array = np.asarray(memoryview(obj))
    if isinstance(array, np.ndarray) and not copy and (wanted is None or wanted == array.dtype):
        try:
            return from_numpy(array)
        except LayoutError as problem:
            _allow(copy, f"this array ({problem})")
    _allow(copy, f"a {type_name(obj)}")
    return _tensor(array_from(array, wanted))


def _allow(copy: bool | None, what: str) -> None:
    if copy is False:
        raise InvalidArgument(
            f"{what} cannot become this tensor without a copy, and copy=False was given; leave copy out"
        )


def _like(x: Tensor, dtype: Any, memory_format: Any, shared: Any) -> Tensor:
    a = array_of(x)
    if is_device_array(a):
        return _empty_there(a.shape, x.device, memory_format, a.dtype if dtype is None else dtype, shared)
    return formatted(a.shape, memory_format, a, dtype=a.dtype if dtype is None else dtype, shared=shared)


@composed(method=False)
@with_options(out=False)
def empty_like(input: Tensor, *, dtype: Any = None, memory_format: Any = None, shared: bool = False) -> Tensor:
    """A tensor of arbitrary content, with the sizes and, unless given, the type of `input`.

    Blocks and raises as empty.

    Args:
        memory_format: default `preserve_format`: axes lie in memory in the order of those of `input`, without gaps.
    """
    if memory_format is None and type(a := array_of(input)) is np.ndarray and a.flags.c_contiguous:
        return empty(a.shape, dtype=a.dtype if dtype is None else dtype, shared=shared)
    return _like(input, dtype, memory_format, shared)


@composed(method=False)
@with_options(out=False)
def zeros_like(input: Tensor, *, dtype: Any = None, memory_format: Any = None, shared: bool = False) -> Tensor:
    """A tensor of zeros, with the sizes and, unless given, the type of `input`. Arguments and errors as empty_like."""
    if memory_format is None and type(a := array_of(input)) is np.ndarray and a.flags.c_contiguous:
        return zeros(a.shape, dtype=a.dtype if dtype is None else dtype, shared=shared)
    return _like(input, dtype, memory_format, shared).fill_(0)


@composed(method=False)
@with_options(out=False)
def ones_like(input: Tensor, *, dtype: Any = None, memory_format: Any = None, shared: bool = False) -> Tensor:
    """A tensor of ones, with the sizes and, unless given, the type of `input`. Arguments and errors as empty_like."""
    if memory_format is None and type(a := array_of(input)) is np.ndarray and a.flags.c_contiguous:
        return ones(a.shape, dtype=a.dtype if dtype is None else dtype, shared=shared)
    return _like(input, dtype, memory_format, shared).fill_(1)


@composed(method=False)
@with_options(out=False)
def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, memory_format: Any = None, shared: bool = False
) -> Tensor:
    """A tensor of one value, with the sizes and, unless given, the type of `input`. Arguments and errors as empty_like.

    Raises:
        InvalidArgument: also a value outside the range of the type.
    """
    return _filled(_like(input, dtype, memory_format, shared), fill_value)


@composed(method=False)
@with_options
def eye(n: int, m: int | None = None, *, k: int = 0, dtype: Any = None, shared: bool = False) -> Tensor:
    """A matrix with ones on the diagonal `k` above the main one, zeros elsewhere. Blocks and raises as empty.

    Args:
        n: rows.
        m: columns; as many as rows unless given.
    """
    t = zeros(n, n if m is None else m, dtype=dtype, shared=shared)
    a = t._array
    if -a.shape[0] < index_of(k) < a.shape[1]:  # NumPy requires a diagonal within the matrix
        np.fill_diagonal(a[:, k:] if k > 0 else a[-k:], 1)
    return t


def _of_diag(g: Tensor, x_shape: tuple[int, ...], diagonal: int) -> Tensor:
    if len(x_shape) == 1:
        return g.diagonal(diagonal)
    return zeros(x_shape, dtype=g.dtype).diagonal_scatter(g, diagonal)


@operation(out=Out.COPIED, fails="diagonal {diagonal} of", gradient=_of_diag)
def diag(xp: Module, x: Array, /, diagonal: int = 0) -> Array:
    """A copy of the diagonal of a matrix, or a matrix with the tensor (one axis) on its diagonal.

    Does not block. Raises InvalidArgument: other numbers of axes.
    """
    if x.ndim not in (1, 2):
        raise InvalidArgument(f"diag of a tensor of shape {x.shape}; give one axis or two")
    return xp.array(xp.diag(x, index_of(diagonal)))


def made_of(values: NDArray[Any], shared: Any) -> Tensor:
    """A tensor over a new array, or of a copy in shared memory or (a Place) in that of an allocator."""
    if not shared:
        return _tensor(values)
    made = _placed(values.shape, values.dtype, values.nbytes, shared)
    np.copyto(made._array, values)
    return made


@operation(name="to_copy", function=False, method=False, fails="converting", gradient=lambda g: g)
def converted(xp: Module, x: Array, dtype: Any, memory_format: Any = None) -> Array:
    """A copy in a type, in the same order or that of a memory format. What the type cannot hold is cut off, as in C.

    Raises InvalidArgument: a format for other axes.
    """
    if xp is not np:
        if memory_format is not None and axes_in_memory(memory_format, x.ndim) is not None:
            raise NotSupported(f"memory_format={memory_format} on a GPU is not available in this version; use x.cpu()")
        return x.astype(dtype)
    if memory_format is not None:
        made = formatted(x.shape, memory_format, dtype=dtype)._live()
        with np.errstate(all="ignore"):
            np.copyto(made, x, casting="unsafe")
        return made
    if x.dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize > x.itemsize):  # nothing can be cut off
        return x.astype(dtype)
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def _moved_back(g: Tensor, source: Device) -> Tensor:
    return moved(g, source, g.device, False)


@operation(name="to_device_copy", function=False, method=False, fails="moving", gradient=_moved_back)
def moved(xp: Module, x: Array, target: Device, source: Device, non_blocking: bool = False) -> Array:
    """A copy on another device. Raises OutOfMemory."""
    arrays = load("gpu.arrays")
    if target is CPU:
        return arrays.to_host(x)
    return arrays.to_device(x, target.index, non_blocking)


__all__ = export(globals())
