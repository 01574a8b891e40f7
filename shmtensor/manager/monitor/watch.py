"""Repeated snapshots of the chosen managers, through connections that stay open."""

from __future__ import annotations

import time

from shmtensor.errors import ManagerUnavailable, ShmTensorError
from shmtensor.manager.connection import Observer
from shmtensor.manager.monitor.snapshot import take
from shmtensor.manager.selection import ANSWER_SECONDS, candidates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmtensor.manager.monitor.snapshot import Snapshot

PSS_SECONDS = 10.0
"""Interval between readings of the PSS of processes, the only part of a snapshot that slows them down."""


class Watch:
    """Takes snapshots of one manager, or of all managers of this user. Close it, or use it in a `with`."""

    def __init__(self, address: str | None) -> None:
        """Does not connect yet. `address` None: that of the environment, or else all that run at each `look`."""
        self._address = address
        self._observers: dict[bytes, Observer] = {}
        self._last: dict[bytes, Snapshot] = {}
        self._pss_at = 0.0

    def look(self) -> list[Snapshot]:
        """Return a snapshot of each manager that answers. Blocks for two requests to each.

        Raises:
            ShmTensorError: none answers.
        """
        now = time.monotonic()
        pss = now >= self._pss_at
        if pss:
            self._pss_at = now + PSS_SECONDS
        found: dict[bytes, Snapshot] = {}
        problem: ShmTensorError = ManagerUnavailable("no manager runs")
        for address in candidates(self._address):
            try:
                found[address] = self._take(address, pss)
            except ShmTensorError as error:
                problem = error
        for address in self._observers.keys() - found.keys():
            self._observers.pop(address).close()
        self._last = found
        if not found:
            raise problem
        return list(found.values())

    def _take(self, address: bytes, pss: bool) -> Snapshot:
        before = self._last.get(address)
        known = self._observers.get(address)
        if known is not None:
            try:
                return take(known, before, pss, sampled=pss)
            except ShmTensorError:  # another manager may run there
                self._observers.pop(address).close()
        observer = self._observers[address] = Observer(address, ANSWER_SECONDS)
        return take(observer, before, pss or before is None, sampled=pss or before is None)

    def close(self) -> None:
        """Close the connections."""
        while self._observers:
            self._observers.popitem()[1].close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
