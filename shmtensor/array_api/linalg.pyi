# Made by tools/stubs.py from the rows of operations; make it again rather than change it.
import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from .._tensor.core import Tensor
from ..linalg import LinAlgError as LinAlgError
from ..linalg import cholesky as cholesky
from ..linalg import cholesky_ex as cholesky_ex
from ..linalg import cond as cond
from ..linalg import coshm as coshm
from ..linalg import cosm as cosm
from ..linalg import cross as cross
from ..linalg import det as det
from ..linalg import diagonal as diagonal
from ..linalg import eig as eig
from ..linalg import eigh as eigh
from ..linalg import eigvals as eigvals
from ..linalg import eigvalsh as eigvalsh
from ..linalg import expm as expm
from ..linalg import fractional_matrix_power as fractional_matrix_power
from ..linalg import funm as funm
from ..linalg import householder_product as householder_product
from ..linalg import inv as inv
from ..linalg import inv_ex as inv_ex
from ..linalg import ldl_factor as ldl_factor
from ..linalg import ldl_factor_ex as ldl_factor_ex
from ..linalg import ldl_solve as ldl_solve
from ..linalg import logm as logm
from ..linalg import lstsq as lstsq
from ..linalg import lu as lu
from ..linalg import lu_factor as lu_factor
from ..linalg import lu_factor_ex as lu_factor_ex
from ..linalg import lu_solve as lu_solve
from ..linalg import matmul as matmul
from ..linalg import matrix_exp as matrix_exp
from ..linalg import matrix_norm as matrix_norm
from ..linalg import matrix_power as matrix_power
from ..linalg import matrix_rank as matrix_rank
from ..linalg import matrix_transpose as matrix_transpose
from ..linalg import multi_dot as multi_dot
from ..linalg import norm as norm
from ..linalg import outer as outer
from ..linalg import pinv as pinv
from ..linalg import qr as qr
from ..linalg import signm as signm
from ..linalg import sinhm as sinhm
from ..linalg import sinm as sinm
from ..linalg import slogdet as slogdet
from ..linalg import solve_ex as solve_ex
from ..linalg import solve_triangular as solve_triangular
from ..linalg import sqrtm as sqrtm
from ..linalg import svd as svd
from ..linalg import svdvals as svdvals
from ..linalg import tanhm as tanhm
from ..linalg import tanm as tanm
from ..linalg import tensordot as tensordot
from ..linalg import tensorinv as tensorinv
from ..linalg import tensorsolve as tensorsolve
from ..linalg import trace as trace
from ..linalg import vander as vander
from ..linalg import vecdot as vecdot

def solve(x1: Tensor, x2: Tensor, /) -> Tensor: ...
def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: builtins.bool = False, ord: builtins.float = 2, out: Tensor | None = None) -> Tensor: ...
