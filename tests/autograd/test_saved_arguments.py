"""Arguments that a graph keeps: what the program does to a list afterwards has no effect on gradients."""

import pytest

import shmtensor as st
from shmtensor.errors import GradientError, InvalidArgument


def test_a_list_of_tensors_may_be_changed_afterwards():
    a, b = st.full((2, 2), 2.0, requires_grad=True), st.full((2, 2), 3.0, requires_grad=True)
    given = [a, b]
    product = st.linalg.multi_dot(given)
    given[1] = st.zeros(2, 2)
    given.clear()
    product.sum().backward()
    assert a.grad.tolist() == [[6, 6]] * 2 and b.grad.tolist() == [[4, 4]] * 2


@pytest.mark.parametrize("container", [list, tuple])
def test_a_tensor_of_a_list_that_is_changed_in_place_is_noticed(container):
    a, b = [st.ones(2, 2, requires_grad=True) * 1 for _ in range(2)]
    product = st.linalg.multi_dot(container([a, b]))
    b.mul_(2)
    with pytest.raises(GradientError, match=r"shape \(2, 2\) that was changed in place 1 time since"):
        product.sum().backward()


@pytest.mark.parametrize("reduce", [st.sum, st.mean, st.amax, st.logsumexp, st.var])
def test_a_list_of_axes_may_be_changed_afterwards(reduce):
    x = st.arange(6.0).reshape(2, 3).requires_grad_()
    axes = [0]
    reduced = reduce(x, axes)
    axes[:] = [1]
    (found,) = st.autograd.grad(reduced.sum(), x)
    (wanted,) = st.autograd.grad(reduce(x, (0,)).sum(), x)
    assert st.equal(found, wanted)


def test_lists_in_an_index_may_be_changed_afterwards():
    x = st.arange(6.0).reshape(2, 3).requires_grad_()
    rows = [0, 1]
    chosen = x[rows, 1]
    rows[:] = [1, 1]
    chosen.sum().backward()
    assert x.grad.tolist() == [[0, 1, 0], [0, 1, 0]]


def test_a_tensor_deep_in_a_list_that_is_changed_in_place_is_noticed():
    x, indices = st.arange(6.0, requires_grad=True), [[st.tensor(0), st.tensor(1)]]
    y = x.take(indices)
    indices[0][0][...] = 4
    with pytest.raises(GradientError, match="changed in place"):
        y.sum().backward()


def test_a_list_that_contains_itself_is_refused():
    x: st.Tensor = st.arange(6.0, requires_grad=True)
    around: list[object] = [0, 1]
    around.append(around)
    with pytest.raises(InvalidArgument, match="nested more than 64 levels deep"):
        x.take(around)
    deep: tuple[object, ...] = ()
    for _ in range(100_000):
        deep = (deep,)
    with pytest.raises(RecursionError):  # of its repr, for the message
        x.take(deep)
