"""Einstein summation. Nothing in this module blocks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..errors import InvalidArgument
from .core import Tensor, indices_of
from .creation import eye
from .dispatch import Array, Module, composed, export, operation


@composed(method=False)
def einsum(equation: Any, *operands: Any) -> Tensor:
    """The sum of products of an equation in Einstein notation ("ij,jk->ik"), in an order that takes little work.

    A new tensor. Without an equation, `einsum(a, [0, 1], b, [1, 2], [0, 2])`: a list of numbers after each tensor names
    its axes, and an optional last list those of the result.

    Args:
        equation: a string, or the first tensor.
        operands: tensors, or one list of them.

    Raises InvalidArgument: not an equation, or one that does not match the shapes.
    """
    if not isinstance(equation, str):
        equation, operands = _spelled((equation, *operands))
    listed = len(operands) == 1 and isinstance(operands[0], list | tuple)
    return _einsum(equation, *(operands[0] if listed else operands))


_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _spelled(terms: Any) -> tuple[str, tuple[Any, ...]]:
    """The equation and the tensors of a call that names axes by numbers. Raises InvalidArgument."""
    operands, named = terms[: len(terms) // 2 * 2 : 2], [*terms[1::2], *terms[len(terms) // 2 * 2 :]]
    try:
        texts = ["".join(["..." if one is Ellipsis else _LETTERS[indices_of([one])[0]] for one in axes])
                 for axes in named]  # fmt: skip
    except (IndexError, TypeError):
        raise InvalidArgument(
            f"einsum with axes {named}; give a list of numbers from 0 to 51 after each tensor"
        ) from None
    arrow = f"->{texts[-1]}" if len(texts) > len(operands) else ""
    return ",".join(texts[: len(operands)]) + arrow, operands


def _sums(equation: str) -> bool:
    """Whether an equation sums over an axis that only one operand has."""
    given, arrow, kept = equation.partition("->")
    parts = [set(part) for part in given.split(",")]
    alone = [one for one in set(given) if one.isalpha() and sum(one in part for part in parts) == 1]
    return any(one not in kept if arrow else given.count(one) > 1 for one in alone)


def _spelled_out(equation: str, ndims: list[int]) -> tuple[list[list[str]], list[str]]:
    """The names of the axes of the operands and of the result, with names for those of an ellipsis."""
    given, arrow, kept = equation.replace(" ", "").partition("->")
    free = [one for one in _LETTERS if one not in equation]
    parts, most = given.split(","), 0
    for part, ndim in zip(parts, ndims, strict=True):
        if "..." in part:
            most = max(most, ndim - len(part.replace("...", "")))
    names = free[:most]
    spelled = []
    for part, ndim in zip(parts, ndims, strict=True):
        before, dots, after = part.partition("...")
        size = ndim - len(before) - len(after) if dots else 0
        spelled.append([*before, *names[most - size :], *after])
    if not arrow:
        named = given.replace(",", "").replace("...", "")
        kept = "..." + "".join(sorted(one for one in set(named) if named.count(one) == 1))
    before, dots, after = kept.partition("...")
    return spelled, [*before, *(names if dots else ()), *after]


def _of_einsum(g: Tensor, equation: str, operands: Any) -> list[Tensor]:
    """The gradients: each the sum of products of that of the result and the other operands."""
    operands = [one.conj() for one in operands]
    axes, kept = _spelled_out(equation, [one.ndim for one in operands])
    made = []
    for i, (names, operand) in enumerate(zip(axes, operands, strict=True)):
        terms = [kept, *axes[:i], *axes[i + 1 :]]
        factors = [g, *operands[:i], *operands[i + 1 :]]
        free = [one for one in _LETTERS if one not in {*kept, *[name for part in axes for name in part]}]
        wanted: list[str] = []
        for axis, name in enumerate(names):
            if name in wanted:  # a diagonal
                terms.append([name, free[axis]])
                factors.append(eye(operand.shape[axis], dtype=g.dtype))
                name = free[axis]
            elif not any(name in term for term in terms):  # summed over alone
                terms.append([name])
                factors.append(g.new_ones(operand.shape[axis]))
            wanted.append(name)
        spelled = ",".join("".join(term) for term in terms)
        found = _einsum(f"{spelled}->{''.join(wanted)}", *factors)
        made.append(found.expand([max(pair) for pair in zip(found.shape, operand.shape, strict=True)]))
    return made


@operation(name="einsum", function=False, method=False, gradient={"operands": _of_einsum})
def _einsum(xp: Module, equation: str, *operands: Array) -> Array:
    """What `einsum` computes."""
    try:
        if all(one.dtype.kind in "biu" for one in operands) and _sums(equation):
            operands = tuple([one.astype(np.int64) for one in operands])  # as sum() does
        result = xp.einsum(equation, *operands, optimize=len(operands) > 1)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        shapes = ", ".join(str(a.shape) for a in operands)
        raise InvalidArgument(f"einsum {equation!r} of tensors of shapes {shapes}: {error}") from error
    if result.dtype.kind != "V" and all(one.dtype == operands[0].dtype and one.dtype.kind == "V" for one in operands):
        return result.astype(operands[0].dtype)  # types of other packages are multiplied in float32
    seen = any(xp.may_share_memory(result, a) for a in operands)  # NumPy gives a view where nothing is summed
    return xp.array(result) if seen else result


__all__ = export(globals())
