"""The programs of native/tests, run by tests of the structures that they try."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from manager_world import BOUND


def program(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one to its end; skips the test where they were not built."""
    directory = os.environ.get("SHMTENSOR_NATIVE_TESTS")  # `make test` builds them and says where
    if not directory:
        pytest.skip("the native tests are not built; run `make test-all`")
    return subprocess.run(
        [Path(directory) / name, *arguments], capture_output=True, text=True, timeout=BOUND * 5, check=False
    )
