"""Files and objects that are unusual: without methods of files, full, unreadable, or of types that few have."""

from __future__ import annotations

import errno
import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor import load, save
from shmtensor.errors import DTypeError, FileDamaged, InvalidArgument, NotSupported
from shmtensor.files import DiskFile, MemoryFile, PipeFile


class Minimal:
    """A file of only what loading needs: no `readinto`, no `seekable`."""

    def __init__(self, content: bytes) -> None:
        self._file = io.BytesIO(content)

    def read(self, size: int = -1) -> Any:
        return self._file.read(size)

    def seek(self, place: int, whence: int = 0) -> int:
        return self._file.seek(place, whence)

    def tell(self) -> int:
        return self._file.tell()


class Text(Minimal):
    def read(self, size: int = -1) -> Any:
        return super().read(size).decode("latin-1")


class Stuck(Minimal):
    def seek(self, place: int, whence: int = 0) -> int:
        raise OSError(errno.ESPIPE, "Illegal seek")


class Sink:
    """A file that takes what `write` says."""

    def __init__(self, write: Callable[[Any], int]) -> None:
        self.write = write


def saved(obj: Any, **how: Any) -> bytes:
    file = io.BytesIO()
    save(obj, file, **how)
    return file.getvalue()


@pytest.mark.parametrize("format", ["shmtensor", "safetensors", "npz", "torch"])
def test_a_file_without_readinto(format: str) -> None:
    found = load(Minimal(saved({"a": np.arange(3.0)}, format=format)))
    assert found["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "message"),
    [(Text, "gives str; open it in binary mode"), (Stuck, "Illegal seek; read it into io.BytesIO")],
)
def test_files_that_cannot_be_loaded_from(kind: type[Minimal], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        load(kind(saved({"a": np.arange(3.0)})))


def refuse(_data: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("write", "number", "message"),
    [
        (lambda data: 0, errno.EIO, "cannot save: the file accepts no bytes"),
        (refuse, errno.ENOSPC, "cannot save: No space left on device"),
    ],
)
def test_files_that_cannot_be_saved_to(write: Callable[[Any], int], number: int, message: str) -> None:
    with pytest.raises(OSError, match=message) as caught:
        save({"a": np.ones(3)}, Sink(write))
    assert caught.value.errno == number


def test_a_file_that_takes_a_byte_at_a_time() -> None:
    written = bytearray()

    def take(data: Any) -> int:
        written.extend(data[:1])
        return 1

    save([st.ones(2), "text"], Sink(take))
    assert load(io.BytesIO(written))[1] == "text"


def test_the_name_of_a_file_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot save: File name too long") as caught:
        save({"a": np.ones(1)}, tmp_path / f"{'a' * 300}.shmt")
    assert caught.value.errno == errno.ENAMETOOLONG


def test_sizes_are_saved_as_tuples() -> None:
    assert load(io.BytesIO(saved([st.ones(2, 3).shape]))) == [(2, 3)]


class Foreign:
    """What another library calls a tensor."""

    def __dlpack__(self) -> None: ...


def test_a_tensor_of_another_library() -> None:
    with pytest.raises(DTypeError, match=r"\[0\]: cannot save a .*Foreign; use shmtensor.from_dlpack\(x\)"):
        saved([Foreign()])


def test_the_old_format_of_torch() -> None:
    with pytest.raises(NotSupported, match=r"torch's format from before version 1\.6 is not loaded"):
        load(io.BytesIO(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."))


def npy(shape: str, data: bytes = b"") -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def test_a_shape_with_too_many_digits_to_be_shown() -> None:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (0x{'f' * 5000},)}}".encode() + b"\n"
    with pytest.raises(FileDamaged, match="no tensor can have the shape of enormous sizes"):
        load(io.BytesIO(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text))


def test_a_packed_member_that_ends_early() -> None:
    """Its checksum is that of the bytes which are there."""
    whole = npy("(1000,)", bytes(4000))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("x.npy", whole[:-100])
    content = file.getvalue()
    at = content.rindex(b"PK\1\2") + 24
    content = content[:at] + struct.pack("<I", len(whole)) + content[at + 4 :]
    with pytest.raises(FileDamaged, match="the file ends after 3900 of 4000 bytes"):
        load(io.BytesIO(content))


def test_pipes_are_not_opened_for_both_directions(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="cannot open in mode 'rw': Illegal seek") as caught:
        DiskFile(tmp_path / "pipe", "rw")
    assert caught.value.errno == errno.ESPIPE


def test_a_command_that_is_too_long() -> None:
    with pytest.raises(OSError, match="cannot run in mode 'r': Argument list too long") as caught:
        PipeFile("exit 0" + " " * 3_000_000)
    assert caught.value.errno == errno.E2BIG


@pytest.mark.parametrize("binary", [False, True])
def test_a_file_that_cannot_be_read(binary: bool) -> None:
    file = DiskFile("/proc/self/mem")  # nothing is mapped at address 0
    storage = st.DoubleStorage([7.0, 8.0])
    if binary:
        file.binary()
    with pytest.raises(OSError, match="at byte 0: wanted 2 doubles, read 0: Input/output error") as caught:
        file.read_double_storage(storage)
    assert caught.value.errno == errno.EIO
    file.clear_error()
    assert file.quiet().read_double_storage(storage) == 0 and file.has_error()
    assert list(storage) == [7, 8]
    file.close()


def test_what_the_disk_does_not_take_is_reported_when_the_file_moves() -> None:
    file = DiskFile("/dev/full", "w")
    file.write_string("abc")
    with pytest.raises(OSError, match="wrote 0 of 3 pending bytes: No space left on device"):
        file.seek(0)
    with pytest.raises(OSError, match="wrote 0 of 3 pending bytes"):
        file.close()
    file = DiskFile("/dev/full", "w")
    with pytest.raises(OSError, match="wrote 0 of 100000 bytes: No space left on device"):
        file.write_string("a" * 100_000)
    file.close()


def test_reading_what_was_written_to_a_full_disk() -> None:
    file = DiskFile("/dev/full", "rw").binary().quiet()
    file.write_int(5)
    assert file.read_int_storage(st.IntStorage(4)) == 0 and file.has_error()
    file.clear_error()
    file.close()
    assert not file.is_opened()


class Point(tuple[int, ...]):
    """A tuple with methods of a program."""


def test_tuples_of_a_class_are_saved_as_tuples() -> None:
    found = load(io.BytesIO(saved([Point((1, 2))])))
    assert found == [(1, 2)] and type(found[0]) is tuple


@pytest.mark.exhaustive
def test_a_structure_that_is_too_large() -> None:
    with pytest.raises(InvalidArgument, match=r"the structure of the object has 1000.* bytes; at most 100000000"):
        saved(["a" * 100_000_000])


def test_a_newline_that_has_no_room() -> None:
    storage = st.CharStorage(4).fill_(0).share_memory_()
    file = MemoryFile("w", storage)
    with pytest.raises(OSError, match="at byte 3: wrote 0 of 1 newline: the storage has 4 bytes and cannot grow"):
        file.write_char_storage(st.CharStorage([97, 98, 99]))
    assert storage.tolist() == [97, 98, 99, 0]
