"""Storages: typed, flat memory. `Storage`, and a class for each element type: FloatStorage, IntStorage, ..."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any

import numpy as np

from ..dtypes import DTYPES, ElementType, class_named, each_type
from .base import STORAGE_CLASSES as STORAGE_CLASSES
from .storage import Storage as Storage
from .storage import _rebuild_on_device as _rebuild_on_device
from .storage import _rebuild_part as _rebuild_part
from .storage import _rebuild_storage as _rebuild_storage


def _make_class(row: ElementType) -> None:
    name = f"{row.prefix}Storage"
    whole = cleandoc(Storage.__doc__ or "")
    doc = f"Storage of {row.name} elements.\n\n{whole.partition('.')[2].partition('.')[2].strip()}"
    types = {"dtype": DTYPES[row.dtype], "_dtype": row.dtype}
    body = {"__slots__": (), "__module__": __name__, "__qualname__": name, "__doc__": doc, **types}
    globals()[name] = STORAGE_CLASSES[row.dtype] = type(name, (Storage,), body)


each_type(_make_class)

UntypedStorage: type[Storage] = STORAGE_CLASSES[np.dtype(np.uint8)]
"""torch's name for the class of `storage.untyped()`: ByteStorage."""


def __getattr__(name: str) -> Any:
    return class_named(globals(), name, "Storage")
