"""The real daemon with hand-written messages: every reply, every refusal, every death."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from manager_world import Wire, World, kill, until

from shmtensor import _native
from shmtensor.manager import protocol as p


@pytest.fixture
def served(here: World) -> tuple[World, bytes]:
    return here, here.serve()


def client(address: bytes) -> tuple[Wire, p.Welcome]:
    wire = Wire(address)
    return wire, wire.hello()


def error_or_none(reply: p.Message) -> int | None:
    return reply.code if isinstance(reply, p.Error) else None


def error(reply: p.Message) -> int:
    assert isinstance(reply, p.Error), reply
    assert reply.text
    return reply.code


CLIENT = """
import sys
from shmtensor.manager import client
manager = client.at(sys.argv[1])
blocks = [manager.allocate(4096) for _ in range(int(sys.argv[2]))]
print(manager.native.slot, flush=True)
sys.stdin.readline()
"""


def test_hello_gives_a_slot_and_the_group_and_goodbye_gives_the_slot_back(served: tuple[World, bytes]) -> None:
    _world, address = served
    wire = Wire(address)
    wire.send(p.Hello(p.PROTOCOL_VERSION, _native.LAYOUT_VERSION), 7)
    number, welcome, (group_fd,) = wire.receive()
    assert number == 7 and isinstance(welcome, p.Welcome) and welcome.slot > 0
    group = _native.Group.open(group_fd)
    os.close(group_fd)
    assert group.group_id == welcome.group
    assert group.slot(welcome.slot)[:2] == (_native.SLOT_CLIENT, os.getpid())
    assert wire.ask(p.Collect(0.0)) == p.Collected(0, 0, 0, 0, 0)
    assert wire.ask(p.Goodbye()) == p.Ok()
    assert wire.is_closed()
    wire.close()
    assert group.slot(welcome.slot)[0] in (_native.SLOT_FREE, _native.SLOT_DEAD)


def test_every_reply_about_segments(served: tuple[World, bytes]) -> None:
    wire, _ = client(served[1])
    wire.send(p.Create(10_000), 8)
    number, segment, (control, payload) = wire.receive()
    assert number == 8 and isinstance(segment, p.Segment)
    assert segment.nbytes == os.fstat(payload).st_size == 3 * _native.PAGE
    seals = fcntl.fcntl(payload, fcntl.F_GET_SEALS)
    assert seals & fcntl.F_SEAL_SHRINK and seals & fcntl.F_SEAL_GROW
    assert wire.ask(p.Map(segment.segment)) == segment
    os.close(control)
    os.close(payload)
    assert error(wire.ask(p.Export(segment.segment, 0, 1))) == p.STALE
    assert error(wire.ask(p.Event(segment.segment))) == p.INVALID
    assert error(wire.ask(p.Map(99))) == p.UNKNOWN
    assert error(wire.ask(p.Create(0))) == p.INVALID
    assert error(wire.ask(p.Create(_native.MAX_SEGMENT_BYTES + 1))) == p.INVALID
    assert wire.ask(p.Return(segment.segment)) == p.Ok()
    assert error(wire.ask(p.Return(segment.segment))) == p.STALE
    wire.close()


@pytest.mark.parametrize("message", [p.List(), p.Stats()])
def test_a_report_is_a_sealed_document(served: tuple[World, bytes], message: p.Message) -> None:
    wire, _ = client(served[1])
    wire.send(message, 9)
    number, reply, (fd,) = wire.receive()
    assert number == 9 and isinstance(reply, p.Document)
    assert os.fstat(fd).st_size == reply.nbytes
    assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE
    json.loads(os.pread(fd, reply.nbytes, 0))
    os.close(fd)
    wire.close()


def test_every_reply_about_rings(served: tuple[World, bytes]) -> None:
    wire, _ = client(served[1])
    wire.send(p.Create(0, p.RING), 10)
    number, ring, (control, payload) = wire.receive()
    assert number == 10 and isinstance(ring, p.Segment) and ring.flags == p.DEDICATED | p.RING
    assert ring.nbytes == os.fstat(payload).st_size == _native.RING_BYTES
    assert fcntl.fcntl(payload, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    assert os.fstat(payload).st_blocks * 512 >= 80 * 1024, "its first pages are reserved"
    assert _native.RingMemory(payload).number == _native.FIRST_RING
    os.close(control)
    os.close(payload)
    wire.send(p.Event(ring.segment), 11)
    number, reply, (event,) = wire.receive()
    assert number == 11 and reply == p.Signal()
    os.close(event)
    assert error(wire.ask(p.Event(99))) == p.UNKNOWN
    assert wire.ask(p.Return(ring.segment)) == p.Ok()
    until(lambda: error_or_none(wire.ask(p.Event(ring.segment))) == p.STALE, "the ring to go")
    wire.close()


def test_every_reply_about_names(served: tuple[World, bytes]) -> None:
    wire, _ = client(served[1])
    assert error(wire.ask(p.Lookup(b"/torch_1_2"))) == p.UNKNOWN
    assert error(wire.ask(p.Unexport(b"/torch_1_2"))) == p.UNKNOWN
    ring, other = wire.ask(p.Create(0, p.RING)), wire.ask(p.Create(0, p.RING))
    assert isinstance(ring, p.Segment) and isinstance(other, p.Segment)
    assert wire.ask(p.Bind(ring.segment, 0, 1, b"/ring")) == p.Ok()
    assert wire.ask(p.Bind(ring.segment, 0, 1, b"/ring")) == p.Ok()  # it does already
    assert error(wire.ask(p.Bind(other.segment, 0, 1, b"/ring"))) == p.EXISTS
    assert error(wire.ask(p.Bind(ring.segment, 0, 2, b"/other"))) == p.STALE
    assert error(wire.ask(p.Bind(ring.segment, 0, 1, b"/torch_1_2"))) == p.INVALID
    assert wire.ask(p.Lookup(b"/ring")) == p.Block(ring.segment, 0, 1, _native.RING_BYTES)
    assert wire.ask(p.Return(ring.segment)) == p.Ok()
    assert error(wire.ask(p.Lookup(b"/ring"))) == p.STALE
    assert wire.ask(p.Unexport(b"/ring")) == p.Ok()
    wire.close()


def test_stop_answers_and_leaves_nothing(served: tuple[World, bytes]) -> None:
    here, address = served
    wire, _ = client(address)
    assert wire.ask(p.Stop()) == p.Ok()
    assert wire.is_closed()
    wire.close()
    assert here.server.wait(20) == 0
    # The group had a client still, so another manager was left in its place.
    until(lambda: not here.managers(), "that one to leave as well")
    assert {entry.name for entry in here.directory.iterdir()} == {"manager.log"}


def test_socket_and_directory_are_for_their_owner_alone(served: tuple[World, bytes]) -> None:
    here, address = served
    assert Path(os.fsdecode(address)).stat().st_mode & 0o777 == 0o600
    assert here.directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("protocol", "layout"), [(p.PROTOCOL_VERSION + 1, _native.LAYOUT_VERSION), (p.PROTOCOL_VERSION, 99)]
)
def test_other_versions_are_refused_with_both_numbers(served: tuple[World, bytes], protocol: int, layout: int) -> None:
    wire = Wire(served[1])
    reply = wire.ask(p.Hello(protocol, layout))
    assert error(reply) == p.VERSION
    assert isinstance(reply, p.Error) and reply.detail == p.PROTOCOL_VERSION
    assert str(protocol) in reply.text or str(layout) in reply.text
    assert wire.is_closed()
    wire.close()


def test_a_quiet_hello_is_never_answered(served: tuple[World, bytes]) -> None:
    wire = Wire(served[1])
    wire.send(p.Hello(p.PROTOCOL_VERSION, _native.LAYOUT_VERSION, p.QUIET))
    assert isinstance(wire.ask(p.Create(1), 2), p.Segment)
    wire.close()
    wire = Wire(served[1])
    wire.send(p.Hello(p.PROTOCOL_VERSION + 1, _native.LAYOUT_VERSION, p.QUIET))
    assert wire.is_closed()
    wire.close()


def test_an_observer_may_look_and_not_touch(served: tuple[World, bytes]) -> None:
    wire = Wire(served[1])
    assert wire.hello(p.OBSERVER).slot == 0
    assert error(wire.ask(p.Create(1))) == p.DENIED
    assert error(wire.ask(p.Map(1))) == p.DENIED
    assert error(wire.ask(p.Event(1))) == p.DENIED
    assert error(wire.ask(p.Bind(1, 0, 1, b"/a"))) == p.DENIED
    assert error(wire.ask(p.Succeed())) == p.DENIED
    assert isinstance(wire.ask(p.Stats()), p.Document)
    assert wire.ask(p.Goodbye()) == p.Ok()
    wire.close()


NAME = b"/torch_1_2".ljust(64, b"\0")


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"GET / HTTP/1.0\r\n\r\n",
        p.HEADER.pack(b"SHMT", 9, 0, 5, 4),
        p.HEADER.pack(b"SHMT", 9, 7, 5, 0),
        p.HEADER.pack(b"SHMT", 500, 0, 5, 0),
        p.HEADER.pack(b"SHMT", 7, 0, 5, 64) + b"no-slash".ljust(64, b"\0"),
        p.HEADER.pack(b"SHMT", 3, 0, 5, 16) + struct.pack("<QII", 1, 1 << 31, 0),
        p.HEADER.pack(b"SHMT", 4, 0, 5, 8000) + b"\0" * 8000,
        p.encode(p.Hello(p.PROTOCOL_VERSION, _native.LAYOUT_VERSION), 5),
    ],
    ids=["byte", "http", "size", "reserved", "type", "name", "flag", "long", "second hello"],
)
def test_malformed_packets_end_their_sender_alone(served: tuple[World, bytes], data: bytes) -> None:
    _here, address = served
    other, _ = client(address)
    wire, _ = client(address)
    wire.send_bytes(data)
    number, reply, _ = wire.receive()
    assert error(reply) == p.MALFORMED
    assert number == (5 if data[:4] == b"SHMT" and len(data) < 8000 else number)
    assert wire.is_closed()
    wire.close()
    assert isinstance(other.ask(p.Stats()), p.Document)
    other.close()


def test_nothing_goes_before_hello(served: tuple[World, bytes]) -> None:
    for message in (p.Create(1), p.Stop(), p.List(), p.Lookup(b"/torch_1_2"), p.Event(1)):
        wire = Wire(served[1])
        assert error(wire.ask(message)) == p.MALFORMED
        assert wire.is_closed()
        wire.close()


def test_descriptors_where_none_belong_are_closed(served: tuple[World, bytes]) -> None:
    here, address = served
    before = here.observe(address)["stats"]["descriptors"]
    read_end, write_end = os.pipe()
    for count in (1, 3, 200):
        wire, _ = client(address)
        wire.send(p.List(), 3, (write_end,) * count)
        assert error(wire.receive()[1]) == p.MALFORMED
        assert wire.is_closed()
        wire.close()
    os.close(write_end)
    os.set_blocking(read_end, True)
    assert os.read(read_end, 1) == b"", "the manager kept a descriptor"
    os.close(read_end)
    until(lambda: here.observe(address)["stats"]["descriptors"] <= before, "descriptors to be closed")


def test_an_embryo_without_a_descriptor_or_with_a_wrong_one(served: tuple[World, bytes]) -> None:
    _here, address = served
    wire, _ = client(address)
    wire.send(p.Embryo(5, 1), 3)
    assert error(wire.receive()[1]) == p.MALFORMED
    wire.close()
    wire, welcome = client(address)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    wire.send(p.Embryo(welcome.slot, 1), 0, (theirs.fileno(),))  # a slot, but no embryo: closed without a word
    theirs.close()
    assert ours.recv(1) == b""
    ours.close()
    assert isinstance(wire.ask(p.Stats()), p.Document)
    wire.close()


def test_what_is_no_socket_cannot_be_an_embryo(served: tuple[World, bytes]) -> None:
    _here, address = served
    wire = Wire(address)
    wire.send(p.Hello(p.PROTOCOL_VERSION, _native.LAYOUT_VERSION))
    _number, welcome, (group_fd,) = wire.receive()
    assert isinstance(welcome, p.Welcome)
    group = _native.Group.open(group_fd)
    os.close(group_fd)
    slot, _generation = group.claim(_native.SLOT_EMBRYO, 0, 0, welcome.slot)
    read_end, write_end = os.pipe()
    wire.send(p.Embryo(slot, group.slot(slot).generation), 0, (write_end,))
    os.close(write_end)
    assert os.read(read_end, 1) == b""
    os.close(read_end)
    until(lambda: group.slot(slot).state == _native.SLOT_FREE, "the embryo to be reclaimed")
    wire.close()


def test_an_embryo_is_born_with_its_own_pid(served: tuple[World, bytes]) -> None:
    here, address = served
    wire = Wire(address)
    wire.send(p.Hello(p.PROTOCOL_VERSION, _native.LAYOUT_VERSION))
    _number, welcome, (group_fd,) = wire.receive()
    assert isinstance(welcome, p.Welcome)
    group = _native.Group.open(group_fd)
    os.close(group_fd)
    slot, _generation = group.claim(_native.SLOT_EMBRYO, 0, 0, welcome.slot)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    wire.send(p.Embryo(slot, group.slot(slot).generation), 0, (theirs.fileno(),))
    theirs.close()
    code = (
        "import socket, sys; from manager_world import Wire; "
        "w = Wire(b'', socket.socket(fileno=int(sys.argv[1]))); print(w.hello().slot, flush=True); sys.stdin.readline()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(ours.fileno())],
        env=here.env,
        pass_fds=[ours.fileno()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    here.processes.append(child)
    ours.close()
    assert child.stdout is not None
    assert int(child.stdout.readline()) == slot
    kind, pid, started, _parent, _generation = group.slot(slot)
    assert (kind, pid) == (_native.SLOT_CLIENT, child.pid)
    assert started == _native.process_start_time(child.pid)
    kill(child)
    until(lambda: group.slot(slot).state == _native.SLOT_FREE, "the child's slot to be free")
    wire.close()


def test_an_embryo_whose_ends_close_before_hello_is_reaped(served: tuple[World, bytes]) -> None:
    _here, address = served
    wire = Wire(address)
    wire.send(p.Hello(p.PROTOCOL_VERSION, _native.LAYOUT_VERSION))
    _number, welcome, (group_fd,) = wire.receive()
    assert isinstance(welcome, p.Welcome)
    group = _native.Group.open(group_fd)
    os.close(group_fd)
    slot, _generation = group.claim(_native.SLOT_EMBRYO, 0, 0, welcome.slot)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    wire.send(p.Embryo(slot, group.slot(slot).generation), 0, (theirs.fileno(),))
    theirs.close()
    ours.close()
    until(lambda: group.slot(slot).state == _native.SLOT_FREE, "the embryo to be reclaimed")
    wire.close()


def test_sigkill_of_a_client_with_a_thousand_blocks(served: tuple[World, bytes]) -> None:
    here, address = served
    process = here.script(CLIENT, os.fsdecode(address), "1000")
    assert process.stdout is not None and process.stdout.readline()
    assert here.observe(address)["stats"]["live_blocks"] == 1000
    kill(process)

    def all_free() -> bool:
        stats = here.observe(address)["stats"]
        return not (stats["live_blocks"] or stats["segments"] or stats["clients"])

    until(all_free, "the blocks of the dead to be free")


def test_a_client_that_closed_every_descriptor_keeps_its_memory(served: tuple[World, bytes]) -> None:
    here, address = served
    code = CLIENT.replace("print(", "import os; os.closerange(3, 1000); print(")
    process = here.script(code, os.fsdecode(address), "3")
    assert process.stdout is not None and process.stdout.readline()
    until(lambda: here.observe(address)["stats"]["detached"] == 1, "the client to count as detached")
    stats = here.observe(address)["stats"]
    assert (stats["clients"], stats["live_blocks"]) == (1, 3)
    kill(process)
    until(lambda: not here.observe(address)["stats"]["live_blocks"], "its blocks to be free")


def test_a_fork_leaves_alone_what_a_program_opened_under_the_number_of_our_connection(
    served: tuple[World, bytes],
) -> None:
    here, address = served
    code = CLIENT.replace(
        "print(",
        """
import os, select, socket
number = manager.native.connection
os.closerange(3, 1000)
pairs = []
while not pairs or max(end.fileno() for end in pairs[-1]) <= number:
    pairs.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
assert number in {end.fileno() for pair in pairs for end in pair}
child = os.fork()
if child == 0:
    os._exit(len(select.select([number], [], [], 0)[0]))  # OSError when it was closed
assert os.waitpid(child, 0)[1] == 0
ends = [end for pair in pairs for end in pair]
assert select.select(ends, [], [], 0)[0] == []
print(""",
    )
    process = here.script(code, os.fsdecode(address), "3")
    assert process.stdout is not None
    assert process.stdout.readline()
    kill(process)


def test_a_client_that_execs_is_reaped(served: tuple[World, bytes]) -> None:
    here, address = served
    code = CLIENT.replace("sys.stdin.readline()", "import os; os.execv('/bin/cat', ['cat'])")
    process = here.script(code, os.fsdecode(address), "3")
    assert process.stdout is not None and process.stdout.readline()
    until(lambda: not here.observe(address)["stats"]["clients"], "the program that was replaced to be reclaimed")
    assert process.poll() is None
    assert here.observe(address)["stats"]["live_blocks"] == 0


@pytest.mark.exhaustive
def test_a_client_that_never_reads_stops_nobody(served: tuple[World, bytes]) -> None:
    here, address = served
    greedy, _ = client(address)
    greedy.sock.setblocking(False)
    data = p.encode(p.Stats(), 1)
    with pytest.raises(BlockingIOError):
        for _ in range(1_000_000):
            greedy.sock.send(data)
    other, _ = client(address)
    assert isinstance(other.ask(p.Stats()), p.Document)
    other.close()
    greedy.sock.setblocking(True)
    until(lambda: here.observe(address)["stats"]["detached"] >= 0 and _hung_up(greedy.sock), "it to be disconnected")
    greedy.close()


def _hung_up(sock: socket.socket) -> bool:
    try:
        sock.send(p.encode(p.Stats(), 1), socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError as problem:
        assert problem.errno in (errno.EPIPE, errno.ECONNRESET)
        return True
    return False


def test_the_limit_of_clients(here: World) -> None:
    address = here.serve("--max-clients", "2")
    wires = [client(address)[0] for _ in range(2)]
    third = Wire(address)
    assert error(third.ask(p.Hello(p.PROTOCOL_VERSION, _native.LAYOUT_VERSION))) == p.LIMIT
    assert third.is_closed()
    third.close()
    wires.pop().close()  # this process still maps nothing of the group: reclaimed at once
    until(lambda: here.observe(address)["stats"]["clients"] == 1, "a slot to be free")
    client(address)[0].close()
    wires.pop().close()


def test_out_of_descriptors_is_an_error_and_not_the_end(here: World) -> None:
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)); "
        "from shmtensor.manager.cli import main; sys.exit(main(['serve', '--address', sys.argv[1]]))"
    )
    path = here.directory / "few.sock"
    process = here.script(code, str(path))
    assert process.stdout is not None and process.stdout.readline()
    address = os.fsencode(path)
    wire, _ = client(address)
    made = 0
    while True:
        reply = wire.ask(p.Create(4096))
        if isinstance(reply, p.Error):
            break
        made += 1
    assert reply.code == p.LIMIT and "ulimit" in reply.text
    assert made > 3
    strangers = [Wire(address) for _ in range(4)]
    answers = []
    for stranger in strangers:
        stranger.send(p.Hello(p.PROTOCOL_VERSION, _native.LAYOUT_VERSION))
        try:
            answers.append(stranger.receive()[1])
        except (AssertionError, ConnectionError):
            answers.append(p.Ok())
    assert any(isinstance(answer, p.Error) and answer.code == p.LIMIT for answer in answers), answers
    for stranger in strangers:
        stranger.close()
    assert isinstance(wire.ask(p.Return(1)), p.Ok)
    assert isinstance(wire.ask(p.Create(4096)), p.Segment)
    wire.close()


@pytest.mark.exhaustive
def test_a_thousand_connections(served: tuple[World, bytes]) -> None:
    here, address = served
    wires = [client(address)[0] for _ in range(1000)]
    assert here.observe(address)["stats"]["clients"] == 1000
    assert isinstance(wires[500].ask(p.Create(4096)), p.Segment)
    for wire in wires:
        wire.close()
    until(lambda: not here.observe(address)["stats"]["clients"], "all to be gone")
    assert here.observe(address)["stats"]["segments"] == 0


def test_named_segments_are_seen_while_they_live(served: tuple[World, bytes]) -> None:
    _here, address = served
    wire, _ = client(address)
    reply = wire.ask(p.Create(8192, p.NAMED))
    assert isinstance(reply, p.Segment) and reply.flags == p.NAMED
    assert re.fullmatch(rb"/torch_%d_\d+" % os.getpid(), reply.name)
    path = Path("/dev/shm") / reply.name.decode()[1:]
    assert (path.stat().st_size, path.stat().st_mode & 0o777) == (8192, 0o600)
    wire.close()
    until(lambda: not path.exists(), "the name to be unlinked")


def test_names_left_by_a_killed_manager_are_cleared_by_the_next(served: tuple[World, bytes]) -> None:
    here, address = served
    wire, _ = client(address)
    reply = wire.ask(p.Create(8192, p.NAMED))
    assert isinstance(reply, p.Segment)
    path = Path("/dev/shm") / reply.name.decode()[1:]
    kill(here.server)
    wire.close()
    assert path.exists()
    assert Path(os.fsdecode(address)).exists()
    here.serve(address=here.directory / "other.sock")
    assert not path.exists()
    assert not Path(os.fsdecode(address)).exists()
    assert not [entry.name for entry in here.directory.iterdir() if entry.name.startswith("manager.")]


def test_two_managers_cannot_serve_one_address(served: tuple[World, bytes]) -> None:
    here, address = served
    second = here.command("serve", "--address", os.fsdecode(address))
    assert second.returncode == 1
    assert "already" in second.stderr
    assert here.observe(address)["stats"]["pid"] == here.server.pid


def test_a_stale_socket_is_taken_over(served: tuple[World, bytes]) -> None:
    here, address = served
    kill(here.server)
    assert Path(os.fsdecode(address)).exists()
    assert here.serve() == address
    assert here.observe(address)["stats"]["pid"] == here.server.pid


@pytest.mark.usefixtures("interruptible")
def test_signals_end_it_cleanly(here: World) -> None:
    import signal

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        address = here.serve()
        here.server.send_signal(number)
        assert here.server.wait(20) == 0
        assert not Path(os.fsdecode(address)).exists()


def test_it_leaves_when_idle_and_not_before(here: World) -> None:
    address = here.serve("--idle-exit", "0.2")
    wire, _ = client(address)
    watcher = Wire(address)
    watcher.hello(p.OBSERVER)
    assert isinstance(wire.ask(p.Stats()), p.Document)
    wire.close()
    assert here.server.wait(20) == 0
    assert watcher.is_closed()
    watcher.close()
    assert not Path(os.fsdecode(address)).exists()


def test_importing_the_server_imports_neither_numpy_nor_tensors() -> None:
    code = (
        "import sys, shmtensor.manager.daemon.server, shmtensor.manager.daemon.run; "
        "bad = {'numpy', 'asyncio', 'subprocess', 'logging', 'argparse', 'multiprocessing'}; "
        "bad &= set(sys.modules); assert not bad, bad; ours = [m for m in sys.modules if m.startswith('shmtensor.')]; "
        "known = {'shmtensor.' + m for m in ('_native', '_loading', 'errors', 'posix_shm')}; "
        "assert all(m.startswith('shmtensor.manager') or m in known for m in ours), ours"
    )
    program = f"import sys; sys.path.append({str(Path(p.__file__).parents[2])!r}); {code}"
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True)


@pytest.mark.exhaustive
def test_a_process_says_once_who_it_is(served: tuple[World, bytes]) -> None:
    wire, welcome = client(served[1])
    reply = wire.ask(p.Rejoin(p.PROTOCOL_VERSION, _native.LAYOUT_VERSION, welcome.slot, 1, welcome.group))
    assert error(reply) == p.MALFORMED and isinstance(reply, p.Error) and "REJOIN came after HELLO" in reply.text
    assert wire.is_closed()


@pytest.mark.exhaustive
def test_the_slot_of_another_process_is_refused(served: tuple[World, bytes]) -> None:
    here, address = served
    other = here.script(CLIENT, os.fsdecode(address), "1")
    assert other.stdout is not None
    slot = int(other.stdout.readline())
    _wire, welcome = client(address)
    stranger = Wire(address)
    reply = stranger.ask(p.Rejoin(p.PROTOCOL_VERSION, _native.LAYOUT_VERSION, slot, 1, welcome.group))
    assert error(reply) == p.DENIED and isinstance(reply, p.Error)
    assert f"slot {slot} belongs to pid {other.pid}, not to pid {os.getpid()}" in reply.text


def with_embryo(address: bytes, kind: int) -> tuple[Wire, _native.Group, int, socket.socket]:
    """A client that has announced a child: the client, its group, the slot of the child, and the child's socket."""
    parent = Wire(address)
    parent.send(p.Hello(p.PROTOCOL_VERSION, _native.LAYOUT_VERSION))
    _number, welcome, (group_fd,) = parent.receive()
    assert isinstance(welcome, p.Welcome)
    group = _native.Group.open(group_fd)
    os.close(group_fd)
    slot, generation = group.claim(_native.SLOT_EMBRYO, 0, 0, welcome.slot)
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    with theirs:
        parent.send(p.Embryo(slot, generation), 0, (theirs.fileno(),))
    return parent, group, slot, ours


@pytest.mark.exhaustive
@pytest.mark.parametrize(("flags", "words"), [(p.OBSERVER, "cannot be an observer"), (0, "came without credentials")])
def test_an_embryo_that_says_something_else(served: tuple[World, bytes], flags: int, words: str) -> None:
    _here, address = served
    _parent, group, slot, ours = with_embryo(address, socket.SOCK_SEQPACKET)
    child = Wire(address, ours)
    reply = child.ask(p.Hello(p.PROTOCOL_VERSION, _native.LAYOUT_VERSION, flags))
    assert error(reply) == p.MALFORMED and isinstance(reply, p.Error) and words in reply.text
    assert child.is_closed()
    until(lambda: group.slot(slot).state == _native.SLOT_FREE, "the embryo to be reclaimed")


@pytest.mark.exhaustive
def test_a_socket_of_another_kind_cannot_be_an_embryo(served: tuple[World, bytes]) -> None:
    _here, address = served
    _parent, group, slot, ours = with_embryo(address, socket.SOCK_STREAM)
    with ours:
        ours.settimeout(20)
        assert ours.recv(1) == b"", "it was closed"
    until(lambda: group.slot(slot).state == _native.SLOT_FREE, "the embryo to be reclaimed")
