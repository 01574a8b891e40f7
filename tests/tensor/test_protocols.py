"""NumPy's and the array API's protocols: ufuncs and functions take and return tensors."""

from __future__ import annotations

import collections
import copy
import pickle
from typing import Any

import numpy as np
import pytest
from layouts import LAYOUTS, same, tensor_of

import shmtensor as st
from shmtensor import Tensor
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument, LayoutError


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ufuncs(layout):
    t = tensor_of(layout, "float64", 1, 4)
    a = t.numpy()
    same(np.add(t, 1), a + 1)
    same(np.add(1, t), a + 1)
    same(np.add(t, a), a + a)
    same(np.multiply.outer(t, t[..., :1] if a.ndim else t), np.multiply.outer(a, a[..., :1] if a.ndim else a))
    for function in (np.modf, np.frexp, lambda v: np.divmod(v, 2)):
        ours = function(t)
        assert type(ours) is tuple
        for one, other in zip(ours, function(a), strict=True):
            same(one, other)
    if a.ndim:
        same(np.add.reduce(t, axis=0), np.add.reduce(a, axis=0))
        same(np.maximum.accumulate(t, axis=-1), np.maximum.accumulate(a, axis=-1))
        same(np.add(t, 1, where=t > 2, out=st.zeros_like(t)), np.where(a > 2, a + 1, 0))
    if a.ndim and len(a):
        same(np.add.reduceat(t, [0, 1], axis=0), np.add.reduceat(a, [0, 1], axis=0))


def test_ufuncs_with_out():
    t, out, array = st.ones(3), st.zeros(3, shared=True), np.zeros(3, np.float32)
    assert np.add(t, 1, out=out) is out
    assert out.tolist() == [2, 2, 2]
    assert np.add(t, 1, out=array) is array
    assert np.add(array, 1, out=out) is out
    assert out.tolist() == [3, 3, 3]
    whole = st.zeros(3)
    parts = np.modf(t * 1.5, out=(None, whole))
    assert parts[1] is whole
    assert (type(parts[0]), parts[0].tolist(), whole.tolist()) == (Tensor, [0.5] * 3, [1.0] * 3)
    parts = np.divmod(t, 2, out=(array, None))
    assert parts[0] is array and type(parts[1]) is Tensor
    np.add(t[:2], t[1:], out=t[1:])
    assert t.tolist() == [1, 2, 2]


def test_subclasses():
    class Mine(Tensor):
        __slots__ = ()

    assert np.add(Mine([1, 2]), 1).tolist() == (np.ones(2) + Mine([1, 2])).tolist() == [2, 3]
    assert np.sum(Mine([1, 2])) == 3


def test_ufunc_at():
    t = st.zeros(2, 3)
    np.add.at(t, ([0, 0], [1, 1]), 1)
    np.add.at(t, (slice(None), 2), 5)
    np.add.at(t, st.tensor([1]), st.ones(3))
    assert t.tolist() == [[0, 2, 5], [1, 1, 6]]
    with pytest.raises(IndexOutOfRange):
        np.add.at(t, [2], 1)
    with pytest.raises(LayoutError):
        np.add.at(st.zeros(1).expand(3), [0], 1)


def test_ufuncs_that_cannot_be():
    t = st.ones(3)
    for call, error in (
        (lambda: np.add(t, st.ones(4)), InvalidArgument), (lambda: np.bitwise_and(t, 1), DTypeError),
        (lambda: np.add.reduce(t, axis=1), IndexOutOfRange),
        (lambda: np.add(t, 1, out=st.ones(1).expand(3)), LayoutError),
        (lambda: np.add(np.ones(3), 1, out=st.ones(3, dtype="int8")), DTypeError),
        (lambda: np.power(st.arange(3), -1), InvalidArgument),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
    for other in (None, object(), {}):
        with pytest.raises(TypeError):
            np.add(t, other)


class Foreign:
    """An operand that knows what to do with tensors."""

    __array_ufunc__ = None

    def __radd__(self, other: Any) -> str:
        return f"{type(other).__name__} and mine"


class Stranger:
    """What has NumPy's protocol for functions."""

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> str:
        return "mine"


def test_foreign_operands():
    assert st.ones(2) + Foreign() == "Tensor and mine"
    assert np.concatenate([st.ones(2), Stranger()]) == "mine"
    with pytest.raises(TypeError):
        np.add(st.ones(2), Foreign())


def test_functions():
    t = st.tensor(np.arange(6.0).reshape(2, 3))
    a = t.numpy()
    for call in (
        lambda v: np.concatenate([v, v]), lambda v: np.block([[v, v], [v, v]]), lambda v: np.where(v > 2, v, 0),
        lambda v: np.linalg.norm(v, axis=0), np.sum, lambda v: np.mean(v, axis=1), np.cumsum, np.median,
        lambda v: np.einsum("ij,ij->i", v, v), lambda v: np.fft.fft(v), lambda v: np.stack((v, v), axis=1),
        lambda v: np.clip(v, 1, 3), lambda v: np.pad(v, 1), lambda v: np.tensordot(v, v),
        lambda v: np.interp(v, v[0], v[1]),
        lambda v: np.apply_along_axis(np.sum, 0, v), lambda v: np.take(v, [1]), lambda v: np.searchsorted(v[0], v),
        lambda v: np.select([v > 1], [v]), lambda v: np.full_like(v, 2), lambda v: np.round(v / 3, 2), np.ptp, np.diff,
    ):  # fmt: skip
        same(call(t), call(a))


def test_functions_that_give_something_else():
    t = st.tensor(np.arange(6.0).reshape(2, 3))
    assert np.array_equal(t, t) is True
    assert np.allclose(t, t + 1) is False
    assert (np.shape(t), np.ndim(t), np.size(t)) == ((2, 3), 2, 6)
    assert np.array2string(t[0]) == "[0. 1. 2.]"
    assert np.result_type(t, np.int8) == np.float64
    found = np.nonzero(t)
    assert type(found) is tuple and all(type(one) is Tensor for one in found)
    parts = np.array_split(t, 2)
    assert type(parts) is list and parts[0].storage() is t.storage()
    counts, edges = np.histogram(t, 3)
    assert type(counts) is type(edges) is Tensor
    values, vectors = np.linalg.eigh(t @ t.mT)
    assert type(values) is type(vectors) is Tensor
    assert np.unique_all(t).values.tolist() == [0, 1, 2, 3, 4, 5]
    assert np.add(t, 1, dtype=object).dtype == object


def test_views_stay_on_the_storage():
    t = st.tensor(np.arange(6.0).reshape(2, 3), shared=True)
    for call in (
        np.transpose, np.ravel, lambda v: np.reshape(v, (3, 2)), np.squeeze, np.atleast_3d,
        lambda v: np.swapaxes(v, 0, 1),
        lambda v: np.expand_dims(v, 0), np.flip, lambda v: np.diagonal(v), lambda v: np.split(v, 2)[1], np.real,
    ):  # fmt: skip
        assert call(t).storage() is t.storage()
    np.transpose(t)[2, 1] = 50
    assert t[1, 2].item() == 50
    np.copyto(t, 3)
    np.fill_diagonal(t, 7)
    assert t.tolist() == [[7, 3, 3], [3, 7, 3]]


def test_functions_with_out():
    t, out = st.ones(2, 3), st.zeros(3)
    assert np.sum(t, axis=0, out=out) is out
    assert out.tolist() == [2, 2, 2]
    joined = st.zeros(4, 3)
    assert np.concatenate([t, t], out=joined) is joined
    array = np.zeros(3, np.float32)
    assert np.sum(t, axis=0, out=array) is array or np.array_equal(array, [2, 2, 2])


def test_tensors_in_sequences():
    t = st.tensor([3.0, 1, 2])
    same(np.stack(t.topk(2).values.unbind()), np.array([3.0, 2], np.float32))
    same(np.stack(t.aminmax()), np.array([1.0, 3], np.float32))  # a named tuple
    with pytest.raises(TypeError):
        np.concatenate(collections.UserList([t, t]))  # NumPy asks for a sequence


def test_errors_of_functions_are_ours_but_for_what_others_raise():
    t = st.ones(2, 3)
    for call, error in (
        (lambda: np.concatenate([t, t[0]]), InvalidArgument), (lambda: np.sum(t, axis=5), IndexOutOfRange),
        (lambda: np.take(t, [10]), IndexOutOfRange), (lambda: np.reshape(t, (7,)), InvalidArgument),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.inv(st.zeros(2, 2))

    class Mine(ValueError):
        pass

    def fail(_: Any) -> None:
        raise Mine

    with pytest.raises(Mine):
        np.apply_along_axis(fail, 0, t)


def test_array_api():
    t = st.ones(2, 3)
    assert t.__array_namespace__() is st.array_api
    for version in ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12", None):
        assert t.__array_namespace__(api_version=version) is st.array_api
    for version in ("2020.12", "2026.12", 2025):
        with pytest.raises(InvalidArgument, match=r"2025\.12"):
            t.__array_namespace__(api_version=version)
    assert st.array_api.__array_api_version__ == "2025.12"
    assert t.device == "cpu" and str(t.device) == "cpu" and hash(t.device) == hash("cpu")
    assert t.device != "cuda" and t.device != 5
    assert t.to_device("cpu") is t and t.to_device(t.device) is t
    assert pickle.loads(pickle.dumps(t.device)) == t.device
    info = st.array_api.__array_namespace_info__()
    assert info.default_device() == "cpu" and info.devices() == (t.device,)
    assert info.default_dtypes()["real floating"] == st.float32
    assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}
    assert set(info.dtypes(kind=("bool", "complex floating"))) == {"bool", "complex64", "complex128"}
    assert info.capabilities()["max dimensions"] == 64


def test_size_is_a_number_and_a_method():
    t = st.ones(2, 3)
    assert t.size == 6 and t.size() == (2, 3) and t.size(-1) == 3
    assert isinstance(t.size, int) and t.size + 1 == 7
    for other in (pickle.loads(pickle.dumps(t.size)), copy.copy(t.size), copy.deepcopy(t.size)):
        assert (type(other), other) == (int, 6)


def test_kinds_and_promotion():
    for kind, names in {
        "bool": ["bool"], "signed integer": ["int8", "int64"], "unsigned integer": ["uint8", "uint64"],
        "integral": ["int8", "uint64"], "real floating": ["float16", "float64"], "complex floating": ["complex64"],
        "numeric": ["int8", "float32", "complex128"],
    }.items():  # fmt: skip
        assert all(st.isdtype(getattr(st, name), kind) for name in names)
        assert not st.isdtype(st.float32 if "floating" not in kind and kind != "numeric" else st.bool, kind)
    assert st.isdtype(st.int8, (st.int8, "bool")) and not st.isdtype(st.int8, st.int16)
    assert st.result_type(st.int8, st.ones(1), 2.5) == st.float32
    assert (st.finfo(st.float32).bits, st.finfo(st.complex64).dtype, st.iinfo("int8").max) == (32, "float32", 127)
    standard = st.array_api
    assert standard.can_cast(st.int8, st.int16) and not standard.can_cast(st.int16, st.int8)
    assert not standard.can_cast(st.ones(1), st.int16)
    for found, dtype in ((standard.finfo(st.complex64), st.float32), (standard.iinfo("int8"), st.int8)):
        assert found.dtype == dtype and found.bits == 8 * dtype.itemsize and found.min < 0 < found.max
    assert st.iinfo(st.ones(1, dtype="uint8")).min == 0
    t = st.ones(2)
    assert st.astype(t, "float32", copy=False) is t and st.astype(t, "float32") is not t
    assert st.is_tensor(t) and not st.is_tensor(t.numpy())
    assert st.e < st.pi < st.inf and st.nan != st.nan and st.newaxis is None
