"""Results in tensors of their own, or in those that `out` names.

Nothing in this module blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._native import count_change, is_recorded
from ..errors import GradientError, InvalidArgument, type_name
from ..storage.arguments import SEQUENCES, is_writable, refused
from .core import Tensor, array_of, failed, wrap


def target_of(out: Any) -> NDArray[Any]:
    """The array that results go to. Raises DTypeError: not a tensor; LayoutError: it cannot be written."""
    a = array_of(out)
    if not is_writable(a):
        raise refused(ValueError("read-only"), "writing to", a)
    return a


def given(result: Any, out: Tensor | None, doing: str) -> Tensor:
    """`result` in a tensor of its own, or copied to `out`.

    Raises InvalidArgument: `out` has another shape; DTypeError: a type of a lower kind; LayoutError: it is read-only.
    """
    if out is None:
        return wrap(result)
    a = target_of(out)
    require_shape(a, np.shape(result) if isinstance(a, np.ndarray) else result.shape, doing)
    kind = result.dtype.kind if hasattr(result, "dtype") else np.asarray(result).dtype.kind
    both_whole = a.dtype.kind in "iu" and kind in "iu"
    try:
        np.copyto(a, result, casting="unsafe" if both_whole else "same_kind")
    except TypeError as error:
        raise failed(error, f"{doing} into", a) from error
    return out


def placed(result: Tensor, out: Tensor | None, doing: str) -> Tensor:
    """A tensor as it is, or copied to `out`. Raises as `given`, and GradientError: gradients are recorded."""
    if out is None:
        return result
    if is_recorded((result, out)):
        raise GradientError(
            f"{doing} with out= and a tensor that requires grad; gradients are not recorded with out=: omit it, or use "
            "no_grad() or detach()"
        )
    made = given(array_of(result), out, doing)
    count_change(made)
    return made


def given_each(results: Any, outs: Any, doing: str) -> Any:
    """Several tensors as they are, or copied to as many others. Raises as `placed`; InvalidArgument: not as many."""
    if outs is None:
        return results
    if not isinstance(outs, SEQUENCES) or len(outs) != len(results):
        found = f"has {len(outs)}" if isinstance(outs, SEQUENCES) else f"is a {type_name(outs)}"
        raise InvalidArgument(f"{doing} gives {len(results)} tensors, and out {found}; give as many tensors")
    made = [placed(one, into, doing) for one, into in zip(results, outs, strict=True)]
    return type(results)(*made) if hasattr(results, "_fields") else tuple(made)


def require_shape(a: NDArray[Any], shape: tuple[int, ...], doing: str) -> None:
    """Refuse an `out` that does not have the shape of the result. Raises InvalidArgument."""
    if a.shape != shape:
        raise InvalidArgument(f"{doing} gives shape {shape}, and out has shape {a.shape}; give one of that shape")
