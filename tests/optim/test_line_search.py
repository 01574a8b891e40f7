"""The line search of LBFGS: the same points as torch's, for functions of one variable with many minima and kinks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shmtensor.optim.line_search import Point, Search, interpolate

Curve = Callable[[float], tuple[float, float]]


def curve(seed: int) -> tuple[Curve, float]:
    """A function that falls at 0, with its slope; and a first step."""
    random = np.random.default_rng(seed)
    heights, waves = random.standard_normal(4), random.uniform(0.2, 6, 4)
    bowl, kink, sign = random.uniform(0.01, 1), random.choice([0.0, 0.0, 2.0, 20.0]), 1.0

    def at(step: float) -> tuple[float, float]:
        t = sign * step
        value = bowl * t * t + (heights * np.sin(waves * t)).sum() + kink * abs(t - 1.3)
        slope = 2 * bowl * t + (heights * waves * np.cos(waves * t)).sum() + kink * np.sign(t - 1.3)
        return float(value), float(sign * slope)

    if at(0.0)[1] > 0:
        sign = -1.0
    return at, float(random.choice([0.01, 0.3, 1, 5]))


def searched(at: Curve, first: float, tolerance: float = 1e-9, limit: int = 25) -> tuple[Point, list[float]]:
    steps: list[float] = []

    def evaluate(step: float) -> Point:
        steps.append(step)
        loss, slope = at(step)
        return Point(step, loss, np.array([slope]), slope)

    loss, slope = at(0.0)
    return Search(evaluate, Point(0.0, loss, np.array([slope]), slope), 1.0, tolerance, limit).find(first), steps


@pytest.mark.parametrize("seed", range(40))
def test_the_step_satisfies_the_conditions(seed: int) -> None:
    at, first = curve(seed)
    found, steps = searched(at, first)
    loss, slope = at(0.0)
    assert found.step in steps and (found.loss, found.slope) == at(found.step)
    assert found.loss <= loss + 1e-4 * found.step * slope
    is_flat = abs(found.slope) <= 0.9 * abs(slope)
    below, above = at(found.step - 1e-6)[1], at(found.step + 1e-6)[1]
    assert is_flat or below * above < 0 or len(steps) > 25  # at a kink no slope is flat


def test_a_change_below_the_tolerance_ends_it() -> None:
    found, steps = searched(lambda t: (abs(t - 0.7), -1.0 if t < 0.7 else 1.0), 1.0, tolerance=0.5)
    more, further = searched(lambda t: (abs(t - 0.7), -1.0 if t < 0.7 else 1.0), 1.0)
    assert len(steps) < len(further) and abs(found.step - 0.7) < 0.5 and abs(more.step - 0.7) < 1e-6


def test_interpolation() -> None:
    a, b = Point(0.0, 1.0, np.zeros(1), -2.0), Point(3.0, 4.0, np.zeros(1), 4.0)  # (t - 1) ** 2
    assert interpolate(a, b) == interpolate(b, a) == pytest.approx(1)
    assert interpolate(b, a, (1.5, 2.0)) == 1.5 and interpolate(a, b, (0.0, 0.5)) == 0.5
    rising = Point(3.0, 31.0, np.zeros(1), 28.0)  # t ** 3 + t + 1 has no minimum
    assert interpolate(Point(0.0, 1.0, np.zeros(1), 1.0), rising) == 1.5


@pytest.mark.torch
@pytest.mark.exhaustive
@pytest.mark.parametrize("group", range(3))
def test_the_same_points_as_torch(group: int) -> None:
    torch: Any = pytest.importorskip("torch")
    from torch.optim.lbfgs import _strong_wolfe

    for seed in range(100 * group, 100 * (group + 1)):
        at, first = curve(seed)
        found, steps = searched(at, first)
        theirs: list[float] = []

        def evaluate(x: Any, step: Any, direction: Any, at: Curve = at, theirs: list[float] = theirs) -> Any:
            theirs.append(float(step))
            loss, slope = at(float(step))
            return loss, torch.tensor([slope], dtype=torch.float64)

        loss, slope = at(0.0)
        whole = torch.tensor([slope], dtype=torch.float64)
        made = _strong_wolfe(evaluate, None, first, torch.ones(1, dtype=torch.float64), loss, whole, whole[0])
        assert steps == pytest.approx(theirs, rel=1e-9, abs=1e-12), seed
        assert found.step == pytest.approx(float(made[2]), rel=1e-9, abs=1e-12), seed
