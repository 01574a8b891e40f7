"""Making an object of a store in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._tensor import creation
from ..errors import InvalidArgument

if TYPE_CHECKING:
    from types import TracebackType

    from .._tensor.core import Tensor
    from ..dtypes import dtype as DType  # noqa: N812
    from .store import Store


class Creation:
    """The block in which an object is filled; `with` gives the tensor. See `Store.create`."""

    def __init__(
        self, store: Store, key: str, shape: int | tuple[int, ...], dtype: DType | None, ttl: float | None, pin: bool
    ) -> None:
        self.version: int | None = None
        """Of the object, once it is sealed."""
        self._store = store
        self._key = key
        self._ttl = ttl
        self._pin = pin
        self._form = (shape,) if isinstance(shape, int) else tuple(shape), dtype
        self._tensor: Tensor | None = None

    def __enter__(self) -> Tensor:
        if self._tensor is not None or self.version is not None:
            raise InvalidArgument(f"the object {self._key!r} is being created already; call Store.create again")
        shape, dtype = self._form
        tensor: Tensor = creation.empty(shape, dtype=dtype).share_memory_()
        self._store._reserve(self._key)
        self._tensor = tensor
        return tensor

    def __exit__(self, kind: type[BaseException] | None, _: object, traceback: TracebackType | None) -> None:
        tensor, self._tensor = self._tensor, None
        assert tensor is not None
        try:
            if kind is None:
                self.version = self._store._seal(self._key, tensor, self._ttl, self._pin)
                tensor._array.flags.writeable = False
        finally:
            if self.version is None:
                self._store._native.remove(self._key)
