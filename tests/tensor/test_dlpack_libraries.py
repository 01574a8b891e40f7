"""Tensors to and from torch, JAX and array-api-strict over DLPack."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from dlpack_world import NAMED, PLACES, blocks, run, sent, twelve

import shmtensor
from shmtensor import _native, from_dlpack
from shmtensor.dtypes import ELEMENT_TYPES


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


TORCH_NAMES = [row.name for row in ELEMENT_TYPES]


@pytest.mark.torch
@PLACES
@pytest.mark.parametrize("name", TORCH_NAMES)
def test_torch_and_back(torch: Any, name: str, shared: bool) -> None:
    kind = getattr(torch, name, None)
    if kind is None:
        pytest.skip(f"this torch has no {name}")
    dtype = next(row.dtype for row in ELEMENT_TYPES if row.name == name)
    t = twelve(shared, dtype)
    theirs = torch.from_dlpack(t)
    assert theirs.dtype == kind
    assert theirs.data_ptr() == t.data_ptr()
    theirs[1, 2] = 0
    assert t[1, 2].item() == 0
    back = from_dlpack(theirs)
    assert back.dtype == dtype
    assert back.data_ptr() == t.data_ptr()
    assert back.is_shared() == shared
    if shared:
        assert back.storage() is t.storage()
    copy = from_dlpack(theirs, copy=True)
    assert copy.data_ptr() != t.data_ptr()
    assert copy.tolist() == t.tolist()


@pytest.mark.torch
@pytest.mark.parametrize(
    "name", [name for name in NAMED if name not in ("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz")]
)
def test_torch_and_types_of_ml_dtypes(torch: Any, name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    theirs = torch.tensor([1.0, 2.0, 4.0]).to(getattr(torch, name))
    array = _native.dlpack_import(theirs, None, None)
    assert array.dtype == getattr(ml_dtypes, name)
    assert array.astype(float).tolist() == [1, 2, 4]
    assert array.ctypes.data == theirs.data_ptr()
    again = torch.from_dlpack(_native.dlpack_export(array, True, False))
    assert again.dtype == theirs.dtype
    assert again.data_ptr() == theirs.data_ptr()


@pytest.mark.torch
def test_torch_views(torch: Any) -> None:
    theirs = torch.arange(24).reshape(2, 3, 4)
    for view in (
        theirs.transpose(0, 2),
        theirs[:, 1:, ::2],
        theirs[0, 0, 0],
        theirs[:, :0],
        theirs[:1].expand(5, 3, 4),
    ):
        t = from_dlpack(view, copy=False)
        assert t.tolist() == view.tolist()
        assert not view.numel() or t.data_ptr() == view.data_ptr()
        assert torch.from_dlpack(t).tolist() == view.tolist()


@pytest.mark.torch
def test_torch_keeps_the_block_and_lets_go_of_it(torch: Any) -> None:
    shmtensor.zeros(1, shared=True)
    before = blocks()
    theirs = torch.from_dlpack(twelve(True))
    part = theirs[1:]
    del theirs
    others = [shmtensor.full((12,), 9.0, shared=True) for _ in range(50)]
    assert part.tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
    del others
    assert blocks() == before + 1
    del part
    assert blocks() == before


@pytest.mark.torch
def test_torch_tensor_over_ours_goes_by_handle(torch: Any) -> None:
    theirs = torch.from_dlpack(shmtensor.zeros(4, shared=True))
    got = sent(from_dlpack(theirs))
    got[2] = 8
    assert theirs.tolist() == [0, 0, 8, 0]


@pytest.mark.torch
def test_torch_refuses_for_itself(torch: Any) -> None:
    with pytest.raises(BufferError, match="gradient"):
        from_dlpack(torch.zeros(3, requires_grad=True))
    with pytest.raises((BufferError, ValueError, RuntimeError)):
        from_dlpack(torch.zeros(3, device="meta"))


@pytest.mark.torch
def test_torch_deletes_in_its_own_threads(torch: Any) -> None:
    shmtensor.zeros(1, shared=True)
    before = blocks()
    x = torch.from_dlpack(shmtensor.ones(64, shared=True)).requires_grad_()
    (x * x).sum().backward()  # what the graph kept goes in torch's thread
    assert x.grad is not None
    assert x.grad.tolist() == [2] * 64
    del x
    assert blocks() == before


# -- JAX, in a process of its own: it warns of every fork once it is loaded --------------------------------------------


def need_jax() -> None:
    if any(importlib.util.find_spec(name) is None for name in ("jax", "ml_dtypes")):
        pytest.skip("no jax")


def test_jax() -> None:
    need_jax()
    run(
        """
        import gc
        import jax, jax.numpy as jnp, numpy as np
        import shmtensor
        from shmtensor import _native, from_dlpack
        from shmtensor.manager import client

        def blocks():
            gc.collect()
            return client.default().native.stats().blocks

        t = shmtensor.arange(64, dtype="float32", shared=True).view(8, 8)
        theirs = jax.dlpack.from_dlpack(t)
        assert theirs.unsafe_buffer_pointer() == t.data_ptr()
        t[0, 1] = 9
        assert theirs[0, 1] == 9
        back = from_dlpack(theirs)
        assert back.is_shared() and back.storage() is t.storage()
        held = blocks()
        del t, back
        assert blocks() == held
        assert float(theirs.sum()) == 64 * 63 / 2 + 8
        del theirs
        assert blocks() == held - 1

        dtypes = "bool int8 uint8 int16 int32 float16 float32 complex64 bfloat16 float8_e4m3fn"
        for dtype in dtypes.split():
            x = jnp.arange(3).astype(dtype)
            array = _native.dlpack_import(x, None, None)
            assert array.dtype == x.dtype, dtype
            assert array.ctypes.data == x.unsafe_buffer_pointer()
            assert np.array_equal(array, np.asarray(x)), dtype
        x = jnp.arange(5)
        t = from_dlpack(x)
        copy = from_dlpack(x, copy=True)
        assert t.tolist() == copy.tolist() == [0, 1, 2, 3, 4]
        assert t.data_ptr() == x.unsafe_buffer_pointer() != copy.data_ptr()
        kept = jax.dlpack.from_dlpack(shmtensor.ones(64, shared=True))
        """,
        JAX_PLATFORMS="cpu",
        PYTHONPATH=os.pathsep.join(sys.path),
    )


@pytest.mark.exhaustive
def test_the_examples_of_the_documentation() -> None:
    need_jax()
    pytest.importorskip("torch")
    text = (Path(__file__).parents[2] / "docs" / "sharing.md").read_text()
    (code,) = [part for part in re.findall(r"```python\n(.*?)```", text, re.S) if "dlpack" in part]
    run(f"import shmtensor\n{code}", JAX_PLATFORMS="cpu", PYTHONPATH=os.pathsep.join(sys.path))


def test_array_api_strict() -> None:
    strict = pytest.importorskip("array_api_strict")
    t = twelve(True)
    theirs = strict.from_dlpack(t)
    assert from_dlpack(theirs).storage() is t.storage()
