"""Writes the type stubs of operations on tensors, from their rows (shmtensor/_tensor/dispatch.py).

`_methods.pyi` has the methods, `functions.pyi` the functions of the namespace; the stubs of `linalg`, `random`,
`special`, `nn.functional`, `array_api` and `array_api.linalg` have those of these modules; `typed.pyi` has the classes
generated from the table of element types (shmtensor/dtypes.py). `index.py` has the module of each name, which is
imported when the name is used. The stub of `nn.modules` is made from its table of classes.

python tools/stubs.py            print the methods
python tools/stubs.py --write    write the files that change, and print their paths

The package that is imported must be the one of this checkout. A test checks that the files are up to date.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import shmtensor
from shmtensor import linalg, random, special
from shmtensor._native import Operation
from shmtensor._tensor import dispatch, functions
from shmtensor._tensor import index as written
from shmtensor.dtypes import ALIASES, TABLE
from shmtensor.nn import functional, modules
from shmtensor.nn.functional import index as functional_written

for _module in pkgutil.iter_modules(functional.__path__, f"{functional.__name__}."):
    importlib.import_module(_module.name)
ROWS = dispatch.all_rows()
FOLDER = Path(dispatch.__file__).parent
CHECKOUT = Path(__file__).resolve().parent.parent
HEAD = """# Made by tools/stubs.py from the rows of operations; make it again rather than change it.
import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self
"""
METHODS = """
from ..linalg.decompositions import EighResult, LUFactorResult, QRResult
from ..linalg.routines import EigenResult, GeqrfResult, PstrfResult, SolveResult, SVDResult, TriangularResult
from ..linalg.determinants import SlogdetResult
from ..random import Generator
from ..storage import Storage
from .arithmetic import FrexpResult
from .core import Tensor
from .histograms import Histogram
from .statistical import Found, MinMax

class Methods:
    __slots__ = ()
"""
TYPED = """# Made by tools/stubs.py from the table of element types; make it again rather than change it.
from ..dtypes import DType
from ..storage import Storage
from .core import Tensor
"""
FUNCTIONS = """
from numpy.typing import NDArray

from ..dtypes import DType
from ..linalg.decompositions import EighResult, LUFactorResult, LUResult, QRResult
from ..linalg.routines import EigenResult, GeqrfResult, PstrfResult, SolveResult, SVDResult, TriangularResult
from ..linalg.determinants import SlogdetResult
from ..random import Generator
from .arithmetic import FrexpResult
from .core import Tensor
from .histograms import Histogram, HistogramDD
from .inspection import FloatInfo, IntInfo, NamespaceInfo
from .low_rank import LowRank
from .selection import UniqueAll, UniqueCounts, UniqueInverse
from .statistical import Found, MinMax

"""
LINALG = """
from .._tensor.core import Tensor
from .decompositions import CholeskyExResult, EighResult, EigResult, LUFactorExResult, LUFactorResult, LUResult
from .decompositions import QRResult, SVDResult
from .determinants import SlogdetResult
from .lapack import LinAlgError as LinAlgError
from .solvers import InvExResult, LstsqResult, SolveExResult
from .symmetric import LDLFactorExResult, LDLFactorResult

"""
RANDOM = """
from .._tensor.core import Tensor
from .generator import STATE_BYTES as STATE_BYTES
from .generator import Generator as Generator
from .generator import default_generator as default_generator
from .generator import get_rng_state as get_rng_state
from .generator import initial_seed as initial_seed
from .generator import manual_seed as manual_seed
from .generator import seed as seed
from .generator import set_rng_state as set_rng_state

"""

ARRAY_API = """
from .. import fft as fft
from .._tensor.core import Tensor
from . import linalg as linalg
from .functions import FloatInfo, IntInfo
"""
FUNCTIONAL = """
from ..._tensor.core import Tensor

"""
MODULES = """# Made by tools/stubs.py from the table of classes in __init__.py; change that rather than this.
from typing import Final

CLASSES: Final[dict[str, str]]
"""
TENSOR = """
from .._tensor.core import Tensor
"""
INDEX = '''"""The module of each {names}, relative to the package.

Made by tools/stubs.py from the rows of operations; make it again rather than change it.
"""

from typing import Final

'''


class Shown(str):
    """An annotation, which `inspect` prints by its repr."""

    def __repr__(self) -> str:
        return re.sub(r"\b(bool|float|int|complex)\b", r"builtins.\1", self)  # methods have these names, too


def signature(function: Callable[..., Any], *, method: bool) -> str:
    """The parameters, with `self` first for a method, and the type of the result."""
    found = inspect.signature(function)
    parameters = list(found.parameters.values())
    if method:
        parameters[0] = parameters[0].replace(name="self", annotation=inspect.Parameter.empty)
        # Parameters before a slash are positional-only; self alone needs no slash.
        if len(parameters) == 1 or parameters[1].kind is not inspect.Parameter.POSITIONAL_ONLY:
            parameters[0] = parameters[0].replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
    shown = parameters[:1] if method else []
    shown += [one.replace(annotation=Shown(one.annotation)) for one in parameters[method:]]
    return str(found.replace(parameters=shown, return_annotation=Shown(found.return_annotation)))


def method(name: str, function: Callable[..., Any]) -> str:
    """One method."""
    shown = signature(function, method=True)
    if name in ("__eq__", "__ne__"):
        return f"    def {name}(self, other: object) -> Tensor: ...  # type: ignore[override]"
    if name.startswith("__") and isinstance(function, Operation):
        shown = "(self, other: Any) -> Tensor" if re.match(r"\(self, \w", shown) else "(self) -> Tensor"
        if re.fullmatch(r"__i(?!nvert)\w+__", name):
            shown = "(self, other: Any) -> Self"
    elif name.endswith("_"):
        shown = re.sub(r"-> \w+$", "-> Self", shown)
    return f"    def {name}{shown}: ..."


def methods_stub() -> str:
    """The content of `_methods.pyi`."""
    every = {name: one for row in ROWS for name, one in row.methods.items()}
    lines = [method(name, every[name]) for name in sorted(every)]
    found = {name: value for row in ROWS for name, value in row.properties.items()}
    lines += [f"    @property\n    def {name}{signature(found[name], method=True)}: ..." for name in sorted(found)]
    return HEAD + METHODS + "\n".join(lines) + "\n"


def functions_stub(module: Any, head: str) -> str:
    """The content of the stub of a module of functions."""
    rows = {name: row.function for row in ROWS if row.function is not None for name in row.names}
    in_place = getattr(module, "IN_PLACE", ())
    names = [name for name in sorted(module.__all__) if name in rows and name not in in_place]
    lines = [f"def {name}{signature(getattr(module, name), method=False)}: ..." for name in names]
    for name in in_place:
        shown = signature(getattr(module, name), method=False).replace(str(inspect.Parameter.empty), "Tensor")
        lines.append(f"def {name}{shown.replace('-> Self', '-> Tensor')}: ...")
    return HEAD + head + "\n".join(lines) + "\n"


def partial_stub(module: Any, source: Any, head: str) -> str:
    """The content of the stub of a module with some functions of its own, and the others from `source`."""
    place = f"..{source.__name__.removeprefix('shmtensor.')}"
    shared = [name for name in module.__all__ if getattr(source, name, head) is getattr(module, name)]
    lines = [f"from {place} import {name} as {name}" for name in sorted(shared)]
    own = sorted({*module.__all__} - {*shared, "fft", "linalg"})
    lines += ["", *[f"def {name}{signature(getattr(module, name), method=False)}: ..." for name in own]]
    return HEAD + head + "\n".join(lines) + "\n"


def typed_stub() -> str:
    """The content of `typed.pyi`."""
    lines = [TYPED, *[f"{row.name}: DType" for row in TABLE], *[f"{name}: DType" for name in ALIASES]]
    lines += [f"class {row.prefix}{kind}({kind}): ..." for kind in ("Storage", "Tensor") for row in TABLE]
    return "\n".join(lines) + "\n"


def names_table(title: str, doc: str, names: dict[str, Iterable[str]]) -> str:
    """One table of the index: the names of each module, relative to the package, in one string."""
    lines = [f"{title}: Final = {{"]
    for module in sorted(names):
        found = textwrap.wrap(" ".join(sorted(names[module])), 110, break_on_hyphens=False)
        short = module.removeprefix("shmtensor.")
        if len(found) == 1 and len(short) + len(found[0]) < 100:
            lines.append(f'    "{short}": "{found[0]}",')
        elif found:
            lines += [f'    "{short}": """', *found, '""",']
    return "\n".join([*lines, "}", f'"""{doc}"""'])


def index() -> str:
    """The content of `index.py`."""
    places = {
        name: row.module
        for row in ROWS
        if row.function is not None and row.module.startswith("shmtensor._tensor.")
        for name in row.names
    }
    for module in [
        module for name, module in sys.modules.items() if name.startswith(("shmtensor.linalg.", "shmtensor.random."))
    ]:
        places |= dict.fromkeys(getattr(module, "FUNCTIONS", ()), module.__name__)
    functions: dict[str, list[str]] = {}
    for name, module in places.items():
        functions.setdefault(module, []).append(name)
    tables = [names_table("FUNCTIONS", "Functions of `shmtensor`.", functions)]
    for title, field, doc in (
        ("METHODS", "methods", "Methods of tensors, operators of Python among them."),
        ("PROPERTIES", "properties", "Properties of tensors."),
    ):
        modules: dict[str, list[str]] = {}
        for row in ROWS:
            modules.setdefault(row.module, []).extend(getattr(row, field))
        tables.append(names_table(title, doc, modules))
    return INDEX.format(names="function and method of tensors") + "\n".join(tables) + "\n"


def functional_index() -> str:
    """The content of `nn/functional/index.py`."""
    names: dict[str, list[str]] = {}
    for row in ROWS:
        if row.function is not None and row.module.startswith(f"{functional.__name__}."):
            names.setdefault(row.module, []).extend(row.names)
    table = names_table("FUNCTIONS", "Functions of `shmtensor.nn.functional`.", names)
    return f"{INDEX.format(names='function')}{table}\n"


def modules_stub() -> str:
    """The content of the stub of `nn.modules`."""
    lines = [
        f"from .{module.rpartition('.')[2]} import {name} as {name}"
        for module, names in modules.CLASSES.items()
        for name in names.split()
    ]
    public = textwrap.wrap(", ".join(f'"{name}"' for name in modules.__all__), 110, break_on_hyphens=False)
    return "\n".join([MODULES, *lines, "", "__all__ = [", *public, "]"]) + "\n"


def stubs() -> dict[Path, str]:
    """Every generated file, by its path."""
    from shmtensor import _namespace, array_api

    return {
        FOLDER / "index.py": index(),
        FOLDER / "_methods.pyi": methods_stub(),
        FOLDER / "functions.pyi": functions_stub(functions, FUNCTIONS),
        FOLDER / "typed.pyi": typed_stub(),
        Path(linalg.__file__).with_suffix(".pyi"): functions_stub(linalg, LINALG),
        Path(array_api.__file__).with_suffix(".pyi"): partial_stub(array_api, _namespace, ARRAY_API),
        Path(array_api.linalg.__file__).with_suffix(".pyi"): partial_stub(array_api.linalg, linalg, TENSOR),
        Path(random.__file__).with_suffix(".pyi"): functions_stub(random, RANDOM),
        Path(special.__file__).with_suffix(".pyi"): partial_stub(special, _namespace, TENSOR),
        Path(functional.__file__).with_name("index.py"): functional_index(),
        Path(modules.__file__).with_suffix(".pyi"): modules_stub(),
        Path(functional.__file__).with_suffix(".pyi"): functions_stub(functional, FUNCTIONAL),
    }


def require_own_package() -> None:
    """End the program if the package that was imported is not the one of this checkout."""
    found = Path(shmtensor.__file__).resolve().parent
    if found != CHECKOUT / "shmtensor":
        sys.exit(
            f"{sys.executable} imports shmtensor from {found}, not from {CHECKOUT / 'shmtensor'}; "
            f"run `make test` in {CHECKOUT}, and then its .venv/bin/python"
        )


def require_rules() -> None:
    """Check that gradient rules are for parameters of their rows, and ask for these. Raises TypeError."""
    for row in ROWS:
        if row.gradient is not None:
            for made in (row.function, *row.methods.values(), *row.properties.values()):
                if isinstance(made, Operation):
                    made.form.rule  # noqa: B018 - making it checks it


def put(path: Path, text: str) -> None:
    """Write a file, if that changes it, and print its path."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
        print(path)


def write() -> None:
    """Write every file, beginning with the indexes, which the others use to look up names."""
    for place, text, reader in ((written, index(), functions), (functional_written, functional_index(), functional)):
        put(Path(place.__file__), text)
        importlib.reload(place)
        importlib.reload(reader)
    for path, text in stubs().items():
        put(path, text)


if __name__ == "__main__":
    require_own_package()
    require_rules()
    if "--write" in sys.argv:
        write()
    else:
        print(methods_stub(), end="")
