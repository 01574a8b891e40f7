"""The arrays of samples: which parts of a sample are numbers, and their memory."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._tensor.core import Tensor
from .._tensor.dlpack import from_torch
from ..dtypes import BY_DTYPE

_NONE: Final[tuple[()]] = ()
_OURS: Final = ("torch.bfloat16", "torch.float8_e4m3fn")
"""torch's types that our tensors have and NumPy lacks."""
PLAIN: Final = frozenset({int, float, bool, str, bytes, type(None), complex})
"""Types of leaves that are sent and handed out unchanged."""


def torch_tensor() -> Any:
    """Return the class of torch's tensors if torch is imported, else a class without instances. Does not block."""
    torch = sys.modules.get("torch")
    return getattr(torch, "Tensor", _NONE)


def is_masked(value: Any) -> bool:
    """Whether a value is an array with a mask, which no tensor has. Does not block."""
    ma = sys.modules.get("numpy.ma")
    return ma is not None and isinstance(value, ma.MaskedArray)


def array_of(value: Any) -> NDArray[Any] | None:
    """Return the array of a leaf, without a copy if it is an array or a tensor; None: it has none. Does not block.

    A torch tensor has an array if NumPy can represent it: in CPU memory, dense, and of a type that our tensors have.
    """
    if isinstance(value, Tensor):
        return value._live()
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if isinstance(value, torch_tensor()):
        return _of_torch(value)
    return None


def _of_torch(value: Any) -> NDArray[Any] | None:
    array: NDArray[Any]
    try:
        array = value.numpy()
    except (RuntimeError, TypeError):  # recorded, lazily conjugated, or of a type that NumPy lacks
        try:
            value = value.detach().resolve_conj().resolve_neg()
            array = from_torch(value)._live() if str(value.dtype) in _OURS else value.numpy()
        except (TypeError, RuntimeError, BufferError):
            return None
    return array


def numbers_of(value: Any) -> NDArray[Any] | None:
    """Return `array_of(value)`, but None for a type that tensors lack: strings, objects, other byte orders."""
    array = array_of(value)
    return array if array is not None and array.dtype in BY_DTYPE else None
