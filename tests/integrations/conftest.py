"""For tests beside other libraries, which take seconds to import in a new process."""

from __future__ import annotations

from typing import Any

import pytest
from tiers import first

import shmtensor.multiprocessing as mp


@pytest.fixture(params=first(["fork", "spawn", "forkserver"]))
def ctx(request: pytest.FixtureRequest) -> Any:
    """The context of each start method."""
    return mp.get_context(request.param)
