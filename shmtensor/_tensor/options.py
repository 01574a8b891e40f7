"""The keywords that torch's functions that create tensors have in common. Nothing in this module blocks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Set
from functools import partial, wraps
from typing import Any, Final, overload

from ..allocators.protocol import Allocator
from ..devices import CPU, Device, device_of
from ..dtypes import NumpyType, dtype_of
from ..errors import DTypeError, InvalidArgument
from ..layouts import require_usual
from .core import Tensor, array_of, given
from .signatures import Shown

Make = Callable[..., Tensor]
_OPTIONS: Final = {
    "out": (None, "Tensor | None"), "layout": (None, "Any"), "device": (None, "Any"),
    "requires_grad": (False, "bool"), "pin_memory": (False, "bool"), "allocator": (None, "Any"),
}  # fmt: skip


class Place:
    """What the functions that create tensors pass on as `shared` if they were given an allocator: its memory."""

    __slots__ = ("allocator",)

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator


def place_of(shared: Any, allocator: Allocator, out: Any) -> Any:
    """The value of `shared` that means the memory of an allocator.

    Raises InvalidArgument: `shared` or `out` is given, too, and says where the tensor lies.
    """
    if out is not None or shared:
        other = "shared=True" if out is None else "out"
        raise InvalidArgument(f"asked for {other} and for allocator={allocator!r}; give one of them")
    return Place(allocator)


def requiring(made: Tensor, requires_grad: bool) -> Tensor:
    """A new tensor, of which gradients are recorded if that is wanted. Raises DTypeError: integers."""
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

    The function takes `dtype`. A keyword that it has itself stays its own. Values but the usual ones are refused. If it
    takes `shared`, which it passes on to `empty` or `made_of`, then it gets `allocator`, too.

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
        require_usual(how.pop("layout", None), how.pop("pin_memory", False))
        device = device_of(how.pop("device", None)) if "device" in names else CPU
        target = how.pop("out", None) if has_out else None
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
