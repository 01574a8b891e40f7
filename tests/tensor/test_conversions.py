"""Conversions of a tensor to another type, device or memory format; names of types, devices and layouts."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.errors import DeviceUnavailable, DTypeError, InvalidArgument
from shmtensor.threads import get_num_threads, set_num_threads

METHODS = {
    "byte": "uint8", "char": "int8", "short": "int16", "int": "int32", "long": "int64", "half": "float16",
    "float": "float32", "double": "float64", "bool": "bool", "cfloat": "complex64", "cdouble": "complex128",
    "complex_float": "complex64", "complex_double": "complex128",
}  # fmt: skip
TYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool", "complex64", "complex128")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 2)])
def test_methods_named_as_types(name, shape):
    wanted = METHODS[name]
    for dtype in TYPES[: -2 if wanted.startswith(("u", "i", "f", "b")) else None]:
        x = st.ones(shape, dtype=dtype)
        made = getattr(x, name)()
        assert (made.dtype, made.shape, made.tolist()) == (wanted, shape, np.ones(shape, wanted).tolist())
        assert (made is x) == (dtype == wanted)


def test_names_of_types():
    for name, wanted in METHODS.items():
        if not name.startswith(("byte", "char", "complex")):
            assert getattr(st, name) is getattr(st, wanted)
    assert not {"float", "int", "bool"} & set(st.__all__), "a star import would hide the builtins"


def test_to():
    x = st.ones(2, 3)
    other = st.zeros(1, dtype="int16")
    for same in (
        x.to("cpu"), x.to(st.device("cpu")), x.to(st.float32), x.to(dtype=st.float), x.to("cpu", st.float32),
        x.to(device="cpu", dtype=st.float32), x.to(st.ones(1)), x.to("cpu", None, True, False),
        x.to(None), x.to(st.float, True, False),
        x.to(st.float, non_blocking=True), x.to(st.float, memory_format=st.contiguous_format), x.cpu(),
        x.to(x.device, memory_format=st.preserve_format), x.to("cpu", non_blocking=True), x.to(other=x),
    ):  # fmt: skip
        assert same is x
    for made in (
        x.to(st.int16), x.to("int16"), x.to("cpu", st.int16), x.to(other), x.to(device="cpu", dtype=st.int16),
        x.to(other=other), x.to(dtype=st.int16), x.to(other, True, True), x.type(st.int16), x.type(st.ShortTensor),
        x.type("shmtensor.ShortTensor"), x.type_as(other), x.to(None, st.int16),
    ):  # fmt: skip
        assert made.dtype == st.int16 and made.tolist() == [[1] * 3] * 2
    for made in (x.to(st.float, copy=True), x.to(st.float, False, True), x.to("cpu", st.float, False, True)):
        assert made is not x and not np.may_share_memory(made.numpy(), x.numpy())
    with pytest.raises(DeviceUnavailable):
        x.to("cuda")
    for wrong in (lambda: x.to(st.int8, 1, 2, 3), lambda: x.to(st.int8, "cpu")):
        with pytest.raises(InvalidArgument):
            wrong()
    for wrong in (lambda: x.to("nothing"), lambda: x.type("shmtensor.NoTensor"), lambda: x.type("other.FloatTensor")):
        with pytest.raises(DTypeError):
            wrong()


def test_what_a_type_cannot_hold_is_cut_off_without_a_warning():
    assert st.tensor([1e30]).half().item() == float("inf")
    assert st.tensor([1.9, -1.9, 300.0]).int().tolist() == [1, -1, 300]
    st.tensor([float("nan")]).int()
    assert st.tensor([300, -1]).byte().tolist() == [44, 255]
    assert st.tensor([0.0, 0.5, float("nan")]).bool().tolist() == [False, True, True]


def test_memory_formats():
    x = st.arange(120.0).view(2, 3, 4, 5)
    for last in (
        x.to(memory_format=st.channels_last), x.float(memory_format=st.channels_last), x.cpu(st.channels_last),
        x.double(memory_format=st.channels_last),
    ):  # fmt: skip
        assert last.stride() == (60, 1, 15, 3) and last.tolist() == x.tolist()
        assert last.to(memory_format=st.channels_last) is last
        assert last.half().stride() == last.stride()
        assert last.half(memory_format=st.contiguous_format).is_contiguous()
    assert x.permute(1, 0, 2, 3).to(memory_format=st.contiguous_format).is_contiguous()
    with pytest.raises(InvalidArgument, match="5 axes"):
        x.to(memory_format=st.channels_last_3d)


def test_type_says_the_class():
    for row in st.dtypes.ELEMENT_TYPES:
        x = st.zeros(1, dtype=row.dtype)
        assert x.type() == f"shmtensor.{row.prefix}Tensor" and st.ones(2).type(x.type()).dtype == row.dtype


def test_constructors_share_the_memory_of_a_tensor():
    x = st.arange(6.0).view(2, 3)
    for other in (st.FloatTensor(x), st.Tensor(x), copy.copy(x)):
        assert other is not x and other.shape == x.shape and other.storage() is x.storage()
    assert st.Tensor(st.arange(3)).dtype == st.int64
    with pytest.raises(DTypeError, match=r"float32.*int64"):
        st.FloatTensor(st.arange(3))
    assert st.Tensor(x.size()).shape == st.IntTensor(x.size()).shape == (2, 3)
    assert isinstance(x.size(), st.Size) and x.size().numel() == 6 and x.size() == (2, 3)
    assert type(pickle.loads(pickle.dumps(x.size()))) is tuple
    assert st.Tensor((2, 3)).tolist() == [2, 3]
    assert st.tensor(3).size() == () and st.Tensor(st.tensor(3).size()).shape == ()


def test_new():
    x = st.ones(2, dtype="int16")
    for made in (x.new(2, 3), x.new_empty(2, 3), x.new_empty((2, 3)), x.new_empty_strided((2, 3), (1, 2))):
        assert (made.shape, made.dtype) == ((2, 3), st.int16)
    assert made.stride() == (1, 2)
    assert x.new([4, 5]).tolist() == x.new_tensor([4.7, 5]).tolist() == [4, 5] and x.new().numel() == 0
    assert x.new_full((2,), 5.5).tolist() == [5, 5] and x.new_full((1,), 5.5, dtype=st.float).tolist() == [5.5]
    assert x.new_ones(()).shape == () and x.new_zeros(2, dtype=st.bool).tolist() == [False, False]
    assert x.new_empty_strided((0, 3), (3, 1)).shape == (0, 3)
    for wrong in (lambda: x.new_empty_strided((2,), (1, 1)), lambda: x.new_empty_strided((2,), (-1,))):
        with pytest.raises(InvalidArgument, match="strides"):
            wrong()


def test_devices():
    cpu = st.device("cpu")
    assert repr(cpu) == "device(type='cpu')" and repr(st.device("cuda", 1)) == "device(type='cuda', index=1)"
    assert (cpu.type, cpu.index, st.device("cpu:0").index) == ("cpu", None, 0)
    assert cpu == "cpu" == st.ones(1).device == st.device(cpu) and st.device("cpu:0") != cpu
    assert hash(cpu) == hash("cpu") and pickle.loads(pickle.dumps(st.device("cuda:1"))) == "cuda:1"
    assert isinstance(st.ones(1).device, st.device) and st.device(type="cpu", index=0) == "cpu:0"
    for wrong in ("foo", "cpu:x", "cpu:0:1", ""):
        with pytest.raises(InvalidArgument, match="not the name of a device"):
            st.device(wrong)
    with pytest.raises(InvalidArgument, match="another"):
        st.device("cpu:0", 1)
    with pytest.raises(DTypeError, match="NoneType"):
        st.device(None)


def test_layouts():
    for name in ("strided", "contiguous_format", "preserve_format", "channels_last", "channels_last_3d"):
        one = getattr(st, name)
        assert repr(one) == f"shmtensor.{name}" and isinstance(
            one, st.layout if name == "strided" else st.memory_format
        )
        assert pickle.loads(pickle.dumps(one)) is copy.copy(one) is copy.deepcopy(one) is one
    assert st.ones(1).layout is st.strided


def test_questions():
    x, z, n = st.ones(1), st.ones(1, 1, dtype="complex64"), st.zeros((), dtype="uint8")
    assert (
        [one.is_floating_point() for one in (x, z, n)]
        == [True, False, False]
        == [st.is_floating_point(x), False, False]
    )
    assert [st.is_complex(one) for one in (x, z, n)] == [False, True, False] == [False, z.is_complex(), False]
    assert [st.is_nonzero(one) for one in (x, z, n)] == [True, True, False] == [True, True, n.is_nonzero()]
    assert [one.is_signed() for one in (x, z, n)] == [True, True, False]
    assert st.is_same_size(x, st.zeros(1)) and not x.is_same_size(z)
    for wrong in (st.zeros(0), st.ones(2)):
        with pytest.raises(InvalidArgument, match="one element"):
            st.is_nonzero(wrong)
    with pytest.raises(DTypeError):
        st.is_floating_point(np.ones(2))


@pytest.mark.torch
def test_promotion_as_torch():
    torch: Any = pytest.importorskip("torch")
    for one in TYPES:
        for other in TYPES:
            pair, theirs = (getattr(st, one), getattr(st, other)), (getattr(torch, one), getattr(torch, other))
            if {one, other} != {"float16", "complex64"} and not (
                "float16" in (one, other) and "complex" in one + other
            ):
                wanted = str(torch.promote_types(*theirs)).removeprefix("torch.")
                assert st.promote_types(*pair) == wanted, pair
                found = st.result_type(st.ones(2, dtype=one), st.ones((), dtype=other))
                assert found == wanted == st.result_type(*pair)
            assert st.can_cast(*pair) is torch.can_cast(*theirs), pair
        for number in (True, 2, 2.5, 1j):
            if (one, number) != ("float16", 1j):  # torch has a complex type of 32 bits
                wanted = str(torch.result_type(torch.ones(2, dtype=getattr(torch, one)), number)).removeprefix("torch.")
                assert st.result_type(st.ones(2, dtype=one), number) == wanted
    for pair in ((1, 2), (1, 2.5), (True, True), (2, 1j)):
        assert st.result_type(*pair) == str(torch.result_type(*pair)).removeprefix("torch.")
    assert st.promote_types(st.float16, st.complex64) == st.complex64


@pytest.mark.torch
def test_ranges_of_types_as_torch():
    torch: Any = pytest.importorskip("torch")
    for name in ("float16", "float32", "float64", "complex64", "complex128"):
        ours, theirs = st.finfo(getattr(st, name)), torch.finfo(getattr(torch, name))
        for field in ("resolution", "min", "max", "eps", "smallest_normal", "tiny", "dtype", "bits"):
            assert getattr(ours, field) == getattr(theirs, field), field
        assert repr(ours) == repr(theirs)
    for name in ("uint8", "int8", "int16", "int32", "int64"):
        ours, theirs = st.iinfo(getattr(st, name)), torch.iinfo(getattr(torch, name))
        assert (ours.min, ours.max, ours.bits, ours.dtype) == (theirs.min, theirs.max, theirs.bits, theirs.dtype)
    assert repr(st.iinfo("int8")) == repr(torch.iinfo(torch.int8)) and st.iinfo("int64").max == 2**63 - 1


def test_threads(monkeypatch):
    pytest.importorskip("threadpoolctl")
    before = get_num_threads()
    try:
        st.set_num_threads(1)
        assert st.get_num_threads() == 1
    finally:
        set_num_threads(before)
    for wrong, error in ((0, InvalidArgument), (1.5, DTypeError)):
        with pytest.raises(error):
            st.set_num_threads(wrong)


def test_threads_without_the_package(monkeypatch):
    package = pytest.importorskip("threadpoolctl")
    blas = [one for one in package.threadpool_info() if one["internal_api"] == "openblas"]
    monkeypatch.setitem(__import__("sys").modules, "threadpoolctl", None)
    if not blas:
        with pytest.raises(st.errors.MissingExtra, match="pip install threadpoolctl"):
            st.get_num_threads()
        return
    before = get_num_threads()
    try:
        for count in (1, 2):
            st.set_num_threads(count)
            assert st.get_num_threads() == count
            assert {one["num_threads"] for one in package.threadpool_info() if one["internal_api"] == "openblas"} == {
                count
            }
    finally:
        set_num_threads(before)


def test_threads_of_no_library(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "threadpoolctl", None)
    monkeypatch.setattr("shmtensor.threads._OPENBLAS", [])
    with pytest.raises(st.errors.MissingExtra, match="pip install threadpoolctl"):
        st.get_num_threads()
