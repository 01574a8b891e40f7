"""Exceptions of workers: what is told of them, and how they are raised in the program."""

from __future__ import annotations

import traceback
from typing import Any, NoReturn, TypeAlias

from ..errors import ShmTensorError
from ..ipc.codec import decode_from_wire, encode_for_wire

Failure: TypeAlias = tuple[Any, str, bytes | None]
"""What a worker tells of an exception: (key, traceback, the exception's pickle or None)."""


class KeyedError(Exception):
    """A sample could not be loaded: the key, and the exception."""

    def __init__(self, key: Any, error: BaseException) -> None:
        super().__init__(key, error)
        self.key: Any = key
        self.error: BaseException = error


def failure_of(error: BaseException) -> Failure:
    """What a worker tells of an exception."""
    key = None
    if isinstance(error, KeyedError):
        key, error = error.key, error.error
    text = "".join(traceback.format_exception(error))
    try:
        # The text tells these. Libraries that pickle them as well (tblib, which Dask imports) fail at a deep recursion.
        for name in ("__traceback__", "__context__", "__cause__"):
            BaseException.__setattr__(error, name, None)  # also where its class refuses attributes
        data = encode_for_wire(error)
        if type(decode_from_wire(data)) is not type(error):
            return key, text, None
        return key, text, encode_for_wire(error)
    except BaseException:  # pickle runs code of the exception
        return key, text, None


def raise_failure(failure: Failure, what: str, otherwise: type[ShmTensorError]) -> NoReturn:
    """Raise the exception of a worker, with a note that begins with `what` and has the worker's traceback.

    Raises `otherwise`, with the same text, if the exception cannot be made again here, or is not an Exception: those,
    such as SystemExit and KeyboardInterrupt, would end the program.
    """
    _, text, data = failure
    if data is not None:
        try:
            error = decode_from_wire(data)
        except Exception:
            error = None
        if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
            try:
                error.add_note(f"\n{what} this; its traceback:\n{text}")
            except Exception:  # it refuses attributes
                raise error from otherwise(f"{what}:\n{text}")
            try:
                raise error
            finally:
                del error  # a local of a frame in its traceback: a cycle, which keeps iterators and their workers
    raise otherwise(f"{what}:\n{text}")
