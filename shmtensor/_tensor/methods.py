"""Methods of tensors: `x.add(y)`, `x.add_(y)`, `x + y`, `x.sum(dim)`. The module of each is imported at its first use.

This module puts into `Tensor`, for each name of `index`, a descriptor that imports the module of that name. `export` in
`dispatch`, at the end of that module, puts the methods in its place. Nothing in this module blocks for longer than an
import.
"""

from __future__ import annotations

from typing import Any

from .._loading import load
from . import index
from .core import Tensor as Tensor


class Later:
    """A method whose module is not imported yet.

    Args:
        name: its name.
        module: the module, relative to the package.
    """

    __slots__ = ("_module", "_name")

    def __init__(self, name: str, module: str) -> None:
        self._name, self._module = name, module

    def _loaded(self) -> Any:
        load(self._module)
        found = vars(Tensor)[self._name]  # of this class: a subclass that overrides it may be calling it by super()
        if found is self:  # for example, by a signal handler
            raise ImportError(f"Tensor.{self._name} was used during the import of shmtensor.{self._module}")
        return found

    def __get__(self, tensor: Tensor | None, owner: type[Tensor] | None = None) -> Any:
        return self._loaded().__get__(tensor, owner)


class LaterProperty(Later):
    """A property whose module is not imported yet; Python asks it before the attributes of a tensor, too."""

    __slots__ = ()

    def __set__(self, tensor: Tensor, value: Any) -> None:
        self._loaded().__set__(tensor, value)


for _kind, _names in ((Later, index.METHODS), (LaterProperty, index.PROPERTIES)):
    for _module, _these in _names.items():
        for _name in _these.split():
            setattr(Tensor, _name, _kind(_name, _module))
