"""Conversion between our tensors and torch's, over the same memory."""

from __future__ import annotations

from typing import Any

import torch

from ..._tensor.core import Tensor
from ..._tensor.dlpack import from_dlpack
from ...errors import DTypeError, type_name
from ...storage.regions import shared_block
from . import memory


def to_torch(tensor: Tensor) -> torch.Tensor:
    """Return a torch tensor over the memory of a tensor, without a copy: `tensor.torch()`.

    Tensors over the same shared memory have one torch storage, so that torch treats them as views of each other.

    Raises:
        BufferError: negative strides, or a dtype that torch lacks.
    """
    if tensor.is_cuda:
        return memory.on_device(tensor.detach())
    theirs = torch.from_dlpack(tensor.detach())
    block, kind = shared_block(tensor.storage()._region)
    if block is not None and theirs.numel():
        whole = memory.storage_at(memory.whole_of(block, kind))
        offset = (theirs.data_ptr() - whole.data_ptr()) // theirs.element_size()
        theirs = torch.empty(0, dtype=theirs.dtype, device="cpu").set_(whole, offset, theirs.size(), theirs.stride())
    return theirs


def from_torch(tensor: Any) -> Tensor:
    """Return a tensor over the memory of a torch tensor, without a copy: `shmtensor.from_torch(tensor)`.

    Gradients are not recorded through it. It is shared if the memory is ours, else private.

    Raises:
        DTypeError: not a torch tensor, or of a type that our tensors lack.
        BufferError: a tensor on a device, or a sparse or conjugated one.
    """
    if not isinstance(tensor, torch.Tensor):
        raise DTypeError(f"from_torch takes a torch.Tensor, not a {type_name(tensor)}")
    return from_dlpack(tensor.detach())
