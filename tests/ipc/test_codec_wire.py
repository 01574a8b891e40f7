"""Encoded values on their way to other processes: received once, withdrawn, outliving their sender."""

from __future__ import annotations

import os
from fractions import Fraction

import numpy as np
import pytest
from codec_world import PICKLED, PLAIN, TICKETED, Record, held, in_flight, native, nothing_is_kept
from manager_world import BOUND, World, world

import shmtensor
from shmtensor import _native, errors
from shmtensor.ipc import codec
from shmtensor.storage import FloatStorage

nothing_kept = pytest.fixture(autouse=True)(nothing_is_kept)


CHILD = """
import sys
from shmtensor.ipc import codec
for line in sys.stdin:
    got = codec.decode_from_wire(bytes.fromhex(line))
    got["tensor"] += 1
    got["array"][:] = 5
    reply = [got["array"], got["views"][0] is got["views"][1], got["plain"], got["odd"]]
    print(codec.encode_for_wire(reply).hex(), flush=True)
    del got, reply
"""


def ours() -> dict[str, str]:
    """The environment of a process that finds our manager."""
    return {"SHMTENSOR_RUNTIME_DIR": os.environ["SHMTENSOR_RUNTIME_DIR"]}


def test_to_another_process_and_back() -> None:
    native()
    with world() as w:
        child = w.script(CHILD, env=ours())
        assert child.stdin and child.stdout
        tensor = shmtensor.zeros(10)
        for odd in (None, {1, 2}, Fraction(1, 3)):
            view = tensor[2:4]
            value = {
                "tensor": tensor, "array": np.zeros(1000, "f4"), "views": [view, view], "plain": [1, "a"], "odd": odd,
            }  # fmt: skip
            data = codec.encode_for_wire(value)
            del value, view
            child.stdin.write(data.hex() + "\n")
            child.stdin.flush()
            reply = child.stdout.readline()
            assert reply, child.stderr and child.stderr.read()
            got = codec.decode_from_wire(bytes.fromhex(reply))
            assert got[0].tolist() == [5] * 1000
            assert got[1:] == [True, [1, "a"], odd]
            del got
        assert tensor.tolist() == [3] * 10
        child.communicate()
        assert child.returncode == 0


def test_what_was_sent_outlives_its_sender() -> None:
    native()
    with world() as w:
        code = "import shmtensor, numpy as np\nfrom shmtensor.ipc import codec\n"
        code += "print(codec.encode_for_wire([shmtensor.ones(1000), np.full(900, 2.0)]).hex())"
        data = bytes.fromhex(w.run(code, env=ours()))
    assert data[0] == TICKETED
    got = codec.decode_from_wire(data)
    assert got[0].sum().item() == 1000
    assert got[1].sum() == 1800


def test_withdrawn_messages_leave_nothing() -> None:
    for value in ([shmtensor.ones(5), np.ones(1000)], [1], Record("r", np.ones(1000))):
        data = codec.encode_for_wire(value)
        codec.withdraw(data)
    assert in_flight() == 0


def test_a_message_read_twice() -> None:
    data = codec.encode_for_wire(np.ones(1000))
    got = codec.decode_from_wire(data)
    again = codec.decode_from_wire(data)
    assert np.shares_memory(got, again)
    del got, again
    with pytest.raises(errors.StaleHandle):
        codec.decode_from_wire(data)


def test_blocks_that_nobody_here_has_open() -> None:
    """As a receiver finds them: each block gets its face while the message is decoded."""
    tensors = [shmtensor.full((600,), i) for i in range(20)]
    value = [*tensors, np.arange(1000), tensors[3][5:], Record("r", np.ones(900)), FloatStorage([4] * 200)]
    before = held()
    body, tickets = _native.pack_tickets(native(), value)
    plain, plain_tickets = _native.pack_tickets(native(), value[:-2])
    assert (body[0], plain[0]) == (PICKLED, PLAIN)
    del value, tensors
    assert held() == before
    for data, packed in ((plain, plain_tickets), (body, tickets)):
        got = _native.unpack_tickets(native(), data, packed)
        assert [t[599].item() for t in got[:20]] == list(range(20))
        assert got[20].tolist() == list(range(1000))
        got[21].fill_(9)
        assert got[3][7].item() == 9
        assert got[3].storage() is got[21].storage()
        got[3].fill_(3)
        del got
        assert held() == before


def test_a_message_of_which_one_block_is_gone_takes_the_others_out_of_flight() -> None:
    body, tickets = _native.pack_tickets(native(), [np.ones(1000), np.ones(1000), np.ones(1000)])
    forged = bytearray(tickets)
    forged[24 + 12] ^= 1  # generation of the second
    with pytest.raises(_native.BlockGone):
        _native.unpack_tickets(native(), body, bytes(forged))
    assert in_flight() == 1
    with pytest.raises(_native.BlockGone):
        _native.unpack_tickets(native(), body, tickets)
    assert in_flight() == 0


def test_a_message_whose_manager_is_gone() -> None:
    with world() as w:
        w.serve()
        code = "import numpy as np\nfrom shmtensor.ipc import codec\nprint(codec.encode_for_wire(np.ones(1000)).hex())"
        data = bytes.fromhex(w.run(code))
        stop(w)
        with pytest.raises(errors.SegmentLost, match="ended before"):
            codec.decode_from_wire(data)


def stop(w: World) -> None:
    w.server.kill()  # one that is asked to end leaves another in its place, while anything is in flight
    w.server.wait(BOUND)
