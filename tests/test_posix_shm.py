"""POSIX shared-memory objects: created once, opened by name, removed; names and links that are refused."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmtensor.posix_shm import open_shm, unlink_shm


@pytest.fixture
def name() -> Iterator[str]:
    name = f"/torch_{os.getpid()}_posix_shm"
    yield name
    Path("/dev/shm" + name).unlink(missing_ok=True)


def test_an_object_is_created_once_and_opened_by_name(name: str) -> None:
    created = open_shm(name, os.O_CREAT | os.O_EXCL)
    opened = open_shm(name)
    os.write(created, b"content")
    assert os.read(opened, 100) == b"content" and not os.get_inheritable(created)
    assert os.fstat(created).st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        open_shm(name, os.O_CREAT | os.O_EXCL)
    unlink_shm(name)
    assert os.pread(opened, 100, 0) == b"content"  # memory outlives its name
    for fd in (created, opened):
        os.close(fd)
    with pytest.raises(FileNotFoundError):
        open_shm(name)
    with pytest.raises(FileNotFoundError):
        unlink_shm(name)


def test_a_link_is_not_followed(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    Path("/dev/shm" + name).symlink_to(tmp_path / "file")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        open_shm(name)


@pytest.mark.parametrize("bad", ["", "torch_1_2", "/a/b", "/../etc", "//a"])
def test_other_paths_are_refused(bad: str) -> None:
    for function in (open_shm, unlink_shm):
        with pytest.raises(ValueError, match="is not a name of a shared-memory object"):
            function(bad)
    with pytest.raises(ValueError, match="null"):
        open_shm("/a\0b")
