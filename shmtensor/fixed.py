"""Immutable objects: element types, devices, layouts.

Their classes are not dataclasses, because defining one takes a tenth of the time of a process's first tensor.
"""

from __future__ import annotations

from typing import Any, NoReturn


class Fixed:
    """Base of a class whose attributes are set once, by `_fix`."""

    __slots__ = ()

    def _fix(self, **attributes: Any) -> None:
        """Set the attributes of a new object."""
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{name!r} of {self!r} cannot be set; the object is shared by all its users")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name!r} of {self!r} cannot be deleted; the object is shared by all its users")
