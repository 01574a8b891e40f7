"""Tensors with gradients that are sent, pickled, copied and saved; subclasses; nodes and functions."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest

import shmtensor as st
import shmtensor.multiprocessing as mp


def leaf(*values: float) -> st.Tensor:
    return st.tensor(list(values), dtype=st.float32, requires_grad=True)


def train(incoming: Any, outgoing: Any) -> None:
    """What a worker does: a pass of its own, with the gradient in shared memory or not."""
    x = incoming.get() if hasattr(incoming, "get") else incoming.recv()
    before = x.requires_grad, x.is_leaf, x.grad is None
    (x * x).sum().backward()
    with st.no_grad():
        x -= 0.5 * x.grad
    outgoing.put((*before, x.grad.tolist()))


@pytest.mark.parametrize("make", [mp.Queue, mp.SimpleQueue, mp.JoinableQueue], ids=["Queue", "SimpleQueue", "Joinable"])
def test_queues(make: Any, ctx: Any) -> None:
    x, incoming, outgoing = leaf(1, 2).share_memory_(), make(), mp.SimpleQueue()
    worker = ctx.Process(target=train, args=(incoming, outgoing))
    worker.start()
    incoming.put(x)
    found = outgoing.get()
    worker.join()
    assert found == (True, True, True, [2, 4])
    assert x.tolist() == [0, 0] and x.grad is None and x.requires_grad  # one memory, and a gradient of each process


def test_pipes_and_arguments(ctx: Any) -> None:
    ours, theirs = mp.Pipe()
    outgoing, x = mp.SimpleQueue(), leaf(1, 2).share_memory_()
    worker = ctx.Process(target=train, args=(theirs, outgoing))
    worker.start()
    ours.send(x)
    assert outgoing.get() == (True, True, True, [2, 4])
    worker.join()
    assert x.tolist() == [0, 0]


@pytest.mark.parametrize("shared", [True, False])
def test_the_flag_goes_along(shared: bool) -> None:
    q = mp.Queue()
    for wanted in (True, False):
        x = st.ones(3).requires_grad_(wanted)
        if shared:
            x.share_memory_()
        q.put([x, {"a": x}])
        one, others = q.get()
        assert one.requires_grad is wanted and others["a"].requires_grad is wanted and one.is_leaf
    q.close()


def test_results_are_not_sent() -> None:
    x, q = leaf(1, 2), mp.Queue()
    ours, _ = mp.Pipe()
    for result in (x * 2, (x * 2)[0], x.view(2, 1), [x, {"loss": (x * x).sum()}]):
        for send in (q.put, ours.send, mp.SimpleQueue().put):
            with pytest.raises(st.errors.GradientError, match=r"result of an operation.*detach\(\)"):
                send(result)
    q.put((x * 2).detach())
    assert q.get().tolist() == [2, 4]
    with st.no_grad():
        q.put(x * 2)
    assert not q.get().requires_grad
    q.close()


def test_gradients_are_tensors_like_others() -> None:
    x, q = leaf(1, 2), mp.Queue()
    (x * x).sum().backward()
    x.grad.share_memory_()
    q.put(x.grad)
    arrived = q.get()
    arrived += 1
    assert x.grad.tolist() == [3, 5]
    (x * x).sum().backward()  # added in the shared memory
    assert arrived.tolist() == [5, 9]
    q.close()


def test_a_leaf_that_becomes_shared() -> None:
    x = leaf(1, 2)
    y = (x * x).sum()
    assert x.share_memory_() is x and x.is_leaf and x.requires_grad
    y.backward()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [5, 7] and not x.grad.is_shared()


def test_pickle_and_deepcopy() -> None:
    x = leaf(1, 2)
    (x * 2).sum().backward()
    again = pickle.loads(pickle.dumps(x))
    assert again.requires_grad and again.is_leaf and again.tolist() == [1, 2] and again.grad is None
    made = copy.deepcopy(x)
    assert made.requires_grad and made.tolist() == [1, 2] and made.grad.tolist() == [2, 2]
    assert made.data_ptr() != x.data_ptr() and made.grad.data_ptr() != x.grad.data_ptr()
    with pytest.raises(st.errors.GradientError, match=r"deepcopy.*detach\(\)"):
        copy.deepcopy(x * 2)
    assert pickle.loads(pickle.dumps(x * 2)).is_leaf  # by value, without its graph, as in torch
    pair = copy.deepcopy([x, x, x.detach()])
    assert pair[0] is pair[1]
    pair[0].data += 1
    assert pair[2].tolist() == [2, 3]  # which shared the memory, and do
    assert copy.deepcopy((x * 2).detach()).tolist() == [2, 4]


def test_save_and_load(tmp_path: Path) -> None:
    x = leaf(1, 2)
    for where in (tmp_path / "x.pt", io.BytesIO()):
        st.save({"x": x, "y": x.detach()}, where, format="torch")
        if isinstance(where, io.BytesIO):
            where.seek(0)
        found = st.load(where)
        assert found["x"].requires_grad and not found["y"].requires_grad


def test_nodes_and_contexts_stay_here() -> None:
    node = (leaf(1) * 2).grad_fn
    with pytest.raises(TypeError):
        pickle.dumps(node)


class Named(st.Tensor):
    """A tensor with a name."""

    name = "weights"


def test_subclasses() -> None:
    x = Named._rebuild(*leaf(1, 2)._parts())
    x = x if isinstance(x, Named) else st.nn.Parameter(leaf(1, 2).data)  # type: ignore[unreachable]
    (x * x).sum().backward()
    assert x.grad.tolist() == [2, 4] and x.is_leaf and type(x.grad) is st.Tensor
    made = copy.deepcopy(x)
    assert type(made) is type(x) and made.requires_grad and made.tolist() == [1, 2]
    assert made.grad is None  # of a Parameter, as in torch


class Weighted(st.autograd.Function):
    """A Function of a module, as programs have them."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


def apply_there(function: Any, x: Any, outgoing: Any) -> None:
    function.apply(x).sum().backward()
    outgoing.put(x.grad.tolist())


def test_functions_are_sent_by_name(ctx: Any) -> None:
    outgoing = mp.SimpleQueue()
    worker = ctx.Process(target=apply_there, args=(Weighted, leaf(1, 2), outgoing))
    worker.start()
    assert outgoing.get() == [2, 2]
    worker.join()


def test_the_memory_of_a_leaf_has_many_tensors() -> None:
    memory = st.zeros(4).share_memory_()
    x, y = memory[:2].detach().requires_grad_(), memory[2:].detach().requires_grad_()
    (x * 2 + y * 3).sum().backward()
    assert x.grad.tolist() == [2, 2] and y.grad.tolist() == [3, 3] and memory.grad is None
    with st.no_grad():
        x += 1
        y += 2
    assert memory.tolist() == [1, 1, 2, 2]
