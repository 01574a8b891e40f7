"""The content of storages: buffers, existing memory, copies, conversions, swaps, files, finalizers."""

import copy
import gc
import io
import pickle
import subprocess
import sys

import numpy as np
import pytest
from element_types import EVERY_ROW
from hypothesis import given
from hypothesis import strategies as st

import shmtensor
from shmtensor import FloatStorage, IntStorage, Storage, StorageFlags, Tensor
from shmtensor import multiprocessing as mp
from shmtensor.allocators import DefaultAllocator, MapAllocator, MapFlags
from shmtensor.errors import DeviceUnavailable, DTypeError, InvalidArgument, LayoutError
from shmtensor.gpu import driver
from shmtensor.storage import STORAGE_CLASSES
from shmtensor.storage.content import BYTE_ORDERS


def content(storage):
    """The type and the values of a storage, which are not what == compares."""
    return type(storage), storage.tolist()


def some(row, size=5):
    """A storage of this type with values that every type has."""
    return STORAGE_CLASSES[row.dtype]([i % 2 for i in range(size)])


# -- from what exists


@pytest.mark.parametrize("order", BYTE_ORDERS)
@pytest.mark.parametrize("row", EVERY_ROW)
def test_from_buffer(row, order):
    values = np.array([1, 0, 1, 1], row.dtype)
    part = row.dtype.itemsize // (2 if row.dtype.kind == "c" else 1)
    other = order != "native" and order != sys.byteorder
    stored = values.view(f"u{part}")
    data = b"xx" + (stored.byteswap() if other else stored).tobytes()
    cls = STORAGE_CLASSES[row.dtype]
    assert cls.from_buffer(data, order, offset=2).tolist() == values.tolist()
    assert cls.from_buffer(bytearray(data), order, 2, 2 + row.dtype.itemsize).tolist() == values.tolist()[1:3]
    made = cls.from_buffer(data, order, 0)
    assert (made.size(), type(made)) == (0, cls)


def test_from_buffer_copies_and_takes_what_has_bytes():
    source = np.arange(3, dtype=np.int32)
    made = IntStorage.from_buffer(source)
    source[0] = 9
    assert made.tolist() == [0, 1, 2]
    assert content(IntStorage.from_buffer(made)) == content(made)
    assert IntStorage.from_buffer(memoryview(source)).tolist() == [9, 1, 2]
    assert Storage.from_buffer(np.float32(1.5)).tolist() == [1.5]
    assert shmtensor.BoolStorage.from_buffer(bytes([0, 2, 255])).data().view(np.uint8).tolist() == [0, 1, 1]
    assert IntStorage.from_buffer(b"").size() == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((bytes(7),), InvalidArgument),
        ((bytes(8), "middle"), InvalidArgument),
        ((bytes(8), "native", 3), InvalidArgument),
        ((bytes(8), "native", -2), InvalidArgument),
        ((bytes(8), "native", -1, 9), InvalidArgument),
        ((bytes(8), "native", 1, -4), InvalidArgument),
        ((bytes(8), "native", 2, 4), InvalidArgument),
        ((bytes(8), "native", "1"), InvalidArgument),
        ((bytes(8), "native", 10**30), InvalidArgument),
        (([1, 2],), DTypeError),
        (("text",), DTypeError),
        ((memoryview(bytes(16))[::2],), LayoutError),
        ((np.zeros((4, 4), np.int32)[:, 1],), LayoutError),
    ],
)
def test_from_buffer_refuses(arguments, error):
    with pytest.raises(error):
        IntStorage.from_buffer(*arguments)


@given(st.binary(max_size=40), st.integers(-3, 45), st.integers(-3, 12))
def test_from_buffer_gives_the_range_or_refuses_it(data, offset, count):
    try:
        made = shmtensor.ShortStorage.from_buffer(data, "little", count, offset)
    except InvalidArgument:
        size = (len(data) - offset) / 2 if count == -1 else count
        assert offset < 0 or size < 0 or size != int(size) or offset + 2 * size > len(data)
    else:
        end = len(data) if count == -1 else offset + 2 * count
        assert made.tolist() == np.frombuffer(data[offset:end], "<i2").tolist()


def test_with_data_aliases_and_keeps():
    for data in (np.arange(3, dtype=np.int32), bytearray(12), memoryview(bytearray(12))):
        storage = IntStorage.with_data(data)
        storage[1] = 7
        assert np.frombuffer(data, np.int32)[1] == 7
        assert storage.flags == StorageFlags.REFCOUNTED
        with pytest.raises(InvalidArgument, match="resiz"):
            storage.resize_(9)
    made = IntStorage.with_data(np.arange(3, dtype=np.int32))
    gc.collect()
    assert made.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        (np.zeros(3), DTypeError, "int32.*float64|float64.*int32"),
        (np.zeros(3, np.uint32), DTypeError, "uint32"),
        (bytes(12), LayoutError, "from_buffer"),
        (bytearray(13), InvalidArgument, "13"),
        (memoryview(bytearray(13))[1:], InvalidArgument, "aligned"),
        (np.zeros((3, 3), np.int32)[:, 0], LayoutError, "gaps|copy"),
        ([1, 2], DTypeError, "list"),
        (3, DTypeError, "int"),
    ],
)
def test_with_data_refuses(data, error, says):
    with pytest.raises(error, match=says):
        IntStorage.with_data(data)


def test_with_data_and_allocator_gives_back():
    allocator = DefaultAllocator()
    region = allocator.malloc(40)
    storage = IntStorage.with_data(region, allocator=allocator).fill_(3)
    assert (storage.size(), storage.allocator) == (10, allocator)
    assert storage.flags == StorageFlags.REFCOUNTED | StorageFlags.RESIZABLE | StorageFlags.FREEMEM
    tensor = Tensor(storage)
    del storage, region
    gc.collect()
    assert allocator.stats().blocks == 1
    assert tensor.tolist() == [3] * 10
    del tensor
    gc.collect()
    assert allocator.stats().blocks == 0


# -- data of a type


@pytest.mark.parametrize("row", EVERY_ROW)
def test_data_is_of_the_storages_type_alone(row):
    storage = some(row)
    for spec in (None, row.dtype, row.name):
        assert storage.data(spec).tolist() == storage.tolist()
    storage.data()[0] = 1
    assert storage[0] == 1
    other = "int16" if row.name != "int16" else "int8"
    with pytest.raises(DTypeError, match=other) as caught:
        storage.data(other)
    assert row.name in str(caught.value)


# -- copies and conversions


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("target", EVERY_ROW)
@pytest.mark.parametrize("source", EVERY_ROW)
def test_typed_copies_between_all_types(source, target):
    values = some(source)
    copied = STORAGE_CLASSES[target.dtype](5).copy_(values)
    converted = getattr(values, target.method)()
    assert content(copied) == content(converted)
    assert copied.tolist() == [0, 1, 0, 1, 0]
    assert converted.dtype == target.dtype
    assert (converted is values) == (source is target) == (values.to(target.name) is values)
    assert values.tolist() == [0, 1, 0, 1, 0]


def test_conversions_round_as_numpy_does():
    assert FloatStorage([1.9, -1.9, 300]).int().tolist() == [1, -1, 300]
    assert IntStorage([300, -1]).byte().tolist() == [44, 255]
    assert IntStorage([0, 5]).bool().tolist() == [False, True]
    with pytest.warns(np.exceptions.ComplexWarning):
        assert shmtensor.ComplexFloatStorage([1 + 2j]).float().tolist() == [1.0]
    with pytest.raises(DTypeError, match=r"complex64.*float32"):
        FloatStorage(shmtensor.ComplexFloatStorage([1 + 2j]))
    assert shmtensor.ComplexDoubleStorage([1 + 2j, 3]).tolist() == [1 + 2j, 3 + 0j]


def test_raw_copies():
    storage = IntStorage(2)
    assert storage.raw_copy_(np.array([1.0], np.float64)).tolist() == [0, 0x3FF00000]
    assert storage.raw_copy_(bytes([1, 0, 0, 0, 2, 0, 0, 0])).tolist() == [1, 2]
    assert storage.raw_copy_(FloatStorage([1, 2])).tolist() == [0x3F800000, 0x40000000]
    assert shmtensor.BoolStorage(2).raw_copy_(bytes([2, 0])).tolist() == [True, False]
    whole = shmtensor.ByteStorage(range(10))
    whole[1:9].raw_copy_(whole[0:8])
    assert whole.tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 9], "overlap is as if copied aside"
    for bad, error in ((bytes(7), InvalidArgument), (FloatStorage(1), InvalidArgument), ([1, 2], DTypeError)):
        with pytest.raises(error):
            storage.raw_copy_(bad)


# -- swap


def test_swap_exchanges_all_but_identity():
    allocator = DefaultAllocator()
    one, two = IntStorage([1, 2, 3]), IntStorage(5, allocator=allocator).fill_(7)
    two.clear_flag(Storage.RESIZABLE)
    first, second = Tensor(one), Tensor(two)
    tail = second[3:]
    addresses = one.data_ptr(), two.data_ptr()
    assert one.swap_(two) is one
    assert (one.tolist(), two.tolist()) == ([7] * 5, [1, 2, 3])
    assert (two.data_ptr(), one.data_ptr()) == addresses
    assert one.allocator is allocator
    assert not one.flags & StorageFlags.RESIZABLE
    assert two.flags & StorageFlags.RESIZABLE
    assert first.storage() is one
    assert first.tolist() == [7] * 3
    with pytest.raises(InvalidArgument, match="beyond"):
        second.tolist()
    with pytest.raises(InvalidArgument, match="beyond"):
        tail.tolist()
    one.swap_(two)
    assert (second.tolist(), tail.tolist(), first.tolist()) == ([7] * 5, [7, 7], [1, 2, 3])
    assert one.swap_(one).tolist() == [1, 2, 3]


def test_swap_of_parts_and_of_storages_with_parts():
    root, other = IntStorage(range(6)), IntStorage([50, 60])
    part = root[2:4]
    part.swap_(other)
    assert (part.tolist(), other.tolist()) == ([50, 60], [2, 3])
    assert other.flags & StorageFlags.VIEW
    assert not part.flags & StorageFlags.VIEW
    other[0] = 22
    assert root[2] == 22
    root.share_memory_()
    assert other.is_shared(), "it is the part now, and follows"
    assert not part.is_shared()
    with pytest.raises(InvalidArgument, match="shared"):
        part.swap_(root)

    root, fresh = IntStorage(range(6)), IntStorage([9])
    part = root[4:]
    root.swap_(fresh)
    assert (root.tolist(), part.tolist()) == ([9], [4, 5])
    part.share_memory_()
    assert fresh.is_shared(), "a part stays with its memory"
    assert not root.is_shared()
    for bad in (lambda: IntStorage(1).swap_(part), lambda: fresh[:1].swap_(part)):
        with pytest.raises(InvalidArgument):
            bad()
    pair = IntStorage(4)
    with pytest.raises(InvalidArgument, match="another part"):
        pair[:2].swap_(pair[2:])
    with pytest.raises(DTypeError, match=r"int32.*float32|float32.*int32"):
        pair.swap_(FloatStorage(4))
    with pytest.raises(DTypeError):
        pair.swap_([1])


# -- out


@pytest.mark.parametrize("row", EVERY_ROW)
def test_files_of_bytes(row, tmp_path):
    storage = some(row)
    path = tmp_path / "numbers"
    storage.tofile(path)
    assert path.stat().st_size == storage.nbytes
    assert content(type(storage).from_file(path)) == content(storage)
    assert content(type(storage).from_file(path, shared=True, size=2)) == content(some(row, 2))
    file = io.BytesIO()
    storage.tofile(file)
    storage[1:].tofile(file)
    assert file.getvalue() == path.read_bytes() + path.read_bytes()[row.dtype.itemsize :]
    with pytest.raises(OSError, match="absent"):
        storage.tofile(tmp_path / "absent" / "numbers")


# -- between processes and by value


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("row", EVERY_ROW)
def test_every_type_by_value(row, protocol):
    storage = some(row)
    tensor = Tensor(storage)[1:4]
    kept, view = pickle.loads(pickle.dumps((storage, tensor), protocol))
    assert content(kept) == content(storage)
    assert view.storage() is kept
    kept[1] = 0
    assert view.tolist() == [0, 0, 1]
    twin = copy.deepcopy(tensor)
    assert (twin.tolist(), twin.dtype) == (tensor.tolist(), row.dtype)
    buffers = []
    data = pickle.dumps(storage, 5, buffer_callback=buffers.append)
    assert content(pickle.loads(data, buffers=buffers)) == content(storage)
    assert row.prefix in repr(storage)


@pytest.mark.parametrize("row", EVERY_ROW)
def test_every_type_in_shared_memory(row):
    storage = some(row)
    tensor, array = Tensor(storage), storage.data()
    tensor.share_memory_()
    assert storage.is_shared()
    tensor[0] = 1
    assert (storage[0], array[0]) == (1, 0)
    made = shmtensor.zeros(3, dtype=row.dtype, shared=True)
    made[1] = 1
    assert made.storage().tolist() == [0, 1, 0]
    assert type(storage)._new_shared_filename(*storage._share_filename_()) is storage


@pytest.mark.parametrize("row", EVERY_ROW)
def test_every_type_through_pipes_and_queues(row):
    tensor = shmtensor.zeros(600, dtype=row.dtype)
    tensor[1] = 1
    storage = tensor.storage()
    array = np.zeros((30, 40), row.dtype)
    array[1] = 1
    small = array[:2, :2].copy()
    message = {"tensor": tensor, "view": tensor[1:5], "storage": storage, "arrays": [array, array.T, small]}
    left, right = mp.Pipe()
    queue = mp.Queue()
    try:
        for send, receive in ((left.send, right.recv), (queue.put, queue.get)):
            for value in (message, tensor, array):
                send(value)
            got, alone, plain = receive(), receive(), receive()
            assert got["tensor"].storage() is storage is got["storage"] is alone.storage()
            assert got["tensor"].dtype == alone.dtype == row.dtype
            got["view"][1] = 1
            assert tensor[2].item() == 1
            tensor[2] = 0
            for mine, theirs in zip([*message["arrays"], array], [*got["arrays"], plain], strict=True):
                assert (theirs.dtype, theirs.shape) == (row.dtype, mine.shape)
                assert theirs.astype(complex).tolist() == mine.astype(complex).tolist()
                theirs[0] = 1
            assert not array[0].any()
    finally:
        left.close()
        right.close()
        queue.close()


def _set_first(queue, answers):
    tensor, storage, array = queue.get()
    tensor[0] = 1
    answers.put((tensor.dtype.name, storage.tolist(), array.sum(), tensor))


@pytest.mark.parametrize("row", EVERY_ROW)
def test_every_type_to_another_process(row):
    context = mp.get_context("spawn" if row.package else "fork")
    queue, answers = context.Queue(), context.Queue()
    tensor = shmtensor.zeros(3, dtype=row.dtype)
    worker = context.Process(target=_set_first, args=(queue, answers))
    worker.start()
    queue.put((tensor, tensor.storage(), np.ones(3, row.dtype)))
    name, values, total, back = answers.get(timeout=60)
    worker.join(60)
    assert (name, values, complex(total)) == (row.name, [1, 0, 0], 3)
    assert back.storage() is tensor.storage()
    assert tensor.tolist() == [1, 0, 0]
    queue.close()
    answers.close()


# -- memory


def test_pinning_says_what_is_missing():
    storage = FloatStorage(3)
    assert not storage.is_pinned()
    if driver.status():
        with pytest.raises(DeviceUnavailable, match="no GPU can be used"):
            storage.pin_memory()


@pytest.mark.parametrize(
    "make",
    [
        lambda path: FloatStorage(4),
        lambda path: FloatStorage(5000),
        lambda path: shmtensor.zeros(4).storage(),
        lambda path: FloatStorage(4).share_memory_(),
        lambda path: shmtensor.zeros(4, shared=True).storage(),
        lambda path: FloatStorage(4, allocator=MapAllocator(path / "x", MapFlags.SHARED)),
        lambda path: FloatStorage.with_data(bytearray(16)),
        lambda path: pickle.loads(pickle.dumps(FloatStorage(4))),
    ],
)
def test_finalizers_run_when_the_memory_is_freed(make, tmp_path):
    called = []
    storage = make(tmp_path)
    storage.add_finalizer(called.append, 1)
    undone = storage.add_finalizer(called.append, 2)
    tensor = Tensor(storage)
    array = tensor.numpy()[1:]
    del storage, tensor
    gc.collect()
    assert called == [], "an array is still over it"
    undone.detach()
    del array
    gc.collect()
    assert called == [1]


def test_finalizers_and_moves():
    called = []
    storage = FloatStorage(4)
    storage.add_finalizer(called.append, "heap")
    array = storage.data()
    storage.share_memory_()
    assert called == []
    del array
    assert called == ["heap"], "what it had has been freed; what it has now is another"
    with pytest.raises(DTypeError):
        storage.add_finalizer(3)


def test_finalizers_run_at_exit():
    code = "import shmtensor; s = shmtensor.FloatStorage(3); s.add_finalizer(print, 'freed')"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["freed"]


# -- several types over one memory


def test_storages_of_several_types_on_one_block():
    complex_ = shmtensor.ComplexFloatStorage([1 + 2j, 3 + 4j]).share_memory_()
    array = complex_.data().view(np.float32)
    real = shmtensor.from_numpy(array).storage()
    assert type(real) is FloatStorage
    assert real.tolist() == [1, 2, 3, 4]
    assert real.is_shared()
    assert real is shmtensor.from_numpy(array[1:]).storage(), "one for each type"
    assert complex_ is shmtensor.from_numpy(complex_.data()).storage()
    real[0] = 9
    assert complex_[0] == 9 + 2j
    manager, handle, size = complex_._share_filename_()
    assert FloatStorage._new_shared_filename(manager, handle, 2 * size) is real


def test_a_block_that_is_no_whole_number_of_elements():
    bytes_ = shmtensor.ByteStorage(range(7)).share_memory_()
    short = shmtensor.from_numpy(bytes_.data()[:6].view(np.int16)).storage()
    assert short.size() == 3
    assert short.is_shared()
    assert short is shmtensor.from_numpy(bytes_.data()[2:4].view(np.int16)).storage()
    got = pickle.loads(bytes(mp.reduction.ForkingPickler.dumps(shmtensor.from_numpy(bytes_.data()[2:6].view("i2")))))
    assert got.storage() is short
    got[0] = 0x0101
    assert bytes_.tolist() == [0, 1, 1, 1, 4, 5, 6]
    odd = shmtensor.from_numpy(np.frombuffer(bytearray(8), "u1"))
    assert odd.share_memory_().storage().size() == 8


def test_restricting_one_type_restricts_all():
    real = FloatStorage(4).share_memory_()
    bits = shmtensor.from_numpy(real.data().view(np.int32)).storage()
    assert bits._region is real._region
    real.share_memory_(copy_on_write=True)
    with pytest.raises(LayoutError):
        bits[0] = 1
    with pytest.raises(LayoutError):
        real[0] = 1


# -- strides that go backwards


@pytest.mark.parametrize("shared", [False, True])
def test_negative_strides(shared):
    base = np.arange(24.0).reshape(4, 6)
    for key in (np.s_[::-1], np.s_[:, ::-1], np.s_[::-2, 4:0:-3], np.s_[2, ::-1], np.s_[1:1, ::-1]):
        view = base.copy()[key]
        tensor = shmtensor.from_numpy(view)
        if shared:
            tensor.share_memory_()
        assert tensor.tolist() == base[key].tolist()
        assert tensor.stride() == tuple(s // 8 for s in view.strides)
        assert (tensor.is_shared(), tensor.storage().is_shared()) == (shared, shared)
        if view.size:
            assert tensor.storage_offset() == (tensor.data_ptr() - tensor.storage().data_ptr()) // 8
            tensor[..., -1] = 5
            assert 5 in tensor.storage().tolist()
        left, right = mp.Pipe()
        for value in (tensor, [tensor, {1, 2}]):  # as it is, and in a pickle
            left.send(value)
            got = right.recv()
            got = got if got is not None and isinstance(got, Tensor) else got[0]
            assert (got.tolist(), got.stride()) == (tensor.tolist(), tensor.stride())
            assert got.storage() is tensor.storage()
        left.close()
        right.close()
        twin = pickle.loads(pickle.dumps(tensor))
        assert (twin.tolist(), twin.stride()) == (tensor.tolist(), tensor.stride())
    with pytest.raises(InvalidArgument, match="beyond"):
        Tensor._rebuild(FloatStorage(4), 1, (3,), (-1,))
    assert Tensor._rebuild(FloatStorage([1, 2, 3]), 2, (3,), (-1,)).tolist() == [3, 2, 1]
