"""Linear algebra: the array API's extension `linalg`, with what `torch.linalg` has beside. None blocks.

Vectors stand in the last axis, matrices in the last two, stacks of them in those before. LAPACK computes with float32,
float64, complex64 and complex128, and the result has that type; integers are refused. NumPy calls it; what NumPy lacks
(LU factors, triangular systems, functions of matrices) SciPy does, which the extra `scipy` brings.

A matrix for which there is no answer (singular, not positive definite, without convergence) raises LinAlgError.
"""

from __future__ import annotations

from .._tensor.products import matmul as matmul
from .._tensor.products import outer as outer
from .._tensor.products import tensordot as tensordot
from .._tensor.products import vecdot as vecdot
from .._tensor.shapes import matrix_transpose as matrix_transpose
from . import decompositions, functions, last_axes, norms, solvers
from .decompositions import *
from .functions import *
from .lapack import LinAlgError as LinAlgError
from .last_axes import *
from .norms import *
from .solvers import *

__all__ = [
    *decompositions.__all__, *functions.__all__, *last_axes.__all__, *norms.__all__, *solvers.__all__, "LinAlgError",
    "matmul", "matrix_transpose", "outer", "tensordot", "vecdot",
]  # fmt: skip
