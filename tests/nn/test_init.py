"""Initial values of parameters: their distributions, gains and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor import errors, nn
from shmtensor.nn import init


def drawn(fill: Any, *args: Any, shape: tuple[int, ...] = (300, 200), **how: Any) -> Any:
    """What a function fills a parameter with; the parameter is returned and stays a leaf."""
    parameter = nn.Parameter(st.zeros(shape, dtype=st.float64))
    assert fill(parameter, *args, generator=st.Generator().manual_seed(3), **how) is parameter
    assert parameter.is_leaf
    return parameter.detach().numpy()


UNIFORM: list[Any] = [
    (init.uniform_, (-2, 4), -2, 4),
    (init.xavier_uniform_, (2.0,), -2 * math.sqrt(6 / 500), 2 * math.sqrt(6 / 500)),
    (init.kaiming_uniform_, (), -math.sqrt(6 / 200), math.sqrt(6 / 200)),
    (init.kaiming_uniform_, (1, "fan_out", "leaky_relu"), -math.sqrt(3 / 300), math.sqrt(3 / 300)),
]
NORMAL: list[Any] = [
    (init.normal_, (1, 3), 1, 3),
    (init.xavier_normal_, (3.0,), 0, 3 * math.sqrt(2 / 500)),
    (init.kaiming_normal_, (0, "fan_out", "relu"), 0, math.sqrt(2 / 300)),
]


@pytest.mark.parametrize(("fill", "args", "low", "high"), UNIFORM)
def test_equally_distributed(fill: Any, args: Any, low: float, high: float) -> None:
    values = drawn(fill, *args)
    assert low <= values.min() < low + 0.01 * (high - low)
    assert high - 0.01 * (high - low) < values.max() <= high
    assert abs(values.mean() - (low + high) / 2) < 0.01 * (high - low)


@pytest.mark.parametrize(("fill", "args", "mean", "deviation"), NORMAL)
def test_normally_distributed(fill: Any, args: Any, mean: float, deviation: float) -> None:
    values = drawn(fill, *args)
    assert abs(values.mean() - mean) < 0.02 * deviation
    assert abs(values.std() - deviation) < 0.02 * deviation


@pytest.mark.parametrize("bounds", [(-2.0, 2.0), (-1.0, 0.5), (1.5, 3.0)])
def test_truncated(bounds: tuple[float, float]) -> None:
    values = drawn(init.trunc_normal_, 0.0, 1.0, *bounds)
    assert bounds[0] <= values.min()
    assert values.max() <= bounds[1]
    grid = np.linspace(*bounds, 2001)
    density = np.exp(-grid * grid / 2)
    assert abs(values.mean() - (grid * density).sum() / density.sum()) < 0.02


def test_a_mean_outside_of_the_bounds_warns() -> None:
    with pytest.warns(UserWarning, match="more than 2 std"):
        init.trunc_normal_(st.zeros(3), mean=5)


def test_constants() -> None:
    assert init.constant_(st.zeros(2), 3).tolist() == [3, 3]
    assert init.ones_(st.zeros(2)).tolist() == [1, 1]
    assert init.zeros_(st.ones(2)).tolist() == [0, 0]
    assert init.eye_(st.ones(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_dirac_keeps_channels() -> None:
    made = init.dirac_(st.ones(4, 2, 3, 3), groups=2).numpy()
    wanted = np.zeros((4, 2, 3, 3))
    wanted[[0, 1, 2, 3], [0, 1, 0, 1], 1, 1] = 1
    np.testing.assert_array_equal(made, wanted)
    assert init.dirac_(st.ones(3, 2, 4)).numpy().sum() == 2


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (3, 2, 2)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    made = drawn(init.orthogonal_, 2.0, shape=shape).reshape(shape[0], -1)
    product = made @ made.T if shape[0] <= made.shape[1] else made.T @ made
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)
    assert init.orthogonal_(st.zeros(0, 3)).shape == (0, 3)


def test_sparse_has_zeros_in_each_column() -> None:
    made = drawn(init.sparse_, 0.25, shape=(10, 7))
    assert ((made == 0).sum(0) == 3).all()


def test_older_names() -> None:
    with pytest.warns(FutureWarning, match="nn.init.uniform_"):
        assert init.uniform(st.zeros(2), 1, 1).tolist() == [1, 1]


REFUSED: list[Any] = [
    (lambda: init.calculate_gain("zork"), "Unsupported nonlinearity zork"),
    (lambda: init.calculate_gain("leaky_relu", "a"), "not a valid number"),
    (lambda: init.xavier_uniform_(st.zeros(3)), "fewer than 2 dimensions"),
    (lambda: init.kaiming_uniform_(st.zeros(3, 2), mode="x"), "Mode x not supported"),
    (lambda: init.eye_(st.zeros(3)), "2 dimensions"),
    (lambda: init.dirac_(st.zeros(3)), "3, 4, or 5 dimensions"),
    (lambda: init.dirac_(st.zeros(3, 2, 2), 2), "divisible by groups"),
    (lambda: init.orthogonal_(st.zeros(3)), "2 or more dimensions"),
    (lambda: init.sparse_(st.zeros(3), 0.5), "2 dimensions"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused(number: int) -> None:
    call, text = REFUSED[number]
    with pytest.raises(errors.InvalidArgument, match=text):
        call()


@pytest.mark.torch
def test_gains_are_torchs() -> None:
    torch: Any = pytest.importorskip("torch")
    for name in (*init._GAINS, "leaky_relu"):
        assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name), abs=1e-15)
    assert init.calculate_gain("leaky_relu", 0.2) == torch.nn.init.calculate_gain("leaky_relu", 0.2)
    public = {name for name in dir(torch.nn.init) if name.endswith("_") and not name.startswith("_")}
    assert public <= set(dir(init))
