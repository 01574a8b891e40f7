"""Pooling and its inverse beside torch, and their refusals."""

from __future__ import annotations

import numpy as np
import pytest
from functional_world import beside_torch, numbers
from tiers import first

import shmtensor as st
import shmtensor.nn.functional as F  # noqa: N812  # as everybody imports it
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument

SIZES = {1: (9,), 2: (8, 7), 3: (6, 5, 7)}
HOWS = [
    {}, {"stride": 1}, {"stride": 2, "padding": 1}, {"stride": 2, "ceil_mode": True},
    {"stride": 3, "padding": 1, "ceil_mode": True},
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("how", [HOWS[0], HOWS[4], *first(HOWS[1:4], 0)], ids=str)
def test_windows(rank, how):
    for lead in ((2, 3), (3,)):
        x = numbers(*lead, *SIZES[rank])
        beside_torch(f"max_pool{rank}d", x, 3, **how)
        beside_torch(f"max_pool{rank}d", x, 3, return_indices=True, **how)
        beside_torch(f"avg_pool{rank}d", x, 3, **how)
        beside_torch(f"avg_pool{rank}d", x, 3, count_include_pad=False, **how)
    beside_torch(f"max_pool{rank}d", x, 2, dilation=2, **{**how, "padding": 0})
    if rank > 1:
        beside_torch(f"avg_pool{rank}d", x, 3, divisor_override=5, **how)


@pytest.mark.torch
def test_equal_elements_nan_and_infinity():
    x = np.zeros((1, 1, 6, 6))
    x[0, 0, 2, 3] = np.nan
    x[0, 0, 4:] = -np.inf
    for how in ({}, {"padding": 1}, {"stride": 1}):
        beside_torch("max_pool2d", x, 2, return_indices=True, second=False, **how)


@pytest.mark.torch
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_windows_of_nearly_equal_size(rank):
    for lead in ((2, 3), (3,)):
        for size in (1, 3, 5, [2, 3, None][:rank]):
            x = numbers(*lead, *SIZES[rank])
            beside_torch(f"adaptive_avg_pool{rank}d", x, size)
            beside_torch(f"adaptive_max_pool{rank}d", x, size)
            beside_torch(f"adaptive_max_pool{rank}d", x, size, return_indices=True)


@pytest.mark.torch
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_norms(rank):
    x = numbers(2, 3, *SIZES[rank], of="uniform")
    for p in (1, 2, 3.5):
        beside_torch(f"lp_pool{rank}d", x, p, 2, stride=1)


@pytest.mark.torch
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_back_to_their_places(rank):
    x = numbers(2, 3, *[2 * n for n in SIZES[rank]])
    found, at = getattr(F, f"max_pool{rank}d")(st.from_numpy(x), 2, return_indices=True)
    beside_torch(f"max_unpool{rank}d", found.numpy(), at.numpy(), 2)
    beside_torch(f"max_unpool{rank}d", found.numpy(), at.numpy(), 2, output_size=[2 * n + 1 for n in SIZES[rank]])


@pytest.mark.torch
@pytest.mark.parametrize("rank", [2, 3])
def test_windows_at_random_places(rank):
    x, samples = numbers(2, 3, *[9] * rank), np.random.default_rng(0).uniform(0, 1, (2, 3, rank))
    torch = pytest.importorskip("torch")
    for how in ({"output_size": 4}, {"output_ratio": [0.5] * rank}):
        name = f"fractional_max_pool{rank}d_with_indices"
        ours, theirs = [
            getattr(library.nn.functional, name)(make(x), 2, _random_samples=make(samples), **how)
            for library, make in ((st, st.from_numpy), (torch, torch.from_numpy))
        ]
        assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(ours, theirs, strict=True))
    y = st.from_numpy(x)
    y.requires_grad = True
    getattr(F, name[: -len("_with_indices")])(y, 3, output_size=4).sum().backward()
    assert y.grad.sum().item() == 2 * 3 * 4**rank


def test_refusals():
    x = st.zeros(2, 3, 8)
    for wrong in (
        lambda: F.max_pool1d(x, 0),
        lambda: F.max_pool1d(x, 9),
        lambda: F.max_pool1d(x, 3, padding=2),
        lambda: F.max_pool1d(x, (2, 2)),
        lambda: F.avg_pool2d(st.zeros(3), 2),
        lambda: F.avg_pool2d(x, 2, divisor_override=0),
        lambda: F.adaptive_avg_pool2d(x, (1, 2, 3)),
        lambda: F.max_unpool1d(x, st.zeros(2, 3, 8), 2),
        lambda: F.max_unpool1d(x, st.zeros(2, 3, 8, dtype="int64"), 2, output_size=[40]),
        lambda: F.fractional_max_pool2d(x, 2),
        lambda: F.fractional_max_pool2d(x, 2, output_size=3, output_ratio=0.5),
        lambda: F.fractional_max_pool2d(x, 4, output_size=8),
    ):
        with pytest.raises(InvalidArgument):
            wrong()
    with pytest.raises(IndexOutOfRange):
        F.max_unpool1d(st.zeros(1, 1, 1), st.full((1, 1, 1), 9, dtype="int64"), 2)
    with pytest.raises(DTypeError):
        F.adaptive_avg_pool1d(x.to("int64"), 2)
    with pytest.raises(DTypeError):
        F.max_pool1d(x.to("complex64"), 2)
