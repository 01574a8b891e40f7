"""Addresses of channels: `tcp://host:port`."""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple

from ..errors import InvalidArgument

SCHEME = "tcp://"


class Address(NamedTuple):
    """The address at which a channel listens."""

    host: str
    """A host name or an IP address, without brackets."""
    port: int

    def __str__(self) -> str:
        return f"{SCHEME}[{self.host}]:{self.port}" if ":" in self.host else f"{SCHEME}{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether the host resolves only to this machine's loopback addresses. May block for a name server."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError:
            return False
        return all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)


def parse(text: str) -> Address:
    """Parse an address such as "tcp://10.0.0.1:7000" or "tcp://[::1]:7000".

    Port 0, for a channel that listens, lets the system choose one.

    Raises:
        InvalidArgument: it is not an address.
    """
    wanted = f"{text!r} is not an address of a channel; use tcp://HOST:PORT, such as 'tcp://127.0.0.1:7000'"
    if not isinstance(text, str) or not text.startswith(SCHEME):
        raise InvalidArgument(wanted)
    host, colon, port = text.removeprefix(SCHEME).rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or not port.isdecimal() or int(port) > 65535 or (":" in bare) != (bare != host):
        raise InvalidArgument(wanted)
    try:
        bare.encode("idna")  # as the resolver does
    except UnicodeError as error:
        raise InvalidArgument(
            f"{wanted}; the name of the host is invalid: a part of it is empty, too long (63 bytes at most), or has "
            "characters that are not allowed"
        ) from error
    return Address(bare, int(port))
