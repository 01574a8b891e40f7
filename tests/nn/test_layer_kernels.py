"""Kernels of convolutions, pooling, normalization and LSTM: beside the general way and torch; refusals."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import math
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from functional_world import beside_torch, fixed, numbers

import shmtensor as st
import shmtensor.nn.functional as F  # noqa: N812  # as everybody imports it
from shmtensor import _native
from shmtensor.errors import InvalidArgument
from shmtensor.nn.functional.windows import Windows, exchanged

KERNELS = {
    "windows": ("exchange_channels", "gather_windows", "scatter_windows"),
    "convolution": ("channel_sums",),
    "pooling": ("max_pool", "max_pool_back", "max_pool_places"),
    "normalization": ("batch_norm_of", "batch_norm_back"),
    "recurrent": ("lstm_step", "lstm_step_back"),
}


class Watch:
    """Calls of kernels: `done` has those that computed, `refused` the others. None computes where `off`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: set[str] = set()
        self.refused: set[str] = set()
        self.off = False
        for module, names in KERNELS.items():
            place = importlib.import_module(f"shmtensor.nn.functional.{module}")
            for name in names:
                monkeypatch.setattr(place, name, self._watched(name, getattr(place, name)))

    def _watched(self, name: str, kernel: Any) -> Any:
        def call(*args: Any) -> bool:
            made = not self.off and kernel(*args)
            (self.done if made else self.refused).add(name)
            return made

        return call


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def windows_of(r: random.Random) -> tuple[Windows, tuple[int, ...], tuple[int, ...]]:
    """Windows of one to three axes, lengths, and counts."""
    rank = r.randint(1, 3)
    size, stride, dilation = (tuple([r.randint(1, 3) for _ in range(rank)]) for _ in range(3))
    stride = tuple([r.choice([1, 1, n]) for n in stride])
    edges = tuple([(r.randint(-1, 2), r.randint(-1, 2)) for _ in range(rank)])
    w = Windows(size, stride, dilation, edges)
    shape = (*[r.randint(1, 9) for _ in range(rank - 1)], r.choice([3, 6, 8, 10, 18, 40, 130]))
    try:
        return w, shape, w.counts(shape)
    except InvalidArgument:
        return windows_of(r)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(60))
def test_windows_are_gathered_and_summed_as_by_numpy(watch, seed, dtype):
    w, shape, count = windows_of(random.Random(seed))
    a = numbers(3, 2, *shape, seed=seed).astype(dtype)
    columns, back = [], []
    for off in (False, True):
        watch.off = off
        columns.append(w.gathered(np, a, count))
        back.append(w.summed(np, columns[0] + 1, shape))
        assert ({"gather_windows", "scatter_windows"} <= watch.refused) is off
    assert np.array_equal(*columns)
    assert np.allclose(*back, 1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(60))
def test_the_largest_are_found_as_by_numpy(watch, seed, dtype):
    r = random.Random(seed)
    rank = r.randint(1, 3)
    shape = tuple([r.randint(5, 9) for _ in range(rank)])
    how = {"kernel_size": r.randint(1, 3), "stride": r.randint(1, 3), "ceil_mode": r.random() < 0.5}
    how |= {"padding": how["kernel_size"] // 2} if r.random() < 0.5 else {"dilation": r.randint(1, 2)}
    some, often = [-np.inf, -1, 0, 1, 2, np.nan], [0.1, 0.3, 0.2, 0.2, 0.15, 0.05]
    values = np.random.default_rng(seed).choice(some, (2, 3, *shape), p=often)
    found = []
    for off in (False, True):
        watch.off = off
        x = st.from_numpy(values.astype(dtype)).requires_grad_()
        made, places = getattr(F, f"max_pool{rank}d")(x, return_indices=True, **how)
        g = st.arange(made.numel(), dtype=x.dtype).reshape(made.shape)
        found.append([made.detach().numpy(), places.numpy(), st.autograd.grad(made, x, g)[0].numpy()])
        assert ({"max_pool", "max_pool_back", "max_pool_places"} <= watch.refused) is off
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs, equal_nan=True)


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (3, 5, 7), (1, 2, 2, 3), (2, 2, 9, 18)], ids=str)
def test_squares_of_four(watch, shape):
    x = np.random.default_rng(0).choice([0.0, 0.0, 1.0, 2.0, np.nan], shape)
    beside_torch("max_pool2d", x, 2)
    beside_torch("max_pool2d", x.astype("float32"), 2)
    assert watch.done == {"max_pool", "max_pool_back"}


def test_second_derivatives(watch):
    x = numbers(2, 2, 6, 6)
    for how in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}):
        made = lambda x, how=how: F.max_pool2d(x, **how) ** 2  # noqa: E731
        assert st.autograd.gradgradcheck(made, (st.from_numpy(x).requires_grad_(),))
    assert watch.done == {"max_pool", "max_pool_back", "max_pool_places"} and not watch.refused
    inputs = [st.from_numpy(numbers(*shape)).requires_grad_() for shape in ((2, 2, 5, 5), (3, 2, 3, 3), (3,))]
    assert st.autograd.gradgradcheck(lambda x, w, b: F.conv2d(x, w, b, padding=1) ** 2, inputs)
    assert {*KERNELS["windows"], *KERNELS["convolution"]} <= watch.done


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 7), (2, 3, 4, 9), (2, 1, 3, 2, 40), (1, 2, 60, 60)], ids=str)
def test_batches(watch, shape):
    x, channels = numbers(*shape) * 3 + 50, shape[1]
    for weight, bias in ((None, None), (numbers(channels), None), (numbers(channels), numbers(channels, seed=1))):
        for second in (False, True):
            beside_torch("batch_norm", x, None, None, weight, bias, True, second=second)
        running = fixed(numbers(channels)), fixed(numbers(channels, of="uniform"))
        beside_torch("batch_norm", x, *running, weight, bias, True, 0.3, second=False)
    assert watch.done == {"batch_norm_of", "batch_norm_back"} and not watch.refused


def test_large_values_of_float32_keep_their_variance():
    x = (numbers(64, 2, 50, 50) + 1000).astype("float32")
    made = F.batch_norm(st.from_numpy(x), None, None, training=True).numpy()
    exact = x.astype("float64")
    exact = (exact - exact.mean((0, 2, 3), keepdims=True)) / np.sqrt(exact.var((0, 2, 3), keepdims=True) + 1e-5)
    assert np.abs(made - exact).max() < 1e-3  # steps of float32 at 1000 are 6e-5


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64", "complex128"])
def test_other_types_and_orders_in_memory(watch, dtype):
    """What the kernels do not compute with is computed all the same."""
    r = np.random.default_rng(0)
    x, w = (r.integers(-4, 5, shape).astype(dtype) for shape in ((6, 4, 5, 8), (2, 4, 3, 3)))
    made = F.conv2d(st.from_numpy(x.T).permute(3, 2, 1, 0), st.from_numpy(w), padding=1)
    assert bool(watch.done) is (dtype in ("float16", "float32"))  # float16 is computed as float32
    whole = F.conv2d(st.from_numpy(x.real.astype("float64")), st.from_numpy(w.real.astype("float64")), padding=1)
    assert str(made.dtype) == f"shmtensor.{dtype}" and np.allclose(made.numpy(), whole.numpy())
    if dtype != "complex128":
        y = st.from_numpy(x.transpose(0, 1, 3, 2)).transpose(2, 3)
        assert np.array_equal(F.max_pool2d(y, 2).numpy(), F.max_pool2d(st.from_numpy(x).to("float64"), 2).numpy())


@pytest.mark.torch
@pytest.mark.parametrize("channels", [(1, 16, 32), (3, 5, 7)])
def test_a_network_has_torchs_gradients(channels):
    """Both layers of a convolutional network, batch normalization and pooling, in float64 and float32."""
    torch = pytest.importorskip("torch")
    for dtype, tolerance in (("float64", 1e-10), ("float32", 1e-3)):
        x, y = numbers(16, channels[0], 8, 8).astype(dtype), np.arange(16) % 10
        state, found = None, []
        for library in (torch, st):
            nn = library.nn
            blocks = [
                [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]
                for a, b in itertools.pairwise(channels)
            ]
            model = nn.Sequential(
                *[one for block in blocks for one in block], nn.Flatten(), nn.Linear(4 * channels[-1], 10)
            )
            model = model.to(getattr(library, dtype))
            if state is None:
                state = {name: one.numpy().copy() for name, one in model.state_dict().items()}
            model.load_state_dict({name: library.asarray(one) for name, one in state.items()})
            loss = nn.functional.cross_entropy(model(library.from_numpy(x)), library.from_numpy(y))
            loss.backward()
            found.append([loss.item(), *[one.grad.numpy() for one in model.parameters()]])
            found[-1] += [one.numpy() for one in model.buffers()]
        for theirs, ours in zip(*found, strict=True):
            assert np.abs(np.asarray(ours) - theirs).max() <= tolerance * max(1, np.abs(theirs).max())


@pytest.mark.parametrize("how", [{}, {"bidirectional": True}, {"proj_size": 2}, {"num_layers": 2}], ids=str)
@pytest.mark.parametrize("hidden", [3, 8, 17])
def test_lstm_is_that_of_numpy(watch, hidden, how):
    model = st.nn.LSTM(4, hidden, **how).double()
    found = []
    for off in (False, True):
        watch.off = off
        x = st.from_numpy(numbers(5, 3, 4)).requires_grad_()
        packed = st.nn.utils.rnn.pack_padded_sequence(x, st.tensor([5, 3, 1]))
        made, (h, c) = model(packed)
        root = (made.data**2).sum() + h.sum() + (c**3).sum()
        found.append([root.detach(), *st.autograd.grad(root, [x, *model.parameters()])])
        assert ({"lstm_step", "lstm_step_back"} <= watch.refused) is off
    assert watch.done == {"lstm_step", "lstm_step_back"}
    assert all(st.allclose(a, b, 1e-12, 1e-12) for a, b in zip(*found, strict=True))


def test_groups_of_one_channel_and_no_samples():
    x = st.from_numpy(numbers(3, 4, 6, 6)).requires_grad_()
    w = st.from_numpy(numbers(4, 1, 3, 3)).requires_grad_()
    made = F.conv2d(x, w, groups=4)
    one = F.conv2d(x[:, 2:3], w[2:3])
    assert st.allclose(made[:, 2:3], one)
    g = st.autograd.grad(made[:, 2:3].sum(), (x, w))
    h = st.autograd.grad(one.sum(), (x, w))
    assert all(st.allclose(a, b) for a, b in zip(g, h, strict=True))
    assert F.conv2d(st.zeros(0, 4, 6, 6), w.detach().float(), groups=4).shape == (0, 4, 4, 4)
    assert F.max_pool2d(st.zeros(0, 4, 6, 6), 2).shape == (0, 4, 3, 3)


# -- kernels themselves ------------------------------------------------------------------------------------------------

PAIRS = ((2, 2), (2, 2), (1, 1), ((0, 0), (0, 0)))


def floats(*shape: int, dtype: str = "float32") -> Any:
    return np.ones(shape, dtype)


def readonly(a: Any) -> Any:
    a.flags.writeable = False
    return a


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("max_pool", (floats(2, 4, 4), floats(2, 2, 2, dtype="float64"), PAIRS)),
        ("max_pool", (floats(2, 4, 4), readonly(floats(2, 2, 2)), PAIRS)),
        ("max_pool", (floats(2, 4, 4), floats(3, 2, 2), PAIRS)),
        ("max_pool", (floats(2, 4, 4).T, floats(4, 2, 1), PAIRS)),
        ("max_pool", (floats(2, 4, 4, dtype=">f4"), floats(2, 2, 2), PAIRS)),
        ("max_pool", (floats(4), floats(2), PAIRS)),
        ("max_pool", (floats(2, 4, 4), floats(2, 2, 2), PAIRS[:3])),
        ("max_pool", (floats(2, 4, 4), floats(2, 2, 2), ((2, 0), *PAIRS[1:]))),
        ("max_pool", (floats(2, 4, 4), floats(2, 2, 2), ((2, 1 << 62), *PAIRS[1:]))),
        ("max_pool", (floats(2, 4, 4), floats(2, 2, 2), ((2, 1 << 80), *PAIRS[1:]))),
        ("max_pool", (floats(2, 4, 4), floats(2, 2, 2), [*PAIRS])),
        ("max_pool", ([1.0], floats(2, 2, 2), PAIRS)),
        ("max_pool_places", (floats(2, 4, 4), floats(2, 2, 2), PAIRS)),
        ("max_pool_back", (floats(2, 4, 4), floats(2, 2, 2), floats(2, 4, 5), PAIRS)),
        ("max_pool_back", (floats(2, 4, 4), floats(2, 2, 1), floats(2, 4, 4), ((2, 2, 2), *PAIRS[1:]))),
        ("gather_windows", (floats(1, 2, 4, 4), floats(2, 2, 2, 2, 2, 2), PAIRS)),
        ("gather_windows", (floats(1, 2, 4, 4), floats(2, 2, 3, 1, 2, 2), PAIRS)),
        ("gather_windows", (floats(1, 2, 0, 4), floats(2, 2, 2, 1, 1, 2), PAIRS)),
        ("gather_windows", (floats(1, 1, 2, 2), floats(1, 2, 2, 1, 2, 2), (PAIRS[0], (1 << 30,) * 2, *PAIRS[2:]))),
        ("scatter_windows", (floats(2, 2, 2, 1, 2, 2), floats(1, 3, 4, 4), PAIRS)),
        ("lstm_step", (floats(2, 12), floats(2, 3), floats(3, 3))),
        ("lstm_step", (floats(2, 11), floats(2, 3), floats(2, 3))),
        ("lstm_step", (floats(24), floats(2, 3), floats(2, 3))),
        ("lstm_step", (readonly(floats(2, 12)), floats(2, 3), floats(2, 3))),
        ("lstm_step_back", (*[floats(2, 3)] * 5, floats(2, 12))),
        ("lstm_step_back", (floats(2, 3), floats(2, 12), floats(2, 3), floats(2, 4), floats(2, 3), floats(2, 12))),
        ("lstm_step_back", (floats(2, 3), floats(2, 12), *[floats(2, 3)] * 3, floats(2, 13))),
        ("channel_sums", (floats(2, 3), floats(2))),
        ("channel_sums", (floats(3), floats(3))),
        ("exchange_channels", (floats(2, 3), floats(3), floats(3, 2))),
        ("exchange_channels", (floats(2, 3), None, floats(3, 3))),
        ("batch_norm", (floats(2, 3), floats(2), None, 0.1, floats(2, 3), floats(3), floats(3))),
        ("batch_norm", (floats(2, 3), None, None, 0.1, floats(2, 3), floats(3), floats(4))),
        ("batch_norm", (None, None, None, 0.1, floats(2, 3), floats(3), floats(3))),
        ("batch_norm_back", (*[floats(2, 3)] * 2, None, *[floats(3)] * 2, 0.1, floats(2, 3), floats(3), floats(2))),
        ("batch_norm_back", (floats(2, 3), floats(2, 4), None, *[floats(3)] * 2, 0.1, floats(2, 3), *[floats(3)] * 2)),
    ],
)  # fmt: skip
def test_what_kernels_refuse(name, args):
    assert getattr(_native, name)(*args) is False


def test_arguments_of_kernels():
    for names in KERNELS.values():
        for name in names:
            with pytest.raises(TypeError):
                getattr(_native, name.removesuffix("_of"))()


def test_windows_far_outside():
    """Edges that are larger than the tensor; windows in which nothing lies have zeros."""
    w = Windows((2,), (1,), (1,), ((5, 5),))
    a = np.arange(1.0, 4.0).reshape(1, 1, 3)
    assert w.gathered(np, a, w.counts((3,)))[0, 0, 0].tolist() == [0] * 5 + [1, 2, 3] + [0] * 4
    assert w.summed(np, np.ones((1, 2, 1, 12)), (3,)).tolist() == [[[2, 2, 2]]]
    assert exchanged(np, np.arange(6).reshape(2, 3), np.array([10, 20])).tolist() == [[10, 23], [11, 24], [12, 25]]


def test_memory_of_a_step_is_there_for_the_next_one():
    """Without it, each round of these arrays would be more than 6000 pages that the kernel has to clear."""
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        pytest.skip("another C library")
    program = """
import resource
import numpy as np
import shmtensor.nn

def step():
    return [np.ones(3 << 20, np.uint8) for _ in range(8)]

for round in range(10):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) < math.prod((8, 3 << 20)) // 4096 // 4
