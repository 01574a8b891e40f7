"""Backward passes in several threads; forks during a pass; errors and Ctrl-C halfway through a pass."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.autograd import Function


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run it in threads that begin together; raises what one of them raised."""
    together, failures = threading.Barrier(count), []

    def run(number: int) -> None:
        together.wait()
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures, failures


class Pause(Function):
    """The identity, in whose backward `during` is called."""

    during: Any = None

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        Pause.during()
        return g


@pytest.mark.parametrize("size", [3, 200_000])
def test_leaves_that_threads_share(size: int) -> None:
    x, y = st.ones(size, requires_grad=True), st.ones(size, requires_grad=True)
    times, threads = 50 if size > 3 else 500, 4

    def work(number: int) -> None:
        for _ in range(times):
            (x * (number + 1) + y).backward(st.ones(size))

    in_threads(threads, work)
    assert (x.grad == times * (1 + 2 + 3 + 4)).all() and (y.grad == times * threads).all()


def test_one_graph_and_many_threads() -> None:
    x = st.ones(1000, requires_grad=True)
    z = (x * x).exp().sum()
    found: list[Any] = []
    in_threads(4, lambda number: found.extend(st.autograd.grad(z, x, retain_graph=True) for _ in range(50)))
    assert len(found) == 200 and all((one[0] == found[0][0]).all() for one in found)
    in_threads(4, lambda number: z.backward(retain_graph=True))
    assert np.allclose(x.grad, 4 * found[0][0])


def test_one_graph_that_is_released() -> None:
    x = st.ones(10, requires_grad=True)
    outcomes = []

    def work(number: int) -> None:
        try:
            z.backward()
            outcomes.append("done")
        except st.errors.GradientError as error:
            assert "second time" in str(error)
            outcomes.append("refused")

    for _ in range(50):
        z = (x * x).sum()
        in_threads(3, work)
    assert outcomes.count("done") >= 50 and len(outcomes) == 150


def test_a_thread_builds_and_another_goes_backward() -> None:
    x, results = st.ones(3, requires_grad=True), []
    in_threads(1, lambda number: results.append((x * 3).sum()))
    results[0].backward()
    assert x.grad.tolist() == [3, 3, 3]
    in_threads(1, lambda number: results.append(st.no_grad().__enter__()))
    assert st.is_grad_enabled()


def test_a_pass_leaves_the_modes_of_others_alone() -> None:
    x, seen = st.ones(1, requires_grad=True), []
    waiting, go_on = threading.Event(), threading.Event()
    Pause.during = lambda: (seen.append(st.is_grad_enabled()), waiting.set(), go_on.wait(60))
    thread = threading.Thread(target=lambda: Pause.apply(x).backward())
    thread.start()
    assert waiting.wait(60) and st.is_grad_enabled() and (x * 2).requires_grad
    (x * 2).backward()
    assert x.grad.tolist() == [2]
    go_on.set()
    thread.join()
    assert seen == [False] and x.grad.tolist() == [3]


def test_a_pass_within_a_pass() -> None:
    x = st.tensor([3.0], requires_grad=True)

    def inner() -> None:
        with st.enable_grad():
            (x * x).backward()

    Pause.during = inner
    Pause.apply(x).backward()
    assert x.grad.tolist() == [7]


def in_child(work: Callable[[], bool]) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            ok = work()
        except BaseException:
            traceback.print_exc()
            ok = False
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded")
def test_a_fork_while_another_thread_goes_backward() -> None:
    x, w = st.full((3,), 2.0, requires_grad=True), st.ones(3, requires_grad=True)
    waiting, go_on = threading.Event(), threading.Event()
    Pause.during = lambda: (waiting.set(), go_on.wait(60))
    shared = x * w
    y = Pause.apply(shared).sum()
    thread = threading.Thread(target=y.backward)
    thread.start()
    assert waiting.wait(60)

    def child() -> bool:
        Pause.during = lambda: None
        for root in (y, shared.sum()):
            try:
                root.backward()
                return False
            except st.errors.GradientError as error:
                if "forked" not in str(error):
                    return False
        if x.grad is not None:
            return False
        (x * w).sum().backward()  # a graph of its own, and the same leaves
        Pause.apply(x).sum().backward()
        return bool(x.grad.tolist() == [2, 2, 2] and w.grad.tolist() == [2, 2, 2])

    in_child(child)
    go_on.set()
    thread.join()
    assert x.grad.tolist() == [1, 1, 1] and w.grad.tolist() == [2, 2, 2]


@pytest.mark.filterwarnings("ignore:.*multi-threaded")
def test_forks_while_threads_add_to_a_leaf() -> None:
    x, stop = st.ones(200_000, requires_grad=True), threading.Event()
    own = st.ones(200_000)

    def work() -> None:
        while not stop.is_set():
            (x + 0).backward(own)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            time.sleep(0.005)

            def child() -> bool:
                x.grad = None
                (x * 5).backward(own)
                return bool((x.grad == 5).all())

            in_child(child)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_fork_between_the_graph_and_its_pass() -> None:
    x = st.ones(3, requires_grad=True)
    y = (x * x).sum()

    def child() -> bool:
        y.backward()
        return bool(x.grad.tolist() == [2, 2, 2])

    in_child(child)
    assert x.grad is None
    y.backward()
    assert x.grad.tolist() == [2, 2, 2]


def fails(error: BaseException) -> Any:
    def during() -> None:
        raise error

    return during


@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt(), MemoryError(), SystemExit(3)], ids=repr)
def test_an_error_in_a_pass_leaves_all_usable(error: BaseException) -> None:
    x, w = st.ones(3, requires_grad=True), st.full((3,), 2.0, requires_grad=True)
    between = x * w
    y = (Pause.apply(between) + between).sum()
    Pause.during = fails(error)
    with pytest.raises(type(error)):
        y.backward(retain_graph=True)
    assert x.grad is None and w.grad is None and st.is_grad_enabled()
    with pytest.raises(type(error)):
        st.autograd.grad(y, x, retain_graph=True, create_graph=True)
    Pause.during = lambda: None
    y.backward()
    assert x.grad.tolist() == [4, 4, 4] and w.grad.tolist() == [2, 2, 2]


def test_an_error_in_a_mode_of_ones_own() -> None:
    x = st.ones(1, requires_grad=True)
    y = Pause.apply(x)

    def during() -> None:
        st.set_grad_enabled(True)
        raise KeyError

    Pause.during = during
    with st.no_grad():
        with pytest.raises(KeyError):
            y.backward()
        assert not st.is_grad_enabled()


@pytest.fixture
def ctrl_c(interruptible: None) -> Iterator[None]:
    """An interrupt is lost that comes to a callback of the garbage collector, such as hypothesis has.

    One that comes to the end of NumPy's `errstate` leaves that as it is.
    """
    before = np.geterr()
    gc.disable()
    yield
    gc.enable()
    np.seterr(**before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("times", range(5))
def test_ctrl_c_at_any_time(times: int) -> None:
    x = st.ones(50_000, requires_grad=True)
    y = x
    for _ in range(300):
        y = y.sin() * 1.0001
    y = y.sum()
    y.backward(retain_graph=True)
    expected = x.grad.clone()
    timer = threading.Timer(0.002 * (times + 1), lambda: signal.raise_signal(signal.SIGINT))
    interrupted = False
    try:
        timer.start()
        for _ in range(200):
            x.grad = None
            y.backward(retain_graph=True)
    except KeyboardInterrupt:
        interrupted = True
    timer.join()
    try:
        _ = [time.sleep(0) for _ in range(100)]
    except KeyboardInterrupt:
        interrupted = True
    assert interrupted
    x.grad = None
    y.backward()
    assert (x.grad == expected).all() and st.is_grad_enabled()


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_a_graph_is_built_and_dropped() -> None:
    x = st.ones(1, requires_grad=True)
    (-x).backward()  # what is loaded at the first use is loaded
    seen = 0
    end = time.monotonic() + 60

    def build_and_drop() -> None:  # a `while` that ends a `try` is not quite in it, in CPython 3.12 and 3.13
        while time.monotonic() < end:
            y = x
            for _ in range(2000):
                y = -y
            y.backward()

    for times in range(10):
        timer = threading.Timer(0.001 * (times + 1), _thread.interrupt_main)
        try:
            timer.start()
            build_and_drop()
        except KeyboardInterrupt:
            seen += 1
        timer.join()
    x.grad = None
    (x * 3).backward()
    assert seen == 10 and x.grad.tolist() == [3]
