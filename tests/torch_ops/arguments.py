"""Arguments of torch's samples, as copies for torch and for shmtensor."""

from __future__ import annotations

from typing import Any

import torch

import shmtensor as st


class Absent(Exception):
    """A type, flag or other value of torch's that shmtensor does not have."""


def _whole(x: torch.Tensor) -> torch.Tensor:
    """A copy of the tensor's storage, as a tensor of one axis."""
    return torch.empty(0, dtype=x.dtype).set_(x.untyped_storage().clone())


def theirs(value: Any) -> Any:
    """Return a copy of an argument for torch: of a tensor with its strides and whole storage."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return value.detach().clone()
        plain = value.detach().resolve_conj().resolve_neg()
        return _whole(plain).as_strided(plain.shape, plain.stride(), plain.storage_offset())
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return type(value)(theirs(one) for one in value)
    return value


def ours(value: Any) -> Any:
    """Return a copy of an argument of torch's, as ours."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        name = str(value).removeprefix("torch.")
        if not hasattr(st, name):
            raise Absent(name)
        return getattr(st, name)
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, torch.Generator):
        return st.Generator()
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, list | tuple):
        return type(value)(ours(one) for one in value)
    if isinstance(value, dict):
        return {key: ours(one) for key, one in value.items()}
    return value


def _tensor(value: torch.Tensor) -> st.Tensor:
    """A copy with the same strides and whole storage."""
    if value.layout is not torch.strided:
        raise Absent("sparse tensors")
    if value.dtype in (torch.bfloat16, torch.complex32):
        raise Absent(f"{value.dtype} in an argument")
    plain = value.detach().resolve_conj().resolve_neg()
    flat = st.from_numpy(_whole(plain).numpy())
    return st.as_strided(flat, plain.shape, plain.stride(), plain.storage_offset())


def as_torch(value: Any) -> Any:
    """Return our result as torch's, for the functions of the database that make results comparable."""
    if isinstance(value, st.Tensor):
        return torch.from_numpy(value.numpy().copy())
    if isinstance(value, list | tuple):
        return tuple(as_torch(one) for one in value)
    return value
