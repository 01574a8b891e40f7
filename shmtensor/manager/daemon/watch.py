"""Detection of clients that died: by pidfd where there is a connection, by periodic checks where there is none."""

from __future__ import annotations

import os
import select
from time import monotonic

from shmtensor.manager.daemon import peers, takeover

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmtensor.manager.daemon.records import Client
    from shmtensor.manager.daemon.state import State

DETACHED_SECONDS = 0.5
"""Interval between checks of processes that lost their connection but still map the group."""
EMBRYO_SECONDS = 0.25
"""Interval between searches for the sockets of embryos. One that is missing twice is given up."""


class Watch:
    """Detects clients that died and tells the state. Its pidfds are registered in the server's `poll`. Never blocks."""

    def __init__(self, state: State, poll: select.epoll, uid: int) -> None:
        self.had_client: bool = False
        self._state = state
        self._poll = poll
        self._uid = uid
        self._group_inode = os.fstat(state.group.fd).st_ino
        self._slot_of: dict[int, int] = {}  # by pidfd
        self._pidfd_of: dict[int, int] = {}  # by slot
        self._detached: dict[int, float] = {}  # slot -> time of the next check
        self._missed: set[int] = set()  # embryos whose socket no process had at the last search
        self._look_at = 0.0  # time of the next search for embryos

    def __contains__(self, fd: int) -> bool:
        """Whether `fd` is the pidfd of a client."""
        return fd in self._slot_of

    def ended(self, pidfd: int) -> int | None:
        """Return the slot of the process behind the pidfd if it has ended, else None.

        The pidfd itself is checked: within one turn of the loop its number may have been reused for another client.
        """
        return self._slot_of[pidfd] if peers.has_ended(pidfd) else None

    def connected(self, slot: int, pidfd: int) -> None:
        """Watch a client that has a connection. Takes over `pidfd` (-1: not available)."""
        self.had_client = True
        self._detached.pop(slot, None)
        self._add(slot, pidfd)

    def alone(self, client: Client) -> None:
        """Watch a client that has no connection here and may be alive."""
        self.had_client = True
        self._add(client.slot, peers.open_pidfd(client.pid))
        # Checked at once: the process may have ended before the pidfd was opened, and its id may have been reused.
        self._detached[client.slot] = 0.0

    def disconnected(self, slot: int) -> None:
        """Handle the loss of a client's connection: the client is detached if it still uses memory, else dead."""
        client = self._state.clients.get(slot)
        if client is not None and self._may_use(client):
            client.detached = True
            self._detached[slot] = monotonic() + DETACHED_SECONDS
        else:
            self.client_ended(slot)

    def embryo_gone(self, slot: int, generation: int) -> None:
        """Handle an embryo whose socket no process has any more."""
        client = self._state.embryo_gone(slot, generation)
        if client is not None:
            self.alone(client)

    def client_ended(self, slot: int) -> None:
        """Stop watching a dead client, and have the state reclaim its slot."""
        self._remove(slot)
        self._detached.pop(slot, None)
        self._state.gone(slot)

    def look(self, now: float) -> None:
        """Do the checks that are due at `now` (`monotonic()`, in seconds)."""
        while self._state.unannounced:
            self.alone(self._state.unannounced.pop())
        for slot in [slot for slot, due in self._detached.items() if now >= due]:
            client = self._state.clients.get(slot)
            # A process that is not visible from here is assumed to be alive.
            if client is not None and (client.pid == 0 or self._may_use(client)):
                self._detached[slot] = now + DETACHED_SECONDS
            else:
                self.client_ended(slot)
        if self._state.awaited and now >= self._look_at:
            self._look_at = now + EMBRYO_SECONDS
            self._look_for_embryos()

    def next_look(self, now: float) -> float | None:
        """Seconds until `look` has something to do; None: not before the next event."""
        waits = list(self._detached.values())
        if self._state.awaited:
            waits.append(self._look_at)
        return min(waits) - now if waits else None

    def close(self) -> None:
        """Close the pidfds."""
        for pidfd in self._slot_of:
            os.close(pidfd)
        self._slot_of.clear()
        self._pidfd_of.clear()

    def _may_use(self, client: Client) -> bool:
        """Whether the process maps the group's memory, or is a spawned child that has not mapped it yet."""
        if client.pid == os.getpid():  # this process was a client's child until it called exec
            return False
        if peers.still_maps(client.pid, client.start_time, self._group_inode):
            return True
        return takeover.has_socket(client.pid, self._state.group.socket(client.slot))

    def _look_for_embryos(self) -> None:
        """Give up the embryos whose socket no process has."""
        sockets = takeover.sockets(self._uid)
        missing = {slot for slot in self._state.awaited if self._state.group.socket(slot) not in sockets}
        for slot in missing & self._missed:
            self.embryo_gone(slot, self._state.embryos[slot] >> 32)
        self._missed = missing

    def _add(self, slot: int, pidfd: int) -> None:
        self._remove(slot)
        if pidfd >= 0:
            self._slot_of[pidfd] = slot
            self._pidfd_of[slot] = pidfd
            self._poll.register(pidfd, select.EPOLLIN)

    def _remove(self, slot: int) -> None:
        pidfd = self._pidfd_of.pop(slot, -1)
        if pidfd >= 0:
            del self._slot_of[pidfd]
            self._poll.unregister(pidfd)
            os.close(pidfd)
