"""Graphs leave nothing behind: no tensors, nodes, gradients, hooks or contexts."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tiers import first

import shmtensor as st
from shmtensor.autograd import Function, Node


class Square(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x * x
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, _ = ctx.saved_tensors
        return 2 * g * x


class Fails(Square):
    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        raise KeyError


def failing(x: Any) -> None:
    with pytest.raises(KeyError):
        (Fails.apply(x * 2) * x).sum().backward()


def hooked(x: Any) -> None:
    y = x * 2
    handle = x.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: y.detach())
    y.retain_grad()
    y.sum().backward()
    handle.remove()


def viewed(x: Any) -> None:
    y = x * 2
    view = y[1:]
    view.mul_(3)
    y.add_(1)
    (view.sum() + y.sum()).backward()


def refused(x: Any) -> None:
    w = x.detach().clone()
    y = (x * w).sum()
    w.add_(1)
    with pytest.raises(st.errors.GradientError):
        y.backward()


def second(x: Any) -> None:
    (first,) = st.autograd.grad((x * x * x).sum(), x, create_graph=True)
    first.sum().backward()


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "operations": lambda x: (x * 2 + x.exp().sum()).sum().backward(),
    "no pass": lambda x: (x * 2 + x.exp().sum()).sum(),
    "grad": lambda x: st.autograd.grad((x * x).sum(), x),
    "retained": lambda x: (x * x).sum().backward(retain_graph=True),
    "second": second,
    "function": lambda x: Square.apply(x).sum().backward(),
    "function, no pass": lambda x: Square.apply(Square.apply(x)),
    "failing": failing,
    "refused": refused,
    "hooks": hooked,
    "views": viewed,
    "lists": lambda x: st.stack([x, x * 2]).unbind(0)[1].sum().backward(),
    "several results": lambda x: x.sort()[0].sum().backward(),
    "checkpoint": lambda x: st.autograd.checkpoint(lambda y: y.exp() * y, x).sum().backward(),
    "no grad": lambda x: x.detach() + x.data,
    "set": lambda x: setattr(x, "grad", st.ones(3)),
    "metadata": lambda x: (x * 2).grad_fn.metadata.update(a=x),
}


def alive() -> int:
    gc.collect()
    return sum(issubclass(type(one), (Node, st.Tensor)) or "Counter" in type(one).__name__ for one in gc.get_objects())


@pytest.mark.parametrize("program", first(PROGRAMS.values(), 10), ids=PROGRAMS)
def test_nothing_is_left(program: Callable[[Any], Any]) -> None:
    x = st.ones(3, requires_grad=True)
    program(x)
    x.grad = None
    before, count = alive(), sys.getrefcount(x)
    blocks = sys.getallocatedblocks()
    for _ in range(1000):
        program(x)
        x.grad = None
    assert (alive(), sys.getrefcount(x)) == (before, count)
    assert sys.getallocatedblocks() - blocks < 900  # caches; a leak of one block is 1,000


@pytest.mark.parametrize(
    "name", ["operations", "grad", "retained", "second", "function", "views", "lists", "several results", "refused"]
)
def test_nothing_waits_for_the_collection_of_garbage(name: str) -> None:
    x = st.ones(3, requires_grad=True)
    PROGRAMS[name](x)
    x.grad = None
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(20):
            PROGRAMS[name](x)
            x.grad = None
        assert len(gc.get_objects()) - before < 20
    finally:
        gc.enable()


def test_many_passes() -> None:
    x, w = st.ones(3, requires_grad=True), st.ones(3, requires_grad=True)
    counts = None
    for i in range(10_000):
        y = ((x * w).exp() + x).sum()
        y.backward()
        if i == 100:
            counts = sys.getrefcount(x), sys.getrefcount(w), sys.getrefcount(x.grad), len(gc.get_objects())
            none, zero = sys.getrefcount(None), sys.getrefcount(0)
    assert counts is not None
    now = sys.getrefcount(x), sys.getrefcount(w), sys.getrefcount(x.grad), len(gc.get_objects())
    assert now[:3] == counts[:3] and abs(now[3] - counts[3]) < 1000
    assert abs(sys.getrefcount(None) - none) < 1000 and abs(sys.getrefcount(0) - zero) < 1000


def test_a_pass_lets_go_of_what_the_graph_kept() -> None:
    x = st.ones(3, requires_grad=True)
    kept = st.full((3,), 2.0)
    watch = weakref.ref(kept)
    y = (x * kept).sum()
    del kept
    assert watch() is not None
    y.backward()
    assert watch() is None
    assert y.grad_fn.next_functions  # the nodes are still there


def test_leaves_go_when_nothing_needs_them() -> None:
    x = st.ones(3, requires_grad=True)
    watch = weakref.ref(x)
    y = x + 1
    del x
    leaf = y.grad_fn.next_functions[0][0]
    assert leaf.variable is watch()
    del leaf
    y.sum().backward()
    assert watch().grad.tolist() == [1, 1, 1]
    del y
    assert watch() is None


def test_a_result_goes_though_its_node_stays() -> None:
    x = st.ones(3, requires_grad=True)
    y = x.exp()  # whose rule keeps the result
    z, watch = y.sum(), weakref.ref(y)
    del y
    assert watch() is None
    z.backward()
    assert x.grad.tolist() == pytest.approx([2.71828] * 3, 1e-5)


def test_a_tensor_and_its_own_gradient_are_collected() -> None:
    x = st.ones(3, requires_grad=True)
    (x * x).sum().backward(create_graph=True)
    watch = weakref.ref(x)
    del x
    gc.collect()
    assert watch() is None


def test_a_context_that_keeps_its_result_is_collected() -> None:
    class Keeps(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.y = x * 1
            return ctx.y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    y = Keeps.apply(st.ones(3, requires_grad=True))
    watch = weakref.ref(y)
    del y
    gc.collect()
    assert watch() is None


def test_classes_that_refer_to_their_own_objects_are_collected() -> None:
    def make() -> list[weakref.ref[Any]]:
        class Same(Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, g):
                return g

        class Kind(st.Tensor):
            pass

        Same.kept = Same.apply(st.ones(2, requires_grad=True))
        Kind.kept = Kind(2)
        return [weakref.ref(Same), weakref.ref(Kind)]

    made = make()
    gc.collect()
    gc.collect()
    assert [one() for one in made] == [None, None]
