"""Messages to the supervisor that started this process, by the protocol of sd_notify(3): ready, stopping.

Only a manager that `serve` runs sends them. One in the background may have inherited the environment of another
service.
"""

from __future__ import annotations

import os
import socket

VARIABLE = "NOTIFY_SOCKET"
SEND_SECONDS = 1.0
"""A supervisor that does not read its messages delays the manager by this long at most."""


def is_supervised() -> bool:
    """Whether a supervisor wants messages."""
    return bool(os.environ.get(VARIABLE))


def ready(address: bytes) -> None:
    """Report that this process is the main one of its service, and serves. After each restart, too."""
    _send(f"READY=1\nMAINPID={os.getpid()}\nSTATUS=serves {os.fsdecode(address)}")


def stopping() -> None:
    """Report that this process is going to end."""
    _send("STOPPING=1\nSTATUS=ends")


def _send(text: str) -> None:
    """Send a message, if there is a supervisor. Blocks up to SEND_SECONDS. A supervisor that has gone is ignored."""
    path = os.environ.get(VARIABLE, "")
    if path[:1] not in ("/", "@"):
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.settimeout(SEND_SECONDS)
            sock.sendto(os.fsencode(text), ("\0" + path[1:] if path[0] == "@" else path))
    except OSError:
        pass
