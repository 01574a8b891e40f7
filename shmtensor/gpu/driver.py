"""The calls of the CUDA driver that shmtensor makes; no other module uses libcuda.

CuPy computes on devices, and provides streams and copies. This module adds the calls that CuPy lacks: memory that other
processes can map (the driver's virtual memory management, by descriptors), words that streams write and wait for
(stream memory operations), and registration of host memory.

`current()` is the driver of this process. Tests replace it by a model that follows the same rules (`use`). Source of
the functions and numbers: CUDA Driver API, "Virtual Memory Management", "Stream Memory Operations".
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ..errors import DeviceUnavailable, InvalidArgument, OutOfMemory

INVALID_VALUE: Final = 1
OUT_OF_MEMORY: Final = 2
NOT_INITIALIZED: Final = 3
NO_DEVICE: Final = 100
INVALID_DEVICE: Final = 101
ALREADY_REGISTERED: Final = 712
NOT_REGISTERED: Final = 713
NOT_PERMITTED: Final = 800
NOT_SUPPORTED: Final = 801


STREAM_FUNCTIONS: Final = (
    "cuStreamWriteValue64_v2", "cuStreamWaitValue64_v2", "cuStreamQuery", "cuStreamIsCapturing",
    "cuThreadExchangeStreamCaptureMode",    "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
)  # fmt: skip
"""The functions that native code calls: a stream sets a word after its current work, or waits until a word is large
enough; whether a stream has work left; contexts."""


class DriverError(DeviceUnavailable):
    """The driver refused a call; `code` is its number (CUresult)."""

    def __init__(self, function: str, code: int, name: str) -> None:
        super().__init__(f"the CUDA driver refused {function}: {name} ({code})")
        self.function = function
        self.code = code
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.function, self.code, self.name)


@dataclass(frozen=True)
class DeviceFacts:
    """Properties of a device."""

    name: str
    uuid: bytes
    """16 bytes that identify it on every machine; a MIG instance has its own."""
    total: int
    """Bytes of memory."""
    lacks: str
    """The features that sharing needs and it lacks; empty: none."""


class Driver(Protocol):
    """The interface of a driver. A call that fails raises DriverError; only `synchronize` waits for a device.

    Devices are numbered from 0, streams are their handles (0: the default stream), addresses and sizes are in bytes.
    """

    stream_functions: tuple[int, ...]
    """Addresses of the functions on the path of a message, as STREAM_FUNCTIONS (native/python/module_gpu.cpp)."""

    def context(self, device: int) -> int:
        """Return the context that must be current when stream 0 means a device's default stream. 0: none."""
        ...

    def device_count(self) -> int:
        """Number of devices that this process sees."""
        ...

    def facts(self, device: int) -> DeviceFacts:
        """Return the properties of a device."""
        ...

    def memory(self, device: int) -> tuple[int, int]:
        """(free, total) bytes of a device."""
        ...

    def granularity(self, device: int) -> int:
        """The unit, in bytes, of sizes for `create`."""
        ...

    def create(self, device: int, nbytes: int) -> tuple[int, int]:
        """Create memory that other processes can map; returns its handle in this process, and a descriptor.

        The descriptor keeps the memory alive, in any process in which it is open.
        """
        ...

    def import_(self, descriptor: int) -> int:
        """Return a handle, in this process, for the memory of a descriptor. The descriptor stays open."""
        ...

    def map(self, device: int, handle: int, nbytes: int) -> int:
        """Map memory for a device; returns its address. Takes the handle over, even if it fails."""
        ...

    def unmap(self, address: int, nbytes: int) -> None:
        """End a mapping. Work that uses it must have ended."""
        ...

    def synchronize(self, device: int) -> None:
        """Wait until the work of this process on a device has ended. Blocks."""
        ...

    def register(self, device: int, address: int, nbytes: int) -> None:
        """Pin host memory that is mapped at an address, for all devices of this process."""
        ...

    def unregister(self, address: int) -> None:
        """End a registration. Copies that use the memory must have ended."""
        ...

    def host_allocate(self, nbytes: int) -> int:
        """Allocate pinned host memory, for all devices of this process; returns its address."""
        ...

    def host_free(self, address: int) -> None:
        """Free pinned host memory. Copies that use it must have ended."""
        ...

    def device_pointer(self, address: int) -> int:
        """The address of registered host memory for devices."""
        ...


# ------------------------------------------------------------------------------------------------ the real one


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _AllocationFlags(ctypes.Structure):
    _fields_ = (
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class _AllocationProp(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", _AllocationFlags),
    )


class _AccessDesc(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


_PINNED: Final = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_POSIX_DESCRIPTOR: Final = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_ON_DEVICE: Final = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_WRITE: Final = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_PORTABLE_AND_MAPPED: Final = 1 | 2  # CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP
_NEEDED: Final = {
    102: "virtual memory management",
    103: "memory by file descriptor",
    122: "64-bit stream memory operations",
}
"""Attributes (CU_DEVICE_ATTRIBUTE_*) that sharing a device requires, with their names in messages."""

_SIZE, _U64, _PTR = ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p


class LibCuda:  # its methods are described in Driver
    """The driver of the machine. Raises DriverError: it cannot be used."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._contexts: dict[int, int] = {}
        self._call("cuInit", 0)
        self.stream_functions: tuple[int, ...] = tuple(
            ctypes.cast(self._function(name), _PTR).value or 0 for name in STREAM_FUNCTIONS
        )

    def _function(self, name: str) -> Any:
        try:
            return getattr(self._library, name)
        except AttributeError:
            raise DriverError(name, NOT_SUPPORTED, "the driver is too old and lacks it; update it") from None

    def _call(self, name: str, *args: Any) -> None:
        code = self._function(name)(*args)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise DriverError(name, code, (text.value or b"unknown error").decode())

    def context(self, device: int) -> int:
        """Return the primary context of a device, which CuPy and torch use as well."""
        known = self._contexts.get(device)
        if known is None:
            context = _PTR()
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            known = self._contexts[device] = context.value or 0
        return known

    def _in_context(self, device: int, name: str, *args: Any) -> None:
        own, now = self.context(device), _PTR()
        self._library.cuCtxGetCurrent(ctypes.byref(now))
        if now.value == own:
            self._call(name, *args)
            return
        self._call("cuCtxPushCurrent_v2", _PTR(own))
        try:
            self._call(name, *args)
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(_PTR()))

    def device_count(self) -> int:  # noqa: D102
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def _attribute(self, device: int, number: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def facts(self, device: int) -> DeviceFacts:  # noqa: D102
        name, uuid, total = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16), _SIZE()
        self._call("cuDeviceGetName", name, 256, device)
        self._call("cuDeviceGetUuid_v2", uuid, device)
        self._call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
        lacks = [words for number, words in _NEEDED.items() if not self._attribute(device, number)]
        return DeviceFacts(name.value.decode(), uuid.raw, total.value, ", ".join(lacks))

    def memory(self, device: int) -> tuple[int, int]:  # noqa: D102
        free, total = _SIZE(), _SIZE()
        self._in_context(device, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    @staticmethod
    def _prop(device: int) -> _AllocationProp:
        return _AllocationProp(type=_PINNED, handle_types=_POSIX_DESCRIPTOR, location=_Location(_ON_DEVICE, device))

    def granularity(self, device: int) -> int:  # noqa: D102
        found, prop = _SIZE(), self._prop(device)
        self._call("cuMemGetAllocationGranularity", ctypes.byref(found), ctypes.byref(prop), 0)
        return found.value

    def create(self, device: int, nbytes: int) -> tuple[int, int]:  # noqa: D102
        handle, prop, descriptor = _U64(), self._prop(device), ctypes.c_int(-1)
        self._call("cuMemCreate", ctypes.byref(handle), _SIZE(nbytes), ctypes.byref(prop), _U64(0))
        try:
            self._call("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, _POSIX_DESCRIPTOR, _U64(0))
        except DriverError:
            self._call("cuMemRelease", handle)
            raise
        os.set_inheritable(descriptor.value, False)
        return handle.value, descriptor.value

    def import_(self, descriptor: int) -> int:  # noqa: D102
        handle = _U64()
        self._call("cuMemImportFromShareableHandle", ctypes.byref(handle), _PTR(descriptor), _POSIX_DESCRIPTOR)
        return handle.value

    def map(self, device: int, handle: int, nbytes: int) -> int:  # noqa: D102
        address = _U64()
        try:
            self._in_context(
                device, "cuMemAddressReserve", ctypes.byref(address), _SIZE(nbytes), _SIZE(0), _U64(0), _U64(0)
            )
            try:
                self._call("cuMemMap", address, _SIZE(nbytes), _SIZE(0), _U64(handle), _U64(0))
                access = _AccessDesc(_Location(_ON_DEVICE, device), _READ_WRITE)
                try:
                    self._call("cuMemSetAccess", address, _SIZE(nbytes), ctypes.byref(access), _SIZE(1))
                except DriverError:
                    self._call("cuMemUnmap", address, _SIZE(nbytes))
                    raise
            except DriverError:
                self._call("cuMemAddressFree", address, _SIZE(nbytes))
                raise
        finally:
            self._call("cuMemRelease", _U64(handle))  # the mapping keeps the memory
        return address.value

    def unmap(self, address: int, nbytes: int) -> None:  # noqa: D102
        self._call("cuMemUnmap", _U64(address), _SIZE(nbytes))
        self._call("cuMemAddressFree", _U64(address), _SIZE(nbytes))

    def synchronize(self, device: int) -> None:  # noqa: D102
        self._in_context(device, "cuCtxSynchronize")

    def register(self, device: int, address: int, nbytes: int) -> None:  # noqa: D102
        self._in_context(
            device, "cuMemHostRegister_v2", _PTR(address), _SIZE(nbytes), ctypes.c_uint(_PORTABLE_AND_MAPPED)
        )

    def unregister(self, address: int) -> None:  # noqa: D102
        self._in_context(next(iter(self._contexts), 0), "cuMemHostUnregister", _PTR(address))

    def host_allocate(self, nbytes: int) -> int:  # noqa: D102
        found = _PTR()
        self._in_context(
            next(iter(self._contexts), 0), "cuMemHostAlloc", ctypes.byref(found), _SIZE(nbytes),
            ctypes.c_uint(_PORTABLE_AND_MAPPED),
        )  # fmt: skip
        return found.value or 0

    def host_free(self, address: int) -> None:  # noqa: D102
        self._in_context(next(iter(self._contexts), 0), "cuMemFreeHost", _PTR(address))

    def device_pointer(self, address: int) -> int:  # noqa: D102
        found = _U64()
        self._in_context(
            next(iter(self._contexts), 0), "cuMemHostGetDevicePointer_v2", ctypes.byref(found), _PTR(address), 0
        )
        return found.value


# -------------------------------------------------------------------------------------------- that of this process

_FORKED: Final = (
    "this process was forked from one that uses CUDA, whose driver does not work in the child; start it with the "
    "method spawn or forkserver: multiprocessing.get_context('spawn')"
)
_driver: Driver | None = None
_reason: str | None = None  # why there is no driver; None: not initialised yet
_forked = False


def _after_fork() -> None:
    global _forked
    _forked = _forked or _driver is not None


os.register_at_fork(after_in_child=_after_fork)


def use(driver: Driver | None) -> None:
    """Make this process use another driver; None: initialise the real one again. For tests."""
    global _driver, _reason, _forked
    _driver, _reason, _forked = driver, None if driver is None else "", False


def status() -> str:
    """Return why this process cannot use a GPU; empty: it can. Initialises the driver, which takes up to a second."""
    global _driver, _reason
    if _forked:
        return _FORKED
    if _reason is None:
        try:
            library = _library()
            _reason = _missing_package()
            if not _reason:  # only then: once it is initialised, forked children cannot use it
                found = LibCuda(library)
                if found.device_count() > 0:
                    _driver = found
                else:
                    _reason = "the CUDA driver sees no device (CUDA_VISIBLE_DEVICES?)"
        except DriverError as problem:
            _reason = str(problem)
    return _reason


def _library() -> ctypes.CDLL:
    """Load the driver, without initialising it. Raises DriverError: there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as problem:
        raise DriverError("cuInit", NO_DEVICE, f"no CUDA driver: {problem}; install NVIDIA's driver") from None


def _missing_package() -> str:
    try:
        import cupy
    except ImportError as problem:
        return f"CuPy cannot be imported ({problem}); install it: pip install 'shmtensor[cuda]'"
    version = str(cupy.__version__)
    return "" if int(version.partition(".")[0]) >= 13 else f"CuPy {version} is too old; install 13 or newer"


def is_in_use() -> bool:
    """Whether this process has initialised the driver. Does not initialise it."""
    return _driver is not None and not _forked


def is_shutting_down() -> bool:
    """Whether the interpreter is ending, and the driver may be gone."""
    return sys.is_finalizing()


def current() -> Driver:
    """Return the driver of this process. Raises DeviceUnavailable: there is none; the message says why."""
    if _driver is None or _forked:
        reason = status()
        if reason:
            raise DeviceUnavailable(f"no GPU can be used: {reason}")
    assert _driver is not None
    return _driver


def require_device(number: int) -> int:
    """Return the number of a device that can be used.

    Raises:
        DeviceUnavailable: there is no GPU, or this one cannot be shared; the message says why.
        InvalidArgument: there is no device of that number.
    """
    driver = current()
    count = driver.device_count()
    if not 0 <= number < count:
        names = ", ".join(f"cuda:{i} ({driver.facts(i).name})" for i in range(count))
        raise InvalidArgument(f"device cuda:{number} does not exist; this process sees {names}")
    return number


def out_of_memory(device: int, nbytes: int, holders: str = "") -> OutOfMemory:
    """Return the error for a device without enough memory."""
    free, total = current().memory(device)
    return OutOfMemory(
        f"cuda:{device} has no {nbytes} bytes left: {free} of {total} bytes are free{holders}; release tensors, or "
        "shmtensor.cuda.empty_cache()"
    )
