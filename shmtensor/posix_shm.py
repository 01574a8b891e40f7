"""POSIX shared-memory objects, as shm_open(3) and shm_unlink(3) make them on Linux: files in /dev/shm."""

from __future__ import annotations

import os

_DIRECTORY = "/dev/shm"


def open_shm(name: str, flags: int = 0) -> int:
    """Open or create an object for reading and writing, for this user alone. Does not block.

    Args:
        name: a slash and up to 254 other characters.
        flags: os.O_CREAT, os.O_EXCL or 0.

    Returns:
        A descriptor, which child programs do not inherit.

    Raises:
        FileExistsError, FileNotFoundError, PermissionError: as open(2).
        OSError: of open(2); ELOOP for a symbolic link.
        ValueError: the name has another slash or a null character.
    """
    return os.open(_path(name), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)


def unlink_shm(name: str) -> None:
    """Remove an object's name; mappings and descriptors keep its memory. Does not block. Raises as `open_shm`."""
    os.unlink(_path(name))  # noqa: PTH108


def _path(name: str) -> str:
    if name[:1] != "/" or "/" in name[1:]:
        raise ValueError(f"{name!r} is not a name of a shared-memory object, which is a slash and other characters")
    return _DIRECTORY + name
