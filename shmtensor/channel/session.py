"""The two directions of a session, without input or output: messages that may be sent, were received or acknowledged.

A session may have many connections, one after another. Each message of one direction has a sequence number, from 1. The
receiver puts messages in order and acknowledges the last one that it has put; the sender keeps a message until then,
and sends unacknowledged messages again on the next connection. native/model/channel.py checks this protocol.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, TypeVar

from ..errors import ProtocolError

Content = TypeVar("Content")


class Entry(NamedTuple, Generic[Content]):
    """Messages that are sent together."""

    first: int
    """Sequence number of the first one."""
    last: int
    nbytes: int
    content: Content


class Sender(Generic[Content]):
    """The side that sends. `entries` is the window: all unacknowledged entries, in order."""

    def __init__(self, last: int = 0) -> None:
        self.last: int = last
        """The highest sequence number that was assigned."""
        self.acknowledged: int = last
        self.entries: deque[Entry[Content]] = deque()
        self._unsent = 0  # index of the first entry that was not sent on this connection
        self._credit = 0  # bytes that may have been sent on this connection before the next entry
        self._sent_bytes = 0
        self.limit: int = 0
        """The highest sequence number that may be sent; 0: the other side accepts none."""

    def add(self, messages: int, nbytes: int, content: Content) -> None:
        """Assign the next sequence numbers to messages. They are sent once `next` returns them."""
        self.entries.append(Entry(self.last + 1, self.last + messages, nbytes, content))
        self.last += messages

    def restore(self, entry: Entry[Content]) -> None:
        """Add an entry of the window that a previous process kept."""
        self.entries.append(entry)
        self.last = max(self.last, entry.last)
        self.acknowledged = min(self.acknowledged, entry.first - 1)

    def connected(self, received: int) -> list[Entry[Content]]:
        """Begin a connection, whose other side has put the messages up to `received`. Returns as `acknowledge`."""
        released = self._release(received)
        self._unsent = 0
        self._sent_bytes = self._credit = 0
        self.limit = 0
        return released

    def acknowledge(self, received: int, credit: int, limit: int) -> list[Entry[Content]]:
        """Process an ACK. Returns the entries that are not needed any more. Raises ProtocolError."""
        released = self._release(received)
        self._credit = max(self._credit, credit)
        self.limit = limit
        return released

    def _release(self, received: int) -> list[Entry[Content]]:
        if not self.acknowledged <= received <= self.last:
            raise ProtocolError(
                f"the other side acknowledges message {received}; it had acknowledged {self.acknowledged}, and the "
                f"last one was {self.last}"
            )
        self.acknowledged = received
        released = []
        while self.entries and self.entries[0].last <= received:
            released.append(self.entries.popleft())
        self._unsent = max(0, self._unsent - len(released))
        return released

    @property
    def room(self) -> int:
        """Number of further messages that may get a sequence number now."""
        return max(0, self.limit - self.last) if self.may_send else 0

    @property
    def may_send(self) -> bool:
        """Whether bytes may be sent on this connection."""
        return self._sent_bytes < self._credit

    def next(self) -> Entry[Content] | None:
        """Return the next entry to send; None: there is none, or it has to wait for an ACK."""
        if self._unsent >= len(self.entries) or not self.may_send:
            return None
        entry = self.entries[self._unsent]
        if entry.first > self.limit:
            return None
        self._unsent += 1
        self._sent_bytes += entry.nbytes
        return entry


class Receiver:
    """The side that receives."""

    def __init__(self, put: int = 0) -> None:
        self.put = put
        """The last message that was put into the ring, which is acknowledged."""
        self.accepted: int = put
        """The last message that has arrived."""
        self.nbytes: int = 0
        """Bytes received on this connection."""

    def connected(self) -> None:
        """Begin a connection."""
        self.nbytes = 0

    def accept(self, first: int, messages: int, nbytes: int) -> int:
        """Accept messages that have arrived. Returns how many of them, from the first on, had arrived before.

        Raises:
            ProtocolError: messages before them are missing.
        """
        if first < 1 or first > self.accepted + 1:
            raise ProtocolError(f"message {first} came after message {self.accepted}: those between are missing")
        self.nbytes += nbytes
        known = min(messages, self.accepted + 1 - first)
        self.accepted += messages - known
        return known

    def credit(self, waiting: int, window: int) -> int:
        """Return the total bytes that may be sent on this connection, if `waiting` bytes wait here and `window` may."""
        return max(0, self.nbytes - waiting + window)
