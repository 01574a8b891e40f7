"""Runs the program of native/tests that tests native/tensor/windows.cpp."""

from __future__ import annotations

import pytest
from native_programs import program


@pytest.mark.exhaustive
def test_random_windows() -> None:
    done = program("windows")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2000 cases: ok" in done.stdout
