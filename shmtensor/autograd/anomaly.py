"""Anomaly mode: errors of a backward pass name the line of the forward computation, and NaN in gradients is an error.

The mode applies to all threads, and costs a stack trace for each recorded operation. Nothing in this module blocks.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from .._native import set_tracing


def _level(mode: bool, check_nan: bool) -> int:
    """The number of a mode (native/python/autograd_rules.hpp)."""
    return 0 if not mode else 2 if check_nan else 1


class set_detect_anomaly:  # noqa: N801  # torch's name
    """Switch the mode on or off, at once. As a context manager, it restores the previous mode at its end.

    Args:
        mode: whether the mode is on.
        check_nan: whether NaN in a gradient is an error; if False, errors are only explained.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = set_tracing(_level(mode, check_nan))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        set_tracing(self._before)


class detect_anomaly:  # noqa: N801  # torch's name
    """The mode as a context manager.

    Args:
        check_nan: whether NaN in a gradient is an error; if False, errors are only explained.
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._wanted = _level(True, check_nan)
        self._before = 0

    def __enter__(self) -> Self:
        self._before = set_tracing(self._wanted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        set_tracing(self._before)
