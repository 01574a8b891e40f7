"""What the documents name is there: files behind links, tests in tables, targets of make."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from manager_world import BOUND

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text()):
        assert "://" in target or (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_named_exist(document: Path) -> None:
    folders = "shmtensor|native|tests|tools|examples|benchmarks|docs"
    for name in re.findall(
        rf"(?<![\w/.-])((?:{folders})/[\w/.-]+\.(?:pyi|py|[ch]pp|md|svg|zip))\b", document.read_text()
    ):
        assert (ROOT / name).exists() or (document.parent / name).exists(), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tests_that_are_named_exist(document: Path) -> None:
    for folder, name, function in re.findall(r"(tests/[\w/]*)?\b(test_\w+\.py)(?:::(\w+))?", document.read_text()):
        found = [ROOT / folder / name] if folder else list((ROOT / "tests").rglob(name))
        assert found and found[0].exists(), folder + name
        assert not function or f"def {function}(" in found[0].read_text(), f"{name}::{function}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_targets_of_make_exist(document: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)) | {"test"}
    for target in re.findall(r"`make ([\w-]+)", document.read_text()):
        assert target in targets, target


PROGRAMS = [
    pytest.param(program, id=name)
    for document in DOCUMENTS
    for program, name in re.findall(r"```python\n(# (\w+)\.py\n.*?)```", document.read_text(), re.DOTALL)
]
OUTPUT = {
    "loader": "4950 True\n",
    "rollouts": "4950.0\n(1,) float64 256\n",
    "train": "600 steps, accuracy above 0.9: True\n",
    "rendezvous": "[0, 1] [1.0, 2.0]\n",
    "camera": "all accounted for\n" * 2,
    "one_queue": "7 3072.0\n",
    "vectors": "[0, 1, 2, 3] ['users/7'] 3\n",
    "wait": "the result\nthe worker ended with exit code 3, and without a result\n",
}
"""Of the programs in the documents, which are those that begin with the name of a file."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_do_what_the_documents_say(program: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.id
    if "import torch" in program and importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    (tmp_path / f"{name}.py").write_text(program)
    command = [sys.executable, tmp_path / f"{name}.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=BOUND * 2, check=False)
    assert (done.stdout, done.returncode) == (OUTPUT[name], 0), done.stderr
