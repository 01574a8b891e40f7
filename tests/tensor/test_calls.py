"""Calls of operations: arguments that a form does not take, and views while another thread moves the storage."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import shmtensor as st
from shmtensor.errors import DTypeError
from shmtensor.ipc import codec


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: x.isnan(y),
        lambda x, y: st.maximum(x, x, y),
        lambda x, y: st.matmul(x, x, y),
        lambda x, y: st.sigmoid(x, y),
        lambda x, y: x.add(x, y),
        lambda x, y: x.add_(x, y),
        lambda x, y: x.__add__(1, y),
        lambda x, y: x.__iadd__(1, y),
        lambda x, y: st.add(x),
        lambda x, y: st.add(),
        lambda x, y: st.add(x, 1, where=y),
        lambda x, y: st.add(x, 1, dtype=y),
        lambda x, y: st.abs(x, out=y, casting="no"),
        lambda x, y: st.Tensor.masked_fill_(self=y, mask=x > 0, value=0.0),
    ],
)
def test_arguments_that_a_form_does_not_take(call):
    x, y = st.tensor([1.0, 2.0, 3.0]), st.tensor([4.0, 5.0, 6.0])
    with pytest.raises(TypeError):
        call(x, y)
    assert x.tolist() == [1, 2, 3] and y.tolist() == [4, 5, 6]


def test_an_in_place_form_changes_its_first_argument_only():
    x = st.ones(2)
    for call in (lambda: st.Tensor.add_(3, x), lambda: st.Tensor.clip_(3, x)):
        with pytest.raises((TypeError, DTypeError)):
            call()
    assert x.tolist() == [1, 1]
    assert x.add_(other=2) is x and x.tolist() == [3, 3]


def test_not_implemented_is_an_argument_as_any_other():
    for call in (lambda x: x.sum(NotImplemented), lambda x: x.reshape(NotImplemented)):
        with pytest.raises((TypeError, ValueError)):
            call(st.ones(2))


def test_squeeze_without_an_axis_that_goes_is_a_tensor_of_its_own():
    x = st.arange(6)
    for y in (x.squeeze(), x.squeeze(())):
        assert y is not x and y.storage() is x.storage()
    y.resize_(2, 3)
    assert x.shape == (6,)


class Sharing:
    """An index that shares a tensor when it is asked for its value: as another thread may at that moment."""

    def __init__(self, index, x):
        self.index, self.x = index, x

    def __index__(self):
        self.x.share_memory_()
        return self.index


@pytest.mark.parametrize(
    "view",
    [
        lambda x, at: x.reshape(at(9)),
        lambda x, at: x.view(at(9)),
        lambda x, at: x.narrow(0, at(0), 3).reshape(9),
        lambda x, at: x[at(0) : 3].reshape(9),
        lambda x, at: x[at(0), :],
        lambda x, at: x.select(0, at(0)),
        lambda x, at: x.as_strided((at(9),), (1,)),
        lambda x, at: x.as_strided((at(9),), (1,), 0),
    ],
)
@pytest.mark.parametrize("has_storage", [False, True])
def test_a_view_follows_a_storage_that_moved_while_it_was_made(view, has_storage):
    x = st.zeros(3, 3)
    if has_storage:
        x.storage()
    found = view(x, lambda index: Sharing(index, x))
    found[0] = 7
    assert x[0, 0].item() == 7 and found.is_shared() and found.data_ptr() == x.data_ptr()


@pytest.fixture
def eager_threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_views_that_one_thread_makes_while_another_shares_the_tensor(eager_threads):
    for _ in range(300):
        x, views, start = st.zeros(3, 3), [], threading.Barrier(2)

        def look(x=x, views=views, start=start):
            start.wait()
            views.extend(x.reshape(9) for _ in range(100))

        thread = threading.Thread(target=look)
        thread.start()
        start.wait()
        x.share_memory_()
        thread.join()
        assert all(view.data_ptr() == x.data_ptr() for view in views)


def test_threads_that_pickle_their_first_message_all_find_the_reducers(eager_threads):
    for _ in range(300):
        codec._registered, codec._reducers = ({}, {}), {}
        start, found = threading.Barrier(3), []

        def ask(start=start, found=found):
            start.wait()
            found.append(codec.reducers())

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(st.Tensor in each and np.ndarray in each for each in found)
