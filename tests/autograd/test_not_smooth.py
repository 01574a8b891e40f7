"""Gradients of elementwise operations at points that are not smooth or special, beside torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

INF, NAN = math.inf, math.nan


def gradients(t: Any, function: Callable[..., Any], *values: list[complex]) -> list[Any]:
    leaves = [t.tensor(one, requires_grad=True) for one in values]
    return [one.tolist() for one in t.autograd.grad(function(t, *leaves).sum(), leaves)]


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [
        (lambda t, x: x.abs(), [-2.0, 0, 3], [-1.0, 0, 1]),
        (lambda t, x: x.relu(), [-2.0, 0, 3], [0.0, 0, 1]),
        (lambda t, x: x.sign() + x.floor() + x.trunc() + x.round(), [0.5, INF, -3], [0.0, 0, 0]),
        (lambda t, x: x.frac(), [0.5, -1.5], [1.0, 1]),
        (lambda t, x: x**0, [0.0, INF], [0.0, 0]),
        (lambda t, x: x**2, [0.0, -3], [0.0, -6]),
        (lambda t, x: 0**x, [2.0, 0], [0.0, 0]),
        (lambda t, x: x.pow(t.tensor([0.0, 1, 2])), [0.0, 0, 0], [0.0, 1, 0]),
        (lambda t, x: t.maximum(x, t.tensor([1.0, 1, 1])), [0.0, 1, 2], [0.0, 0.5, 1]),
        (lambda t, x: t.minimum(x, t.tensor([1.0, 1, 1])), [0.0, 1, 2], [1.0, 0.5, 0]),
        (lambda t, x: t.fmax(x, t.tensor([1.0, 1, NAN])), [0.0, 1, 2], [0.0, 1, 1]),
        (lambda t, x: t.fmin(t.tensor([1.0, 1, NAN]), x), [0.0, 1, 2], [1.0, 0, 1]),
        (lambda t, x: t.clamp_min(x, 1), [0.0, 1, 2], [0.0, 1, 1]),
        (lambda t, x: t.clamp_max(x, t.tensor(1.0)), [0.0, 1, 2], [1.0, 1, 0]),
        (lambda t, x: t.copysign(x, t.tensor(-1.0)), [0.0, 2, -2], [0.0, -1, 1]),
        (lambda t, x: t.atan2(x, t.tensor([0.0, 0, 1])), [0.0, 2, 0], [0.0, 0, 1]),
        (lambda t, x: t.nextafter(x, t.tensor(1.0)), [0.0, 1], [1.0, 0]),
        (lambda t, x: x.nan_to_num(), [1.0, NAN, INF], [1.0, 0, 0]),
        (lambda t, x: t.celu(x), [0.0, 1000.0, -INF], [1.0, 1, 0]),
        (lambda t, x: t.hardshrink(x), [0.5, 0.75, -1], [0.0, 1, 1]),
        (lambda t, x: t.threshold(x, 1.0, 9.0), [1.0, 2.0], [0.0, 1]),
        (lambda t, x: x.angle() + x.sgn(), [-1.0, 0, 1], [0.0, 0, 0]),
        (lambda t, x: t.sinc(x), [0.0], [0.0]),
        (lambda t, x: t.polar(t.tensor([1.0, 0]), x).real, [0.0, 1], [0.0, 0]),
    ],
)
def test_where_functions_are_not_smooth(t: Any, function: Any, at: list[float], expected: list[float]) -> None:
    assert gradients(t, function, at) == [expected]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda t, x: t.logit(x), [NAN, NAN, NAN]),
        (lambda t, x: t.logit(x, 0.1), [NAN, 0, 0]),
        (lambda t, x: t.logit(x, -1.0), [NAN, NAN, NAN]),
        (lambda t, x: t.nn.functional.hardtanh(x), [1, 0, 0]),
        (lambda t, x: t.nn.functional.relu6(x), [1, 0, 0]),
        (lambda t, x: t.nn.functional.softshrink(x), [1, 1, 1]),
        (lambda t, x: t.hardshrink(x), [1, 1, 1]),
        (lambda t, x: t.threshold(x, 1.0, 9.0), [1, 1, 0]),
        (lambda t, x: t.nn.functional.elu(x), [1, 1, 0]),
        (lambda t, x: t.nn.functional.elu(x * 1, inplace=True), [1, 1, 0]),
        (lambda t, x: t.celu(x, 2.0), [1, 1, 0]),
        (lambda t, x: t.celu(x, -2.0), [1, 1, INF]),
        (lambda t, x: t.celu_(x * 1), [1, 1, 0]),
        (lambda t, x: t.selu(x), [1.0507009873554805, 1.0507009873554805, 0]),
        (lambda t, x: t.selu_(x * 1), [1.0507009873554805, 1.0507009873554805, 0]),
        (lambda t, x: x.relu(), [1, 1, 0]),
        (lambda t, x: t.clamp_min(x, 1), [0, 1, 0]),
    ],
)
def test_at_nan_and_infinity(t: Any, function: Any, expected: list[float]) -> None:
    assert gradients(t, function, [NAN, INF, -INF]) == [pytest.approx(expected, nan_ok=True)]


def test_logit_beyond_its_domain(t: Any) -> None:
    at = [-0.5, 0.05, 0.5, 1.5]
    assert gradients(t, lambda t, x: t.logit(x, 0.1), at) == [[0, 0, 4, 0]]
    for eps in (None, -1.0):
        found = gradients(t, lambda t, x, eps=eps: t.logit(x, eps), at)
        assert found == [pytest.approx([NAN, 1 / (0.05 * 0.95), 4, NAN], nan_ok=True)]


def test_products_with_logarithms(t: Any) -> None:
    pytest.importorskip("scipy.special")
    for name, zero in (("xlogy", 0.0), ("xlog1py", -1.0)):
        found = gradients(t, lambda t, x, y, name=name: getattr(t.special, name)(x, y), [0.0, 2.0], [zero, zero + 1])
        assert found[0] == [0, 0] and math.isnan(found[1][0]) and found[1][1] == 2


def test_complex_gradients_are_conjugated(t: Any) -> None:
    z = 3 + 4j
    assert gradients(t, lambda t, x: (x * (2 + 1j)).real, [z]) == [[2 - 1j]]
    assert gradients(t, lambda t, x: x.abs(), [z, 0j]) == [[pytest.approx(0.6 + 0.8j), 0]]
    assert gradients(t, lambda t, x: (x * x.conj()).real, [z]) == [[6 + 8j]]
    assert gradients(t, lambda t, x: x.angle(), [1j, 0j]) == [[pytest.approx(-1 + 0j), 0]]
    assert gradients(t, lambda t, x: t.view_as_real(x), [z]) == [[1 + 1j]]
    assert gradients(t, lambda t, x: x.sgn().real, [z, 0j]) == [[pytest.approx(0.128 - 0.096j), 0]]


def test_rounded_quotients_have_no_slope(t: Any) -> None:
    for mode in ("trunc", "floor"):
        found = gradients(t, lambda t, x, y, mode=mode: (x * 1).div_(y, rounding_mode=mode), [7.0, -7], [2.0, 2])
        assert found == [[0, 0], [0, 0]]
    assert gradients(t, lambda t, x, y: x % y, [7.0, -7], [2.0, 2]) == [[1, 1], [-3, 4]]
    assert gradients(t, lambda t, x, y: t.fmod(x, y), [7.0, -7], [2.0, 2]) == [[1, 1], [-3, 3]]
