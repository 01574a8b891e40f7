"""Random numbers: filling a tensor of 2**20 elements, beside NumPy's generators of the same kind."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.measure import Figure, collector_off, run_contender

COUNT = 1 << 20
ROUNDS = 15
Contenders = tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]
"""Functions that fill a tensor once: of shmtensor, NumPy's RandomState, NumPy's Generator."""
CASES = (
    "uniform float64",
    "uniform float64, transposed",
    "uniform float32",
    "uniform float16",
    "normal float64",
    "normal float32",
    "exponential float64",
    "exponential float32",
    "cauchy float64",
    "log_normal float64",
    "geometric int64",
    "bernoulli float32",
    "bernoulli bool",
    "integers below 1000, int64",
    "integers below 1000, int32",
    "integers below 2**40, int64",
    "integers, uint8",
    "randperm",
    "multinomial of 1,000 categories, with replacement",
)


# ---- contenders ------------------------------------------------------------------------------------------------------


def contenders(case: str) -> Contenders:
    """Return the functions that fill the tensor in `case`: shmtensor, RandomState and Generator."""
    import numpy as np

    legacy, generator = np.random.RandomState(1), np.random.Generator(np.random.MT19937(1))
    for cases in (uniform_numbers, real_numbers, integers, choices):
        found = cases(legacy, generator)
        if case in found:
            return found[case]
    raise KeyError(case)


def empty(dtype: str) -> Any:
    import shmtensor

    return shmtensor.empty(COUNT, dtype=dtype)


def uniform_numbers(legacy: Any, generator: Any) -> dict[str, Contenders]:
    import numpy as np

    import shmtensor
    from shmtensor import random

    n = COUNT
    double, single, half = empty("float64"), empty("float32"), empty("float16")
    matrix = shmtensor.empty(1024, COUNT // 1024, dtype="float64").t()
    columns = matrix.numpy()
    out = np.empty(COUNT, np.float32)
    return {
        "uniform float64": (
            lambda: random.uniform_(double, 1, 3),
            lambda: legacy.uniform(1, 3, n),
            lambda: generator.uniform(1, 3, n),
        ),
        "uniform float64, transposed": (
            lambda: random.uniform_(matrix, 1, 3),
            lambda: np.copyto(columns, legacy.uniform(1, 3, columns.shape)),
            lambda: np.copyto(columns, generator.uniform(1, 3, columns.shape)),
        ),
        "uniform float32": (
            lambda: random.uniform_(single),
            lambda: legacy.random_sample(n).astype(np.float32),
            lambda: generator.random(out=out, dtype=np.float32),
        ),
        "uniform float16": (
            lambda: random.uniform_(half),
            lambda: legacy.random_sample(n).astype(np.float16),
            lambda: generator.random(n, dtype=np.float32).astype(np.float16),
        ),
    }


def real_numbers(legacy: Any, generator: Any) -> dict[str, Contenders]:
    import numpy as np

    from shmtensor import random

    n = COUNT
    double, single = empty("float64"), empty("float32")
    out = np.empty(COUNT, np.float32)
    return {
        "normal float64": (
            lambda: random.normal_(double, 1, 2),
            lambda: legacy.normal(1, 2, n),
            lambda: generator.normal(1, 2, n),
        ),
        "normal float32": (
            lambda: random.normal_(single),
            lambda: legacy.standard_normal(n).astype(np.float32),
            lambda: generator.standard_normal(out=out, dtype=np.float32),
        ),
        "exponential float64": (
            lambda: random.exponential_(double, 0.5),
            lambda: legacy.exponential(2, n),
            lambda: generator.exponential(2, n),
        ),
        "exponential float32": (
            lambda: random.exponential_(single),
            lambda: legacy.standard_exponential(n).astype(np.float32),
            lambda: generator.standard_exponential(out=out, dtype=np.float32),
        ),
        "cauchy float64": (
            lambda: random.cauchy_(double),
            lambda: legacy.standard_cauchy(n),
            lambda: generator.standard_cauchy(n),
        ),
        "log_normal float64": (
            lambda: random.log_normal_(double),
            lambda: legacy.lognormal(1, 2, n),
            lambda: generator.lognormal(1, 2, n),
        ),
    }


def integers(legacy: Any, generator: Any) -> dict[str, Contenders]:
    import numpy as np

    from shmtensor import random

    n = COUNT
    whole, small, byte = empty("int64"), empty("int32"), empty("uint8")
    return {
        "integers below 1000, int64": (
            lambda: random.random_(whole, 1000),
            lambda: legacy.randint(0, 1000, n),
            lambda: generator.integers(0, 1000, n),
        ),
        "integers below 1000, int32": (
            lambda: random.random_(small, 1000),
            lambda: legacy.randint(0, 1000, n, dtype=np.int32),
            lambda: generator.integers(0, 1000, n, dtype=np.int32),
        ),
        "integers below 2**40, int64": (
            lambda: random.random_(whole, 1 << 40),
            lambda: legacy.randint(0, 1 << 40, n),
            lambda: generator.integers(0, 1 << 40, n),
        ),
        "integers, uint8": (
            lambda: random.random_(byte),
            lambda: legacy.randint(0, 256, n, dtype=np.uint8),
            lambda: generator.integers(0, 256, n, dtype=np.uint8),
        ),
    }


def choices(legacy: Any, generator: Any) -> dict[str, Contenders]:
    import numpy as np

    from shmtensor import random

    n = COUNT
    whole, single, flag = empty("int64"), empty("float32"), empty("bool")
    weights = random.rand(1000, dtype="float64")
    shares = weights.numpy() / weights.numpy().sum()
    return {
        "geometric int64": (
            lambda: random.geometric_(whole, 0.3),
            lambda: legacy.geometric(0.7, n),
            lambda: generator.geometric(0.7, n),
        ),
        "bernoulli float32": (
            lambda: random.bernoulli_(single, 0.3),
            lambda: (legacy.random_sample(n) <= 0.3).astype(np.float32),
            lambda: (generator.random(n, dtype=np.float32) <= 0.3).astype(np.float32),
        ),
        "bernoulli bool": (
            lambda: random.bernoulli_(flag, 0.3),
            lambda: legacy.random_sample(n) <= 0.3,
            lambda: generator.random(n, dtype=np.float32) <= 0.3,
        ),
        "randperm": (
            lambda: random.randperm(n),
            lambda: legacy.permutation(n),
            lambda: generator.permutation(n),
        ),
        "multinomial of 1,000 categories, with replacement": (
            lambda: random.multinomial(weights, n, True),
            lambda: legacy.choice(1000, n, p=shares),
            lambda: generator.choice(1000, n, p=shares),
        ),
    }


def fill(case: str) -> dict[str, float]:
    """Median seconds of one fill by each; they take turns in one process."""
    fills = contenders(case)
    times: list[list[float]] = [[] for _ in fills]
    with collector_off():
        for _ in range(ROUNDS + 1):
            for fill_once, found in zip(fills, times, strict=True):
                start = time.perf_counter()
                fill_once()
                found.append(time.perf_counter() - start)
    names = ("shmtensor", "RandomState", "Generator")
    return {name: statistics.median(found[1:]) for name, found in zip(names, times, strict=True)}


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    for case in CASES:
        seconds = run_contender("randoms:fill", case)
        work = f"one element of {case}"
        ratios = [seconds["shmtensor"] / seconds[name] for name in ("RandomState", "Generator")]
        note = f"{ratios[0]:.2f} x RandomState, {ratios[1]:.2f} x Generator"
        yield Figure(work, "shmtensor", seconds["shmtensor"] / COUNT, "s", "2 x NumPy", note)
        yield Figure(work, "`numpy.random.RandomState`", seconds["RandomState"] / COUNT, "s", note="same process")
        yield Figure(work, "`numpy.random.Generator(MT19937)`", seconds["Generator"] / COUNT, "s", note="same process")
