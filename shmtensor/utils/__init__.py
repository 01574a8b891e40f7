"""Tools around tensors, under torch's names: `utils.dlpack`."""

from __future__ import annotations

from . import dlpack as dlpack

__all__ = ["dlpack"]
