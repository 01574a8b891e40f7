"""shmtensor: processes on one Linux machine share tensors without copying.

`shmtensor.multiprocessing` is the standard `multiprocessing` with tensors sent as handles. This module has
torch's names: `zeros`, `add`, `Tensor`, `FloatStorage`, `float32`, ...; `shmtensor.array_api` is a namespace of the
array API.

Everything is imported on first use, because the manager, which is part of this package, runs without NumPy. All names
that are not modules are in `_namespace`.
"""

from __future__ import annotations

from importlib import import_module as _import_module

from ._loading import load as _load

TYPE_CHECKING = False  # typing costs time at every start of a manager
if TYPE_CHECKING:
    from typing import Any

    from . import allocators as allocators
    from . import array_api as array_api
    from . import atomics as atomics
    from . import autograd as autograd
    from . import cuda as cuda
    from . import data as data
    from . import dtypes as dtypes
    from . import errors as errors
    from . import fft as fft
    from . import files as files
    from . import hogwild as hogwild
    from . import hooks as hooks
    from . import integrations as integrations
    from . import linalg as linalg
    from . import manager as manager
    from . import multiprocessing as multiprocessing
    from . import nn as nn
    from . import optim as optim
    from . import random as random
    from . import special as special
    from . import storage as storage
    from . import utils as utils
    from ._namespace import *
    from ._namespace import __array_api_version__ as __array_api_version__
    from ._namespace import __array_namespace_info__ as __array_namespace_info__

__version__ = "0.1.0"

_MODULES = ("allocators", "array_api", "atomics", "autograd", "cuda", "data", "dtypes", "errors", "fft", "files",
            "hogwild", "hooks", "integrations", "linalg", "manager", "multiprocessing", "nn", "optim", "random",
            "special", "storage", "utils")  # fmt: skip
_API = ("__array_api_version__", "__array_namespace_info__")


def _find(name: str) -> Any:
    import builtins
    from importlib.util import find_spec

    if name in _MODULES:
        return _import_module(f".{name}", __name__)  # not `load`: imports of this package also call this function
    if name == "__all__":  # a star import must not hide abs, bool, sum ...
        return [public for public in __dir__() if not hasattr(builtins, public)]
    # Python also looks up special names and submodules here, which must not import NumPy.
    if name in _API or not (name.startswith("_") or find_spec(f"{__name__}.{name}")):
        namespace = _load("_namespace")
        try:
            value = globals()[name] = getattr(namespace, name)
            return value
        except AttributeError:
            pass
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ._missing import missing

    raise missing(__name__, name, __dir__)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__ = _find


def __dir__() -> list[str]:
    public = {name for name in dir(_load("_namespace")) if not name.startswith("_")}
    return sorted({*public, *_API, *_MODULES, "__version__"})
