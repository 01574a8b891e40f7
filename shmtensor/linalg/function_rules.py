"""Gradient rules of functions and powers of matrices. Nothing here blocks."""

from __future__ import annotations

from collections.abc import Callable

from .._tensor.core import Tensor
from .._tensor.joining import concat


def of_function(g: Tensor, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Of an analytic function of matrices, which is real for real numbers.

    Of the matrix of blocks ((A, G), (0, A)) it has the derivative in the direction G at the upper right. The gradient
    is that of the adjoint matrix; `x` is given conjugated.
    """
    n, adjoint = x.shape[-1], x.mT
    upper, lower = concat([adjoint, g], -1), concat([x.new_zeros(x.shape), adjoint], -1)
    return function(concat([upper, lower], -2)).narrow(-2, 0, n).narrow(-1, n, n)


def of_power(g: Tensor, x: Tensor, n: int, power: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Of `matrix_power`: the sum of products of all its powers on both sides of the gradient."""
    if n == 0:
        return x.new_zeros(x.shape)
    if n < 0:
        turned = power(x.mT, -1)
        return -(turned @ _both_sides(g, turned, -n) @ turned)
    return _both_sides(g, x.mT, n)


def _both_sides(g: Tensor, x: Tensor, n: int) -> Tensor:
    """The sum of x^i @ g @ x^(n - 1 - i), i from 0 to n - 1."""
    made, power = g, x  # of the highest bit of n
    for bit in f"{n:b}"[1:]:
        made, power = made @ power + power @ made, power @ power
        if bit == "1":
            made, power = made @ x + power @ g, power @ x
    return made


def of_vander(g: Tensor, x: Tensor, vander: Callable[..., Tensor]) -> Tensor:  # as vander
    """Of `vander`: sums of derivatives of powers."""
    columns = g.shape[-1]
    if columns < 2:
        return x.new_zeros(x.shape)
    weights = g.new_tensor(list(range(1, columns)))
    return (g.narrow(-1, 1, columns - 1) * weights * vander(x, columns - 1)).sum(-1).reshape(x.shape)
