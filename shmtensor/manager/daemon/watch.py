"""Which clients live: those with a connection by their pidfds, those without by a look at them now and then."""

from __future__ import annotations

import os
import select
from time import monotonic

from shmtensor.manager.daemon import peers, takeover

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmtensor.manager.daemon.state import Client, State

DETACHED_SECONDS = 0.5
"""Processes that lost their connection but still map the group are looked at this often."""
EMBRYO_SECONDS = 0.25
"""Embryos without a socket here are looked for this often; twice in vain, and nobody will come for them."""


class Watch:
    """Finds out who has died, and tells the state. Its pidfds stand in the server's `poll`; no call blocks."""

    def __init__(self, state: State, poll: select.epoll, uid: int) -> None:
        self.had_client = False
        self._state = state
        self._poll = poll
        self._uid = uid
        self._group_inode = os.fstat(state.group.fd).st_ino
        self._slot_of: dict[int, int] = {}  # by pidfd
        self._pidfd_of: dict[int, int] = {}  # by slot
        self._detached: dict[int, float] = {}  # slot -> when to look again
        self._missed: set[int] = set()  # embryos whose socket nobody had when last looked for
        self._look_at = 0.0  # for embryos

    def __contains__(self, fd: int) -> bool:
        """True for a pidfd of a client."""
        return fd in self._slot_of

    def ended(self, pidfd: int) -> int | None:
        """The slot whose process that is, when it has ended.

        Within one turn of the loop the number may have passed to a newcomer: only the pidfd itself is proof.
        """
        return self._slot_of[pidfd] if peers.has_ended(pidfd) else None

    def connected(self, slot: int, pidfd: int) -> None:
        """The client in `slot` has a connection; `pidfd` (-1: it cannot be had) is kept here."""
        self.had_client = True
        self._detached.pop(slot, None)
        self._add(slot, pidfd)

    def alone(self, client: Client) -> None:
        """A client has no connection here, and may live."""
        self.had_client = True
        self._add(client.slot, peers.open_pidfd(client.pid))
        # Looked at soon: the process may have ended before it was watched, and its id be another's.
        self._detached[client.slot] = 0.0

    def disconnected(self, slot: int) -> None:
        """A client has lost its connection: it lives on without one if it uses memory, and is dead otherwise."""
        client = self._state.clients.get(slot)
        if client is not None and self._may_use(client):
            client.detached = True
            self._detached[slot] = monotonic() + DETACHED_SECONDS
        else:
            self.bury(slot)

    def embryo_gone(self, slot: int, generation: int) -> None:
        """Nobody has the socket of that embryo any more."""
        client = self._state.embryo_gone(slot, generation)
        if client is not None:
            self.alone(client)

    def bury(self, slot: int) -> None:
        """The client in `slot` is dead."""
        self._remove(slot)
        self._detached.pop(slot, None)
        self._state.gone(slot)

    def look(self, now: float) -> None:
        """What is due by the clock: `monotonic()`, in seconds."""
        while self._state.strangers:
            self.alone(self._state.strangers.pop())
        for slot in [slot for slot, due in self._detached.items() if now >= due]:
            client = self._state.clients.get(slot)
            # One that cannot be seen has to be believed.
            if client is not None and (client.pid == 0 or self._may_use(client)):
                self._detached[slot] = now + DETACHED_SECONDS
            else:
                self.bury(slot)
        if self._state.awaited and now >= self._look_at:
            self._look_at = now + EMBRYO_SECONDS
            self._look_for_embryos()

    def next_look(self, now: float) -> float | None:
        """Seconds until `look` has something to do; None: not before something happens."""
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
        """Whether the process uses the group's memory, or is a spawned child that has not been told where that is."""
        if client.pid == os.getpid():  # a client's child, until it became this manager by exec
            return False
        if peers.still_maps(client.pid, client.start_time, self._group_inode):
            return True
        return takeover.has_socket(client.pid, self._state.group.socket(client.slot))

    def _look_for_embryos(self) -> None:
        """Give up the embryos for which nobody can come any more: no process has their socket."""
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
