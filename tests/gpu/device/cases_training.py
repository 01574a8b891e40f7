"""Gradients, layers and optimizers on a GPU."""

import numpy as np
import pytest

import shmtensor as st
from shmtensor import nn
from shmtensor.nn import functional


def both(function, *shapes):
    """Gradients of a function on the host and on the GPU are alike."""
    st.manual_seed(3)
    inputs = [st.rand(*shape) + 0.5 for shape in shapes]
    found = []
    for device in ("cpu", "cuda"):
        leaves = [x.detach().clone().to(device).requires_grad_() for x in inputs]
        function(*leaves).sum().backward()
        assert all(x.grad.device == x.device for x in leaves)
        found.append([x.grad.cpu().numpy() for x in leaves])
    for a, b in zip(*found, strict=True):
        assert np.allclose(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x + x.exp() / x, lambda x: x.mean(), lambda x: x.softmax(1) ** 2, lambda x: x.max(1)[0],
        lambda x: x[1:, ::2] * 3, lambda x: x.t() @ x, lambda x: st.cat([x, x * 2]), lambda x: x.std(0),
        lambda x: x.norm(),
        lambda x: x.clamp(0.7, 1.1).prod(1), lambda x: x.reshape(-1).cumsum(0), lambda x: functional.gelu(x),
        lambda x: functional.silu(x),
        lambda x: functional.layer_norm(x, (5,)), lambda x: functional.dropout(x, 0.0),
        lambda x: x.expand(2, 4, 5) ** 2,
        lambda x: functional.cross_entropy(x, st.tensor([0, 1, 4, 2]).to(x.device)),
        lambda x: functional.mse_loss(x, st.zeros(4, 5).to(x.device)),
        lambda x: functional.binary_cross_entropy_with_logits(x, st.ones(4, 5).to(x.device)),
        lambda x: functional.smooth_l1_loss(x, x.detach() * 2),
        lambda x: functional.nll_loss(x.log_softmax(1), st.tensor([0, 1, 4, 2]).to(x.device)),
        lambda x: x.to("cpu").to(x.device) * 2,
    ],
)  # fmt: skip
def test_gradients(function):
    both(function, (4, 5))


def test_gradients_of_several():
    both(lambda x, y: (x @ y).tanh(), (3, 4), (4, 2))
    both(lambda x, w, b: functional.linear(x, w, b), (3, 4), (2, 4), (2,))
    both(lambda x, y: x / y + x**y, (3, 4), (4,))


def test_a_gradient_crosses_devices():
    x = st.ones(3, requires_grad=True)
    (x.cuda() * 2).sum().backward()
    assert x.grad.is_cpu and x.grad.tolist() == [2] * 3


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3)), (5, 6)),
    "norm": (lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)), (5, 6)),
    "dropout": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.0), nn.GELU(), nn.Linear(8, 3)), (5, 6)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_a_model_learns_as_on_the_host(name, optimizer):
    losses = []
    for device in ("cpu", "cuda"):
        st.manual_seed(5)
        model = MODELS[name][0]()
        x, target = st.randn(*MODELS[name][1]), st.tensor([0, 1, 2, 0, 1])
        model, x, target = model.to(device), x.to(device), target.to(device)
        steps = getattr(st.optim, optimizer)(model.parameters(), lr=0.01)
        losses.append([])
        for _ in range(5):
            steps.zero_grad()
            loss = functional.cross_entropy(model(x), target)
            loss.backward()
            steps.step()
            losses[-1].append(loss.item())
        assert all(p.device == p.grad.device == x.device for p in model.parameters())
    assert np.allclose(*losses, rtol=1e-3)
    assert losses[1][-1] < losses[1][0]


def test_an_embedding():
    st.manual_seed(1)
    model = nn.Embedding(10, 4).cuda()
    out = model(st.tensor([1, 3, 3], device="cuda"))
    out.sum().backward()
    assert model.weight.grad.cpu()[3].tolist() == [2] * 4


def test_momentum_and_shared_parameters():
    model = nn.Linear(3, 2).cuda()
    model.share_memory()
    assert all(p.is_shared() for p in model.parameters())
    steps = st.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    for _ in range(3):
        steps.zero_grad()
        model(st.ones(1, 3, device="cuda")).sum().backward()
        steps.step()
    assert all(p.is_shared() for p in model.parameters())
    assert nn.utils.clip_grad_norm_(model.parameters(), 0.1).is_cuda


def test_state_dicts():
    model = nn.Linear(3, 2).cuda()
    other = nn.Linear(3, 2)
    other.load_state_dict(model.state_dict())
    assert other.weight.is_cpu and other.weight.tolist() == model.weight.tolist()
    assert model.cpu().weight.is_cpu
