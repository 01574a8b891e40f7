"""Runs the programs of native/tests, for tests of the structures that they test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from manager_world import BOUND


def program(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; skips the test if it was not built."""
    directory = os.environ.get("SHMTENSOR_NATIVE_TESTS")  # `make test` builds them and sets this
    if not directory:
        pytest.skip("the native tests are not built; run `make test-all`")
    return subprocess.run(
        [Path(directory) / name, *arguments], capture_output=True, text=True, timeout=BOUND * 5, check=False
    )
