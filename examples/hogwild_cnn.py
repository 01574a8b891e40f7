"""Hogwild with a convolutional network and random data augmentation.

Several processes train one small network with batch normalization, without locks (hogwild.py explains how). Each step
shifts and rotates half of its digits at random. A network that was trained only on unchanged digits fails on every
third digit that has been moved; this one does not. To show the difference, both are trained.

    python examples/hogwild_cnn.py
    python examples/hogwild_cnn.py --processes 4 --norm none

Parameters, the running statistics of batch normalization, and Adam's moments and step counts are shared. While the
workers train, this process evaluates snapshots. It exits with 0 if the second network recognises 0.97 of the unchanged
test digits and 0.93 of the moved ones. Kill a worker while it trains: another takes its place.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common import digits
from common.digits import Digits
from common.progress import Progress
from common.workers import Outcome, run_together

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import hogwild, nn, optim
from shmtensor.hogwild import Counter, Metrics
from shmtensor.nn.functional import affine_grid, cross_entropy, grid_sample

BATCH = 32
RATE = 0.004  # initial learning rate; falls to 0 as a cosine
SHIFT = 1.0  # at most, in pixels of 8, in each direction
TURN = math.radians(20)  # at most, to either side
WANTED, WANTED_MOVED = 0.97, 0.93  # test accuracy of the network that is also trained on moved digits
SECONDS_BETWEEN_EVALUATIONS = 0.3


def new_model(norm: str) -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        normalization = [nn.BatchNorm2d(outputs)] if norm == "batch" else []
        return [nn.Conv2d(inputs, outputs, 3, padding=1), *normalization, nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(*block(1, 16), *block(16, 32), nn.Flatten(), nn.Linear(32 * 2 * 2, 10))


def moved(images: st.Tensor) -> st.Tensor:
    """Each image shifted and rotated at random."""
    n, _, _, pixels = images.shape
    turn = (2 * st.rand(n) - 1) * TURN
    right, down = (2 * st.rand(2, n) - 1) * (2 * SHIFT / pixels)  # the image goes from -1 to 1
    cos, sin = turn.cos(), turn.sin()
    matrices = st.stack([cos, -sin, right, sin, cos, down], 1).view(n, 2, 3)
    grid = affine_grid(matrices, images.shape, align_corners=False)
    return grid_sample(images, grid, align_corners=False)


# ---- a worker --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """The data that all processes share. Its tensors are sent to a process as handles, never as copies."""

    model: nn.Module
    optimizer: optim.Optimizer
    data: Digits
    moving: bool
    steps: int  # of all processes together
    seed: int
    counter: Counter
    metrics: Metrics


def train(rank: int, job: Job) -> None:
    """Take steps until none is left. Each step has a number that no other process gets."""
    for step in job.counter.until(job.steps):
        hogwild.scale_rates(job.optimizer, (1 + math.cos(math.pi * step / job.steps)) / 2)
        images, labels = job.data.batch(step, BATCH, job.seed)
        if job.moving:
            st.manual_seed(job.seed * job.steps + step)  # a step moves its images in the same way in each process
            images = st.cat([images[: BATCH // 2], moved(images[BATCH // 2 :])])
        loss = cross_entropy(job.model(images), labels)
        job.optimizer.zero_grad()
        loss.backward()
        job.optimizer.step()  # in place, in memory that all processes write to
        job.metrics.add(rank, loss=loss)


# ---- the parent ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """The result of a training run: `curve` has (seconds, accuracy on unchanged digits, on moved ones)."""

    label: str
    steps: int
    outcome: Outcome
    curve: list[tuple[float, float, float]]

    @property
    def accuracies(self) -> tuple[float, float]:
        return self.curve[-1][1:]


class Evaluator:
    """A private network of this process, for copies of the one that the others are training."""

    def __init__(self, norm: str, sets: Sequence[Digits]) -> None:
        self.model = new_model(norm).eval()  # normalizes by the running statistics
        self.sets = sets

    def __call__(self, trained: nn.Module) -> tuple[float, float]:
        """The accuracy on each set of images."""
        self.model.load_state_dict(hogwild.snapshot(trained.state_dict()))
        with st.no_grad():
            as_they_are, on_moved = [
                float((self.model(x.images).argmax(1) == x.labels).float().mean()) for x in self.sets
            ]
        return as_they_are, on_moved


def run_hogwild(arguments: argparse.Namespace, data: Digits, tests: Sequence[Digits], moving: bool) -> Run:
    """Train a fresh network, on unchanged digits only or also on moved ones."""
    st.manual_seed(arguments.seed)
    model = new_model(arguments.norm)
    model.share_memory()
    optimizer = optim.Adam(model.parameters(), lr=RATE)
    optimizer.share_memory()
    steps = arguments.epochs * (len(data) // BATCH)
    counter, metrics = Counter(), Metrics(arguments.processes, "loss")
    job = Job(model, optimizer, data, moving, steps, arguments.seed, counter, metrics)

    evaluate = Evaluator(arguments.norm, tests)
    curve = [(0.0, *evaluate(model))]
    label = "moved" if moving else "as they are"

    def watch(seconds: float) -> None:
        if seconds > curve[-1][0] + SECONDS_BETWEEN_EVALUATIONS:
            curve.append((seconds, *evaluate(model)))
        progress.show(accuracy=f"{curve[-1][1]:.3f}", moved=f"{curve[-1][2]:.3f}")

    with Progress(f"{label:11}", counter, steps, metrics) as progress:
        outcome = run_together(train, (job,), arguments.processes, start_method=arguments.start_method, watch=watch)
    curve.append((outcome.seconds, *evaluate(model)))
    return Run(label, steps, outcome, curve)


def print_table(runs: Sequence[Run]) -> None:
    print("\ndigits      seconds   images/s   test accuracy   of moved digits   replaced")
    for run in runs:
        speed = run.steps * BATCH / run.outcome.seconds
        accuracy, on_moved = run.accuracies
        figures = f"{run.outcome.seconds:8.2f}{speed:11,.0f}{accuracy:16.3f}{on_moved:18.3f}{run.outcome.replaced:11}"
        print(f"{run.label:11}{figures}")
    print()


def draw_plot(runs: Sequence[Run], tests: Sequence[Digits], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 2))[0]
    left.suptitle("Test digits, and how they were moved")
    for number, axes in enumerate(left.subplots(4, 4).flat):
        shown = tests[number % 2].images[number // 2, 0]
        axes.imshow(shown.numpy(), cmap="gray_r", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[])
    right.suptitle("Test accuracy")
    axes = right.subplots()
    for run, color in zip(runs, ("tab:blue", "tab:orange"), strict=True):
        seconds, *accuracies = zip(*run.curve, strict=True)
        for name, values, style in zip(("as they are", "moved"), accuracies, ("-", "--"), strict=True):
            label = f"trained on digits {run.label}, tested on digits {name}: {values[-1]:.3f}"
            axes.plot(seconds, values, style, color=color, label=label)
    axes.set(xlabel="seconds", ylim=(0.4, 1.0))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def parse_arguments() -> argparse.Namespace:
    def at_least_one(text: str) -> int:
        if (number := int(text)) < 1:
            raise argparse.ArgumentTypeError(f"{number} is less than 1")
        return number

    parser = argparse.ArgumentParser(description="Train a convolutional network with many processes, lock-free.")
    processes = max(2, os.cpu_count() or 1)
    method = mp.get_start_method()
    plot = Path(__file__).parent / "output" / "hogwild_cnn.png"
    add = parser.add_argument
    add("--processes", type=at_least_one, default=processes, metavar="N", help="default: %(default)s")
    add("--norm", choices=["batch", "none"], default="batch", help="normalization (default: %(default)s)")
    add("--epochs", type=at_least_one, default=40, metavar="N", help="default: %(default)s")
    add("--quick", action="store_const", dest="epochs", const=16, help="16 epochs")
    add("--seed", type=int, default=0, metavar="N", help="of weights, batches and moves (default: %(default)s)")
    add("--start-method", choices=mp.get_all_start_methods(), default=method, help="default: %(default)s")
    add("--plot", type=Path, default=plot, metavar="FILE", help="default: %(default)s")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    hogwild.set_single_thread()  # the processes share the cores with this one
    data, test = digits.load()
    data.share_memory()
    st.manual_seed(0)
    tests = [test, Digits(moved(test.images), test.labels)]
    print(
        f"{len(data):,} images to train on, {len(test)} to test; "
        f"{arguments.processes} process{'es' if arguments.processes > 1 else ''}, {arguments.epochs} epochs",
        flush=True,
    )
    try:
        runs = [run_hogwild(arguments, data, tests, moving) for moving in (False, True)]
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print_table(runs)
    draw_plot(runs, tests, arguments.plot)
    print(f"accuracy over time: {arguments.plot}")

    accuracy, on_moved = runs[-1].accuracies
    if accuracy < WANTED or on_moved < WANTED_MOVED:
        print(
            f"hogwild_cnn: test accuracy {accuracy:.3f} is below {WANTED}, or {on_moved:.3f} on moved digits below "
            f"{WANTED_MOVED}; train for more --epochs",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
