"""Simulations of a WorkerPool: calls, gathering, messages, exceptions, deaths."""

from __future__ import annotations

import functools
import gc
import os
import signal
import threading
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pool_world as world
import pytest
from manager_world import until
from tiers import first

import shmtensor as st
from shmtensor.data import WorkerPool, pool_core
from shmtensor.data import simulations as simulations_module
from shmtensor.errors import (
    DTypeError,
    InvalidArgument,
    OutOfMemory,
    SampleMismatch,
    TaskFailed,
    TaskTimeout,
    WorkerDied,
)

pytestmark = pytest.mark.usefixtures("in_time")


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2, context="fork") as made:
        yield made


def in_ids_order(found: tuple[Any, Any]) -> Any:
    """Values as lists, in the order of ids."""
    ids, values = found
    assert sorted(ids.tolist()) == list(range(len(ids)))
    return np.asarray(values)[np.argsort(ids)].tolist()


def run_in_order(simulations: Any, order: tuple[int, ...], method: str) -> None:
    """Call simulations so that their results come in this order."""
    for place in order:
        simulations.send(ids=[place], method=method)
        until(lambda place=place: simulations._states[place] > 0, f"simulation {place} is done")


# -- calls and results


@pytest.mark.parametrize("method", first(["fork", "spawn", "forkserver"]))
def test_each_simulation_lives_in_its_worker(method):
    with WorkerPool(2, context=method) as pool, pool.simulations(world.Counter, 5) as simulations:
        assert len(simulations) == 5
        for _ in range(2):
            simulations.send(method="worker")
            ids, (workers, pids) = simulations.gather(5)
            assert workers.tolist() == [i % 2 for i in ids]
            assert pids.tolist() == [pool.pids()[i % 2] for i in ids]


def test_results_are_trees_in_shared_memory(pool):
    simulations = pool.simulations(world.Counter, 4)
    kept = []
    for count in range(1, 5):
        simulations.send(st.arange(4) * 10 + count)
        ids, values = simulations.gather(4)
        assert ids.dtype == np.int64 and list(values) == ["state", "action", "text"]
        assert values["state"].dtype == st.float32
        if count > 1:
            assert values["state"].is_shared() and values["action"].is_shared()
        assert values["text"] == [str(i) for i in ids]
        kept.append((ids, values))
    for count, (ids, values) in enumerate(kept, 1):  # results that were handed out are not written again
        assert values["state"].tolist() == [[i, count] for i in ids]
        assert values["action"].tolist() == [i * 10 + count for i in ids]


def test_some_are_called_and_some_are_gathered(pool):
    simulations = pool.simulations(world.Counter, 6)
    simulations.send(np.array([7.0, 8.0, 9.0]), ids=[5, 0, 3])
    assert sorted(simulations.waiting) == [0, 3, 5]
    found = {}
    while len(found) < 3:
        ids, values = simulations.gather(1, 1)
        assert len(ids) == 1
        found[int(ids[0])] = values["action"].tolist()
    assert found == {5: [7.0], 0: [8.0], 3: [9.0]}
    assert not len(simulations.waiting)
    ids, values = simulations.gather(0)
    assert ids.tolist() == [] and values is None
    simulations.send(np.empty(0), ids=[])
    assert not len(simulations.waiting)


def test_a_slow_simulation_delays_only_those_after_it_in_its_worker(pool, tmp_path):
    gate = tmp_path / "gate"
    simulations = pool.simulations(functools.partial(world.Gated, gate, (2,)), 6)  # 0, 2, 4 live in worker 0
    simulations.send(method="wait")
    ids, values = simulations.gather(4)
    assert sorted(ids) == sorted(values.tolist()) == [0, 1, 3, 5]
    ids, values = simulations.gather(1, deadline=0.05)
    assert ids.tolist() == [] and values is None
    assert sorted(simulations.waiting) == [2, 4]
    gate.touch()
    assert simulations.gather(2)[0].tolist() == [2, 4]  # in the order of completion


def test_inputs_are_arrays_and_numbers_of_numpy(pool):
    simulations = pool.simulations(world.Counter, 3)
    simulations.send({"a": st.zeros(3, dtype=st.int32), "b": np.zeros((3, 2))}, method="kind_of")
    _, kinds = simulations.gather(3)
    assert [set(kind) for kind in kinds] == [{"int32"}, {"ndarray"}, {"int32"}]


def test_inputs_that_a_simulation_keeps_do_not_change(pool):
    simulations = pool.simulations(world.Counter, 3)
    for step in range(3):
        simulations.send(np.arange(3.0)[:, None] + step, method="keep")
        found = in_ids_order(simulations.gather(3))
        assert found == ([[0.0]] * 3 if not step else [[i + step - 1.0] for i in range(3)])


@pytest.mark.parametrize("library", first(["numpy", "torch"]))
def test_inputs_of_another_shape(pool, library):
    xp = pytest.importorskip(library)
    simulations = pool.simulations(world.Counter, 2)
    for action in (xp.zeros(2), xp.ones((2, 3)), xp.zeros((2, 1), dtype=xp.int8)):
        simulations.send(action)
        assert simulations.gather(2)[1]["action"].shape == tuple(action.shape)


def test_results_of_two_methods_are_gathered_apart(pool):
    simulations = pool.simulations(world.Counter, 4)
    simulations.send(None, [0, 2], "reset")
    simulations.send(None, [1, 3], "drawn")
    until(lambda: (simulations._states > 0).all(), "all are done")
    seen = {}
    for _ in range(2):
        ids, values = simulations.gather(2)
        seen[values.dtype] = sorted(ids.tolist())
    assert seen == {st.int64: [0, 2], st.float64: [1, 3]}


@pytest.mark.parametrize(
    ("several", "dtype"),
    [((0, 1), "float64"), ((2, 1), "float64"), ((3, 1), "float64"), ((2, 0), "int64"), ((4, 0), "int64")],
    ids=str,
)
def test_types_of_results_do_not_depend_on_the_order_of_completion(pool, several, dtype):
    for learnt in (None, *several):
        simulations = pool.simulations(world.Counter, len(world.VARIOUS))
        if learnt is not None:  # now there are slots for results of that type
            simulations.send(ids=[learnt], method="various")
            simulations.gather(1)
        for order in (several, several[::-1]):
            run_in_order(simulations, order, "various")
            ids, values = simulations.gather(2)
            assert tuple(ids) == order and str(np.asarray(values).dtype) == dtype
            assert values.tolist() == [world.VARIOUS[place] for place in order]


def test_methods_that_give_nothing(pool):
    simulations = pool.simulations(world.Counter, 3)
    simulations.send(method="nothing")
    ids, values = simulations.gather(3)
    assert sorted(ids) == [0, 1, 2] and values is None


def test_random_numbers_belong_to_the_simulation():
    found = []
    for workers in (1, 3):
        with WorkerPool(workers, seed=5) as pool:
            simulations = pool.simulations(world.Counter, 6)
            simulations.send(method="drawn")
            found.append(in_ids_order(simulations.gather(6)))
    assert found[0] == found[1] and len(set(found[0])) == 6


def test_messages_of_a_step(pool):
    core = pool._core
    simulations = pool.simulations(world.Counter, 64)

    def step() -> None:
        simulations.send(method="reset")
        simulations.gather(64)

    step(), step(), step()
    results = core._crew.results.stats().put
    own = sum(member.jobs.stats().put for member in core._crew.members)
    for _ in range(10):
        step()
    assert sum(member.jobs.stats().put for member in core._crew.members) == own + 10 * 2
    assert core._crew.results.stats().put <= results + 10 * 2  # at most one to wake the program, or two by a race


def test_maps_and_simulations_share_workers(pool):
    simulations = pool.simulations(world.Counter, 4)
    results = pool.map(world.square, range(100))
    for step in range(1, 11):
        simulations.send()
        assert simulations.gather(4)[1]["state"][:, 1].tolist() == [step] * 4
        assert next(results) == (step - 1) ** 2
    assert len(list(results)) == 90


def test_threads_gather_from_one_pool(pool):
    found: list[Any] = [None] * 3

    def run(place: int) -> None:
        simulations = pool.simulations(world.Counter, 4)
        for _ in range(10):
            simulations.send()
            simulations.gather(4)
        simulations.send()
        found[place] = simulations.gather(4)[1]["state"][:, 1].tolist()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[11.0] * 4] * 3


# -- what is wrong


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.send(ids=[4]), "no simulation 4: ids are 0 to 3"),
        (lambda s: s.send(ids=[-1]), "no simulation -1"),
        (lambda s: s.send(ids=[1, 1]), "duplicate"),
        (lambda s: s.send(ids=[1.5]), "ids must be integers"),
        (lambda s: s.send(np.zeros(3)), r"shape \(3,\); its first axis must be 4"),
        (lambda s: s.send({"a": np.zeros(4), "b": np.zeros(())}), r"shape \(\)"),
        (lambda s: s.send([0, 1, 0, 1]), "tree .* of arrays or tensors"),
        (lambda s: s.gather(), "waits for 1 results, and only 0"),
        (lambda s: (s.send(ids=[1]), s.gather(2)), "waits for 2 results, and only 1"),
        (lambda s: (s.send(ids=[1]), s.send(ids=[0, 1])), "simulation 1 has a call whose result was not gathered"),
        (lambda s: s.gather(-1), "min must be"),
        (lambda s: s.gather(2, 1), "min=2 is more than max=1"),
        (lambda s: (s.close(), s.send()), "are closed"),
    ],
    ids=[
        "unknown", "negative", "twice", "float", "rows", "scalar", "list", "nothing", "too many", "busy", "min", "max",
        "closed",
    ],
)  # fmt: skip
def test_calls_that_make_no_sense(pool, call, message):
    simulations = pool.simulations(world.Counter, 4)
    with pytest.raises(InvalidArgument, match=message):
        call(simulations)


def test_a_factory_or_method_that_cannot_be_used(pool):
    with pytest.raises(InvalidArgument, match=r"lambda.* cannot be sent"):
        pool.simulations(lambda i: i, 3)
    with pytest.raises(InvalidArgument, match="count"):
        pool.simulations(world.Counter, 0)
    simulations = pool.simulations(world.Counter, 1)
    simulations.send(method="stepp")
    with pytest.raises(InvalidArgument, match="simulation 0, a Counter, has no method 'stepp'"):
        simulations.gather()


def test_an_exception_names_the_simulation_and_costs_only_its_result(pool):
    simulations = pool.simulations(world.Counter, 4)
    simulations.send(method="fails")
    until(lambda: (simulations._states > 0).all(), "all are done")
    with pytest.raises(KeyError, match="no such move") as caught:
        simulations.gather(4)
    assert "'fails' of simulation 2 was called by worker 0" in caught.value.__notes__[0]
    assert sorted(simulations.gather(3)[0]) == [0, 1, 3]
    simulations.send(ids=[2])
    assert simulations.gather()[1]["state"].tolist() == [[2, 1]]


def test_a_simulation_that_cannot_be_made(pool):
    simulations = pool.simulations(world.Unmade, 4)
    simulations.send(method="reset")
    until(lambda: (simulations._states > 0).all(), "all are done")
    with pytest.raises(OSError, match="no such world"):
        simulations.gather(4)
    assert sorted(simulations.gather(3)[1].tolist()) == [0, 1, 3]


def test_results_of_unequal_shape_stay(pool):
    simulations = pool.simulations(world.Counter, 4)
    for count in range(2):  # the second time, there are slots
        run_in_order(simulations, (1, 3, 2, 0), "uneven")
        for _ in range(2):
            with pytest.raises(SampleMismatch, match=r"ids of these simulations: 1, 2\b.* gather\(1, 1\)") as caught:
                simulations.gather(4)
            assert "pad_collate" not in str(caught.value) and caught.value.positions == (0, 2)
            assert simulations.waiting.tolist() == [0, 1, 2, 3], count
        ids, values = simulations.gather(2, 2)
        assert ids.tolist() == [1, 3] and values.shape == (2, 2)
        found = [simulations.gather(1, 1) for _ in range(2)]
        assert [(ids.tolist(), values.shape) for ids, values in found] == [([2], (1, 3)), ([0], (1, 2))]
        assert not len(simulations.waiting) and not simulations._messages


def test_results_without_a_slot_that_cannot_be_collated_together_stay(pool):
    simulations = pool.simulations(world.Various, 4)
    simulations.send(ids=[0], method="told_unevenly")
    simulations.gather(1)
    run_in_order(simulations, (0, 1, 2), "told_unevenly")
    with pytest.raises(SampleMismatch, match=r"ids of these simulations: 0, 1\b"):
        simulations.gather(3)
    for place in range(3):
        ids, (array, told) = simulations.gather(1, 1)
        assert ids.tolist() == [place] and array.shape == (1, 2) and len(told["a"]) == 1 + place
    assert not simulations._messages


def test_a_result_that_cannot_be_collated_at_all_is_dropped_alone(pool):
    simulations = pool.simulations(world.Counter, 4)
    run_in_order(simulations, (1, 2, 3), "sometimes_unusable")
    with pytest.raises(DTypeError, match=r"ids of these simulations: 2; the results stay"):
        simulations.gather(3)
    assert simulations.gather(1, 1)[1].tolist() == [1]
    with pytest.raises(DTypeError, match=r"id of this simulation: 2; its result is dropped"):
        simulations.gather(1, 1)
    assert simulations.waiting.tolist() == [3]
    assert simulations.gather(1, 1)[1].tolist() == [3]
    simulations.send()
    assert len(simulations.gather(4)[0]) == 4


def test_a_result_that_cannot_be_read_is_dropped_and_others_stay(pool):
    simulations = pool.simulations(world.Counter, 4)
    run_in_order(simulations, (0, 1, 2), "partly_unreadable")
    with pytest.raises(OSError, match="cannot be read"):
        simulations.gather(3)
    assert simulations.waiting.tolist() == [0, 2]
    assert simulations.gather(2)[1].tolist() == [0, 2]
    simulations.send()
    assert len(simulations.gather(4)[0]) == 4


def test_results_stay_when_there_is_no_memory_for_them(pool, monkeypatch):
    def full(*_: Any, **__: Any) -> Any:
        raise OutOfMemory("no memory")

    simulations = pool.simulations(world.Counter, 2)
    simulations.send(method="reset")
    simulations.gather(2)
    simulations.send(method="reset")
    with monkeypatch.context() as patch:
        patch.setattr(simulations_module, "empty", full)
        for _ in range(2):
            with pytest.raises(OutOfMemory):
                simulations.gather(1, 1)
    assert sorted(simulations.gather(2)[1].tolist()) == [0, 1]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_exception_that_would_end_the_program_fails_its_call(pool, kind):
    simulations = pool.simulations(world.Leaving(kind).simulation, 2)
    simulations.send(None, [1], "leave")
    with pytest.raises(TaskFailed, match=rf"(?s)simulation 1 .*{kind.__name__}"):
        simulations.gather()
    simulations.send(method="stay")
    assert sorted(simulations.gather(2)[1].tolist()) == sorted(pool.pids()) and pool.stats().restarts == 0
    making = pool.simulations(world.Leaving(kind), world.BAD + 1)
    making.send(None, [world.BAD], "any")
    with pytest.raises(TaskFailed, match=rf"(?s)simulation {world.BAD} .*{kind.__name__}"):
        making.gather()


# -- deaths and ends


def test_a_death_is_told_and_its_simulations_are_made_anew(pool):
    simulations = pool.simulations(world.Counter, 5)
    simulations.send()
    simulations.gather(5)
    simulations.send(method="dies")
    with pytest.raises(WorkerDied, match=r"worker 0 .* SIGKILL while it had simulation 2, .*'dies'"):
        while True:
            simulations.gather()
    assert simulations.restarted.tolist() == [0, 2, 4]
    while len(simulations.waiting):
        simulations.gather()
    simulations.send()
    ids, values = simulations.gather(5)
    assert values["state"].tolist() == [[i, 2 if i % 2 else 1] for i in ids]
    assert not len(simulations.restarted)


@pytest.mark.parametrize("method", first(["fork", "spawn"]))
def test_with_restart_the_program_goes_on(method):
    with WorkerPool(2, context=method, on_worker_death="restart") as pool:
        simulations = pool.simulations(world.Counter, 5)
        for _ in range(3):
            simulations.send()
            simulations.gather(5)
        simulations.send()
        os.kill(pool.pids()[1], signal.SIGKILL)
        until(lambda: simulations.gather(0)[1] is not None or len(simulations.restarted), "it is seen")
        until(lambda: simulations.gather(0)[1] is None and len(simulations.restarted), "it is replaced")
        assert simulations.restarted.tolist() == [1, 3]
        while len(simulations.waiting):
            simulations.gather()
        simulations.send()
        ids, values = simulations.gather(5)
        assert values["state"].tolist() == [[i, 1 if i % 2 else 5] for i in ids]


def test_a_gather_returns_when_results_will_not_come():
    with WorkerPool(2, on_worker_death="restart") as pool:
        simulations = pool.simulations(world.Counter, 4)
        simulations.send(method="dies")
        ids, _ = simulations.gather(4)
        assert {1, 3} <= set(ids) and 2 not in ids
        assert simulations.restarted.tolist() == [0, 2]
        for _ in range(2):
            simulations.send(None, [2], "dies")
            if _ == 0:
                assert simulations.gather()[0].tolist() == []
        with pytest.raises(WorkerDied, match="simulation 2"):
            simulations.gather()


def test_a_timeout_names_the_simulation():
    with WorkerPool(2, timeout=0.3) as pool:
        simulations = pool.simulations(world.Counter, 4)
        simulations.send(None, [3], "stops")
        with pytest.raises(TaskTimeout, match=r"0\.3 seconds: worker 1 \(pid \d+\) is stopped .* has simulation 3"):
            simulations.gather()


@pytest.mark.parametrize("end", ["close", "drop", "pool"])
def test_simulations_are_closed(pool, tmp_path, end):
    simulations = pool.simulations(functools.partial(world.Closing, tmp_path), 3)
    simulations.send(method="reset")
    simulations.gather(3)
    if end == "close":
        simulations.close()
    elif end == "pool":
        pool.close()
    else:
        del simulations
        gc.collect()
    until(lambda: len(list(tmp_path.iterdir())) == 3, "close of each was called")


def test_nothing_is_left():
    before = st.memory_stats()["shared"]
    with WorkerPool(2) as pool:
        simulations = pool.simulations(world.Counter, 4)
        for _ in range(3):
            simulations.send(np.zeros(4))
            simulations.gather(4)
        simulations.send(np.zeros(4))
    del simulations, pool
    gc.collect()
    assert st.memory_stats()["shared"] == before


# -- hard cases


def test_what_has_no_slot_may_be_any_object(pool):
    simulations = pool.simulations(world.Various, 4)
    for count in range(1, 4):
        simulations.send(method="told")
        ids, found = simulations.gather(4)
        assert found["told"]["by"].tolist() == ids.tolist() and found["count"].tolist() == [count] * 4
    simulations.send(method="told")
    simulations.gather(2, 2)
    simulations.send(np.arange(2), np.setdiff1d(np.arange(4), simulations.waiting), "told")  # of another layout
    ids, found = simulations.gather(4)
    assert found["told"]["by"].tolist() == ids.tolist()


def test_a_part_that_cannot_be_read_fails_its_result(pool):
    simulations = pool.simulations(world.Various, 2)
    simulations.send(method="mixed")
    assert simulations.gather(2)[1][1]["a"].tolist() == [1, 1]
    for _ in range(2):
        simulations.send(method="mixed")
        for _ in range(2):
            with pytest.raises(OSError, match="cannot be read"):
                simulations.gather(1)
        assert not len(simulations.waiting)


def test_a_call_that_cannot_be_sent_leaves_simulations_free(pool):
    simulations = pool.simulations(world.Counter, 2)
    local = namedtuple("local", "a b")
    with pytest.raises(InvalidArgument, match="method must be the name of a method"):
        simulations.send(method=len)
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="the inputs cannot be sent to workers"):
            simulations.send(local(np.zeros(2), np.zeros(2)))
        assert not len(simulations.waiting)
    simulations.send(np.zeros(2))
    assert len(simulations.gather(2)[0]) == 2


def test_inputs_that_a_worker_cannot_read(pool, monkeypatch):
    simulations = pool.simulations(world.Counter, 2)
    pids = pool.pids()
    later = namedtuple("later", "a b")
    later.__module__, later.__qualname__ = world.__name__, "later"
    monkeypatch.setattr(world, "later", later, raising=False)  # the workers have not got it
    simulations.send(later(np.zeros(2), np.zeros(2)))
    for _ in range(2):
        with pytest.raises(AttributeError, match="later"):
            simulations.gather()
    simulations.send(np.zeros(2))
    assert len(simulations.gather(2)[0]) == 2 and pool.pids() == pids


def test_a_result_of_a_dead_worker_is_not_that_of_the_next_call():
    """A worker may die between the message of a result and its state."""
    with WorkerPool(1, context="fork", on_worker_death="restart") as pool:
        simulations = pool.simulations(world.Various, 1)
        simulations.send(method="puts_and_dies")
        assert simulations.gather()[1] is None and simulations.restarted.tolist() == [0]
        simulations.send(method="step")
        until(lambda: simulations._states[0] > 0, "the result is there before anybody waits")
        assert simulations.gather()[1]["text"] == ["0"]


def test_nor_is_one_whose_message_is_read_after_its_death_was_noticed(monkeypatch):
    monkeypatch.setattr(pool_core, "_LOOK", 1e-4)  # a wait looks for deaths first, however soon it comes
    with WorkerPool(1, context="fork", on_worker_death="restart") as pool:
        simulations = pool.simulations(world.Various, 1)
        simulations.send(method="puts_and_dies")
        until(pool._core._crew.ended, "the worker's death")
        assert simulations.gather()[1] is None and simulations.restarted.tolist() == [0]
        assert list(pool.map(world.square, range(3))) == [0, 1, 4]  # takes all messages that there are
        simulations.send(method="step")
        until(lambda: simulations._states[0] > 0, "the result is there before anybody waits")
        assert simulations.gather()[1]["text"] == ["0"]


def test_closed_simulations_are_not_made_again(tmp_path):
    with WorkerPool(1, context="fork") as pool:
        simulations = pool.simulations(world.Marked(tmp_path), 2)
        simulations.send(method="bit_length")
        simulations.gather(2)
        simulations.close()
        for file in tmp_path.iterdir():
            file.unlink()
        os.kill(pool.pids()[0], signal.SIGKILL)
        assert list(pool.map(world.square, range(4))) and pool.stats().restarts
        assert not list(tmp_path.iterdir())
        with pytest.raises(InvalidArgument, match="these simulations are closed"):
            simulations.send()


def test_close_ends_a_gather_of_another_thread(pool, tmp_path):
    simulations = pool.simulations(functools.partial(world.Gated, tmp_path / "gate", (0,)), 1)
    simulations.send(method="wait")
    errors: list[BaseException] = []

    def gather() -> None:
        try:
            simulations.gather()
        except InvalidArgument as error:
            errors.append(error)

    thread = threading.Thread(target=gather, daemon=True)
    thread.start()
    until(lambda: pool._core._is_read, "a thread waits")
    simulations.close()
    thread.join(60)
    assert len(errors) == 1 and "these simulations are closed" in str(errors[0])


def test_polls_leave_no_messages(pool):
    """Each gather that does not wait asks to be woken."""
    simulations = pool.simulations(world.Counter, 2)
    for _ in range(30):
        simulations.send(method="slow")
        while len(simulations.waiting):
            simulations.gather(deadline=0)
    assert pool._core._crew.results._ring.size() <= 4


@pytest.mark.parametrize("number", [np.int64(2), np.uint8(2)])
def test_bounds_may_be_numpys_numbers(pool, number):
    simulations = pool.simulations(world.Counter, 2)
    simulations.send(method="reset")
    assert len(simulations.gather(number, number, np.float32(60))[0]) == 2


def test_ctrl_c_in_the_middle_of_send_closes_the_pool(pool, monkeypatch):
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    simulations = pool.simulations(world.Counter, 2)
    monkeypatch.setattr(pool._core, "tell", interrupt)
    with pytest.raises(KeyboardInterrupt):
        simulations.send()
    with pytest.raises(InvalidArgument, match="closed, after KeyboardInterrupt while workers were told"):
        simulations.gather()


def test_ctrl_c_while_results_are_taken_closes_the_pool(pool, monkeypatch):
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    simulations = pool.simulations(world.Counter, 2)
    simulations.send()
    monkeypatch.setattr(simulations, "_values", interrupt)
    with pytest.raises(KeyboardInterrupt):
        simulations.gather(2)
    with pytest.raises(InvalidArgument, match="closed, after KeyboardInterrupt while results were taken"):
        simulations.gather(2)
