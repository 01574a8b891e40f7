"""A hundred steps of optimizers with random options, of several groups, with schedules, beside torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from optim_world import parameter, tensor
from tiers import first

from shmtensor import optim
from shmtensor.autograd.sparse import SparseGradient

torch: Any = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:Sparse invariant")]

NEAR = 1e-10
Random = np.random.Generator


def one_of(r: Random, *values: Any) -> Any:
    return values[r.integers(len(values))]


def betas(r: Random) -> dict[str, Any]:
    return {"betas": (float(r.uniform(0.3, 0.95)), float(r.uniform(0.5, 0.999))), "eps": one_of(r, 1e-8, 1e-3)}


def common(r: Random) -> dict[str, Any]:
    return {"weight_decay": one_of(r, 0, 0.1), "maximize": bool(r.integers(2)), "lr": float(r.uniform(0.001, 0.1))}


def sgd(r: Random) -> dict[str, Any]:
    nesterov, momentum = bool(r.integers(2)), float(r.uniform(0.1, 0.95))
    return common(r) | {
        "momentum": momentum if nesterov else one_of(r, 0, momentum),
        "dampening": 0 if nesterov else one_of(r, 0, 0.3),
        "nesterov": nesterov,
    }


def rprop(r: Random) -> dict[str, Any]:
    low = float(r.uniform(0.001, 0.05))
    etas = float(r.uniform(0.3, 0.8)), float(r.uniform(1.1, 1.5))
    return {"lr": 0.05, "etas": etas, "step_sizes": (low, 0.5), "maximize": bool(r.integers(2))}


OPTIONS: dict[str, Any] = {
    "SGD": sgd,
    "Adam": lambda r: common(r) | betas(r) | {
        "amsgrad": bool(r.integers(2)), "decoupled_weight_decay": bool(r.integers(2))
    },
    "AdamW": lambda r: common(r) | betas(r) | {"amsgrad": bool(r.integers(2))},
    "Adamax": lambda r: common(r) | betas(r),
    "NAdam": lambda r: common(r) | betas(r) | {
        "momentum_decay": float(r.uniform(0, 0.1)), "decoupled_weight_decay": bool(r.integers(2))
    },
    "RAdam": lambda r: common(r) | betas(r) | {"decoupled_weight_decay": bool(r.integers(2))},
    "Adagrad": lambda r: common(r) | {
        "lr_decay": one_of(r, 0, 0.1), "initial_accumulator_value": one_of(r, 0, 0.5), "eps": one_of(r, 1e-10, 1e-3)
    },
    "Adadelta": lambda r: common(r) | {"rho": float(r.uniform(0.5, 0.95)), "eps": one_of(r, 1e-6, 1e-3)},
    "RMSprop": lambda r: common(r) | {
        "alpha": float(r.uniform(0.5, 0.99)), "momentum": one_of(r, 0, 0.8), "centered": bool(r.integers(2)),
        "eps": one_of(r, 1e-8, 1e-3),
    },
    "ASGD": lambda r: common(r) | {
        "lambd": float(r.uniform(0, 0.1)), "alpha": float(r.uniform(0.5, 0.9)), "t0": one_of(r, 1e6, 20)
    },
    "Rprop": rprop,
    "SparseAdam": lambda r: betas(r) | {"lr": float(r.uniform(0.001, 0.1)), "maximize": bool(r.integers(2))},
    "LBFGS": lambda r: {
        "lr": float(r.uniform(0.1, 0.8)), "max_iter": int(r.integers(1, 5)), "history_size": int(r.integers(2, 6)),
        "line_search_fn": one_of(r, None, "strong_wolfe"),
    },
}  # fmt: skip
"""Random options of each optimizer."""
SCHEDULES: dict[str, Any] = {
    "": lambda r: {},
    "StepLR": lambda r: {"step_size": int(r.integers(5, 30)), "gamma": float(r.uniform(0.3, 0.9))},
    "MultiStepLR": lambda r: {"milestones": sorted(r.integers(1, 100, 3).tolist()), "gamma": 0.5},
    "ExponentialLR": lambda r: {"gamma": float(r.uniform(0.95, 0.999))},
    "ConstantLR": lambda r: {"factor": 0.5, "total_iters": int(r.integers(5, 50))},
    "LinearLR": lambda r: {"start_factor": float(r.uniform(0.1, 0.9)), "total_iters": int(r.integers(5, 80))},
    "PolynomialLR": lambda r: {"total_iters": int(r.integers(50, 120)), "power": float(r.uniform(0.5, 2))},
    "CosineAnnealingLR": lambda r: {"T_max": int(r.integers(10, 100)), "eta_min": 0.001},
    "CosineAnnealingWarmRestarts": lambda r: {"T_0": int(r.integers(5, 30)), "T_mult": int(r.integers(1, 3))},
    "CyclicLR": lambda r: {"base_lr": 0.001, "max_lr": 0.05, "step_size_up": int(r.integers(3, 20)),
                           "cycle_momentum": False},
    "OneCycleLR": lambda r: {"max_lr": 0.05, "total_steps": 120, "cycle_momentum": False},
}  # fmt: skip
SHAPES = [(5,), (3, 4), (), (2, 3, 2)]


def gradients(r: Random, mine: list[Any], other: list[Any], *, sparse: bool) -> None:
    """Give parameters random gradients, some none."""
    for p, q in zip(mine, other, strict=True):
        if sparse:
            at = r.integers(p.shape[0], size=3)
            values = r.standard_normal((3, *p.shape[1:]))
            p.grad = SparseGradient(tensor(at), tensor(values.copy()), p.shape)
            q.grad = torch.sparse_coo_tensor(at[None], values, p.shape)
        elif r.random() < 0.1:
            p.grad = q.grad = None
        else:
            values = r.standard_normal(p.shape)
            p.grad, q.grad = tensor(values.copy()), torch.tensor(values)


def closure(parameters: list[Any], optimizer: Any) -> Any:
    """What computes a loss that is bent differently in each direction, and its gradients."""

    def compute() -> Any:
        optimizer.zero_grad()
        loss = sum([(i + 1) * ((p - 0.3 * i) ** 2).sum() + p.cos().sum() for i, p in enumerate(parameters)])
        loss.backward()
        return loss

    return compute


def require_near(mine: Any, other: Any, what: str) -> None:
    found, wanted = np.asarray(mine.detach().numpy()), other.detach().numpy()
    assert found.shape == wanted.shape and found.dtype == wanted.dtype, what
    np.testing.assert_allclose(found, wanted, NEAR, NEAR, err_msg=what)


@pytest.mark.parametrize("seed", first(range(12)))
@pytest.mark.parametrize("name", OPTIONS)
def test_a_hundred_steps_as_torch(name: str, seed: int) -> None:
    r = np.random.default_rng([seed, *name.encode()])
    shapes = SHAPES if name != "SparseAdam" else [(5,), (3, 4), (4, 2, 3)]
    arrays = [r.standard_normal(shape) for shape in shapes]
    mine, other = [parameter(one) for one in arrays], [torch.tensor(one, requires_grad=True) for one in arrays]
    options = OPTIONS[name](r)
    cut = int(r.integers(1, len(shapes))) if name != "LBFGS" else len(shapes)
    own = OPTIONS[name](r)
    optimizers = []
    for library, given in ((optim, mine), (torch.optim, other)):
        groups = [{"params": given[:cut]}, {"params": given[cut:], **own}] if cut < len(shapes) else given
        optimizers.append(getattr(library, name)(groups, **options))
    schedule = one_of(r, *SCHEDULES)
    how = SCHEDULES[schedule](r)
    schedules = [
        getattr(library.lr_scheduler, schedule)(one, **how)
        for library, one in zip((optim, torch.optim), optimizers, strict=True)
        if schedule
    ]
    for _ in range(100):
        if name == "LBFGS":
            for given, one in zip((mine, other), optimizers, strict=True):
                one.step(closure(given, one))
        else:
            gradients(r, mine, other, sparse=name == "SparseAdam")
            for one in optimizers:
                one.step()
        for one in schedules:
            one.step()
    for i, (p, q) in enumerate(zip(mine, other, strict=True)):
        require_near(p, q, f"{options} {own} {schedule} {how}: parameter {i}")
        state, expected = optimizers[0].state[p], optimizers[1].state[q]
        assert {*state} == {*expected}
        for key, value in state.items():
            if hasattr(value, "detach"):
                require_near(value, expected[key], f"{options} {own} {schedule} {how}: {key} of parameter {i}")
    for group, wanted in zip(*[one.param_groups for one in optimizers], strict=True):
        assert group["lr"] == pytest.approx(wanted["lr"], rel=1e-12)


def test_every_optimizer_is_stepped() -> None:
    kinds = (optim, torch.optim)
    found = [
        {name for name, one in vars(kind).items() if isinstance(one, type) and issubclass(one, kind.Optimizer)}
        for kind in kinds
    ]
    assert found[0] & found[1] - {"Optimizer"} == {*OPTIONS}
