"""Hostile and broken peers of a live manager: it survives, serves the others, and keeps nothing of the peers."""

from __future__ import annotations

import array
import fcntl
import gc
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manager_world import BOUND, Wire, World, is_alive, kill, until, world
from tiers import first

from shmtensor import _native, errors
from shmtensor.manager import client, connection
from shmtensor.manager import protocol as p

pytestmark = pytest.mark.any_python

GROWTH = 3072
"""KiB that the manager may grow by in a test: what Python's allocator keeps of a burst, and the first use of things.

A listing is such a burst, with up to 1,000 holds.
"""


class Watched:
    """A manager, what it used before somebody turned up, and an honest client of it.

    That is this process, once `manager` is asked for; until then it is a socket. (While a process maps a group, it
    counts as alive on each of its connections.)
    """

    def __init__(self, here: World) -> None:
        self.here = here
        self.address = here.serve()
        self.pid = here.server.pid
        self.clients = 0
        self._measure()

    def _measure(self) -> None:
        for _ in range(3):
            self.serves()
        self.descriptors, self.memory = self.uses()

    @cached_property
    def manager(self) -> client.Manager:
        self.__dict__["manager"] = made = client.at(self.address)
        self.clients = 1
        self._measure()
        return made

    def close(self) -> None:
        if self.clients:
            self.manager.close()

    def uses(self) -> tuple[int, int]:
        """(descriptors, KiB that are resident)."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir())), resident

    def serves(self) -> None:
        """The honest client is served: a block by name, a listing, and a ring."""
        if not self.clients:
            wire = hello(self.address)
            made = wire.ask(p.Create(4096, p.DEDICATED))
            assert isinstance(made, p.Segment)
            assert isinstance(wire.ask(p.Map(made.segment)), p.Segment)
            assert isinstance(wire.ask(p.List()), p.Document)
            assert isinstance(wire.ask(p.Return(made.segment)), p.Ok)
            leave(wire)
            return
        block = self.manager.allocate(4096)
        memoryview(block)[:4] = b"mine"
        name = self.manager.export(block)
        assert self.manager.open(name) is block and bytes(memoryview(block)[:4]) == b"mine"
        self.manager.unexport(name)
        ring = self.manager.create_ring()
        assert self.manager.list()["rings"]
        del ring, block
        self.manager.gc()
        gc.collect()

    def stats(self) -> dict[str, Any]:
        with connection.Observer(self.address) as observer:
            figures: dict[str, Any] = json.loads(observer.document(p.Stats()))
            return figures

    def others_gone(self, but: int = 0) -> bool:
        stats = self.stats()
        return bool(stats["clients"] == self.clients + but and not stats["dying"])

    def check(self, growth: int = GROWTH) -> None:
        """It is alive and serves, all others are gone with all they had, and it has not grown."""
        assert is_alive(self.pid)
        self.serves()
        until(self.others_gone, "the others to be reclaimed")
        until(lambda: self.uses()[0] <= self.descriptors, f"descriptors: {self.descriptors} and now {self.uses()[0]}")
        until(lambda: self.uses()[1] - self.memory <= growth, f"KiB: {self.memory} and now {self.uses()[1]}")

    def hostile(self, code: str, *arguments: str) -> subprocess.Popen[str]:
        """A client that runs `code` and says so; then it waits to be killed."""
        head = (
            "import os, struct, sys; from shmtensor import _native; from shmtensor.manager import client, protocol\n"
            "from forged import *\nfrom ring_bytes import *\n"
            "m = client.at(sys.argv[1]); slot = m.native.slot\n"
        )
        text = head + code + "\nprint('done', flush=True); sys.stdin.readline()\n"
        process = self.here.script(text, os.fsdecode(self.address), *arguments)
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line == "done\n", (line, process.stderr.read())
        return process


@pytest.fixture
def watched() -> Iterator[Watched]:
    with world() as here:
        made = Watched(here)
        yield made
        made.close()


# ------------------------------------------------------------------------------------------------------ on the socket


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_uid_is_refused(watched: Watched) -> None:
    """By the directory; and, where that was opened to all, by the manager, before it reads a byte."""
    address = os.fsdecode(watched.address)
    code = (
        "import os, socket, sys; sys.path.insert(0, sys.argv[2]); os.setgid(65533); os.setuid(65533)\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "try:\n    s.connect(sys.argv[1])\n"
        "except PermissionError:\n    print('shut')\n"
        "else:\n    print(s.recv(1024)[24:].decode()); print(repr(s.recv(10)))\n"
    )
    run = [sys.executable, "-c", code, address, "/"]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "shut\n"
    watched.here.directory.chmod(0o711)
    Path(address).chmod(0o777)
    out = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert "belongs to uid 0, and the client has uid 65533" in out and out.endswith("b''\n")
    # With our own client, which looks at the socket before it knocks.
    honest = (
        "import os, sys; from shmtensor.manager import client\nos.setgid(65533); os.setuid(65533)\n"
        "try:\n    client.at(sys.argv[1])\nexcept Exception as problem:\n    print(type(problem).__name__, problem)\n"
    )
    out = watched.here.run(honest, address)
    assert out.startswith("ManagerUnavailable") and "belongs to uid 0, and this process has uid 65533" in out
    watched.check()


def hello(address: bytes) -> Wire:
    wire = Wire(address)
    wire.hello()
    return wire


def leave(wire: Wire) -> None:
    wire.close()
    Wire.made.remove(wire)


GARBAGE = [
    b"\0",
    b"SHMT",
    b"GET / HTTP/1.1\r\n\r\n",
    p.encode(p.List(), 1)[:-1],
    p.encode(p.Create(4096), 1)[:-1],
    p.encode(p.Create(4096), 1) + b"\0",
    p.HEADER.pack(p.MAGIC, p.Create.TYPE, 0, 1, 0xFFFFFFFF),
    p.HEADER.pack(p.MAGIC, 77, 0, 1, 0),
    p.HEADER.pack(p.MAGIC, p.Lookup.TYPE, 0, 1, 64) + b"\xff" * 64,
    p.encode(p.Ok(), 1),
    b"SHMT" + b"\0" * 10_000,
    b"\xff" * 100_000,
]


def test_garbage_again_and_again(watched: Watched) -> None:
    for _ in range(20):
        for data in GARBAGE:
            wire = hello(watched.address)
            wire.send_bytes(data)
            assert isinstance(wire.receive()[1], p.Error)
            assert wire.is_closed()
            leave(wire)
    watched.check()


BOUNDARIES = (0, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1)
REALS = (0.0, -1.0, 2.0**32, 2.0**64, 1e308, float("inf"), float("-inf"))


def variants(base: p.Message) -> Iterator[p.Message]:
    """The message with each boundary value in each of its numbers, and in all of them, as far as it can be encoded."""
    fields = list(zip(base.FIELDS, re.findall(r"64s|16s|[IQd]", str(base.FORMAT.format)), strict=True))
    numbers = {name: REALS if kind == "d" else BOUNDARIES for name, kind in fields if kind not in ("64s", "16s")}
    changes: list[dict[str, Any]] = [{name: value} for name, values in numbers.items() for value in values]
    changes += [dict.fromkeys(numbers, value) for value in BOUNDARIES if numbers]
    for change in changes:
        made = type(base)(**{**vars(base), **change})
        with suppress(p.Malformed):
            p.encode(made)
            yield made


def test_the_boundaries_of_every_number(watched: Watched) -> None:
    """No number of a request makes the manager fail, whatever else it answers."""
    version = p.PROTOCOL_VERSION, _native.LAYOUT_VERSION
    wire = hello(watched.address)
    segment, ring = (wire.ask(p.Create(size, flags)) for size, flags in ((4096, p.DEDICATED), (0, p.RING)))
    assert isinstance(segment, p.Segment) and isinstance(ring, p.Segment)
    assert wire.ask(p.Bind(ring.segment, 0, 1, b"/bound")) == p.Ok()
    bases = (
        *(p.Hello(*version), p.Rejoin(*version, 0, 0, 0), p.Embryo(0, 0), p.Create(0), p.Map(0), p.Return(0)),
        *(p.Export(segment.segment, 0, 1), p.Export(ring.segment, 0, 1), p.Lookup(b"/bound"), p.Unexport(b"/none")),
        *(p.List(), p.Stats(), p.Collect(), p.Event(0), p.Bind(segment.segment, 0, 1, b"/x")),
        *(p.Bind(ring.segment, 0, 1, b"/y"), p.Goodbye(), p.Stop(), p.Restart(), p.Succeed()),
        *(p.CreateDevice(0, 0, 0, bytes(range(16))), p.Give(0)),
    )
    assert {type(base) for base in bases} == set(p.REQUESTS.values())
    null = os.open(os.devnull, os.O_RDONLY)
    for message in (message for base in bases for message in variants(base)):
        alone = isinstance(message, p.Hello | p.Rejoin)
        asker = Wire(watched.address) if alone else wire
        asker.send(message, 2**32 - 1, (null,) * message.DESCRIPTORS)
        if isinstance(message, p.Embryo) or (isinstance(message, p.Hello) and message.flags & p.QUIET):
            continue  # not answered
        number, reply, descriptors = asker.receive()
        for fd in descriptors:
            os.close(fd)
        assert number == 2**32 - 1
        assert not isinstance(reply, p.Error) or reply.code != p.INTERNAL, (message, reply)
        if alone:
            leave(asker)
    os.close(null)
    for number in (2**32, 2**64 - 1):
        for message in (p.Export(ring.segment, number, 1), p.Bind(ring.segment, 0, number, b"/z")):
            reply = wire.ask(message)
            assert isinstance(reply, p.Error) and reply.code == p.STALE, (message, reply)
    leave(wire)
    watched.check(growth=2 * GROWTH)
    watched.here.server.terminate()
    assert "Traceback" not in watched.here.server.communicate(timeout=BOUND)[1]


def test_replayed_messages(watched: Watched) -> None:
    """The same packet twice does twice what is asked, or is refused; HELLO and EMBRYO are good for once."""
    wire = hello(watched.address)
    again = p.encode(p.Hello(p.PROTOCOL_VERSION, _native.LAYOUT_VERSION), 1)
    wire.send_bytes(again)
    assert isinstance(wire.receive()[1], p.Error) and wire.is_closed()
    wire = hello(watched.address)
    made = wire.ask(p.Create(4096, p.DEDICATED))
    assert isinstance(made, p.Segment)
    packet = p.encode(p.Return(made.segment), 9)
    for expected in (p.Ok, p.Error, p.Error):
        wire.send_bytes(packet)
        assert isinstance(wire.receive()[1], expected)
    wire.close()
    watched.check()


def test_hundreds_of_descriptors_where_none_belong(watched: Watched) -> None:
    read_end, write_end = os.pipe()
    for count in (1, 2, 8, 253):
        for message in (p.List(), p.Create(4096), p.Embryo(5, 1)):
            for _ in range(20):
                wire = hello(watched.address)
                rights = array.array("i", [write_end] * count)
                wire.sock.sendmsg([p.encode(message, 3)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                # One pipe with EMBRYO is what the protocol allows, though not what the slot is: no answer then.
                if not (count == 1 and isinstance(message, p.Embryo)):
                    assert isinstance(wire.receive()[1], p.Error) and wire.is_closed()
                leave(wire)
    os.close(write_end)
    assert os.read(read_end, 1) == b"", "the manager kept a descriptor"
    os.close(read_end)
    watched.check()


def test_descriptors_that_nobody_takes_out(watched: Watched) -> None:
    """In packets that wait behind one for which the connection is closed; in sockets that lie in sockets."""
    read_end, write_end = os.pipe()
    inner, outer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    socket.send_fds(inner, [b"x"], [write_end])
    wire = hello(watched.address)
    wire.send_bytes(b"garbage")
    with suppress(OSError):
        for _ in range(50):
            wire.send_bytes(p.encode(p.List(), 1), (write_end, outer.fileno()))
    for fd in (write_end, inner.detach(), outer.detach()):
        os.close(fd)
    assert os.read(read_end, 1) == b""
    os.close(read_end)
    wire.close()
    watched.check()


@pytest.mark.exhaustive
def test_an_embryo_on_the_managers_own_socket(watched: Watched) -> None:
    """What an embryo's socket is connected to may be the manager itself, so that it would answer itself."""
    code = (
        "import socket\nfrom shmtensor.manager import connection\n"
        "for _ in range(50):\n"
        "    number, generation = table.claim(_native.SLOT_EMBRYO, 0, 0, slot)\n"
        "    other = connection.connect(sys.argv[1])\n"
        "    over = socket.socket(fileno=os.dup(m.native.connection))\n"
        "    socket.send_fds(over, [protocol.encode(protocol.Embryo(number, generation))], [other])\n"
        "    over.close()\n"
        "    socket.socket(fileno=other).close()\n"
        "print('sent', flush=True)"
    )
    setup = (
        "from shmtensor.manager import connection as c\nfd = c.connect(sys.argv[1])\n"
        "_w, g = c.hello(c.Requests(b'x'), fd, protocol.OBSERVER); table = _native.Group.open(g)\n"
    )
    process = watched.here.script(
        "import os, sys; from shmtensor import _native; from shmtensor.manager import client, protocol\n"
        "m = client.at(sys.argv[1]); slot = m.native.slot\n" + setup + code + "\nsys.stdin.readline()",
        os.fsdecode(watched.address),
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "sent\n", process.stderr.read()
    kill(process)
    watched.check()


@pytest.mark.exhaustive
def test_one_that_says_nothing_and_one_that_never_reads(watched: Watched) -> None:
    silent = Wire(watched.address)
    greedy = hello(watched.address)
    greedy.sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        for _ in range(1_000_000):
            greedy.sock.send(p.encode(p.Map(1) if _ % 2 else p.Stats(), 1))
    watched.serves()
    until(lambda: hung_up(greedy.sock), "the greedy one to be disconnected")
    assert silent.is_closed(), "the silent one"
    watched.check()


def hung_up(sock: socket.socket) -> bool:
    try:
        sock.send(p.encode(p.Stats(), 1), socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return False


def test_thousands_of_half_open_connections(watched: Watched) -> None:
    """More than the manager keeps: the oldest go, and whoever says hello is served all the time."""
    silent = []
    for number in range(4000):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(watched.address)
        silent.append(sock)
        if number % 500 == 0:
            wire = hello(watched.address)
            assert isinstance(wire.ask(p.Stats()), p.Document)
            wire.close()
    assert watched.uses()[0] < watched.descriptors + 1200
    watched.serves()
    for sock in silent:
        sock.close()
    watched.check(growth=8192)  # a Connection each, for 1,024 at once


# --------------------------------------------------------------------------------------------------- handles, tickets


def test_handles_that_were_guessed_reused_or_come_from_elsewhere(watched: Watched) -> None:
    manager = watched.manager
    block = manager.allocate(1 << 20)
    triple = (block.segment, block.index, block.generation)
    name = manager.export(block)
    for guess in (b"/torch_1_1", name[:-1], name + b"0", name.replace(b"torch", b"Torch")):
        with pytest.raises(errors.UnknownHandle):
            manager.open(guess)
    for segment, index, generation in (
        (triple[0] + 1000, *triple[1:]),
        (2**63, *triple[1:]),
        (triple[0], 2**32 - 1, triple[2]),
        (triple[0], (1 << 20) + 5, triple[2]),
        (triple[0], triple[1], triple[2] + 1),
        (triple[0], triple[1], 2**32 - 1),
    ):
        with pytest.raises((errors.UnknownHandle, errors.StaleHandle)):
            manager.attach(segment, index, generation)
    del block
    again = [manager.allocate(1 << 20) for _ in range(4)]  # one of them where the first one was
    with pytest.raises(errors.StaleHandle):
        manager.open(name)
    with pytest.raises(errors.StaleHandle):
        manager.attach(*triple)
    with world() as elsewhere:
        other = client.at(elsewhere.serve())
        foreign = other.allocate(10)
        with pytest.raises(errors.UnknownHandle):
            manager.open(other.export(foreign))
        del foreign
        other.close()
    del again
    watched.check()


def test_a_message_that_is_read_twice_or_never(watched: Watched) -> None:
    native = watched.manager.native
    twice, never = (_native.pack_tickets(native, np.full(1000, 7.0)) for _ in range(2))
    assert watched.manager.stats().live_blocks == 2, "the messages hold it"
    first, second = (_native.unpack_tickets(native, *twice) for _ in range(2))
    assert first[3] == 7 and second[999] == 7
    del first, second
    assert watched.manager.gc(in_flight=0.0).tickets in (0, 1)  # in whole seconds of age
    until(lambda: watched.manager.gc(in_flight=0.0).tickets or not watched.manager.stats().live_blocks, "its age")
    until(lambda: not watched.manager.stats().live_blocks, "the block to go")
    for gone in (twice, never):
        with pytest.raises(_native.BlockGone):
            _native.unpack_tickets(native, *gone)
    watched.check()


def test_forged_tickets(watched: Watched) -> None:
    manager = watched.manager
    block, other = manager.allocate(1000), manager.allocate(1000)
    triple = (block.segment, block.index, block.generation)
    hold, mark = manager.ticket(block)
    kept, kept_mark = manager.ticket(other)
    # With a wrong index or mark a ticket is none: the block is attached as it lives, and the real one stays.
    for forged in ((2**32 - 1, mark), (1 << 22, mark), (hold, mark ^ 1), (kept, kept_mark), (kept, mark)):
        assert manager.redeem(*triple, *forged) is block
    assert manager.list()["in_flight_total"] == 2
    with pytest.raises(errors.StaleHandle):
        manager.redeem(triple[0], triple[1], triple[2] + 1, hold, mark)
    with pytest.raises(errors.StaleHandle):
        manager.redeem(triple[0], 2**32 - 1, triple[2], hold, mark)
    with pytest.raises(errors.UnknownHandle):
        manager.redeem(10**9, triple[1], triple[2], hold, mark)
    with pytest.raises(errors.InvalidArgument):
        manager.redeem(*triple, -1, mark)
    assert manager.redeem(*triple, hold, mark) is block
    assert manager.redeem(other.segment, other.index, other.generation, kept, kept_mark) is other
    assert manager.list()["in_flight_total"] == 0
    del block, other
    watched.check()


# ------------------------------------------------------------------------------------------- what lies in shared memory

OVERWRITTEN = {
    "tables that end nowhere": "for at in (BLOCKS_HIGH, HOLDS_HIGH, HOLDS_RESERVED): f.set(at, 0xffffffff)",
    "tables as long as can be": "f.set(BLOCKS_HIGH, ARENA_BLOCKS); f.set(HOLDS_HIGH, ARENA_HOLDS)",
    "empty tables": "for at in (BLOCKS_HIGH, HOLDS_HIGH, HOLDS_RESERVED): f.set(at, 0)",
    "totals too high": "f.set(LIVE_BLOCKS, 0x7fffffff); f.set(LIVE_BYTES, 2**64 - 1, '<Q')",
    "totals of nothing": "f.set(LIVE_BLOCKS, 0); f.set(LIVE_BYTES, 0, '<Q')",
    "chains that lead away": "f.set(FREE_HOLD, 0xfffffff0); f.set(RETURNED, 0xfffffff0)",
    "a chain of returned blocks in a circle": (
        "f.set(RETURNED, block.index)\nfor n in range(3): f.set(f.block(n) + 24, n)"
    ),
    "a chain of free holds in a circle": "f.set(FREE_HOLD, 0); f.set(f.hold(0) + 8, 0)",
    "a block beyond the payload": (
        "f.set(f.block(block.index), 2**64 - 4096, '<Q'); f.set(f.block(block.index) + 8, 2**64 - 1, '<Q')"
    ),
    "counts of nothing": "for n in range(8): f.set(f.block(n) + 20, 0)",
    "counts without end": "for n in range(8): f.set(f.block(n) + 20, 0xffffffff)",
    "holds of blocks that are not": (
        "f.set(HOLDS_HIGH, 4096)\n"
        "for n in range(8, 4096): f.set(f.hold(n), (n * 7919 % ARENA_BLOCKS) << 32 | slot << 8 | 1, '<Q')\n"
        "for n in range(8, 4096, 3): f.set(f.hold(n), (ARENA_BLOCKS + n) << 32 | slot << 8 | 1, '<Q')"
    ),
    "holds of every kind": (
        "f.set(HOLDS_HIGH, 2048)\n"
        "for n in range(8, 2048): f.set(f.hold(n), block.index << 32 | slot << 8 | n % 256, '<Q')"
    ),
    "noise in the table of blocks": "f.metadata[f.block(0):f.block(512)] = os.urandom(512 * BLOCK)",
    "noise in the table of holds": "f.metadata[f.hold(0):f.hold(512)] = os.urandom(512 * HOLD); f.set(HOLDS_HIGH, 512)",
    "noise in the header": "f.metadata[BLOCKS_HIGH:BLOCKS_HIGH + 40] = os.urandom(40)",
    "a lock of nobody": "f.set(LOCK, 0x3fffffff)",
    "a lock of nobody, waited for": "f.set(LOCK, 0xbfffffff)",
    "a lock that was left": "f.set(LOCK, 0x40000000)",
    "a lock of another kind": "f.set(LOCK, 0); f.set(LOCK + 16, 0x20 | 0x10)",
    "a lock full of noise": "f.metadata[LOCK:LOCK + 64] = b'\\xaa' * 64",
}


@pytest.mark.parametrize("what", first(OVERWRITTEN, 3))
def test_overwritten_segment_metadata(watched: Watched, what: str) -> None:
    """By a client that dies then: all of its memory is free again, without the manager having paid for a look."""
    assert watched.manager
    head = "blocks = [m.allocate(70000) for _ in range(4)]; block = blocks[1]; m.export(block); del blocks[3]\n"
    process = watched.hostile(head + "f = Forged(m, block.segment)\n" + OVERWRITTEN[what])
    watched.manager.list()
    assert watched.uses()[1] - watched.memory <= GROWTH + 1024, "looking made pages"
    watched.serves()
    kill(process)
    until(lambda: watched.manager.stats().segments <= 1, "the segment of the dead to be given back")
    watched.check()


READER = """
import sys
from shmtensor import errors
from shmtensor.manager import client
m = client.at(sys.argv[1])
held = []
for triple in eval(sys.argv[2]):
    try:
        held.append(m.attach(*triple))
        bytes(memoryview(held[-1]))
        held.append(m.redeem(*triple, 5, 5))
    except (errors.ShmTensorError, MemoryError) as problem:
        assert str(problem)
del held
print('survived', flush=True)
"""
"""A client that attaches and redeems blocks of a segment whose metadata another process has overwritten."""
OWNER = """
import os, sys
from shmtensor import errors
from shmtensor.manager import client
from forged import *
m = client.at(sys.argv[1])
slot = m.native.slot
blocks = [m.allocate(70000) for _ in range(4)]; block = blocks[1]
f = Forged(m, block.segment)
exec(sys.argv[2])
for _ in range(3):
    try:
        more = [m.allocate(n) for n in (64, 4096, 70000, 1 << 20)]
        del more
        m.native.trim()
    except (errors.ShmTensorError, MemoryError) as problem:
        assert str(problem)
blocks.clear()
print('survived', flush=True)
"""
"""A client that allocates and releases in its own segment after its metadata was overwritten."""


@pytest.mark.parametrize("what", first(OVERWRITTEN, 3))
def test_clients_survive_overwritten_segment_metadata(watched: Watched, what: str) -> None:
    """Who attaches, allocates and releases in a segment whose metadata was overwritten gets an error at worst."""
    manager, address = watched.manager, os.fsdecode(watched.address)
    mine = [manager.allocate(70000) for _ in range(4)]
    shared = manager.export(mine[1])
    process = watched.hostile(f"block = m.open({shared!r})\nf = Forged(m, block.segment)\n{OVERWRITTEN[what]}")
    if not what.startswith("a lock"):  # which is waited for, 30 s each time
        triples = [(block.segment, block.index, block.generation) for block in mine]
        assert watched.here.run(READER, address, repr(triples)) == "survived\n"
        assert "survived" in watched.here.run(OWNER, address, OVERWRITTEN[what])
    kill(process)
    # What was forged in our own arena stays with us: a new client has nothing of it.
    assert watched.here.run(
        "import sys; from shmtensor.manager import client; m = client.at(sys.argv[1]); m.allocate(10); print('ok')",
        address,
    )
    assert is_alive(watched.pid)


RINGS = {
    "a capacity of all": "struct.pack_into('<I', v, 40, 1 << 24)",
    "a capacity of nothing": "struct.pack_into('<I', v, 40, 0)",
    "a capacity that is no power": "struct.pack_into('<I', v, 40, 3000)",
    "a message of all units": "struct.pack_into('<I', v, MESSAGES, 0xffffffff)",
    "a message without units": "struct.pack_into('<I', v, MESSAGES, 0)",
    "as many holds as can be": "struct.pack_into('<III', v, MESSAGES, 1 << 10, 0, 0xffffffff)",
    "a long list in a long ring": (
        "struct.pack_into('<I', v, 40, 1 << 24)\nstruct.pack_into('<III', v, MESSAGES, 1 << 24, 0, 40_000_000)"
    ),
    "a body of all": "struct.pack_into('<IIIIQ', v, MESSAGES, 2, 0, 0, 0, 2**64 - 1)",
    "fillers without end": "for at in range(0, 65536, 64): struct.pack_into('<II', v, MESSAGES + at, 1, 1)",
    "holds of no segment": "struct.pack_into('<QIIII', v, MESSAGES + 40, 2**64 - 1, 0, 0, 0, 0)",
    "a hold beyond the table": "struct.pack_into('<II', v, MESSAGES + 40 + 12, 1, 0xffffffff)",
    "a head beyond the tail": "struct.pack_into('<Q', v, HEAD, 5 << 32 | 7)",
    "a tail far away": "struct.pack_into('<Q', v, TAIL, 0xfffffff0 << 32 | 0x7fffffff)",
    "another number": "struct.pack_into('<I', v, NUMBER, 1)",
    "records of everybody": (
        "for at in (PUT_UNDO, GET_UNDO): struct.pack_into('<Q', v, at, 0xfffffff0 << 32 | slot << 8 | 1)"
    ),
    "locks of nobody": "for at in (PUT_LOCK, GET_LOCK): struct.pack_into('<I', v, at, 0x3fffffff)",
    "locks of another kind": "for at in (PUT_LOCK, GET_LOCK): struct.pack_into('<I', v, at + 16, 0x30)",
    "noise in the header": "v[8:4096] = os.urandom(4088)",
    "noise in the messages": "v[MESSAGES:MESSAGES + 65536] = os.urandom(65536)",
    "no magic": "v[0:8] = bytes(8)",
}


@pytest.mark.parametrize("what", first(RINGS, 3))
def test_a_ring_written_over(watched: Watched, what: str) -> None:
    """By a client that dies inside a put and a get, so that the manager has to undo them."""
    block = watched.manager.create_ring()
    watched.manager.bind(b"/ring", block)
    code = f"""
ring = RingBytes(m, m.open(b"/ring")); v = ring.view
block = m.allocate(4096)
hold, mark = m.ticket(block)
ring.write_message(block, hold)
ring.move(TAIL)
for at in (PUT_UNDO, GET_UNDO): ring.note(at, slot)
ring.give(block, hold, ring.number, _native.HOLD_MESSAGE)
{RINGS[what]}
"""
    process = watched.hostile(code)
    watched.manager.list()
    memory = watched.uses()[1]
    kill(process)
    until(watched.others_gone, "the dead to be reclaimed")
    assert watched.uses()[1] - memory <= GROWTH, "looking made pages"
    del block
    until(lambda: not watched.manager.stats().rings, "the ring to go")
    watched.check()


def test_forged_slots(watched: Watched) -> None:
    """Somebody writes into the slot table that others' slots are free, or children of its own: nobody loses memory."""
    victim = watched.here.script(
        "import sys; from shmtensor.manager import client; m = client.at(sys.argv[1]); b = m.allocate(100000)\n"
        "memoryview(b)[:] = b'v' * 100000\nprint(m.native.slot, flush=True)\n"
        "sys.stdin.readline(); assert bytes(memoryview(b)) == b'v' * 100000\n"
        "print(m.list()['segments'][-1]['live_blocks'], flush=True); sys.stdin.readline()",
        os.fsdecode(watched.address),
    )
    assert victim.stdin is not None and victim.stdout is not None
    slot = int(victim.stdout.readline())
    code = """
import socket
table = group_table(sys.argv[1])
victim = int(sys.argv[2])
def set(index, state, parent):
    at = _native.PAGE + 64 * index
    generation = struct.unpack_from("<Q", table, at)[0] >> 32
    struct.pack_into("<Q", table, at, generation << 32 | parent << 8 | state)
def generation(index):
    return struct.unpack_from("<Q", table, _native.PAGE + 64 * index)[0] >> 32
def announce(index):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    over = socket.socket(fileno=os.dup(m.native.connection))
    socket.send_fds(over, [protocol.encode(protocol.Embryo(index, generation(index)))], [theirs.fileno()])
    for sock in (over, theirs, ours): sock.close()
for index in (victim, 0):
    set(index, _native.SLOT_EMBRYO, slot)
    announce(index)
m.list()
"""
    process = watched.hostile(code, str(slot))
    free = "set(victim, _native.SLOT_FREE, 0)\nset(0, _native.SLOT_FREE, 0)\n"
    other = watched.hostile(code.split("for index in")[0] + free, str(slot))
    for _ in range(3):  # newcomers, who might be given the slot
        newcomer = "import sys; from shmtensor.manager import client; print(client.at(sys.argv[1]).native.slot)"
        assert int(watched.here.run(newcomer, os.fsdecode(watched.address))) not in (slot, 0)
    kill(process)
    kill(other)
    until(lambda: watched.others_gone(1), "the hostile to be reclaimed")
    victim.stdin.write("\n")
    victim.stdin.flush()
    assert victim.stdout.readline() == "1\n"
    kill(victim)
    watched.check()


# -------------------------------------------------------------------------------------------------- truncated memory


def test_memfd_cannot_be_truncated(watched: Watched) -> None:
    block = watched.manager.allocate(4096)
    reply, descriptors = watched.manager._request(p.Map(block.segment))
    for fd in descriptors:
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 1 << 45)
        with pytest.raises(PermissionError):
            fcntl.fcntl(fd, 1033, 0)
        os.close(fd)
    del block, reply
    watched.check()


def test_a_named_object_that_was_truncated_is_noticed(watched: Watched) -> None:
    """When it is mapped, and when its owner reserves more of it: an error, and not SIGBUS."""
    code = """
from shmtensor import errors
client.set_strategy("file_system")
block = m.allocate(1 << 20)
name = m.export(block)
path = "/dev/shm" + next(row["name"] for row in m.list()["segments"] if row["name"])
os.truncate(path, 4096)
print(name.decode(), flush=True)
sys.stdin.readline()
try:
    while True:
        m.allocate(8 << 20)
except errors.SegmentLost as problem:
    assert "truncated" in str(problem), problem
    print("noticed", flush=True)
assert os.stat(path).st_size == 4096, "reserving made it long again"
client.set_strategy("file_descriptor")
"""
    head = "import os, sys; from shmtensor.manager import client; m = client.at(sys.argv[1])\n"
    owner = watched.here.script(head + code + "sys.stdin.readline()", os.fsdecode(watched.address))
    assert owner.stdin is not None and owner.stdout is not None and owner.stderr is not None
    name = owner.stdout.readline().strip().encode()
    with pytest.raises(errors.SegmentLost, match="truncated"):
        watched.manager.open(name)
    owner.stdin.write("\n")
    owner.stdin.flush()
    assert owner.stdout.readline() == "noticed\n", owner.stderr.read()
    kill(owner)
    until(lambda: watched.manager.stats().segments <= 1, "the segment of the dead to be given back")
    watched.check()
