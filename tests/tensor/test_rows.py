"""One row for each operation: everything that is generated from it exists, and arrays are wrapped nowhere else."""

from __future__ import annotations

import ast
import gc
import inspect
import pickle
import re
import runpy
import subprocess
import sys
import weakref
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tiers import needs_sources

import shmtensor as st
from shmtensor import Tensor
from shmtensor._native import Operation
from shmtensor._tensor import dispatch, functions, index
from shmtensor._tensor.dispatch import Out, Result, Row, all_rows, make_form
from shmtensor.errors import DTypeError, InvalidArgument

ROOT = Path(dispatch.__file__).parent
ROWS = all_rows()
FILES = [path for name in ("_tensor", "linalg", "random") for path in sorted((ROOT.parent / name).glob("*.py"))]
FORMS = [(row, form) for row in ROWS for form in dict.fromkeys((row.function, *row.methods.values())) if form]

# What makes and describes tensors, and what turns arrays into tensors for everybody.
MECHANISM = {"core", "dispatch", "outputs"}
WRAPPING = {"wrap", "_share", "_tensor", "again", "failed"}
# Functions that give tensors over memory that is not an operation's result.
MAKERS = {"creation", "ranges", "windows", "dlpack", "generator", "numpy_protocols"}
# Functions of the storage, and one that knows better what failed.
ALLOWED = {("shapes", "_laid"), ("selection", "take_along_axis")}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_has_all_its_forms(row):
    if row.function is not None:
        for name in row.names:
            assert getattr(sys.modules[row.module], name) is row.function
            if row.module.startswith("shmtensor._tensor."):
                assert getattr(st, name) is row.function
    for name, method in row.methods.items():
        assert getattr(Tensor, name) is method
    for name, value in row.properties.items():
        assert getattr(Tensor, name).fget is value


@pytest.mark.parametrize(("row", "form"), FORMS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_form_says_what_it_is(row, form):
    assert form.__doc__ and form.__doc__[0] != " "
    is_method = isinstance(form, Operation) and form.__qualname__.startswith("Tensor.")
    assert form.__module__ == ("shmtensor" if is_method else row.module)
    parameters = list(inspect.signature(form).parameters.values())
    assert not any(re.search(r"\bArrays?\b", str(one.annotation)) or one.name == "xp" for one in parameters)
    assert form.__qualname__.removeprefix("Tensor.") == form.__name__
    if isinstance(form, Operation):
        assert inspect.isroutine(form) and weakref.ref(form)() is form
        assert pickle.loads(pickle.dumps(form)) is form


@needs_sources
def test_stubs_are_as_they_would_be_made():
    tool = ROOT.parent.parent / "tools/stubs.py"
    show = "print(*(str(path) for path, text in made['stubs']().items() if path.read_text() != text), sep=', ', end='')"
    code = f"import runpy; made = runpy.run_path({str(tool)!r}); {show}"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not made, f"{made}: run tools/stubs.py --write"


@needs_sources
def test_stubs_are_not_written_into_another_checkout(tmp_path):
    tool = tmp_path / "tools" / "stubs.py"
    tool.parent.mkdir()
    tool.write_text((ROOT.parent.parent / "tools/stubs.py").read_text())
    done = subprocess.run([sys.executable, tool, "--write"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and not done.stdout
    assert f"imports shmtensor from {ROOT.parent}, not from {tmp_path / 'shmtensor'}; run" in done.stderr


@needs_sources
def test_stubs_tell_what_they_wrote(tmp_path, capsys):
    put = runpy.run_path(str(ROOT.parent.parent / "tools/stubs.py"))["put"]
    path = tmp_path / "functions.pyi"
    for text in ("1", "1", "2", "2"):
        put(path, text)
        assert path.read_text() == text
    assert capsys.readouterr().out == f"{path}\n" * 2


@needs_sources
@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda g, inputs: g, "asks for 'inputs', which is not a parameter of it"),
        ({"inputs": lambda g: g}, "is for 'inputs', which is not a parameter of it"),
        ({("input", "x"): lambda g: (g, g)}, "is for 'x', which is not a parameter of it"),
    ],
)
def test_stubs_are_not_written_with_a_wrong_gradient_rule(rule, message):
    require = runpy.run_path(str(ROOT.parent.parent / "tools/stubs.py"))["require_rules"]
    require()
    row = Row("halved", lambda xp, input: input / 2, Result.CREATED, Out.NONE, __name__, "", "{name} of")
    row.gradient = rule
    row.function = make_form(row, "halved")
    require.__globals__["ROWS"] = [row]
    with pytest.raises(TypeError, match=f"the gradient rule of halved {message}"):
        require()


@pytest.mark.parametrize("name", functions.IN_PLACE)
def test_a_function_in_place_is_the_method(name):
    assert getattr(st, name) is getattr(Tensor, name)


def test_each_name_has_one_row():
    names = [(row.module, name) for row in ROWS if row.function is not None for name in row.names]
    assert len(names) == len(set(names)) and set(functions.__all__) - set(functions.IN_PLACE) <= {
        name for _, name in names
    }
    every = [name for row in ROWS for name in row.methods]
    assert len(every) == len(set(every))


def test_the_index_has_every_module_of_a_name():
    """`test_stubs_are_as_they_would_be_made` compares the text; here the modules must exist and have the names."""
    rows = {row.module for row in ROWS}
    for table in (index.FUNCTIONS, index.METHODS, index.PROPERTIES):
        assert {f"shmtensor.{module}" for module in table} <= rows
    assert {name for names in index.METHODS.values() for name in names.split()} == {
        name for row in ROWS for name in row.methods
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_arrays_are_wrapped_by_the_mechanism_alone(path):
    if path.stem in MECHANISM | MAKERS:
        return
    for function in ast.parse(path.read_text()).body:
        found = {
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for node in ast.walk(function)
            if isinstance(node, ast.Call)
        }
        if (path.stem, getattr(function, "name", "")) not in ALLOWED:
            assert not found & WRAPPING, f"{path.stem}.{getattr(function, 'name', '')}"


def test_wrong_calls_say_so_as_functions_do():
    x = st.ones(2, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'bogus'"):
        x.sort(bogus=1)
    with pytest.raises(TypeError, match=r"sort\(\)"):
        st.sort()
    with pytest.raises(DTypeError, match="sort of a list"):
        st.sort([1, 2])
    with pytest.raises(DTypeError, match="nonzero of a str"):
        st.nonzero("a")
    with pytest.raises(InvalidArgument, match="cat of no tensors"):
        st.cat([])
    with pytest.raises(DTypeError, match="clip of a str"):
        x.clip("a")
    with pytest.raises(DTypeError):
        st.sum(x, out=np.zeros(()))
    assert x.add_(other=1).tolist() == [[2, 2, 2], [2, 2, 2]]


def test_views_stay_on_the_storage_and_results_do_not():
    x = st.arange(6).view(2, 3)
    assert x.T.storage() is x.reshape(3, 2).storage() is x.storage()
    assert x.T.reshape(6).storage() is not x.storage()
    assert x.contiguous() is x and x.real is x
    assert x.matmul(st.eye(3, dtype=x.dtype)).storage() is not x.storage()
    out = st.zeros(2, 3, dtype="int64")
    assert st.cumsum(x, 0, out=out) is out and out.tolist() == [[0, 1, 2], [3, 5, 7]]
    assert x.clamp_(min=2) is x and x.tolist() == [[2, 2, 2], [3, 4, 5]]


@pytest.mark.parametrize("fail", [lambda x: x.addmm_(x, x, beta=0), lambda x: x.exp(), lambda x: st.mul(x, x, out=x)])
def test_an_error_does_not_keep_the_memory_of_its_call(fail):
    x = st.full((4, 4), 3e38)
    kept = weakref.ref(x._array)
    gc.disable()
    try:
        try:
            fail(x)
        except RuntimeWarning as error:  # an overflow, as pytest has it
            assert "overflow" in str(error)
        else:
            pytest.fail("no overflow")
        del x
        assert kept() is None
    finally:
        gc.enable()


class Elsewhere:
    """An array of a module that is not NumPy, as CuPy's are."""

    def __init__(self, values):
        self.values = values


def sort(array, axis, stable):
    return Elsewhere(sorted(array.values))


def test_the_array_module_is_that_of_the_arguments():
    form = st.argsort.form
    assert form.module_of(Elsewhere([3, 1])) is sys.modules[__name__]
    assert form.module_of(Elsewhere([3, 1])).sort(Elsewhere([3, 1]), 0, True).values == [1, 3]


def test_no_name_has_two_rows():
    functions = [name for row in ROWS if row.function is not None for name in row.names if is_public(row)]
    methods = [name for row in ROWS for name in (*row.methods, *row.properties)]
    assert [name for names in (functions, methods) for name, count in Counter(names).items() if count > 1] == []


def is_public(row: Row) -> bool:
    """Whether its function is one of the namespace; those of modules such as `linalg` may have the same names."""
    return row.module.startswith("shmtensor._tensor.")
