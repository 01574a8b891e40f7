"""What is done for other libraries beyond DLPack. Each part is loaded at its first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "torch":
        return import_module(".torch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
