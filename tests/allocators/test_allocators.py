"""Each allocator: the common protocol, and its own features."""

import errno
import gc
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shmtensor
from shmtensor.allocators import (
    MAX_BYTES,
    Allocator,
    DefaultAllocator,
    ManagedAllocator,
    MapAllocator,
    MapFlags,
    PoolAllocator,
    RefcountedMapAllocator,
)
from shmtensor.allocators.lease import allocate_array
from shmtensor.errors import InvalidArgument, LayoutError, MappingError, OutOfMemory, ShmTensorError, StaleHandle

ANONYMOUS = MapFlags.SHAREDMEM | MapFlags.EXCLUSIVE | MapFlags.UNLINK
MAKERS = {
    "default": DefaultAllocator,
    "map": lambda: MapAllocator(None, ANONYMOUS),
    "refcounted": lambda: RefcountedMapAllocator(None),
    "managed": ManagedAllocator,
    "pool": lambda: PoolAllocator(DefaultAllocator()),
}


@pytest.fixture(params=MAKERS)
def allocator(request):
    return MAKERS[request.param]()


@pytest.fixture
def shm_name():
    name = f"/shmtensor_test_{os.getpid()}_{os.urandom(4).hex()}"
    yield name
    assert not named(name), "the allocator left its name behind"


def named(name):
    return Path(f"/dev/shm{name}").exists()


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_meets_the_protocol(allocator):
    assert isinstance(allocator, Allocator)
    region = allocator.malloc(1000)
    with memoryview(region) as view:
        assert not view.readonly
        assert view.c_contiguous
        assert view.nbytes >= 1000
    del view
    allocator.free(region)


def test_alignment_above_5120_bytes(allocator):
    if isinstance(allocator, RefcountedMapAllocator):
        assert np.frombuffer(allocator.malloc(6000), np.uint8).ctypes.data % 64 == 0
        return
    for nbytes in (5121, 6000, 100_000):
        region = allocator.malloc(nbytes)
        array = np.frombuffer(region, np.uint8)
        assert array.ctypes.data % 64 == 0
        del array
        allocator.free(region)


@pytest.mark.parametrize("nbytes", [-1, MAX_BYTES + 1, 1.5, "8", None])
def test_refuses_impossible_sizes(allocator, nbytes):
    with pytest.raises(InvalidArgument, match="bytes"):
        allocator.malloc(nbytes)


def test_storage_on_it(allocator):
    storage = shmtensor.FloatStorage([1, 2, 3], allocator=allocator)
    assert storage.allocator is allocator
    assert storage.tolist() == [1, 2, 3]
    view = np.asarray(storage)
    del storage
    gc.collect()
    assert view.tolist() == [1, 2, 3]


@pytest.mark.parametrize("kind", sorted(set(MAKERS) - {"managed"}))
def test_stats_follow_what_is_out(kind):
    allocator = MAKERS[kind]()
    before = allocator.stats()
    assert before.blocks == before.bytes == 0
    storage = shmtensor.ByteStorage(100, allocator=allocator)
    array = np.asarray(storage)
    del storage
    assert allocator.stats().blocks == 1, "an array over the memory keeps it"
    del array
    gc.collect()
    after = allocator.stats()
    assert (after.blocks, after.bytes, after.total_blocks) == (0, 0, 1)
    assert after.peak_bytes >= 100
    with pytest.raises(AttributeError):
        after.blocks = 3


# -- default


def test_default_gives_nothing_for_nothing():
    assert len(DefaultAllocator().malloc(0)) == 0


def test_default_realloc_keeps_what_fits():
    allocator = DefaultAllocator()
    region = allocator.malloc(10)
    region[:] = range(10)
    assert list(allocator.realloc(region, 5)) == [0, 1, 2, 3, 4]
    assert allocator.stats().blocks == 1


def test_default_out_of_memory_names_the_size():
    with pytest.raises(OutOfMemory, match=str(MAX_BYTES)) as caught:
        DefaultAllocator().malloc(MAX_BYTES)
    assert isinstance(caught.value, MemoryError)
    assert "available" in str(caught.value)


# -- managed


def test_managed_gives_blocks_that_free_themselves():
    allocator = ManagedAllocator()
    held = allocator.stats().blocks
    region = allocator.malloc(0)
    assert region.nbytes == 1
    assert allocator.stats().blocks == held + 1
    allocator.free(region)
    del region
    assert allocator.stats().blocks == held


def test_managed_and_mapped_do_not_resize():
    for allocator in (ManagedAllocator(), MapAllocator(None, ANONYMOUS), RefcountedMapAllocator(None)):
        region = allocator.malloc(64)
        with pytest.raises(InvalidArgument, match="size"):
            allocator.realloc(region, 128)
        allocator.free(region)


# -- map


@pytest.mark.parametrize(
    ("context", "flags"),
    [
        (None, 0),
        (None, MapFlags.SHAREDMEM | MapFlags.NOCREATE),
        ("x", MapFlags.SHARED | MapFlags.EXCLUSIVE | MapFlags.NOCREATE),
        ("x", MapFlags.EXCLUSIVE),
        ("x", MapFlags.FROMFD),
        (3, MapFlags.SHARED),
        ("x", 1 << 12),
    ],
)
def test_map_refuses_contradictions(context, flags):
    with pytest.raises(InvalidArgument):
        MapAllocator(context, flags)


def test_map_shared_file_is_created_grown_and_written(tmp_path):
    path = tmp_path / "data"
    allocator = MapAllocator(path, MapFlags.SHARED)
    region = allocator.malloc(100)
    assert path.stat().st_size == 100
    region[:3] = b"abc"
    assert path.read_bytes()[:3] == b"abc"
    allocator.free(region)
    assert path.exists()
    grown = allocator.malloc(5000)
    assert path.stat().st_size == 5000
    assert path.stat().st_blocks * 512 >= 5000, "pages are reserved, not only sized"
    allocator.free(grown)


def test_map_private_file_keeps_its_writes(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"x" * 64)
    path.chmod(0o400)
    allocator = MapAllocator(path, 0)
    assert not allocator.shared
    region = allocator.malloc(0)
    assert len(region) == 64
    region[:1] = b"y"
    assert path.read_bytes()[:1] == b"x"
    with pytest.raises(InvalidArgument, match=r"65 bytes.*64"):
        allocator.malloc(65)
    allocator.free(region)


def test_map_missing_file_and_existing_file(tmp_path):
    with pytest.raises(MappingError, match="absent") as caught:
        MapAllocator(tmp_path / "absent", 0).malloc(8)
    assert caught.value.errno == errno.ENOENT
    assert isinstance(caught.value, OSError)
    with pytest.raises(MappingError, match="absent"):
        MapAllocator(tmp_path / "absent", MapFlags.SHARED | MapFlags.NOCREATE).malloc(8)
    (tmp_path / "present").write_bytes(b"12345678")
    with pytest.raises(MappingError) as caught:
        MapAllocator(tmp_path / "present", MapFlags.SHARED | MapFlags.EXCLUSIVE).malloc(8)
    assert caught.value.errno == errno.EEXIST
    assert (tmp_path / "present").read_bytes() == b"12345678"
    with pytest.raises(InvalidArgument, match="empty"):
        (tmp_path / "empty").touch()
        MapAllocator(tmp_path / "empty", 0).malloc(0)
    with pytest.raises(ShmTensorError):
        MapAllocator(tmp_path, 0).malloc(8)
    with pytest.raises(InvalidArgument):
        MapAllocator("a\0b", 0).malloc(8)
    with pytest.raises(MappingError):
        MapAllocator("", MapFlags.SHARED).malloc(8)
    os.mkfifo(tmp_path / "pipe")
    for flags in (0, MapFlags.SHARED):  # without waiting for its other end
        with pytest.raises(InvalidArgument, match="regular file"):
            MapAllocator(tmp_path / "pipe", flags).malloc(8)
    for name in ("", "/", ".", "/.", "/..", "/a/b", "a", "/" + "x" * 255, "/a\0"):
        with pytest.raises(InvalidArgument, match="name of shared memory"):
            MapAllocator(name, MapFlags.SHAREDMEM)
    with pytest.raises(InvalidArgument, match="path"):
        MapAllocator([], 0)


def test_map_full_file_system_is_an_exception_and_leaves_nothing(tmp_path):
    path = tmp_path / "huge"
    with pytest.raises(OutOfMemory, match="huge"):
        MapAllocator(path, MapFlags.SHARED).malloc(1 << 46)
    assert not path.exists()
    path.write_bytes(b"precious")
    with pytest.raises(OutOfMemory):
        MapAllocator(path, MapFlags.SHARED).malloc(1 << 46)
    assert path.read_bytes() == b"precious"


def test_map_more_than_memory_is_an_exception(shm_name):
    for context, flags in ((shm_name, 0), (None, MapFlags.UNLINK)):
        with pytest.raises(OutOfMemory, match=str(1 << 44)):
            MapAllocator(context, MapFlags.SHAREDMEM | flags).malloc(1 << 44)
    assert not named(shm_name)


def test_map_shared_memory_by_name(shm_name):
    creator = MapAllocator(shm_name, MapFlags.SHAREDMEM | MapFlags.EXCLUSIVE)
    region = creator.malloc(100)
    opener = MapAllocator(shm_name, MapFlags.SHAREDMEM | MapFlags.NOCREATE)
    other = opener.malloc(100)
    other[:2] = b"hi"
    assert region[:2] == b"hi"
    opener.free(other)
    assert named(shm_name), "only its creator removes a name"
    with pytest.raises(MappingError):
        creator.malloc(100)
    creator.free(region)


def test_map_name_goes_with_a_dropped_region(shm_name):
    region = MapAllocator(shm_name, MapFlags.SHAREDMEM).malloc(10)
    assert named(shm_name)
    del region
    gc.collect()


def test_map_name_goes_at_exit_but_not_with_a_forked_child(shm_name):
    code = f"""
import os
from shmtensor.allocators import MapAllocator, MapFlags
kept = MapAllocator({shm_name!r}, MapFlags.SHAREDMEM).malloc(10)
pid = os.fork()
if pid == 0:
    raise SystemExit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert os.path.exists('/dev/shm{shm_name}')
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_map_unlink_takes_the_name_at_once(shm_name):
    allocator = MapAllocator(shm_name, MapFlags.SHAREDMEM | MapFlags.UNLINK)
    region = allocator.malloc(10)
    assert not named(shm_name)
    region[0] = 7
    allocator.free(region)


def test_map_descriptor_is_duplicated_and_kept_on_request():
    before = descriptors()
    owner = MapAllocator(None, ANONYMOUS | MapFlags.KEEPFD)
    region = owner.malloc(100)
    assert os.fstat(region.fd).st_size == 100
    opener = MapAllocator(region.fd, MapFlags.SHAREDMEM | MapFlags.FROMFD)
    other = opener.malloc(100)
    assert other.fd == -1
    other[5] = 9
    assert region[5] == 9
    with pytest.raises(InvalidArgument, match=r"101 bytes.*100"):
        opener.malloc(101)
    opener.free(other)
    owner.free(region)
    assert region.fd == -1
    del region, other
    gc.collect()
    assert descriptors() == before
    with pytest.raises(MappingError):
        MapAllocator(10**6, MapFlags.SHAREDMEM | MapFlags.FROMFD).malloc(1)
    with pytest.raises(ShmTensorError):
        MapAllocator(-1, MapFlags.SHAREDMEM | MapFlags.FROMFD).malloc(1)


def test_map_anonymous_memory_cannot_be_cut_under_its_users():
    region = MapAllocator(None, ANONYMOUS | MapFlags.KEEPFD).malloc(mmap.PAGESIZE)
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(region.fd, 0)


def test_map_free_under_a_view_leaves_the_view():
    allocator = MapAllocator(None, ANONYMOUS)
    region = allocator.malloc(100)
    array = np.frombuffer(region, np.uint8)
    array[:] = 5
    allocator.free(region)
    del region
    assert array.sum() == 500


# -- refcounted map


def test_refcounted_name_goes_with_the_last(shm_name):
    creator = RefcountedMapAllocator(shm_name, MapFlags.SHAREDMEM | MapFlags.EXCLUSIVE)
    opener = RefcountedMapAllocator(shm_name, MapFlags.SHAREDMEM | MapFlags.NOCREATE)
    first = creator.malloc(100)
    second = opener.malloc(0)
    assert len(second) == 100
    first[0] = 42
    assert second[0] == 42
    assert opener.incref(second) == 3
    assert opener.decref(second) == 2
    creator.free(first)
    assert named(shm_name)
    with pytest.raises(InvalidArgument, match="free the region"):
        opener.decref(second)
    opener.free(second)
    with pytest.raises(MappingError):
        opener.malloc(100)
    with pytest.raises(InvalidArgument):
        opener.incref(second)


def test_refcounted_count_across_processes(shm_name):
    allocator = RefcountedMapAllocator(shm_name)
    region = allocator.malloc(8)
    code = f"""
from shmtensor.allocators import RefcountedMapAllocator, MapFlags
a = RefcountedMapAllocator({shm_name!r}, MapFlags.SHAREDMEM | MapFlags.NOCREATE)
for _ in range(50):
    r = a.malloc(8); a.incref(r); a.decref(r); a.free(r)
r = a.malloc(8); r[0] += 1
"""
    children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert allocator.incref(region) == 2
    allocator.decref(region)
    allocator.free(region)


def test_refcounted_refuses_what_nobody_uses(shm_name):
    dead = MapAllocator(shm_name, MapFlags.SHAREDMEM)
    region = dead.malloc(128)
    with pytest.raises(StaleHandle):
        RefcountedMapAllocator(shm_name, MapFlags.SHAREDMEM | MapFlags.NOCREATE).malloc(0)
    dead.free(region)
    for flags in (MapFlags.SHAREDMEM | MapFlags.UNLINK, MapFlags(0)):
        with pytest.raises(InvalidArgument):
            RefcountedMapAllocator("/x", flags)


# -- pool


def test_pool_reuses_best_fit():
    inner = DefaultAllocator()
    pool = PoolAllocator(inner)
    small, large = pool.malloc(1000), pool.malloc(1900)
    pool.free(small)
    pool.free(large)
    assert pool.stats().kept_blocks == 2
    assert pool.malloc(900) is small
    assert pool.malloc(1000) is large
    assert len(pool.malloc(100)) == 100, "ten times the size is no fit"
    assert inner.stats().total_blocks == 3


def test_pool_is_bounded_and_can_be_emptied():
    inner = DefaultAllocator()
    pool = PoolAllocator(inner, max_kept_bytes=1000)
    for region in [pool.malloc(400) for _ in range(4)]:
        pool.free(region)
    stats = pool.stats()
    assert (stats.kept_blocks, stats.kept_bytes, stats.blocks) == (2, 800, 0)
    assert pool.empty_cache() == 800
    assert inner.stats().blocks == 0


def test_pool_does_not_reuse_under_a_view():
    pool = PoolAllocator(DefaultAllocator())
    storage = shmtensor.IntStorage([1, 2, 3], allocator=pool)
    array = np.asarray(storage)
    del storage
    other = shmtensor.IntStorage([7, 8, 9], allocator=pool)
    assert array.tolist() == [1, 2, 3]
    assert other.tolist() == [7, 8, 9]


def test_pool_refuses_double_free_and_shared_memory():
    pool = PoolAllocator(DefaultAllocator())
    region = pool.malloc(10)
    pool.free(region)
    with pytest.raises(InvalidArgument, match="once"):
        pool.free(region)
    for inner in (ManagedAllocator(), MapAllocator(None, ANONYMOUS)):
        with pytest.raises(InvalidArgument, match="pool"):
            PoolAllocator(inner)


def test_pool_realloc_keeps_the_content():
    pool = PoolAllocator(DefaultAllocator())
    region = pool.malloc(4)
    region[:] = [1, 2, 3, 4]
    assert list(pool.realloc(region, 8)[:4]) == [1, 2, 3, 4]


# -- a user's own


class Mine:
    name = "mine"
    context = None

    def __init__(self, make=bytearray):
        self.make = make
        self.out = 0

    def malloc(self, nbytes):
        self.out += 1
        return self.make(nbytes)

    def realloc(self, region, nbytes):
        raise NotImplementedError

    def free(self, region):
        self.out -= 1

    def stats(self):
        return None


def test_own_allocator_is_asked_and_given_back():
    mine = Mine()
    storage = shmtensor.DoubleStorage(10, allocator=mine).fill_(2)
    tensor = shmtensor.Tensor(storage)
    array = tensor.numpy()[3:]
    del storage, tensor
    gc.collect()
    assert mine.out == 1
    assert array.tolist() == [2.0] * 7
    del array
    gc.collect()
    assert mine.out == 0


def released(nbytes):
    view = memoryview(bytearray(nbytes))
    view.release()
    return view


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda n: bytearray(n - 1), InvalidArgument, "returned 7"),
        (bytes, LayoutError, "read-only"),
        (lambda n: None, InvalidArgument, "buffer protocol"),
        (released, InvalidArgument, "buffer protocol"),
        (lambda n: np.zeros(2 * n, np.uint8)[::2], InvalidArgument, "contiguous"),
        (lambda n: np.zeros(n + 8, np.uint8)[1:], InvalidArgument, "align"),
    ],
)
def test_own_allocator_that_errs_is_named(make, error, says):
    mine = Mine(make)
    with pytest.raises(error, match=says):
        allocate_array(mine, 8)
    assert mine.out <= 1
