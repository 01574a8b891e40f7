"""Storages in files as torch's `_write_file` writes them."""

import io
import os
import struct
import tracemalloc

import pytest
from element_types import EVERY_ROW

from shmtensor import ByteStorage, DoubleStorage, FloatStorage, IntStorage
from shmtensor.errors import EndOfFile, FileDamaged, InvalidArgument, LayoutError
from shmtensor.storage import STORAGE_CLASSES


def written(storage, *how):
    """What `_write_file` writes."""
    file = io.BytesIO()
    storage._write_file(file, False, *how)
    return file.getvalue()


@pytest.mark.parametrize("row", EVERY_ROW)
def test_written_and_read(row, tmp_path):
    storage = STORAGE_CLASSES[row.dtype]([0, 1, 1])
    path = tmp_path / "numbers"
    with path.open("wb", buffering=0) as file:
        storage._write_file(file)
        storage[1:]._write_file(file, True, False)
    data = storage.data().tobytes()
    assert path.read_bytes() == struct.pack("<q", 3) + data + data[row.dtype.itemsize :]
    with path.open("rb") as file:
        made = type(storage)._new_with_file(file)
        assert (type(made), made.tolist()) == (type(storage), [0, 1, 1])
        assert file.tell() == 8 + storage.nbytes
        again = type(storage)(3)
        assert again._set_from_file(file, 0) is again
        assert again.tolist() == [0, 1, 1]
        file.seek(0)
        assert type(storage)(3)._set_from_file(file, None, True, row.dtype.itemsize).tolist() == [0, 1, 1]


def test_the_number_counts_elements_of_the_size_given():
    assert written(IntStorage([1, 2])) == struct.pack("<qii", 2, 1, 2)
    assert written(IntStorage([1, 2]), True, 8) == struct.pack("<qii", 1, 1, 2)
    assert written(IntStorage([1, 2]).untyped(), True, 4) == struct.pack("<qii", 2, 1, 2)
    assert written(IntStorage([1, 2]), False) == struct.pack("<ii", 1, 2)
    with pytest.raises(InvalidArgument, match="12 bytes"):
        written(IntStorage(3), True, 8)
    with pytest.raises(InvalidArgument):
        written(IntStorage(3), True, 0)


def test_what_cannot_be_read():
    data = written(IntStorage([1, 2]))
    with pytest.raises(InvalidArgument, match=r"2 elements.*12 bytes"):
        IntStorage(3)._set_from_file(io.BytesIO(data))
    for cut in (0, 7, len(data) - 1):
        for read in (IntStorage._new_with_file, IntStorage(2)._set_from_file):
            with pytest.raises(EndOfFile):
                read(io.BytesIO(data[:cut]))
    with pytest.raises(FileDamaged, match="-3"):
        IntStorage._new_with_file(io.BytesIO(struct.pack("<q", -3)))
    with pytest.raises(InvalidArgument):
        DoubleStorage._new_with_file(io.BytesIO(struct.pack("<qiii", 3, 1, 2, 3)), 4)
    frozen = IntStorage(2).share_memory_(copy_on_write=True)
    with pytest.raises(LayoutError, match="read-only"):
        frozen._set_from_file(io.BytesIO(data))


class Sink:
    """A file of one's own, whose write returns nothing."""

    def __init__(self):
        self.data = b""

    def write(self, data):
        assert len(self.data) < 1000, "the same is written again and again"
        self.data += data


def test_files_that_take_less_or_say_nothing():
    storage = IntStorage([1, 2])
    storage._write_file(sink := Sink())
    assert sink.data == written(storage)
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    with os.fdopen(ends[0], "rb"), os.fdopen(ends[1], "wb", buffering=0) as file, pytest.raises(BlockingIOError):
        IntStorage(1 << 20)._write_file(file)


@pytest.mark.parametrize("count", [1 << 30, 1 << 36, 1 << 45])
def test_no_memory_for_elements_that_are_not_there(count):
    tracemalloc.start()
    try:
        with pytest.raises(EndOfFile):
            IntStorage._new_with_file(io.BytesIO(struct.pack("<q", count) + b"1234"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", ["4", 4.0, True])
def test_sizes_of_elements_that_are_no_numbers(size):
    for use in (IntStorage._new_with_file, lambda file, size: IntStorage(2)._write_file(file, element_size=size)):
        with pytest.raises(InvalidArgument, match="element_size"):
            use(io.BytesIO(bytes(100)), size)


def test_torch_reads_and_writes_the_same(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "numbers"
    with path.open("wb") as file:
        FloatStorage([1.5, -2]).untyped()._write_file(file, True, True, 4)
    with path.open("rb") as file:
        theirs = torch.UntypedStorage._new_with_file(file, 4)
    assert torch.tensor([], dtype=torch.float32).set_(theirs).tolist() == [1.5, -2]
    with path.open("wb") as file:
        torch.tensor([3.0, 4.0, 5.0]).untyped_storage()._write_file(file, True, True, 4)
    with path.open("rb") as file:
        assert FloatStorage._new_with_file(file).tolist() == [3, 4, 5]
        file.seek(0)
        assert ByteStorage(12)._set_from_file(file, None, True, 4)[3] == 0x40
