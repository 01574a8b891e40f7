"""The members of a module of one kind by name: its parameters, its buffers, or the modules in it.

Each is also an ordinary attribute of the module, so that `self.weight` costs what any other attribute costs.
`module._parameters`, `_buffers` and `_modules` may be changed as in torch.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

_MISSING = object()


class Members(dict[str, Any]):
    """A dict of members that keeps the module's attributes of the same names equal to its items.

    Args:
        module: the module. It owns this dict.
        items: the first items.
    """

    __slots__ = ("__weakref__", "_module")

    def __init__(self, module: Any, items: Any = ()) -> None:
        super().__init__()
        self._module = weakref.ref(module)
        self.update(items)

    def _attributes(self) -> dict[str, Any]:
        module = self._module()
        return {} if module is None else module.__dict__

    def __setitem__(self, name: str, member: Any) -> None:
        super().__setitem__(name, member)
        self._attributes()[name] = member

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._attributes().pop(name, None)

    def update(self, items: Any = (), /, **named: Any) -> None:
        """Set several members."""
        for name, member in dict(items, **named).items():
            self[name] = member

    def __ior__(self, items: Any) -> Any:  # type: ignore[misc]
        self.update(items)
        return self

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return a member; set it to `default` first if there is none."""
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, default: Any = _MISSING) -> Any:
        """Remove a member and return it; without one, return `default`. Raises KeyError: there is neither."""
        if name not in self and default is not _MISSING:
            return default
        member = self[name]
        del self[name]
        return member

    def popitem(self) -> tuple[str, Any]:
        """Remove the last member. Raises KeyError: there is none."""
        name, member = super().popitem()
        self._attributes().pop(name, None)
        return name, member

    def clear(self) -> None:
        """Remove all members."""
        for name in [*self]:
            del self[name]

    def replace(self, items: Iterable[tuple[str, Any]]) -> None:
        """Replace all members by these, in this order."""
        kept = [*items]
        self.clear()
        self.update(kept)

    def copy(self) -> dict[str, Any]:
        """The members in an ordinary dict."""
        return dict(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return dict, (dict(self),)  # Module.__setstate__ makes it a Members again
