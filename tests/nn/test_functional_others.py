"""Normalization, embeddings, padding, interpolation and grids beside torch, and their refusals."""

from __future__ import annotations

import numpy as np
import pytest
from functional_world import beside_torch, fixed, numbers

import shmtensor as st
import shmtensor.nn.functional as F  # noqa: N812  # as everybody imports it
from shmtensor.autograd.sparse import SparseGradient
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument


@pytest.mark.torch
@pytest.mark.parametrize("weights", [True, False])
def test_normalization(weights):
    x, w, b = numbers(4, 6, 5) * 3 + 1, numbers(6), numbers(6, seed=1)
    last = (numbers(6, 5), numbers(6, 5, seed=2)) if weights else ()
    w, b = (w, b) if weights else (None, None)
    beside_torch("layer_norm", x, (6, 5), *last)
    beside_torch("layer_norm", x, (5,), eps=0.3)
    beside_torch("rms_norm", x, (6, 5), *last[:1])
    beside_torch("rms_norm", x, (5,), eps=0.1)
    beside_torch("group_norm", x, 3, w, b)
    beside_torch("instance_norm", x, None, None, w, b)
    for shape in ((8, 6), (4, 6, 5), (2, 6, 3, 2)):
        beside_torch("batch_norm", numbers(*shape) * 2 - 1, None, None, w, b, True)
        beside_torch("batch_norm", numbers(*shape), fixed(numbers(6)), fixed(np.abs(numbers(6)) + 1), w, b)
    for size in (2, 3):
        beside_torch("local_response_norm", x, size, alpha=0.1)
        beside_torch("local_response_norm", numbers(2, 6, 3, 2), size, beta=0.5, k=2.0)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_running_averages(name):
    torch = pytest.importorskip("torch")
    x = numbers(4, 3, 5)
    found = []
    for library, make in ((st, st.from_numpy), (torch, torch.from_numpy)):
        mean, var = make(np.ones(3)), make(np.full(3, 2.0))
        getattr(library.nn.functional, name)(make(x.copy()), mean, var, None, None, True, 0.3)
        found.append((mean.numpy(), var.numpy()))
    assert all(np.allclose(a, b, 1e-12) for a, b in zip(*found, strict=True))


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(), (4,), (3, 5)])
def test_embedding(shape):
    at = np.random.default_rng(0).integers(0, 6, shape)
    for how in ({}, {"padding_idx": 2}, {"padding_idx": -1}, {"scale_grad_by_freq": True}):
        beside_torch("embedding", at, numbers(6, 3), second="scale_grad_by_freq" not in how, **how)


@pytest.mark.torch
def test_embedding_with_a_largest_norm_changes_the_table():
    torch = pytest.importorskip("torch")
    table, at = numbers(6, 3) * 3, np.array([0, 2, 2])
    ours, theirs = st.from_numpy(table.copy()), torch.from_numpy(table.copy())
    for norm in (1.0, 2.0):
        a = F.embedding(st.from_numpy(at), ours, max_norm=1.5, norm_type=norm)
        b = torch.nn.functional.embedding(torch.from_numpy(at), theirs, max_norm=1.5, norm_type=norm)
        assert np.allclose(a.numpy(), b.numpy()) and np.allclose(ours.numpy(), theirs.numpy())


def test_sparse_gradient_of_an_embedding():
    at = st.tensor([[3, 1], [1, 2]])
    sparse, dense = [st.from_numpy(numbers(6, 3)) for _ in range(2)]
    sparse.requires_grad = dense.requires_grad = True
    (gradient,) = st.autograd.grad(F.embedding(at, sparse, padding_idx=2, sparse=True).square().sum(), sparse)
    (whole,) = st.autograd.grad(F.embedding(at, dense, padding_idx=2).square().sum(), dense)
    assert isinstance(gradient, SparseGradient) and gradient.is_sparse and gradient.shape == (6, 3)
    assert gradient._indices().tolist() == [[3, 1, 1]] and gradient._values().shape == (3, 3)
    assert st.allclose(gradient.to_dense(), whole)
    once = gradient.coalesce()
    assert once.is_coalesced() and once.indices().tolist() == [[1, 3]] and once.coalesce() is once
    assert st.allclose(once.to_dense(), whole) and st.allclose((gradient + once).to_dense(), 2 * whole)
    assert st.allclose(gradient + whole, 2 * whole) and st.allclose((gradient * 3).to_dense(), 3 * whole)
    with pytest.raises(InvalidArgument, match="coalesce"):
        gradient.indices()
    with pytest.raises(InvalidArgument):
        SparseGradient(st.tensor([0]), st.zeros(2, 3), (6, 3))


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode):
    at, starts = np.random.default_rng(0).integers(0, 6, 9), np.array([0, 3, 3, 7])
    table = numbers(6, 3)
    for how in ({}, {"padding_idx": 1}):
        beside_torch("embedding_bag", at, table, starts, mode=mode, second=False, **how)
        beside_torch("embedding_bag", at.reshape(3, 3), table, mode=mode, second=False, **how)
    beside_torch("embedding_bag", at, table, np.append(starts, 9), mode=mode, include_last_offset=True, second=False)
    if mode == "sum":
        beside_torch("embedding_bag", at, table, starts, mode=mode, per_sample_weights=numbers(9), second=False)


def test_one_hot():
    assert F.one_hot(st.tensor([[0, 2]])).tolist() == [[[1, 0, 0], [0, 0, 1]]]
    assert F.one_hot(st.tensor([1]), 4).tolist() == [[0, 1, 0, 0]] and F.one_hot(st.tensor(1), 2).shape == (2,)


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_edges(mode):
    for shape, sizes in (
        ((2, 3, 5), (2, 1)),
        ((3, 5), (1, 3)),
        ((2, 3, 5, 4), (2, 1, 0, 3)),
        ((2, 2, 4, 3, 5), (1, 2, 2, 0, 1, 1)),
    ):
        beside_torch("pad", numbers(*shape), sizes, mode)
    if mode != "reflect":
        beside_torch("pad", numbers(2, 3, 5), (-1, 2), mode)
    beside_torch("pad", numbers(3), (1, 2), "constant", 3.0)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("mode", "rank"),
    [("nearest", 1), ("nearest", 2), ("nearest-exact", 3), ("linear", 1), ("bilinear", 2), ("bicubic", 2),
     ("trilinear", 3), ("area", 1), ("area", 2)],
)  # fmt: skip
def test_other_sizes(mode, rank):
    x = numbers(2, 3, *(7, 5, 6)[:rank])
    for how in ({"size": (9, 3, 8)[:rank]}, {"scale_factor": 1.7}, {"scale_factor": 0.6}, {"size": (7, 5, 6)[:rank]}):
        beside_torch("interpolate", x, mode=mode, **how)
        if "scale_factor" in how:
            beside_torch("interpolate", x, mode=mode, recompute_scale_factor=True, **how)
        if "linear" in mode or "cubic" in mode:
            beside_torch("interpolate", x, mode=mode, align_corners=True, **how)
        if rank == 2 and mode.startswith("bi"):
            beside_torch("interpolate", x, mode=mode, antialias=True, second=False, **how)


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_grids(mode, padding, align):
    for shape, grid in (((2, 3, 5, 6), (2, 4, 3, 2)), ((2, 3, 4, 5, 3), (2, 2, 3, 2, 3))):
        if mode != "bicubic" or len(shape) == 4:
            beside_torch("grid_sample", numbers(*shape), numbers(*grid), mode, padding, align, second=False)
    for size in ((2, 3, 4, 5), (2, 3, 2, 4, 5)):
        beside_torch("affine_grid", numbers(2, len(size) - 2, len(size) - 1), size, align)


@pytest.mark.torch
def test_shuffling():
    beside_torch("pixel_shuffle", numbers(2, 12, 3, 4), 2)
    beside_torch("pixel_unshuffle", numbers(2, 3, 4, 6), 2)
    beside_torch("channel_shuffle", numbers(2, 6, 3, 4), 3, second=False)


def test_refusals():
    x, image = st.zeros(2, 3), st.zeros(2, 3, 4, 5)
    for wrong in (
        lambda: F.layer_norm(x, (2,)),
        lambda: F.layer_norm(x, (3,), st.zeros(2)),
        lambda: F.group_norm(x, 2),
        lambda: F.batch_norm(x, None, None),
        lambda: F.batch_norm(st.zeros(1, 3), None, None, training=True),
        lambda: F.batch_norm(x, st.zeros(2), st.zeros(3)),
        lambda: F.instance_norm(st.zeros(2, 3, 1)),
        lambda: F.embedding(st.tensor([0]), st.zeros(3)),
        lambda: F.embedding(st.tensor([0]), x, padding_idx=2),
        lambda: F.embedding_bag(st.tensor([0]), x),
        lambda: F.embedding_bag(st.tensor([[0]]), x, mode="min"),
        lambda: F.one_hot(st.tensor([-1])),
        lambda: F.one_hot(st.tensor([3]), 3),
        lambda: F.pad(image, (1, 1), "mirror"),
        lambda: F.pad(image, (5, 5, 1, 1), "reflect"),
        lambda: F.pad(image, (1, 1, 1, 1), "reflect", 2.0),
        lambda: F.interpolate(image),
        lambda: F.interpolate(image, 3, 2),
        lambda: F.interpolate(image, 3, mode="linear"),
        lambda: F.interpolate(image, 3, align_corners=True),
        lambda: F.grid_sample(image, st.zeros(2, 3, 3, 3)),
        lambda: F.grid_sample(image, st.zeros(2, 3, 3, 2), "cubic"),
        lambda: F.affine_grid(st.zeros(2, 2, 2), (2, 3, 4, 5)),
        lambda: F.pixel_shuffle(image, 2),
        lambda: F.pixel_unshuffle(image, 2),
        lambda: F.channel_shuffle(image, 2),
    ):
        with pytest.raises(InvalidArgument):
            wrong()
    for at in (2, -1):
        with pytest.raises(IndexOutOfRange):
            F.embedding(st.tensor([at]), x)
    for wrong in (lambda: F.embedding(st.zeros(1), x), lambda: F.one_hot(x), lambda: F.layer_norm(x.to("int64"), (3,))):
        with pytest.raises(DTypeError):
            wrong()


def test_nothing_imports_it_unasked():
    import subprocess
    import sys

    code = "import sys, shmtensor; shmtensor.zeros(2); sys.exit('shmtensor.nn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
