"""Gradients of reshaping, splitting, joining, selecting, sorting and scattering, beside differences."""

import numpy as np
import pytest

import shmtensor as st
from shmtensor.autograd import grad, gradcheck, gradgradcheck
from shmtensor.errors import GradientError

AT = st.tensor([2, 0, 2])
ROWS = st.tensor([[0, 1, 2, 0], [2, 0, 0, 1]])
MASK = st.tensor([[True, False, True, True], [False, False, True, False], [True, True, False, False]])
BY_MASK = {
    "masked_select": lambda x: x.masked_select(MASK),
    "masked_select, broadcast": lambda x: st.masked_select(x[:, :1], MASK),
    "masked_fill": lambda x: x.masked_fill(MASK[0], 3),
    "masked_fill of a larger mask": lambda x: st.masked_fill(x[0], MASK, 3),
    "where": lambda x: st.where(MASK[:, :1], x, 1),
    "index by a mask": lambda x: x[MASK],
    "index by a mask of rows": lambda x: x[MASK[:, 0], 1:],
}
SHAPES = {
    "view": lambda x: x.view(2, 6),
    "view_as": lambda x: x.view_as(st.ones(4, 3)),
    "reshape": lambda x: x.reshape(6, -1),
    "reshape of a function": lambda x: st.reshape(x.T, (2, 6)),
    "reshape_as": lambda x: x.T.reshape_as(st.ones(2, 6)),
    "flatten": lambda x: x.unsqueeze(0).flatten(1),
    "ravel": lambda x: x.T.ravel(),
    "unflatten": lambda x: x.unflatten(1, (2, -1)),
    "narrow": lambda x: x.narrow(1, -3, 2),
    "select": lambda x: x.select(0, -1),
    "permute": lambda x: x[None].permute(2, 0, 1),
    "permute of a list": lambda x: st.permute(x[None], [1, -1, 0]),
    "transpose": lambda x: x[None].transpose(0, -1),
    "t": lambda x: x.t(),
    "T": lambda x: x.T,
    "mT": lambda x: x[None].mT,
    "adjoint": lambda x: x.adjoint(),
    "movedim": lambda x: x[None].movedim((0, 1), (2, 0)),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "expand_dims": lambda x: st.expand_dims(x, (0, -1)),
    "expand": lambda x: x[:, None].expand(2, -1, 5, 4),
    "expand_as": lambda x: x.expand_as(st.ones(2, 3, 4)),
    "broadcast_to": lambda x: st.broadcast_to(x[:, :1], (2, 3, 4)),
    "diagonal": lambda x: x.diagonal(1),
    "unfold": lambda x: x.unfold(1, 3, 1),
    "unfold of rows": lambda x: x.unfold(0, 1, 2),
    "flip": lambda x: x.flip(0),
    "flip by a name": lambda x: st.flip(x, dims=(1,)),
    "fliplr": lambda x: x.fliplr(),
    "flipud": lambda x: x.flipud(),
    "rot90": lambda x: x.rot90(3, (1, 0)),
    "contiguous": lambda x: x.T.contiguous(),
    "clone": lambda x: x.clone(),
    "atleast_3d": st.atleast_3d,
    "sum_to_size": lambda x: x.sum_to_size(3, 1),
    "astype": lambda x: x.astype(st.complex128),
    "as_strided": lambda x: x.as_strided((2, 3), (1, 1), 2),
    "as_strided of overlapping elements": lambda x: x[:1].expand(2, 4).as_strided((3,), (1,), 0),
}
DIVIDED = {
    "chunk": lambda x: x.chunk(3, 1),
    "split": lambda x: x.split(3, 1),
    "split by sizes": lambda x: x.split([1, 3], 1),
    "split_with_sizes": lambda x: st.split_with_sizes(x, [1, 3], 1),
    "unsafe_split": lambda x: st.unsafe_split(x, 3, 1),
    "tensor_split": lambda x: x.tensor_split(3, 1),
    "tensor_split at indices": lambda x: x.tensor_split((1, 9), 1)[:2],
    "tensor_split at falling indices": lambda x: x.tensor_split((3, 1), 1)[::2],
    "unbind": lambda x: x.unbind(1),
    "unstack": lambda x: st.unstack(x, axis=1),
    "hsplit": lambda x: x.hsplit(2),
    "vsplit": lambda x: x.vsplit(3),
    "dsplit": lambda x: x[None].dsplit(2),
}
JOINED = {
    "cat": lambda x: st.cat([x, x[:, :1]], 1),
    "cat with nothing": lambda x: st.cat([x, st.ones(0, dtype=x.dtype)], 0),
    "concat of all elements": lambda x: st.concat([x, x[0]], axis=None),
    "stack": lambda x: st.stack([x, x.flip(0)], -1),
    "hstack": lambda x: st.hstack([x[0, 0], x[1]]),
    "vstack": lambda x: st.vstack([x, x[1]]),
    "dstack": lambda x: st.dstack([x, x]),
    "column_stack": lambda x: st.column_stack([x, x[:, 0]]),
    "roll": lambda x: x.roll((1, -2), (0, 1)),
    "roll of all": lambda x: x.roll(5),
    "tile": lambda x: x.tile(2, 1, 3),
    "tile of a function": lambda x: st.tile(x, (2,)),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "repeat": lambda x: st.repeat(x, [0, 2, 1], axis=0),
    "repeat of all": lambda x: st.repeat(x, 2),
    "diag_embed": lambda x: x.diag_embed(1, 0, 2),
    "meshgrid": lambda x: st.meshgrid(x[0], x[1, :2]),
}
SELECTED = {
    "take": lambda x: st.take(x, [-1, 3, 3]),
    "take of an axis": lambda x: st.take(x, AT, axis=-1),
    "take_along_dim": lambda x: st.take_along_dim(x, ROWS[:, :1], 0),
    "take_along_axis": lambda x: st.take_along_axis(x, ROWS[:, :3].T, axis=-1),
    "index_select": lambda x: x.index_select(0, AT),
    "index_select of columns": lambda x: x.index_select(-1, AT),
    "gather": lambda x: x.gather(0, ROWS),
    "gather of a part": lambda x: x.gather(1, ROWS[:, :2]),
    "tril": lambda x: x.tril(-1),
    "triu": lambda x: x.triu(diagonal=1),
    "clamp": lambda x: x.clamp(0.3, 0.7),
    "index": lambda x: x[1:, 2],
    "index of one": lambda x: x[2, 1],
    "index with steps": lambda x: x[::2, None, -2:],
    "index by integers": lambda x: x[AT, 1],
    "index by a list": lambda x: x[[0, 0, 1]],
    "index of nothing": lambda x: x[...],
    "bincount": lambda x: st.bincount(AT, x[0, :3]),
    "sort": lambda x: x.sort(0, True).values,
    "msort": st.msort,
    "topk": lambda x: x.topk(2, 0).values,
    "kthvalue": lambda x: x.kthvalue(2, 0).values,
    "kthvalue with its axis": lambda x: x.kthvalue(2, 1, True).values,
}
SOURCES = {
    "scatter": lambda x, s: x.scatter(1, ROWS[:, :2], s),
    "scatter_add": lambda x, s: x.scatter_add(0, ROWS, s),
    "scatter and add": lambda x, s: x.scatter(0, ROWS, s, reduce="add"),
    "index_copy": lambda x, s: x.index_copy(0, AT[:2], s[:2]),
    "index_add": lambda x, s: x.index_add(0, AT, s, alpha=2),
    "index_fill": lambda x, s: x.index_fill(1, AT, s[0, 0]),
    "put": lambda x, s: x.put([[0, -2], [5, 3]], s[:2, :2]),
    "put and add": lambda x, s: x.put(AT, s[0, :3], True),
    "index_put": lambda x, s: x.index_put((AT[:2], None), s[0]),
    "index_put and add": lambda x, s: x.index_put((AT,), s, True),
    "masked_fill": lambda x, s: x.masked_fill(MASK, s[0, 0]),
    "masked_scatter": lambda x, s: x.masked_scatter(MASK, s),
    "where": lambda x, s: st.where(MASK, x[:, :1], s),
    "lerp": lambda x, s: x.lerp(s, s * x),
    "clamp": lambda x, s: x.clamp(s, s + 0.2),
    "diagonal_scatter": lambda x, s: x.diagonal_scatter(s[0, :3], 1),
    "select_scatter": lambda x, s: x.select_scatter(s[0], 0, -1),
    "slice_scatter": lambda x, s: x.slice_scatter(s[:, :2], 1, 0, 4, 2),
    "as_strided_scatter": lambda x, s: st.as_strided_scatter(x, s[:2, :2], (2, 2), (1, 3), 1),
    "as_strided_scatter of a part": lambda x, s: st.as_strided_scatter(x[:, :3], s[0, :3], (3,), (1,), 2),
    **{
        f"scatter_reduce {how}": lambda x, s, how=how: x.scatter_reduce(0, ROWS, s, how)
        for how in ("sum", "mean", "amax", "prod")
    },
    "scatter_reduce alone": lambda x, s: x.scatter_reduce(1, ROWS[:, :2], s, "amin", include_self=False),
    **{
        f"index_reduce {how}": lambda x, s, how=how: x.index_reduce(0, AT, s, how, include_self=False)
        for how in ("mean", "amin", "prod")
    },
}


def _assigned(x, s):
    y = x.clone()
    y[1:, [0, 3]] = s[0, :2]
    y[0] = s[None, 1]
    return y


SOURCES["assignment"] = _assigned
ONE = {**SHAPES, **DIVIDED, **JOINED, **SELECTED, **BY_MASK}


def _values(*shape):
    rng = np.random.default_rng(3)
    return st.from_numpy(rng.permutation(np.prod(shape)).reshape(shape) / np.prod(shape)).requires_grad_()


@pytest.mark.parametrize("name", ONE)
def test_gradients_beside_differences(name):
    assert gradcheck(ONE[name], (_values(3, 4),))
    assert gradgradcheck(ONE[name], (_values(3, 4),))


@pytest.mark.parametrize("name", SOURCES)
def test_gradients_of_what_is_written_beside_differences(name):
    x, s = _values(3, 4), (_values(3, 4).detach() * 1.03 + 0.01).requires_grad_()
    assert gradcheck(SOURCES[name], (x, s))
    assert gradgradcheck(SOURCES[name], (x, s))


@pytest.mark.parametrize("name", ["view", "adjoint", "T", "expand", "unfold"])
def test_gradients_of_complex_numbers(name):
    x = _values(3, 4).detach() + 1j * _values(4, 3).detach().T
    assert gradcheck(SHAPES[name], (x.requires_grad_(),))


@pytest.mark.parametrize(
    "part", [st.real, st.imag, lambda x: x.real, lambda x: x.imag, lambda x: x.H, lambda x: x[None].mH]
)
def test_parts_of_complex_numbers(part):
    x = _values(3, 4).detach() + 2j * _values(3, 4).detach()
    assert gradcheck(part, (x.requires_grad_(),))


def _gradients(function, *values):
    tensors = [st.tensor(one, dtype=st.float64).requires_grad_() for one in values]
    made = function(*tensors)
    return [one.tolist() for one in grad(made, tensors, st.ones_like(made.detach()))]


def test_bounds_are_inside():
    assert _gradients(lambda x: x.clamp(1, 2), [0.0, 1.0, 1.5, 2.0, 3.0]) == [[0, 1, 1, 1, 0]]
    assert _gradients(lambda x, low: x.clamp(min=low), [1.0, 2.0], [1.0, 3.0]) == [[1, 0], [0, 1]]
    assert _gradients(lambda x, low, high: x.clamp(low, high), [1.0], [3.0], [2.0]) == [[0], [0], [1]]


def test_ties_of_the_largest_share():
    at = st.tensor([0, 0])
    assert _gradients(lambda x, s: x.scatter_reduce(0, at, s, "amax"), [2.0, 5.0], [2.0, 2.0]) == [
        [1 / 3, 1],
        [1 / 3, 1 / 3],
    ]
    alone = lambda x, s: x.scatter_reduce(0, at, s, "amax", include_self=False)  # noqa: E731
    assert _gradients(alone, [2.0, 5.0], [2.0, 2.0]) == [[0, 1], [0.5, 0.5]]


def test_products_with_zeros():
    at = st.tensor([0, 0, 1])
    product = lambda x, s: x.index_reduce(0, at, s, "prod")  # noqa: E731
    assert _gradients(product, [2.0, 0.0], [0.0, 5.0, 3.0]) == [[0, 3], [10, 0, 0]]
    assert _gradients(product, [2.0, 1.0], [0.0, 0.0, 3.0]) == [[0, 3], [0, 0, 1]]


def test_a_larger_source_gets_zeros():
    at = st.tensor([1, 0])
    assert _gradients(lambda x, s: x.scatter_add(0, at, s), [1.0, 2.0], [1.0, 2.0, 3.0]) == [[1, 1], [1, 1, 0]]
    mask = st.tensor([True, False])
    assert _gradients(lambda x, s: x.masked_scatter(mask, s), [1.0, 2.0], [1.0, 2.0]) == [[0, 1], [1, 0]]


def test_tensors_without_axes():
    zero = st.tensor([0])
    for function in (
        lambda x: x.index_select(0, zero),
        lambda x: x.gather(0, zero),
        lambda x: x.sort().values,
        lambda x: x.unfold(0, 1, 1),
        lambda x: st.take(x, zero),
        lambda x: x.topk(1).values,
        lambda x: x.kthvalue(1).values,
        lambda x: x.repeat_interleave(1),
        lambda x: x.scatter_add(0, zero, x[None]),
        lambda x: x[...],
        lambda x: x.flip(0) if x.ndim else x.flatten(),
    ):
        assert gradcheck(function, (st.tensor(2.0, dtype=st.float64).requires_grad_(),))


def test_an_index_that_is_changed_later_does_not_matter():
    x, at = _values(3), st.tensor([0, 2])
    y = x[at]
    z = x.index_put((at,), st.zeros(2, dtype=x.dtype))
    at.fill_(1)
    assert grad(y, x, st.ones(2, dtype=x.dtype))[0].tolist() == [1, 0, 1]
    assert grad(z, x, st.ones(3, dtype=x.dtype))[0].tolist() == [0, 1, 0]


def test_in_place_forms():
    for function in (
        lambda y: y.clamp_(0.3, 0.7),
        lambda y: y.lerp_(_values(3, 4).detach() * 2, 0.25),
        lambda y: y.scatter_(0, ROWS, 1.0),
        lambda y: y.index_fill_(0, AT, 2),
        lambda y: y.masked_fill_(MASK, 2),
        lambda y: y.scatter_reduce_(0, ROWS, _values(3, 4).detach() * 2, "prod"),
    ):
        assert gradcheck(lambda x, function=function: function(x.clone()), (_values(3, 4),))


def test_other_shapes_in_place():
    for function in (
        lambda y: y.t_(),
        lambda y: y.transpose_(0, 1).unsqueeze_(1),
        lambda y: y.unsqueeze_(0).squeeze_(0),
        lambda y: y.as_strided_((2, 3), (1, 2), 1),
    ):
        assert gradcheck(lambda x, function=function: function(x.clone()), (_values(3, 4),))
    with pytest.raises(GradientError, match="leaf"):
        _values(3, 4).t_()


def test_what_has_no_gradient_says_so():
    x = _values(4)
    for made, says in (
        (x.view(st.complex128), "bytes"),
        (x.scatter(0, AT, x, reduce="multiply"), "scatter_reduce"),
        (st.unique(x), "unique"),
    ):
        with pytest.raises(GradientError, match=says):
            grad(made, x, st.ones_like(made.detach()))
    assert not x.argsort().requires_grad
    assert not (x == x).requires_grad


def test_atomic_sums_are_not_recorded():
    x, y = _values(3), st.zeros(3, dtype=st.float64)
    with pytest.raises(GradientError, match="index_add_"):
        y.index_add_atomic_(0, [0, 1, 2], x)
    with st.no_grad():
        assert y.index_add_atomic_(0, [0, 1, 2], x).tolist() == x.tolist()


def test_an_index_refused_with_gradients_is_refused_as_without():
    x = _values(3, 3)
    for key in (5, (1, 2, 3), "a", [0.5], (0, slice(None), st.ones(2))):
        said = []
        for y in (x, x.detach()):
            with pytest.raises(st.errors.ShmTensorError) as found:
                y[key]
            said.append(type(found.value))
        assert said[0] is said[1]


def test_numpys_ufuncs_record_and_other_functions_refuse():
    x = _values(3)
    a = np.arange(1.0, 4.0)
    for function in (lambda x: a + x, lambda x: a**x, lambda x: np.exp(x), lambda x: np.float64(2) * x):
        assert function(x).requires_grad
    assert (a + x).grad_fn is not None
    for refused in (
        np.mean,
        np.cumsum,
        np.add.reduce,
        lambda x: np.add(x, a, out=np.zeros(3)),
        lambda x: np.copyto(x.clone(), a),
    ):
        with pytest.raises(GradientError, match="NumPy records no gradients"):
            refused(x)
    assert np.shape(x) == (3,)
    assert np.argmax(x) == np.argmax(x.detach())
    assert (a == x).tolist() == (a == x.detach().numpy()).tolist()
    with st.no_grad():
        assert float(np.mean(x)) == pytest.approx(1 / 3)


def test_numpy_counts_what_it_changes():
    x, y = _values(3), st.ones(3, dtype=st.float64)
    for change in (lambda: np.add(y, 1, out=y), lambda: np.add.at(y, [0], 1), lambda: np.copyto(y, 2)):
        made = x.lerp(st.zeros(3, dtype=st.float64), y)
        change()
        with pytest.raises(GradientError, match="changed in place"):
            grad(made, x, st.ones(3, dtype=st.float64))


def _added_to_a_row(y, s):
    y[0] += s
    return y


def _written_to_a_transpose(y, s):
    v = y.t()
    v[1] = 3
    return y * y


def _written_beside_a_view(y, s):
    v = y[1]
    y.mul_(2)
    y[2] = s
    return y * v


CHANGED = {
    "a row": _added_to_a_row,
    "a transpose": _written_to_a_transpose,
    "beside a view": _written_beside_a_view,
    "a product": lambda y, s: (y[0].mul_(s), y)[1],
    "a column": lambda y, s: (y[:, 1].fill_(0), y)[1],
    "a copy": lambda y, s: (y[1].copy_(s), y * y)[1],
    "a view of a view": lambda y, s: (y.unsqueeze(0)[0, 1].copy_(s * s), y * y)[1],
    "a diagonal": lambda y, s: (y.diagonal().mul_(s[:3]), y)[1],
}


@pytest.mark.parametrize("name", CHANGED)
def test_views_that_are_changed_in_place(name):
    s = (_values(4).detach() + 0.3).requires_grad_()
    assert gradcheck(lambda x, s: CHANGED[name](x * 1, s), (_values(3, 4), s))


def test_results_that_are_copied_to_out_are_refused():
    x, at = _values(3), st.tensor([0, 2, 1])
    for function in (
        lambda out: st.scatter_add(x, 0, at, x, out=out),
        lambda out: st.sort(x, out=(out, st.zeros(3, dtype=st.int64))),
        lambda out: st.msort(x, out=out),
        lambda out: st.view_copy(x, (3,), out=out),
        lambda out: st.cat([x], out=out),
    ):
        out = st.zeros(3, dtype=st.float64)
        with pytest.raises(GradientError, match="out="):
            function(out)
        with st.no_grad():
            function(out)
        assert any(out.tolist())
