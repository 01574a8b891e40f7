"""Sessions without connections: what may be sent and what was received; invalid frames."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmtensor.multiprocessing as mp
from shmtensor.channel import handshake, wire
from shmtensor.channel.address import Address, parse
from shmtensor.channel.link.stream import commit_number, recover
from shmtensor.channel.session import Entry, Receiver, Sender
from shmtensor.channel.state import Row, State
from shmtensor.errors import InvalidArgument, ProtocolError
from shmtensor.manager import client
from shmtensor.store import Store


def test_entries_are_sent_once_for_each_connection_and_kept_until_they_are_acknowledged():
    sender: Sender[str] = Sender()
    sender.add(3, 30, "a")
    sender.add(2, 20, "b")
    assert sender.next() is None  # the other side takes none
    sender.acknowledge(0, 1000, 10)
    assert sender.next() == Entry(1, 3, 30, "a")
    assert sender.next() == Entry(4, 5, 20, "b")
    assert sender.next() is None
    assert sender.acknowledge(4, 1000, 10) == [Entry(1, 3, 30, "a")]
    assert sender.connected(4) == []
    sender.acknowledge(4, 1000, 10)
    assert sender.next() == Entry(4, 5, 20, "b")
    assert sender.acknowledge(5, 1000, 10) == [Entry(4, 5, 20, "b")]


def test_bytes_and_numbers_bound_what_is_sent():
    sender: Sender[str] = Sender()
    sender.acknowledge(0, 25, 2)
    assert sender.room == 2
    sender.add(1, 20, "a")
    sender.add(1, 20, "b")
    assert sender.room == 0
    assert [sender.next().content, sender.next().content] == ["a", "b"]  # the last may go beyond
    assert not sender.may_send
    sender.acknowledge(1, 45, 3)
    assert sender.room == 1


def test_a_run_of_messages_that_begins_beyond_the_limit_waits_for_it():
    sender: Sender[str] = Sender()
    sender.add(2, 20, "a")
    sender.add(1, 10, "b")
    sender.acknowledge(0, 1000, 2)
    assert sender.next() == Entry(1, 2, 20, "a")
    assert sender.may_send and sender.next() is None
    sender.acknowledge(2, 1000, 3)
    assert sender.next() == Entry(3, 3, 10, "b")


@pytest.mark.parametrize("received", [6, -1, 2])
def test_an_acknowledgement_that_cannot_be_is_refused(received):
    sender: Sender[str] = Sender(3)
    sender.add(2, 1, "a")
    with pytest.raises(ProtocolError, match="acknowledges"):
        sender.acknowledge(received, 0, 0)


def test_the_receiver_drops_what_it_had_and_refuses_what_lacks_others_before():
    receiver = Receiver(5)
    assert receiver.accept(4, 3, 10) == 2
    assert receiver.accepted == 6
    assert receiver.accept(1, 6, 10) == 6
    with pytest.raises(ProtocolError, match="missing"):
        receiver.accept(8, 1, 1)
    assert receiver.credit(waiting=5, window=100) == 115
    receiver.connected()
    assert receiver.credit(waiting=0, window=100) == 100


@given(st.binary(min_size=wire.HEAD_BYTES, max_size=wire.HEAD_BYTES))
def test_any_head_is_understood_or_refused(data):
    try:
        head = wire.unpack(data, 2**20)
    except ProtocolError:
        return
    assert head.length <= wire.MAX_FRAMES
    assert head.kind == wire.DATA or head.length <= wire.MAX_TEXT
    assert wire.pack(head) == data


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (wire.Head(wire.DATA, length=16, number=1), "0 messages in 16 bytes"),
        (wire.Head(wire.DATA, length=wire.FRAME.size, number=1, second=2, third=1), "2 messages in 8 bytes"),
        (wire.Head(wire.DATA, blocks=1, length=64, number=1, second=2, third=9), "2 messages in 64 bytes, 1 blocks"),
        (wire.Head(wire.ACK, blocks=1), "ACK announces blocks"),
        (wire.Head(wire.BYE, length=1), "BYE announces 1 bytes; at most 0"),
    ],
)
def test_heads_that_contradict_themselves_are_refused(head, text):
    with pytest.raises(ProtocolError, match=text):
        wire.unpack(wire.pack(head), 2**20)


def test_sizes_of_blocks_are_at_least_one_byte_and_no_more_than_announced():
    assert wire.unpack_sizes(wire.pack_sizes([2, 3]), 5) == [2, 3]
    for sizes, said in (([0, 5], 5), ([3, 3], 6)):
        with pytest.raises(ProtocolError, match=f"blocks of {said} bytes in a message of 5"):
            wire.unpack_sizes(wire.pack_sizes(sizes), 5)


@given(st.binary(max_size=200))
def test_any_text_is_understood_or_refused(data):
    with suppress(ProtocolError):
        assert isinstance(wire.parse_text(data), dict)


@given(st.binary(max_size=200), st.integers(0, 10))
def test_frames_that_are_cut_off_are_refused(data, messages):
    try:
        left = wire.skip(memoryview(data), messages)
    except ProtocolError:
        return
    assert len(left) <= len(data) - 8 * messages


@pytest.mark.parametrize("text", ["tcp://[::1]:80", "tcp://10.0.0.1:7000", "tcp://host.example:0"])
def test_addresses(text):
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "tcp://" + "a" * 64 + ":7000",
        "tcp://a..b:7000",
        "",
        "tcp://",
        "tcp://x",
        "tcp://x:",
        "tcp://x:y",
        "tcp://::1:5",
        "udp://x:1",
        None,
    ],
)
def test_texts_that_are_not_addresses(text):
    with pytest.raises(InvalidArgument, match="not an address"):
        parse(text)


def test_an_address_that_cannot_be_resolved_is_not_on_the_loopback():
    assert parse("tcp://[::1]:80").is_loopback and parse("tcp://127.8.9.1:80").is_loopback
    assert not parse("tcp://[::1%none]:80").is_loopback  # there is no such interface
    assert not parse("tcp://10.0.0.1:80").is_loopback


# --------------------------------------------------------------------------------------------------- beginnings


def test_a_listener_that_says_hello_is_not_one():
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        address = Address(*listener.getsockname())
        connecting = threads.submit(handshake.connect, address, None, True, {})
        listener.settimeout(30)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(wire.PREFIX + wire.text(wire.HELLO, {}))
            with pytest.raises(ProtocolError, match=f"{address} answers HELLO with HELLO"):
                connecting.result(30)


@pytest.mark.parametrize(
    ("said", "seconds", "error", "text"),
    [
        (wire.PREFIX + wire.text(wire.WELCOME, {}), 10, ProtocolError, "the first frame is WELCOME"),
        (wire.PREFIX + wire.text(wire.HELLO, {}), 0, TimeoutError, "took too long"),
    ],
)
def test_a_beginning_that_is_no_hello_in_time(monkeypatch, said, seconds, error, text):
    monkeypatch.setattr(handshake, "SECONDS", seconds)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as one:
        one.sendall(said)
        accepted, _ = listener.accept()
        with pytest.raises(error, match=text):
            handshake.accept(accepted, None, True, lambda hello: hello)
        assert accepted.fileno() == -1
        one.settimeout(30)
        with suppress(ConnectionResetError):
            assert one.recv(1) == b""


# -------------------------------------------------------------------------------------------------------- states


@pytest.fixture
def state():
    return State(client.default().allocate(State.nbytes(2)), 2)


def test_a_block_that_is_no_state():
    for nbytes in (State.nbytes(0) - 8, State.nbytes(1)):
        block = client.default().allocate(nbytes)
        memoryview(block).cast("B")[:] = bytes(nbytes)
        with pytest.raises(InvalidArgument, match="not the state of a channel of this version"):
            State(block)


def test_a_configuration_that_does_not_fit(state):
    state.config = {"keys": "/short"}
    with pytest.raises(InvalidArgument, match=r"take 5\d{4} of \d+ bytes"):
        state.config = {"keys": "/" + "x" * 50_000}
    assert State(state.block).config == {"keys": "/short"}


def moving(state, number=3):
    """The state after a link process was killed while it moved messages 5 to 7 of a session into the window."""
    row = next(state.rows())
    row.begin(number, bytes(range(16)), 1, Row.CONSUMER)
    row.sent, state.moving_first = 4, 5
    state.moving_last = commit_number(number, 7)
    return row, f"{number:x}.{5:010x}.3"


@pytest.mark.parametrize("taken", [True, False])
def test_messages_that_a_killed_process_moved_are_in_the_queue_or_in_the_window(state, taken):
    window = Store()
    row, key = moving(state)
    window.put(key, "content")
    window.put("4.0000000005.3", "that of another session")
    recover(state, window, state.moving_last if taken else commit_number(3, 4), {})
    assert window.keys("") == ([key] if taken else []) + ["4.0000000005.3"]
    assert row.sent == (7 if taken else 4)
    assert state.moving_last == 0
    recover(state, window, 0, {})  # nothing is left to do
    assert row.sent == (7 if taken else 4)


@pytest.mark.parametrize("is_kept", [True, False])
def test_messages_of_a_broadcast_that_a_killed_process_moved_are_skipped_if_they_are_in_the_window(state, is_kept):
    window, cast = Store(), mp.Broadcast(maxsize=8)
    reader = cast._broadcast_ring.kept_reader(3)
    for number in range(4):
        cast.put(number)
    row, key = moving(state)
    state.moving_beyond = reader.next + 3
    if is_kept:
        window.put(key, "content")
    recover(state, window, 0, {3: reader})
    assert window.keys("") == ([key] if is_kept else [])
    assert row.sent == (7 if is_kept else 4)
    assert reader.lag == (1 if is_kept else 4)
    assert state.moving_last == 0
    reader.leave()
