"""The error of a name that a module does not have, which says the nearest name that it has."""

from __future__ import annotations

TYPE_CHECKING = False  # typing costs time at every start of a manager
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


class MissingName(AttributeError):
    """No such attribute. The nearest name is looked for when the text is read, so that `hasattr` stays quick.

    Args:
        text: what is missing.
        wanted: the name.
        names: the names that are there, or a function that gives them.
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
    """Return the error for a name that a module does not have; a plain one for names that begin with `_`."""
    text = f"module {module!r} has no attribute {wanted!r}"
    return AttributeError(text) if wanted.startswith("_") else MissingName(text, wanted, names)


def suggest(namespace: dict[str, Any]) -> None:
    """Give a module that has `__all__` a `__getattr__` that raises this error, where type checkers do not see it."""

    def find(name: str) -> Any:
        raise missing(namespace["__name__"], name, namespace["__all__"])

    namespace["__getattr__"] = find
