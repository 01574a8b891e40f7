"""Joining a group: reach the manager at an address, or start one, and become its client.

`connection` makes one attempt, without starting anything.
"""

# pathlib costs time at every start of a manager.
# ruff: noqa: PTH120

from __future__ import annotations

import os
from dataclasses import dataclass
from time import monotonic, sleep

from shmtensor import errors
from shmtensor.manager import address as addresses
from shmtensor.manager import launch, protocol
from shmtensor.manager.connection import NothingThere, Requests, connect, hello, rejoin

LEAST_SECONDS = 0.1
"""Minimum time that a manager has to answer, even if less is left of the caller's timeout."""
_PAUSE_SECONDS = 0.02
"""Pause between attempts to connect, if each manager ends before it answers."""


@dataclass(frozen=True)
class Place:
    """A process's slot in a group, with which it reconnects to the group's next manager."""

    slot: int
    generation: int
    group: int


def introduce(
    requests: Requests, deadline: float, place: Place | None, fd: int = -1, starts: bool = True
) -> tuple[int, protocol.Welcome, int]:
    """Become a client of the manager at the address of `requests`. Blocks.

    If the manager ends before it answers, its successor is asked, until `deadline`.

    Args:
        requests: for the manager's address.
        deadline: on the monotonic clock, in seconds.
        place: the slot of this process in the group; None: a new one.
        fd: a new connection, taken over; with `place`, that of an embryo. -1: connect here.
        starts: False: ask only the first manager.

    Returns:
        (connection, welcome, the group segment's descriptor).

    Raises:
        ShmTensorError: as `_reach`, `connection.hello` and `connection.rejoin`; NothingThere only after the deadline.
    """
    has_place = place is not None and fd < 0
    while True:
        if fd < 0:
            fd = _reach(requests.address, deadline)
        requests.renew(fd)
        left = max(LEAST_SECONDS, deadline - monotonic())
        try:
            if place is None or not has_place:
                return fd, *hello(requests, fd, 0, left)
            return fd, *rejoin(requests, fd, place.slot, place.generation, place.group, left)
        except NothingThere:
            requests.close(fd)
            if not starts or monotonic() >= deadline:
                raise
        except BaseException:
            requests.close(fd)
            raise
        has_place, fd = place is not None, -1
        sleep(max(0.0, min(_PAUSE_SECONDS, deadline - monotonic())))


def _reach(address: bytes, deadline: float) -> int:
    """Connect to the manager at the address; start one if there is none. Blocks.

    Raises:
        ManagerUnavailable: none can be started, or each ended at once until `deadline`.
        ManagerTimeout: see `connect`.
    """
    attempts = 0
    while True:
        left = max(0.0, deadline - monotonic())
        try:
            return connect(address, left)
        except NothingThere:
            pass
        directory = addresses.own_directory(os.path.dirname(os.fsdecode(address)))
        with launch.StartLock(directory, left):
            try:  # another process may have started it while we waited
                return connect(address, left)
            except NothingThere:
                if left <= 0 and attempts:
                    raise _nobody(address) from None
                attempts += 1
                launch.start(address)


def _nobody(address: bytes) -> errors.ManagerUnavailable:
    shown = os.fsdecode(address)
    return errors.ManagerUnavailable(
        f"the manager at {shown} has ended, and each manager started in its place ended at once; memory that is "
        f"already mapped keeps working. See {os.fsdecode(addresses.log_path(address))}, or the output "
        f"of `shmtensor-manager serve --address {shown}`"
    )
