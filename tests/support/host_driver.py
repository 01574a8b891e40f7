"""A CUDA driver whose devices are host memory, with the rules of the real driver (shmtensor/gpu/driver.py).

Memory is a memfd, so that other processes map it by descriptor, like device memory. Streams are executed immediately: a
stream that must wait blocks the caller, as it would delay later work; `hold` withholds the writes of a stream, as if
its work were not done. Calls that the real driver refuses are refused with its error codes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from pathlib import Path
from typing import Any

from shmtensor.gpu import driver
from shmtensor.gpu.driver import DeviceFacts, DriverError

GRANULARITY = 2 << 20
WAIT_SECONDS = 20.0
NOT_READY = 600
_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint)
_QUERY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class HostDriver:
    """Devices of `nbytes` each. Install it by `shmtensor.gpu.driver.use`."""

    def __init__(self, devices: int = 1, nbytes: int = 1 << 30, lacks: str = "") -> None:
        self.devices = devices
        self.total = nbytes
        self.lacks = lacks
        self.used = dict.fromkeys(range(devices), 0)
        self.memory_limit: int | None = None  # bytes that may be registered
        self.refuses: dict[str, int] = {}  # function -> the error code with which it is refused
        self.calls: list[str] = []
        self._pid = os.getpid()
        self._handles: dict[int, tuple[int, int, int]] = {}  # handle -> (descriptor, bytes, device or -1)
        self._mapped: dict[int, tuple[mmap.mmap, int, int]] = {}  # address -> (mapping, bytes, device or -1)
        self._registered: dict[int, int] = {}
        self._host: dict[int, mmap.mmap] = {}
        self._next = 1
        self._held: dict[int, list[tuple[int, int]]] = {}  # stream -> words to be written
        self._lock = threading.RLock()
        nothing = _QUERY(lambda _: 0)
        self._functions = _CALL(self._write_value), _CALL(self._wait_value), _QUERY(self._query), *(nothing,) * 5
        self.stream_functions = tuple(ctypes.cast(one, ctypes.c_void_p).value or 0 for one in self._functions)

    def reset(self) -> None:
        """Reset the settings of a test."""
        for stream in list(self._held):
            self.release(stream)
        self.memory_limit = None
        self.refuses.clear()
        self.calls.clear()

    def _enter(self, function: str) -> None:
        self.calls.append(function)
        if os.getpid() != self._pid:
            raise DriverError(function, driver.NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED")
        if function in self.refuses:
            raise DriverError(function, self.refuses[function], "refused by the test")

    # -- devices ---------------------------------------------------------------------------------------------------

    def context(self, device: int) -> int:
        self._require(device, "cuDevicePrimaryCtxRetain")
        return 0

    def device_count(self) -> int:
        self._enter("cuDeviceGetCount")
        return self.devices

    def facts(self, device: int) -> DeviceFacts:
        self._require(device, "cuDeviceGetName")
        return DeviceFacts(f"host memory {device}", bytes(15) + bytes([device + 1]), self.total, self.lacks)

    def _require(self, device: int, function: str) -> None:
        self._enter(function)
        if not 0 <= device < self.devices:
            raise DriverError(function, driver.INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE")

    def memory(self, device: int) -> tuple[int, int]:
        self._require(device, "cuMemGetInfo")
        return self.total - self.used[device], self.total

    def granularity(self, device: int) -> int:
        self._require(device, "cuMemGetAllocationGranularity")
        return GRANULARITY

    def synchronize(self, device: int) -> None:
        self._require(device, "cuCtxSynchronize")
        deadline = time.monotonic() + WAIT_SECONDS
        while self._held and time.monotonic() < deadline:
            time.sleep(0.001)

    # -- memory ----------------------------------------------------------------------------------------------------

    def create(self, device: int, nbytes: int) -> tuple[int, int]:
        self._require(device, "cuMemCreate")
        if nbytes % GRANULARITY or not nbytes:
            raise DriverError("cuMemCreate", driver.INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE")
        if self.used[device] + nbytes > self.total:
            raise DriverError("cuMemCreate", driver.OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY")
        descriptor = os.memfd_create("host-device")
        os.ftruncate(descriptor, nbytes)
        try:
            self._enter("cuMemExportToShareableHandle")
        except DriverError:
            os.close(descriptor)
            raise
        self.used[device] += nbytes
        return self._handle(descriptor, nbytes, device), os.dup(descriptor)

    def _handle(self, descriptor: int, nbytes: int, device: int) -> int:
        with self._lock:
            self._next += 1
            self._handles[self._next] = descriptor, nbytes, device
            return self._next

    def import_(self, descriptor: int) -> int:
        self._enter("cuMemImportFromShareableHandle")
        try:
            copy = os.dup(descriptor)
            if not str(Path(f"/proc/self/fd/{copy}").readlink()).startswith("/memfd:host-device"):
                os.close(copy)
                raise OSError
        except OSError:
            raise DriverError(
                "cuMemImportFromShareableHandle", driver.INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"
            ) from None
        return self._handle(copy, os.fstat(copy).st_size, -1)

    def map(self, device: int, handle: int, nbytes: int) -> int:
        with self._lock:
            descriptor, size, of = self._handles.pop(handle, (-1, 0, -1))
        try:
            self._require(device, "cuMemMap")
            if nbytes != size:
                raise DriverError("cuMemMap", driver.INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE")
            memory = mmap.mmap(descriptor, nbytes)
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._mapped[address] = memory, nbytes, of
        return address

    def unmap(self, address: int, nbytes: int) -> None:
        self._enter("cuMemUnmap")
        if address not in self._mapped or self._mapped[address][1] != nbytes:
            raise DriverError("cuMemUnmap", driver.INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE")
        _memory, _, of = self._mapped.pop(address)  # its pages are freed with the last reference
        if of >= 0:
            self.used[of] -= nbytes

    @property
    def mapped(self) -> int:
        """Number of mappings."""
        return len(self._mapped)

    # -- host memory -----------------------------------------------------------------------------------------------

    def register(self, device: int, address: int, nbytes: int) -> None:
        self._require(device, "cuMemHostRegister")
        for start, size in self._registered.items():
            if address < start + size and start < address + nbytes:
                raise DriverError("cuMemHostRegister", driver.ALREADY_REGISTERED, "already registered")
        if self.memory_limit is not None and sum(self._registered.values()) + nbytes > self.memory_limit:
            raise DriverError("cuMemHostRegister", driver.OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY")
        self._registered[address] = nbytes

    def unregister(self, address: int) -> None:
        self._enter("cuMemHostUnregister")
        if self._registered.pop(address, None) is None:
            raise DriverError("cuMemHostUnregister", driver.NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED")

    def host_allocate(self, nbytes: int) -> int:
        self._enter("cuMemHostAlloc")
        if not nbytes:
            raise DriverError("cuMemHostAlloc", driver.INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE")
        if self.memory_limit is not None and sum(self._registered.values()) + nbytes > self.memory_limit:
            raise DriverError("cuMemHostAlloc", driver.OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY")
        memory = mmap.mmap(-1, nbytes)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._host[address] = memory
        self._registered[address] = nbytes
        return address

    def host_free(self, address: int) -> None:
        self._enter("cuMemFreeHost")
        with self._lock:
            if address not in self._host:
                raise DriverError("cuMemFreeHost", driver.INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE")
            del self._registered[address]
            del self._host[address]  # last: afterwards, other memory may have the address

    def device_pointer(self, address: int) -> int:
        self._enter("cuMemHostGetDevicePointer")
        if not self.is_registered(address):
            raise DriverError("cuMemHostGetDevicePointer", driver.INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE")
        return address

    def is_registered(self, address: int) -> bool:
        """Whether an address is in registered memory."""
        return any(start <= address < start + size for start, size in self._registered.items())

    # -- streams ---------------------------------------------------------------------------------------------------

    def hold(self, stream: int = 0) -> None:
        """From now on, the work of a stream is not done until `release`."""
        self._held.setdefault(stream, [])

    def release(self, stream: int = 0) -> None:
        """The work of a stream is done."""
        for pointer, value in self._held.pop(stream, []):
            ctypes.c_uint64.from_address(pointer).value = value

    def _query(self, stream: Any) -> int:
        if os.getpid() != self._pid:
            return driver.NOT_INITIALIZED
        if "cuStreamWriteValue64" in self.refuses:
            return self.refuses["cuStreamWriteValue64"]
        busy = stream in self._held if stream else bool(self._held)  # the default stream waits for the others
        return NOT_READY if busy else 0

    def _write_value(self, stream: Any, pointer: int, value: int, flags: int) -> int:
        if os.getpid() != self._pid:
            return driver.NOT_INITIALIZED
        if flags or pointer % 8 or not self.is_registered(pointer):
            return driver.INVALID_VALUE
        if "cuStreamWriteValue64" in self.refuses:
            return self.refuses["cuStreamWriteValue64"]
        if (stream or 0) in self._held:
            self._held[stream or 0].append((pointer, value))
        else:
            ctypes.c_uint64.from_address(pointer).value = value
        return 0

    def _wait_value(self, _stream: Any, pointer: int, value: int, flags: int) -> int:
        if os.getpid() != self._pid:
            return driver.NOT_INITIALIZED
        if flags or pointer % 8 or not self.is_registered(pointer):
            return driver.INVALID_VALUE
        self.calls.append("cuStreamWaitValue64")
        if "cuStreamWaitValue64" in self.refuses:
            return self.refuses["cuStreamWaitValue64"]
        word = ctypes.c_uint64.from_address(pointer)
        deadline = time.monotonic() + WAIT_SECONDS
        while word.value < value:
            if time.monotonic() > deadline:
                return 999  # CUDA_ERROR_UNKNOWN: the point was not reached
            time.sleep(0.0005)
        return 0
