"""Checkpoints, beside torch."""

from __future__ import annotations

from typing import Any

import pytest

import shmtensor as st


@pytest.fixture
def checkpoint(t: Any) -> Any:
    if t is st:
        return st.autograd.checkpoint
    from torch.utils.checkpoint import checkpoint

    return lambda *args, **how: checkpoint(*args, use_reentrant=False, **how)


def test_gradients_are_those_without(t: Any, checkpoint: Any) -> None:
    w = t.tensor([2.0, 3.0], dtype=t.float64, requires_grad=True)
    x = t.tensor([1.0, 4.0], dtype=t.float64, requires_grad=True)
    calls = []

    def part(y: Any, factor: float, *, plus: float) -> Any:
        calls.append(t.is_grad_enabled())
        return (y * w * factor).exp() + plus

    direct = t.autograd.grad((part(x, 0.1, plus=1) * x).sum(), [x, w])
    calls.clear()
    y = checkpoint(part, x, 0.1, plus=1)
    assert len(calls) == 1
    (y * x).sum().backward()
    assert len(calls) == 2
    assert x.grad.tolist() == pytest.approx(direct[0].tolist()) and w.grad.tolist() == pytest.approx(direct[1].tolist())


def test_leaves_alone_need_gradients(t: Any, checkpoint: Any) -> None:
    w = t.ones(1, requires_grad=True)
    checkpoint(lambda x: x * w, t.full((1,), 5.0)).backward()
    assert w.grad.tolist() == [5]


def test_random_numbers_are_the_same_again(t: Any, checkpoint: Any) -> None:
    drawn = []

    def part(x: Any) -> Any:
        drawn.append(t.rand(3))
        return x * drawn[-1]

    x = t.ones(3, requires_grad=True)
    y = checkpoint(part, x)
    between = t.rand(3)
    y.sum().backward()
    assert drawn[0].tolist() == drawn[1].tolist() != between.tolist()
    assert x.grad.tolist() == drawn[0].tolist()


def test_several_results(t: Any, checkpoint: Any) -> None:
    x = t.tensor([3.0], requires_grad=True)
    a, b = checkpoint(lambda y: (y * y, y * 2), x)
    (a + b).backward()
    assert x.grad.tolist() == [8]


def test_in_sequence() -> None:
    x = st.tensor([2.0], requires_grad=True)
    calls = []

    def times(factor: int) -> Any:
        def one(y: Any) -> Any:
            calls.append(factor)
            return y * factor

        return one

    functions = [times(i) for i in (2, 3, 5, 7, 11)]
    st.autograd.checkpoint_sequential(functions, 2, x).backward()
    assert x.grad.item() == 2 * 3 * 5 * 7 * 11
    assert calls == [2, 3, 5, 7, 11, 2, 3]  # the last segment once


def test_an_error_the_second_time(t: Any, checkpoint: Any) -> None:
    calls = []

    def part(x: Any) -> Any:
        calls.append(x)
        if len(calls) == 2:
            raise KeyError("again")
        return x * x

    x = t.ones(1, requires_grad=True)
    y = checkpoint(part, x)
    with pytest.raises(KeyError, match="again"):
        y.backward()
    assert t.is_grad_enabled() and x.grad is None
