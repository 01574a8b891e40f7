"""Truncated, damaged or forged bodies: each causes only an error."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from codec_world import PICKLED, native, nothing_is_kept, values
from hypothesis import given, settings
from hypothesis import strategies as st
from manager_world import BOUND

import shmtensor
from shmtensor import _native, errors
from shmtensor.ipc import codec
from shmtensor.storage import FloatStorage

nothing_kept = pytest.fixture(autouse=True)(nothing_is_kept)


@settings(max_examples=300, deadline=None)
@given(values(), st.data())
def test_a_damaged_body_is_an_error_and_no_more(value: Any, data: st.DataObject) -> None:
    body, blocks = _native.pack(native(), value)
    damaged = bytearray(body[: data.draw(st.integers(0, len(body)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if damaged[:1] == bytes([PICKLED]):
        return  # pickle trusts what it reads
    kept = blocks[: data.draw(st.integers(0, len(blocks)))]
    with suppress(errors.MessageDamaged):
        _native.unpack(bytes(damaged), kept)


def test_elements_of_an_unknown_type() -> None:
    body, blocks = _native.pack(native(), np.zeros(3, ml_dtypes.float8_e8m0fnu))
    known = body[:2] + bytes([0x88]) + body[3:]
    assert known == body
    assert _native.unpack(known, blocks).dtype == ml_dtypes.float8_e8m0fnu
    for number in (0x18, 0x7F, 0x89, 0xFF):
        with pytest.raises(errors.MessageDamaged):
            _native.unpack(body[:2] + bytes([number]) + body[3:], blocks)


def test_elements_of_a_package_that_is_missing() -> None:
    body, _ = _native.pack(native(), np.zeros(3, ml_dtypes.bfloat16))
    code = f"""
import sys
sys.modules["ml_dtypes"] = None
from shmtensor import _native
try:
    _native.unpack({body!r}, [])
except ImportError as error:
    print(error.name)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=BOUND)
    assert found.stdout == "ml_dtypes\n"


def test_every_cut_of_a_body_is_noticed() -> None:
    value = [1, 2.5, "text", b"b", (None, {"a": np.arange(3)}), np.zeros(1000), shmtensor.ones(3), 2**40, [1j]]
    body, blocks = _native.pack(native(), value)
    for end in range(len(body)):
        with pytest.raises(errors.MessageDamaged):
            _native.unpack(body[:end], blocks)
    with pytest.raises(errors.MessageDamaged):
        _native.unpack(body + b"\0", blocks)
    with pytest.raises(errors.MessageDamaged, match="cut off"):
        _native.unpack(body, blocks[:1])


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\0", b"\x07\x01", b"\x01\x63",
        b"\x01\x0c\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a tuple of very many
        b"\x01\x0d\xff\xff\xff\xff\x0f",
        b"\x01\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x01\x00\x00", b"\x01\x00\x01", b"\x01\x8d\x01\x00\x01",  # references: to nothing, to what is being read
        b"\x01\x0a\x01\x00\x00\x11\x00",  # beyond the last code point
        b"\x01\x0e\x01\x0d\x00\x01",  # a list as key
        b"\x01" + b"\x0d\x01" * 40 + b"\x01",  # deep
        b"\x01\x10\x11\x00", b"\x01\x10\x63\x00",  # no such element type
        b"\x01\x10\x0c\x3f" + b"\x01" * 63,  # elements that are not there
        b"\x01\x10\x0c\x02\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x02",
        b"\x02\x01\x02\x00\x00", b"\x02\x01\x03\x00\x00", b"\x02\x00\x7f",
    ],
)  # fmt: skip
def test_forged_bodies(body: bytes) -> None:
    with pytest.raises(errors.MessageDamaged):
        _native.unpack(body, [])


def test_forged_places_in_a_block() -> None:
    block = native().allocate(64)
    for place in (
        b"\x0c\x01\x11\x00\x00",  # 17 elements
        b"\x0c\x01\x10\x00\x08",  # 16 from the second on
        b"\x0c\x01\x01\x00\x40",
        b"\x0c\x01\x01\x01\x00",  # of another block
        b"\x0c\x41\x02\x00\x00\x03",  # backwards from the start
        b"\x0c\x41\x02\x00\x00\x80\x01",
        b"\x0c\x41\x02\x00\x3f\x08",
    ):
        with pytest.raises(errors.MessageDamaged):
            _native.unpack(b"\x01\x0f" + place, [block])
    assert _native.unpack(b"\x01\x0f\x0c\x01\x08\x00\x00", [block]).shape == (8,)  # float64
    assert _native.unpack(b"\x01\x0f\x0c\x41\x02\x00\x38\x6f", [block]).stride() == (-7,)


def test_a_wire_message_that_is_cut_off() -> None:
    data = codec.encode_for_wire([np.ones(1000), np.ones(1000)])
    for end in range(1, len(data) - 12, 3):
        with pytest.raises((errors.MessageDamaged, errors.ManagerError, errors.InvalidArgument)):
            codec.decode_from_wire(data[:end])
    codec.withdraw(data)


@pytest.mark.parametrize("what", [b"1234", bytearray(4), np.zeros(1, "f4")])
def test_a_storage_whose_block_is_something_else(what: Any) -> None:
    stream, buffers = codec.dump(native(), FloatStorage(1).share_memory_())
    assert codec.load(memoryview(stream), [memoryview(buffer) for buffer in buffers]).size() == 1
    for put in (what, memoryview(what)):
        with pytest.raises(errors.MessageDamaged, match="block of a storage"):
            codec.load(memoryview(stream), [put])
