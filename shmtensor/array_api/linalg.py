"""The array API's extension `linalg`. Where torch means something else by a name, this module follows the standard.

All other functions are those of `shmtensor.linalg`. Nothing in this module blocks.
"""

from __future__ import annotations

from typing import Any

from .. import linalg
from .._missing import suggest as _suggest
from .._tensor.dispatch import Array, Module, Out, export, operation
from ..linalg.lapack import floating, matrices, numpys
from ..linalg.norms import of_vectors
from ..linalg.solvers import right_side


@operation(method=False)
def solve(xp: Module, x1: Array, x2: Array, /) -> Array:
    """X with x1 @ X = x2: (..., n, n) and (n) or (..., n, k).

    Raises LinAlgError (singular), InvalidArgument, DTypeError.
    """
    a, b = matrices("solve", x1, square=True), floating("solve", x2)
    right_side("solve", b, a.shape[-1])
    return numpys("solve", "gesv", a, xp.linalg.solve, a, b)


@operation(method=False, out=Out.COPIED)
def vector_norm(xp: Module, x: Array, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Array:
    """The norm of all elements, or over axes; over none, `axis=()`, that of each element: its absolute value.

    Raises IndexOutOfRange, InvalidArgument, DTypeError.
    """
    return of_vectors("vector_norm", xp, x, ord, axis, keepdims)


_OWN = export(globals())
__all__ = sorted(vars(linalg)["__all__"])
globals().update({name: getattr(linalg, name) for name in __all__ if name not in _OWN})
_suggest(globals())
