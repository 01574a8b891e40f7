"""The sharing strategy of this process: how its new segments are made."""

from __future__ import annotations

from shmtensor import errors

STRATEGIES = ("file_descriptor", "file_system")

_strategy = "file_descriptor"


def strategy() -> str:
    """Return how new segments are made: "file_descriptor" (sealed memfds) or "file_system" (POSIX shm objects)."""
    return _strategy


def set_strategy(name: str) -> None:
    """Choose how new segments of this process are made. Raises InvalidArgument."""
    global _strategy
    if name not in STRATEGIES:
        raise errors.InvalidArgument(f"unknown sharing strategy {name!r}; choose one of {', '.join(STRATEGIES)}")
    _strategy = name
