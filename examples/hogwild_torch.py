"""Hogwild with PyTorch: torch's modules, autograd and optimizer, in our shared memory.

Several processes train one `torch.nn.Module`, without locks (hogwild.py explains how). `share_module` moves its weights
into shared memory; from there on the program is what it is with torch.multiprocessing. The digits are tensors of
shmtensor, which `torch()` gives to torch without a copy.

    python examples/hogwild_torch.py                     # one process, then one per core
    python examples/hogwild_torch.py --processes 4 --start-method spawn

It shows a bar while it trains, prints a table, draws accuracy over time, and exits 0 if every run reached an accuracy
of 0.95 on digits that it was not trained on. Kill a worker while it trains: another takes its place.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from common import digits
from common.digits import Digits
from common.progress import Progress
from common.workers import Outcome, run_together
from torch import nn
from torch.nn.functional import cross_entropy

import shmtensor.multiprocessing as mp
from shmtensor import hogwild
from shmtensor.hogwild import Counter, Metrics
from shmtensor.integrations.torch import share_module

BATCH = 32
RATE = 0.1  # of learning at the start; falls to 0 in a straight line
WANTED = 0.95  # test accuracy
MOST_POINTS = 60  # of a curve


def new_model() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    )


# ---- a worker --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What all processes have in common. Tensors of torch, too, go to a process as handles."""

    model: nn.Module
    data: Digits
    steps: int  # of all processes together
    seed: int
    counter: Counter
    metrics: Metrics


def train(rank: int, job: Job) -> None:
    """Take steps, each of which has a number that no other process gets, until there are no more."""
    torch.set_num_threads(1)  # the processes share the cores
    optimizer = torch.optim.SGD(job.model.parameters(), lr=RATE)  # without a state, so each process has its own
    for step in job.counter.until(job.steps):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / job.steps)
        images, labels = job.data.batch(step, BATCH, job.seed)
        loss = cross_entropy(job.model(images.torch()), labels.torch())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # in place, in memory that all processes write to: this is Hogwild
        job.metrics.add(rank, loss=loss.item())


# ---- the parent ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """What one training run gave: `curve` has (seconds, test accuracy) from start to end."""

    processes: int
    steps: int
    outcome: Outcome
    curve: list[tuple[float, float]]

    @property
    def label(self) -> str:
        return f"{self.processes} process{'es' if self.processes > 1 else ''}"

    @property
    def accuracy(self) -> float:
        return self.curve[-1][1]


def snapshot(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def run_hogwild(data: Digits, test: Digits, processes: int, epochs: int, seed: int, start_method: str) -> Run:
    """Train a fresh network with so many processes."""
    torch.manual_seed(seed)
    model = share_module(new_model())
    steps = epochs * (len(data) // BATCH)
    job = Job(model, data, steps, seed, Counter(), Metrics(processes, "loss"))

    # The snapshots are evaluated after the race, so that looking does not slow down the runners.
    snapshots = [(0.0, snapshot(model))]
    label = f"{processes} process{'es' if processes > 1 else '  '}"

    def watch(seconds: float) -> None:
        progress.show()
        if seconds > snapshots[-1][0] + 0.02:
            snapshots.append((seconds, snapshot(model)))
            if len(snapshots) > 2 * MOST_POINTS:
                del snapshots[1::2]

    with Progress(label, job.counter, steps, job.metrics) as progress:
        outcome = run_together(train, (job,), processes, start_method=start_method, watch=watch)
    snapshots = [*snapshots[:: len(snapshots) // MOST_POINTS + 1], (outcome.seconds, snapshot(model))]
    return Run(processes, steps, outcome, [(when, evaluate(state, test)) for when, state in snapshots])


def evaluate(state: dict[str, torch.Tensor], test: Digits) -> float:
    """Part of the test images that are recognised."""
    model = new_model()
    model.load_state_dict(state)
    with torch.no_grad():
        recognised = model(test.images.torch()).argmax(1) == test.labels.torch()
    return recognised.float().mean().item()


def print_table(runs: Sequence[Run]) -> None:
    print("\nprocesses   seconds   samples/s   test accuracy   replaced")
    for run in runs:
        seconds, replaced = run.outcome.seconds, run.outcome.replaced
        speed = run.steps * BATCH / seconds
        print(f"{run.processes:9}{seconds:10.2f}{speed:12,.0f}{run.accuracy:16.3f}{replaced:11}")
    print()


def draw_plot(runs: Sequence[Run], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for run in runs:
        seconds, accuracies = zip(*run.curve, strict=True)
        axes.plot(seconds, accuracies, label=f"{run.label}: {run.accuracy:.3f}")
    axes.set(title="Hogwild with PyTorch: test accuracy", xlabel="seconds", ylim=(0.8, 1.0))
    axes.axhline(WANTED, color="grey", linestyle=":", linewidth=1)
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def parse_arguments() -> argparse.Namespace:
    def at_least_one(text: str) -> int:
        if (number := int(text)) < 1:
            raise argparse.ArgumentTypeError(f"{number} is less than 1")
        return number

    parser = argparse.ArgumentParser(description="Train one torch module with many processes in our shared memory.")
    processes = max(2, os.cpu_count() or 1)
    method = mp.get_start_method()
    plot = Path(__file__).parent / "output" / "hogwild_torch.png"
    add = parser.add_argument
    add(
        "--processes",
        type=at_least_one,
        default=processes,
        metavar="N",
        help="of the second run (default: %(default)s)",
    )
    add("--epochs", type=at_least_one, default=200, metavar="N", help="default: %(default)s")
    add("--quick", action="store_const", dest="epochs", const=40, help="40 epochs")
    add("--seed", type=int, default=0, metavar="N", help="of weights and batches (default: %(default)s)")
    add("--start-method", choices=mp.get_all_start_methods(), default=method, help="default: %(default)s")
    add("--plot", type=Path, default=plot, metavar="FILE", help="default: %(default)s")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    hogwild.set_single_thread()  # the processes share the cores with this one
    torch.set_num_threads(1)
    data, test = digits.load()
    data.share_memory()
    print(f"{len(data):,} images to train on, {len(test)} to test; {arguments.epochs} epochs", flush=True)
    try:
        runs = [
            run_hogwild(data, test, processes, arguments.epochs, arguments.seed, arguments.start_method)
            for processes in sorted({1, arguments.processes})
        ]
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print_table(runs)
    draw_plot(runs, arguments.plot)
    print(f"accuracy over time: {arguments.plot}")

    worst = min(run.accuracy for run in runs)
    if worst < WANTED:
        print(f"hogwild_torch: test accuracy {worst:.3f} is below {WANTED}; train for more --epochs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
