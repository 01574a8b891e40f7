"""A3C: processes that each play their own games, and train shared networks without locks.

A cart has to balance a pole (Barto, Sutton and Anderson, 1983). Every process plays with some carts. After a few moves,
it updates the networks in shared memory: the actor, which chooses moves, and the critic, which predicts the score from
a state. The processes are at different points of their games, so that no replay memory is needed (Mnih et al.,
"Asynchronous Methods for Deep Reinforcement Learning", 2016).

    python examples/a3c.py                         # one process, then one per core
    python examples/a3c.py --processes 4 --start-method spawn

It shows a progress bar, prints a table, draws scores over time and the policy that the actor has learnt, and exits with
0 if every run keeps poles up for 475 of 500 moves on average in test games. Kill a worker while it learns: another
takes its place.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from common.cart_pole import MOVES, WANTED, ActorCritic, Carts, draw_policy, loss_of, play, score_of
from common.progress import Progress
from common.workers import Outcome, run_together

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import hogwild, optim
from shmtensor.hogwild import Counter, Metrics, Totals
from shmtensor.nn.utils import clip_grad_norm_

CARTS = 8  # of each process
RATE = 0.003  # initial learning rate; falls linearly to 0
LARGEST_GRADIENT = 0.5  # norm
POINTS = 25  # of a curve


# ---- a worker --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """The data that all processes share. Its tensors are sent to a process as handles, never as copies."""

    model: ActorCritic
    optimizer: optim.Optimizer
    steps: int  # of all processes together
    seed: int
    counter: Counter
    metrics: Metrics


def train(rank: int, job: Job) -> None:
    """Play and take steps until none is left. Each step has a number that no other process gets."""
    st.manual_seed(1_000_003 * job.seed + job.steps * rank + job.counter.value)
    carts = Carts(CARTS)
    for step in job.counter.until(job.steps):
        hogwild.scale_rates(job.optimizer, 1 - step / job.steps)
        states, moves, returns, scores = play(job.model, carts)
        loss = loss_of(job.model, states, moves, returns)
        job.optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(job.model.parameters(), LARGEST_GRADIENT)
        job.optimizer.step()  # in place, in memory that all processes write to
        job.metrics.add(rank, loss=loss)
        if len(scores):
            job.metrics.add(rank, len(scores), score=scores.mean())


# ---- the parent ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """The result of a training run: `curve` has (seconds, mean test score, mean score of recent training games)."""

    processes: int
    steps: int
    outcome: Outcome
    curve: list[tuple[float, float, float]]
    model: ActorCritic

    @property
    def label(self) -> str:
        return f"{self.processes} process{'es' if self.processes > 1 else ''}"

    @property
    def score(self) -> float:
        return self.curve[-1][1]


class Snapshot(NamedTuple):
    seconds: float
    totals: Totals
    state: dict[str, st.Tensor]


def run_a3c(processes: int, steps: int, seed: int, start_method: str) -> Run:
    """Train fresh networks with `processes` processes."""
    st.manual_seed(seed)
    model = ActorCritic()
    model.share_memory()
    optimizer = optim.Adam(model.parameters(), lr=RATE)
    optimizer.share_memory()
    counter, metrics = Counter(), Metrics(processes, "loss", "score")
    job = Job(model, optimizer, steps, seed, counter, metrics)

    def take_snapshot(seconds: float) -> None:
        snapshots.append(Snapshot(seconds, metrics.totals(), hogwild.snapshot(model.state_dict())))

    def watch(seconds: float) -> None:
        score = metrics.totals().means(since=snapshots[-2:][0].totals)["score"]
        progress.show(score="" if math.isnan(score) else f"{score:.0f}")  # NaN: no game has ended recently
        if len(snapshots) < POINTS and counter.value * POINTS >= len(snapshots) * steps:
            take_snapshot(seconds)

    snapshots: list[Snapshot] = []
    take_snapshot(0)
    label = f"{processes} process{'es' if processes > 1 else '  '}"
    with Progress(label, counter, steps, metrics) as progress:
        outcome = run_together(train, (job,), processes, start_method=start_method, watch=watch)
    take_snapshot(outcome.seconds)
    return Run(processes, steps, outcome, curve_of(snapshots), model)


def curve_of(snapshots: Sequence[Snapshot]) -> list[tuple[float, float, float]]:
    """Evaluate snapshots. This is done after training, so that it does not slow down the workers."""
    curve = []
    before = snapshots[0]
    for now in snapshots:
        played = now.totals.means(since=before.totals)["score"]
        curve.append((now.seconds, score_of(now.state), played))
        before = now
    return curve


def print_table(runs: Sequence[Run]) -> None:
    print("\nprocesses   seconds     moves/s   test score   replaced")
    for run in runs:
        seconds, replaced = run.outcome.seconds, run.outcome.replaced
        speed = run.steps * MOVES * CARTS / seconds
        print(f"{run.processes:9}{seconds:10.2f}{speed:12,.0f}{run.score:13.1f}{replaced:11}")
    print()


def draw_plot(runs: Sequence[Run], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for run in runs:
        seconds, tested, played = zip(*run.curve, strict=True)
        (line,) = left.plot(seconds, tested, label=f"{run.label}, test: {run.score:.0f}")
        left.plot(seconds, played, "--", color=line.get_color(), linewidth=1, label=f"{run.label}, in training")
    left.axhline(WANTED, color="grey", linestyle=":", linewidth=1)
    left.set(title="Moves until the pole falls, at most 500", xlabel="seconds", ylim=(0, 510))
    left.grid(alpha=0.3)
    left.legend(loc="lower right")

    draw_policy(figure, right, runs[-1].model)
    figure.suptitle("A3C balances poles: an actor and a critic in shared memory, no locks")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def parse_arguments() -> argparse.Namespace:
    def at_least_one(text: str) -> int:
        if (number := int(text)) < 1:
            raise argparse.ArgumentTypeError(f"{number} is less than 1")
        return number

    parser = argparse.ArgumentParser(description="Learn a game with many processes in shared memory, lock-free.")
    processes = max(2, os.cpu_count() or 1)
    method = mp.get_start_method()
    plot = Path(__file__).parent / "output" / "a3c.png"
    add = parser.add_argument
    add(
        "--processes",
        type=at_least_one,
        default=processes,
        metavar="N",
        help="of the second run (default: %(default)s)",
    )
    moves = MOVES * CARTS
    add("--steps", type=at_least_one, default=3000, metavar="N", help=f"of {moves} moves each (default: %(default)s)")
    add("--quick", action="store_const", dest="steps", const=2000, help="2000 steps")
    add("--seed", type=int, default=0, metavar="N", help="of networks and games (default: %(default)s)")
    add("--start-method", choices=mp.get_all_start_methods(), default=method, help="default: %(default)s")
    add("--plot", type=Path, default=plot, metavar="FILE", help="default: %(default)s")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    hogwild.set_single_thread()  # the processes share the cores with this one
    print(f"{arguments.steps:,} steps, each after {MOVES} moves of {CARTS} carts", flush=True)
    try:
        runs = [
            run_a3c(processes, arguments.steps, arguments.seed, arguments.start_method)
            for processes in sorted({1, arguments.processes})
        ]
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print_table(runs)
    draw_plot(runs, arguments.plot)
    print(f"scores over time, and what the actor does: {arguments.plot}")

    worst = min(run.score for run in runs)
    if worst < WANTED:
        print(f"a3c: test score {worst:.1f} is below {WANTED}; train for more --steps", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
