"""Formulas of activations and of losses of a difference: the function of x, its derivative, and the second one.

They compute with arrays of floating-point numbers. `derived` is the operation that gradient rules call: it multiplies
a gradient by a derivative, and its own rule takes the next one. Nothing in this module blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..._tensor.dispatch import Array, Module
from ..._tensor.result_types import require_floating
from ..._tensor.special import scipys
from ...errors import NotSupported
from .rows import as_type, computing_type, hidden

_ROOT: Final = math.sqrt(0.5)
_DENSITY: Final = 1 / math.sqrt(2 * math.pi)
_GELU: Final = (math.sqrt(2 / math.pi), 0.044715)
_SIXTH: Final = float(np.float32(1 / 6))
"""The slope of hardsigmoid, rounded as in torch, so that gradients in float64 agree with torch's to 1e-10."""
Formula = Callable[..., Any]


def value(xp: Module, name: str, order: int, a: Array, *numbers: Any) -> Array:
    """A derivative of a function, in the type of the tensor.

    Raises DTypeError: integers and complex numbers; NotSupported: an order for which there is no formula.
    """
    require_floating(name, a)
    formulas = FORMULAS[name]
    if order >= len(formulas):
        raise NotSupported(f"derivative {order} of {name}; there are {len(formulas) - 1}")
    with np.errstate(all="ignore"):
        made = formulas[order](a.astype(computing_type(xp, a), copy=False), *numbers)
    return as_type(xp.asarray(made), a.dtype)


@hidden(
    name="derived",
    gradient={
        "output": lambda g, input, name, order, numbers: derived(g, input, name, order, numbers),  # type: ignore[has-type]
        "input": lambda g, output, input, name, order, numbers: derived(g * output, input, name, order + 1, numbers),  # type: ignore[has-type]
    },
)
def derived(xp: Module, output: Array, input: Array, name: str, order: int, numbers: Any) -> Array:
    """A gradient times a derivative of a function."""
    return xp.multiply(output, value(xp, name, order, input, *numbers))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _zero(x: Array, *numbers: Any) -> Array:
    return np.zeros_like(x)


def _normal(x: Array) -> Array:
    """The normal distribution function."""
    return 0.5 * scipys("erfc")(-x * _ROOT)


def _gelu_tanh(x: Array) -> tuple[Array, Array, Array]:
    """The hyperbolic tangent in the approximation, 1 minus its square, and the derivative of its argument."""
    factor, cubic = _GELU
    t = np.tanh(factor * (x + cubic * x * x * x))
    return t, 1 - t * t, factor * (1 + 3 * cubic * x * x)


def _gelu_tanh_1(x: Array) -> Array:
    t, slope, inner = _gelu_tanh(x)
    return 0.5 * (1 + t) + 0.5 * x * slope * inner


def _gelu_tanh_2(x: Array) -> Array:
    t, slope, inner = _gelu_tanh(x)
    factor, cubic = _GELU
    return slope * inner + 0.5 * x * slope * (6 * factor * cubic * x - 2 * t * inner * inner)


def _silu_1(x: Array) -> Array:
    s = _sigmoid(x)
    return s * (1 + x * (1 - s))


def _silu_2(x: Array) -> Array:
    s = _sigmoid(x)
    return s * (1 - s) * (2 + x * (1 - 2 * s))


def _mish_1(x: Array) -> Array:
    t, s = np.tanh(np.logaddexp(0, x)), _sigmoid(x)
    return t + x * s * (1 - t * t)


def _mish_2(x: Array) -> Array:
    t, s = np.tanh(np.logaddexp(0, x)), _sigmoid(x)
    return (1 - t * t) * (2 * s + x * (s * (1 - s) - 2 * t * s * s))


def _softplus(x: Array, beta: float, threshold: float) -> Array:
    return np.where(x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta)


def _softplus_1(x: Array, beta: float, threshold: float) -> Array:
    return np.where(x * beta > threshold, 1, _sigmoid(x * beta))


def _softplus_2(x: Array, beta: float, threshold: float) -> Array:
    s = _sigmoid(x * beta)
    return np.where(x * beta > threshold, 0, beta * s * (1 - s))


def _logsigmoid(x: Array) -> Array:
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def _logsigmoid_2(x: Array) -> Array:
    s = _sigmoid(x)
    return -s * (1 - s)


def _shrunk(x: Array, edge: float) -> Array:
    return np.where(x > edge, x - edge, np.where(x < -edge, x + edge, x * 0))


def _huber(d: Array, delta: float) -> Array:
    size = np.abs(d)
    return np.where(size <= delta, 0.5 * d * d, delta * (size - 0.5 * delta))


def _smooth(d: Array, beta: float) -> Array:
    size = np.abs(d)
    return np.where(size < beta, 0.5 * d * d / beta, size - 0.5 * beta)


FORMULAS: Final[dict[str, tuple[Formula, ...]]] = {
    "elu": (
        lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x)),
        lambda x, alpha: np.where(x <= 0, alpha * np.exp(x), 1),
        lambda x, alpha: np.where(x <= 0, alpha * np.exp(x), 0),
    ),
    "gelu": (
        lambda x: x * _normal(x),
        lambda x: _normal(x) + x * _DENSITY * np.exp(-0.5 * x * x),
        lambda x: _DENSITY * np.exp(-0.5 * x * x) * (2 - x * x),
    ),
    "gelu_tanh": (lambda x: 0.5 * x * (1 + _gelu_tanh(x)[0]), _gelu_tanh_1, _gelu_tanh_2),
    "hardsigmoid": (
        lambda x: np.clip(x + 3, 0, 6) / 6,
        lambda x: ((x > -3) & (x < 3)) * _SIXTH,
        _zero,
    ),
    "hardswish": (
        lambda x: x * np.clip(x + 3, 0, 6) / 6,
        lambda x: np.where(x <= -3, 0, np.where(x < 3, x / 3 + 0.5, 1)),
        lambda x: ((x > -3) & (x < 3)) / 3,
    ),
    "hardtanh": (lambda x, low, high: np.clip(x, low, high), lambda x, low, high: ~((x <= low) | (x >= high)), _zero),
    "huber_loss": (
        _huber,
        lambda d, delta: np.clip(d, -delta, delta),
        lambda d, delta: np.abs(d) < delta,
    ),
    "leaky_relu": (
        lambda x, slope: np.where(x > 0, x, x * slope),
        lambda x, slope: np.where(x > 0, 1, slope),
        _zero,
    ),
    "logsigmoid": (_logsigmoid, lambda x: _sigmoid(-x), _logsigmoid_2),
    "mish": (lambda x: x * np.tanh(np.logaddexp(0, x)), _mish_1, _mish_2),
    "silu": (lambda x: x * _sigmoid(x), _silu_1, _silu_2),
    "smooth_l1_loss": (
        _smooth,
        lambda d, beta: np.where(np.abs(d) < beta, d / beta, np.sign(d)),
        lambda d, beta: (np.abs(d) < beta) / beta,
    ),
    "softplus": (_softplus, _softplus_1, _softplus_2),
    "softshrink": (_shrunk, lambda x, edge: ~((x >= -edge) & (x <= edge)), _zero),
    "softsign": (
        lambda x: x / (1 + np.abs(x)),
        lambda x: 1 / np.square(1 + np.abs(x)),
        lambda x: -2 * np.sign(x) / (1 + np.abs(x)) ** 3,
    ),
}
"""Functions and their first two derivatives; some take numbers."""
