"""conv2, xcorr2, conv3, xcorr3: each plane as in SciPy, and TH's combinations of planes."""

import itertools

import numpy as np
import pytest

import shmtensor as st
from shmtensor.errors import DTypeError, InvalidArgument

signal = pytest.importorskip("scipy.signal")
MODES = {"V": "valid", "F": "full"}


def one(name, x, k, mode="V", stride=(1, 1, 1)):
    """One plane, by SciPy; with strides as TH defines them."""
    steps = tuple(slice(None, None, step) for step in stride[: x.ndim])
    if mode == "F":
        spread = np.zeros([(n - 1) * step + 1 for n, step in zip(x.shape, stride, strict=False)], x.dtype)
        spread[steps] = x
        x, steps = spread, ()
    compute = signal.convolve if name.startswith("conv") else lambda a, b, **how: signal.correlate(a, b.conj(), **how)
    return compute(x, k, mode=MODES[mode], method="direct")[steps]


def values(*shape, dtype=np.float64):
    """Small whole numbers, which every type sums exactly."""
    return np.random.RandomState(sum(shape)).randint(0, 3, shape).astype(dtype)


CASES = [
    pytest.param(name, mode, id=f"{name}-{mode}")
    for name, mode in itertools.product(("conv2", "xcorr2", "conv3", "xcorr3"), MODES)
]
SIZES = {"2": ((6, 7), (3, 2), (2, 3)), "3": ((5, 6, 4), (2, 3, 1), (2, 1, 3))}


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_an_image_with_a_kernel(name, mode):
    size, kernel, strides = SIZES[name[-1]]
    x, k = values(*size), values(*kernel)
    for stride in ((1,) * len(size), strides):
        want = one(name, x, k, mode, stride)
        for made in (
            getattr(st, name)(st.asarray(x), st.asarray(k), mode, stride=stride),
            getattr(st.asarray(x), name)(k=st.asarray(k), mode=mode, stride=list(stride)),
        ):
            assert made.dtype == st.float64
            np.testing.assert_allclose(made, want, rtol=1e-12)
    np.testing.assert_allclose(
        getattr(st, name)(st.asarray(x), st.asarray(k), mode, stride=2), one(name, x, k, mode, (2, 2, 2)), rtol=1e-12
    )
    sizes = [(h - 1) * s + kh if mode == "F" else (h - kh) // s + 1 for h, kh, s in zip(*SIZES[name[-1]], strict=True)]
    assert made.shape == tuple(sizes), "the last one made, with strides"


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_each_plane_with_its_kernel(name, mode):
    size, kernel, stride = SIZES[name[-1]]
    x, k = values(4, *size), values(4, *kernel)
    made = getattr(st, name)(st.asarray(x), st.asarray(k), mode, stride=stride)
    np.testing.assert_allclose(made, [one(name, x[p], k[p], mode, stride) for p in range(4)], rtol=1e-12)


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_sums_over_planes_as_a_matrix_times_a_vector(name, mode):
    size, kernel, stride = SIZES[name[-1]]
    x, k = values(3, *size), values(5, 3, *kernel)
    want = [sum(one(name, x[p], k[q, p], mode, stride) for p in range(3)) for q in range(5)]
    made = getattr(st, name)(st.asarray(x), st.asarray(k), mode, stride=stride)
    np.testing.assert_allclose(made, want, rtol=1e-12)
    both = np.stack([x, 2 * x])
    several = getattr(st, name)(st.asarray(both), st.asarray(k), mode, stride=stride)
    np.testing.assert_allclose(several, [want, 2 * np.asarray(want)], rtol=1e-12)


def test_ger_and_map_of_th_by_these():
    x, k = values(3, 6, 7), values(4, 2, 3)
    made = st.conv2(st.asarray(x)[:, None], st.asarray(k)[:, None]).transpose(0, 1)
    np.testing.assert_allclose(made, [[one("conv2", x[p], k[q]) for p in range(3)] for q in range(4)])
    source, target = [0, 2, 2, 1], [1, 0, 1, 1]
    planes = st.conv2(st.asarray(x)[source], st.asarray(k))
    mapped = st.zeros(2, 5, 5, dtype=st.float64).index_add_(0, st.tensor(target), planes)
    want = np.zeros((2, 5, 5))
    for i, (a, b) in enumerate(zip(source, target, strict=True)):
        want[b] += one("conv2", x[a], k[i])
    np.testing.assert_allclose(mapped, want)


@pytest.mark.parametrize("name", ["uint8", "int32", "int64", "float16", "float32", "complex64"])
def test_types_are_kept(name):
    x, k = values(5, 5, dtype=name), values(2, 2, dtype=name)
    for function in ("conv2", "xcorr2"):
        for mode in MODES:
            made = getattr(st, function)(st.asarray(x), st.asarray(k), mode)
            assert made.dtype == getattr(st, name)
            want = one(function, x.astype(complex), k.astype(complex), mode)
            np.testing.assert_array_equal(made.to(st.complex128), want)


def test_into_out_and_of_views():
    x, k = values(6, 7), values(3, 2)
    out = st.empty(4, 6, dtype=st.float64)
    assert st.conv2(st.asarray(x.T.copy()).T, st.asarray(np.repeat(k, 2, 0))[::2], out=out) is out
    np.testing.assert_allclose(out, one("conv2", x, k))
    with pytest.raises(InvalidArgument, match="shape"):
        st.conv2(st.asarray(x), st.asarray(k), out=st.empty(3, 3))


def test_a_kernel_larger_than_the_image_needs_the_full_mode():
    x, k = values(2, 2), values(3, 4)
    np.testing.assert_allclose(st.conv2(st.asarray(x), st.asarray(k), "F"), one("conv2", x, k, "F"))
    with pytest.raises(InvalidArgument, match="smaller than the kernel"):
        st.conv2(st.asarray(x), st.asarray(k))
    with pytest.raises(InvalidArgument, match="smaller"):
        st.conv2(st.ones(5, 3), st.ones(2, 4))


@pytest.mark.parametrize(
    ("x", "k", "how", "says"),
    [
        (st.ones(3), st.ones(2), {}, "2 and 2"),
        (st.ones(3, 3, 3), st.ones(2, 2), {}, "3 and 3"),
        (st.ones(3, 3), st.ones(1, 2, 2), {}, "axes"),
        (st.ones(3, 4, 4), st.ones(2, 2, 2), {}, "3 planes with kernels for 2"),
        (st.ones(3, 4, 4), st.ones(5, 2, 2, 2), {}, "3 planes with kernels for 2"),
        (st.ones(0, 4), st.ones(0, 2), {}, "some elements"),
        (st.ones(4, 4), st.ones(2, 2), {"mode": "S"}, "'S'"),
        (st.ones(4, 4), st.ones(2, 2), {"stride": 0}, "stride 0"),
        (st.ones(4, 4), st.ones(2, 2), {"stride": (1, 1, 1)}, "stride"),
        (st.ones(4, 4), st.ones(2, 2), {"stride": 1.5}, "stride"),
    ],
)
def test_what_is_refused(x, k, how, says):
    with pytest.raises(InvalidArgument, match=says):
        st.conv2(x, k, **how)


def test_two_types_are_refused():
    for name in ("conv2", "xcorr2"):
        with pytest.raises(DTypeError, match="float32 and float64"):
            getattr(st, name)(st.ones(3, 3), st.ones(2, 2, dtype=st.float64))
    with pytest.raises(DTypeError, match="list"):
        st.conv2(st.ones(3, 3), [[1.0]])


def test_revger_of_th_is_ger_with_a_spread_kernel():
    x, k = values(2, 9, 8), values(3, 2, 3)
    spread = st.zeros(3, 3, 5, dtype=st.float64)
    spread[:, ::2, ::2] = st.asarray(k)
    made = st.xcorr2(st.asarray(x)[:, None], spread[:, None]).transpose(0, 1)
    for q, p in itertools.product(range(3), range(2)):
        want = sum(k[q, i, j] * x[p, 2 * i : 2 * i + 7, 2 * j : 2 * j + 4] for i in range(2) for j in range(3))
        np.testing.assert_allclose(made[q, p], want)
