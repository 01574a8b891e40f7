"""Pipe: connections with the same messages as queues."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Iterator
from multiprocessing import connection as standard
from typing import Any

import numpy as np
import pytest
from manager_world import BOUND, until

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor.errors import MessageDamaged
from shmtensor.ipc.connection import Connection
from shmtensor.manager import client


@pytest.fixture(params=[True, False], ids=["duplex", "one-way"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    """(receiver, sender)"""
    reader, writer = mp.Pipe(request.param)
    with reader, writer:
        yield reader, writer


def in_flight() -> int:
    count: int = client.default().list()["in_flight_total"]
    return count


def across(ends: tuple[Any, Any], value: Any) -> Any:
    """Send and receive at once: a message may be larger than the pipe."""
    reader, writer = ends
    sender = threading.Thread(target=writer.send, args=(value,))
    sender.start()
    try:
        assert reader.poll(BOUND)
        return reader.recv()
    finally:
        sender.join(BOUND)


def test_connections_are_standard_ones_too(ends: Any) -> None:
    for end in ends:
        assert isinstance(end, Connection)
        assert isinstance(end, standard.Connection)


@pytest.mark.parametrize("value", [None, 0, "text", b"bytes", [1, [2.5]], {"a": (1, 2)}, {1, 2}, "x" * 1_000_000])
def test_values(ends: Any, value: Any) -> None:
    assert across(ends, value) == value


def test_identity_inside_a_message(ends: Any) -> None:
    inner: list[Any] = []
    got = across(ends, [inner, inner])
    assert got[0] is got[1]


def test_a_tensor_aliases_and_an_array_is_the_receivers_own(ends: Any) -> None:
    before = in_flight()
    tensor, array = shmtensor.zeros(1000), np.arange(1 << 17)
    got, own = across(ends, (tensor, array))
    got.fill_(3)
    assert tensor[5].item() == 3
    own[0] = 9
    assert array[0] == 0
    assert own[1:].tolist() == array[1:].tolist()
    assert in_flight() == before


def test_bytes_are_as_they_are(ends: Any) -> None:
    reader, writer = ends
    writer.send_bytes(b"\x03raw")
    assert reader.recv_bytes() == b"\x03raw"
    writer.send_bytes(b"abcdef", 2, 3)
    into = bytearray(3)
    assert reader.recv_bytes_into(into) == 3
    assert into == b"cde"


def test_what_a_standard_connection_sends_arrives(ends: Any) -> None:
    reader, writer = ends
    plain = standard.Connection(os.dup(writer.fileno()), readable=False)
    plain.send({"standard": 1})
    plain.close()
    writer.send_bytes(pickle.dumps([1, 2]))
    assert reader.recv() == {"standard": 1}
    assert reader.recv() == [1, 2]


def test_what_is_no_message(ends: Any) -> None:
    reader, writer = ends
    for damaged in (b"", b"\x03", b"hello"):
        writer.send_bytes(damaged)
        with pytest.raises(MessageDamaged):
            reader.recv()


def test_ends_that_are_closed(ends: Any) -> None:
    reader, writer = ends
    writer.send(1)
    writer.close()
    assert reader.recv() == 1
    with pytest.raises(EOFError):
        reader.recv()
    with pytest.raises(OSError, match="closed"):
        writer.send(shmtensor.ones(3))
    reader.close()
    with pytest.raises(OSError, match="closed"):
        reader.recv()


def test_the_wrong_direction() -> None:
    reader, writer = mp.Pipe(duplex=False)
    with reader, writer:
        with pytest.raises(OSError, match="read-only"):
            reader.send(1)
        with pytest.raises(OSError, match="write-only"):
            writer.recv()


def test_what_cannot_be_sent_keeps_no_memory(ends: Any) -> None:
    reader, writer = ends
    before = in_flight()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        writer.send([shmtensor.ones(1000), lambda: 1])
    reader.close()
    with pytest.raises(BrokenPipeError):
        writer.send(shmtensor.ones(1000))
    assert in_flight() == before


def test_wait(ends: Any) -> None:
    reader, writer = ends
    assert standard.wait([reader], 0) == []
    writer.send(1)
    assert standard.wait([reader], BOUND) == [reader]
    assert reader.recv() == 1


def serve(end: Any) -> None:
    """Echo what comes until None does; a connection that comes is used once."""
    while (value := end.recv()) is not None:
        if isinstance(value, Connection):
            value.send(np.arange(1000))
            value.close()
        else:
            end.send(value)


def test_between_processes(ctx: Any) -> None:
    ours, theirs = ctx.Pipe()
    process = ctx.Process(target=serve, args=(theirs,))
    process.start()
    theirs.close()
    tensor = shmtensor.zeros(100)
    ours.send(tensor)
    assert ours.recv().storage() is tensor.storage()
    array = np.random.default_rng(1).random((300, 300))
    ours.send({"array": array, "more": [1, "a"]})
    assert (ours.recv()["array"] == array).all()
    reader, writer = ctx.Pipe(duplex=False)
    ours.send(writer)  # a connection through a connection
    writer.close()
    assert reader.recv().tolist() == list(range(1000))
    with pytest.raises(EOFError):
        reader.recv()
    reader.close()
    ours.send(None)
    process.join(BOUND)
    ours.close()
    assert process.exitcode == 0


def hold(end: Any) -> None:
    end.recv()


def test_a_killed_peer_is_the_end_of_the_file(ctx: Any) -> None:
    ours, theirs = ctx.Pipe()
    process = ctx.Process(target=hold, args=(theirs,))
    process.start()
    theirs.close()
    process.kill()
    with pytest.raises((EOFError, ConnectionResetError)):
        ours.recv()
    process.join(BOUND)
    ours.close()


def test_managers_and_standard_pipes_work_beside(ctx: Any) -> None:
    assert type(standard.Pipe()[0]) is standard.Connection
    with ctx.Manager() as manager:
        shared = manager.list([1])
        shared.append(2)
        assert list(shared) == [1, 2]
    until(lambda: not multiprocessing.active_children(), "the manager to end")
