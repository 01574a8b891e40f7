"""Tensors in files of NumPy and safetensors: exchanged with other libraries, in memory of every kind."""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manager_world import until

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import load, save
from shmtensor.allocators import MapAllocator, MapFlags
from shmtensor.dtypes import ELEMENT_TYPES
from shmtensor.errors import (
    DTypeError,
    FileDamaged,
    InvalidArgument,
    LayoutError,
    MappingError,
    StaleHandle,
)

SUFFIXES = (".npy", ".npz", ".safetensors")
DICTS = SUFFIXES[1:]
HOW = {"heap": {}, "shared": {"shared": True}, "mmap": {"mmap": True}, "writable": {"mmap": True, "writable": True}}
PLAIN = [row.dtype for row in ELEMENT_TYPES if row.dtype.kind in "biuf" and np.dtype(row.dtype.str) == row.dtype]


def values_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    count = int(np.prod(shape))
    return (np.arange(count) * 3 - count).astype(dtype).reshape(shape)


SHAPES = [(), (1,), (7,), (3, 5), (2, 0, 3), (2, 3, 4)]
MANY = {f"{dtype.name}/{'x'.join(map(str, shape))}é": values_of(dtype, shape) for dtype in PLAIN for shape in SHAPES}


def same(found: Any, wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for key, tensor in found.items():
        array = tensor.numpy()
        assert array.dtype == wanted[key].dtype and array.shape == wanted[key].shape, key
        np.testing.assert_array_equal(array, wanted[key])


# -- there and back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("suffix", DICTS)
def test_dicts_come_back(tmp_path: Path, suffix: str, how: str) -> None:
    path = tmp_path / f"many{suffix}"
    if (suffix, how) == (".npz", "writable"):
        pytest.skip("refused: see test_arrays_that_cannot_be_mapped")
    save({key: shmtensor.tensor(value, value.dtype) for key, value in MANY.items()}, path)
    found = load(path, **HOW[how])
    same(found, MANY)
    if how != "heap":
        assert all(tensor.is_shared() for tensor in found.values() if tensor.numel())
    if suffix == ".npz":
        assert list(found) == list(MANY)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_single_array_comes_back(tmp_path: Path, shape: tuple[int, ...], how: str) -> None:
    for dtype in PLAIN:
        save(shmtensor.tensor(values_of(dtype, shape), dtype), tmp_path / "one.npy")
        found = load(os.fspath(tmp_path / "one.npy"), **HOW[how])
        same({"": found}, {"": values_of(dtype, shape)})


@pytest.mark.parametrize("suffix", DICTS)
def test_no_tensors(tmp_path: Path, suffix: str) -> None:
    save({}, tmp_path / f"none{suffix}")
    assert load(tmp_path / f"none{suffix}") == load(tmp_path / f"none{suffix}", mmap=True) == {}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_views_arrays_and_shared_tensors_are_saved_as_they_look(tmp_path: Path, suffix: str) -> None:
    base = shmtensor.arange(24, shared=True).view(4, 6)
    strided = shmtensor.from_numpy(np.arange(24).reshape(4, 6))[::2, 1::3]
    for tensor in (base, strided, base.numpy().T, np.arange(6)[::-2]):
        wanted = np.array(tensor)
        save(tensor if suffix == ".npy" else {"a": tensor}, tmp_path / f"x{suffix}")
        found = load(tmp_path / f"x{suffix}")
        np.testing.assert_array_equal(found if suffix == ".npy" else found["a"], wanted)


# -- with others ------------------------------------------------------------------------------------------------------


def test_numpy_reads_and_writes_the_same(tmp_path: Path) -> None:
    for dtype in PLAIN:
        array = values_of(dtype, (3, 5))
        save(array, tmp_path / "ours.npy")
        np.save(tmp_path / "theirs.npy", array)
        assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()
    save(MANY, tmp_path / "ours.npz")
    with np.load(tmp_path / "ours.npz") as theirs:
        assert list(theirs) == list(MANY)
        for key in MANY:
            np.testing.assert_array_equal(theirs[key], MANY[key])


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("shared", [False, True])
def test_archives_of_numpy(tmp_path: Path, write: Any, shared: bool) -> None:
    arrays = {**MANY, "large": np.random.default_rng(1).normal(size=300_000)}
    write(tmp_path / "theirs.npz", **arrays)
    same(load(tmp_path / "theirs.npz", shared=shared), arrays)


@pytest.mark.parametrize("how", ["heap", "shared", "mmap"])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4)])
def test_fortran_order(tmp_path: Path, shape: tuple[int, ...], how: str) -> None:
    array = np.asfortranarray(values_of(np.dtype("f4"), shape))
    np.save(tmp_path / "f.npy", array)
    found = load(tmp_path / "f.npy", **HOW[how])
    np.testing.assert_array_equal(found, array)
    assert found.numpy().strides == array.strides
    assert found.storage().size() >= found.numel()


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_other_byte_order(tmp_path: Path, order: Any) -> None:
    array = values_of(np.dtype(">i4"), (3, 4))
    np.save(tmp_path / "big.npy", np.asarray(array, order=order))
    found = load(tmp_path / "big.npy")
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, array)
    with pytest.raises(LayoutError, match="other byte order; load it without mmap"):
        load(tmp_path / "big.npy", mmap=True)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_all_versions_of_npy(tmp_path: Path, version: tuple[int, int]) -> None:
    array = np.arange(6.0).reshape(2, 3)
    with (tmp_path / "v.npy").open("wb") as file:
        np.lib.format.write_array(file, array, version)
    np.testing.assert_array_equal(load(tmp_path / "v.npy"), array)


def test_safetensors_package_reads_and_writes_the_same(tmp_path: Path) -> None:
    theirs = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    save(MANY, tmp_path / "ours.safetensors")
    theirs.save_file(MANY, tmp_path / "theirs.safetensors")
    assert (tmp_path / "ours.safetensors").read_bytes() == (tmp_path / "theirs.safetensors").read_bytes()
    found = theirs.load_file(tmp_path / "ours.safetensors")
    assert found.keys() == MANY.keys()
    for key, array in found.items():
        np.testing.assert_array_equal(array, MANY[key])
    theirs.save_file(MANY, tmp_path / "meta.safetensors", {"format": "pt", "x": "y"})
    same(load(tmp_path / "meta.safetensors"), MANY)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("how", ["heap", "mmap"])
def test_types_of_ml_dtypes(tmp_path: Path, name: str, how: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    array = np.arange(12).astype(getattr(ml_dtypes, name)).reshape(3, 4)
    short = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}[name]
    (tmp_path / "b.safetensors").write_bytes(safetensors_bytes(one(short, [3, 4], array.nbytes), array.tobytes()))
    same(load(tmp_path / "b.safetensors", **HOW[how]), {"x": array})
    save({"x": array}, tmp_path / "again.safetensors")
    same(load(tmp_path / "again.safetensors"), {"x": array})
    with pytest.raises(DTypeError, match=r"save it as \.safetensors"):
        save(array, tmp_path / "b.npy")


def test_types_of_ml_dtypes_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    (tmp_path / "b.safetensors").write_bytes(safetensors_bytes(one("BF16", [2], 4), bytes(4)))
    with pytest.raises(DTypeError, match="'x': elements of type bfloat16 need ml_dtypes"):
        load(tmp_path / "b.safetensors")


def one(dtype: str, shape: list[int], nbytes: int) -> str:
    return f'{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{nbytes}]}}}}'


def safetensors_bytes(header: str, data: bytes) -> bytes:
    header = header.ljust(-(-len(header) // 8) * 8)
    return struct.pack("<Q", len(header)) + header.encode() + data


# -- where it goes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_shared_loading_takes_no_heap(tmp_path: Path, suffix: str) -> None:
    array = np.ones(4_000_000, np.float32)
    save(array if suffix == ".npy" else {"a": array}, tmp_path / f"large{suffix}")
    shmtensor.zeros(1, shared=True)
    tracemalloc.start()
    try:
        found = load(tmp_path / f"large{suffix}", shared=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    np.testing.assert_array_equal(found if suffix == ".npy" else found["a"], array)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_mapped_lies_in_the_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"m{suffix}"
    array = np.arange(1000.0)
    save(array if suffix == ".npy" else {"a": array, "b": array}, path)
    maps_before = Path("/proc/self/maps").read_text().count(str(path))
    loaded = load(path, mmap=True)
    tensor = loaded if suffix == ".npy" else loaded["a"]
    assert Path("/proc/self/maps").read_text().count(str(path)) == maps_before + 1
    for change in (tensor.fill_, tensor.add_, tensor.copy_):
        with pytest.raises(LayoutError, match="read-only"):
            change(1)
    with pytest.raises(LayoutError, match="read-only"):
        tensor[0] = 1
    assert not tensor.numpy().flags.writeable
    assert tensor.clone().add_(1)[0].item() == 1
    assert tensor.storage().flags & shmtensor.StorageFlags.RESIZABLE == 0

    if suffix == ".npz":
        return
    both = load(path, mmap=True, writable=True)
    (both if suffix == ".npy" else both["a"]).fill_(7)
    assert tensor[999].item() == 7  # the same pages
    del both, loaded, tensor
    np.testing.assert_array_equal(np.load(path) if suffix == ".npy" else load(path)["a"], np.full(1000, 7.0))


def test_saving_over_a_mapped_file_leaves_the_mapping(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save({"a": np.zeros(100_000)}, path)
    old = load(path, mmap=True)["a"]
    save({"a": np.ones(3)}, path)
    assert old.shape == (100_000,) and not old.numpy().any()
    assert load(path)["a"].tolist() == [1, 1, 1]


def test_arrays_that_cannot_be_mapped(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "c.npz", a=np.arange(100))
    with pytest.raises(LayoutError, match="'a' is compressed; load it without mmap"):
        load(tmp_path / "c.npz", mmap=True)
    save({"a": np.arange(100)}, tmp_path / "d.npz")
    with pytest.raises(LayoutError, match="'a' has a checksum in its file"):
        load(tmp_path / "d.npz", mmap=True, writable=True)
    (tmp_path / "odd.safetensors").write_bytes(struct.pack("<Q", 69) + one("F32", [2], 8).ljust(69).encode() + bytes(8))
    assert load(tmp_path / "odd.safetensors")["x"].tolist() == [0, 0]
    with pytest.raises(LayoutError, match="not a multiple of its item size 4"):
        load(tmp_path / "odd.safetensors", mmap=True)


def receive(connection: Any, path: str) -> None:
    tensor = connection.recv()
    mapped = path in Path("/proc/self/maps").read_text()
    connection.send((tensor.tolist(), tensor.numpy().flags.writeable, mapped, tensor.is_shared()))
    if tensor.numpy().flags.writeable:
        tensor[0] = 99


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("writable", [False, True])
def test_mapped_tensors_go_to_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: bool, method: str
) -> None:
    monkeypatch.chdir(tmp_path)
    save({"a": np.arange(10, dtype=np.int16), "b": np.arange(6.0)}, "sent.safetensors")
    tensor = load("sent.safetensors", mmap=True, writable=writable)["a"][2:5]
    context = mp.get_context(method)
    ours, theirs = context.Pipe()
    child = context.Process(target=receive, args=(theirs, str(tmp_path / "sent.safetensors")))
    child.start()
    theirs.close()
    ours.send(tensor)
    assert ours.recv() == ([2, 3, 4], writable, True, True)
    child.join()
    assert child.exitcode == 0
    assert tensor[0].item() == (99 if writable else 2)
    ours.close()


def test_a_mapped_file_that_is_replaced_before_its_tensor_arrives(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    save(np.zeros(3), path)
    tensor = load(path, mmap=True)
    ours, theirs = mp.Pipe()
    ours.send(tensor)
    save(np.ones(3), path)
    with pytest.raises(StaleHandle, match="another file has that name"):
        theirs.recv()
    ours.send(tensor)
    path.unlink()
    with pytest.raises(MappingError):
        theirs.recv()
    ours.close()
    theirs.close()


def test_a_part_of_a_mapping_that_is_no_storage_of_its_own_is_not_sent_as_another(tmp_path: Path) -> None:
    storage = shmtensor.IntStorage.from_file(tmp_path / "x", shared=True, size=10)
    storage.copy_(list(range(10)))
    tensor = shmtensor.from_numpy(shmtensor.Tensor(storage).numpy()[4:])
    ours, theirs = mp.Pipe()
    try:
        with pytest.raises(InvalidArgument, match=r"send a clone\(\)"):
            ours.send(tensor)
    finally:
        ours.close()
        theirs.close()


@pytest.mark.parametrize(
    "flags",
    [
        MapFlags.READONLY,
        MapFlags.READONLY | MapFlags.SHARED,
        MapFlags.READONLY | MapFlags.NOCREATE,
        MapFlags.READONLY | MapFlags.SHAREDMEM | MapFlags.NOCREATE,
        MapFlags.READONLY | MapFlags.SHARED | MapFlags.NOCREATE | MapFlags.UNLINK,
    ],
)
def test_read_only_mappings_are_of_files_that_are_there(tmp_path: Path, flags: int) -> None:
    with pytest.raises(InvalidArgument, match="READONLY requires SHARED, NOCREATE"):
        MapAllocator(tmp_path / "x", flags)


def test_a_read_only_mapping_needs_no_right_to_write_and_grows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8))
    path.chmod(0o444)
    allocator = MapAllocator(path, MapFlags.READONLY | MapFlags.SHARED | MapFlags.NOCREATE)
    assert allocator.readonly and allocator.shared
    storage = shmtensor.IntStorage(2, allocator=allocator)
    assert storage.tolist() == [0, 0] and storage._place() == "map"
    with pytest.raises(LayoutError, match="read-only"):
        storage.fill_(1)
    with pytest.raises(InvalidArgument, match="which has 8"):
        shmtensor.IntStorage(3, allocator=allocator)
    assert path.stat().st_size == 8


# -- atomic -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_fails_leaves_the_file_that_was_there(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    code = f"""
import resource, signal, sys, numpy, shmtensor
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    array = numpy.zeros(30_000)
    shmtensor.save(array if {suffix!r} == ".npy" else {{"a": array}}, {str(path)!r})
except OSError as error:
    sys.exit(f"{{error.errno}} {{error}}")
"""
    save(np.ones(3) if suffix == ".npy" else {"a": np.ones(3)}, path)
    before = path.read_bytes()
    output = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert output.stderr.startswith(f"{errno.EFBIG} [Errno {errno.EFBIG}] cannot save: File too large"), output.stderr
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.exhaustive
@pytest.mark.parametrize("suffix", DICTS)
def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    code = f"""
import numpy, shmtensor
number = 0
while True:
    number += 1
    shmtensor.save({{str(i): numpy.full(50_000, number) for i in range(4)}}, {str(path)!r})
"""
    for _ in range(4):
        path.unlink(missing_ok=True)
        writer = subprocess.Popen([sys.executable, "-c", code])
        until(path.exists, "the first file")
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        arrays = load(path)
        assert len(arrays) == 4
        assert len({int(value) for array in arrays.values() for value in (array[0], array[49_999])}) == 1


def test_rights_of_the_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    save(np.ones(1), path)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask()
    path.chmod(0o600)
    save(np.ones(2), path)
    assert path.stat().st_mode & 0o777 == 0o600


def umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.npy").symlink_to(tmp_path / "real.npy")
    save(np.ones(2), tmp_path / "link.npy")
    assert (tmp_path / "link.npy").is_symlink()
    assert load(tmp_path / "real.npy").tolist() == [1, 1]


def test_elements_in_archives_are_aligned(tmp_path: Path) -> None:
    save(MANY, tmp_path / "a.npz")
    content = (tmp_path / "a.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert archive.testzip() is None
        for info in archive.infolist():
            name, extra = struct.unpack_from("<26xHH", content, info.header_offset)
            start = info.header_offset + 30 + name + extra
            assert start % 64 == 0
            assert content[start : start + 6] == b"\x93NUMPY"


# -- wrong arguments --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "a.bin", "a.npz.gz", ".npy", ""])
def test_names_that_say_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"use one of \.npy, \.npz, \.safetensors"):
        save(np.ones(1), tmp_path / name)
    with pytest.raises(InvalidArgument, match="use one of"):
        load(tmp_path / name)


@pytest.mark.parametrize("path", [3, None, "a\0.npy"])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(InvalidArgument, match="not a path"):
        save(np.ones(1), path)
    with pytest.raises(InvalidArgument, match="not a path"):
        load(path)


@pytest.mark.parametrize(
    ("obj", "suffix", "error"),
    [
        ([1, 2], ".npy", DTypeError),
        ({"a": np.ones(1)}, ".npy", DTypeError),
        (np.ones(1), ".npz", InvalidArgument),
        (np.ones(1), ".safetensors", InvalidArgument),
        ({"a": [1]}, ".npz", DTypeError),
        ({"a": np.array([None])}, ".npz", DTypeError),
        ({"a": np.array(["x"])}, ".safetensors", DTypeError),
        ({"a": np.ones(1, ">f4")}, ".safetensors", DTypeError),
        ({1: np.ones(1)}, ".npz", InvalidArgument),
        ({"\ud800": np.ones(1)}, ".safetensors", InvalidArgument),
        ({"__metadata__": np.ones(1)}, ".safetensors", InvalidArgument),
        *(({key: np.ones(1)}, ".npz", InvalidArgument) for key in ("", "/a", "../a", "a/../b", "a\\b", "C:x", "a\0")),
    ],
)
def test_what_cannot_be_saved(tmp_path: Path, obj: Any, suffix: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        save(obj, tmp_path / f"x{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_arguments_that_contradict_each_other(tmp_path: Path) -> None:
    save(np.ones(1), tmp_path / "a.npy")
    with pytest.raises(InvalidArgument, match="exclude each other"):
        load(tmp_path / "a.npy", shared=True, mmap=True)
    with pytest.raises(InvalidArgument, match="writable needs mmap"):
        load(tmp_path / "a.npy", writable=True)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="cannot load"):
        load(tmp_path / "a.npy")
    with pytest.raises(FileNotFoundError, match="cannot save"):
        save(np.ones(1), tmp_path / "no" / "a.npy")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(IsADirectoryError):
        load(tmp_path / "folder.npy")
    with pytest.raises(IsADirectoryError):
        save(np.ones(1), tmp_path / "folder.npy")
    (tmp_path / "null.npy").symlink_to("/dev/null.npy")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "null.npy")


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".shmt", ".pt"])
def test_a_pipe_is_not_waited_for_and_not_replaced(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"pipe{suffix}"
    os.mkfifo(path)
    code = f"import shmtensor; shmtensor.load({str(path)!r})"
    found = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True, check=False)
    assert "FileDamaged" in found.stderr and "is a pipe, not a regular file" in found.stderr
    for mmap in (False, True):
        with pytest.raises(FileDamaged, match="is a pipe, not a regular file"):
            load(path, mmap=mmap)
    values: Any = np.ones(1) if suffix == ".npy" else {"a": np.ones(1)}
    if suffix in (".shmt", ".pt"):
        values = [1, 2]
    with pytest.raises(InvalidArgument, match="is a pipe, not a regular file, and would be replaced"):
        save(values, path)
    assert path.is_fifo() and list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_written_to_as_a_file_object(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with (tmp_path / "pipe").open("wb") as writer:
            save([1, 2], writer)
        (tmp_path / "copy.shmt").write_bytes(os.read(reader, 1 << 16))
    finally:
        os.close(reader)
    assert load(tmp_path / "copy.shmt") == [1, 2]


def test_devices_and_sockets(tmp_path: Path) -> None:
    (tmp_path / "zero.npy").symlink_to("/dev/zero")
    with pytest.raises(FileDamaged, match="is a device, not a regular file"):
        load(tmp_path / "zero.npy")
    path = tmp_path / "socket.npy"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        with pytest.raises(OSError, match="cannot load"):
            load(path)
        with pytest.raises(InvalidArgument, match="is a socket, not a regular file, and would be replaced"):
            save(np.ones(1), path)
    assert path.is_socket()


# -- documentation ----------------------------------------------------------------------------------------------------


def test_examples_of_the_documentation_run(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "files.md").read_text()
    blocks = [part.partition("```")[0] for part in text.split("```python\n")[1:]]
    assert len(blocks) == 3
    for block in blocks:
        subprocess.run([sys.executable, "-c", block], check=True, cwd=tmp_path)
