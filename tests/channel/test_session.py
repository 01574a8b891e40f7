"""Sessions without connections: what may be sent and what was received; invalid frames."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmtensor.channel import wire
from shmtensor.channel.address import parse
from shmtensor.channel.session import Entry, Receiver, Sender
from shmtensor.errors import InvalidArgument, ProtocolError


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


@pytest.mark.parametrize("text", ["", "tcp://", "tcp://x", "tcp://x:", "tcp://x:y", "tcp://::1:5", "udp://x:1", None])
def test_texts_that_are_not_addresses(text):
    with pytest.raises(InvalidArgument, match="not an address"):
        parse(text)
