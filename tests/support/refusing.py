"""A system that refuses: limits of this process for a moment, and functions that raise."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def limited(kind: int, number: int) -> Iterator[None]:
    """Lower a soft limit of this process."""
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (number, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def failing(number: int) -> Callable[..., Any]:
    """A function that fails as a system call with this error does."""

    def fail(*_arguments: object, **_named: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def free_descriptor() -> int:
    """The number that the next descriptor has."""
    number = os.dup(0)
    os.close(number)
    return number


def open_descriptors() -> list[str]:
    """The descriptors of this process, without those of garbage."""
    gc.collect()
    return sorted(path.name for path in list(Path("/proc/self/fd").iterdir()) if path.is_symlink())
