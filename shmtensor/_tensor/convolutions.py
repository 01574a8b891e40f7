"""Convolutions and cross-correlations of images and volumes, with Torch7's names. Nothing in this module blocks.

They are THTensorConv's: the numbers of axes say whether stacks are combined plane by plane or as a matrix with vectors.
"""

from __future__ import annotations

from typing import Any, Final

from ..errors import DTypeError, InvalidArgument
from ..storage.arguments import INTEGERS
from .core import Tensor, array_of, index_of, indices_of
from .dispatch import Array, Module, composed, export, operation
from .einsums import einsum
from .outputs import placed

_PLANS: Final = {(0, 0): ("", "", ""), (1, 1): ("p", "p", "p"), (1, 2): ("p", "qp", "q"), (2, 2): ("bp", "qp", "bq")}
"""Leading axes of the input and of the kernel -> what they are, and what those of the result are, for einsum."""


@composed()
def conv2(input: Tensor, k: Tensor, mode: str = "V", *, stride: Any = 1, out: Tensor | None = None) -> Tensor:
    """The convolution of images with kernels: the kernel's rows and columns are reversed.

    | axes of `input` | axes of `k` | result |
    | --- | --- | --- |
    | (h, w) | (kh, kw) | (oh, ow): an image with a kernel (TH's conv2Dmul) |
    | (p, h, w) | (p, kh, kw) | (p, oh, ow): each plane with its kernel (conv2Dcmul) |
    | (p, h, w) | (q, p, kh, kw) | (q, oh, ow): sums over the planes p (conv2Dmv) |
    | (b, p, h, w) | (q, p, kh, kw) | (b, q, oh, ow): the same for each of b (conv2Dmm) |

    Args:
        input, k: the input and the kernel, of one type, which is that of the result.
        mode: "V": only where the kernel lies within the image, `(h - kh) // stride + 1` rows; "F": wherever it overlaps
            the image, `(h - 1) * stride + kh` rows.
        stride: a number, or one for rows and one for columns: how far apart the places of the kernel are ("V"), or the
            elements of the image ("F").

    Raises:
        InvalidArgument: other axes; different numbers of planes; no elements; an image smaller than the kernel with
            "V"; another mode or a stride below 1.
        DTypeError: two types.
    """
    return placed(_combined("conv2", 2, input, k, mode, stride, turns=True), out, "conv2")


@composed()
def xcorr2(input: Tensor, k: Tensor, mode: str = "V", *, stride: Any = 1, out: Tensor | None = None) -> Tensor:
    """The cross-correlation of images with kernels, which is `conv2` with kernels that are not reversed.

    Complex kernels are not conjugated. Arguments and errors as `conv2`.
    """
    return placed(_combined("xcorr2", 2, input, k, mode, stride), out, "xcorr2")


@composed()
def conv3(input: Tensor, k: Tensor, mode: str = "V", *, stride: Any = 1, out: Tensor | None = None) -> Tensor:
    """The convolution of volumes with kernels: `conv2` with three last axes (TH's conv3Dmul, conv3Dcmul, conv3Dmv).

    Arguments and errors as `conv2`; a stride for each of the three axes.
    """
    return placed(_combined("conv3", 3, input, k, mode, stride, turns=True), out, "conv3")


@composed()
def xcorr3(input: Tensor, k: Tensor, mode: str = "V", *, stride: Any = 1, out: Tensor | None = None) -> Tensor:
    """The cross-correlation of volumes with kernels, which is `conv3` with kernels that are not reversed.

    Arguments and errors as `conv3`.
    """
    return placed(_combined("xcorr3", 3, input, k, mode, stride), out, "xcorr3")


def _last(a: Tensor, axes: int) -> tuple[int, ...]:
    """The numbers of the last axes."""
    return tuple(range(a.ndim - axes, a.ndim))


def _combined(name: str, axes: int, x: Tensor, k: Tensor, mode: str, stride: Any, *, turns: bool = False) -> Tensor:
    """The cross-correlation over the last `axes` axes, with the kernel reversed if `turns`. Raises as conv2."""
    array_of(x), array_of(k)
    lead_x, lead_k, lead = _plan(name, axes, x, k)
    steps = _steps(name, axes, stride)
    size = k.shape[-axes:]
    if mode == "F":
        x = _spread(x, size, steps)
        steps = (1,) * axes
    elif mode != "V":
        raise InvalidArgument(f"{name} with mode {mode!r}; give 'V' (valid) or 'F' (full)")
    elif any(have < wanted for have, wanted in zip(x.shape[-axes:], size, strict=True)):
        raise InvalidArgument(
            f"{name} of a tensor of shape {x.shape}, which is smaller than the kernel of shape {k.shape}; use mode 'F'"
        )
    windows = x
    for axis, width, step in zip(_last(x, axes), size, steps, strict=True):
        windows = windows.unfold(axis, width, step)
    if turns:
        k = k.flip(_last(k, axes))
    places, within = "uvw"[:axes], "xyz"[:axes]
    return einsum(f"{lead_x}{places}{within},{lead_k}{within}->{lead}{places}", windows, k)


def _plan(name: str, axes: int, x: Tensor, k: Tensor) -> tuple[str, str, str]:
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
        raise DTypeError(f"{name} of tensors of {x.dtype.name} and {k.dtype.name}; convert one with to()")
    if not x.numel() or not k.numel():
        raise InvalidArgument(f"{name} of tensors of shapes {x.shape} and {k.shape}; give some elements of each")
    return plan


def _steps(name: str, axes: int, stride: Any) -> tuple[int, ...]:
    steps = (index_of(stride, "stride"),) * axes if isinstance(stride, INTEGERS) else indices_of(stride, "strides")
    if len(steps) != axes or min(steps) < 1:
        raise InvalidArgument(f"{name} with stride {stride!r}; give one from 1, or {axes} of them")
    return steps


def _places(shape: tuple[int, ...], size: tuple[int, ...], steps: tuple[int, ...]) -> tuple[Any, ...]:
    """The index of the elements of an input of this shape in the result of `_spread`."""
    sizes = zip(shape[-len(size) :], size, steps, strict=True)
    return (..., *[slice(width - 1, width + (n - 1) * step, step) for n, width, step in sizes])


@operation(
    name="spread_out", function=False, method=False,
    gradient=lambda g, x_shape, size, steps: g[_places(x_shape, size, steps)],
)  # fmt: skip
def _spread(xp: Module, x: Array, size: tuple[int, ...], steps: tuple[int, ...]) -> Array:
    """The input with its elements `steps` apart, and zeros between and around them, as wide as the kernel reaches."""
    lead, shape = x.shape[: -len(size)], x.shape[-len(size) :]
    whole = [(n - 1) * step + 2 * width - 1 for n, step, width in zip(shape, steps, size, strict=True)]
    made = xp.zeros((*lead, *whole), x.dtype)
    made[_places(x.shape, size, steps)] = x
    return made


__all__ = export(globals())
