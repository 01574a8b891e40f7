"""Signatures that are created on demand, since most programs never ask for them. Nothing in this module blocks."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Signature
from typing import Any


class Shown:
    """The `__wrapped__` of a function, whose signature is created when `inspect.signature` asks for it.

    Args:
        function: the wrapped function, to which `inspect` goes on.
        make: returns the signature.
    """

    def __init__(self, function: Callable[..., Any], make: Callable[[], Signature]) -> None:
        self.__wrapped__, self._make = function, make

    @property
    def __signature__(self) -> Signature:
        return self._make()
