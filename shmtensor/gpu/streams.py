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
    return arrays.module().cuda.ExternalStream(handle)
