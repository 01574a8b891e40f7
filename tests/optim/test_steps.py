"""Steps of every optimizer give the same parameters and the same state as torch's."""

import numpy as np
import optim_world
import pytest
from optim_world import STEPS, parameter, tensor
from tiers import first

import shmtensor
from shmtensor import optim
from shmtensor.autograd.sparse import SparseGradient
from shmtensor.errors import GradientError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

BOUNDS = {np.float64: 1e-10, np.complex128: 1e-10, np.float32: 2e-4}
RUNS = [(np.float64, 15), (np.float64, 100), (np.complex128, 100), (np.float32, 20)]
"""Types, and how many steps."""


def random_of(rng, shape, dtype):
    values = rng.standard_normal(shape)
    return (values + 1j * rng.standard_normal(shape) if dtype is np.complex128 else values).astype(dtype)


def shapes():
    return [(), (5,), (3, 4), (40, 600), (0,)]  # of which (40, 600) is several blocks


def both(rng, dtype):
    """Parameters of shmtensor and of torch, one with its axes exchanged in memory."""
    arrays = [random_of(rng, shape, dtype) for shape in shapes()]
    arrays[2] = np.asfortranarray(arrays[2])
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    return [parameter(array) for array in arrays], theirs


def give_gradients(rng, step, ours, theirs):
    for i, (p, other) in enumerate(zip(ours, theirs, strict=True)):
        if (i + step) % 7 == 3:  # not each parameter has one in each step
            p.grad = other.grad = None
            continue
        g = random_of(rng, p.shape, p.detach().numpy().dtype.type)
        if i == 3 and step % 2:
            g = np.asfortranarray(g)
        if i == 1:
            g[step % 5] = 0
        p.grad = tensor(g)
        other.grad = torch.tensor(np.ascontiguousarray(g)).reshape(p.shape)


@pytest.mark.parametrize(("dtype", "count"), first(RUNS), ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize(("name", "options"), STEPS, ids=optim_world.options_id)
def test_steps_as_torch(name, options, dtype, count):
    rng = np.random.default_rng(0)
    ours, theirs = both(rng, dtype)
    mine = getattr(optim, name)(ours, **options)
    other = getattr(torch.optim, name)(theirs, foreach=False, **options)
    for step in range(count):
        give_gradients(rng, step, ours, theirs)
        mine.step()
        other.step()
    bound = BOUNDS[dtype]
    for p, q in zip(ours, theirs, strict=True):
        assert p.detach().numpy().dtype == dtype
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=bound, atol=bound)
    for p, q in zip(ours, theirs, strict=True):
        state, expected = mine.state[p], other.state[q]
        assert list(state) == list(expected)
        for key, value in state.items():
            assert value.numpy().dtype == expected[key].numpy().dtype
            np.testing.assert_allclose(value.numpy(), expected[key].numpy(), rtol=bound, atol=bound, err_msg=key)


@pytest.mark.parametrize(("name", "options"), STEPS, ids=optim_world.options_id)
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_types_of_16_bits(name, options, kind):
    if kind == "bfloat16":
        pytest.importorskip("ml_dtypes")
    dtype = getattr(shmtensor, kind)
    rng = np.random.default_rng(0)
    values, gradient = rng.standard_normal((2, 50)).astype(np.float32)
    p = parameter(shmtensor.tensor(values).to(dtype)._live())
    q = torch.tensor(values).to(getattr(torch, kind)).requires_grad_()
    mine = getattr(optim, name)([p], **options)
    other = getattr(torch.optim, name)([q], foreach=False, **options)
    for _ in range(3):
        p.grad = shmtensor.tensor(gradient).to(dtype)
        q.grad = torch.tensor(gradient).to(q.dtype)
        mine.step()
        other.step()
    assert p.dtype == dtype
    found, expected = p.detach().to(shmtensor.float32).numpy(), q.detach().float().numpy()
    bad = ~np.isfinite(expected)  # an eps that float16 rounds to 0
    np.testing.assert_allclose(found[~bad], expected[~bad], atol=0.05)


def test_infinite_gradients_are_no_errors():
    p = parameter([1.0, 2.0, 3.0])
    p.grad = tensor(np.array([np.inf, np.nan, 1e308]))
    optim.Adam([p]).step()
    assert not np.isfinite(p.detach().numpy()[:2]).any()


def test_groups_have_their_own_options():
    ours = [parameter([1.0]), parameter([1.0])]
    for p in ours:
        p.grad = tensor(np.ones(1))
    optimizer = optim.SGD([{"params": [ours[0]]}, {"params": ours[1], "lr": 0.5}], lr=0.25)
    optimizer.step()
    assert [p.item() for p in ours] == [0.75, 0.5]


def test_a_rate_may_be_a_tensor():
    p, rate = parameter([1.0]), shmtensor.tensor(0.5)
    optimizer = optim.SGD([p], lr=rate)
    p.grad = tensor(np.ones(1))
    optimizer.step()
    rate.fill_(0.25)
    optimizer.step()
    assert p.item() == 0.25


def test_a_closure_computes_the_gradients():
    p = parameter([3.0])

    def closure():
        assert shmtensor.is_grad_enabled()
        p.grad = tensor(2 * p.detach().numpy())
        return (p * p).sum()

    optimizer = optim.SGD([p], lr=0.5)
    with shmtensor.no_grad():
        loss = optimizer.step(closure)
    assert loss.item() == 9
    assert p.item() == 0


def test_a_storage_that_moves_is_followed():
    p = parameter(np.ones(4))
    p.grad = tensor(np.ones(4))
    optimizer = optim.Adam([p], lr=0.1)
    optimizer.step()
    p.share_memory_()
    optimizer.share_memory()
    optimizer.step()
    np.testing.assert_allclose(p.detach().numpy(), 0.8)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad", "LBFGS", "SparseAdam"])
def test_steps_count_as_changes_for_autograd(name):
    p = shmtensor.ones(3, 2, requires_grad=True)
    loss = (p * p).sum()  # needs the present values of p for its gradient
    p.grad = shmtensor.ones(3, 2)
    if name == "SparseAdam":
        p.grad = SparseGradient(shmtensor.tensor([1]), shmtensor.ones(1, 2), (3, 2))
    optimizer = getattr(optim, name)([p])
    optimizer.step(*[lambda: 1.0] * (name == "LBFGS"))
    with pytest.raises(GradientError, match="changed"):
        loss.backward()
    grad = p.grad = shmtensor.ones(3, 2)
    before = grad._version
    optimizer.zero_grad(set_to_none=False)
    assert grad._version == before + 1


def test_gradients_with_a_graph_are_cut_from_it():
    p = shmtensor.ones(2, requires_grad=True)
    (grad,) = shmtensor.autograd.grad((p**3).sum(), p, create_graph=True)
    p.grad = grad
    optim.SGD([p]).zero_grad(set_to_none=False)
    assert not p.grad.requires_grad
    assert p.grad.tolist() == [0, 0]
