"""Programs for torch, as in tutorials, run with shmtensor with the same results.

The source of each file in `torch_programs/` has `import torch`; for shmtensor, only these lines are replaced. Results
must have the same structure, types and sizes and the same numbers within a tolerance, and the printed text must be the
same.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from beside_torch import plain, require_alike

PROGRAMS = sorted((Path(__file__).parent / "torch_programs").glob("*.py"))
SCRIPTS = [path for path in PROGRAMS if '__name__ == "__main__"' in path.read_text()]
"""Those that start processes run as programs of their own; they only print."""


def source_of(path: Path, library: str) -> str:
    """The text of a program with torch's name replaced in its imports."""
    text = path.read_text()
    text = re.sub(r"^import torch$", f"import {library} as torch", text, flags=re.MULTILINE)
    return re.sub(r"^(import|from) torch\b(?=.* (import|as) )", rf"\1 {library}", text, flags=re.MULTILINE)


def run(path: Path, library: str) -> tuple[Any, str]:
    """What a program gives, and what it prints, as with torch's own names."""
    namespace: dict[str, Any] = {"__name__": path.stem}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(source_of(path, library), path, "exec"), namespace)
        result = plain(namespace["main"]())
    return result, printed.getvalue()


def run_script(path: Path, library: str, folder: Path) -> str:
    """What a program prints that is started by itself."""
    copy = folder / f"{library}_{path.name}"
    copy.write_text(source_of(path, library))
    return subprocess.run([sys.executable, copy], check=True, capture_output=True, text=True, timeout=100).stdout


@pytest.mark.parametrize("path", [path for path in PROGRAMS if path not in SCRIPTS], ids=lambda path: path.stem)
def test_a_program_runs_without_torch(path: Path) -> None:
    before = "torch" in sys.modules
    result, printed = run(path, "shmtensor")
    assert result
    assert printed
    assert ("torch" in sys.modules) is before


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs_without_torch(path: Path, tmp_path: Path) -> None:
    assert run_script(path, "shmtensor", tmp_path)


@pytest.mark.torch
@pytest.mark.parametrize("path", [path for path in PROGRAMS if path not in SCRIPTS], ids=lambda path: path.stem)
def test_a_program_does_what_it_does_with_torch(path: Path) -> None:
    pytest.importorskip("torch")
    theirs, their_text = run(path, "torch")
    ours, our_text = run(path, "shmtensor")
    assert our_text == their_text
    require_alike(ours, theirs, path.stem)


@pytest.mark.torch
@pytest.mark.exhaustive
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_prints_what_it_prints_with_torch(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert run_script(path, "shmtensor", tmp_path) == run_script(path, "torch", tmp_path)
