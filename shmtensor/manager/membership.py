"""A `Manager` is this process's membership in one group: its memory, names and reports.

If the manager process ends, the Manager finds or starts a successor. It owns the native client, which allocates and
attaches blocks in mapped memory by itself. Requests go to the manager process only for segments, names and reports.
`client` has the Managers of this process.
"""

# contextlib costs time at every start of a manager.
# ruff: noqa: SIM105

from __future__ import annotations

import errno
import os
import sys
import threading
from dataclasses import dataclass
from errno import EDQUOT
from time import monotonic, sleep

from shmtensor import _native, errors
from shmtensor._loading import load
from shmtensor._native import BlockGone, LockBusy, Refused
from shmtensor.manager import protocol, shortage
from shmtensor.manager.connection import (
    REQUEST_SECONDS,
    SLICE_SECONDS,
    Bounded,
    ConnectionGone,
    NothingThere,
    Requests,
    connect,
    error_of,
    read_document,
)
from shmtensor.manager.joining import LEAST_SECONDS, Place, introduce
from shmtensor.manager.strategy import strategy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn


PENDING_SECONDS = 0.02
"""Pause before another request for a segment that no client has given to a new manager yet."""


@dataclass(frozen=True)
class Stats:
    """A manager's statistics, in seconds and bytes. `docs/protocol.md` describes each field."""

    address: str
    pid: int
    version: str
    protocol: int
    layout: int
    group: str
    epoch: int
    private: bool
    idle_exit: float | None
    started: float
    uptime_seconds: float
    log: str
    clients: int
    detached: int
    embryos: int
    dying: int
    segments: int
    rings: int
    orphans: int
    names: int
    payload_bytes: int
    device_bytes: int
    reserved_bytes: int
    live_blocks: int
    live_bytes: int
    holds: dict[str, int]
    oldest_ticket_seconds: float
    named_rings: list[dict[str, Any]]
    named_stores: list[dict[str, Any]]
    requests: int
    refused: int
    reaped: int
    max_clients: int
    max_bytes: int
    max_bytes_per_client: int
    charged_bytes: int
    descriptors: int
    max_descriptors: int


class Manager:
    """This process as a client of one manager. Thread-safe; survives a fork on both sides.

    Get one by `client.default`, `client.at` or `client.adopt`.
    """

    address: bytes
    """Absolute path of the manager's socket."""
    native: _native.Client
    """The client's memory: allocate, attach, ticket, redeem, find."""
    is_private: bool
    """Whether the manager had been started on demand when this process connected."""

    def __init__(
        self,
        address: bytes,
        fd: int,
        timeout: float = REQUEST_SECONDS,
        place: Place | None = None,
        *,
        starts: bool = True,
        on_close: Callable[[Manager], None] | None = None,
    ) -> None:
        """Join the group through the connected socket `fd`, which is taken over. Blocks up to `timeout` seconds.

        Args:
            address: absolute path of the manager's socket.
            fd: the connected socket.
            timeout: seconds.
            place: the slot of the embryo that the socket belongs to; None: it is not an embryo's.
            starts: if the manager ends before it answers, start another one.
            on_close: called by `close`, before this process leaves the group.

        Raises:
            ShmTensorError: as `joining.introduce`.
        """
        self.address = address
        self._on_close = on_close
        self._recovering = threading.RLock()
        self._pause = self._not_before = 0.0  # of `_need_manager`, after it failed
        self._requests = Requests(address, self._late)
        fd, welcome, group_fd = introduce(self._requests, monotonic() + timeout, place, fd, starts)
        try:
            group = _native.Group.open(group_fd)
        except BaseException:
            self._requests.close(fd)
            raise
        finally:
            os.close(group_fd)
        self.native = _native.Client(
            group, welcome.slot, fd, welcome.epoch, self._need_segment, self._need_mapping, self._need_manager
        )
        self._use(self._requests, welcome)
        self.is_private = bool(welcome.flags & protocol.PRIVATE)

    def __repr__(self) -> str:
        return f"<Manager at {os.fsdecode(self.address)}, slot {self.native.slot}>"

    def after_fork(self) -> None:
        """In a forked child: drop the parent's requests, and locks that its other threads may hold."""
        self._requests.renew(self.native.connection)
        self._recovering = threading.RLock()

    # ------------------------------------------------------------------------------------------------------- requests

    def _request(
        self, message: protocol.Message, timeout: float = REQUEST_SECONDS, passed: int = -1
    ) -> tuple[protocol.Message, list[int]]:
        """Send a request as `_ask` does. Raises the exception of an ERROR reply."""
        reply, descriptors = self._ask(message, timeout, passed)
        if isinstance(reply, protocol.Error):
            raise error_of(reply, os.fsdecode(self.address))
        return reply, descriptors

    def _ask(
        self, message: protocol.Message, timeout: float = REQUEST_SECONDS, passed: int = -1
    ) -> tuple[protocol.Message, list[int]]:
        """Send a request to this group's manager. If it has ended, find or start its successor and ask that one."""
        deadline = monotonic() + timeout
        while True:
            requests = self._requests
            try:
                left = max(LEAST_SECONDS, deadline - monotonic())
                return requests.ask(self.native.connection, message, left, passed)
            except ConnectionGone:
                self._recover(requests, deadline)

    @property
    def requests(self) -> Requests:
        """The requests to the current manager; another object after each change of the manager."""
        return self._requests

    def rejoin(self, broken: Requests) -> None:
        """Join the successor of the manager of `broken`, if that was not done yet. Blocks. Raises as `stats`."""
        self._recover(broken, monotonic() + REQUEST_SECONDS)

    def _use(self, requests: Requests, welcome: protocol.Welcome) -> None:
        """Switch to another connection."""
        group, epoch = self.native.group, welcome.epoch
        requests.is_current = lambda: group.epoch == epoch
        self._requests = requests

    def _recover(self, broken: Requests, deadline: float) -> None:
        """Connect to the current manager of this group, in place of the connection `broken`. Blocks.

        Raises:
            ManagerUnavailable: there is no manager and none can be started, or each started one ended at once.
            ManagerError: the manager serves another group, or took this process for dead.
        """
        # In this order: a thread in the middle of a request (which may have to recover as well) has the first lock.
        with Bounded(broken.lock, deadline, self.address), Bounded(self._recovering, deadline, self.address):
            if self._requests is not broken:
                return
            requests = Requests(self.address, self._late)
            fd, welcome, group = introduce(requests, deadline, self.place_of(self.native.slot, self.native.generation))
            self.native.group.regain(group)
            os.close(group)
            # This is `broken`, unless a signal handler has reconnected meanwhile; then this connection replaces its.
            current, before = self._requests, self.native.connection
            owned = current.owns(before)
            if owned and current.depth:  # in a signal handler: the interrupted request still uses the connection
                current.abandoned, owned = before, False
            self.native.reconnect(fd, welcome.epoch, owned)
            self._use(requests, welcome)
        deadline = max(deadline, monotonic() + SLICE_SECONDS)
        self._regain(deadline)
        self._give(deadline)

    def _regain(self, deadline: float) -> None:
        """Get new descriptors for segments whose descriptors this program closed; a successor needs them. Blocks."""
        for segment in self.native.lost():
            try:
                reply, descriptors = self._requests.ask(
                    self.native.connection, protocol.Map(segment), max(0.0, deadline - monotonic())
                )
                if isinstance(reply, protocol.Segment):  # not `_add`, which gives a ring back that cannot be mapped
                    control, payload = descriptors
                    if reply.flags & protocol.DEVICE:  # it is mapped, so no address is needed
                        self.native.add_device_segment(
                            reply.segment, control, payload, reply.nbytes, _kind_of(reply), False, 0, 0
                        )
                    else:
                        self.native.add_segment(reply.segment, control, payload, reply.nbytes, _kind_of(reply), False)
            except (errors.ShmTensorError, OSError):
                return  # mapped memory works without them

    def _give(self, deadline: float) -> None:
        """Give a successor the descriptors of memory on devices, which it cannot reopen by itself. Blocks."""
        for segment, descriptor in self.native.device_segments():
            try:
                left = max(0.0, deadline - monotonic())
                self._requests.ask(self.native.connection, protocol.Give(segment), left, descriptor)
            except (errors.ShmTensorError, OSError):
                pass  # another client may have it; mapped memory works without the manager
            finally:
                os.close(descriptor)

    def place_of(self, slot: int, generation: int) -> Place:
        """Return the `Place` of a slot of this group: this process's, or an embryo's."""
        return Place(slot, generation, self.native.group.group_id)

    def _need_manager(self) -> None:
        """Find or start a manager for a group that has none, without waiting for other processes."""
        now = monotonic()
        if now < self._not_before:
            return
        try:
            self._recover(self._requests, now)
            self._pause = 0.0
        except (errors.ShmTensorError, OSError):  # the next request reports it
            self._pause = min(5.0, 2 * self._pause + 0.1)
            self._not_before = monotonic() + self._pause

    def _late(self, request: protocol.Message, reply: protocol.Message, descriptors: list[int]) -> bool:
        # The segment of a request that was given up (Ctrl-C, a timeout) still belongs to this process.
        made = isinstance(request, protocol.Create | protocol.CreateDevice)
        if not made or not isinstance(reply, protocol.Segment):
            return False
        if not descriptors or reply.flags & (protocol.RING | protocol.DEVICE):
            for fd in descriptors:
                os.close(fd)
            self.return_segment(reply.segment)
            return True
        try:
            self._add(self.native, reply, descriptors, owned=True)
        except (errors.OutOfMemory, errors.SegmentLost):
            pass  # it was given back, and no caller waits for it
        return True

    def _add(self, native: _native.Client, reply: protocol.Message, descriptors: list[int], owned: bool) -> None:
        assert isinstance(reply, protocol.Segment)
        control, payload = descriptors
        if reply.flags & protocol.DEVICE:
            self._add_on_device(native, reply, control, payload)
            return
        try:
            native.add_segment(reply.segment, control, payload, reply.nbytes, _kind_of(reply), owned)
        except OSError as problem:
            if owned or reply.flags & protocol.RING:
                self.return_segment(reply.segment)
            if problem.errno == errno.ESTALE:
                raise errors.SegmentLost(
                    f"segment {reply.segment} cannot be mapped: its shared-memory object {reply.name.decode()} was "
                    f"truncated to less than its {shortage.size(reply.nbytes)}, and its content is lost. Use the "
                    "strategy file_descriptor, whose memory cannot be truncated"
                ) from None
            raise errors.OutOfMemory(
                f"a segment of {shortage.size(reply.nbytes)} cannot be mapped: {problem.strerror}; raise the limit of "
                "address space (ulimit -v) or of mappings (vm.max_map_count)"
            ) from None

    def _add_on_device(self, native: _native.Client, reply: protocol.Segment, control: int, payload: int) -> None:
        """Map a segment on a device that another process made.

        Raises:
            DeviceUnavailable: this process has no driver, or does not see that device.
        """
        try:
            uuid = protocol.device_of(reply.name)
            device, address = load("gpu.segments").open_payload(self, uuid, payload, reply.nbytes)
        except BaseException:
            os.close(control)
            os.close(payload)
            raise
        if not native.add_device_segment(
            reply.segment, control, payload, reply.nbytes, _kind_of(reply), False, device, address
        ):
            load("gpu.segments").close_payload(address, reply.nbytes)  # another thread mapped it first

    def add_on_device(self, device: int, uuid: bytes, address: int, nbytes: int, dedicated: bool, payload: int) -> None:
        """Create a segment of this process over memory of a device. Sends a request to the manager.

        Args:
            device: its number in this process.
            uuid: its 16 bytes.
            address: where the memory is mapped in this process.
            nbytes: its size.
            dedicated: it is for a single block.
            payload: a descriptor of it, which is taken over unless this raises.

        Raises:
            ManagerError, QuotaExceeded, ClientUnavailable: see `shmtensor.errors`.
        """
        flags = protocol.DEDICATED if dedicated else 0
        reply, descriptors = self._request(protocol.CreateDevice(nbytes, flags, 0, uuid), passed=payload)
        assert isinstance(reply, protocol.Segment)
        control, again = descriptors
        os.close(again)
        self.native.add_device_segment(reply.segment, control, payload, nbytes, _kind_of(reply), True, device, address)

    def trim_device(self, device: int) -> int:
        """Give back this process's unused segments on a device. Returns their number. Blocks."""
        unused = self.native.give_up_unused(device)
        for segment in unused:
            self.return_segment(segment)
        return len(unused)

    def _need_segment(self, native: _native.Client, nbytes: int, device: int = -1) -> None:
        if device >= 0:
            load("gpu.segments").make_segment(self, device, nbytes)
            return
        flags = protocol.NAMED if strategy() == "file_system" else 0
        if nbytes > _native.MAX_SEGMENT_BYTES:
            raise errors.InvalidArgument(
                f"cannot allocate a block of {nbytes} bytes; the maximum is {_native.MAX_SEGMENT_BYTES}"
            )
        if nbytes <= _native.DEDICATED_FROM:
            size = _native.ARENA_BYTES
        else:
            size = (nbytes + _native.PAGE - 1) // _native.PAGE * _native.PAGE
            flags |= protocol.DEDICATED
        self._add(native, *self._request(protocol.Create(size, flags)), owned=True)

    def _need_mapping(self, native: _native.Client, segment: int, required: bool) -> str | None:
        """Map a segment. If it does not exist any more, return the manager's message, or raise it if `required`."""
        reply, descriptors = self._ask(protocol.Map(segment))
        deadline = monotonic() + REQUEST_SECONDS
        while isinstance(reply, protocol.Error) and reply.code == protocol.PENDING and monotonic() < deadline:
            sleep(PENDING_SECONDS)  # a client is about to give it to the successor of a manager
            reply, descriptors = self._ask(protocol.Map(segment))
        if isinstance(reply, protocol.Error):
            if required or reply.code not in (protocol.STALE, protocol.UNKNOWN):
                raise error_of(reply, os.fsdecode(self.address))
            return reply.text
        self._add(native, reply, descriptors, owned=False)
        return None

    # --------------------------------------------------------------------------------------------------------- memory

    def allocate(self, nbytes: int) -> _native.Block:
        """Allocate a shared block of `nbytes` bytes (at least 1) with arbitrary content. Usually makes no system call.

        Raises:
            OutOfMemory: the message has the size asked for, the free memory, the limit hit and the largest holders.
            QuotaExceeded: the same, for a quota.
            ClientUnavailable, LockTimeout, ManagerError, InvalidArgument: see `shmtensor.errors`.
        """
        try:
            return self.native.allocate(nbytes)
        except TypeError:
            if isinstance(nbytes, int):
                raise errors.InvalidArgument(
                    f"cannot allocate a block of {nbytes} bytes; the size must be 1 to {_native.MAX_SEGMENT_BYTES}"
                ) from None
            raise
        except (Refused, BlockGone, LockBusy, ValueError) as problem:
            self._translate(problem)

    def allocate_on(self, device: int, nbytes: int) -> _native.Block:
        """Allocate a block of a device's memory, of at least 1 byte, with arbitrary content.

        Raises:
            OutOfMemory: the device has no memory left.
            DeviceUnavailable, ClientUnavailable, LockTimeout, ManagerError: see `shmtensor.errors`.
        """
        try:
            return self.native.allocate(nbytes, device)
        except (Refused, BlockGone, LockBusy, ValueError) as problem:
            self._translate(problem)

    def create_ring(self) -> _native.Block:
        """Create an empty ring (native/base/layout.hpp), the memory of a queue. Sends a request to the manager.

        The ring exists as long as a process holds its block. The holds of its messages end with it.

        Raises:
            OutOfMemory, QuotaExceeded, ClientUnavailable, ManagerError: see `shmtensor.errors`.
        """
        try:
            reply, descriptors = self._request(protocol.Create(0, protocol.RING))
        except errors.QuotaExceeded:
            if not self.native.trim():  # memory cached here counts against the quota
                raise
            reply, descriptors = self._request(protocol.Create(0, protocol.RING))
        self._add(self.native, reply, descriptors, owned=False)
        assert isinstance(reply, protocol.Segment)
        # Its one block: index 0, generation 1. The manager made hold 0 for this process.
        return self.native.receive(reply.segment, 0, 1, 0)

    def event(self, segment: int, timeout: float = REQUEST_SECONDS) -> int:
        """Return the event of a ring: a descriptor for select and poll that is readable while messages wait.

        The manager makes it readable if messages wait. From then on each put makes it readable, and a get that finds
        the ring empty resets it. Blocks up to `timeout` seconds.

        Returns:
            A non-blocking descriptor; the caller must close it.

        Raises:
            InvalidArgument: the segment is not a ring.
            StaleHandle, UnknownHandle, ManagerError: see `shmtensor.errors`.
        """
        return self._request(protocol.Event(segment), timeout)[1][0]

    def attach(self, segment: int, index: int, generation: int) -> _native.Block:
        """Open a live block of this group. Makes no system call if its segment is mapped.

        Raises:
            StaleHandle: the block was freed.
            UnknownHandle: the segment never existed.
            InvalidArgument: a number is out of range.
            ClientUnavailable, LockTimeout, ManagerError, OutOfMemory: see `shmtensor.errors`.
        """
        try:
            return self.native.attach(segment, index, generation)
        except TypeError as problem:
            numbers = (segment, index, generation)
            raise errors.InvalidArgument(
                f"(segment, index, generation) = {numbers!r} cannot be a block; pass the numbers that the sender gave"
            ) from problem
        except (Refused, BlockGone, LockBusy) as problem:
            self._translate(problem)

    def ticket(self, block: _native.Block, owner: int = 0) -> _native.Ticket:
        """Add an in-flight hold on `block`, owned by the group (0) or by the embryo slot `owner`.

        Returns:
            (hold index, mark), the arguments of `redeem`.

        Raises:
            StaleHandle, ClientUnavailable, LockTimeout, OutOfMemory: see `shmtensor.errors`.
        """
        try:
            return self.native.ticket(block, owner)
        except (Refused, BlockGone, LockBusy) as problem:
            self._translate(problem)

    def redeem(self, segment: int, index: int, generation: int, hold: int, mark: int) -> _native.Block:
        """Turn an in-flight hold into one of this process. Raises as `attach` does."""
        try:
            return self.native.redeem(segment, index, generation, hold, mark)
        except TypeError as problem:
            numbers = (segment, index, generation, hold, mark)
            raise errors.InvalidArgument(
                f"{numbers!r} cannot be the numbers of a ticket; pass a message as it was received"
            ) from problem
        except (Refused, BlockGone, LockBusy) as problem:
            self._translate(problem)

    def _translate(self, problem: Exception) -> NoReturn:
        """Raise the ShmTensorError for a native exception."""
        if isinstance(problem, Refused):
            what, number, asked, limit, segment = problem.args
            try:
                listing = self.list(1.0)
            except errors.ShmTensorError:
                listing = None
            if segment:
                raise errors.QuotaExceeded(shortage.describe_holds(segment, listing)) from None
            group, slot = self.native.group, self.native.slot
            kind = errors.QuotaExceeded if number == EDQUOT else errors.OutOfMemory
            raise kind(
                shortage.describe(what, number, asked, limit, strategy() == "file_system", listing, group, slot)
            ) from None
        if isinstance(problem, BlockGone):
            raise errors.StaleHandle(
                f"the block has been freed ({problem}); keep the tensor until its handle has been opened, and in at "
                "least one process while it may be opened again"
            ) from None
        if isinstance(problem, LockBusy):
            raise errors.LockTimeout(
                f"another process keeps a segment's metadata locked ({problem}); it may be stopped. `shmtensor-manager "
                "ls` shows the processes"
            ) from None
        if isinstance(problem, errors.ShmTensorError):
            raise problem
        raise errors.InvalidArgument(str(problem)) from None

    def export(self, block: _native.Block) -> bytes:
        """Return the name `/torch_<pid>_<rand>` of a block, the same on each call. It does not keep the block alive.

        The name contains the pid of the first process that asked for it; only that process may `unexport` it.
        """
        reply, _ = self._request(protocol.Export(block.segment, block.index, block.generation))
        assert isinstance(reply, protocol.Handle)
        return reply.name

    def open(self, name: bytes) -> _native.Block:
        """Open the block with a name.

        Raises:
            InvalidArgument: the name is malformed.
            UnknownHandle: the name is unknown to the manager.
            StaleHandle: its block was freed.
        """
        reply, _ = self._request(protocol.Lookup(name))
        assert isinstance(reply, protocol.Block)
        return self.attach(reply.segment, reply.block, reply.generation)

    def unexport(self, name: bytes) -> None:
        """Release a name for all processes. The block is not changed.

        Raises:
            UnknownHandle: the name is unknown to the manager.
            ManagerError: the name belongs to another process that is running.
        """
        self._undo(protocol.Unexport(name))

    def bind(self, name: bytes, block: _native.Block) -> None:
        """Bind `name` to a block, so that other processes can `open` it. It does not keep the block alive.

        Args:
            name: `/` and 1 to 62 letters, digits, `_`, `-` or `.`, not beginning with `/torch_`. A name whose block
                was freed can be bound again.
            block: the block.

        Raises:
            NameTaken: the name is bound to a live block.
            InvalidArgument: the name is malformed.
            StaleHandle, ManagerError: see `shmtensor.errors`.
        """
        self._request(protocol.Bind(block.segment, block.index, block.generation, name))

    def find(self, name: bytes) -> _native.Block | None:
        """Open a name as `open` does; None if it is unknown or its block was freed."""
        reply, _ = self._ask(protocol.Lookup(name))
        if isinstance(reply, protocol.Error):
            if reply.code in (protocol.UNKNOWN, protocol.STALE):
                return None
            raise error_of(reply, os.fsdecode(self.address))
        assert isinstance(reply, protocol.Block)
        try:
            return self.attach(reply.segment, reply.block, reply.generation)
        except errors.StaleHandle:
            return None

    def return_segment(self, segment: int) -> None:
        """Give an empty segment of this process back to the manager, or release this process's holds on a ring.

        Raises:
            InvalidArgument: it has live blocks.
        """
        self._undo(protocol.Return(segment))

    def _undo(self, message: protocol.Message) -> None:
        """Send as `_request` does. If the request goes to a successor, an unknown or stale object counts as done."""
        asked = self._requests
        try:
            self._request(message)
        except (errors.UnknownHandle, errors.StaleHandle):
            if self._requests is asked:
                raise

    # -------------------------------------------------------------------------------------------------------- reports

    def list(self, timeout: float = REQUEST_SECONDS) -> dict[str, Any]:
        """Return clients, segments, holders and holds in flight: the LIST document of docs/protocol.md.

        What this process has released is not in it, unless a process that has the metadata locked is stopped.
        """
        import json

        self.native.finish_releases()
        listing: dict[str, Any] = json.loads(read_document(*self._request(protocol.List(), timeout)))
        return listing

    def stats(self) -> Stats:
        """Return the manager's statistics. What this process has released does not count (see `list`)."""
        import json

        self.native.finish_releases()
        figures = json.loads(read_document(*self._request(protocol.Stats())))
        return Stats(**{field: figures[field] for field in Stats.__dataclass_fields__})

    def gc(self, in_flight: float | None = None) -> protocol.Collected:
        """Release unused memory; with `in_flight`, also holds sent at least that many seconds ago and never received.

        Raises:
            InvalidArgument: `in_flight` is negative or not a number.
        """
        if in_flight is not None and not in_flight >= 0:
            raise errors.InvalidArgument(f"in_flight must be at least 0 seconds, not {in_flight}")
        reply, _ = self._request(protocol.Collect(-1.0 if in_flight is None else float(in_flight)))
        assert isinstance(reply, protocol.Collected)
        return reply

    def stop(self) -> None:
        """Ask the manager to end. While clients or blocks remain, a successor continues in the background."""
        try:
            if not self.native.is_led:  # this connection is to a manager that has been replaced
                os.close(connect(self.address, 0.0))
                self._recover(self._requests, monotonic() + REQUEST_SECONDS)
            self._requests.request(self.native.connection, protocol.Stop())
        except (ConnectionGone, NothingThere):
            pass  # it has ended already; a successor must not be stopped

    def close(self) -> None:
        """Leave the group: release everything and unmap it. Raises InvalidArgument while Blocks are alive."""
        pinned = sys.modules.get("shmtensor.gpu.registered")
        if pinned is not None:
            pinned.leave(self)
        held = self.native.stats().blocks
        if held:
            raise errors.InvalidArgument(
                f"cannot leave the group: {held} shared blocks are alive in this process; delete the tensors over them"
            )
        devices = sys.modules.get("shmtensor.gpu.segments")
        if devices is not None:
            devices.leave(self)
        if self._on_close is not None:
            self._on_close(self)
        try:
            if not self.native.is_led:
                os.close(connect(self.address, 0.0))  # if no manager runs, none is started only for GOODBYE
                self._recover(self._requests, monotonic())
            self._requests.request(self.native.connection, protocol.Goodbye())
        except errors.ManagerError:
            pass  # it has ended; its successor notices the end of this process
        self.native.close()
        if devices is not None:
            devices.close_unused(self.native)


def _kind_of(reply: protocol.Segment) -> int:
    if reply.flags & protocol.RING:
        return _native.SEGMENT_RING
    return _native.SEGMENT_DEDICATED if reply.flags & protocol.DEDICATED else _native.SEGMENT_ARENA
