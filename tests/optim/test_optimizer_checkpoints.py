"""Checkpoints of optimizers: exchanged with torch in both directions; training resumes as if not stopped."""

import numpy as np
import optim_world
import pytest
from optim_world import STEPS, parameter, tensor

import shmtensor
from shmtensor import optim
from shmtensor.errors import InvalidArgument

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def gradients(rng, ours, theirs):
    for p, q in zip(ours, theirs, strict=True):
        g = rng.standard_normal(p.shape)
        p.grad, q.grad = tensor(g), torch.tensor(g)


def pair(values):
    return [parameter(one) for one in values], [torch.tensor(one, requires_grad=True) for one in values]


def to_torch(value):
    if isinstance(value, shmtensor.Tensor):
        return torch.tensor(value.numpy())
    if isinstance(value, dict):
        return {key: to_torch(one) for key, one in value.items()}
    return [to_torch(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "options"), STEPS, ids=optim_world.options_id)
def test_states_of_torch_go_on_here_and_back(name, options):
    rng = np.random.default_rng(0)
    ours, theirs = pair([rng.standard_normal(4), rng.standard_normal((2, 3))])
    mine = getattr(optim, name)(ours)
    other = getattr(torch.optim, name)(theirs, foreach=False, **options)
    for _ in range(5):
        gradients(rng, ours, theirs)
        other.step()
    for p, q in zip(ours, theirs, strict=True):
        p.copy_(q.detach().numpy())
    mine.load_state_dict(other.state_dict())
    for _ in range(5):
        gradients(rng, ours, theirs)
        mine.step()
        other.step()
    state, expected = mine.state_dict(), other.state_dict()
    assert state["param_groups"] == expected["param_groups"]
    assert {key: set(one) for key, one in state["state"].items()} == {
        key: set(one) for key, one in expected["state"].items()
    }
    back = getattr(torch.optim, name)(theirs, foreach=False)
    back.load_state_dict(to_torch(state))
    gradients(rng, ours, theirs)
    mine.step()
    back.step()
    for p, q in zip(ours, theirs, strict=True):
        # numbers of their states are of float32 until they are loaded, and then of the parameter's type
        bound = 1e-6 if name in ("ASGD", "NAdam") else 1e-10
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=bound, atol=bound)


def test_numbers_of_parameters_as_torch():
    ours, theirs = pair([np.ones(1), np.ones(2), np.ones(3)])
    groups = [[0, 2], [1]]
    mine = optim.SGD([{"params": [ours[i] for i in group]} for group in groups], momentum=0.5)
    other = torch.optim.SGD([{"params": [theirs[i] for i in group]} for group in groups], momentum=0.5)
    gradients(np.random.default_rng(0), ours, theirs)
    mine.step()
    other.step()
    state, expected = mine.state_dict(), other.state_dict()
    assert [group["params"] for group in state["param_groups"]] == [[0, 1], [2]]
    assert state["param_groups"] == [{**group} for group in expected["param_groups"]]
    assert {key: one["momentum_buffer"].shape for key, one in state["state"].items()} == {
        key: tuple(one["momentum_buffer"].shape) for key, one in expected["state"].items()
    }


def test_files(tmp_path):
    (p,), (q,) = pair([np.arange(3.0)])
    for one in (p, q):
        one.grad = tensor(np.ones(3)) if one is p else torch.ones(3, dtype=torch.float64)
    other = torch.optim.Adam([q], lr=0.5)
    other.step()
    torch.save(other.state_dict(), tmp_path / "theirs.pt")
    mine = optim.Adam([p])
    mine.load_state_dict(shmtensor.load(tmp_path / "theirs.pt"))
    assert mine.param_groups[0]["lr"] == 0.5
    assert mine.state[p]["exp_avg"].tolist() == other.state[q]["exp_avg"].tolist()
    shmtensor.save(mine.state_dict(), tmp_path / "ours.shmt")
    again = optim.Adam([p])
    again.load_state_dict(shmtensor.load(tmp_path / "ours.shmt"))
    assert again.state_dict()["param_groups"] == mine.state_dict()["param_groups"]
    assert again.state[p]["step"].item() == 1


def test_types_are_those_of_the_parameters():
    state = {"step": shmtensor.tensor(3.0), "exp_avg": shmtensor.ones(2), "exp_avg_sq": shmtensor.ones(2)}
    p = parameter([1.0, 2.0])
    optimizer = optim.Adam([p])
    given = {"state": {0: state, "mine": 7}, "param_groups": optimizer.state_dict()["param_groups"]}
    optimizer.load_state_dict(given)
    assert optimizer.state[p]["exp_avg"].dtype == shmtensor.float64
    assert optimizer.state[p]["step"].dtype == shmtensor.float32
    assert optimizer.state["mine"] == 7
    assert optimizer.state_dict()["state"]["mine"] == 7
    assert given["state"][0] is state


def test_counts_of_old_checkpoints_are_numbers():
    p = parameter([1.0])
    p.grad = tensor(np.ones(1))
    optimizer = optim.Adam([p], lr=0.1)
    state = {"step": 3, "exp_avg": shmtensor.zeros(1), "exp_avg_sq": shmtensor.zeros(1)}
    optimizer.load_state_dict({"state": {0: state}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8,
                                                                      "weight_decay": 0, "params": [0]}]})  # fmt: skip
    optimizer.step()
    assert optimizer.state[p]["step"] == 4
    assert optimizer.param_groups[0]["amsgrad"] is False


def test_shared_state_stays_where_it_is():
    p = parameter([1.0])
    p.grad = tensor(np.ones(1))
    optimizer, saved = (optim.Adam([p], lr=shmtensor.tensor(0.1)) for _ in range(2))
    saved.step()
    optimizer.share_memory()
    before = dict(optimizer.state[p])
    rate = optimizer.param_groups[0]["lr"]
    optimizer.load_state_dict(saved.state_dict())
    assert all(optimizer.state[p][name] is value for name, value in before.items())
    assert before["step"].item() == 1
    state = saved.state_dict()
    state["state"][0]["exp_avg"] = shmtensor.ones(2, dtype=shmtensor.float64)  # of another shape: it does not fit
    optimizer.load_state_dict(state)
    assert optimizer.state[p]["exp_avg"].tolist() == [1, 1] and optimizer.state[p]["exp_avg_sq"] is before["exp_avg_sq"]
    assert optimizer.param_groups[0]["lr"] is rate


def test_checkpoints_that_do_not_fit():
    optimizer = optim.SGD([parameter([1.0]), parameter([2.0])])
    for groups, message in (
        ([], "different number of parameter groups"),
        ([{"params": [0]}], "doesn't match the size"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            optimizer.load_state_dict({"state": {}, "param_groups": groups})


def test_names_of_parameters():
    optimizer = optim.SGD([("weight", parameter([1.0]))])
    state = optimizer.state_dict()
    assert state["param_groups"][0]["param_names"] == ["weight"]
    del state["param_groups"][0]["param_names"]
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["param_names"] == ["weight"]


def test_adamw_takes_checkpoints_of_adam():
    p = parameter([1.0])
    optimizer = optim.AdamW([p])
    optimizer.load_state_dict(optim.Adam([p]).state_dict())
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is True
