"""shmtensor: processes on one Linux machine share tensors without copying.

Everything here is loaded on first use, so that `import shmtensor` costs nothing: the manager, which is a part of this
package, runs without NumPy. `shmtensor.errors` (every error), `shmtensor.allocators`, `shmtensor.atomics`,
`shmtensor.manager` and `shmtensor.multiprocessing` are modules; what else stands in `__all__` comes from modules of the
tensor layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import allocators as allocators
    from . import atomics as atomics
    from . import dtypes as dtypes
    from . import errors as errors
    from . import files as files
    from . import manager as manager
    from . import multiprocessing as multiprocessing
    from . import storage as storage
    from ._tensor import BoolTensor as BoolTensor
    from ._tensor import ByteTensor as ByteTensor
    from ._tensor import CharTensor as CharTensor
    from ._tensor import DoubleTensor as DoubleTensor
    from ._tensor import FloatTensor as FloatTensor
    from ._tensor import HalfTensor as HalfTensor
    from ._tensor import IntTensor as IntTensor
    from ._tensor import LongTensor as LongTensor
    from ._tensor import ShortTensor as ShortTensor
    from ._tensor import Tensor as Tensor
    from .allocators import MapFlags as MapFlags
    from .creation import arange as arange
    from .creation import empty as empty
    from .creation import from_numpy as from_numpy
    from .creation import full as full
    from .creation import ones as ones
    from .creation import tensor as tensor
    from .creation import zeros as zeros
    from .dtypes import bool_ as bool_
    from .dtypes import float16 as float16
    from .dtypes import float32 as float32
    from .dtypes import float64 as float64
    from .dtypes import int8 as int8
    from .dtypes import int16 as int16
    from .dtypes import int32 as int32
    from .dtypes import int64 as int64
    from .dtypes import uint8 as uint8
    from .files import load as load
    from .files import save as save
    from .memory import StorageFlags as StorageFlags
    from .memory import empty_cache as empty_cache
    from .storage import BoolStorage as BoolStorage
    from .storage import ByteStorage as ByteStorage
    from .storage import CharStorage as CharStorage
    from .storage import DoubleStorage as DoubleStorage
    from .storage import FloatStorage as FloatStorage
    from .storage import HalfStorage as HalfStorage
    from .storage import IntStorage as IntStorage
    from .storage import LongStorage as LongStorage
    from .storage import ShortStorage as ShortStorage
    from .storage import Storage as Storage

__version__ = "0.1.0"

_MODULES = frozenset({"allocators", "atomics", "dtypes", "errors", "files", "manager", "multiprocessing", "storage"})
_TYPES = ("Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "Bool")
_DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool_")
_CREATION = ("arange", "empty", "from_numpy", "full", "ones", "tensor", "zeros")
_HOME = {
    **dict.fromkeys(_CREATION, "creation"),
    **dict.fromkeys(_DTYPES, "dtypes"),
    **dict.fromkeys(["Storage", *(f"{name}Storage" for name in _TYPES)], "storage"),
    **dict.fromkeys(["Tensor", *(f"{name}Tensor" for name in _TYPES)], "_tensor"),
    "MapFlags": "allocators",
    "load": "files",
    "save": "files",
    "StorageFlags": "memory",
    "empty_cache": "memory",
}

__all__ = [
    "__version__",
    *sorted(_MODULES),
    *sorted(_HOME),
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f".{home}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
