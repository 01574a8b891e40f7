"""Tensors with strides of the caller's choice, of one number, and over buffers."""

from __future__ import annotations

import array

import pytest

import shmtensor as st
from shmtensor.errors import DTypeError, InvalidArgument, LayoutError


@pytest.mark.parametrize("shared", [False, True])
def test_strides_of_the_callers_choice(shared):
    x = st.empty_strided((2, 3), (1, 2), dtype="int32", shared=shared)
    assert (x.shape, x.stride(), x.dtype, len(x.storage()), x.is_shared()) == ((2, 3), (1, 2), st.int32, 6, shared)
    x.fill_(4)
    assert st.empty_strided((0, 3), (1, 1)).shape == (0, 3)
    assert st.empty_strided((), ()).shape == ()
    y = st.ones(1, dtype="uint8").new_empty_strided((2,), (3,))
    assert (y.dtype, y.stride(), len(y.storage())) == (st.uint8, (3,), 4)
    assert y.new_empty_strided((2,), (3,), dtype="float64").dtype == st.float64
    for size, stride in (((2,), (1, 1)), ((2,), (-1,)), ((-2,), (1,))):
        with pytest.raises(InvalidArgument):
            st.empty_strided(size, stride)


def test_axes_in_another_order_in_memory():
    x = st.empty_permuted((2, 3, 5), (0, 2, 1))
    assert x.stride() == (15, 1, 3) and x.permute(0, 2, 1).is_contiguous()
    assert st.empty_permuted((), ()).shape == ()
    for order in ((0, 1), (0, 1, 1), (0, 1, 3)):
        with pytest.raises(InvalidArgument, match="each once"):
            st.empty_permuted((2, 3, 5), order)


def test_one_number():
    for value in (3, True, 1.5):
        x = st.scalar_tensor(value)
        assert (x.shape, x.dtype, x.item()) == ((), st.float32, value)
    assert st.scalar_tensor(2j, dtype="complex64").item() == 2j
    assert st.scalar_tensor(0.1, dtype="float64").item() == 0.1
    assert st.scalar_tensor(-5, dtype="uint8").item() == 251
    for value, error in (("a", InvalidArgument), (2j, DTypeError)):
        with pytest.raises(error):
            st.scalar_tensor(value)


def test_over_the_memory_of_a_buffer():
    buffer = array.array("i", range(5))
    x = st.frombuffer(buffer, dtype="int32", count=3, offset=4)
    assert x.tolist() == [1, 2, 3]
    x[0] = 70
    assert buffer[1] == 70
    assert st.frombuffer(bytearray(8), dtype="float64").tolist() == [0]
    for how in ({"count": 6}, {"offset": 21}, {"offset": 3}):
        with pytest.raises(InvalidArgument, match="buffer"):
            st.frombuffer(buffer, dtype="int32", **how)
    with pytest.raises(LayoutError):
        st.frombuffer(bytes(8), dtype="int32")
    with pytest.raises(DTypeError):
        st.frombuffer("text", dtype="int32")


def test_copies_and_questions_in_a_memory_format():
    x = st.zeros(2, 3, 4, 5)
    last = x.clone(memory_format=st.channels_last)
    assert (last.shape, last.stride()) == ((2, 3, 4, 5), (60, 1, 15, 3))
    assert last.is_contiguous(memory_format=st.channels_last) and not last.is_contiguous()
    assert x.is_contiguous(memory_format=st.contiguous_format) and not x.is_contiguous(memory_format=st.channels_last)
    assert last.clone(memory_format=st.preserve_format).stride() == last.stride()
    assert last.clone().stride() == last.clone(memory_format=st.contiguous_format).stride() == (60, 20, 5, 1)
    assert st.zeros(2, 3).T.clone(memory_format=st.preserve_format).stride() == (1, 3)
    assert not st.zeros(2, 3).is_contiguous(memory_format=st.channels_last)
    with pytest.raises(InvalidArgument, match="axes"):
        st.zeros(2, 3).clone(memory_format=st.channels_last)
    for wrong in ("channels_last", [], 3):
        with pytest.raises(InvalidArgument, match="memory_format"):
            x.is_contiguous(memory_format=wrong)
