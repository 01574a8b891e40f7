"""Reshaping: views write through, share the storage, follow it and can be sent; copies have their own memory."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from layouts import LAYOUTS, memory_of_its_own, same, tensor_of, written

import shmtensor as st
from shmtensor._tensor import joining, shapes
from shmtensor.errors import LayoutError

VIEWS: dict[str, Any] = {
    "adjoint": (lambda t: t.adjoint(), lambda a: a.T),
    "as_strided": (lambda t: t.as_strided(t.shape, t.stride()), lambda a: a),
    "atleast_1d": (st.atleast_1d, np.atleast_1d), "atleast_2d": (st.atleast_2d, np.atleast_2d),
    "atleast_3d": (st.atleast_3d, np.atleast_3d),
    "broadcast_arrays": (lambda t: st.broadcast_arrays(t, st.ones(2, 1, 1))[0],
                         lambda a: np.broadcast_to(a, (2, *a.shape))),
    "broadcast_tensors": (lambda t: st.broadcast_tensors(t)[0], lambda a: a),
    "broadcast_to": (lambda t: t.broadcast_to((2, *t.shape)), lambda a: np.broadcast_to(a, (2, *a.shape))),
    "chunk": (lambda t: t.chunk(2, 1)[0], lambda a: a[:, : -(-a.shape[1] // 2)]),
    "diagonal": (lambda t: t.diagonal(1), lambda a: a.diagonal(1)),
    "expand_dims": (lambda t: t.expand_dims((0, -1)), lambda a: a[None, ..., None]),
    "matrix_transpose": (lambda t: t.matrix_transpose(), lambda a: a.T),
    "moveaxis": (lambda t: t.moveaxis(0, 1), lambda a: a.T),
    "movedim": (lambda t: t.movedim(-1, 0), lambda a: a.T),
    "narrow": (lambda t: t.narrow(1, 1, 2), lambda a: a[:, 1:3]),
    "permute_dims": (lambda t: st.permute_dims(t, (1, 0)), lambda a: a.T),
    "select": (lambda t: t.select(1, -1), lambda a: a[:, -1]),
    "split": (lambda t: t.split(2, 1)[1], lambda a: a[:, 2:4]),
    "squeeze": (lambda t: t[None].squeeze(), lambda a: a.squeeze()),
    "swapaxes": (lambda t: t.swapaxes(0, 1), lambda a: a.T), "swapdims": (lambda t: t.swapdims(0, 1), lambda a: a.T),
    "t": (lambda t: t.t(), lambda a: a.T),
    "tensor_split": (lambda t: t.tensor_split((1, 2), 1)[1], lambda a: a[:, 1:2]),
    "transpose": (lambda t: t.transpose(0, 1), lambda a: a.T), "unbind": (lambda t: t.unbind(1)[1], lambda a: a[:, 1]),
    "unfold": (lambda t: t.unfold(1, 2, 2), lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, 1)[:, ::2]),
    "unsqueeze": (lambda t: t.unsqueeze(1), lambda a: a[:, None]),
    "unstack": (lambda t: t.unstack(axis=1)[0], lambda a: a[:, 0]),
    "expand": (lambda t: t.expand(2, -1, -1), lambda a: np.broadcast_to(a, (2, *a.shape))),
    "permute": (lambda t: t.permute(1, 0), lambda a: a.T), "T": (lambda t: t.T, lambda a: a.T),
    "mT": (lambda t: t.mT, lambda a: a.T),
    "basic index": (lambda t: t[..., None, 1:], lambda a: a[..., None, 1:]),
    "negative step": (lambda t: t[:, ::-2], lambda a: a[:, ::-2]), "detach": (lambda t: t.detach(), lambda a: a),
    "bytes": (lambda t: t.view("int32"), lambda a: a.view("int32")),
}  # fmt: skip
COPIES: dict[str, Any] = {
    "cat": (lambda t: st.cat([t, t], 1), lambda a: np.concatenate([a, a], 1)),
    "column_stack": (lambda t: st.column_stack([t]), lambda a: a),
    "concat": (lambda t: st.concat([t], axis=None), np.ravel),
    "concatenate": (lambda t: st.concatenate((t,)), lambda a: a),
    "diag_embed": (lambda t: t[0].diag_embed(-1), lambda a: np.diag(a[0], -1)),
    "dstack": (lambda t: st.dstack([t, t]), lambda a: np.dstack([a, a])),
    "flip": (lambda t: t.flip(0), lambda a: a[::-1]), "fliplr": (st.fliplr, np.fliplr),
    "flipud": (st.flipud, np.flipud),
    "hstack": (lambda t: st.hstack([t, t]), lambda a: np.hstack([a, a])),
    "repeat": (lambda t: st.repeat(t, 2, axis=0), lambda a: np.repeat(a, 2, 0)),
    "repeat_interleave": (lambda t: t.repeat_interleave(st.arange(t.size(1)), 1),
                          lambda a: np.repeat(a, np.arange(a.shape[1]), 1)),
    "rot90": (st.rot90, np.rot90),
    "roll": (lambda t: t.roll((1, 2), axis=(0, 1)), lambda a: np.roll(a, (1, 2), (0, 1))),
    "stack": (lambda t: st.stack([t, t], dim=1), lambda a: np.stack([a, a], 1)),
    "tile": (lambda t: t.tile(2, 1), lambda a: np.tile(a, (2, 1))),
    "row_stack": (lambda t: st.row_stack([t, t]), lambda a: np.vstack([a, a])),
    "vstack": (lambda t: st.vstack([t, t]), lambda a: np.vstack([a, a])),
    "copied reshape": (lambda t: t.reshape(-1, copy=True), np.ravel), "clone": (lambda t: t.clone(), lambda a: a),
}  # fmt: skip
EITHER: dict[str, Any] = {
    "contiguous": (lambda t: t.contiguous(), lambda a: a), "flatten": (lambda t: t.flatten(), np.ravel),
    "meshgrid": (lambda t: st.meshgrid(t[0], t[1])[1], lambda a: np.meshgrid(a[0], a[1], indexing="ij")[1]),
    "ravel": (lambda t: t.ravel(), np.ravel),
    "reshape": (lambda t: t.reshape(-1, t.size(0)), lambda a: a.reshape(-1, len(a))),
    "unflatten": (lambda t: t.unflatten(0, (-1, 1)), lambda a: a.reshape(-1, 1, a.shape[1])),
    "reshape_as": (lambda t: t.reshape_as(t.t()), lambda a: a.reshape(a.T.shape)),
}  # fmt: skip
FLAT = ["dense", "transposed", "gaps", "backwards", "expanded", "read-only", "shared", "shared view"]


def test_every_function_has_a_case():
    assert {*shapes.__all__, *joining.__all__} - {"broadcast_shapes", "imag", "real"} <= {*VIEWS, *COPIES, *EITHER}


@pytest.mark.parametrize("layout", FLAT)
@pytest.mark.parametrize("name", VIEWS)
def test_views(name, layout):
    ours, reference = VIEWS[name]
    t = tensor_of(layout, "float32")
    view = ours(t)
    same(view, reference(t.numpy()))
    assert view.storage() is t.storage()
    if view.numpy().flags.writeable and written(t) and view.numel():
        view.fill_(7)
        assert np.asarray(reference(t.numpy()) == ours(st.full(t.shape, 7.0))).all() or name == "bytes"
    elif not written(view):
        with pytest.raises(LayoutError):
            view.fill_(7)
    if layout in ("shared", "shared view"):
        assert view.is_shared()
        return
    expect = view.tolist()
    for loaded in (pickle.loads(pickle.dumps(view)), copy.deepcopy(view)):
        assert (loaded.tolist(), loaded.shape, loaded.dtype) == (expect, view.shape, view.dtype)
        assert written(loaded) or not written(view)
    t.share_memory_()
    assert view.is_shared() and view.tolist() == expect and view.storage() is t.storage()
    assert written(view) or not written(ours(t))


@pytest.mark.parametrize("layout", FLAT)
@pytest.mark.parametrize("name", [*COPIES, *EITHER])
def test_copies(name, layout):
    ours, reference = {**COPIES, **EITHER}[name]
    t = tensor_of(layout, "float32")
    made = ours(t)
    same(made, reference(t.numpy()))
    if name in COPIES:
        memory_of_its_own(made, t)
    else:
        assert np.may_share_memory(made.numpy(), t.numpy()) == (made.storage() is t.storage())


def test_grids():
    x, y = st.arange(2), st.arange(3)
    for made in (st.meshgrid(x, y), st.meshgrid([x, y]), st.meshgrid((x, y), indexing="ij")):
        assert [one.tolist() for one in made] == [[[0, 0, 0], [1, 1, 1]], [[0, 1, 2], [0, 1, 2]]]
    assert [one.tolist() for one in st.meshgrid(x, y, indexing="xy")] == [[[0, 1]] * 3, [[0, 0], [1, 1], [2, 2]]]
    assert [one.tolist() for one in st.meshgrid(st.tensor(5), y)] == [[[5, 5, 5]], [[0, 1, 2]]]


def test_squeeze_leaves_axes_of_other_sizes():
    t = st.zeros(1, 3, 1)
    assert (t.squeeze().shape, t.squeeze(0).shape, t.squeeze(1).shape) == ((3,), (3, 1), (1, 3, 1))
    assert t.squeeze((0, 1)).shape == (3, 1)
    assert t.squeeze(1).storage() is t.storage()
    assert st.tensor(1).squeeze(0).shape == ()


def test_flips_are_copies_and_views_of_nothing_are_views():
    for layout in LAYOUTS:
        t = tensor_of(layout, "int64")
        for made in (t.flip(), t.flip(-1) if t.ndim else t.clone(), t.flip(()), st.fliplr(st.ones(2, 2)).flipud()):
            assert not np.shares_memory(made.numpy(), t.numpy())
        for view in (t[...], t.squeeze(), t.unsqueeze(0), t.view(t.shape) if t.is_contiguous() else t):
            assert view.storage() is t.storage()
    assert st.zeros(0, 3).as_strided((0, 2), (3, 1)).shape == (0, 2)
    assert st.zeros(3)[1:].as_strided((2,), (1,), 0).storage_offset() == 0
    column = st.ones(2)[:, None].expand(2, 3)[:, 1]
    assert not written(column)
    assert [part.shape for part in st.zeros(0, 3).chunk(2)] == [(0, 3)]
    assert [part.tolist() for part in st.arange(5).tensor_split(3)] == [[0, 1], [2, 3], [4]]
    assert [part.tolist() for part in st.arange(5).split((1, 4))] == [[0], [1, 2, 3, 4]]


@pytest.mark.parametrize(
    "move", [lambda t: t.expand(4, 3), lambda t: t.unfold(0, 2, 1), lambda t: t.as_strided((2, 2), (1, 1))]
)
def test_overlapping_elements_cannot_be_written_wherever_they_went(move, ctx):
    t = st.tensor([1.0, 2, 3])
    view = move(t)
    expect = view.tolist()
    queue = ctx.SimpleQueue()
    queue.put(view)
    for one in (view, copy.deepcopy(view), pickle.loads(pickle.dumps(view)), queue.get(), st.zeros(1).set_(view)):
        assert one.tolist() == expect
        with pytest.raises(LayoutError):
            one.add_(1)
    with pytest.raises(LayoutError):
        st.zeros(1).set_(t.storage(), 0, (2, 2), (1, 1)).zero_()


def test_views_through_a_queue(ctx):
    t = st.arange(12.0).view(3, 4).share_memory_()
    queue = ctx.SimpleQueue()
    for make in (
        lambda: t[1:, ::2],
        lambda: t.t(),
        lambda: t[::-1],
        lambda: t.view("int32"),
        lambda: t[1, 2],
        lambda: t.diagonal(),
    ):
        view = make()
        queue.put(view)
        got = queue.get()
        assert (got.tolist(), got.shape, got.stride(), got.dtype) == (
            view.tolist(),
            view.shape,
            view.stride(),
            view.dtype,
        )
        assert got.storage_offset() == view.storage_offset()
        assert got.is_shared()


steps = some.one_of(
    some.tuples(some.just("slice"), some.integers(-3, 3), some.integers(-4, 4), some.sampled_from([-2, -1, 1, 2])),
    some.tuples(some.just("transpose"), some.integers(0, 2), some.integers(0, 2), some.just(0)),
    some.tuples(some.just("unsqueeze"), some.integers(0, 2), some.just(0), some.just(0)),
    some.tuples(some.just("select"), some.integers(0, 2), some.integers(0, 1), some.just(0)),
)


def _step(v: Any, step: Any) -> Any:
    kind, one, two, three = step
    if kind == "slice":
        return v[..., slice(one, two, three)] if v.ndim else v
    if kind == "transpose":
        return v.swapaxes(one % v.ndim, two % v.ndim) if v.ndim else v
    if kind == "unsqueeze":
        return v[None] if isinstance(v, np.ndarray) else v.unsqueeze(0)
    axis = one % v.ndim if v.ndim else 0
    if not v.ndim or v.shape[axis] <= two:
        return v
    return v[(slice(None),) * axis + (two, ...)] if isinstance(v, np.ndarray) else v.select(axis, two)


@given(some.lists(steps, max_size=6), some.booleans())
def test_views_of_views(path, moved):
    t, a = st.arange(60.0).view(3, 4, 5), np.arange(60.0, dtype=np.float32).reshape(3, 4, 5)
    view, expect = t, a
    for step in path:
        view, expect = _step(view, step), _step(expect, step)
    same(view, expect)
    if moved:
        t.share_memory_()
    view.add_(100)
    expect += 100
    same(t, a)
    same(view, expect)
    assert view.storage() is t.storage()
    loaded, whole = pickle.loads(pickle.dumps((view, t)))
    same(loaded, expect)
    loaded.zero_()
    assert whole.sum().item() == pytest.approx(a.sum() - expect.sum())
    assert copy.deepcopy(view).tolist() == expect.tolist()
    assert view.reshape(-1).tolist() == expect.reshape(-1).tolist()


def test_joining_into_out_that_overlaps():
    t = st.arange(6)
    st.cat([t[3:], t[:3]], out=t)
    assert t.tolist() == [3, 4, 5, 0, 1, 2]
    out = st.zeros(2, 6, dtype="int64", shared=True)
    assert st.stack([t, t], out=out) is out
    assert out.tolist() == [t.tolist()] * 2
    assert math.prod(out.shape) == out.numel()


@pytest.mark.torch
def test_as_torch():
    torch: Any = pytest.importorskip("torch")
    array = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    ours, theirs = st.from_numpy(array), torch.from_numpy(array)
    for call in (
        lambda x: x.unfold(1, 2, 1), lambda x: x.unfold(2, 3, 2), lambda x: x.as_strided((2, 3), (5, 2), 4),
        lambda x: x.diagonal(1, 0, 2),
        lambda x: x.permute(2, 0, 1), lambda x: x.expand(2, 3, 4, 5), lambda x: x[:, :1].expand(-1, 4, -1),
        lambda x: x.movedim(0, 2),
        lambda x: x.flatten(1), lambda x: x.flatten(0, 1), lambda x: x.unflatten(1, (2, -1)), lambda x: x.squeeze(),
        lambda x: x[:1].squeeze(0),
        lambda x: x.chunk(2, 1)[1], lambda x: x.chunk(3, 2)[2], lambda x: x.split(2, 1)[1],
        lambda x: x.split([1, 3], 1)[1],
        lambda x: x.tensor_split(3, 2)[1], lambda x: x.tensor_split((1, 3), 2)[1], lambda x: x.unbind(1)[2],
        lambda x: x.narrow(2, -2, 1),
        lambda x: x.transpose(0, -1), lambda x: x.mT, lambda x: x[:, 1:, ::2],
    ):  # fmt: skip
        one, other = call(ours), call(theirs)
        assert one.stride() == other.stride()
        assert one.storage_offset() == other.storage_offset()
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    for call in (
        lambda x: x.flip((0, 2)), lambda x: x.rot90(1, (1, 2)), lambda x: x[0].fliplr(),
        lambda x: x.repeat_interleave(2, 1),
        lambda x: x.tile((2, 1, 1)), lambda x: x[0].diag_embed(1), lambda x: x.reshape(5, -1), lambda x: x[0].adjoint(),
    ):  # fmt: skip
        np.testing.assert_array_equal(call(ours).numpy(), call(theirs).numpy())


def test_places_and_numbers_in_tensors():
    x = st.arange(6)
    assert [part.tolist() for part in x.tensor_split(st.tensor(3))] == [[0, 1], [2, 3], [4, 5]]
    assert [part.numel() for part in st.tensor_split(x, st.tensor([1, 5]))] == [1, 4, 1]
    assert st.repeat_interleave(st.tensor([2, 0, 1])).tolist() == [0, 0, 2]
    assert x[:2].repeat_interleave(st.tensor([1, 2]), 0, output_size=3).tolist() == [0, 1, 1]
    with pytest.raises(st.errors.InvalidArgument, match="the size is 3"):
        x[:2].repeat_interleave(st.tensor([1, 2]), output_size=4)
