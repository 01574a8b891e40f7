"""Tests of GPU features run on a real GPU if there is one, else on a driver whose devices are host memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from host_driver import HostDriver
from manager_world import until

from shmtensor.gpu import driver, order

collect_ignore = ["device"]  # which is for processes of its own (test_on_device.py)
_HOST = HostDriver(devices=2)
"""One for all tests of a process, since what it has registered and mapped is kept, as with the real one."""


def _take_away() -> None:
    """End what a test has asked for, and the use of the driver, once nothing waits for it."""
    try:
        _HOST.reset()
        gc.collect()
        until(order.is_idle, "what was released to be free")
    finally:
        driver.use(None)


@pytest.fixture
def either() -> Iterator[None]:
    """The driver of a GPU where there is one, else one over host memory with two devices."""
    has_gpu = not driver.status()
    if not has_gpu:
        driver.use(_HOST)
    yield
    if not has_gpu:
        _take_away()


@pytest.fixture
def host() -> Iterator[HostDriver]:
    """A driver over host memory, with two devices, which can be told what to do."""
    if not driver.status() and driver.current() is not _HOST:
        pytest.skip("a process has one driver; `make test` on a machine without a GPU runs these")
    driver.use(_HOST)
    yield _HOST
    _take_away()
