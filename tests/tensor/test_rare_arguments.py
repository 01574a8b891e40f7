"""Arguments that few programs give: what comes out, or the error that refuses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor import Tensor, cuda, linalg
from shmtensor.errors import DeviceUnavailable, DTypeError, IndexOutOfRange, InvalidArgument, LayoutError

ANY: Any = st  # for arguments of types that are not declared
B, D, X = InvalidArgument, DTypeError, IndexOutOfRange


def x() -> Tensor:
    return st.arange(6.0).view(2, 3)


def bits(*values: bool) -> Tensor:
    return st.tensor(values)


def reduced(reduce: str) -> Tensor:
    """A reduction of logical values, without the value that was there; the last gets none."""
    at = st.tensor([0, 1, 1])
    return st.zeros(3, dtype=st.bool).scatter_reduce(0, at, bits(True, False, True), reduce, include_self=False)


RESULTS: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "range of one number": (lambda: st.range(3), [0.0, 1, 2, 3], "float32"),
    "divide without rounding": (lambda: st.divide(st.tensor([1, 3]), 2, rounding_mode=None), [0.5, 1.5], "float32"),
    "argsort of no axes": (lambda: st.argsort(st.tensor(3.0)), 0, "int64"),
    "sum of no axes": (lambda: st.tensor(3.0).sum((0, -1)[:1]), 3.0, "float32"),
    "where of two numbers": (lambda: st.where(bits(True, False), 1j, 2.0), [1j, 2], "complex64"),
    "largest by any": (lambda: reduced("amax"), [True, True, False], "bool"),
    "largest by all": (lambda: reduced("amin"), [True, False, False], "bool"),
    "mean of logical values": (lambda: reduced("mean"), [True, True, False], "bool"),
    "cumsum of another type": (
        lambda: st.tensor([1.0, 2], dtype=st.bfloat16).cumsum(0, dtype=st.float64), [1.0, 3], "float64"
    ),
    "infinity of a narrow type": (
        lambda: st.nan_to_num(st.tensor([float("inf"), float("nan")], dtype=st.bfloat16)),
        [2.0**127 * (2 - 2.0**-7), 0], "bfloat16",
    ),
    "geometric numbers of a narrow type": (
        lambda: st.empty(3, dtype=st.bfloat16).geometric_(1 - 2.0**-50), [1.0, 1, 1], "bfloat16"
    ),
    "frequencies of the type of out": (
        lambda: st.fft.fftfreq(4, out=st.empty(4, dtype=st.float64)), [0.0, 0.25, -0.5, -0.25], "float64"
    ),
    "norms of several axes": (
        lambda: st.ones(2, 3, 2, dtype=st.bfloat16).renorm(2, 1, 1.0)[0, :, 0], [0.5, 0.5, 0.5], "bfloat16"
    ),
    "norms of narrow axes": (lambda: st.ones(2, 3, 2).renorm(3, 1, 0.0).sum(), 0.0, "float32"),
    "values of a list": (
        lambda: st.zeros(3).index_put_((st.tensor([0, 0, 2]),), [1.0, 2, 3], accumulate=True), [3.0, 0, 3], "float32"
    ),
    "the r of qr": (lambda: linalg.qr(st.tensor([[2.0]]), "r").R.abs(), [[2.0]], "float32"),
    "norm of a matrix": (lambda: linalg.norm(st.tensor([[1.0, -5], [2, 0]]), 1), 5.0, "float32"),
    "one byte of four": (lambda: st.arange(2, dtype=st.int32).view(st.uint8).as_strided((2,), (4,)), [0, 1], "uint8"),
}  # fmt: skip


@pytest.mark.parametrize("case", RESULTS)
def test_results(case: str) -> None:
    compute, expected, dtype = RESULTS[case]
    found = compute()
    assert found.dtype == dtype
    assert found.tolist() == expected


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "cuda": (lambda: x().cuda("cpu"), B, r"cuda\('cpu'\): give a GPU, or use cpu\(\)"),
    "cuda of a storage": (lambda: x().storage().cuda("cpu"), B, r"cuda\('cpu'\): give a GPU, or use cpu\(\)"),
    "gradient": (
        lambda: st.gradient(x(), spacing=[[0.0, 1], [0.0, 1]]), B,
        r"along axis 1 of a tensor of shape \(2, 3\) with coordinates of shape \(2,\); give one for each value",
    ),
    "frombuffer": (lambda: st.frombuffer(5, dtype=st.float32), TypeError, "a bytes-like object is required, not 'int'"),
    "split": (lambda: st.zeros(3).unsafe_split(0), B, "a split into parts of 0; give a size from 1"),
    "tensordot": (lambda: st.tensordot(x(), x(), dims=([7], [0])), B, r"the product over axes \(\[7\], \[0\]\)"),
    "vecdot": (
        lambda: linalg.vecdot(x(), st.ones(2, 2)), B,
        r"vecdot along axis -1 of tensors of shapes \(2, 3\) and \(2, 2\); give axes of one size",
    ),
    "unique": (lambda: st.unique(st.empty(3, 0), dim=0), B, r"unique along axis 0 .*\(3, 0\); its parts are empty"),
    "divide": (
        lambda: st.divide(x(), 2, rounding_mode="up"), B, "with rounding_mode 'up'; give None, 'trunc' or 'floor'"
    ),
    "argsort": (lambda: st.argsort(st.tensor(3.0), dim=1), X, r"asked for axis 1 of a tensor of shape \(\)"),
    "sum": (lambda: st.tensor(1.0).sum((0, 3)), X, r"asked for axis 3 of a tensor of shape \(\); it has none"),
    "istft of nothing": (
        lambda: st.istft(st.zeros(5, 0, dtype=st.complex64), 8), B, r"shape \(5, 0\); give \(frequencies, pieces\)"
    ),
    "istft with a complex window": (
        lambda: st.istft(st.zeros(5, 3, dtype=st.complex64), 8, window=st.ones(8, dtype=st.complex64)), B,
        "istft with a complex window; give return_complex=True",
    ),
    "hann_window": (lambda: st.hann_window(2**60), B, f"hann_window of {2**60} points for"),
    "full": (lambda: st.full((2,), None), B, "full without a value; give fill_value"),
    "logspace": (lambda: ANY.logspace(0, 1, 3, base="a"), B, "logspace of base 'a' for"),
    "index_reduce": (
        lambda: x().index_reduce(0, st.tensor([[0], [1]]), x(), "amax"), B,
        r"index_reduce with indices of shape \(2, 1\); give one axis",
    ),
    "geometric": (lambda: st.empty(3).geometric_(1e-30), B, "p 1e-30 is too close to 0: 1 - p is 1; give a larger one"),
    "threshold": (
        lambda: st.nn.functional.threshold(x(), 10**400, 0), B, "threshold"
    ),
    "svd": (lambda: linalg.svd(x(), driver="a"), B, "svd with driver 'a'; use one of None, 'gesvd', '"),
    "matrix_power": (
        lambda: linalg.matrix_power(x(), 2), B, r"matrix_power of .* \(2, 3\); it takes square matrices"
    ),
    "pinv": (
        lambda: linalg.pinv(st.ones(2, 3, 3), atol=st.ones(5)), B, r"pinv with atol and rtol of shapes \(\(5,\), \(\)\)"
    ),
    "geev": (
        lambda: st.geev(st.ones(2, 2, dtype=st.complex64)), D, "geev of a tensor of complex64; it takes real matrices"
    ),
    "norm of an array": (lambda: ANY.norm(np.ones(3)), D, r"norm of a numpy.ndarray; use shmtensor.asarray\(values\)"),
    "matrix_norm of an axis": (lambda: linalg.matrix_norm(x(), dim=0), B, "matrix_norm over axes 0; give two"),
    "matrix_norm of an axis twice": (
        lambda: linalg.matrix_norm(x(), dim=(0, 0)), B, r"over axes \(0, 0\) .* \(2, 3\); give two different axes"
    ),
    "norm of three axes": (
        lambda: linalg.norm(st.ones(2, 2, 2), "fro"), B, r"norm with ord 'fro' .*\(2, 2, 2\); give one or two axes"
    ),
    "promote_types": (
        lambda: st.promote_types(st.float8_e4m3fn, st.bfloat16), D, "float8_e4m3fn and bfloat16 have no type in common"
    ),
    "clear_flag": (
        lambda: x().storage().clear_flag(1), B, "cannot clear 1; only RESIZABLE can be set and cleared"
    ),
    "slice of a storage": (lambda: x().storage()["a":2], B, r"storage slice slice\('a', 2, None\): slice indices must"),
    "from_file": (lambda: ANY.FloatStorage.from_file(5), B, "5 is not a path: .*; give the path of a file"),
    "strides": (
        lambda: st.from_numpy(np.lib.stride_tricks.as_strided(np.zeros(8, np.complex128), (2,), (24,))), LayoutError,
        r"the array has strides \(24,\) bytes; a tensor needs multiples of its item size \(16\): pass array.copy\(\)",
    ),
    "cuda.memory_reserved": (lambda: cuda.memory_reserved("cpu"), B, "'cpu' is not a GPU; give 'cuda', 'cuda:1' or"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        call()


def test_names_of_things() -> None:
    assert x().storage_type() is st.FloatStorage
    assert repr(st.Generator().manual_seed(7)) == "Generator(initial_seed=7)"
    assert st.float32 != "nonsense" and st.float32 == "float32"
    assert st.finfo(st.bfloat16).eps == 2.0**-7


def test_storage_of_an_array_without_elements() -> None:
    assert st.from_numpy(np.empty((3, 4))[:0, ::2]).storage().size() == 0
    assert st.from_numpy(np.empty((0, 3)).T).shape == (3, 0)


@pytest.mark.skipif(cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu() -> None:
    for call in (lambda: cuda.set_device(0), lambda: cuda.Event(), lambda: cuda.memory_reserved(0), cuda.synchronize):
        with pytest.raises(DeviceUnavailable, match="no GPU can be used"):
            call()
    cuda.empty_cache()
    with cuda.device(None) as device, cuda.stream(None) as stream:
        assert device is None and stream is None
    assert not cuda.is_initialized()
