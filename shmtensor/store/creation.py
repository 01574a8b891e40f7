"""Creation of an object of a store in place: `Store.create`."""

from __future__ import annotations

import operator
import os
import sys
from typing import TYPE_CHECKING, Any

from .._native import Block
from .._tensor import creation
from ..errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .._tensor.core import Tensor
    from ..dtypes import dtype as DType  # noqa: N812


class Creation:
    """The block in which an object is filled; `with` gives the tensor. See `Store.create`."""

    def __init__(
        self,
        shape: int | tuple[int, ...],
        dtype: DType | None,
        reserve: Callable[[], int],
        seal: Callable[[Tensor, bool, int], int],
        give_up: Callable[[int], object],
    ) -> None:
        """`seal` takes a tensor, whether to seal a copy of it, and the reservation; `give_up` takes the reservation."""
        self.version: int | None = None
        """Version of the object, once it is sealed."""
        self._form = _shape(shape), dtype
        self._reserve = reserve
        self._seal = seal
        self._give_up = give_up
        self._tensor: Tensor | None = None
        self._block: Block | None = None
        self._reservation = self._references = self._pid = 0

    def __enter__(self) -> Tensor:
        if self._tensor is not None or self.version is not None:
            raise InvalidArgument("a Creation can be used once; call Store.create again")
        shape, dtype = self._form
        tensor: Tensor = creation.empty(shape, dtype=dtype).share_memory_()
        self._reservation = self._reserve()
        self._tensor, self._shape, self._block = tensor, tensor.shape, _block_of(tensor)
        self._pid = os.getpid()
        self._references = _references(tensor)
        return tensor

    def __exit__(self, kind: type[BaseException] | None, _: object, traceback: TracebackType | None) -> None:
        tensor, self._tensor = self._tensor, None
        assert tensor is not None and self._block is not None
        if os.getpid() != self._pid:
            return  # a forked child; the object is its parent's
        try:
            if kind is None:
                is_known = self._is_known_elsewhere(tensor)
                content = tensor.detach() if tensor.requires_grad else tensor
                self.version = self._seal(content, is_known, self._reservation)
                tensor._array.flags.writeable = False
        finally:
            if self.version is None:
                self._give_up(self._reservation)

    def _is_known_elsewhere(self, tensor: Tensor) -> bool:
        """Return whether the memory may still be written: through a view, an array, or by another process."""
        block = _block_of(tensor)
        if block is None or block is not self._block or tensor.shape != self._shape:
            raise InvalidArgument(
                "the tensor of Store.create has another shape or other memory; fill it in place, as with "
                "t[...] = values or t.copy_(values)"
            )
        return _references(tensor) > self._references or block.holds > 1


def _block_of(tensor: Tensor) -> Block | None:
    found: Any = tensor._array
    while found is not None and not isinstance(found, Block):
        found = getattr(found, "base", None)
    return found


def _shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    try:
        return (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        return tuple(shape)  # type: ignore[arg-type]


def _references(tensor: Tensor) -> int:
    """Return the number of references to the arrays over the memory of a tensor."""
    array: Any = tensor._array
    count = 0
    while array is not None:
        count += sys.getrefcount(array)
        array = getattr(array, "base", None)
    return count
