"""Messages to the supervisor that started this process, by the protocol of sd_notify(3): ready, stopping, keep these.

Only a manager that `serve` runs sends them. One in the background may have inherited the environment of another
service.
"""

from __future__ import annotations

import os
import socket
from re import compile as regex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

VARIABLE = "NOTIFY_SOCKET"
_KEPT = regex(r"shmtensor-[0-9a-f]{16}[.-][0-9]+")  # a group, or a segment: memory.group_name, payload_name
SEND_SECONDS = 1.0
"""Longest delay of the manager by a supervisor that does not read its messages."""


def is_supervised() -> bool:
    """Whether a supervisor expects messages."""
    return bool(os.environ.get(VARIABLE))


def ready(address: bytes) -> None:
    """Report that this process is the main one of its service, and serves. Also called after each restart."""
    _send(f"READY=1\nMAINPID={os.getpid()}\nSTATUS=serves {os.fsdecode(address)}")


def stopping() -> None:
    """Report that this process is going to end."""
    _send("STOPPING=1\nSTATUS=ends")


def is_kept_name(name: str) -> bool:
    """Whether `keep` is called with such a name."""
    return _KEPT.fullmatch(name) is not None


def keep(name: str, descriptors: Iterable[int]) -> None:
    """Have the supervisor keep descriptors, for the next process of the service if this one is killed."""
    _send(f"FDSTORE=1\nFDNAME={name}", descriptors)


def drop(name: str) -> None:
    """Have the supervisor close the descriptors that it keeps under a name."""
    _send(f"FDSTOREREMOVE=1\nFDNAME={name}")


def _send(text: str, descriptors: Iterable[int] = ()) -> None:
    """Send a message, if there is a supervisor. Blocks up to SEND_SECONDS. A supervisor that has ended is ignored."""
    path = os.environ.get(VARIABLE, "")
    if path[:1] not in ("/", "@"):
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.settimeout(SEND_SECONDS)
            sock.connect("\0" + path[1:] if path[0] == "@" else path)
            socket.send_fds(sock, [os.fsencode(text)], list(descriptors))
    except OSError:
        pass
