"""A3C: processes that each play games of their own, and learn from all of them, without locks.

A cart has to balance a pole (Barto, Sutton and Anderson, 1983). Every process plays with some carts. After a few moves
it changes the networks that all have in shared memory: the actor, which chooses moves, and the critic, which says how
well a game will go on. Each process is somewhere else in its games, so that no memory of past moves is needed to learn
from (Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning", 2016).

    python examples/a3c.py                         # one process, then one per core
    python examples/a3c.py --processes 4 --start-method spawn

It shows a bar while it learns, prints a table, draws scores over time and what the actor has learnt, and exits 0 if
every run keeps poles up for 475 of 500 moves on average, in games of a test. Kill a worker while it learns: another
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

from common.progress import Progress
from common.workers import Outcome, run_together

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import hogwild, nn, optim
from shmtensor.hogwild import Counter, Metrics, Totals
from shmtensor.nn.functional import log_softmax, mse_loss
from shmtensor.nn.utils import clip_grad_norm_

CARTS = 8  # that each process plays with
MOVES = 16  # of each cart between two steps of the optimizer
DISCOUNT = 0.99  # of rewards, for each move that they come later
REWARD = 0.05  # for each move of a game
RATE = 0.003  # of learning at the start; falls to 0 in a straight line
ENTROPY_BONUS = 0.01  # for an actor that still tries both moves
CRITIC_WEIGHT = 0.5
LARGEST_GRADIENT = 0.5  # norm
WANTED = 475  # mean score of test games: moves for which the pole is up, at most 500
TEST_GAMES = 100
POINTS = 25  # of a curve


# ---- the game --------------------------------------------------------------------------------------------------------


class Carts:
    """Carts on a track, each with a pole that is hinged to it. A game ends when the cart or the pole is out of bounds.

    Attributes:
        states: (n, 4): position in metres, speed, angle of the pole in radians, its speed.
        ages: (n,): moves since the game began.
    """

    GRAVITY, CART, POLE, HALF_LENGTH, FORCE = 9.8, 1.0, 0.1, 0.5, 10.0  # in m/s2, kg, kg, m, N
    SECONDS = 0.02  # of a move
    BOUND, STEEPEST, LONGEST = 2.4, 0.2095, 500  # metres, radians (12 degrees), moves

    def __init__(self, n: int) -> None:
        self.states = self.at_start(n)
        self.ages = st.zeros(n)

    @staticmethod
    def at_start(n: int) -> st.Tensor:
        return 0.1 * st.rand(n, 4) - 0.05

    def move(self, right: st.Tensor) -> tuple[st.Tensor, st.Tensor, st.Tensor, st.Tensor]:
        """Push each cart to the left (0) or right (1), and begin a new game where one has ended.

        Returns:
            (states after the move, where a pole has fallen, where a game has ended, ages after the move)
        """
        self.states = after = self.pushed(self.states, self.FORCE * (2 * right - 1))
        self.ages = ages = self.ages + 1
        fallen = (after[:, 0].abs() > self.BOUND) | (after[:, 2].abs() > self.STEEPEST)
        ended = fallen | (ages >= self.LONGEST)
        if ended.any():
            self.states = st.where(ended.unsqueeze(1), self.at_start(len(ages)), after)
            self.ages = st.where(ended, 0.0, ages)
        return after, fallen, ended, ages

    def pushed(self, states: st.Tensor, force: st.Tensor) -> st.Tensor:
        """States a moment later, without friction, by Euler's method (Florian, 2007, has the equations)."""
        _, speed, angle, turning = states.unbind(1)
        sin, cos = angle.sin(), angle.cos()
        mass = self.CART + self.POLE
        push = (force + self.POLE * self.HALF_LENGTH * turning**2 * sin) / mass
        falling = (self.GRAVITY * sin - cos * push) / (self.HALF_LENGTH * (4 / 3 - self.POLE * cos**2 / mass))
        pulled = push - self.POLE * self.HALF_LENGTH * falling * cos / mass
        change = st.stack([speed, pulled, turning, falling], 1)
        return states + self.SECONDS * change


class ActorCritic(nn.Module):
    """Two networks: what to do in a state, and what comes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, states: st.Tensor) -> tuple[st.Tensor, st.Tensor]:
        """(Logarithms of the chances of both moves (..., 2), values of the states (...))."""
        return log_softmax(self.actor(states), -1), self.critic(states).squeeze(-1)


# ---- a worker --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What all processes have in common. Tensors in here go to a process as handles, never as copies."""

    model: ActorCritic
    optimizer: optim.Optimizer
    steps: int  # of all processes together
    seed: int
    counter: Counter
    metrics: Metrics


def train(rank: int, job: Job) -> None:
    """Play and take steps, each of which has a number that no other process gets, until there are no more."""
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


@st.no_grad()
def play(model: ActorCritic, carts: Carts) -> tuple[st.Tensor, st.Tensor, st.Tensor, st.Tensor]:
    """Make some moves as the actor is inclined to.

    Returns:
        (states (MOVES, CARTS, 4), moves (MOVES, CARTS), their returns (MOVES, CARTS), scores of games that ended (n,))
    """
    seen, moves, results = [], [], []
    for _ in range(MOVES):
        logs, _ = model(carts.states)
        move = (st.rand(CARTS) < logs[:, 1].exp()).long()
        seen.append(carts.states)
        moves.append(move)
        results.append(carts.move(move))
    after, fallen, ended, ages = (st.stack(parts) for parts in zip(*results, strict=True))

    # From the last move back: rewards are known for these moves, and the critic says what to expect of those to come.
    _, expected = model(after)
    expected = st.where(fallen, 0.0, expected)
    returns = []
    following = expected[-1]
    for t in reversed(range(MOVES)):
        following = REWARD + DISCOUNT * st.where(ended[t], expected[t], following)
        returns.append(following)
    return st.stack(seen), st.stack(moves), st.stack(returns[::-1]), ages[ended]


def loss_of(model: ActorCritic, states: st.Tensor, moves: st.Tensor, returns: st.Tensor) -> st.Tensor:
    """The actor should make moves more often that gave more than the critic expected, and the critic expect that."""
    logs, values = model(states)
    advantages = returns - values.detach()
    chosen = logs.gather(-1, moves.unsqueeze(-1)).squeeze(-1)
    entropy = -(logs.exp() * logs).sum(-1).mean()
    return CRITIC_WEIGHT * mse_loss(values, returns) - (chosen * advantages).mean() - ENTROPY_BONUS * entropy


# ---- the parent ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """What one training run gave: `curve` has (seconds, mean score of the test, of games in training of late)."""

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
    """Train fresh networks with so many processes."""
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
        progress.show(score="" if math.isnan(score) else f"{score:.0f}")  # NaN: no game has ended of late
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
    """Evaluate snapshots. This is done after the race, so that looking does not slow down the runners."""
    curve = []
    before = snapshots[0]
    for now in snapshots:
        played = now.totals.means(since=before.totals)["score"]
        curve.append((now.seconds, score_of(now.state), played))
        before = now
    return curve


@st.no_grad()
def score_of(state: dict[str, st.Tensor]) -> float:
    """Mean number of moves, in games in which the actor makes the move that it is more inclined to."""
    model = ActorCritic()
    model.load_state_dict(state)
    st.manual_seed(0)
    carts = Carts(TEST_GAMES)
    up = st.ones(TEST_GAMES, dtype=st.bool)
    score = 0.0
    while up.any():
        score += up.float().mean().item()
        _, _, ended, _ = carts.move(best_moves(model, carts.states))
        up &= ~ended
    return score


def best_moves(model: ActorCritic, states: st.Tensor) -> st.Tensor:
    """The moves that the actor is more inclined to."""
    logs, _ = model(states)
    return logs.argmax(-1)


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

    angles, speeds, chances = policy(runs[-1].model)
    image = right.pcolormesh(angles, speeds, chances, cmap="RdBu", vmin=0, vmax=1, shading="gouraud", rasterized=True)
    figure.colorbar(image, label="chance of a push to the right")
    for number, game in enumerate(some_games(runs[-1].model)):
        angle, speed = game[:, 2].rad2deg(), game[:, 3].rad2deg()
        right.plot(angle, speed, "k.-", linewidth=0.8, markersize=3, label=None if number else "two games")
    right.set(title="What the actor does", xlabel="angle of the pole, degrees", ylabel="degrees per second")
    right.legend(loc="upper right")
    figure.suptitle("A3C balances poles: an actor and a critic in shared memory, no locks")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


@st.no_grad()
def policy(model: ActorCritic) -> tuple[st.Tensor, st.Tensor, st.Tensor]:
    """(Angles in degrees (m,), speeds of the pole (n,), chances of a push to the right (n, m)), the cart at rest."""
    angles, speeds = st.linspace(-12, 12, 61), st.linspace(-120, 120, 61)
    turning, angle = st.meshgrid(speeds.deg2rad(), angles.deg2rad(), indexing="ij")
    at_rest = st.zeros_like(angle)
    logs, _ = model(st.stack([at_rest, at_rest, angle, turning], -1))
    return angles, speeds, logs[..., 1].exp()


@st.no_grad()
def some_games(model: ActorCritic) -> st.Tensor:
    """States (2, 40, 4) of games that begin with a pole which leans over to the left or to the right."""
    carts = Carts(2)
    carts.states = st.tensor([[0, 0, -0.15, 0], [0, 0, 0.15, 0]])
    seen = []
    for _ in range(40):
        seen.append(carts.states)
        carts.move(best_moves(model, carts.states))
    return st.stack(seen, 1)


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
