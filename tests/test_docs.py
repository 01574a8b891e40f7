"""Names in the documents exist: files behind links, tests in tables, targets of make."""

import re
from pathlib import Path

import pytest
from tiers import needs_sources

ROOT = Path(__file__).resolve().parent.parent
MADE = {"errors.md", "modules.md", "contributing.md", "changelog.md", "benchmarks.md", "examples.md", "models.md"}
"""Pages of the site that tools/build_site.py makes."""
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@needs_sources
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text()):
        assert "://" in target or target in MADE or (document.parent / target).exists(), target


@needs_sources
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


def test_versions_that_are_named_are_those_of_the_code() -> None:
    from shmtensor._native import LAYOUT_VERSION, PROTOCOL_VERSION

    protocol, operating = ((ROOT / "docs" / name).read_text() for name in ("protocol.md", "operating.md"))
    assert f"`PROTOCOL_VERSION` = {PROTOCOL_VERSION} " in protocol
    assert f"(protocol {PROTOCOL_VERSION}, layout {LAYOUT_VERSION})" in operating
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"layout of shared memory is version {LAYOUT_VERSION}, the protocol version {PROTOCOL_VERSION}." in changes
