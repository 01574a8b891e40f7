"""Devices of tensors: the CPU and GPUs."""

from __future__ import annotations

import re
from typing import Any, Final

from ._loading import load
from .errors import DTypeError, InvalidArgument, type_name
from .fixed import Fixed

KINDS: Final = ("cpu", "cuda", "mps", "xpu", "xla", "hpu", "mtia", "meta", "privateuseone")
"""torch's names of devices."""


class Device(Fixed):
    """A device: `device("cpu")`, `device("cpu:0")` or `device("cpu", 0)`. It compares equal to its name.

    Devices that this version does not support can be named; functions refuse them.

    Raises:
        InvalidArgument: not the name of a device, or two numbers.
        DTypeError: not a string or device.
    """

    __slots__ = ("index", "type")

    type: str
    index: int | None
    """The number of the device; None if there is only one."""

    def __init__(self, type: Any, index: int | None = None) -> None:
        if isinstance(type, Device):
            name, number = type.type, type.index
        else:
            name, number = _parse(type)
        if index is not None and number is not None:
            raise InvalidArgument(f"device {str(type)!r} has a number, and index={index!r} gives another; give one")
        self._fix(type=name, index=number if index is None else int(index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Device | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Device, (self.type, self.index)


def _parse(text: Any) -> tuple[str, int | None]:
    if not isinstance(text, str):
        raise DTypeError(
            f"a device is a name such as 'cpu', not a {type_name(text)}; give a name or a shmtensor.device"
        )
    found = re.fullmatch(r"([a-z]+)(?::(\d+))?", text)
    if found is None or found[1] not in KINDS:
        raise InvalidArgument(f"{text!r} is not the name of a device; this version supports 'cpu' and 'cuda'")
    return found[1], None if found[2] is None else int(found[2])


device = Device
"""Its name in `shmtensor`."""
CPU: Final = Device("cpu")
CUDA: Final = tuple([Device("cuda", number) for number in range(16)])
"""The first GPUs, by number."""


def device_of(spec: Any) -> Device:
    """Return the device of `spec`; None: the CPU. A GPU gets its number: "cuda" is the current one.

    The first use of a GPU initialises its driver, which takes up to a second.

    Raises:
        InvalidArgument: a device of another kind, or no GPU of that number.
        DeviceUnavailable: no GPU can be used; the message has the reason.
        DTypeError: not a device.
    """
    if spec is None or spec is CPU or (type(spec) is str and spec == "cpu"):
        return CPU
    found = spec if isinstance(spec, Device) else Device("cuda", spec) if type(spec) is int else Device(spec)
    if found.type == "cpu" and found.index in (None, 0):
        return CPU
    if found.type != "cuda":
        raise InvalidArgument(f"device {spec!r} is not available; this version supports 'cpu' and 'cuda'")
    number = load("gpu.arrays").module().cuda.runtime.getDevice() if found.index is None else found.index
    load("gpu.driver").require_device(number)
    return CUDA[number] if number < len(CUDA) else Device("cuda", number)


def of_array(array: Any) -> Device:
    """Return the device of an array on a GPU. Does not block."""
    number = int(array.device.id)
    return CUDA[number] if number < len(CUDA) else Device("cuda", number)


def names_device(spec: Any) -> bool:
    """Whether an argument that may be a type or a device is a device. Does not block."""
    return isinstance(spec, Device) or (isinstance(spec, str) and spec.partition(":")[0] in KINDS)
