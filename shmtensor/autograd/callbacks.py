"""Functions that the native part of autograd calls: rare cases, and error messages.

Each function is called by its name from native/python/autograd_*.cpp, tensors.cpp or operation.cpp. Nothing in this
module blocks.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import numpy as np

from .._native import Node, grad_modes, set_output
from .._native import detach as _detach
from .._tensor import indexing
from .._tensor.core import wrap
from .._tensor.methods import Tensor
from ..dtypes import DTYPES
from ..errors import DTypeError, GradientError, InvalidArgument, type_name
from ..storage.arguments import SEQUENCES
from . import hooks, saving, views

refresh_view: Final = views.refresh
pack_kept: Final = saving.pack
unpack_kept: Final = saving.unpack
change_base: Final = views.change_base
apply_hooks: Final = hooks.apply
apply_post_hooks: Final = hooks.apply_post
run_hooks: Final = hooks.run
run_post_hooks: Final = hooks.run_post
retain_again: Final = hooks.retain
_FLOATING = "fcV"


# -- indexing of tensors that need gradients ---------------------------------------------------------------------------


def getitem(x: Tensor, key: Any) -> Tensor:
    """`x[key]`, recorded."""
    return indexing.getitem(x, key)


def setitem(x: Tensor, key: Any, value: Any) -> Tensor:
    """`x[key] = value`, recorded."""
    return indexing.setitem_(x, key, value)


# -- arguments of rules ------------------------------------------------------------------------------------------------


def shape_of(value: Any) -> Any:
    """The shape of an argument; () of a number; of a list of tensors their shapes."""
    if isinstance(value, Tensor):
        return value.shape
    if isinstance(value, SEQUENCES) and any(isinstance(one, Tensor) for one in value):
        return tuple([shape_of(one) for one in value])
    return np.shape(value)


def type_of(value: Any) -> Any:
    """The dtype of an argument; None of a number."""
    return getattr(value, "dtype", None)


def results(kept: Any, node: Node) -> Any:
    """Several results that a node has kept, as its rule gets them."""
    made = [_detach(one) if isinstance(one, Tensor) else one for one in kept]
    for i, one in enumerate(made):
        if isinstance(one, Tensor) and one._array.dtype.kind in _FLOATING and is_recording():
            set_output(one, node, i)
    return tuple([conjugate(one) if isinstance(one, Tensor) and one._array.dtype.kind == "c" else one for one in made])


def is_recording() -> bool:
    """Whether this thread records gradients."""
    return grad_modes()[0]


def conjugate(value: Any) -> Any:
    """The conjugate of a complex tensor or number."""
    return value.conj_physical() if isinstance(value, Tensor) else value.conjugate()


def fitted(gradient: Any, form: Any, name: str) -> Any:
    """A gradient of the shape and type of the input that it is for: summed over axes that were broadcast.

    Raises InvalidArgument: it has another shape; DTypeError: it is not a tensor.
    """
    if not isinstance(gradient, Tensor):
        if hasattr(gradient, "to_dense"):  # a sparse gradient
            return gradient
        raise DTypeError(f"{name} returned a {type_name(gradient)} as gradient; it must return tensors, or None")
    if form is None:
        return gradient
    shape, dtype = form[:2]
    if gradient.shape != shape:
        gradient = _summed(gradient, shape, name)
    if gradient._array.dtype != dtype:
        if gradient._array.dtype.kind == "c" and dtype.kind != "c":
            gradient = gradient.real
        gradient = gradient.to(DTYPES[dtype])
    return gradient


def _summed(gradient: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    """A gradient summed over the axes that were broadcast."""
    found = gradient._array.shape
    new = len(found) - len(shape)
    if new == 1 and found[1:] == shape and not grad_modes()[0]:  # for example, of a bias
        return wrap(np.add.reduce(gradient._live(), 0))
    axes = [*range(new), *[new + i for i, n in enumerate(shape) if n == 1 and new >= 0 and found[new + i] != 1]]
    if new < 0 or any(n not in (1, found[new + i]) for i, n in enumerate(shape)):
        raise InvalidArgument(
            f"{name} returned a gradient of shape {found} for an input of shape {shape}; return one of that shape"
        )
    if is_recording():
        return gradient.sum_to_size(shape)
    return wrap(np.add.reduce(gradient._live(), tuple(axes)).reshape(shape))


def accumulate(leaf: Tensor, gradient: Any) -> None:
    """Add up a gradient of which one part is sparse."""
    from .._native import put_grad

    old = leaf.grad
    put_grad(leaf, gradient if old is None else old + gradient if isinstance(old, Tensor) else gradient + old)


# -- refusals ----------------------------------------------------------------------------------------------------------


def require_settable(x: Tensor, wanted: bool) -> None:
    """Raise DTypeError, GradientError: `requires_grad` cannot be set to this."""
    if wanted and x._array.dtype.kind not in _FLOATING:
        raise DTypeError(f"requires_grad of a tensor of {x.dtype.name}; convert it to a floating-point or complex type")
    if not wanted and x.grad_fn is not None:
        raise GradientError(
            f"requires_grad=False for the result of {_name(x.grad_fn)}; only leaves can change it: use detach()"
        )


def require_gradient_of(x: Tensor, gradient: Any) -> None:
    """Raise DTypeError, InvalidArgument: what cannot be the gradient of a tensor."""
    if hasattr(gradient, "to_dense"):
        return
    if not isinstance(gradient, Tensor):
        raise DTypeError(f"grad set to a {type_name(gradient)}; give a tensor or None")
    if gradient is x:
        raise InvalidArgument("grad set to the tensor itself; give another one")
    if gradient.shape != x.shape:
        raise InvalidArgument(f"grad of shape {gradient.shape} for a tensor of shape {x.shape}; give one of that shape")
    if gradient.dtype != x.dtype:
        raise InvalidArgument(f"grad of {gradient.dtype.name} for a tensor of {x.dtype.name}; convert it with to()")


def require_changeable(x: Tensor, form: Any) -> None:
    """Raise GradientError: a recorded operation may not change this tensor in place."""
    name = form if isinstance(form, str) else form.name
    base = x._base if hasattr(x, "_base") else x
    if base is None:
        raise GradientError(
            f"{name} changes a view that was made under no_grad(), and would be recorded; make the view with gradients "
            "recorded, or change it under no_grad()"
        )
    for one, what in ((x, "a leaf"), (base, "a view of a leaf")):
        if one.requires_grad and one.is_leaf:
            raise GradientError(f"{name} changes {what} that requires grad; use no_grad(), or detach() or clone() it")
    if base is not x:
        views.place_of(x, base)


def refuse_out(form: Any) -> NoReturn:
    """Raise GradientError: gradients are not recorded with `out`."""
    raise GradientError(
        f"{form.name} with out= and a tensor that requires grad; gradients are not recorded with out=: omit it, or use "
        "no_grad() or detach()"
    )


def refuse_numpy(x: Tensor) -> NoReturn:
    """Raise GradientError: an array has no gradients."""
    raise GradientError(
        f"numpy() of a tensor of shape {x.shape} that requires grad; what is computed with the array has no gradient: "
        "use x.detach().numpy()"
    )


def refuse_released(name: str) -> NoReturn:
    """Raise GradientError: a second pass through a released graph."""
    raise GradientError(
        f"backward through {name} a second time: what it had saved was released by the first; pass retain_graph=True "
        "to the first, or compute the result again"
    )


def _tensors_in(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, tuple | list):
        for one in x:
            yield from _tensors_in(one)


def refuse_changed(name: str, x: Any, times: int) -> NoReturn:
    """Raise GradientError: a tensor that a rule needs was changed in place."""
    x = next(_tensors_in(x))
    raise GradientError(
        f"the gradient of {name} needs a tensor of {x.dtype.name} and shape {x.shape} that was changed in place "
        f"{times} time{'s' if times != 1 else ''} since; clone() it before it is changed, or find the change with "
        "autograd.set_detect_anomaly(True)"
    )


def refuse_undefined(name: str) -> NoReturn:
    """Raise GradientError: an operation without a rule."""
    raise GradientError(f"{name} has no gradient; detach() its argument, or write a Function with a backward")


def refuse_interrupted(node: Node) -> NoReturn:
    """Raise GradientError: the process was forked while another thread went through the graph."""
    raise GradientError(
        f"{_name(node)} belongs to a graph that another thread of the parent went backward through when this process "
        "was forked; compute the result again in this process"
    )


hook_after: Final = hooks.register_after
hook_before: Final = hooks.register_before


def name_of(node: Node) -> str:
    """The name of a node: that of its operation or class."""
    rule = node._rule
    if rule is None:
        return type(node).__name__
    return "".join([part.capitalize() for part in str(rule.name).split("_")]) + "Backward"


def metadata_of(node: Node) -> dict[Any, Any]:
    """The dict of a node for its users."""
    return node._extras.setdefault("metadata", {})  # type: ignore[no-any-return]


def _name(node: Node) -> str:
    rule = node._rule
    return type(node).__name__ if rule is None else str(rule.name)


# -- anomaly mode ------------------------------------------------------------------------------------------------------


def trace(node: Node) -> None:
    """Keep where an operation was called."""
    node._extras["trace"] = "".join(traceback.format_stack()[:-1])


def explain(node: Node, error: BaseException) -> None:
    """Add a note to an error: where the operation whose gradient failed was called."""
    error.add_note(f"The gradient of {_name(node)} failed, which was called here:\n{node._extras['trace']}")


def require_numbers(node: Node, gradients: tuple[Any, ...]) -> None:
    """Raise GradientError: NaN among gradients."""
    for i, one in enumerate(gradients):
        if isinstance(one, Tensor) and np.isnan(one._live()).any():
            error = GradientError(f"the gradient of {_name(node)} for its input {i} has NaN")
            explain(node, error)
            try:
                raise error
            finally:
                del error  # a cycle with the traceback would keep the graph until a garbage collection
