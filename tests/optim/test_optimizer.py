"""Groups, hooks, refusals, texts and pickles of optimizers."""

import copy
import inspect
import pickle
import warnings

import numpy as np
import pytest
from optim_world import parameter, tensor

import shmtensor
from shmtensor import optim
from shmtensor.errors import DTypeError, InvalidArgument, LayoutError, NotSupported

NAMES = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop",
    "SparseAdam",
]  # fmt: skip


def with_gradient(values):
    p = parameter(values)
    p.grad = tensor(np.ones(p.shape))
    return p


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES)
def test_arguments_and_defaults_are_those_of_torch(name):
    torch = pytest.importorskip("torch")
    ours, theirs = inspect.signature(getattr(optim, name)), inspect.signature(getattr(torch.optim, name))
    found = [(one.name, one.kind, one.default) for one in ours.parameters.values()]
    assert found == [(one.name, one.kind, one.default) for one in theirs.parameters.values()]
    mine, other = getattr(optim, name)([parameter([1.0])]), getattr(torch.optim, name)([torch.ones(1)])
    assert repr(mine) == repr(other)
    assert mine.defaults == other.defaults


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": -1}),
        ("SGD", {"momentum": -0.5}),
        ("SGD", {"weight_decay": -1}),
        ("SGD", {"nesterov": True}),
        ("SGD", {"fused": True, "foreach": True}),
        ("Adam", {"betas": (1.0, 0.5)}),
        ("Adam", {"betas": (0.5, -0.5)}),
        ("Adam", {"eps": -1}),
        ("AdamW", {"lr": float("nan")}),
        ("Adagrad", {"lr_decay": -1}),
        ("Adagrad", {"initial_accumulator_value": -1}),
        ("Adadelta", {"rho": 1.5}),
        ("RMSprop", {"alpha": -1}),
        ("RMSprop", {"momentum": -1}),
        ("NAdam", {"momentum_decay": -1}),
        ("Rprop", {"etas": (1.5, 2)}),
        ("SparseAdam", {"lr": 0}),
        ("SparseAdam", {"eps": 0}),
        ("LBFGS", {"lr": -1}),
        ("ASGD", {"weight_decay": -1}),
    ],
)
def test_refusals_have_the_words_of_torch(name, options):
    torch = pytest.importorskip("torch")
    with pytest.raises((ValueError, RuntimeError)) as theirs:
        getattr(torch.optim, name)([torch.ones(1)], **options)
    with pytest.raises(InvalidArgument) as ours:
        getattr(optim, name)([parameter([1.0])], **options)
    assert str(ours.value).startswith(str(theirs.value).rstrip("."))


def test_refusals_of_ours():
    p = parameter([1.0])
    with pytest.raises(NotSupported, match="differentiable"):
        optim.SGD([p], differentiable=True)
    with pytest.raises(InvalidArgument, match="1-element"):
        optim.SGD([p], lr=shmtensor.ones(2))
    with pytest.raises(InvalidArgument, match="both floats or both Tensors"):
        optim.Adam([p], betas=(0.9, shmtensor.tensor(0.5)))
    with pytest.raises(InvalidArgument, match=r"Complex params at indices \[\[0, 1\]\]"):
        optim.SparseAdam([p, parameter([1j])])


def test_refusals_of_parameters():
    p, q = parameter([1.0]), parameter([2.0])
    with pytest.raises(DTypeError, match="iterable of Tensors"):
        optim.SGD(p)
    with pytest.raises(InvalidArgument, match="empty parameter list"):
        optim.SGD([])
    with pytest.raises(DTypeError, match="ordered collections"):
        optim.SGD([{"params": {p}}])
    with pytest.raises(DTypeError, match="can only optimize Tensors, but one of the params is float"):
        optim.SGD([1.0])
    with pytest.raises(InvalidArgument, match="more than one parameter group"):
        optim.SGD([{"params": [p, q]}, {"params": [q]}])
    with pytest.raises(InvalidArgument, match="Some param names are missing"):
        optim.SGD([("weight", p), q])
    optimizer = optim.SGD([("weight", p)])
    assert optimizer.param_groups[0]["param_names"] == ["weight"]
    with pytest.raises(InvalidArgument, match="cannot add param group without names"):
        optimizer.add_param_group({"params": [q]})
    with pytest.raises(DTypeError, match="must be a dict"):
        optimizer.add_param_group([q])
    with pytest.raises(InvalidArgument, match="can't optimize a non-leaf Tensor"):
        optim.SGD([p * 2])
    kept = p * 2
    kept.retain_grad()
    optim.SGD([kept], lr=0.5)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optim.SGD([p, p])


def test_a_required_option():
    class Needs(optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": optim.optimizer.required})

    with pytest.raises(InvalidArgument, match="required optimization parameter lr"):
        Needs([parameter([1.0])])
    assert Needs([{"params": [parameter([1.0])], "lr": 3}]).param_groups[0]["lr"] == 3


def test_causes_of_failed_steps_are_told():
    p = with_gradient([1.0, 2.0])
    optimizer = optim.SGD([p])
    p._array.flags.writeable = False
    with pytest.raises(LayoutError, match="a step of parameter 0"):
        optimizer.step()
    p = parameter([1, 2])
    p.grad = tensor(np.ones(2, dtype=int))
    with pytest.raises(DTypeError, match="parameter 0 is of int64"):
        optim.SGD([p], lr=0.1).step()


def test_zero_grad():
    p, q = with_gradient([1.0]), parameter([1.0])
    optimizer = optim.SGD([p, q])
    grad = p.grad
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is grad
    assert grad.item() == 0
    assert q.grad is None
    optimizer.zero_grad()
    assert p.grad is None


def test_hooks_around_steps():
    p, seen = with_gradient([1.0]), []
    optimizer = optim.SGD([p], lr=1)
    before = optimizer.register_step_pre_hook(lambda *given: seen.append(("before", *given)))
    after = optimizer.register_step_post_hook(lambda *given: seen.append(("after", *given)))
    optimizer.step()
    assert seen == [("before", optimizer, (optimizer,), {}), ("after", optimizer, (optimizer,), {})]
    before.remove()
    after.remove()
    optimizer.step()
    assert len(seen) == 2
    with optimizer.register_step_pre_hook(lambda own, args, how: ((own, lambda: 7), {})):
        assert optimizer.step() == 7
    with optimizer.register_step_pre_hook(lambda *given: 3), pytest.raises(InvalidArgument, match="new_args"):
        optimizer.step()


def test_hooks_of_all_optimizers():
    seen = []
    from shmtensor.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    optimizer = optim.SGD([with_gradient([1.0])])
    with (
        register_optimizer_step_pre_hook(lambda *given: seen.append("before")),
        register_optimizer_step_post_hook(lambda *given: seen.append("after")),
    ):
        optimizer.step()
    optimizer.step()
    assert seen == ["before", "after"]


def test_hooks_around_states():
    optimizer, seen = optim.SGD([parameter([1.0])]), []
    optimizer.register_state_dict_pre_hook(lambda own: seen.append("second"))
    optimizer.register_state_dict_pre_hook(lambda own: seen.append("first"), prepend=True)
    optimizer.register_state_dict_post_hook(lambda own, state: {**state, "more": 1})
    optimizer.register_load_state_dict_pre_hook(lambda own, state: state["param_groups"][0].update(lr=7))
    optimizer.register_load_state_dict_post_hook(lambda own: seen.append(own.param_groups[0]["lr"]))
    state = optimizer.state_dict()
    assert state["more"] == 1
    optimizer.load_state_dict(state)
    assert seen == ["first", "second", 7]


def test_an_optimizer_of_a_program():
    class Signs(optim.Optimizer):
        def __init__(self, params, lr=0.5):
            super().__init__(params, {"lr": lr})

        @shmtensor.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(shmtensor.sign(p.grad) * group["lr"])

    class Twice(Signs):
        def step(self, closure=None):
            super().step()
            super().step()

    p, seen = with_gradient([1.0]), []
    optimizer = Twice([p])
    optimizer.register_step_post_hook(lambda *given: seen.append(1))
    optimizer.step()
    assert p.item() == 0
    assert seen == [1]  # once, though steps are made within the step
    with pytest.raises(NotSupported, match="has no step"):
        optim.Optimizer([p], {}).step()


@pytest.mark.parametrize("through", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_go_on_alone(through):
    p = with_gradient([1.0, 2.0])
    optimizer = optim.Adam([p], lr=0.1)
    optimizer.step()
    other = through(optimizer)
    (q,) = other.param_groups[0]["params"]
    assert q is not p
    assert list(other.state) == [q]
    assert other.state[q]["step"].item() == 1
    optimizer.step()
    assert other.state[q]["step"].item() == 1
    np.testing.assert_allclose(q.detach().numpy(), [0.9, 1.9])


def test_sharing_makes_the_state():
    p, q = parameter([1.0, 2.0]), parameter([1.0])
    optimizer = optim.Adam([p, q], lr=shmtensor.tensor(0.1), amsgrad=True)
    optimizer.share_memory()
    for one in (p, q):
        state = optimizer.state[one]
        assert set(state) == {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
        assert all(value.is_shared() for value in state.values())
    assert optimizer.param_groups[0]["lr"].is_shared()
    momentum = optim.SGD([p], momentum=0.5)
    momentum.share_memory()
    p.grad = tensor(np.ones(2))
    momentum.step()
    assert momentum.state[p]["momentum_buffer"].is_shared()
    assert momentum.state[p]["momentum_buffer"].tolist() == [1, 1]
    sparse = optim.SparseAdam([p])
    sparse.share_memory()
    assert sparse.state[p]["step"].is_shared()
    optim.SGD([p]).share_memory()


def is_shared(optimizer, p):
    values = [value for value in optimizer.state[p].values() if isinstance(value, shmtensor.Tensor)]
    return values and all(value.is_shared() for value in values)


def test_what_comes_after_sharing_is_shared_at_once():
    p, q = with_gradient([1.0, 2.0]), with_gradient([1.0])
    optimizer = optim.Adam([p])
    optimizer.share_memory()
    optimizer.add_param_group({"params": [q], "lr": shmtensor.tensor(0.1)})
    assert is_shared(optimizer, q) and optimizer.param_groups[1]["lr"].is_shared()
    fresh = optim.Adam([{"params": [p]}, {"params": [q]}])
    optimizer.load_state_dict(fresh.state_dict())  # without state
    assert is_shared(optimizer, p) and is_shared(optimizer, q)
    moving = optim.SGD([p])
    moving.share_memory()
    moving.param_groups[0]["momentum"] = 0.5
    moving.step()
    assert is_shared(moving, p)
    assert moving.state[p]["momentum_buffer"].tolist() == p.grad.tolist()


def test_state_of_an_older_torch_without_momentum_is_shared():
    p = with_gradient([1.0, 2.0])
    optimizer = optim.SGD([p], momentum=0.5)
    state = optimizer.state_dict()
    optimizer.load_state_dict({**state, "state": {0: {"momentum_buffer": None}}})
    optimizer.share_memory()
    assert is_shared(optimizer, p)


def test_steps_warn_of_nothing():
    p = with_gradient(np.zeros(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optim.Adagrad([p], eps=0).step()
        optim.Rprop([p]).step()


def test_a_hook_replaces_the_state_that_is_loaded():
    optimizer = optim.SGD([parameter([1.0])], lr=0.1)
    given = optimizer.state_dict()
    optimizer.register_load_state_dict_pre_hook(
        lambda own, state: {**state, "param_groups": [{**state["param_groups"][0], "lr": 7}]}
    )
    optimizer.load_state_dict(given)
    assert optimizer.param_groups[0]["lr"] == 7 and given["param_groups"][0]["lr"] == 0.1


def test_an_optimizer_without_state_can_be_shared():
    class Signs(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.detach().sub_(p.grad.sign() * group["lr"])

    p = with_gradient([1.0, 2.0])
    optimizer = Signs([p], 0.25)
    optimizer.share_memory()
    optimizer.step()
    assert p.tolist() == [0.75, 1.75] and not optimizer.state_dict()["state"]


def test_directions_of_sparse_gradients():
    from shmtensor.autograd.sparse import SparseGradient

    steps = []
    for is_sparse in (True, False):
        p, q, unused = parameter([[1.0], [2.0], [3.0]]), parameter([4.0]), parameter([5.0])
        optimizer = optim.LBFGS([p, q, unused], lr=0.1, max_iter=3)

        def closure(p=p, q=q, is_sparse=is_sparse):
            q.grad = tensor(2 * q.detach().numpy())
            rows = tensor(np.array([2, 0, 2]))
            values = p.detach().numpy()[[2, 0, 2]]
            found = SparseGradient(rows, tensor(values.copy()), (3, 1))
            p.grad = found if is_sparse else found.to_dense()
            return (p[0] ** 2 / 2 + p[2] ** 2 + q**2).item()

        optimizer.step(closure)
        steps.append(np.concatenate([one.detach().numpy().reshape(-1) for one in (p, q, unused)]))
    assert np.array_equal(*steps)
    assert (steps[0] != [1, 2, 3, 4, 5]).tolist() == [True, False, True, True, False]
