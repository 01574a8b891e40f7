"""Arguments that are one size for all axes, or one for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final


def _each(count: int) -> Callable[[Any], tuple[Any, ...]]:
    def each(size: Any) -> tuple[Any, ...]:
        return tuple(size) if isinstance(size, Iterable) else (size,) * count

    return each


single: Final = _each(1)
pair: Final = _each(2)
triple: Final = _each(3)
quadruple: Final = _each(4)
sextuple: Final = _each(6)


def reversed_twice(sizes: tuple[int, ...]) -> list[int]:
    """Sizes as `functional.pad` takes them: both sides of the last axis first."""
    return [size for size in reversed(sizes) for _ in range(2)]
