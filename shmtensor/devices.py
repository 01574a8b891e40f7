"""Devices of tensors. The CPU is the only one so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from .errors import InvalidArgument


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A device, `cpu`. It compares equal to its name."""

    type: str
    index: int | None = None
    """The number of the device; None if there is only one."""

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Device | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


CPU: Final = Device("cpu")


def device_of(spec: Any) -> Device:
    """Return the device of `spec`; None: the CPU. Does not block. Raises InvalidArgument: it is not available."""
    if spec is None or (isinstance(spec, Device | str) and spec == CPU):
        return CPU
    raise InvalidArgument(f"device {spec!r} is not available; this version supports only 'cpu'")
