"""Runs every Python snippet of README and the documents, as the program that a reader would make of it.

A snippet that begins with an import, or with the name of its file, begins a program; any other continues the program
before it on its page. Code that a page does not show is in an invisible block of sybil, which the next snippet
continues (`<!--- invisible-code-block: python`). `<!--- skip: next "reason" -->` leaves a snippet out.
"""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest import SkipTest

import pytest
from manager_world import BOUND, World
from sybil import Document, Example
from sybil.parsers.markdown import CodeBlockParser, SkipParser

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*.md"))]
BEGINS = re.compile(r"\s*(import |from |# \w+\.py\n)")
FIRST = ("README.md", "docs/tutorial.md")
"""Pages whose snippets `make test` runs; `make test-all` runs all."""
OPTIONAL = ("torch", "jax", "ray", "dask", "distributed", "cupy", "PIL", "joblib", "textual", "sklearn")
OUTPUT = {
    "loader.py": "4950 True\n",
    "adam.py": "True\n",
    "rollouts.py": "4950.0\n(1,) float64 256\n",
    "train.py": "600 steps, accuracy above 0.9: True\n",
    "rendezvous.py": "[0, 1] [1.0, 2.0]\n",
    "camera.py": "all accounted for\n" * 2,
    "one_queue.py": "7 3072.0\n",
    "vectors.py": "[0, 1, 2, 3] ['users/7'] 3\n",
    "share.py": "tensor([1., 1., 1.], memory=shared)\n",
    "send.py": "first 2000000.0 2000000.0\n",
    "squares.py": "[6.0, 22.0, 38.0]\n[array([0, 1, 4]), array([0, 1])]\n",
    "batches.py": "(250, 3, 32, 32) [0, 1, 2]\n" * 4,
    "two.py": "accuracy above 0.9: True\n",
    "killed.py": "SIGKILL\n6\n-9 True 1.0\n",
    "rights.py": "cannot write\n",
    "dlpack.py": "15.0\ntensor([1., 1., 1.], memory=shared)\n",
    "jax_batches.py": "4000500.0\n",
    "jax_hogwild.py": "[1.0, 2.0, 3.0, 4.0]\n",
    "answers.py": "a worker ended with -9\nmissing: [4]\n",
    "deaths.py": "the message: 1000.0\nthe lock: owner died, True\nthe store: [0.0, 0.0, 0.0]\n",
    "wait.py": "the result\nthe worker ended with exit code 3, and without a result\n",
}
"""What programs print whose page says so, by the name of the file."""


@dataclass
class Program:
    """Its text has the lines of its page, so that a traceback names the place there."""

    page: str
    line: int
    text: str = ""
    modules: set[str] = field(default_factory=set)

    def add(self, source: str, line: int) -> None:
        self.text += "\n" * (line - 1 - self.text.count("\n")) + source
        self.modules |= set(re.findall(r"^\s*(?:import|from) (\w+)", source, re.MULTILINE))
        self.modules |= {"torch"} if re.search(r'output="torch"|\.torch\(|from_torch\(', source) else set()

    @property
    def name(self) -> str:
        named = re.search(r"^# (\w+\.py)$", self.text, re.MULTILINE)
        return named[1] if named else f"{Path(self.page).stem.lower()}_{self.line}.py"

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        names = self.modules | ({"dask"} if "distributed" in self.modules else set())
        marks = [getattr(pytest.mark, name) for name in ("torch", "ray", "dask") if name in names]
        return marks if self.page in FIRST else [*marks, pytest.mark.exhaustive]


def programs(page: Path) -> Iterator[Program]:
    blocks: list[tuple[int, str, bool]] = []

    def keep(example: Example) -> None:
        is_hidden = document.text.startswith("<!--", example.start)
        blocks.append((example.line + example.parsed.line_offset + 1, str(example.parsed), is_hidden))

    document = Document.parse(str(page), CodeBlockParser("python", evaluator=keep), SkipParser())
    for example in document.examples():
        with suppress(SkipTest):
            example.evaluate()
    program: Program | None = None
    was_hidden = False
    for line, source, is_hidden in blocks:
        if program is None or (BEGINS.match(source) and not was_hidden):
            if program is not None:
                yield program
            program = Program(str(page.relative_to(ROOT)), line)
        program.add(source, line)
        was_hidden = is_hidden
    if program is not None:
        yield program


PROGRAMS = [
    pytest.param(program, id=f"{program.page}:{program.line}", marks=program.marks)
    for page in PAGES
    for program in programs(page)
]


def output_of(text: str, path: Path, there: World) -> str:
    """What a program prints, which is written to a path and run there, with a manager of its own."""
    path.write_text(text)
    command = [sys.executable, path.name]
    # Unbuffered, almost as on a terminal: what is in a buffer when another thread forks a worker is printed by both.
    env = {**os.environ, "SHMTENSOR_RUNTIME_DIR": str(there.directory), "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        command, cwd=path.parent, env=env, capture_output=True, text=True, timeout=BOUND * 3, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.any_python
@pytest.mark.parametrize("program", PROGRAMS)
def test_snippets_run(program: Program, tmp_path: Path, here: World) -> None:
    for module in OPTIONAL:
        if module in program.modules and importlib.util.find_spec(module) is None:
            pytest.skip(f"no {module}")
    printed = output_of(program.text, tmp_path / program.name, here)
    assert printed == OUTPUT.get(program.name, printed)


def test_each_output_is_of_a_program() -> None:
    assert set(OUTPUT) <= {parameters.values[0].name for parameters in PROGRAMS}


def migrations() -> Iterator[tuple[str, str]]:
    """The new sides of the differences of each section of migrating.md, as a program."""
    for section in (ROOT / "docs" / "migrating.md").read_text().split("\n## ")[1:]:
        title, text = section.split("\n", 1)
        lines = ["import multiprocessing", "multiprocessing.set_start_method('fork')"]
        for difference in re.findall(r"```diff\n(.*?)```", text, re.DOTALL):
            lines += [line[1:] for line in difference.splitlines() if not line.startswith("-")]
        yield title, "\n".join(lines)


MIGRATIONS = list(migrations())


@pytest.mark.any_python
@pytest.mark.exhaustive
@pytest.mark.parametrize(("title", "program"), MIGRATIONS, ids=[title for title, _ in MIGRATIONS])
def test_programs_after_their_migration_run(title: str, program: str, tmp_path: Path, here: World) -> None:
    if "torch" in title and importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    output_of(program, tmp_path / "program.py", here)
