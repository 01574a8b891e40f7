"""The keywords that torch's functions that create tensors have in common. Only `pinned_place` may block."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Set
from functools import partial, wraps
from typing import Any, Final, overload

from .._loading import load
from ..allocators.protocol import Allocator
from ..devices import CPU, Device, device_of
from ..dtypes import NumpyType, dtype_of
from ..errors import DTypeError, InvalidArgument
from ..layouts import require_strided
from .core import Tensor, array_of
from .outputs import given
from .signatures import Shown

Make = Callable[..., Tensor]
_OPTIONS: Final = {
    "out": (None, "Tensor | None"), "layout": (None, "Any"), "device": (None, "Any"),
    "requires_grad": (False, "bool"), "pin_memory": (False, "bool"), "allocator": (None, "Any"),
}  # fmt: skip


class Place:
    """The value that functions that create tensors pass on as `shared` if an allocator was given: its memory."""

    __slots__ = ("allocator",)

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator


def place_of(shared: Any, allocator: Allocator, out: Any) -> Any:
    """The value of `shared` that means the memory of an allocator.

    Raises InvalidArgument: `shared` or `out` is given, too, and determines the memory.
    """
    if out is not None or shared:
        other = "shared=True" if out is None else "out"
        raise InvalidArgument(f"asked for {other} and for allocator={allocator!r}; give one of them")
    return Place(allocator)


def pinned_place(shared: Any, allocator: Any, out: Any, device: Device) -> Any:
    """The value of `shared` for pin_memory=True: pinned memory of this process, or True for `pinned` to pin.

    The first one initialises CUDA, which takes up to a second.

    Raises:
        DeviceUnavailable: this process cannot use a GPU; the message says why.
        InvalidArgument: `out`, a device or an allocator is given, too, and determines the memory.
    """
    others = (("out", out), ("allocator", allocator), ("device", None if device is CPU else device))
    other = next((name for name, value in others if value is not None), None)
    if other is not None:
        raise InvalidArgument(f"asked for {other} and for pin_memory=True, for new memory of the host; give one")
    load("gpu.driver").current()
    return True if shared else Place(load("allocators.pinned").cuda_host_allocator)


def pinned(made: Tensor) -> Tensor:
    """Pin the shared memory of a new tensor in place, if it has at least 64 KiB. Returns the tensor."""
    load("gpu.registered").pin(made.storage()._region)
    return made


def requiring(made: Tensor, requires_grad: bool) -> Tensor:
    """A new tensor with `requires_grad` set. Raises DTypeError: integers."""
    if requires_grad:
        made.requires_grad = True
    return made


def on_device(made: Tensor, device: Device, shared: Any = False) -> Tensor:
    """A new tensor on a GPU, in memory that other processes can have if it is shared.

    Raises:
        InvalidArgument: an allocator of the host's memory.
        OutOfMemory: the device has no memory left.
    """
    if isinstance(shared, Place):
        raise InvalidArgument(f"asked for device {device} and for memory of the {shared.allocator!r}; give one of them")
    moved: Tensor = made.to(device)
    return moved.share_memory_() if shared else moved


def type_for(out: Tensor, dtype: Any) -> NumpyType:
    """The type of values that go to `out`: its own. Raises DTypeError: another one is asked for."""
    have = array_of(out).dtype
    if dtype is not None and dtype_of(dtype) != have:
        raise DTypeError(f"asked for {dtype_of(dtype).name} in an out of {have.name}; give one of that type")
    return have


@overload
def with_options(make: Make) -> Make: ...


@overload
def with_options(*, out: bool) -> Callable[[Make], Make]: ...


def with_options(make: Make | None = None, *, out: bool = True) -> Any:
    """Give a function that creates tensors the keywords `out`, `layout`, `device`, `requires_grad` and `pin_memory`.

    The function takes `dtype`. A keyword that it has itself stays its own. Values other than the usual ones are
    refused. If it takes `shared`, which it passes on to `empty` or `made_of`, then it gets `allocator`, too.

    Args:
        make: the function.
        out: whether there is `out`.
    """
    if make is None:
        return partial(_with_options, has_out=out)
    return _with_options(make, has_out=out)


def _with_options(make: Make, has_out: bool) -> Make:
    code = make.__code__
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    absent = {name for name, has in (("out", has_out), ("allocator", "shared" in own)) if not has}
    names = _OPTIONS.keys() - absent - {*own}

    @wraps(make)
    def create(*args: Any, **how: Any) -> Tensor:
        if not how:
            return make(*args)
        if how.keys().isdisjoint(names):
            return make(*args, **how)
        requires_grad = how.pop("requires_grad", False) if "requires_grad" in names else False
        require_strided(how.pop("layout", None))
        is_pinned = how.pop("pin_memory", False)
        device = device_of(how.pop("device", None)) if "device" in names else CPU
        target = how.pop("out", None) if has_out else None
        if is_pinned:
            place = pinned_place(how.get("shared"), how.pop("allocator", None), target, device)
            if "shared" not in own:
                return requiring(make(*args, **how).pin_memory(), requires_grad)
            made = make(*args, **{**how, "shared": place})
            return requiring(pinned(made) if place is True else made, requires_grad)
        if "allocator" in how and "allocator" not in absent and (allocator := how.pop("allocator")) is not None:
            how["shared"] = place_of(how.get("shared"), allocator, target)
        if device is not CPU and target is None:
            shared = how.pop("shared", False)
            return requiring(on_device(make(*args, **how), device, shared), requires_grad)
        if target is None:
            return requiring(make(*args, **how), requires_grad)
        how["dtype"] = type_for(target, how.get("dtype"))
        return requiring(given(make(*args, **how)._live(), target, make.__name__), requires_grad)

    create.__wrapped__ = Shown(make, lambda: _with_parameters(make, names))  # type: ignore[assignment]
    return create


def _with_parameters(make: Make, names: Set[str]) -> inspect.Signature:
    """The signature of a function with some of the options."""
    found = inspect.signature(make)
    new = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (default, annotation) in _OPTIONS.items()
        if name in names
    ]
    return found.replace(parameters=[*found.parameters.values(), *new])
