"""How plain pickle writes shared tensors: by value, or by handle where the program says so.

multiprocessing's own pickler always writes handles (`reductions`). Libraries with a pickler of their own (joblib, Dask,
cloudpickle) copy every byte, since a pickle may be kept in a file or read on another machine. A program that knows
better says so here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal, TypeAlias, get_args

from ..allocators.managed import manager_of
from ..dtypes import BY_DTYPE
from ..errors import InvalidArgument, ManagerUnavailable, SegmentLost, StaleHandle
from ..manager import client
from ..storage import Storage, storage
from ..storage.regions import RECEIVED, shared_block
from .reductions import rebuild_storage

How: TypeAlias = Literal["handle", "value"]

_process: How = "value"
_context: Final[ContextVar[How | None]] = ContextVar("shmtensor.pickling", default=None)


@contextmanager
def pickling(how: How) -> Iterator[None]:
    """Have plain pickle write shared tensors by handle, or by value, in a `with` block. Does not block.

    It is said of this thread or asyncio task, and goes before what `set_pickling` says of the process. A library that
    pickles in a thread of its own (joblib, `concurrent.futures`) sees the latter alone.

    A handle holds the memory until it is loaded once, as a message in flight does. One that is never loaded shows in
    `shmtensor-manager ls`, and ends with `shmtensor-manager gc --in-flight`. Loaded again, it attaches while the memory
    lives. What is not in the manager's memory goes by value, and copy and deepcopy always do.

    Args:
        how: "handle" or "value".

    Raises:
        InvalidArgument: another word.
    """
    token = _context.set(_checked(how))
    try:
        yield
    finally:
        _context.reset(token)


def set_pickling(how: How) -> None:
    """As `pickling`, for all threads of this process and those it forks from now on; "value" is how a process begins.

    Does not block. Raises InvalidArgument: another word.
    """
    global _process
    _process = _checked(how)


def _checked(how: How) -> How:
    if how not in get_args(How):
        raise InvalidArgument(f"asked to pickle by {how!r}; tensors are pickled by 'handle' or by 'value'")
    storage.plain_reducer = _reduce
    return how


def _reduce(shared: Storage) -> tuple[Any, ...] | None:
    """A storage by handle, with a ticket; None: by value."""
    if (_context.get() or _process) != "handle":
        return None
    block, kind = shared_block(shared._region)
    if block is None:
        return None
    manager = manager_of(block)
    name = (block.segment, block.index, block.generation, *manager.ticket(block))
    group = manager.native.group.group_id
    return open_handle, (manager.address, group, name, BY_DTYPE[shared.dtype].name, shared.size(), RECEIVED[kind])


def open_handle(
    where: bytes, group: int, name: tuple[int, int, int, int, int], dtype: str, size: int, kind: int
) -> Storage:
    """The storage that a handle in a plain pickle names; any process of this user on this machine may open it.

    Blocks for some requests to the manager where this process is not in its group yet.

    Raises:
        SegmentLost: nothing answers at the manager's address.
        StaleHandle: what answers is of another group, or the memory has been freed.
        InvalidArgument, ManagerError, OutOfMemory: as `reductions.rebuild_storage`.
    """
    try:
        manager = client.at(where)
    except ManagerUnavailable as error:
        raise SegmentLost(
            f"a tensor of {size} {dtype} elements was pickled by handle, and its manager at {os.fsdecode(where)} "
            "cannot be reached: it has ended, or is on another machine, in another container or another user's; pickle "
            f"by value for those ({error})"
        ) from error
    if manager.native.group.group_id != group:
        raise StaleHandle(
            f"a tensor of {size} {dtype} elements was pickled by handle, and the manager at {os.fsdecode(where)} is of "
            "another group: the one that had the tensor has ended, or is on another machine; pickle by value for those"
        )
    return rebuild_storage(where, name, dtype, size, kind)
