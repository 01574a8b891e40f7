"""LBFGS follows torch's directions, with the same number of loss evaluations."""

import numpy as np
import pytest
from optim_world import parameter, tensor

from shmtensor import optim
from shmtensor.errors import InvalidArgument, NotSupported

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RNG = np.random.default_rng(3)
MATRIX = RNG.standard_normal((12, 12))
CURVES = MATRIX @ MATRIX.T + np.eye(12)


def rosenbrock(x, y):
    return 100 * ((y - x * x) ** 2).sum() + ((1 - x) ** 2).sum()


def quadratic(x, y):
    both = torch.cat([x.reshape(-1), y.reshape(-1)])
    return 0.5 * both @ torch.tensor(CURVES) @ both + both.sum()


def wavy(x, y):
    return (torch.sin(3 * x) + 0.1 * x * x + y**4 - torch.cos(5 * x * y)).sum()


@pytest.mark.parametrize("loss", [rosenbrock, quadratic, wavy])
@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.002},
        {"lr": 0.002, "max_iter": 7, "history_size": 3},
        {"line_search_fn": "strong_wolfe"},
        {"line_search_fn": "strong_wolfe", "max_iter": 5, "history_size": 2, "lr": 0.3},
        {"line_search_fn": "strong_wolfe", "max_iter": 4, "max_eval": 6, "lr": 3},
        {"line_search_fn": "strong_wolfe", "max_eval": 1},
    ],
    ids=str,
)
def test_steps_as_torch(loss, options):
    start = np.random.default_rng(1).standard_normal((2, 3, 2))
    ours = [parameter(one) for one in start]
    theirs = [torch.tensor(one, requires_grad=True) for one in start]
    mine, other = optim.LBFGS(ours, **options), torch.optim.LBFGS(theirs, **options)

    def our_closure():
        values = [torch.tensor(p.detach().numpy(), requires_grad=True) for p in ours]
        value = loss(*values)
        value.backward()
        for p, q in zip(ours, values, strict=True):
            p.grad = tensor(q.grad.numpy().copy())
        return value.item()

    def their_closure():
        other.zero_grad()
        value = loss(*theirs)
        value.backward()
        return value

    for _ in range(4):
        assert mine.step(our_closure) == pytest.approx(other.step(their_closure).item(), rel=1e-7, abs=1e-9)
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-6, atol=1e-8)
    state, expected = mine.state[ours[0]], other.state[theirs[0]]
    assert state.keys() == expected.keys()
    for key in ("n_iter", "func_evals"):
        assert state[key] == expected[key]
    assert len(state["old_dirs"]) == len(expected["old_dirs"])


def test_a_checkpoint_of_torch_goes_on():
    start = np.random.default_rng(1).standard_normal((2, 3, 2))
    theirs = [torch.tensor(one, requires_grad=True) for one in start]
    other = torch.optim.LBFGS(theirs, max_iter=3)

    def their_closure():
        other.zero_grad()
        value = quadratic(*theirs)
        value.backward()
        return value

    other.step(their_closure)
    ours = [parameter(q.detach().numpy()) for q in theirs]
    mine = optim.LBFGS(ours)
    mine.load_state_dict(other.state_dict())

    def our_closure():
        values = [torch.tensor(p.detach().numpy(), requires_grad=True) for p in ours]
        value = quadratic(*values)
        value.backward()
        for p, q in zip(ours, values, strict=True):
            p.grad = tensor(q.grad.numpy().copy())
        return value.item()

    mine.step(our_closure)
    other.step(their_closure)
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_it_refuses_what_it_cannot_do():
    with pytest.raises(InvalidArgument, match="parameter groups"):
        optim.LBFGS([{"params": [parameter([1.0])]}, {"params": [parameter([1.0])]}])
    p = parameter([1.0])
    with pytest.raises(InvalidArgument, match="strong_wolfe"):
        optim.LBFGS([p], line_search_fn="armijo").step(lambda: 0)
    with pytest.raises(NotSupported, match="LBFGS"):
        optim.LBFGS([p]).share_memory()
