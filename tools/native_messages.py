"""Finds the messages of exceptions in the C++ sources of the native module."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from messages import Message, has_words

NATIVE_SURFACES = {"block_gone": "StaleHandle", "lock_busy": "LockTimeout", "not_held": "ClientUnavailable"}
"""Exceptions of the native module that are converted before they reach a program, by their names in `Errors`
(errors.hpp), and the classes that they become."""

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_LITERALS = r'(?:\s*"(?:[^"\\]|\\.)*")+'
_RAISES = re.compile(
    r"\b(?:raise|PyErr_SetString|PyErr_Format|PyErr_WarnFormat|nb::(\w+)_error|std::(invalid_argument|runtime_error))\("
)
_NANOBIND = {
    "value": "ValueError",
    "type": "TypeError",
    "index": "IndexError",
    "key": "KeyError",
    "buffer": "BufferError",
}
_HELPER = re.compile(r"\[\[noreturn\]\] \w+ (\w+)\(const std::string& (\w+)\) \{\s*raise\((.*?)\);\s*\}", re.DOTALL)


def _arguments(text: str, at: int) -> list[str]:
    """The arguments of a call in C++, whose parenthesis opens before `at`."""
    found = [""]
    depth = 0
    while True:
        literal = _STRING.match(text, at) or re.compile(r"'(?:[^'\\]|\\.)'").match(text, at)
        if literal:
            found[-1] += literal.group()
            at = literal.end()
            continue
        letter = text[at]
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
            if depth < 0:
                return [one.strip() for one in found]
        if letter == "," and depth == 0:
            found.append("")
        elif not letter.isspace():
            found[-1] += letter
        elif not found[-1].endswith(" "):
            found[-1] += " "
        at += 1


def _split(text: str, separator: str) -> list[str]:
    """The parts of an expression in C++ between a separator that is outside of parentheses and literals."""
    parts = [""]
    depth = 0
    at = 0
    while at < len(text):
        literal = _STRING.match(text, at)
        if literal:
            parts[-1] += literal.group()
            at = literal.end()
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0 and text.startswith(separator, at):
            parts.append("")
            at += len(separator)
        else:
            parts[-1] += text[at]
            at += 1
    return [part.strip() for part in parts]


class NativeSources:
    """The files of the native module that include Python, and the messages in them."""

    def __init__(self, folder: Path) -> None:
        self.files = {
            f"native/{path.name}": re.sub(r"^[ \t]*//.*$", "", path.read_text(), flags=re.MULTILINE)
            for path in sorted(folder.glob("*.?pp"))
        }
        whole = "".join(self.files.values())
        self.constants: dict[str, str] = dict(re.findall(rf"constexpr const char\* (k\w+) =\s*({_LITERALS});", whole))
        self.returns = {
            name: [text for value in re.findall(rf"return ({_LITERALS});", body) for text in self.texts(value, {})]
            for name, body in re.findall(r"const char\* (\w+)\([^()]*\) \{\n(.*?)\n\}", whole, re.DOTALL)
        }
        self.kinds: dict[str, str] = dict(re.findall(r"\.(\w+) = find\(\"(\w+)\"\)", whole)) | NATIVE_SURFACES

    def kind(self, expression: str) -> str | None:
        """Return the class that an expression in C++ names."""
        if expression.startswith("PyExc_"):
            return expression.removeprefix("PyExc_")
        return self.kinds.get(expression.removeprefix("errors."))

    def texts(self, expression: str, bound: Mapping[str, str]) -> list[str]:
        """Return the texts of an expression in C++, with placeholders for values."""
        sum_of = _split(expression, " + ") if "?" not in _STRING.sub("", re.sub(r"\(.*\)", "", expression)) else []
        if len(sum_of) > 1:
            return ["".join(parts) for parts in itertools.product(*(self.texts(part, bound) for part in sum_of))]
        wrapped = re.fullmatch(r"std::string\{(.*)\}|\((.*)\)", expression, re.DOTALL)
        if wrapped:
            return self.texts(wrapped.group(1) or wrapped.group(2), bound)
        if "?" in _STRING.sub("", expression) and not expression.startswith('"'):
            both = _split(expression.partition("?")[2], " : ")
            if len(both) == 2:
                return [text for one in both for text in self.texts(one, bound)]
        if expression in self.constants:
            expression = self.constants[expression]
        if _STRING.sub("", expression).strip() == "":
            return ["".join(re.sub(r'\\(["\\])', r"\1", part) for part in _STRING.findall(expression))]
        if expression in bound:
            return [bound[expression]]
        return [f"{{{self.readable(expression)}}}"]

    def readable(self, expression: str) -> str:
        """Return what a placeholder shows for an expression in C++."""
        typed = re.search(r"Py_TYPE\((\w+)", expression)
        if typed:
            return f"type of {typed.group(1)}"
        names: list[str] = re.findall(r"[A-Za-z_]\w*", _STRING.sub("", expression))
        names = [name for name in names if name not in _CPP_WORDS] or ["..."]
        return names[-1].strip("_")

    def messages(self) -> Iterator[Message]:
        """Yield each message of the files."""
        for place, text in self.files.items():
            helpers = {name: (parameter, body) for name, parameter, body in _HELPER.findall(text)}
            for found in _RAISES.finditer(text):
                line = text.count("\n", 0, found.start()) + 1
                for kind, message in self._made(found, text):
                    yield Message(kind, place, line, message)
            for name, (parameter, body) in helpers.items():
                kind_of, message_of = _arguments(body + ")", 0)
                for found in re.finditer(rf"(?<!void )\b{name}\(", text):
                    line = text.count("\n", 0, found.start()) + 1
                    for inner in self.texts(_arguments(text, found.end())[0], {}):
                        for message in self.texts(message_of, {parameter: inner}):
                            yield Message(self.kind(kind_of) or kind_of, place, line, message)

    def _made(self, found: re.Match[str], text: str) -> Iterator[tuple[str, str]]:
        arguments = _arguments(text, found.end())
        if found.group(1) or found.group(2):
            kind = _NANOBIND.get(found.group(1) or "", "RuntimeError")
            yield from ((kind, one) for one in self.texts(arguments[0], {}))
            return
        kind_or_none = self.kind(arguments[0])
        if kind_or_none is None or len(arguments) < 2:
            return
        if "WarnFormat" in found.group():
            del arguments[1]
        for one in self.texts(arguments[1], {}):
            if "Format" not in found.group():
                yield kind_or_none, one
                continue
            parts = [[part] for part in re.split(r"%[-.\d]*(?:ll|z)?[a-zA-Z]", one)]
            values = [self._values(value) for value in arguments[2:]] + [["{...}"]] * len(parts)
            choices = [choice for pair in zip(parts, values, strict=False) for choice in pair][: 2 * len(parts) - 1]
            yield from ((kind_or_none, "".join(choice)) for choice in itertools.product(*choices))

    def _values(self, expression: str) -> list[str]:
        """The texts of an argument of a format: its own if it has words, else a placeholder."""
        called = re.match(r"(\w+)\(", expression)
        found = self.returns.get(called.group(1), []) if called else self.texts(expression, {})
        return found if found and all(map(has_words, found)) else [f"{{{self.readable(expression)}}}"]


_CPP_WORDS = {
    "std", "to_string", "nb", "ptr", "get", "c_str", "static_cast", "long", "const", "int", "str", "char", "tp_name",
    "self", "size_t", "unsigned",
}  # fmt: skip
