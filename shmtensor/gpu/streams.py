"""Streams and events: CuPy's, and those of other libraries as CuPy's."""

from __future__ import annotations

from typing import Any

from ..errors import DTypeError, type_name
from . import arrays


def as_stream(stream: Any) -> Any:
    """Return a stream as one of CuPy's: CuPy's own, torch's (`cuda_stream`), or its handle. Raises DTypeError."""
    if hasattr(stream, "ptr"):
        return stream
    handle = getattr(stream, "cuda_stream", stream)
    if not isinstance(handle, int) or isinstance(handle, bool):
        raise DTypeError(f"a {type_name(stream)} is not a stream; give one of shmtensor.cuda, CuPy or torch")
    return of_handle(handle)


class _Handle:
    """A stream of another library, as CuPy 14 takes it."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle  # version of the protocol, handle


def of_handle(handle: int) -> Any:
    """Return a stream of another library as one of CuPy's, on the current device. It does not keep the stream."""
    cuda = arrays.module().cuda
    if hasattr(cuda.Stream, "from_external"):
        return cuda.Stream.from_external(_Handle(handle))
    return cuda.ExternalStream(handle)
