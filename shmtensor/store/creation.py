"""Making an object of a store in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
        reserve: Callable[[], None],
        seal: Callable[[Tensor], int],
        give_up: Callable[[], object],
    ) -> None:
        self.version: int | None = None
        """Of the object, once it is sealed."""
        self._form = (shape,) if isinstance(shape, int) else tuple(shape), dtype
        self._reserve = reserve
        self._seal = seal
        self._give_up = give_up
        self._tensor: Tensor | None = None

    def __enter__(self) -> Tensor:
        if self._tensor is not None or self.version is not None:
            raise InvalidArgument("one object is created once; call Store.create again")
        shape, dtype = self._form
        tensor: Tensor = creation.empty(shape, dtype=dtype).share_memory_()
        self._reserve()
        self._tensor = tensor
        return tensor

    def __exit__(self, kind: type[BaseException] | None, _: object, traceback: TracebackType | None) -> None:
        tensor, self._tensor = self._tensor, None
        assert tensor is not None
        try:
            if kind is None:
                self.version = self._seal(tensor)
                tensor._array.flags.writeable = False
        finally:
            if self.version is None:
                self._give_up()
