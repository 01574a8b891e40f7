"""The functions of all operations on tensors as one namespace.

Those of `linalg` and `random` belong to it as far as they are functions of `shmtensor` too. Type checkers read
`functions.pyi`, which tools/stubs.py makes of the same rows.
"""

from __future__ import annotations

from ..linalg import routines as _routines
from ..random import counts as _counts
from ..random import distributions as _distributions
from ..random import sampling as _sampling
from . import methods as _methods  # noqa: F401  imports every module that has rows
from .dispatch import ROWS as _ROWS

_package = __name__.rpartition(".")[0]
_functions = {
    name: row.function
    for row in _ROWS
    if row.function is not None and row.module.rpartition(".")[0] == _package
    for name in row.names
}
for _module in (_routines, _counts, _distributions, _sampling):
    _functions |= {name: getattr(_module, name) for name in _module.FUNCTIONS}
globals().update(_functions)
__all__ = sorted(_functions)
