"""Imports point downward only, and importing costs only what is used."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import shmtensor

ROOT = Path(shmtensor.__file__).parent

# Layers from the bottom, by the first part of a module's name below the package. A module imports from its own layer
# and from lower ones.
LAYERS = [
    {"errors", "hooks", "_loading", "_native"},
    {"manager"},
    {"dtypes", "allocators", "devices"},
    {"content", "conversion", "memory", "sharing", "storage"},
    {"_core", "_methods"},
    {
        "accounts",
        "atomics",
        "creation",
        "dlpack",
        "elementwise",
        "fft",
        "inspection",
        "linalg",
        "numpy_protocols",
        "products",
        "random",
        "selection",
        "shapes",
        "sorting",
        "special",
        "statistical",
    }
    | {"methods", "_tensor"},
    {"files", "reductions", "plain_pickle"},
    {"_namespace"},
    {"codec"},
    {"queues", "broadcast", "synchronize", "connection"},
    {"pool", "multiprocessing", "spawn"},
]
SERVER = {"manager.server", "manager.state", "manager.protocol"}


def layer_of(module: str) -> int:
    for depth, names in enumerate(LAYERS):
        if module.split(".")[0] in names:
            return depth
    raise AssertionError(f"shmtensor.{module} has no layer; give it one in LAYERS")


def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found.pop("")  # the package itself resolves lazily
    return found


def imports_of(module: str, path: Path) -> set[str]:
    """Modules of the package that a module names in imports, those inside functions too, below the package."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.removeprefix("shmtensor.") for name in node.names if name.name.startswith("shmtensor.")}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                assert node.level <= len(package) + 1, f"{module} imports from outside of the package"
                base = package[: len(package) + 1 - node.level] + (node.module.split(".") if node.module else [])
            elif node.module and node.module.split(".")[0] == "shmtensor":
                base = node.module.split(".")[1:]
            else:
                continue
            found |= {".".join([*base, name.name]) if len(base) < 2 else ".".join(base) for name in node.names}
    return found - {""}


def type_checking_only(path: Path) -> set[int]:
    """Lines under `if TYPE_CHECKING`."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_point_downward(module):
    own = layer_of(module)
    for imported in imports_of(module, modules()[module]):
        assert layer_of(imported) <= own, f"shmtensor.{module} imports shmtensor.{imported}, which lies above it"


@pytest.mark.parametrize("module", sorted(SERVER))
def test_server_side_imports_nothing_above(module):
    for imported in imports_of(module, modules()[module]):
        assert layer_of(imported) <= layer_of("manager")
    skipped = type_checking_only(modules()[module])
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno not in skipped:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            assert not any(name.split(".")[0] == "numpy" for name in names)


def loaded_after(statement: str) -> set[str]:
    """Modules in sys.modules after a statement, in a fresh interpreter."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_import_of_the_package_loads_nothing_else():
    loaded = loaded_after("import shmtensor")
    assert "numpy" not in loaded
    assert {name for name in loaded if name.startswith("shmtensor.")} == {"shmtensor._loading"}


def test_a_child_forked_while_a_thread_loads_the_namespace_can_use_it():
    code = """
import os, signal, sys, threading, shmtensor
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "shmtensor._core":
            loading.set()
            forked.wait(0.5)
loading, forked = threading.Event(), threading.Event()
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=lambda: shmtensor.zeros(3))
thread.start()
assert loading.wait(30)
child = os.fork()
if child == 0:
    signal.alarm(10)
    shmtensor.zeros(3)
    os._exit(0)
forked.set()
thread.join()
sys.exit(os.waitpid(child, 0)[1] != 0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    "make",
    [
        "fft.fftfreq(3)", "random.rand(3)", "linalg.inv(shmtensor.eye(3))", "files.MemoryFile() and shmtensor.zeros(3)",
    ],
)  # fmt: skip
def test_tensors_have_their_methods_whichever_module_came_first(make):
    module = make.partition(".")[0]
    loaded_after(f"import shmtensor.{module}\n(shmtensor.{make} + 1).sum()")


def test_manager_server_loads_no_numpy_and_no_tensors():
    loaded = loaded_after("import shmtensor.manager.server")
    assert "numpy" not in loaded
    assert not loaded & {"shmtensor.storage", "shmtensor._tensor", "shmtensor.allocators", "shmtensor.dtypes"}


def test_heap_tensors_load_no_client():
    loaded = loaded_after("import shmtensor; shmtensor.zeros(3)[1:].storage(); shmtensor.FloatStorage(4)")
    assert "shmtensor.manager.client" not in loaded


def test_every_public_name_resolves():
    for name in shmtensor.__all__:
        assert hasattr(shmtensor, name)
    assert set(shmtensor.__all__) <= set(dir(shmtensor))
    assert len(shmtensor.__all__) == len(set(shmtensor.__all__))


def test_every_public_name_is_seen_by_type_checkers():
    """They follow imports, and stars as far as modules have `__all__`; the lazy look-up follows `_namespace`."""
    seen = {"__version__"}
    for file in ("__init__.py", "_namespace.py"):
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            if isinstance(node, ast.ImportFrom) and node.level and node.module != "_loading":
                for alias in node.names:
                    module = importlib.import_module(f"shmtensor.{node.module}") if alias.name == "*" else None
                    seen |= {alias.asname or "dtypes"} if module is None else set(getattr(module, "__all__", ()))
    other = {row for row in shmtensor.dtypes.TABLE if row.package is not None}
    lazy = {"load", "save", "pickling", "set_pickling"} | {
        name for row in other for name in (row.name, f"{row.prefix}Storage", f"{row.prefix}Tensor")
    }
    assert set(dir(shmtensor)) | lazy == seen


def test_methods_are_seen_by_type_checkers():
    made = subprocess.run(
        [sys.executable, ROOT.parent / "tools/methods_stub.py"], capture_output=True, text=True, check=True
    )
    assert made.stdout == (ROOT / "_methods.pyi").read_text(), "run tools/methods_stub.py --write"


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_thing"):
        shmtensor.no_such_thing  # noqa: B018
    assert not hasattr(shmtensor, "__path_that_is_not_there__")


def test_tensor_function_is_not_hidden_by_a_module():
    import shmtensor._tensor
    import shmtensor.storage

    assert callable(shmtensor.tensor)
    assert callable(shmtensor.zeros)


def test_typed_marker_is_there():
    assert (ROOT / "py.typed").exists()
