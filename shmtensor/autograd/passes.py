"""Computing gradients: `backward` and `grad`.

Both block until all gradients are computed. They use only the calling thread; other threads run while NumPy computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._loading import load
from .._native import backward as _native_backward
from .._native import is_device_array, put_grad
from .._native import tensor as _tensor
from .._tensor.creation import zeros_like
from .._tensor.methods import Tensor
from ..errors import DTypeError, GradientError, InvalidArgument, type_name


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add the gradients of tensors to `grad` of the leaves that they were computed from.

    Args:
        tensors: one tensor, or several.
        grad_tensors: a gradient for each, of its shape; None: 1, for real tensors of one element.
        retain_graph: keep what another pass needs; default: as `create_graph`.
        create_graph: record the pass, so that gradients have gradients.
        grad_variables: the old name of `grad_tensors`.
        inputs: only these get gradients, whether they are leaves or not.

    Raises:
        GradientError: a tensor does not require grad, or has several elements or is complex and no gradient is given; a
            pass through a graph that was released; a tensor that a rule needs was changed in place.
        InvalidArgument: a gradient of another shape; not as many gradients as tensors.
        DTypeError: not tensors.
    """
    roots = _roots("backward", tensors, grad_variables if grad_tensors is None else grad_tensors)
    keep = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        _backward(roots, keep, create_graph, ())
        return
    targets = _several("inputs", inputs)
    if not targets:
        raise InvalidArgument("backward with inputs=[]; name tensors, or leave it out")
    _require_grad("backward", targets)
    for one, gradient in zip(targets, _backward(roots, keep, create_graph, targets), strict=True):
        if gradient is not None:
            old = one.grad
            put_grad(one, (gradient.clone() if old is None else old + gradient))


@np.errstate(all="ignore")  # infinities and NaN are valid gradients, as in torch
def _backward(
    roots: tuple[tuple[Tensor, Any], ...], keep: bool, create: bool, targets: tuple[Tensor, ...]
) -> tuple[Any, ...]:
    """A pass, without NumPy's warnings."""
    return _native_backward(roots, keep, create, targets)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients of outputs with respect to inputs, a tensor for each input. No `grad` changes.

    Args:
        outputs: one tensor, or several.
        inputs: one tensor, or several, from which the outputs were computed.
        grad_outputs: as `grad_tensors` in `backward`.
        retain_graph: as in `backward`.
        create_graph: as in `backward`.
        only_inputs: True.
        allow_unused: return None for inputs that no output depends on.
        is_grads_batched: `grad_outputs` have an additional first axis, with one pass for each index.
        materialize_grads: return zeros for inputs that no output depends on.

    Raises:
        GradientError: as `backward`, and an input was not used.
        InvalidArgument, DTypeError: as `backward`.
    """
    if not only_inputs:
        raise InvalidArgument("grad with only_inputs=False; use backward to add gradients to leaves")
    if is_grads_batched:
        return _batched(outputs, inputs, grad_outputs, create_graph, allow_unused, materialize_grads)
    roots = _roots("grad", outputs, grad_outputs)
    targets = _several("inputs", inputs)
    _require_grad("grad", targets)
    found = _backward(roots, create_graph if retain_graph is None else retain_graph, create_graph, targets)
    if materialize_grads:
        return tuple([zeros_like(x) if one is None else one for one, x in zip(found, targets, strict=True)])
    unused = [i for i, one in enumerate(found) if one is None]
    if unused and not allow_unused:
        raise GradientError(
            f"grad of outputs that do not depend on input {unused[0]} of {len(targets)}; leave it out, or pass "
            "allow_unused=True for None or materialize_grads=True for zeros"
        )
    return found


def _batched(
    outputs: Any, inputs: Any, grad_outputs: Any, create_graph: bool, allow_unused: bool | None, zeros: bool
) -> tuple[Any, ...]:
    gradients = _several("grad_outputs", grad_outputs)
    parts = [
        grad(outputs, inputs, [one[i] for one in gradients], True, create_graph, True, allow_unused, False, zeros)
        for i in range(len(gradients[0]))
    ]
    return tuple([None if each[0] is None else _stack(each) for each in zip(*parts, strict=True)])


def _stack(parts: Sequence[Tensor]) -> Tensor:
    from .._tensor.joining import stack

    return stack(list(parts))


def _several(what: str, tensors: Any) -> tuple[Tensor, ...]:
    found = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
    for one in found:
        if not isinstance(one, Tensor):
            raise DTypeError(f"{what} has a {type_name(one)}; give tensors")
    return found


def _require_grad(name: str, tensors: tuple[Tensor, ...]) -> None:
    for i, one in enumerate(tensors):
        if not one.requires_grad:
            raise GradientError(
                f"{name} for tensor {i} of shape {one.shape}, which does not require grad; set requires_grad before it "
                "is computed with"
            )


def _roots(name: str, tensors: Any, gradients: Any) -> tuple[tuple[Tensor, Any], ...]:
    if gradients is None and isinstance(tensors, Tensor) and tensors.requires_grad:  # `loss.backward()`
        return ((tensors, _gradient(name, tensors, None)),)
    several = _several("tensors", tensors)
    given = [None] * len(several) if gradients is None else gradients
    given = list(given) if isinstance(given, list | tuple) else [given]
    if len(given) != len(several):
        raise InvalidArgument(f"{name} of {len(several)} tensors with {len(given)} gradients; give one for each")
    _require_grad(name, several)
    return tuple([(x, _gradient(name, x, g)) for x, g in zip(several, given, strict=True)])


def _gradient(name: str, x: Tensor, gradient: Any) -> Tensor:
    """The gradient from which a tensor's pass starts."""
    if gradient is None:
        array: Any = x._array
        if array.size != 1:
            raise GradientError(
                f"{name} of a tensor of shape {x.shape} without a gradient; give one of that shape, or reduce the "
                "tensor to one element, by sum() or mean()"
            )
        if array.dtype.kind == "c":
            raise GradientError(
                f"{name} of a tensor of {x.dtype.name} without a gradient; give one of that type, or make the "
                "result real, by .real or abs()"
            )
        one = np.array(1, array.dtype, ndmin=array.ndim)
        return _tensor(load("gpu.arrays").to_device(one, array.device.id) if is_device_array(array) else one)
    if not isinstance(gradient, Tensor):
        raise DTypeError(f"{name} with a {type_name(gradient)} as gradient; give a tensor or None")
    if gradient.shape != x.shape:
        raise InvalidArgument(
            f"{name} of a tensor of shape {x.shape} with a gradient of shape {gradient.shape}; "
            "give one of the tensor's shape"
        )
    return gradient if gradient.dtype == x.dtype else gradient.to(x.dtype)
