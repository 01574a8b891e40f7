"""Tensors on a GPU and JAX: the same memory on both sides, by DLPack."""

import pytest

import shmtensor as st

jax = pytest.importorskip("jax")


@pytest.fixture(autouse=True)
def on_a_gpu():
    if not any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("needs a JAX that uses the GPU")


def test_a_tensor_of_ours_in_jax():
    x = st.arange(6.0, device="cuda", shared=True)
    y = jax.dlpack.from_dlpack(x)
    assert y.unsafe_buffer_pointer() == x.data_ptr() and y.tolist() == [0, 1, 2, 3, 4, 5]
    z = y * 2
    z.block_until_ready()
    x += 1
    assert x.tolist() == [1, 2, 3, 4, 5, 6] and z.tolist() == [0, 2, 4, 6, 8, 10]


def test_an_array_of_jax_as_a_tensor():
    y = jax.numpy.arange(6.0) * 3  # its stream is waited for
    x = st.from_dlpack(y)
    assert x.is_cuda and x.data_ptr() == y.unsafe_buffer_pointer() and x.tolist() == [0, 3, 6, 9, 12, 15]
