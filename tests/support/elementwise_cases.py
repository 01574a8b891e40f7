"""The expected results of each elementwise function: NumPy's values in torch's types."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch_types import floats, real

from shmtensor._tensor import elementwise


def _sigmoid(a: Any) -> Any:
    return np.reciprocal(np.exp(-a) + 1)


def _logaddexp(a: Any, b: Any) -> Any:
    if a.dtype.kind != "c":
        return np.logaddexp(a, b)
    least, most = np.where(a.real < b.real, a, b), np.where(a.real < b.real, b, a)
    return np.log1p(np.exp(least - most)) + most


OTHER_NAMES = {
    "logaddexp": _logaddexp,
    "cinv": np.reciprocal, "div": np.divide, "eq": np.equal, "ge": np.greater_equal, "gt": np.greater,
    "le": np.less_equal, "lt": np.less, "mul": np.multiply, "ne": np.not_equal, "neg": np.negative,
    "sub": np.subtract, "bitwise_not": np.invert, "fix": np.trunc,
    "frac": lambda a: a - np.trunc(a), "rsqrt": lambda a: 1 / np.sqrt(a), "sigmoid": _sigmoid,
    "round": lambda a: a.copy() if a.dtype.kind in "iub" else np.round(a),
    "sign": lambda a: a.copy() if a.dtype.kind == "b" else np.sign(a),
}  # fmt: skip
"""Functions that NumPy has under another name, or lacks."""
BINARY = sorted(name for name in elementwise.__all__ if getattr(elementwise, name) in elementwise.BINARY)
UNARY = sorted(set(elementwise.__all__) - set(BINARY))


def words(text: str) -> set[str]:
    return set(text.split())


TRUTH = words(
    "isfinite isinf isnan signbit logical_not logical_and logical_or logical_xor eq ge greater greater_equal gt"
    " le less less_equal lt ne not_equal"
)
"""Functions that return booleans."""
FLOATS = words(
    "acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh cbrt cinv copysign cos"
    " cosh deg2rad div divide exp exp2 expm1 hypot log log10 log1p log2 logaddexp logaddexp2 nextafter rad2deg"
    " reciprocal rsqrt sigmoid sin sinh sqrt tan tanh true_divide"
)
"""Functions that return floating-point numbers, float32, for integers."""
PARTS = words("abs absolute")
"""Functions that return real numbers for complex ones."""
BYTES_OF_BOOLS = words("bitwise_left_shift bitwise_right_shift floor_divide fmod gcd lcm pow remainder")
"""Functions that torch does not compute for booleans; NumPy returns int8."""


def computed(name: str, common_type: str, *operands: Any) -> Any:
    """NumPy's result for operands of the type in which torch computes, in torch's type; or the error that it raises."""
    kind = floats(common_type) if name in FLOATS else common_type
    result = "bool" if name in TRUTH else real(kind) if name in PARTS else kind
    if common_type == "bool" and name in {"square", *BYTES_OF_BOOLS}:
        result = "int64" if name == "square" else "int8"
    try:
        function = OTHER_NAMES.get(name) or getattr(np, name)
        return np.asarray(function(*[np.asarray(one).astype(kind) for one in operands])).astype(result)
    except (TypeError, ValueError) as error:
        return error
