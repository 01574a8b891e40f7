"""The manager's replies to the requests of clients. Uses messages and the state, no sockets."""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH208

from __future__ import annotations

import os
import sys

from shmtensor import _native
from shmtensor.manager import protocol
from shmtensor.manager.daemon import report
from shmtensor.manager.daemon.memory import Memory, document
from shmtensor.manager.daemon.records import Refusal, Segment
from shmtensor.manager.daemon.state import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class Answer:
    """A reply with its descriptors. `ours`: close them once they are sent."""

    __slots__ = ("descriptors", "ours", "reply")

    def __init__(self, reply: protocol.Message, descriptors: tuple[int, ...] = (), ours: bool = False) -> None:
        self.reply: protocol.Message = reply
        self.descriptors: tuple[int, ...] = descriptors
        self.ours: bool = ours


class Service:
    """Answers the requests of clients and observers."""

    def __init__(
        self, state: State, memory: Memory, facts: Callable[[], dict[str, Any]], search: Callable[[], bool]
    ) -> None:
        """Answer from `state` and `memory`.

        Args:
            state: the manager's state.
            memory: creates segments and rings.
            facts: returns the fields of STATS that describe the process.
            search: searches for segments of the previous manager that reached a client late; True: found some.
        """
        self._search = search
        self._state = state
        self._memory = memory
        self._facts = facts
        self._answers: dict[type[protocol.Message], Callable[[int, int, Any], Answer]] = {
            protocol.Create: self._create,
            protocol.Map: self._map,
            protocol.Return: self._return,
            protocol.Export: self._export,
            protocol.Lookup: self._lookup,
            protocol.Unexport: self._unexport,
            protocol.List: self._list,
            protocol.Stats: self._stats,
            protocol.Collect: self._collect,
            protocol.Event: self._event,
            protocol.Bind: self._bind,
        }
        self._takes: dict[type[protocol.Message], Callable[[int, Any, int], Answer]] = {
            protocol.CreateDevice: self._create_on_device,
            protocol.Give: self._give,
        }

    def answer(self, slot: int, pid: int, message: protocol.Message, descriptors: Sequence[int] = ()) -> Answer:
        """Return the answer to a message from a client. Raises Refusal, OSError.

        Args:
            slot: the client's.
            pid: its process.
            message: the request.
            descriptors: those that came with the message; the ones that are kept are duplicated.
        """
        if type(message) in self._takes:
            return self._takes[type(message)](slot, message, descriptors[0])
        return self._answers[type(message)](slot, pid, message)

    def _create(self, slot: int, pid: int, message: protocol.Create) -> Answer:
        if message.flags & protocol.RING:
            return self._create_ring(slot)
        if not 0 < message.nbytes <= _native.MAX_SEGMENT_BYTES:
            raise Refusal(
                protocol.INVALID,
                f"cannot create a segment of {message.nbytes} bytes; the size must be 1 to {_native.MAX_SEGMENT_BYTES}",
            )
        nbytes = (message.nbytes + _native.PAGE - 1) // _native.PAGE * _native.PAGE
        dedicated, named = bool(message.flags & protocol.DEDICATED), bool(message.flags & protocol.NAMED)
        state = self._state
        number, owner = state.group.take_segment_number(), (slot, state.group.slot(slot).generation)
        made = self._memory.make(number, owner, pid, nbytes, dedicated, named)
        return _segment(state.add_segment(number, made.metadata, made.payload, nbytes, dedicated, slot, made.name))

    def _create_on_device(self, slot: int, message: protocol.CreateDevice, payload: int) -> Answer:
        if not 0 < message.nbytes <= _native.MAX_SEGMENT_BYTES:
            raise Refusal(protocol.INVALID, f"a segment on a device cannot have {message.nbytes} bytes")
        state, dedicated = self._state, bool(message.flags & protocol.DEDICATED)
        number, owner = state.group.take_segment_number(), (slot, state.group.slot(slot).generation)
        metadata = self._memory.make_on_device(number, owner, message.nbytes, dedicated, message.device)
        try:
            kept = os.dup(payload)
        except BaseException:
            metadata.close()
            raise
        return _segment(state.add_segment(number, metadata, kept, message.nbytes, dedicated, slot, b"", message.device))

    def _give(self, _slot: int, message: protocol.Give, payload: int) -> Answer:
        segment = self._state.segment(message.segment)
        if not segment.device:
            raise Refusal(protocol.INVALID, f"segment {segment.id} is not memory of a device; its descriptor is known")
        if segment.payload < 0:
            segment.payload = os.dup(payload)
        return Answer(protocol.Ok())

    def _create_ring(self, slot: int) -> Answer:
        self._state.charge_ring()
        number, ring = self._state.group.take_segment_number(), self._state.ring_number()
        try:
            made = self._memory.make_ring(number, ring, slot)
        except BaseException:
            self._state.ring_not_made(ring)
            raise
        return _segment(self._state.add_ring(number, *made))

    def _map(self, _slot: int, _pid: int, message: protocol.Map) -> Answer:
        try:
            return _segment(self._state.segment(message.segment))
        except Refusal as problem:
            if problem.code != protocol.STALE or not self._search():
                raise
            return _segment(self._state.segment(message.segment))

    def _return(self, slot: int, _pid: int, message: protocol.Return) -> Answer:
        self._state.return_segment(message.segment, slot)
        return Answer(protocol.Ok())

    def _export(self, slot: int, _pid: int, message: protocol.Export) -> Answer:
        return Answer(
            protocol.Handle(self._state.names.export(message.segment, message.block, message.generation, slot))
        )

    def _lookup(self, _slot: int, _pid: int, message: protocol.Lookup) -> Answer:
        return Answer(protocol.Block(*self._state.names.lookup(message.name)))

    def _unexport(self, slot: int, _pid: int, message: protocol.Unexport) -> Answer:
        self._state.names.unexport(message.name, slot)
        return Answer(protocol.Ok())

    def _list(self, _slot: int, _pid: int, _message: protocol.List) -> Answer:
        return _document(report.listing(self._state))

    def _stats(self, _slot: int, _pid: int, _message: protocol.Stats) -> Answer:
        import resource

        return _document(
            {
                **self._facts(),
                "version": getattr(sys.modules["shmtensor"], "__version__", "unknown"),
                "protocol": protocol.PROTOCOL_VERSION,
                "layout": _native.LAYOUT_VERSION,
                **report.figures(self._state),
                "descriptors": len(os.listdir("/proc/self/fd")) - 1,
                "max_descriptors": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            }
        )

    def _collect(self, _slot: int, _pid: int, message: protocol.Collect) -> Answer:
        return Answer(self._state.collect(message.seconds))

    def _event(self, _slot: int, _pid: int, message: protocol.Event) -> Answer:
        return Answer(protocol.Signal(), (self._state.ring(message.segment).watch(),))

    def _bind(self, slot: int, _pid: int, message: protocol.Bind) -> Answer:
        self._state.names.bind(message.name, message.segment, message.block, message.generation, slot)
        return Answer(protocol.Ok())


def _segment(segment: Segment) -> Answer:
    if segment.payload < 0:
        raise Refusal(
            protocol.PENDING,
            f"no client has given this manager the descriptor of segment {segment.id} yet, which is memory of a GPU; "
            "clients that have it do so when they next use shared memory",
        )
    name = protocol.device_name(segment.device) if segment.device else segment.name
    reply = protocol.Segment(segment.id, segment.nbytes, segment.flags, 0, name)
    return Answer(reply, (segment.metadata.fd, segment.payload))


def _document(content: dict[str, Any]) -> Answer:
    fd, nbytes = document(content)
    return Answer(protocol.Document(nbytes), (fd,), ours=True)
