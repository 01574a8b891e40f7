"""The one way to reach a manager: `default()` finds or starts one, `at(address)` is any other, `adopt()` for children.

A `Manager` is this process's membership in one group. It owns the native client, which allocates and attaches in mapped
memory without asking anybody; the manager is asked for segments, names and reports only.
"""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH120, SIM105

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass
from errno import EDQUOT
from time import monotonic, sleep

from shmtensor import _native, errors
from shmtensor._native import BlockGone, LockBusy, Refused
from shmtensor.manager import address as addresses
from shmtensor.manager import launch, protocol, shortage
from shmtensor.manager.connection import (
    REQUEST_SECONDS,
    SLICE_SECONDS,
    Bounded,
    ConnectionGone,
    NothingThere,
    Requests,
    connect,
    error_of,
    hello,
    read_document,
    rejoin,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

STRATEGIES = ("file_descriptor", "file_system")
_PAUSE_SECONDS = 0.02
"""Between two tries, where one manager after the other ends before it answers."""
_MOST_PAUSE = 0.05
"""Between two looks for a name that others make; seconds."""

_LEAST_SECONDS = 0.1
"""A manager that was found, or started, has so long to answer, whatever was left of the bound."""

_strategy = "file_descriptor"


def strategy() -> str:
    """How new segments are made: "file_descriptor" (sealed memfds) or "file_system" (POSIX shm objects)."""
    return _strategy


def set_strategy(name: str) -> None:
    """Choose how new segments of this process are made. Raises InvalidArgument."""
    global _strategy
    if name not in STRATEGIES:
        raise errors.InvalidArgument(f"there is no sharing strategy {name!r}; choose one of {', '.join(STRATEGIES)}")
    _strategy = name


@dataclass(frozen=True)
class Stats:
    """A manager's figures; times in seconds, sizes in bytes. `docs/protocol.md` has the meaning of each."""

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
    reserved_bytes: int
    live_blocks: int
    live_bytes: int
    requests: int
    refused: int
    max_clients: int
    max_bytes: int
    max_bytes_per_client: int
    charged_bytes: int
    descriptors: int
    max_descriptors: int


@dataclass(frozen=True)
class Place:
    """A process's slot in a group, by which it comes back to the group's next manager."""

    slot: int
    generation: int
    group: int


class Manager:
    """This process as a client of one manager. Thread-safe; survives a fork on both sides.

    Get one by `default`, `at` or `adopt`.
    """

    address: bytes
    """Absolute path of the manager's socket."""
    native: _native.Client
    """The client's memory: allocate, attach, ticket, redeem, find."""
    is_private: bool
    """Whether the manager was started on demand, when this process came to it."""

    def __init__(
        self, address: bytes, fd: int, timeout: float = REQUEST_SECONDS, place: Place | None = None, starts: bool = True
    ) -> None:
        """Introduce this process on the connected socket `fd` and take that over. Blocks up to `timeout` seconds.

        Args:
            place: of the embryo whose socket that is; None: it is another.
            starts: as for `at`.
        Raises:
            What `_introduce` does.
        """
        self.address = address
        self._recovering = threading.RLock()
        self._pause = self._not_before = 0.0  # of `_need_manager`, after it failed
        self._requests = Requests(address, self._late)
        fd, welcome, group_fd = _introduce(self._requests, monotonic() + timeout, place, fd, starts)
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

    # ------------------------------------------------------------------------------------------------------- requests

    def _request(
        self, message: protocol.Message, timeout: float = REQUEST_SECONDS
    ) -> tuple[protocol.Message, list[int]]:
        """As `_ask`; raises what an ERROR stands for."""
        reply, descriptors = self._ask(message, timeout)
        if isinstance(reply, protocol.Error):
            raise error_of(reply, os.fsdecode(self.address))
        return reply, descriptors

    def _ask(self, message: protocol.Message, timeout: float = REQUEST_SECONDS) -> tuple[protocol.Message, list[int]]:
        """Ask the manager of this group; if it has ended, the one that follows it, which is started if need be."""
        deadline = monotonic() + timeout
        while True:
            requests = self._requests
            try:
                return requests.ask(self.native.connection, message, max(_LEAST_SECONDS, deadline - monotonic()))
            except ConnectionGone:
                self._recover(requests, deadline)

    def _use(self, requests: Requests, welcome: protocol.Welcome) -> None:
        """From now on: this connection."""
        group, epoch = self.native.group, welcome.epoch
        requests.is_current = lambda: group.epoch == epoch
        self._requests = requests

    def _recover(self, broken: Requests, deadline: float) -> None:
        """Have a connection again to whoever is the manager of this group, in place of `broken`. Blocks.

        Raises:
            ManagerUnavailable: there is none and none can be started, or those that were started ended at once.
            ManagerError: the manager there serves another group, or took this process for dead.
        """
        # In this order: who is in the middle of a request (and may have to recover, too) has the first of them.
        with Bounded(broken.lock, deadline, self.address), Bounded(self._recovering, deadline, self.address):
            if self._requests is not broken:
                return
            requests = Requests(self.address, self._late)
            fd, welcome, group = _introduce(requests, deadline, self.place_of(self.native.slot, self.native.generation))
            self.native.group.regain(group)
            os.close(group)
            # `broken`, unless a signal handler that needed it did the same meanwhile: this one came later.
            current, before = self._requests, self.native.connection
            owned = current.owns(before)
            if owned and current.depth:  # a signal handler's: the request that it interrupted uses it still
                current.abandoned, owned = before, False
            self.native.reconnect(fd, welcome.epoch, owned)
            self._use(requests, welcome)
        self._regain(max(deadline, monotonic() + SLICE_SECONDS))

    def _regain(self, deadline: float) -> None:
        """Have descriptors again in place of those that this program closed, for the manager that follows. Blocks."""
        for segment in self.native.lost():
            try:
                reply, descriptors = self._requests.ask(
                    self.native.connection, protocol.Map(segment), max(0.0, deadline - monotonic())
                )
                if isinstance(reply, protocol.Segment):  # not `_add`, which gives a ring back that cannot be mapped
                    (control, payload), dedicated = descriptors, bool(reply.flags & protocol.DEDICATED)
                    self.native.add_segment(reply.segment, control, payload, reply.nbytes, dedicated, False)
            except (errors.ShmTensorError, OSError):
                return  # what is mapped is good without them

    def place_of(self, slot: int, generation: int) -> Place:
        """A slot of this group: ours, or that of a child in the making."""
        return Place(slot, generation, self.native.group.group_id)

    def _need_manager(self) -> None:
        """The group has no manager: find or start one, without waiting for other processes."""
        now = monotonic()
        if now < self._not_before:
            return
        try:
            self._recover(self._requests, now)
            self._pause = 0.0
        except (errors.ShmTensorError, OSError):  # whoever needs it will be told
            self._pause = min(5.0, 2 * self._pause + 0.1)
            self._not_before = monotonic() + self._pause

    def _late(self, request: protocol.Message, reply: protocol.Message, descriptors: list[int]) -> bool:
        # A segment whose request was given up (Ctrl-C, a timeout) is ours all the same.
        if not isinstance(request, protocol.Create) or not isinstance(reply, protocol.Segment):
            return False
        if not descriptors or reply.flags & protocol.RING:
            for fd in descriptors:
                os.close(fd)
            self.return_segment(reply.segment)
            return True
        try:
            self._add(self.native, reply, descriptors, owned=True)
        except (errors.OutOfMemory, errors.SegmentLost):
            pass  # given back; nobody waits for it
        return True

    def _add(self, native: _native.Client, reply: protocol.Message, descriptors: list[int], owned: bool) -> None:
        assert isinstance(reply, protocol.Segment)
        control, payload = descriptors
        dedicated = bool(reply.flags & protocol.DEDICATED)
        try:
            native.add_segment(reply.segment, control, payload, reply.nbytes, dedicated, owned)
        except OSError as problem:
            if owned or reply.flags & protocol.RING:
                self.return_segment(reply.segment)
            if problem.errno == errno.ESTALE:
                raise errors.SegmentLost(
                    f"segment {reply.segment} cannot be mapped: its shared-memory object {reply.name.decode()} is "
                    f"shorter than the {shortage.size(reply.nbytes)} it was made with, as somebody truncated it, and "
                    "what lay in it is gone. Use the strategy file_descriptor, whose memory cannot be truncated"
                ) from None
            raise errors.OutOfMemory(
                f"a segment of {shortage.size(reply.nbytes)} cannot be mapped: {problem.strerror}; raise the limit of "
                "address space (ulimit -v) or of mappings (vm.max_map_count)"
            ) from None

    def _need_segment(self, native: _native.Client, nbytes: int) -> None:
        flags = protocol.NAMED if _strategy == "file_system" else 0
        if nbytes > _native.MAX_SEGMENT_BYTES:
            raise errors.InvalidArgument(
                f"a block of {nbytes} bytes was asked for; at most {_native.MAX_SEGMENT_BYTES} are possible"
            )
        if nbytes <= _native.DEDICATED_FROM:
            size = _native.ARENA_BYTES
        else:
            size = (nbytes + _native.PAGE - 1) // _native.PAGE * _native.PAGE
            flags |= protocol.DEDICATED
        self._add(native, *self._request(protocol.Create(size, flags)), owned=True)

    def _need_mapping(self, native: _native.Client, segment: int, required: bool) -> str | None:
        """Map a segment. What the manager says of one that is gone is returned, or raised if it is `required`."""
        reply, descriptors = self._ask(protocol.Map(segment))
        if isinstance(reply, protocol.Error):
            if required or reply.code not in (protocol.STALE, protocol.UNKNOWN):
                raise error_of(reply, os.fsdecode(self.address))
            return reply.text
        self._add(native, reply, descriptors, owned=False)
        return None

    # --------------------------------------------------------------------------------------------------------- memory

    def allocate(self, nbytes: int) -> _native.Block:
        """A shared block of `nbytes` (at least 1), with arbitrary content. No system call when warm memory fits.

        Raises:
            OutOfMemory: says what was asked, what is free, the limit hit and the largest holders.
            QuotaExceeded: the same, of a quota.
            ForkedWithoutHold, LockTimeout, ManagerError, InvalidArgument.
        """
        try:
            return self.native.allocate(nbytes)
        except TypeError:
            if isinstance(nbytes, int):
                raise errors.InvalidArgument(
                    f"a block of {nbytes} bytes was asked for; 1 to {_native.MAX_SEGMENT_BYTES} are possible"
                ) from None
            raise
        except (Refused, BlockGone, LockBusy, ValueError) as problem:
            self._translate(problem)

    def create_ring(self) -> _native.Block:
        """A new ring (native/base/layout.hpp), empty: the memory of a queue. Asks the manager.

        It lives as long as a process holds the block; what messages inside hold goes with it.

        Raises:
            OutOfMemory, QuotaExceeded, ForkedWithoutHold, ManagerError.
        """
        try:
            reply, descriptors = self._request(protocol.Create(0, protocol.RING))
        except errors.QuotaExceeded:
            if not self.native.trim():  # what was kept here for later may be what is short
                raise
            reply, descriptors = self._request(protocol.Create(0, protocol.RING))
        self._add(self.native, reply, descriptors, owned=False)
        assert isinstance(reply, protocol.Segment)
        # Its one block: index 0, generation 1. The manager made hold 0 for this process.
        return self.native.receive(reply.segment, 0, 1, 0)

    def event(self, segment: int, timeout: float = REQUEST_SECONDS) -> int:
        """An event of a ring, for select and poll: readable while messages wait. Blocks up to `timeout` seconds.

        The manager makes it readable if messages wait, even if its answer comes too late. From then on, whoever puts a
        message makes it readable; whoever finds the ring empty resets it.

        Returns:
            A descriptor that does not block, the caller's to close.
        Raises:
            InvalidArgument: the segment is not a ring. StaleHandle, UnknownHandle, ManagerError.
        """
        return self._request(protocol.Event(segment), timeout)[1][0]

    def attach(self, segment: int, index: int, generation: int) -> _native.Block:
        """Open a live block of this group. No system call when its segment is mapped.

        Raises:
            StaleHandle: it was freed. UnknownHandle: there never was such a segment.
            InvalidArgument: these cannot be the numbers of a block.
            ForkedWithoutHold, LockTimeout, ManagerError, OutOfMemory.
        """
        try:
            return self.native.attach(segment, index, generation)
        except TypeError as problem:
            raise errors.InvalidArgument(f"no block has the numbers {(segment, index, generation)!r}") from problem
        except (Refused, BlockGone, LockBusy) as problem:
            self._translate(problem)

    def ticket(self, block: _native.Block, owner: int = 0) -> tuple[int, int]:
        """An in-flight hold on `block`, for the group or the embryo slot `owner`: (hold index, mark) for `redeem`.

        Raises:
            StaleHandle, ForkedWithoutHold, LockTimeout, OutOfMemory.
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
            raise errors.InvalidArgument(f"no block in flight has the numbers {numbers!r}") from problem
        except (Refused, BlockGone, LockBusy) as problem:
            self._translate(problem)

    def _translate(self, problem: Exception) -> NoReturn:
        """Raise the ShmTensorError that a native exception means."""
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
                shortage.describe(what, number, asked, limit, _strategy == "file_system", listing, group, slot)
            ) from None
        if isinstance(problem, BlockGone):
            raise errors.StaleHandle(
                f"the block has been freed ({problem}); whoever sends a handle must keep the tensor until it was opened"
            ) from None
        if isinstance(problem, LockBusy):
            raise errors.LockTimeout(
                f"the books of a segment stayed locked by another process ({problem}); it may be stopped: see "
                f"`shmtensor-manager ls`"
            ) from None
        if isinstance(problem, errors.ShmTensorError):
            raise problem
        raise errors.InvalidArgument(str(problem)) from None

    def export(self, block: _native.Block) -> bytes:
        """The name `/torch_<pid>_<rand>` of a block, the same one each time. It does not keep the block alive.

        The first process that asks, whose pid it has, is the one that may `unexport` it.
        """
        reply, _ = self._request(protocol.Export(block.segment, block.index, block.generation))
        assert isinstance(reply, protocol.Handle)
        return reply.name

    def open(self, name: bytes) -> _native.Block:
        """The block that a name stands for.

        Raises:
            InvalidArgument: the name is malformed. UnknownHandle: nobody gave it out. StaleHandle: its block was freed.
        """
        reply, _ = self._request(protocol.Lookup(name))
        assert isinstance(reply, protocol.Block)
        return self.attach(reply.segment, reply.block, reply.generation)

    def unexport(self, name: bytes) -> None:
        """Take a name back, for all; the block is untouched.

        Raises:
            UnknownHandle: nothing has the name. ManagerError: another process asked for it first, and lives.
        """
        self._undo(protocol.Unexport(name))

    def bind(self, name: bytes, block: _native.Block) -> None:
        """Let `name` stand for a block, so that other processes can `open` it. It does not keep the block alive.

        Args:
            name: `/` and 1 to 62 letters, digits, `_`, `-` or `.`, not beginning with `/torch_`. One whose block was
                freed is taken over.
        Raises:
            NameTaken: it stands for a live block. InvalidArgument: it is malformed. StaleHandle, ManagerError.
        """
        self._request(protocol.Bind(block.segment, block.index, block.generation, name))

    def open_or_create(
        self,
        name: bytes | None,
        make: Callable[[], _native.Block],
        create: bool | None = None,
        timeout: float | None = None,
    ) -> tuple[_native.Block, bool]:
        """The block that a name stands for, or else `make()`, bound to it; of two processes at once, one makes it.

        Args:
            name: None: nobody is to find it.
            make: gives a block that is ready for use by others.
            create: True: make it. False: open it, and wait up to `timeout` seconds (None: 0) until it is there.
        Returns:
            (block, whether it is the one from `make`).
        Raises:
            NameTaken: create is True, and the name stands for a live block.
            UnknownHandle: create is False, and the name stands for none.
            InvalidArgument: create is neither True, False nor None; no name to open; a timeout without create=False.
            ManagerUnavailable: a name has no meaning in this process's group (docs/protocol.md, "Finding the manager").
            What else `open`, `bind` and `make` do.
        """
        if create not in (True, False, None):
            raise errors.InvalidArgument(
                f"create={create!r}; give True (make it), False (open it) or None (open it, or else make it)"
            )
        create = None if create is None else bool(create)  # 0 and 1 are meant as well
        try:
            is_bound = timeout is None or (create is False and timeout >= 0)
        except TypeError:
            is_bound = False
        if not is_bound:
            raise errors.InvalidArgument(
                f"timeout={timeout!r} with create={create!r}; a timeout of 0 seconds or more goes with create=False, "
                "which waits until the name is there"
            )
        if name is None:
            if create is False:
                raise errors.InvalidArgument("create=False opens what has a name; give the name")
            return make(), True
        addresses.check_names_meet(self.address)
        if create is False:
            return self._await(name, timeout or 0.0), False
        made = None
        while True:
            block = None if create else self._behind(name)
            if block is not None:
                return block, False
            if made is None:
                made = make()
            try:
                self.bind(name, made)
                return made, True
            except errors.NameTaken:
                if create:
                    raise errors.NameTaken(
                        f"{name[1:].decode()!r} exists already, and create=True makes a new one; open it by leaving "
                        "that out, or use another name"
                    ) from None

    def _await(self, name: bytes, timeout: float) -> _native.Block:
        deadline = monotonic() + timeout
        pause = 0.001
        while (block := self._behind(name)) is None:
            left = deadline - monotonic()
            if left <= 0:
                raise errors.UnknownHandle(
                    f"nothing has the name {name[1:].decode()!r} (looked for {timeout:g} s), and create=False makes "
                    "nothing; see that the program which makes it runs, or give a longer timeout"
                )
            sleep(min(left, pause))
            pause = min(2 * pause, _MOST_PAUSE)
        return block

    def _behind(self, name: bytes) -> _native.Block | None:
        """As `open`; None: nobody's name, or that of a block which is gone. That is not an error here."""
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
        """Give an empty segment of this process back to the manager, or what this process holds of a ring.

        Raises:
            InvalidArgument: blocks in it live.
        """
        self._undo(protocol.Return(segment))

    def _undo(self, message: protocol.Message) -> None:
        """As `_request`. Asked again, the next manager may say that the one before had done it."""
        asked = self._requests
        try:
            self._request(message)
        except (errors.UnknownHandle, errors.StaleHandle):
            if self._requests is asked:
                raise

    # -------------------------------------------------------------------------------------------------------- reports

    def list(self, timeout: float = REQUEST_SECONDS) -> dict[str, Any]:
        """Clients, segments, holders and what is in flight: the LIST document of docs/protocol.md."""
        import json

        listing: dict[str, Any] = json.loads(read_document(*self._request(protocol.List(), timeout)))
        return listing

    def stats(self) -> Stats:
        """The manager's figures."""
        import json

        figures = json.loads(read_document(*self._request(protocol.Stats())))
        return Stats(**{field: figures[field] for field in Stats.__dataclass_fields__})

    def gc(self, in_flight: float | None = None) -> protocol.Collected:
        """Clear what nothing needs; with `in_flight`, also what was sent longer ago (seconds) and never received.

        Raises:
            InvalidArgument: in_flight is negative or not a number.
        """
        if in_flight is not None and not in_flight >= 0:
            raise errors.InvalidArgument(f"in_flight is {in_flight}; seconds >= 0 are expected")
        reply, _ = self._request(protocol.Collect(-1.0 if in_flight is None else float(in_flight)))
        assert isinstance(reply, protocol.Collected)
        return reply

    def stop(self) -> None:
        """Ask the manager to end. While anything lives another goes on in the background, in its place."""
        try:
            if not self.native.is_led:  # this connection is that of one before, which has given its place to another
                os.close(connect(self.address, 0.0))
                self._recover(self._requests, monotonic() + REQUEST_SECONDS)
            self._requests.request(self.native.connection, protocol.Stop())
        except (ConnectionGone, NothingThere):
            pass  # it has ended: the next one must not

    def close(self) -> None:
        """Leave the group: say goodbye, release everything, unmap. Raises InvalidArgument while Blocks are alive."""
        held = self.native.stats()[2]
        if held:
            raise errors.InvalidArgument(
                f"{held} shared blocks of this process are alive; delete the tensors over them first"
            )
        global _default
        with _lock:
            if _managers.get(self.address) is self:
                del _managers[self.address]
            if _default is self:
                _default = None
        try:
            if not self.native.is_led:
                os.close(connect(self.address, 0.0))  # where there is none, none is started to say goodbye to it
                self._recover(self._requests, monotonic())
            self._requests.request(self.native.connection, protocol.Goodbye())
        except errors.ManagerError:
            pass  # it is gone already; one that follows sees when this process ends
        self.native.close()


def trim() -> int:
    """Give back the pages that this process keeps for later, in every group; gives their bytes. Asks no manager."""
    return sum(manager.native.trim() for manager in list(_managers.values()))


# ------------------------------------------------------------------------------------------------ finding a manager

_lock = threading.RLock()
_managers: dict[bytes, Manager] = {}
_default: Manager | None = None


def _after_fork() -> None:
    # Another thread of the parent may have held it; that thread does not exist here.
    global _lock
    _lock = threading.RLock()
    for manager in list(_managers.values()):
        manager._requests.renew(manager.native.connection)
        manager._recovering = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def at(address: bytes | str, timeout: float = REQUEST_SECONDS, starts: bool = True) -> Manager:
    """The manager at `address`; connects on first use. Blocks up to `timeout` seconds.

    Args:
        starts: another manager is started in place of one that ends before it has answered.
    Raises:
        ManagerUnavailable: nothing there, not a socket, another user's.
        ProtocolError: another version, or no manager at all.
        ManagerTimeout, QuotaExceeded, InvalidArgument.
    """
    known = _managers.get(address)  # type: ignore[arg-type]
    if known is not None:
        return known
    path = addresses.check_address(address)
    with _lock:
        manager = _managers.get(path)
        if manager is None:
            manager = _managers[path] = Manager(path, connect(path, timeout), timeout, starts=starts)
        return manager


def of(native: _native.Client) -> Manager | None:
    """The manager whose client `native` is; None when this process has left its group. Does not block."""
    for manager in list(_managers.values()):
        if manager.native is native:
            return manager
    return None


def _introduce(
    requests: Requests, deadline: float, place: Place | None, fd: int = -1, starts: bool = True
) -> tuple[int, protocol.Welcome, int]:
    """Be a client of the manager at the address of `requests`. Blocks.

    A manager that ends before it answers is followed by another, and that one is asked, until `deadline`.

    Args:
        place: of this process in the group, if it has one; None: it gets one.
        fd: a connection on which nothing was said yet; taken over. An embryo's `place` comes with it.
        starts: False: the first manager is the only one that is asked.
    Returns:
        (connection, welcome, the group segment's descriptor).
    Raises:
        What `_reach`, `connection.hello` and `connection.rejoin` do; NothingThere not before the deadline.
    """
    has_place = place is not None and fd < 0
    while True:
        if fd < 0:
            fd = _reach(requests.address, deadline)
        requests.renew(fd)
        left = max(_LEAST_SECONDS, deadline - monotonic())
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
    """A connection to the manager that is at the address now; where there is none, one is started. Blocks.

    Raises:
        ManagerUnavailable: none can be started, or those that were ended at once, until `deadline`. ManagerTimeout.
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
        f"the manager at {shown} has ended, and each one that was started in its place ended at once; memory that is "
        f"mapped goes on working. {os.fsdecode(addresses.log_path(address))} may say why, or `shmtensor-manager serve "
        f"--address {shown}`"
    )


def adopt(address: bytes | str, fd: int, place: Place) -> Manager:
    """Become a client on the socket that a spawned child inherited from its parent's `embryo()`; takes fd over.

    Args:
        fd: the next manager knows the embryo by its socket, should this one end: keep a copy open until this returns.
        place: of the embryo, for that manager.
    Raises:
        What `_introduce` does. InvalidArgument: this process is a client at that address already.
    """
    path = addresses.check_address(address)
    with _lock:
        if path in _managers:
            os.close(fd)
            raise errors.InvalidArgument(f"this process is a client of the manager at {os.fsdecode(path)} already")
        os.set_inheritable(fd, False)
        manager = _managers[path] = Manager(path, fd, place=place)
        return manager


def default() -> Manager:
    """The manager of this process, found or started on first use (docs/protocol.md, "Finding the manager").

    May block for some seconds while another process starts one. Thread-safe.

    Raises:
        ManagerUnavailable: SHMTENSOR_MANAGER leads nowhere, or none may be started here.
        ProtocolError: what SHMTENSOR_MANAGER names is of another version.
        ManagerTimeout, QuotaExceeded, InvalidArgument.
    """
    global _default
    if _default is not None:
        return _default
    with _lock:
        if _default is None:
            _default = _find()
        return _default


def _find() -> Manager:
    chosen = os.environ.get(addresses.MANAGER_VARIABLE)
    if chosen:
        try:
            return at(chosen)
        except NothingThere as problem:
            raise errors.ManagerUnavailable(
                f"{addresses.MANAGER_VARIABLE} is set and {problem}. Start one there (`shmtensor-manager serve "
                "--address "
                f"{chosen}`), or unset the variable"
            ) from None
    directory = addresses.runtime_directory()
    shared = addresses.shared_address(directory)
    token = addresses.group_token()
    if token is None:
        try:
            manager = _found_or_started(shared)
        except errors.ProtocolError:
            token = addresses.group_apart("version")
        else:
            if not (manager.is_private and manager.native.group.is_foreign):
                return manager
            manager.close()  # its successor could not be started from here
            token = addresses.group_apart("namespace")
    elif addresses.reason_apart(token) == "quota":
        try:
            manager = at(shared, starts=False)  # not to bring it our quotas
            if manager.native.group.quotas() == addresses.own_quotas():
                return manager
            manager.close()
        except errors.ManagerError:
            pass
    return _found_or_started(addresses.group_address(directory, token))


def _found_or_started(address: bytes) -> Manager:
    """The manager at `address`, which is started if there is none. Raises as `default` does."""
    try:
        return at(address)
    except NothingThere:
        pass
    deadline = monotonic() + launch.START_SECONDS
    with launch.StartLock(os.path.dirname(os.fsdecode(address))):
        while True:
            # Another process may have started it while we waited for the lock, or the last one may just have left.
            try:
                return at(address)
            except NothingThere:
                if monotonic() > deadline:
                    raise errors.ManagerUnavailable(
                        f"managers were started at {os.fsdecode(address)} for {launch.START_SECONDS:g} s and each left "
                        f"at once; {os.fsdecode(addresses.log_path(address))} may say why"
                    ) from None
            launch.start(address)
