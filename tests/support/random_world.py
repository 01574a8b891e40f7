"""TH's generator written out in Python, and the cases of the tests of random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import shmtensor
from shmtensor import random
from shmtensor.dtypes import ELEMENT_TYPES
from shmtensor.random import Generator

DTYPES = [row.dtype for row in ELEMENT_TYPES]
FLOATS = [dtype.name for dtype in DTYPES if dtype.kind in "fV"]
INTEGERS = [dtype.name for dtype in DTYPES if dtype.kind in "iu"]
COMPLEX = [dtype.name for dtype in DTYPES if dtype.kind == "c"]
REALS = [*FLOATS, *INTEGERS, "bool"]
N = 1500  # above two blocks of words, and odd pairs of blocks of draws


class PlainTwister:
    """MT19937 and TH's formulas, written out."""

    def __init__(self, seed: int) -> None:
        self.words = [seed & 0xFFFFFFFF]
        for j in range(1, 624):
            last = self.words[-1]
            self.words.append((1812433253 * (last ^ (last >> 30)) + j) & 0xFFFFFFFF)
        self.next = 624
        self.kept: tuple[float, float] | None = None

    def draw(self) -> int:
        w = self.words
        if self.next == 624:
            for i in range(624):
                mixed = (w[i] & 0x80000000) | (w[(i + 1) % 624] & 0x7FFFFFFF)
                w[i] = w[(i + 397) % 624] ^ (mixed >> 1) ^ (0x9908B0DF if mixed & 1 else 0)
            self.next = 0
        y = w[self.next]
        self.next += 1
        y ^= y >> 11
        y ^= (y << 7) & 0x9D2C5680
        y ^= (y << 15) & 0xEFC60000
        return y ^ (y >> 18)

    def u(self) -> float:
        return self.draw() * 2.0**-32

    def uniform(self, a: float, b: float) -> float:
        return self.u() * (b - a) + a

    def normal(self, mean: float, stdv: float) -> float:
        if self.kept is not None:
            x, rho = self.kept
            self.kept = None
            return rho * math.sin(2 * math.pi * x) * stdv + mean
        x = self.u()
        y = self.u()
        rho = math.sqrt(-2 * math.log(1 - y))
        self.kept = x, rho
        return rho * math.cos(2 * math.pi * x) * stdv + mean

    def exponential(self, rate: float) -> float:
        return -1 / rate * math.log(1 - self.u())

    def cauchy(self, median: float, sigma: float) -> float:
        return median + sigma * math.tan(math.pi * (self.u() - 0.5))

    def log_normal(self, mean: float, stdv: float) -> float:
        return math.exp(self.normal(mean, stdv))

    def geometric(self, p: float) -> int:
        return int(math.log(1 - self.u()) / math.log(p)) + 1

    def bernoulli(self, p: float) -> bool:
        return self.u() <= p


# name, arguments, the dtypes that take it
DISTRIBUTIONS: list[tuple[str, tuple[float, ...], list[str]]] = [
    ("uniform", (-2.0, 5.0), FLOATS),
    ("normal", (1.5, 0.25), FLOATS),
    ("exponential", (0.7,), FLOATS),
    ("cauchy", (1.0, 2.0), FLOATS),
    ("log_normal", (0.5, 0.75), FLOATS),
    ("geometric", (0.4,), [*FLOATS, *INTEGERS]),
    ("bernoulli", (0.3,), REALS),
]
EVERY_DTYPE = [(name, arguments, dtype) for name, arguments, dtypes in DISTRIBUTIONS for dtype in dtypes]
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda dtype: shmtensor.empty(N, dtype=dtype),
    "transposed": lambda dtype: shmtensor.empty(50, 30, dtype=dtype).t(),
    "with gaps": lambda dtype: shmtensor.empty(2 * N, 3, dtype=dtype)[::2, 1],
    "shared": lambda dtype: shmtensor.empty(3, 500, dtype=dtype, shared=True),
    "one": lambda dtype: shmtensor.empty((), dtype=dtype),
    "none": lambda dtype: shmtensor.empty(0, 4, dtype=dtype),
}


def fill(name: str, t: Any, *arguments: Any, generator: Generator | None = None) -> Any:
    return getattr(random, f"{name}_")(t, *arguments, generator=generator)
