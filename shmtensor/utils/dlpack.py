"""DLPack under torch's names: `utils.dlpack.from_dlpack` and `to_dlpack`. Nothing in this module blocks."""

from __future__ import annotations

from .._tensor.dlpack import from_dlpack as from_dlpack
from .._tensor.dlpack import to_dlpack as to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
