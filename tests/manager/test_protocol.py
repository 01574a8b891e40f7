"""Messages: decoding inverts encoding, and rejects everything else."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shmtensor.manager import protocol as p

UUID = bytes(range(16))
REQUESTS = [
    p.Hello(1, 1, p.QUIET),
    p.Hello(1, 1, p.OBSERVER),
    p.Embryo(77, 3),
    p.Create(1 << 30, p.NAMED),
    p.Create(5, p.DEDICATED),
    p.Map(9),
    p.Return(2**64 - 1),
    p.Export(1, 2, 3),
    p.Lookup(b"/torch_1_2"),
    p.Unexport(b"/" + b"x" * 62),
    p.List(),
    p.Stats(),
    p.Collect(1.5),
    p.Stop(),
    p.Goodbye(),
    p.Create(0, p.RING),
    p.Event(3),
    p.Bind(1, 2, 3, b"/my.queue"),
    p.Rejoin(3, 3, 7, 1, 2**64 - 1),
    p.Restart(),
    p.Succeed(),
    p.CreateDevice(2 << 20, p.DEDICATED, 0, UUID),
    p.Give(5),
]
REPLIES = [
    p.Welcome(3, 99, 2**64 - 1, 1),
    p.Welcome(3, 99, 2**64 - 1, 2),
    p.Segment(1, 4096, p.DEDICATED),
    p.Segment(1, 4096, p.NAMED, 0, b"/torch_1_2"),
    p.Handle(b"/torch_1_2"),
    p.Block(1, 2, 3, 4),
    p.Document(12),
    p.Collected(1, 2, 3, 4, 5),
    p.Ok(),
    p.Segment(1, 1 << 30, p.DEDICATED | p.RING),
    p.Signal(),
    p.Role(p.OWN),
    p.Segment(1, 2 << 20, p.DEVICE, 0, p.device_name(UUID)),
    p.Segment(1, 2 << 20, p.DEVICE | p.DEDICATED, 0, p.device_name(UUID)),
    p.Error(p.STALE, 0, "gone: naïve"),
]


@pytest.mark.parametrize("message", REQUESTS, ids=repr)
def test_request_round_trip(message: p.Message) -> None:
    data = p.encode(message, 42)
    assert len(data) <= p.MAX_REQUEST_BYTES
    assert p.decode_request(data) == (42, message)


@pytest.mark.parametrize("message", REPLIES, ids=repr)
def test_reply_round_trip(message: p.Message) -> None:
    data = p.encode(message, 2**32 - 1)
    assert len(data) <= p.MAX_REPLY_BYTES
    assert p.decode_reply(data) == (2**32 - 1, message)


def test_every_message_is_tried_here() -> None:
    assert {type(message) for message in REQUESTS} == set(p.REQUESTS.values())
    assert {type(message) for message in REPLIES} == set(p.REPLIES.values())


def test_the_specification_lists_every_message_and_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    names = {"Collect": "GC", "CreateDevice": "CREATE_DEVICE"}
    for number, cls in {**p.REQUESTS, **p.REPLIES}.items():
        word = names.get(cls.__name__, cls.__name__.upper())
        assert re.search(rf"^\| {number} \| {word} \|", text, re.M), word
    codes = "MALFORMED VERSION DENIED LIMIT MEMORY UNKNOWN STALE INVALID UNSUPPORTED INTERNAL EXISTS PENDING"
    for code in codes.split():
        assert re.search(rf"^\| {getattr(p, code)} \| {code}[:, ]", text, re.M), code


def test_what_native_code_sends() -> None:
    embryo = bytes.fromhex("53484d54 02000000 00000000 08000000 07000000 09000000")
    assert p.decode_request(embryo) == (0, p.Embryo(7, 9))
    hello = bytes.fromhex("53484d54 01000000 00000000 10000000 03000000 05000000 01000000 00000000")
    assert p.decode_request(hello) == (0, p.Hello(3, 5, p.QUIET))


def test_a_long_text_is_cut_at_a_character() -> None:
    data = p.encode(p.Error(p.INTERNAL, 0, "a" + "é" * 5000))
    _number, reply = p.decode_reply(data)
    assert isinstance(reply, p.Error)
    assert reply.text == "a" + "é" * 479


def packet(
    number: int, body: bytes = b"", *, magic: bytes = b"SHMT", reserved: int = 0, size: int | None = None
) -> bytes:
    return struct.pack("<4sHHII", magic, number, reserved, 5, len(body) if size is None else size) + body


NAME = b"/torch_1_2".ljust(64, b"\0")
MALFORMED = {
    "empty": (b"", 0),
    "short": (b"SHMT\1\0", 0),
    "magic": (packet(9, magic=b"HTTP"), 0),
    "reserved": (packet(9, reserved=1), 5),
    "size too large": (packet(9, size=4), 5),
    "size too small": (packet(4, b"\0" * 8, size=4), 5),
    "unknown type": (packet(99), 5),
    "type zero": (packet(0), 5),
    "a reply": (packet(135), 5),
    "body too short": (packet(4, b"\0" * 7), 5),
    "body too long": (packet(9, b"x"), 5),
    "too long": (packet(9, b"x" * 300), 5),
    "hello flags": (packet(1, struct.pack("<IIII", p.PROTOCOL_VERSION, 1, 8, 0)), 5),
    "hello reserved": (packet(1, struct.pack("<IIII", p.PROTOCOL_VERSION, 1, 0, 1)), 5),
    "welcome for a request": (packet(129, struct.pack("<IIQII", 1, 1, 1, 1, 0)), 5),
    "create flags": (packet(3, struct.pack("<QII", 1, 8, 0)), 5),
    "ring with a size": (packet(3, struct.pack("<QII", 1, 4, 0)), 5),
    "ring in dev shm": (packet(3, struct.pack("<QII", 0, 6, 0)), 5),
    "device without UUID": (packet(19, struct.pack("<QII16s", 1, 0, 0, bytes(16))), 5),
    "device flags": (packet(19, struct.pack("<QII16s", 1, p.RING, 0, UUID)), 5),
    "device reserved": (packet(19, struct.pack("<QII16s", 1, 0, 1, UUID)), 5),
    "device too short": (packet(19, struct.pack("<QII8s", 1, 0, 0, UUID[:8])), 5),
    "give too long": (packet(20, struct.pack("<QQ", 1, 0)), 5),
    "bind without slash": (packet(15, struct.pack("<QQQ64s", 1, 2, 3, b"name")), 5),
    "name empty": (packet(7, b"\0" * 64), 5),
    "name without slash": (packet(7, b"torch".ljust(64, b"\0")), 5),
    "name with path": (packet(7, b"/../etc/passwd".ljust(64, b"\0")), 5),
    "name with nul inside": (packet(7, b"/a\0b".ljust(64, b"\0")), 5),
    "name unterminated": (packet(7, b"/" + b"x" * 63), 5),
    "gc nan": (packet(11, struct.pack("<d", float("nan"))), 5),
}


@pytest.mark.parametrize("case", MALFORMED, ids=str)
def test_malformed(case: str) -> None:
    data, request_id = MALFORMED[case]
    with pytest.raises(p.Malformed) as caught:
        p.decode_request(data)
    assert caught.value.request_id == request_id


def test_another_version_is_still_readable() -> None:
    _number, message = p.decode_request(packet(1, struct.pack("<IIII", 9, 1, 0x80, 3)))
    assert message == p.Hello(9, 1, 0x80, 3)


def test_fields_out_of_range_are_not_encoded() -> None:
    for message in (
        p.Map(-1),
        p.Map(2**64),
        p.Embryo(2**32, 0),
        p.Lookup(b"nope"),
        p.Create(1, 64),
        p.Segment(1, 1, p.RING),
        p.Segment(1, 1, p.DEVICE),
        p.Segment(1, 1, p.DEVICE | p.RING | p.DEDICATED, 0, p.device_name(UUID)),
        p.Segment(1, 1, p.DEVICE, 0, b"GPU-" + b"0" * 31),
        p.Segment(1, 1, p.DEVICE, 0, b"GPU-" + b"0" * 32),
        p.Segment(1, 1, p.DEVICE, 0, b"/torch_1_2"),
        p.CreateDevice(1, 0, 0, bytes(16)),
    ):
        with pytest.raises(p.Malformed):
            p.encode(message)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_message_or_malformed(data: bytes) -> None:
    for decode in (p.decode_request, p.decode_reply):
        try:
            number, message = decode(data)
        except p.Malformed:
            continue
        assert p.encode(message, number) == data


@given(st.sampled_from(sorted(p.REQUESTS)), st.binary(max_size=96))
def test_any_body_gives_a_message_or_malformed(number: int, body: bytes) -> None:
    try:
        request_id, message = p.decode_request(packet(number, body))
    except p.Malformed as problem:
        assert problem.request_id == 5
    else:
        assert request_id == 5
        assert type(message) is p.REQUESTS[number]


NAMES = st.binary(max_size=61).map(lambda raw: b"/a" + bytes(p._NAME_BYTES[byte % len(p._NAME_BYTES)] for byte in raw))
UUIDS = st.binary(min_size=16, max_size=16).filter(any)
NUMBERS = {"I": st.integers(0, 2**32 - 1), "Q": st.integers(0, 2**64 - 1), "d": st.floats(allow_nan=False)}


@st.composite
def messages(draw: st.DrawFn) -> p.Message:
    """Any message that can be encoded."""
    cls = draw(st.sampled_from([*p.REQUESTS.values(), *p.REPLIES.values()]))
    if cls is p.Error:
        return p.Error(draw(NUMBERS["I"]), draw(NUMBERS["I"]), draw(st.text(max_size=p.MAX_TEXT_BYTES // 4)))
    form = re.findall(r"64s|16s|[IQd]", cls.FORMAT.format)
    strings = {"64s": NAMES | UUIDS.map(p.device_name), "16s": UUIDS}
    values = [draw(strings[code] if code in strings else NUMBERS[code]) for code in form]
    for at, field in enumerate(cls.FIELDS):
        if field in ("flags", "reserved"):
            values[at] = draw(st.sampled_from([0, 0, 1, 2, 4, 8, 9]))
    made = cls(*values)
    try:
        made.check()
    except p.Malformed:
        assume(False)
    return made


@given(messages(), NUMBERS["I"])
def test_any_message_goes_there_and_back(message: p.Message, number: int) -> None:
    decode = p.decode_request if message.TYPE in p.REQUESTS else p.decode_reply
    assert decode(p.encode(message, number)) == (number, message)


@settings(max_examples=25)
@given(messages())
def test_every_change_of_a_byte_gives_a_message_or_malformed(message: p.Message) -> None:
    """Each byte of the packet as each other value; what still is a message goes there and back."""
    data = bytearray(p.encode(message, 7))
    decode = p.decode_request if message.TYPE in p.REQUESTS else p.decode_reply
    for at in range(len(data)):
        kept = data[at]
        for value in {kept ^ 1, kept ^ 0x80, 0, 1, 0x2F, 0x7F, 0xFF, (kept + 1) % 256} - {kept}:
            data[at] = value
            try:
                number, changed = decode(bytes(data))
            except p.Malformed:
                continue
            assert p.encode(changed, number) == data
        data[at] = kept


def test_protocol_needs_no_sockets() -> None:
    code = "import sys, shmtensor.manager.protocol; assert 'socket' not in sys.modules and 'numpy' not in sys.modules"
    program = f"import sys; sys.path.append({str(Path(p.__file__).parents[2])!r}); {code}"
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True)


def test_messages_are_values() -> None:
    assert len({p.Give(1), p.Give(1), p.Map(1), p.Give(2)}) == 3
    for values in ((), (1, 2)):
        with pytest.raises(TypeError, match=r"Give has the fields \('segment',.*\), not"):
            p.Give(*values)
