"""Finds the messages of exceptions and warnings in the Python modules of a package, without importing them."""

from __future__ import annotations

import ast
import builtins
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from messages import Message, has_words

SURFACES = {"Malformed": "ProtocolError", "NotReady": "ManagerUnavailable"}
"""Exceptions that are converted before they reach a program, and the classes that they become."""
REFUSAL = "Refusal"
"""The manager's answer to a refused request; its first argument selects the class, by `_ERRORS` in `connection.py`."""

SHOWN_AS_THEY_ARE = frozenset(
    ("str", "repr", "fsdecode", "fspath", "list", "tuple", "sorted", "size", "hex", "bytes", "int", "float")
)
"""Functions of one argument that a placeholder leaves out."""
VARIANTS = 4
"""A message with more variants than this is shown with placeholders in place of its alternatives."""


Function = ast.FunctionDef | ast.AsyncFunctionDef


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
                if any(isinstance(base, ast.Name | ast.Attribute) and last_name(base) in found for base in node.bases):
                    found.add(name)
        return found

    def _find_refusals(self) -> dict[str, str]:
        """The class for each code of the protocol, from the table that the client uses."""
        for module in self.modules.values():
            table = module.constants.get("_ERRORS")
            if isinstance(table, ast.Dict):
                return {
                    last_name(key): last_name(value) for key, value in zip(table.keys, table.values, strict=True) if key
                }
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
        if isinstance(node, ast.Call) and last_name(node.func) == "type" and scope.function:
            checked = _checked(scope.function, node.args[0])
            return [kind for kind in checked if kind in self.classes and kind in self.exceptions]
        if not isinstance(node, ast.Name | ast.Attribute):
            return []
        if last_name(node) in self.exceptions:
            return [last_name(node)]
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
            shown = isinstance(node.value, ast.IfExp) or any(has_words(text) or text.isdecimal() for text in found)
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
                    (self.refusals[last_name(node.args[0])], f"the manager at {{address}} refused: {text}")
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
        bound = {name: texts for name, texts in bound.items() if any(map(has_words, texts))}
        if not bound:
            return
        inside = Scope(module, function, bound, scope.depth + 1)
        for one in ast.walk(function):
            if isinstance(one, ast.Return) and isinstance(one.value, ast.Call):
                made = [*self._made(one.value, inside), *self._helped(one.value, inside)]
                without = {text for _, text in self._made(one.value, replace(inside, bound={}))}
                yield from ((kind, text) for kind, text in made if text not in without)


def last_name(node: ast.expr | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_text(node: ast.expr) -> bool:
    """Whether an expression is made of texts with words."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and has_words(node.value)
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


def _checked(function: ast.AST, value: ast.expr) -> list[str]:
    """The names in `isinstance(value, ...)`, wherever a function has it."""
    return [
        last_name(kind)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and last_name(call.func) == "isinstance"
        and ast.unparse(call.args[0]) == ast.unparse(value)
        for kind in ast.walk(call.args[1])
    ]


def _assigned(function: ast.AST | None, name: str) -> list[ast.expr]:
    """The expressions assigned to a name in a function; none if it also gets other values there."""
    return (_names(function).get(name) or []) if function else []
