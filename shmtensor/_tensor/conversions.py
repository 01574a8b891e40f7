"""Methods that convert a tensor (`x.to`, `x.float()`, ...), and that make tensors of its type (`x.new_zeros`, ...).

Nothing in this module blocks, except `new_empty` and the like with `shared=True`, which may ask the manager for memory.
"""

from __future__ import annotations

from typing import Any, Final

from .._loading import load
from .._native import is_device_array
from ..devices import CPU, Device, device_of, names_device
from ..dtypes import BY_DTYPE, TABLE, DType, ElementType, NumpyType, dtype_of, named, set_default_dtype
from ..errors import InvalidArgument
from ..layouts import is_ordered, preserve_format
from . import creation
from .core import Shape, Tensor, TypedTensor, array_of, indices_of
from .dispatch import composed, export
from .options import Make, with_options

Size = Shape
"""Its name in `shmtensor`."""

# -- types -------------------------------------------------------------------------------------------------------------


def _converted(x: Tensor, dtype: Any, copy: Any, memory_format: Any) -> Tensor:
    a = x._live()
    if is_device_array(a):
        wanted = a.dtype if dtype is None else dtype_of(dtype)
        plain = memory_format is None or memory_format is preserve_format or is_ordered(a, memory_format)
        return x if not copy and wanted == a.dtype and plain else creation.converted(x, wanted, memory_format)
    wanted = a.dtype if dtype is None else dtype_of(dtype)
    if memory_format is None or memory_format is preserve_format:
        return x if not copy and wanted == a.dtype else creation.converted(x, wanted)
    if not copy and wanted == a.dtype and is_ordered(a, memory_format):
        return x
    return creation.converted(x, wanted, memory_format)


def _moved(x: Tensor, device: Device, non_blocking: Any) -> Tensor:
    """Itself on that device, else a copy there."""
    here = x.device
    if here == device:
        return x
    return creation.moved(x, device, here, bool(non_blocking))


@composed(function=False)
def to(
    self: Tensor,
    *target: Any,
    dtype: Any = None,
    device: Any = None,
    other: Tensor | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Itself if it has the wanted type already, else a copy converted to it.

    `x.to(dtype)`, `x.to(device)`, `x.to(device, dtype)`, `x.to(other)`, each with `non_blocking` and `copy` after it.

    Args:
        dtype: the type. Values are truncated where they must be.
        device: "cpu", "cuda", or "cuda:1" and so on.
        other: a tensor that has the wanted type and device.
        non_blocking: do not wait for a copy from pinned memory to a GPU; the memory is kept until the copy is done.
            Otherwise it has no effect.
        copy: always copy.
        memory_format: order of the elements in memory; default `preserve_format`.

    Raises:
        DTypeError: no such type.
        InvalidArgument: no such device or memory format, or incompatible arguments.
    """
    if len(target) == 1 and isinstance(target[0], DType) and device is None:  # most calls
        return _converted(self, target[0], copy, memory_format)
    first, *rest = target or (other,)
    if isinstance(first, Tensor):
        dtype, device = first.dtype, first.device
    elif first is None or names_device(first):
        device = first if first is not None else device
        if rest and not isinstance(rest[0], bool):
            dtype = rest.pop(0)
    else:
        dtype = first
    if rest and (len(rest) > 2 or not all(isinstance(one, bool | int) for one in rest)):
        raise InvalidArgument(f"to{target}: give a type, a device, both or a tensor, and then non_blocking and copy")
    copies = rest[1] if len(rest) > 1 else copy
    if device is None:
        return _converted(self, dtype, copies, memory_format)
    place, here = device_of(device), self.device
    if place is here or place == here:
        return _converted(self, dtype, copies, memory_format)
    waits_not = rest[0] if rest else non_blocking
    if place is CPU:  # the type is converted where that is faster
        return _converted(_moved(_converted(self, dtype, False, None), CPU, waits_not), None, False, memory_format)
    return _converted(_moved(self, place, waits_not), dtype, False, memory_format)


@composed(function=False)
def type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of its type, such as 'shmtensor.FloatTensor'; with a type, `to(dtype)`.

    Args:
        dtype: a type, a class such as `shmtensor.FloatTensor`, or the name of such a class.
        non_blocking: has no effect.

    Raises:
        DTypeError: no such type.
    """
    if dtype is None:
        place = "cuda." if is_device_array(self._array) else ""
        return f"shmtensor.{place}{BY_DTYPE[self._array.dtype].prefix}Tensor"
    return _converted(self, type_named(dtype), False, None)


def type_named(spec: Any) -> NumpyType:
    """The type that a type, a tensor class or the name of a tensor class means. Raises DTypeError."""
    if isinstance(spec, TypedTensor):
        return spec._dtype
    return named(spec, "Tensor")


@composed(function=False)
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """`to` the type and device of another tensor. Raises DTypeError: not a tensor."""
    array_of(other)
    return self.to(other)


@composed(function=False)
def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """Itself if it is in the processor's memory, else a copy there in that memory format. Blocks until it is done."""
    return _converted(_moved(self, CPU, False), None, False, memory_format)


@composed(function=False)
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """Itself if it is on that GPU, else a copy there: `to(device)`.

    Args:
        device: a GPU, or its number; None: the current one.
        non_blocking, memory_format: as for `to`.

    Raises:
        DeviceUnavailable: no GPU can be used; the message says why.
        InvalidArgument: there is no such GPU.
        OutOfMemory: it has no memory left.
    """
    target = device_of("cuda" if device is None else device)
    if target is CPU:
        raise InvalidArgument(f"cuda({device!r}): give a GPU, or use cpu()")
    return _converted(_moved(self, target, non_blocking), None, False, memory_format)


@composed(function=False)
def record_stream(self: Tensor, stream: Any) -> None:
    """Declare that a stream uses a tensor in shared memory of a GPU that was created or received on another stream.

    Its memory is reused only after the work that was submitted to that stream so far. Has no effect on other tensors.

    Args:
        stream: a stream of `shmtensor.cuda`, CuPy or torch.
    """
    memory: Any = getattr(getattr(self._live(), "data", None), "mem", None)
    if hasattr(memory, "record"):
        memory.record(load("gpu.streams").as_stream(stream))


ALSO: Final = {"complex_float": "cfloat", "complex_double": "cdouble"}
"""torch's names of methods that have TH's names."""


def _convert(row: ElementType) -> None:
    def convert(self: Tensor, memory_format: Any = None) -> Tensor:
        return _converted(self, row.dtype, False, memory_format)

    convert.__name__ = row.method
    convert.__doc__ = (
        f"`to(shmtensor.{row.name})`: itself when it is {row.name}, else a copy. Raises InvalidArgument: memory_format."
    )
    composed(*[ALSO[row.method]] if row.method in ALSO else [], function=False)(convert)


for _row in TABLE:
    _convert(_row)


def set_default_tensor_type(t: Any) -> None:
    """Change the default type to that of a class such as `shmtensor.DoubleTensor`, or of its name. Does not block.

    Raises:
        DTypeError: no such class, or its type is not floating-point.
    """
    set_default_dtype(type_named(t))


# -- tensors of its type -----------------------------------------------------------------------------------------------


def _create(make: Make) -> None:
    @with_options(out=False)
    def create(self: Tensor, *shape: Any, size: Any = None, dtype: Any = None, shared: bool = False) -> Tensor:
        made: Tensor = make(
            *shape, size=size, dtype=self.dtype if dtype is None else dtype, device=self.device, shared=shared
        )
        return made

    create.__name__ = f"new_{make.__name__}"
    create.__doc__ = (
        f"`shmtensor.{make.__name__}`, of this tensor's type unless another is given; blocks and raises as that."
    )
    composed(function=False)(create)


for _make in (creation.empty, creation.ones, creation.zeros):
    _create(_make)


@composed(function=False)
@with_options(out=False)
def new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, shared: bool = False) -> Tensor:
    """`shmtensor.full`, of this tensor's type unless another is given; blocks and raises as that."""
    kind = self.dtype if dtype is None else dtype
    return creation.full(size, fill_value, dtype=kind, device=self.device, shared=shared)


@composed(function=False)
@with_options(out=False)
def new_tensor(self: Tensor, data: Any, *, dtype: Any = None, shared: bool = False) -> Tensor:
    """`shmtensor.tensor`, of this tensor's type unless another is given; blocks and raises as that."""
    kind = self.dtype if dtype is None else dtype
    return creation.tensor(data, dtype=kind, device=self.device, shared=shared)


@composed(function=False)
@with_options(out=False)
def new_empty_strided(self: Tensor, size: Any, stride: Any, *, dtype: Any = None, shared: bool = False) -> Tensor:
    """A tensor of arbitrary content, of this tensor's type unless another is given, with these strides.

    Blocks and raises as empty.

    Args:
        size, stride: sizes, and steps in elements, of each axis.

    Raises:
        InvalidArgument: also strides that are negative, or more or fewer than sizes.
    """
    sizes, strides = indices_of(size), indices_of(stride, "strides")
    if len(sizes) != len(strides) or min((*sizes, *strides), default=0) < 0:
        raise InvalidArgument(f"sizes {sizes} and strides {strides}; give as many of each, from 0")
    count = 1 + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True)) if 0 not in sizes else 0
    made = creation.empty(count, dtype=self.dtype if dtype is None else dtype, device=self.device, shared=shared)
    return Tensor._rebuild(made.storage(), 0, sizes, strides)


@composed(function=False)
def new(self: Tensor, *content: Any) -> Tensor:
    """Call the class of this tensor's type: `x.new(2, 3)` with sizes, `x.new([2, 3])` with values. Raises as that."""
    return Tensor._construct(content, self._array.dtype)  # type: ignore[no-any-return]


__all__ = export(globals())
