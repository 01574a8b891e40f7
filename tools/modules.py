"""Makes the page that states the purpose of each module and native file in one line, its own first sentence.

python tools/modules.py    print it; tools/build_site.py puts it into the site
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = """# Modules

Each module of `shmtensor/` and each file of `native/`, with its own first line. The layers are in
[architecture](architecture.md).

"""


def line_of_module(path: Path) -> str:
    """The first line of a module's docstring; empty: it has none."""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].replace("\n", " ")


def line_of_native(path: Path) -> str:
    """The first comment of a native file, up to its first full stop; empty: it does not begin with one."""
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").strip())
    return " ".join(lines).split(". ")[0].rstrip(".:") + ("." if lines else "")


def lines() -> dict[str, str]:
    """The line of each file, by its path; that of a header is also used for a source of the same name."""
    found = {}
    for path in sorted((ROOT / "shmtensor").rglob("*.py")):
        found[str(path.relative_to(ROOT))] = line_of_module(path)
    for path in sorted((ROOT / "native").glob("*/*.[ch]pp")):
        header = path.with_suffix(".hpp")
        if path.suffix == ".cpp" and header.exists():
            continue
        found[str(path.relative_to(ROOT))] = line_of_native(path)
    return found


def page() -> str:
    """The page in Markdown."""
    folders: dict[str, list[str]] = defaultdict(list)
    for name, line in lines().items():
        folder, _, file = name.rpartition("/")
        shown = line.replace("|", "\\|").replace("<", "&lt;")
        folders[folder].append(f"| `{file}` | {shown} |\n")
    text = HEAD
    for folder, rows in folders.items():
        text += f"## {folder}\n\n| file | |\n| --- | --- |\n{''.join(rows)}\n"
    return text


if __name__ == "__main__":
    sys.stdout.write(page())
