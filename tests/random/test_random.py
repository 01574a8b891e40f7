"""Random: the stream of MT19937, single values by TH's formulas, states, processes and threads."""

from __future__ import annotations

import copy
import math
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from random_world import DISTRIBUTIONS, PlainTwister

import shmtensor
from shmtensor import random
from shmtensor.errors import DTypeError, InvalidArgument
from shmtensor.random import Generator


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


def test_a_draw_that_is_p_itself_is_a_success() -> None:
    assert all(Generator(seed).bernoulli(Generator(seed).uniform()) for seed in range(50))
    below = math.nextafter(Generator(7).uniform(), 0)
    assert not Generator(7).bernoulli(below)


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
    with pytest.raises(InvalidArgument, match="not the state"):
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
    tensors = [shmtensor.empty(200_000, dtype="int64") for _ in range(16)]
    singles: list[list[int]] = [[] for _ in range(2)]
    begin = threading.Barrier(6)
    filled = threading.Event()

    def fill_them(part: list[Any]) -> None:
        begin.wait()
        for t in part:
            random.random_(t, 0, 1 << 32, generator=g)

    def draw(values: list[int]) -> None:
        begin.wait()
        while not filled.is_set():
            values.append(g.random())

    fillers = [threading.Thread(target=fill_them, args=(tensors[i::4],)) for i in range(4)]
    drawers = [threading.Thread(target=draw, args=(values,)) for values in singles]
    for thread in [*fillers, *drawers]:
        thread.start()
    for thread in fillers:
        thread.join()
    filled.set()
    for thread in drawers:
        thread.join()
    drawn = np.concatenate([*(t.numpy() for t in tensors), *(np.array(values, np.int64) for values in singles)])
    whole = random.random_(shmtensor.empty(drawn.size, dtype="int64"), 0, 1 << 32, generator=Generator(101)).numpy()
    assert np.array_equal(np.sort(drawn), np.sort(whole))
    text = whole.tobytes()
    for t in tensors:  # each has a piece of the stream to itself
        assert t.numpy().tobytes() in text
