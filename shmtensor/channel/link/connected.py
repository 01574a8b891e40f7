"""The link process of an end that connects to a listening one: it has one session, and reconnects if necessary."""

from __future__ import annotations

import socket
from time import monotonic, sleep
from typing import Any, Final

from ...errors import ProtocolError
from .. import handshake
from ..address import Address
from ..end import End
from ..state import Status
from .process import Link
from .stream import Stream

_PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Seconds between attempts to connect."""
_CLOSING_SECONDS: Final = 0.02
_STEADY_SECONDS: Final = 1.0
"""After a connection that lasted longer, the next attempt is made at once."""
_CHECK_DIGITS: Final = 15


class Connected(Link):
    """The link of a connected end."""

    def __init__(self, end: End) -> None:
        """Connect, in the background."""
        super().__init__(end)
        config, state = self.config, end.state
        self.address: Address = Address(config["host"], config["port"])
        self._attempts = 0
        if not self.streams:
            state.sessions += 1
            row = next(iter(state.rows()))
            row.begin(state.sessions, bytes.fromhex(config["session"]), config["incarnation"] + state.sessions, 0)
            self.streams[row.id] = Stream(self, row)
        self.stream: Stream = next(iter(self.streams.values()))
        self.stream.source = self.source_of(self.stream.row)
        self._prefetch: int = config["prefetch"]
        self._silent_since = monotonic()
        self._closing = False
        self._connecting = False
        self._broken_at: tuple[int, int] | None = None
        """The numbers of messages put and acknowledged when the other end last broke the protocol."""
        state.status = Status.working
        self._connect()

    # ---------------------------------------------------------------------------------------------------- connections

    def _connect(self) -> None:
        if not self._connecting and not self.end.is_lost:
            self._connecting = True
            self.thread(self._try)

    def _try(self) -> None:
        """In a thread: connect until it succeeds, or the session is lost."""
        problem: Exception | None = None
        while self._may_wait():
            if self._attempts:
                sleep(_PAUSES[min(self._attempts, len(_PAUSES)) - 1])
            self._attempts += 1
            row = self.stream.row
            hello = {
                "kind": self.config["kind"], "pickle": self.pickled, "session": self.config["session"],
                "incarnation": row.incarnation, "timeout": self.timeout, "named": self.config["stream"] is not None,
                "number": row.welcomed, "received": row.put,
            }  # fmt: skip
            try:
                left = max(0.1, min(handshake.SECONDS, self.timeout))
                begun = handshake.connect(self.address, self.keys(), self.config["encrypt"], hello, left)
            except handshake.Refused as refusal:
                self.loop.call(self._lose, str(refusal))
                return
            except (OSError, ValueError, ProtocolError) as failure:
                problem = failure
            else:
                self.loop.call(self._begun, *begun)
                return
            self.end.state.text = f"{self.address}: {problem}"
        self.loop.call(self._lose, f"{self.address} was not reached for {self.timeout:g} s: {problem}")

    def _may_wait(self) -> bool:
        return self.config["stream"] is not None or monotonic() - self._silent_since < self.timeout

    def _begun(self, connection: socket.socket, welcome: dict[str, Any]) -> None:
        self._connecting = False
        row = self.stream.row
        try:
            received, number, timeout = welcome["received"], welcome["number"], welcome["timeout"]
            check = int(welcome["check"][:_CHECK_DIGITS], 16)
            if row.welcomed and check != row.check:
                raise ProtocolError("another channel listens there, which does not have this session")
            if not isinstance(timeout, float) or not timeout > 0:
                raise ProtocolError(f"the other end has timeout {timeout!r}")
            if type(number) is not int or not 0 < number < 2**63:
                raise ProtocolError(f"the other end has session number {number!r}")
            if type(received) is not int or not self.stream.sender.acknowledged <= received <= self.stream.sender.last:
                raise ProtocolError(f"the other end has received message {received!r} of this session")
        except (KeyError, TypeError, ValueError, ProtocolError) as problem:
            connection.close()
            self._lose(f"{self.address}: {problem}")
            return
        row.check = check
        row.welcomed = number
        self.stream.timeout = min(self.timeout, timeout)
        self.use(self.stream, connection, received)
        if self._closing:
            self._ask_whether_drained()

    def _lose(self, reason: str) -> None:
        self._connecting = False
        if not self._closing:
            self.end.state.lose(reason)
        state = self.end.state
        state.lost_messages += self.stream.drop()
        state.connected = 0
        state.ended = 1  # another link process is needed only once a program opens the end again
        self.loop.stop()

    def disconnected(self, stream: Stream, problem: Exception) -> None:
        """Connect again."""
        now = monotonic()
        if now - self._silent_since > _STEADY_SECONDS:
            self._attempts = 0
        self._silent_since = now
        self.end.state.subscribed = 0
        self.end.state.text = str(problem)
        self.count()
        if isinstance(
            problem, ProtocolError
        ):  # damage in transit is temporary; if it recurs at once, the other end causes it
            now_at = stream.receiver.put, stream.sender.acknowledged
            if now_at == self._broken_at:
                self._lose(f"{self.address}: {problem}")
                return
            self._broken_at = now_at
        self._connect()

    def said_bye(self, stream: Stream) -> None:
        """Handle the close of the channel by the listening end."""
        if self.config["stream"] is None:
            self._lose(f"the channel at {self.address} was closed there")
        elif stream.peer is not None:
            stream.disconnected(stream.peer, ConnectionError("the channel was closed there"))

    # -------------------------------------------------------------------------------------------------------- streams

    def allowance(self, stream: Stream) -> tuple[int, int]:
        """As Link."""
        put = stream.receiver.put
        state = self.end.state
        if self._closing:
            return 0, 0
        if self.is_broadcast:
            return (put + self.inbox_ring.limits().maxsize if state.wanted else 0), 0
        asked = state.asked + state.wanted
        return (asked + self._prefetch - 1 if asked else 0), self.inbox_ring.stats().nbytes

    def controlled(self) -> None:
        """Handle that a process wants messages, or has closed the channel."""
        self.stream.touched()
        self.look()

    # ---------------------------------------------------------------------------------------------------------- ending

    def look(self) -> None:
        """End once no process has this end, and messages in transit have arrived."""
        if self.end.has_users():
            self._reopen()
        elif not self._closing:  # no more messages are wanted, and those in transit come first
            self._closing = True
            self._ask_whether_drained()
            self.loop.later(_CLOSING_SECONDS, self._look_whether_done)

    def _look_whether_done(self) -> None:
        if not self._closing:
            return
        if self.end.has_users():
            self._reopen()
        elif self._is_done():
            self.finish()
        self.loop.later(_CLOSING_SECONDS, self._look_whether_done)

    def _reopen(self) -> None:
        """Continue, because a process has opened this end again."""
        if self._closing:
            self._closing = False
            self.end.state.returning = 0
            self.stream.source = self.source_of(self.stream.row)
            self.stream.touched()

    def _ask_whether_drained(self) -> None:
        self.stream.acknowledge()
        self.stream.is_drained = False
        self.stream.ask_whether_drained()
        self.stream.touched()

    def _is_done(self) -> bool:
        """Whether all messages that were put are delivered, and those that were fetched but not taken are sent back."""
        stream = self.stream
        if stream.peer is None:
            left = (
                self.end.outbox.qsize() or stream.sender.entries or (not self.is_broadcast and self.end.inbox.qsize())
            )
            return not left or not self._may_wait()
        if not stream.is_drained or stream.waits_for_room or self.end.outbox.qsize() or stream.sender.entries:
            return False
        if self.is_broadcast or self.end.inbox.qsize() == 0:
            return True
        if not self.end.state.returning:
            self.end.state.returning = 1
            stream.source = self.source_of(stream.row)
        self.wants(stream)
        return False
