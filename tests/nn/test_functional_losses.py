"""Losses and distances beside torch, and their refusals."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from functional_world import beside_torch, fixed, numbers
from tiers import first

import shmtensor as st
import shmtensor.nn.functional as F  # noqa: N812  # as everybody imports it
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument

pytestmark = pytest.mark.filterwarnings("ignore")
REDUCTIONS = ("mean", "sum", "none")


def classes(*shape: int, below: int = 4) -> np.ndarray:
    return np.random.default_rng(1).integers(0, below, shape)


def signs(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).choice([-1, 1], shape)


@pytest.mark.torch
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 4, 3), (2, 4, 3, 2)], ids=str)
@pytest.mark.parametrize(
    "how",
    first([{"weight": True, "ignore_index": 1}, {}, {"weight": True}, {"weight": True, "ignore_index": -7}]),
    ids=str,
)
def test_classes(shape, reduction, how):
    target = classes(*shape[:1], *shape[2:]) if len(shape) > 1 else np.array(2)
    if how.get("ignore_index", 0) < 0 and target.ndim:
        target[0] = -7
    how = {**how, "reduction": reduction}
    if how.pop("weight", False):
        how["weight"] = fixed([0.5, 2.0, 1.5, 0.3])
    x = numbers(*shape)
    beside_torch("nll_loss", x, target, **how)
    beside_torch("cross_entropy", x, target, **how)
    beside_torch("cross_entropy", x, target, **how, label_smoothing=0.2)
    soft = np.abs(numbers(*shape, seed=4))
    beside_torch("cross_entropy", x, soft, reduction=reduction, label_smoothing=0.1)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_cross_entropy_of_other_types_and_large_logits(dtype):
    x = st.tensor([[1e4, 0.0], [0.0, 1e4]], dtype=dtype, requires_grad=True)
    loss = F.cross_entropy(x, st.tensor([0, 0]))
    assert loss.dtype == x.dtype and loss.item() == 5000
    loss.backward()
    assert x.grad.tolist() == [[0, 0], [-0.5, 0.5]]


def test_cross_entropy_that_ignores_everything_is_nan():
    x = st.zeros(2, 3, requires_grad=True)
    loss = F.cross_entropy(x, st.tensor([-100, -100]))
    assert loss.isnan().item()


@pytest.mark.torch
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_of_each_element(reduction):
    x, y, how = numbers(4, 3), numbers(4, 3, seed=1), {"reduction": reduction}
    p, q = numbers(4, 3, of="uniform"), numbers(4, 3, seed=1, of="uniform")
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        beside_torch(name, x, y, **how)
    beside_torch("soft_margin_loss", x, signs(4, 3), **how)
    beside_torch("smooth_l1_loss", x, y, beta=0.3, **how)
    beside_torch("smooth_l1_loss", x, y, beta=0.0, second=False, **how)
    beside_torch("huber_loss", x, y, delta=0.4, **how)
    beside_torch("mse_loss", x, y, weight=p, **how)
    beside_torch("binary_cross_entropy", p, q, **how)
    beside_torch("binary_cross_entropy", p, q, fixed(np.abs(x)), **how)
    beside_torch("binary_cross_entropy", np.array([0.0, 1.0]), np.array([1.0, 1.0]), second=False, **how)
    beside_torch("binary_cross_entropy_with_logits", x * 5, q, **how)
    beside_torch("binary_cross_entropy_with_logits", x, q, fixed(p), pos_weight=fixed(np.abs(x[0])), **how)
    beside_torch("kl_div", np.log(p), q, **how)
    beside_torch("kl_div", np.log(p), np.log(q), log_target=True, **how)
    beside_torch("poisson_nll_loss", x, fixed(np.abs(y) * 3), full=True, **how)
    beside_torch("poisson_nll_loss", p, np.abs(y), log_input=False, **how)
    beside_torch("gaussian_nll_loss", x, y, p, full=True, **how)
    beside_torch("gaussian_nll_loss", x, y, p[:, :1], **how)
    beside_torch("gaussian_nll_loss", x, y, 0.5, **how)
    beside_torch("multilabel_soft_margin_loss", x, fixed((y > 0) * 1.0), fixed(np.abs(x[0])), **how)


@pytest.mark.torch
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_with_margins(reduction):
    x, y, how = numbers(4, 3), numbers(4, 3, seed=1), {"reduction": reduction}
    beside_torch("hinge_embedding_loss", x, signs(4, 3), margin=0.6, **how)
    beside_torch("margin_ranking_loss", x, y, signs(4, 3), margin=0.2, **how)
    for p in (1, 2):
        beside_torch("multi_margin_loss", x, classes(4, below=3), p, 0.7, fixed(np.abs(y[0])), second=False, **how)
    beside_torch("multi_margin_loss", x[0], np.array(1), second=False, **how)
    beside_torch(
        "multilabel_margin_loss", x, np.array([[0, -1, 2], [2, 1, -1], [-1] * 3, [0, 1, 2]]), second=False, **how
    )
    beside_torch("multilabel_margin_loss", x[0], np.array([1, 2, -1]), second=False, **how)
    beside_torch("cosine_embedding_loss", x, y, signs(4), margin=0.1, **how)
    beside_torch("cosine_embedding_loss", x[0], y[0], np.array(1), **how)
    for more in ({}, {"swap": True}, {"p": 3.0, "margin": 0.3}):
        beside_torch("triplet_margin_loss", x, y, x * y, **more, **how)
    beside_torch("triplet_margin_with_distance_loss", x, y, x * y, swap=True, **how)


@pytest.mark.torch
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_ctc_loss(reduction):
    torch = pytest.importorskip("torch")
    time, samples, kinds = 9, 4, 5
    x = numbers(time, samples, kinds)
    lengths, sizes = np.array([9, 7, 5, 3]), np.array([4, 3, 0, 3])
    labels = classes(samples, 4, below=kinds - 1) + 1
    labels[1, 1] = labels[1, 0]
    labels[3] = 2  # does not fit in three steps: infinite
    for joined in (False, True):
        targets = np.concatenate([row[:n] for row, n in zip(labels, sizes, strict=True)]) if joined else labels
        found = []
        for library, make in ((st, st.from_numpy), (torch, torch.from_numpy)):
            logits = make(x.copy())
            logits.requires_grad = True
            loss = library.nn.functional.ctc_loss(
                library.nn.functional.log_softmax(logits, 2), make(targets), make(lengths), make(sizes),
                reduction=reduction, zero_infinity=True,
            )  # fmt: skip
            loss.sum().backward()
            found.append((loss.detach().numpy(), logits.grad.numpy()))
        for ours, theirs in zip(*found, strict=True):
            assert np.allclose(ours, theirs, 1e-8, 1e-10)


@pytest.mark.torch
def test_distances():
    x, y = numbers(4, 3), numbers(4, 3, seed=1)
    for p in (1.0, 2.0, 3.0):
        beside_torch("pairwise_distance", x, y, p)
        beside_torch("normalize", x, p)
        beside_torch("pdist", x, p, second=False)
    beside_torch("cosine_similarity", x, y)
    beside_torch("cosine_similarity", numbers(1, 2, 3), numbers(2, 1, 3), dim=-2)
    beside_torch("normalize", np.zeros((2, 3)), second=False)


@pytest.mark.torch
def test_linear_cross_entropy():
    beside_torch("linear_cross_entropy", numbers(4, 3), numbers(5, 3), classes(4, below=5), linear_bias=numbers(5))


def test_refusals():
    x, t = st.zeros(2, 3), st.zeros(2, dtype="int64")
    for wrong in (
        lambda: F.nll_loss(x, st.zeros(3, dtype="int64")),
        lambda: F.nll_loss(x, t, st.zeros(4)),
        lambda: F.cross_entropy(x, t, reduction="some"),
        lambda: F.cross_entropy(x, t, label_smoothing=2.0),
        lambda: F.mse_loss(x, x, reduction="batchmean"),
        lambda: F.huber_loss(x, x, delta=0),
        lambda: F.smooth_l1_loss(x, x, beta=-1),
        lambda: F.binary_cross_entropy(x, st.zeros(3)),
        lambda: F.binary_cross_entropy(x + 2, x),
        lambda: F.gaussian_nll_loss(x, x, x - 1),
        lambda: F.multi_margin_loss(x, t, p=3),
        lambda: F.multilabel_margin_loss(x, t),
        lambda: F.triplet_margin_loss(x, x, x, margin=0),
        lambda: F.ctc_loss(st.zeros(3, 1, 2), st.zeros((1, 1), dtype="int64"), [4], [1]),
    ):
        with pytest.raises(InvalidArgument):
            wrong()
    for target in ([3, 0], [-1, 0]):
        with pytest.raises(IndexOutOfRange):
            F.cross_entropy(x, st.tensor(target))
        with pytest.raises(IndexOutOfRange):
            F.nll_loss(x, st.tensor(target))
    with pytest.raises(DTypeError):
        F.nll_loss(x, st.zeros(2))
    with pytest.raises(DTypeError):
        F.cross_entropy(x.to("int64"), t)


def test_what_broadcasts_warns():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        F.mse_loss(st.zeros(2, 3), st.zeros(3))
    assert "broadcast" in str(found[0].message)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
@pytest.mark.parametrize("weight", [None, 0.5])
def test_gradients_of_ignored_targets_alone_are_zero(name, weight):
    torch = pytest.importorskip("torch")
    for library in (st, torch):
        x = library.tensor([[0.5, 2.0], [1.0, -1.0]], requires_grad=True)
        how = {} if weight is None else {"weight": library.tensor([weight, weight])}
        loss = getattr(library.nn.functional, name)(x, library.tensor([-100, -100]), **how)
        (first,) = library.autograd.grad(loss, x, create_graph=True)
        assert np.isnan(loss.item())
        assert first.tolist() == [[0, 0], [0, 0]]
        if name == "cross_entropy":
            (second,) = library.autograd.grad(first.sum(), x)
            assert second.tolist() == [[0, 0], [0, 0]]
