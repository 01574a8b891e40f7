"""Checkpoints: saving and loading, with the memory that tensors share; exchanged with torch, too."""

from __future__ import annotations

import collections
import errno
import io
import itertools
import math
import pickle
import tracemalloc
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmtensor
from shmtensor import load, save
from shmtensor.dtypes import TABLE
from shmtensor.errors import DTypeError, FileDamaged, InvalidArgument, LayoutError, NotSupported
from shmtensor.files.window import Window

SUFFIXES = (".shmt", ".pt", ".pth")
FORMATS = ("shmtensor", "torch")
HOW: dict[str, dict[str, Any]] = {
    "heap": {}, "cpu": {"map_location": "cpu"}, "shared": {"map_location": "shared"}, "mmap": {"mmap": True},
}  # fmt: skip


def again(obj: Any, format: str, **how: Any) -> Any:
    file = io.BytesIO()
    save(obj, file, format=format)
    file.seek(0)
    return load(file, **how)


PLAIN: dict[str, Any] = {
    "none": None,
    "bools": [True, False],
    "ints": [0, 1, 255, 256, 65536, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63, -(2**63), 2**70, -(2**1000)],
    "floats": [0.0, -0.0, 1.5, 5e-324, math.inf, -math.inf],
    "complex": [1 + 2j, complex(-0.0, math.inf)],
    "strings": ["", "x", "é\n\0", "\ud800", "x" * 300],
    "bytes": [b"", b"a", bytes(range(256))],
    "bytearrays": [bytearray(), bytearray(b"xyz")],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, (4,))],
    "lists": [[], [1], [[[]]]],
    "dicts": {1: 2, (1, "a"): 3, None: 4, b"x": 5, 1.5: 6, False: 7, "": {}},
    "ordered": OrderedDict([("b", 1), ("a", 2)]),
    "counter": Counter("abracadabra"),
    "sets": [set(), {1, "a", (2,)}],
    "dtypes": [getattr(shmtensor, row.name) for row in TABLE],
    "devices": [shmtensor.ones(1).device],
}  # fmt: skip


def types_of(value: Any) -> Any:
    """The types in an object, as an object of its shape."""
    if isinstance(value, dict):
        return type(value), [(types_of(key), types_of(one)) for key, one in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [types_of(one) for one in value]
    return type(value)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", PLAIN)
def test_plain_values_come_back(name: str, format: str) -> None:
    found = again(PLAIN[name], format)
    assert found == PLAIN[name]
    assert types_of(found) == types_of(PLAIN[name])
    assert repr(found) == repr(PLAIN[name]) or isinstance(found, list)


@pytest.mark.parametrize("format", FORMATS)
def test_numbers_that_equality_does_not_tell_apart(format: str) -> None:
    nan, zero, order = again([math.nan, -0.0, OrderedDict([(2, 0), (1, 0)])], format)
    assert math.isnan(nan) and math.copysign(1, zero) == -1 and list(order) == [2, 1]
    assert type(again(np.float64(2.5), format)) is float
    assert type(again(shmtensor.ones(3).size, format)) is int


@pytest.mark.parametrize("format", FORMATS)
def test_containers_that_are_one_stay_one(format: str) -> None:
    shared = [1]
    first, (second,), third = again([shared, (shared,), [1]], format)
    assert first is second and first == third and first is not third
    tensor = shmtensor.ones(2)
    a, b = again([tensor, tensor], format)
    assert a is b
    bomb: Any = []
    for _ in range(90):
        bomb = [bomb, bomb]
    found = again(bomb, format)  # 2 ** 90 lists, if each was its own
    assert found[0] is found[1]


@pytest.mark.parametrize("format", FORMATS)
def test_metadata_of_a_state_stays(format: str) -> None:
    state = OrderedDict(weight=shmtensor.ones(2))
    state._metadata = OrderedDict({"": {"version": 1}})  # type: ignore[attr-defined]
    assert again(state, format)._metadata == {"": {"version": 1}}
    state.other = 3  # type: ignore[attr-defined]
    with pytest.raises(DTypeError, match=r"attributes \['_metadata', 'other'\]"):
        again(state, format)


# -- tensors ----------------------------------------------------------------------------------------------------------


def views() -> dict[str, Any]:
    base = shmtensor.arange(24, dtype=shmtensor.float32).reshape(4, 6)
    bare = base.storage()
    return {
        "base": base, "t": base.t(), "row": base[1], "column": base[1:, 2], "steps": base[::2, 1::3],
        "none": base[2:2], "one": base[3, 5], "storage": bare, "other": shmtensor.ones(2),
    }  # fmt: skip


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_views_stay_views_of_one_storage(tmp_path: Path, suffix: str, how: str) -> None:
    wanted = views()
    save(wanted, tmp_path / f"x{suffix}")
    found = load(tmp_path / f"x{suffix}", **HOW[how])
    assert list(found) == list(wanted)
    first = found["base"].storage_offset() if how == "mmap" else 0
    for name, tensor in wanted.items():
        if name == "storage":
            assert (type(found[name]), found[name].tolist()) == (type(tensor), tensor.tolist())
            continue
        np.testing.assert_array_equal(found[name], tensor)
        assert found[name].shape == tensor.shape and found[name].stride() == tensor.stride(), name
        if name not in ("none", "other"):
            assert found[name].storage_offset() == first + tensor.storage_offset(), name
            assert found[name].storage() is found["base"].storage()
    if how == "mmap":
        assert not found["base"].numpy().flags.writeable
        return
    assert found["base"].storage() is found["storage"] is not found["other"].storage()
    assert found["base"].is_shared() == (how == "shared")
    found["base"][1, 2] = 100
    assert found["t"][2, 1] == found["column"][0] == found["storage"][8] == 100


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", [row.name for row in TABLE])
def test_every_type_comes_back(name: str, format: str) -> None:
    if name.startswith(("bfloat", "float8")):
        pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    dtype = getattr(shmtensor.dtypes, name)
    values = shmtensor.asarray(np.arange(6).reshape(2, 3).astype(dtype))
    for location in (None, "shared"):
        found = again({"x": values, "t": values.t()}, format, map_location=location)
        assert found["x"].dtype == dtype and found["x"].storage().dtype == dtype
        assert found["x"].tolist() == values.tolist()
        assert found["t"].storage() is found["x"].storage()
        assert found["x"].is_shared() == (location == "shared")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1), (3, 1, 2)])
def test_shapes_come_back(shape: tuple[int, ...], format: str) -> None:
    for location in (None, "shared"):
        found = again(shmtensor.ones(shape), format, map_location=location)
        assert found.shape == shape and found.tolist() == shmtensor.ones(shape).tolist()


@pytest.mark.parametrize("format", FORMATS)
def test_views_of_another_type_share_memory(format: str) -> None:
    whole = shmtensor.ones(4, dtype=shmtensor.int32)
    bits = whole.view(shmtensor.uint8)
    found, same = again([whole, bits], format)
    assert same.dtype == np.uint8 and same.shape == (16,)
    found[1] = 258
    assert same[4:8].tolist() == [2, 1, 0, 0]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("suffix", SUFFIXES[:2])
def test_the_bytes_of_a_storage_are_saved_beside_it_in_any_order(tmp_path: Path, suffix: str, how: str) -> None:
    storage = shmtensor.FloatStorage([1, 2, 3, 4])
    have = [storage, storage.untyped(), shmtensor.Tensor(storage), storage.untyped()[5:7], storage[1:].untyped()]
    for first, second in itertools.permutations(range(5), 2):
        save([have[first], have[second]], path := tmp_path / f"{first}{second}{suffix}")
        got = load(path, **HOW[how])
        for wanted, one in zip((have[first], have[second]), got, strict=True):
            assert isinstance(one, type(wanted))
            assert one.tolist() == wanted.tolist()
        if suffix == ".shmt":
            assert got[0].data_ptr() - got[1].data_ptr() == have[first].data_ptr() - have[second].data_ptr()


@pytest.mark.parametrize("format", FORMATS)
def test_shared_tensors_arrays_and_parts_are_saved(format: str) -> None:
    shared = shmtensor.arange(6, shared=True)
    part = shared.storage()[2:5]
    found, array, piece = again([shared[1:], np.arange(3)[::-1], part], format)
    assert found.tolist() == [1, 2, 3, 4, 5] and found.storage().size() == 6
    assert isinstance(array, shmtensor.Tensor) and array.tolist() == [2, 1, 0]
    assert piece.tolist() == [2, 3, 4]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_mapped_tensors_are_saved_without_the_rest_of_their_file(tmp_path: Path, suffix: str) -> None:
    save({"large": shmtensor.zeros(100_000), "small": shmtensor.ones(3)}, tmp_path / "a.safetensors")
    small = load(tmp_path / "a.safetensors", mmap=True)["small"]
    save([small, small[1:]], tmp_path / f"b{suffix}")
    assert (tmp_path / f"b{suffix}").stat().st_size < 3000
    assert [x.tolist() for x in load(tmp_path / f"b{suffix}")] == [[1, 1, 1], [1, 1]]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_into_shared_memory_without_a_copy_on_the_heap(tmp_path: Path, suffix: str) -> None:
    save({"x": shmtensor.ones(2_000_000)}, tmp_path / f"x{suffix}")
    shmtensor.ones(1, shared=True)
    tracemalloc.start()
    try:
        found = load(tmp_path / f"x{suffix}", map_location="shared")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found["x"].is_shared() and found["x"].sum() == 2_000_000
    assert peak < 1_000_000


@pytest.mark.parametrize("suffix", (".shmt", ".pt"))
def test_mapped_checkpoints_cannot_be_written(tmp_path: Path, suffix: str) -> None:
    save([shmtensor.ones(3)], tmp_path / f"x{suffix}")
    with pytest.raises(LayoutError, match="checksum"):
        load(tmp_path / f"x{suffix}", mmap=True, writable=True)


# -- where they are ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["npy", "npz", "safetensors", *FORMATS])
def test_files_strings_paths_and_bytes(tmp_path: Path, format: str) -> None:
    obj = shmtensor.arange(3) if format == "npy" else {"a": shmtensor.arange(3)}

    def check(found: Any) -> None:
        assert (found if format == "npy" else found["a"]).tolist() == [0, 1, 2]

    path = tmp_path / "named as you like"
    save(obj, path, format=format)
    check(load(str(path), format=format))
    content = path.read_bytes()
    with path.open("wb") as file:
        file.write(b"before")
        save(obj, file, format=format)
    assert path.read_bytes() == b"before" + content or format != "npy"
    for buffering in (-1, 0):
        with path.open("rb", buffering) as file:
            file.seek(6)
            check(load(file))
    check(load(io.BytesIO(content)))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive, archive.open("x", "w") as pipe:
        save(obj, pipe, format=format)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive, archive.open("x") as pipe:
        check(load(pipe))


def test_checkpoints_are_safetensors(tmp_path: Path) -> None:
    save({"a": [shmtensor.ones(2, 3)]}, tmp_path / "x.safetensors", format="shmtensor")
    assert load(tmp_path / "x.safetensors")["a"][0].shape == (2, 3)
    theirs = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    assert theirs.load_file(tmp_path / "x.safetensors")["0"].tolist() == [1] * 6


def test_a_file_that_is_no_checkpoint(tmp_path: Path) -> None:
    save({"a": shmtensor.ones(1)}, tmp_path / "x.safetensors")
    with pytest.raises(FileDamaged, match="not a checkpoint"):
        load(tmp_path / "x.safetensors", format="shmtensor")
    with pytest.raises(FileDamaged, match=r"without data\.pkl"):
        file = io.BytesIO()
        np.savez(file, a=np.ones(1))
        load(file, format="torch") if not file.seek(0) else None


# -- wrong arguments --------------------------------------------------------------------------------------------------


class Something:
    pass


Point = collections.namedtuple("Point", "x y")

UNSAVABLE: dict[str, tuple[Any, type[Exception], str]] = {
    "object": ([{"a": Something()}], DTypeError, r"\[0\]\['a'\]: cannot save a .*Something; save its parts"),
    "function": (print, DTypeError, "cannot save a builtin_function"),
    "numpy number": ({"x": np.float32(1)}, DTypeError, r"\['x'\]: cannot save a numpy\.float32; use its item\(\)"),
    "named tuple": (Point(1, 2), DTypeError, r"Point; use tuple\(x\)"),
    "defaultdict": (collections.defaultdict(list), DTypeError, r"use dict\(x\)"),
    "tensor as key": ({shmtensor.ones(1): 1}, DTypeError, "cannot save the key"),
    "large key": ({2**64: 1}, DTypeError, "cannot save the key"),
    "objects in an array": (np.array([None]), DTypeError, "Python objects"),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", UNSAVABLE)
def test_what_cannot_be_saved(tmp_path: Path, case: str, format: str) -> None:
    obj, error, message = UNSAVABLE[case]
    with pytest.raises(error, match=message):
        save(obj, tmp_path / "x", format=format)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", FORMATS)
def test_containers_in_themselves_or_too_deep(format: str) -> None:
    loop: list[Any] = []
    loop.append({"x": (loop,)})
    with pytest.raises(InvalidArgument, match="a list contains itself"):
        again(loop, format)
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    assert again(deep, format) == deep
    with pytest.raises(InvalidArgument, match="nested more than 100 deep"):
        again([deep], format)


def test_an_integer_that_torch_cannot_read() -> None:
    assert again(2**5000, "shmtensor") == 2**5000
    with pytest.raises(InvalidArgument, match=r"torch\.load reads at most 255"):
        again(2**5000, "torch")


def test_wrong_arguments(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    save(1, path)
    for location in ("cuda", "cuda:0", 3, {"cpu": "cpu"}, lambda storage, _: storage):
        with pytest.raises(InvalidArgument, match=r"map_location .* is not available; use None, 'cpu' or 'shared'"):
            load(path, location)
    with pytest.raises(InvalidArgument, match="weights_only False cannot be chosen"):
        load(path, weights_only=False)
    assert load(path, shmtensor.ones(1).device, weights_only=True) == 1
    for arguments in ({"pickle_module": pickle}, {"pickle_protocol": 4}):
        with pytest.raises(InvalidArgument, match="cannot be chosen"):
            save(1, path, **arguments)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="exclude each other"):
        load(path, "cpu", shared=True)
    with pytest.raises(InvalidArgument, match="exclude each other"):
        load(path, "shared", mmap=True)
    with pytest.raises(InvalidArgument, match="unknown format 'tar'"):
        save(1, path, format="tar")
    with pytest.raises(InvalidArgument, match="mmap needs a path"):
        load(io.BytesIO(path.read_bytes()), mmap=True)
    for text in (io.StringIO(), (tmp_path / "text").open("w+")):
        with text, pytest.raises(InvalidArgument, match="binary mode"):
            save([1], text)
    with pytest.raises(InvalidArgument, match="no tell"):
        load(type("File", (), {"read": print, "seek": print, "tell": None})())


class Refused(io.RawIOBase):
    def tell(self) -> int:
        raise OSError(errno.ESPIPE, "Illegal seek")


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_file_objects_that_are_refused_or_closed_leave_nothing_to_complain() -> None:
    closed = io.BytesIO()
    window = Window(closed, "save")
    closed.close()
    del window
    lacking: Any = object()
    for file, doing in ((lacking, "load"), (lacking, "save"), (closed, "load"), (Refused(), "load")):
        with pytest.raises(InvalidArgument):
            Window(file, doing)
    # The finalizer of a file reports what its close() raises from Python 3.13 on, so close() has to raise nothing.
    window = Window.__new__(Window)
    window.close()
    file = io.BytesIO()
    window = Window(file, "save")
    file.close()
    window.close()


# -- torch ------------------------------------------------------------------------------------------------------------


def test_records_in_files_for_torch_are_aligned(tmp_path: Path) -> None:
    save(views(), tmp_path / "x.pt")
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        assert archive.testzip() is None
        names = ["data.pkl", "byteorder", "data/0", "data/1", "version"]
        assert archive.namelist() == [f"archive/{name}" for name in names]
        assert archive.read("archive/version") == b"3\n"
        content = (tmp_path / "x.pt").read_bytes()
        for info in archive.infolist():
            assert info.compress_type == zipfile.ZIP_STORED
            name, extra = (int.from_bytes(content[info.header_offset + at :][:2], "little") for at in (26, 28))
            assert (info.header_offset + 30 + name + extra) % 64 == 0


@pytest.mark.torch
@pytest.mark.parametrize("mmap", [False, True])
def test_torch_reads_what_we_write(tmp_path: Path, mmap: bool) -> None:
    torch = pytest.importorskip("torch")
    wanted = {**views(), "plain": {key: one for key, one in PLAIN.items() if key not in ("dtypes", "devices")}}
    wanted["dtype"], wanted["device"] = shmtensor.float16, shmtensor.ones(1).device
    save(wanted, tmp_path / "x.pt")
    found = torch.load(tmp_path / "x.pt", weights_only=True, mmap=mmap)
    assert list(found) == list(wanted)
    assert found["plain"] == wanted["plain"] and types_of(found["plain"]) == types_of(wanted["plain"])
    assert found["dtype"] == torch.float16 and found["device"] == torch.device("cpu")
    for name, tensor in wanted.items():
        if isinstance(tensor, shmtensor.Tensor):
            assert found[name].tolist() == tensor.tolist()
            assert found[name].stride() == tensor.stride() and found[name].shape == tensor.shape
            if name != "other":
                assert found[name].untyped_storage().data_ptr() == found["base"].untyped_storage().data_ptr()
                assert found[name].storage_offset() == tensor.storage_offset()
    if not mmap:
        found["base"][1, 2] = 100
        assert found["t"][2, 1] == 100


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("how", HOW)
def test_we_read_what_torch_writes(tmp_path: Path, how: str) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])
    base = torch.arange(24.0).reshape(4, 6)
    wanted = {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(),
        "parameter": model[0].weight, "base": base, "t": base.t(), "part": base[1:, 2], "wide": base[:1].expand(3, 6),
        "storage": base.storage(), "bytes": torch.ones(2).untyped_storage(), "size": base.shape, "dtype": torch.int8,
        "device": torch.device("cuda", 1), "empty": torch.empty(0, 3), "scalar": torch.tensor(3.0, requires_grad=True),
        "conj": torch.tensor([1 + 2j]).conj(), "neg": torch.tensor([1 + 2j]).conj().imag,
        **PLAIN, "dtypes": [], "devices": [],
    }  # fmt: skip
    torch.save(wanted, tmp_path / "x.pth")
    found = load(tmp_path / "x.pth", **HOW[how])

    def same(found: Any, wanted: Any) -> None:
        if isinstance(wanted, torch.Tensor):
            assert isinstance(found, shmtensor.Tensor)
            assert found.tolist() == wanted.tolist() and found.shape == wanted.shape
            if not (wanted.is_conj() or wanted.is_neg()):
                assert found.stride() == wanted.stride()
        elif isinstance(wanted, dict):
            assert type(found) is type(wanted) and list(found) == list(wanted)
            for key, one in wanted.items():
                same(found[key], one)
        elif isinstance(wanted, list):
            assert type(found) is list and len(found) == len(wanted)
            for one, other in zip(found, wanted, strict=True):
                same(one, other)
        elif isinstance(wanted, torch.dtype | torch.device):
            assert str(wanted) == str(found).replace("shmtensor.", "torch.")
        elif isinstance(wanted, torch.storage.TypedStorage | torch.UntypedStorage):
            assert found.tolist() == wanted.tolist()
        else:
            assert found == wanted

    same(found, wanted)
    assert found["model"]._metadata == wanted["model"]._metadata
    assert found["parameter"].storage() is found["model"]["0.weight"].storage()
    assert found["t"].storage() is found["part"].storage() is found["base"].storage()
    if how != "mmap":
        assert found["base"].storage() is found["storage"]
        found["base"][1, 2] = 100
        assert found["t"][2, 1] == found["part"][0] == 100
        assert found["base"].is_shared() == (how == "shared")


@pytest.mark.torch
@pytest.mark.parametrize("name", [row.name for row in TABLE])
def test_types_there_and_back_with_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    theirs = torch.tensor([[0, 1, 2], [3, 1, 0]]).to(getattr(torch, name))
    file = io.BytesIO()
    torch.save([theirs, theirs.t()], file)
    file.seek(0)
    ours, transposed = load(file)
    assert ours.dtype.name == name and ours.storage() is transposed.storage() and ours.storage().dtype == ours.dtype
    file = io.BytesIO()
    save([ours, transposed], file, format="torch")
    file.seek(0)
    back, other = torch.load(file, weights_only=True)
    assert back.dtype == theirs.dtype and other.untyped_storage().data_ptr() == back.untyped_storage().data_ptr()
    for one in (back, other.t()):
        assert one.to(torch.complex128).tolist() == theirs.to(torch.complex128).tolist()


@pytest.mark.torch
def test_other_files_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save([1], tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(NotSupported, match=r"before version 1\.6 is not loaded; load it with torch and save it again"):
        load(tmp_path / "old.pt")
    torch.save([torch.ones(3)], tmp_path / "four.pt", pickle_protocol=4)
    assert load(tmp_path / "four.pt")[0].tolist() == [1, 1, 1]
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    with pytest.raises(NotSupported, match=r"asks for torch\.nn\.modules\.linear\.Linear, which is not loaded"):
        load(tmp_path / "model.pt")
    torch.save({"x": np.ones(3)}, tmp_path / "numpy.pt")
    with pytest.raises(NotSupported, match=r"asks for numpy\.\w+\.multiarray\._reconstruct, which is not loaded"):
        load(tmp_path / "numpy.pt")
    torch.save(torch.ones(2).to_sparse(), tmp_path / "sparse.pt")
    with pytest.raises(NotSupported, match=r"asks for torch\._utils\._rebuild_sparse_tensor"):
        load(tmp_path / "sparse.pt")
    torch.save(torch.ones(2).to(torch.float8_e4m3fnuz), tmp_path / "type.pt")
    with pytest.raises(DTypeError, match=r"the type torch\.float8_e4m3fnuz, which tensors do not have"):
        load(tmp_path / "type.pt")


@pytest.mark.torch
def test_files_of_torch_without_checksums(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.arange(5.0)}, tmp_path / "x.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert load(tmp_path / "x.pt")["a"].tolist() == [0, 1, 2, 3, 4]
