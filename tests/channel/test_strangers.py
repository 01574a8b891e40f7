"""Foreign connections to the port, wrong keys, and ends that violate the protocol."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
from channel_world import BOUND, elsewhere, link_pids, until
from tiers import first

from shmtensor import channel
from shmtensor.channel import handshake, keys, wire
from shmtensor.channel.address import parse
from shmtensor.errors import InvalidArgument, ProtocolError, ShmTensorError
from shmtensor.manager import client

LOCAL = "tcp://127.0.0.1:0"
HELLO = {"kind": "queue", "pickle": False, "session": "ab" * 16, "incarnation": 1, "named": False, "number": 0,
         "received": 0, "timeout": 30.0}  # fmt: skip


def port_of(queue):
    return int(queue.address.rpartition(":")[2])


@contextmanager
def connection_to(queue):
    with socket.create_connection(("127.0.0.1", port_of(queue)), BOUND) as connection:
        connection.settimeout(BOUND)
        yield connection


def is_closed(connection):
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


STRANGERS = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "zeros": bytes(4096),
    "other version": b"shmchan\x63" + bytes(32),
    "large text": wire.PREFIX + wire.pack(wire.Head(wire.HELLO, length=2**31)),
    "data first": wire.PREFIX + wire.pack(wire.Head(wire.DATA, length=8, number=1, second=1)) + bytes(8),
    "ack first": wire.PREFIX + wire.pack(wire.Head(wire.ACK, number=1)),
    "not json": wire.PREFIX + wire.pack(wire.Head(wire.HELLO, length=4)) + b"\xff{}[",
    "a list": wire.PREFIX + wire.text(wire.HELLO, []),
    "no session": wire.PREFIX + wire.text(wire.HELLO, {"kind": "queue", "pickle": False, "session": "xyz"}),
    "deep": wire.PREFIX + wire.pack(wire.Head(wire.HELLO, length=4000)) + b"[" * 4000,
    "negative": wire.PREFIX + wire.text(wire.HELLO, {**HELLO, "received": -5}),
    "bool": wire.PREFIX + wire.text(wire.HELLO, {**HELLO, "incarnation": True}),
    "unknown session": wire.PREFIX + wire.text(wire.HELLO, {**HELLO, "number": 7}),
}


def test_strangers_are_sent_away_and_the_channel_goes_on():
    with closing(channel.listen(LOCAL)) as queue, elsewhere("command", queue.address, {}) as there:
        there.hear()
        for name, said in STRANGERS.items():
            with connection_to(queue) as connection:
                connection.sendall(said)
                with suppress(OSError):  # it may be closed by now
                    connection.shutdown(socket.SHUT_WR)
                assert is_closed(connection), name
            assert there.ask(["put", name]) == ["ok", None]
            assert queue.get(timeout=BOUND) == name
            assert queue.stats().connected == 1, name
        with elsewhere("produce", queue.address, 3, {}):
            assert [queue.get(timeout=BOUND) for _ in range(3)] == [0, 1, 2]


@pytest.mark.exhaustive
def test_many_silent_connections_keep_nobody_out_for_long():
    with closing(channel.listen(LOCAL)) as queue:
        silent = [socket.create_connection(("127.0.0.1", port_of(queue)), BOUND) for _ in range(40)]
        with elsewhere("produce", queue.address, 1, {}):
            assert queue.get(timeout=BOUND) == 0
        for connection in silent:
            connection.close()


@contextmanager
def session_with(queue, **changes):
    """A connection that has said HELLO."""
    hello = {**HELLO, **changes}
    connection, welcome = handshake.connect(parse(queue.address), None, True, hello)
    connection.setblocking(True)
    connection.settimeout(BOUND)
    with connection:
        yield connection, welcome


def data(number, value, messages=1, flags=0):
    """A DATA of one message, the number `value`."""
    body = bytes([1, 4, value])
    frames = (wire.FRAME.pack(len(body), flags) + body) * messages
    return wire.pack(wire.Head(wire.DATA, 0, 0, len(frames), number, messages, len(body) * messages)) + frames


def test_replayed_messages_are_dropped():
    with closing(channel.listen(LOCAL)) as queue, session_with(queue) as (connection, _):
        for number in (1, 2, 1, 2, 2, 3):
            connection.sendall(data(number, number))
        assert [queue.get(timeout=BOUND) for _ in range(3)] == [1, 2, 3]
        connection.sendall(data(2, 9, messages=3))  # the last one is new
        assert queue.get(timeout=BOUND) == 9
        assert queue.empty()


def heads_from(connection):
    """The heads of all frames, none of which has content, until the other end closes the connection."""
    said = b""
    with suppress(ConnectionResetError):  # it left data unread
        while more := connection.recv(4096):
            said += more
    return [wire.unpack(memoryview(said[at : at + wire.HEAD_BYTES]), 0) for at in range(0, len(said), wire.HEAD_BYTES)]


@pytest.mark.exhaustive
def test_a_channel_that_closes_acknowledges_what_has_arrived():
    """Otherwise a named stream would keep it for the next channel at this address, and send it there again."""
    for _ in range(5):  # whether the link process reads the message and sees the close in one step is chance
        with closing(channel.listen(LOCAL)) as queue, session_with(queue, named=True) as (connection, _):
            until(lambda: queue.stats().connected == 1, "the link process uses the connection")
            link = queue._end.state.link_pid
            os.kill(link, signal.SIGSTOP)
            connection.sendall(data(1, 7))
            queue.close()
            os.kill(link, signal.SIGCONT)
            assert heads_from(connection)[-1].kind == wire.BYE  # its ACK, if it has read the message, came before


BROKEN = {
    "a gap": data(7, 1),
    "reordered": data(2, 1) + data(1, 1),
    "number 0": data(0, 1),
    "a kind that is not": wire.pack(wire.Head(99)),
    "a second hello": wire.text(wire.HELLO, HELLO),
    "more than there is": wire.pack(wire.Head(wire.DATA, 0, 0, 11, 1, 1, 3)) + wire.FRAME.pack(50, 0) + bytes(3),
    "sizes that do not add up": wire.pack(wire.Head(wire.DATA, 0, 1, 11, 1, 1, 100))
    + wire.pack_sizes([50])
    + bytes(61),
    "too much": wire.pack(wire.Head(wire.DATA, 0, 0, 11, 1, 1, 2**60)),
    "an impossible ack": wire.pack(wire.Head(wire.ACK, 0, 0, 0, 5, 1, 1)),
    "a pickle": wire.pack(wire.Head(wire.DATA, 0, 0, 12, 1, 1, 4)) + wire.FRAME.pack(4, 0) + b"\x02\x00\x01N",
    "an unknown flag": data(1, 1, flags=8),
    "a body in no block": data(1, 1, flags=2),
    "numbers without end": wire.pack(wire.Head(wire.DATA, 0, 0, 0, 1, 2**63 - 1)),
    "a run up to another session": wire.pack(wire.Head(wire.DATA, 0, 0, 0, 1, 2**41)),
    "more blocks than memory": wire.pack(wire.Head(wire.DATA, 0, 2**31, 8, 1, 1, 2**33)),
}


@pytest.mark.parametrize("name", first(BROKEN, 6))
def test_an_end_that_breaks_the_protocol_is_cut_off(name):
    with closing(channel.listen(LOCAL)) as queue:
        with session_with(queue) as (connection, _):
            connection.sendall(BROKEN[name])
            assert is_closed(connection)
        assert queue.empty()
        with session_with(queue, session="cd" * 16) as (connection, _):
            connection.sendall(data(1, 5))
            assert queue.get(timeout=BOUND) == 5


def test_an_end_that_sends_more_than_it_may_is_cut_off():
    with closing(channel.listen(LOCAL, maxsize=2)) as queue, session_with(queue) as (connection, _):
        link = queue._end.state.link_pid
        with pytest.raises(ConnectionError):
            for number in range(1, 1_000_000):
                connection.sendall(data(number, 1))
        assert queue.qsize() == 2
        assert queue._end.state.link_pid == link


def test_a_message_that_is_none_is_an_error_of_get_and_no_more():
    with closing(channel.listen(LOCAL)) as queue, session_with(queue) as (connection, _):
        frames = wire.FRAME.pack(3, 0) + b"\x01\x0b\x7f"  # text of 127 bytes, of which there are none
        connection.sendall(wire.pack(wire.Head(wire.DATA, 0, 0, len(frames), 1, 1, 3)) + frames + data(2, 2))
        with pytest.raises(ValueError, match="not a message"):
            queue.get(timeout=BOUND)
        assert queue.get(timeout=BOUND) == 2


def test_a_cut_frame_is_not_a_message():
    with closing(channel.listen(LOCAL)) as queue:
        with session_with(queue) as (connection, _):
            connection.sendall(data(1, 1) + data(2, 2)[:-1])
            assert queue.get(timeout=BOUND) == 1
        with session_with(queue) as (connection, welcome):
            assert welcome["received"] == 1
            connection.sendall(data(2, 2))
            assert queue.get(timeout=BOUND) == 2


def test_a_second_connection_of_a_session_replaces_the_first():
    with closing(channel.listen(LOCAL)) as queue:
        with session_with(queue) as (first, _), session_with(queue) as (second, _):
            assert is_closed(first)
            second.sendall(data(1, 1))
            assert queue.get(timeout=BOUND) == 1
            with pytest.raises(ConnectionError, match="is connected"), session_with(queue, incarnation=2):
                pass


def test_no_more_peers_than_allowed():
    with closing(channel.listen(LOCAL, max_peers=2)) as queue:
        with session_with(queue), session_with(queue, session="cd" * 16):
            with pytest.raises(handshake.Refused, match="max_peers"), session_with(queue, session="ef" * 16):
                pass


@pytest.mark.exhaustive
def test_an_end_that_never_reads_holds_up_nobody():
    with closing(channel.listen(LOCAL, window="1M")) as queue, session_with(queue) as (connection, _):
        connection.sendall(wire.pack(wire.Head(wire.ACK, 0, 0, 0, 0, 2**40, 2**40)))
        for _ in range(200):
            queue.put(np.zeros(100_000, np.uint8))
        until(lambda: queue.stats().unacknowledged > 0, "it is sent something")
        with elsewhere("produce", queue.address, 3, {}):
            until(lambda: queue.qsize() >= 3, "others are served")


# ---------------------------------------------------------------------------------------------------------------- keys


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    pytest.importorskip("cryptography")
    folder = tmp_path_factory.mktemp("keys")
    here, there = keys.make_all(folder, ("here", "there")).values()
    stranger = folder / "stranger"
    keys.make(stranger)
    shutil.copy(here / keys.CERTIFICATE, stranger / keys.PEERS / "here.pem")
    return here, there, stranger


@pytest.mark.parametrize("encrypt", first([True, False]))
def test_peers_with_keys_meet(directories, encrypt):
    here, there, _ = map(str, directories)
    with closing(channel.listen("tcp://0.0.0.0:0", keys=here, encrypt=encrypt)) as queue:
        address = f"tcp://127.0.0.1:{port_of(queue)}"
        with elsewhere("command", address, {"keys": there, "encrypt": encrypt}) as other:
            assert other.hear() is False
            assert other.ask(["put_array", 3_000_000, 7]) == ["ok", None]
            assert queue.get(timeout=BOUND).sum() == 21_000_000
            queue.put(np.ones(500_000))
            assert other.ask(["get"])[1][3] == 500_000


def test_others_do_not(directories):
    here, there, stranger = map(str, directories)
    with closing(channel.listen("tcp://127.0.0.1:0", keys=here, timeout=1)) as queue:
        with pytest.raises(channel.ConnectionLost):
            channel.connect(queue.address, keys=stranger, timeout=0.5)
        with pytest.raises(channel.ConnectionLost, match="keys"):
            channel.connect(queue.address, timeout=0.5)
        with pytest.raises(channel.ConnectionLost, match="encrypt"):
            channel.connect(queue.address, keys=there, encrypt=False, timeout=0.5)
        assert channel.connect(queue.address, keys=there).stats().is_listening


def test_the_last_connection_of_a_session_is_used_whichever_is_ready_first(directories):
    here, there, _ = directories
    with closing(channel.listen(LOCAL, keys=str(here), encrypt=False)) as queue, ExitStack() as stack:
        welcomed = []
        for _ in range(2):
            connection = keys.Keys(there).wrap(stack.enter_context(connection_to(queue)), listening=False)
            connection.sendall(wire.PREFIX + wire.text(wire.HELLO, {**HELLO, "encrypt": False}))
            head, _ = handshake._receive(connection, monotonic() + BOUND)
            assert head.kind == wire.WELCOME
            welcomed.append(connection)
        # The listening end waits for the end of TLS, so the test decides which connection is ready first.
        first, second = (stack.enter_context(connection.unwrap()) for connection in welcomed)
        assert is_closed(first)
        second.sendall(data(1, 1))
        assert queue.get(timeout=BOUND) == 1


def test_a_listening_end_that_is_killed_in_the_beginning_is_tried_again(directories):
    here, there, _ = map(str, directories)
    with socket.create_server(("127.0.0.1", 0)) as first, ThreadPoolExecutor(1) as threads:
        first.settimeout(BOUND)
        address = f"tcp://127.0.0.1:{first.getsockname()[1]}"
        connecting = threads.submit(channel.connect, address, keys=there, timeout=BOUND)
        for attempt in range(2):
            try:
                connection, _ = first.accept()
            except TimeoutError:
                pytest.fail(f"no attempt {attempt}: {connecting.exception(BOUND)!r}")
            assert connection.recv(4096)
            connection.shutdown(socket.SHUT_WR)  # in the middle of the handshake
            assert is_closed(connection)
            connection.close()
        first.close()
        with closing(channel.listen(address, keys=here)) as queue:
            found = connecting.result(BOUND)
            found.put(1)
            assert queue.get(timeout=BOUND) == 1
            found.close()


def test_keys_that_cannot_be_used(directories, tmp_path):
    here, *_ = directories
    copy = tmp_path / "copy"
    shutil.copytree(here, copy)
    (copy / keys.KEY).chmod(0o644)
    with pytest.raises(InvalidArgument, match="chmod 600"):
        keys.Keys(copy)
    (copy / keys.KEY).chmod(0o600)
    (copy / keys.KEY).write_text("nothing")
    with pytest.raises(InvalidArgument, match="cannot be used"):
        keys.Keys(copy)
    with pytest.raises(FileExistsError, match="exists"):
        keys.make(here)


def test_the_command_makes_keys(tmp_path):
    pytest.importorskip("cryptography")
    command = [sys.executable, "-m", "shmtensor.manager", "keys", str(tmp_path / "mine")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "certificate.pem" in done.stdout
    assert (tmp_path / "mine" / keys.KEY).stat().st_mode & 0o777 == 0o600
    keys.Keys(tmp_path / "mine")
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 1
    again = [*command[:-1], str(tmp_path / "two"), "--json"]
    assert json.loads(subprocess.run(again, capture_output=True, check=True).stdout)["certificate"]


def test_a_wire_of_another_version_is_named():
    with closing(channel.listen(LOCAL)) as queue:
        with connection_to(queue) as connection:
            connection.sendall(wire.PREFIX[:-1] + bytes([wire.VERSION + 1]) + wire.text(wire.HELLO, HELLO))
            said = connection.recv(4096)
    assert b"version" in said
    assert ProtocolError is not None


class BrokenListener:
    """What an end connects to that says what it is told to, in one connection after the other."""

    def __init__(self, *saying, general=None, session=None, again=None):
        self.hellos = []
        self._general = general or {}  # changes of each WELCOME
        self._session = session or {}  # and of those in which a session begins
        self._again = again or {}  # and of those in which it continues
        self._saying = list(saying)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        with suppress(OSError, handshake.Refused):
            while True:
                begun, hello = handshake.accept(self._listener.accept()[0], None, True, self._welcome)
                begun.settimeout(BOUND)
                self._open.append(begun)
                if hello.get("session") is not None:
                    self.hellos.append(hello)
                    if self._saying and self._is_asked(begun):
                        begun.sendall(self._saying.pop(0))

    def _is_asked(self, connection):
        """Wait until the other end asks for a message: none may be sent before. False: it closed the connection."""
        while data := connection.recv(wire.HEAD_BYTES, socket.MSG_WAITALL):
            head = wire.unpack(memoryview(data), 0)
            if head.kind == wire.ACK and head.third:
                return True
        return False

    def _welcome(self, hello):
        general = {"boot": "", "group": "", "name": "", "check": "ab" * 32, "maxsize": 0, "maxbytes": 0, "policy": None}
        general |= self._general
        if hello["session"] is None:
            return general
        if "refusal" in self._session:
            raise handshake.Refused(self._session["refusal"])
        continued = self._again if self.hellos else {}
        return {**general, "timeout": 20.0, "number": 1, "received": 0, **self._session, **continued}

    def close(self):
        for one in (self._listener, *self._open):
            with suppress(OSError):  # closed by the other end
                one.shutdown(socket.SHUT_RDWR)
        self._thread.join(BOUND)
        for one in (self._listener, *self._open):
            one.close()


@pytest.mark.parametrize(
    ("options", "changes", "text"),
    [
        ({}, {"maxsize": "many"}, "lacks 'maxsize'"),
        ({}, {"check": None}, "lacks 'check'"),
        ({"broadcast": True}, {"policy": "newest"}, "lacks 'policy'"),
    ],
)
def test_a_welcome_that_lacks_something_is_of_another_version(options, changes, text):
    with closing(BrokenListener(general=changes)) as listener:
        with pytest.raises(channel.ConnectionLost, match=f"WELCOME of {listener.url} {text}; use the same version"):
            channel.connect(listener.url, timeout=20, **options)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"timeout": 20}, "has timeout 20"),
        ({"timeout": -1.0}, "has timeout -1.0"),
        ({"number": 0}, "has session number 0"),
        ({"number": 2**63}, "has session number 9223372036854775808"),
        ({"received": 1}, "has received message 1 of this session"),
        ({"check": "xyz"}, "invalid literal"),
        ({"refusal": "closed for today"}, "refuses the connection: closed for today"),
    ],
)
def test_a_session_that_begins_with_nonsense_is_lost(changes, text):
    with closing(BrokenListener(session=changes)) as listener:
        with pytest.raises(channel.ConnectionLost, match=text):  # of the link process, which may be quick or not
            with closing(channel.connect(listener.url, timeout=20)) as queue:
                queue.get(timeout=BOUND)


@pytest.mark.exhaustive
def test_another_listening_end_at_the_address_does_not_get_a_session():
    with closing(BrokenListener(data(1, 5) + BROKEN["a gap"], again={"check": "cd" * 32})) as listener:
        with closing(channel.connect(listener.url, timeout=20)) as queue:
            assert queue.get(timeout=BOUND) == 5
            with pytest.raises(channel.ConnectionLost, match="another channel listens there"):
                queue.get(timeout=BOUND)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["channel.listening.none", "a" * 1000, ""])
def test_an_end_that_claims_to_be_of_this_group_is_asked_for_its_number(name):
    claims = {"boot": handshake.boot_id(), "group": client.default().stats().group, "name": name}
    with closing(BrokenListener(data(1, 5), general=claims)) as listener:
        with closing(channel.connect(listener.url, timeout=20)) as queue:
            assert not queue.stats().is_listening
            assert queue.get(timeout=BOUND) == 5


@pytest.mark.exhaustive
def test_a_named_stream_that_was_refused_can_be_opened_again():
    listener = BrokenListener(session={"refusal": "not now"})
    with closing(listener), pytest.raises(channel.ConnectionLost, match="not now"):
        with closing(channel.connect(listener.url, name="refused", timeout=20)) as queue:
            queue.get(timeout=BOUND)
    gc.collect()
    port = int(listener.url.rpartition(":")[2])
    with closing(channel.listen(f"tcp://127.0.0.1:{port}", timeout=20)) as there:
        with closing(channel.connect(there.address, name="refused", timeout=20)) as queue:
            queue.put("again")
            assert there.get(timeout=BOUND) == "again"


@pytest.mark.exhaustive
def test_an_end_that_has_received_what_was_not_sent_is_refused():
    with closing(channel.listen(LOCAL)) as queue:
        with pytest.raises(handshake.Refused, match="has received message 5 of this session, and this one has sent"):
            with session_with(queue, received=5):
                pass


# ------------------------------------------------------------------------------------------- an end, in one process


@pytest.mark.exhaustive
def test_what_an_end_shows_of_its_queues():
    with closing(BrokenListener(data(1, 5) + data(2, 6), general={"maxsize": 2})) as listener:
        with closing(channel.connect(listener.url, timeout=1, prefetch=8)) as queue:
            assert not queue.full()
            queue.put_many(["a", "b"])
            assert queue.full()
            with pytest.raises(channel.Full):
                queue.put("c", block=False)
            assert select.select([queue.fileno()], [], [], BOUND)[0]  # which asks for messages
            until(lambda: queue.qsize() == 2, "both are there")
            assert not queue.empty()
            assert [queue.get(timeout=BOUND), queue.get(timeout=BOUND)] == [5, 6]
            assert queue.empty() and queue.qsize() == 0
            assert queue.stats().unsent == 2
            queue.close()
            for use in (queue.qsize, queue.empty, queue.fileno, lambda: queue.address, queue.stats):
                with pytest.raises(ValueError, match="closed"):
                    use()


@pytest.mark.exhaustive
def test_coroutines_of_an_end():
    async def both(queue):
        got = asyncio.ensure_future(queue.aget())
        await asyncio.sleep(0)
        await queue.aput("from a coroutine")
        return await asyncio.wait_for(got, BOUND)

    with closing(BrokenListener(data(1, 5))) as listener:
        with closing(channel.connect(listener.url, timeout=1)) as queue:
            assert asyncio.run(both(queue)) == 5
            assert queue.stats().unsent == 1
            listener.close()
            until(lambda: queue._end.is_lost, "the listening end is missed")
            for call in (queue.aput("too late"), queue.aget()):
                with pytest.raises(channel.ConnectionLost, match="was not reached for 1 s"):
                    asyncio.run(asyncio.wait_for(call, BOUND))
            for now in (lambda: queue.get(block=False), lambda: queue.get_many(2, block=False)):
                with pytest.raises(channel.ConnectionLost, match="was not reached for 1 s"):
                    now()
            queue.close()


@pytest.mark.exhaustive
def test_a_coroutine_that_waits_for_an_end_that_is_lost():
    async def lost(queue, listener):
        got = asyncio.ensure_future(queue.aget())
        await asyncio.sleep(0)
        listener.close()
        return await asyncio.wait_for(got, BOUND)

    with closing(BrokenListener(b"")) as listener:
        with closing(channel.connect(listener.url, timeout=1)) as queue:
            with pytest.raises(channel.ConnectionLost, match="was not reached for 1 s"):
                asyncio.run(lost(queue, listener))


@pytest.mark.exhaustive
def test_coroutines_of_a_closed_end():
    with closing(BrokenListener(b"")) as listener:
        with closing(channel.connect(listener.url, timeout=1)) as queue:
            queue.close()
            for late in (queue.aput("late"), queue.aget()):
                with pytest.raises(ValueError, match="closed"):
                    asyncio.run(late)


@pytest.mark.exhaustive
@pytest.mark.parametrize("broadcast", [False, True])
def test_an_end_in_a_message_to_another_process(broadcast):
    options = {"broadcast": True, "maxsize": 4} if broadcast else {}
    with closing(channel.listen(LOCAL, **options)) as queue:
        same = pickle.loads(bytes(ForkingPickler.dumps(queue)))
        assert type(same) is type(queue) and same.address == queue.address and queue.address in repr(same)
        taker = queue.reader() if broadcast else queue
        same.put("by another object")
        assert taker.get(timeout=BOUND) == "by another object"
        same.close()
        assert queue.address not in repr(same)
        queue.put("still open")
        assert taker.get(timeout=BOUND) == "still open"


@pytest.mark.exhaustive
def test_a_remote_end_in_a_message_to_another_process():
    with closing(BrokenListener(data(1, 5))) as listener, closing(channel.connect(listener.url, timeout=1)) as queue:
        same = pickle.loads(bytes(ForkingPickler.dumps(queue)))
        assert same.get(timeout=BOUND) == 5
        same.put("unsent")
        assert queue.stats().unsent == same.stats().unsent == 1
        same.close()
        assert not queue.full()


# ------------------------------------------------------------------------------------------------- link processes


@pytest.mark.exhaustive
def test_a_link_process_without_descriptors_says_so_and_accepts_later():
    with closing(channel.listen(LOCAL)) as queue:
        link = queue._end.state.link_pid
        used = max(int(path.name) for path in Path(f"/proc/{link}/fd").iterdir()) + 1
        before = resource.prlimit(link, resource.RLIMIT_NOFILE)
        resource.prlimit(link, resource.RLIMIT_NOFILE, (used, before[1]))
        with connection_to(queue):
            until(lambda: "cannot accept connections: Too many" in queue.stats().problem, "it has tried")
            resource.prlimit(link, resource.RLIMIT_NOFILE, before)
            with elsewhere("produce", queue.address, 1, {}):
                assert queue.get(timeout=BOUND) == 0


@pytest.mark.exhaustive
def test_more_silent_connections_than_are_answered_are_closed():
    with closing(channel.listen(LOCAL)) as queue, ExitStack() as stack:
        connections = [stack.enter_context(connection_to(queue)) for _ in range(100)]
        until(lambda: len(select.select(connections, [], [], 0)[0]) == 36, "the others stay open")
        for connection in connections:
            connection.close()
        with elsewhere("produce", queue.address, 1, {}):
            assert queue.get(timeout=BOUND) == 0


@pytest.mark.exhaustive
def test_a_link_process_that_cannot_start_says_why(monkeypatch, tmp_path):
    log = tmp_path / "log"
    monkeypatch.setenv("SHMTENSOR_CHANNEL_LOG", str(log))
    before = link_pids()
    queue = channel.listen(LOCAL)
    config = queue._end.state.config
    try:
        queue._end.state.config = {}
        os.kill(queue._end.state.link_pid, signal.SIGSTOP)  # so that it does not start another guard
        for pid in sorted(link_pids() - before):  # the guard is older
            os.kill(pid, signal.SIGKILL)
        until(lambda: not link_pids() - before, "they have ended")
        with pytest.raises(ShmTensorError, match=r"cannot start the link .*KeyError.*; check that this one may"):
            queue.get(timeout=BOUND)
        assert "Traceback" in log.read_text() and "KeyError" in log.read_text()
    finally:
        queue._end.state.config = config
    until(lambda: queue._end.is_linked(), "its guard has started another one")
    queue.put(2)
    queue.close()


@pytest.mark.parametrize("name", ["a gap", "a kind that is not", "too much", "an impossible ack"])
def test_damage_on_the_way_breaks_a_connection_and_not_the_session(name):
    broken = BROKEN[name]
    with closing(BrokenListener(broken, data(1, 5), broken)) as listener:
        queue = channel.connect(listener.url, timeout=20)
        assert queue.get(timeout=BOUND) == 5
        assert [hello["received"] for hello in listener.hellos[:2]] == [0, 0]
        queue.close()


@pytest.mark.parametrize("name", ["a gap", "a kind that is not", "too much", "an impossible ack"])
def test_a_listening_end_that_breaks_the_protocol_again_is_left(name):
    broken = BROKEN[name]
    with closing(BrokenListener(broken, data(1, 5) + broken, broken, broken)) as listener:
        queue = channel.connect(listener.url, timeout=20)
        assert queue.get(timeout=BOUND) == 5
        with pytest.raises(channel.ConnectionLost, match=listener.url.removeprefix("tcp://")):
            queue.get(timeout=BOUND)
        assert [hello["received"] for hello in listener.hellos] == [0, 0, 1]
        queue.close()
