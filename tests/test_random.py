"""Random: the stream of MT19937, TH's distributions by TH's formulas, and tensors filled as single calls would."""

from __future__ import annotations

import copy
import math
import multiprocessing
import os
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmtensor
from shmtensor import random
from shmtensor.errors import DTypeError, InvalidArgument, LayoutError
from shmtensor.random import Generator

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
ALL = (*FLOATS, *INTEGERS, "bool")
N = 1500  # above two blocks of words, and odd pairs of blocks of draws


class PlainTwister:
    """MT19937 and TH's formulas, written out."""

    def __init__(self, seed: int) -> None:
        self.words = [seed & 0xFFFFFFFF]
        for j in range(1, 624):
            last = self.words[-1]
            self.words.append((1812433253 * (last ^ (last >> 30)) + j) & 0xFFFFFFFF)
        self.next = 624
        self.kept: tuple[float, float] | None = None

    def draw(self) -> int:
        w = self.words
        if self.next == 624:
            for i in range(624):
                mixed = (w[i] & 0x80000000) | (w[(i + 1) % 624] & 0x7FFFFFFF)
                w[i] = w[(i + 397) % 624] ^ (mixed >> 1) ^ (0x9908B0DF if mixed & 1 else 0)
            self.next = 0
        y = w[self.next]
        self.next += 1
        y ^= y >> 11
        y ^= (y << 7) & 0x9D2C5680
        y ^= (y << 15) & 0xEFC60000
        return y ^ (y >> 18)

    def u(self) -> float:
        return self.draw() * 2.0**-32

    def uniform(self, a: float, b: float) -> float:
        return self.u() * (b - a) + a

    def normal(self, mean: float, stdv: float) -> float:
        if self.kept is not None:
            x, rho = self.kept
            self.kept = None
            return rho * math.sin(2 * math.pi * x) * stdv + mean
        x = self.u()
        y = self.u()
        rho = math.sqrt(-2 * math.log(1 - y))
        self.kept = x, rho
        return rho * math.cos(2 * math.pi * x) * stdv + mean

    def exponential(self, rate: float) -> float:
        return -1 / rate * math.log(1 - self.u())

    def cauchy(self, median: float, sigma: float) -> float:
        return median + sigma * math.tan(math.pi * (self.u() - 0.5))

    def log_normal(self, mean: float, stdv: float) -> float:
        return math.exp(self.normal(mean, stdv))

    def geometric(self, p: float) -> int:
        return int(math.log(1 - self.u()) / math.log(p)) + 1

    def bernoulli(self, p: float) -> bool:
        return self.u() <= p


# name, arguments, the dtypes that take it
DISTRIBUTIONS: list[tuple[str, tuple[float, ...], tuple[str, ...]]] = [
    ("uniform", (-2.0, 5.0), FLOATS),
    ("normal", (1.5, 0.25), FLOATS),
    ("exponential", (0.7,), FLOATS),
    ("cauchy", (1.0, 2.0), FLOATS),
    ("log_normal", (0.5, 0.75), FLOATS),
    ("geometric", (0.4,), (*FLOATS, *INTEGERS)),
    ("bernoulli", (0.3,), ALL),
]
EVERY_DTYPE = [(name, arguments, dtype) for name, arguments, dtypes in DISTRIBUTIONS for dtype in dtypes]
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda dtype: shmtensor.empty(N, dtype=dtype),
    "transposed": lambda dtype: shmtensor.empty(50, 30, dtype=dtype).t(),
    "with gaps": lambda dtype: shmtensor.empty(2 * N, 3, dtype=dtype)[::2, 1],
    "shared": lambda dtype: shmtensor.empty(3, 500, dtype=dtype, shared=True),
    "one": lambda dtype: shmtensor.empty((), dtype=dtype),
    "none": lambda dtype: shmtensor.empty(0, 4, dtype=dtype),
}


def fill(name: str, t: Any, *arguments: Any, generator: Generator | None = None) -> Any:
    return getattr(random, f"{name}_")(t, *arguments, generator=generator)


@pytest.fixture
def default_kept() -> Iterator[None]:
    """The default generator as it was, whatever a test does with it."""
    state = random.get_rng_state()
    yield
    random.set_rng_state(state)


# -- the stream -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_stream_is_that_of_numpy(first: int) -> None:
    for seed in [*range(first, first + 50), *(2**32 - 1 - first - i for i in range(10)), 7919**2 * (first + 1) % 2**32]:
        g = Generator(seed)
        theirs = np.random.RandomState(seed)
        t = random.random_(shmtensor.empty(1300, dtype="float64"), 0, 1 << 32, generator=g)
        assert np.array_equal(t.numpy(), theirs.randint(0, 1 << 32, 1300, dtype=np.uint32))
        assert [g.random() for _ in range(5)] == theirs.randint(0, 1 << 32, 5, dtype=np.uint32).tolist()


@pytest.mark.parametrize("seed", [2**32, 2**32 + 5, 2**63 + 17, 2**64 - 1, -1, -(2**63)])
def test_seeds_above_32_bits_make_the_stream_of_their_lower_ones(seed: int) -> None:
    g = Generator().manual_seed(seed)
    low = Generator(seed & 0xFFFFFFFF)
    assert [g.random() for _ in range(700)] == [low.random() for _ in range(700)]
    assert g.initial_seed() == seed % 2**64
    assert low.initial_seed() == seed & 0xFFFFFFFF


def test_plain_twister_agrees() -> None:
    g, plain = Generator(5489), PlainTwister(5489)
    assert [g.random() for _ in range(2000)] == [plain.draw() for _ in range(2000)]
    assert Generator(5489).random() == 3499211612  # the first number of the authors' own program


def test_seeds_from_the_system_differ() -> None:
    g = Generator()
    seeds = {g.seed() for _ in range(20)} | {Generator().initial_seed() for _ in range(20)}
    assert len(seeds) == 40
    assert g.initial_seed() in seeds


def test_seeding_forgets_the_kept_normal() -> None:
    g = Generator(3)
    first = g.normal()
    g.manual_seed(3)
    assert g.normal() == first
    assert Generator(3).normal() == first


def test_default_generator(default_kept: None) -> None:
    assert random.manual_seed(12) is random.default_generator
    assert random.initial_seed() == 12
    t = random.rand(100)
    assert t.tolist() == random.rand(100, generator=Generator(12)).tolist()
    state = random.get_rng_state()
    values = random.randn(7).tolist()
    random.set_rng_state(state)
    assert random.randn(7).tolist() == values
    assert random.seed() == random.initial_seed()


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_seeds_of_more_than_64_bits_are_refused(seed: int) -> None:
    with pytest.raises(InvalidArgument, match="64 bits"):
        Generator(1).manual_seed(seed)


@pytest.mark.parametrize("seed", [1.5, "7", True])
def test_seeds_that_are_no_integers_are_refused(seed: Any) -> None:
    with pytest.raises(DTypeError, match="not an integer"):
        Generator(seed)


# -- single values by TH's formulas -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "arguments"), [(name, arguments) for name, arguments, _ in DISTRIBUTIONS])
@pytest.mark.parametrize("seed", [0, 1, 42, 2**32 - 1])
def test_values_are_those_of_the_formula(name: str, arguments: tuple[float, ...], seed: int) -> None:
    g, plain = Generator(seed), PlainTwister(seed)
    ours = [getattr(g, name)(*arguments) for _ in range(1001)]
    formula = [getattr(plain, name)(*arguments) for _ in range(1001)]
    assert ours == formula
    assert type(ours[0]) is type(formula[0])
    assert g.random() == plain.draw()


def test_distributions_mixed_keep_their_places_in_the_stream() -> None:
    g, plain = Generator(99), PlainTwister(99)
    for turn in range(200):
        name, arguments, _ = DISTRIBUTIONS[turn * 5 % len(DISTRIBUTIONS)]
        assert getattr(g, name)(*arguments) == pytest.approx(getattr(plain, name)(*arguments), rel=1e-14)


# -- tensors as single calls ------------------------------------------------------------------------------------------


def rounded(values: list[Any], dtype: str) -> Any:
    with np.errstate(over="ignore"):
        if np.dtype(dtype).kind in "iu":
            return np.array(values, np.int64).astype(dtype)
        return np.array(values, np.float64).astype(dtype)


@pytest.mark.parametrize(("name", "arguments", "dtype"), EVERY_DTYPE)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_filled_tensor_has_the_values_of_single_calls(
    name: str, arguments: tuple[float, ...], dtype: str, layout: str
) -> None:
    g, single = Generator(17), Generator(17)
    g.normal(), single.normal()  # so that a value is kept
    t = LAYOUTS[layout](dtype)
    assert fill(name, t, *arguments, generator=g) is t
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


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_fills_with_draws_modulo_the_range_of_the_type(dtype: str, layout: str) -> None:
    th = {"uint8": 2**8, "int8": 2**7, "int16": 2**15, "int32": 2**31, "int64": 2**63, "bool": 2}
    th |= {"float16": 2**11 + 1, "float32": 2**24 + 1, "float64": 2**53 + 1}
    g, single = Generator(23), Generator(23)
    t = random.random_(LAYOUTS[layout](dtype), generator=g)
    draws = [single.random() % th[dtype] for _ in range(t.numel())]
    assert t.numpy().astype(np.int64).reshape(-1).tolist() == draws


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
@pytest.mark.parametrize("target", ALL)
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
    random.bernoulli_(p, p, generator=Generator(43))
    assert p.numpy().astype(bool).reshape(-1).tolist() == wanted


def test_new_tensors() -> None:
    for shared in (False, True):
        made = [
            random.rand(2, 3, shared=shared),
            random.randn((2, 3), dtype="float64", shared=shared, requires_grad=True),
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
        assert made[1].requires_grad and not made[0].requires_grad
        assert random.randperm(9, shared=shared).is_shared() == shared
    assert random.rand(50, generator=Generator(1)).tolist() == [
        np.float32(v) for g in [Generator(1)] for v in [g.uniform() for _ in range(50)]
    ]


def test_methods_take_the_tensor_first() -> None:
    for name in random.METHODS:
        t = shmtensor.full((8,), 0.5)
        rest = {"geometric_": (0.5,), "multinomial": (2,)}.get(name, ())
        result = getattr(random, name)(t, *rest)
        assert (result is t) == name.endswith("_")


def test_values_beyond_a_narrow_type() -> None:
    t = random.normal_(shmtensor.empty(100, dtype="float16"), 0, 1e6)
    assert np.isinf(t.numpy()).sum() > 50
    g, single = Generator(2), Generator(2)
    t = random.geometric_(shmtensor.empty(1000, dtype="int8"), 0.999, generator=g)
    values = [single.geometric(0.999) for _ in range(1000)]
    assert max(values) > 128 and t.tolist() == np.array(values).astype(np.int8).tolist()


# -- moments ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "mean", "variance"),
    [
        ("uniform", (2.0, 6.0), 4.0, 16 / 12),
        ("normal", (-1.0, 3.0), -1.0, 9.0),
        ("exponential", (0.5,), 2.0, 4.0),
        ("log_normal", (0.0, 0.5), math.exp(0.125), (math.exp(0.25) - 1) * math.exp(0.25)),
        ("geometric", (0.25,), 1 / 0.75, 0.25 / 0.75**2),
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


# -- states -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draws", [0, 1, 2, 622, 623, 624, 625, 1248, 2000])
@pytest.mark.parametrize("normals", [0, 1, 2])
def test_states_go_on_where_they_were_taken(draws: int, normals: int) -> None:
    g = Generator(2**40 + 59)
    for _ in range(draws):
        g.random()
    for _ in range(normals):
        g.normal()
    state = g.get_state()
    assert state.shape == (random.STATE_BYTES,) == (5048,) and state.dtype == shmtensor.uint8
    copies = [Generator(0).set_state(state), pickle.loads(pickle.dumps(g)), copy.deepcopy(g), copy.copy(g)]
    wanted = [g.normal(), g.normal(), g.random(), g.uniform(), g.normal()]
    assert state.tolist() != g.get_state().tolist()
    for other in copies:
        assert [other.normal(), other.normal(), other.random(), other.uniform(), other.normal()] == wanted
        assert other.initial_seed() == 2**40 + 59
        assert other.get_state().tolist() == g.get_state().tolist()


def test_a_state_is_the_struct_of_th() -> None:
    g = Generator(61)
    first = g.normal(), g.get_state().numpy()
    state = first[1]
    assert state[:8].view(np.uint64).tolist() == [61]
    assert state[8:16].view(np.int32).tolist() == [624 - 1, 1]  # left, seeded
    assert state[16:24].view(np.uint64).tolist() == [2]  # next
    plain = PlainTwister(61)
    x, y = plain.u(), plain.u()
    assert state[24:5016].view(np.uint64).tolist() == plain.words
    rho = math.sqrt(-2 * math.log(1 - y))
    assert state[5016:5040].view(np.float64).tolist() == pytest.approx([x, y, rho], rel=1e-15)
    assert state[5040:5044].view(np.int32).tolist() == [1]
    state[8:16].view(np.int32)[0], state[16:24] = 1, 0  # as TH leaves them after seeding: words that are to be renewed
    again = Generator(0).set_state(shmtensor.from_numpy(state))
    assert again.normal() == g.normal()
    plain.next = 624
    assert again.random() == plain.draw()


def test_a_state_in_shared_memory() -> None:
    g = Generator(67)
    state = g.get_state().share_memory_()
    wanted = [g.random() for _ in range(10)]
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        own = Generator(0).set_state(state)
        sender.send([own.random() for _ in range(10)])
        state.copy_(own.get_state())

    process = context.Process(target=child)
    process.start()
    assert receiver.recv() == wanted
    process.join()
    assert Generator(0).set_state(state).random() == g.random()


def spoil(at: int, dtype: Any, value: Any) -> Callable[[Any], None]:
    def spoiled(state: Any) -> None:
        state[at : at + np.dtype(dtype).itemsize].view(dtype)[0] = value

    return spoiled


@pytest.mark.parametrize(
    "spoiled",
    [
        spoil(12, np.int32, 0),
        spoil(8, np.int32, 0),
        spoil(8, np.int32, 626),
        spoil(8, np.int32, -5),
        spoil(16, np.uint64, 625),
        spoil(16, np.uint64, 2**64 - 1),
        spoil(16, np.uint64, 7),
        spoil(28, np.uint32, 1),
        spoil(5040, np.int32, 2),
        spoil(5040, np.int32, -1),
        spoil(5016, np.float64, 1.0),
        spoil(5024, np.float64, math.nan),
        spoil(5032, np.float64, math.inf),
        lambda state: state.fill(0),
        lambda state: state.fill(255),
        lambda state: state[24:5016].fill(0),
    ],
)
def test_what_is_no_state_is_refused(spoiled: Callable[[Any], None]) -> None:
    g = Generator(71)
    g.normal()
    before = g.get_state()
    state = before.clone()
    spoiled(state.numpy())
    with pytest.raises(InvalidArgument, match="no state"):
        g.set_state(state)
    assert g.get_state().tolist() == before.tolist()


@pytest.mark.parametrize("shape", [(5047,), (0,), (5049,), (1, 5048), (8, 631)])
def test_states_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgument, match="5048"):
        Generator(1).set_state(shmtensor.zeros(shape, dtype="uint8"))


@pytest.mark.parametrize("state", [shmtensor.zeros(5048), b"\0" * 5048, np.zeros(5048, np.uint8), None])
def test_states_of_another_type_are_refused(state: Any) -> None:
    with pytest.raises(DTypeError, match="uint8"):
        Generator(1).set_state(state)


# -- processes and threads --------------------------------------------------------------------------------------------


def in_fork(function: Callable[[], Any]) -> Any:
    """What a function gives in a forked child."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, pickle.dumps(function()))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return pickle.loads(found)


def test_a_fork_goes_on_with_the_stream_of_a_seed(default_kept: None) -> None:
    random.manual_seed(73)
    own = Generator(79)
    state_set = Generator().set_state(Generator(83).get_state())
    random.default_generator.normal()

    def values() -> list[float]:
        return [g.normal() for g in (random.default_generator, own, state_set)]

    assert in_fork(values) == values()


def test_a_fork_takes_a_seed_of_its_own_where_none_was_given(default_kept: None) -> None:
    random.seed()
    own = Generator()

    def seeds() -> list[int]:
        return [random.initial_seed(), own.initial_seed()]

    before = seeds()
    children = [in_fork(seeds) for _ in range(3)]
    assert seeds() == before
    assert len({seed for pair in [before, *children] for seed in pair}) == 8
    random.seed()
    assert in_fork(random.initial_seed) != random.initial_seed()


def test_a_fork_while_another_thread_draws_does_not_hang() -> None:
    g = Generator(89)
    large = shmtensor.empty(400_000)
    stop = threading.Event()

    def draw() -> None:
        while not stop.is_set():
            random.normal_(large, generator=g)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        assert all(math.isfinite(in_fork(g.normal)) for _ in range(20))
    finally:
        stop.set()
        thread.join()


def spawned_seed(connection: Any) -> None:
    connection.send(random.initial_seed())


def test_a_spawned_process_has_a_seed_of_its_own(default_kept: None) -> None:
    random.manual_seed(97)
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=spawned_seed, args=(sender,))
    process.start()
    assert receiver.recv() != 97
    process.join()


def test_threads_share_a_stream() -> None:
    g = Generator(101)
    tensors = [shmtensor.empty(20_000, dtype="int64") for _ in range(8)]
    singles: list[list[int]] = [[] for _ in range(2)]

    def fill_them(part: list[Any]) -> None:
        for t in part:
            random.random_(t, 0, 1 << 32, generator=g)

    threads = [threading.Thread(target=fill_them, args=(tensors[i::4],)) for i in range(4)]
    threads += [threading.Thread(target=lambda s=s: s.extend(g.random() for _ in range(2000))) for s in singles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = random.random_(shmtensor.empty(8 * 20_000 + 4000, dtype="int64"), 0, 1 << 32, generator=Generator(101))
    stream = whole.tolist()
    assert Counter([v for t in tensors for v in t.tolist()] + singles[0] + singles[1]) == Counter(stream)
    text = whole.numpy().tobytes()
    for t in tensors:  # each has a piece of the stream to itself
        assert t.numpy().tobytes() in text


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
    shares = np.bincount(drawn.numpy(), minlength=30) / 20_000
    assert shares == pytest.approx((weights.numpy() / weights.numpy().sum()).tolist(), abs=0.01)


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
    with pytest.raises(DTypeError, match="no number"):
        fill(name, t, "a", generator=g)


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
        (lambda: random.normal(T, shmtensor.ones(4)), "do not go together"),
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
        (lambda: random.multinomial_alias_draw(ALIASES + 6, T, 1), "no category"),
        (lambda: random.multinomial_alias_draw(ALIASES - 1, T, 1), "no category"),
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
