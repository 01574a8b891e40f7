"""Properties of a tensor: device, type, kind, size; and whether two are alike."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import memory_of_its_own, same

import shmtensor as st
from shmtensor.errors import DeviceUnavailable, DTypeError, InvalidArgument, NotSupported


def test_devices():
    x = st.ones(2)
    assert x.get_device() == st.get_device(x) == -1
    assert (x.is_cuda, x.is_sparse, x.is_quantized, x.is_pinned()) == (False,) * 4
    assert x.cpu() is x
    for name in ("xpu", "ipu"):
        with pytest.raises(NotSupported, match=f"{name}.*CPU"):
            getattr(x, name)()
    for name in ("cuda", "pin_memory"):
        with pytest.raises(DeviceUnavailable, match="no GPU can be used"):
            getattr(x, name)()


@pytest.mark.parametrize(
    ("dtype", "is_complex", "is_floating", "is_signed"),
    [("float32", False, True, True), ("complex64", True, False, True), ("uint8", False, False, False),
     ("int64", False, False, True), ("bool", False, False, False)],
)  # fmt: skip
def test_kinds(dtype, is_complex, is_floating, is_signed):
    x = st.ones(1, dtype=dtype)
    found = st.is_complex(x), st.is_floating_point(x), x.is_signed()
    assert found == (is_complex, is_floating, is_signed)
    assert (x.is_conj(), st.is_neg(x), x.is_inference()) == (False,) * 3
    assert x.is_nonzero() is True and st.is_nonzero(x * 0) is False
    with pytest.raises(InvalidArgument, match="one element"):
        st.is_nonzero(st.ones(2))


def test_names_of_types():
    x = st.ones(2, dtype="int64")
    assert st.typename(x) == x.type() == "shmtensor.LongTensor"
    assert st.typename([]) == "list" and st.typename(np.ndarray) == "numpy.ndarray"
    for spec in ("float32", st.float32, st.FloatTensor, "shmtensor.FloatTensor"):
        assert x.type(spec).dtype == st.float32
    with pytest.raises(DTypeError):
        x.type("NoTensor")
    assert st.is_storage(x.storage()) and not st.is_storage(x)
    assert x.cfloat().dtype == st.complex64 and x.cdouble().dtype == st.complex128


def test_sizes_and_sameness():
    x = st.ones(2, 3)
    assert st.numel(x) == 6 and x.ndimension() == 2
    assert x.is_same_size(st.zeros(2, 3)) and not st.is_same_size(x, x.t())
    assert x.is_set_to(x.view(2, 3)) and x.data.is_set_to(x)
    assert not x.is_set_to(x.t()) and not x.is_set_to(x.clone()) and not x[0].is_set_to(x[1])
    with pytest.raises(DTypeError):
        x.is_set_to([1])


def test_new_ones():
    x = st.ones(2, dtype="int32")
    assert (x.new(2, 3).shape, x.new(2, 3).dtype, x.new([4, 5]).tolist()) == ((2, 3), st.int32, [4, 5])
    x.data[0] = 9
    assert x.tolist() == [9, 1]


def test_repeated_along_each_axis():
    a = np.arange(6.0).reshape(2, 3)
    x = st.from_numpy(a)
    same(x.repeat(2, 1), np.tile(a, (2, 1)))
    same(x.repeat((2, 1, 3)), np.tile(a, (2, 1, 3)))
    assert x.repeat(0, 2).shape == (0, 6) and st.tensor(1.0).repeat(()).shape == ()
    memory_of_its_own(x.repeat(1, 1), x)
    with pytest.raises(InvalidArgument, match="each axis"):
        x.repeat(2)
    with pytest.raises(InvalidArgument):
        x.repeat(-1, 2)


def test_functions_of_methods():
    x = st.arange(3.0)
    assert st.fill(x, 2).tolist() == [2, 2, 2] and x.tolist() == [0, 1, 2]
    assert st.fill_(x, 2) is x and x.tolist() == [2, 2, 2]
    assert st.zero_(x) is x and x.tolist() == [0, 0, 0]
    same(st.clone(x), np.zeros(3, np.float32))
    memory_of_its_own(st.clone(x), x)
    assert st.detach(x).storage() is x.storage()
    assert st.permute(st.ones(2, 3), (1, 0)).shape == st.permute(st.ones(2, 3), dims=(-1, 0)).shape == (3, 2)
    assert st.swapdims(st.ones(2, 3), 0, 1).shape == (3, 2) and st.row_stack([x, x]).shape == (2, 3)


def test_to_a_type_a_device_or_what_another_has():
    x = st.ones(2)
    assert x.to("cpu") is x.to(st.ones(1)) is x.to(dtype=None, device="cpu") is x.to("float32", True, False) is x
    for y in (x.to("cpu", st.int64), x.to(dtype="int64"), x.to(st.ones(1, dtype="int64")), x.to(st.int64, copy=True)):
        assert y.dtype == st.int64
    for y in (x.to(x, False, True), x.to(copy=True), x.to("cpu", "float32", False, True)):
        same(y, x.numpy())
        memory_of_its_own(y, x)
    with pytest.raises(DeviceUnavailable):
        x.to("cuda")
