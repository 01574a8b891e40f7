"""Pinned shared memory: blocks whose pages are registered with the driver (docs/gpu.md, "Pinned memory").

A registration covers the pages of one block. It keeps the block, and ends before the block does. So registered pages
are never given back or unmapped, and no other memory begins in registered pages and ends outside of them. The driver
refuses every copy of such memory, also in other libraries, and copies that span two registrations (measured). Blocks of
64 KiB and more do not share pages; smaller ones are not registered.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from .. import _native
from ..errors import DeviceUnavailable, OutOfMemory
from ..manager import client
from . import driver, order

if TYPE_CHECKING:
    from ..manager.membership import Manager

PAGED_FROM: Final = 64 << 10
"""Blocks of at least this size (bytes) begin at a page, and share no page with other blocks."""
WASTE: Final = 2
"""A block of a pool is used for a request if it is at most this many times as large."""
RECENT: Final = 64
"""Blocks of a pool that were not used for this many requests are given back when it grows."""
FORK_SECONDS: Final = 0.05
"""Maximum time to wait for a new forked child, which holds the free blocks of pools until it runs."""
_PAGE: Final = 4096


class Registration:
    """The registered pages of one block. They stay registered, and the block allocated, as long as this exists."""

    __slots__ = ("__weakref__", "_driver", "_pid", "use")

    def __init__(self, block: _native.Block) -> None:
        """Register the pages, which takes about 40 us for each MiB in memory. Raises DriverError, DeviceUnavailable."""
        self.use: _native.BlockUse = _used(_native.BlockUse(block))
        current = driver.current()
        current.register(0, block.address, -(-block.nbytes // _PAGE) * _PAGE)
        self._driver, self._pid = current, os.getpid()
        _registrations[block.address] = self

    def __del__(self, is_ending: Any = sys.is_finalizing, pid: Any = os.getpid) -> None:
        if not is_ending() and getattr(self, "_pid", None) == pid():
            self._driver.unregister(self.use.address)


_registrations: Final[weakref.WeakValueDictionary[int, Registration]] = weakref.WeakValueDictionary()
"""Registrations by the address of the block."""
_uses: Final[weakref.WeakSet[_native.BlockUse]] = weakref.WeakSet()
"""All registrations of this process, for a forked child to end."""
_registering = threading.RLock()
_forked_at = -FORK_SECONDS
_is_refused = False  # the warning was given


def _used(use: _native.BlockUse) -> _native.BlockUse:
    _uses.add(use)
    return use


def is_registered(address: int) -> bool:
    """Whether a registered block begins at an address. Does not block."""
    return address in _registrations


def pin(block: _native.Block) -> bool:
    """Register the pages of a block until its last use here ends. Returns whether they are registered.

    Returns False for blocks below 64 KiB. If the driver refuses, warns once per process.

    Raises:
        DeviceUnavailable: this process cannot use a GPU.
    """
    if block.nbytes < PAGED_FROM:
        return False
    driver.current()
    with _registering:
        known = _registrations.get(block.address)
        return known is not None or _registered(block) is not None


def _registered(block: _native.Block) -> Registration | None:
    """Register a block, and make its end wait for the streams that use it. None: the driver refused."""
    try:
        made = Registration(block)
    except driver.DriverError as problem:
        _warn(problem)
        return None
    _watch(block, made)
    return made


def _watch(block: _native.Block, registration: Registration) -> None:
    """Delay the end of a block's last use here until its streams have ended their work, by one more use."""
    weakref.finalize(block, retire, (registration, _used(registration.use.again()))).atexit = False


def _warn(problem: DeviceUnavailable) -> None:
    global _is_refused
    if _is_refused:
        return
    _is_refused = True
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    shown = "unlimited" if limit == resource.RLIM_INFINITY else f"{limit} bytes"
    warnings.warn(
        f"memory was not pinned ({problem}), so copies to a GPU are slower and block; the limit "
        f"of locked memory is {shown}: raise it (ulimit -l unlimited; in a container --ulimit memlock=-1; in a "
        "systemd unit LimitMEMLOCK=infinity), or pin less",
        RuntimeWarning,
        stacklevel=5,
    )


# ---------------------------------------------------------------------------------------------- the end of a last use


def retire(used: Any) -> None:
    """Keep an object until the current streams of this thread have ended their work so far. Does not block.

    Some libraries (such as torch) keep foreign memory only during the call that copies it, so memory that ends here may
    still be read by a copy that they have submitted to their current stream.
    """
    if driver.is_in_use() and not driver.is_shutting_down():
        for device, stream in set(current_streams()):
            order.keep_until_done(used, device, stream)


def current_streams() -> Iterator[tuple[int, int]]:
    """Yield (device, handle) of the current stream of each library that uses a device here. Does not block."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        device = torch.cuda.current_device()
        yield device, torch.cuda.current_stream(device).cuda_stream
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        device = cupy.cuda.Device().id
        yield device, cupy.cuda.get_current_stream(device).ptr


# --------------------------------------------------------------------------------------------------------------- pools


class PinnedPool:
    """Blocks that are registered once and reused: a block whose last use has ended is handed out as a new one.

    A block is free once no array, tensor or message in any process, and no recorded stream, uses it. It then gets a new
    generation, so that old handles are refused. Thread-safe.
    """

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._requests = 0
        self._lock = threading.RLock()
        _pools.add(self)

    def allocate(self, nbytes: int) -> _native.Block:
        """Return a registered block of at least `nbytes` bytes with arbitrary content, aligned to a page.

        If the driver refuses the registration, warns once per process, and returns memory that is not registered. May
        block for 50 ms after a fork.

        Raises:
            DeviceUnavailable: this process cannot use a GPU.
            OutOfMemory, ManagerError: as `shmtensor.empty(..., shared=True)`.
        """
        need = max(nbytes, PAGED_FROM)
        with self._lock:
            self._requests += 1
            found = self._free(need)
            if found is None and self._entries:
                order.of(client.default()).settle()
                found = self._free(need)
            while found is None and self._entries and monotonic() - _forked_at < FORK_SECONDS:
                sleep(0.0005)
                found = self._free(need)
            return self._grown(need) if found is None else found

    def _free(self, need: int) -> _native.Block | None:
        for entry in self._entries:
            if need <= entry.nbytes <= WASTE * need:
                block = entry.registration.use.renew()
                if block is not None:
                    entry.request = self._requests
                    _watch(block, entry.registration)
                    return block
        return None

    def _grown(self, need: int) -> _native.Block:
        self.trim(self._requests - RECENT)
        try:
            block = client.default().allocate(need)
        except OutOfMemory:
            if not self.trim():
                raise
            block = client.default().allocate(need)
        registration = _registered(block)
        if registration is not None:
            self._entries.append(_Entry(registration, need, self._requests))
            self._entries.sort(key=lambda entry: entry.nbytes)
        return block

    def trim(self, before: int | None = None) -> int:
        """Give back free blocks: those that were not used since a request, or all. Returns their number of bytes."""
        with self._lock:
            if before is None and self._entries and driver.is_in_use():
                order.of(client.default()).settle()
            kept, freed = [], 0
            for entry in self._entries:
                is_old = before is None or entry.request < before
                if is_old and entry.registration.use.renew() is not None:
                    freed += entry.nbytes
                else:
                    kept.append(entry)
            self._entries = kept
            return freed

    @property
    def nbytes(self) -> int:
        """Bytes of its blocks, free or in use."""
        with self._lock:
            return sum(entry.nbytes for entry in self._entries)

    def _forget(self) -> None:
        self._lock = threading.RLock()
        self._entries.clear()


class _Entry:
    """A block of a pool, and the number of the request for which it was last given out."""

    __slots__ = ("nbytes", "registration", "request")

    def __init__(self, registration: Registration, nbytes: int, request: int) -> None:
        self.registration, self.nbytes, self.request = registration, nbytes, request


_pools: Final[weakref.WeakSet[PinnedPool]] = weakref.WeakSet()


def trim() -> int:
    """Give back the free blocks of all pools. Returns their number of bytes."""
    return sum(pool.trim() for pool in list(_pools))


def leave(manager: Manager) -> None:
    """Before a client leaves its group: wait for its streams, and give back free blocks. Blocks."""
    trim()
    order.forget(manager)


def _note_fork() -> None:
    global _forked_at
    _forked_at = monotonic()


def _after_fork() -> None:
    """In a forked child, drop the parent's registrations and blocks of pools, which it would otherwise keep in use.

    Some uses belong to a thread of the parent, which does not exist here.
    """
    global _registering
    _registering = threading.RLock()
    for use in list(_uses):
        use.close()
    for pool in list(_pools):
        pool._forget()
    _registrations.clear()


os.register_at_fork(after_in_parent=_note_fork, after_in_child=_after_fork)
