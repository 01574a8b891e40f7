"""Registration of tensors with Ray."""

from __future__ import annotations

import importlib.util
from contextlib import suppress
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from ..._tensor.core import Tensor, wrap

try:
    from ray.experimental import register_tensor_transport
    from ray.experimental.rdt.tensor_transport_manager import TensorTransportManager
except ImportError:
    register_tensor_transport = TensorTransportManager = None

_registered = False


def register() -> bool:
    """Register shmtensor with Ray in this process, and thus with the actors that it creates later.

    Call it before the definitions of actor classes whose decorators name a transport; further calls change nothing. Ray
    then has the tensor transport "shmtensor", and "shmtensor_torch" if torch is installed. Does not block.

    A version of Ray without tensor transports gets a serializer instead, which must be registered in each process that
    sends tensors: they are sent by value through Ray's object store, without the other elements of their storage.

    Returns:
        Whether Ray has tensor transports.
    """
    global _registered
    if register_tensor_transport is None:
        register_by_value()
    elif not _registered:
        from . import transport

        _register("shmtensor", transport.TensorTransport, Tensor)
        if importlib.util.find_spec("torch") is not None:
            import torch

            _register("shmtensor_torch", transport.TorchTransport, torch.Tensor)
        _registered = True
    return register_tensor_transport is not None


def _register(name: str, transport: type, data_type: type) -> None:
    # In an actor, a thread of Ray may register the transports of its creator at any time.
    with suppress(ValueError):
        register_tensor_transport(name, ["cpu"], transport, data_type)


def register_by_value() -> None:
    """Register a serializer with Ray that sends tensors by value. Does not block.

    The receiver's tensor is in Ray's object store, without a copy, and is read-only.
    """
    ray.util.register_serializer(Tensor, serializer=_dump, deserializer=_load)


def _dump(tensor: Tensor) -> tuple[NDArray[Any], str, tuple[int, ...], bool]:
    array = np.ascontiguousarray(tensor._live())
    return array.reshape(-1).view(np.uint8), tensor.dtype.name, tuple(tensor.shape), bool(tensor.requires_grad)


def _load(parts: tuple[NDArray[Any], str, tuple[int, ...], bool]) -> Tensor:
    from ...dtypes import dtype_of

    flat, dtype, shape, requires_grad = parts
    tensor = wrap(flat.view(dtype_of(dtype)).reshape(shape))
    if requires_grad:
        tensor.requires_grad_(True)
    return tensor
