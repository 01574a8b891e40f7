"""Writes the page of the error messages: each exception class, and its messages with cause and cure.

The page is made from the sources, without importing shmtensor: from the docstrings of `shmtensor/errors.py`, from each
place in `shmtensor/` that makes an exception or warns, and from the calls in `native/python/` that raise. It is made
when the documentation is built, and is not committed.

python tools/error_messages.py            print the page
python tools/error_messages.py --write    write it to docs/errors.md, or to the path that follows
python tools/error_messages.py --bare     list the messages that do not say what to do, with their places
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from messages import FEATURES, GENERAL, Message, has_words
from native_messages import NativeSources
from python_messages import Sources, last_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "shmtensor"
NATIVE = ROOT / "native" / "python"
TARGET = ROOT / "docs" / "errors.md"

INTRODUCTION = """# Error messages

All exceptions that shmtensor raises itself are subclasses of `ShmTensorError`, and of the built-in exception that a
caller would expect. This page has each class with its messages. A message states what was requested, what was found
and what to do; the tables show the last part in a column of its own. A message that only states what is required
(`must be`, `expected`) has its requirement there, and an empty cell means that the text at the head of the class
applies.

Names in braces, as in {path}, stand for values. To find a message, search for its words between the values.
"""
OTHERS = """## Built-in exceptions

These are raised where Python's protocols or other libraries require them. Some are caught by shmtensor, and their text
is then the end of another message.
"""

VERBS = """
add allow ask assign begin bind call change check choose close compute connect consider convert copy create cut
declare define delete detach drop enable end export flatten free get give import increase index install join keep
leave let load look lower make map move name open order pad pass pickle pin pip post put raise read reduce release
remove rename repeat replace reshape resize restart return run save say see select send set shorten skip sort split
squeeze start state stop subclass take try unpack unset update upgrade use wait wrap write
"""
"""Imperatives with which a cure may begin."""
_VERBS = [form for verb in VERBS.split() for form in (verb, verb.capitalize())]
_IMPERATIVE = rf"(?:please |then |otherwise )?(?:{'|'.join(_VERBS)})\b"
CURES = (
    re.compile(r"\. What to do: "),
    re.compile(rf"; (?={_IMPERATIVE})"),
    re.compile(r"; (?!.*; )"),
    re.compile(rf"[.:!] (?={_IMPERATIVE}|You can\b)"),
    re.compile(rf", (?={_IMPERATIVE})"),
)
"""Where the cure may begin, in the order of the search: before an imperative, or at the last semicolon."""
REQUIREMENTS = (
    re.compile(
        r"(?:^|: )((?!.*: ).*?\b(?:must|should|has to|have to|needs to|need to)\b.+?)(?:, (?:not|but|and has) .*)?$"
    ),
    re.compile(
        r"(\b(?:[Ee]xpect(?:s|ed|ing)|[Gg]ive|needs?|requires?|takes?|wants)\b.+?)"
        r"(?:, (?:and|but|not|got|it|which)\b.*)?$"
    ),
)


def split(text: str) -> tuple[str, str]:
    """Split a message into cause and cure; the cure is empty if the message has none."""
    for cure in CURES:
        for cut in cure.finditer(text):
            told = cure is CURES[0] or has_words(text[: cut.start()])
            if told and _is_outside(text, cut.start()):
                return text[: cut.start()].strip(), text[cut.end() :].strip()
    for requirement in REQUIREMENTS:
        required = requirement.search(text)
        if required:
            return text, required.group(1).strip()
    return text, ""


def _is_outside(text: str, at: int) -> bool:
    return text.count("{", 0, at) <= text.count("}", 0, at) and text.count("`", 0, at) % 2 == 0


def escape(text: str) -> str:
    """Escape the characters that MyST would interpret. Text between backticks remains code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        parts = ["`".join(parts)]
    shown = []
    for at, part in enumerate(parts):
        if at % 2:
            shown.append("`" + part.replace("|", "\\|") + "`")
        else:
            shown.append(re.sub(r"([\\`*_{}\[\]<>|$#~^&@]|(?<=-)-|-(?=-))", r"\\\1", part))
    return re.sub(r"\s*(?:\n|\\n)\s*", " ", "".join(shown))


def _docstring(node: ast.ClassDef, place: str) -> list[str]:
    """The lines of a section for the docstring of a class: its paragraphs, and its attributes as a list."""
    text = ast.get_docstring(node)
    if not text:
        raise ValueError(f"{node.name} in {place} has no docstring; write when it is raised and what to do")
    body, _, attributes = text.partition("\n\nAttributes:\n")
    lines = []
    for paragraph in body.split("\n\n"):
        lines += [escape(" ".join(paragraph.split())), ""]
    bases = ", ".join(f"`{ast.unparse(base)}`" for base in node.bases)
    lines += [f"Base classes: {bases}.", ""]
    if attributes:
        lines += ["Attributes:", ""]
        for line in re.sub(r"\n\s{5,}", " ", attributes).splitlines():
            name, _, meaning = line.strip().partition(": ")
            if name:
                lines.append(f"- `{name}`: {escape(meaning)}")
        lines.append("")
    return lines


def _tables(kind: str, messages: Iterable[Message]) -> list[str]:
    rows: dict[str, dict[tuple[str, str], None]] = {}
    for message in messages:
        if has_words(message.text):
            rows.setdefault(message.feature, {})[split(message.text)] = None
    lines = []
    for feature in (*FEATURES, GENERAL):
        if feature not in rows:
            continue
        lines += [f"### {kind}: {feature}", "", "| Cause | Cure |", "| --- | --- |"]
        cured = {cause for cause, cure in rows[feature] if cure}
        lines += [
            f"| {escape(cause)} | {escape(cure)} |" for cause, cure in rows[feature] if cure or cause not in cured
        ]
        lines.append("")
    return lines


def all_messages(sources: Sources, native: Path = NATIVE) -> list[Message]:
    """Return each message with its class, which is one of `errors.py`, of another public module, or of Python."""
    return [
        replace(message, kind=_public(sources, message.kind))
        for message in (*sources.messages(), *NativeSources(native).messages())
    ]


def _public(sources: Sources, kind: str) -> str:
    """The class itself, or for an internal class its nearest base that programs may name."""
    while kind in sources.classes:
        module, node = sources.classes[kind]
        if module.place == "errors.py" or kind in sources.public:
            break
        kind = next(last_name(base) for base in node.bases if last_name(base) in sources.exceptions)
    return kind


def page(package: Path = PACKAGE, native: Path = NATIVE) -> str:
    """Return the page, in MyST Markdown.

    Raises:
        ValueError: an exception class has no docstring.
    """
    sources = Sources(package)
    by_kind: dict[str, list[Message]] = {}
    for message in all_messages(sources, native):
        by_kind.setdefault(message.kind, []).append(message)
    ours = [
        node for node in sources.modules[f"{package.name}.errors"].tree.body
        if isinstance(node, ast.ClassDef) and node.name in sources.exceptions
    ]  # fmt: skip
    known = {node.name for node in ours}
    lines = [INTRODUCTION]
    for node in ours:
        lines += [
            f"## {node.name}",
            "",
            *_docstring(node, "errors.py"),
            *_tables(node.name, by_kind.get(node.name, ())),
        ]
    for name in sorted(sources.public & sources.classes.keys() & sources.exceptions - known):
        module, node = sources.classes[name]
        known.add(name)
        where = f"{package.name}.{module.place.removesuffix('.py').replace('/', '.')}"
        lines += [f"## {name}", "", *_docstring(node, module.place)]
        lines += [f"Defined in `{where}`.", "", *_tables(name, by_kind.get(name, ()))]
    lines.append(OTHERS)
    for name in sorted(by_kind.keys() - known):
        lines += _tables(name, by_kind[name])
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str]) -> int:
    """Print or write the page, or list the messages without a cure."""
    if arguments[:1] == ["--bare"]:
        for message in all_messages(Sources(PACKAGE)):
            if has_words(message.text) and not split(message.text)[1]:
                print(f"{message.place}:{message.line}: {message.kind}: {' '.join(message.text.split())}")
    elif arguments[:1] == ["--write"] and len(arguments) <= 2:
        Path(arguments[1] if len(arguments) > 1 else TARGET).write_text(page())
    elif not arguments:
        sys.stdout.write(page())
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
