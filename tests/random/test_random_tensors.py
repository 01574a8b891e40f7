"""Tensors filled with random values: each element equals the next single call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_world import COMPLEX, EVERY_DTYPE, FLOATS, INTEGERS, LAYOUTS, REALS, fill

import shmtensor
from shmtensor import random
from shmtensor.dtypes import dtype_of
from shmtensor.errors import DTypeError, InvalidArgument, LayoutError
from shmtensor.random import Generator

# -- tensors as single calls ------------------------------------------------------------------------------------------


def rounded(values: list[Any], dtype: str) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype in INTEGERS:
            return np.array(values, np.int64).astype(dtype_of(dtype))
        return np.array(values, np.float64).astype(dtype_of(dtype))


@pytest.mark.parametrize(("name", "arguments", "dtype"), EVERY_DTYPE)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_filled_tensor_has_the_values_of_single_calls(
    name: str, arguments: tuple[float, ...], dtype: str, layout: str
) -> None:
    g, single = Generator(17), Generator(17)
    g.normal(), single.normal()  # so that a value is kept
    t = LAYOUTS[layout](dtype)
    assert fill(name, t, *arguments, generator=g) is t
    if name == "geometric":  # of a tensor torch's p, of a generator TH's
        arguments = (1 - arguments[0],)
    values = rounded([getattr(single, name)(*arguments) for _ in range(t.numel())], dtype)
    assert np.array_equal(t.numpy().reshape(-1), values, equal_nan=True)  # reshape: the logical order
    assert g.get_state().tolist() == single.get_state().tolist()


@given(st.lists(st.integers(0, 1200), max_size=6), st.integers(0, 2**32 - 1))
def test_normal_values_in_pieces_of_any_length(lengths: list[int], seed: int) -> None:
    g, single = Generator(seed), Generator(seed)
    for length in lengths:
        t = random.normal_(shmtensor.empty(length, dtype="float64"), 2, 3, generator=g)
        assert t.tolist() == [single.normal(2, 3) for _ in range(length)]
    assert g.get_state().tolist() == single.get_state().tolist()


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_fills_with_draws_modulo_the_range_of_the_type(dtype: str, layout: str) -> None:
    g, single = Generator(23), Generator(23)
    t = random.random_(LAYOUTS[layout](dtype), generator=g)
    draws = [single.random() % values_of(dtype) for _ in range(t.numel())]
    assert t.numpy().astype(np.int64).reshape(-1).tolist() == draws


def values_of(dtype: str) -> int:
    if dtype == "bool":
        return 2
    if dtype in INTEGERS:
        return int(np.iinfo(dtype).max) + 1
    digits = {"float16": 11, "float32": 24, "float64": 53, "bfloat16": 8}
    return 2 ** (digits[dtype] if dtype in digits else significant_bits(dtype)) + 1


def significant_bits(dtype: str) -> int:
    """Of a float8: the integers that it holds without a gap have at most so many."""
    return next(bits for bits in range(1, 8) if float(dtype_of(dtype).type(2**bits + 1)) != 2**bits + 1)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("int8", -128, 128),
        ("uint8", 3, 200),
        ("int16", -7, 9),
        ("int32", -(2**31), 2**31),
        ("int64", 5, 6),
        ("int64", -(2**31), 2**31),
        ("float32", -1000, 1000),
        ("float16", 0, 2048),
        ("float64", -(2**20), 2**20 + 1),
        ("bool", 0, 2),
    ],
)
def test_clamped_random(dtype: str, low: int, high: int) -> None:
    g, single = Generator(29), Generator(29)
    t = random.random_(shmtensor.empty(40, 25, dtype=dtype), low, high, generator=g)
    values = t.numpy().astype(np.int64).reshape(-1).tolist()
    assert values == [single.random() % (high - low) + low for _ in range(1000)]
    capped = random.random_(shmtensor.empty(50, dtype=dtype), high, generator=g)
    assert capped.numpy().astype(np.int64).tolist() == [single.random() % high for _ in range(50)]


@pytest.mark.parametrize(("low", "high"), [(0, 2**32 + 1), (-(2**40), 2**41), (-(2**63), 2**63)])
def test_more_values_than_a_draw_has_take_two(low: int, high: int) -> None:
    g, single = Generator(31), Generator(31)
    t = random.randint(low, high, 1000, generator=g)
    assert t.tolist() == [(single.random() * 2**32 + single.random()) % (high - low) + low for _ in range(1000)]


# -- other arguments of the tensor functions --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_with_tensors_of_means_and_deviations(dtype: str) -> None:
    means = random.rand(30, 20, dtype=dtype)
    stdvs = random.rand(30, 20, dtype=dtype)
    standard = random.randn(30, 20, dtype=dtype, generator=Generator(37)).numpy()
    scaled = random.normal_(shmtensor.empty(30, 20, dtype=dtype), 0, 0.5, generator=Generator(37)).numpy()
    for mean, stdv, wanted in [
        (means, stdvs, standard * stdvs.numpy() + means.numpy()),
        (means, 0.5, scaled + means.numpy()),
        (2.0, stdvs, standard * stdvs.numpy() + 2),
        (means[0], stdvs, standard * stdvs.numpy() + means.numpy()[0]),
    ]:
        t = random.normal(mean, stdv, generator=Generator(37))
        assert t.dtype == dtype and np.array_equal(t.numpy(), wanted)
        into = shmtensor.empty(20, 30, dtype=dtype).t()
        assert np.array_equal(random.normal_(into, mean, stdv, generator=Generator(37)).numpy(), wanted)
    assert random.normal(1.0, 2.0, (4, 5)).shape == (4, 5)
    own = means.clone()
    assert np.array_equal(
        random.normal_(own, own, stdvs, generator=Generator(37)).numpy(), standard * stdvs.numpy() + means.numpy()
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", REALS)
def test_bernoulli_with_a_probability_for_each_element(dtype: str, target: str) -> None:
    p = random.rand(40, 30, dtype=dtype, generator=Generator(41))
    g, single = Generator(43), Generator(43)
    t = random.bernoulli_(shmtensor.empty(40, 30, dtype=target), p, generator=g)
    wanted = [single.bernoulli(chance) for chance in p.numpy().reshape(-1).tolist()]
    assert t.numpy().astype(bool).reshape(-1).tolist() == wanted
    drawn = random.bernoulli(p, generator=Generator(43))
    assert drawn.dtype == p.dtype and drawn.numpy().astype(bool).reshape(-1).tolist() == wanted
    row = random.bernoulli_(shmtensor.empty(40, 30, dtype=target), p[3], generator=Generator(43))
    single = Generator(43)
    assert row.numpy().astype(bool).reshape(-1).tolist() == [single.bernoulli(c) for c in p[3].tolist() * 40]
    draws = random.rand(900, dtype="float64", generator=Generator(43))
    assert random.bernoulli(draws, generator=Generator(43)).tolist() == [1] * 900  # u <= p
    random.bernoulli_(p, p, generator=Generator(43))
    assert p.numpy().astype(bool).reshape(-1).tolist() == wanted


def test_new_tensors() -> None:
    for shared in (False, True):
        made = [
            random.rand(2, 3, shared=shared),
            random.randn((2, 3), dtype="float64", shared=shared),
            random.randint(5, (2, 3), shared=shared),
            random.randint(-5, 5, (2, 3), dtype="int8", shared=shared),
            random.rand_like(shmtensor.zeros(2, 3, dtype="float64"), shared=shared),
            random.randn_like(shmtensor.zeros(2, 3), shared=shared),
            random.randint_like(shmtensor.zeros(2, 3, dtype="uint8"), 9, shared=shared),
            random.randint_like(shmtensor.zeros(2, 3), -9, 9, dtype="int16", shared=shared),
        ]
        assert [t.shape for t in made] == [(2, 3)] * 8
        assert [t.is_shared() for t in made] == [shared] * 8
        dtypes = ["float32", "float64", "int64", "int8", "float64", "float32", "uint8", "int16"]
        assert [t.dtype.name for t in made] == dtypes
        assert random.randperm(9, shared=shared).is_shared() == shared
    assert random.rand(50, generator=Generator(1)).tolist() == [
        np.float32(v) for g in [Generator(1)] for v in [g.uniform() for _ in range(50)]
    ]


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_numbers_are_two_values_each(dtype: str) -> None:
    real = {"complex64": "float32", "complex128": "float64"}[dtype]
    t = random.uniform_(shmtensor.empty(40, 30, dtype=dtype).t(), -1, 1, generator=Generator(11))
    parts = random.uniform_(shmtensor.empty(2400, dtype=real), -1, 1, generator=Generator(11))
    assert t.numpy().reshape(-1).tolist() == parts.numpy().view(dtype).tolist()
    t = random.normal_(shmtensor.empty(40, 30, dtype=dtype), 3, 2, generator=Generator(11))
    parts = random.normal_(shmtensor.empty(2400, dtype=real), 0, 2 / math.sqrt(2), generator=Generator(11))
    assert t.numpy().reshape(-1).tolist() == (parts.numpy().view(dtype) + np.dtype(dtype).type(3)).tolist()
    for name in ("random", "bernoulli", "exponential", "cauchy", "log_normal"):
        with pytest.raises(DTypeError, match=dtype):
            fill(name, t)
    for call in (lambda: random.randperm(3, dtype=dtype), lambda: random.geometric_(t, 0.5)):
        with pytest.raises(DTypeError, match=dtype):
            call()


def test_methods_take_the_tensor_first() -> None:
    for name in (*random.distributions.METHODS, *random.sampling.METHODS):
        t = shmtensor.full((8,), 0.5)
        rest = {"geometric_": (0.5,), "multinomial": (2,)}.get(name, ())
        result = getattr(random, name)(t, *rest)
        assert (result is t) == name.endswith("_")


def test_values_beyond_a_narrow_type() -> None:
    t = random.normal_(shmtensor.empty(100, dtype="float16"), 0, 1e6)
    assert np.isinf(t.numpy()).sum() > 50
    g, single = Generator(2), Generator(2)
    t = random.geometric_(shmtensor.empty(1000, dtype="int8"), 0.001, generator=g)
    values = [single.geometric(1 - 0.001) for _ in range(1000)]
    assert max(values) > 128 and t.tolist() == np.array(values).astype(np.int8).tolist()


# -- moments ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "mean", "variance"),
    [
        ("uniform", (2.0, 6.0), 4.0, 16 / 12),
        ("normal", (-1.0, 3.0), -1.0, 9.0),
        ("exponential", (0.5,), 2.0, 4.0),
        ("log_normal", (0.0, 0.5), math.exp(0.125), (math.exp(0.25) - 1) * math.exp(0.25)),
        ("geometric", (0.25,), 1 / 0.25, 0.75 / 0.25**2),
        ("bernoulli", (0.2,), 0.2, 0.16),
    ],
)
def test_moments(name: str, arguments: tuple[float, ...], mean: float, variance: float) -> None:
    count = 200_000
    values = fill(name, shmtensor.empty(count, dtype="float64"), *arguments, generator=Generator(47)).numpy()
    assert abs(values.mean() - mean) < 5 * math.sqrt(variance / count)
    assert values.var() == pytest.approx(variance, rel=0.03)


def test_quantiles_of_the_cauchy_distribution() -> None:
    values = random.cauchy_(shmtensor.empty(200_000, dtype="float64"), 3, 2, generator=Generator(53)).numpy()
    assert np.quantile(values, [0.25, 0.5, 0.75]) == pytest.approx([1, 3, 5], abs=0.05)


# -- bad input --------------------------------------------------------------------------------------------------------

T = shmtensor.ones(6)
D = shmtensor.ones(6, dtype="float64")
WHOLE = shmtensor.ones(6, dtype="int64")
ALIASES = shmtensor.zeros(6, dtype="int64")

BAD_NUMBERS: list[tuple[str, tuple[Any, ...], str]] = [
    ("uniform", (2, 1), "above the upper"),
    ("uniform", (math.nan, 1), "not finite"),
    ("uniform", (-1e308, 1e308), "not finite"),
    ("normal", (0, -1), "-1 is negative"),
    ("normal", (math.inf, 1), "not finite"),
    ("normal", (10**400, 1), "not finite"),
    ("log_normal", (0, -0.5), "-0.5 is negative"),
    ("exponential", (0,), "lambd 0"),
    ("exponential", (-2.5,), "lambd -2.5"),
    ("cauchy", (0, 0), "sigma 0"),
    ("cauchy", (0, -1), "sigma -1"),
    ("geometric", (0,), "p 0"),
    ("geometric", (1,), "p 1"),
    ("geometric", (-0.25,), "p -0.25"),
    ("bernoulli", (1.5,), "p 1.5"),
    ("bernoulli", (-0.1,), "p -0.1"),
    ("bernoulli", (math.nan,), "not finite"),
]


@pytest.mark.parametrize(("name", "arguments", "words"), BAD_NUMBERS)
def test_parameters_that_describe_no_distribution(name: str, arguments: tuple[Any, ...], words: str) -> None:
    g = Generator(1)
    before = g.get_state().tolist()
    with pytest.raises(InvalidArgument, match=words):
        getattr(g, name)(*arguments)
    t = shmtensor.zeros(5)
    with pytest.raises(InvalidArgument, match=words):
        fill(name, t, *arguments, generator=g)
    assert g.get_state().tolist() == before and t.tolist() == [0] * 5
    for value in ("a", "0.5", None, 1j, [0.5]):
        with pytest.raises(DTypeError, match="not a number"):
            fill(name, t, value, generator=g)
    with pytest.raises(InvalidArgument, match="item"):
        fill(name, t, shmtensor.ones(2), generator=g) if name not in ("normal", "bernoulli") else g.uniform(T)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: random.random_(WHOLE, 5, 5), "from 5 to 5"),
        (lambda: random.random_(WHOLE, 5, 1), "from 5 to 1"),
        (lambda: random.random_(WHOLE, 0), "from 0 to 0"),
        (lambda: random.random_(WHOLE, -3), "from 0 to -3"),
        (lambda: random.random_(shmtensor.empty(2, dtype="uint8"), 0, 257), "uint8, which holds 0 to 255"),
        (lambda: random.random_(shmtensor.empty(2, dtype="int8"), -129, 0), "int8, which holds -128"),
        (lambda: random.random_(WHOLE, 0, 2**63 + 1), "int64"),
        (lambda: random.random_(shmtensor.empty(2, dtype="bool"), 3), "bool"),
        (lambda: random.random_(shmtensor.empty(2, dtype="float16"), 70_000), "float16"),
        (lambda: random.randint(3, 3, 4), "from 3 to 3"),
        (lambda: random.randperm(-1), "n -1 is negative"),
        (lambda: random.randperm(300, dtype="uint8"), "300 in uint8, which has only 256"),
        (lambda: random.randperm(2050, dtype="float16"), "float16"),
        (lambda: random.rand(-1), "negative"),
        (lambda: random.normal(T, -1), "-1 is negative"),
        (lambda: random.normal(T, -T), "negative"),
        (lambda: random.normal(T, shmtensor.full(6, math.nan)), "negative"),
        (lambda: random.normal(T, shmtensor.ones(4)), "do not match"),
        (lambda: random.normal_(T, shmtensor.ones(4)), "broadcast"),
        (lambda: random.normal_(T, shmtensor.ones(2, 6)), "broadcast"),
        (lambda: random.normal(0, 1), "size"),
        (lambda: random.normal(T, 1, 6), "size"),
        (lambda: random.bernoulli(T * 2), "from 0 to 1"),
        (lambda: random.bernoulli_(T, shmtensor.full(6, math.nan)), "from 0 to 1"),
        (lambda: random.bernoulli_(T, shmtensor.ones(2, 6)), "broadcast"),
        (lambda: random.multinomial(T, 7), "7 draws.*only 6"),
        (lambda: random.multinomial(shmtensor.tensor([1.0, 0.0, 2.0]), 3), "3 draws.*only 2"),
        (lambda: random.multinomial(T, 0), "num_samples is 0"),
        (lambda: random.multinomial(T, -1), "num_samples -1"),
        (lambda: random.multinomial(T * 0, 1), "all 0"),
        (lambda: random.multinomial(shmtensor.tensor([[1.0, 1.0], [0.0, 0.0]]), 1), "all 0"),
        (lambda: random.multinomial(shmtensor.tensor([1.0, -1.0, 5.0]), 1), "negative"),
        (lambda: random.multinomial(shmtensor.tensor([1.0, math.inf]), 1), "not finite"),
        (lambda: random.multinomial(shmtensor.tensor([1e308] * 3, dtype="float64"), 1), "not finite"),
        (lambda: random.multinomial(shmtensor.empty(0), 1), r"shape \(0,\)"),
        (lambda: random.multinomial(shmtensor.ones(2, 2, 2), 1), r"shape \(2, 2, 2\)"),
        (lambda: random.multinomial_alias_setup(T * 0), "all 0"),
        (lambda: random.multinomial_alias_setup(-T), "negative"),
        (lambda: random.multinomial_alias_setup(shmtensor.ones(2, 3)), r"shape \(2, 3\)"),
        (lambda: random.multinomial_alias_draw(ALIASES, T[:5], 1), "shapes"),
        (lambda: random.multinomial_alias_draw(ALIASES + 6, T, 1), "not a category"),
        (lambda: random.multinomial_alias_draw(ALIASES - 1, T, 1), "not a category"),
        (lambda: random.multinomial_alias_draw(ALIASES, T * 2, 1), "0 to 1"),
        (lambda: random.multinomial_alias_draw(ALIASES, T, 0), "num_samples is 0"),
    ],
)
def test_values_that_are_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        *[
            (lambda name=name: fill(name, WHOLE.clone()), f"{name}_ of a tensor of int64")
            for name in ("uniform", "normal", "log_normal", "exponential", "cauchy")
        ],
        (lambda: random.geometric_(shmtensor.empty(2, dtype="bool"), 0.5), "bool"),
        (lambda: random.uniform_(np.zeros(3)), "ndarray"),
        (lambda: random.rand(3, dtype="int32"), "int32"),
        (lambda: random.randint(0.5, 3, 2), "integers"),
        (lambda: random.random_(WHOLE, "a"), "integers"),
        (lambda: random.random_(WHOLE, None, 4), "integers"),
        (lambda: random.rand(3, generator=np.random), "generator is a module"),
        (lambda: random.normal(WHOLE, 1), "int64"),
        (lambda: random.bernoulli(WHOLE), "int64"),
        (lambda: random.bernoulli_(T, WHOLE), "int64"),
        (lambda: random.multinomial(WHOLE, 1), "int64"),
        (lambda: random.multinomial(np.ones(3), 1), "ndarray"),
        (lambda: random.multinomial(T, 1.5), "num_samples 1.5"),
        (lambda: random.multinomial_alias_setup(WHOLE), "int64"),
        (lambda: random.multinomial_alias_draw(T, T, 1), "alias table"),
        (lambda: random.randperm("a"), "n 'a'"),
        (lambda: random.rand_like(np.ones(3)), "ndarray"),
    ],
)
def test_types_that_are_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(DTypeError, match=words):
        call()


@pytest.mark.parametrize("name", ["uniform_", "normal_", "random_", "bernoulli_", "exponential_"])
def test_memory_that_is_read_only_here(name: str) -> None:
    array = np.zeros(100)
    array.flags.writeable = False
    t = shmtensor.zeros(100, dtype="float64")
    t._array = array
    with pytest.raises(LayoutError, match="read-only"):
        getattr(random, name)(t)
