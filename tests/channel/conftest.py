"""Tests of channels leave no link process behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from channel_world import link_pids, until


@pytest.fixture(autouse=True)
def no_links_left() -> Iterator[None]:
    before = link_pids()
    yield
    gc.collect()
    until(lambda: not link_pids() - before, "the link processes have ended")
