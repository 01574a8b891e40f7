"""Typed storages: elements, views, sizes, sharing, by value."""

import copy
import gc
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import shmtensor
from shmtensor import FloatStorage, IntStorage, Storage, StorageFlags, Tensor
from shmtensor.allocators import ManagedAllocator, MapAllocator, MapFlags, RefcountedMapAllocator, managed_allocator
from shmtensor.dtypes import ELEMENT_TYPES
from shmtensor.errors import (
    DTypeError,
    IndexOutOfRange,
    InvalidArgument,
    LayoutError,
    ManagerError,
    OutOfMemory,
    ShmTensorError,
    StaleHandle,
    UnknownHandle,
)
from shmtensor.storage import STORAGE_CLASSES


def run(code):
    """Run Python in a process of its own; gives what it printed."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("row", ELEMENT_TYPES, ids=lambda row: row.prefix)
def test_every_type(row):
    cls = getattr(shmtensor, f"{row.prefix}Storage")
    storage = cls([0, 1, 1])
    assert cls is STORAGE_CLASSES[row.dtype]
    assert isinstance(storage, Storage)
    assert (storage.dtype, storage.element_size(), storage.nbytes) == (
        row.dtype,
        row.dtype.itemsize,
        3 * row.dtype.itemsize,
    )
    assert storage.tolist() == [0, 1, 1]
    assert type(storage[1]) in (int, float, bool, complex)
    assert cls(5).size() == len(cls(5)) == 5
    assert row.prefix in repr(storage)
    copied = pickle.loads(pickle.dumps(storage))
    assert (type(copied), copied.tolist()) == (cls, storage.tolist())
    shared = cls([1, 0]).share_memory_()
    assert shared.is_shared()
    assert shared.tolist() == [1, 0]


def test_a_bare_storage_is_float32():
    assert type(Storage(3)) is FloatStorage
    assert Storage([1.5]).tolist() == [1.5]


def test_content_is_copied_and_converted():
    source = np.arange(3)
    storage = IntStorage(source)
    source[0] = 9
    assert storage.tolist() == [0, 1, 2]
    assert FloatStorage(storage).tolist() == [0.0, 1.0, 2.0]
    assert IntStorage(range(3)).tolist() == storage.tolist()
    assert IntStorage(np.int8(4)).size() == 4


@pytest.mark.parametrize("size", [-1, 2**62, 10**30])
def test_impossible_sizes(size):
    with pytest.raises(InvalidArgument, match=str(size)):
        FloatStorage(size)


@pytest.mark.parametrize("size", [True, None, "3", np.ones((1, 2))])
def test_sizes_that_are_no_integers(size):
    for make in (FloatStorage._new_using_fd, FloatStorage._new_using_filename, FloatStorage(1).resize_):
        with pytest.raises(InvalidArgument, match="not an integer"):
            make(size)


def test_more_than_memory():
    with pytest.raises(OutOfMemory):
        FloatStorage(2**45)
    with pytest.raises((OutOfMemory, InvalidArgument)):
        FloatStorage(2**45, allocator=managed_allocator)
    with pytest.raises(OutOfMemory, match=str(2**44)):
        FloatStorage._new_using_fd(2**42)  # the kernel would kill this process rather than refuse


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("text", DTypeError),
        (["x"], DTypeError),
        ([[1], [2]], InvalidArgument),
        ([1, [2]], InvalidArgument),
        ([300], InvalidArgument),
        (np.array([1j]), DTypeError),
        (np.array([object()]), DTypeError),
        (None, ShmTensorError),
        (1.5, ShmTensorError),
    ],
)
def test_content_that_does_not_fit(content, error):
    with pytest.raises(error):
        shmtensor.ByteStorage(content)


def test_elements_are_bounds_checked():
    storage = IntStorage([1, 2, 3])
    assert (storage[0], storage[-1]) == (1, 3)
    storage[-1] = 7
    assert list(storage) == [1, 2, 7]
    for index in (3, -4):
        with pytest.raises(IndexOutOfRange, match="3") as caught:
            storage[index]
        assert isinstance(caught.value, IndexError)
        with pytest.raises(IndexError):
            storage[index] = 1
    with pytest.raises(InvalidArgument):
        storage["a"]
    with pytest.raises(InvalidArgument, match="int32"):
        storage[0] = 2**40
    with pytest.raises(DTypeError):
        storage[0] = "x"
    with pytest.raises(InvalidArgument):
        storage[0:2] = [1, 2, 3]
    assert storage.tolist() == [1, 2, 7]


def test_fill_and_copy():
    storage = IntStorage(3).fill_(4)
    assert storage.tolist() == [4, 4, 4]
    assert storage.copy_(FloatStorage([1.9, 2, 3])).tolist() == [1, 2, 3]
    with pytest.raises(InvalidArgument, match="2 elements"):
        storage.copy_([1, 2])
    with pytest.raises(DTypeError):
        storage.copy_(["a", "b", "c"])
    assert storage.tolist() == [1, 2, 3]


def test_equality_is_identity():
    storage = IntStorage([1, 2])
    assert storage == storage.fill_(1)
    assert storage != IntStorage([1, 1])
    assert storage != storage.clone()
    assert storage != [1, 1]
    known = {storage: "a", IntStorage([1, 1]): "b"}
    assert known[storage.fill_(7)] == "a", "by identity, whatever its content"
    assert len({storage, storage[:], Tensor(storage).storage()}) == 2


def test_slices_are_views():
    storage = IntStorage(range(10))
    part = storage[2:6]
    assert part.flags & StorageFlags.VIEW
    part[0] = 99
    assert storage[2] == 99
    deeper = part[1:3]
    storage[3] = 77
    assert deeper.tolist() == [77, 4]
    assert storage[5:2].size() == 0
    with pytest.raises(InvalidArgument, match="step"):
        storage[::2]
    with pytest.raises(InvalidArgument, match="resiz"):
        part.resize_(2)
    storage[0:2] = IntStorage([5, 6])
    assert storage[0:2].tolist() == [5, 6]


def test_views_follow_a_move():
    storage = IntStorage(range(10))
    part = storage[2:6]
    tensor = Tensor(part)
    part.share_memory_()
    assert storage.is_shared()
    assert part.is_shared()
    storage[3] = 55
    assert part[1] == 55
    assert tensor.tolist() == [2, 55, 4, 5]
    tensor.fill_(0)
    assert storage.tolist() == [0, 1, 0, 0, 0, 0, 6, 7, 8, 9]


def test_resize_keeps_what_fits_and_tensors_follow():
    storage = IntStorage([1, 2, 3])
    tensor = Tensor(storage)[1:]
    old = np.asarray(storage)
    storage.resize_(100)
    assert storage.size() == 100
    tensor[0] = 9
    assert storage[1] == 9
    assert old.tolist() == [1, 2, 3], "an array taken earlier keeps the old memory"
    storage.resize_(2)
    with pytest.raises(InvalidArgument, match="resized"):
        tensor.tolist()
    storage.resize_(3)
    assert tensor.tolist()[0] == 9


def test_resize_is_refused_where_it_cannot_be(tmp_path):
    (tmp_path / "f").write_bytes(bytes(16))
    array = np.zeros(4, np.int32)
    for storage in (
        IntStorage(4).share_memory_(),
        IntStorage._new_using_fd(4),
        IntStorage.from_file(tmp_path / "f"),
        shmtensor.from_numpy(array).storage(),
    ):
        assert not storage.flags & StorageFlags.RESIZABLE
        with pytest.raises(InvalidArgument, match="resiz"):
            storage.resize_(8)
        assert storage.size() == 4
    storage = IntStorage(4)
    storage.clear_flag(Storage.RESIZABLE)
    with pytest.raises(InvalidArgument):
        storage.resize_(8)
    storage.set_flag(Storage.RESIZABLE)
    storage.resize_(8)
    part = storage[4:]
    with pytest.raises(InvalidArgument, match="part"):
        storage.resize_(5)
    del part
    storage.resize_(5)
    with pytest.raises(InvalidArgument):
        storage.set_flag(Storage.VIEW)
    with pytest.raises(InvalidArgument):
        IntStorage(4).share_memory_().set_flag(Storage.RESIZABLE)


def test_flag_values_are_those_of_th():
    assert (Storage.REFCOUNTED, Storage.RESIZABLE, Storage.FREEMEM, Storage.VIEW) == (1, 2, 4, 8)


# -- sharing


def test_share_memory_moves_once_and_leaves_old_arrays_alone():
    storage = FloatStorage([1, 2, 3])
    old = np.asarray(storage)
    assert storage.share_memory_() is storage
    address = storage.data_ptr()
    storage[0] = 5
    assert old.tolist() == [1, 2, 3]
    assert storage.share_memory_().data_ptr() == address
    assert storage.allocator is managed_allocator


def test_empty_storages_share():
    storage = IntStorage(0).share_memory_()
    assert storage.is_shared()
    manager, handle, size = storage._share_filename_()
    assert size == 0
    assert IntStorage._new_shared_filename(manager, handle, 0) is storage


def test_handle_in_the_same_process_is_the_same_storage():
    storage = FloatStorage([1, 2, 3])
    manager, handle, size = storage._share_filename_()
    assert (type(manager), type(handle), size) == (bytes, bytes, 3)
    assert handle.startswith(b"/torch_%d_" % os.getpid())
    assert Storage._new_shared_filename(manager, handle, 3) is storage
    assert storage._share_filename_() == (manager, handle, size)


def test_handle_in_another_process():
    storage = FloatStorage(25).fill_(1)
    handle = storage._share_filename_()
    assert handle[2] == 25
    out = run(
        "from shmtensor import Storage, Tensor\n"
        f"t = Tensor(Storage._new_shared_filename(*{handle!r})).view((5, 5))\n"
        "print(float(t.sum())); t[1, 1] = 7"
    )
    assert float(out) == 25.0
    assert storage[6] == 7


def test_bad_handles():
    storage = FloatStorage([1, 2, 3])
    manager, handle, size = storage._share_filename_()
    for cls, count in ((FloatStorage, 2), (FloatStorage, 4), (shmtensor.DoubleStorage, 3), (FloatStorage, 0)):
        with pytest.raises(InvalidArgument, match="12"):
            cls._new_shared_filename(manager, handle, count)
    with pytest.raises(InvalidArgument):
        Storage._new_shared_filename(manager, handle, -1)
    with pytest.raises(InvalidArgument, match="bytes"):
        Storage._new_shared_filename(manager.decode(), handle, size)
    with pytest.raises(InvalidArgument):
        Storage._new_shared_filename(manager, b"nonsense", size)
    with pytest.raises(UnknownHandle):
        Storage._new_shared_filename(manager, b"/torch_1_%d" % (2**62 + 12345), size)
    with pytest.raises((ManagerError, InvalidArgument)):
        Storage._new_shared_filename(b"/nonexistent/manager.sock", handle, size)
    with pytest.raises(InvalidArgument, match="part"):
        storage[1:]._share_filename_()
    assert storage.tolist() == [1, 2, 3]
    del storage
    gc.collect()
    with pytest.raises((StaleHandle, UnknownHandle)):
        Storage._new_shared_filename(manager, handle, size)


def test_a_storage_on_the_managed_allocator_is_found_again():
    storage = IntStorage([1, 2], allocator=managed_allocator)
    assert IntStorage._new_shared_filename(*storage._share_filename_()) is storage
    own = IntStorage([1, 2], allocator=ManagedAllocator())
    assert own.is_shared()
    assert IntStorage._new_shared_filename(*own._share_filename_()) is own


def test_new_using_filename_is_shared():
    for make in (IntStorage._new_using_filename, IntStorage._new_shared):
        storage = make(10)
        assert type(storage) is IntStorage
        assert storage.is_shared()
        assert storage.fill_(3).tolist() == [3] * 10


def test_share_by_descriptor():
    storage = IntStorage([1, 2, 3])
    tensor = Tensor(storage)
    fd, size = storage._share_fd_()
    assert size == 3
    assert storage.is_shared()
    other = IntStorage._new_shared_fd(fd, size)
    other[0] = 9
    assert tensor.tolist() == [9, 2, 3]
    assert storage._share_fd_() == (fd, size)
    with pytest.raises(InvalidArgument, match="_share_filename_"):
        FloatStorage(3).share_memory_()._share_fd_()
    with pytest.raises(InvalidArgument):
        storage[1:]._share_fd_()
    with pytest.raises(InvalidArgument, match="_share_fd_"):
        storage._share_filename_()
    for bad_fd, bad_size in ((fd, 10_000), (fd, -1), (-1, 3), (10**6, 3)):
        with pytest.raises(ShmTensorError):
            IntStorage._new_shared_fd(bad_fd, bad_size)


def test_descriptor_opens_in_another_process():
    storage = IntStorage._new_using_fd(4).fill_(5)
    fd, size = storage._share_fd_()
    code = f"import shmtensor; s = shmtensor.IntStorage._new_shared_fd({fd}, {size}); print(s.tolist()); s[0] = 6"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, pass_fds=[fd])
    assert done.stdout.strip() == "[5, 5, 5, 5]"
    assert storage[0] == 6


def test_descriptors_are_given_back():
    def count():
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    IntStorage._new_using_fd(4)
    gc.collect()
    before = count()
    for _ in range(5):
        storage = IntStorage(4)
        IntStorage._new_shared_fd(*storage._share_fd_())
    del storage
    gc.collect()
    assert count() == before


def test_in_flight_count_by_hand():
    storage = IntStorage([1, 2]).share_memory_()
    handle = storage._share_filename_()
    storage._shared_incref()._shared_incref()._shared_decref()
    storage._shared_decref()
    with pytest.raises(InvalidArgument, match="incref"):
        storage._shared_decref()
    storage._shared_incref()
    tickets = storage._tickets
    block = storage._region
    name = (block.segment, block.index, block.generation)
    del storage, block
    gc.collect()
    again = IntStorage._new_shared_filename(*handle)
    assert again.tolist() == [1, 2], "what is in flight keeps the memory"
    again._region.client.redeem(*name, *tickets[0])
    counted = RefcountedMapAllocator(None)
    mapped = IntStorage(2, allocator=counted)._shared_incref()
    assert counted.decref(mapped._region) == 1
    assert IntStorage(1)._shared_incref()._shared_decref().size() == 1


def test_from_file(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(np.arange(5, dtype=np.int32).tobytes())
    private = IntStorage.from_file(path)
    assert private.tolist() == [0, 1, 2, 3, 4]
    private[0] = 9
    shared = IntStorage.from_file(str(path), shared=True)
    assert shared[0] == 0
    assert shared.is_shared()
    assert not private.is_shared()
    shared[1] = 8
    assert np.fromfile(path, np.int32).tolist() == [0, 8, 2, 3, 4]
    assert IntStorage.from_file(path, size=2).tolist() == [0, 8]
    assert IntStorage.from_file(path, shared=True, size=7).tolist() == [0, 8, 2, 3, 4, 0, 0]
    assert IntStorage.from_file(tmp_path / "new", shared=True, size=3).tolist() == [0, 0, 0]
    with pytest.raises(InvalidArgument, match="400"):
        IntStorage.from_file(path, size=100)
    with pytest.raises(InvalidArgument, match="28 bytes"):
        shmtensor.DoubleStorage.from_file(path)
    with pytest.raises(OSError, match="absent") as caught:
        IntStorage.from_file(tmp_path / "absent")
    assert isinstance(caught.value, ShmTensorError)
    (tmp_path / "empty").touch()
    with pytest.raises(InvalidArgument):
        IntStorage.from_file(tmp_path / "empty")


def test_map_storages_say_where_they_live(tmp_path):
    storage = IntStorage(3, allocator=MapAllocator(tmp_path / "x", MapFlags.SHARED))
    assert "map" in repr(storage)
    assert storage.is_shared()


# -- by value


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_is_by_value(protocol):
    storage = FloatStorage([1, 2, 3]).share_memory_()
    part = storage[1:]
    loaded, again, piece = pickle.loads(pickle.dumps((storage, storage, part), protocol))
    assert loaded is again
    assert loaded.tolist() == storage.tolist()
    assert not loaded.is_shared()
    loaded[1] = 9
    assert storage[1] == 2
    assert piece.tolist() == [9, 3]
    assert type(loaded) is FloatStorage
    assert pickle.loads(pickle.dumps(FloatStorage(0), protocol)).size() == 0


def test_pickle_out_of_band_is_by_value():
    storage = IntStorage([1, 2, 3])
    buffers = []
    data = pickle.dumps(storage, 5, buffer_callback=buffers.append)
    loaded = pickle.loads(data, buffers=buffers)
    loaded[0] = 9
    assert storage[0] == 1


def test_copies_are_by_value():
    storage = IntStorage([1, 2, 3]).share_memory_()
    for duplicate in (copy.copy(storage), copy.deepcopy(storage), storage.clone()):
        duplicate[0] = 9
        assert storage[0] == 1
        assert not duplicate.is_shared()
    whole, part = copy.deepcopy([storage, storage[1:]])
    whole[1] = 5
    assert part[0] == 5


def test_weak_references():
    storage = IntStorage(3)
    ref = storage._weak_ref()
    assert not Storage._expired(ref)
    assert Storage._new_with_weak_ptr(ref) is storage
    del storage
    gc.collect()
    assert Storage._expired(ref)
    assert Storage._new_with_weak_ptr(ref) is None
    Storage._free_weak_ref(ref)


def test_block_comes_back_when_everything_over_it_has_gone():
    from shmtensor.manager import client

    native = client.default().native
    gc.collect()
    before = native.stats().blocks
    storage = IntStorage(1000).share_memory_()
    tensor = Tensor(storage)
    array = tensor.numpy()[5:]
    assert native.stats().blocks == before + 1
    del storage, tensor
    gc.collect()
    array[:] = 1
    assert native.stats().blocks == before + 1
    del array
    gc.collect()
    assert native.stats().blocks == before


def test_from_numpy_layouts_that_cannot_be_used():
    array = np.arange(6.0)
    fields = np.zeros(6, np.dtype([("a", "f8"), ("b", "i2")]))["a"]  # strides that are no multiple of the item size
    for bad in (fields, fields[::-1], np.broadcast_to(array, (2, 6)), np.frombuffer(bytes(8))):
        with pytest.raises(LayoutError, match="copy"):
            shmtensor.from_numpy(bad)
