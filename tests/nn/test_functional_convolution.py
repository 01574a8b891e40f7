"""linear, convolutions, unfold and fold beside torch, and their refusals."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
from functional_world import beside_torch, numbers
from tiers import first

import shmtensor as st
import shmtensor.nn.functional as F  # noqa: N812  # as everybody imports it
from shmtensor.errors import DTypeError, InvalidArgument


@pytest.mark.torch
@pytest.mark.parametrize(
    "shapes", [((5, 4), (3, 4), (3,)), ((4,), (3, 4), (3,)), ((2, 5, 4), (3, 4)), ((2, 4), (4,)), ((4,), (4,))]
)
def test_linear(shapes):
    beside_torch("linear", *[numbers(*shape) for shape in shapes])


@pytest.mark.torch
def test_bilinear():
    beside_torch("bilinear", numbers(2, 3, 4), numbers(2, 3, 5), numbers(6, 4, 5), numbers(6))


def convolution(seed: int, transposed: bool) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]:
    """Shapes of input and weights, and arguments, of a random convolution that torch takes."""
    r = random.Random(seed)
    rank, groups = r.choice([1, 2, 3]), r.choice([1, 1, 2])
    size = [r.randint(1, 3) for _ in range(rank)]
    stride, dilation = [[r.randint(1, 3) for _ in range(rank)] for _ in range(2)]
    padding = [r.randint(0, 2) for _ in range(rank)]
    channels, out = groups * r.randint(1, 2), groups * r.randint(1, 2)
    lead = r.choice([(), (1,), (3,)])
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if transposed:
        how["output_padding"] = [r.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True)]
        weight = (channels, out // groups, *size)
    else:
        weight = (out, channels // groups, *size)
    return (*lead, channels, *[r.randint(7, 8) for _ in range(rank)]), weight, how


@pytest.mark.torch
@pytest.mark.parametrize("seed", first(range(24), 8))
def test_conv(seed):
    shape, weight, how = convolution(seed, False)
    bias = numbers(weight[0]) if seed % 2 else None
    beside_torch(f"conv{len(weight) - 2}d", numbers(*shape), numbers(*weight), bias, **how)


@pytest.mark.torch
@pytest.mark.parametrize("seed", first(range(24), 8))
def test_conv_transpose(seed):
    shape, weight, how = convolution(seed, True)
    bias = numbers(weight[1] * how["groups"]) if seed % 2 else None
    beside_torch(f"conv_transpose{len(weight) - 2}d", numbers(*shape), numbers(*weight), bias, **how)


@pytest.mark.torch
def test_conv_with_words_of_complex_numbers_and_tbc():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about windows of even size
        for size in (3, 4):
            beside_torch("conv2d", numbers(2, 3, 7, 6), numbers(4, 3, size, 3), padding="same", dilation=2)
    beside_torch("conv1d", numbers(2, 3, 7), numbers(4, 3, 3), padding="valid", stride=2)
    x, w = numbers(2, 3, 7) + 1j * numbers(2, 3, 7, seed=1), numbers(4, 3, 3) - 2j * numbers(4, 3, 3, seed=1)
    beside_torch("conv1d", x, w)
    beside_torch("conv_tbc", numbers(7, 2, 3), numbers(3, 3, 4), numbers(4), 1)


def test_conv_of_many_samples_is_gathered_in_parts(monkeypatch):
    x, w = st.from_numpy(numbers(5, 2, 6, 6)), st.from_numpy(numbers(3, 2, 3, 3))
    whole = F.conv2d(x, w), F.conv_transpose2d(x, w.transpose(0, 1))
    monkeypatch.setattr("shmtensor.nn.functional.convolution._LIMIT", 1)
    assert st.allclose(F.conv2d(x, w), whole[0]) and st.allclose(F.conv_transpose2d(x, w.transpose(0, 1)), whole[1])


@pytest.mark.torch
def test_unfold_and_fold():
    for how in ({}, {"dilation": 2, "stride": (2, 1)}, {"padding": (1, 2), "stride": 2}):
        beside_torch("unfold", numbers(2, 3, 7, 8), (2, 3), **how)
    beside_torch("fold", numbers(2, 18, 25), (6, 7), (2, 3))
    beside_torch("fold", numbers(18, 16), (6, 7), (2, 3), padding=1, stride=2)


def test_types_stay_and_no_argument_changes():
    x, w, b = [st.from_numpy(numbers(*shape).astype("float32")) for shape in ((4, 3), (2, 3), (2,))]
    kept = [one.clone() for one in (x, w, b)]
    assert F.linear(x, w, b).dtype == st.float32
    assert F.linear(x.to("float16"), w.to("float16")).dtype == st.float16
    assert all(bool((one == old).all()) for one, old in zip((x, w, b), kept, strict=True))
    out = st.empty(4, 2)
    assert F.linear(x, w, b, out=out) is out
    assert np.allclose(out.numpy(), x.numpy() @ w.numpy().T + b.numpy())


def test_refusals():
    x, w = st.zeros(2, 3, 8), st.zeros(4, 3, 3)
    for wrong in (
        lambda: F.linear(x, st.zeros(4, 7)),
        lambda: F.linear(x, st.zeros(4, 8), st.zeros(3)),
        lambda: F.conv1d(x, st.zeros(4, 2, 3)),
        lambda: F.conv1d(x, w, st.zeros(3)),
        lambda: F.conv1d(x, w, stride=0),
        lambda: F.conv1d(x, w, padding="some"),
        lambda: F.conv1d(x, w, padding="same", stride=2),
        lambda: F.conv1d(x, w, dilation=9),
        lambda: F.conv1d(x, w, groups=3),
        lambda: F.conv2d(x, w),
        lambda: F.conv_transpose1d(x, st.zeros(3, 2, 3), output_padding=1),
        lambda: F.conv_transpose1d(x, w),
        lambda: F.bilinear(st.zeros(2, 3), st.zeros(3, 3), st.zeros(2, 3, 3)),
        lambda: F.unfold(st.zeros(3), 2),
        lambda: F.fold(st.zeros(1, 4, 3), 4, 2),
    ):
        with pytest.raises(InvalidArgument):
            wrong()
    with pytest.raises(DTypeError, match="float32 and float64"):
        F.linear(x, st.zeros(4, 8, dtype="float64"))
    with pytest.raises(DTypeError):
        F.conv1d(x, w.to("float64"))
