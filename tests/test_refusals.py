"""Impossible requests: refused with an error of ours that states the request, and without effects."""

from __future__ import annotations

import queue
from typing import Any

import numpy as np
import pytest

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import Tensor, array_api, atomics, fft
from shmtensor._tensor import special
from shmtensor.errors import (
    DeviceUnavailable,
    DTypeError,
    IndexOutOfRange,
    InvalidArgument,
    LayoutError,
    OutOfMemory,
    ShmTensorError,
)
from shmtensor.manager import client

HUGE = 2**62
B, D, X, L, M = InvalidArgument, DTypeError, IndexOutOfRange, LayoutError, OutOfMemory


def x() -> Tensor:
    return st.tensor(np.arange(12.0, dtype=np.float32).reshape(3, 4))


def n() -> Tensor:
    return st.arange(12).view(3, 4)


def read_only() -> Tensor:
    return st.tensor([1.0, 2, 3]).expand(3, 3)


def wide() -> Tensor:
    """Of more elements than memory holds, and in one place."""
    return st.zeros(1).expand(2**46)


AXES = [
    (name, call)
    for name, call in {
        "sum": lambda t, d: t.sum(d), "mean": lambda t, d: t.mean(d), "max": lambda t, d: t.max(d),
        "all": lambda t, d: t.all(d), "std": lambda t, d: t.std(axis=d), "median": lambda t, d: t.median(d),
        "logsumexp": lambda t, d: t.logsumexp(d), "argmax": lambda t, d: t.argmax(d),
        "argmin": lambda t, d: t.argmin(d), "count_nonzero": lambda t, d: t.count_nonzero(d),
        "nansum": lambda t, d: st.nansum(t, axis=d), "aminmax": lambda t, d: t.aminmax(dim=d),
        "quantile": lambda t, d: t.quantile(0.5, d), "cumsum": lambda t, d: t.cumsum(d),
        "cumprod": lambda t, d: t.cumprod(d), "cummax": lambda t, d: t.cummax(d), "cummin": lambda t, d: t.cummin(d),
        "logcumsumexp": lambda t, d: t.logcumsumexp(d), "diff": lambda t, d: t.diff(axis=d),
        "mode": lambda t, d: t.mode(d), "renorm": lambda t, d: t.renorm(2, d, 1), "sort": lambda t, d: t.sort(axis=d),
        "argsort": lambda t, d: t.argsort(axis=d), "topk": lambda t, d: t.topk(1, d),
        "kthvalue": lambda t, d: t.kthvalue(1, d), "narrow": lambda t, d: t.narrow(d, 0, 1),
        "select": lambda t, d: t.select(d, 0), "transpose": lambda t, d: t.transpose(0, d),
        "moveaxis": lambda t, d: t.moveaxis(0, d), "squeeze": lambda t, d: t.squeeze(d),
        "diagonal": lambda t, d: t.diagonal(0, 0, d), "unfold": lambda t, d: t.unfold(d, 1, 1),
        "flip": lambda t, d: t.flip(d), "rot90": lambda t, d: t.rot90(1, (0, d)), "chunk": lambda t, d: t.chunk(2, d),
        "split": lambda t, d: t.split(2, d), "tensor_split": lambda t, d: t.tensor_split(2, d),
        "unbind": lambda t, d: t.unbind(d), "unstack": lambda t, d: t.unstack(axis=d),
        "flatten": lambda t, d: t.flatten(0, d), "unflatten": lambda t, d: t.unflatten(d, (1, -1)),
        "roll": lambda t, d: t.roll(1, axis=d), "repeat": lambda t, d: t.repeat_interleave(2, d),
        "take": lambda t, d: t.take([0], axis=d), "take_along_axis": lambda t, d: t.take_along_axis(n(), axis=d),
        "index_select": lambda t, d: t.index_select(d, [0]), "gather": lambda t, d: t.gather(d, n()),
        "scatter": lambda t, d: t.scatter(d, n(), 1), "index_add_": lambda t, d: t.index_add_(d, [0], 1),
        "index_fill_": lambda t, d: t.index_fill_(d, [0], 1), "size": lambda t, d: t.size(d),
        "stride": lambda t, d: t.stride(d), "fftshift": lambda t, d: fft.fftshift(t, axes=d),
        "fft": lambda t, d: fft.fft(t, axis=d), "fftn": lambda t, d: fft.fftn(t, axes=(d,)),
        "vecdot": lambda t, d: st.vecdot(t, t, axis=d), "stack": lambda t, d: st.stack([t[0, 0], t[0, 0]], axis=d),
        "unsqueeze": lambda t, d: t[0, 0].unsqueeze(d), "expand_dims": lambda t, d: t[0, 0].expand_dims((d,)),
        "permute": lambda t, d: t.permute(0, d), "concat": lambda t, d: st.concat([t, t], axis=d),
    }.items()
]  # fmt: skip


@pytest.mark.parametrize(("name", "call"), AXES, ids=[name for name, _ in AXES])
def test_axes_that_are_not_there(name, call):
    for dim in (2, -3):
        with pytest.raises(IndexOutOfRange):
            call(x(), dim)
    for dim in (HUGE, -HUGE, 2**70, 2**32, 2**32 + 1):
        with pytest.raises(InvalidArgument):
            call(x(), dim)
    for dim in (1.0, "1", True, [0.5], object(), np.ones(2)):
        with pytest.raises((InvalidArgument, DTypeError)) as caught:
            call(x(), dim)
        assert "compute" not in str(caught.value)


REPEATED = [
    lambda t: t.sum((0, 0)), lambda t: t.count_nonzero((0, -2)), lambda t: t.permute(0, 0), lambda t: t.permute(1, -1),
    lambda t: t.flip(0, 0), lambda t: t.moveaxis((0, 0), (0, 1)), lambda t: t.squeeze((0, 0)),
    lambda t: t.rot90(1, (0, 0)), lambda t: t.diagonal(0, 1, 1), lambda t: t.expand_dims((0, 0)),
    lambda t: t.std((1, 1)), lambda t: t.median((1, -1)), lambda t: t.quantile(0.5, (0, 0)),
    lambda t: t.logsumexp((0, 0)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REPEATED)))
def test_axes_that_are_repeated(number):
    with pytest.raises(InvalidArgument):
        REPEATED[number](x())


CALLS: list[tuple[Any, type[ShmTensorError]]] = [
    # values of the wrong kind, wherever they are taken
    (lambda: st.concat(np.ones(3)), B), (lambda: st.FloatStorage(3, allocator=5), B),
    (lambda: st.FloatStorage(3).set_flag(None), B), (lambda: st.FloatStorage.from_buffer(b"1234", []), B),
    (lambda: st.FloatStorage(3).tofile(5), B), (lambda: x().apply_(5), D), (lambda: x().to("cuda"), DeviceUnavailable),
    (lambda: st.meshgrid(*[st.ones(1024)] * 7), B), (lambda: x().normal_(np.array("x")), D),
    (lambda: st.atan2(st.ones(2), np.array([None, 1], object)), D), (lambda: st.fft.fftfreq(2**63), B),
    (lambda: st.multinomial(st.ones(3), HUGE, replacement=True), B), (lambda: st.linalg.norm([1]), D),
    (lambda: st.split([1, 2], 1), D), (lambda: st.contiguous([1]), D), (lambda: x().view_as([1]), D),
    # -- shapes
    (lambda: x().view(5, 2), B), (lambda: x().view(-1, -1), B), (lambda: x().view(HUGE, HUGE), B),
    (lambda: x().view(True, 12), B), (lambda: x().view(None), B), (lambda: x().view(2.0, 6), B),
    (lambda: x().view("nothing"), D), (lambda: x().view(object), D), (lambda: x()[:, :3].view("float64"), B),
    (lambda: x()[:, 1:3].view("float64"), L), (lambda: st.zeros(3, 5)[:, :2].view("int64"), L),
    (lambda: x()[:, ::2].view("uint8"), B), (lambda: x()[0, 0].view("uint8"), B), (lambda: x().t().view(12), L),
    (lambda: st.reshape(x().t(), (12,), copy=False), L), (lambda: x().reshape(7), B), (lambda: x().reshape(-2), B),
    (lambda: x().reshape(2**33, 2**33), B), (lambda: x().flatten(1, 0), B), (lambda: x().unflatten(0, (2, 2)), B),
    (lambda: x().unflatten(0, 3), B), (lambda: x().unflatten(0, ("a",)), B), (lambda: x().narrow(0, 2, 2), X),
    (lambda: x().narrow(0, 0, -1), X), (lambda: x().narrow(0, 1.5, 1), B), (lambda: x().narrow(0, 0, HUGE), X),
    (lambda: x().select(0, 3), X), (lambda: x().select(0, True), B), (lambda: x().select(0, None), B),
    (lambda: x().permute(0), B), (lambda: x().permute(), B), (lambda: st.permute_dims(x(), None), B),
    (lambda: st.permute_dims(x(), 1), B), (lambda: x().permute(True, False), B), (lambda: x().permute(0.0, 1), B),
    (lambda: x()[None].t(), B), (lambda: x()[0].mT, B), (lambda: x()[0].matrix_transpose(), B),
    (lambda: x()[0].adjoint(), B), (lambda: x().moveaxis((0, 1), 0), B), (lambda: array_api.squeeze(x(), 0), B),
    (lambda: x().expand(4, 4), B), (lambda: x().expand(4), B), (lambda: x().expand(-1, 3, 4), B),
    (lambda: x().expand(2.0, 3, 4), B), (lambda: x().expand(True, 3, 4), B), (lambda: x().expand("a"), B),
    (lambda: x().broadcast_to(5), B), (lambda: x().broadcast_to((HUGE, 3, 4)), B),
    (lambda: x().broadcast_to((-1, 3, 4)), B),
    (lambda: x().broadcast_to(None), B), (lambda: st.broadcast_shapes((2,), (3,)), B),
    (lambda: st.broadcast_shapes((-1,)), B), (lambda: st.broadcast_arrays(x(), st.ones(5)), B),
    (lambda: st.broadcast_arrays(x(), [1]), D), (lambda: x().diagonal("a"), B), (lambda: x()[0].diagonal(), X),
    (lambda: x().as_strided((4, 4), (4, 1)), B), (lambda: x().as_strided((2,), (-1,)), B),
    (lambda: x().as_strided((2,), (1, 1)), B), (lambda: x().as_strided(3, 1), B),
    (lambda: x().as_strided((1.5,), (1,)), B),
    (lambda: x().as_strided((-1,), (1,)), B), (lambda: x().as_strided((2,), (HUGE,)), B),
    (lambda: x().as_strided((HUGE,), (0,)), B), (lambda: x().as_strided((2,), (1,), -1), B),
    (lambda: x().as_strided((2,), (1,), HUGE), B), (lambda: x().as_strided((2,), (1,), "a"), B),
    (lambda: x().unfold(0, 4, 1), B), (lambda: x().unfold(0, 2, 0), B), (lambda: x().unfold(0, -1, 1), B),
    (lambda: x().unfold(0, 1.5, 1), B), (lambda: x().rot90(1.5), B), (lambda: x().rot90(1, (0,)), B),
    (lambda: x().rot90(1, 0), B), (lambda: x()[0].fliplr(), X), (lambda: x()[0, 0].flipud(), X),
    (lambda: x().chunk(0), B), (lambda: x().chunk("a"), B), (lambda: x().split(0), B), (lambda: x().split((1, 1)), B),
    (lambda: x().split((4, -1)), B), (lambda: x().split("a"), B), (lambda: x().split(2.5), B),
    (lambda: x().tensor_split(0), B), (lambda: x().tensor_split(-1), B), (lambda: x().tensor_split((0.5,)), B),
    (lambda: x().tensor_split("ab"), B), (lambda: x().tensor_split(None), B), (lambda: st.cat([]), B),
    (lambda: st.cat(None), B), (lambda: st.cat([[1], [2]]), D), (lambda: st.cat([x(), x()[0]]), B),
    (lambda: st.cat([x(), x()[:, 1:]]), B), (lambda: st.stack([x(), x()[0]]), B), (lambda: st.stack([]), B),
    (lambda: st.hstack([x(), st.ones(2, 2)]), B), (lambda: st.vstack([x(), st.ones(2, 2)]), B),
    (lambda: st.dstack([x(), st.ones(2, 2)]), B), (lambda: st.column_stack([x(), st.ones(2, 2)]), B),
    (lambda: x().roll((1, 2)), B), (lambda: x().roll((1, 2), axis=0), B), (lambda: x().roll(1.5), B),
    (lambda: x().roll("a"), B), (lambda: st.repeat(x(), -1), B), (lambda: st.repeat(x(), (1, 2)), B),
    (lambda: st.repeat(x(), 1.5), D), (lambda: st.repeat(x(), HUGE), (B, M)), (lambda: x().tile(-1), B),
    (lambda: x().tile(1.5), B), (lambda: x().tile("a"), B), (lambda: x().tile(2**44), (B, M)),
    (lambda: x().tile(HUGE), (B, M)),
    (lambda: x()[0, 0].diag_embed(), B), (lambda: x().diag_embed(HUGE), B), (lambda: x().diag_embed("a"), B),
    (lambda: st.meshgrid(x()), B), (lambda: st.meshgrid(), B), (lambda: st.meshgrid([]), B),
    (lambda: array_api.meshgrid(x(), indexing="a"), B),
    (lambda: st.meshgrid(x()[0], indexing="a"), B), (lambda: st.meshgrid([1]), D),
    # -- statistics
    (lambda: st.empty(0).max(), B), (lambda: st.empty(0).argmin(), B), (lambda: st.empty(2, 0).min(1), B),
    (lambda: x().sum(dtype="nothing"), D), (lambda: x().argmax((0, 1)), B), (lambda: st.empty(0).quantile(0.5), B),
    (lambda: x().quantile(2), B), (lambda: x().quantile("a"), (B, D)),
    (lambda: x().quantile(0.5, interpolation="a"), B),
    (lambda: x().cumsum(), B), (lambda: x().cumsum(0, dtype="nothing"), D), (lambda: x().diff(n=-1), B),
    (lambda: x().diff(n="a"), (B, D)), (lambda: st.diff(x(), prepend=st.ones(2, 2)), B),
    (lambda: st.diff(x(), prepend=1), D),
    (lambda: st.empty(2, 0).mode(), B), (lambda: x().dist(st.ones(5)), B), (lambda: x().dist(1), D),
    (lambda: x().dist(x(), "a"), B), (lambda: x().renorm(0, 0, 1), B), (lambda: x().renorm(2, 0, -1), B),
    (lambda: n().renorm(2, 0, 1), D), (lambda: x().histc(0), B), (lambda: x().histc(-1), B),
    (lambda: x().histc(2.5), B),
    (lambda: x().histc(5, 2, 1), B), (lambda: x().histc(5, 0, float("nan")), B), (lambda: (x() * 1j).histc(), D),
    (lambda: x().histc(5, float("-inf"), 1), B), (lambda: x()[0].bhistc(), B),
    (lambda: st.match(x(), st.ones(2, 3)), B),
    (lambda: st.match(x()[0, 0], x()), B),
    (lambda: x().histc(2**50), (B, M)),
    # -- sorting
    (lambda: x().topk(5), B), (lambda: x().topk(-1), B), (lambda: x().topk(1.5), B), (lambda: x().kthvalue(0), B),
    (lambda: x().kthvalue(5), B), (lambda: x().kthvalue(True), B), (lambda: array_api.sort(x()[0, 0]), X),
    (lambda: st.sort([1]), D),
    # -- selection
    (lambda: x().take([12]), X), (lambda: x().take([HUGE]), X), (lambda: x().take([0.5]), D),
    (lambda: x().take([True]), D),
    (lambda: x().take([2**70]), D), (lambda: x().take(st.tensor([2**63], dtype="uint64")), X),
    (lambda: x().take([[0], [1, 2]]), B), (lambda: x().take(["a"]), D), (lambda: x().take(None), D),
    (lambda: st.empty(0).take([0]), X), (lambda: x().take_along_axis(st.arange(4)), B),
    (lambda: x().take_along_axis(st.zeros(2, 1, dtype="int64"), axis=1), B),
    (lambda: x().take_along_axis(n(), axis=1), X),
    (lambda: x().index_select(0, n()), B), (lambda: x().index_select(0, [3]), X),
    (lambda: x().gather(0, st.arange(3)), B),
    (lambda: x().gather(0, n()), X), (lambda: x().gather(0, st.zeros(3, 5, dtype="int64")), B),
    (lambda: x().scatter_(0, n() % 3, st.ones(2, 2)), B), (lambda: x().scatter_(0, n(), 1), X),
    (lambda: x().scatter_(0, n() % 3, "a"), D), (lambda: n().scatter_add_(0, n() % 3, x()), D),
    (lambda: n().scatter_add_(0, n() % 3, 0.5), D), (lambda: x().index_add_(0, [3], x()[:1]), X),
    (lambda: x().index_add_(0, [0, 1], st.ones(3, 4)), B), (lambda: n().index_add_(0, [0], n()[:1], alpha=0.5), D),
    (lambda: n().index_add_(0, [0], 0.5), D), (lambda: st.ones(3, dtype="int8").index_add_(0, [0], 300), B),
    (lambda: x().index_copy_(0, [3], x()[:1]), X), (lambda: x().index_copy_(0, [0], st.ones(3, 3)), B),
    (lambda: x().index_fill_(0, n(), 1), B), (lambda: x().put_([12], 1), X), (lambda: x().put_([0, 1], st.ones(3)), B),
    (lambda: st.empty(0).put_([0], 1), X), (lambda: x()[0, 0].put_([1], 1), X), (lambda: x().masked_select(n()), D),
    (lambda: x().masked_select([True, False]), B), (lambda: x().masked_select([[True], [True, False]]), B),
    (lambda: x().masked_fill_(x() > 0, st.ones(2)), B), (lambda: x().masked_fill(x() > 0, "a"), D),
    (lambda: x().masked_scatter_(x() > 0, st.ones(2)), B), (lambda: x().masked_scatter_(x() > 0, [[1], [2, 3]]), B),
    (lambda: st.where(x() > 0, x(), None), D), (lambda: st.where(x() > 0, x(), st.ones(5)), B),
    (lambda: st.where([[1], [2, 3]], 1, 2), B), (lambda: st.where(x(), 1), D), (lambda: x().clip("a"), D),
    (lambda: x().clip(st.ones(5)), B), (lambda: x().lerp(st.ones(5), 0.5), B),
    (lambda: x().lerp("a", 1), D), (lambda: array_api.nonzero(x()[0, 0]), B), (lambda: st.searchsorted(x(), 1), B),
    (lambda: st.searchsorted(x()[0], 1, side="a"), B), (lambda: st.searchsorted(x()[0], 1, sorter=x()[0]), D),
    (lambda: st.searchsorted(x()[0], 1, sorter=st.arange(2)), B), (lambda: st.bucketize(x(), [1, 2]), D),
    (lambda: n().bincount(), B), (lambda: x()[0].bincount(), D), (lambda: (n()[0] - 5).bincount(), B),
    (lambda: n()[0].bincount(st.ones(2)), B), (lambda: n()[0].bincount(minlength=-1), B), (lambda: x()[0].tril(), B),
    (lambda: x().triu(k="a"), B),
    # -- creation
    (lambda: st.arange(0, 5, 0), B), (lambda: st.arange("a"), (B, D)), (lambda: st.arange(HUGE), (B, M)),
    (lambda: st.arange(float("nan")), B), (lambda: st.arange(0, float("inf")), B), (lambda: st.arange(3, dtype="x"), D),
    (lambda: st.range(0, 5, 0), B), (lambda: st.range("a", 5), D), (lambda: st.range(0, float("inf")), B),
    (lambda: st.range(0, HUGE), (B, M)), (lambda: st.linspace(0, 1, -1), B), (lambda: st.linspace(0, 1, 1.5), B),
    (lambda: st.linspace("a", 1), B), (lambda: st.linspace(0, 1j, dtype="float32"), D),
    (lambda: st.linspace(0, 1, HUGE), (B, M)),
    (lambda: st.logspace(0, 1, -1), B), (lambda: st.eye(-1), B), (lambda: st.eye(2.5), B),
    (lambda: st.eye(3, k="a"), B),
    (lambda: st.eye(2**31, 2**31), B), (lambda: st.diag(x()[None]), B), (lambda: st.diag(x(), "a"), B),
    (lambda: st.diag(st.ones(2), 2**40), (B, M)), (lambda: st.full((2, -1), 1), B), (lambda: st.full(2, "a"), D),
    (lambda: st.full((2,), [1, 2, 3]), B), (lambda: st.zeros(2, device="cuda"), DeviceUnavailable),
    (lambda: st.empty_like([1]), D),
    (lambda: st.asarray([1], copy=False), B), (lambda: st.asarray(x(), dtype="int8", copy=False), B),
    (lambda: st.asarray("abc"), D), (lambda: st.asarray(None), D), (lambda: st.asarray([1], device=np.ones(2)), D),
    (lambda: st.asarray(np.zeros(2, "M8[s]")), D), (lambda: st.asarray({}), D),
    # -- types
    (lambda: st.astype(x(), "nothing"), D), (lambda: st.finfo("int8"), D), (lambda: st.iinfo("float32"), D),
    (lambda: st.isdtype(st.int8, "nothing"), D), (lambda: st.result_type("nothing"), D), (lambda: st.result_type(), D),
    (lambda: st.can_cast([], st.int8), D),
    # -- methods
    (lambda: x().set_(5), D), (lambda: x().set_(x().storage(), -1), B), (lambda: x().set_(x().storage(), 13), B),
    (lambda: x().set_(x().storage(), 0, 5), B), (lambda: x().set_(x().storage(), 0, (13,)), B),
    (lambda: x().set_(x().storage(), "a"), B), (lambda: x().set_(x().storage(), 0, (2,), (1, 1)), B),
    (lambda: x().set_(x().storage(), 0, (-1,)), B), (lambda: x().resize_(-1), B), (lambda: x().resize_(HUGE), B),
    (lambda: x().resize_("a"), B), (lambda: st.zeros(3, shared=True).resize_(4000), ShmTensorError),
    (lambda: st.ones(2, dtype="int8").apply_(lambda v: 300), B),
    (lambda: x().apply_(lambda v: "a"), (B, D)), (lambda: x().to_device("cuda"), DeviceUnavailable),
    (lambda: x().to_device("cpu", stream=1), B),
    (lambda: x().to("nothing"), D), (lambda: x().type_as([1]), D), (lambda: x().imag, D), (lambda: x().item(), B),
    (lambda: bool(x()), B), (lambda: len(x()[0, 0]), D), (lambda: f"{x():.2f}", B), (lambda: x().copy_(st.ones(5)), B),
    (lambda: x().copy_("a"), D), (lambda: x().copy_([[1], [2, 3]]), B), (lambda: x().fill_("a"), (B, D)),
    (lambda: x().fill_(1j), D), (lambda: n().fill_(2**70), B),
    (lambda: x().__array_namespace__(api_version="1999.12"), B), (lambda: x().addcmul(x(), st.ones(5)), B),
    (lambda: x().addcmul(x(), "a"), D), (lambda: x().addcdiv(None, x()), D), (lambda: x().add([[1], [2, 3]]), B),
    # -- indexing
    (lambda: x()[3], X), (lambda: x()[0, 0, 0], X), (lambda: x()[HUGE], X), (lambda: x()[2**70], X),
    (lambda: x()["a"], B),
    (lambda: x()[1.5], B), (lambda: x()[[0.5]], B), (lambda: x()[[5]], X), (lambda: x()[[True]], X),
    (lambda: x()["a":], B),
    (lambda: x()[::0], B), (lambda: x()[..., ...], B), (lambda: x()[[0, 1], [0, 1, 2]], B),
    (lambda: x().__setitem__(3, 1), X), (lambda: x().__setitem__(0, st.ones(5)), B),
    (lambda: x().__setitem__(0, 1j), D),
    (lambda: x().__setitem__(0, "a"), B), (lambda: x().__setitem__([0, 1], st.ones(3)), B),
    (lambda: x().__setitem__(x() > 0, st.ones(2)), B),
    # -- memory that cannot be written
    (lambda: read_only().fill_(1), L), (lambda: read_only().__setitem__(0, 1), L), (lambda: read_only().add_(1), L),
    (lambda: read_only().exp_(), L), (lambda: read_only()[:, 0].index_add_(0, [0], 1), L),
    (lambda: st.zeros(1).expand(3).put_([0], 1, True), L), (lambda: read_only().copy_(st.ones(3)), L),
    (lambda: read_only().zero_(), L),
    (lambda: read_only().clip_(0, 1), L), (lambda: read_only().index_add_(0, [0], 1), L),
    (lambda: read_only().index_fill_(0, [0], 1), L), (lambda: read_only().masked_fill_(st.ones(3) > 0, 1), L),
    (lambda: read_only().scatter_(0, n()[:, :3] % 3, 1), L), (lambda: read_only().put_([0], 1), L),
    (lambda: st.arange(6.0).unfold(0, 3, 1).zero_(), L), (lambda: st.ones(6).as_strided((3, 3), (1, 1)).mul_(2), L),
    (lambda: x().sum(0, out=st.zeros(1).expand(4)), L), (lambda: x().cumsum(0, out=st.zeros(1, 4).expand(3, 4)), L),
    (lambda: st.cat([x(), x()], out=st.zeros(1, 4).expand(6, 4)), L),
    (lambda: np.add(x(), 1, out=st.zeros(1, 4).expand(3, 4)), L),
    (lambda: st.matmul(st.ones(2, 2), st.ones(2, 2), out=st.zeros(1, 2).expand(2, 2)), L),
    # -- out= of another shape or type
    (lambda: x().sum(0, out=st.zeros(3)), B), (lambda: x().sum(0, out=st.zeros(2, 4)), B),
    (lambda: x().mean(out=st.zeros(1)), B),
    (lambda: x().sum(0, out=st.zeros(4, dtype="int64")), D),
    (lambda: x().max(0, out=(st.zeros(4, dtype="int64"),) * 2), D),
    (lambda: x().max(0, out=st.zeros(4)), B), (lambda: x().sort(out=(st.zeros(3, 4),)), B),
    (lambda: x().mean(0, out=st.zeros(4, dtype="int64")), D), (lambda: x().std(0, out=np.zeros(4)), D),
    (lambda: x().logsumexp(0, out=st.zeros(4, dtype="int64")), D), (lambda: x().median(0, out=st.zeros(3)), B),
    (lambda: x().cumsum(0, out=st.zeros(4)), B), (lambda: x().cumsum(0, out=st.zeros(3, 4, dtype="int64")), D),
    (lambda: st.cumulative_sum(x(), axis=0, include_initial=True, out=st.zeros(3, 4)), B),
    (lambda: st.cumulative_sum(x(), axis=0, include_initial=True, out=st.zeros(4)), B),
    (lambda: st.cat([x(), x()], out=st.zeros(5, 4)), B), (lambda: st.cat([x(), x()], out=[1]), D),
    (lambda: st.cat([x(), x()], out=st.zeros(6, 4, dtype="int8")), D),
    (lambda: x().clip(0, 1, out=st.zeros(2, 3, 4)), B),
    (lambda: x().clip(0, 1, out=st.zeros(3, 4, dtype="int8")), D), (lambda: st.add(x(), 1, out=st.zeros(2, 3, 4)), B),
    # -- more than memory
    (lambda: wide() + 1, M), (lambda: wide().exp(), M), (lambda: wide().clone(), M), (lambda: wide().contiguous(), M),
    (lambda: wide().sort(), M), (lambda: wide().cumsum(0), M), (lambda: wide().to("float64"), M),
    (lambda: wide() > 0, M), (lambda: st.where(wide() > 0, 1, 2), M), (lambda: np.add(wide(), 1), M),
    (lambda: np.sort(wide()), M),
    (lambda: wide().reshape(2**23, 2**23), None), (lambda: wide()[::2].view(2**45), None),
    (lambda: wide().clip(0, 1), M),
    (lambda: st.cat([wide(), wide()]), M), (lambda: wide().roll(1), M),
    (lambda: wide()[st.arange(2**10).expand(2**36, 2**10)], M),
    # -- Fourier
    (lambda: fft.fft(x(), n=0), B), (lambda: fft.fft(x(), n=1.5), B), (lambda: fft.fft(x(), norm="a"), B),
    (lambda: fft.fftn(x(), s=1.5), B), (lambda: fft.fftn(x(), s=(1, 2, 3)), B), (lambda: fft.fftn(x(), s=(0, 1)), B),
    (lambda: fft.fftn(x(), s=(1,), axes=(0, 1)), B), (lambda: fft.rfft(x() * 1j), D), (lambda: fft.fft([1]), D),
    (lambda: fft.fft(x()[0, 0]), X), (lambda: fft.fftfreq(0), B), (lambda: fft.fftfreq(1.5), B),
    (lambda: fft.rfftfreq(3, d=0), B),
    (lambda: fft.fftshift(x(), axes="a"), B), (lambda: fft.fft(x(), n=2**44), M),
    (lambda: special.erf([1]), D),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_refused(number, recwarn):
    call, error = CALLS[number]
    if error is None:
        call()
        return
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, ShmTensorError)
    assert len(str(caught.value)) > 20
    assert not recwarn


BOUNDARIES = (
    *(-(2**200), -(2**63) - 1, -(2**63), -(2**32), -(2**31) - 1, -1, 0),
    *(2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**200),
)  # fmt: skip


def s() -> Tensor:
    return st.zeros(4, 4, dtype=st.int64, shared=True)


def notify(count: int) -> None:
    with (condition := mp.Condition()):
        condition.notify(count)


def unless_large(make):
    """Not with the numbers of which machines have as much memory or processes."""
    return lambda n: make(n) if n < 1 or n > 2**40 else None


NUMBERED = {
    # -- processes
    "Queue": lambda n: mp.Queue(n, maxbytes=n), "JoinableQueue": lambda n: mp.JoinableQueue(n, maxbytes=n),
    "Broadcast": lambda n: mp.Broadcast(n), "Broadcast of bytes": lambda n: mp.Broadcast(4, maxbytes=n),
    "get_many": lambda n: mp.Queue().get_many(n, block=False), "put": lambda n: mp.Queue().put(1, timeout=n),
    "get": lambda n: mp.Queue().get(timeout=min(n, 0)), "acquire": lambda n: mp.Lock().acquire(timeout=n),
    "Semaphore": mp.Semaphore, "BoundedSemaphore": mp.BoundedSemaphore, "Barrier": mp.Barrier,
    "notify": notify, "wait": lambda n: mp.Event().wait(min(n, 0)), "Pool": lambda n: mp.Pool(min(n, 0)),
    # -- memory
    "empty": unless_large(lambda n: st.empty(n, shared=True)), "zeros": lambda n: st.zeros(0, n, shared=True),
    "resize_": unless_large(lambda n: s().resize_(n)),
    "storage": unless_large(lambda n: st.LongStorage(n)), "storage resize_": unless_large(s().storage().resize_),
    "storage get": lambda n: s().storage()[n], "storage set": lambda n: s().storage().__setitem__(0, n),
    "storage set at": lambda n: s().storage().__setitem__(n, 1),
    "allocate": unless_large(lambda n: client.default().allocate(n)), "gc": lambda n: client.default().gc(n),
    # -- elements and views
    "get item": lambda n: s()[n], "get items": lambda n: s()[0, n], "set item": lambda n: s().__setitem__(n, 1),
    "set": lambda n: s().__setitem__(0, n), "fill_": lambda n: s().fill_(n), "select": lambda n: s().select(0, n),
    "narrow": lambda n: s().narrow(0, n, 1), "narrow to": lambda n: s().narrow(0, 0, n), "view": lambda n: s().view(n),
    "as_strided": lambda n: s().as_strided((n,), (1,)), "as_strided by": lambda n: s().as_strided((2,), (n,)),
    "as_strided at": lambda n: s().as_strided((2,), (1,), n), "unfold": lambda n: s().unfold(0, n, 1),
    "unfold by": lambda n: s().unfold(0, 1, n), "expand": lambda n: s()[0, 0].expand(n), "roll": lambda n: s().roll(n),
    # -- atomics
    "load": lambda n: atomics.load(s(), (0, n)), "store": lambda n: atomics.store(s(), (0, 0), n),
    "exchange": lambda n: atomics.exchange(s(), (0, 0), n), "fetch_add": lambda n: atomics.fetch_add(s(), (0, 0), n),
    "compare_exchange": lambda n: atomics.compare_exchange(s(), (0, 0), n, n),
    "add_": lambda n: atomics.add_(x(), (0, n), 1), "add_ of": lambda n: atomics.add_(x(), (0, 0), n),
    "index_add": lambda n: atomics.index_add_atomic_(x(), n, [0], st.ones(1, 4)),
    "index_add at": lambda n: atomics.index_add_atomic_(x(), 0, [n], st.ones(1, 4)),
    "index_add of": lambda n: atomics.index_add_atomic_(x(), 0, [0], st.ones(1, 4), n),
    # -- random numbers
    "manual_seed": lambda n: st.Generator().manual_seed(n), "randint": lambda n: st.randint(n, (2,)),
    "randint from": lambda n: st.randint(-n, n, (2,)), "random_": lambda n: s().random_(n),
    "geometric": lambda n: st.Generator().geometric(n), "multinomial": unless_large(lambda n: st.multinomial(x(), n)),
    "multinomial again": unless_large(lambda n: st.multinomial(x(), n, True)),
    "randperm": unless_large(st.randperm),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("name", NUMBERED)
@pytest.mark.parametrize("number", BOUNDARIES)
def test_any_number(name, number):
    """Works, or is refused in words: by an error of ours or, in multiprocessing's names, by the standard one."""
    try:
        NUMBERED[name](number)
    except ShmTensorError as error:
        problem: Exception = error
    except (ValueError, queue.Empty) as error:
        assert hasattr(mp, name) or name in ("get", "get_many"), error
        problem = error
    else:
        return
    assert "incompatible" not in str(problem)


def test_what_was_refused_changes_nothing():
    t = x()
    expect = t.numpy().copy()
    for change in (
        lambda: t.index_add_(0, [0, 3], 1), lambda: t.scatter_(0, n(), 1), lambda: t.put_([0, 12], 1),
        lambda: t.masked_scatter_(t > 0, [1.0]), lambda: t.add_(1j), lambda: t.resize_(-1), lambda: t.set_(5),
        lambda: t.set_(t.storage(), 0, (13,)), lambda: t.copy_(st.ones(5)), lambda: t.apply_(lambda v: "a"),
        lambda: st.add(t, 1, out=t[:2]), lambda: t.cumsum(0, out=t[:2]), lambda: t.sum(0, out=t[0, :3]),
    ):  # fmt: skip
        with pytest.raises(ShmTensorError):
            change()
        np.testing.assert_array_equal(t.numpy(), expect)


FOREIGN: Any = type("Tensor", (), {"__module__": "elsewhere.tensors"})
"""A class of another library, which has the name of ours."""


@pytest.mark.parametrize(
    "mistaken",
    [
        lambda x: st.sum(x),
        lambda x: st.add(x, 1),
        lambda x: st.maximum(st.ones(3), x),
        lambda x: st.where(st.ones(3) > 0, x, 2),
        lambda x: st.from_numpy(x),
        lambda x: st.ones(3).set_(x),
        lambda x: st.atomics.load(x, 0),
        lambda x: st.random.normal_(x),
        lambda x: st.save({"a": x}, "never.npz"),
    ],
)
def test_a_class_of_another_library_is_shown_with_its_module(mistaken):
    with pytest.raises(ShmTensorError, match=r"elsewhere\.tensors\.Tensor; .*use shmtensor\.asarray"):
        mistaken(FOREIGN())
