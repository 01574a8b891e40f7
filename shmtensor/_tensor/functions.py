"""The functions of all operations on tensors as one namespace. The module of each is imported at its first use.

It includes those functions of `linalg` and `random` that `shmtensor` has too, and some in-place methods, with
the tensor as the first argument: `shmtensor.exp_(x)`, as in torch. Type checkers read `functions.pyi`, which
tools/stubs.py generates from the same rows.
"""

from __future__ import annotations

from typing import Any as _Any
from typing import Final as _Final

from .._loading import load as _load
from .index import FUNCTIONS as _FUNCTIONS
from .methods import Tensor as _Tensor

IN_PLACE: _Final = (
    "abs_", "acos_", "acosh_", "addmv_", "arccos_", "arccosh_", "arcsin_", "arcsinh_", "arctan_", "arctanh_",
    "as_strided_", "asin_", "asinh_", "atan_", "atanh_", "ceil_", "clamp_", "clamp_max_", "clamp_min_", "clip_",
    "conj_physical_", "cos_", "cosh_", "deg2rad_", "detach_", "erf_", "erfc_", "exp2_", "exp_", "expm1_", "fill_",
    "fix_", "floor_", "frac_", "gcd_", "i0_", "index_put_", "lcm_", "ldexp_", "log10_", "log1p_", "log2_", "log_",
    "logit_", "nan_to_num_", "neg_", "negative_", "rad2deg_", "reciprocal_", "relu_", "resize_as_", "round_", "rsqrt_",
    "sigmoid_", "sin_", "sinc_", "sinh_", "sqrt_", "square_", "tan_", "tanh_", "trunc_", "xlogy_", "zero_",
)  # fmt: skip
"""Methods that torch has as functions, too."""

_MODULES: _Final = {name: module for module, names in _FUNCTIONS.items() for name in names.split()}
__all__ = sorted([*_MODULES, *IN_PLACE])


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        value = getattr(_load(_MODULES[name]), name)
    elif name in IN_PLACE:
        value = getattr(_Tensor, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
