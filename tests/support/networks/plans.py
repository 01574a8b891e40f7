"""Random networks: their steps and their input; torch determines which arguments are legal."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from networks.chances import CHANCES
from networks.draws import Call, Draws, Illegal, Layer, Step, each_sample, leaf, made, plain
from networks.elementwise import ELEMENTWISE
from networks.losses import LOSSES
from networks.sequences import SEQUENCES
from networks.spatial import SPATIAL

BODY: dict[str, Any] = {**SPATIAL, **CHANCES, **ELEMENTWISE, **SEQUENCES}
NAMES = sorted([*BODY, *LOSSES])
"""The modules that are drawn; the network of a seed has the module of this number, beside others."""
MOST, LARGEST = 600, 30.0
"""The largest number of elements of a result between two steps, and their largest absolute value."""


@dataclass(frozen=True)
class Plan:
    """A network that is not made yet, with its input."""

    input: Any
    steps: tuple[Step, ...]

    @property
    def names(self) -> set[str]:
        """The modules in it."""
        return {name for step in self.steps for layer in step.layers for name in layer.names}

    @property
    def modes(self) -> tuple[bool, ...]:
        """Training and evaluation; only training if that is random."""
        return (False,) if any(step.only_eval for step in self.steps) else (True, False)


def network(plan: Plan, library: Any, masks: dict[int, Any]) -> Any:
    """The module of a library for a plan; a call with an input and other tensors returns the result of each step."""

    class Network(library.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            held = [library.nn.ModuleList(made(list(step.layers), library)) for step in plan.steps]
            self.steps = library.nn.ModuleList(held)

        def forward(self, x: Any, given: Any) -> tuple[list[Any], list[Any]]:
            results, sides = [], []
            for number, (step, layers) in enumerate(zip(plan.steps, self.steps, strict=True)):
                x = step.run(Call(library, layers, x, given[number], sides, masks, number))
                results.append(x)
            return results, sides

    return Network().double()


def tensors(plan: Plan, library: Any) -> tuple[Any, Any, list[Any]]:
    """The input, the other tensors of each step, and the tensors whose gradients are compared."""
    leaves: list[Any] = []
    x = made(plan.input, library, leaves)
    return x, [made(step.given, library, leaves) for step in plan.steps], leaves


class Planner:
    """Draws the steps of a network, one after the other.

    Args:
        r: the source of random arguments.
        torch: the library that determines which steps are legal, and the shapes of results.
    """

    def __init__(self, r: Draws, torch: Any) -> None:
        self._r, self._torch = r, torch
        self.input = leaf(r.values(*self._shape(r.number(2, 5))))
        self.steps: list[Step] = []
        self._x = self._before = made(self.input, torch)
        self._reshaping: Step | None = None

    def add(self, name: str, table: dict[str, Any] = BODY) -> None:
        """Add a step with a module, after one that makes a shape for which it is legal."""
        draw, axes = table[name]
        for _ in range(50):
            if self._x.ndim not in axes:
                self._reshape(self._r.one_of(*axes))
            for _ in range(10):
                try:
                    drawn = draw(self._r, tuple(self._x.shape))
                    if drawn.run is plain and self._r.chance(0.1):
                        drawn = replace(drawn, run=each_sample)
                    return self._try(drawn)
                except Illegal:
                    pass
            self._reshape(self._r.one_of(*axes))
        raise AssertionError(f"no legal arguments of {name} were found")

    def _shape(self, axes: int) -> tuple[int, ...]:
        r = self._r
        high = {2: 0, 3: 9, 4: 7, 5: 4}[axes]
        while True:
            sizes = [
                r.number(2, 4),
                r.one_of(2, 3, 4, 6, 8),
                *[r.number(min(3, high - 2), high) for _ in range(axes - 2)],
            ]
            if math.prod(sizes) <= MOST // 2:
                return tuple(sizes)

    def _reshape(self, axes: int) -> None:
        if self.steps and self.steps[-1] is self._reshaping:
            self.steps.pop()  # it did not help
            self._x = self._before
        shape = self._shape(axes)
        self._before = self._x
        inner = [Layer("Linear", (math.prod(self._x.shape[1:]), math.prod(shape[1:])))]
        inner = [Layer("Flatten"), *inner] if self._x.ndim > 2 else inner
        inner = [*inner, Layer("Unflatten", (1, shape[1:]))] if axes > 2 else inner
        self._reshaping = Step(plain, (Layer("Sequential", tuple(inner)),))
        self._try(self._reshaping, always=True)

    def _try(self, step: Step, *, always: bool = False) -> None:
        """Add a step if torch computes it, with numbers that are neither too many nor too large. Raises Illegal.

        Args:
            always: whatever the numbers are.
        """
        torch, number = self._torch, len(self.steps)
        torch.manual_seed(number)
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                layers = torch.nn.ModuleList(made(list(step.layers), torch)).double()
                call = Call(torch, layers, self._x, made(step.given, torch), [], {}, number)
                result = step.run(call)
        except (RuntimeError, ValueError, AssertionError, IndexError, NotImplementedError) as error:
            raise Illegal from error
        numbers = [] if always else [result, *call.sides]
        if not all(one.numel() and one.isfinite().all() and one.abs().max() < LARGEST for one in numbers):
            raise Illegal
        if numbers and (result.numel() > MOST or (result.ndim > 1 and result.numel() > 1 and result.std() < 1e-6)):
            raise Illegal
        self.steps.append(step)
        self._x = result


def plan(seed: int, torch: Any) -> Plan:
    """The network of a seed."""
    r = Draws(seed)
    wanted = NAMES[seed % len(NAMES)]
    planner = Planner(r, torch)
    names = [r.one_of(*BODY) for _ in range(r.number(1, 3))]
    if wanted in BODY:
        names.insert(r.number(0, len(names)), wanted)
    for name in names:
        planner.add(name)
    planner.add(wanted if wanted in LOSSES else r.one_of(*LOSSES), LOSSES)
    return Plan(planner.input, tuple(planner.steps))


def weighted(result: Any, library: Any) -> Any:
    """The sum of a result's elements, each with a different weight."""
    return (result * library.from_numpy(np.cos(np.arange(result.numel())).reshape(tuple(result.shape)))).sum()
