"""Arguments that commands share: the manager (`--address`, the environment, or the only one), and seconds."""

# pathlib costs time at every start of a manager.
# ruff: noqa: PTH118, PTH123, PTH208

from __future__ import annotations

import json
import os
from argparse import ArgumentTypeError

from shmtensor.errors import ManagerError
from shmtensor.manager import address as addresses
from shmtensor.manager import protocol
from shmtensor.manager.connection import REQUEST_SECONDS, Observer
from shmtensor.manager.lockfile import runs_at
from shmtensor.manager.shortage import command_of

ANSWER_SECONDS = 5.0
"""How long a command waits for an answer, and `restart` for the end of the manager that it replaces."""
SHOW_PROGRAMS = 5
"""Clients shown for each manager if there are several to choose from."""


def seconds(text: str) -> float:
    """Parse an option that is a number of seconds. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"{text} is not a number of seconds >= 0")
    return value


def candidates(address: str | None) -> list[bytes]:
    """Return the addresses to try: the given one, or else those of all managers of this user."""
    chosen = address or os.environ.get(addresses.MANAGER_VARIABLE)
    if chosen:
        return [addresses.check_address(chosen)]
    directory = addresses.runtime_path()
    if os.environ.get(addresses.GROUP_VARIABLE):
        return [addresses.group_address(directory, addresses.group_token() or "")]
    found = {os.fsencode(path) for path in sockets(directory)}
    if not os.environ.get(addresses.RUNTIME_VARIABLE):
        found |= _listed_by_the_kernel()
    return sorted(path for path in found if runs_at(path)) or [addresses.shared_address(directory)]


def sockets(directory: str) -> list[str]:
    """Return the paths of the managers' sockets in a directory."""
    try:
        return sorted(os.path.join(directory, entry) for entry in os.listdir(directory) if entry.endswith(".sock"))
    except OSError:
        return []


def _listed_by_the_kernel() -> set[bytes]:
    """Return the paths of all unix sockets."""
    try:
        with open("/proc/net/unix", "rb") as file:
            return {words[7] for words in map(bytes.split, file) if len(words) == 8 and words[7].startswith(b"/")}
    except OSError:
        return set()


def choose(address: str | None) -> bytes:
    """Return the given address, or that of the only manager, or the user's own address if none runs.

    Raises:
        ManagerError: several run; the message lists them.
    """
    found = candidates(address)
    if len(found) > 1:
        rows = "\n".join(f"  {os.fsdecode(one)}  {_programs(one)}" for one in found)
        raise ManagerError(
            f"{len(found)} managers of this user are running; choose one with --address (`status --all` shows all "
            f"in a directory):\n{rows}"
        )
    return found[0]


def observe(address: str | None, timeout: float = REQUEST_SECONDS) -> Observer:
    """Connect to the chosen manager, or to the only one.

    Raises:
        ManagerError: a manager refused, none runs, or several run (the message lists them).
    """
    return Observer(choose(address), timeout)


def _programs(address: bytes) -> str:
    """Describe the clients of a manager in one line."""
    try:
        with Observer(address, ANSWER_SECONDS) as observer:
            clients = json.loads(observer.document(protocol.List()))["clients"]
    except ManagerError as problem:
        return str(problem)
    pids = [row["pid"] for row in clients if row["state"] == "client"]
    shown = [f"{command_of(pid) or '?'} (pid {pid})" for pid in pids[:SHOW_PROGRAMS]]
    if len(pids) > SHOW_PROGRAMS:
        shown.append(f"and {len(pids) - SHOW_PROGRAMS} more")
    return ", ".join(shown) or "no clients"
