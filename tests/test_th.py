"""Every row of docs/th.md is true: its names exist, and so do its tests."""

import ast
import builtins
import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import shmtensor as st
from shmtensor import allocators, atomics, dtypes, errors, files, hooks, linalg, random

ROOT: Final = Path(__file__).resolve().parent.parent
TABLES: Final = (ROOT / "docs" / "th.md").read_text()
ROWS: Final = [
    [cell.strip() for cell in line.strip("|\n").split(" | ")]
    for line in TABLES.splitlines()
    if line.startswith("| ") and not line.startswith(("| TH | ", "| --- "))
]
KNOWN: Final[dict[str, Any]] = {
    "x": st.Tensor, "y": st.Tensor, "k": st.Tensor, "storage": st.Storage, "allocator": allocators.DefaultAllocator,
    "generator": random.Generator, "other": random.Generator, "random": random, "linalg": linalg, "hooks": hooks,
    "atomics": atomics, "dtypes": dtypes, "allocators": allocators, "copy": copy,
}  # fmt: skip
"""What the names that are no names of shmtensor stand for in the tables."""
PLACES: Final = (st, st.Tensor, st.Storage, random, allocators, files, errors, builtins)
"""Where the first name of a chain is, in the order of the search."""
PARTS: Final = {
    "THStorage_", "THTensor_(new)", "THTensor_(add)", "THRandom_", "THBlas_", "THLapack_", "THTensor_(conv2Dmv)",
    "THLogAdd", "THAtomic", "THFile_", "THDiskFile_", "THMemoryFile_", "THPipeFile_", "THAlloc", "THSetGCHandler",
    "THSetErrorHandler", "THVector_", "THGenerator_", "THMapAllocator", "THRefcountedMapAllocator",
}  # fmt: skip


def test_every_part_of_th_has_a_row() -> None:
    first = "\n".join(row[0] for row in ROWS)
    assert [part for part in PARTS if part not in first] == []
    assert len(ROWS) > 150


USED: Final = {
    ast.Module: "body", ast.Expr: "value", ast.Call: "func", ast.Subscript: "value", ast.Assign: "targets",
}  # fmt: skip
"""Where a name alone is one that must be there."""


def chains(node: ast.AST, used: bool = True) -> Iterator[list[str]]:
    """The names that an expression uses, with their attributes: `a.b(c)[d.e]` gives a.b and d.e.

    A name alone counts where it is all, or is called or indexed; elsewhere it stands for a value.
    """
    if isinstance(node, ast.Name):
        if used:
            yield [node.id]
    elif isinstance(node, ast.Attribute):
        inner = [*chains(node.value)]
        yield from [[*inner[0], node.attr], *inner[1:]] if isinstance(node.value, ast.Name | ast.Attribute) else inner
    else:
        for field, value in ast.iter_fields(node):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST):
                    yield from chains(one, USED.get(type(node)) == field)


def require(chain: list[str]) -> None:
    """Fail unless shmtensor has what a chain of names says."""
    first, *attributes = chain
    if first in KNOWN:
        found = KNOWN[first]
    else:
        place = next((place for place in PLACES if hasattr(place, first)), None)
        assert place is not None, f"no {first}"
        found = getattr(place, first)
    for i, name in enumerate(attributes):
        there = hasattr(found, name) or name in getattr(found, "__annotations__", {})  # attributes of instances
        assert there, f"no {'.'.join([first, *attributes[: i + 1]])}"
        found = getattr(found, name, None)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_every_row_is_true(row: list[str]) -> None:
    assert len(row) == 3, "TH's names, ours, a test"
    names, ours, tests = row
    assert names.startswith(("TH", "_TH"))
    for code in re.findall(r"`([^`]+)`", ours):
        for chain in chains(ast.parse(code)):
            require(chain)
    named = [part.strip() for part in tests.split(",")]
    folder = ""
    for one in named:
        file, _, function = one.rpartition("::")
        folder = file or folder
        path = ROOT / folder
        assert path.is_file(), one
        assert re.search(rf"^def {re.escape(function)}\(", path.read_text(), re.MULTILINE), one


def test_names_that_are_not_there_are_found() -> None:
    assert [*chains(ast.parse("a.b(c, d=e, f=g.h(i))[j, k.l]"))] == [["a", "b"], ["g", "h"], ["k", "l"]]
    assert [*chains(ast.parse("x.storage() is y.q"))] == [["x", "storage"], ["y", "q"]]
    assert [*chains(ast.parse("x[i, j] = value"))] == [["x"]]
    assert [*chains(ast.parse("a.b.c().d"))] == [["a", "b", "c"]]
    assert [*chains(ast.parse("a"))] == [["a"]]
    for bad in (["nothing_like_it"], ["Tensor", "no_method"], ["linalg", "solve", "nowhere"], ["x", "copyy_"]):
        with pytest.raises(AssertionError, match=r"no "):
            require(bad)
    require(["x", "shape"])
    require(["FloatTensor"])
