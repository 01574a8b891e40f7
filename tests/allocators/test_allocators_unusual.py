"""Allocators at the limits of their process, and on memory that others have made."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
from pathlib import Path
from typing import Any

import pytest
from refusing import limited

from shmtensor.allocators import MapAllocator, MapFlags, PoolAllocator, RefcountedMapAllocator
from shmtensor.errors import InvalidArgument, MappingError, OutOfMemory


class Small:
    """An allocator of 100 bytes."""

    name = "small"

    def __init__(self) -> None:
        self.left = 100

    def malloc(self, nbytes: int) -> bytearray:
        if nbytes > self.left:
            raise OutOfMemory(f"{self.left} of 100 bytes are left")
        self.left -= nbytes
        return bytearray(nbytes)

    def free(self, region: bytearray) -> None:
        self.left += len(region)


def test_a_pool_gives_back_what_it_keeps_before_memory_runs_out() -> None:
    inner: Any = Small()
    pool = PoolAllocator(inner)
    pool.free(pool.malloc(60))
    assert inner.left == 40  # the pool keeps them
    region = pool.malloc(80)
    assert len(memoryview(region)) == 80 and inner.left == 20
    with pytest.raises(OutOfMemory, match="20 of 100 bytes are left"):
        pool.malloc(81)
    pool.free(region)


@pytest.mark.parametrize("nbytes", [0, 30])
def test_a_pool_keeps_nothing_that_is_empty_or_above_its_limit(nbytes: int) -> None:
    inner: Any = Small()
    pool = PoolAllocator(inner, max_kept_bytes=20)
    region = pool.malloc(nbytes)
    assert inner.left == 100 - nbytes
    pool.free(region)
    assert inner.left == 100


def test_a_file_that_no_refcounted_allocator_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    with pytest.raises(InvalidArgument, match="has 3 bytes, less than the prefix of 64; open memory that a refcounted"):
        RefcountedMapAllocator(str(tmp_path / "file"), MapFlags.SHARED).malloc(0)
    assert (tmp_path / "file").read_bytes() == b"abc"


def test_a_file_larger_than_addresses() -> None:
    descriptor = os.memfd_create("large")
    try:
        os.ftruncate(descriptor, 2**60)
        allocator = MapAllocator(descriptor, MapFlags.SHARED | MapFlags.NOCREATE | MapFlags.FROMFD | MapFlags.READONLY)
        with pytest.raises(OutOfMemory, match=rf"mapping {2**60} bytes of .*: Cannot allocate memory; free mappings"):
            allocator.malloc(0)
    finally:
        os.close(descriptor)


def test_memory_that_is_sealed() -> None:
    descriptor = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, 10)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
        with pytest.raises(MappingError, match=r"growing .* from 10 to 100 bytes: Operation not permitted") as caught:
            MapAllocator(f"/proc/self/fd/{descriptor}", MapFlags.SHARED).malloc(100)
        assert caught.value.errno == errno.EPERM
    finally:
        os.close(descriptor)


def test_without_descriptors_there_is_no_anonymous_memory() -> None:
    allocator = MapAllocator(None, MapFlags.SHAREDMEM | MapFlags.UNLINK)
    with (
        limited(resource.RLIMIT_NOFILE, 3),
        pytest.raises(MappingError, match="making anonymous memory: Too many open files") as caught,
    ):
        allocator.malloc(100)
    assert caught.value.errno == errno.EMFILE
    assert len(memoryview(allocator.malloc(100))) == 100
