"""shmtensor: processes on one Linux machine share tensors without copying.

`shmtensor.multiprocessing` is the standard `multiprocessing`, with tensors that cross as handles. The module itself is
a namespace of the array API, with torch's names beside: `zeros`, `add`, `Tensor`, `FloatStorage`, `float32` ...

Everything is loaded on first use, so that `import shmtensor` costs nothing: the manager, which is a part of this
package, runs without NumPy. What is no module stands in `_namespace`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import allocators as allocators
    from . import atomics as atomics
    from . import dtypes as dtypes
    from . import errors as errors
    from . import fft as fft
    from . import linalg as linalg
    from . import manager as manager
    from . import multiprocessing as multiprocessing
    from . import storage as storage
    from ._namespace import *
    from ._namespace import __array_namespace_info__ as __array_namespace_info__

__version__ = "0.1.0"

_MODULES = frozenset(
    {"allocators", "atomics", "dtypes", "errors", "fft", "linalg", "manager", "multiprocessing", "storage"}
)


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name == "__all__":
        return __dir__()
    # Python itself looks for other names of this kind, and must not load NumPy by that.
    if not name.startswith("__") or name == "__array_namespace_info__":
        namespace = importlib.import_module("._namespace", __name__)
        value = getattr(namespace, name, namespace)
        if value is not namespace and name in _public(namespace):
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _public(namespace: Any) -> set[str]:
    return {name for name in vars(namespace) if not name.startswith("_")} | {"__array_namespace_info__"}


def __dir__() -> list[str]:
    import importlib

    namespace = importlib.import_module("._namespace", __name__)
    return sorted({*_public(namespace), *_MODULES, "__version__"} - {"annotations"})
