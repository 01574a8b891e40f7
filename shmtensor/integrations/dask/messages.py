"""Tensors in Dask's messages: by value, from their memory into the socket.

A message has the bytes of the tensor's elements, even if sender and receiver share memory. A handle would save the
copy, but then the memory must be held until the message has been read, and a serializer of Dask sees only the value,
not the fate of the message. The scheduler relays messages without reading them, keeps those of scattered data and of
graphs, and may pass one to several workers, more than once, or to none. A hold that belongs to the message would leak
whenever a message is lost, and only `shmtensor-manager gc --in-flight` would release it. A handle without a hold would
lose data, because the sender may drop a value as soon as it is written. By value, a kill or a lost message leaves
nothing in shared memory.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from dask.base import normalize_token
from dask.sizeof import sizeof
from distributed.protocol import dask_deserialize, dask_serialize
from numpy.typing import NDArray

from ..._tensor.core import Tensor, wrap
from ...dtypes import dtype_of
from ...storage.regions import address_of

Header: TypeAlias = dict[str, Any]


def install() -> None:
    """Register tensors with Dask in this process. Does not block."""
    dask_serialize.register(Tensor)(serialize)
    dask_deserialize.register(Tensor)(deserialize)
    sizeof.register(Tensor)(nbytes_of)
    normalize_token.register(Tensor)(token_of)


def serialize(tensor: Tensor) -> tuple[Header, list[memoryview]]:
    """Return (header, frames) of a tensor. The frame is the tensor's own memory if its elements have no gaps.

    Otherwise the elements are copied without the gaps. A tensor that is the result of a recorded operation arrives as a
    leaf, as with pickle. Does not block.

    Raises:
        NotImplementedError: a subclass, such as a Parameter; Dask then pickles it.
    """
    if type(tensor) is not Tensor:
        raise NotImplementedError(f"a {type(tensor).__name__} is pickled, which keeps its class")
    array = _without_repeats(tensor._live())
    if not _is_dense(array):
        array = np.ascontiguousarray(array)
    header = {
        "dtype": tensor.dtype.name,
        "shape": tuple(tensor.shape),
        "kept": array.shape,
        "strides": array.strides,
        "requires_grad": bool(tensor.requires_grad),
    }
    return header, [_bytes_of(array)]


def deserialize(header: Header, frames: list[Any]) -> Tensor:
    """Return the tensor of a message, over the memory of the frame, and writable. Does not block."""
    (frame,) = frames
    dtype = dtype_of(header["dtype"])
    flat: NDArray[Any] = np.frombuffer(frame, np.uint8) if memoryview(frame).nbytes else np.empty(0, np.uint8)
    if not flat.flags.writeable or (flat.size and address_of(flat) % dtype.alignment):
        flat = flat.copy()
    array: NDArray[Any] = np.ndarray(tuple(header["kept"]), dtype, flat, 0, tuple(header["strides"]))
    if tuple(header["shape"]) != array.shape:
        array = np.broadcast_to(array, tuple(header["shape"]))
    tensor = wrap(array)
    if header["requires_grad"]:
        tensor.requires_grad_(True)
    return tensor


def nbytes_of(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements, for Dask's `sizeof`; repeated elements of expanded axes count once."""
    return int(_without_repeats(tensor._live()).nbytes)


def token_of(tensor: Tensor) -> tuple[Any, ...]:
    """Return a token of the content of a tensor, for Dask's `tokenize`."""
    array = np.ascontiguousarray(tensor._live())
    return "shmtensor.Tensor", tensor.dtype.name, tuple(tensor.shape), normalize_token(np.frombuffer(_bytes_of(array)))


def _without_repeats(array: NDArray[Any]) -> NDArray[Any]:
    """Return the part of an array that its expanded axes repeat."""
    if 0 not in array.strides or not array.size:
        return array
    return array[tuple(slice(1) if stride == 0 else slice(None) for stride in array.strides)]


def _is_dense(array: NDArray[Any]) -> bool:
    """Whether the elements of an array fill its memory without gaps from the first address on, in any order of axes."""
    axes = [(stride, n) for stride, n in zip(array.strides, array.shape, strict=True) if n != 1]
    wanted = array.itemsize
    for stride, n in sorted(axes):
        if stride != wanted:
            return False
        wanted *= n
    return True


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """Return the memory of a dense array, without a copy."""
    if not array.size:
        return memoryview(b"")
    count = math.prod(array.shape)
    flat = np.lib.stride_tricks.as_strided(array, (count,), (array.itemsize,), writeable=False)
    return flat.view(np.uint8).data
