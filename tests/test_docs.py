"""What the documents name is there: files behind links, tests in tables, targets of make."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text()):
        assert "://" in target or (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tests_that_are_named_exist(document: Path) -> None:
    for name, function in re.findall(r"(?:tests/)?\b(test_\w+)\.py(?:::(\w+))?", document.read_text()):
        file = ROOT / "tests" / f"{name}.py"
        assert file.exists(), name
        assert not function or f"def {function}(" in file.read_text(), f"{name}::{function}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_targets_of_make_exist(document: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)) | {"test"}
    for target in re.findall(r"`make ([\w-]+)", document.read_text()):
        assert target in targets, target
