"""Linear algebra: the array API's extension `linalg`, with what `torch.linalg` has beside. None blocks.

Vectors stand in the last axis, matrices in the last two, stacks of them in those before. LAPACK computes with float32,
float64, complex64 and complex128, and the result has that type; integers are refused. NumPy calls it; what NumPy lacks
(LU factors, triangular systems, functions of matrices) SciPy does, which the extra `scipy` brings.

A matrix for which there is no answer (singular, not positive definite, without convergence) raises LinAlgError.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._tensor import products as _products
from .._tensor import shapes as _shapes
from .._tensor.core import Tensor, array_of, index_of, wrap
from .._tensor.dispatch import composed
from .._tensor.products import matmul as matmul
from .._tensor.products import outer as outer
from .._tensor.products import tensordot as tensordot
from .._tensor.products import vecdot as vecdot
from .._tensor.shapes import matrix_transpose as matrix_transpose
from ..dtypes import dtype_of
from ..errors import InvalidArgument
from . import decompositions, functions, norms, solvers
from .decompositions import *
from .functions import *
from .lapack import LinAlgError as LinAlgError
from .norms import *
from .solvers import *

__all__ = [
    *decompositions.__all__, *functions.__all__, *norms.__all__, *solvers.__all__, "LinAlgError", "cross", "diagonal",
    "matmul", "matrix_transpose", "outer", "tensordot", "trace", "vecdot",
]  # fmt: skip


@composed(method=False)
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The vector product along an axis of size 3; other axes broadcast. Raises IndexOutOfRange, InvalidArgument."""
    return _products.cross(x1, x2, axis)


@composed(method=False)
def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The view of the diagonals of matrices, as a last axis. Raises InvalidArgument: no matrices."""
    if array_of(x).ndim < 2:
        raise InvalidArgument(f"diagonal of a tensor of shape {x.shape}; it takes matrices, in the last two axes")
    return _shapes.diagonal(x, index_of(offset), -2, -1)


@composed(method=False)
def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sums of the diagonals of matrices, of type `dtype` (default: as `sum` has it). Raises InvalidArgument."""
    a = array_of(x)
    if a.ndim < 2:
        raise InvalidArgument(f"trace of a tensor of shape {a.shape}; it takes matrices, in the last two axes")
    kind = None if dtype is None else dtype_of(dtype)
    return wrap(np.trace(a, index_of(offset), -2, -1, kind))
