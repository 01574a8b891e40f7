"""Devices of tensors. The CPU is the only one so far."""

from __future__ import annotations

import re
from typing import Any, Final

from .errors import DTypeError, InvalidArgument, type_name
from .fixed import Fixed

KINDS: Final = ("cpu", "cuda", "mps", "xpu", "xla", "hpu", "mtia", "meta", "privateuseone")
"""torch's names of devices."""


class Device(Fixed):
    """A device: `device("cpu")`, `device("cpu:0")` or `device("cpu", 0)`. It compares equal to its name.

    Devices that this version does not have can be named; functions refuse them.

    Raises:
        InvalidArgument: no name of a device, or two numbers.
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
        raise DTypeError(f"a device is a name such as 'cpu', not a {type_name(text)}")
    found = re.fullmatch(r"([a-z]+)(?::(\d+))?", text)
    if found is None or found[1] not in KINDS:
        raise InvalidArgument(f"{text!r} is not the name of a device; this version supports only 'cpu'")
    return found[1], None if found[2] is None else int(found[2])


device = Device
"""Its name in `shmtensor`."""
CPU: Final = Device("cpu")


def device_of(spec: Any) -> Device:
    """Return the device of `spec`; None: the CPU. Does not block. Raises InvalidArgument: it is not available."""
    if spec is None or spec is CPU or (isinstance(spec, Device | str) and spec in ("cpu", "cpu:0")):
        return CPU
    raise InvalidArgument(f"device {spec!r} is not available; this version supports only 'cpu'")


def names_device(spec: Any) -> bool:
    """Whether an argument that may be a type or a device is a device. Does not block."""
    return isinstance(spec, Device) or (isinstance(spec, str) and spec.partition(":")[0] in KINDS)
