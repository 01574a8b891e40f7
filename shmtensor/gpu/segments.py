"""Segments of device memory: made, opened in other processes, and unmapped (docs/gpu.md, "Memory").

The callers are in `manager.membership`, which talks to the manager; this module calls the driver.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from .. import _native
from ..errors import DeviceUnavailable
from . import driver, order, succession

if TYPE_CHECKING:
    from ..manager.membership import Manager

_uuids: Final[dict[bytes, int]] = {}


def device_of(uuid: bytes) -> int:
    """Return the number, in this process, of the device with that UUID.

    Raises:
        DeviceUnavailable: there is no driver, or this process does not see the device.
    """
    if uuid not in _uuids:
        current = driver.current()
        _uuids.update({current.facts(number).uuid: number for number in range(current.device_count())})
    if uuid not in _uuids:
        raise DeviceUnavailable(
            f"a tensor is on the GPU with UUID {uuid.hex()}, which this process does not see; check "
            f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')!r}, and the devices of its container"
        )
    return _uuids[uuid]


def open_payload(manager: Manager, uuid: bytes, descriptor: int, nbytes: int) -> tuple[int, int]:
    """Map memory that another process created. Returns (device, address). Takes about 0.2 ms.

    Raises:
        DeviceUnavailable: this process does not see the device, or the driver refused the descriptor.
    """
    device = device_of(uuid)
    current = driver.current()
    succession.watch(manager)
    try:
        return device, current.map(device, current.import_(descriptor), nbytes)
    except driver.DriverError as problem:
        raise _not_shared(device, problem) from None


def close_payload(address: int, nbytes: int) -> None:
    """End a mapping that nothing uses."""
    driver.current().unmap(address, nbytes)


def close_unused(native: _native.Client) -> None:
    """End the mappings of segments that do not exist any more."""
    for address, nbytes in native.take_unmapped():
        close_payload(address, nbytes)


def make_segment(manager: Manager, device: int, nbytes: int) -> None:
    """Create a segment on a device with room for a block of `nbytes`. Sends a request to the manager.

    Raises:
        OutOfMemory: the device has no memory left, even after this process gave back its unused memory.
        DeviceUnavailable: the device cannot be shared.
    """
    current = driver.current()
    facts = current.facts(device)
    if facts.lacks:
        raise DeviceUnavailable(
            f"cuda:{device} ({facts.name}) cannot be shared: the driver lacks {facts.lacks}; "
            "update the driver, or share the tensor's cpu()"
        )
    dedicated = nbytes > _native.DEVICE_DEDICATED_FROM
    step = current.granularity(device)
    size = (nbytes + step - 1) // step * step if dedicated else max(_native.DEVICE_ARENA_BYTES, step)
    order.of(manager).settle()
    succession.watch(manager)
    handle, payload = _create(manager, device, size)
    try:
        address = current.map(device, handle, size)
        try:
            manager.add_on_device(device, facts.uuid, address, size, dedicated, payload)
        except BaseException:
            current.unmap(address, size)
            raise
    except BaseException:
        os.close(payload)
        raise


def _create(manager: Manager, device: int, nbytes: int) -> tuple[int, int]:
    current = driver.current()
    try:
        return current.create(device, nbytes)
    except driver.DriverError as problem:
        if problem.code != driver.OUT_OF_MEMORY:
            raise _not_shared(device, problem) from None
    give_back(manager, device)
    try:
        return current.create(device, nbytes)
    except driver.DriverError as problem:
        if problem.code != driver.OUT_OF_MEMORY:
            raise _not_shared(device, problem) from None
        used = manager.native.device_stats(device)
        holders = f"; this process has {used.nbytes} bytes in {used.blocks} shared blocks there"
        raise driver.out_of_memory(device, nbytes, holders) from None


def _not_shared(device: int, problem: driver.DriverError) -> DeviceUnavailable:
    name = driver.current().facts(device).name
    return DeviceUnavailable(
        f"memory of cuda:{device} ({name}) cannot be shared: {problem}. Some virtual GPUs and containers do not permit "
        "it; send x.cpu(), or use a whole GPU that both processes see"
    )


def leave(manager: Manager) -> None:
    """Before a client leaves its group: wait for its streams, and end the registration of its table. Blocks."""
    succession.leave(manager)
    order.forget(manager)


def give_back(manager: Manager, device: int) -> int:
    """Give back a device's memory that this process caches; returns the number of segments. May block."""
    order.of(manager).settle()
    freed = manager.trim_device(device)
    close_unused(manager.native)
    return freed
