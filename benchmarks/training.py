"""Training: a step of a small network against the same step by hand, a convolutional one, recording, Hogwild."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, collector_off, have, run_contender
from benchmarks.tensors import in_turn

SIZES = (784, 128, 10)
BATCH = 64
RATE = 0.01
CHANNELS = (1, 16, 32)
SAMPLES = 4_096  # of random data, from which batches are drawn
STEPS = 1_500  # of each process of Hogwild
TURNS = 9  # of each library of Hogwild
CHAIN = 100  # operations of one graph
NODES = 1_000_000


# ---- a step ----------------------------------------------------------------------------------------------------------


def by_hand(x: Any, y: Any) -> Callable[[], object]:
    """The step written by hand with NumPy: gradients of a softmax, and sums and products."""
    import numpy as np

    random = np.random.default_rng(0)
    weights = [random.standard_normal(pair, dtype=np.float32) * 0.03 for pair in itertools.pairwise(SIZES)]
    biases = [np.zeros(n, np.float32) for n in SIZES[1:]]
    rows = np.arange(len(x))

    def step() -> float:
        h = x @ weights[0]
        h += biases[0]
        np.maximum(h, 0, out=h)
        z = h @ weights[1]
        z += biases[1]
        z -= z.max(1, keepdims=True)
        np.exp(z, out=z)
        z /= z.sum(1, keepdims=True)
        loss = -np.log(z[rows, y]).mean()
        z[rows, y] -= 1
        z /= len(x)
        back = z @ weights[1].T
        back *= h > 0
        gradients = [x.T @ back, back.sum(0), h.T @ z, z.sum(0)]
        for p, g in zip((weights[0], biases[0], weights[1], biases[1]), gradients, strict=True):
            g *= RATE
            p -= g
        return float(loss)

    return step


def with_library(library: Any, x: Any, y: Any, share: bool = False) -> Callable[[], object]:
    """The step with the layers, the loss and the optimizer of shmtensor or torch."""
    nn = library.nn
    model = nn.Sequential(nn.Linear(*SIZES[:2]), nn.ReLU(), nn.Linear(*SIZES[1:]))
    if share:
        model.share_memory()
    optimizer = library.optim.SGD(model.parameters(), lr=RATE)
    entropy = nn.functional.cross_entropy

    def step() -> object:
        optimizer.zero_grad()
        loss = entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def steps() -> dict[str, float]:
    import numpy as np

    import shmtensor

    x = np.random.default_rng(1).standard_normal((BATCH, SIZES[0]), dtype=np.float32)
    y = np.random.default_rng(2).integers(0, SIZES[-1], BATCH)
    ours = shmtensor.from_numpy(x), shmtensor.from_numpy(y)
    return in_turn(
        {
            "by hand": by_hand(x, y),
            "shmtensor": with_library(shmtensor, *ours),
            "shared": with_library(shmtensor, *ours, share=True),
        },
        100,
        60,
    )


def torch_steps() -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    x, y = torch.randn(BATCH, SIZES[0]), torch.randint(0, SIZES[-1], (BATCH,))
    return in_turn({"torch": with_library(torch, x, y)}, 100, 30)


# ---- a convolutional network -----------------------------------------------------------------------------------------


def with_convolutions(library: Any, x: Any, y: Any) -> Callable[[], object]:
    """A step of the network of examples/hogwild_cnn.py, with batches of images (samples, 1, pixels, pixels)."""
    nn = library.nn

    def block(inputs: int, outputs: int) -> list[Any]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    features = CHANNELS[-1] * (x.shape[-1] // 4) ** 2
    layers = [one for pair in itertools.pairwise(CHANNELS) for one in block(*pair)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, SIZES[-1]))
    optimizer = library.optim.Adam(model.parameters())
    entropy = nn.functional.cross_entropy

    def step() -> object:
        optimizer.zero_grad()
        loss = entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def convolutions(pixels: int) -> dict[str, float]:
    """Samples a second of each library, with one thread; they take turns."""
    import numpy as np

    images = np.random.default_rng(1).standard_normal((BATCH, 1, pixels, pixels), dtype=np.float32)
    labels = np.random.default_rng(2).integers(0, SIZES[-1], BATCH)
    contenders = {}
    for name in ("shmtensor", "torch"):
        if have(name):
            library = __import__(name)
            library.set_num_threads(1)
            contenders[name] = with_convolutions(library, library.from_numpy(images), library.from_numpy(labels))
    return {name: BATCH / seconds for name, seconds in in_turn(contenders, 10, 40).items()}


# ---- what an operation costs -----------------------------------------------------------------------------------------


def chained(x: Any, y: Any) -> Any:
    for _ in range(CHAIN):
        x = x * y
    return x


def engine() -> dict[str, float]:
    """Seconds of each multiplication of a chain, forward and backward, and of NumPy's three products for the same."""
    import numpy as np

    import shmtensor

    a, b = np.ones(10, np.float32), np.ones(10, np.float32)
    x, y, g = shmtensor.ones(10, requires_grad=True), shmtensor.ones(10), shmtensor.ones(10)

    def recorded() -> None:
        chained(x, y).backward(g)

    def plain() -> None:
        chained(a, b)
        chained(a, b)  # the gradient of each is one product, since the other factor needs none

    def not_recorded() -> None:
        chained(y, g)

    found = in_turn({"recorded": recorded, "numpy": plain, "not recorded": not_recorded}, 20, 40)
    return {name: seconds / CHAIN for name, seconds in found.items()}


def torch_engine() -> float:
    import torch

    torch.set_num_threads(1)
    x, y, g = torch.ones(10, requires_grad=True), torch.ones(10), torch.ones(10)
    found = in_turn({"recorded": lambda: chained(x, y).backward(g)}, 20, 40)
    return found["recorded"] / CHAIN


def hips_engine() -> float:
    import autograd
    import numpy as np

    b = np.ones(10)
    gradient = autograd.grad(lambda x: chained(x, b).sum())
    x = np.ones(10)
    found = in_turn({"recorded": lambda: gradient(x)}, 5, 40)
    return found["recorded"] / CHAIN


def graph_memory() -> dict[str, float]:
    """Bytes of a node, and seconds to record one, to go backward through it, and to drop it."""
    import shmtensor

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    x = shmtensor.ones(1, requires_grad=True)
    (x + 1).backward()
    before, start = resident(), time.perf_counter()
    with collector_off():
        y = x
        for _ in range(NODES):
            y = y + 1
        built, bytes_ = time.perf_counter(), resident() - before
        y.backward()
        done = time.perf_counter()
        del y
        dropped = time.perf_counter()
    return {
        "bytes": bytes_ / NODES, "record": (built - start) / NODES, "backward": (done - built) / NODES,
        "drop": (dropped - done) / NODES,
    }  # fmt: skip


# ---- Hogwild ---------------------------------------------------------------------------------------------------------


def worker(name: str, model: Any, x: Any, y: Any, barrier: Any, times: Any, rank: int) -> None:
    library = __import__(name)
    library.set_num_threads(1)
    optimizer = library.optim.SGD(model.parameters(), lr=RATE)
    entropy = library.nn.functional.cross_entropy
    library.manual_seed(rank)
    starts = [start % (SAMPLES - BATCH) for start in range(rank * 997, rank * 997 + 37 * STEPS, 37)]
    for start in starts[:50]:
        entropy(model(x[start : start + BATCH]), y[start : start + BATCH]).backward()
    barrier.wait()
    begin = time.monotonic()
    for start in starts:
        optimizer.zero_grad()
        entropy(model(x[start : start + BATCH]), y[start : start + BATCH]).backward()
        optimizer.step()
    times.put((begin, time.monotonic()))


def hogwild(name: str, processes: int) -> float:
    """Samples a second of several processes that train one model."""
    library = __import__(name)
    mp = library.multiprocessing if name == "torch" else __import__(f"{name}.multiprocessing").multiprocessing
    library.set_num_threads(1)
    context = mp.get_context("fork")
    x, y = library.randn(SAMPLES, SIZES[0]), library.randint(0, SIZES[-1], (SAMPLES,))
    x.share_memory_()
    y.share_memory_()
    nn = library.nn
    model = nn.Sequential(nn.Linear(*SIZES[:2]), nn.ReLU(), nn.Linear(*SIZES[1:]))
    model.share_memory()
    barrier, times = context.Barrier(processes), context.Queue()
    workers = [
        context.Process(target=worker, args=(name, model, x, y, barrier, times, rank)) for rank in range(processes)
    ]
    for one in workers:
        one.start()
    spans = [times.get() for _ in workers]
    for one in workers:
        one.join()
    seconds = max(end for _, end in spans) - min(begin for begin, _ in spans)
    return processes * STEPS * BATCH / seconds


def hogwild_in_turns(processes: int) -> Iterator[Figure]:
    """Both libraries in turn, in new processes: the median of each, and of the ratios of neighbours."""
    work = f"Hogwild, samples a second, {processes} process{'es' if processes > 1 else ''}"
    names = [name for name in ("shmtensor", "torch") if have(name)]
    turns = [{name: run_contender("training:hogwild", name, processes) for name in names} for _ in range(TURNS)]
    over = ""
    if "torch" in names:
        over = f"{statistics.median(turn['shmtensor'] / turn['torch'] for turn in turns):.2f} x torch"
    for name in names:
        speed = statistics.median(turn[name] for turn in turns)
        if name == "shmtensor":
            yield Figure(work, name, speed, "1/s", "1.4 x torch", over)
        else:
            yield Figure(work, "torch.multiprocessing", speed, "1/s")


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    ours: dict[str, float] = run_contender("training:steps")
    work = f"a step: MLP {'-'.join(map(str, SIZES))}, batch {BATCH}, SGD"
    over = f"{ours['shmtensor'] / ours['by hand']:.3f} x by hand, the median of each"
    yield Figure(work, "shmtensor", ours["shmtensor"], "s", "1.1 x by hand", over)
    yield Figure(work, "shmtensor, shared parameters", ours["shared"], "s", "1.02 x private")
    yield Figure(work, "NumPy, written by hand", ours["by hand"], "s")
    if have("torch"):
        theirs: dict[str, float] = run_contender("training:torch_steps")
        yield Figure(work, "torch", theirs["torch"], "s")
    for pixels in (8, 28):
        speeds: dict[str, float] = run_contender("training:convolutions", pixels)
        work = f"CNN {'-'.join(map(str, CHANNELS))}, batch {BATCH} of {pixels} x {pixels}, samples a second"
        over = f"{speeds['shmtensor'] / speeds['torch']:.2f} x torch" if "torch" in speeds else ""
        yield Figure(work, "shmtensor", speeds.pop("shmtensor"), "1/s", "1.0 x torch", over)
        for name, speed in speeds.items():
            yield Figure(work, name, speed, "1/s")
    for processes in (1, 2):
        yield from hogwild_in_turns(processes)
    yield from _engine()


def _engine() -> Iterator[Figure]:
    ours: dict[str, float] = run_contender("training:engine")
    work = "recording a product of 10 elements and its gradient, over NumPy's two products"
    plain = ours["numpy"]
    yield Figure(work, "shmtensor", ours["recorded"] - plain, "s", "3 us", f"NumPy's: {plain * 1e9:,.0f} ns")
    if have("torch"):
        yield Figure(work, "torch, all of it", run_contender("training:torch_engine"), "s")
    if have("autograd"):
        yield Figure(work, "HIPS autograd", run_contender("training:hips_engine") - plain, "s")
    yield Figure("the product without a gradient", "shmtensor", ours["not recorded"], "s")
    memory: dict[str, float] = run_contender("training:graph_memory")
    note = ", ".join(f"{name} {memory[name] * 1e9:,.0f} ns" for name in ("record", "backward", "drop"))
    yield Figure(f"memory of a node, of {NODES:,} in a chain", "shmtensor", memory["bytes"], "B", "200 B", note)
