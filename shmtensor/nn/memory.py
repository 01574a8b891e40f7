"""Keeping the memory that a training step frees in the process, for the next step. Nothing in this module blocks."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import numpy as np

_LARGEST: Final = (32 << 20) - (64 << 10)
"""Bytes of the largest block by which glibc learns (DEFAULT_MMAP_THRESHOLD_MAX), with room for its header."""


def keep_freed_memory() -> None:
    """Have glibc keep up to 64 MiB of freed memory, instead of giving it to the kernel after each step.

    A step frees all of its arrays at its end. glibc gives them back to the kernel, unless it has seen that blocks of
    this size come and go; the next step then waits for the kernel to clear each page again. One block that is allocated
    and freed, without being touched, lets it see that (mallopt(3), "M_MMAP_THRESHOLD"). It has no effect if the user
    has set MALLOC_TRIM_THRESHOLD_ or a related variable, or with another C library.
    """
    with suppress(MemoryError):  # a limit of address space; without the block, steps are only slower
        np.empty(_LARGEST, np.uint8)
