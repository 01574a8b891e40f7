"""One end of a channel in this group: its queues, its window and its state, and the process that links it to others.

    processes -> outbox -> [link process] ==TCP==> ... and back: [link process] -> inbox -> processes

A listening end has one ring for both: other ends' messages are put into it, and the messages that they get are taken
from it. All parts are blocks of shared memory, which the state refers to; a process needs only the name of the state.
"""

from __future__ import annotations

import os
import time
import weakref
from contextlib import suppress
from functools import partial
from typing import Any, Final

from .._native import COPY_TENSORS, PICKLE_BY_VALUE, REFUSE_PICKLE, Block
from ..errors import ConnectionLost, DeliveryTimeout, InvalidArgument, ManagerTimeout, ShmTensorError
from ..ipc.broadcast import Broadcast
from ..ipc.queues import Queue
from ..ipc.synchronize import Event, Lock
from ..manager import client, launch
from ..store import Store
from .address import Address
from .state import State, Status

LISTENING, CONNECTED = "listen", "connect"
_PROGRAM: Final = (
    "import sys;sys.path+=sys.argv[3:];import shmtensor.channel.link.background as background;"
    "background.run(sys.argv[1], sys.argv[2])"
)
_START_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.001
_LONGEST_PAUSE_SECONDS: Final = 0.02
_COUNTED: Final = 2**32 - 1
"""Counts of messages wrap after this one."""
_AHEAD: Final = 2**31
_HELD_BY_LINK: Final = 1


_ends: Final[weakref.WeakValueDictionary[bytes, End]] = weakref.WeakValueDictionary()
"""The ends that this process has, by their nonces: one object for each, which calls on its rings use."""


class End:
    """One end of a channel, in a process of its group."""

    @classmethod
    def open(cls, manager: client.Manager, block: Block) -> End:
        """Return the end whose state is in a block. Raises InvalidArgument: there is none."""
        state = State(block)
        return _ends.get(state.nonce) or _ends.setdefault(state.nonce, cls(manager, state))

    def __init__(self, manager: client.Manager, state: State) -> None:
        """Use `open`."""
        self.manager = manager
        self.state = state
        self.config: dict[str, Any] = state.config
        config = self.config
        blocks = {part: manager.attach(*numbers) for part, numbers in config["blocks"].items()}
        self.blocks: list[Block] = list(blocks.values())
        """Blocks of all parts but the state."""
        kind = Broadcast if config["kind"] == "broadcast" else Queue
        self.outbox: Any = _opened(kind if config["role"] == LISTENING else Queue, blocks["outbox"])
        self.inbox: Any = self.outbox if config["role"] == LISTENING else _opened(kind, blocks["inbox"])
        self.window: Any = _opened(Store, blocks["window"])
        self.alive: Any = _opened(Lock, blocks["alive"])
        self.control: Any = _opened(Event, blocks["control"])
        self._wants = config["role"] == LISTENING
        form = PICKLE_BY_VALUE if config["pickle"] else REFUSE_PICKLE
        if config["role"] != LISTENING and config["copy"]:
            form |= COPY_TENSORS
        self.outbox._ring.form = form

    def change(self, facts: dict[str, Any]) -> None:
        """Change the configuration. No link process may be running."""
        self.state.config = self.config = {**self.config, **facts}

    def watch(self) -> None:
        """Make calls on the queues check at intervals whether the other end and the link process exist."""
        look = partial(_look, self.state.nonce)
        self.outbox._ring.look = self.inbox._ring.look = look

    @property
    def address(self) -> str:
        """The address at which it listens, or to which it is connected."""
        return str(Address(self.config["host"], self.state.port or self.config["port"]))

    @classmethod
    def make(cls, config: dict[str, Any], bounds: dict[str, Any], rows: int) -> End:
        """Create an end, whose state has its own name. Blocks for the manager."""
        manager = client.default()
        name = cls.name_of(config)
        parts: dict[str, Any] = {"window": Store(), "alive": Lock(), "control": Event()}
        broadcast = config["kind"] == "broadcast"
        if config["role"] == LISTENING:
            parts["outbox"] = Broadcast(**bounds) if broadcast else Queue(**bounds)
        else:
            parts["outbox"] = Queue(**bounds)
            parts["inbox"] = Broadcast(**config["broadcast"]) if broadcast else Queue()
        blocks = {part: _block_of(thing) for part, thing in parts.items()}
        numbers = {part: (block.segment, block.index, block.generation) for part, block in blocks.items()}
        state = State(manager.allocate(State.nbytes(rows)), rows)
        state.config = {**config, "name": name, "blocks": numbers}
        manager.bind(b"/" + name.encode(), state.block)
        if config.get("stream"):
            for block in (*blocks.values(), state.block):
                manager.native.keep(block)
        return cls.open(manager, state.block)

    @staticmethod
    def name_of(config: dict[str, Any]) -> str:
        """Return a name for the state of an end: the same one for each process of a named stream."""
        stream = config["stream"]
        return f"channel.{os.urandom(12).hex()}" if stream is None else f"channel.{config['role']}.{stream}"

    @classmethod
    def find(cls, manager: client.Manager, name: str) -> End | None:
        """Return the end whose state has that name; None: there is none. Blocks for the manager."""
        block = manager.find(b"/" + name.encode())
        return None if block is None else cls.open(manager, block)

    # --------------------------------------------------------------------------------------------------- the link

    def is_linked(self) -> bool:
        """Whether a link process works for this end. Does not block."""
        if not self.alive.acquire(block=False):
            return True
        self.alive.release()
        return False

    def link(self) -> None:
        """Start the link process, if there is none. Blocks until it works, or has failed to start.

        Raises:
            ShmTensorError: it cannot be started.
        """
        if self.is_linked() and not self.state.ended:
            return
        deadline = time.monotonic() + _START_SECONDS
        while self.state.ended:  # one is ending: either it notices this process and stays, or it releases its lock
            if not self.is_linked():
                self.state.ended = 0
            elif time.monotonic() > deadline:
                raise ShmTensorError("the link process of a channel does not end; is it stopped?")
            time.sleep(_PAUSE_SECONDS)
        arguments = [os.fsdecode(self.manager.address), self.config["name"]]
        while not self.is_linked() and not self.is_lost:
            try:
                launch.interpret(_PROGRAM, arguments, deadline)
            except launch.NotReady as problem:
                if not problem.was_killed or time.monotonic() > deadline:
                    raise ShmTensorError(
                        f"cannot start the link process of a channel: {problem}; check that this one may start others"
                    ) from None

    def has_users(self) -> bool:
        """Whether a process other than the caller, the link process, has this end. Does not block."""
        return self.state.block.holds - (1 if self.config.get("stream") else 0) > _HELD_BY_LINK

    # ------------------------------------------------------------------------------------------------- the other end

    @property
    def is_lost(self) -> bool:
        """Whether the other end is gone for good."""
        return self.state.status == Status.lost

    def require(self) -> None:
        """Raise ConnectionLost if the other end is gone."""
        if self.state.status == Status.lost:
            raise ConnectionLost(self.state.text)

    def want(self) -> None:
        """Make the other end send messages to this one, even if no process is in `get`."""
        if not self._wants:
            self._wants = True
            self.state.wanted = 1
            self.control.set()

    def await_delivery(self, timeout: float | None) -> None:
        """Block until a listening end has all messages put here before. Raises DeliveryTimeout, ConnectionLost."""
        deadline = None if timeout is None else time.monotonic() + timeout
        ring = self.outbox._ring
        put, last, pause = ring.stats().put, None, _PAUSE_SECONDS
        lost = self.state.lost_messages
        while True:
            if last is None and (ring.taken() - put) & _COUNTED < _AHEAD:  # all are in the window, or were delivered
                last = max((last for _, last in self._window_numbers()), default=0)
            if last is not None and all(first > last for first, _ in self._window_numbers()):
                # A session that is given up also drops its window, after it reports the loss and before it reports the
                # count.
                if self.is_lost and (not self.state.ended or self.state.lost_messages != lost):
                    self.require()
                return
            self.require()
            self.link()
            if deadline is not None and time.monotonic() >= deadline:
                raise DeliveryTimeout(
                    f"{self.address} has not received everything within {timeout:g} s: {ring.size()} messages are not "
                    f"sent, {self.window.stats().objects} runs of messages not acknowledged"
                    + (f" ({self.state.text})" if self.state.text else "")
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _window_numbers(self) -> list[tuple[int, int]]:
        """Return the numbers of the first and the last message of each part of the window."""
        parts = [[int(number, 16) for number in key.split(".")] for key in self.window.keys("")]
        return [(first, first + messages - 1) for _, first, messages in parts]

    def await_subscription(self) -> None:
        """Block until the other end sends the messages of a broadcast. Raises ManagerTimeout, ConnectionLost."""
        deadline = time.monotonic() + self.config["timeout"]
        while not self.state.subscribed:
            self.require()
            self.link()
            if time.monotonic() > deadline:
                raise ManagerTimeout(f"{self.address} did not answer; {self.state.text or 'is it stopped?'}")
            time.sleep(_PAUSE_SECONDS)


def _look(nonce: bytes, waits: bool) -> None:
    """Start a link process if there is none; called by put and get. If `waits`, raises ConnectionLost."""
    end = _ends.get(nonce)
    if end is None:
        return
    if not end.is_lost:
        end.link()
    elif waits:
        end.require()


def _block_of(thing: Any) -> Block:
    for attribute in ("_ring", "_flag", "_semlock"):
        with suppress(AttributeError):
            block: Block = getattr(thing, attribute).block
            return block
    raise InvalidArgument(f"{thing!r} is not in a block; pass a queue, event or lock of shmtensor.multiprocessing")


def _opened(cls: Any, block: Block) -> Any:
    opened = cls.__new__(cls)
    opened.__setstate__((block, None) if cls is Queue else block)
    return opened
