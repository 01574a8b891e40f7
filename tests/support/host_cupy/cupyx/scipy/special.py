"""Special functions on arrays of the stand-in for CuPy: those that CuPy 14 has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cupy
from scipy import special

_NAMES = frozenset(
    (Path(__file__).parent / "names.txt").read_text().split()  # that CuPy 14 has
)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'cupyx.scipy.special' has no attribute {name!r}")
    return cupy._function(special, name)
