"""The names of `shmtensor` that are not modules: the array API's namespace and torch's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import dtypes
from ._loading import load as _load
from ._tensor.creation import *
from ._tensor.dlpack import *
from ._tensor.elementwise import *
from ._tensor.inspection import *
from ._tensor.methods import Tensor as Tensor
from ._tensor.methods import addcdiv as addcdiv
from ._tensor.methods import addcmul as addcmul
from ._tensor.products import *
from ._tensor.selection import *
from ._tensor.shapes import *
from ._tensor.sorting import *
from ._tensor.special import *
from ._tensor.statistical import *
from .accounts import memory_stats as memory_stats
from .allocators import MapFlags as MapFlags
from .linalg.routines import *
from .random import Generator as Generator
from .random import bernoulli as bernoulli
from .random import default_generator as default_generator
from .random import get_rng_state as get_rng_state
from .random import initial_seed as initial_seed
from .random import manual_seed as manual_seed
from .random import multinomial as multinomial
from .random import normal as normal
from .random import rand as rand
from .random import rand_like as rand_like
from .random import randint as randint
from .random import randint_like as randint_like
from .random import randn as randn
from .random import randn_like as randn_like
from .random import randperm as randperm
from .random import seed as seed
from .random import set_rng_state as set_rng_state
from .storage import Storage as Storage
from .storage.regions import StorageFlags as StorageFlags
from .storage.regions import empty_cache as empty_cache

_ON_DEMAND = {"load": "files", "save": "files", "pickling": "ipc.plain_pickle", "set_pickling": "ipc.plain_pickle"}
# Those modules import many others and are rarely used.
# Names generated from the table of types: now for NumPy's types, on first use for others.
if TYPE_CHECKING:
    from ._tensor.core import BFloat16Tensor as BFloat16Tensor
    from ._tensor.core import BoolTensor as BoolTensor
    from ._tensor.core import ByteTensor as ByteTensor
    from ._tensor.core import CharTensor as CharTensor
    from ._tensor.core import ComplexDoubleTensor as ComplexDoubleTensor
    from ._tensor.core import ComplexFloatTensor as ComplexFloatTensor
    from ._tensor.core import DoubleTensor as DoubleTensor
    from ._tensor.core import Float8E4M3Tensor as Float8E4M3Tensor
    from ._tensor.core import Float8E5M2Tensor as Float8E5M2Tensor
    from ._tensor.core import FloatTensor as FloatTensor
    from ._tensor.core import HalfTensor as HalfTensor
    from ._tensor.core import IntTensor as IntTensor
    from ._tensor.core import LongTensor as LongTensor
    from ._tensor.core import ShortTensor as ShortTensor
    from ._tensor.core import UInt16Tensor as UInt16Tensor
    from ._tensor.core import UInt32Tensor as UInt32Tensor
    from ._tensor.core import UInt64Tensor as UInt64Tensor
    from .dtypes import bfloat16 as bfloat16
    from .dtypes import bool as bool
    from .dtypes import bool_ as bool_
    from .dtypes import complex64 as complex64
    from .dtypes import complex128 as complex128
    from .dtypes import float8_e4m3fn as float8_e4m3fn
    from .dtypes import float8_e5m2 as float8_e5m2
    from .dtypes import float16 as float16
    from .dtypes import float32 as float32
    from .dtypes import float64 as float64
    from .dtypes import int8 as int8
    from .dtypes import int16 as int16
    from .dtypes import int32 as int32
    from .dtypes import int64 as int64
    from .dtypes import uint8 as uint8
    from .dtypes import uint16 as uint16
    from .dtypes import uint32 as uint32
    from .dtypes import uint64 as uint64
    from .files import load as load
    from .files import save as save
    from .ipc.plain_pickle import pickling as pickling
    from .ipc.plain_pickle import set_pickling as set_pickling
    from .storage import BFloat16Storage as BFloat16Storage
    from .storage import BoolStorage as BoolStorage
    from .storage import ByteStorage as ByteStorage
    from .storage import CharStorage as CharStorage
    from .storage import ComplexDoubleStorage as ComplexDoubleStorage
    from .storage import ComplexFloatStorage as ComplexFloatStorage
    from .storage import DoubleStorage as DoubleStorage
    from .storage import Float8E4M3Storage as Float8E4M3Storage
    from .storage import Float8E5M2Storage as Float8E5M2Storage
    from .storage import FloatStorage as FloatStorage
    from .storage import HalfStorage as HalfStorage
    from .storage import IntStorage as IntStorage
    from .storage import LongStorage as LongStorage
    from .storage import ShortStorage as ShortStorage
    from .storage import UInt16Storage as UInt16Storage
    from .storage import UInt32Storage as UInt32Storage
    from .storage import UInt64Storage as UInt64Storage
else:

    def __getattr__(name: str) -> Any:
        if name in _ON_DEMAND:
            return getattr(_load(_ON_DEMAND[name]), name)
        if name in dtypes.BY_NAME or name == "bool_":
            return getattr(dtypes, name)
        for suffix, module in (("Storage", "storage"), ("Tensor", "_tensor.core")):
            if name.endswith(suffix) and name.removesuffix(suffix) in dtypes.BY_PREFIX:
                return getattr(_load(module), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    for _row in dtypes.ELEMENT_TYPES:
        for _name in (_row.name, f"{_row.prefix}Storage", f"{_row.prefix}Tensor"):
            globals()[_name] = __getattr__(_name)
    bool_ = dtypes.bool_
    del annotations, Any, TYPE_CHECKING  # the remaining names are shmtensor's
