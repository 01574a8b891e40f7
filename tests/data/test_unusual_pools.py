"""Exceptions, factories and inputs that are unusual, in the workers of a pool."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pool_world as world
import pytest

from shmtensor.data import WorkerPool
from shmtensor.errors import InvalidArgument, TaskFailed

pytestmark = [pytest.mark.usefixtures("in_time"), pytest.mark.exhaustive]


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2, context="fork") as made:
        yield made


class Disguised(Exception):
    """Arrives as an exception of another type."""

    def __reduce__(self) -> Any:
        return ValueError, ("something else",)


class Local(Exception):
    """Can be unpickled only by the process that pickled it."""

    def __reduce__(self) -> Any:
        return _again, (os.getpid(),)


def _again(pid: int) -> Local:
    if os.getpid() != pid:
        raise OSError("not here")
    return Local("as it was")


def disguised(_item: int) -> None:
    raise Disguised("as it was")


def local(_item: int) -> None:
    raise Local("as it was")


@pytest.mark.parametrize("function", [disguised, local])
def test_an_exception_that_arrives_as_another_is_told(pool: WorkerPool, function: Any) -> None:
    with pytest.raises(TaskFailed, match="as it was"):
        next(pool.map(function, [1]))


def test_a_factory_that_is_none(pool: WorkerPool) -> None:
    with pytest.raises(InvalidArgument, match="factory must be callable, and 5 is not"):
        pool.simulations(5, 2)  # type: ignore[arg-type]


def test_inputs_in_lists_and_more_than_there_can_be(pool: WorkerPool) -> None:
    simulations = pool.simulations(world.Counter, 2)
    rows = np.arange(2.0)
    with pytest.raises(InvalidArgument, match="the inputs have 129 arrays; the maximum is 128, so join some of them"):
        simulations.send([rows] * 129)
    with pytest.raises(InvalidArgument, match="deadline is 'soon'; give seconds, 0 not to wait, None for no bound"):
        simulations.gather(1, deadline="soon")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="deadline is nan"):
        simulations.gather(1, deadline=float("nan"))
    simulations.send(rows)
    assert len(simulations.gather(2)[0]) == 2
