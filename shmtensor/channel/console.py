"""The command `shmtensor-manager keys`: makes the keys of a channel's end (docs/channel.md)."""

from __future__ import annotations

import argparse
import socket
from typing import Any

from ..manager.cli import say
from . import keys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("directory", metavar="DIRECTORY", help="directory of the keys; created if missing")
    parser.add_argument("--name", default=socket.gethostname(), help="name in the certificate (default: the host name)")


def run(options: Any) -> int:
    """Make the keys, and print what to do with them. Returns the exit code."""
    certificate = keys.make(options.directory, options.name)
    peers = certificate.parent / keys.PEERS
    say(
        options,
        {"certificate": str(certificate), "peers": str(peers)},
        f"made {certificate.parent}\n"
        f"copy {certificate} into peers/ of each end that this one connects with, as any NAME.pem,\n"
        f"and their certificates into {peers}",
    )
    return 0
