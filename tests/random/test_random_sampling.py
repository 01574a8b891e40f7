"""New random tensors, permutations, and categories drawn by their weights, as TH draws them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_world import FLOATS, PlainTwister

import shmtensor
from shmtensor import random
from shmtensor.random import Generator

# -- permutations and categories --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 7, 1000])
@pytest.mark.parametrize("dtype", [None, "int32", "int16", "float32", "float64"])
def test_randperm_makes_the_exchanges_of_th(n: int, dtype: str | None) -> None:
    g, plain = Generator(103), PlainTwister(103)
    order = list(range(n))
    for i in range(n - 1):
        z = plain.draw() % (n - i)
        order[i], order[i + z] = order[i + z], order[i]
    t = random.randperm(n, dtype=dtype, generator=g)
    assert t.tolist() == order and t.dtype.name == (dtype or "int64")
    assert g.random() == plain.draw()


def th_multinomial(plain: PlainTwister, weights: list[float], count: int, replacement: bool) -> list[int]:
    """TH's, for weights above 0."""
    total = 0.0
    upto = []
    for weight in weights:
        total += weight
        upto.append(total)
    upto = [share / total for share in upto]
    drawn = []
    for _ in range(count):
        share = plain.uniform(0, 1)
        upto[-1] = 1.0
        left, right = 0, len(upto)
        while right > left:
            middle = left + (right - left) // 2
            if upto[middle] < share:
                left = middle + 1
            else:
                right = middle
        drawn.append(left)
        if not replacement:
            lost = upto[left] - (upto[left - 1] if left else 0.0)
            upto = [(v - lost if k >= left else v) / (1.0 - lost) for k, v in enumerate(upto)] if lost < 1 else upto
    return drawn


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial_draws_as_th(dtype: str, replacement: bool) -> None:
    weights = random.uniform_(shmtensor.empty(6, 40, dtype=dtype), 0.1, 3, generator=Generator(107))
    plain = PlainTwister(109)
    count = 30
    wanted = [th_multinomial(plain, row, count, replacement) for row in weights.tolist()]
    assert random.multinomial(weights, count, replacement, generator=Generator(109)).tolist() == wanted
    rows = weights.clone().t().contiguous().t()
    assert random.multinomial(rows, count, replacement, generator=Generator(109)).tolist() == wanted
    g = Generator(109)
    assert [random.multinomial(row, count, replacement, generator=g).tolist() for row in weights] == wanted
    assert g.random() == plain.draw()


def test_multinomial_follows_the_weights() -> None:
    weights = shmtensor.tensor([0.0, 1.0, 0.0, 3.0, 6.0, 0.0])
    drawn = random.multinomial(weights, 100_000, True, generator=Generator(113)).numpy()
    shares = np.bincount(drawn, minlength=6) / 100_000
    assert shares == pytest.approx([0, 0.1, 0, 0.3, 0.6, 0], abs=0.01) and shares[0] == shares[2] == shares[5] == 0


def test_multinomial_without_replacement_draws_each_once() -> None:
    weights = random.rand(200, 50, generator=Generator(127))
    weights[:, 7] = 0
    drawn = random.multinomial(weights, 49, generator=Generator(131))
    assert drawn.shape == (200, 49)
    for row in drawn.tolist():
        assert sorted(row) == [i for i in range(50) if i != 7]
    firsts = random.multinomial(shmtensor.tensor([[1.0, 2.0, 3.0]] * 20_000), 2, generator=Generator(137)).numpy()
    pairs = Counter(map(tuple, firsts.tolist()))
    for (a, b), times in pairs.items():
        wanted = (a + 1) / 6 * (b + 1) / (6 - (a + 1))
        assert times / 20_000 == pytest.approx(wanted, abs=0.015)


def shares_of(aliases: Any, q: Any) -> list[float]:
    shares = [0.0] * len(aliases)
    for i, (other, kept) in enumerate(zip(aliases.tolist(), q.tolist(), strict=True)):
        shares[i] += kept / len(aliases)
        shares[other] += (1 - kept) / len(aliases)
    return shares


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60).filter(lambda weights: sum(weights) > 1e-3))
def test_alias_tables_hold_the_weights(weights: list[float]) -> None:
    aliases, q = random.multinomial_alias_setup(shmtensor.tensor(weights, dtype="float64"))
    assert shares_of(aliases, q) == pytest.approx([w / sum(weights) for w in weights], abs=1e-12)
    assert all(0 <= kept <= 1 for kept in q.tolist())


def test_alias_tables_are_those_of_th() -> None:
    weights = random.uniform_(shmtensor.empty(30, dtype="float64"), 0.1, 3, generator=Generator(139))
    total = weights.numpy().sum()
    q = [30 * (w / total) for w in weights.tolist()]
    aliases = [0] * 30
    smaller = [i for i in range(30) if q[i] < 1]
    larger = [i for i in range(30) if q[i] >= 1]
    while smaller and larger:
        large, small = larger[-1], smaller[-1]
        aliases[small] = large
        q[large] -= 1 - q[small]
        if q[large] < 1:
            smaller[-1] = larger.pop()
        else:
            smaller.pop()
    ours = random.multinomial_alias_setup(weights)
    for i, (other, kept) in enumerate(zip(*(table.tolist() for table in ours), strict=True)):
        assert (kept == 1 and other == i) or (other == aliases[i] and kept == pytest.approx(q[i], rel=1e-14))


@pytest.mark.parametrize("dtype", FLOATS)
def test_alias_draws_take_a_slot_and_then_it_or_its_alias(dtype: str) -> None:
    weights = random.uniform_(shmtensor.empty(30, dtype=dtype), 0.1, 3, generator=Generator(139))
    aliases, q = random.multinomial_alias_setup(weights)
    assert q.dtype == dtype and aliases.dtype == shmtensor.int64
    g, plain = Generator(149), PlainTwister(149)
    wanted = []
    for _ in range(20_000):
        slot = int(plain.uniform(0, 30))
        wanted.append(slot if plain.bernoulli(q[slot].item()) else aliases[slot].item())
    drawn = random.multinomial_alias_draw(aliases, q, 20_000, generator=g)
    assert drawn.tolist() == wanted
    first, second = (plain.u() for plain in [PlainTwister(151)] for _ in range(2))
    edge = shmtensor.tensor([second] * 2, dtype="float64"), shmtensor.tensor([1, 0])
    assert random.multinomial_alias_draw(edge[1], edge[0], 1, generator=Generator(151)).tolist() == [int(2 * first)]
    shares = np.bincount(drawn.numpy(), minlength=30) / 20_000
    assert shares == pytest.approx(shares_of(aliases, q), abs=0.01)
