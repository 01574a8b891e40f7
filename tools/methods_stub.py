"""Writes shmtensor/_tensor/_methods.pyi: the methods that `_tensor/methods.py` installs, for type checkers and editors.

python tools/methods_stub.py            print it
python tools/methods_stub.py --write    write it; a test wants it as it would be written now
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shmtensor._tensor import methods

TARGET = Path(methods.__file__).with_name("_methods.pyi")
HEAD = """# Made by tools/methods_stub.py from the tables of `methods`; make it again rather than change it.
import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from ..linalg.decompositions import EighResult, LUFactorResult, QRResult
from ..linalg.routines import EigenResult, GeqrfResult, PstrfResult, SolveResult, SVDResult, TriangularResult
from ..linalg.solvers import SlogdetResult
from ..random import Generator
from .core import Tensor
from .statistical import Found, MinMax

class Methods:
    __slots__ = ()
"""


class Shown(str):
    """An annotation, which `inspect` prints by its repr."""

    def __repr__(self) -> str:
        return re.sub(r"\b(bool|float|int)\b", r"builtins.\1", self)  # methods have these names, too


def signature(function: Callable[..., Any]) -> str:
    """The parameters of a method, the first of which is `self`, and what it gives."""
    found = inspect.signature(function)
    parameters = list(found.parameters.values())
    parameters[0] = parameters[0].replace(name="self", annotation=inspect.Parameter.empty)
    # What stands before a slash is one class of parameters; self alone needs no slash.
    if len(parameters) == 1 or parameters[1].kind is not inspect.Parameter.POSITIONAL_ONLY:
        parameters[0] = parameters[0].replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
    shown = [one.replace(annotation=Shown(one.annotation)) for one in parameters[1:]]
    return str(found.replace(parameters=[parameters[0], *shown], return_annotation=Shown(found.return_annotation)))


def line(name: str, function: Callable[..., Any]) -> str:
    """One method."""
    shown = signature(function)
    if name in ("__eq__", "__ne__"):
        return f"    def {name}(self, other: object) -> Tensor: ...  # type: ignore[override]"
    if name in methods.operators():
        shown = "(self, other: Any) -> Tensor" if "other" in shown or "x2" in shown else "(self) -> Tensor"
        if re.fullmatch(r"__i(?!nvert)\w+__", name):
            shown = "(self, other: Any) -> Self"
    elif name.endswith("_"):
        shown = re.sub(r"-> \w+$", "-> Self", shown)
    return f"    def {name}{shown}: ..."


def stub() -> str:
    """The whole file."""
    every = {**methods.operators(), **methods.table()}
    lines = [line(name, every[name]) for name in sorted(every)]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        TARGET.write_text(stub())
    else:
        print(stub(), end="")
