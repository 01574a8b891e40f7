"""Disk, memory and pipe files: byte for byte the same as TH's, with the promised errors."""

from __future__ import annotations

import ctypes
import errno
import gc
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmtensor
from shmtensor.errors import (
    DTypeError,
    EndOfFile,
    FileDamaged,
    InvalidArgument,
    LayoutError,
)
from shmtensor.files import DiskFile, File, MemoryFile, PipeFile, text
from shmtensor.files.numbers import NUMBERS

# What TH itself wrote (its C sources, compiled on x86-64) for what `write_all` writes.
ASCII = (
    b"-32768 0 32767\n-2147483648 2147483647\n-9223372036854775808 9223372036854775807\n"
    b"0.100000001 -0 1.40129846e-45 3.40282347e+38 inf -inf nan -nan 0.333333343\n"
    b"0.10000000000000001 9.9999999999999694e-311 1.7976931348623157e+308 3.1415926535897931\n"
    b"0.0999755859 65504 -2\n\x00\n\xff\nhi\n7\n0.5\nend"
)
GLUED = (
    b"-32768032767-21474836482147483647-922337203685477580892233720368547758070.100000001-01.40129846e-45"
    b"3.40282347e+38inf-infnan-nan0.3333333430.100000000000000019.9999999999999694e-3111.7976931348623157e+308"
    b"3.14159265358979310.099975585965504-2\x00\n\xffhi70.5end"
)
BINARY = bytes.fromhex(
    "00800000ff7f00000080ffffff7f0000000000000080ffffffffffffff7fcdcccc3d0000008001000000ffff7f7f0000807f000080ff"
    "0000c07f0000c0ffabaaaa3e9a9999999999b93f2be6708b68120000ffffffffffffef7f182d4454fb210940662eff7b00c0000aff6869"
    "07000000000000000000e03f656e64"
)
BIG = bytes.fromhex(
    "800000007fff800000007fffffff80000000000000007fffffffffffffff3dcccccd80000000000000017f7fffff7f800000ff800000"
    "7fc00000ffc000003eaaaaab3fb999999999999a000012688b70e62b7fefffffffffffff400921fb54442d182e667bffc000000aff6869"
    "000000073fe0000000000000656e64"
)
LONGS = bytes.fromhex("fbffffffffffff7ffffffffb7ffffffffffffffffffffffb000000007fffffff")

STORAGES = {
    "short": shmtensor.ShortStorage([-32768, 0, 32767]),
    "int": shmtensor.IntStorage([-(2**31), 2**31 - 1]),
    "long": shmtensor.LongStorage([-(2**63), 2**63 - 1]),
    "float": shmtensor.FloatStorage(
        np.array([0.1, -0.0, 1e-45, 3.4028235e38, np.inf, -np.inf, np.nan, -np.nan, 1 / 3], np.float32)
    ),
    "double": shmtensor.DoubleStorage([0.1, 1e-310, 1.7976931348623157e308, math.pi]),
    "half": shmtensor.HalfStorage(np.array([0.1, 65504, -2], np.float16)),
    "byte": shmtensor.ByteStorage([0, 10, 255]),
    "char": shmtensor.CharStorage(list(b"hi")),
}


def write_all(file: File) -> None:
    for name, storage in STORAGES.items():
        assert getattr(file, f"write_{name}_storage")(storage) == storage.size()
    assert file.write_int(7) == 1
    file.write_double(0.5)
    assert file.write_string("end") == 3


def read_all(file: File) -> None:
    for name, storage in STORAGES.items():
        found = getattr(file, f"read_{name}")(storage.size())
        assert type(found) is type(storage)
        np.testing.assert_array_equal(found.tolist(), storage.tolist())
    assert file.read_int() == 7
    assert file.read_double() == 0.5
    assert file.read_string() == "end"


MODES = {
    "ascii": (lambda file: file.ascii(), ASCII),
    "glued": (lambda file: file.no_auto_spacing(), GLUED),
    "binary": (lambda file: file.binary(), BINARY),
    "little": (lambda file: file.binary().little_endian_encoding(), BINARY),
    "big": (lambda file: file.binary().big_endian_encoding(), BIG),
    "native": (lambda file: file.binary().big_endian_encoding().native_endian_encoding(), BINARY),
}


@pytest.fixture(params=["disk", "memory", "memory in a shared storage", "pipe", "unbuffered"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Makes a file to write to, gives its bytes, and makes one to read these bytes from."""

    class Kind:
        name = request.param

        def writer(self) -> File:
            if self.name == "disk":
                return DiskFile(tmp_path / "out", "w")
            if self.name == "unbuffered":
                return DiskFile(tmp_path / "out", "w").no_buffer()
            if self.name == "pipe":
                return PipeFile(f"cat > {tmp_path}/out", "w")
            return MemoryFile("w", self.shared() if "shared" in self.name else None)

        def shared(self, content: bytes = bytes(1000)) -> Any:
            return shmtensor.CharStorage(np.frombuffer(content + b"\0", np.int8)).share_memory_()

        def content(self, file: File) -> bytes:
            if isinstance(file, MemoryFile):
                stored = np.asarray(file.storage())[: file.position()].tobytes()
                assert file.storage()[file.position()] == 0
                file.close()
                return stored
            file.close()
            return (tmp_path / "out").read_bytes()

        def reader(self, content: bytes) -> File:
            (tmp_path / "in").write_bytes(content)
            if self.name == "disk":
                return DiskFile(tmp_path / "in")
            if self.name == "unbuffered":
                return DiskFile(tmp_path / "in").no_buffer()
            if self.name == "pipe":
                return PipeFile(f"cat {tmp_path}/in")
            if "shared" in self.name:
                return MemoryFile("r", self.shared(content))
            return MemoryFile("r", shmtensor.CharStorage(np.frombuffer(content + b"\0", np.int8)))

    return Kind()


# -- as TH ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_writes_the_bytes_that_th_writes(kind: Any, mode: str) -> None:
    choose, wanted = MODES[mode]
    file = kind.writer()
    choose(file)
    write_all(file)
    assert kind.content(file) == wanted


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "glued"])
def test_reads_what_th_wrote(kind: Any, mode: str) -> None:
    choose, content = MODES[mode]
    with kind.reader(content) as file:
        choose(file)
        read_all(file)


def test_long_size(kind: Any) -> None:
    storage = shmtensor.LongStorage([-5, 2**31 - 1])
    file = kind.writer()
    file.binary().long_size(4).write_long_storage(storage)
    file.big_endian_encoding().write_long_storage(storage)
    file.long_size(8).write_long_storage(storage)
    assert kind.content(file) == LONGS
    with kind.reader(LONGS) as file:
        assert file.binary().long_size(4).read_long(2).tolist() == storage.tolist()
        assert file.big_endian_encoding().read_long(2).tolist() == storage.tolist()
        assert file.long_size(0).read_long(2).tolist() == storage.tolist()


def test_long_that_does_not_fit_into_four_bytes(kind: Any) -> None:
    with kind.writer() as file, pytest.raises(InvalidArgument, match=r"2147483648 do not fit into 4 bytes"):
        file.binary().long_size(4).write_long(2**31)


@pytest.mark.parametrize("size", [1, 2, 16, "8", None])
def test_long_size_that_there_is_not(size: Any) -> None:
    with pytest.raises(InvalidArgument, match="must be 0"):
        MemoryFile().long_size(size)


def test_byte_order_of_this_machine() -> None:
    assert File.is_little_endian_cpu() == (sys.byteorder == "little") != File.is_big_endian_cpu()


LIBC = ctypes.CDLL(None)


@given(st.lists(st.floats(width=32), min_size=1), st.lists(st.floats(), min_size=1), st.booleans())
def test_floats_are_printf_s(floats: list[float], doubles: list[float], spacing: bool) -> None:
    for values, form, dtype in ((floats, b"%.9g", np.float32), (doubles, b"%.17g", np.float64)):
        array = np.array(values, dtype)
        buffer = ctypes.create_string_buffer(400)
        parts = []
        for value in array:
            LIBC.snprintf(buffer, 400, form, ctypes.c_double(float(value)))
            parts.append(buffer.value)
        wanted = b" ".join(parts) + b"\n" if spacing else b"".join(parts)
        assert b"".join(data for data, _ in text.written(array, spacing)) == wanted


@pytest.mark.parametrize("name", ["short", "int", "long", "half", "float", "double"])
@pytest.mark.parametrize("count", [1, 8, 9, text.BLOCK, text.BLOCK + 1, 300_000])
def test_storages_larger_than_buffers(tmp_path: Path, name: str, count: int) -> None:
    dtype = NUMBERS[name]
    random = np.random.default_rng(count)
    values = random.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
    if dtype.kind == "f":
        values[np.isnan(values)] = 0
    for mode in MODES:
        if mode == "glued":
            continue
        with DiskFile(tmp_path / "file", "w") as file:
            MODES[mode][0](file)
            assert getattr(file, f"write_{name}_raw")(values) == count
            file.write_int(5)
        with DiskFile(tmp_path / "file") as file:
            MODES[mode][0](file)
            np.testing.assert_array_equal(getattr(file, f"read_{name}")(count), values)
            assert file.read_int() == 5
            assert file.position() == (tmp_path / "file").stat().st_size


# -- reading text -----------------------------------------------------------------------------------------------------

SCANNED: dict[str, tuple[bytes, str, int, list[Any], bytes]] = {
    # name: (content, type, numbers asked for, numbers found, what is left)
    "spaces of all kinds": (b" \t1\v2\f3\r\n4", "int", 4, [1, 2, 3, 4], b""),
    "one newline after": (b"1 2\n\n3", "int", 2, [1, 2], b"\n3"),
    "no newline but a space": (b"1 2 \n3", "int", 2, [1, 2], b" \n3"),
    "signs": (b"+1 -2 -0", "int", 3, [1, -2, 0], b""),
    "letters after a number": (b"12abc", "int", 1, [12], b"abc"),
    "glued by signs": (b"1-2+3", "int", 3, [1, -2, 3], b""),
    "a float for an int": (b"1.5", "int", 1, [1], b".5"),
    "exponents": (b"1e3 1E-3 .5 5. +.5e+1", "double", 5, [1e3, 1e-3, 0.5, 5.0, 5.0], b""),
    "an exponent without digits": (b"1e+ 2", "double", 1, [1.0], b"e+ 2"),
    "words": (b"inf -Infinity NaN -nan", "double", 4, [math.inf, -math.inf, math.nan, math.nan], b""),
    "words that go on": (b"infin 2", "double", 1, [math.inf], b"in 2"),
    "too large for a double": (b"1e999 -1e999", "double", 2, [math.inf, -math.inf], b""),
    "too large for a float": (b"1e39", "float", 1, [math.inf], b""),
    "many, then letters": (b"1 " * 20 + b"x", "int", 20, [1] * 20, b" x"),
    "many glued": (b"1-1" * 20, "int", 40, [1, -1] * 20, b""),
    "the bounds of a long": (f"{-(2**63)} {2**63 - 1} ".encode() * 10, "long", 20, [-(2**63), 2**63 - 1] * 10, b" "),
}
SCANNED["glued by signs"] = (b"1-2+3", "int", 3, [1, -2, 3], b"")
SCANNED["many glued"] = (b"1-1 " * 20, "int", 40, [1, -1] * 20, b" ")


@pytest.mark.parametrize("case", SCANNED)
def test_reads_numbers_as_scanf(kind: Any, case: str) -> None:
    content, name, count, wanted, rest = SCANNED[case]
    with kind.reader(content) as file:
        found = getattr(file, f"read_{name}")(count)
        np.testing.assert_array_equal(found.tolist(), wanted)
        assert file.quiet().read_string().encode("utf-8", "surrogateescape") == rest


@given(
    st.lists(st.sampled_from([b"1", b"-", b"+", b".", b"e", b" ", b"\n", b"nan", b"in", b"f", b"x", b"0", b"9" * 20])),
    st.sampled_from(["short", "long", "float", "double"]),
    st.integers(1, 12),
    st.integers(1, 8),
)
def test_however_the_text_is_cut_the_numbers_are_the_same(parts: list[bytes], name: str, count: int, step: int) -> None:
    """Piece by piece, as pipes give it, and at once; through NumPy and one by one."""
    content = b"".join(parts)
    dtype = NUMBERS[name]
    at_once = np.zeros(count, dtype)
    wanted = text.scan(content, 0, len(content), True, at_once)
    out = np.zeros(count, dtype)
    one = text._scan_each(content, 0, len(content), True, out)
    assert one == wanted
    np.testing.assert_array_equal(out, at_once)
    block = text._scan_block(content, 0, len(content), True, out)
    assert block is None or (block.count, block.used) == (wanted.count, wanted.used) or block.count < count
    piecemeal = np.zeros(count, dtype)
    done = start = stop = 0
    while True:
        final = stop >= len(content)
        found = text.scan(content, start, min(stop, len(content)), final, piecemeal[done:])
        done += found.count
        start += found.used
        if found.stopped or final or done == count:
            break
        stop += step
    assert done == wanted.count
    np.testing.assert_array_equal(piecemeal, at_once)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30))
def test_c_reads_what_we_write(values: list[int]) -> None:
    file = MemoryFile()
    file.write_long_storage(shmtensor.LongStorage(values))
    content = bytes(np.asarray(file.storage()).tobytes())
    for value in values:
        found, length = ctypes.c_long(), ctypes.c_int()
        assert LIBC.sscanf(content, b"%ld%n", ctypes.byref(found), ctypes.byref(length)) == 1
        assert found.value == value
        content = content[length.value :]
    file.seek(0)
    assert file.read_long(len(values)).tolist() == values


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_the_base_of_all_files_is_none() -> None:
    for arguments in ((), ("r", ("r",), True)):
        with pytest.raises(TypeError, match="abstract class File"):
            File(*arguments)  # type: ignore[abstract, call-arg, arg-type]
    gc.collect()


def test_a_number_without_end_is_none(kind: Any) -> None:
    with kind.reader(b"1" * 100_000) as file, pytest.raises(FileDamaged):
        file.read_double()


# -- what goes wrong --------------------------------------------------------------------------------------------------

DAMAGED: dict[str, tuple[bytes, str, int, int, type[Exception], str]] = {
    # name: (content, type, wanted, found, error, message)
    "nothing": (b"", "int", 1, 0, EndOfFile, r"at byte 0: wanted 1 int, found 0: the file ends here"),
    "only spaces": (b"  \n ", "int", 1, 0, EndOfFile, r"wanted 1 int, found 0: the file ends here"),
    "too few": (b"1 2 3", "float", 5, 3, EndOfFile, r"at byte 5: wanted 5 floats, found 3: the file ends here"),
    "text": (b"1 2 abc", "double", 3, 2, FileDamaged, r"at byte 4: wanted 3 doubles, found 2 and then 'abc'"),
    "text after many": (b"1 " * 50 + b"abc", "int", 60, 50, FileDamaged, r"at byte 100: wanted 60 ints, found 50 and"),
    "a sign alone": (b"- 1", "int", 1, 0, FileDamaged, r"found 0 and then '- 1'"),
    "too large for a short": (b"1 70000", "short", 2, 1, FileDamaged, r"at byte 2: wanted 2 shorts, .* then '70000'"),
    "too large for a long": (b"9" * 30, "long", 1, 0, FileDamaged, r"wanted 1 long, found 0 and then '9999"),
    "too large, among many": (b"1 " * 20 + b"-99999999999", "int", 30, 20, FileDamaged, r"then '-99999999999'"),
    "too large for a long, among many": (b"1 " * 20 + b"9" * 30, "long", 30, 20, FileDamaged, r"20 and then '9999"),
    "underscores": (b"1_0", "int", 2, 1, FileDamaged, r"then '_0'"),
    "zero bytes": (b"1 \0\0", "int", 2, 1, FileDamaged, r"then '\\x00\\x00'"),
    "commas": (b"1,2,3", "float", 3, 1, FileDamaged, r"then ',2,3'"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_text(kind: Any, case: str) -> None:
    content, name, wanted, found, error, message = DAMAGED[case]
    with kind.reader(content) as file:
        # What was found is shown as far as it has been read.
        with pytest.raises(error, match=message if kind.name != "unbuffered" else "wanted"):
            getattr(file, f"read_{name}")(wanted)
        assert file.has_error()
    with kind.reader(content) as file:
        assert not file.quiet().has_error()
        assert getattr(file, f"read_{name}")(wanted).size() == found
        assert file.has_error()
        assert not file.clear_error().has_error()
    with kind.reader(content) as file:
        storage = getattr(shmtensor, f"{name.title()}Storage")(wanted)
        assert getattr(file.quiet(), f"read_{name}_storage")(storage) == found
        assert file.has_error()


@pytest.mark.parametrize("name", NUMBERS)
def test_binary_file_that_ends_early(kind: Any, name: str) -> None:
    size = NUMBERS[name].itemsize
    with kind.reader(bytes(size * 3 - (size > 1))) as file:
        have = 3 - (size > 1)
        with pytest.raises(EndOfFile, match=rf"wanted 4 {name}s, found {have}: the file ends here"):
            getattr(file.binary(), f"read_{name}")(4)
    with kind.reader(b"") as file:
        assert getattr(file.binary().quiet(), f"read_{name}")() == 0
        assert file.has_error()


@pytest.mark.parametrize("count", [10**6, 2**40, 2**47 // 8])
def test_a_count_beyond_the_file_takes_no_memory(kind: Any, count: int) -> None:
    for mode in ("ascii", "binary"):
        with kind.reader(b"1 2 3 45") as file:
            getattr(file, mode)().quiet()
            assert file.read_double(count).size() == (4 if mode == "ascii" else 1)
            assert file.has_error()


@pytest.mark.parametrize("count", [-1, 1.5, "3", 2**60, True])
def test_a_count_that_is_none(count: Any) -> None:
    with pytest.raises(InvalidArgument):
        MemoryFile().read_int(count)


def test_reading_nothing_is_no_error(kind: Any) -> None:
    with kind.reader(b"\n1") as file:
        assert file.read_int(0).size() == 0
        assert file.read_int_storage(shmtensor.IntStorage(0)) == 0
        assert file.read_int_raw(b"") == 0
        assert file.read_string("*l") == ""


def test_writing_nothing_writes_nothing(kind: Any) -> None:
    file = kind.writer()
    assert file.write_int_storage(shmtensor.IntStorage(0)) == file.write_byte_raw(b"") == file.write_string("") == 0
    assert kind.content(file) == b""


def test_storages_and_buffers_of_another_type() -> None:
    file = MemoryFile()
    with pytest.raises(DTypeError, match=r"must be a FloatStorage \(float32\), not a IntStorage"):
        file.write_float_storage(shmtensor.IntStorage(3))
    with pytest.raises(DTypeError, match="FloatStorage"):
        file.read_float_storage([1.0])
    with pytest.raises(DTypeError, match="not int64"):
        file.write_int_raw(np.arange(3))
    with pytest.raises(DTypeError, match="not a buffer"):
        file.write_int_raw([1, 2])
    with pytest.raises(LayoutError, match="multiple"):
        file.write_int_raw(b"abc")
    with pytest.raises(LayoutError, match="contiguous"):
        file.write_int_raw(np.arange(6, dtype=np.int32)[::2])
    with pytest.raises(LayoutError, match="read-only"):
        file.read_int_raw(b"abcd")
    assert file.position() == 0 and not file.has_error()


def test_raw_buffers() -> None:
    file = MemoryFile().binary()
    assert file.write_float_raw(np.arange(6, dtype=np.float32).reshape(2, 3)) == 6
    assert file.write_short_raw(b"\1\0\2\0") == 2
    file.seek(0)
    target = np.zeros((3, 2), np.float32)
    assert file.read_float_raw(target) == 6
    assert target.tolist() == [[0, 1], [2, 3], [4, 5]]
    rest = bytearray(4)
    assert file.read_short_raw(rest) == 2
    assert rest == b"\1\0\2\0"


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("byte", -1, InvalidArgument),
        ("char", 128, InvalidArgument),
        ("short", 2**15, InvalidArgument),
        ("long", 2**63, InvalidArgument),
        ("int", 1.5, DTypeError),
        ("int", "1", DTypeError),
        ("int", True, DTypeError),
        ("float", "one", DTypeError),
        ("double", None, DTypeError),
        ("float", 10**400, DTypeError),
    ],
)
def test_numbers_that_cannot_be_written(name: str, value: Any, error: type[Exception]) -> None:
    file = MemoryFile()
    with pytest.raises(error):
        getattr(file, f"write_{name}")(value)
    assert file.position() == 0


def test_a_float_is_rounded_to_its_type() -> None:
    file = MemoryFile()
    file.write_float(0.1)
    file.write_half(1e9)
    file.write_float(np.float64(2.0))
    assert file.storage().tolist() == list(b"0.100000001\ninf\n2\n\0")


def test_read_only_storages_stay_so(tmp_path: Path) -> None:
    shmtensor.save(shmtensor.zeros(4), tmp_path / "a.npy")
    mapped = shmtensor.load(tmp_path / "a.npy", mmap=True)
    with pytest.raises(LayoutError, match="read-only"):
        MemoryFile().read_float_storage(mapped.storage())


# -- strings ----------------------------------------------------------------------------------------------------------


def test_strings(kind: Any) -> None:
    text = "Größe\n\nzwei\r\n\0"
    file = kind.writer()
    assert file.write_string(text) == len(text.encode())
    assert file.write_string(b"\xff\n") == 2
    content = kind.content(file)
    assert content == text.encode() + b"\xff\n"
    with kind.reader(content) as file:
        assert [file.read_string("*l") for _ in range(4)] == ["Größe", "", "zwei\r", "\0\udcff"]
        with pytest.raises(EndOfFile, match="wanted 1 line"):
            file.read_string("*l")
        assert file.quiet().read_string("*a") == ""
        with MemoryFile() as copy:
            copy.write_string("\udcff")
            assert copy.storage()[0] == -1


def test_a_long_line(kind: Any) -> None:
    line = "x" * 3_000_000 if "shared" not in kind.name else "x" * 3000
    with kind.reader(f"{line}\nrest".encode()) as file:
        if kind.name != "unbuffered":
            assert file.read_string("*l") == line
            assert file.read_string() == "rest"


@pytest.mark.parametrize("form", ["", "*", "l", "*n", None, 3])
def test_strings_of_another_form(form: Any) -> None:
    with pytest.raises(InvalidArgument, match="form"):
        MemoryFile().read_string(form)


def test_what_is_no_string() -> None:
    with pytest.raises(DTypeError):
        MemoryFile().write_string(3)


# -- modes, positions, life -------------------------------------------------------------------------------------------


def test_a_fresh_file_is_pedantic_ascii_with_spaces(kind: Any) -> None:
    with kind.writer() as file:
        assert file.is_opened() and file.is_writable() and not file.is_readable()
        assert file.is_auto_spacing() and not file.is_binary() and not file.is_quiet() and not file.has_error()
        assert not file.no_auto_spacing().is_auto_spacing() and file.auto_spacing().is_auto_spacing()
        assert file.binary().is_binary() and not file.ascii().is_binary()
        assert file.quiet().is_quiet() and not file.pedantic().is_quiet()
        with pytest.raises(InvalidArgument, match="opened for writing"):
            file.read_int()
    assert not file.is_opened()
    assert "closed" in repr(file)
    with kind.reader(b"1") as file:
        assert file.is_readable() and not file.is_writable()
        with pytest.raises(InvalidArgument, match="opened for reading"):
            file.write_int(1)
        with pytest.raises(InvalidArgument, match="opened for reading"):
            file.write_string("1")


def test_a_closed_file_is_refused_in_quiet_mode_too(kind: Any) -> None:
    file = kind.reader(b"1")
    file.quiet()
    file.close()
    for use in (
        file.close, file.synchronize, file.position, file.read_int, file.seek_end, file.big_endian_encoding,
        file.read_string, file.__enter__, lambda: file.seek(0), lambda: file.long_size(0), lambda: file.read_int(3),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument, match="closed"):
            use()


@pytest.mark.parametrize("mode", ["", "x", "wr", "r+", "rb", "a", None])
def test_modes_that_there_are_not(tmp_path: Path, mode: Any) -> None:
    for make in (lambda: DiskFile(tmp_path / "x", mode), lambda: MemoryFile(mode), lambda: PipeFile("true", mode)):
        with pytest.raises(InvalidArgument, match="mode"):
            make()
    assert not (tmp_path / "x").exists()


def test_pipes_go_one_way() -> None:
    with pytest.raises(InvalidArgument, match="'r', 'w'"):
        PipeFile("true", "rw")


@pytest.mark.parametrize("storage", [None, "shared"])
@pytest.mark.parametrize("disk", [True, False])
def test_reading_and_writing_one_file(tmp_path: Path, disk: bool, storage: Any) -> None:
    if storage:
        storage = shmtensor.CharStorage(100).fill_(0).share_memory_()
    file = DiskFile(tmp_path / "new", "rw") if disk else MemoryFile("rw", storage)
    file.write_int_storage(shmtensor.IntStorage(list(range(10))))
    file.seek(4)
    assert file.position() == 4
    assert file.read_int(2).tolist() == [2, 3]
    at = file.position()
    file.write_string(" 9")
    file.seek(at)
    assert file.read_int() == 9
    if storage is None:
        file.seek(0)
        file.seek_end()
        assert file.position() == 20
        assert file.quiet().read_string() == "" and file.has_error()
        file.write_int(11)
        file.seek(20)
        assert file.read_int() == 11
    file.close()


def test_positions_that_are_none(kind: Any) -> None:
    with kind.reader(b"123") as file:
        for position in (-1, 1.5, "0", 2**63):
            with pytest.raises(InvalidArgument, match="position"):
                file.seek(position)
        if kind.name in ("disk", "unbuffered"):
            file.seek(100)  # as fseek
            assert file.position() == 100
            return
        position = 10**6
        if kind.name == "pipe":
            with pytest.raises(OSError, match="unable to seek to the end"):
                file.seek_end()
            assert file.read_int() == 123
            assert file.position() == 3  # bytes that came through
        with pytest.raises(OSError, match="unable to seek to byte 1000000"):
            file.seek(position)
        file.clear_error().quiet().seek(position)
        assert file.has_error()


def test_synchronize_shows_it_to_others(tmp_path: Path) -> None:
    with DiskFile(tmp_path / "file", "w") as file:
        assert file.name == str(tmp_path / "file")
        file.write_int(5)
        file.synchronize()
        assert (tmp_path / "file").read_bytes() == b"5\n"
        file.no_buffer().write_int(6)
        assert (tmp_path / "file").read_bytes() == b"5\n6\n"


def test_no_buffer_reads_no_byte_too_many(tmp_path: Path) -> None:
    (tmp_path / "numbers").write_bytes(b"12 13 rest")
    with DiskFile(tmp_path / "numbers") as file:
        file.no_buffer()
        assert file.read_int() == 12
        raw = file._raw
        assert raw is not None
        assert raw.tell() == 3  # the space that ended it has been seen


@pytest.mark.parametrize("path", ["no/such/file", "."])
def test_files_that_cannot_be_opened(tmp_path: Path, path: str) -> None:
    for mode in ("r", "w", "rw"):
        with pytest.raises(OSError, match=f"cannot open in mode '{mode}'") as caught:
            DiskFile(tmp_path / path, mode)
        assert caught.value.errno in (errno.ENOENT, errno.EISDIR)
        assert isinstance(caught.value, FileNotFoundError | IsADirectoryError)
        file = DiskFile(tmp_path / path, mode, quiet=True)
        assert file.has_error() and not file.is_opened()


@pytest.mark.parametrize("path", [3, None, "a\0b"])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(InvalidArgument, match="path"):
        DiskFile(path)


def test_the_finalizer_closes(tmp_path: Path) -> None:
    gc.collect()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    file: Any = DiskFile(tmp_path / "file", "w")
    file.write_int(5)
    del file
    pipe: Any = PipeFile(f"cat > {tmp_path}/piped", "w")
    pipe.write_int(6)
    del pipe
    gc.collect()
    assert (tmp_path / "file").read_bytes() == b"5\n"
    assert (tmp_path / "piped").read_bytes() == b"6\n"
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_a_full_disk() -> None:
    file = DiskFile("/dev/full", "w").binary()
    with pytest.raises(OSError, match=r"wrote 0 of 100000 doubles: No space") as caught:
        file.write_double_storage(shmtensor.DoubleStorage(100_000))
    assert caught.value.errno == errno.ENOSPC
    file.write_int(3)
    with pytest.raises(OSError, match="wrote 0 of 4 pending bytes: No space"):
        file.synchronize()
    assert file.quiet().write_double_storage(shmtensor.DoubleStorage(100_000)) == 0
    file.clear_error()
    file.close()
    assert file.has_error() and not file.is_opened()


@pytest.mark.parametrize("ascii", [True, False])
def test_a_disk_that_is_full_half_way(tmp_path: Path, ascii: bool) -> None:
    """A limit on the size of files, in a process of its own, stands for a full disk."""
    code = f"""
import resource, signal, shmtensor
from shmtensor.files import DiskFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
file = DiskFile({str(tmp_path / "file")!r}, "w", quiet=True)
print((file if {ascii} else file.binary()).write_int_storage(shmtensor.IntStorage(1_000_000).fill_(1)))
print(file.has_error())
"""
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert output[1] == "True"
    content = (tmp_path / "file").read_bytes()
    written = content.count(b"1") if ascii else len(content) // 4
    assert 0 < int(output[0]) <= written
    assert len(content) <= 300_000


# -- memory -----------------------------------------------------------------------------------------------------------


def test_memory_file_grows_its_storage() -> None:
    storage = shmtensor.CharStorage([0])
    file = MemoryFile("rw", storage)
    for number in range(1000):
        file.write_int(number)
    assert file.storage() is storage
    assert storage.size() == file.position() + 1
    assert bytes(np.asarray(storage)) == b"".join(b"%d\n" % n for n in range(1000)) + b"\0"
    file.seek(0)
    assert file.read_int(1000).tolist() == list(range(1000))


def test_memory_file_in_a_shared_storage_does_not_grow() -> None:
    storage = shmtensor.CharStorage(9).fill_(0).share_memory_()
    file = MemoryFile("w", storage).binary()
    with pytest.raises(OSError, match=r"wrote 2 of 5 ints: the storage has 9 bytes and cannot grow \(shared memory\)"):
        file.write_int_storage(shmtensor.IntStorage([1, 2, 3, 4, 5]))
    assert file.storage() is storage and storage.size() == 9
    assert storage.tolist() == [1, 0, 0, 0, 2, 0, 0, 0, 0]
    file.seek(0)
    assert file.quiet().write_int_storage(shmtensor.IntStorage(5)) == 2
    assert file.has_error()


@pytest.mark.parametrize("storage", [[1, 2], []])
def test_memory_of_a_file_ends_in_zero(storage: list[int]) -> None:
    with pytest.raises(InvalidArgument, match="must end in 0"):
        MemoryFile("r", shmtensor.CharStorage(storage))


def test_memory_that_is_no_char_storage() -> None:
    with pytest.raises(DTypeError, match="ByteStorage"):
        MemoryFile("r", shmtensor.ByteStorage([0]))


def test_memory_that_another_shrinks() -> None:
    storage = shmtensor.CharStorage(list(b"12 34\0"))
    file = MemoryFile("rw", storage)
    assert file.read_int() == 12
    storage.resize_(1)
    assert file.quiet().read_int() == 0
    file.write_int(7)
    assert bytes(np.asarray(file.storage())) == b"7\n\0"


def test_overwriting_text_in_memory_leaves_what_follows() -> None:
    file = MemoryFile("rw", shmtensor.CharStorage(list(b"11 22 33\0")))
    file.no_auto_spacing().write_int(99)
    file.seek(0)
    assert file.read_int(3).tolist() == [99, 22, 33]  # TH writes a zero after the 99


# -- pipes ------------------------------------------------------------------------------------------------------------


def test_pipe_gives_the_status_of_its_command() -> None:
    for command, status in (("exit 3", 3), ("kill -9 $$", -9), ("true", 0)):
        file = PipeFile(command)
        assert file.name == command and file.status is None
        file.close()
        assert file.status == status


def test_pipe_to_a_command_that_has_ended() -> None:
    file = PipeFile("exec true", "w")
    assert file._process is not None
    file._process.wait()
    with pytest.raises(BrokenPipeError, match="wrote 0 of 100000 ints: Broken pipe"):
        file.binary().write_int_storage(shmtensor.IntStorage(100_000))
    file.quiet().close()
    assert file.status == 0


@pytest.mark.parametrize("command", [3, None, b"true", "a\0b"])
def test_what_is_no_command(command: Any) -> None:
    with pytest.raises(InvalidArgument, match="command"):
        PipeFile(command)


def test_pipe_larger_than_any_buffer() -> None:
    count = 300_000
    with PipeFile(f"seq 1 {count}") as file:
        assert file.read_int(count).tolist() == list(range(1, count + 1))
    with PipeFile(f"head -c {count * 8} /dev/zero") as file:
        assert not np.asarray(file.binary().read_double(count)).any()


# -- the interface ----------------------------------------------------------------------------------------------------


def test_every_function_of_th_has_its_row() -> None:
    """What docs/th.md says that files have, they have."""
    text = Path(__file__).resolve().parents[2].joinpath("docs/th.md").read_text()
    classes = {"DiskFile": DiskFile, "File": File, "MemoryFile": MemoryFile, "PipeFile": PipeFile}
    rows = re.findall(r"\b(DiskFile|File|MemoryFile|PipeFile)\.(\w+)", text)
    assert len(rows) > 20
    for path, method in rows:
        assert hasattr(classes[path], method), f"{path}.{method}"


def test_methods_of_all_types_have_names_and_documentation() -> None:
    for what in NUMBERS:
        for stem in ("read", "write"):
            for tail in ("", "_storage", "_raw"):
                method = getattr(File, f"{stem}_{what}{tail}")
                assert method.__name__ == f"{stem}_{what}{tail}"
                assert what in method.__doc__.lower() and "block" in method.__doc__
