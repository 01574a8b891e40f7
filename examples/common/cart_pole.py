"""A cart that must balance a pole (Barto, Sutton and Anderson, 1983): the game, an actor and a critic, their loss."""

from __future__ import annotations

from typing import Any

import shmtensor as st
from shmtensor import nn
from shmtensor.nn.functional import log_softmax, mse_loss

MOVES = 16  # of each cart between two steps of the optimizer
DISCOUNT = 0.99  # of rewards, for each move of delay
REWARD = 0.05  # for each move of a game
ENTROPY_BONUS = 0.01  # keeps the actor trying both moves
CRITIC_WEIGHT = 0.5
WANTED = 475  # mean score of test games: moves for which the pole is up, at most 500
TEST_GAMES = 100


# ---- the game --------------------------------------------------------------------------------------------------------


class Carts:
    """Carts on a track, each with a hinged pole. A game ends when the cart or the pole is out of bounds.

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
            (states after the move, whether the pole has fallen, whether the game has ended, ages after the move)
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
        """States after SECONDS, without friction, by Euler's method (equations: Florian, 2007)."""
        _, speed, angle, turning = states.unbind(1)
        sin, cos = angle.sin(), angle.cos()
        mass = self.CART + self.POLE
        push = (force + self.POLE * self.HALF_LENGTH * turning**2 * sin) / mass
        falling = (self.GRAVITY * sin - cos * push) / (self.HALF_LENGTH * (4 / 3 - self.POLE * cos**2 / mass))
        pulled = push - self.POLE * self.HALF_LENGTH * falling * cos / mass
        change = st.stack([speed, pulled, turning, falling], 1)
        return states + self.SECONDS * change


class ActorCritic(nn.Module):
    """Two networks: the actor chooses a move in a state, the critic predicts the value of a state."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, states: st.Tensor) -> tuple[st.Tensor, st.Tensor]:
        """(Log probabilities of both moves (..., 2), values of the states (...))."""
        return log_softmax(self.actor(states), -1), self.critic(states).squeeze(-1)


# ---- learning --------------------------------------------------------------------------------------------------------


@st.no_grad()
def play(model: ActorCritic, carts: Carts) -> tuple[st.Tensor, st.Tensor, st.Tensor, st.Tensor]:
    """Make some moves, drawn with the actor's probabilities.

    Returns:
        (states (MOVES, carts, 4), moves (MOVES, carts), their returns (MOVES, carts), scores of games that ended (n,))
    """
    seen, moves, results = [], [], []
    for _ in range(MOVES):
        logs, _ = model(carts.states)
        move = (st.rand(len(carts.ages)) < logs[:, 1].exp()).long()
        seen.append(carts.states)
        moves.append(move)
        results.append(carts.move(move))
    after, fallen, ended, ages = (st.stack(parts) for parts in zip(*results, strict=True))

    # Backward from the last move: rewards are known for these moves, and the critic predicts those of later moves.
    _, expected = model(after)
    expected = st.where(fallen, 0.0, expected)
    returns = []
    following = expected[-1]
    for t in reversed(range(MOVES)):
        following = REWARD + DISCOUNT * st.where(ended[t], expected[t], following)
        returns.append(following)
    return st.stack(seen), st.stack(moves), st.stack(returns[::-1]), ages[ended]


def loss_of(model: ActorCritic, states: st.Tensor, moves: st.Tensor, returns: st.Tensor) -> st.Tensor:
    """The advantage actor-critic loss: favours moves that return more than the critic expects; trains the critic."""
    logs, values = model(states)
    advantages = returns - values.detach()
    chosen = logs.gather(-1, moves.unsqueeze(-1)).squeeze(-1)
    entropy = -(logs.exp() * logs).sum(-1).mean()
    loss: st.Tensor = CRITIC_WEIGHT * mse_loss(values, returns) - (chosen * advantages).mean() - ENTROPY_BONUS * entropy
    return loss


# ---- what it has learnt ----------------------------------------------------------------------------------------------


@st.no_grad()
def score_of(state: dict[str, st.Tensor]) -> float:
    """Mean number of moves in games in which the actor makes the more probable move."""
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
    """The more probable moves."""
    logs: st.Tensor = model(states)[0]
    return logs.argmax(-1)


def draw_policy(figure: Any, axes: Any, model: ActorCritic) -> None:
    """Draw the policy of the actor, and two games."""
    angles, speeds, chances = policy(model)
    image = axes.pcolormesh(angles, speeds, chances, cmap="RdBu", vmin=0, vmax=1, shading="gouraud", rasterized=True)
    figure.colorbar(image, label="chance of a push to the right")
    for number, game in enumerate(some_games(model)):
        angle, speed = game[:, 2].rad2deg(), game[:, 3].rad2deg()
        axes.plot(angle, speed, "k.-", linewidth=0.8, markersize=3, label=None if number else "two games")
    axes.set(title="What the actor does", xlabel="angle of the pole, degrees", ylabel="degrees per second")
    axes.legend(loc="upper right")


@st.no_grad()
def policy(model: ActorCritic) -> tuple[st.Tensor, st.Tensor, st.Tensor]:
    """(Angles in degrees (m,), speeds of the pole (n,), probabilities of a push to the right (n, m)), cart at rest."""
    angles, speeds = st.linspace(-12, 12, 61), st.linspace(-120, 120, 61)
    turning, angle = st.meshgrid(speeds.deg2rad(), angles.deg2rad(), indexing="ij")
    at_rest = st.zeros_like(angle)
    logs, _ = model(st.stack([at_rest, at_rest, angle, turning], -1))
    return angles, speeds, logs[..., 1].exp()


@st.no_grad()
def some_games(model: ActorCritic) -> st.Tensor:
    """States (2, 40, 4) of games that begin with a pole leaning to the left or to the right."""
    carts = Carts(2)
    carts.states = st.tensor([[0, 0, -0.15, 0], [0, 0, 0.15, 0]])
    seen = []
    for _ in range(40):
        seen.append(carts.states)
        carts.move(best_moves(model, carts.states))
    return st.stack(seen, 1)
