"""The page of the error messages has every exception class, and every message that the sources raise."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiers import needs_sources

from shmtensor import errors

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "shmtensor"
NATIVE = ROOT / "native" / "python"

pytestmark = [pytest.mark.any_python, pytest.mark.exhaustive, needs_sources]


def _load() -> Any:
    sys.path.append(str(ROOT / "tools"))
    try:
        return importlib.import_module("error_messages")
    finally:
        sys.path.remove(str(ROOT / "tools"))


tool = _load()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "errors.md"
    assert tool.main(["--write", str(path)]) == 0
    return path.read_text()


def words(text: str) -> str:
    """The words of a text, however it is escaped and in however many cells of a table it stands."""
    return f" {' '.join(re.findall(r'[A-Za-z0-9]+', text.replace(chr(92), '')))} "


def raised() -> Iterator[tuple[str, str]]:
    """Each text in the call of a `raise` statement, with its place; names and values between the texts end them."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield from ((place, text) for argument in node.exc.args for text in _pieces(argument))


def _pieces(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        for value in node.values:
            yield from _pieces(value)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _pieces(node.left)
        yield from _pieces(node.right)


def lacking(text: str, page: str) -> list[str]:
    """The parts of a text, between line breaks, whose words are not in the page."""
    return [part for part in text.splitlines() if len(words(part).split()) > 1 and words(part) not in page]


def test_has_every_exception_class(page: str) -> None:
    classes = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, Exception)]
    assert len(classes) > 30
    for kind in classes:
        section = re.search(rf"^## {kind.__name__}\n\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
        assert section, f"{kind.__name__} has no section"
        assert words(inspect.getdoc(kind).partition("\n\n")[0]) in words(section[1]), kind.__name__
        assert all(f"`{base.__name__}`" in section[1] for base in kind.__bases__), kind.__name__


def test_every_exception_class_says_what_to_do() -> None:
    bare = [
        kind.__name__
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, Exception)
        if "; " not in (kind.__doc__ or "")
        and "\n\n" not in inspect.cleandoc(kind.__doc__ or "").partition("Attributes:")[0]
    ]
    assert not bare, f"{bare}: their docstrings do not say what to do"


def test_has_every_message_that_is_raised(page: str) -> None:
    found, wanted = words(page), list(raised())
    assert len(wanted) > 1500
    missing = [f"{place}: {part}" for place, text in wanted for part in lacking(text, found)]
    assert not missing, "\n".join(missing)


def test_has_the_messages_of_native_code(page: str) -> None:
    found = words(page)
    call = re.compile(r'(?:\braise|PyErr_SetString|PyErr_Format)\(\s*(?:errors\.|PyExc_)\w+,\s*"((?:[^"\\]|\\.)*)"')
    texts = [text for path in sorted(NATIVE.glob("*.cpp")) for text in call.findall(path.read_text())]
    assert len(texts) > 60
    parts = [part for text in texts for part in re.split(r"%[-.\d]*(?:ll|z)?[a-zA-Z]|\\.", text)]
    assert not [part for part in parts if len(words(part).split()) > 1 and words(part) not in found]


def test_a_class_without_docstring_fails(tmp_path: Path) -> None:
    package = tmp_path / "shmtensor"
    package.mkdir()
    shutil.copy(PACKAGE / "errors.py", package / "errors.py")
    assert "## NameTaken" in tool.page(package, NATIVE)
    with (package / "errors.py").open("a") as file:
        file.write("\n\nclass Undocumented(ShmTensorError):\n    pass\n")
    with pytest.raises(ValueError, match=r"Undocumented in errors\.py has no docstring; write"):
        tool.page(package, NATIVE)


def test_a_message_that_the_page_lacks_is_found(page: str) -> None:
    assert lacking("no table is on the moon; take a chair", words(page)) == ["no table is on the moon; take a chair"]


MADE = '''
"""A module."""
from shmtensor.errors import InvalidArgument, ShmTensorError

LIMIT = 7
ADVICE = "; see the manual"


def refuse(value, what="a value"):
    where = "here" if value else "there"
    if value is None:
        raise InvalidArgument(f"{what} is missing {where}; give one of {LIMIT}")
    if value < 0:
        raise refusal(f"{value!r} of {type(value).__name__}")
    raise ShmTensorError("too much" + ADVICE)


def refusal(what):
    return InvalidArgument(f"{what}: below 0")
'''


def test_reads_names_alternatives_and_helpers(tmp_path: Path) -> None:
    package = tmp_path / "shmtensor"
    package.mkdir()
    shutil.copy(PACKAGE / "errors.py", package / "errors.py")
    (package / "store.py").write_text(MADE)
    made = {message.text: message for message in tool.Sources(package).messages()}
    assert set(made) == {
        "{what} is missing here; give one of 7",
        "{what} is missing there; give one of 7",
        "{value} of {type of value}: below 0",
        "{what}: below 0",
        "too much; see the manual",
    }
    assert {message.feature for message in made.values()} == {"Stores"}
    assert made["too much; see the manual"].kind == "ShmTensorError"
    assert r"| \{what\} is missing here | give one of 7 |" in tool.page(package, NATIVE)


@pytest.mark.parametrize(
    ("message", "cause", "cure"),
    [
        ("no room for {what}; release tensors", "no room for {what}", "release tensors"),
        ("a; b is c; use d, or e", "a; b is c", "use d, or e"),
        ("it ended. What to do: start it", "it ended", "start it"),
        ("x is gone, and copy=False was asked for", "x is gone, and copy=False was asked for", ""),
        ("{name; use x} is wrong", "{name; use x} is wrong", ""),
        ("n must be at least 1, not {n}", "n must be at least 1, not {n}", "n must be at least 1"),
        ("Expected 2 axes, but got {n}", "Expected 2 axes, but got {n}", "Expected 2 axes"),
    ],
)
def test_splits_cause_and_cure(message: str, cause: str, cure: str) -> None:
    assert tool.split(message) == (cause, cure)


def test_escapes_what_myst_would_interpret() -> None:
    assert tool.escape("{x} | a_b* <c> [d] $e$ `f{g}|h` i") == (r"\{x\} \| a\_b\* \<c\> \[d\] \$e\$ `f{g}\|h` i")
    assert tool.escape("one ` alone") == r"one \` alone"


def test_arguments(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert page.startswith("# Error messages\n")
    assert tool.main(["--unknown"]) == 2
    assert "--write" in capsys.readouterr().err
