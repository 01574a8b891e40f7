"""A line search: a step along a direction that satisfies the strong Wolfe conditions.

J. Nocedal and S. Wright, Numerical Optimization, 2nd edition, algorithms 3.5 and 3.6, with cubic interpolation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from .arrays import Array

_ARMIJO: Final = 1e-4  # a step must reach this part of the decrease that the slope predicts
_CURVATURE: Final = 0.9  # part of the slope that may remain


class Point(NamedTuple):
    """A place on the line: its step, the loss, the gradient, and the slope along the line."""

    step: float
    loss: float
    gradient: Array
    slope: float


class Search:
    """The search along one direction.

    Args:
        evaluate: computes the point of a step.
        start: the point of step 0.
        size: the largest element of the direction.
        tolerance: change of parameters below which the search ends.
        limit: maximum number of points computed after the first.
    """

    def __init__(
        self, evaluate: Callable[[float], Point], start: Point, size: float, tolerance: float, limit: int
    ) -> None:
        self._evaluate, self._start, self._size = evaluate, start, size
        self._tolerance, self._limit = tolerance, limit
        self.evaluations: int = 0

    def find(self, step: float) -> Point:
        """Return the best point found, beginning with `step`."""
        found = self._bracket(step)
        return found[0] if len(found) == 1 else self._narrow(*found)

    def _at(self, step: float) -> Point:
        self.evaluations += 1
        return self._evaluate(step)

    def _is_low(self, point: Point) -> bool:
        return not point.loss > self._start.loss + _ARMIJO * point.step * self._start.slope

    def _is_flat(self, point: Point) -> bool:
        return abs(point.slope) <= -_CURVATURE * self._start.slope

    def _bracket(self, step: float) -> tuple[Point, ...]:
        """One point that satisfies the conditions; or two with one between them. The earlier one comes first."""
        before, point = self._start, self._at(step)
        while self.evaluations <= self._limit:
            if not self._is_low(point) or (self.evaluations > 2 and point.loss >= before.loss):
                return before, point
            if self._is_flat(point):
                return (point,)
            if point.slope >= 0:
                return before, point
            least = point.step + 0.01 * (point.step - before.step)
            further = interpolate(before, point, (least, point.step * 10))
            before, point = point, self._at(further)
        return self._start, point

    def _narrow(self, first: Point, second: Point) -> Point:
        """The best point between two."""
        ends = [first, second]
        low = 0 if first.loss <= second.loss else 1
        was_at_edge = False
        while self.evaluations <= self._limit:
            if abs(second.step - first.step) * self._size < self._tolerance:
                break
            step, was_at_edge = self._inside(ends, was_at_edge)
            point = self._at(step)
            if not self._is_low(point) or point.loss >= ends[low].loss:
                ends[1 - low] = point
                low = 0 if ends[0].loss <= ends[1].loss else 1
            else:
                flat = self._is_flat(point)
                if not flat and point.slope * (ends[1 - low].step - ends[low].step) >= 0:
                    ends[1 - low] = ends[low]
                ends[low] = point
                if flat:
                    break
            first, second = ends
        return ends[low]

    @staticmethod
    def _inside(ends: list[Point], was_at_edge: bool) -> tuple[float, bool]:
        """A step between two points, and whether it is near one of them, which it never is twice in a row."""
        step = interpolate(ends[0], ends[1])
        low, high = sorted(one.step for one in ends)
        margin = 0.1 * (high - low)
        if not min(high - step, step - low) < margin:
            return step, False
        if not (was_at_edge or step >= high or step <= low):
            return step, True
        return (high - margin if abs(step - high) < abs(step - low) else low + margin), False


def interpolate(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """The step with the least loss on the cubic through two points; the middle of the bounds if there is none."""
    if a.step > b.step:
        a, b = b, a
    low, high = bounds or (a.step, b.step)
    values: Any = np.array([(one.step, one.loss, one.slope) for one in (a, b)], np.float64)
    (x1, f1, g1), (x2, f2, g2) = values  # NumPy's numbers: division by 0 gives infinity
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if not square >= 0:
        return (low + high) / 2
    d2 = np.sqrt(square)
    return float(min(max(x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2)), low), high))
