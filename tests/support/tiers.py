"""Selects which tests run: the cases for `make test`, those only for `make test-all`, those that read the sources."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

needs_sources = pytest.mark.skipif(
    not (Path(__file__).parents[2] / "native").exists(), reason="reads the sources, which a wheel has not"
)


def first(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Values for `parametrize`: the first `count` for every run, the others marked exhaustive.

    For several parameters, each value is a tuple.
    """
    cases = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*case) for case in cases[:count]] + [
        pytest.param(*case, marks=pytest.mark.exhaustive) for case in cases[count:]
    ]
