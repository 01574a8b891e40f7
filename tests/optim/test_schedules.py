"""Every scheduler sets the same rates as torch's, and its checkpoints have the same keys."""

import inspect
import re
import warnings

import numpy as np
import pytest
from optim_world import parameter

import shmtensor
from shmtensor import optim
from shmtensor.errors import DTypeError, InvalidArgument
from shmtensor.optim import lr_scheduler, swa_utils

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:Detected call")]


def half(step):
    return 0.5**step


class Object:
    """A function that has attributes."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, step):
        return self.factor**step


CASES = [
    ("LambdaLR", {"lr_lambda": half}),
    ("LambdaLR", {"lr_lambda": [half, Object(0.9)]}),
    ("MultiplicativeLR", {"lr_lambda": lambda step: 0.95}),
    ("StepLR", {"step_size": 3}),
    ("StepLR", {"step_size": 2, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5, 9], "gamma": 0.5}),
    ("ConstantLR", {}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 3}),
    ("LinearLR", {}),
    ("LinearLR", {"start_factor": 0.2, "end_factor": 0.7, "total_iters": 8}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {"total_iters": 9, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 5}),
    ("CosineAnnealingLR", {"T_max": 4, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3}),
    ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 2, "eta_min": 0.01}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3}),
    (
        "CyclicLR",
        {"base_lr": [0.01, 0.02], "max_lr": 0.1, "step_size_up": 3, "step_size_down": 5, "mode": "triangular2"},
    ),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 2, "mode": "exp_range", "gamma": 0.9}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 2, "scale_fn": half, "scale_mode": "iterations"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 2, "scale_fn": Object(0.5), "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 15}),
    ("OneCycleLR", {"max_lr": [0.5, 0.7], "epochs": 4, "steps_per_epoch": 4, "anneal_strategy": "linear"}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 16, "three_phase": True, "div_factor": 10.0}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 16, "cycle_momentum": False, "pct_start": 0.5}),
    ("SWALR", {"swa_lr": 0.05}),
    ("SWALR", {"swa_lr": [0.05, 0.01], "anneal_epochs": 4, "anneal_strategy": "linear"}),
    ("SWALR", {"swa_lr": 0.05, "anneal_epochs": 0}),
]
BOTH = pytest.mark.parametrize("beta1", [False, True])


def options_id(value):
    return re.sub(r"<.*?0x\w+>", "function", str(value))


def optimizers(beta1=False, **options):
    made = []
    for kind, p in ((optim, parameter), (torch.optim, lambda values: torch.tensor(values, requires_grad=True))):
        groups = [{"params": [p([1.0])], "lr": 0.1}, {"params": [p([2.0])], "lr": 0.3}]
        made.append(kind.AdamW(groups) if beta1 else kind.SGD(groups, momentum=0.5, **options))
    return made


def classes(name):
    if name == "SWALR":
        return swa_utils.SWALR, torch.optim.swa_utils.SWALR
    return getattr(lr_scheduler, name), getattr(torch.optim.lr_scheduler, name)


def same_groups(mine, other):
    for one, two in zip(mine.param_groups, other.param_groups, strict=True):
        for name in ("lr", "momentum", "betas", "initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum"):
            assert (name in one) == (name in two), name
            if name in one:
                np.testing.assert_allclose(one[name], two[name], rtol=1e-12, err_msg=name)


@BOTH
@pytest.mark.parametrize(("name", "options"), CASES, ids=options_id)
def test_rates_as_torch(name, options, beta1):
    mine, other = optimizers(beta1)
    kind, theirs = classes(name)
    schedule, expected = kind(mine, **options), theirs(other, **options)
    for _ in range(14):
        same_groups(mine, other)
        np.testing.assert_allclose(schedule.get_last_lr(), expected.get_last_lr(), rtol=1e-12)
        assert schedule.last_epoch == expected.last_epoch
        mine.step()
        other.step()
        schedule.step()
        expected.step()
    state, expected_state = schedule.state_dict(), expected.state_dict()
    assert state.keys() == expected_state.keys()
    for key in ("last_epoch", "_step_count", "base_lrs"):
        assert state[key] == pytest.approx(expected_state[key])


@pytest.mark.parametrize(("name", "options"), CASES, ids=options_id)
def test_checkpoints_of_torch_go_on(name, options):
    mine, other = optimizers()
    kind, theirs = classes(name)
    schedule, expected = kind(mine, **options), theirs(other, **options)
    for _ in range(6):
        expected.step()
    schedule.load_state_dict(expected.state_dict())
    mine.load_state_dict(other.state_dict())
    for _ in range(6):
        schedule.step()
        expected.step()
        same_groups(mine, other)


@pytest.mark.parametrize(("name", "options"), CASES, ids=options_id)
@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_steps_by_number(name, options):
    if name == "SWALR":
        pytest.skip("torch's counts its steps, whatever number is given")
    mine, other = optimizers()
    kind, theirs = classes(name)
    schedule, expected = kind(mine, **options), theirs(other, **options)
    for epoch in (4, 7, 1):
        schedule.step(epoch)
        expected.step(epoch)
        same_groups(mine, other)


@pytest.mark.parametrize(("name", "options"), CASES, ids=options_id)
def test_going_on_from_a_step(name, options):
    if name in ("CyclicLR", "OneCycleLR"):
        options = {**options, "cycle_momentum": False}
    mine, other = optimizers()
    for group in [*mine.param_groups, *other.param_groups]:
        group.update(initial_lr=group["lr"], max_lr=0.5, min_lr=0.001)
    kind, theirs = classes(name)
    schedule, expected = kind(mine, last_epoch=4, **options), theirs(other, last_epoch=4, **options)
    for _ in range(4):
        same_groups(mine, other)
        schedule.step()
        expected.step()
    with pytest.raises(InvalidArgument, match=r"'initial_lr' is not specified in param_groups\[0\]"):
        kind(optimizers()[0], last_epoch=4, **options)


@pytest.mark.parametrize("name", [*lr_scheduler.__all__, "SWALR"])
def test_arguments_and_defaults_are_those_of_torch(name):
    ours, theirs = (inspect.signature(kind) for kind in classes(name))
    found = [(one.name, one.kind, one.default) for one in ours.parameters.values()]
    assert found == [(one.name, one.kind, one.default) for one in theirs.parameters.values()]


def test_parts_of_sequences_may_be_combinations():
    """torch has no way to begin these at a milestone."""
    optimizer = optim.SGD([parameter([1.0])], lr=1.0)
    chain = lr_scheduler.ChainedScheduler(
        [lr_scheduler.ExponentialLR(optimizer, 0.5), lr_scheduler.StepLR(optimizer, 2)]
    )
    constant, step = lr_scheduler.ConstantLR(optimizer, 0.5, 2), lr_scheduler.ExponentialLR(optimizer, 0.25)
    inner = lr_scheduler.SequentialLR(optimizer, [constant, step], [2])
    outer = lr_scheduler.SequentialLR(optimizer, [lr_scheduler.ConstantLR(optimizer, 0.125, 9), chain, inner], [1, 4])
    rates = []
    for _ in range(8):
        rates += outer.get_last_lr()
        outer.step()
    assert rates == [0.125, 1, 0.5, 0.025, 0.5, 0.5, 1, 0.25]


def sequences(optimizer, kinds):
    parts = [
        kinds.LinearLR(optimizer, 0.1, total_iters=4),
        kinds.ExponentialLR(optimizer, 0.8),
        kinds.StepLR(optimizer, 2),
    ]
    return kinds.SequentialLR(optimizer, parts, [4, 8])


def chains(optimizer, kinds):
    return kinds.ChainedScheduler([kinds.LinearLR(optimizer, 0.1, total_iters=4), kinds.ExponentialLR(optimizer, 0.8)])


@pytest.mark.parametrize("make", [sequences, chains])
def test_combinations_and_their_checkpoints(make):
    mine, other = optimizers()
    schedule, expected = make(mine, lr_scheduler), make(other, torch.optim.lr_scheduler)
    for step in range(12):
        same_groups(mine, other)
        assert schedule.get_last_lr() == pytest.approx(expected.get_last_lr(), rel=1e-12)
        schedule.step()
        expected.step()
        if step == 5:
            again, _ = optimizers()
            state = expected.state_dict()
            assert schedule.state_dict().keys() == state.keys()
            schedule = make(again, lr_scheduler)
            schedule.load_state_dict(state)
            again.load_state_dict(other.state_dict())
            mine = again


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"patience": 1, "factor": 0.5, "cooldown": 2},
        {"mode": "max", "patience": 0, "threshold": 0.1, "threshold_mode": "abs", "min_lr": [0.05, 0.01]},
        {"mode": "max", "patience": 1, "min_lr": 0.02, "eps": 0.01},
        {"threshold_mode": "abs", "patience": 2},
    ],
)
def test_plateaus(options):
    mine, other = optimizers()
    schedule = lr_scheduler.ReduceLROnPlateau(mine, **options)
    expected = torch.optim.lr_scheduler.ReduceLROnPlateau(other, **options)
    metrics = np.abs(np.sin(np.arange(60))) + 1
    for i, value in enumerate(metrics):
        if i == 30:
            assert schedule.state_dict() == expected.state_dict()
            schedule = lr_scheduler.ReduceLROnPlateau(mine)
            schedule.load_state_dict(expected.state_dict())
        schedule.step(shmtensor.tensor(value))
        expected.step(value)
        same_groups(mine, other)
        assert schedule.get_last_lr() == expected.get_last_lr()
        assert schedule.in_cooldown == expected.in_cooldown


def test_plateaus_of_groups_that_were_added():
    mine, _ = optimizers()
    schedule, listed = (lr_scheduler.ReduceLROnPlateau(mine, patience=0, min_lr=least) for least in (0, [0.0, 0.0]))
    mine.add_param_group({"params": [parameter([1.0])], "lr": 1.0})
    schedule.step(1)
    schedule.step(1)
    assert mine.param_groups[2]["lr"] == 0.1
    listed.step(1)
    with pytest.raises(InvalidArgument, match="number of param groups"):
        listed.step(1)


REFUSED = [
    ("ConstantLR", {"factor": 2}),
    ("LinearLR", {"start_factor": 0}),
    ("LinearLR", {"end_factor": 2}),
    ("CosineAnnealingWarmRestarts", {"T_0": 0}),
    ("CosineAnnealingWarmRestarts", {"T_0": 1, "T_mult": 0}),
    ("CosineAnnealingWarmRestarts", {"T_0": 1, "eta_min": "0"}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 1, "mode": "square"}),
    ("CyclicLR", {"base_lr": [0.1], "max_lr": 1}),
    ("OneCycleLR", {"max_lr": 1}),
    ("OneCycleLR", {"max_lr": 1, "total_steps": 0}),
    ("OneCycleLR", {"max_lr": 1, "epochs": 1, "steps_per_epoch": -1}),
    ("OneCycleLR", {"max_lr": 1, "total_steps": 5, "pct_start": 2.0}),
    ("OneCycleLR", {"max_lr": 1, "total_steps": 5, "anneal_strategy": "log"}),
    ("LambdaLR", {"lr_lambda": [half]}),
    ("ReduceLROnPlateau", {"factor": 1.0}),
    ("ReduceLROnPlateau", {"mode": "best"}),
    ("ReduceLROnPlateau", {"threshold_mode": "best"}),
    ("ReduceLROnPlateau", {"min_lr": [0.1]}),
    ("SequentialLR", {"schedulers": [], "milestones": []}),
    ("SWALR", {"swa_lr": 1, "anneal_strategy": "log"}),
    ("SWALR", {"swa_lr": 1, "anneal_epochs": -1}),
]


@pytest.mark.parametrize(("name", "options"), REFUSED, ids=options_id)
def test_refusals_have_the_words_of_torch(name, options):
    mine, other = optimizers()
    kind, theirs = classes(name)
    with pytest.raises(ValueError) as expected:
        theirs(other, **options)
    with pytest.raises(InvalidArgument) as found:
        kind(mine, **options)
    assert str(found.value).startswith(str(expected.value).rstrip(".!"))


def test_refusals_of_combinations():
    (mine, _), (another, _) = optimizers(), optimizers()
    step = lr_scheduler.StepLR(mine, 1)
    plateau = lr_scheduler.ReduceLROnPlateau(mine)
    for schedulers, milestones, error in (
        ([step, lr_scheduler.StepLR(another, 1)], [1], InvalidArgument),
        ([step, plateau], [1], InvalidArgument),
        ([step], [1], InvalidArgument),
        ([step, 7], [1], DTypeError),
    ):
        with pytest.raises(error):
            lr_scheduler.SequentialLR(mine, schedulers, milestones)
    with pytest.raises(InvalidArgument, match="ReduceLROnPlateau"):
        lr_scheduler.ChainedScheduler([plateau])


def test_other_refusals():
    mine, _ = optimizers()
    with pytest.raises(DTypeError, match="is not an Optimizer"):
        lr_scheduler.StepLR(parameter([1.0]), 1)
    with pytest.raises(DTypeError, match="should be a function"):
        lr_scheduler.LambdaLR(mine, [half, 3])
    rprop = optim.Rprop([parameter([1.0])])
    for make in (
        lambda: lr_scheduler.CyclicLR(rprop, 0.1, 1),
        lambda: lr_scheduler.OneCycleLR(rprop, 1, total_steps=5),
    ):
        with pytest.raises(InvalidArgument, match="momentum or beta1"):
            make()
    schedule = lr_scheduler.OneCycleLR(mine, 1, total_steps=2)
    schedule.step()
    schedule.step()
    with pytest.raises(InvalidArgument, match="Tried to step 3 times"):
        schedule.step()


def test_where_a_schedule_goes_to():
    p, q = parameter([1.0]), torch.ones(1, requires_grad=True)
    found = []
    for library, one in ((optim, p), (torch.optim, q)):
        optimizer = library.SGD([one], lr=0.1)
        schedule = library.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3)
        with pytest.raises(ValueError, match="Expected non-negative epoch, but got -1"):
            schedule.step(-1)
        rates = []
        for epoch in (2, 0.5, 7):
            schedule.step(epoch)
            rates.append(optimizer.param_groups[0]["lr"])
        optimizer = library.SGD([{"params": [one], "initial_lr": 0.1}], lr=0.1)  # resumed after four steps
        schedule = library.lr_scheduler.CosineAnnealingLR(optimizer, 10, 0.01, last_epoch=3)
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.load_state_dict({**schedule.state_dict(), "_step_count": 0, "last_epoch": 6})
        schedule.step()  # the first step, and not of the first epoch: from the first rate, not from the one before
        rates.append(optimizer.param_groups[0]["lr"])
        found.append(rates)
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_numbers_of_steps_of_plateaus():
    mine, _ = optimizers()
    schedule = lr_scheduler.ReduceLROnPlateau(mine)
    schedule.step(1.0)
    with pytest.warns(UserWarning, match="epoch parameter"):
        schedule.step(0.5, 7)
    assert (schedule.last_epoch, schedule.best) == (7, 0.5)


def test_warnings():
    mine, _ = optimizers()
    schedule = lr_scheduler.StepLR(mine, 1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        schedule.step()
    with pytest.warns(UserWarning, match="get_last_lr"):
        schedule.get_lr()
    with pytest.warns(UserWarning, match="epoch parameter"):
        schedule.step(3)
    mine, _ = optimizers()
    schedule = lr_scheduler.StepLR(mine, 1)
    mine.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule.step()


def test_rates_that_are_tensors_are_written_to():
    rate = shmtensor.tensor(0.5, dtype=shmtensor.float64).share_memory_()
    optimizer = optim.SGD([parameter([1.0])], lr=rate)
    for make in (
        lambda: lr_scheduler.StepLR(optimizer, 1, gamma=0.5),
        lambda: lr_scheduler.ReduceLROnPlateau(optimizer, patience=-1, factor=0.5),
    ):
        schedule = make()
        before = rate.item()
        schedule.step(*[1.0] * isinstance(schedule, lr_scheduler.ReduceLROnPlateau))
        assert optimizer.param_groups[0]["lr"] is rate
        assert rate.item() == before / 2
        assert schedule.get_last_lr()[0] is not rate


def test_a_scheduler_of_a_program():
    class Halves(lr_scheduler.LRScheduler):
        def get_lr(self):
            return [rate / 2**self.last_epoch for rate in self.base_lrs]

    optimizer = optim.SGD([parameter([1.0])], lr=1.0)
    schedule = Halves(optimizer)
    schedule.step()
    assert schedule.get_last_lr() == [0.5]
    with pytest.raises(NotImplementedError, match="get_lr"):
        lr_scheduler.LRScheduler(optimizer)
