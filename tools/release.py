"""Checks that a release is consistent; `make release` runs it before anything is published. It changes nothing.

The commit of a release has a section with a date in CHANGELOG.md and an annotated tag `v<version>` for its version
(`shmtensor.__version__`, from which the packages take theirs), and its packages are built and complete.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


def git(*arguments: str) -> str:
    return subprocess.check_output(["git", "-C", ROOT, *arguments], text=True).strip()


def version() -> str:
    """The version in the code, its only place of definition."""
    found = VERSION.search((ROOT / "shmtensor/__init__.py").read_text())
    if found is None:
        raise SystemExit("shmtensor/__init__.py has no line with __version__")
    return found[1]


def tree_is_clean(_: str) -> Iterator[str]:
    if changed := git("status", "--porcelain"):
        yield f"uncommitted changes: {', '.join(line[3:] for line in changed.splitlines())}; commit or remove them"


def changelog_has_it(number: str) -> Iterator[str]:
    text = (ROOT / "CHANGELOG.md").read_text()
    if not re.search(rf"^## {re.escape(number)} \(\d{{4}}-\d\d-\d\d\)$", text, re.MULTILINE):
        yield f"CHANGELOG.md has no section '## {number} (year-month-day)'; rename Unreleased, and begin a new one"


def tag_is_here(number: str) -> Iterator[str]:
    tags = git("tag", "--points-at", "HEAD").splitlines()
    if f"v{number}" not in tags:
        yield f"this commit has no tag v{number}: git tag --annotate v{number}"
    elif git("cat-file", "-t", f"v{number}") != "tag":
        yield f"v{number} is not an annotated tag: git tag --delete v{number}; git tag --annotate v{number}"


def packages_are_complete(number: str) -> Iterator[str]:
    dist = ROOT / "dist"
    wheels, archives = sorted(dist.glob("*.whl")), sorted(dist.glob("*.tar.gz"))
    if not wheels or not archives:
        yield "dist has no wheel or no sdist: run `make wheel`, or fetch those of the hosted build"
    for package in [*wheels, *archives]:
        if package.name.split("-")[1].removesuffix(".tar.gz") != number:
            yield f"{package.name} is not of version {number}: run `make wheel` again"
    tracked = set(git("ls-files", "shmtensor").splitlines())
    for wheel in wheels:
        names = set(zipfile.ZipFile(wheel).namelist())
        if "manylinux" not in wheel.name:
            yield f"{wheel.name} has no manylinux tag: auditwheel has not repaired it"
        if missing := tracked - names:
            yield f"{wheel.name} lacks {', '.join(sorted(missing)[:5])}"
    for archive in archives:
        with tarfile.open(archive) as tar:
            names = {name.split("/", 1)[1] for name in tar.getnames() if "/" in name}
        needed = tracked | set(git("ls-files", "native", "CMakeLists.txt", "LICENSE").splitlines())
        if missing := needed - names:
            yield f"{archive.name} lacks {', '.join(sorted(missing)[:5])}"


CHECKS: tuple[Callable[[str], Iterator[str]], ...] = (
    tree_is_clean,
    changelog_has_it,
    tag_is_here,
    packages_are_complete,
)


def main() -> int:
    number = version()
    problems = [problem for check in CHECKS for problem in check(number)]
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"version {number} can be released: push v{number}, whose hosted run publishes the packages and the site")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
