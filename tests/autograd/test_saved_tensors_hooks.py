"""Hooks of saved tensors, beside torch."""

from __future__ import annotations

from typing import Any

import pytest

import shmtensor as st


def test_what_they_give_is_kept(t: Any) -> None:
    x = t.tensor([2.0, 3.0], dtype=t.float64, requires_grad=True)
    seen: list[str] = []

    def pack(one: Any) -> Any:
        seen.append("pack")
        return one.tolist()

    def unpack(kept: Any) -> Any:
        seen.append("unpack")
        return t.tensor(kept, dtype=t.float64)

    y = x * 1
    with t.autograd.graph.saved_tensors_hooks(pack, unpack):
        z = y.exp()
    assert seen == ["pack"]
    (g,) = t.autograd.grad(z.sum(), x, create_graph=True)
    assert seen == ["pack", "unpack"]
    assert t.autograd.grad(g.sum(), x)[0].tolist() == pytest.approx(y.exp().tolist())


def test_the_innermost_counts(t: Any) -> None:
    x = t.tensor([2.0], requires_grad=True) * 1
    seen: list[int] = []

    def hooks(number: int) -> Any:
        def pack(one: Any) -> Any:
            seen.append(number)
            return one

        return t.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept)

    with hooks(1):
        with hooks(2):
            x.exp()
        x.exp()
    x.exp()
    assert seen == [2, 1]


def test_lists_and_several_results() -> None:
    x = st.rand(3, 3, dtype=st.float64)
    w = st.rand(3, 3, dtype=st.float64, requires_grad=True)

    def f(a: Any) -> Any:
        b = a * 1
        values, places = (b @ b.mT + 1).sort(-1)
        q, r = st.linalg.qr(b + st.eye(3, dtype=st.float64))
        return (st.stack([b, values, x * b]) ** 2).sum() + (q * r).sum() + values[places[0]].prod(0).sum()

    direct = st.autograd.grad(f(w), w)[0]
    with st.autograd.graph.saved_tensors_hooks(lambda one: one.numpy().copy(), st.from_numpy):
        y = f(w)
    assert st.autograd.grad(y, w)[0].tolist() == direct.tolist()


def test_errors() -> None:
    x = st.ones(2, requires_grad=True) * 1
    with st.autograd.graph.saved_tensors_hooks(lambda one: one, lambda kept: 3):  # type: ignore[arg-type,return-value]
        y = x.exp().sum()
    with pytest.raises(st.errors.DTypeError, match="unpack"):
        y.backward()

    def fail(one: Any) -> Any:
        raise KeyError("pack")

    with pytest.raises(KeyError), st.autograd.graph.saved_tensors_hooks(fail, fail):
        x.exp()
    (x.exp() * x).sum().backward()  # without hooks again


def test_they_run_without_recording() -> None:
    w = st.ones(1, requires_grad=True)
    modes: list[bool] = []

    def half(one: Any) -> Any:
        modes.append(st.is_grad_enabled())
        return (w * 0.5).exp().log() * one

    with st.autograd.graph.saved_tensors_hooks(half, lambda kept: kept * 2):
        y = (w * 1).exp()
    y.backward()
    assert modes == [False] and w.grad is not None and w.grad.tolist() == pytest.approx(y.tolist())
