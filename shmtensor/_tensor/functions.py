"""The functions of all operations on tensors as one namespace.

Those of `linalg` and `random` belong to it as far as they are functions of `shmtensor` too, and some methods that work
in place, of which the tensor is the first argument: `shmtensor.exp_(x)`, as in torch. Type checkers read
`functions.pyi`, which tools/stubs.py makes of the same rows.
"""

from __future__ import annotations

from typing import Final as _Final

from ..linalg import routines as _routines
from ..random import counts as _counts
from ..random import distributions as _distributions
from ..random import sampling as _sampling
from .dispatch import ROWS as _ROWS
from .methods import Tensor as _Tensor  # imports every module that has rows

IN_PLACE: _Final = (
    "abs_", "acos_", "acosh_", "addmv_", "arccos_", "arccosh_", "arcsin_", "arcsinh_", "arctan_", "arctanh_",
    "as_strided_", "asin_", "asinh_", "atan_", "atanh_", "ceil_", "clamp_", "clamp_max_", "clamp_min_", "clip_",
    "conj_physical_", "cos_", "cosh_", "deg2rad_", "detach_", "erf_", "erfc_", "exp2_", "exp_", "expm1_", "fill_",
    "fix_", "floor_", "frac_", "gcd_", "i0_", "index_put_", "lcm_", "ldexp_", "log10_", "log1p_", "log2_", "log_",
    "logit_", "nan_to_num_", "neg_", "negative_", "rad2deg_", "reciprocal_", "relu_", "resize_as_", "round_", "rsqrt_",
    "sigmoid_", "sin_", "sinc_", "sinh_", "sqrt_", "square_", "tan_", "tanh_", "trunc_", "xlogy_", "zero_",
)  # fmt: skip
"""Methods that torch has as functions, too."""

_package = __name__.rpartition(".")[0]
_functions = {
    name: row.function
    for row in _ROWS
    if row.function is not None and row.module.rpartition(".")[0] == _package
    for name in row.names
}
for _module in (_routines, _counts, _distributions, _sampling):
    _functions |= {name: getattr(_module, name) for name in _module.FUNCTIONS}
_functions |= {name: getattr(_Tensor, name) for name in IN_PLACE}
globals().update(_functions)
__all__ = sorted(_functions)
