"""The link process of a listening end: it accepts connections, each for one session."""

from __future__ import annotations

import errno
import hashlib
import select
import socket
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic, sleep
from typing import Any, Final

from ...errors import ProtocolError
from .. import handshake
from ..address import Address
from ..end import End
from ..state import Row, Status
from .process import Link
from .stream import UNBOUNDED, ReaderSource, Stream

_BEGINNINGS: Final = 64
"""Maximum number of handshakes at once; further connections are closed."""
_ID_BYTES: Final = 16
_BACKLOG: Final = 1024
_IN_USE_SECONDS: Final = 2.0
_IN_USE_PAUSE: Final = 0.02
_DESCRIPTOR_SECONDS: Final = 0.1


class Listening(Link):
    """The link of a listening end."""

    def __init__(self, end: End) -> None:
        """Listen. Raises OSError: the address cannot be used."""
        super().__init__(end)
        self._seen: dict[Stream, float] = dict.fromkeys(self.streams.values(), monotonic())
        self._beginnings = 0
        self._begun_at: dict[Stream, float] = {}
        self._answered: dict[bytes, tuple[dict[str, Any], Stream]] = {}
        """The last HELLO of each session whose WELCOME is being sent."""
        self._boot = handshake.boot_id()
        address = Address(self.config["host"], end.state.port or self.config["port"])
        self.keys()  # raises here instead of at the first connection
        self._socket = _listen(address)
        self._watch()
        for stream in self.streams.values():
            if stream.source is not None:
                self.wants(stream)
        self.count()
        end.state.port = self._socket.getsockname()[1]
        end.state.status = Status.working

    def _watch(self) -> None:
        self.loop.watch(self._socket.fileno(), select.EPOLLIN, self._accept)

    def close(self) -> None:
        """Stop listening."""
        self.loop.forget(self._socket.fileno())
        self._socket.close()

    # ------------------------------------------------------------------------------------------------------ handshakes

    def _accept(self, events: int) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError as problem:  # the other side has ended, or all descriptors are in use
            if problem.errno in (errno.EMFILE, errno.ENFILE):
                self.loop.forget(self._socket.fileno())
                self.loop.later(_DESCRIPTOR_SECONDS, self._watch)
                self.end.state.text = f"cannot accept connections: {problem.strerror}"
            return
        if self._beginnings >= _BEGINNINGS:
            connection.close()
            return
        self._beginnings += 1
        self.thread(self._begin, connection)

    def _begin(self, connection: socket.socket) -> None:
        """In a thread: answer a connection, and pass it to the loop."""
        begun: socket.socket | None = None
        hello: dict[str, Any] = {}
        with suppress(OSError, ValueError, ProtocolError, handshake.Refused):  # the other side has been notified
            begun, hello = handshake.accept(connection, self.keys(), self.config["encrypt"], self._ask)
        self.loop.call(self._begun, begun, hello)

    def _ask(self, hello: dict[str, Any]) -> dict[str, Any]:
        """In a thread: have the loop answer a HELLO."""
        answer: Future[dict[str, Any]] = Future()

        def reply() -> None:
            try:
                answer.set_result(self._answer(hello))
            except Exception as problem:
                answer.set_exception(problem)

        self.loop.call(reply)
        return answer.result(handshake.SECONDS)

    def _answer(self, hello: dict[str, Any]) -> dict[str, Any]:
        """Return the WELCOME for a HELLO. Raises Refused."""
        for what, ours in (("kind", self.config["kind"]), ("pickle", self.pickled)):
            if hello.get(what) != ours:
                raise handshake.Refused(f"this channel has {what}={ours!r}, not {hello.get(what)!r}; use the same")
        bounds = self.end.outbox._ring.limits()
        welcome = {
            "boot": self._boot,
            "group": self.config["group"],
            "name": self.config["name"],
            "check": hashlib.sha256(self.end.state.nonce).hexdigest(),
            "maxsize": bounds.maxsize,
            "maxbytes": bounds.maxbytes,
            "policy": self.end.outbox.policy if self.is_broadcast else None,
            "timeout": self.timeout,
        }
        if hello.get("session") is None:
            return welcome
        stream = self._stream_of(*_checked(hello))
        if not stream.sender.acknowledged <= hello["received"] <= stream.sender.last:
            raise handshake.Refused(
                f"the other end has received message {hello['received']} of this session, and this one has sent "
                f"at most messages {stream.sender.acknowledged + 1} to {stream.sender.last}"
            )
        self._answered[stream.id] = hello, stream
        return {**welcome, "received": stream.receiver.put, "number": stream.row.number}

    def _stream_of(self, session: bytes, incarnation: int, named: bool, number: int) -> Stream:
        """Return the stream of a session, which may be a new one. Raises Refused."""
        known = self.streams.get(session)
        if known is not None and known.row.incarnation == incarnation and number in (0, known.row.number):
            return known
        if number:
            raise handshake.Refused(
                f"the session is unknown here: it was silent for longer than {self.timeout:g} s, or this channel was "
                "opened again"
            )
        if known is not None and known.peer is not None:
            raise handshake.RefusedNow(
                "another end with this name is connected, or was until a moment ago; close it, or choose another name"
            )
        if known is not None and incarnation < known.row.incarnation and self._is_new(known):
            raise handshake.RefusedNow("an end with this name has started again, and this HELLO may be older")
        if known is not None:
            self._drop(known)
        row = self._free_row()
        if row is None:
            raise handshake.Refused(
                f"this channel has {len(self.streams)} sessions, as many as max_peers allows; "
                "close some ends, or open the channel with a larger max_peers"
            )
        self.end.state.sessions += 1
        row.begin(self.end.state.sessions, session, incarnation, Row.NAMED if named else 0)
        stream = self.streams[session] = Stream(self, row)
        self._seen[stream] = self._begun_at[stream] = monotonic()
        return stream

    def _free_row(self) -> Row | None:
        """Return a row for a new session: if none is free, that of the named stream disconnected for longest."""
        rows = self.end.state.rows()
        if row := next((row for row in rows if row.number == 0), None):
            return row
        away = [
            stream
            for stream in self.streams.values()
            if stream.row.flags & Row.NAMED and stream.peer is None and not stream.sender.entries
        ]
        if not away:
            return None
        oldest = min(away, key=lambda stream: self._seen[stream])
        self._drop(oldest)
        return oldest.row

    def _is_new(self, stream: Stream) -> bool:
        """Whether a HELLO that is older than the session may still arrive."""
        return monotonic() - self._begun_at.get(stream, 0.0) < 2 * handshake.SECONDS

    def _begun(self, connection: socket.socket | None, hello: dict[str, Any]) -> None:
        self._beginnings -= 1
        if connection is None:
            return
        session = bytes.fromhex(hello.get("session") or "")
        answered, stream = self._answered.get(session, (None, None))
        if stream is None or answered is not hello:  # the session has ended, or connects again by a later HELLO
            connection.close()
            return
        del self._answered[session]
        stream.timeout = min(self.timeout, hello["timeout"])
        try:
            self.use(stream, connection, hello["received"])
        except (ProtocolError, OSError):
            connection.close()

    # --------------------------------------------------------------------------------------------------------- streams

    def allowance(self, stream: Stream) -> tuple[int, int]:
        """As Link."""
        bounds = self.inbox_ring.limits()
        limit = stream.receiver.put + bounds.maxsize if bounds.maxsize else UNBOUNDED
        return limit, 0

    def disconnected(self, stream: Stream, problem: Exception) -> None:
        """Wait for the session to connect again."""
        self._seen[stream] = monotonic()
        self.end.state.text = str(problem)
        self.count()

    def said_bye(self, stream: Stream) -> None:
        """Handle the orderly end of a session."""
        if not stream.row.flags & Row.NAMED:
            self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        self.end.state.lost_messages += stream.drop()
        self.streams.pop(stream.id, None)
        self._seen.pop(stream, None)
        self._begun_at.pop(stream, None)
        self._answered.pop(stream.id, None)
        self.count()

    def look(self) -> None:
        """Drop sessions that are silent for too long, and end once no process has this end."""
        now = monotonic()
        for stream in list(self.streams.values()):
            if stream.peer is None and not stream.row.flags & Row.NAMED and now - self._seen[stream] > self.timeout:
                self._drop(stream)
        if self.end.has_users():
            return
        # No process here has the channel any more. Messages inside go to the other ends.
        takers = [
            stream
            for stream in self.streams.values()
            if stream.row.flags & Row.CONSUMER and (stream.peer is not None or not stream.row.flags & Row.NAMED)
        ]
        left = 0 if self.sends_broadcast else self.end.outbox.qsize()
        lagging = any(isinstance(s.source, ReaderSource) and s.source.reader.lag for s in takers)
        if not takers or not (left or lagging or any(stream.sender.entries for stream in takers)):
            self.finish()

    def controlled(self) -> None:
        """Handle that a process may have closed the channel."""
        self.look()


def _listen(address: Address) -> socket.socket:
    """Return a listening socket. Blocks while a link process that is ending has the address. Raises OSError."""
    family, _, _, _, where = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    deadline = monotonic() + _IN_USE_SECONDS
    while True:
        try:
            listening.bind(where)
            listening.listen(_BACKLOG)
            listening.setblocking(False)
            return listening
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE or monotonic() > deadline:
                listening.close()
                raise OSError(problem.errno, f"cannot listen at {address}: {problem.strerror}") from None
        sleep(_IN_USE_PAUSE)


def _checked(hello: dict[str, Any]) -> tuple[bytes, int, bool, int]:
    """Return (session, incarnation, named, number here or 0) of a HELLO. Raises Refused."""
    try:
        session = bytes.fromhex(hello["session"])
        incarnation, received, number = hello["incarnation"], hello["received"], hello["number"]
        named, timeout = hello["named"], hello["timeout"]
    except (KeyError, TypeError, ValueError):
        raise handshake.Refused(
            "HELLO lacks a field, or has one of another type; use the same version of shmtensor on both sides"
        ) from None
    sound = len(session) == _ID_BYTES and isinstance(named, bool) and isinstance(timeout, float) and timeout >= 0.1
    for value in (incarnation, received, number):
        sound = sound and type(value) is int and 0 <= value < 2**63
    if not sound:
        raise handshake.Refused("HELLO has an invalid value; use the same version of shmtensor on both sides")
    return session, incarnation, named, number
