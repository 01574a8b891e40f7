"""Functions that make tensors, on the heap or (`shared=True`) in shared memory of this process's manager."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._native import tensor as _tensor
from ..allocators.default import out_of_heap
from ..allocators.managed import allocate, allocate_tensor
from ..devices import device_of
from ..dtypes import BY_DTYPE, DEFAULT, DType, dtype_of
from ..errors import DTypeError, InvalidArgument, LayoutError, type_name
from ..storage.arguments import array_from, empty_array, shape_from
from ..storage.regions import checked_array
from .core import FAILURES, SETTLED, Tensor, array_of, failed, index_of, refuse_grad
from .dispatch import Array, Module, composed, export, operation
from .dlpack import from_dlpack

_PLAIN = 1 << 40  # elements; larger sizes are looked at more closely


@composed(method=False)
def from_numpy(array: NDArray[Any], shared: bool = False) -> Tensor:
    """A tensor over the memory of an array, without a copy; each keeps it alive and sees the other's writes.

    Does not block, unless shared. Each call makes a storage of its own, so `share_memory_` of one tensor does not move
    another that was made from the same array, nor the array.

    Args:
        array: any shape; writable, native byte order, strides non-negative multiples of the item size.
        shared: as `asarray`: a copy in shared memory, of whatever layout, unless the array's memory is shared already.

    Raises:
        DTypeError: no ndarray, or an object, structured, byte-swapped or unsupported dtype.
        LayoutError: read-only, or strides that a tensor cannot have; the message says to copy.
        OutOfMemory, ManagerError: shared, as `empty`.
    """
    if shared and isinstance(array, np.ndarray):
        return asarray(array, shared=True)
    if type(array) is not np.ndarray or not array.flags.carray or array.dtype not in BY_DTYPE:
        view = checked_array(array)
    else:
        view = array.view()  # the caller may set shape or flags of its own object
    return _tensor(view)


@composed(method=False)
def empty(
    shape: Any = (),
    *more: Any,
    dtype: Any = None,
    device: Any = None,
    shared: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of arbitrary content.

    Args:
        shape: a sequence of integers from 0; or the sizes one by one: `empty(2, 3)`.
        dtype: default float32.
        device: "cpu", the only one.
        shared: in shared memory of this process's manager (the first one blocks until the manager is ready) instead of
            the heap.
        requires_grad: False.

    Raises:
        InvalidArgument: sizes that are negative or impossible; no such device.
        DTypeError: no such type.
        OutOfMemory: no memory, or a quota was reached.
        ManagerError: shared, and no manager can be reached or started.
        NotSupported: requires_grad=True; gradients are not recorded yet.
    """
    if requires_grad:
        refuse_grad(requires_grad)
    kind = DEFAULT if dtype is None else dtype_of(dtype)
    if device is not None:
        device_of(device)
    if shared:
        made: Tensor | None = allocate_tensor(kind, (shape, *more) if more else shape)
        if made is not None:  # most are
            return made
    sizes: tuple[int, ...] = (shape, *more)
    if type(shape) is int and not more and 0 <= shape <= _PLAIN:  # most are
        nbytes = shape * kind.itemsize
    else:
        sizes, nbytes = shape_from(sizes, kind.itemsize)
    if shared:
        return _tensor(allocate(nbytes).array(kind, sizes), None, SETTLED)
    return _tensor(empty_array(sizes, kind), None, 0)


@composed(method=False)
def zeros(
    shape: Any = (),
    *more: Any,
    dtype: Any = None,
    device: Any = None,
    shared: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of zeros. Arguments, blocking and errors as `empty`."""
    if shared:
        made = empty(shape, *more, dtype=dtype, device=device, shared=True, requires_grad=requires_grad)
        made._array.fill(0)
        return made
    refuse_grad(requires_grad)
    kind = dtype_of(dtype)
    device_of(device)
    sizes, nbytes = shape_from((shape, *more), kind.itemsize)
    try:
        return _tensor(np.zeros(sizes, kind))
    except MemoryError as error:
        raise out_of_heap(nbytes) from error


@composed(method=False)
def ones(
    shape: Any = (),
    *more: Any,
    dtype: Any = None,
    device: Any = None,
    shared: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of ones. Arguments, blocking and errors as `empty`."""
    t = empty(shape, *more, dtype=dtype, device=device, shared=shared, requires_grad=requires_grad)
    t._array.fill(1)
    return t


@composed(method=False)
def full(
    shape: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    shared: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of one value. Arguments, blocking and errors as `empty`.

    Args:
        shape: an integer, or a sequence of them.
        dtype: default by the value: bool, int64 for integers, float32, complex64.

    Raises:
        InvalidArgument: also a value outside the range of the type.
    """
    if dtype is None:
        dtype = array_from(fill_value, None).dtype
    t = empty(shape, dtype=dtype, device=device, shared=shared, requires_grad=requires_grad)
    t[...] = fill_value
    return t


@composed(method=False)
def tensor(
    data: Any, dtype: Any = None, device: Any = None, shared: bool = False, requires_grad: bool = False
) -> Tensor:
    """A tensor of a copy of values.

    Args:
        data: a number, nested sequences, an array or a tensor.
        dtype: default: an array's own, else bool, int64 for integers, float32, complex64.
        device, shared, requires_grad: as `empty`.

    Raises:
        InvalidArgument: ragged nesting, or values outside the range of the type.
        DTypeError: values that are not numbers, or of an unsupported type.
        OutOfMemory, ManagerError, NotSupported: as `empty`.
    """
    refuse_grad(requires_grad)
    values = array_from(data, None if dtype is None else dtype_of(dtype))
    device_of(device)
    return _shared(values) if shared else _tensor(values)


@composed("as_tensor", method=False)
def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None, shared: bool = False
) -> Tensor:
    """A tensor of values, over the same memory where that is possible.

    Does not block, unless shared.

    Args:
        obj: a tensor (given back as it is), an array, anything with `__dlpack__` or the buffer protocol, nested
            sequences or a number.
        dtype: default as `tensor`.
        copy: True: always a copy; False: never (raises InvalidArgument where one is needed); None: where one is needed.
        shared: in shared memory, as `empty`; a copy is needed of what is not there yet.

    Raises:
        InvalidArgument, DTypeError: as `tensor`; no such device.
        OutOfMemory, ManagerError: shared, as `empty`.
    """
    wanted = None if dtype is None else dtype_of(dtype)
    device_of(device)
    if not shared:
        return _over(obj, wanted, copy)
    found = _over(obj, wanted, None if copy else copy)
    if found.is_shared() and not copy:
        return found
    _allow(copy, f"a {type_name(obj)} that is not in shared memory")
    return _shared(found._live())


def _over(obj: Any, wanted: DType | None, copy: bool | None) -> Tensor:
    if isinstance(obj, Tensor):
        if copy or (wanted is not None and wanted != obj.dtype):
            _allow(copy, f"a tensor of {obj.dtype.name} as {wanted}")
            return _tensor(array_of(obj).astype(obj.dtype if wanted is None else wanted))
        return obj
    array = obj
    if not isinstance(obj, np.ndarray) and not isinstance(obj, bool | int | float | complex | list | tuple):
        if hasattr(obj, "__dlpack__"):
            with suppress(BufferError):  # it has no memory to lend, or not here: the other ways may do
                return _over(from_dlpack(obj, copy=copy), wanted, None if copy else copy)
        if hasattr(obj, "__array__"):
            array = np.asarray(obj)
        else:
            with suppress(TypeError):  # it has no buffer
                array = np.asarray(memoryview(obj))
    if isinstance(array, np.ndarray) and not copy and wanted in (None, array.dtype):
        try:
            return from_numpy(array)
        except LayoutError as problem:
            _allow(copy, f"this array ({problem})")
    _allow(copy, f"a {type_name(obj)}")
    return _tensor(array_from(array, wanted))


def _allow(copy: bool | None, what: str) -> None:
    if copy is False:
        raise InvalidArgument(f"{what} cannot be this tensor without a copy, and copy=False was asked for")


@composed(method=False)
def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None, shared: bool = False) -> Tensor:
    """A tensor of arbitrary content, with the sizes and, unless given, the type of `x`. Blocks and raises as empty."""
    a = array_of(x)
    return empty(a.shape, dtype=a.dtype if dtype is None else dtype, device=device, shared=shared)


@composed(method=False)
def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None, shared: bool = False) -> Tensor:
    """A tensor of zeros, with the sizes and, unless given, the type of `x`. Blocks and raises as empty."""
    a = array_of(x)
    return zeros(a.shape, dtype=a.dtype if dtype is None else dtype, device=device, shared=shared)


@composed(method=False)
def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None, shared: bool = False) -> Tensor:
    """A tensor of ones, with the sizes and, unless given, the type of `x`. Blocks and raises as empty."""
    a = array_of(x)
    return ones(a.shape, dtype=a.dtype if dtype is None else dtype, device=device, shared=shared)


@composed(method=False)
def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None, shared: bool = False) -> Tensor:
    """A tensor of one value, with the sizes and, unless given, the type of `x`. Blocks and raises as full."""
    a = array_of(x)
    return full(a.shape, fill_value, dtype=a.dtype if dtype is None else dtype, device=device, shared=shared)


@composed(method=False)
def arange(
    start: Any = 0,
    /,
    stop: Any = None,
    step: Any = 1,
    *,
    end: Any = None,
    dtype: Any = None,
    device: Any = None,
    shared: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Values from `start` (0 if only one is given) below `stop`, `step` apart.

    Default type int64 when all are integers, else float32. `end` is torch's name of `stop`. Errors as `tensor`.
    """
    refuse_grad(requires_grad)
    stop = end if stop is None else stop
    if stop is None:
        start, stop = 0, start
    kind: DType | None = None if dtype is None else dtype_of(dtype)
    device_of(device)
    try:
        if kind is not None and kind.kind in "iu":
            start, stop, step = _of_whole_numbers(kind, start, stop, step)
        values: NDArray[Any] = np.arange(start, stop, step, dtype=kind)
    except (*FAILURES, ZeroDivisionError) as error:
        raise failed(error, f"arange({start!r}, {stop!r}, {step!r}) for", np.empty(0, kind)) from error
    if kind is None and values.dtype.kind == "f":
        values = values.astype(DEFAULT)
    return _shared(values) if shared else _tensor(values)


def _of_whole_numbers(kind: DType, start: Any, stop: Any, step: Any) -> tuple[int, int, int]:
    """Arguments of an arange that gives integers. As in torch, int64 cuts them off before it counts, others after."""
    first, by = int(start), int(step)
    if kind == np.int64 or all(isinstance(one, int) for one in (start, stop, step)):
        return first, int(stop), by
    return first, first + by * max(0, math.ceil((float(stop) - float(start)) / float(step))), by


@composed(method=False)
def range(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, shared: bool = False) -> Tensor:
    """Values from `start` to `end`, which is one of them where the steps meet it (TH's). Errors as `tensor`."""
    try:
        count = max(0, math.floor((end - start) / step) + 1)
        values = start + step * np.arange(count)
    except (*FAILURES, ZeroDivisionError) as error:
        raise failed(error, f"range({start!r}, {end!r}, {step!r}) for", np.empty(0)) from error
    whole = all(isinstance(one, int) for one in (start, end, step))
    return tensor(values, dtype=(np.int64 if whole else DEFAULT) if dtype is None else dtype, shared=shared)


@composed(method=False)
def linspace(
    start: Any,
    stop: Any = None,
    /,
    num: int = 100,
    *,
    end: Any = None,
    steps: int | None = None,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
    shared: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """`num` values from `start` to `stop`, equally far apart; for integer types both are cut off before.

    Default type float32, or complex64. `end` and `steps` are torch's names of `stop` and `num`. Errors as `tensor`.
    """
    refuse_grad(requires_grad)
    stop, num = end if stop is None else stop, num if steps is None else steps
    whole = complex if isinstance(start, complex) or isinstance(stop, complex) else float
    kind = (np.dtype(np.complex64) if whole is complex else DEFAULT) if dtype is None else dtype_of(dtype)
    if whole is complex and kind.kind != "c":
        raise DTypeError(f"linspace({start!r}, {stop!r}) as {kind.name}; complex numbers need a complex type")
    device_of(device)
    try:
        if kind.kind in "iu" and endpoint:
            values = _whole_steps(int(start), int(stop), index_of(num)).astype(kind)
        else:
            values = np.linspace(whole(start), whole(stop), index_of(num), endpoint=endpoint).astype(kind, copy=False)
    except FAILURES as error:
        raise failed(error, f"linspace({start!r}, {stop!r}, {num!r}) for", np.empty(0, kind)) from error
    return _shared(values) if shared else _tensor(values)


def _whole_steps(start: int, stop: int, num: int) -> NDArray[Any]:
    """Values from both ends to the middle, so that both are exact."""
    if num < 2:
        return np.linspace(start, start, num)
    step = (stop - start) / (num - 1)
    at = np.arange(num)
    values: NDArray[Any] = np.where(at < num // 2, start + step * at, stop - step * (num - 1 - at))
    return values


@composed(method=False)
def logspace(
    start: Any,
    stop: Any = None,
    /,
    num: int = 100,
    base: float = 10.0,
    *,
    end: Any = None,
    steps: int | None = None,
    dtype: Any = None,
    device: Any = None,
    shared: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """`base` to the power of `num` values from `start` to `stop`, equally far apart.

    For integer types both are cut off before. `end` and `steps` are torch's names of `stop` and `num`.
    Errors as `linspace`.
    """
    refuse_grad(requires_grad)
    stop, num = end if stop is None else stop, num if steps is None else steps
    kind = dtype_of(dtype)
    if kind.kind not in "iu":
        wide = np.complex128 if kind.kind == "c" else np.float64
        powers = linspace(start, stop, num, dtype=wide, device=device)._array
    else:
        device_of(device)
        powers = _whole_steps(int(start), int(stop), index_of(num))
    with np.errstate(over="ignore", invalid="ignore"):
        return tensor((base**powers).astype(kind), shared=shared)


@composed(method=False)
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: Any = None,
    shared: bool = False,
) -> Tensor:
    """A matrix with ones on the diagonal `k` above the main one, zeros elsewhere. Blocks and raises as empty."""
    t = zeros(n_rows, n_rows if n_cols is None else n_cols, dtype=dtype, device=device, shared=shared)
    a = t._array
    if -a.shape[0] < index_of(k) < a.shape[1]:  # NumPy wants to count within them
        np.fill_diagonal(a[:, k:] if k > 0 else a[-k:], 1)
    return t


@operation(method=False, fails="diagonal {diagonal} of")
def diag(xp: Module, x: Array, /, diagonal: int = 0) -> Array:
    """A copy of the diagonal of a matrix, or a matrix with the tensor (one axis) on its diagonal.

    Does not block. Raises InvalidArgument: other numbers of axes.
    """
    if x.ndim not in (1, 2):
        raise InvalidArgument(f"diag of a tensor of shape {x.shape}; give one axis or two")
    return xp.array(xp.diag(x, index_of(diagonal)))


def _shared(values: NDArray[Any]) -> Tensor:
    target = allocate(values.nbytes).array(values.dtype, values.shape)
    np.copyto(target, values)
    return _tensor(target, None, SETTLED)


__all__ = export(globals())
