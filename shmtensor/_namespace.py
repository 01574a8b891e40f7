"""The names of `shmtensor` that are not modules: torch's, and names of the array API that torch lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import dtypes
from ._loading import load as _load
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
from ._tensor.methods import Tensor as Tensor
from .accounts import memory_stats as memory_stats
from .allocators import MapFlags as MapFlags
from .devices import device as device
from .dtypes import dtype as dtype
from .dtypes import get_default_dtype as get_default_dtype
from .dtypes import set_default_dtype as set_default_dtype
from .gradients import enable_grad as enable_grad
from .gradients import inference_mode as inference_mode
from .gradients import is_grad_enabled as is_grad_enabled
from .gradients import is_inference_mode_enabled as is_inference_mode_enabled
from .gradients import no_grad as no_grad
from .gradients import set_grad_enabled as set_grad_enabled
from .layouts import channels_last as channels_last
from .layouts import channels_last_3d as channels_last_3d
from .layouts import contiguous_format as contiguous_format
from .layouts import layout as layout
from .layouts import memory_format as memory_format
from .layouts import preserve_format as preserve_format
from .layouts import strided as strided
from .random import Generator as Generator
from .random import default_generator as default_generator
from .random import get_rng_state as get_rng_state
from .random import initial_seed as initial_seed
from .random import manual_seed as manual_seed
from .random import seed as seed
from .random import set_rng_state as set_rng_state
from .storage import Storage as Storage
from .storage import UntypedStorage as UntypedStorage
from .storage.regions import StorageFlags as StorageFlags
from .storage.regions import empty_cache as empty_cache
from .threads import get_num_threads as get_num_threads
from .threads import set_num_threads as set_num_threads

_ON_DEMAND = {
    "load": "files", "save": "files", "pickling": "ipc.plain_pickle", "set_pickling": "ipc.plain_pickle",
    "get_printoptions": "_tensor.printing", "set_printoptions": "_tensor.printing",
}  # fmt: skip
# Those modules are rarely used, and most of them import many others.
# Names generated from the table of types: now for NumPy's types, on first use for others.
if TYPE_CHECKING:
    from ._tensor.printing import get_printoptions as get_printoptions
    from ._tensor.printing import set_printoptions as set_printoptions
    from ._tensor.typed import *
    from .files import load as load
    from .files import save as save
    from .ipc.plain_pickle import pickling as pickling
    from .ipc.plain_pickle import set_pickling as set_pickling
else:
    _typed = _load("_tensor.typed")

    def __getattr__(name: str) -> Any:
        if name in _ON_DEMAND:
            return getattr(_load(_ON_DEMAND[name]), name)
        return getattr(_typed, name)

    for _row in dtypes.ELEMENT_TYPES:
        for _name in (_row.name, f"{_row.prefix}Storage", f"{_row.prefix}Tensor"):
            globals()[_name] = getattr(_typed, _name)
    for _name in dtypes.ALIASES:
        globals()[_name] = getattr(_typed, _name)
    del annotations, Any, TYPE_CHECKING  # the names that are left are shmtensor's
