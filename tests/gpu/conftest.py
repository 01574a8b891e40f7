"""Tests of what is on a GPU run on the real one where there is one; else on a driver whose devices are host memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from host_driver import HostDriver

from shmtensor.gpu import driver

_HOST = HostDriver(devices=2)
"""One for all tests of a process, since what it has registered and mapped is kept, as with the real one."""


@pytest.fixture
def either() -> Iterator[None]:
    """The driver of a GPU where there is one, else one over host memory with two devices."""
    has_gpu = not driver.status()
    if not has_gpu:
        driver.use(_HOST)
    yield
    if not has_gpu:
        _HOST.reset()
        driver.use(None)


@pytest.fixture
def host() -> Iterator[HostDriver]:
    """A driver over host memory, with two devices, also where there is a GPU: it can be told what to do."""
    driver.use(_HOST)
    yield _HOST
    _HOST.reset()
    driver.use(None)
