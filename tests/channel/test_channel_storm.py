"""Two hosts under kills and resets of all parts: the short form of `make channel-storm`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bad_network import unavailable

PROGRAM = Path(__file__).with_name("channel_storm.py")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            ["--kills", "10", "--resets", "10", "--namespaces"],
            marks=[pytest.mark.exhaustive, pytest.mark.skipif(bool(unavailable()), reason=unavailable())],
            id="namespaces",
        ),
        pytest.param(["--kills", "60", "--resets", "60"], marks=pytest.mark.exhaustive, id="kills"),
        pytest.param(["--kills", "60", "--resets", "30", "--managers"], marks=pytest.mark.exhaustive, id="managers"),
        pytest.param(
            ["--kills", "80", "--resets", "20", "--managers", "--namespaces"],
            marks=[pytest.mark.exhaustive, pytest.mark.skipif(bool(unavailable()), reason=unavailable())],
            id="managers of namespaces",
        ),
    ],
)
def test_each_message_arrives_once_whatever_is_killed(options):
    done = subprocess.run([sys.executable, PROGRAM, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["got"] > 0
