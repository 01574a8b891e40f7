"""The functions of all operations on tensors as one namespace; `functions.pyi`, which type checkers read, is made of
the same rows by tools/methods_stub.py."""

from __future__ import annotations

from . import methods as _methods  # noqa: F401  imports every module that has rows
from .dispatch import ROWS as _ROWS

_package = __name__.rpartition(".")[0]
_functions = {
    name: row.function
    for row in _ROWS
    if row.function is not None and row.module.rpartition(".")[0] == _package
    for name in row.names
}
globals().update(_functions)
__all__ = sorted(_functions)
