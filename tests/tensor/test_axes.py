"""Tensors with the largest number of axes, wherever tensors can be; one axis more is refused with a clear error."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import Tensor, _native, atomics, errors, files
from shmtensor.storage.arguments import MAX_AXES

COUNTS = (32, 33, 63, MAX_AXES)
MORE = (1,) * (MAX_AXES + 1)


def sizes(count: int) -> tuple[int, ...]:
    return (2, *(1,) * (count - 3), 3, 4)


def made(count: int, **how: Any) -> Tensor:
    return st.arange(24, dtype=st.float32).view(sizes(count)).share_memory_(**how)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "whole": lambda x: x,
    "strided": lambda x: x[::-1].swapaxes(-1, -2)[..., 1:],
    "empty": lambda x: x[:0],
    "expanded": lambda x: x[:1].expand((5, *x.shape[1:])),
}


@pytest.mark.parametrize("count", COUNTS)
def test_made_in_shared_memory(count: int) -> None:
    shape = sizes(count)
    for x in (st.empty(shape, shared=True), st.zeros(shape, shared=True), st.full(shape, 7, shared=True), made(count)):
        assert x.is_shared() and x.shape == shape
    x = st.zeros(24, shared=True).view(shape)
    assert x.as_strided(shape, x.stride()).data_ptr() == x.reshape(24).data_ptr() == x.data_ptr()
    assert x[0, 0].unsqueeze(0)[None].shape == (1, 1, *shape[2:])
    x[..., 1, 2] = 5
    assert x.sum().item() == 10
    counts = st.zeros(shape, dtype=st.int64, shared=True)
    assert atomics.fetch_add(counts, (1,) + (0,) * (count - 1), 3) == 0 and counts.sum().item() == 3


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", COUNTS)
def test_sent(count: int, layout: str) -> None:
    sent = LAYOUTS[layout](made(count))
    queue, cast, (left, right) = mp.SimpleQueue(), mp.Broadcast(4), mp.Pipe()
    reader = cast.reader()
    for value in (sent, sent.numpy()):
        queue.put(value)
        cast.put([value])
        left.send({"value": value})
        for got in (queue.get(), reader.get()[0], right.recv()["value"]):
            assert type(got) is type(value) and got.shape == sent.shape
            assert np.array_equal(got, value)
            if got is not value and isinstance(got, Tensor):
                assert got.stride() == sent.stride() and (got.data_ptr() == sent.data_ptr() or not sent.numel())


HOW: tuple[dict[str, bool], ...] = ({}, {"readonly": True}, {"copy_on_write": True})


def _add(queue: Any, back: Any) -> None:
    for how in HOW:
        x = queue.get()
        back.put(x if "readonly" in how else x.add_(1))


@pytest.mark.parametrize("count", [33, MAX_AXES])
def test_there_and_back(ctx: Any, count: int) -> None:
    queue, back = ctx.SimpleQueue(), ctx.SimpleQueue()
    child = ctx.Process(target=_add, args=(queue, back))
    child.start()
    for how in HOW:
        x = made(count, **how)
        queue.put(x)
        got = back.get()
        assert got.shape == sizes(count) and got.flatten()[23].item() == (23 if "readonly" in how else 24)
        assert x.flatten()[23].item() == (23 if how else 24)
    child.join()
    assert child.exitcode == 0


@pytest.mark.parametrize("count", COUNTS)
def test_pickled_saved_and_lent(count: int, tmp_path: Path) -> None:
    x = made(count)
    for got in (pickle.loads(pickle.dumps(x)), x.clone(), st.from_dlpack(x), st.from_dlpack(x, copy=True)):
        assert st.array_equal(got, x) and got.shape == x.shape
    assert np.from_dlpack(x).shape == x.shape
    for path in (tmp_path / "x.npy", tmp_path / "x.npz", tmp_path / "x.safetensors"):
        files.save(x if path.suffix == ".npy" else {"x": x}, path)
        for how in ({}, {"shared": True}):
            loaded = files.load(path, **how)
            assert st.array_equal(loaded if path.suffix == ".npy" else loaded["x"], x)


def test_overlaps_of_many_axes() -> None:
    assert _native.overlaps(np.broadcast_to(np.zeros(1, np.int8), (2,) * 60))
    assert not st.zeros(1, dtype=st.int8, shared=True).expand((2,) * 60)._array.flags.writeable
    assert not _native.overlaps(np.zeros((1,) * MAX_AXES))


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "empty": lambda x: st.empty(MORE, shared=True), "zeros": lambda x: st.zeros(MORE, shared=True),
    "full": lambda x: st.full(MORE, 1, shared=True), "rand": lambda x: st.rand(MORE),
    "view": lambda x: x.view(MORE), "view to": lambda x: x.view(*MORE[1:], -1), "reshape": lambda x: x.reshape(MORE),
    "unflatten": lambda x: x.unflatten(0, (1, 1)), "unsqueeze": lambda x: x.unsqueeze(0),
    "expand_dims": lambda x: st.expand_dims(x[0], axis=(0, 1)), "stack": lambda x: st.stack([x, x]),
    "index": lambda x: x[None], "expand": lambda x: x.expand(MORE), "broadcast_to": lambda x: st.broadcast_to(x, MORE),
    "unfold": lambda x: x.unfold(0, 1, 1), "as_strided": lambda x: x.as_strided(MORE, MORE),
    "tile": lambda x: st.tile(x, MORE), "resize_": lambda x: x.resize_(MORE),
    "tensordot": lambda x: st.tensordot(x, x, axes=0), "diag_embed": st.diag_embed,
    "set_": lambda x: x.set_(x.storage(), 0, MORE, MORE),
    "tensor": lambda x: st.tensor(reduce(lambda inner, _: [inner], MORE, 0.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("shared", [True, False])
def test_one_axis_more(name: str, shared: bool) -> None:
    with pytest.raises(errors.ShmTensorError, match=str(MAX_AXES)):
        REFUSED[name](st.zeros(MORE[1:], shared=shared))
