"""Messages between a client and the manager: layout, limits, validation. docs/protocol.md is the specification.

The fields of a message, in order, are the fields of its packed body. This module uses no sockets; descriptors are sent
as ancillary data, and each class states their number.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error

from .._native import PROTOCOL_VERSION as PROTOCOL_VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Self, dataclass_transform
else:  # typing costs time at every start of a manager

    def dataclass_transform(**_):  # noqa: D103
        return lambda cls: cls


MAGIC = b"SHMT"
HEADER = Struct("<4sHHII")  # magic, type, reserved (zero), request id, body bytes
MAX_REQUEST_BYTES = 256
MAX_REPLY_BYTES = 1024
MAX_NAME_BYTES = 63
MAX_TEXT_BYTES = 960
MAX_ADDRESS_BYTES = 100

QUIET = 1  # HELLO: no reply at all
OBSERVER = 2  # HELLO: no slot, no segments
DEDICATED = 1  # CREATE, SEGMENT: one block fills the segment
NAMED = 2  # CREATE, SEGMENT: a POSIX shm object instead of a memfd
RING = 4  # CREATE, SEGMENT: its one block is a ring, made by the manager
DEVICE = 8  # SEGMENT: its payload is memory of the device that `name` identifies
PRIVATE = 1  # WELCOME: this manager was started on demand and runs in the background
OWN = 1  # ROLE: the socket file is the manager's own, to be removed when it ends

MALFORMED = 1
VERSION = 2
DENIED = 3
LIMIT = 4
MEMORY = 5
UNKNOWN = 6
STALE = 7
INVALID = 8
UNSUPPORTED = 9
INTERNAL = 10
EXISTS = 11
PENDING = 12  # MAP: no client has given the successor of a manager this segment's descriptor yet; ask again

_NAME_BYTES = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."


class Malformed(ValueError):
    """A packet violates the protocol. `request_id` is the sender's if it could be read, else 0."""

    def __init__(self, text: str, request_id: int = 0) -> None:
        super().__init__(text)
        self.request_id = request_id


def check_name(name: bytes) -> None:
    """Raise Malformed unless `name` is well-formed; the name need not be in use."""
    if not 2 <= len(name) <= MAX_NAME_BYTES or name[:1] != b"/" or name[1:].translate(None, _NAME_BYTES):
        raise Malformed(
            f"{name[:80]!r} is not a name: it must be '/' and 1 to {MAX_NAME_BYTES - 1} letters, digits, '_', '-' or "
            "'.'"
        )


def device_name(uuid: bytes) -> bytes:
    """Return the name of a device in a SEGMENT message."""
    return b"GPU-" + uuid.hex().encode()


def device_of(name: bytes) -> bytes:
    """Return the UUID of a device from its name in a SEGMENT message. Raises Malformed."""
    try:
        uuid = bytes.fromhex(name[4:].decode("ascii", "replace"))
    except ValueError:
        uuid = b""
    if len(uuid) != 16 or not any(uuid) or name != device_name(uuid):
        raise Malformed(
            f"{name[:80]!r} is not the name of a device: it must be 'GPU-' and 32 hexadecimal digits in lower case, "
            "not all 0"
        )
    return uuid


@dataclass_transform(frozen_default=True)
class Message:
    """Base of all messages: an immutable record of the annotated fields of its class.

    The classes are not dataclasses, whose generated code costs 15 ms at every start of a manager.

    TYPE: number on the wire; FORMAT: of the body; DESCRIPTORS: number sent along; FIELDS: names, in order.
    """

    TYPE: ClassVar[int]
    FORMAT: ClassVar[Struct] = Struct("<")
    DESCRIPTORS: ClassVar[int] = 0
    FIELDS: ClassVar[tuple[str, ...]] = ()
    _DEFAULTS: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        cls.FIELDS += tuple([name for name, kind in cls.__annotations__.items() if not kind.startswith("ClassVar")])
        cls._DEFAULTS = {field: getattr(cls, field) for field in cls.FIELDS if hasattr(cls, field)}

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = {**self._DEFAULTS, **dict(zip(self.FIELDS, values, strict=False)), **named}
        if len(values) > len(self.FIELDS) or fields.keys() != set(self.FIELDS):
            raise TypeError(f"{type(self).__name__} has the fields {self.FIELDS}, not {values} and {named}")
        self.__dict__.update(fields)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash((type(self), *self._values()))

    def __repr__(self) -> str:
        values = ", ".join(f"{field}={value!r}" for field, value in zip(self.FIELDS, self._values(), strict=True))
        return f"{type(self).__name__}({values})"

    def _values(self) -> list[Any]:
        return [getattr(self, field) for field in self.FIELDS]

    def check(self) -> None:
        """Raise Malformed if the fields contradict the protocol."""

    def pack(self) -> bytes:
        """Encode the body."""
        return self.FORMAT.pack(*self._values())

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        """Decode the body. Raises Malformed."""
        if len(body) != cls.FORMAT.size:
            raise Malformed(f"the body of {cls.__name__} has {len(body)} bytes instead of {cls.FORMAT.size}")
        return cls(*cls.FORMAT.unpack(body))


class _Named(Message):
    """A message whose body is one name."""

    name: bytes
    FORMAT = Struct("<64s")

    def check(self) -> None:
        """Raise Malformed if the fields contradict the protocol."""
        check_name(self.name)

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        """Decode the body. Raises Malformed."""
        if len(body) != 64:
            raise Malformed(f"the body of {cls.__name__} has {len(body)} bytes instead of 64")
        return cls(body.rstrip(b"\0"))


def _check_flags(message: Message, flags: int, known: int, reserved: int) -> None:
    if flags & ~known:
        raise Malformed(f"{type(message).__name__} has unknown flags {flags & ~known:#x}")
    if reserved:
        raise Malformed(f"a reserved field of {type(message).__name__} is {reserved}, not 0")


# ---------------------------------------------------------------------------------------------------------- requests


class Hello(Message):
    """The first message of every connection."""

    protocol: int
    layout: int
    flags: int = 0
    reserved: int = 0
    TYPE: ClassVar[int] = 1
    FORMAT = Struct("<IIII")

    def check(self) -> None:
        """Raise Malformed if the fields contradict the protocol."""
        # A later version may know more flags; the server checks the version first.
        if self.protocol == PROTOCOL_VERSION:
            _check_flags(self, self.flags, QUIET | OBSERVER, self.reserved)


class Embryo(Message):
    """Announces a child that is being created, with the socket on which it will send HELLO. Never answered."""

    slot: int
    generation: int
    TYPE: ClassVar[int] = 2
    FORMAT = Struct("<II")
    DESCRIPTORS: ClassVar[int] = 1


class Create(Message):
    """Asks for a segment with `nbytes` of payload, owned by the sender; or for a ring, whose block the sender holds."""

    nbytes: int
    flags: int = 0
    reserved: int = 0
    TYPE: ClassVar[int] = 3
    FORMAT = Struct("<QII")

    def check(self) -> None:
        """Raise Malformed if the fields contradict the protocol."""
        _check_flags(self, self.flags, DEDICATED | NAMED | RING, self.reserved)
        if self.flags & RING and (self.flags != RING or self.nbytes):
            raise Malformed(
                f"Create of a ring takes no size and no other flags, not {self.nbytes} bytes and flags {self.flags:#x}"
            )


class Map(Message):
    """Asks for the descriptors of a segment."""

    segment: int
    TYPE: ClassVar[int] = 4
    FORMAT = Struct("<Q")


class Return(Message):
    """Gives an empty segment of the sender back, or releases the sender's holds on a ring."""

    segment: int
    TYPE: ClassVar[int] = 5
    FORMAT = Struct("<Q")


class Export(Message):
    """Asks for the name of a live block."""

    segment: int
    block: int
    generation: int
    TYPE: ClassVar[int] = 6
    FORMAT = Struct("<QQQ")


class Lookup(_Named):
    """Asks for the block with a name."""

    TYPE: ClassVar[int] = 7


class Unexport(_Named):
    """Releases a name."""

    TYPE: ClassVar[int] = 8


class List(Message):
    """Asks for the clients, segments, holders and holds in flight."""

    TYPE: ClassVar[int] = 9


class Stats(Message):
    """Asks for the manager's statistics."""

    TYPE: ClassVar[int] = 10


class Collect(Message):
    """GC: releases unused memory; with seconds >= 0 also holds that have been in flight for at least that time."""

    seconds: float = -1.0
    TYPE: ClassVar[int] = 11
    FORMAT = Struct("<d")

    def check(self) -> None:
        """Raise Malformed if the fields contradict the protocol."""
        if self.seconds != self.seconds:
            raise Malformed("the seconds of GC are NaN")


class Stop(Message):
    """Asks the manager to end."""

    TYPE: ClassVar[int] = 12


class Goodbye(Message):
    """Ends a client: everything that its slot holds is released."""

    TYPE: ClassVar[int] = 13


class Event(Message):
    """Asks for the event of a ring."""

    segment: int
    TYPE: ClassVar[int] = 14
    FORMAT = Struct("<Q")


class Bind(Message):
    """Binds a name that the sender chose to a live block."""

    segment: int
    block: int
    generation: int
    name: bytes
    TYPE: ClassVar[int] = 15
    FORMAT = Struct("<QQQ64s")

    def check(self) -> None:
        """Raise Malformed if the fields contradict the protocol."""
        check_name(self.name)

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        """Decode the body. Raises Malformed."""
        found = super().unpack(body)
        return cls(found.segment, found.block, found.generation, found.name.rstrip(b"\0"))


class Rejoin(Message):
    """Sent instead of HELLO by a client or embryo of this group that lost its connection."""

    protocol: int
    layout: int
    slot: int
    generation: int
    group: int
    TYPE: ClassVar[int] = 16
    FORMAT = Struct("<IIIIQ")


class Restart(Message):
    """Asks the manager to restart in the same process and keep its segments."""

    TYPE: ClassVar[int] = 17


class Succeed(Message):
    """Asks a manager in the background to hand over its role. The sender sends GOODBYE once it serves."""

    TYPE: ClassVar[int] = 18


class CreateDevice(Message):
    """Asks for a segment whose payload is `nbytes` of a device's memory; its descriptor is sent along."""

    nbytes: int
    flags: int
    reserved: int
    device: bytes
    TYPE: ClassVar[int] = 19
    FORMAT = Struct("<QII16s")
    DESCRIPTORS: ClassVar[int] = 1

    def check(self) -> None:
        """Raise Malformed if the fields contradict the protocol."""
        _check_flags(self, self.flags, DEDICATED, self.reserved)
        if self.device == bytes(16):
            raise Malformed("the UUID of the device is 0")


class Give(Message):
    """Gives the successor of a manager the descriptor of a segment on a device, which it lacks."""

    segment: int
    TYPE: ClassVar[int] = 20
    FORMAT = Struct("<Q")
    DESCRIPTORS: ClassVar[int] = 1


# ----------------------------------------------------------------------------------------------------------- replies


class Welcome(Message):
    """The sender of HELLO or REJOIN is a client (or an observer: slot 0). Comes with the group segment."""

    slot: int
    pid: int
    group: int
    epoch: int
    flags: int = 0
    TYPE: ClassVar[int] = 129
    FORMAT = Struct("<IIQII")
    DESCRIPTORS: ClassVar[int] = 1

    def check(self) -> None:
        """Raise Malformed if the fields contradict the protocol."""
        _check_flags(self, self.flags, PRIVATE, 0)


class Segment(Message):
    """A segment, with its control and payload descriptors."""

    segment: int
    nbytes: int
    flags: int = 0
    reserved: int = 0
    name: bytes = b""
    TYPE: ClassVar[int] = 130
    FORMAT = Struct("<QQII64s")
    DESCRIPTORS: ClassVar[int] = 2

    def check(self) -> None:
        """Raise Malformed if the fields contradict the protocol."""
        _check_flags(self, self.flags, DEDICATED | NAMED | RING | DEVICE, self.reserved)
        if self.flags & RING and self.flags != RING | DEDICATED:
            raise Malformed(f"a ring cannot have the flags {self.flags:#x}")
        if self.flags & DEVICE:
            device_of(self.name)
        elif self.flags & NAMED or self.name:
            check_name(self.name)

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        """Decode the body. Raises Malformed."""
        found = super().unpack(body)
        return cls(found.segment, found.nbytes, found.flags, found.reserved, found.name.rstrip(b"\0"))


class Handle(_Named):
    """The name of an exported block."""

    TYPE: ClassVar[int] = 131


class Block(Message):
    """The block with a name."""

    segment: int
    block: int
    generation: int
    nbytes: int
    TYPE: ClassVar[int] = 132
    FORMAT = Struct("<QQQQ")


class Document(Message):
    """JSON of `nbytes` bytes, in a sealed memfd."""

    nbytes: int
    TYPE: ClassVar[int] = 133
    FORMAT = Struct("<Q")
    DESCRIPTORS: ClassVar[int] = 1


class Collected(Message):
    """The result of GC: tickets released, names removed, segments destroyed, their reserved bytes, locked segments."""

    tickets: int
    names: int
    segments: int
    nbytes: int
    busy: int
    TYPE: ClassVar[int] = 134
    FORMAT = Struct("<QQQQQ")


class Ok(Message):
    """Done."""

    TYPE: ClassVar[int] = 135


class Signal(Message):
    """The event of a ring: a pipe that is kept readable while messages wait."""

    TYPE: ClassVar[int] = 136
    DESCRIPTORS: ClassVar[int] = 1


class Role(Message):
    """The role of manager: the descriptors of the locked lock file and of the listening socket."""

    flags: int
    TYPE: ClassVar[int] = 137
    FORMAT = Struct("<I")
    DESCRIPTORS: ClassVar[int] = 2

    def check(self) -> None:
        """Raise Malformed if the fields contradict the protocol."""
        _check_flags(self, self.flags, OWN, 0)


class Error(Message):
    """A refusal: error code, detail (errno, or the manager's protocol version), text for the user."""

    code: int
    detail: int
    text: str
    TYPE: ClassVar[int] = 255
    FORMAT = Struct("<II")

    def pack(self) -> bytes:
        """Encode the body."""
        text = self.text.encode("utf-8", "replace")[:MAX_TEXT_BYTES]
        # The cut may be inside a character; the receiver must get valid UTF-8.
        return self.FORMAT.pack(self.code, self.detail) + text.decode("utf-8", "ignore").encode()

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        """Decode the body. Raises Malformed."""
        if not 8 <= len(body) <= 8 + MAX_TEXT_BYTES:
            raise Malformed(f"the body of Error has {len(body)} bytes instead of 8 to {8 + MAX_TEXT_BYTES}")
        code, detail = cls.FORMAT.unpack_from(body)
        try:
            return cls(code, detail, body[8:].decode())
        except UnicodeDecodeError:
            raise Malformed("the text of Error is not UTF-8") from None


REQUESTS: dict[int, type[Message]] = {
    cls.TYPE: cls
    for cls in (
        *(Hello, Embryo, Create, Map, Return, Export, Lookup, Unexport, List, Stats, Collect, Stop, Goodbye),
        *(Event, Bind, Rejoin, Restart, Succeed, CreateDevice, Give),
    )
}
REPLIES: dict[int, type[Message]] = {
    cls.TYPE: cls for cls in (Welcome, Segment, Handle, Block, Document, Collected, Ok, Signal, Role, Error)
}


def encode(message: Message, request_id: int = 0) -> bytes:
    """Encode a message as a packet. Raises Malformed: a field is out of range."""
    message.check()
    try:
        body = message.pack()
    except struct_error as problem:
        raise Malformed(f"{message!r} cannot be encoded: {problem}", request_id) from None
    return HEADER.pack(MAGIC, message.TYPE, 0, request_id, len(body)) + body


def _decode(data: bytes, table: dict[int, type[Message]], limit: int) -> tuple[int, Message]:
    if len(data) < HEADER.size:
        raise Malformed(f"a packet of {len(data)} bytes is shorter than the header of {HEADER.size}")
    magic, number, reserved, request_id, size = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise Malformed(f"the packet begins with {magic!r}, not {MAGIC!r}")
    if len(data) > limit:
        raise Malformed(f"the packet is longer than the limit of {limit} bytes", request_id)
    if size != len(data) - HEADER.size:
        raise Malformed(f"the header announces {size} bytes, but {len(data) - HEADER.size} came", request_id)
    if reserved:
        raise Malformed(f"the reserved field of the header is {reserved}, not 0", request_id)
    cls = table.get(number)
    if cls is None:
        raise Malformed(f"unknown message type {number}", request_id)
    try:
        message = cls.unpack(data[HEADER.size :])
        message.check()
    except Malformed as problem:
        raise Malformed(str(problem), request_id) from None
    return request_id, message


def decode_request(data: bytes) -> tuple[int, Message]:
    """Decode a client's packet. Returns (request id, message). Raises Malformed."""
    return _decode(data, REQUESTS, MAX_REQUEST_BYTES)


def decode_reply(data: bytes) -> tuple[int, Message]:
    """Decode a manager's packet. Returns (request id, message). Raises Malformed."""
    return _decode(data, REPLIES, MAX_REPLY_BYTES)
