"""The overhead of tensors over NumPy: arithmetic on small and large ones, views, making one from an array."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.measure import Figure, collector_off, have, run_contender

SMALL = 1_000
LARGE = 16 << 20
"""Elements of float32: 64 MiB."""


# ---- contenders ------------------------------------------------------------------------------------------------------


def in_turn(functions: dict[str, Callable[[], object]], calls: int, rounds: int) -> dict[str, float]:
    """Median seconds of a call of each, over rounds in which they take turns, so that all see the same noise."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    with collector_off():
        for round_ in range(rounds + 1):
            for name, function in functions.items():
                start = time.perf_counter()
                for _ in itertools.repeat(None, calls):
                    function()
                if round_:  # the first warms up
                    times[name].append((time.perf_counter() - start) / calls)
    return {name: statistics.median(of) for name, of in times.items()}


def small_work(library: Any, x: Any, y: Any, m: Any, a: Any) -> dict[str, Callable[[], object]]:
    """The calls that are timed on small tensors `x`, `y`, `m` of a library, and on an array."""
    return {
        "add": lambda: x + y,
        "add function": lambda: library.add(x, y),
        "add_": lambda: x.add_(y),
        "from_numpy": lambda: library.from_numpy(a),
        "x[10:90]": lambda: x[10:90],
        "x[3]": lambda: x[3],
        "narrow": lambda: x.narrow(0, 10, 80),
        "view": lambda: x.view(20, 50),
        "reshape": lambda: x.reshape(20, 50),
        "transpose": lambda: m.transpose(0, 1),
        "permute": lambda: m.permute(1, 0),
        "select": lambda: m.select(0, 3),
        "unsqueeze": lambda: x.unsqueeze(0),
        "squeeze": lambda: m.squeeze(),
    }


def small() -> dict[str, float]:
    import numpy as np

    import shmtensor

    a, b = np.ones(SMALL, np.float32), np.ones(SMALL, np.float32)
    x, y = (shmtensor.ones(SMALL, shared=True) for _ in range(2))
    work = small_work(shmtensor, x, y, shmtensor.ones(20, 50, shared=True), a)
    return in_turn({"numpy add": lambda: a + b, **work}, 2_000, 25)


def torch_small() -> dict[str, float]:
    import numpy as np
    import torch

    torch.set_num_threads(1)
    x, y = (torch.ones(SMALL).share_memory_() for _ in range(2))
    work = small_work(torch, x, y, torch.ones(20, 50).share_memory_(), np.ones(SMALL, np.float32))
    return in_turn(work, 2_000, 25)


def large() -> dict[str, float]:
    import numpy as np

    import shmtensor

    x, y, z = (shmtensor.ones(LARGE, shared=True) for _ in range(3))
    a, b, c = x.numpy(), y.numpy(), z.numpy()  # the same memory, so that pages make no difference
    functions: dict[str, Callable[[], object]] = {
        "numpy add": lambda: np.add(a, b, c),
        "add": lambda: shmtensor.add(x, y, out=z),
        "numpy exp": lambda: np.exp(a, c),
        "exp": lambda: shmtensor.exp(x, out=z),
        "numpy sum": lambda: np.sum(a),
        "sum": lambda: x.sum(),
    }
    return in_turn(functions, 1, 15)


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    ours: dict[str, float] = run_contender("tensors:small")
    theirs: dict[str, Any] = run_contender("tensors:torch_small") if have("torch") else {}
    plain = ours.pop("numpy add")
    work = f"two shared float32 tensors of {SMALL:,}: `x + y`"
    for name, seconds in ours.items():
        if name.startswith("add"):
            shown = {
                "add": work,
                "add function": work.replace("x + y", "add(x, y)"),
                "add_": work.replace("x + y", "x.add_(y)"),
            }
            note = f"{(seconds - plain) * 1e9:,.0f} ns over NumPy's `a + b`"
            yield Figure(shown[name], "shmtensor", seconds, "s", "NumPy + 1 us", note)
            yield Figure(shown[name], "numpy `a + b`", plain, "s", note="same process as the row above")
        else:
            target = "500 ns" if name == "from_numpy" else "1 us"
            shown = {name: f"a view: `{name}`", "from_numpy": "a tensor of an ndarray: `from_numpy`"}
            yield Figure(shown[name], "shmtensor", seconds, "s", target)
        if name in theirs:
            yield Figure(shown[name], "torch", theirs[name], "s")
    figures: dict[str, float] = run_contender("tensors:large")
    for name in ("add", "exp", "sum"):
        work = f"{LARGE * 4 >> 20} MiB of float32, shared: `{name}`"
        note = f"{figures[name] / figures[f'numpy {name}']:.3f} x numpy"
        yield Figure(work, "shmtensor", figures[name], "s", "1.02 x numpy", note)
        yield Figure(work, "numpy, the same memory", figures[f"numpy {name}"], "s")
