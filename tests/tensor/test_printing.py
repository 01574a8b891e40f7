"""Tensors print as torch's do, and also show where shared memory is."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.devices import Device
from shmtensor.dtypes import TABLE
from shmtensor.errors import InvalidArgument

INF, NAN = math.inf, math.nan
FIRST = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}


@pytest.fixture(autouse=True)
def options_as_at_first() -> Iterator[None]:
    assert st.get_printoptions() == FIRST
    yield
    st.set_printoptions(profile="default")


# -- by hand -----------------------------------------------------------------------------------------------------------

TEXTS = [
    ([1.0, 2.0, 3.0], "float32", "tensor([1., 2., 3.])"),
    ([[1.0, 2.5], [-3.0, 0.0]], "float32", "tensor([[ 1.0000,  2.5000],\n        [-3.0000,  0.0000]])"),
    ([[[1], [2]], [[3], [-4]]], "int64", "tensor([[[ 1],\n         [ 2]],\n\n        [[ 3],\n         [-4]]])"),
    (0.1, "float32", "tensor(0.1000)"),
    (-0.0, "float32", "tensor(-0.)"),
    (7, "int64", "tensor(7)"),
    (True, "bool", "tensor(True)"),
    ([True, False], "bool", "tensor([ True, False])"),
    ([1, 10, -100], "int64", "tensor([   1,   10, -100])"),
    ([1, 2], "int32", "tensor([1, 2], dtype=shmtensor.int32)"),
    ([2**64 - 1], "uint64", "tensor([18446744073709551615], dtype=shmtensor.uint64)"),
    ([0.5], "float64", "tensor([0.5000], dtype=shmtensor.float64)"),
    (1.5, "float16", "tensor(1.5000, dtype=shmtensor.float16)"),
    ([1.0, NAN, INF, -INF], "float32", "tensor([1., nan, inf, -inf])"),
    ([1.5, NAN, INF, -INF], "float32", "tensor([1.5000,    nan,    inf,   -inf])"),
    ([NAN, 0.0], "float32", "tensor([nan, 0.])"),
    ([1.0, 1000.0], "float32", "tensor([   1., 1000.])"),
    ([1.0, 1001.0], "float32", "tensor([1.0000e+00, 1.0010e+03])"),
    ([1e8], "float32", "tensor([100000000.])"),
    ([2e8], "float32", "tensor([2.0000e+08])"),
    ([1e-3, 0.0], "float32", "tensor([0.0010, 0.0000])"),
    ([1e-5, 0.0], "float32", "tensor([1.0000e-05, 0.0000e+00])"),
    ([1 + 2j, 3.5 - 1j], "complex64", "tensor([1.0000+2.j, 3.5000-1.j])"),
    (1j, "complex128", "tensor(0.+1.j, dtype=shmtensor.complex128)"),
    ([complex(0, -0.0), complex(NAN, INF)], "complex64", "tensor([0.-0.j, nan+infj])"),
    ([], "float32", "tensor([])"),
    ([], "int64", "tensor([], dtype=shmtensor.int64)"),
    ([], "bool", "tensor([], dtype=shmtensor.bool)"),
    (np.empty((0, 3)), "float32", "tensor([], size=(0, 3))"),
    (np.empty((2, 0)), "float64", "tensor([], size=(2, 0), dtype=shmtensor.float64)"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "dtype", "text"), TEXTS, ids=[text for *_, text in TEXTS])
def test_a_tensor_prints(values: Any, dtype: str, text: str) -> None:
    t = st.tensor(values, dtype=dtype)
    assert repr(t) == str(t) == text


def test_views_print_what_they_see() -> None:
    t = st.arange(6).reshape(2, 3)
    assert repr(t.mT) == "tensor([[0, 3],\n        [1, 4],\n        [2, 5]])"
    assert repr(t[1, ::2]) == "tensor([3, 5])"
    assert repr(t[0, 2]) == "tensor(2)"
    assert repr(st.zeros(1).expand(3)) == "tensor([0., 0., 0.])"
    view = t[1]
    t.share_memory_()
    t[1] = 7
    assert repr(view) == "tensor([7, 7, 7], memory=shared)"


def test_long_tensors_print_in_part() -> None:
    assert repr(st.arange(1001)) == "tensor([   0,    1,    2,  ...,  998,  999, 1000])"
    assert repr(st.arange(1000)).count("\n") == 71
    text = "tensor([[   0,    1,    2,  ...,  497,  498,  499],\n"
    text += "        [ 500,  501,  502,  ...,  997,  998,  999],\n"
    text += "        [1000, 1001, 1002,  ..., 1497, 1498, 1499]])"
    assert repr(st.arange(1500).reshape(3, 500)) == text
    st.set_printoptions(threshold=8, edgeitems=1)
    text = "tensor([[0,  ..., 2],\n        ...,\n        [6,  ..., 8]])"
    assert repr(st.arange(9).reshape(3, 3)) == text
    # What is not printed does not decide how the rest is.
    assert repr(st.tensor([1.0] + [1e9, 0.25] * 8 + [2.0])) == "tensor([1.,  ..., 2.])"


def test_many_elements_that_are_few_in_memory() -> None:
    assert repr(st.ones(1).expand(10**6, 10**6)).count("1.") == 36


def test_lines_end_at_the_width() -> None:
    assert repr(st.arange(25)) == (
        "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
        "        18, 19, 20, 21, 22, 23, 24])"
    )
    st.set_printoptions(linewidth=20)
    text = "tensor([[0.5000,\n         0.5000]],\n       dtype=shmtensor.float64)"
    assert repr(st.full((1, 2), 0.5, dtype="float64")) == text


def test_precision_and_notation() -> None:
    t = st.tensor([0.123456, 2.0])
    st.set_printoptions(precision=2)
    assert repr(t) == "tensor([0.12, 2.00])"
    st.set_printoptions(sci_mode=True)
    assert repr(t) == "tensor([1.23e-01, 2.00e+00])"
    assert repr(st.tensor([1.0, 2.0])) == "tensor([1.00e+00, 2.00e+00])"
    st.set_printoptions(sci_mode=False)
    assert repr(st.tensor([1e-7, 1e7])) == "tensor([       0.00, 10000000.00])"
    st.set_printoptions()  # sci_mode is set by each call
    assert st.get_printoptions() == {**FIRST, "precision": 2}
    assert repr(st.tensor([1e-7, 1e7])) == "tensor([1.00e-07, 1.00e+07])"


def test_profiles() -> None:
    st.set_printoptions(profile="short")
    assert st.get_printoptions() == {**FIRST, "precision": 2, "edgeitems": 2}
    st.set_printoptions(profile="full", linewidth=100)
    assert st.get_printoptions() == {**FIRST, "threshold": INF, "linewidth": 100}
    assert repr(st.zeros(2000)).count("0.") == 2000
    st.set_printoptions(profile="default", sci_mode=False)
    assert st.get_printoptions() == {**FIRST, "sci_mode": False}
    st.set_printoptions(np.int64(1), np.float64(5), 2, 30, None, np.True_)
    options = st.get_printoptions()
    assert list(options.values()) == [1, 5, 2, 30, True] and type(options["sci_mode"]) is bool
    st.set_printoptions(**options)
    assert st.get_printoptions() == options


@pytest.mark.parametrize(
    "asked",
    [
        {"profile": "long"}, {"precision": -1}, {"precision": 1.5}, {"precision": True}, {"edgeitems": -1},
        {"linewidth": "wide"}, {"threshold": NAN}, {"threshold": "many"}, {"threshold": []}, {"sci_mode": "auto"},
    ],
    ids=str,
)  # fmt: skip
def test_options_that_are_none(asked: dict[str, Any]) -> None:
    (value,) = asked.values()
    with pytest.raises(InvalidArgument) as caught:
        st.set_printoptions(**{"linewidth": 40, "precision": 1, **asked})
    assert repr(value) in str(caught.value)
    assert st.get_printoptions() == FIRST


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_type_has_its_name(row: Any) -> None:
    if row.package:
        pytest.importorskip(row.package)
    for t in (st.ones(2, dtype=row.dtype), st.tensor(1, dtype=row.dtype), st.zeros(0, dtype=row.dtype)):
        default = ("float32", "int64", "bool", "complex64") if t.numel() else ("float32",)
        assert (f"dtype=shmtensor.{row.name})" in repr(t)) == (row.name not in default)


def test_the_place_of_shared_memory_shows() -> None:
    t = st.arange(3.0)
    assert repr(t) == "tensor([0., 1., 2.])"
    t.share_memory_()
    assert repr(t[1:]) == "tensor([1., 2.], memory=shared)"
    assert repr(st.zeros(0, 2, shared=True)) == "tensor([], size=(0, 2), memory=shared)"
    assert repr(st.ones(1, dtype="int8", shared=True)) == "tensor([1], dtype=shmtensor.int8, memory=shared)"
    assert repr(st.ones(1).share_memory_(readonly=True)) == "tensor([1.], memory=lent)"
    assert repr(st.ones(1).share_memory_(copy_on_write=True)) == "tensor([1.], memory=frozen)"
    st.set_printoptions(linewidth=20)
    assert repr(t[1:]) == "tensor([1., 2.],\n       memory=shared)"


def test_only_a_file_that_is_shared_shows(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(8))
    for shared, place in ((True, ", memory=map"), (False, "")):
        storage = st.FloatStorage.from_file(tmp_path / "x", shared=shared, size=2)
        assert storage._place() == "map"
        assert repr(st.Tensor(storage)) == f"tensor([0., 0.]{place})"
        assert repr(storage) == f" 0.0\n 0.0\n[shmtensor.FloatStorage of size 2{place}]"


def test_a_device_shows_if_it_is_not_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st.Tensor, "device", Device("cuda", 1))
    assert repr(st.ones(2)) == "tensor([1., 1.], device='cuda:1')"
    assert repr(st.zeros(0, 1, dtype="int8")) == "tensor([], device='cuda:1', size=(0, 1), dtype=shmtensor.int8)"


def test_a_subclass_has_its_name() -> None:
    class Weights(st.Tensor):
        pass

    st.set_printoptions(linewidth=15)
    assert repr(Weights([1.0, 2.0])) == "Weights([1.,\n         2.])"
    assert repr(st.FloatTensor([1.0])) == "tensor([1.])"


def test_signalling_nan_is_nan() -> None:
    assert repr(st.tensor(np.array([0x7FA00000, 0x3F800000], np.uint32)).view("float32")) == "tensor([nan, 1.])"
    assert repr(st.tensor([-NAN, 5e-324, 1e308], dtype="float64")) == (
        "tensor([        nan, 4.9407e-324, 1.0000e+308], dtype=shmtensor.float64)"
    )


def test_format() -> None:
    assert f"{st.tensor(0.1, dtype='float64')} {st.tensor(3)} {st.tensor(True)} {st.tensor(1j)}" == "0.1 3 True 1j"
    assert f"{st.tensor(2.0):.3f}" == "2.000"
    assert f"{st.tensor([2.0])}" == "tensor([2.])"


def test_a_text_is_of_one_set_of_options() -> None:
    """Those of its beginning, whatever another thread sets then."""

    class Changing(st.Tensor):
        def _live(self) -> Any:
            st.set_printoptions(precision=1, threshold=4, edgeitems=1, linewidth=12, sci_mode=True)
            return super()._live()

    assert repr(Changing([0.5] * 5)) == "Changing([0.5000, 0.5000, 0.5000, 0.5000, 0.5000])"
    assert repr(st.tensor([0.5] * 5)) == "tensor([5.0e-01,\n         ...,\n        5.0e-01])"


def test_printing_is_loaded_by_the_first_text() -> None:
    code = "import sys, shmtensor as st; t = st.ones(2); loaded = lambda: 'shmtensor._tensor.printing' in sys.modules\n"
    code += "print(loaded()); repr(t); print(loaded())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\nTrue\n"


# -- storages ----------------------------------------------------------------------------------------------------------


def test_storages() -> None:
    assert (
        repr(st.FloatStorage([1, 2]))
        == str(st.FloatStorage([1, 2]))
        == (" 1.0\n 2.0\n[shmtensor.FloatStorage of size 2]")
    )
    assert repr(st.BoolStorage([1])) == " True\n[shmtensor.BoolStorage of size 1]"
    assert repr(st.LongStorage()) == " \n[shmtensor.LongStorage of size 0]"
    shared = st.ByteStorage([7]).share_memory_()
    assert repr(shared) == " 7\n[shmtensor.ByteStorage of size 1, memory=shared]"
    assert repr(st.IntStorage(np.arange(1000))).count("\n") == 1000
    assert repr(st.IntStorage(np.arange(1001))) == (
        " 0\n 1\n 2\n ...\n 998\n 999\n 1000\n[shmtensor.IntStorage of size 1001]"
    )


# -- torch's -----------------------------------------------------------------------------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {}, "short": {"profile": "short"}, "full": {"profile": "full"}, "precision 0": {"precision": 0},
    "precision 7": {"precision": 7, "linewidth": 60}, "sci": {"sci_mode": True},
    "sci 1": {"sci_mode": True, "precision": 1}, "not sci": {"sci_mode": False},
    "cut": {"threshold": 3, "edgeitems": 1}, "cut to 2": {"threshold": 0, "edgeitems": 2},
    "no edges": {"edgeitems": 0}, "only dots": {"edgeitems": 0, "threshold": 2}, "narrow": {"linewidth": 22},
    "narrowest": {"linewidth": 0}, "wide": {"linewidth": 200, "threshold": 50},
}  # fmt: skip
RANDOM = np.random.default_rng(1)
ARRAYS = {
    "0-d": np.array(1.5), "0-d whole": np.array(-3.0), "0-d nan": np.array(NAN), "one": np.ones(1),
    "zeros": np.zeros(12), "whole": np.arange(-4.0, 40), "parts": np.arange(-4.0, 40) / 8,
    "large": np.array([1e9, -2.5e10, 3.0]), "small": np.array([1e-6, 3e-5, 0.0]), "far apart": np.array([1.0, 1000.5]),
    "at 1000": np.array([1.0, 1000.0]), "not finite": np.array([NAN, INF, -INF, 1.25]),
    "whole and not finite": np.array([NAN, -INF, 1.0, 1e5]), "none finite": np.array([NAN, INF, -0.0, 0.0]),
    "long": np.arange(1100.0), "long parts": RANDOM.normal(size=1001), "matrix": RANDOM.normal(size=(3, 4)),
    "wide": RANDOM.normal(size=(2, 30)), "large matrix": RANDOM.normal(size=(40, 41)) * 100,
    "matrices": np.round(RANDOM.normal(size=(2, 3, 4)) * 10), "thin": np.ones((9, 1, 2)),
    "four axes": np.arange(24.0).reshape(2, 1, 3, 4),
    "many axes": np.arange(8.0).reshape((2, 1) * 3), "long axes": RANDOM.normal(size=(8, 2, 70)),
    "transposed": np.arange(70.0).reshape(7, 10).T,
    "no element": np.zeros(0), "no row": np.zeros((0, 3)), "no column": np.zeros((3, 0, 2)),
}  # fmt: skip
WHOLE = ("int64", "int32", "int8", "uint8", "uint16")
OTHERS = ("bfloat16", "float8_e5m2", "float8_e4m3fn")
"""Types of ml_dtypes."""
TYPES = ("float32", "float64", "float16", *WHOLE, "bool", "complex64", "complex128", *OTHERS)
assert len(TYPES) * len(ARRAYS) * len(OPTIONS) > 300


def theirs_and_ours(torch: Any, name: str, dtype: str) -> tuple[Any, Any]:
    """The same values in both; what the type cannot have is 0 or wrapped as NumPy does it."""
    array = ARRAYS[name]
    with np.errstate(all="ignore"):
        if dtype.startswith("complex"):
            array = (array + 1j * array[::-1] if array.ndim == 1 else array * (1 - 0.25j)).astype(dtype)
        elif dtype in WHOLE:
            array = np.nan_to_num(array * 3, posinf=9).astype("int64").astype(dtype)
        elif dtype not in OTHERS:
            array = array.astype(dtype)
    theirs = torch.tensor(array)
    if dtype not in OTHERS:
        return theirs, st.tensor(array)
    theirs = theirs.to(getattr(torch, dtype))
    return theirs, st.tensor(theirs.float().numpy(), dtype=dtype)


@pytest.mark.torch
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", TYPES)
def test_texts_are_torchs(dtype: str, options: str) -> None:
    torch: Any = pytest.importorskip("torch")
    if dtype in OTHERS:
        pytest.importorskip("ml_dtypes")
    try:
        torch.set_printoptions(**OPTIONS[options])
        st.set_printoptions(**OPTIONS[options])
        for name in ARRAYS:
            theirs, ours = theirs_and_ours(torch, name, dtype)
            assert repr(ours) == repr(theirs).replace("torch.", "shmtensor."), name
    finally:
        torch.set_printoptions(profile="default")


@pytest.mark.torch
@pytest.mark.parametrize("seed", range(40))
def test_texts_of_random_tensors_are_torchs(seed: int) -> None:
    """Shapes, magnitudes, types and options by chance; lines end everywhere."""
    torch: Any = pytest.importorskip("torch")
    chance = np.random.default_rng(seed)
    try:
        for _ in range(10):
            shape = tuple(chance.integers(0, 9, size=chance.integers(0, 4)))
            array = chance.normal(size=shape) * 10.0 ** chance.integers(-4, 5, size=shape)
            array = np.where(chance.random(shape) < 0.1, chance.choice([NAN, INF, -INF, 0.0, -0.0]), array)
            if chance.random() < 0.3:
                array = np.round(array)
            dtype = str(chance.choice(["float32", "float64", "complex64", "complex128", "int16", "int32"]))
            with np.errstate(all="ignore"):
                array = np.asarray(np.nan_to_num(array) if dtype[0] == "i" else array).astype(dtype)
            chosen = {
                "precision": int(chance.integers(0, 9)), "threshold": int(chance.integers(0, 400)),
                "edgeitems": int(chance.integers(0, 5)), "linewidth": int(chance.integers(10, 120)),
                "sci_mode": [None, True, False][chance.integers(3)],
            }  # fmt: skip
            torch.set_printoptions(**chosen)
            st.set_printoptions(**chosen)
            assert repr(st.tensor(array)) == repr(torch.tensor(array)).replace("torch.", "shmtensor."), (chosen, shape)
    finally:
        torch.set_printoptions(profile="default")


@pytest.mark.torch
@pytest.mark.parametrize("profile", ["default", "short", "full"])
def test_options_are_torchs(profile: str) -> None:
    torch: Any = pytest.importorskip("torch")
    try:
        for asked in ({"profile": profile}, {"profile": profile, "precision": 9, "sci_mode": True}, {}):
            torch.set_printoptions(**asked)
            st.set_printoptions(**asked)
            assert st.get_printoptions() == torch._tensor_str.get_printoptions()
    finally:
        torch.set_printoptions(profile="default")


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("values", [[], [1.5, -2.0], [0.1, NAN, INF]], ids=str)
def test_storages_list_what_torchs_do(values: list[float]) -> None:
    torch: Any = pytest.importorskip("torch")
    for name in ("FloatStorage", "DoubleStorage", "HalfStorage", "ComplexFloatStorage"):
        (*ours, _), (*theirs, _) = (
            repr(getattr(st, name)(values)).split("\n"),
            repr(getattr(torch, name)(values)).split("\n"),
        )
        assert ours == theirs


def test_options_that_are_too_large() -> None:
    for name, value in (("precision", 1001), ("precision", 2**40), ("edgeitems", 2**70), ("linewidth", 2**70)):
        before = st.get_printoptions()
        with pytest.raises(InvalidArgument, match=f"{name} {value} is not an integer from 0 to"):
            st.set_printoptions(**{name: value})
        assert st.get_printoptions() == before
    try:
        st.set_printoptions(precision=1000, edgeitems=sys.maxsize // 2, linewidth=sys.maxsize, threshold=1)
        assert len(repr(st.tensor([0.5, 0.25]))) > 2000
    finally:
        st.set_printoptions(profile="default")
