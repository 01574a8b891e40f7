"""The objects generated from the table of element types: the dtype, storage class and tensor class of each.

Type checkers, which see no generated classes, read `typed.pyi`, which is made from the table by tools/stubs.py.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes, storage
from . import core

__all__ = [
    *dtypes.ALIASES,
    *[name for row in dtypes.TABLE for name in (row.name, f"{row.prefix}Storage", f"{row.prefix}Tensor")],
]


def __getattr__(name: str) -> Any:
    if name in dtypes.BY_NAME or name in dtypes.ALIASES:
        return getattr(dtypes, name)
    for suffix, module in (("Storage", storage), ("Tensor", core)):
        if name.endswith(suffix) and name.removesuffix(suffix) in dtypes.BY_PREFIX:
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
