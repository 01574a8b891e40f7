"""Actors and a learner: workers play games with the newest networks, and this process learns from them.

A cart has to balance a pole. Actors are simulations of a WorkerPool: each plays with some carts, and stores its
observations in shared memory. The learner takes those of the first actors that are ready, lets them play on, updates
the networks (advantage actor-critic: Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning", 2016), and
puts them into a Broadcast, from which each actor reads the newest before it plays. So the learner does not wait for the
slowest actor.

    python examples/actor_learner.py
    python examples/actor_learner.py --workers 4 --actors 32

It shows a progress bar, prints a table, draws scores over time and the policy that the actor has learnt, and exits with
0 if poles are kept up for 475 of 500 moves on average in test games. Kill a worker while it learns: another takes its
place, with new actors.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import queue
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.cart_pole import MOVES, WANTED, ActorCritic, Carts, draw_policy, loss_of, play, score_of
from common.progress import Progress
from common.workers import tell

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import hogwild, optim
from shmtensor.data import Simulations, WorkerPool
from shmtensor.hogwild import Counter, Metrics, Totals
from shmtensor.nn.utils import clip_grad_norm_

CARTS = 8  # of each actor
BATCH = 2  # actors whose observations the learner takes at once
RATE = 0.003  # initial learning rate; falls linearly to 0
LARGEST_GRADIENT = 0.5  # norm
POINTS = 12  # of a curve


# ---- an actor --------------------------------------------------------------------------------------------------------


class Actor:
    """Plays with the newest networks. A simulation of the pool, so it lives in a worker.

    Args:
        model: the learner's model, in shared memory, with which an actor begins.
        weights: a Broadcast of (step, state of the networks) after each step of the learner.
        number: the number of this actor.
    """

    def __init__(self, model: ActorCritic, weights: mp.Broadcast, number: int) -> None:
        self.model = ActorCritic()
        self.model.load_state_dict(model.state_dict())
        self.reader = weights.reader()
        self.step_of_weights = 0
        self.carts = Carts(CARTS)

    def play(self) -> dict[str, Any]:
        """Make some moves. Returns the results of `common.cart_pole.play`, and the step of the networks used."""
        try:
            self.step_of_weights, state = self.reader.latest(block=False)
        except queue.Empty:
            pass  # the learner has made no step since
        else:
            self.model.load_state_dict(state)
        states, moves, returns, scores = play(self.model, self.carts)
        games = len(scores)
        return {
            "states": states, "moves": moves, "returns": returns, "games": games,
            "score": scores.mean().item() if games else 0.0, "step": self.step_of_weights,
        }  # fmt: skip

    def close(self) -> None:
        self.reader.close()


# ---- the learner -----------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """The result of training: `curve` has (seconds, test score, score of recent training games)."""

    workers: int
    model: ActorCritic
    seconds: float = 0.0
    replaced: int = 0
    curve: list[tuple[float, float, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Snapshot:
    seconds: float
    totals: Totals
    state: dict[str, st.Tensor]


def learn(workers: int, actors: int, steps: int, seed: int, start_method: str) -> Run:
    """Train fresh networks."""
    st.manual_seed(seed)
    model = ActorCritic()
    model.share_memory()
    optimizer = optim.Adam(model.parameters(), lr=RATE)
    weights: mp.Broadcast = mp.Broadcast(1, policy="drop_oldest")
    counter, metrics = Counter(), Metrics(1, "loss", "score", "age")
    run = Run(workers, model)
    snapshots: list[Snapshot] = []

    def take_snapshot() -> None:
        seconds = time.monotonic() - begun
        snapshots.append(Snapshot(seconds, metrics.totals(), hogwild.snapshot(model.state_dict())))

    with WorkerPool(workers, context=start_method, on_worker_death="restart", seed=seed) as pool:
        pids = pool.pids()
        tell("pids " + " ".join(map(str, pids)) + ": kill one, and it is replaced")
        players = pool.simulations(functools.partial(Actor, model, weights), actors)
        with Progress(f"{workers} workers", counter, steps, metrics) as progress:
            players.send(method="play")
            begun = time.monotonic()
            take_snapshot()
            while counter.value < steps:
                seen = next_games(players)
                for number, (before, now) in enumerate(zip(pids, pool.pids(), strict=True)):
                    if now != before:
                        tell(f"worker {number} was killed; its place is taken by pid {now}")
                pids = pool.pids()
                step = counter.add()
                hogwild.scale_rates(optimizer, 1 - step / steps)
                loss = loss_of(model, seen["states"], seen["moves"], seen["returns"])
                optimizer.zero_grad()
                loss.backward()
                clip_grad_norm_(model.parameters(), LARGEST_GRADIENT)
                optimizer.step()
                weights.put((step + 1, hogwild.snapshot(model.state_dict())))

                metrics.add(0, loss=loss, age=(step - seen["step"]).double().mean())
                if games := seen["games"].sum().item():
                    metrics.add(0, games, score=(seen["score"] * seen["games"]).sum() / games)
                score = metrics.totals().means(since=snapshots[-2:][0].totals)["score"]
                progress.show(score="" if math.isnan(score) else f"{score:.0f}")  # NaN: no game has ended recently
                if counter.value * POINTS >= len(snapshots) * steps:
                    take_snapshot()
        run.seconds, run.replaced = time.monotonic() - begun, pool.stats().restarts
    run.curve = curve_of(snapshots)
    return run


def next_games(players: Simulations) -> dict[str, st.Tensor]:
    """The observations of the first actors that are ready. They play on."""
    while True:
        ids, seen = players.gather(BATCH, BATCH)
        players.send(None, ids, "play")
        if len(players.restarted):
            players.send(None, players.restarted, "play")
        if len(ids):  # fewer than BATCH, or none, if their worker was killed
            return seen  # type: ignore[no-any-return]


def curve_of(snapshots: Sequence[Snapshot]) -> list[tuple[float, float, float]]:
    """Evaluate snapshots, after training."""
    curve = []
    before = snapshots[0]
    for now in snapshots:
        played = now.totals.means(since=before.totals)["score"]
        curve.append((now.seconds, score_of(now.state), played))
        before = now
    return curve


def print_table(run: Run, steps: int) -> None:
    print("\nworkers   seconds     moves/s   test score   replaced")
    speed = steps * BATCH * MOVES * CARTS / run.seconds
    print(f"{run.workers:7}{run.seconds:10.2f}{speed:12,.0f}{run.curve[-1][1]:13.1f}{run.replaced:11}\n")


def draw_plot(run: Run, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    seconds, tested, played = zip(*run.curve, strict=True)
    left.plot(seconds, tested, label=f"test: {tested[-1]:.0f}")
    left.plot(seconds, played, "--", linewidth=1, label="in training")
    left.axhline(WANTED, color="grey", linestyle=":", linewidth=1)
    left.set(title="Moves until the pole falls, at most 500", xlabel="seconds", ylim=(0, 510))
    left.grid(alpha=0.3)
    left.legend(loc="lower right")
    draw_policy(figure, right, run.model)
    figure.suptitle(f"Actors in {run.workers} workers balance poles; a learner broadcasts their networks")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def parse_arguments() -> argparse.Namespace:
    def at_least_one(text: str) -> int:
        if (number := int(text)) < 1:
            raise argparse.ArgumentTypeError(f"{number} is less than 1")
        return number

    parser = argparse.ArgumentParser(description="Learn a game from actors in worker processes.")
    workers = max(2, os.cpu_count() or 1)
    method = mp.get_start_method()
    plot = Path(__file__).parent / "output" / "actor_learner.png"
    moves = BATCH * MOVES * CARTS
    add = parser.add_argument
    add("--workers", type=at_least_one, default=workers, metavar="N", help="default: %(default)s")
    add("--actors", type=at_least_one, metavar="N", help="in all workers (default: 2 for each)")
    add("--steps", type=at_least_one, default=2000, metavar="N", help=f"of {moves} moves each (default: %(default)s)")
    add("--seed", type=int, default=0, metavar="N", help="of networks and games (default: %(default)s)")
    add("--start-method", choices=mp.get_all_start_methods(), default=method, help="default: %(default)s")
    add("--plot", type=Path, default=plot, metavar="FILE", help="default: %(default)s")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    hogwild.set_single_thread()  # workers share the cores with this process
    actors = max(BATCH, arguments.actors or 2 * arguments.workers)
    moves = BATCH * MOVES * CARTS
    print(f"{arguments.steps:,} steps of {moves} moves, {actors} actors with {CARTS} carts each", flush=True)
    try:
        run = learn(arguments.workers, actors, arguments.steps, arguments.seed, arguments.start_method)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print_table(run, arguments.steps)
    draw_plot(run, arguments.plot)
    print(f"scores over time, and what the actor does: {arguments.plot}")

    score = run.curve[-1][1]
    if score < WANTED:
        print(f"actor_learner: test score {score:.1f} is below {WANTED}; train for more --steps", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
