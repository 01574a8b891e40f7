"""Runs the program of native/tests that tests native/tensor/graph.cpp."""

from __future__ import annotations

import pytest
from native_programs import program


@pytest.mark.exhaustive
def test_random_graphs() -> None:
    done = program("graph")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3000 graphs: ok" in done.stdout
