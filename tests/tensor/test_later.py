"""Modules of operations are imported at the first use of one of their names."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import textwrap

import pytest

import shmtensor as st
from shmtensor import Tensor
from shmtensor._native import Operation
from shmtensor._tensor.dispatch import all_rows
from shmtensor._tensor.methods import Later

FIRST = {
    "core", "creation", "dispatch", "dlpack", "functions", "index", "keywords", "methods", "options", "outputs",
    "signatures",
}  # fmt: skip


def run(code: str) -> str:
    """What a program prints. It begins with `x`, the first tensor."""
    start = (
        "import sys\nimport shmtensor as st\nfrom shmtensor import Tensor\nx = st.tensor([[1.0, 2.0], [3.0, 4.0]])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def loaded(code: str) -> set[str]:
    """Modules of tensors that are loaded after a program."""
    found = run(f"{code}\nprint(*sys.modules)").split()
    names = [name.removeprefix("shmtensor.") for name in found if name.startswith("shmtensor.")]
    return {name.removeprefix("_tensor.") for name in names if name.split(".")[0] in ("_tensor", "linalg", "random")}


def test_the_first_tensor_loads_few_modules():
    assert loaded("") == FIRST | {"_tensor"}


@pytest.mark.parametrize(
    "code",
    [
        "dir(st); dir(Tensor); hasattr(st, 'no_such_name')",
        "try: st.zreos\nexcept AttributeError as error: assert 'zeros' in str(error)",
        "st.float32, st.FloatTensor, st.LongStorage, st.Size",
    ],
)
def test_looking_names_up_loads_no_operations(code):
    assert not loaded(code) & {"elementwise", "shapes", "statistical", "linalg", "random"}


def test_a_name_loads_its_module_alone():
    assert loaded("x.exp()") == FIRST | {"_tensor", "elementwise", "elementwise_rules", "result_types"}
    assert loaded("st.exp") == loaded("x.exp()")
    assert "linalg.solvers" in loaded("x.det()") and "random.distributions" in loaded("x.normal_()")


FIRST_USES = [
    ("(x + x).tolist()", [[2, 4], [6, 8]]),
    ("(2 - x).tolist()", [[1, 0], [-1, -2]]),
    ("(x @ x).tolist()", [[7, 10], [15, 22]]),
    ("(x == x).tolist()", [[True, True], [True, True]]),
    ("(x < 2).tolist()", [[True, False], [False, False]]),
    ("(+x).tolist()", [[1, 2], [3, 4]]),
    ("(-x).tolist()", [[-1, -2], [-3, -4]]),
    ("abs(-x).tolist()", [[1, 2], [3, 4]]),
    ("x.T.tolist()", [[1, 3], [2, 4]]),
    ("x.add(1).tolist()", [[2, 3], [4, 5]]),
    ("Tensor.add(x, 1).tolist()", [[2, 3], [4, 5]]),
    ("st.FloatTensor.add(x, 1).tolist()", [[2, 3], [4, 5]]),
    ("st.add(x, 1).tolist()", [[2, 3], [4, 5]]),
    ("st.exp_(x - x).tolist()", [[1, 1], [1, 1]]),
    ("st.det(x).round().item()", -2),
    ("__import__('numpy').add(x, 1).tolist()", [[2, 3], [4, 5]]),
    ("__import__('numpy').from_dlpack(x).tolist()", [[1, 2], [3, 4]]),
    ("x.__array_namespace__().__name__", "shmtensor.array_api"),
    ("__import__('pickle').loads(__import__('pickle').dumps(Tensor.add_)) is Tensor.add_", True),
    (
        "str(__import__('inspect').signature(Tensor.add_)).replace(chr(39), '')",
        "(input: Any, other: Any, *, alpha: float = 1) -> Tensor",
    ),
    ("Tensor.T.fget(x).tolist()", [[1, 3], [2, 4]]),
]


def test_a_first_use_is_as_any_other():
    """Each in a child of a process that has used nothing yet."""
    lines = run(f"""
        import os
        for expression in {[expression for expression, _ in FIRST_USES]}:
            child = os.fork()
            if child == 0:
                print(repr(eval(expression)), flush=True)
                os._exit(0)
            os.waitpid(child, 0)
    """).splitlines()
    assert len(lines) == len(FIRST_USES)
    for line, (expression, wanted) in zip(lines, FIRST_USES, strict=True):
        assert eval(line) == wanted, expression


def test_in_place_operators_load_their_module():
    assert run("y = x\nx += x\nx @= x\nprint(x is y, x.tolist())") == "True [[28.0, 40.0], [60.0, 88.0]]"


def test_a_subclass_may_override_methods_and_call_them():
    made = """
        class Mine(Tensor):
            def add(self, other):
                return super().add(other).tolist()
            @property
            def T(self):
                return super().T.tolist()
        mine = Mine(x)
        mine = Mine(2, 2)
        mine[:] = 1
        mine[0, 1] = 5
        print(mine.add(1), mine.T)
    """
    assert run(made) == "[[2.0, 6.0], [2.0, 2.0]] [[1.0, 1.0], [5.0, 1.0]]"


def test_a_property_is_not_hidden_by_attributes():
    made = """
        class Mine(Tensor):
            pass
        mine = Mine(2, 2)
        try:
            mine.mT = 5
        except AttributeError as error:
            print(vars(mine), error)
    """
    assert re.fullmatch(r"\{\} property (\S+ )?of 'Mine' object has no setter", run(made))


def test_help_shows_the_methods():
    text = run("import pydoc; print(pydoc.plain(pydoc.render_doc(Tensor)))")
    assert re.search(r"\badd\([\s|]*input: '?Any'?,[\s|]*other: '?Any'?", text) and "Later" not in text


def test_nothing_is_left_on_the_path_of_a_call():
    for name in ("add", "__add__", "T"):
        assert run(f"x.add(1)\nx + 1\nx.T\nprint(type(vars(Tensor)[{name!r}]).__name__)") in ("Operation", "property")
    all_rows()
    assert not [name for name, value in vars(Tensor).items() if isinstance(value, Later)]
    assert isinstance(vars(Tensor)["add"], Operation)
    assert inspect.getattr_static(Tensor, "T").fget is st.Tensor.T.fget


def test_a_use_during_the_import_of_its_module_says_so():
    made = """
        class Within:
            def find_spec(self, name, path=None, target=None):
                if name == "shmtensor._tensor.result_types":
                    try:
                        x + 1
                    except ImportError as error:
                        print(error)
        sys.meta_path.insert(0, Within())
        print((x + 1).tolist())
    """
    said = "Tensor.__add__ was used during the import of shmtensor._tensor.elementwise"
    assert run(made).splitlines() == [said, "[[2.0, 3.0], [4.0, 5.0]]"]


SLOW = """
    import os, signal, threading
    class Slow:
        def find_spec(self, name, path=None, target=None):
            if name == "shmtensor._tensor.elementwise":
                loading.set()
                others.wait(0.5)
    loading, others = threading.Event(), threading.Event()
    sys.meta_path.insert(0, Slow())
    found = []
    first = threading.Thread(target=lambda: found.append((x + 1).tolist()))
    first.start()
    assert loading.wait(30)
"""


def test_threads_may_use_a_module_first_at_the_same_time():
    more = """
    threads = [threading.Thread(target=lambda: found.append(x.add(1).tolist())) for i in range(4)]
    for one in threads: one.start()
    others.set()
    for one in (first, *threads): one.join()
    print(len(found), all(one == [[2, 3], [4, 5]] for one in found))
    """
    assert run(SLOW + more) == "5 True"


def test_a_child_forked_while_a_thread_loads_a_module_can_use_it():
    more = """
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        os._exit((x * 2).tolist() != [[2, 4], [6, 8]])
    others.set()
    first.join()
    print(os.waitpid(child, 0)[1])
    """
    assert run(SLOW + more) == "0"
