"""The error for a name that a module lacks, which suggests the nearest existing name."""

from __future__ import annotations

TYPE_CHECKING = False  # typing costs time at every start of a manager
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


class MissingName(AttributeError):
    """No such attribute. The nearest name is searched for when the text is read, so that `hasattr` stays fast.

    Args:
        text: the message.
        wanted: the missing name.
        names: the existing names, or a function that returns them.
    """

    def __init__(self, text: str, wanted: str = "", names: Iterable[str] | Callable[[], Iterable[str]] = ()) -> None:
        super().__init__(text)
        self._wanted, self._names = wanted, names

    def __str__(self) -> str:
        from difflib import get_close_matches

        text = super().__str__()
        names = [*(self._names() if callable(self._names) else self._names)]
        found = get_close_matches(self._wanted, names, 1) if self._wanted else []
        return f"{text}; the nearest name is {found[0]!r}" if found else text

    def __reduce__(self) -> tuple[Any, ...]:
        return AttributeError, (str(self),)


def missing(module: str, wanted: str, names: Iterable[str] | Callable[[], Iterable[str]]) -> AttributeError:
    """Return the error for a name that a module lacks; a plain AttributeError for names that begin with `_`."""
    text = f"module {module!r} has no attribute {wanted!r}"
    return AttributeError(text) if wanted.startswith("_") else MissingName(text, wanted, names)


def suggest(namespace: dict[str, Any]) -> None:
    """Give a module with `__all__` a `__getattr__` that raises this error, hidden from type checkers."""

    def find(name: str) -> Any:
        raise missing(namespace["__name__"], name, namespace["__all__"])

    namespace["__getattr__"] = find
