"""What is said and done where the driver cannot be used."""

import sys
from types import SimpleNamespace

import pytest

from shmtensor.gpu import driver


@pytest.fixture
def unused(monkeypatch):
    """A process that has not asked for the driver yet."""
    for name, value in (("_driver", None), ("_reason", None), ("_forked", False)):
        monkeypatch.setattr(driver, name, value)


def test_a_driver_is_not_initialised_if_cupy_is_missing(unused, monkeypatch):
    """Forked children of a process that has initialised it cannot use it, through torch neither."""
    initialised = []
    library = SimpleNamespace(cuInit=initialised.append)
    monkeypatch.setattr(driver, "_library", lambda: library)
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "CuPy cannot be imported" in driver.status()
    assert not initialised and not driver.is_in_use()


def test_a_driver_that_is_too_old(unused, monkeypatch):
    monkeypatch.setattr(driver, "_library", SimpleNamespace)
    monkeypatch.setattr(driver, "_missing_package", lambda: "")
    assert "cuInit: the driver is too old and lacks it; update it" in driver.status()
