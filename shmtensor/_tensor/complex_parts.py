"""Complex numbers and their parts: made of parts, viewed as pairs of real numbers, angles, signs and conjugates.

Conjugates are computed at once, not lazily as in torch. Nothing in this module blocks.
"""

from __future__ import annotations

import numpy as np

from ..errors import DTypeError, InvalidArgument, LayoutError
from ..storage.regions import address_of
from . import elementwise_rules as rules
from .core import Tensor
from .creation import ones_like, zeros_like
from .dispatch import Array, Module, Out, Result, export, operation
from .result_types import converted, floating_type, widened


def _require_pair(name: str, one: Array, other: Array) -> None:
    """Refuse parts that have no complex type in common. Raises DTypeError."""
    if one.dtype != other.dtype or one.dtype.kind != "f" or one.dtype.itemsize < 4:
        raise DTypeError(
            f"{name} of tensors of {one.dtype.name} and {other.dtype.name}; give both as float32, or float64"
        )


@operation(
    method=False,
    out=Out.COPIED,
    fails="complex numbers with imaginary parts of shape {imag.shape} and real parts",
    gradient={"real": lambda g: g.real, "imag": lambda g: g.imag},
)
def complex(xp: Module, real: Array, imag: Array) -> Array:
    """Complex numbers of real and imaginary parts, both float32 or both float64, which broadcast.

    Raises DTypeError: other types; InvalidArgument: incompatible shapes.
    """
    _require_pair("complex", real, imag)
    result = xp.empty(xp.broadcast_shapes(real.shape, imag.shape), xp.result_type(real.dtype, xp.complex64))
    result.real, result.imag = real, imag
    return result


def _of_radius(g: Tensor, angle: Tensor) -> Tensor:
    return (g * polar(ones_like(angle), -angle)).real


def _angle_rule(g: Tensor, result: Tensor) -> Tensor:
    return (g * result).imag  # of which the result is conjugated


@operation(
    method=False,
    out=Out.COPIED,
    fails="complex numbers with angles of shape {angle.shape} and absolute values",
    gradient={
        "abs": _of_radius,
        "angle": _angle_rule,
    },
)
def polar(xp: Module, abs: Array, angle: Array) -> Array:
    """Complex numbers of absolute values and angles, both float32 or both float64, which broadcast.

    Raises DTypeError: other types; InvalidArgument: incompatible shapes.
    """
    _require_pair("polar", abs, angle)
    result = xp.empty(xp.broadcast_shapes(abs.shape, angle.shape), xp.result_type(abs.dtype, xp.complex64))
    with np.errstate(all="ignore"):
        result.real, result.imag = abs * xp.cos(angle), abs * xp.sin(angle)
    return result


def _of_angle(g: Tensor, input: Tensor) -> Tensor:
    """Gradient of an angle: 0 for real numbers, and at 0."""
    if input.dtype.kind != "c":
        return zeros_like(g)
    x = input.conj()
    return rules.kept(g * 1j * x / (x * input).real, x != 0)


@operation(out=Out.COPIED, gradient=_of_angle)
def angle(xp: Module, input: Array) -> Array:
    """The angle of complex numbers; for others pi below 0, else 0, and NaN for NaN. Integers give float32."""
    if input.dtype.kind == "c":
        return xp.arctan2(input.imag, input.real)
    dtype = floating_type(input)
    (x,) = converted(xp, widened(xp, dtype), input)
    return xp.where(xp.isnan(x), x, xp.where(x < 0, x.dtype.type(np.pi), x.dtype.type(0))).astype(dtype, copy=False)


@operation(out=Out.COPIED, in_place=True, gradient=lambda g, input: rules.sgn(g, input))
def sgn(xp: Module, input: Array) -> Array:
    """The sign; for complex numbers x / abs(x), and 0 for 0."""
    return xp.logical_or(input, input) if input.dtype.kind == "b" else xp.sign(input)


@operation(out=Out.COPIED)
def isreal(xp: Module, input: Array) -> Array:
    """Whether the imaginary part is 0; true of all real types."""
    return input.imag == 0 if input.dtype.kind == "c" else xp.ones(input.shape, bool)


@operation(result=Result.VIEW, out=Out.COPIED, in_place=True, gradient=lambda g: g.conj())
def conj_physical(xp: Module, input: Array) -> Array:
    """The conjugate, with memory of its own; itself for real types."""
    return xp.conjugate(input) if input.dtype.kind == "c" else input


@operation(result=Result.VIEW, gradient=lambda g: g.conj())
def conj(xp: Module, input: Array) -> Array:
    """The conjugate, with memory of its own; itself for real types."""
    return xp.conjugate(input) if input.dtype.kind == "c" else input


@operation(result=Result.VIEW, gradient=lambda g: g)
def resolve_conj(xp: Module, input: Array) -> Array:
    """Itself: no tensor is conjugated lazily."""
    return input


@operation(result=Result.VIEW, gradient=lambda g: g)
def resolve_neg(xp: Module, input: Array) -> Array:
    """Itself: no tensor is negated lazily."""
    return input


def _pairs(a: Array) -> Array:
    """Complex numbers as pairs, over the same memory. Raises DTypeError."""
    if a.dtype.kind != "c":
        raise DTypeError(f"view_as_real of a tensor of {a.dtype.name}; give a complex one")
    return a[..., None].view(a.real.dtype)


def _of_pairs(a: Array) -> Array:
    """Pairs as complex numbers, over the same memory. Raises DTypeError, InvalidArgument, LayoutError."""
    if a.dtype.kind != "f" or a.itemsize < 4:
        raise DTypeError(f"view_as_complex of a tensor of {a.dtype.name}; give float32 or float64")
    if not a.ndim or a.shape[-1] != 2:
        raise InvalidArgument(f"view_as_complex of a tensor of shape {a.shape}; the last axis must be of size 2")
    width = 2 * a.itemsize
    if a.size and (
        a.strides[-1] != a.itemsize or any(stride % width for stride in a.strides[:-1]) or address_of(a) % width
    ):
        raise LayoutError(
            f"view_as_complex of a tensor of shape {a.shape} and strides {a.strides} bytes; each pair must lie "
            f"together, at a multiple of {width} bytes: use a clone()"
        )
    return a.view(np.result_type(a.dtype, np.complex64))[..., 0]


def _of_parts(g: Tensor) -> Tensor:
    return complex(g.select(-1, 0), g.select(-1, 1))


def _parts(g: Tensor) -> Tensor:
    return view_as_real_copy(g)


@operation(result=Result.VIEW, method=False, gradient=_of_parts)
def view_as_real(xp: Module, input: Array) -> Array:
    """The same memory as pairs of real numbers, in a new last axis of size 2. Raises DTypeError: not complex."""
    return _pairs(input)


@operation(result=Result.VIEW, method=False, gradient=_parts)
def view_as_complex(xp: Module, input: Array) -> Array:
    """The same memory as complex numbers, whose parts are along the last axis, of size 2.

    Raises DTypeError: other types than float32 and float64; InvalidArgument: another size; LayoutError: a layout in
    which the pairs are not elements of a complex type.
    """
    return _of_pairs(input)


@operation(method=False, out=Out.COPIED, gradient=_of_parts)
def view_as_real_copy(xp: Module, input: Array) -> Array:
    """`view_as_real` with memory of its own. Raises DTypeError."""
    return _pairs(input).copy()


@operation(method=False, out=Out.COPIED, gradient=_parts)
def view_as_complex_copy(xp: Module, input: Array) -> Array:
    """`view_as_complex` with memory of its own. Raises as that function does."""
    return _of_pairs(input).copy()


__all__ = export(globals())
