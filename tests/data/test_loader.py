"""DataLoader over map-style and iterable datasets: the same batches with any number of workers and start method."""

from __future__ import annotations

import gc
import io
import itertools
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_world import Decoded, Epochs, Filled, Many, Mixed, Numbered, Random, Rows, Slow, Stream
from manager_world import BOUND, SUPPORT, is_alive, is_one_interrupt, until
from tiers import first

import shmtensor as st
from shmtensor.data import DataLoader, Subset, TensorDataset, default_collate, get_worker_info, pad_collate
from shmtensor.errors import InvalidArgument, QuotaExceeded

pytestmark = pytest.mark.usefixtures("in_time")


def plain(tree: Any) -> Any:
    """A batch as lists and numbers, to compare."""
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [plain(value) for value in tree]
    return tree.tolist() if hasattr(tree, "tolist") else tree


def batches(dataset: Any, *args: Any, **kwargs: Any) -> Any:
    return plain(list(DataLoader(dataset, *args, **kwargs)))


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_are_those_of_the_samples(workers, drop_last):
    found = list(DataLoader(Numbered(), 5, drop_last=drop_last, num_workers=workers))
    assert len(found) == (4 if drop_last else 5)
    for number, batch in enumerate(found):
        indices = list(range(23))[5 * number : 5 * number + 5]
        assert batch["x"].shape == (len(indices), 3, 4) and batch["x"].dtype == st.float32
        assert batch["x"][:, 0, 0].tolist() == indices
        assert batch["pair"][0].tolist() == indices and batch["pair"][0].dtype == st.int64
        assert list(batch["pair"][1]) == [str(index) for index in indices]
        assert number == 0 or batch["x"].is_shared() == (workers > 0)


@pytest.mark.parametrize(
    "dataset",
    [Random(), Numbered(), Stream(), Decoded(), Filled(), Many(), Subset(Random(), range(7, 33))],
    ids=lambda one: type(one).__name__,
)
def test_all_numbers_of_workers_give_the_same(dataset):
    kwargs: dict[str, Any] = {} if isinstance(dataset, Stream) else {"shuffle": True}
    wanted = batches(dataset, 5, seed=3, **kwargs)
    for workers in (1, 3):
        loader = DataLoader(dataset, 5, seed=3, num_workers=workers, persistent_workers=True, **kwargs)
        assert plain(list(loader)) == wanted
        again = plain(list(loader))
        if kwargs or isinstance(dataset, Decoded):
            assert again != wanted, "another epoch has the same random numbers"
        assert sorted(map(len, again)) == sorted(map(len, wanted))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("dataset", [Random(), Decoded()], ids=["map", "stream"])
def test_all_start_methods_give_the_same(method, dataset):
    assert batches(dataset, 4, seed=1, num_workers=2, multiprocessing_context=method) == batches(dataset, 4, seed=1)


def test_samples_of_a_subset_have_random_numbers_of_their_own():
    rows = np.array(batches(Subset(Random(), range(7, 15)), 8)[0]) - Rows().x[7:15]
    assert len({row.tobytes() for row in rows}) == 8


def test_a_context_of_the_standard_module_says_the_start_method():
    context = multiprocessing.get_context("fork")
    assert batches(Rows(), 9, num_workers=2, multiprocessing_context=context) == batches(Rows(), 9)


def noise(_: Any) -> float:
    return float(np.random.random())


class Reseeded(Rows):
    def __getitem__(self, index: int) -> Any:
        return noise(index)


def test_reseeded_libraries_draw_the_same_with_any_number_of_workers():
    state = np.random.get_state()[1].tolist()  # type: ignore[index]
    wanted = batches(Reseeded(), 7, seed=1, reseed="numpy")
    assert np.random.get_state()[1].tolist() == state  # type: ignore[index]
    assert batches(Reseeded(), 7, seed=1, reseed="numpy", num_workers=3) == wanted
    assert batches(Reseeded(), 7, seed=2, reseed="numpy") != wanted
    epochs = [plain(list(loader)) for loader in [DataLoader(Reseeded(), 7, seed=1, reseed="numpy")] for _ in range(2)]
    assert epochs[0] == wanted != epochs[1]
    different = [value for batch in batches(Reseeded(), 7, num_workers=3) for value in batch]
    assert len(set(different)) == len(different), "workers draw the same numbers"


@pytest.mark.parametrize("persistent", [False, True])
def test_libraries_that_are_not_reseeded_draw_other_numbers_in_each_epoch(persistent):
    loader = DataLoader(Reseeded(), 64, num_workers=1, seed=1, persistent_workers=persistent)
    one, two = plain(list(loader)), plain(list(loader))
    assert not set(one[0]) & set(two[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_without_batches_each_sample_is_converted(workers):
    found = list(DataLoader(Numbered(4), None, num_workers=workers))
    assert [sample["x"].shape for sample in found] == [(3, 4)] * 4
    assert [sample["pair"][0] for sample in found] == [0, 1, 2, 3]
    found = list(DataLoader(Stream(4), None, num_workers=workers))
    assert plain(found) == [[n] * 3 for n in range(4)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_collate_function_makes_the_batch(workers):
    found = list(
        DataLoader(Rows(10), 4, num_workers=workers, collate_fn=lambda samples: [os.getpid(), np.stack(samples)])
    )
    assert all((pid == os.getpid()) == (workers == 0) for pid, _ in found)
    assert [len(array) for _, array in found] == [4, 4, 2] and type(found[0][1]) is np.ndarray


@pytest.mark.parametrize("workers", [0, 2])
def test_samplers_give_the_order(workers):
    assert batches(Rows(10, ()), 3, sampler=[4, 2, 9, 9], num_workers=workers) == [[4, 2, 9], [9]]
    assert batches(Rows(10, ()), batch_sampler=[[1], [2, 3], [8, 0, 1]], num_workers=workers) == [
        [1],
        [2, 3],
        [8, 0, 1],
    ]
    assert batches({"a": 1, "b": 2}, 2, sampler=["b", "a"], num_workers=workers) == [[2, 1]]


@pytest.mark.parametrize("workers", [1, 3])
def test_without_order_every_batch_comes_once(workers):
    found = batches(Slow(40), 4, num_workers=workers, in_order=False)
    assert sorted(found) == batches(Slow(40), 4)


def test_without_order_a_slow_batch_holds_up_nobody(tmp_path):
    class Held(Rows):
        def __getitem__(self, index: int) -> Any:
            if index == 5:
                until((tmp_path / "go on").exists, "the other batches")
            return index

    iterator = iter(DataLoader(Held(20), 2, num_workers=2, in_order=False))
    found = [next(iterator).tolist() for _ in range(4)]
    (tmp_path / "go on").touch()
    assert [4, 5] not in found and [4, 5] in plain(list(iterator))


def test_several_workers_fill_one_batch():
    class Who(Slow):
        def __getitem__(self, index: int) -> Any:
            super().__getitem__(index)
            info = get_worker_info()
            assert info is not None and info.num_workers == 3 and len(info.dataset) == 24
            return info.id

    loader = DataLoader(Who(24, 0.02), 24, num_workers=3)
    assert set(next(iter(loader)).tolist()) == {0, 1, 2}


def test_the_first_batch_does_not_wait_for_those_ahead_of_it():
    drawn = []

    def batch_sampler() -> Any:
        for start in range(0, 64, 2):
            drawn.append(start)
            yield [start, start + 1]

    iterator = iter(DataLoader(Rows(), batch_sampler=batch_sampler(), num_workers=2, prefetch_factor=8))
    counts = [len(drawn)] + [next(iterator) is not None and len(drawn) for _ in range(20)]
    assert counts[:3] == [1, 2, 4] and counts[16:] == [32, 32, 32, 32, 32]


def test_threads_load_the_samples_of_a_chunk():
    class Named(Slow):
        def __getitem__(self, index: int) -> Any:
            super().__getitem__(index)
            return __import__("threading").get_native_id(), sample_index(index)

    def sample_index(index: int) -> int:
        return index

    (ids, indices), *_ = list(DataLoader(Named(8, 0.05), 8, num_workers=1, threads=4))
    assert len(set(ids.tolist())) > 1 and indices.tolist() == list(range(8))
    assert batches(Random(), 5, seed=1, num_workers=2, threads=3) == batches(Random(), 5, seed=1)


@pytest.mark.parametrize("workers", [0, 2])
def test_outputs_of_other_libraries_share_the_memory(workers):
    for batch in DataLoader(Rows(), 16, num_workers=workers, output="numpy"):
        assert type(batch) is np.ndarray
    torch = pytest.importorskip("torch")
    for batch, wanted in zip(
        DataLoader(Rows(), 16, num_workers=workers, output="torch"), batches(Rows(), 16), strict=True
    ):
        assert type(batch) is torch.Tensor and batch.tolist() == wanted


def test_the_epoch_reaches_persistent_workers():
    loader = DataLoader(Epochs(6), 3, num_workers=2, persistent_workers=True)
    seen = [{epoch for batch in loader for _, epoch in batch.tolist()} for _ in range(3)]
    loader.set_epoch(9)
    seen += [{epoch for batch in loader for _, epoch in batch.tolist()} for _ in range(2)]
    assert seen == [{0}, {1}, {2}, {9}, {10}]


def test_unequal_batches_are_collated_without_slots():
    class Growing(Rows):
        def __getitem__(self, index: int) -> Any:
            return np.full(1 + index // 4, index)

    wanted = [[[i] * (1 + i // 4) for i in range(n, n + 4)] for n in range(0, 64, 4)]
    for workers in (0, 2):
        assert batches(Growing(), 4, num_workers=workers) == wanted


@pytest.mark.parametrize("size", [3, 8])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_types_of_mixed_numbers_depend_on_the_samples_only(workers, size):
    dataset = Mixed()
    found = [(batch.dtype, batch.tolist()) for batch in DataLoader(dataset, size, num_workers=workers)]
    want = []
    for start in range(0, len(dataset), size):
        batch = default_collate([dataset[index] for index in range(len(dataset))[start : start + size]])
        want.append((batch.dtype, batch.tolist()))
    assert found == want and len({dtype for dtype, _ in want}) > 1


def test_one_sample_of_another_type_does_not_spoil_its_batch():
    class Mixed(Rows):
        def __getitem__(self, index: int) -> Any:
            return float(index) if index in (20, 21) else index

    found = batches(Mixed(40), 10, num_workers=2)
    assert found == [[float(i) for i in range(n, n + 10)] for n in range(0, 40, 10)]


# -- memory that is held -----------------------------------------------------------------------------------------------


class FloatsAndIntegers(Rows):
    """Floats, and a few integers: a batch's type is that of its first sample."""

    def __getitem__(self, index: int) -> Any:
        return {"x": 1.5 if index % 16 else 1, "pair": (index, 2 if index == 21 else 0.25)}


@pytest.mark.parametrize("size", [4, 5])
def test_types_of_mixed_numbers_do_not_depend_on_workers(size):
    def types(workers: int) -> list[Any]:
        loader = DataLoader(FloatsAndIntegers(), size, num_workers=workers)
        return [(batch["x"].dtype, batch["pair"][0].dtype, batch["pair"][1].dtype) for batch in loader]

    assert types(2) == types(0)
    assert types(1) == types(0)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("output", ["shmtensor", "numpy"])
def test_batches_that_are_kept_are_never_written_again(persistent, output):
    loader = DataLoader(Rows(96), 8, num_workers=2, persistent_workers=persistent, output=output, shuffle=True, seed=2)
    kept = []
    for round_ in range(6):
        for batch in itertools.islice(loader, 2 + round_ % 3 * 5):
            array = np.asarray(batch)
            kept.append((batch, array.copy()))
            if len(kept) % 3 == 0:
                array[...] = -len(kept)  # a stamp
                kept[-1] = batch, array.copy()
        assert all(np.array_equal(np.asarray(batch), copy) for batch, copy in kept)
    pointers = [np.asarray(batch).ctypes.data for batch, _ in kept]
    assert len(set(pointers)) == len(pointers)


def test_a_view_keeps_its_batch():
    loader = DataLoader(Rows(64), 8, num_workers=2, persistent_workers=True)
    list(loader)
    rows = [batch.numpy()[3:5] for batch in loader]
    list(loader)
    assert np.array_equal(
        np.concatenate(rows)[:, 0], [row[0] for n in range(8) for row in Rows(64).x[8 * n + 3 : 8 * n + 5]]
    )


def test_a_bound_of_bytes_counts_the_batches_that_are_held():
    loader = DataLoader(Rows(640), 8, num_workers=2, max_bytes=10 * 160)
    assert sum(1 for _ in loader) == 80
    kept = []
    with pytest.raises(QuotaExceeded, match=r"max_bytes=1600; 10 batches .* 1600 bytes"):
        kept.extend(loader)
    assert loader.stats().held == 10 and loader.stats().held_nbytes == 1600
    kept.clear()
    assert loader.stats().held == 0
    assert len(list(map(np.sum, loader))) == 80


class Uneven(Rows):
    """Rows of lengths that differ within each batch of eight."""

    def __getitem__(self, index: int) -> Any:
        return self.x[index, : 5 - index % 2]


class Computed(Rows):
    """Rows that are new arrays, in mappings that have no slots."""

    def __getitem__(self, index: int) -> Any:
        return Counter(row=self.x[index] + 1)


def _stacked(samples: list[Any]) -> Any:
    return {"array": np.stack(samples)}


def _twice(samples: list[Any]) -> Any:
    batch = default_collate(samples)
    return batch, batch[:4], [batch[2:]]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("dataset", "size", "collate", "nbytes"),
    [
        (Rows, 8, None, 8 * 160_000),
        (Rows, 8, default_collate, 8 * 160_000),
        (Rows, 8, _stacked, 8 * 160_000),
        (Rows, 8, _twice, 8 * 160_000),
        (Uneven, 2, pad_collate, 2 * 20),
        (Computed, None, None, 160_000),
        (Computed, 8, None, 8 * 160_000),
    ],
    ids=["slots", "collated", "arrays", "views", "padded", "single samples", "rests"],
)
def test_every_batch_that_is_kept_counts(workers, dataset, size, collate, nbytes):
    loader = DataLoader(
        dataset(80, (40_000,) if nbytes > 100 else (5,)), size, num_workers=workers, collate_fn=collate,
        max_bytes=3 * nbytes,
    )  # fmt: skip
    iterator, kept = iter(loader), []
    for _ in range(2):  # after batches were dropped, it goes on
        with pytest.raises(QuotaExceeded, match=f"{nbytes} bytes, with .*; 3 batches .*, {3 * nbytes} bytes"):
            kept.extend(iterator)
        stats = loader.stats()
        assert (stats.held, stats.held_nbytes) == (3, 3 * nbytes)
        kept.clear()
        assert loader.stats().held == loader.stats().held_nbytes == 0
    assert loader.stats().nbytes == 6 * nbytes
    assert sum(1 for _ in iterator) == len(loader) - 6


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_within_the_bound_is_whole(workers):
    loader = DataLoader(Rows(64), 8, num_workers=workers, max_bytes=8 * 160)
    kept = list(loader)
    stats = loader.stats()
    assert (len(kept), stats.held, stats.held_nbytes, stats.nbytes) == (8, 8, 1280, 1280)
    with pytest.raises(QuotaExceeded, match="8 batches"):
        next(iter(loader))


@pytest.mark.parametrize("workers", [0, 2])
def test_views_of_the_dataset_are_not_held(workers):
    dataset = TensorDataset(st.ones(40, 1000, shared=True))
    loader = DataLoader(dataset, None, num_workers=workers, max_bytes=3 * 4_000)
    kept = list(loader)
    stats = loader.stats()
    assert (len(kept), stats.held, stats.held_nbytes, stats.nbytes) == (40, 0, 0, 160_000)


def test_memory_stays_flat_over_epochs_and_breaks():
    loader = DataLoader(Rows(64, (64, 16)), 8, num_workers=2, persistent_workers=True)

    def use(times: int) -> int:
        for time_ in range(times):
            for batch in itertools.islice(loader, 3 if time_ % 2 else None):
                assert batch.shape == (8, 64, 16)
        gc.collect()
        return _resident()

    use(20)
    before = use(5)
    assert use(60) - before < 8 << 20


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("count", first([2_500, 10_000]))
def test_kept_batches_need_no_descriptors(count):
    signal.setitimer(signal.ITIMER_REAL, 4 * BOUND)
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "from shmtensor.data import DataLoader; from loader_world import Rows\n"
        f"kept = list(DataLoader(Rows({4 * count}), 4, num_workers=2))\n"
        f"assert len(kept) == {count} and all(b[0, 0] == 20 * n for n, b in enumerate(kept))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=3 * BOUND, env=_env())


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{SUPPORT}:{SUPPORT.parents[1]}"}


# -- the end -----------------------------------------------------------------------------------------------------------


def pids_of(loader: Any) -> list[int]:
    return [pid for pipeline in loader._pipelines.values() for pid in pipeline.pids()]


@pytest.mark.parametrize("how", ["break", "drop", "collect", "whole"])
def test_workers_end_with_their_iterator(how):
    loader = DataLoader(Slow(64), 4, num_workers=2)
    iterator = iter(loader)
    pids = iterator._pipeline.pids()
    if how == "collect":
        cycle = [iterator]
        cycle.append(cycle)  # type: ignore[arg-type]
        del cycle
    elif how == "whole":
        list(iterator)
    else:
        next(iterator)
    begun = time.monotonic()
    if how != "whole":
        del iterator
    gc.collect()
    until(lambda: not any(map(is_alive, pids)), "the workers to end")
    assert time.monotonic() - begun < BOUND
    assert not multiprocessing.active_children()


def test_persistent_workers_stay_and_end_with_the_loader():
    loader = DataLoader(Slow(64), 4, num_workers=2, persistent_workers=True)
    next(iter(loader))
    pids = pids_of(loader)
    assert plain(list(loader)) == batches(Rows(64), 4) and pids_of(loader) == pids
    first, second = iter(loader), iter(loader)  # one crew serves both
    assert plain([batch for pair in zip(first, second, strict=True) for batch in pair][::2]) == batches(Rows(64), 4)
    assert pids_of(loader) == pids
    del loader, first, second
    gc.collect()
    until(lambda: not any(map(is_alive, pids)), "the workers to end")


def test_a_worker_in_a_long_sample_does_not_hold_up_the_end():
    loader = DataLoader(Slow(8, 60.0), 4, num_workers=2)
    iterator = iter(loader)
    pids = iterator._pipeline.pids()
    time.sleep(0.2)
    del iterator
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize(
    "ending", ["", "raise SystemExit(0)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_nothing_outlives_the_program(ending):
    code = (
        "from shmtensor.data import DataLoader; from loader_world import Slow\n"
        "loader = DataLoader(Slow(64, 0.01), 4, num_workers=2, persistent_workers=True)\n"
        "it = iter(loader); next(it)\n"
        "print(*it._pipeline.pids(), flush=True)\n" + ending
    )
    made = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=BOUND, env=_env())
    pids = [int(pid) for pid in made.stdout.split()]
    assert len(pids) == 2
    until(lambda: not any(map(is_alive, pids)), "the workers to end")


def test_ctrl_c_is_one_traceback():
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from shmtensor.data import DataLoader; from loader_world import Slow\n"
        "it = iter(DataLoader(Slow(640, 0.05), 40, num_workers=2))\n"
        "print(*it._pipeline.pids(), flush=True)\n"
        "for batch in it: pass"
    )
    made = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_env(),
        start_new_session=True,
    )  # fmt: skip
    assert made.stdout is not None
    pids = [int(pid) for pid in made.stdout.readline().split()]
    time.sleep(0.3)
    os.killpg(made.pid, signal.SIGINT)
    _, errors = made.communicate(timeout=BOUND)
    assert is_one_interrupt(errors), errors
    until(lambda: not any(map(is_alive, pids)), "the workers to end")


def test_a_fork_does_not_use_its_parents_workers():
    loader = DataLoader(Rows(), 8, num_workers=1, persistent_workers=True)
    iterator = iter(loader)
    next(iterator)
    pid = os.fork()
    if pid == 0:
        try:
            next(iterator)
        except InvalidArgument:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(list(iterator)) == 7


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs",
    [
        {"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 2}, {"persistent_workers": True},
        {"batch_size": 0}, {"sampler": [1], "shuffle": True}, {"batch_sampler": [[1]], "batch_size": 2},
        {"batch_size": None, "drop_last": True}, {"batch_sampler": [[1]], "drop_last": True},
        {"multiprocessing_context": "fork"}, {"num_workers": 1, "multiprocessing_context": "thread"},
        {"output": "tensorflow"}, {"threads": 0}, {"max_bytes": 0}, {"on_worker_death": "ignore"},
        {"reseed": "random"}, {"reseed": "numpy", "threads": 2}, {"collate_fn": 3},
        {"num_workers": 1, "prefetch_factor": 0}, {"seed": 1.5}, {"seed": "1"}, {"timeout": float("nan")},
        {"num_workers": True}, {"batch_size": 4.0}, {"num_workers": 1, "multiprocessing_context": 3},
    ],
    ids=repr,
)  # fmt: skip
def test_arguments_that_cannot_be(kwargs):
    with pytest.raises(InvalidArgument):
        DataLoader(Rows(), **kwargs)


def test_integers_of_numpy_are_integers():
    loader = DataLoader(
        Rows(64), np.int64(8), num_workers=np.int64(1), prefetch_factor=np.int64(1), threads=np.int64(1),
        seed=np.int64(3), max_bytes=np.int64(10**6),
    )  # fmt: skip
    loader.set_epoch(np.int64(1))
    assert plain(list(loader)) == batches(Rows(64), 8)


@pytest.mark.parametrize("kwargs", [{"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}], ids=repr)
def test_an_iterable_has_its_own_order(kwargs):
    with pytest.raises(InvalidArgument):
        DataLoader(Stream(), **kwargs)


def test_lengths():
    assert [len(DataLoader(Rows(23), 5, drop_last=drop)) for drop in (False, True)] == [5, 4]
    assert len(DataLoader(Rows(23), None)) == 23 and len(DataLoader(Rows(23), sampler=[1, 2])) == 2
    with pytest.raises(TypeError):
        len(DataLoader(Stream(), 4))


def test_progress_is_a_line():
    text = io.StringIO()
    loader = DataLoader(Rows(64), 8, num_workers=1)
    assert plain(list(loader.progress(text, 0.0))) == batches(Rows(64), 8)
    assert "batch 3 of 8: " in text.getvalue() and text.getvalue().endswith("\n")
    assert "samples/s" in str(loader.stats())
    assert len(list(DataLoader(Stream(5), 2).progress(io.StringIO()))) == 3


def test_statistics():
    loader = DataLoader(Rows(64), 8, num_workers=2)
    list(loader)
    stats = loader.stats()
    assert (stats.batches, stats.samples, stats.restarts) == (8, 64, 0)
    assert stats.nbytes == 8 * 160 and stats.nbytes_per_second > 0
    assert stats.seconds > 0 and stats.worked > 0 and stats.samples_per_second > 0
    assert stats.bottleneck() in ("loader", "program")
