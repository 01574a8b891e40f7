"""The modes no_grad, enable_grad and inference_mode: contexts, decorators, generators, threads. Beside torch."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import pytest

import shmtensor as st


def test_contexts(t: Any) -> None:
    x = t.ones(2, requires_grad=True)
    assert t.is_grad_enabled()
    with t.no_grad():
        y = x * 2
        assert not y.requires_grad and y.is_leaf and not t.is_grad_enabled()
        with t.enable_grad():
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
        made = t.ones(1, requires_grad=True)
        assert made.requires_grad
    assert (x * 2).requires_grad
    with t.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    assert t.is_grad_enabled()
    t.set_grad_enabled(False)
    assert not (x * 2).requires_grad
    t.set_grad_enabled(True)
    assert (x * 2).requires_grad


def test_an_error_ends_the_mode(t: Any) -> None:
    for mode in (t.no_grad, lambda: t.set_grad_enabled(False), t.inference_mode):
        with pytest.raises(KeyError), mode():
            raise KeyError
        assert t.is_grad_enabled()


def test_inference_mode(t: Any) -> None:
    x = t.ones(2, requires_grad=True)
    assert not t.is_inference_mode_enabled()
    with t.inference_mode():
        y = x * 2
        assert t.is_inference_mode_enabled() and not t.is_grad_enabled() and not y.requires_grad
        with t.inference_mode(False):
            assert not t.is_inference_mode_enabled() and (x * 2).requires_grad
    with t.inference_mode(mode=False):
        assert (x * 2).requires_grad
    assert not x.is_inference()


def test_tensors_that_were_made_in_inference_mode_are_as_others() -> None:  # not in torch, which may not record them
    x = st.ones(2, requires_grad=True)
    with st.inference_mode():
        y = st.full((2,), 3.0)
    (x * y).sum().backward()
    assert x.grad.tolist() == [3, 3] and not y.is_inference()
    assert y.requires_grad_().requires_grad


@pytest.mark.parametrize("name", ["no_grad", "inference_mode"])
def test_decorators(t: Any, name: str) -> None:
    x = t.ones(2, requires_grad=True)
    mode = getattr(t, name)

    @mode()
    def one(y: Any, *, times: int) -> Any:
        """Doc."""
        return y * times

    @mode
    def other(y: Any) -> Any:
        return y * 2

    assert not one(x, times=2).requires_grad and not other(x).requires_grad
    assert one.__name__ == "one" and one.__doc__ == "Doc." and t.is_grad_enabled()
    for _ in range(2):  # and again
        assert not one(x, times=3).requires_grad

    @t.no_grad()
    def recursive(n: int) -> bool:
        return t.is_grad_enabled() if n == 0 else recursive(n - 1)

    assert not recursive(3) and t.is_grad_enabled()


def test_decorated_methods_and_enable_grad(t: Any) -> None:
    x = t.ones(2, requires_grad=True)

    class Model:
        @t.no_grad()
        def evaluate(self, y: Any) -> bool:
            return bool((y * 2).requires_grad)

        @t.enable_grad()
        def train(self, y: Any) -> bool:
            return bool((y * 2).requires_grad)

    with t.no_grad():
        assert Model().train(x)
    assert not Model().evaluate(x)

    @t.set_grad_enabled(False)
    def function() -> bool:
        return bool(t.is_grad_enabled())

    assert not function() and t.is_grad_enabled()


def test_generators_have_the_mode_and_their_callers_not(t: Any) -> None:
    events = []

    @t.no_grad()
    def steps() -> Generator[Any, Any, str]:
        try:
            got = yield t.is_grad_enabled()
            events.append(got)
            try:
                yield t.is_grad_enabled()
            except KeyError:
                events.append("caught")
            yield t.is_grad_enabled()
            return "end"
        finally:
            events.append(t.is_grad_enabled())

    run = steps()
    assert next(run) is False and t.is_grad_enabled()
    assert run.send("sent") is False and t.is_grad_enabled()
    assert run.throw(KeyError()) is False and t.is_grad_enabled()
    with pytest.raises(StopIteration, match="end"):
        next(run)
    assert events == ["sent", "caught", False]
    events.clear()
    run = steps()
    next(run)
    run.close()
    assert events == [False] and t.is_grad_enabled()


def test_one_mode_for_several_contexts() -> None:  # in torch it can be used for one at a time
    t = st
    mode = t.no_grad()
    with mode:
        with mode:
            assert not t.is_grad_enabled()
        assert not t.is_grad_enabled()
    assert t.is_grad_enabled()


def test_each_thread_has_its_mode(t: Any) -> None:
    x = t.ones(2, requires_grad=True)
    found = []
    with t.no_grad():
        thread = threading.Thread(target=lambda: found.append((t.is_grad_enabled(), (x * 2).requires_grad)))
        thread.start()
        thread.join()
    assert found == [(True, True)]

    def disable() -> None:
        t.set_grad_enabled(False)

    thread = threading.Thread(target=disable)
    thread.start()
    thread.join()
    assert t.is_grad_enabled()


def test_leaves_may_be_changed_without_gradients(t: Any) -> None:
    x = t.ones(2, requires_grad=True)
    with t.no_grad():
        x -= 0.5
        x.mul_(4)
        x[0] = 7
    assert x.tolist() == [7, 2] and x.is_leaf and x.requires_grad
