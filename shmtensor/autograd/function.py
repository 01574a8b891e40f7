"""Operations with a custom gradient: `Function`, in both forms that torch has had.

    class Exp(Function):                            class Exp(Function):
        @staticmethod                                   def forward(self, x):
        def forward(ctx, x):                                y = x.exp()
            y = x.exp()                                     self.save_for_backward(y)
            ctx.save_for_backward(y)                        return y
            return y
                                                        def backward(self, g):
        @staticmethod                                       (y,) = self.saved_tensors
        def backward(ctx, g):                               return g * y
            (y,) = ctx.saved_tensors
            return g * y                            y = Exp()(x)

    y = Exp.apply(x)

An instance of the class is the node of a call. Nothing in this module blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._native import Node, connect, count_change, is_recorded, saving_hooks, set_output, with_zeros
from .._native import detach as _detach
from .._tensor.methods import Tensor
from ..errors import DTypeError, GradientError, InvalidArgument, NotSupported, type_name
from . import modes, views
from .saving import Kept

_FLOATING = "fcV"


class Function(Node):
    """An operation with `forward` and `backward`; see the module. The context and the node are the same object.

    Attributes:
        saved_tensors: what was given to `save_for_backward`.
        needs_input_grad: for each argument of forward, whether it needs a gradient.
        requires_grad: whether any of them does.
        previous_functions: the old name of next_functions.
    """

    needs_input_grad: tuple[bool, ...] = ()
    requires_grad: bool = False
    materialize_grads: bool = True
    _saved: tuple[Any, ...] = ()
    _dirty: tuple[Tensor, ...] = ()
    _constant: tuple[Tensor, ...] = ()
    _forms: tuple[Any, ...] = ()
    _types: tuple[Any, ...] = ()
    """The dtype of each argument of forward; None for an argument that is not a tensor."""
    _freed = False

    # -- for forward and backward -------------------------------------------------------------------------------------

    @staticmethod
    def forward(*args: Any, **how: Any) -> Any:
        """Compute the results. Override it."""
        raise NotImplementedError("write forward(ctx, ...) for the Function")

    @staticmethod
    def backward(*args: Any) -> Any:
        """Compute the gradient of each argument of forward from the gradients of its results. Override it."""
        raise NotImplementedError("write backward(ctx, ...) for the Function")

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep arguments or results for backward, which finds them in `saved_tensors`.

        Raises DTypeError: one is neither a tensor nor None.
        """
        for i, one in enumerate(tensors):
            if one is not None and not isinstance(one, Tensor):
                raise DTypeError(
                    f"save_for_backward of {type(self).__name__} got a {type_name(one)} as argument {i}; give tensors "
                    "or None, and keep other values as attributes of ctx"
                )
        self._saved = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Has no effect: forward mode is not implemented."""

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Declare that forward changed these arguments in place. It must return them; a view as its only result."""
        self._dirty = tensors

    def mark_shared_storage(self, *pairs: tuple[Tensor, Tensor]) -> None:
        """Has no effect: tensors know their storage."""

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declare that these results have no gradients."""
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether backward gets zeros, rather than None, for results whose gradient is not used."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The saved tensors. Raises GradientError: they were released, or changed in place since."""
        if self._freed:
            raise GradientError(
                f"backward through {type(self).__name__} a second time: what it had saved was released by the first; "
                "pass retain_graph=True to the first, or compute the result again"
            )
        return tuple([one if one is None else self._unpacked(*one) for one in self._saved])

    saved_variables = saved_tensors

    def _unpacked(self, tensor: Tensor | Kept, output: int, version: int) -> Tensor:
        if isinstance(tensor, Kept):
            tensor = tensor.get()
        elif tensor._version != version:
            raise GradientError(
                f"the gradient of {type(self).__name__} needs a tensor of shape {tensor.shape} that was changed in "
                "place since it was saved; clone() it before it is changed"
            )
        if output < 0:
            return tensor
        made = _detach(tensor)
        set_output(made, self, output)
        return made

    # -- calls --------------------------------------------------------------------------------------------------------

    @classmethod
    def apply(cls, *args: Any, **how: Any) -> Any:
        """Call forward with a new context, and record it if an argument needs a gradient.

        Raises:
            GradientError: a leaf that requires grad, or a view of one, was changed in place.
            InvalidArgument: a tensor that was marked dirty is not returned.
            NotSupported: a view was changed in place, and there are several results.
        """
        self = cls()
        forward = cls.__dict__.get("forward") or next(
            base.__dict__["forward"] for base in cls.__mro__ if "forward" in base.__dict__
        )
        if not isinstance(forward, staticmethod):
            return self(*args, **how)
        set_up = getattr(cls, "setup_context", None)
        if set_up is None:
            return self._call(lambda *values, **more: cls.forward(self, *values, **more), args, how)

        def compute(*values: Any, **more: Any) -> Any:
            output = cls.forward(*values, **more)
            set_up(self, values, output)
            return output

        return self._call(compute, args, how)

    def __call__(self, *args: Any, **how: Any) -> Any:
        """Call forward with this object as the node, once only. Raises as apply does."""
        if self.next_functions:
            raise GradientError(f"{type(self).__name__} was called before; make an object for each call")
        return self._call(self.forward, args, how)

    def _call(self, compute: Callable[..., Any], args: tuple[Any, ...], how: dict[str, Any]) -> Any:
        recorded = is_recorded(args)
        self.needs_input_grad = tuple([isinstance(one, Tensor) and one.requires_grad for one in args])
        self.requires_grad = recorded
        self._types = tuple([one.dtype if isinstance(one, Tensor) else None for one in args])
        with modes.no_grad():
            output = compute(*args, **how)
        several = isinstance(output, tuple)
        results = list(output) if several else [output]
        for one in self._dirty:
            count_change(one)
        for one in self._dirty:
            if not any(one is result for result in results):
                raise InvalidArgument(
                    f"{type(self).__name__} does not return a tensor of shape {one.shape} that it marked dirty; return "
                    "what forward changes in place"
                )
        if recorded:
            results = self._record(args, results)
        else:
            self._saved = ()
        self._dirty = self._constant = ()
        return tuple(results) if several else results[0]

    def _record(self, args: tuple[Any, ...], results: list[Any]) -> list[Any]:
        self._require_changeable(len(results))
        connect(self, args, len(results))
        made = [self._as_output(one, args) for one in results]
        for i, one in enumerate(made):
            constant = any(one is other for other in self._constant) or any(results[i] is c for c in self._constant)
            if isinstance(one, Tensor) and one._array.dtype.kind in _FLOATING and not constant:
                self._become_output(one, i, args)
        self._forms = tuple([one._form() if isinstance(one, Tensor) else None for one in made])
        hooks = saving_hooks()
        kept: list[Any] = []
        for one in self._saved:
            at = next((i for i, result in enumerate(results) if result is one), -1)
            target = _detach(one) if at >= 0 else one
            if one is None:
                kept.append(None)
            else:
                kept.append((target if hooks is None else Kept(target, hooks), at, target._version))
        self._saved = tuple(kept)
        return made

    def _require_changeable(self, results: int) -> None:
        """Raise GradientError, NotSupported: what was changed in place cannot be recorded."""
        from .callbacks import require_changeable

        for one in self._dirty:
            require_changeable(one, type(self).__name__)
            if hasattr(one, "_base") and results > 1:
                raise NotSupported(
                    f"{type(self).__name__} changes a view in place and returns {results} results, with gradients "
                    "recorded; return the view alone, or change a clone() of it"
                )

    def _become_output(self, result: Tensor, i: int, args: tuple[Any, ...]) -> None:
        if hasattr(result, "_base") and any(result is one for one in self._dirty):
            views.change_base_by_function(result, self, args)
            count_change(result)  # the view rebuilds its node from that of its base
        else:
            set_output(result, self, i)

    def _as_output(self, result: Any, args: tuple[Any, ...]) -> Any:
        """A result that may become an output of this node: not an argument, unless it was changed."""
        if not isinstance(result, Tensor) or any(result is one for one in self._dirty):
            return result
        if any(result is one for one in args):
            return result.detach()
        return result

    # -- called by the engine -----------------------------------------------------------------------------------------

    def _run(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.materialize_grads:
            gradients = with_zeros(gradients, list(self._forms))
        backward = type(self).__dict__.get("backward") or next(
            base.__dict__["backward"] for base in type(self).__mro__ if "backward" in base.__dict__
        )
        is_static = isinstance(backward, staticmethod)
        found = type(self).backward(self, *gradients) if is_static else self.backward(*gradients)
        return self._checked(found if isinstance(found, tuple) else (found,))

    def _checked(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
        """The result of backward, one gradient for each argument of forward. Raises InvalidArgument, DTypeError."""
        name, count = f"backward of {type(self).__name__}", len(self._types)
        if len(found) > count and all(one is None for one in found[count:]):
            found = found[:count]
        if len(found) != count:
            raise InvalidArgument(
                f"{name} returned {len(found)} gradients for {count} arguments of forward; return one for each, None "
                "for those that need none"
            )
        for i, (one, dtype) in enumerate(zip(found, self._types, strict=True)):
            if one is None:
                continue
            if not isinstance(one, Tensor) and not hasattr(one, "to_dense"):
                raise InvalidArgument(f"{name} returned a {type_name(one)} for argument {i}; return a tensor or None")
            if dtype is None:
                raise InvalidArgument(
                    f"{name} returned a gradient for argument {i}, which is not a tensor; return None"
                )
            if one.dtype.is_complex and not dtype.is_complex:
                raise DTypeError(
                    f"{name} returned a gradient of {one.dtype.name} for argument {i}, which is real; return .real"
                )
        return found

    def _release(self) -> None:
        if self._saved:
            self._saved, self._freed = (), True


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a static `backward` that cannot be recorded: gradients of its gradients raise GradientError."""

    def compute(ctx: Any, *gradients: Any) -> Any:
        with modes.no_grad():
            found = backward(ctx, *gradients)
        if not is_recorded(gradients) and not modes.is_grad_enabled():
            return found
        several = found if isinstance(found, tuple) else (found,)
        return tuple([_Refusing.apply(type(ctx).__name__, one, *gradients) if isinstance(one, Tensor) else one
                      for one in several])  # fmt: skip

    compute.__doc__ = backward.__doc__
    return compute


class _Refusing(Function):
    @staticmethod
    def forward(ctx: Any, name: str, gradient: Tensor, *others: Any) -> Tensor:
        ctx.name = name
        return gradient.detach()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        raise GradientError(f"backward of {ctx.name} is once_differentiable; its gradient has no gradient")


InplaceFunction = Function
"""torch's name for a Function that changes its arguments."""
