"""Every row of "Differences from torch" in tensors.md and autograd.md is true: its expression, with both libraries.

A row has an expression with `st`, its result with shmtensor, its result with torch, and the reason. A result is given
as text, without the name of the library; `refused` means an exception, `refused: X` an exception of class X.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmtensor as st

DOCUMENTS = Path(__file__).resolve().parent.parent / "docs"
REFUSED = "refused"


def lines() -> list[str]:
    """The lines of the tables in the sections, without their heads."""
    texts = [(DOCUMENTS / name).read_text() for name in ("tensors.md", "autograd.md")]
    sections = [text.split("\n## Differences from torch\n")[1].split("\n## ")[0] for text in texts]
    return [
        line
        for line in "\n".join(sections).splitlines()
        if line.startswith("|") and not re.match(r"\| (expression|---)", line)
    ]


def row_of(line: str) -> tuple[str, str, str]:
    """Expression and both results. AssertionError: the line is no such row, or says of both the same."""
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    assert len(cells) == 4 and all(cells), line
    code = re.fullmatch(r"`([^`]+)`", cells[0])
    assert code, f"no expression: {line}"
    ours, theirs = [cell.replace("`", "") for cell in cells[1:3]]
    for cell, text in ((cells[1], ours), (cells[2], theirs)):
        assert cell == f"`{text}`" or text.startswith(REFUSED), f"no result: {line}"
    assert ours != theirs and (not ours.startswith(REFUSED) or ": " in ours), line
    return code[1], ours, theirs


def outcome(expression: str, library: Any) -> str:
    """The result of an expression as a row states it."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = eval(expression, {"st": library, "np": np})
    except Exception as error:
        return f"{REFUSED}: {type(error).__name__}"
    return re.sub(r"\b(torch|shmtensor)\.", "", str(result))


def require(found: str, stated: str) -> None:
    assert found == stated or (stated == REFUSED and found.startswith(f"{REFUSED}: ")), f"{found}, not {stated}"


@pytest.mark.parametrize("line", lines(), ids=lambda line: line.split("`")[1])
def test_a_row_says_what_shmtensor_does(line: str) -> None:
    expression, ours, _ = row_of(line)
    if "float8" in expression or "bfloat16" in expression:
        pytest.importorskip("ml_dtypes")
    require(outcome(expression, st), ours)


@pytest.mark.torch
@pytest.mark.parametrize("line", lines(), ids=lambda line: line.split("`")[1])
def test_a_row_says_what_torch_does(line: str) -> None:
    torch: Any = pytest.importorskip("torch")
    expression, _, theirs = row_of(line)
    require(outcome(expression, torch), theirs)


def test_each_table_has_rows() -> None:
    assert len(lines()) > 60
