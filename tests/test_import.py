"""Imports point downward only, and importing loads only what is used."""

import ast
import importlib.util
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from tiers import needs_sources

import shmtensor
from shmtensor._tensor import index

ROOT = Path(shmtensor.__file__).parent

# Layers from the bottom: folders, and the modules beside them. What lies in one imports from its own layer and from
# lower ones. The native module is below them all.
LAYERS = [
    {"errors", "fixed", "hooks", "posix_shm", "_loading", "_missing"},
    {"manager"},
    {"dtypes", "devices", "layouts", "allocators", "gpu"},
    {"storage"},
    {"_tensor", "linalg", "random", "special", "fft", "atomics", "accounts", "threads", "cuda", "utils", "autograd"},
    {"files"},
    {"nn", "optim"},
    {"ipc"},
    {"data", "store"},
    {"channel"},
    {"multiprocessing", "hogwild", "_namespace"},
    {"array_api"},
    {"integrations"},
]


def modules() -> dict[str, Path]:
    """Every module by its name below the package; a folder stands for its `__init__`."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found.pop("")  # the package itself resolves lazily
    return found


MODULES = modules()


NEEDED = {
    "integrations.torch": "torch",
    "integrations.ray": "ray",
    "integrations.ray.torch_places": "torch",
    "integrations.dask": "distributed",
    "manager.monitor.screen": "textual",
    "gpu.messages": "cupy",
}


def lacks_package(module: str) -> bool:
    """Whether a module cannot be imported here, since a package of an extra is not installed."""
    return any(module.startswith(name) and importlib.util.find_spec(need) is None for name, need in NEEDED.items())


def layer_of(module: str) -> int:
    for depth, names in enumerate(LAYERS):
        if module.split(".")[0] in names:
            return depth
    raise AssertionError(f"shmtensor.{module} is in no layer; give its folder, or what lies beside the folders, one")


def imports_of(module: str) -> set[str]:
    """Modules of the package that a module names in imports, those inside functions and for type checkers too."""
    path = MODULES[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.removeprefix("shmtensor.") for name in node.names if name.name.startswith("shmtensor.")}
        elif isinstance(node, ast.ImportFrom):
            named = node.module.split(".") if node.module else []
            if node.level:
                assert node.level <= len(package) + 1, f"{module} imports from outside of the package"
                base = package[: len(package) + 1 - node.level] + named
            elif named[0] == "shmtensor":
                base = named[1:]
            else:
                continue
            for name in node.names:
                inner = ".".join([*base, name.name])
                found.add(inner if inner in MODULES else ".".join(base))
    return found & MODULES.keys()


def type_checking_only(path: Path) -> set[int]:
    """Lines under `if TYPE_CHECKING`."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_downward(module):
    own = layer_of(module)
    for imported in imports_of(module):
        assert layer_of(imported) <= own, f"shmtensor.{module} imports shmtensor.{imported}, which lies above it"


def test_no_module_imports_itself_by_way_of_others():
    try:
        TopologicalSorter({module: imports_of(module) for module in MODULES}).prepare()
    except CycleError as error:
        pytest.fail("a cycle of imports: " + " <- ".join(error.args[1]))


def test_names_of_the_index_are_in_the_layer_of_tensors():
    """Their modules are imported by name, where no import statement shows it."""
    for table in (index.FUNCTIONS, index.METHODS, index.PROPERTIES):
        for module in table:
            assert module in MODULES and layer_of(module) == layer_of("_tensor")


@pytest.mark.parametrize("module", sorted(name for name in MODULES if name.split(".")[0] == "manager"))
def test_the_manager_imports_no_numpy(module):
    skipped = type_checking_only(MODULES[module])
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
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
        if name == "shmtensor._tensor.core":
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


@pytest.mark.parametrize("module", ["methods", "core"])
def test_ctrl_c_while_native_code_imports_a_module_is_raised_as_such(module):
    code = f"""
import sys, numpy as np
from shmtensor._native import tensor
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "shmtensor._tensor.{module}":
            sys.meta_path.remove(self)
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
try:
    tensor(np.ones(3), None, 0)
except KeyboardInterrupt:
    print(tensor(np.ones(3), None, 0).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == "[1.0, 1.0, 1.0]\n"


@pytest.mark.exhaustive
def test_importing_a_module_looks_nothing_up():
    """It would wait for the lock of such imports, while who has that may wait for the module."""
    code = f"""
import importlib, shmtensor
def load(name):
    raise AssertionError(name)
shmtensor._load = shmtensor._loading.load = load
for module in {sorted(module for module in MODULES if not lacks_package(module))!r}:
    if module != "manager.__main__":
        importlib.import_module(f"shmtensor.{{module}}")
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
    loaded = loaded_after("import shmtensor.manager.daemon.server")
    assert "numpy" not in loaded
    assert not loaded & {"shmtensor.storage", "shmtensor._tensor", "shmtensor.allocators", "shmtensor.dtypes"}


def test_a_client_loads_nothing_of_the_daemon():
    loaded = loaded_after("import shmtensor.manager.client")
    assert not {name for name in loaded if name.startswith("shmtensor.manager.daemon")}


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
    lazy = {name for row in other for name in (row.name, f"{row.prefix}Storage", f"{row.prefix}Tensor")}
    assert set(dir(shmtensor)) | lazy == seen - {"_dtypes"}


@needs_sources
def test_methods_are_seen_by_type_checkers():
    made = subprocess.run([sys.executable, ROOT.parent / "tools/stubs.py"], capture_output=True, text=True, check=True)
    assert made.stdout == (ROOT / "_tensor" / "_methods.pyi").read_text(), "run tools/stubs.py --write"


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
