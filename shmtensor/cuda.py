"""What programs ask of `torch.cuda` before they choose a device. This version has tensors on the CPU only.

Nothing in this module blocks.
"""

from __future__ import annotations

from typing import Any

from ._missing import suggest as _suggest

__all__ = [
    "device_count", "empty_cache", "is_available", "is_initialized", "manual_seed", "manual_seed_all",
]  # fmt: skip


def is_available() -> bool:
    """False: tensors are on the CPU."""
    return False


def device_count() -> int:
    """0: there is no GPU for tensors."""
    return 0


def is_initialized() -> bool:
    """False."""
    return False


def empty_cache() -> None:
    """Nothing: no memory of a GPU is cached. `shmtensor.empty_cache` is for memory of the CPU."""


def manual_seed(seed: Any) -> None:
    """Nothing: there is no generator of a GPU. `shmtensor.manual_seed` is for the one that there is."""


def manual_seed_all(seed: Any) -> None:
    """Nothing: there are no generators of GPUs."""


_suggest(globals())
