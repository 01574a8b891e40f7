"""Random counts: their moments, repetition by a seed, and refusals."""

from __future__ import annotations

import pytest

import shmtensor as st
from shmtensor import Generator
from shmtensor.errors import DTypeError, InvalidArgument


def test_poisson():
    rates = st.tensor([0.0, 0.5, 4.0, 100.0]).unsqueeze(1).expand(4, 20_000)
    found = st.poisson(rates, generator=Generator(1))
    assert (found.shape, found.dtype) == (rates.shape, st.float32)
    assert found[0].max().item() == 0 and found.min().item() == 0
    for row, rate in zip(found, (0, 0.5, 4, 100), strict=True):
        assert abs(row.mean().item() - rate) <= 0.05 * rate and abs(row.var().item() - rate) <= 0.1 * rate
    same = [st.poisson(rates, generator=Generator(1)).tolist(), st.random.poisson(rates, Generator(2)).tolist()]
    assert found.tolist() == same[0] != same[1]
    assert st.poisson(st.ones(3, dtype="float64")).dtype == st.float64
    with pytest.raises(DTypeError, match="int64"):
        st.poisson(st.tensor([1]))
    for wrong in (-1.0, float("nan"), 1e30):
        with pytest.raises(InvalidArgument, match="rate"):
            st.poisson(st.tensor([wrong]))


def test_binomial():
    trials = st.tensor([[0.0], [1.0], [50.0]]).expand(3, 20_000)
    found = st.binomial(trials, st.tensor(0.3), Generator(1))
    assert found.shape == trials.shape and found[0].max().item() == 0 and found[1].max().item() == 1
    assert abs(found[1].mean().item() - 0.3) < 0.02 and abs(found[2].mean().item() - 15) < 0.3
    assert abs(found[2].var().item() - 10.5) < 1
    st.manual_seed(5)
    first = st.binomial(trials, st.tensor(0.3)).tolist()
    st.manual_seed(5)
    assert st.binomial(trials, st.tensor(0.3)).tolist() == first
    for count, prob in (([1.0], [2.0]), ([-1.0], [0.5]), ([float("nan")], [0.5]), ([1.0], [float("nan")])):
        with pytest.raises(InvalidArgument):
            st.binomial(st.tensor(count), st.tensor(prob))
    with pytest.raises(InvalidArgument):
        st.binomial(st.ones(2), st.zeros(3))
    for other in (st.tensor([1]), st.ones(1, dtype="float64")):
        with pytest.raises(DTypeError):
            st.binomial(st.ones(1), other)
