"""Connections of managers and clients where a socket is full, its other side odd, or no descriptor is left."""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from manager_world import BOUND
from refusing import failing, limited, open_descriptors

from shmtensor import _native, errors
from shmtensor.manager import connection, membership, protocol
from shmtensor.manager.connection import ConnectionGone, Observer, Requests
from shmtensor.manager.daemon import peers
from shmtensor.manager.daemon.connections import Connections
from shmtensor.manager.daemon.custodian import Custodian
from shmtensor.manager.daemon.peers import Connection, Kind
from shmtensor.manager.daemon.state import State

pytestmark = pytest.mark.any_python


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a connection; no other descriptor may be left."""
    before = open_descriptors()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    theirs.settimeout(BOUND)
    with ours, theirs:
        yield ours, theirs
    assert open_descriptors() == before


# ----------------------------------------------------------------------------------------------------- a manager's side


def fill(made: Connection) -> int:
    """Send packets until one has to wait. Returns the number of those before it."""
    sent = 0
    while not made.out:
        made.send(b"%d" % sent, [], True)
        sent += 1
    return sent - 1


def test_packets_wait_for_a_peer_that_does_not_read(pair: tuple[socket.socket, socket.socket]) -> None:
    made = Connection(pair[0], Kind.CLIENT, os.getpid())
    sent = fill(made)
    passed, given = os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)
    made.send(b"a copy", [passed], False)
    os.close(passed)  # the packet has a descriptor of its own
    made.send(b"ours", [given], True)
    assert len(made.out) == 3
    made.send_waiting()
    assert len(made.out) == 3, "the socket is still full"
    received = [pair[1].recv(100) for _ in range(sent)]
    assert received == [b"%d" % number for number in range(sent)], "in their order"
    made.send_waiting()
    assert not made.out
    assert pair[1].recv(100) == b"%d" % sent
    for text in (b"a copy", b"ours"):
        data, (fd,), _flags, _from = socket.recv_fds(pair[1], 100, 4)
        assert data == text and os.path.samestat(os.fstat(fd), Path("/dev/null").stat())
        os.close(fd)


def test_a_packet_has_the_process_that_sent_it(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    try:
        pair[0].setsockopt(socket.SOL_SOCKET, peers.SO_PASSPIDFD, 1)
    except OSError:
        pytest.skip("this kernel passes no pidfds: Linux 6.5")
    pair[1].send(b"hello")
    packet = peers.receive(pair[0])
    assert packet is not None and packet.data == b"hello" and not packet.truncated
    assert packet.credentials == (os.getpid(), os.geteuid())
    assert packet.pidfd >= 0 and not peers.has_ended(packet.pidfd)
    packet.close()
    assert packet.pidfd == -1


def test_processes_that_are_not_known() -> None:
    assert peers.open_pidfd(0) == -1
    with socket.socket(socket.AF_INET) as sock:  # it has no peer
        fd = peers.peer_pidfd(sock, os.getpid())
        assert fd >= 0 and not peers.has_ended(fd)
        os.close(fd)
        assert peers.peer_pidfd(sock, 0) == -1


def test_whether_a_process_still_maps_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    group = _native.Group.create(77)
    inode, pid = os.fstat(group.fd).st_ino, os.getpid()
    started = _native.process_start_time(pid)
    assert peers.still_maps(pid, started, inode) and peers.still_maps(pid, 0, inode)
    assert not peers.still_maps(0, 0, inode)
    assert not peers.still_maps(pid, started + 1, inode), "another process has its pid now"
    assert not peers.still_maps(pid, started, inode + (1 << 40))
    monkeypatch.setattr(peers, "open", failing(errno.EACCES), raising=False)
    assert peers.still_maps(pid, started, inode + (1 << 40)), "not known, so its end is waited for"


class Made:
    """A manager's connections, without the manager."""

    def __init__(self, path: bytes, group: _native.Group) -> None:
        self.group = group
        self.group.lead()
        outside: Any = SimpleNamespace()
        self.state = State(self.group, outside, 4)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.path = path
        self.poll = select.epoll()
        self.connections = Connections(self.listener, self.poll, self.state, os.geteuid())
        self.others: list[socket.socket] = []

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(BOUND)
        sock.connect(self.path)
        self.others.append(sock)
        return sock

    def add(self) -> tuple[Connection, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        made = Connection(ours, Kind.OBSERVER, os.getpid())
        self.connections.add(made)
        self.others.append(theirs)
        return made, theirs

    def close(self) -> None:
        self.connections.close(None)
        for each in (*self.others, self.listener):
            each.close()
        self.poll.close()


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    group = _native.Group.create(78)
    before = open_descriptors()
    made = Made(os.fsencode(tmp_path / "x.sock"), group)
    yield made
    made.close()
    assert open_descriptors() == before


def refusal(sock: socket.socket) -> protocol.Error:
    """The reply to a connection that is then closed."""
    _number, reply = protocol.decode_reply(sock.recv(protocol.MAX_REPLY_BYTES))
    assert isinstance(reply, protocol.Error) and sock.recv(1) == b""
    return reply


def test_a_socket_that_does_not_listen_has_nobody_waiting(made: Made) -> None:
    made.connections.accept()
    assert not made.connections.has_pending


def test_too_many_connections_without_a_slot(made: Made) -> None:
    made.listener.listen()
    most = 2 * made.state.max_clients + 64
    kept = [made.add()[0] for _ in range(most)]
    sock = made.connect()
    made.connections.accept()
    reply = refusal(sock)
    assert reply.code == protocol.LIMIT and f"the limit of {most} open connections" in reply.text
    made.connections.forget(kept[0])
    made.connections.forget(kept[0])  # twice is harmless
    made.connect()
    made.connections.accept()
    assert made.connections.has_pending
    made.connect()
    made.connections.accept()
    assert made.others[-2].recv(1) == b"", "the one without a HELLO made room"
    assert made.group.counters().refused == 2


def test_not_even_a_descriptor_to_refuse_with(made: Made) -> None:
    """The connection waits until there are descriptors again."""
    made.listener.listen()
    sock = made.connect()
    with limited(resource.RLIMIT_NOFILE, 0):
        made.connections.accept()
        made.connections.accept()
    sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        sock.recv(1)
    made.connections.accept()
    assert made.connections.has_pending and made.group.counters().refused == 0


def test_replies_that_wait_are_sent_once_there_is_room(made: Made) -> None:
    ours, theirs = made.add()
    theirs.settimeout(BOUND)
    sent = 0
    while not made.connections.unsent():
        sent += 1
        made.connections.reply(ours, protocol.Ok(), sent)
    assert made.connections.unsent() == [ours]
    assert made.connections.send_more(ours) and made.connections.unsent() == [ours], "it has read nothing"
    numbers = [protocol.decode_reply(theirs.recv(100))[0]]
    while made.connections.unsent():
        assert made.connections.send_more(ours)
        numbers.append(protocol.decode_reply(theirs.recv(100))[0])
    theirs.send(b"x")
    assert (ours.sock.fileno(), select.EPOLLIN) in made.poll.poll(BOUND), "it is read from again"
    theirs.settimeout(0)
    while len(numbers) < sent:
        numbers.append(protocol.decode_reply(theirs.recv(100))[0])
    assert numbers == list(range(1, sent + 1))


def test_a_peer_that_ends_before_its_replies_are_sent(made: Made) -> None:
    ours, theirs = made.add()
    while not made.connections.unsent():
        made.connections.reply(ours, protocol.Ok(), 1)
    theirs.close()
    assert not made.connections.send_more(ours)


# ------------------------------------------------------------------------------------------------------ a client's side


def test_addresses_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "loop.sock").symlink_to(tmp_path / "loop.sock")
    with pytest.raises(errors.ManagerUnavailable, match=r"cannot read the manager address .*symbolic links"):
        connection.connect(str(tmp_path / "loop.sock"))


def test_a_manager_that_accepts_nobody(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(0)
        first = connection.connect(path)
        with pytest.raises(errors.ManagerTimeout, match=r"accepted no connection within 0\.01 s"):
            connection.connect(path, 0.01)
        os.close(first)


PLACE = b"/x/manager.sock"


@contextmanager
def answered(sock: socket.socket, *answers: Callable[[int], tuple[protocol.Message, int, list[int]]]) -> Iterator[None]:
    """Answer one request with packets: message, id, descriptors."""

    def run() -> None:
        number, _message = protocol.decode_request(sock.recv(protocol.MAX_REQUEST_BYTES))
        for answer in answers:
            message, to, descriptors = answer(number)
            socket.send_fds(sock, [protocol.encode(message, to)], descriptors)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(BOUND)
        assert not thread.is_alive()


def test_replies_to_nothing_are_dropped(pair: tuple[socket.socket, socket.socket]) -> None:
    requests = Requests(PLACE)
    with answered(
        pair[1],
        lambda number: (protocol.Document(5), number + 7, [0]),
        lambda number: (protocol.Ok(), number, []),
    ):
        assert requests.ask(pair[0].fileno(), protocol.Goodbye(), BOUND) == (protocol.Ok(), [])


def test_an_error_that_is_no_reply(pair: tuple[socket.socket, socket.socket]) -> None:
    """A manager that cannot read the id of a request, or accepts nobody, answers with id 0."""
    requests = Requests(PLACE)
    with (
        answered(pair[1], lambda _: (protocol.Error(protocol.MALFORMED, 0, "too short"), 0, [])),
        pytest.raises(errors.ProtocolError, match="could not decode a request of this process: too short"),
    ):
        requests.ask(pair[0].fileno(), protocol.Goodbye(), BOUND)


@pytest.mark.parametrize(("message", "descriptors"), [(protocol.Ok(), [0]), (protocol.Document(5), [0, 0])])
def test_descriptors_that_do_not_belong_to_a_reply(
    pair: tuple[socket.socket, socket.socket], message: protocol.Message, descriptors: list[int]
) -> None:
    requests = Requests(PLACE)
    with (
        answered(pair[1], lambda number: (message, number, descriptors)),
        pytest.raises(errors.ProtocolError, match=f"came with {len(descriptors)} descriptors instead of"),
    ):
        requests.ask(pair[0].fileno(), protocol.Goodbye(), BOUND)


def test_a_hello_that_is_answered_with_something_else(pair: tuple[socket.socket, socket.socket]) -> None:
    with (
        answered(pair[1], lambda number: (protocol.Document(5), number, [0])),
        pytest.raises(errors.ProtocolError, match="answered Hello with Document"),
    ):
        connection.hello(Requests(PLACE), pair[0].fileno(), protocol.OBSERVER, BOUND)


@pytest.mark.parametrize("message", [protocol.Ok(), protocol.Document(5), protocol.Document(7)])
def test_documents_of_another_size(message: protocol.Message) -> None:
    fd = os.memfd_create("document")
    os.write(fd, b"6 byte")
    with pytest.raises(errors.ProtocolError, match="differs from the one announced"):
        connection.read_document(message, [fd])


def test_requests_that_are_not_sent(pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    requests, fd = Requests(PLACE), pair[0].fileno()
    closed = os.dup(0)
    os.close(closed)
    with pytest.raises(ConnectionGone, match="Bad file descriptor"):
        requests.ask(fd, protocol.Give(1), BOUND, closed)
    with pytest.raises(BlockingIOError):
        while True:
            pair[0].send(b"x")
    with pytest.raises(errors.ManagerTimeout, match=r"did not answer Goodbye within 0\.02 s"):
        requests.ask(fd, protocol.Goodbye(), 0.02)
    monkeypatch.setattr(connection, "SLICE_SECONDS", 0.001)
    requests.is_current = lambda: False
    with pytest.raises(ConnectionGone, match="another manager has replaced it"):
        requests.ask(fd, protocol.Goodbye(), BOUND)


def test_a_manager_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SLICE_SECONDS", 0.001)
    path = str(tmp_path / "x.sock")
    welcome = protocol.Welcome(**{**dict.fromkeys(protocol.Welcome.FIELDS, 0), "pid": 1})
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(BOUND)
        peer: list[socket.socket] = []

        def serve() -> None:
            peer.append(listener.accept()[0])
            number, _ = protocol.decode_request(peer[0].recv(protocol.MAX_REQUEST_BYTES))
            socket.send_fds(peer[0], [protocol.encode(welcome, number)], [0])

        thread = threading.Thread(target=serve)
        thread.start()
        with Observer(path, BOUND) as observer:
            thread.join(BOUND)
            with pytest.raises(errors.ManagerTimeout, match=r"did not end within 0\.01 s.*shmtensor-manager restart"):
                observer.wait_closed(0.01)
            peer[0].close()
            observer.wait_closed(BOUND)


def test_a_group_that_is_none(pair: tuple[socket.socket, socket.socket]) -> None:
    """The descriptor of a WELCOME is another file; the connection is closed."""
    welcome = protocol.Welcome(**{**dict.fromkeys(protocol.Welcome.FIELDS, 0), "pid": 1})
    fd = os.memfd_create("no group")
    with (
        answered(pair[1], lambda number: (welcome, number, [fd])),
        pytest.raises(ValueError, match="group"),
    ):
        membership.Manager(PLACE, pair[0].detach(), BOUND, starts=False)
    os.close(fd)
    assert pair[1].recv(1) == b""


@pytest.mark.exhaustive
def test_a_custodian_that_cannot_be_watched_is_ended(monkeypatch):
    """It would be a second one, and start a manager of its own once this process ends."""
    before, children = open_descriptors(), []

    def refuse(pid: int) -> int:
        children.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    kept = Custodian(b"/tmp/nobody")
    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        kept.keep(frozenset({1}), ())
    assert not kept.is_alive and open_descriptors() == before
    with pytest.raises(ChildProcessError):  # it has been waited for
        os.waitpid(children[0], os.WNOHANG)
