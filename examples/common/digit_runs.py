"""Training runs on the digits with one process and with several: their command line, snapshots, table and plot."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import shmtensor.multiprocessing as mp
from common.progress import Progress
from common.workers import Outcome, run_together

BATCH = 32
WANTED = 0.95  # test accuracy
MOST_POINTS = 60  # of a curve


@dataclass(frozen=True)
class Run:
    """The result of a training run: `curve` has (seconds, training loss, test accuracy) from start to end."""

    processes: int
    steps: int
    outcome: Outcome
    curve: list[tuple[float, float, float]]

    @property
    def label(self) -> str:
        return f"{self.processes} process{'es' if self.processes > 1 else ''}"

    @property
    def accuracy(self) -> float:
        return self.curve[-1][2]


def train_together(
    train: Callable[[int, Any], None],
    job: Any,
    processes: int,
    start_method: str,
    snapshot: Callable[[], Any],
    evaluate: Callable[[Any], tuple[float, float]],
) -> Run:
    """Train with several processes, and take snapshots meanwhile.

    Args:
        train: called with a rank and the job, in each process.
        job: has `steps`, `counter` and `metrics`.
        processes: number of processes.
        start_method: how they are started.
        snapshot: returns a copy of the trained parameters.
        evaluate: returns the training loss and the test accuracy of a snapshot.
    """
    # The snapshots are evaluated after training, so that this does not slow down the workers.
    snapshots = [(0.0, snapshot())]

    def watch(seconds: float) -> None:
        progress.show()
        if seconds > snapshots[-1][0] + 0.02:
            snapshots.append((seconds, snapshot()))
            if len(snapshots) > 2 * MOST_POINTS:
                del snapshots[1::2]

    label = f"{processes} process{'es' if processes > 1 else '  '}"
    with Progress(label, job.counter, job.steps, job.metrics) as progress:
        outcome = run_together(train, (job,), processes, start_method=start_method, watch=watch)
    snapshots = [*snapshots[:: len(snapshots) // MOST_POINTS + 1], (outcome.seconds, snapshot())]
    return Run(processes, job.steps, outcome, [(seconds, *evaluate(state)) for seconds, state in snapshots])


def main(name: str, description: str, title: str, run_all: Callable[[argparse.Namespace, list[int]], list[Run]]) -> int:
    """Parse the command line, train, and show the results.

    Args:
        name: the name of the program.
        description: the text for its help.
        title: the title of the plot.
        run_all: trains with the parsed arguments, once for each of several numbers of processes.

    Returns:
        The exit code: 0 if each run reached the accuracy WANTED.
    """
    arguments = _parse_arguments(name, description)
    try:
        runs = run_all(arguments, sorted({1, arguments.processes}))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    _print_table(runs)
    _draw_plot(runs, title, arguments.plot)
    print(f"loss and accuracy over time: {arguments.plot}")

    worst = min(run.accuracy for run in runs)
    if worst < WANTED:
        print(f"{name}: test accuracy {worst:.3f} is below {WANTED}; train for more --epochs", file=sys.stderr)
        return 1
    return 0


def _parse_arguments(name: str, description: str) -> argparse.Namespace:
    def at_least_one(text: str) -> int:
        if (number := int(text)) < 1:
            raise argparse.ArgumentTypeError(f"{number} is less than 1")
        return number

    parser = argparse.ArgumentParser(description=description)
    processes = max(2, os.cpu_count() or 1)
    method = mp.get_start_method()
    plot = Path(__file__).parents[1] / "output" / f"{name}.png"
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


def _print_table(runs: Sequence[Run]) -> None:
    print("\nprocesses   seconds   samples/s   test accuracy   replaced")
    for run in runs:
        seconds, replaced = run.outcome.seconds, run.outcome.replaced
        speed = run.steps * BATCH / seconds
        print(f"{run.processes:9}{seconds:10.2f}{speed:12,.0f}{run.accuracy:16.3f}{replaced:11}")
    print()


def _draw_plot(runs: Sequence[Run], title: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for run in runs:
        seconds, losses, accuracies = zip(*run.curve, strict=True)
        left.plot(seconds, losses, label=run.label)
        right.plot(seconds, accuracies, label=f"{run.label}: {run.accuracy:.3f}")
    left.set(title="Training loss", xlabel="seconds", ylabel="cross-entropy", yscale="log")
    right.set(title="Test accuracy", xlabel="seconds", ylim=(0.8, 1.0))
    right.axhline(WANTED, color="grey", linestyle=":", linewidth=1)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
