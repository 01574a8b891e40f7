"""The models of native/model: sound as designed, broken without any one safeguard, and able to report it."""

import subprocess
import sys
from pathlib import Path

import pytest

BOUND = 380
"""Seconds for one model; the largest takes half a minute where nothing else runs."""
RUN = Path(__file__).parent.parent / "native" / "model" / "run.py"

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.any_python,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not RUN.exists(), reason="the models come with the source tree only"),
]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, RUN, *arguments], capture_output=True, text=True, timeout=BOUND, check=False)


MODELS = ["holds", "two-clients", "tickets", "fork", "failover", "ring", "ring-end", "cycles", "lock", "broadcast"]
MODELS += ["broadcast-rows", "takeover", "handover", "lost-rings", "succession", "moves", "moves-in", "moves-readers"]
MODELS += ["session", "session-fetch"]


@pytest.mark.parametrize("model", MODELS)
def test_sound_with_safeguards_and_broken_without_any(model: str) -> None:
    done = run(model, "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all as expected" in done.stdout


def test_a_violation_comes_with_its_trace() -> None:
    done = run("holds", "--without", "rebuild")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "KILL owner" in done.stdout
    assert "leak" in done.stdout


def test_a_run_that_is_not_as_expected_fails() -> None:
    done = run("ring", "--without", "undo", "--kills", "0")  # nobody dies: nothing to undo, no violation
    assert done.returncode == 1
    assert "NOT AS EXPECTED" in done.stdout


def test_an_unknown_safeguard_is_an_error() -> None:
    done = run("ring", "--without", "luck")
    assert done.returncode == 2
    assert "undo-first" in done.stderr
