"""Loading of modules on first use, never during a fork.

A child that is forked while another thread imports a module inherits the module's lock, and would wait for ever for
it. Users of `shmtensor.zeros` cannot know that it imports a module.
"""

from __future__ import annotations

import os
from _thread import RLock
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_loading = RLock()
os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)


def load(name: str) -> Any:
    """Import a module of this package by its relative name. Blocks while another thread loads one or forks."""
    with _loading:
        return import_module(f"{__package__}.{name}")
