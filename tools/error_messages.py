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
import builtins
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

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

FEATURES = {
    "Tensors": "_tensor array_api dtypes layouts devices cuda atomics threads accounts utils "
    "native/array native/operation native/tensors native/module_atomics",
    "Linear algebra, random numbers, transforms": "linalg random special fft native/module_random",
    "Gradients": "autograd gradients native/autograd_nodes native/autograd_passes native/autograd_rules",
    "Storages and allocators": "storage allocators native/module_blocks native/views",
    "Neural networks": "nn hogwild native/module_layers",
    "Optimizers": "optim native/module_training",
    "Loading of data": "data",
    "Files": "files",
    "Queues, pools and processes": "ipc multiprocessing native/rings native/rings_get native/rings_put "
    "native/rings_move native/module_queue native/module_ring native/module_broadcast native/module_sync native/waits "
    "native/codec_read native/codec_write native/codec_memory native/module_codec",
    "Stores": "store native/module_store",
    "Channels": "channel",
    "The manager and shared memory": "manager hooks native/errors native/module_client native/module_group "
    "native/module_segment native/module_system",
    "GPUs": "gpu native/module_gpu",
    "DLPack, torch, Ray and Dask": "integrations native/module_dlpack",
}
GENERAL = "Names and imports"
"""The feature of all other modules."""
_FEATURE_OF = {part: title for title, parts in FEATURES.items() for part in parts.split()}

SURFACES = {"Malformed": "ProtocolError", "NotReady": "ManagerUnavailable"}
"""Exceptions that are converted before they reach a program, and the classes that they become."""
REFUSAL = "Refusal"
"""The manager's answer to a refused request; its first argument selects the class, by `_ERRORS` in `connection.py`."""
NATIVE_SURFACES = {"block_gone": "StaleHandle", "lock_busy": "LockTimeout", "not_held": "ClientUnavailable"}
"""The same for exceptions of the native module, by their names in `Errors` of `errors.hpp`."""

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

SHOWN_AS_THEY_ARE = frozenset(
    ("str", "repr", "fsdecode", "fspath", "list", "tuple", "sorted", "size", "hex", "bytes", "int", "float")
)
"""Functions of one argument that a placeholder leaves out."""
VARIANTS = 4
"""A message with more variants than this is shown with placeholders in place of its alternatives."""


Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Message:
    """One message: the class that a program sees, where it is made, and its text with placeholders in braces."""

    kind: str
    place: str
    line: int
    text: str

    @property
    def feature(self) -> str:
        """The feature of the module that makes it."""
        parts = self.place.removesuffix(".py").removesuffix(".cpp").split("/")
        return _FEATURE_OF.get("/".join(parts[:2]) if parts[0] == "native" else parts[0], GENERAL)


@dataclass
class Module:
    """The names of a module to which other modules may refer."""

    place: str
    tree: ast.Module
    functions: dict[str, Function] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)  # name: module, name there ("": the module)


@dataclass(frozen=True)
class Scope:
    """The place of an expression, and the texts of the names in its scope."""

    module: Module
    function: ast.AST | None = None
    bound: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    depth: int = 0


def _has_words(text: str) -> bool:
    return re.search(r"[A-Za-z]{2}", re.sub(r"\{[^{}]*\}", "", text)) is not None


def readable(node: ast.expr) -> str:
    """Return what a placeholder shows for an expression: a short name of the value."""
    if isinstance(node, ast.Name):
        return node.id.strip("_") or node.id
    if isinstance(node, ast.Attribute):
        base = readable(node.value)
        name = node.attr.strip("_")
        if base.startswith("type of ") and name in ("name", "qualname"):
            return base
        return name if base in ("self", "cls") else f"{base}.{name}"
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("type", "type_name") and len(node.args) == 1:
            return f"type of {readable(node.args[0])}"
        if name in SHOWN_AS_THEY_ARE and node.args:
            return readable(node.args[0])
        if name in ("decode", "hex", "isoformat") and isinstance(node.func, ast.Attribute):
            return readable(node.func.value)
        if name == "join" and node.args:
            return readable(node.args[0])
        if name == "get" and node.args and isinstance(node.args[0], ast.Constant):
            return str(node.args[0].value)
    if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp):
        return readable(node.generators[0].iter)
    if isinstance(node, ast.IfExp):
        return f"{readable(node.body)} or {readable(node.orelse)}"
    if isinstance(node, ast.Constant):
        return str(node.value)
    whole = re.sub(r"\bself\.|(?<![\w])_+(?=[a-z])", "", ast.unparse(node))
    if len(whole) <= 40 and not set(whole) & set("{};\n'\""):
        return whole
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute | ast.Name) and part is not node:
            return readable(part)
    return "..."


class Sources:
    """All modules of a package, and the messages in them."""

    def __init__(self, package: Path) -> None:
        self.modules: dict[str, Module] = {}
        self.classes: dict[str, tuple[Module, ast.ClassDef]] = {}
        self.methods: dict[str, list[tuple[Module, Function]]] = {}
        for path in sorted(package.rglob("*.py")):
            place = path.relative_to(package).as_posix()
            dotted = ".".join([package.name, *path.relative_to(package).with_suffix("").parts])
            dotted = dotted.removesuffix(".__init__")
            self.modules[dotted] = self._read(Module(place, ast.parse(path.read_text())), dotted)
        self.exceptions = self._find_exceptions()
        self.refusals = self._find_refusals()
        self.public = {
            name.value
            for module in self.modules.values()
            for value in [module.constants.get("__all__")]
            if value is not None
            for name in ast.walk(value)
            if isinstance(name, ast.Constant) and isinstance(name.value, str)
        }

    def _read(self, module: Module, dotted: str) -> Module:
        package = dotted if module.place.endswith("__init__.py") else dotted.rpartition(".")[0]
        for node in ast.walk(module.tree):
            if isinstance(node, Function):
                module.functions.setdefault(node.name, node)
            elif isinstance(node, ast.ImportFrom):
                base = package.rsplit(".", node.level - 1)[0] if node.level else ""
                source = ".".join(filter(None, (base, node.module)))
                for alias in node.names:
                    module.imports[alias.asname or alias.name] = (source, alias.name)
            elif isinstance(node, ast.ClassDef):
                self.classes.setdefault(node.name, (module, node))
                for method in node.body:
                    if isinstance(method, Function):
                        self.methods.setdefault(method.name, []).append((module, method))
        for node in module.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                module.constants[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                module.constants[node.target.id] = node.value
        return module

    def _find_exceptions(self) -> set[str]:
        found = {
            name
            for name, value in vars(builtins).items()
            if isinstance(value, type) and issubclass(value, BaseException)
        }
        found |= {"ArgumentTypeError", "SSLError", "BrokenBarrierError", "Empty", "Full"}
        size = 0
        while size != len(found):
            size = len(found)
            for name, (_, node) in self.classes.items():
                if any(isinstance(base, ast.Name | ast.Attribute) and _last(base) in found for base in node.bases):
                    found.add(name)
        return found

    def _find_refusals(self) -> dict[str, str]:
        """The class for each code of the protocol, from the table that the client uses."""
        for module in self.modules.values():
            table = module.constants.get("_ERRORS")
            if isinstance(table, ast.Dict):
                return {_last(key): _last(value) for key, value in zip(table.keys, table.values, strict=True) if key}
        return {}

    # ------------------------------------------------------------------------------------------------------- names
    def find(self, module: Module, name: str) -> tuple[Module, str] | None:
        """Return the module that defines a name, and its name there."""
        if name in module.constants or name in module.functions:
            return module, name
        source, there = module.imports.get(name, ("", ""))
        other = self.modules.get(source)
        if other is None or other is module:
            return None
        return self.find(other, there)

    def _target(self, node: ast.expr, scope: Scope) -> tuple[Module, str] | None:
        """The module and the name to which an expression refers: `name`, `self.name` or `module.name`."""
        if isinstance(node, ast.Name):
            return self.find(scope.module, node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in ("self", "cls"):
                return (scope.module, node.attr) if node.attr in scope.module.functions else None
            source, there = scope.module.imports.get(node.value.id, ("", ""))
            other = self.modules.get(f"{source}.{there}")
            return self.find(other, node.attr) if other else None
        return None

    def function(self, node: ast.expr, scope: Scope) -> tuple[Module, Function] | None:
        """Return the function that an expression names, if the package has it."""
        found = self._target(node, scope)
        if found is None or found[1] not in found[0].functions:
            return None
        return found[0], found[0].functions[found[1]]

    def _method(self, node: ast.expr) -> tuple[Module, Function] | None:
        """The method with a name, if only one class has it."""
        found = self.methods.get(node.attr, []) if isinstance(node, ast.Attribute) else []
        return found[0] if len(found) == 1 else None

    def kinds(self, node: ast.expr, scope: Scope) -> list[str]:
        """Return the exception classes that an expression may be; none for all other expressions."""
        if isinstance(node, ast.IfExp):
            return self.kinds(node.body, scope) + self.kinds(node.orelse, scope)
        if not isinstance(node, ast.Name | ast.Attribute):
            return []
        if _last(node) in self.exceptions:
            return [_last(node)]
        if isinstance(node, ast.Name):
            values = _assigned(scope.function, node.id)
            return list(
                dict.fromkeys(kind for value in values for kind in self.kinds(value, replace(scope, function=None)))
            )
        return []

    # ------------------------------------------------------------------------------------------------------- texts
    def texts(self, node: ast.expr, scope: Scope) -> tuple[str, ...]:
        """Return the texts that an expression may have, with placeholders for values."""
        found = tuple(dict.fromkeys(self._texts(node, scope)))
        return found if 0 < len(found) <= VARIANTS else (f"{{{readable(node)}}}",)

    def _texts(self, node: ast.expr, scope: Scope) -> Iterable[str]:
        placeholder = [f"{{{readable(node)}}}"]
        if isinstance(node, ast.Constant):
            return [str(node.value)]
        if isinstance(node, ast.JoinedStr):
            return self._joined(node.values, scope)
        if isinstance(node, ast.FormattedValue):
            found = self.texts(node.value, scope)
            shown = isinstance(node.value, ast.IfExp) or any(_has_words(text) or text.isdecimal() for text in found)
            return found if shown else [f"{{{readable(node.value)}}}"]
        if isinstance(node, ast.IfExp):
            return [*self.texts(node.body, scope), *self.texts(node.orelse, scope)]
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return [text for value in node.values for text in self.texts(value, scope)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._joined([node.left, node.right], scope)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_text(node.left):
            return [re.sub(r"%[-\d.]*[a-z]", "{...}", text) for text in self.texts(node.left, scope)]
        if isinstance(node, ast.Name):
            if node.id in scope.bound:
                return scope.bound[node.id]
            values = _assigned(scope.function, node.id)
            if values and scope.depth < 3 and all(map(_is_text, values)):
                return [text for value in values for text in self.texts(value, replace(scope, depth=scope.depth + 1))]
        if isinstance(node, ast.Attribute) or (
            isinstance(node, ast.Name) and not (scope.function and node.id in _names(scope.function))
        ):
            target = self._target(node, scope)
            value = target and target[0].constants.get(target[1])
            if target and value and (_is_text(value) or (isinstance(value, ast.Constant) and type(value.value) is int)):
                return self.texts(value, Scope(target[0]))
        if isinstance(node, ast.Call):
            return self._called(node, scope) or placeholder
        return placeholder

    def _joined(self, parts: Sequence[ast.expr], scope: Scope) -> list[str]:
        choices = [self.texts(part, scope) for part in parts]
        while (
            len(list(itertools.product(*choices))) > VARIANTS
        ):  # the longest list of alternatives becomes a placeholder
            longest = max(range(len(choices)), key=lambda at: len(choices[at]))
            choices[longest] = (f"{{{' | '.join(text.strip() for text in choices[longest] if text.strip())}}}",)
        return ["".join(choice) for choice in itertools.product(*choices)]

    def _called(self, node: ast.Call, scope: Scope) -> list[str]:
        """The texts that a call returns: of `"...".format()`, or of a function whose results are texts."""
        if isinstance(node.func, ast.Attribute) and node.func.attr == "format" and _is_text(node.func.value):
            values = iter([readable(argument) for argument in node.args])
            return [
                re.sub(r"\{\}", lambda _: f"{{{next(values, '...')}}}", text)
                for text in self.texts(node.func.value, scope)
            ]
        found = self.function(node.func, scope)
        if found is None or scope.depth > 2:
            return []
        module, function = found
        results = [one.value for one in ast.walk(function) if isinstance(one, ast.Return) and one.value is not None]
        if not results or not all(_is_text(one) or _is_empty(one) for one in results):
            return []
        inside = Scope(module, function, self.bind(function, node, scope), scope.depth + 1)
        return [text for one in results for text in self.texts(one, inside)]

    def bind(self, function: Function, call: ast.Call, scope: Scope) -> dict[str, tuple[str, ...]]:
        """Return the texts of the parameters of a function in a call of it."""
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        if names[:1] in (["self"], ["cls"]):
            del names[0]
        given = dict(zip(names, call.args, strict=False))
        given |= {word.arg: word.value for word in call.keywords if word.arg}
        first = len(names) - len(function.args.defaults)
        defaults = dict(zip(names[first:], function.args.defaults, strict=True)) if first >= 0 else {}
        bound = {name: self.texts(value, scope) for name, value in given.items() if not isinstance(value, ast.Starred)}
        return bound | {
            name: self.texts(value, Scope(scope.module)) for name, value in defaults.items() if name not in given
        }

    # ---------------------------------------------------------------------------------------------------- messages
    def messages(self) -> Iterator[Message]:
        """Yield each message of the package."""
        for module in self.modules.values():
            yield from self._messages(module, module.tree, Scope(module))

    def _messages(self, module: Module, node: ast.AST, scope: Scope) -> Iterator[Message]:
        if isinstance(node, Function):
            scope = replace(scope, function=node)
        if isinstance(node, ast.Call):
            for kind, text in self._made(node, scope):
                yield Message(kind, module.place, node.lineno, text)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for kind, text in self._helped(node.exc, scope):
                yield Message(kind, module.place, node.lineno, text)
        for child in ast.iter_child_nodes(node):
            yield from self._messages(module, child, scope)

    def _made(self, node: ast.Call, scope: Scope) -> Iterator[tuple[str, str]]:
        """The class and text of a call that makes an exception, or that warns."""
        if isinstance(node.func, ast.Attribute) and node.func.attr == "warn" and len(node.args) > 1:
            for kind in self.kinds(node.args[1], scope):
                yield from ((kind, text) for text in self.texts(node.args[0], scope))
            return
        for kind in self.kinds(node.func, scope):
            arguments = [one for one in node.args if not isinstance(one, ast.Starred)]
            if not arguments:
                continue
            text = next(filter(_is_text, arguments), arguments[0])  # after errno, for the kinds of OSError
            texts = self._constructed(kind, node, scope) or self.texts(text, scope)
            if kind == REFUSAL:
                yield from (
                    (self.refusals[_last(node.args[0])], f"the manager at {{address}} refused: {text}")
                    for text in texts
                )
            else:
                yield from ((SURFACES.get(kind, kind), text) for text in texts)

    def _constructed(self, kind: str, node: ast.Call, scope: Scope) -> tuple[str, ...]:
        """The texts of an exception whose constructor makes the message from its arguments."""
        module, definition = self.classes.get(kind, (None, None))
        if module is None or definition is None:
            return ()
        for function in definition.body:
            if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                for call in ast.walk(function):
                    if (
                        isinstance(call, ast.Call)
                        and ast.unparse(call.func) == "super().__init__"
                        and call.args
                        and not isinstance(call.args[0], ast.Starred)
                    ):
                        return self.texts(call.args[0], Scope(module, None, self.bind(function, node, scope)))
        return ()

    def _helped(self, node: ast.Call, scope: Scope) -> Iterator[tuple[str, str]]:
        """The classes and texts of `raise helper("...")`: the results of the helper for the text passed here."""
        found = self.function(node.func, scope) or self._method(node.func)
        if found is None or scope.depth > 2 or self.kinds(node.func, scope):
            return
        module, function = found
        bound = self.bind(function, node, scope)
        bound = {name: texts for name, texts in bound.items() if any(map(_has_words, texts))}
        if not bound:
            return
        inside = Scope(module, function, bound, scope.depth + 1)
        for one in ast.walk(function):
            if isinstance(one, ast.Return) and isinstance(one.value, ast.Call):
                made = [*self._made(one.value, inside), *self._helped(one.value, inside)]
                without = {text for _, text in self._made(one.value, replace(inside, bound={}))}
                yield from ((kind, text) for kind, text in made if text not in without)


def _last(node: ast.expr | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_text(node: ast.expr) -> bool:
    """Whether an expression is made of texts with words."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and _has_words(node.value)
    if isinstance(node, ast.JoinedStr):
        return any(_is_text(part) for part in node.values)
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) or _is_text(node.orelse)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add | ast.Mod) and (_is_text(node.left) or _is_text(node.right))
    return False


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == ""


@cache
def _names(function: ast.AST) -> dict[str, list[ast.expr] | None]:
    """The local names of a function, with the expressions assigned to them, or None if they also get other values."""
    found: dict[str, list[ast.expr] | None] = {}
    assigned: set[ast.AST] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    assigned.add(target)
                    values = found.setdefault(target.id, [])
                    if values is not None:
                        values.append(node.value)
        elif isinstance(node, ast.arg):
            found[node.arg] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in assigned:
            found[node.id] = None
    return found


def _assigned(function: ast.AST | None, name: str) -> list[ast.expr]:
    """The expressions assigned to a name in a function; none if it also gets other values there."""
    return (_names(function).get(name) or []) if function else []


# -------------------------------------------------------------------------------------------------------- native code
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
        return found if found and all(map(_has_words, found)) else [f"{{{self.readable(expression)}}}"]


_CPP_WORDS = {
    "std", "to_string", "nb", "ptr", "get", "c_str", "static_cast", "long", "const", "int", "str", "char", "tp_name",
    "self", "size_t", "unsigned",
}  # fmt: skip


# --------------------------------------------------------------------------------------------------------- the page
def split(text: str) -> tuple[str, str]:
    """Split a message into cause and cure; the cure is empty if the message has none."""
    for cure in CURES:
        for cut in cure.finditer(text):
            told = cure is CURES[0] or _has_words(text[: cut.start()])
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
        if _has_words(message.text):
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
        kind = next(_last(base) for base in node.bases if _last(base) in sources.exceptions)
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
            if _has_words(message.text) and not split(message.text)[1]:
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
