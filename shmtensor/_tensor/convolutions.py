"""Convolutions and cross-correlations of images and volumes, with Torch7's names. Nothing in this module blocks.

They are THTensorConv's: the numbers of axes say whether stacks are combined plane by plane or as a matrix with vectors.
"""

from __future__ import annotations

from typing import Any, Final

from ..errors import DTypeError, InvalidArgument
from ..storage.arguments import INTEGERS
from .core import index_of, indices_of
from .dispatch import Array, Module, Out, export, operation

_PLANS: Final[dict[tuple[int, int], tuple[list[int], list[int], list[int]]]] = {
    (0, 0): ([], [], []),
    (1, 1): ([0], [0], [0]),
    (1, 2): ([0], [1, 0], [1]),
    (2, 2): ([2, 0], [1, 0], [2, 1]),
}
"""Leading axes of the input and of the kernel -> what they are, and what those of the result are, for einsum."""


@operation(out=Out.COPIED, fails="conv2 with a kernel of shape {k.shape} of")
def conv2(xp: Module, x: Array, /, k: Array, mode: str = "V", *, stride: Any = 1) -> Array:
    """The convolution of images with kernels: the kernel's rows and columns count from the end.

    | axes of `x` | axes of `k` | result |
    | --- | --- | --- |
    | (h, w) | (kh, kw) | (oh, ow): an image with a kernel (TH's conv2Dmul) |
    | (p, h, w) | (p, kh, kw) | (p, oh, ow): each plane with its kernel (conv2Dcmul) |
    | (p, h, w) | (q, p, kh, kw) | (q, oh, ow): sums over the planes p (conv2Dmv) |
    | (b, p, h, w) | (q, p, kh, kw) | (b, q, oh, ow): the same for each of b (conv2Dmm) |

    Args:
        x, k: the input and the kernel, of one type, which is that of the result.
        mode: "V": where the kernel lies within the image, `(h - kh) // stride + 1` rows; "F": where it touches it,
            `(h - 1) * stride + kh` rows.
        stride: a number, or one for rows and one for columns: how far apart the places of the kernel are ("V"), or the
            elements of the image ("F").

    Raises:
        InvalidArgument: other axes; planes that do not go together; no elements; an image smaller than the kernel with
            "V"; another mode or a stride below 1.
        DTypeError: two types.
    """
    return _combined(xp, "conv2", 2, x, xp.flip(k, _last(k, 2)), mode, stride)


@operation(out=Out.COPIED, fails="xcorr2 with a kernel of shape {k.shape} of")
def xcorr2(xp: Module, x: Array, /, k: Array, mode: str = "V", *, stride: Any = 1) -> Array:
    """The cross-correlation of images with kernels, which is `conv2` with kernels that are not turned round.

    Complex kernels are not conjugated. Arguments and errors as `conv2`.
    """
    return _combined(xp, "xcorr2", 2, x, k, mode, stride)


@operation(out=Out.COPIED, fails="conv3 with a kernel of shape {k.shape} of")
def conv3(xp: Module, x: Array, /, k: Array, mode: str = "V", *, stride: Any = 1) -> Array:
    """The convolution of volumes with kernels: `conv2` with three last axes (TH's conv3Dmul, conv3Dcmul, conv3Dmv).

    Arguments and errors as `conv2`; a stride for each of the three axes.
    """
    return _combined(xp, "conv3", 3, x, xp.flip(k, _last(k, 3)), mode, stride)


@operation(out=Out.COPIED, fails="xcorr3 with a kernel of shape {k.shape} of")
def xcorr3(xp: Module, x: Array, /, k: Array, mode: str = "V", *, stride: Any = 1) -> Array:
    """The cross-correlation of volumes with kernels, which is `conv3` with kernels that are not turned round.

    Arguments and errors as `conv3`.
    """
    return _combined(xp, "xcorr3", 3, x, k, mode, stride)


def _last(a: Array, axes: int) -> tuple[int, ...]:
    """The numbers of the last axes, or of all if there are fewer, which is refused later."""
    return tuple(range(max(a.ndim - axes, 0), a.ndim))


def _combined(xp: Module, name: str, axes: int, x: Array, k: Array, mode: str, stride: Any) -> Array:
    """The cross-correlation over the last `axes` axes. Raises as conv2."""
    lead_x, lead_k, lead = _plan(name, axes, x, k)
    steps = _steps(name, axes, stride)
    size = k.shape[-axes:]
    if mode == "F":
        x = _spread(xp, x, size, steps)
        steps = (1,) * axes
    elif mode != "V":
        raise InvalidArgument(f"{name} with mode {mode!r}; give 'V' (valid) or 'F' (full)")
    elif any(have < wanted for have, wanted in zip(x.shape[-axes:], size, strict=True)):
        raise InvalidArgument(
            f"{name} of a tensor of shape {x.shape}, which is smaller than the kernel of shape {k.shape}; use mode 'F'"
        )
    windows = xp.lib.stride_tricks.sliding_window_view(x, size, _last(x, axes))
    every = (slice(None),)
    windows = windows[every * len(lead_x) + tuple(slice(None, None, step) for step in steps) + every * axes]
    places, within = list(range(3, 3 + axes)), list(range(6, 6 + axes))
    result: Any = xp.einsum(windows, lead_x + places + within, k, lead_k + within, lead + places, optimize=True)
    return result


def _plan(name: str, axes: int, x: Array, k: Array) -> tuple[list[int], list[int], list[int]]:
    plan = _PLANS.get((x.ndim - axes, k.ndim - axes))
    if plan is None:
        pairs = ", ".join(f"{axes + i} and {axes + j}" for i, j in _PLANS)
        raise InvalidArgument(f"{name} of tensors of shapes {x.shape} and {k.shape}; they may have {pairs} axes")
    if len(plan[0]) and x.shape[-axes - 1] != k.shape[-axes - 1]:
        raise InvalidArgument(
            f"{name} of {x.shape[-axes - 1]} planes with kernels for {k.shape[-axes - 1]}, of tensors of shapes "
            f"{x.shape} and {k.shape}; give as many"
        )
    if x.dtype != k.dtype:
        raise DTypeError(f"{name} of tensors of {x.dtype.name} and {k.dtype.name}; convert one by to()")
    if not x.size or not k.size:
        raise InvalidArgument(f"{name} of tensors of shapes {x.shape} and {k.shape}; give some elements of each")
    return plan


def _steps(name: str, axes: int, stride: Any) -> tuple[int, ...]:
    steps = (index_of(stride, "stride"),) * axes if isinstance(stride, INTEGERS) else indices_of(stride, "strides")
    if len(steps) != axes or min(steps) < 1:
        raise InvalidArgument(f"{name} with stride {stride!r}; give one from 1, or {axes} of them")
    return steps


def _spread(xp: Module, x: Array, size: tuple[int, ...], steps: tuple[int, ...]) -> Array:
    """The input with its elements `steps` apart, and zeros between and around them, as wide as the kernel reaches."""
    lead, shape = x.shape[: -len(size)], x.shape[-len(size) :]
    whole = [(n - 1) * step + 2 * width - 1 for n, step, width in zip(shape, steps, size, strict=True)]
    made = xp.zeros((*lead, *whole), x.dtype)
    places = zip(shape, steps, size, strict=True)
    made[(..., *[slice(width - 1, width + (n - 1) * step, step) for n, step, width in places])] = x
    return made


__all__ = export(globals())
