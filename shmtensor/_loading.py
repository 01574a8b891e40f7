"""Import of modules on first use, never during a fork.

A child that is forked while another thread imports a module inherits the module's lock, and would wait for it forever.
Users of `shmtensor.zeros` cannot know that it imports a module.
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
    """Import a module of this package by its relative name. Blocks while another thread imports one or forks."""
    with _loading:
        return import_module(f"{__package__}.{name}")


def later(namespace: dict[str, Any], index: Mapping[str, str], modules: Iterable[str] = ()) -> list[str]:
    """Give a module names that are imported at their first use. Its namespace must have `__all__` before they are used.

    Type checkers do not see them. The error for other names suggests the nearest one.

    Args:
        namespace: namespace of the module.
        index: for each module, relative to this package, its names, separated by spaces.
        modules: names of submodules.

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
    """Import the integration of torch once, if this process has imported torch. Blocks as `load`."""
    if "torch" in sys.modules and f"{__package__}.integrations.torch" not in sys.modules:
        load("integrations.torch")
