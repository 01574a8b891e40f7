"""Bytes of tensors for processes of other groups: the server of the source, and what comes from it. Needs Ray."""

from __future__ import annotations

import json
import socket
import struct
import threading
from typing import Any

import pytest

pytest.importorskip("ray")

from manager_world import BOUND, World, kill, line_of, until

import shmtensor as st
from shmtensor import errors
from shmtensor.integrations.ray import fetching
from shmtensor.integrations.ray.fetching import Address, Connection, own_address
from shmtensor.integrations.ray.places import Place, place_of

pytestmark = [pytest.mark.ray, pytest.mark.any_python, pytest.mark.filterwarnings("default")]

SOURCE = """
import shmtensor as st
from shmtensor.integrations.ray.fetching import own_address
from shmtensor.integrations.ray.places import place_of
tensor = st.arange(1_000_000, dtype=st.float32)[::2]
place, block = place_of(tensor)
import json
print(json.dumps([own_address(), place.document()]), flush=True)
input()
"""


def source(here: World, group: str = "other") -> tuple[Any, Address, Place]:
    """A process of another group with a tensor; its address, and where the tensor is."""
    process = here.script(SOURCE, env={"SHMTENSOR_GROUP": group, "PYTHONWARNINGS": "ignore"})
    address, place = json.loads(line_of(process))
    return process, Address(*address), Place.of_document(place)


def test_a_view_is_fetched_without_what_is_between(here: World) -> None:
    _, address, place = source(here)
    with Connection(address) as connection:
        for _ in range(3):
            got = connection.fetch(place)
            assert got.is_shared() and got.storage().size() == 500_000
            assert st.equal(got, st.arange(0, 1_000_000, 2, dtype=st.float32))


def test_the_secret_is_needed(here: World) -> None:
    _, address, place = source(here)
    with Connection(address._replace(secret="0" * 32)) as connection, pytest.raises(errors.SegmentLost, match="secret"):
        connection.fetch(place)


def test_a_freed_tensor_is_not_sent(here: World) -> None:
    _, address, place = source(here)
    assert place.block is not None
    stale = Place((*place.block[:2], place.block[2] + 1), 0, place.dtype, 0, place.size, place.stride)
    with Connection(address) as connection, pytest.raises(errors.SegmentLost, match="StaleHandle"):
        connection.fetch(stale)


@pytest.mark.parametrize(
    "request_",
    [b"{", b"[]", b'{"secret": 3}', b'{"secret": "%s"}', b'{"secret": "%s", "place": {"kind": "x"}}'],
    ids=["no JSON", "a list", "a number", "no place", "a wrong place"],
)
def test_a_malformed_request_is_refused(request_: bytes) -> None:
    address = own_address()
    request = request_.replace(b"%s", address.secret.encode())
    with socket.create_connection((fetching.LOOPBACK, address.port), BOUND) as sock:
        sock.sendall(struct.pack("!I", len(request)) + request)
        assert sock.recv(1) == b"\1"
    with socket.create_connection((fetching.LOOPBACK, address.port), BOUND) as sock:
        sock.sendall(struct.pack("!I", 1 << 30))
        assert sock.recv(1) == b""  # not one that long
    place, _block = place_of(st.ones(3))
    with Connection(address) as connection:  # and it goes on
        assert connection.fetch(place).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "forged",
    [
        {"offset": 10_000_000}, {"offset": -1}, {"size": (1 << 40,)}, {"size": (2,), "stride": (-1,)},
        {"size": (2,), "stride": (1 << 62,)}, {"size": (3, 3), "stride": (1,)}, {"size": (-1,)}, {"dtype": "object"},
        {"kind": 99}, {"block": (1 << 40, 0, 1)}, {"block": (1, 1 << 40, 1)},
    ],
    ids=str,
)  # fmt: skip
def test_a_forged_place_is_refused(here: World, forged: dict[str, Any]) -> None:
    """A request has the right secret, and asks for memory outside of the tensor."""
    _, address, place = source(here)
    request = json.dumps({"secret": address.secret, "place": {**place.document(), **forged}}).encode()
    with socket.create_connection((fetching.LOOPBACK, address.port), BOUND) as sock:
        sock.sendall(struct.pack("!I", len(request)) + request)
        assert sock.recv(1) == b"\1"
    with Connection(address) as connection:  # and it goes on
        assert connection.fetch(place)[1].item() == 2


def test_the_source_is_killed(here: World) -> None:
    process, address, place = source(here)
    with Connection(address) as connection:
        assert connection.fetch(place)[1].item() == 2
        kill(process)
        with pytest.raises(errors.SegmentLost):
            connection.fetch(place)
    with pytest.raises(errors.SegmentLost, match="does not answer"):
        Connection(address)


def test_a_transfer_is_aborted() -> None:
    """The other side accepts, and never answers."""
    place, _block = place_of(st.ones(3))
    failed: list[Exception] = []
    with socket.create_server((fetching.LOOPBACK, 0)) as silent:
        address = own_address()._replace(port=silent.getsockname()[1])
        with Connection(address) as connection:

            def fetch() -> None:
                try:
                    connection.fetch(place)
                except errors.SegmentLost as problem:
                    failed.append(problem)

            thread = threading.Thread(target=fetch)
            thread.start()
            other, _ = silent.accept()
            with other:
                assert other.recv(4)  # it has asked
                connection.abort()
                thread.join(BOUND)
    until(lambda: len(failed) == 1, "the fetch to fail")


def test_another_machine_is_not_reached() -> None:
    with pytest.raises(errors.NotSupported, match="another machine"):
        Connection(own_address()._replace(boot="another"))
