"""The recipe of docs/distributed.md, started by torchrun: ranks find tensors and a channel through torch's store."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.any_python]

BOUND = 100.0
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "distributed.md"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    found = re.search(r"```python\n(# rendezvous\.py\n.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found
    path = tmp_path / "rendezvous.py"
    path.write_text(found[1])
    return path


def torchrun(program: Path, *options: str, group: str | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--master-addr", "127.0.0.1", *options, str(program)]
    env = dict(os.environ) if group is None else {**os.environ, "SHMTENSOR_GROUP": group}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outputs(*started: subprocess.Popen[str]) -> list[str]:
    """What each prints. Nothing runs afterwards."""
    found = []
    try:
        for process in started:
            output, errors = process.communicate(timeout=BOUND)
            assert process.returncode == 0, errors
            found.append(output)
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()  # it ends its ranks
                process.communicate()
    return found


def free_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


def test_ranks_share_a_tensor_and_a_channel(program: Path) -> None:
    ranks = torchrun(program, "--nproc-per-node", "2", "--master-port", free_port())
    assert outputs(ranks) == ["[0, 1] [1.0, 2.0]\n"]


@pytest.mark.exhaustive
def test_ranks_on_two_machines_share_a_channel_only(program: Path) -> None:
    options = ["--nnodes", "2", "--nproc-per-node", "2", "--master-port", free_port()]
    machines = [
        torchrun(program, *options, "--node-rank", str(number), group=f"node{number}x{os.getpid()}")
        for number in range(2)
    ]
    assert outputs(*machines) == ["[0, 1, 2, 3] [1.0, 2.0, 0.0, 0.0]\n", ""]
