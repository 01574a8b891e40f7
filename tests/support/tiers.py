"""Which cases of a test are for `make test`, and which only for `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Values for `parametrize`: the first `count` for every run, the others marked exhaustive."""
    cases = list(values)
    return cases[:count] + [pytest.param(value, marks=pytest.mark.exhaustive) for value in cases[count:]]
