"""Pinned memory of batches: workers write samples straight into memory that is registered with the GPU's driver."""

from __future__ import annotations

import importlib
import warnings
from contextlib import suppress
from typing import Any

import numpy as np

from .._loading import load
from .._native import tensor as _tensor
from .._tensor.core import SETTLED, Tensor
from .._tensor.dlpack import from_torch
from ..errors import InvalidArgument, ShmTensorError


class Pinning:
    """The pinned blocks of one loader, which are reused. A call copies a tensor into one, as a conversion of batches.

    A batch's block is reused once its last tensor or array, here and in other processes, is gone, and the copies that
    read it have ended (`gpu.registered`).
    """

    def __init__(self) -> None:
        self._pool = load("gpu.registered").PinnedPool()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
        """Return an uninitialised tensor in pinned shared memory. Raises as `shmtensor.empty(..., shared=True)`."""
        size = dtype.itemsize
        for n in shape:
            size *= n
        return _tensor(self._pool.allocate(size).array(dtype, shape), None, SETTLED)

    def __call__(self, tensor: Tensor) -> Tensor:
        """Return the tensor if it is pinned, else a copy of it in pinned memory. Raises as `empty`."""
        if not tensor.numel() or tensor.storage().is_pinned():
            return tensor
        array = tensor._live()
        copy = self.empty(array.shape, array.dtype)
        np.copyto(copy._live(), array)
        return copy

    def theirs(self, tensor: Any) -> Any:
        """Return a torch tensor of the CPU in pinned memory; others unchanged."""
        with suppress(ShmTensorError, BufferError, RuntimeError, TypeError):  # sparse, of another device, ...
            _have_torch_ask_the_driver()
            ours = from_torch(tensor.detach())
            pinned = self(ours)
            if pinned is not ours:
                return importlib.import_module("torch").from_dlpack(pinned).requires_grad_(tensor.requires_grad)
        return tensor


def _have_torch_ask_the_driver() -> None:
    """Initialise CUDA in torch: before that, no memory `is_pinned()` for torch, and `pin_memory()` copies."""
    cuda = importlib.import_module("torch.cuda")
    if not cuda.is_initialized() and cuda.is_available():
        cuda.init()


def pinning_for(pin_memory: bool, device: str, output: str) -> Pinning | None:
    """Return the pinned memory of a loader; None: it is not requested, or there is no GPU (with a warning).

    Raises:
        InvalidArgument: `device` is not a GPU.
    """
    if device and not str(device).startswith("cuda"):
        raise InvalidArgument(f"pin_memory_device must be 'cuda' or '', not {device!r}")
    if not pin_memory:
        return None
    reason = load("gpu.driver").status()
    if reason:
        warnings.warn(f"pin_memory has no effect: {reason}", stacklevel=4)
        return None
    if output == "torch":
        _have_torch_ask_the_driver()
    return Pinning()
