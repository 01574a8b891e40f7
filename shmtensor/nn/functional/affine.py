"""Affine and bilinear maps of the last axis. Nothing in this module blocks."""

from __future__ import annotations

import numpy as np

from ..._native import sum_rows, with_bias
from ..._tensor.core import Tensor
from ..._tensor.dispatch import Array, Module, Out, export
from ...errors import InvalidArgument
from .rows import as_type, computing_type, function, hidden, require_same_type, row


def _product(xp: Module, rows: Array, weight: Array) -> Array:
    """`rows @ weight.T`, maybe in Fortran order.

    BLAS copies both factors in an order of its own. OpenBLAS's kernels for AVX-512 take longest for a transposed one on
    the right, so the smaller one is there (docs/nn.md, "Fully connected networks").
    """
    if 1 < len(rows) < len(weight) and weight.ndim == 2:
        return xp.matmul(weight, rows.T).T
    return xp.matmul(rows, weight.T)


def _to_input(g: Tensor, weight: Tensor) -> Tensor:
    """The gradient of the input of `linear`."""
    return _linear_input(g, weight) if weight.ndim == 2 else g.unsqueeze(-1) * weight


def _to_bias(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The gradient of the bias of `linear`."""
    return _over_rows(g) if g.ndim > 1 and shape == g.shape[-1:] else g


@row(
    out=Out.COPIED,
    gradient={
        "input": _to_input,
        "weight": lambda g, input: _linear_weight(g, input),  # type: ignore[has-type]
        "bias": lambda g, bias_shape: _to_bias(g, bias_shape),
    },
    fails="linear with weights of shape {weight.shape} of",
)
def linear(xp: Module, input: Array, weight: Array, bias: Array | None = None) -> Array:
    """`input @ weight.T + bias`.

    Args:
        input: (..., in), or (in).
        weight: (out, in); of shape (in) the result has no last axis.
        bias: (out), or no axes.

    Returns:
        (..., out), of the type of the arguments.

    Raises:
        InvalidArgument: incompatible sizes.
        DTypeError: several types.
    """
    kind = input.dtype
    if weight.dtype is not kind or (bias is not None and bias.dtype is not kind):
        require_same_type("linear", input, weight, bias)
    shape = weight.shape
    if not 1 <= len(shape) <= 2 or input.shape[-1:] != shape[-1:]:
        raise InvalidArgument(
            f"linear of a tensor of shape {input.shape} with weights of shape {shape}; give (..., in), (out, in)"
        )
    if bias is not None and bias.shape not in (shape[:-1], (), (1,)):
        raise InvalidArgument(f"linear with a bias of shape {bias.shape}; give {shape[:-1]}")
    if kind.itemsize < 4:  # BLAS has no such type
        wide = computing_type(xp, input)
        input, weight = input.astype(wide), weight.astype(wide)
    made = _product(xp, input if input.ndim <= 2 else input.reshape(-1, shape[-1]), weight)
    found = with_bias(made, bias) if type(made) is np.ndarray else None
    if found is None:
        found = xp.ascontiguousarray(made).reshape(made.shape)
        if bias is not None:
            found += bias
    if input.ndim > 2:
        found = found.reshape(input.shape[:-1] + shape[:-1])
    return found if kind.itemsize >= 4 else as_type(found, kind)


@hidden(name="over_rows", gradient=lambda g, output_shape: g.expand(output_shape))
def _over_rows(xp: Module, output: Array) -> Array:
    """The sum over all but the last axis."""
    rows = output if output.ndim == 2 else output.reshape(-1, output.shape[-1])
    found = sum_rows(rows) if type(rows) is np.ndarray else None
    return xp.add.reduce(rows, 0) if found is None else found


@hidden(
    name="linear_input",
    gradient={"output": lambda g, weight: linear(g, weight), "weight": lambda g, output: _linear_weight(output, g)},  # type: ignore[has-type]
)
def _linear_input(xp: Module, output: Array, weight: Array) -> Array:
    """`output @ weight`: the gradient of the input of `linear`."""
    kind = output.dtype
    if kind.itemsize < 4:
        wide = computing_type(xp, output)
        output, weight = output.astype(wide), weight.astype(wide)
    if output.ndim <= 2:
        made = xp.matmul(output, weight)
    else:
        made = xp.matmul(output.reshape(-1, output.shape[-1]), weight).reshape(output.shape[:-1] + weight.shape[1:])
    return made if kind.itemsize >= 4 else as_type(xp.asarray(made), kind)


@hidden(
    name="linear_weight",
    gradient={"output": lambda g, input: linear(input, g), "input": lambda g, output: _to_input(output, g)},
)
def _linear_weight(xp: Module, output: Array, input: Array) -> Array:
    """The sum of the products of each output with each input: the gradient of the weights of `linear`."""
    kind = input.dtype
    if kind.itemsize < 4:
        wide = computing_type(xp, input)
        output, input = output.astype(wide), input.astype(wide)
    rows = input if input.ndim == 2 else input.reshape(-1, input.shape[-1])
    if output.ndim < input.ndim:
        made = xp.matmul(output.reshape(-1), rows)
    else:
        made = xp.matmul((output if output.ndim == 2 else output.reshape(-1, output.shape[-1])).T, rows)
    return made if kind.itemsize >= 4 else as_type(made, kind)


@function
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The sum over i, j of `input1[..., i] * weight[o, i, j] * input2[..., j]`, and a bias (out).

    Args:
        input1: (..., in1).
        input2: (..., in2).
        weight: (out, in1, in2).

    Raises InvalidArgument: incompatible sizes.
    """
    require_same_type("bilinear", input1._array, input2._array, weight._array)
    if not input1.ndim or input1.shape[:-1] != input2.shape[:-1] or weight.shape[1:] != (
        input1.shape[-1], input2.shape[-1]
    ):  # fmt: skip
        raise InvalidArgument(
            f"bilinear of shapes {input1.shape} and {input2.shape} with weights of shape {weight.shape}; give "
            f"(..., in1), (..., in2) and (out, in1, in2)"
        )
    first, second = input1.reshape(-1, input1.shape[-1]), input2.reshape(-1, input2.shape[-1])
    out, rows, columns = weight.shape
    inner = linear(second, weight.reshape(out * rows, columns)).reshape(-1, out, rows)
    made = inner.matmul(first.unsqueeze(2)).reshape(*input1.shape[:-1], out)
    return made if bias is None else made + bias


__all__ = export(globals())
