"""Objects that cannot be changed: element types, devices, layouts.

They are not dataclasses: each takes as long to make as a tenth of a process's first tensor.
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
        raise AttributeError(f"{name!r} of {self!r} cannot be set; it is one object for all that use it")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name!r} of {self!r} cannot be deleted; it is one object for all that use it")
