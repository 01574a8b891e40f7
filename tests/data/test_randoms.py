"""Random numbers of samples: the same for the same seed, epoch and index, in any process."""

import pickle
import random
import subprocess
import sys
import threading

import numpy as np
import pytest

import shmtensor as st
from shmtensor.data import WorkerInfo, get_worker_info, sample_generator
from shmtensor.data.randoms import (
    Reseeding,
    begin_sample,
    draw_seed,
    end_samples,
    generator_of,
    index_word,
    mixed,
    set_worker_info,
)
from shmtensor.errors import DTypeError, InvalidArgument


@pytest.fixture(autouse=True)
def no_sample_left():
    yield
    end_samples()
    set_worker_info(None)


def test_numbers_depend_on_seed_epoch_and_index():
    seen = set()
    for seed in (0, 1, 2**63):
        for epoch in range(3):
            for index in (0, 1, 2**40, -1, "a", ("a", 1)):
                begin_sample(seed, epoch, index)
                values = tuple(sample_generator().integers(2**60, size=4))
                begin_sample(seed, epoch, index)
                assert values == tuple(sample_generator().integers(2**60, size=4))
                seen.add(values)
    assert len(seen) == 3 * 3 * 6


def test_the_generator_is_one_object_during_a_sample():
    begin_sample(1, 2, 3)
    first = sample_generator()
    assert sample_generator() is first and first.random() != sample_generator().random()
    begin_sample(1, 2, 4)
    kept = first.random()
    assert sample_generator() is not first
    again = generator_of(1, 2, 3)
    assert again.random(3)[2] == kept  # one that was kept goes on with its own numbers


def test_it_is_philox_with_the_documented_key():
    expected = np.random.Generator(np.random.Philox(key=np.array([mixed(5, 6), 7], np.uint64)))
    assert generator_of(5, 6, 7).random(9).tolist() == expected.random(9).tolist()
    assert pickle.loads(pickle.dumps(generator_of(5, 6, 7))).random() == generator_of(5, 6, 7).random()


def test_numbers_are_the_same_in_another_process():
    """Also of keys that are no integers: Python's own hash of them differs."""
    code = """
from shmtensor.data.randoms import generator_of, index_word
print(generator_of(1, 2, 3).integers(1000, size=3).tolist(), index_word("a"), index_word(("a", 1)))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    here = f"{generator_of(1, 2, 3).integers(1000, size=3).tolist()} {index_word('a')} {index_word(('a', 1))}"
    assert done.stdout.strip() == here


def test_integers_of_numpy_are_the_same_index():
    assert index_word(np.int64(-3)) == index_word(-3) and index_word(5) == 5


def test_numbers_of_neighbours_are_not_related():
    values = np.array([generator_of(0, 0, index).random(2) for index in range(2000)])
    assert abs(values.mean() - 0.5) < 0.02
    assert abs(np.corrcoef(values[:-1, 0], values[1:, 0])[0, 1]) < 0.08
    assert abs(np.corrcoef(values[:, 0], values[:, 1])[0, 1]) < 0.08


def test_each_thread_has_its_sample():
    begin_sample(1, 1, 1)
    found = []

    def load():
        begin_sample(1, 1, 2)
        found.append(sample_generator().random())

    thread = threading.Thread(target=load)
    thread.start()
    thread.join(30)
    assert found == [generator_of(1, 1, 2).random()]
    assert sample_generator().random() == generator_of(1, 1, 1).random()


def test_without_a_loader_the_default_generator_seeds_it():
    st.manual_seed(4)
    first, second = sample_generator().random(), sample_generator().random()
    st.manual_seed(4)
    assert sample_generator().random() == first != second


def test_seeds_are_drawn_from_any_generator():
    for make in (lambda: st.Generator(3), lambda: np.random.default_rng(3)):
        one, two = make(), make()
        assert draw_seed(one) == draw_seed(two) != draw_seed(one)
        assert all(0 <= draw_seed(one) < 2**63 for _ in range(100))
    with pytest.raises(DTypeError, match="Random"):
        draw_seed(random.Random(1))


def test_seeds_are_those_that_torch_draws():
    torch = pytest.importorskip("torch")
    expected = torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(9)).item()
    assert draw_seed(st.Generator(9)) == draw_seed(torch.Generator().manual_seed(9)) == expected


# -- libraries ---------------------------------------------------------------------------------------------------------

DRAW = {"python": random.random, "numpy": np.random.rand, "shmtensor": lambda: st.rand(1).item()}


def drawing(name):
    if name == "torch":
        torch = pytest.importorskip("torch")
        return lambda: torch.rand(1).item()
    return DRAW[name]


@pytest.mark.parametrize("name", ["python", "numpy", "shmtensor", "torch"])
def test_reseeding(name):
    draw, reseed = drawing(name), Reseeding([name])
    seen = {}
    for key in [(1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0), (1, 0, "a")] * 2:
        reseed(*key)
        assert seen.setdefault(key, draw()) == seen[key]
        reseed(*key)
        assert draw() == seen[key]
    assert len(set(seen.values())) == 5
    with reseed.preserved():
        reseed(1, 0, 0)
        expected = draw()
        with pytest.raises(ZeroDivisionError), reseed.preserved():
            reseed(2, 0, 0)
            raise ZeroDivisionError
        following = draw()
    reseed(1, 0, 0)
    assert [draw(), draw()] == [expected, following]


def test_libraries_get_different_seeds():
    reseed = Reseeding(("python", "numpy", "shmtensor", "numpy"))
    assert reseed.names == ("python", "numpy", "shmtensor")
    reseed(1, 2, 3)
    words = np.random.get_state()[1][:3].tolist()
    assert words != np.random.RandomState(st.default_generator.initial_seed() & 0xFFFFFFFF).get_state()[1][:3].tolist()


def test_reseeding_is_sent_by_names():
    reseed = pickle.loads(pickle.dumps(Reseeding("python")))
    reseed(1, 2, 3)
    expected = random.random()
    Reseeding("python")(1, 2, 3)
    assert random.random() == expected
    with pytest.raises(InvalidArgument, match="cupy"):
        Reseeding(("cupy",))
    for bad in (5, [5], [["python"]], None):
        with pytest.raises(InvalidArgument, match="give names of 'python'"):
            Reseeding(bad)  # type: ignore[arg-type]


# -- the worker --------------------------------------------------------------------------------------------------------


def test_worker_info():
    assert get_worker_info() is None
    set_worker_info(WorkerInfo(1, 4, 77, "data"))
    info = get_worker_info()
    assert (info.id, info.num_workers, info.seed, info.dataset) == (1, 4, 77, "data")
