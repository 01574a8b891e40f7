"""Helpers for training by several processes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from tiers import first

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import hogwild, optim
from shmtensor.autograd.sparse import SparseGradient
from shmtensor.errors import DTypeError, InvalidArgument, LayoutError
from shmtensor.hogwild import Counter, Metrics

METHODS = pytest.mark.parametrize("method", ["spawn", "fork"])
WEIGHTS = np.array([[1.0], [-2.0], [3.0]])


def count_to(rank: int, counter: Counter, total: int, found: Any) -> None:
    for step in counter.until(total):
        found[step] += 1 + 10 * rank


@METHODS
def test_each_step_goes_to_one_process(method):
    counter, found = Counter(3), shmtensor.zeros(500, dtype=shmtensor.int64, shared=True)
    assert hogwild.run(count_to, (counter, 500, found), 3, start_method=method) is None
    assert found[:3].tolist() == [0, 0, 0]
    assert set(found[3:].tolist()) <= {1, 11, 21}
    assert int(counter) == counter.value == 503
    assert repr(counter) == "Counter(503)"


def tell_threads(rank: int, found: Any) -> None:
    found[rank] = shmtensor.get_num_threads()


@METHODS
def test_children_have_one_thread(method):
    before = shmtensor.get_num_threads()
    try:
        shmtensor.set_num_threads(2)
        found = shmtensor.zeros(2, shared=True)
        hogwild.run(tell_threads, (found,), 2, start_method=method)
        assert found.tolist() == [1, 1]
        assert shmtensor.get_num_threads() == 2
    finally:
        shmtensor.set_num_threads(before)


def test_tensors_are_shared_in_a_program_that_imports_nothing_else(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import shmtensor
from shmtensor import hogwild

def add(rank, x):
    shmtensor.atomics.add_(x, 0, 1)

if __name__ == "__main__":
    x = shmtensor.zeros(1, shared=True)
    hogwild.run(add, (x,), 2)
    print(x.item())
""")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "2.0\n"


def test_as_many_processes_as_cores():
    found = shmtensor.zeros(os.cpu_count() or 1, shared=True)
    context = hogwild.run(tell_threads, (found,), start_method="fork", join=False)
    assert context is not None
    assert len(context.pids()) == os.cpu_count()
    assert context.join(60)


REFUSED: list[Any] = [
    (lambda: Counter("a"), DTypeError, "value must be an integer, not 'a'"),  # type: ignore[arg-type]
    (lambda: Counter(2**63), InvalidArgument, "outside the range of int64"),
    (lambda: [*Counter().until(2.5)], DTypeError, "total must be an integer, not 2.5"),  # type: ignore[arg-type]
    (lambda: hogwild.run(tell_threads, shmtensor.ones(2), 1), InvalidArgument, r"not Tensor; write args=\(value,\)"),
    (lambda: hogwild.run(3, (), 1), InvalidArgument, "train must be callable"),  # type: ignore[arg-type]
    (lambda: hogwild.scale_rates(RATED, "a"), DTypeError, "factor must be a number, not 'a'"),  # type: ignore[arg-type]
    (lambda: hogwild.scale_rates(3, 1), DTypeError, "int is not an Optimizer"),  # type: ignore[arg-type]
    (lambda: Metrics("a", "loss"), DTypeError, "processes must be an integer of at least 1, not 'a'"),  # type: ignore[arg-type]
    (lambda: Metrics(1, "loss").add("a", loss=1), InvalidArgument, "process 'a'; there are 1"),  # type: ignore[arg-type]
    (lambda: Metrics(1, "loss").add(0, loss="a"), DTypeError, "loss must be a number, not 'a'"),
]
RATED = optim.SGD([shmtensor.zeros(1)], lr=0.1)


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused(number: int) -> None:
    call, error, text = REFUSED[number]
    with pytest.raises(error, match=text):
        call()
    assert "initial_lr" not in RATED.param_groups[0]


# -- training ---------------------------------------------------------------------------------------------------------


def regress(rank: int, weights: Any, optimizer: optim.Optimizer, counter: Counter, metrics: Metrics) -> None:
    """Least squares, with gradients by hand, so that only the optimizer is tested."""
    rng = np.random.default_rng(rank)
    w = optimizer.param_groups[0]["params"][0]
    assert w.data_ptr() == weights.data_ptr()  # the optimizer has the parameters that were sent beside it
    for step in counter.until(600):
        hogwild.scale_rates(optimizer, 1 - step / 600)
        x = rng.standard_normal((20, 3))
        error = x @ w.detach().numpy() - x @ WEIGHTS
        w.grad = shmtensor.from_numpy(x.T @ error / 10)
        optimizer.step()
        metrics.add(rank, 20, loss=(error**2).mean())


@METHODS
@pytest.mark.parametrize("name", first(["SGD", "Adam", "RMSprop"]))
def test_processes_train_one_model_with_one_state(name, method):
    weights = shmtensor.zeros(3, 1, dtype=shmtensor.float64).share_memory_().requires_grad_()
    how = {"momentum": 0.5} if name == "SGD" else {}
    optimizer = getattr(optim, name)([weights], lr=0.05, **how)
    optimizer.share_memory()
    counter, metrics = Counter(), Metrics(3, "loss", "other")
    hogwild.run(regress, (weights, optimizer, counter, metrics), 3, start_method=method)
    np.testing.assert_allclose(weights.detach().numpy(), WEIGHTS, atol=0.2)
    state = optimizer.state[weights]
    if name == "SGD":
        assert state["momentum_buffer"].abs().sum().item() > 0
    else:
        assert state["step"].item() == 600  # no process's step is lost
    totals = metrics.totals()
    assert totals.counts == {"loss": 600 * 20, "other": 0}
    assert sum(metrics.totals(rank).counts["loss"] for rank in range(3)) == 600 * 20
    assert optimizer.param_groups[0]["lr"] == 0.05  # rates that are no tensors are each process's own


def lower(rank: int, optimizer: optim.Optimizer) -> None:
    hogwild.scale_rates(optimizer, 0.5)


def test_a_rate_that_is_a_shared_tensor_is_that_of_all():
    optimizer = optim.SGD([shmtensor.zeros(1).share_memory_()], lr=shmtensor.tensor(0.5))
    optimizer.share_memory()
    hogwild.run(lower, (optimizer,), 1, start_method="spawn")
    assert optimizer.param_groups[0]["lr"].item() == 0.25
    hogwild.scale_rates(optimizer, 2)  # of the rate that the group begins with here
    assert optimizer.param_groups[0]["lr"].item() == 0.5


def add_groups(rank: int, optimizer: optim.Optimizer, p: Any, found: Any) -> None:
    state = optimizer.state_dict()
    add = optimizer.add_param_group
    for change in (
        lambda: add({"params": [p]}),
        lambda: optimizer.load_state_dict({**state, "state": {}}),
    ):
        with pytest.raises(InvalidArgument, match=r"would be private to this process.*shared the optimizer without it"):
            change()
        found[0] += 1
    optimizer.param_groups[0]["params"].append(p)
    p.grad = shmtensor.ones(2)
    with pytest.raises(InvalidArgument, match="would be private to this process"):
        optimizer.step()
    found[0] += 1
    add({"params": [shmtensor.zeros(3)]})  # private as its state
    found[0] += len(optimizer.param_groups)


@METHODS
def test_state_is_not_private_to_a_process_without_an_error(method):
    p, q = (shmtensor.zeros(2).share_memory_().requires_grad_() for _ in range(2))
    optimizer = optim.Adam([p])
    optimizer.share_memory()
    found = shmtensor.zeros(1, shared=True)
    hogwild.run(add_groups, (optimizer, q, found), 1, start_method=method)
    assert found.item() == 5


def embed(rank: int, table: Any, rows: int) -> None:
    optimizer = optim.SGD([table], lr=1.0)
    for _ in range(200):
        table.grad = SparseGradient(shmtensor.arange(rows) % 2, shmtensor.ones(rows, 4), table.shape)
        optimizer.step()


def test_sparse_steps_of_processes_lose_nothing():
    table = shmtensor.zeros(3, 4).share_memory_().requires_grad_()
    hogwild.run(embed, (table, 8), 3, start_method="fork")
    assert table.detach().tolist() == [[-2400] * 4, [-2400] * 4, [0] * 4]


# -- metrics ----------------------------------------------------------------------------------------------------------


def test_metrics():
    metrics = Metrics(2, "loss", "accuracy")
    assert all(math.isnan(value) for value in metrics.means().values())
    metrics.add(0, loss=shmtensor.tensor(2.0), accuracy=0.5)
    metrics.add(1, 3, loss=4)
    assert metrics.means() == {"loss": 3.5, "accuracy": 0.5}
    assert metrics.means(0) == {"loss": 2, "accuracy": 0.5}
    before = metrics.totals()
    metrics.add(1, loss=8)
    assert metrics.totals().means(since=before)["loss"] == 8
    assert metrics.tensor.is_shared()
    assert metrics.tensor.stride(0) % 8 == 0  # whole lines of the cache


def test_metrics_refuse():
    metrics = Metrics(2, "loss")
    for wrong in (lambda: metrics.add(2, loss=1), lambda: metrics.add(-1, loss=1), lambda: metrics.means(5)):
        with pytest.raises(InvalidArgument, match="there are 2, from 0"):
            wrong()
    with pytest.raises(InvalidArgument, match="no metric is called 'los'; there are loss"):
        metrics.add(0, los=1)
    with pytest.raises(InvalidArgument, match="processes must be an integer of at least 1, not 0"):
        Metrics(0, "loss")
    for arguments in ((1,), (1, "loss", "loss")):
        with pytest.raises(InvalidArgument, match="different names"):
            Metrics(*arguments)


# -- turns ------------------------------------------------------------------------------------------------------------


def take_turns(rank: int, barrier: Any, board: Any) -> None:
    def evaluate(value: int) -> int:
        before = board[1].item()
        board[0] += 1
        assert board[1].item() == before  # nobody works meanwhile
        return value

    for _ in range(20):
        shmtensor.atomics.fetch_add(board, 1, 1)
        result = hogwild.alone(barrier, evaluate, 7)
        if result is not None:
            shmtensor.atomics.fetch_add(board, 2, result)


def test_one_process_evaluates_while_the_others_wait():
    context = mp.get_context("fork")
    board = shmtensor.zeros(3, dtype=shmtensor.int64, shared=True)
    hogwild.run(take_turns, (context.Barrier(3), board), 3, start_method="fork")
    assert board.tolist() == [20, 60, 140]


def test_an_evaluation_that_fails_breaks_the_barrier():
    barrier = mp.get_context("fork").Barrier(2)
    found: list[type] = []

    def fail() -> None:
        raise ZeroDivisionError

    def party() -> None:
        try:
            hogwild.alone(barrier, fail)
        except Exception as error:
            found.append(type(error))

    threads = [threading.Thread(target=party) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {*found} == {ZeroDivisionError, threading.BrokenBarrierError}


# -- copies and views -------------------------------------------------------------------------------------------------


def test_snapshots_are_of_their_own():
    x = shmtensor.ones(3, shared=True).requires_grad_()
    value = {"a": x, "b": [x, (x.detach(), 1)], "text": "t"}
    copied = hogwild.snapshot(value)
    assert copied["a"] is copied["b"][0]
    assert not copied["a"].is_shared()
    x.detach().fill_(2)
    assert copied["a"].tolist() == copied["b"][1][0].tolist() == [1, 1, 1]
    assert copied["b"][1][1] == 1
    assert copied["text"] == "t"
    assert value["a"] is x
    assert list(copied) == list(value)


def test_named_tuples_and_subclasses_keep_their_kinds():
    named = shmtensor.ones(3).max(0)
    copied = hogwild.snapshot(named)
    assert type(copied) is type(named)
    assert copied.values is not named.values


def test_read_only_tensors():
    x = shmtensor.ones(3, shared=True)
    view = hogwild.read_only({"x": x})["x"]
    x.fill_(5)
    assert view.tolist() == [5, 5, 5]
    with pytest.raises(LayoutError):
        view.add_(1)
    with pytest.raises(LayoutError):
        view[0] = 1
    x.add_(1)
    with pytest.raises(InvalidArgument, match="private memory"):
        hogwild.read_only([shmtensor.ones(3)])


def test_checkpoints(tmp_path):
    w = shmtensor.ones(2).share_memory_().requires_grad_()
    optimizer = optim.Adam([w])
    optimizer.share_memory()
    hogwild.save({"w": w.detach(), "optimizer": optimizer.state_dict(), "steps": 3}, tmp_path / "last.shmt")
    loaded = shmtensor.load(tmp_path / "last.shmt")
    assert loaded["steps"] == 3
    assert loaded["w"].tolist() == [1, 1]
    optim.Adam([w]).load_state_dict(loaded["optimizer"])
    assert [one.name for one in tmp_path.iterdir()] == ["last.shmt"]


def test_what_is_written_is_a_copy(monkeypatch):
    w, written = shmtensor.ones(2, shared=True), []
    monkeypatch.setattr(hogwild, "_save", lambda value, f, **how: written.append((value, f, how)))
    hogwild.save({"w": w}, "here", format="npz")
    w.zero_()
    assert written == [({"w": ANY}, "here", {"format": "npz"})]
    assert written[0][0]["w"].tolist() == [1, 1]


def test_attributes_of_states_stay():
    state = OrderedDict(x=shmtensor.ones(1))
    state._metadata = {"": {"version": 1}}  # type: ignore[attr-defined]
    copied = hogwild.snapshot(state)
    assert type(copied) is OrderedDict
    assert copied._metadata == state._metadata  # type: ignore[attr-defined]
