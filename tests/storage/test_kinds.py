"""The properties of a storage: type, device, bytes; and conversions to other kinds."""

import copy
import gc
import multiprocessing
import os
import pickle

import numpy as np
import pytest
from element_types import EVERY_ROW

import shmtensor
from shmtensor import ByteStorage, FloatStorage, IntStorage, Storage, StorageFlags, Tensor
from shmtensor import multiprocessing as mp
from shmtensor.errors import DeviceUnavailable, DTypeError, InvalidArgument
from shmtensor.storage import STORAGE_CLASSES


def test_new_makes_one_of_its_class():
    storage = IntStorage([1, 2])
    assert type(storage.new()) is type(storage.new(3)) is type(storage.new([1.0])) is IntStorage
    assert (storage.new().size(), storage.new(3).size(), storage.new([5, 6]).tolist()) == (0, 3, [5, 6])
    assert storage.new(storage).data_ptr() != storage.data_ptr()


@pytest.mark.parametrize("row", EVERY_ROW)
def test_type_is_a_name_or_a_conversion(row):
    storage = STORAGE_CLASSES[row.dtype]([0, 1])
    name = f"shmtensor.{row.prefix}Storage"
    assert storage.type() == name
    assert storage.type(row.dtype) is storage.type(type(storage)) is storage.type(name) is storage
    for spec in (name, name.replace("shmtensor", "torch"), f"{row.prefix}Storage", type(storage), row.name):
        made = FloatStorage([0, 1]).type(spec)
        assert (made.dtype, made.tolist()) == (row.dtype, [0, 1]), spec
    assert FloatStorage([1]).type(Storage).type() == "shmtensor.FloatStorage"


@pytest.mark.parametrize("spec", ["shmtensor.NoStorage", "numpy.FloatStorage", "FloatTensor", object, 3])
def test_types_that_are_none(spec):
    with pytest.raises(DTypeError):
        FloatStorage(1).type(spec)


def test_storages_are_on_the_cpu():
    storage = FloatStorage([1.0])
    assert (str(storage.device), storage.is_cuda, storage.get_device()) == ("cpu", False, -1)
    assert storage.cpu() is storage
    with pytest.raises(DeviceUnavailable, match="no GPU can be used"):
        storage.cuda()
    assert storage.resizable()
    assert not storage.share_memory_().resizable()


def test_nbytes_may_be_called():
    storage = shmtensor.DoubleStorage(3)
    assert storage.nbytes == storage.nbytes() == 24
    assert type(storage.nbytes()) is type(pickle.loads(pickle.dumps(storage.nbytes))) is int


def test_is_storage_and_typename():
    storage, tensor = IntStorage(1), shmtensor.zeros(2)
    assert [shmtensor.is_storage(one) for one in (storage, storage[:], storage.untyped(), tensor, [1])] == [
        True, True, True, False, False
    ]  # fmt: skip
    assert shmtensor.typename(tensor) == tensor.type() == "shmtensor.FloatTensor"
    assert shmtensor.typename(storage) == "shmtensor.storage.IntStorage"


# -- bytes


@pytest.mark.parametrize("row", EVERY_ROW)
def test_untyped_is_the_same_memory(row):
    storage = STORAGE_CLASSES[row.dtype]([0, 1, 1])
    raw = storage.untyped()
    assert (type(raw), raw.size(), raw.data_ptr()) == (ByteStorage, storage.nbytes, storage.data_ptr())
    assert bytes(raw.tolist()) == storage.data().tobytes()
    assert raw is storage.untyped()
    assert raw is raw.untyped() is Tensor(storage).untyped_storage()
    raw.fill_(0)
    assert storage.tolist() == [0, 0, 0]


def test_untyped_moves_with_its_storage():
    for move in (lambda storage, raw: storage.share_memory_(), lambda storage, raw: raw.share_memory_()):
        storage = IntStorage([1, 2, 3])
        raw, tensor = storage.untyped(), Tensor(storage)
        second = raw[4:8]
        move(storage, raw)
        assert storage.is_shared()
        assert raw.is_shared()
        second[0] = 9
        assert tensor.tolist() == [1, 9, 3]
        assert raw.data_ptr() == storage.data_ptr() == second.data_ptr() - 4
    storage = IntStorage([1, 2, 3])
    raw = storage.untyped()
    storage.resize_(5)
    assert raw.tolist()[:4] == [1, 0, 0, 0]
    with pytest.raises(InvalidArgument, match="element 3"):
        storage.resize_(2)
    del raw
    gc.collect()
    assert storage.resize_(2).tolist() == [1, 2]


def test_untyped_of_a_part():
    storage = IntStorage([1, 2, 3])
    raw = storage[1:].untyped()
    assert raw.data_ptr() == storage.data_ptr() + 4
    assert raw.tolist() == [2, 0, 0, 0, 3, 0, 0, 0]
    assert raw.flags & StorageFlags.VIEW
    assert raw is not storage.untyped()
    first = storage[:2].untyped()
    assert first is not raw
    assert first.tolist() == [1, 0, 0, 0, 2, 0, 0, 0], "of as many bytes, but others"
    for error in (raw._share_fd_, raw._share_filename_):
        with pytest.raises(InvalidArgument, match="part"):
            error()


@pytest.mark.parametrize("protocol", [2, 5])
def test_untyped_by_value(protocol):
    storage = IntStorage([1, 258])
    raw = storage.untyped()
    both, view, piece = pickle.loads(pickle.dumps((storage, raw, raw[4:6]), protocol))
    assert (type(view), view.tolist(), piece.tolist()) == (ByteStorage, [1, 0, 0, 0, 2, 1, 0, 0], [2, 1])
    both[0] = 7
    assert view[0] == 7
    piece[1] = 0
    assert both.tolist() == [7, 2]
    copied, twin = copy.deepcopy((storage, raw))
    twin[0] = 9
    assert copied.tolist() == [9, 258]
    alone = copy.deepcopy(raw)
    alone[0] = 5
    assert raw[0] == 1


def test_a_forged_part_is_refused():
    rebuild, (root, _, _, name) = IntStorage([1, 2]).untyped().__reduce_ex__(5)
    assert rebuild(root, 4, 4, name).tolist() == [2, 0, 0, 0]
    for first, size in ((-1, 4), (4, 5), (0, -1), (9, 0)):
        with pytest.raises(InvalidArgument, match="are not in"):
            rebuild(root, first, size, name)


def _double(queue, back):
    raw = queue.get(timeout=60)
    raw[0] = 2 * raw[0]
    back.put((type(raw).__name__, raw.tolist()))


def test_untyped_goes_to_another_process():
    queue, back = mp.Queue(), mp.Queue()
    storage = IntStorage([3, 0])
    worker = mp.Process(target=_double, args=(queue, back))
    worker.start()
    queue.put(storage.untyped())
    assert back.get(timeout=60) == ("ByteStorage", [6, 0, 0, 0, 0, 0, 0, 0])
    worker.join(60)
    assert storage.tolist() == [6, 0]
    queue.close()
    back.close()


def test_untyped_has_the_handles_of_its_storage():
    named = IntStorage([1, 2])
    manager, handle, size = named.untyped()._share_filename_()
    assert named._share_filename_cpu_() == (manager, handle, 2)
    assert size == 8
    raw = ByteStorage._new_shared_filename_cpu(manager, handle, 8)
    raw[4] = 5
    assert named.tolist() == [1, 5]

    storage = IntStorage([1, 2])
    tensor = Tensor(storage)
    fd, size = storage.untyped()._share_fd_()
    assert (fd, size) == (storage._share_fd_cpu_()[0], 8)
    other = IntStorage._new_shared_fd_cpu(fd, 2)
    other[1] = 7
    assert tensor.tolist() == storage.tolist() == [1, 7]
    assert ByteStorage._new_shared_fd(fd, size).tolist() == [1, 0, 0, 0, 7, 0, 0, 0]
    assert storage[:]._share_fd_() == (fd, 2), "all of it, whatever it is called"


def _read(fd, size, answer):
    answer.send(IntStorage._new_shared_fd(fd, size).tolist())


def test_a_descriptor_opens_in_a_child():
    storage = IntStorage([4, 5])
    fd, size = storage._share_fd_()
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_read, args=(fd, size, there))
    child.start()
    assert here.recv() == [4, 5]
    child.join(60)
    assert os.fstat(fd).st_size >= 8


def test_tensors_over_bytes():
    storage = IntStorage([1, 2, 3])
    raw = Tensor._construct((storage.untyped(),), None)
    assert raw.dtype == shmtensor.uint8
    raw[4:8].view(shmtensor.int32)[0] = 50
    assert storage.tolist() == [1, 50, 3]
    loaded = pickle.loads(pickle.dumps(raw[4:8]))
    assert loaded.tolist() == [50, 0, 0, 0]
    assert np.asarray(loaded.storage()).tolist() == [1, 50, 3]


def test_parts_that_are_gone_are_forgotten():
    storage = FloatStorage(8)
    kept = [storage[i:] for i in range(5)]
    for _ in range(1000):
        storage[1:]
    assert len(storage._views) <= 16
    storage.resize_(9)[4] = 7
    assert [part.tolist()[4 - i] for i, part in enumerate(kept)] == [7] * 5
