"""Signatures that are made when somebody asks for them, since most programs never do. Nothing in this module blocks."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Signature
from typing import Any


class Shown:
    """What `inspect.signature` comes to from a function, by `__wrapped__`, and asks for the signature.

    Args:
        function: what the function calls, and `inspect` goes on to.
        make: gives the signature.
    """

    def __init__(self, function: Callable[..., Any], make: Callable[[], Signature]) -> None:
        self.__wrapped__, self._make = function, make

    @property
    def __signature__(self) -> Signature:
        return self._make()
