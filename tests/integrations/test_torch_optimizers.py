"""share_optimizer: torch's optimizers with one state for several processes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from manager_world import TORCH_BOUND

torch = pytest.importorskip("torch")

import shmtensor.multiprocessing as mp  # noqa: E402
from shmtensor import errors  # noqa: E402
from shmtensor.integrations.torch import from_torch, share_module, share_optimizer  # noqa: E402

pytestmark = pytest.mark.torch
FORK = mp.get_context("fork")

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Adadelta": ("Adadelta", {}),
    "Adafactor": ("Adafactor", {}),
    "Adagrad": ("Adagrad", {"initial_accumulator_value": 0.5}),
    "Adam": ("Adam", {}),
    "Adam, decay": ("Adam", {"weight_decay": 0.1, "amsgrad": True}),
    "Adam, foreach": ("Adam", {"foreach": True}),
    "Adam, fused": ("Adam", {"fused": True}),
    "AdamW": ("AdamW", {"weight_decay": 0.5}),
    "Adamax": ("Adamax", {}),
    "ASGD": ("ASGD", {}),
    "Muon": ("Muon", {}),
    "NAdam": ("NAdam", {}),
    "RAdam": ("RAdam", {}),
    "RMSprop": ("RMSprop", {"momentum": 0.9, "centered": True}),
    "Rprop": ("Rprop", {}),
    "SGD": ("SGD", {"weight_decay": 0.1}),
    "SGD, momentum": ("SGD", {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
    "SparseAdam": ("SparseAdam", {}),
}


def in_ours(tensor: Any) -> bool:
    return bool(from_torch(tensor).is_shared())


def made(case: str) -> tuple[Any, Any]:
    """A module and its optimizer."""
    name, options = OPTIMIZERS[case]
    if not hasattr(torch.optim, name):
        pytest.skip(f"this torch has no {name}")
    torch.manual_seed(0)
    if case == "SparseAdam":
        module = torch.nn.Embedding(6, 3, sparse=True)
    else:
        module = torch.nn.Linear(4, 3, bias=name != "Muon")
    return module, getattr(torch.optim, name)(module.parameters(), lr=0.05, **options)


def step(module: Any, optimizer: Any, number: int) -> None:
    inputs = torch.arange(12.0).reshape(3, 4).add(number).sin()
    if isinstance(module, torch.nn.Embedding):
        inputs = torch.tensor([number % 6, 5, 0])
    optimizer.zero_grad()
    module(inputs).square().sum().backward()
    optimizer.step()


def steps(module: Any, optimizer: Any, numbers: range) -> None:
    for number in numbers:
        step(module, optimizer, number)


def train(module: Any, optimizer: Any, numbers: range) -> None:
    """In a child: some steps, without threads, of which a forked child has none."""
    torch.set_num_threads(1)
    steps(module, optimizer, numbers)


def tensors(optimizer: Any) -> list[Any]:
    return [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]


def twin_of(module: Any, case: str) -> tuple[Any, Any]:
    """A copy of a module, and an optimizer of it that is not shared."""
    name, options = OPTIMIZERS[case]
    twin = copy.deepcopy(module)
    return twin, getattr(torch.optim, name)(twin.parameters(), lr=0.05, **options)


def require_equal(module: Any, optimizer: Any, twin: Any, its: Any) -> None:
    for mine, other in zip(module.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, other)
    ours, theirs = optimizer.state_dict()["state"], its.state_dict()["state"]
    assert ours.keys() == theirs.keys()
    for number, values in theirs.items():
        for name, value in values.items():
            assert torch.equal(torch.as_tensor(ours[number][name]), torch.as_tensor(value)), name


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_state_is_made_as_the_first_step_makes_it(case: str) -> None:
    module, optimizer = made(case)
    twin, its = twin_of(module, case)
    before = copy.deepcopy(module.state_dict())
    assert share_optimizer(optimizer) is optimizer
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(p.grad is None and in_ours(p) for p in module.parameters())
    assert tensors(optimizer) or case == "SGD"
    assert all(map(in_ours, tensors(optimizer)))
    state = {id(value) for value in tensors(optimizer)}
    steps(module, optimizer, range(4))
    steps(twin, its, range(4))
    assert {id(value) for value in tensors(optimizer)} == state, "steps are in place"
    require_equal(module, optimizer, twin, its)


def train_in_turn(context: Any, case: str, *turns: range) -> None:
    """Children make steps one after the other, then this process, which is as one process alone."""
    module, optimizer = made(case)
    twin, its = twin_of(module, case)
    share_module(module)
    share_optimizer(optimizer)
    for numbers in turns:
        process = context.Process(target=train, args=(module, optimizer, numbers))
        process.start()
        process.join(TORCH_BOUND)
        assert process.exitcode == 0
    step(module, optimizer, 5)
    steps(twin, its, range(6))
    require_equal(module, optimizer, twin, its)


@pytest.mark.parametrize("case", ["AdamW", "NAdam", "SGD, momentum", "SparseAdam"])
def test_forked_processes_have_one_state(case: str) -> None:
    train_in_turn(FORK, case, range(3), range(3, 5))


def test_processes_of_any_start_method_have_one_state(ctx: Any) -> None:
    train_in_turn(ctx, "Adam", range(5))


def test_two_processes_at_the_same_time() -> None:
    module, optimizer = made("Adam")
    share_optimizer(optimizer)
    processes = [FORK.Process(target=train, args=(module, optimizer, range(20))) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(TORCH_BOUND)
        assert process.exitcode == 0
    (state, *_) = optimizer.state.values()
    assert 20 <= state["step"] <= 40 and state["exp_avg"].any() and module.weight.isfinite().all()


def test_what_is_there_is_moved() -> None:
    module, optimizer = made("Adam")
    step(module, optimizer, 0)
    kept, grads = copy.deepcopy(optimizer.state_dict()), [p.grad.clone() for p in module.parameters()]
    views = [value.view(-1) for value in tensors(optimizer)]
    share_optimizer(optimizer)
    for number, state in optimizer.state_dict()["state"].items():
        assert all(in_ours(value) and torch.equal(value, kept["state"][number][name]) for name, value in state.items())
    assert all(map(in_ours, views)), "with all that is on it"
    assert all(torch.equal(p.grad, grad) for p, grad in zip(module.parameters(), grads, strict=True))
    assert not any(p.grad.is_shared() for p in module.parameters())
    places = [value.data_ptr() for value in tensors(optimizer)]
    share_optimizer(optimizer)
    assert [value.data_ptr() for value in tensors(optimizer)] == places


def test_options_that_are_tensors_and_parameters_that_are_frozen() -> None:
    module = torch.nn.Linear(4, 3)
    module.bias.requires_grad_(False)
    optimizer = share_optimizer(torch.optim.Adam(module.parameters(), lr=torch.tensor(0.1)))
    assert in_ours(optimizer.param_groups[0]["lr"]) and in_ours(module.bias)
    assert [p.shape for p in optimizer.state] == [(3, 4)] and module.bias.grad is None


def test_what_torch_has_shared_stays() -> None:
    module = torch.nn.Linear(4, 3).share_memory()
    optimizer = share_optimizer(torch.optim.Adam(module.parameters()))
    assert all(p.is_shared() and not in_ours(p) for p in module.parameters())
    assert all(map(in_ours, tensors(optimizer)))


class Own(torch.optim.Optimizer):
    """An optimizer of a program, which counts by Python's numbers."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, sum=torch.zeros_like(p), lock=None)
                state["step"] += 1
                state["sum"] += p.grad


def test_an_optimizer_of_the_program_after_a_step() -> None:
    module = torch.nn.Linear(4, 3)
    optimizer = Own(module.parameters())
    assert not share_optimizer(optimizer).state
    step(module, optimizer, 0)
    share_optimizer(optimizer)
    step(module, optimizer, 1)
    for state in optimizer.state.values():
        assert in_ours(state["sum"]) and in_ours(state["step"]) and state["step"] == 2 and state["lock"] is None


def test_optimizers_that_cannot_be_shared() -> None:
    with pytest.raises(errors.DTypeError, match=r"torch\.optim\.Optimizer, not a torch\.nn\.modules\.linear\.Linear"):
        share_optimizer(torch.nn.Linear(4, 3))
    with pytest.raises(errors.NotSupported, match="LBFGS"):
        share_optimizer(torch.optim.LBFGS(torch.nn.Linear(4, 3).parameters()))
    lazy = torch.optim.SGD(torch.nn.LazyLinear(3).parameters())
    with pytest.raises(errors.InvalidArgument, match="call its module once"):
        share_optimizer(lazy)
    private, elsewhere = torch.ones(3, requires_grad=True), torch.empty(3, device="meta", requires_grad=True)
    optimizer = torch.optim.SGD([private, elsewhere], momentum=0.9)
    with pytest.raises(errors.InvalidArgument, match=r"parameter 1 of group 0 of a torch.* nothing was moved.*meta"):
        share_optimizer(optimizer)
    assert not private.is_shared() and not optimizer.state
