"""Damaged files of tensors: each causes a clear error, without allocating what they claim."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shmtensor import load
from shmtensor.errors import DTypeError, EndOfFile, FileDamaged, ShmTensorError

pytestmark = pytest.mark.any_python

HUGE = 1 << 40


def loaded(path: Path, content: bytes, **how: Any) -> Any:
    """What `load` makes of a file, and that it took no memory that the file does not justify."""
    path.write_bytes(content)
    tracemalloc.start()
    try:
        return load(path, **how)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 3_000_000, f"{peak} bytes for a file of {len(content)}"


# -- safetensors ------------------------------------------------------------------------------------------------------


def tensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def claim(dtype: Any = "F32", shape: Any = (2,), begin: Any = 0, end: Any = 8) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


SAFETENSORS: dict[str, tuple[bytes, type[Exception], str]] = {
    # name: (content, error, message)
    "nothing": (b"", EndOfFile, "begins with 8 bytes and a header, but this one has 0 bytes"),
    "half a length": (b"\1\0\0", EndOfFile, "this one has 3 bytes"),
    "a header beyond the end": (tensors(b"{}", length=3), EndOfFile, "after 2 of 3 bytes of the header"),
    "an enormous header": (tensors(b"{}", length=2**64 - 1), FileDamaged, "at most 100000000"),
    "no JSON": (tensors(b"{'a'}"), FileDamaged, "not JSON of tensors"),
    "no UTF-8": (tensors(b'{"\xff": 1}'), FileDamaged, "not JSON of tensors"),
    "a list": (tensors([]), FileDamaged, "does not begin with"),
    "spaces first": (tensors(b" {}"), FileDamaged, "does not begin with"),
    "a deep header": (tensors(b'{"a":' * 200_000), FileDamaged, "not JSON"),
    "a number that is none": (tensors(b'{"a": NaN}'), FileDamaged, "NaN is not valid JSON"),
    "a long number": (tensors(b'{"a": ' + b"9" * 5000 + b"}"), FileDamaged, "not JSON"),
    "a key twice": (tensors(b'{"a": 1, "a": 2}'), FileDamaged, "duplicate key"),
    "a field twice": (tensors(b'{"a": {"dtype": "F32", "dtype": "F64"}}'), FileDamaged, "duplicate key"),
    "no table": (tensors({"a": 3}), FileDamaged, "'a': a tensor must have dtype, shape and data_offsets"),
    "a field missing": (tensors({"a": {"dtype": "F32", "shape": [2]}}), FileDamaged, "a tensor must have dtype, shape"),
    "a field too many": (tensors({"a": claim() | {"x": 1}}), FileDamaged, "a tensor must have dtype, shape"),
    "an unknown type": (tensors({"a": claim("F31")}), DTypeError, "'F31', which tensors do not have"),
    "a type that is no name": (tensors({"a": claim([])}), DTypeError, "which tensors do not have"),
    "a negative size": (tensors({"a": claim(shape=[-2])}), FileDamaged, r"shape \[-2\] is not a list of sizes"),
    "a size that is a truth": (tensors({"a": claim(shape=[True])}), FileDamaged, "is not a list of sizes"),
    "a size that is a fraction": (tensors({"a": claim(shape=[2.0])}), FileDamaged, "is not a list of sizes"),
    "a shape that is a number": (tensors({"a": claim(shape=2)}), FileDamaged, "is not a list of sizes"),
    "an enormous shape": (tensors({"a": claim(shape=[HUGE, HUGE])}), FileDamaged, "no tensor can have the shape"),
    "an enormous shape with a 0": (tensors({"a": claim(shape=[0, HUGE, HUGE])}), FileDamaged, "no tensor can have"),
    "too many axes": (tensors({"a": claim(shape=[1] * 65)}), FileDamaged, "no tensor can have the shape"),
    "an enormous size": (
        tensors(b'{"a": {"dtype": "U8", "shape": [' + b"9" * 4000 + b'], "data_offsets": [0, 1]}}'),
        FileDamaged,
        "no tensor can have the shape",
    ),
    "offsets that are none": (tensors({"a": claim(begin="0")}), FileDamaged, "data_offsets must be two integers"),
    "three offsets": (
        tensors({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4, 8]}}),
        FileDamaged,
        "two integers",
    ),
    "another size than the shape's": (tensors({"a": claim(end=12)}, bytes(12)), FileDamaged, "are not 8 bytes apart"),
    "offsets that go back": (tensors({"a": claim(begin=8, end=0)}, bytes(8)), FileDamaged, "are not 8 bytes apart"),
    "an offset below 0": (tensors({"a": claim(begin=-8, end=0)}, bytes(8)), FileDamaged, "are not 8 bytes apart"),
    "an offset far away": (tensors({"a": claim(begin=HUGE, end=HUGE + 8)}), FileDamaged, "has unused bytes before"),
    "two at one place": (tensors({"a": claim(), "b": claim()}, bytes(16)), FileDamaged, "overlaps another tensor"),
    "two that overlap": (
        tensors({"a": claim(), "b": claim(begin=4, end=12)}, bytes(12)), FileDamaged, "overlaps another tensor",
    ),
    "a gap": (tensors({"a": claim(begin=4, end=12)}, bytes(12)), FileDamaged, "has unused bytes before it"),
    "elements that are not there": (tensors({"a": claim()}, bytes(7)), EndOfFile, "describes 8 bytes of .* has 7"),
    "elements of an enormous tensor": (
        tensors({"a": claim(shape=[HUGE], end=4 * HUGE)}), EndOfFile, "bytes of elements, and the file has 0",
    ),
    "bytes after the last": (tensors({"a": claim()}, bytes(9)), FileDamaged, "describes 8 bytes of .* has 9"),
    "metadata that is none": (tensors({"__metadata__": 3}), FileDamaged, "not a table of strings"),
    "metadata of numbers": (tensors({"__metadata__": {"a": 3}}), FileDamaged, "not a table of strings"),
}  # fmt: skip


@pytest.mark.parametrize("how", [{}, {"shared": True}, {"mmap": True}])
@pytest.mark.parametrize("case", SAFETENSORS)
def test_safetensors_that_lie(tmp_path: Path, case: str, how: dict[str, bool]) -> None:
    content, error, message = SAFETENSORS[case]
    if case == "a deep header":
        (tmp_path / "x.safetensors").write_bytes(content)
        with pytest.raises(error, match=message):
            load(tmp_path / "x.safetensors", **how)
        return
    with pytest.raises(error, match=message):
        loaded(tmp_path / "x.safetensors", content, **how)


# -- npy --------------------------------------------------------------------------------------------------------------


def npy(header: Any, data: bytes = b"", version: tuple[int, int] = (1, 0), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else repr(header).encode("latin-1")
    form = "<H" if version == (1, 0) else "<I"
    return b"\x93NUMPY" + bytes(version) + struct.pack(form, len(text) if length is None else length) + text + data


def array(descr: Any = "<f4", fortran: Any = False, shape: Any = (2,)) -> dict[str, Any]:
    return {"descr": descr, "fortran_order": fortran, "shape": shape}


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([print], dtype=object), allow_pickle=True)
    return file.getvalue()


NPY: dict[str, tuple[bytes, type[Exception], str]] = {
    "nothing": (b"", FileDamaged, "begins with"),
    "text": (b"hello, world", FileDamaged, "begins with"),
    "half a magic": (b"\x93NUMPY", FileDamaged, "begins with"),
    "a later version": (npy(array(), version=(4, 0)), FileDamaged, "version 4.0"),
    "no length": (b"\x93NUMPY\1\0\1", EndOfFile, "ends in the header"),
    "half a header": (npy(array(), length=500), EndOfFile, "of 500 bytes of the header"),
    "an enormous header": (npy(array(), version=(2, 0), length=2**32 - 1), FileDamaged, "at most 10000"),
    "no dictionary": (npy(b"[1, 2]"), FileDamaged, "not one that NumPy writes"),
    "code": (npy(b"__import__('os').abort()"), FileDamaged, "not a dictionary"),
    "no Python": (npy(b"{'descr'"), FileDamaged, "not a dictionary"),
    "a deep header": (npy(b"(" * 9000), FileDamaged, "not a dictionary"),
    "zero bytes": (npy(bytes(30)), FileDamaged, "not a dictionary"),
    "a key missing": (npy({"descr": "<f4", "shape": (2,)}), FileDamaged, "not one that NumPy writes"),
    "a key too many": (npy(array() | {"x": 1}), FileDamaged, "not one that NumPy writes"),
    "objects": (npy(array("|O"), bytes(16)), DTypeError, "a pickle, and pickles are never loaded"),
    "a pickle": (pickled(), DTypeError, "a pickle, and pickles are never loaded"),
    "structures": (npy(array([("a", "<f4")]), bytes(8)), DTypeError, "one tensor of each field"),
    "structures in short": (npy(array("f4,f4"), bytes(16)), DTypeError, "tensors cannot have"),
    "strings": (npy(array("<U4"), bytes(32)), DTypeError, "tensors cannot have"),
    "dates": (npy(array("<M8[s]"), bytes(16)), DTypeError, "tensors cannot have"),
    "no type": (npy(array("nonsense")), FileDamaged, "'nonsense' is not a type"),
    "a type that is a number": (npy(array(4)), FileDamaged, "not one that NumPy writes"),
    "an order that is a number": (npy(array(fortran=1)), FileDamaged, "not one that NumPy writes"),
    "a negative size": (npy(array(shape=(-1,))), FileDamaged, "not a list of sizes"),
    "a size that is a truth": (npy(array(shape=(True,))), FileDamaged, "not a list of sizes"),
    "a shape that is a number": (npy(array(shape=2)), FileDamaged, "not a list of sizes"),
    "an enormous shape": (npy(array(shape=(HUGE, HUGE)), bytes(8)), FileDamaged, "no tensor can have the shape"),
    "an enormous shape with a 0": (npy(array(shape=(0, HUGE, HUGE))), FileDamaged, "no tensor can have the shape"),
    "too many axes": (npy(array(shape=(1,) * 65), bytes(4)), FileDamaged, "no tensor can have the shape"),
    "fewer elements than claimed": (npy(array(), bytes(7)), EndOfFile, "needs 8 bytes, and the file has 7"),
    "far fewer": (npy(array(shape=(HUGE,)), bytes(8)), EndOfFile, "the file has 8"),
}


@pytest.mark.parametrize("how", [{}, {"shared": True}, {"mmap": True}])
@pytest.mark.parametrize("case", NPY)
def test_arrays_that_lie(tmp_path: Path, case: str, how: dict[str, bool]) -> None:
    content, error, message = NPY[case]
    with pytest.raises(error, match=message):
        loaded(tmp_path / "x.npy", content, **how)


@pytest.mark.parametrize("case", NPY)
def test_arrays_that_lie_in_archives(tmp_path: Path, case: str) -> None:
    content, error, _ = NPY[case]
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with pytest.raises(FileDamaged if issubclass(error, FileDamaged) else error):
            loaded(tmp_path / "x.npz", archive({"x.npy": content}, method))


# -- npz --------------------------------------------------------------------------------------------------------------

GOOD = npy(array(), bytes(8))


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as target:
        for name, content in members.items():
            target.writestr(zipfile.ZipInfo(name), content, method)
    return file.getvalue()


def changed(content: bytes, *changes: tuple[bytes, int, bytes]) -> bytes:
    """With bytes written at a distance from the last place where others stand."""
    for mark, distance, new in changes:
        at = content.rindex(mark) + distance
        content = content[:at] + new + content[at + len(new) :]
    return content


PLAIN = archive({"x.npy": GOOD})
PACKED = archive({"x.npy": npy(array(shape=(1000,)), bytes(4000))}, zipfile.ZIP_DEFLATED)
DIRECTORY = b"PK\1\2"
TWICE = archive({"a.npy": GOOD, "b.npy": GOOD})

NPZ: dict[str, tuple[bytes, str]] = {
    # name: (content, message)
    "nothing": (b"", "not a zip archive of arrays"),
    "text": (b"hello, world" * 10, "not a zip archive of arrays"),
    "an array": (GOOD, "not a zip archive of arrays"),
    "half an archive": (PLAIN[: len(PLAIN) // 2], "not a zip archive of arrays"),
    "no end": (PLAIN[:-10], "not a zip archive of arrays"),
    "a folder": (archive({"x/": b""}), "a directory, encrypted"),
    "encrypted": (changed(PLAIN, (DIRECTORY, 8, b"\1\0")), "a directory, encrypted"),
    "packed in another way": (archive({"x.npy": GOOD}, zipfile.ZIP_BZIP2), "compressed in an unknown way"),
    "another file": (archive({"x.txt": b"hello"}), "is not an array"),
    "a pickle beside": (archive({"x.npy": GOOD, "x.pkl": b"cos\nsystem\n"}), "is not an array"),
    "no name": (archive({".npy": GOOD}), "not a valid name of an array"),
    "a way up": (archive({"../x.npy": GOOD}), "not a valid name of an array"),
    "a way up inside": (archive({"a/../../x.npy": GOOD}), "not a valid name of an array"),
    "from the root": (archive({"/etc/x.npy": GOOD}), "not a valid name of an array"),
    "backslashes": (archive({"..\\x.npy": GOOD}), "not a valid name of an array"),
    "a drive": (archive({"C:x.npy": GOOD}), "not a valid name of an array"),
    "another name at the array": (changed(PLAIN, (b"x.npy\x93", 0, b"y")), "not a zip archive of arrays"),
    "one name for two": (
        changed(TWICE, (b"b.npy\x93", 0, b"a"), (b"b.npy", 0, b"a")), "is a duplicate",
    ),
    "two at one place": (
        changed(TWICE, (DIRECTORY, 42, struct.pack("<I", 0)), (b"b.npy", 0, b"a")), "overlaps another member|not a zip",
    ),
    "a place beyond the end": (changed(PLAIN, (DIRECTORY, 42, struct.pack("<I", 1 << 30))), "not a zip archive"),
    "a size beyond the end": (
        changed(PLAIN, (DIRECTORY, 20, struct.pack("<II", 1 << 30, 1 << 30))), "the end of the file|not a zip",
    ),
    "a stored size that lies": (changed(PLAIN, (DIRECTORY, 24, struct.pack("<I", 1 << 30))), "cannot hold"),
    "a packed size that lies": (changed(PACKED, (DIRECTORY, 24, struct.pack("<I", 1 << 31))), "cannot hold"),
    "a packed size that lies a little": (
        changed(PACKED, (DIRECTORY, 24, struct.pack("<I", 4400))), "does not have",
    ),
    "fewer elements than the member": (archive({"x.npy": GOOD + b"more"}), "does not have"),
    "another checksum": (changed(PLAIN, (DIRECTORY, 16, b"\1\2\3\4")), "checksum|CRC"),
    "another checksum, packed": (changed(PACKED, (DIRECTORY, 16, b"\1\2\3\4")), "damaged|CRC"),
    "another element": (changed(PLAIN, (DIRECTORY, -1, b"\1")), "checksum|CRC"),
    "packed bytes that are none": (PACKED.replace(PACKED[35:60], b"\xff" * 25), "invalid|damaged|is not"),
}  # fmt: skip


@pytest.mark.parametrize("how", [{}, {"shared": True}])
@pytest.mark.parametrize("case", NPZ)
def test_archives_that_lie(tmp_path: Path, case: str, how: dict[str, bool]) -> None:
    content, message = NPZ[case]
    with pytest.raises(FileDamaged, match=message):
        loaded(tmp_path / "x.npz", content, **how)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["x.npz"]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_one_wrong_bit_in_a_large_array(tmp_path: Path, method: int, shared: bool) -> None:
    values = np.random.default_rng(0).integers(0, 256, 100_000, np.uint8).tobytes()
    content = bytearray(archive({"x.npy": npy(array("|u1", shape=(100_000,)), values)}, method))
    content[50_000] ^= 1
    with pytest.raises(FileDamaged):
        loaded(tmp_path / "x.npz", bytes(content), shared=shared)


def test_a_bomb_gives_what_it_says_or_nothing(tmp_path: Path) -> None:
    """1,000 times smaller packed is what deflate can do, so that is no lie; more is."""
    zeros = npy(array(shape=(1_000_000,)), bytes(4_000_000))
    path = tmp_path / "b.npz"
    path.write_bytes(archive({"x.npy": zeros}, zipfile.ZIP_DEFLATED))
    assert not load(path)["x"].numpy().any()
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    stream = packer.compress(zeros) + packer.flush()
    assert len(zeros) / len(stream) < 1032


# -- anything ---------------------------------------------------------------------------------------------------------


def valid(suffix: str) -> list[bytes]:
    file = io.BytesIO()
    np.savez(file, a=np.arange(5), b=np.zeros((2, 0), np.int16))
    packed = io.BytesIO()
    np.savez_compressed(packed, a=np.arange(50.0))
    fortran = io.BytesIO()
    np.save(fortran, np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    return {
        ".npy": [GOOD, fortran.getvalue()],
        ".npz": [PLAIN, TWICE, file.getvalue(), packed.getvalue()],
        ".safetensors": [
            tensors({"a": claim(), "b": claim("U8", [0], 8, 8), "__metadata__": {"x": "y"}}, bytes(8)),
            tensors({"a": claim(shape=[2, 1]), "c": claim("I64", [3], 8, 32)}, bytes(32)),
        ],
    }[suffix]


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
@pytest.mark.parametrize("mmap", [False, True])
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_bytes_are_it_is_tensors_or_our_error(
    tmp_path: Path, suffix: str, mmap: bool, data: st.DataObject
) -> None:
    content = bytearray(data.draw(st.sampled_from(valid(suffix)) | st.binary(max_size=200)))
    changes = st.tuples(st.integers(0, 400), st.binary(max_size=9), st.sampled_from(["write", "insert", "cut", "drop"]))
    for at, new, what in data.draw(st.lists(changes, max_size=4)):
        at = min(at, len(content))
        if what == "write":
            content[at : at + len(new)] = new
        elif what == "insert":
            content[at:at] = new
        elif what == "cut":
            del content[at:]
        else:
            del content[at : at + len(new)]
    try:
        found = loaded(tmp_path / f"x{suffix}", bytes(content), mmap=mmap)
    except ShmTensorError:
        return
    total = sum(tensor.nbytes for tensor in ([found] if suffix == ".npy" else found.values()))
    assert total <= (len(content) if mmap or suffix != ".npz" else 1032 * len(content))


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
def test_bytes_that_are_cut_anywhere(tmp_path: Path, suffix: str) -> None:
    for content in valid(suffix):
        for length in range(len(content)):
            (tmp_path / f"x{suffix}").write_bytes(content[:length])
            with pytest.raises(FileDamaged):
                load(tmp_path / f"x{suffix}")
