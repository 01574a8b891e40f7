"""Products of vectors and matrices. NumPy's, which are BLAS's. None blocks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ._core import Tensor, array_of, wrap
from .conversion import refused
from .elementwise import binary
from .errors import InvalidArgument

__all__ = ["matmul", "tensordot", "vecdot"]
METHODS: Final = ("matmul",)

matmul = binary("matmul", np.matmul)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """The sum of products over axes: so many last ones with as many first ones, or two sequences of them.

    Raises InvalidArgument: sizes that differ, axes that are not there.
    """
    a, b = array_of(x1), array_of(x2)
    try:
        return wrap(np.tensordot(a, b, axes))
    except (IndexError, TypeError, ValueError) as error:
        raise refused(error, f"the product over axes {axes} with a tensor of shape {b.shape} of", a) from error


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The dot product along an axis, the first conjugated; other axes broadcast.

    Raises IndexOutOfRange, InvalidArgument: sizes that differ.
    """
    a, b = array_of(x1), array_of(x2)
    x1._axis(axis), x2._axis(axis)
    if a.shape[axis] != b.shape[axis] or (axis >= 0 and a.ndim != b.ndim):
        raise InvalidArgument(f"vecdot along axis {axis} of tensors of shapes {a.shape} and {b.shape}")
    try:
        return wrap(np.vecdot(a, b, axis=axis))  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        raise refused(error, f"the dot product with a tensor of shape {b.shape} of", a) from error
