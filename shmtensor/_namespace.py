"""The names of `shmtensor` that are not modules: torch's, and names of the array API that torch lacks.

The module of each is imported at its first use, unless every tensor needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import dtypes as _dtypes
from ._loading import load as _load
from ._tensor.methods import Tensor as Tensor
from .devices import device as device
from .dtypes import dtype as dtype
from .dtypes import get_default_dtype as get_default_dtype
from .dtypes import set_default_dtype as set_default_dtype
from .layouts import channels_last as channels_last
from .layouts import channels_last_3d as channels_last_3d
from .layouts import contiguous_format as contiguous_format
from .layouts import layout as layout
from .layouts import memory_format as memory_format
from .layouts import preserve_format as preserve_format
from .layouts import strided as strided
from .storage import Storage as Storage
from .storage import UntypedStorage as UntypedStorage
from .storage.regions import StorageFlags as StorageFlags
from .storage.regions import empty_cache as empty_cache

if TYPE_CHECKING:  # one line for each name of _OTHERS, functions of tensors, and names made from the table of types
    from ._tensor.conversions import Size as Size
    from ._tensor.conversions import set_default_tensor_type as set_default_tensor_type
    from ._tensor.functions import *
    from ._tensor.functions import __array_namespace_info__ as __array_namespace_info__
    from ._tensor.inspection import __array_api_version__ as __array_api_version__
    from ._tensor.inspection import e as e
    from ._tensor.inspection import inf as inf
    from ._tensor.inspection import nan as nan
    from ._tensor.inspection import newaxis as newaxis
    from ._tensor.inspection import pi as pi
    from ._tensor.printing import get_printoptions as get_printoptions
    from ._tensor.printing import set_printoptions as set_printoptions
    from ._tensor.typed import *
    from .accounts import memory_stats as memory_stats
    from .allocators import MapFlags as MapFlags
    from .autograd.modes import enable_grad as enable_grad
    from .autograd.modes import inference_mode as inference_mode
    from .autograd.modes import is_grad_enabled as is_grad_enabled
    from .autograd.modes import is_inference_mode_enabled as is_inference_mode_enabled
    from .autograd.modes import no_grad as no_grad
    from .autograd.modes import set_grad_enabled as set_grad_enabled
    from .files import load as load
    from .files import save as save
    from .ipc.plain_pickle import pickling as pickling
    from .ipc.plain_pickle import set_pickling as set_pickling
    from .random import Generator as Generator
    from .random import default_generator as default_generator
    from .random import get_rng_state as get_rng_state
    from .random import initial_seed as initial_seed
    from .random import manual_seed as manual_seed
    from .random import seed as seed
    from .random import set_rng_state as set_rng_state
    from .store import Store as Store
    from .threads import get_num_threads as get_num_threads
    from .threads import set_num_threads as set_num_threads

_OTHERS = {
    "_tensor.conversions": "Size set_default_tensor_type",
    "_tensor.inspection": "__array_api_version__ e inf nan newaxis pi",
    "_tensor.printing": "get_printoptions set_printoptions",
    "accounts": "memory_stats",
    "allocators": "MapFlags",
    "autograd.modes": "enable_grad inference_mode is_grad_enabled is_inference_mode_enabled no_grad set_grad_enabled",
    "files": "load save",
    "ipc.plain_pickle": "pickling set_pickling",
    "random": "Generator default_generator get_rng_state initial_seed manual_seed seed set_rng_state",
    "store": "Store",
    "threads": "get_num_threads set_num_threads",
}
_PLACES = {name: module for module, names in _OTHERS.items() for name in names.split()}


def _find(name: str) -> Any:
    functions = _load("_tensor.functions")
    if name in _PLACES:
        return getattr(_load(_PLACES[name]), name)
    return getattr(functions if name in functions.__all__ else _load("_tensor.typed"), name)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__ = _find


def __dir__() -> list[str]:
    here = {name for name in globals() if not name.startswith("_")} - {"annotations", "Any", "TYPE_CHECKING"}
    typed = {
        name for row in _dtypes.ELEMENT_TYPES for name in (row.name, f"{row.prefix}Storage", f"{row.prefix}Tensor")
    }
    return sorted({*here, *typed, *_dtypes.ALIASES, *_PLACES, *_load("_tensor.functions").__all__})
