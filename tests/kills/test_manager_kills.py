"""A few of the runs of `manager_kills`, chosen at random; `make manager-kills` is all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_python

MOST = 12


@pytest.mark.exhaustive
def test_the_manager_may_be_killed_at_any_line() -> None:
    program = Path(__file__).with_name("manager_kills.py")
    done = subprocess.run(
        [sys.executable, str(program), "--most", str(MOST)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 FAILED" in done.stdout
