"""Modules of this package that are loaded on first use, though never while the process forks.

A child that is forked while another thread imports a module inherits the module's lock, and waits for ever when it
imports that module itself. A user who writes `shmtensor.zeros` cannot see that this imports something.
"""

from __future__ import annotations

import os
from _thread import RLock
from importlib import import_module
from typing import Any

_loading = RLock()
os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)


def load(name: str) -> Any:
    """A module of this package, by its name below it. Blocks while another thread loads one or forks."""
    with _loading:
        return import_module(f"{__package__}.{name}")
