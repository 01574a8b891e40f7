"""Devices, streams and memory of the stand-in."""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace
from typing import Any

_now = threading.local()


def _drain() -> None:
    """The wait of a copy to the host: none, since work is done immediately."""


class _Memory:
    """Memory that the stand-in allocated."""

    def __init__(self, array: Any) -> None:
        root = array
        while getattr(root, "base", None) is not None and hasattr(root.base, "__array_interface__"):
            root = root.base
        self._root = root
        self.ptr = root.__array_interface__["data"][0]
        self.size = root.nbytes
        self.device_id = Device().id

    def _bytes(self) -> Any:
        return (ctypes.c_char * max(self.size, 1)).from_address(self.ptr)


class BaseMemory:
    ptr: int
    size: int
    device_id: int

    @property
    def device(self) -> Device:
        """The device; it cannot be set."""
        return Device(self.device_id)


class UnownedMemory(BaseMemory):
    """Memory that other code allocated."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self._owner = ptr, size, owner
        self.device_id = Device().id if device_id < 0 else device_id

    def _bytes(self) -> Any:
        return (ctypes.c_char * max(self.size, 1)).from_address(self.ptr)


class MemoryPointer:
    """An address in memory."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset
        self.device_id = mem.device_id


class Device:
    """A device; in a `with` block, the current one."""

    def __init__(self, device: Any = None) -> None:
        self.id = getattr(_now, "device", 0) if device is None else int(device)

    def use(self) -> None:
        _now.device = self.id

    def __enter__(self) -> Device:
        self._before = getattr(_now, "device", 0)
        _now.device = self.id
        return self

    def __exit__(self, *_: object) -> None:
        _now.device = self._before

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def synchronize(self) -> None:
        _drain()


class Stream:
    """A stream, whose work is done immediately."""

    null: Any
    _next = 1

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None
    ) -> None:
        self.device_id = Device().id
        self.ptr = 0 if null else 16 * Stream._next
        Stream._next += not null

    @classmethod
    def from_external(cls, owner: Any) -> Stream:
        """A stream of another library, by its protocol."""
        made = cls(null=True)
        _version, made.ptr = owner.__cuda_stream__()
        return made

    def __enter__(self) -> Stream:
        self._before = getattr(_now, "stream", None)
        _now.stream = self
        return self

    def __exit__(self, *_: object) -> None:
        _now.stream = self._before

    def use(self) -> Stream:
        _now.stream = self
        return self

    def synchronize(self) -> None:
        _drain()

    def record(self, event: Any = None) -> Any:
        return event or Event()

    def wait_event(self, event: Any) -> None:
        """Does nothing: the event's work is done."""


class Event:
    """An event, which has happened."""

    done = True

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.ptr = 1

    def record(self, stream: Any = None) -> None:
        """Nothing."""

    def synchronize(self) -> None:
        """Nothing."""


Stream.null = Stream(null=True)


def get_current_stream(device_id: int = -1) -> Any:
    return getattr(_now, "stream", None) or Stream.null


runtime = SimpleNamespace(getDevice=lambda: Device().id, getDeviceCount=lambda: 2)
memory = SimpleNamespace(OutOfMemoryError=type("OutOfMemoryError", (MemoryError,), {}))
_POOL = SimpleNamespace(used_bytes=lambda: 0, total_bytes=lambda: 0, free_all_blocks=lambda *a: None)
