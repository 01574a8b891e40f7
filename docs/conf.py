"""Settings of the documentation site, which `make docs` builds (tools/build_site.py puts its sources together)."""

import re
from typing import Any

import shmtensor
from shmtensor._tensor import dispatch

dispatch.all_rows()  # methods of tensors stand in for those of modules that are not imported yet

project = "shmtensor"
author = "the developers of shmtensor"
project_copyright = "the developers of shmtensor"
version = release = shmtensor.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["files"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # the list of errors goes from the first to the third level
default_role = "literal"  # docstrings write `name`, as Markdown does

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 88

smartquotes = False  # commands and messages are copied and searched

html_theme = "furo"
html_title = f"shmtensor {version}"
html_show_sourcelink = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp"
linkcheck_timeout = 20


_HIDDEN = "\N{WORD JOINER}"


def described(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Keep napoleon from taking what stands before the colon of a property's first line for its type."""
    if what in ("attribute", "property", "data") and lines:
        lines[0] = lines[0].replace(":", _HIDDEN)


def plain(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with `names`: `zero_` and `|x|` mean what they say there, and nothing to docutils."""
    for at, line in enumerate(lines):
        line = line.replace(_HIDDEN, ":")
        field = re.match(r"\s*:[^:]*:", line)
        start = field.end() if field else 0
        parts = re.split(r"(`+[^`]*`+)", line[start:])
        for i in range(0, len(parts), 2):
            parts[i] = re.sub(r"(?<=\w)_(?!\w)|(?<!\\)\|", r"\\\g<0>", parts[i])
        lines[at] = line[:start] + "".join(parts)


def setup(app: Any) -> None:
    """Connect what changes docstrings."""
    app.connect("autodoc-process-docstring", described, priority=100)
    app.connect("autodoc-process-docstring", plain, priority=900)  # after napoleon
