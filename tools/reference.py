"""Makes the API reference: a page for each public module, with a directive of Sphinx's autodoc for each public name.

tools/build_site.py runs it; the texts are the docstrings. A name in several modules, such as `shmtensor.sin` and
`shmtensor.special.sin`, is described where it is listed first, and the other pages link to it.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import shmtensor
from shmtensor._tensor import dispatch

MODULES = {
    "shmtensor": "Tensors, and what creates and computes them",
    "shmtensor.multiprocessing": "Processes, queues, locks and pools",
    "shmtensor.data": "Datasets, loaders and worker pools",
    "shmtensor.autograd": "Gradients",
    "shmtensor.nn": "Layers",
    "shmtensor.nn.functional": "Functions of layers",
    "shmtensor.nn.init": "Initial values of parameters",
    "shmtensor.nn.utils": "Helpers for parameters",
    "shmtensor.optim": "Optimizers",
    "shmtensor.optim.lr_scheduler": "Learning rates over time",
    "shmtensor.optim.swa_utils": "Averages of models",
    "shmtensor.hogwild": "Helpers for processes that train one model",
    "shmtensor.linalg": "Linear algebra",
    "shmtensor.fft": "Fourier transforms",
    "shmtensor.special": "Special functions",
    "shmtensor.random": "Random numbers",
    "shmtensor.atomics": "Atomic operations on shared tensors",
    "shmtensor.store": "Objects by name",
    "shmtensor.channel": "Queues between machines",
    "shmtensor.files": "TH's files",
    "shmtensor.storage": "Typed memory",
    "shmtensor.allocators": "Where memory comes from",
    "shmtensor.cuda": "GPUs",
    "shmtensor.hooks": "Functions of yours that shmtensor calls",
    "shmtensor.array_api": "The array API",
    "shmtensor.array_api.linalg": "Linear algebra of the array API",
    "shmtensor.integrations.torch": "PyTorch",
    "shmtensor.integrations.ray": "Ray",
    "shmtensor.integrations.dask": "Dask",
    "shmtensor.utils.dlpack": "DLPack by torch's names",
}
"""The public modules and the titles of their pages, in order; `shmtensor.errors` is on the page of errors."""

KINDS = ("classes", "functions", "constants")
TENSOR_METHODS = "shmtensor.Tensor"


def public_names(name: str) -> list[str]:
    """The public names of a module that are not modules: its `__all__`, or the names that it defines."""
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(one for one in listed if not isinstance(getattr(module, one), ModuleType))
    return sorted(
        one
        for one, value in vars(module).items()
        if not one.startswith("_") and str(getattr(value, "__module__", "")).startswith(name) and callable(value)
    )


def kind_of(value: Any) -> str:
    if isinstance(value, type):
        return "classes"
    return "functions" if callable(value) and not hasattr(value, "numpy_type") else "constants"


def heading(text: str, mark: str) -> str:
    return f"{text}\n{mark * len(text)}\n\n"


def directive(kind: str, name: str, *options: str) -> str:
    lines = [f".. {kind}:: {name}", *(f"   :{option}:" for option in options)]
    return "\n".join(lines) + "\n\n"


def links(names: Iterable[tuple[str, str]]) -> str:
    """A list of names, with links to where the same things are described."""
    return "".join(f"* ``{name}``: :py:obj:`{first}`\n" for name, first in names) + "\n"


def members_of(cls: type) -> Iterator[tuple[str, str]]:
    """(directive, name) of each public method and property that a class defines or inherits from a private base."""
    for name in sorted(dir(cls)):
        if name.startswith("_"):
            continue
        owner = next((base for base in cls.__mro__ if name in vars(base)), None)
        if owner is None or not owner.__module__.startswith("shmtensor"):
            continue
        value = inspect.getattr_static(cls, name)
        is_method = callable(value) or isinstance(value, classmethod | staticmethod)
        if not inspect.getdoc(getattr(cls, name, None)):
            continue  # an attribute that the docstring of the class describes
        yield ("automethod" if is_method else "autoproperty" if isinstance(value, property) else "autoattribute"), name


def text_of_class(name: str, cls: type) -> str:
    is_derived = any(base.__module__.startswith("shmtensor") for base in cls.__bases__)
    text = directive("autoclass", name, "no-members", *(["show-inheritance"] if is_derived else []))
    if cls.__name__ != name.rpartition(".")[2]:  # autodoc would only say that it is an alias
        text = f".. py:class:: {name}\n\n" + textwrap.indent(f"{inspect.getdoc(cls)}\n\n", "   ")
    if issubclass(cls, enum.Enum):
        return text + "".join(f"   .. py:attribute:: {name}.{one.name}\n      :value: {one.value!r}\n\n" for one in cls)
    own = [(kind, member) for kind, member in members_of(cls) if member in vars(cls)]
    return text + nested(directive(kind, f"{name}.{member}") for kind, member in own)


def nested(directives: Iterable[str]) -> str:
    return "".join(f"   {line}\n" if line else "\n" for text in directives for line in text.splitlines())


def pages() -> dict[str, str]:
    """The text of each page in reStructuredText, by the name of its file."""
    dispatch.all_rows()
    described: dict[int, str] = {}
    made: dict[str, str] = {}
    for module_name, title in MODULES.items():
        module = importlib.import_module(module_name)
        by_kind: dict[str, list[str]] = defaultdict(list)
        elsewhere: list[tuple[str, str]] = []
        classes_elsewhere: list[tuple[str, str]] = []
        for name in public_names(module_name):
            value = getattr(module, name)
            kind, full = kind_of(value), f"{module_name}.{name}"
            first = described.get(id(value)) if kind != "constants" else None
            if first is not None:
                (classes_elsewhere if kind == "classes" else elsewhere).append((full, first))
                continue
            described[id(value)] = full
            if full == TENSOR_METHODS:
                continue  # a page of its own
            if kind == "classes":
                by_kind[kind].append(text_of_class(full, value))
            elif kind == "functions":
                by_kind[kind].append(directive("autofunction", full))
            else:
                by_kind[kind].append(f".. py:data:: {full}\n   :value: {' '.join(repr(value).split())}\n\n")
        text = heading(f"{module_name}: {title}", "=")
        text += f".. py:module:: {module_name}\n\n"
        if doc := inspect.getdoc(module):
            text += f".. automodule:: {module_name}\n   :no-members:\n   :no-index:\n\n" if doc else ""
        if classes_elsewhere:  # first, as Store in shmtensor.store: the other classes belong to them
            by_kind["classes"].insert(0, links(classes_elsewhere))
        for kind in KINDS:
            if by_kind[kind]:
                text += heading(kind.capitalize(), "-") + "".join(by_kind[kind])
        if elsewhere:
            text += heading("The same under another name", "-")
            text += links(elsewhere)
        made[f"{module_name}.rst"] = text
    made["shmtensor.Tensor.rst"] = heading("shmtensor.Tensor: methods and properties", "=") + text_of_tensor()
    made["index.rst"] = index()
    return made


def text_of_tensor() -> str:
    text = ".. py:currentmodule:: shmtensor\n\n" + directive("autoclass", TENSOR_METHODS, "no-members")
    return text + nested(directive(kind, f"{TENSOR_METHODS}.{member}") for kind, member in members_of(shmtensor.Tensor))


def index() -> str:
    text = heading("API reference", "=")
    text += """Every public name, with the text that ``help`` shows. Names, arguments and results are torch's where
torch has the same thing; :doc:`../tensors` lists the differences. Exceptions are on the page of :doc:`../errors`.

"""
    text += ".. toctree::\n   :maxdepth: 1\n\n"
    names = list(MODULES)
    names.insert(1, TENSOR_METHODS)
    return text + "".join(f"   {name}\n" for name in names)


def write(folder: Path) -> None:
    """Write the pages to a folder, which is created."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)
