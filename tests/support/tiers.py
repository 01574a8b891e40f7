"""Selects the cases of a test for `make test`, and those only for `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Values for `parametrize`: the first `count` for every run, the others marked exhaustive.

    For several parameters, each value is a tuple.
    """
    cases = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*case) for case in cases[:count]] + [
        pytest.param(*case, marks=pytest.mark.exhaustive) for case in cases[count:]
    ]
