"""The tools that make pages and check releases find what they must find."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.any_python


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield load
    for name in ("modules", "release"):
        sys.modules.pop(name, None)


def test_each_module_says_why_it_exists(tool) -> None:
    lines = tool("modules").lines()
    if not any(name.startswith("shmtensor/") for name in lines):
        pytest.skip("the sources are not here")
    assert not [name for name, line in lines.items() if len(line) < 15]


def test_a_module_that_says_nothing_is_found(tool, tmp_path: Path) -> None:
    (tmp_path / "shmtensor").mkdir()
    (tmp_path / "shmtensor" / "empty.py").write_text("x = 1\n")
    modules = tool("modules")
    modules.ROOT = tmp_path
    assert modules.lines() == {"shmtensor/empty.py": ""}


def test_one_version_number(tool) -> None:
    import shmtensor

    if (ROOT / "shmtensor").exists():
        assert tool("release").version() == shmtensor.__version__
    assert f'version = "{shmtensor.__version__}"' not in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("text", "is_complete"),
    [
        ("# Changelog\n\n## 7.1.0 (2027-01-31)\n", True),
        ("# Changelog\n\n## Unreleased\n", False),
        ("# Changelog\n\n## 7.1.0\n", False),
        ("# Changelog\n\n## 7x1.0 (2027-01-31)\n", False),
    ],
)
def test_a_changelog_without_the_version_is_found(tool, tmp_path: Path, text: str, is_complete: bool) -> None:
    release = tool("release")
    release.ROOT = tmp_path
    (tmp_path / "CHANGELOG.md").write_text(text)
    assert (list(release.changelog_has_it("7.1.0")) == []) == is_complete
