"""`listen` and `connect`."""

from __future__ import annotations

import hashlib
import os
import ssl
from math import isfinite
from time import monotonic, sleep, time_ns
from typing import Any, Final, Literal, overload

from ..errors import ConnectionLost, InvalidArgument, ManagerError, NameTaken, ProtocolError, ShmTensorError
from ..ipc.queues import MAX_BYTES, MAX_MESSAGES, bound
from ..ipc.reductions import name_of
from ..manager import client
from ..manager.shortage import parse_size
from . import handshake
from .address import Address, parse
from .channel import BroadcastChannel, Channel, RemoteChannel
from .end import CONNECTED, LISTENING, End
from .keys import Keys
from .state import Status

WINDOW: Final = "64M"
MAX_MESSAGE: Final = 2**36
TIMEOUT: Final = 5.0
PREFETCH: Final = 1
_TEMPORARY: Final = (ConnectionError, TimeoutError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Failures to connect that may be temporary. The last: what Python 3.11.2 reports when a TLS handshake breaks off."""
_PAUSE_SECONDS: Final = 0.05
_ATTEMPTS: Final = 3
"""Minimum number of attempts of `connect`, if the listening end does not answer."""


@overload
def listen(
    address: str,
    *,
    broadcast: Literal[True],
    maxsize: int,
    maxbytes: int = 0,
    policy: str | None = None,
    name: str | None = None,
    keys: str | os.PathLike[str] | None = None,
    encrypt: bool = True,
    pickle: bool = False,
    timeout: float = TIMEOUT,
    window: int | str = WINDOW,
    max_peers: int = 256,
    copy: bool = True,
) -> BroadcastChannel: ...
@overload
def listen(
    address: str,
    *,
    broadcast: Literal[False] = False,
    maxsize: int = 0,
    maxbytes: int = 0,
    name: str | None = None,
    keys: str | os.PathLike[str] | None = None,
    encrypt: bool = True,
    pickle: bool = False,
    timeout: float = TIMEOUT,
    window: int | str = WINDOW,
    max_peers: int = 256,
    copy: bool = True,
) -> Channel: ...
def listen(
    address: str,
    *,
    broadcast: bool = False,
    maxsize: int = 0,
    maxbytes: int = 0,
    policy: str | None = None,
    name: str | None = None,
    keys: str | os.PathLike[str] | None = None,
    encrypt: bool = True,
    pickle: bool = False,
    timeout: float = TIMEOUT,
    window: int | str = WINDOW,
    max_peers: int = 256,
    copy: bool = True,
) -> Channel | BroadcastChannel:
    """Open a channel, a queue or a broadcast, to which processes on any machine can connect. Blocks until it listens.

    It exists until no process of this machine has it open, and connected ends have received the messages inside.

    Args:
        address: `tcp://HOST:PORT`. Port 0: a free port, which `Channel.address` shows.
        broadcast: whether each reader receives each message; else a message goes to one `get`.
        maxsize: maximum number of messages inside, as for `multiprocessing.Queue`, or `Broadcast`, which needs one.
            Each connected end may have as many in transit to this end, and as many in its own queue.
        maxbytes: maximum number of bytes inside, as for `multiprocessing.Queue`.
        policy: policy of a broadcast, as for `multiprocessing.Broadcast`.
        name: makes this a named stream: messages and connections outlive the processes of this end, as long as the
            group of this machine exists; the next `listen` with this name continues. Letters, digits, '_', '-' and '.'.
        keys: a directory made by `shmtensor-manager keys`. Needed for every address other than the loopback.
        encrypt: with keys: encrypt everything; False: only check the keys when a connection begins. Must be the same at
            both ends.
        pickle: accept values that need pickle. Everyone who can connect can then run code here. Must be the same at
            both ends.
        timeout: seconds after which a silent end counts as dead. Its session ends, and messages in transit to it are
            dropped, unless it is a named stream.
        window: bytes that each connected end may have in transit to this end, as a number or as "64M". A single message
            may be larger.
        max_peers: maximum number of sessions at a time.
        copy: whether `put` copies tensors for other machines. False: a tensor is moved into shared memory if necessary,
            as by `Queue.put`, and sent from there with its whole storage. Do not write to it after `put`: the message
            could have old and new values.

    Raises:
        InvalidArgument: a malformed argument, or no keys for an address that is not on the loopback.
        ShmTensorError: the address is in use, or cannot be used here.
        OutOfMemory, ManagerError: see `shmtensor.errors`.
    """
    where = parse(address)
    config = _config(LISTENING, where, broadcast, name, keys, encrypt, pickle, timeout, window, copy)
    bounds: dict[str, Any] = {
        "maxsize": bound(maxsize, "maxsize", MAX_MESSAGES),
        "maxbytes": bound(maxbytes, "maxbytes", MAX_BYTES),
    }
    if broadcast:
        bounds["policy"] = policy
    elif policy is not None:
        raise InvalidArgument("policy is for broadcasts; a queue keeps all messages until they are taken")
    if type(max_peers) is not int or not 1 <= max_peers <= 65536:
        raise InvalidArgument(f"max_peers must be an integer from 1 to 65536, not {max_peers!r}")
    end = _named(config)
    if end is None:
        return _linked(_made(config, bounds, max_peers))
    given = {what: bounds[what] for what in ("maxsize", "maxbytes")}
    for what, there in zip(given, end.outbox._ring.limits(), strict=True):
        if given[what] not in (0, there):
            raise InvalidArgument(
                f"the stream {name!r} exists with {what}={there}, not {given[what]}; leave {what} out, or use another "
                "name"
            )
    return _linked(end)


@overload
def connect(
    address: str,
    *,
    broadcast: Literal[True],
    name: str | None = None,
    keys: str | os.PathLike[str] | None = None,
    encrypt: bool = True,
    pickle: bool = False,
    timeout: float = TIMEOUT,
    window: int | str = WINDOW,
    prefetch: int = PREFETCH,
    copy: bool = True,
) -> BroadcastChannel: ...
@overload
def connect(
    address: str,
    *,
    broadcast: Literal[False] = False,
    name: str | None = None,
    keys: str | os.PathLike[str] | None = None,
    encrypt: bool = True,
    pickle: bool = False,
    timeout: float = TIMEOUT,
    window: int | str = WINDOW,
    prefetch: int = PREFETCH,
    copy: bool = True,
) -> Channel: ...
def connect(
    address: str,
    *,
    broadcast: bool = False,
    name: str | None = None,
    keys: str | os.PathLike[str] | None = None,
    encrypt: bool = True,
    pickle: bool = False,
    timeout: float = TIMEOUT,
    window: int | str = WINDOW,
    prefetch: int = PREFETCH,
    copy: bool = True,
) -> Channel | BroadcastChannel:
    """Connect to a channel. Blocks until the listening end answers, up to `timeout` seconds.

    A process that can read a random number in the shared memory of the listening end uses its queue directly, without
    the network. All other processes have their own queues, and a link process.

    Args:
        address: as for `listen`.
        broadcast: as for `listen`.
        name: makes this a named stream: undelivered messages outlive the processes of this end, as long as the group of
            this machine exists; the next `connect` with this name continues. One end at a time.
        keys: as for `listen`.
        encrypt: as for `listen`.
        pickle: as for `listen`.
        timeout: seconds to wait for the listening end, and seconds of silence after which it counts as dead. A named
            stream waits without limit.
        window: bytes that may be in transit to this end, as for `listen`.
        prefetch: number of messages that may be fetched ahead of this end's calls of `get`. 1: a message is fetched
            when a process asks for it, which takes a round trip each time. More is faster, but other ends cannot get
            messages that were fetched for this one.
        copy: as for `listen`, for what is put at this end.

    Raises:
        InvalidArgument: a malformed argument, or no keys for an address that is not on the loopback.
        ConnectionLost: nothing listens there in time, the keys do not match, or the listening end refuses this one; the
            message has the reason.
        OutOfMemory, ManagerError: see `shmtensor.errors`.
    """
    where = parse(address)
    if where.port == 0:
        raise InvalidArgument(f"{address!r} has no port; connect to the one that the listening end's `address` has")
    if type(prefetch) is not int or not 1 <= prefetch <= 2**31:
        raise InvalidArgument(f"prefetch must be an integer of at least 1, not {prefetch!r}")
    config = _config(CONNECTED, where, broadcast, name, keys, encrypt, pickle, timeout, window, copy)
    known = _named(config)
    if known is not None:
        return _linked(known)
    welcome = _probe(where, config)
    local = _local(welcome)
    if local is not None:
        return _channel(local)
    bounds = {"maxsize": welcome["maxsize"], "maxbytes": welcome["maxbytes"]}
    config |= {
        "prefetch": prefetch,
        "session": _session(name),
        "incarnation": time_ns(),
        "broadcast": {"maxsize": welcome["maxsize"], "policy": welcome["policy"]},
    }
    return _linked(_made(config, bounds, 1))


def _config(
    role: str, where: Address, broadcast: bool, name: str | None, keys: Any, encrypt: bool, pickle: bool,
    timeout: float, window: int | str, copy: bool,
) -> dict[str, Any]:  # fmt: skip
    if name is not None:
        name_of(name)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not isfinite(timeout) or timeout < 0.1:
        raise InvalidArgument(f"timeout must be a number of seconds, 0.1 or more, not {timeout!r}")
    try:
        nbytes = parse_size(window) if isinstance(window, str) else int(window)
    except (ValueError, TypeError):
        nbytes = 0
    if not 1 <= nbytes < 2**62:
        raise InvalidArgument(f"window must be a number of bytes such as '64M', not {window!r}")
    directory = None if keys is None else os.path.abspath(keys)  # noqa: PTH100
    if directory is not None:
        Keys(directory)
    elif not where.is_loopback:
        raise InvalidArgument(
            f"{where} can be reached from other machines, so it needs keys: make them with `shmtensor-manager "
            "keys DIRECTORY`, and pass keys=DIRECTORY (docs/channel.md)"
        )
    return {
        "role": role, "kind": "broadcast" if broadcast else "queue", "host": where.host, "port": where.port,
        "stream": name, "keys": directory, "encrypt": bool(encrypt), "pickle": bool(pickle), "timeout": float(timeout),
        "window": nbytes, "max_message": MAX_MESSAGE, "copy": bool(copy),
        "group": client.default().stats().group,
    }  # fmt: skip


def _session(name: str | None) -> str:
    return (os.urandom(16) if name is None else hashlib.sha256(name.encode()).digest()[:16]).hex()


def _named(config: dict[str, Any]) -> End | None:
    """Return the existing end of a named stream. Raises InvalidArgument: it has other settings."""
    if config["stream"] is None:
        return None
    end = End.find(client.default(), End.name_of(config))
    if end is None:
        return None
    if end.config["role"] == LISTENING and not end.state.port and not end.is_linked():  # it has never listened
        end.change({"host": config["host"], "port": config["port"]})
    for what in ("kind", "host", "port", "pickle", "keys", "encrypt", "timeout", "window", "copy"):
        there = (end.state.port or end.config[what]) if what == "port" else end.config[what]
        if there != config[what] and (what != "port" or config[what]):
            raise InvalidArgument(
                f"the stream {config['stream']!r} exists with {what}={there!r}, not {config[what]!r}; use the same, or "
                "another name"
            )
    return end


def _made(config: dict[str, Any], bounds: dict[str, Any], rows: int) -> End:
    """Create an end, or return the one of that name that another process has created meanwhile."""
    try:
        return End.make(config, bounds, rows)
    except NameTaken:
        end = _named(config)
        if end is None:
            raise
        return end


def _probe(where: Address, config: dict[str, Any]) -> dict[str, Any]:
    """Return the WELCOME of the listening end. Raises ConnectionLost."""
    deadline = monotonic() + config["timeout"]
    keys = None if config["keys"] is None else Keys(config["keys"])
    hello = {"kind": config["kind"], "pickle": config["pickle"], "session": None}
    while True:
        try:
            seconds = min(handshake.SECONDS, config["timeout"] / _ATTEMPTS, deadline - monotonic())
            connection, welcome = handshake.connect(where, keys, config["encrypt"], hello, max(0.1, seconds))
        except handshake.Refused as refusal:
            raise ConnectionLost(str(refusal)) from None
        except (OSError, ProtocolError) as problem:
            # The listening end may be starting, or was killed and the network still shows it as alive.
            if monotonic() > deadline or not isinstance(problem, _TEMPORARY):
                raise ConnectionLost(f"cannot connect to {where}: {problem}{_advice(problem, config)}") from None
            sleep(_PAUSE_SECONDS)
            continue
        connection.close()
        try:
            for field, kind in (("maxsize", int), ("maxbytes", int), ("check", str), ("boot", str), ("name", str)):
                if not isinstance(welcome[field], kind):
                    raise KeyError(field)
            if config["kind"] == "broadcast" and welcome["policy"] not in ("block", "drop_oldest", "raise"):
                raise KeyError("policy")
        except KeyError as lacking:
            raise ConnectionLost(
                f"the WELCOME of {where} lacks {lacking}; use the same version of shmtensor on both sides"
            ) from None
        return welcome


def _advice(problem: Exception, config: dict[str, Any]) -> str:
    if isinstance(problem, ProtocolError) or config["keys"] is not None or isinstance(problem, ConnectionRefusedError):
        return ""
    return "; if it listens with keys, this end needs keys as well"


def _local(welcome: dict[str, Any]) -> End | None:
    """Return the listening end if its memory belongs to this group, as a random number in that memory proves."""
    manager = client.default()
    if welcome["boot"] != handshake.boot_id() or welcome.get("group") != manager.stats().group:
        return None
    try:
        end = End.find(manager, welcome["name"])
    except (ManagerError, InvalidArgument):
        return None
    if end is None or hashlib.sha256(end.state.nonce).hexdigest() != welcome["check"]:
        return None
    return end


def _linked(end: End) -> Channel | BroadcastChannel:
    """Return the channel of an end once its link process works. Raises the problem of that process."""
    if end.state.status == Status.lost:
        end.state.text = ""
        end.state.status = Status.starting
    end.link()
    if end.state.status == Status.lost:
        reason = end.state.text
        raise (ShmTensorError if end.config["role"] == LISTENING else ConnectionLost)(reason)
    return _channel(end)


def _channel(end: End) -> Channel | BroadcastChannel:
    if end.config["kind"] == "broadcast":
        return BroadcastChannel(end)
    return Channel(end) if end.config["role"] == LISTENING else RemoteChannel(end)
