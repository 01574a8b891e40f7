"""The bytes on a channel's connection (docs/channel.md, "The wire"): a prefix, and frames with a head of 32 bytes.

Each length is checked against a limit before anything is allocated for it.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final, NamedTuple

from ..errors import ProtocolError

VERSION: Final = 1
PREFIX: Final = b"shmchan" + bytes([VERSION])
"""The first bytes in each direction, before all frames."""

HELLO, WELCOME, REFUSE, DATA, ACK, BEAT, BYE = range(1, 8)
NAMES: Final = {
    HELLO: "HELLO",
    WELCOME: "WELCOME",
    REFUSE: "REFUSE",
    DATA: "DATA",
    ACK: "ACK",
    BEAT: "BEAT",
    BYE: "BYE",
}

MAX_TEXT: Final = 4096
"""Maximum bytes of the text of HELLO, WELCOME and REFUSE, which an unauthenticated peer can make us store."""
MAX_FRAMES: Final = 2**20
"""Maximum bytes of the frames of a DATA: a run of messages, or the structure of a single one."""
MAX_BLOCKS: Final = 2**20
"""Maximum number of blocks of a message."""
MAX_MESSAGES: Final = MAX_FRAMES // 8
"""Maximum number of messages of a DATA."""
MAX_NUMBER: Final = 2**40 - 1
"""The highest sequence number."""
RUN_BYTES: Final = 64 * 1024
"""Bytes of frames that a sender combines into one run of small messages."""

_HEAD: Final = struct.Struct("<BBxxIIQQQ")
HEAD_BYTES: Final = _HEAD.size
_SIZE: Final = struct.Struct("<Q")
SIZE_BYTES: Final = _SIZE.size
FRAME: Final = struct.Struct("<II")
"""Header of each message in the frames of a DATA: bytes of its body, flags (native/ipc/ring.hpp, FrameHeader)."""


class Head(NamedTuple):
    """The head of a frame.

    DATA: `number` is the sequence number of the first message, `second` the number of messages, `third` their bytes.
    Without frames: the memory of these messages was lost, with the processes that had it. ACK: `number` is the sequence
    number of the last message that was put, `second` the total number of bytes that may be sent on this connection,
    `third` the highest sequence number that may be sent.
    """

    kind: int
    flags: int = 0
    blocks: int = 0
    """Number of blocks of the message; their sizes follow the head."""
    length: int = 0
    """Bytes of the text or frames that follow the sizes."""
    number: int = 0
    second: int = 0
    third: int = 0


def pack(head: Head) -> bytes:
    """Return the bytes of a head."""
    return _HEAD.pack(*head)


def unpack(data: bytes | bytearray | memoryview, max_message: int) -> Head:
    """Return the head, checked. Raises ProtocolError: it is not one, or announces more than its limits."""
    head = Head._make(_HEAD.unpack(data))
    name = NAMES.get(head.kind)
    if name is None:
        raise ProtocolError(f"a frame of kind {head.kind} is not one of this version")
    most = MAX_FRAMES if head.kind == DATA else MAX_TEXT if head.kind in (HELLO, WELCOME, REFUSE) else 0
    if head.length > most:
        raise ProtocolError(f"{name} announces {head.length} bytes; at most {most} are allowed")
    if head.blocks > MAX_BLOCKS:
        raise ProtocolError(f"{name} announces {head.blocks} blocks; at most {MAX_BLOCKS} are allowed")
    if head.kind == DATA:
        if head.second > MAX_MESSAGES or head.number + head.second > MAX_NUMBER:
            raise ProtocolError(f"DATA announces {head.second} messages from number {head.number} on")
        if head.length == 0 and head.second and not head.blocks and not head.third:
            return head
        if head.second == 0 or head.second > head.length // FRAME.size or (head.blocks and head.second != 1):
            raise ProtocolError(f"DATA announces {head.second} messages in {head.length} bytes, {head.blocks} blocks")
        if head.third > max_message:
            raise ProtocolError(f"DATA announces {head.third} bytes; this side takes at most {max_message}")
    elif head.blocks:
        raise ProtocolError(f"{name} announces blocks")
    return head


def pack_sizes(sizes: list[int]) -> bytes:
    """Return the sizes of blocks as bytes."""
    return b"".join(map(_SIZE.pack, sizes))


def unpack_sizes(data: bytes | bytearray | memoryview, total: int) -> list[int]:
    """Return the sizes of blocks. Raises ProtocolError: they are more than the `total` that the head announced."""
    sizes = [size for (size,) in _SIZE.iter_unpack(data)]
    if any(size == 0 for size in sizes) or sum(sizes) > total:
        raise ProtocolError(f"blocks of {sum(sizes)} bytes in a message of {total}")
    return sizes


def text(kind: int, content: dict[str, Any]) -> bytes:
    """Return a frame whose content is JSON."""
    data = json.dumps(content).encode()
    return pack(Head(kind, length=len(data))) + data


def parse_text(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Return the content of HELLO, WELCOME or REFUSE. Raises ProtocolError."""
    try:
        content = json.loads(bytes(data))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ProtocolError("the text of a frame is not a JSON object")
    return content


def skip(frames: memoryview, messages: int) -> memoryview:
    """Return the frames without the first messages. Raises ProtocolError: they are cut off."""
    at = 0
    for _ in range(messages):
        if at + FRAME.size > len(frames):
            raise ProtocolError("the frames of a DATA are cut off")
        at += FRAME.size + FRAME.unpack_from(frames, at)[0]
    if at > len(frames):
        raise ProtocolError("the frames of a DATA are cut off")
    return frames[at:]
