"""Builds the documentation site from the documents, the docstrings and the code.

python tools/build_site.py build/site           build it into build/site/html; a warning of Sphinx is an error
python tools/build_site.py build/site --links   also check the links to other sites

The sources are collected in build/site/sources: the documents of docs/, the other documents of the repository as pages
beside them (PAGES), and pages generated from the code: the list of errors (tools/error_messages.py), the list of
modules (tools/modules.py) and the API reference (tools/reference.py). Links between documents are changed to lead to
these pages. Files of the repository to which documents link are copied.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import sys
from pathlib import Path

import error_messages
import modules
import reference
from sphinx.cmd.build import build_main
from sphinx.util.inventory import InventoryFile

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples.md",
    "native/model/README.md": "models.md",
}
"""Documents outside of docs/, and their pages. README becomes docs/index.md, with the table of contents of the site."""
LINK = re.compile(r"(\]\()([^)\s#]*)(#[^)\s]*)?(\))")


def moved(text: str, document: str, sources: Path) -> str:
    """The text of a document for its page: each link leads to a page, to a file of docs/, or to a copy of a file."""
    here = Path(document).parent

    def link(match: re.Match[str]) -> str:
        target, anchor = match[2], match[3] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        path = os.path.normpath(here / target)
        if path in PAGES:
            new = PAGES[path]
        elif path.startswith("docs/"):
            new = path.removeprefix("docs/")
        elif (ROOT / path).is_file():
            new = f"files/{path}"
            (sources / new).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, sources / new)
        else:
            raise SystemExit(f"{document}: the link {target!r} leads to no file")
        return f"{match[1]}{new}{anchor}{match[4]}"

    return LINK.sub(link, text)


def gather(sources: Path) -> None:
    """Collect the sources of all pages."""
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(ROOT / "docs", sources, ignore=shutil.ignore_patterns("errors.md", "benchmarks"))
    shutil.copytree(ROOT / "docs/reports", sources / "reports", dirs_exist_ok=True)
    for page in sorted((ROOT / "docs").glob("*.md")):
        (sources / page.name).write_text(moved(page.read_text(), f"docs/{page.name}", sources))
    for document, page_name in PAGES.items():
        if document != "README.md":
            (sources / page_name).write_text(moved((ROOT / document).read_text(), document, sources))
    (sources / "errors.md").write_text(error_messages.page())
    (sources / "modules.md").write_text(modules.page())
    reference.write(sources / "reference")


def missing_names(html: Path) -> list[str]:
    """The public names that the index of the built site lacks."""
    found = InventoryFile.load((html / "objects.inv").open("rb"), "", lambda base, rest: rest)  # type: ignore[arg-type]
    known = {name for kind, entries in found.items() if kind.startswith("py:") for name in entries}
    pages = "".join(page.read_text() for page in (html / "reference").glob("*.html"))
    wanted = [f"{module}.{name}" for module in reference.MODULES for name in reference.public_names(module)]
    errors = importlib.import_module("shmtensor.errors")
    page_of_errors = (html / "errors.html").read_text()
    lacking = [name for name in wanted if name not in known and f">{name}<" not in pages]
    classes = [name for name in reference.public_names(errors.__name__) if isinstance(getattr(errors, name), type)]
    return lacking + [name for name in classes if name not in page_of_errors]


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("folder", type=Path, help="where sources and pages go")
    parser.add_argument("--links", action="store_true", help="also check the links to other sites")
    options = parser.parse_args()
    sources, html = options.folder / "sources", options.folder / "html"
    gather(sources)
    builder = ["-b", "linkcheck"] if options.links else ["-b", "html"]
    arguments = [*builder, "-q", "-W", "--keep-going", "-d", str(options.folder / "doctrees"), str(sources)]
    status: int = build_main([*arguments, str(options.folder / "links" if options.links else html)])
    if status == 0 and not options.links:
        lacking = missing_names(html)
        for name in lacking:
            print(f"the site does not describe {name}", file=sys.stderr)
        status = 1 if lacking else 0
        print(f"{html}/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())
