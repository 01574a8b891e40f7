"""Exceptions that tests have caught keep iterators, and so workers, until garbage is collected."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    gc.collect()
