"""Where tensors are: so far in the processor's memory alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from .errors import InvalidArgument


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """Where a tensor's memory is: `cpu`. Equal to its name."""

    type: str
    index: int | None = None
    """The number of the device; None: there is but one."""

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Device | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


CPU: Final = Device("cpu")


def device_of(spec: Any) -> Device:
    """The device that `spec` means; None is the CPU. Does not block. Raises InvalidArgument: it is not there."""
    if spec is None or (isinstance(spec, Device | str) and spec == CPU):
        return CPU
    raise InvalidArgument(f"asked for device {spec!r}; this version has tensors on 'cpu' alone")
