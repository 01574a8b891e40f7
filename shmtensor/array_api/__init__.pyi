# Made by tools/stubs.py from the rows of operations; make it again rather than change it.
import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from .. import fft as fft
from .._tensor.core import Tensor
from . import linalg as linalg
from .functions import FloatInfo, IntInfo
from .._namespace import __array_api_version__ as __array_api_version__
from .._namespace import __array_namespace_info__ as __array_namespace_info__
from .._namespace import abs as abs
from .._namespace import acos as acos
from .._namespace import acosh as acosh
from .._namespace import add as add
from .._namespace import argmax as argmax
from .._namespace import argmin as argmin
from .._namespace import asarray as asarray
from .._namespace import asin as asin
from .._namespace import asinh as asinh
from .._namespace import astype as astype
from .._namespace import atan as atan
from .._namespace import atan2 as atan2
from .._namespace import atanh as atanh
from .._namespace import bitwise_and as bitwise_and
from .._namespace import bitwise_invert as bitwise_invert
from .._namespace import bitwise_left_shift as bitwise_left_shift
from .._namespace import bitwise_or as bitwise_or
from .._namespace import bitwise_right_shift as bitwise_right_shift
from .._namespace import bitwise_xor as bitwise_xor
from .._namespace import bool as bool
from .._namespace import broadcast_arrays as broadcast_arrays
from .._namespace import broadcast_shapes as broadcast_shapes
from .._namespace import broadcast_to as broadcast_to
from .._namespace import ceil as ceil
from .._namespace import complex128 as complex128
from .._namespace import complex64 as complex64
from .._namespace import concat as concat
from .._namespace import conj as conj
from .._namespace import copysign as copysign
from .._namespace import cos as cos
from .._namespace import cosh as cosh
from .._namespace import cumulative_prod as cumulative_prod
from .._namespace import cumulative_sum as cumulative_sum
from .._namespace import divide as divide
from .._namespace import e as e
from .._namespace import empty as empty
from .._namespace import empty_like as empty_like
from .._namespace import exp as exp
from .._namespace import expand_dims as expand_dims
from .._namespace import eye as eye
from .._namespace import flip as flip
from .._namespace import float32 as float32
from .._namespace import float64 as float64
from .._namespace import floor as floor
from .._namespace import floor_divide as floor_divide
from .._namespace import from_dlpack as from_dlpack
from .._namespace import full_like as full_like
from .._namespace import greater as greater
from .._namespace import greater_equal as greater_equal
from .._namespace import hypot as hypot
from .._namespace import imag as imag
from .._namespace import inf as inf
from .._namespace import int16 as int16
from .._namespace import int32 as int32
from .._namespace import int64 as int64
from .._namespace import int8 as int8
from .._namespace import isdtype as isdtype
from .._namespace import isfinite as isfinite
from .._namespace import isinf as isinf
from .._namespace import isnan as isnan
from .._namespace import less as less
from .._namespace import less_equal as less_equal
from .._namespace import log as log
from .._namespace import log10 as log10
from .._namespace import log1p as log1p
from .._namespace import log2 as log2
from .._namespace import logaddexp as logaddexp
from .._namespace import logical_and as logical_and
from .._namespace import logical_not as logical_not
from .._namespace import logical_or as logical_or
from .._namespace import logical_xor as logical_xor
from .._namespace import matmul as matmul
from .._namespace import matrix_transpose as matrix_transpose
from .._namespace import maximum as maximum
from .._namespace import minimum as minimum
from .._namespace import moveaxis as moveaxis
from .._namespace import multiply as multiply
from .._namespace import nan as nan
from .._namespace import negative as negative
from .._namespace import newaxis as newaxis
from .._namespace import nextafter as nextafter
from .._namespace import not_equal as not_equal
from .._namespace import ones as ones
from .._namespace import ones_like as ones_like
from .._namespace import permute_dims as permute_dims
from .._namespace import pi as pi
from .._namespace import positive as positive
from .._namespace import pow as pow
from .._namespace import real as real
from .._namespace import reciprocal as reciprocal
from .._namespace import remainder as remainder
from .._namespace import repeat as repeat
from .._namespace import reshape as reshape
from .._namespace import result_type as result_type
from .._namespace import round as round
from .._namespace import searchsorted as searchsorted
from .._namespace import sign as sign
from .._namespace import signbit as signbit
from .._namespace import sin as sin
from .._namespace import sinh as sinh
from .._namespace import sqrt as sqrt
from .._namespace import square as square
from .._namespace import stack as stack
from .._namespace import subtract as subtract
from .._namespace import take as take
from .._namespace import take_along_axis as take_along_axis
from .._namespace import tan as tan
from .._namespace import tensordot as tensordot
from .._namespace import tile as tile
from .._namespace import tril as tril
from .._namespace import triu as triu
from .._namespace import trunc as trunc
from .._namespace import uint16 as uint16
from .._namespace import uint32 as uint32
from .._namespace import uint64 as uint64
from .._namespace import uint8 as uint8
from .._namespace import unique_all as unique_all
from .._namespace import unique_counts as unique_counts
from .._namespace import unique_inverse as unique_inverse
from .._namespace import unique_values as unique_values
from .._namespace import unstack as unstack
from .._namespace import vecdot as vecdot
from .._namespace import where as where
from .._namespace import zeros as zeros
from .._namespace import zeros_like as zeros_like

def all(x: Tensor, /, *, axis: Any = None, keepdims: builtins.bool = False, out: Tensor | None = None) -> Tensor: ...
def any(x: Tensor, /, *, axis: Any = None, keepdims: builtins.bool = False, out: Tensor | None = None) -> Tensor: ...
def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None, shared: builtins.bool = False) -> Tensor: ...
def argsort(x: Tensor, /, *, axis: builtins.int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor: ...
def can_cast(from_: Any, to: Any, /) -> builtins.bool: ...
def clip(x: Tensor, /, min: Any | None = None, max: Any | None = None) -> Tensor: ...
def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: builtins.bool = False, out: Tensor | None = None) -> Tensor: ...
def diff(x: Tensor, /, *, axis: builtins.int = -1, n: builtins.int = 1, prepend: Tensor | None = None, append: Tensor | None = None, out: Tensor | None = None) -> Tensor: ...
def equal(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor: ...
def expm1(x: Tensor, /, *, out: Tensor | None = None) -> Tensor: ...
def finfo(type: Any, /) -> FloatInfo: ...
def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, shared: builtins.bool = False) -> Tensor: ...
def iinfo(type: Any, /) -> IntInfo: ...
def isin(x1: Any, x2: Any, /, *, invert: builtins.bool = False) -> Tensor: ...
def linspace(start: Any, stop: Any, /, num: builtins.int, *, dtype: Any = None, device: Any = None, endpoint: builtins.bool = True, shared: builtins.bool = False) -> Tensor: ...
def max(x: Tensor, /, *, axis: Any = None, keepdims: builtins.bool = False, out: Tensor | None = None) -> Tensor: ...
def mean(x: Tensor, /, *, axis: Any = None, keepdims: builtins.bool = False, out: Tensor | None = None) -> Tensor: ...
def meshgrid(*arrays: Tensor, indexing: str = 'xy') -> tuple[Tensor, ...]: ...
def min(x: Tensor, /, *, axis: Any = None, keepdims: builtins.bool = False, out: Tensor | None = None) -> Tensor: ...
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]: ...
def prod(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: builtins.bool = False, out: Tensor | None = None) -> Tensor: ...
def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor: ...
def sort(x: Tensor, /, *, axis: builtins.int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor: ...
def squeeze(x: Tensor, /, axis: Any) -> Tensor: ...
def std(x: Tensor, /, *, axis: Any = None, correction: builtins.float = 0.0, keepdims: builtins.bool = False, out: Tensor | None = None) -> Tensor: ...
def sum(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: builtins.bool = False, out: Tensor | None = None) -> Tensor: ...
def tanh(x: Tensor, /, *, out: Tensor | None = None) -> Tensor: ...
def var(x: Tensor, /, *, axis: Any = None, correction: builtins.float = 0.0, keepdims: builtins.bool = False, out: Tensor | None = None) -> Tensor: ...
