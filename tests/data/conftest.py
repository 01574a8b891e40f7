"""Collects garbage after tests: exceptions that they caught keep iterators, and so workers, alive."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    gc.collect()
