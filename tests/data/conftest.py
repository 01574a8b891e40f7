"""Starts workers by fork unless a test asks for another method: tests define datasets, which only fork takes along.

Collects garbage after tests: exceptions that they caught keep iterators, and so workers, alive.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def workers_by_fork() -> Iterator[None]:
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("fork", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    gc.collect()
