"""Exceptions of workers: how they are sent, and raised in the program."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

from ..errors import ShmTensorError
from ..ipc.codec import decode_from_wire, encode_for_wire

Failure: TypeAlias = tuple[str | None, str, bytes | None]
"""What a worker tells of an exception: (subject of a KeyedError, traceback, the exception's pickle or None)."""
_SHOWN = 8


class KeyedError(Exception):
    """Samples could not be loaded, sent or collated: which ones in words, and the exception."""

    def __init__(self, subject: str, error: BaseException) -> None:
        super().__init__(subject, error)
        self.subject: str = subject
        self.error: BaseException = error


def indices(keys: Sequence[Any]) -> str:
    """Keys in words, "index 3" or "indices 3, 4". Does not block."""
    shown = ", ".join(repr(key) for key in keys[:_SHOWN])
    more = f", ... ({len(keys)} in all)" if len(keys) > _SHOWN else ""
    return f"{'index' if len(keys) == 1 else 'indices'} {shown}{more}"


def sample_of(key: Any) -> str:
    """The subject of an error of one sample. Does not block."""
    return f"the sample of index {key!r}"


def samples_of(keys: Sequence[Any]) -> str:
    """The subject of an error of some samples. Does not block."""
    return f"the sample{'s' * (len(keys) != 1)} of {indices(keys)}"


def batch_of_keys(keys: Sequence[Any]) -> str:
    """The subject of an error of a whole batch. Does not block."""
    return f"the batch of {indices(keys)}"


def failure_of(error: BaseException) -> Failure:
    """What a worker tells of an exception."""
    subject = None
    if isinstance(error, KeyedError):
        subject, error = error.subject, error.error
    text = "".join(traceback.format_exception(error))
    try:
        # The text contains these. Libraries that pickle them as well (tblib, which Dask imports) fail at a deep
        # recursion.
        for name in ("__traceback__", "__context__", "__cause__"):
            BaseException.__setattr__(error, name, None)  # also where its class refuses attributes
        data = encode_for_wire(error)
        if type(decode_from_wire(data)) is not type(error):
            return subject, text, None
        return subject, text, encode_for_wire(error)
    except BaseException:  # pickle runs code of the exception
        return subject, text, None


def raise_failure(failure: Failure, what: str, otherwise: type[ShmTensorError]) -> NoReturn:
    """Raise the exception of a worker, with a note that begins with `what` and has the worker's traceback.

    Raises `otherwise`, with the same text, if the exception cannot be recreated here, or is not an Exception:
    SystemExit and KeyboardInterrupt, for example, would end the program.
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
            except Exception:  # it refuses notes
                raise error from otherwise(f"{what}:\n{text}")
            try:
                raise error
            finally:
                del error  # a local of a frame in its traceback: the cycle would keep iterators and workers alive
    raise otherwise(f"{what}:\n{text}")
