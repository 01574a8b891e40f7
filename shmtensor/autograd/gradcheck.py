"""Checks of gradients against finite differences. Nothing in this module blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._native import tensor as _tensor
from .._tensor.methods import Tensor
from ..errors import DTypeError, GradientError
from .passes import grad

Matrix = NDArray[Any]


class GradcheckError(GradientError):
    """A gradient disagrees with finite differences; the message has both."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
) -> bool:
    """Whether the gradients of a function agree with finite differences, for each input that requires grad.

    Args:
        func: takes the inputs, and returns a tensor or a tuple of tensors.
        inputs: a tensor, or a sequence of them; those that require grad are float64 or complex128, and their elements
            do not overlap.
        eps: step of the differences.
        atol: absolute tolerance.
        rtol: relative tolerance, as a part of the finite difference.
        raise_exception: raise instead of returning False.
        nondet_tol: tolerance between the gradients of two passes.
        check_undefined_grad: check that a function of several results works without the gradient of one.
        check_grad_dtypes: check that gradients have the types of their inputs.

    Raises:
        GradcheckError: they disagree.
        DTypeError: inputs of other types.
    """
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    targets = [one for one in given if isinstance(one, Tensor) and one.requires_grad]
    _require_double(targets)
    try:
        for i in range(len(_outputs(func, given))):
            _check_output(func, given, targets, i, (eps, atol, rtol, nondet_tol), check_grad_dtypes)
        if check_undefined_grad:
            _check_undefined(func, given, targets)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = False,
    check_grad_dtypes: bool = False,
) -> bool:
    """`gradcheck` of the gradients of a function: whether second derivatives are right.

    Args:
        func: as for gradcheck.
        inputs: as for gradcheck.
        grad_outputs: gradients of the results; None: random. Gradients with respect to those that require grad are
            checked too.
        gen_non_contig_grad_outputs: make random ones that are not contiguous.
        eps: as for gradcheck.
        atol: as for gradcheck.
        rtol: as for gradcheck.
        raise_exception: as for gradcheck.
        nondet_tol: as for gradcheck.
        check_undefined_grad: as for gradcheck.
        check_grad_dtypes: as for gradcheck.
    """
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    count = len([one for one in given if isinstance(one, Tensor) and one.requires_grad])
    if grad_outputs is None:
        made = [_random_like(one, gen_non_contig_grad_outputs) for one in _outputs(func, given)]
    else:
        made = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)

    def gradients(*values: Any) -> tuple[Tensor, ...]:
        arguments, cotangents = values[: len(given)], values[len(given) :]
        wanted = [one for one in arguments if isinstance(one, Tensor) and one.requires_grad][:count]
        found = grad(_outputs(func, arguments), wanted, list(cotangents), create_graph=True, allow_unused=True)
        return tuple([one for one in found if one is not None and one.requires_grad])

    return gradcheck(
        gradients, (*given, *made), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
        nondet_tol=nondet_tol, check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
    )  # fmt: skip


def _require_double(targets: Sequence[Tensor]) -> None:
    if not targets:
        raise GradientError("gradcheck without an input that requires grad; set requires_grad of one")
    for one in targets:
        if one.dtype.name not in ("float64", "complex128"):
            raise DTypeError(f"gradcheck of an input of {one.dtype.name}; differences need float64 or complex128")


def _outputs(func: Callable[..., Any], given: Sequence[Any]) -> list[Tensor]:
    found = func(*given)
    several = found if isinstance(found, tuple | list) else (found,)
    return [one for one in several if isinstance(one, Tensor) and one.requires_grad]


def _random_like(x: Tensor, gaps: bool) -> Tensor:
    shape = (*x.shape, 2) if gaps else x.shape
    values: Any = np.random.default_rng(0).standard_normal(shape)
    if x.dtype.name == "complex128":
        values = values + 1j * np.random.default_rng(1).standard_normal(shape)
    made = _tensor(np.asarray(values))
    made = made[..., 0] if gaps else made
    made = made.detach()
    made.requires_grad = True
    return made


def _check_output(
    func: Callable[..., Any], given: Sequence[Any], targets: Sequence[Tensor], at: int, limits: Any, dtypes: bool
) -> None:
    eps, atol, rtol, nondet = limits
    output = _outputs(func, given)[at]
    analytic = _jacobians(output, targets, dtypes)
    again = _jacobians(_outputs(func, given)[at], targets, dtypes)
    for i, target in enumerate(targets):
        if not np.allclose(analytic[i], again[i], 0, nondet, equal_nan=True):
            raise GradcheckError(f"two passes gave different gradients of result {at} for input {i}: use a fixed seed")
        numeric = _differences(lambda: _outputs(func, given), at, target, output, eps)
        if not np.allclose(analytic[i], numeric, rtol, atol, equal_nan=True):
            raise GradcheckError(
                f"the gradient of result {at} for input {i} is wrong\n"
                f"by differences:\n{numeric}\nby backward:\n{analytic[i]}"
            )


def _parts(array: Matrix) -> list[Any]:
    """Steps of an element: real, and imaginary where it is complex."""
    return [1.0, 1j] if array.dtype.kind == "c" else [1.0]


def _jacobians(output: Tensor, targets: Sequence[Tensor], dtypes: bool) -> list[Matrix]:
    """For each input a matrix: rows are elements of the input, columns of the output, both as pairs if complex.

    A pass from v gives the derivative of the real part of sum(conj(v) * output), for real and imaginary steps.
    """
    columns: list[list[Matrix]] = [[] for _ in targets]
    flat = output._live().reshape(-1)
    for k in range(flat.size):
        for step in _parts(flat):
            seed = np.zeros_like(flat)
            seed[k] = step
            start = _tensor(seed.reshape(output.shape))
            found = grad(output, list(targets), start, retain_graph=True, allow_unused=True)
            for i, (one, target) in enumerate(zip(found, targets, strict=True)):
                if one is not None and dtypes and one.dtype != target.dtype:
                    raise GradcheckError(f"the gradient for input {i} is of {one.dtype.name}, not {target.dtype.name}")
                dense = np.zeros(target.shape, target._array.dtype) if one is None else _dense(one)
                columns[i].append(_as_pairs(dense))
    return [np.stack(one, 1) if one else np.zeros((0, 0)) for one in columns]


def _dense(gradient: Any) -> Matrix:
    return (gradient.to_dense() if hasattr(gradient, "to_dense") else gradient)._live()  # type: ignore[no-any-return]


def _as_pairs(a: Matrix) -> Matrix:
    """Elements in one row; real and imaginary parts one after the other."""
    flat = np.ascontiguousarray(a).reshape(-1)
    return flat.view(np.float64) if flat.dtype.kind == "c" else flat


def _differences(compute: Callable[[], list[Tensor]], at: int, target: Tensor, output: Tensor, eps: float) -> Matrix:
    """The matrix of `_jacobians`, by differences: the input is changed in its memory, element by element."""
    rows = []
    a = target._live()
    for place in np.ndindex(a.shape):
        for step in _parts(a):
            old = a[place]
            values = []
            for sign in (1, -1):
                a[place] = old + sign * eps * step
                values.append(np.array(compute()[at]._live()))
            a[place] = old
            rows.append(_as_pairs((values[0] - values[1]) / (2 * eps)))
    count = _as_pairs(output._live()).size
    return np.stack(rows) if rows else np.zeros((0, count))


def _check_undefined(func: Callable[..., Any], given: Sequence[Any], targets: Sequence[Tensor]) -> None:
    outputs = _outputs(func, given)
    if len(outputs) < 2:
        return
    for i in range(len(outputs)):
        outputs = _outputs(func, given)
        try:
            total = outputs[i].sum()
            grad(total, list(targets), total.detach(), allow_unused=True)
        except Exception as error:
            raise GradcheckError(f"backward of result {i} alone failed: {error}") from error
