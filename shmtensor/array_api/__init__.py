"""The array API: a namespace that follows the standard, versions 2021.12 to 2025.12.

`x.__array_namespace__()` returns this module, for libraries that are written for the standard. Its tensors are those of
`shmtensor`. Where torch means something else by a name (`max`, `sort`, `std`, ...), `shmtensor` follows torch and this
module the standard (`creation`, `elementwise`, `functions`, `linalg`); all other functions are the same, and their
modules are imported on first use.
"""

from __future__ import annotations

from typing import Any as _Any

from .. import _namespace
from .. import fft as fft
from .._missing import missing as _missing
from .._tensor.inspection import __array_api_version__ as __array_api_version__
from .._tensor.inspection import __array_namespace_info__ as __array_namespace_info__
from . import linalg as linalg
from .creation import *  # noqa: F403
from .elementwise import *  # noqa: F403
from .functions import *  # noqa: F403

_NAMES = """
abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 atanh bitwise_and
bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor broadcast_arrays broadcast_shapes
broadcast_to can_cast ceil clip concat conj copysign cos cosh count_nonzero cumulative_prod cumulative_sum diff divide
empty empty_like equal exp expand_dims expm1 eye finfo flip floor floor_divide from_dlpack full full_like greater
greater_equal hypot iinfo imag isdtype isfinite isin isinf isnan less less_equal linspace log log10 log1p log2 logaddexp
logical_and logical_not logical_or logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum moveaxis
multiply negative nextafter nonzero not_equal ones ones_like permute_dims positive pow prod real reciprocal remainder
repeat reshape result_type roll round searchsorted sign signbit sin sinh sort sqrt square squeeze stack std subtract sum
take take_along_axis tan tanh tensordot tile tril triu trunc unique_all unique_counts unique_inverse unique_values
unstack var vecdot where zeros zeros_like
e inf nan newaxis pi
bool complex64 complex128 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64
""".split()  # noqa: SIM905

__all__ = sorted([*_NAMES, "__array_api_version__", "__array_namespace_info__", "fft", "linalg"])


def __getattr__(name: str) -> _Any:
    if name not in __all__:
        raise _missing(__name__, name, __all__)
    value = globals()[name] = getattr(_namespace, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
