"""Tensors on a GPU: cases that need CuPy run in a process of their own, with the real one or a stand-in."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmtensor.gpu import driver

EXAMPLE = Path(__file__).parents[2] / "examples" / "hogwild_cuda.py"
CASES = Path(__file__).parent / "device"
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture
def group() -> Iterator[dict[str, str]]:
    """What gives a process a manager of its own: the cases kill it, and count what the group has."""
    with tempfile.TemporaryDirectory(prefix="shmt-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield {"SHMTENSOR_RUNTIME_DIR": directory}


@pytest.mark.exhaustive
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", sorted(path.stem.removeprefix("cases_") for path in CASES.glob("cases_*.py")))
def test_cases(name, group):
    if name in ("jax", "torch"):
        pytest.importorskip(name)
    path = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    command = [
        sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "no:xdist",
        "-o", "python_files=cases_*.py",
        f"--confcutdir={CASES}", f"--rootdir={CASES}", "-c", os.devnull, str(CASES / f"cases_{name}.py"),
    ]  # fmt: skip
    done = subprocess.run(
        command,
        env={**os.environ, **group, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout or (name == "jax" and "needs a JAX" in done.stdout)


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_hogwild_on_a_device(tmp_path):
    """The example, as a user runs it; without a GPU on the stand-in, which every process gets by `sitecustomize`."""
    pytest.importorskip("sklearn")
    found = [str(SUPPORT / "host_gpu"), str(SUPPORT)] if driver.status() else []
    path = os.pathsep.join([*found, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, EXAMPLE, "--processes", "2", "--quick", "--plot", str(tmp_path / "plot.png")]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_without_a_gpu_the_example_says_so():
    if not driver.status():
        pytest.skip("there is a GPU")
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2 and "no GPU can be used" in done.stderr
