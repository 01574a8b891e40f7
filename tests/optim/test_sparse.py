"""Sparse gradients change only their rows, as in torch."""

import numpy as np
import pytest
from optim_world import parameter, tensor
from tiers import first

from shmtensor import nn, optim
from shmtensor.autograd.sparse import SparseGradient
from shmtensor.errors import NotSupported

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:Sparse invariant")]


def sparse(indices, values):
    ours = SparseGradient(tensor(np.array(indices, np.int64)), tensor(np.array(values)), (6, *values.shape[1:]))
    return ours, torch.sparse_coo_tensor(
        torch.tensor([indices]), torch.tensor(np.array(values)), (6, *values.shape[1:])
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": 0.1}),
        ("SGD", {"lr": 0.1, "maximize": True}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.2}),
        ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}),
        ("Adagrad", {"maximize": True}),
        ("SparseAdam", {"lr": 0.1}),
        ("SparseAdam", {"betas": (0.5, 0.6), "maximize": True}),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", first([np.float64, np.float32]))
def test_as_torch(name, options, dtype):
    rng = np.random.default_rng(0)
    start = rng.standard_normal((6, 3)).astype(dtype)
    p, q = parameter(start), torch.tensor(start, requires_grad=True)
    mine, other = getattr(optim, name)([p], **options), getattr(torch.optim, name)([q], **options)
    for step in range(20):
        indices = [] if step == 7 else rng.integers(6, size=4).tolist()  # also rows twice, and none
        p.grad, q.grad = sparse(indices, rng.standard_normal((len(indices), 3)).astype(dtype))
        mine.step()
        other.step()
    bound = 1e-10 if dtype is np.float64 else 1e-4
    np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=bound, atol=bound)
    assert {*mine.state[p]} == {*other.state[q]}
    if name == "SparseAdam":
        assert mine.state[p]["step"] == other.state[q]["step"] == 20


def test_types_without_atomic_operations():
    p = parameter(np.ones((6, 2), np.float16))
    p.grad, _ = sparse([1, 1], np.ones((2, 2), np.float16))
    optim.SGD([p], lr=0.25).step()
    assert p.detach().numpy()[:3, 0].tolist() == [1, 0.5, 1]


def test_what_has_no_sparse_form_is_refused():
    p = parameter(np.ones((6, 2)))
    p.grad, _ = sparse([1], np.ones((1, 2)))
    with pytest.raises(NotSupported, match="Adam does not support sparse gradients"):
        optim.Adam([p]).step()
    with pytest.raises(NotSupported, match="weight_decay"):
        optim.SGD([p], weight_decay=0.1).step()
    with pytest.raises(NotSupported, match="weight_decay option is not compatible"):
        optim.Adagrad([p], weight_decay=0.1).step()
    p.grad = tensor(np.ones((6, 2)))
    with pytest.raises(NotSupported, match="dense gradients"):
        optim.SparseAdam([p]).step()


def test_zero_grad_takes_sparse_gradients_away():
    p = parameter(np.ones((6, 2)))
    p.grad, _ = sparse([1], np.ones((1, 2)))
    optim.SGD([p]).zero_grad(set_to_none=False)
    assert p.grad is None


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam"])
def test_an_embedding_is_trained_as_torch_does(name):
    start = np.random.default_rng(0).standard_normal((6, 3))
    ours, theirs = nn.Embedding(6, 3, sparse=True), torch.nn.Embedding(6, 3, sparse=True)
    ours.weight.data = tensor(start.copy())
    theirs.weight.data = torch.tensor(start)
    mine = getattr(optim, name)(ours.parameters(), lr=0.1)
    other = getattr(torch.optim, name)(theirs.parameters(), lr=0.1)
    for step in range(5):
        rows = np.array([1, step, 1])
        for module, optimizer, index in ((ours, mine, tensor(rows)), (theirs, other, torch.tensor(rows))):
            optimizer.zero_grad()
            (module(index) * 2).sum().backward()
            optimizer.step()
    np.testing.assert_allclose(ours.weight.detach().numpy(), theirs.weight.detach().numpy(), rtol=1e-10)
