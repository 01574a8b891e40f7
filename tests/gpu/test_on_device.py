"""Tensors on a GPU: cases that need CuPy run in a process of their own, with the real one or a stand-in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "device"
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.mark.parametrize("name", sorted(path.stem.removeprefix("cases_") for path in CASES.glob("cases_*.py")))
def test_cases(name):
    path = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
        "-o", "python_files=cases_*.py",
        f"--confcutdir={CASES}", f"--rootdir={CASES}", "-c", os.devnull, str(CASES / f"cases_{name}.py"),
    ]  # fmt: skip
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
