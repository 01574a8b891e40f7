"""Loading of modules on first use, never during a fork.

A child that is forked while another thread imports a module inherits the module's lock, and would wait for ever for
it. Users of `shmtensor.zeros` cannot know that it imports a module.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

_loading = RLock()
os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)


def load(name: str) -> Any:
    """Import a module of this package by its relative name. Blocks while another thread loads one or forks."""
    with _loading:
        return import_module(f"{__package__}.{name}")


def later(namespace: dict[str, Any], index: Mapping[str, str], modules: Iterable[str] = ()) -> list[str]:
    """Give a module, whose namespace has `__all__` by then, names that are imported at their first use.

    Type checkers do not see them. For other names there is an error that says the nearest one.

    Args:
        namespace: of the module.
        index: names, with spaces between them, by their modules, which are relative to this package.
        modules: names of modules in this one.

    Returns:
        All these names.
    """
    places = {name: module for module, names in index.items() for name in names.split()}
    here = namespace["__name__"].removeprefix(f"{__package__}.")
    inner = {name: f"{here}.{name}" for name in modules}

    def find(name: str) -> Any:
        if name in places:
            value = getattr(load(places[name]), name)
        elif name in inner:
            value = load(inner[name])
        else:
            from ._missing import missing

            raise missing(namespace["__name__"], name, namespace["__all__"])
        namespace[name] = value
        return value

    def listed() -> list[str]:
        return sorted({*namespace, *places, *inner})

    namespace["__getattr__"], namespace["__dir__"] = find, listed
    return sorted([*places, *inner])


def integrate() -> None:
    """Load the integration of torch in a process that has imported torch, once. Blocks as `load`."""
    if "torch" in sys.modules and f"{__package__}.integrations.torch" not in sys.modules:
        load("integrations.torch")
