"""Linear algebra: the array API's extension `linalg`, and further functions of `torch.linalg`.

Vectors are in the last axis, matrices in the last two; the axes before are those of a stack. LAPACK computes with
float32, float64, complex64 and complex128, and the result has that type; integers are refused. Most functions call
LAPACK through NumPy; LU factors, triangular systems and functions of matrices need SciPy (the extra `scipy`).

LinAlgError is raised if a problem has no solution: a matrix is singular or not positive definite, or an iteration does
not converge. Nothing in this package blocks.
"""

from __future__ import annotations

from .._missing import suggest as _suggest
from .._tensor.products import matmul as matmul
from .._tensor.products import outer as outer
from .._tensor.products import tensordot as tensordot
from .._tensor.products import vecdot as vecdot
from .._tensor.shapes import matrix_transpose as matrix_transpose
from . import decompositions, determinants, functions, last_axes, norms, solvers, symmetric
from .decompositions import *
from .determinants import *
from .functions import *
from .lapack import LinAlgError as LinAlgError
from .last_axes import *
from .norms import *
from .solvers import *
from .symmetric import *

__all__ = [
    *decompositions.__all__, *determinants.__all__, *functions.__all__, *last_axes.__all__, *norms.__all__,
    *solvers.__all__, *symmetric.__all__, "LinAlgError", "matmul", "matrix_transpose", "outer", "tensordot", "vecdot",
]  # fmt: skip
_suggest(globals())
