"""GPUs: functions with the names of `torch.cuda`. Arrays and operations are CuPy's (docs/gpu.md).

Without a GPU, its driver or CuPy, `is_available()` is False and `status()` returns the reason; all other functions that
need a GPU raise DeviceUnavailable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ._loading import load as _load
from ._missing import suggest as _suggest
from .devices import device_of as _device_of
from .errors import InvalidArgument
from .gpu import driver as _driver

__all__ = [
    "DeviceProperties", "Event", "Stream", "current_device", "current_stream", "default_stream", "device",
    "device_count", "empty_cache", "get_device_name", "get_device_properties", "is_available", "is_initialized",
    "manual_seed", "manual_seed_all", "mem_get_info", "memory_allocated", "memory_reserved", "set_device", "status",
    "stream", "synchronize",
]  # fmt: skip


@dataclass(frozen=True)
class DeviceProperties:
    """The result of `get_device_properties`."""

    name: str
    total_memory: int
    """In bytes."""
    uuid: str
    """Its UUID in hexadecimal digits."""
    lacks: str
    """The features that sharing its memory needs and it lacks; empty: none."""


def status() -> str:
    """Return why no GPU can be used; empty: one can. The first call initialises the driver, in up to a second."""
    return _driver.status()


def is_available() -> bool:
    """Whether a GPU can be used. Initialises the driver, as `status()`."""
    return not status()


def device_count() -> int:
    """Return the number of GPUs; 0: none can be used."""
    return 0 if status() else _driver.current().device_count()


def is_initialized() -> bool:
    """Whether this process has initialised the driver. Does not initialise it."""
    return _driver.is_in_use()


def _runtime() -> Any:
    return _load("gpu.arrays").module().cuda


def _number(spec: Any) -> int:
    """Return the number of a GPU, given a device, a number, or None for the current one."""
    if spec is None:
        return current_device()
    found = _device_of(spec)
    if found.type != "cuda":
        raise InvalidArgument(f"{spec!r} is not a GPU; give 'cuda', 'cuda:1' or a number")
    return int(found.index or 0)


def current_device() -> int:
    """Return the number of the GPU that "cuda" means."""
    return int(_runtime().runtime.getDevice())


def set_device(device: Any) -> None:
    """Make a GPU the current one of this thread. Raises InvalidArgument: there is no such GPU."""
    _runtime().Device(_number(device)).use()


@contextmanager
def device(device: Any) -> Iterator[None]:
    """Make a GPU the current one in a `with` block; None: no change. Raises InvalidArgument: there is no such GPU."""
    if device is None:
        yield
        return
    with _runtime().Device(_number(device)):
        yield


def get_device_name(device: Any = None) -> str:
    """Return the name of a GPU; None: the current one."""
    return _driver.current().facts(_number(device)).name


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Return the properties of a GPU; None: the current one."""
    facts = _driver.current().facts(_number(device))
    return DeviceProperties(facts.name, facts.total, facts.uuid.hex(), facts.lacks)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return (free, total) bytes of a GPU's memory, according to the driver; None: the current GPU."""
    return _driver.current().memory(_number(device))


def memory_allocated(device: Any = None) -> int:
    """Return the bytes of a GPU's memory in tensors of this process: private ones, and shared ones that it holds."""
    number = _number(device)
    with _runtime().Device(number):
        private = int(_load("gpu.arrays").module().get_default_memory_pool().used_bytes())
    return private + int(_shared(number).nbytes)


def memory_reserved(device: Any = None) -> int:
    """Return the bytes of a GPU's memory that this process has allocated, with its caches; without received tensors."""
    number = _number(device)
    with _runtime().Device(number):
        private = int(_load("gpu.arrays").module().get_default_memory_pool().total_bytes())
    return private + int(_shared(number).reserved)


def _shared(number: int) -> Any:
    return _load("manager.client").default().native.device_stats(number)


def synchronize(device: Any = None) -> None:
    """Wait until the work of this process on a GPU has ended; None: the current one. Blocks."""
    _driver.current().synchronize(_number(device))


def empty_cache() -> None:
    """Give back the memory that this process caches on its GPUs. Blocks briefly."""
    if not is_initialized():
        return
    _load("gpu.arrays").module().get_default_memory_pool().free_all_blocks()
    for number in range(_driver.current().device_count()):
        _load("allocators.cuda").empty_cache(number)


def Stream(device: Any = None, priority: int = 0) -> Any:  # noqa: N802 - torch's name
    """Return a new stream of CuPy: its work runs concurrently with that of others. `with` makes it the current one."""
    with _runtime().Device(_number(device)):
        return _runtime().Stream(non_blocking=True, priority=priority)


def Event(enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Any:
    """Return a new event of CuPy."""
    return _runtime().Event(block=blocking, disable_timing=not enable_timing, interprocess=interprocess)


@contextmanager
def stream(stream: Any) -> Iterator[None]:
    """Make a stream of `shmtensor.cuda`, CuPy or torch the current one in a `with` block; None: no change."""
    if stream is None:
        yield
        return
    with _load("gpu.streams").as_stream(stream):
        yield


def current_stream(device: Any = None) -> Any:
    """Return the stream, CuPy's, on which this thread's work on a GPU runs."""
    return _runtime().get_current_stream(_number(device))


def default_stream(device: Any = None) -> Any:
    """Return the default stream, CuPy's, on which work runs unless another one is chosen."""
    _number(device)
    return _runtime().Stream.null


def manual_seed(seed: Any) -> None:
    """Do nothing: random tensors on a GPU are drawn by `shmtensor`'s generators; use `shmtensor.manual_seed`."""


def manual_seed_all(seed: Any) -> None:
    """Nothing, as `manual_seed`."""


_suggest(globals())
