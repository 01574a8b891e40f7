"""Plain pickles of shared tensors: by value, or by handle if the program chooses so.

multiprocessing's pickler always writes handles (`reductions`). Plain pickle, which joblib, Dask and cloudpickle use,
copies the values, because a pickle may be stored in a file or read on another machine. A program whose pickles are
loaded on the same machine can choose handles.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal, TypeAlias, get_args

from ..allocators.managed import manager_of
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
    """Choose how plain pickle writes shared tensors inside a `with` block. Does not block.

    The choice is for this thread or asyncio task and overrides `set_pickling`. A library that pickles in a thread of
    its own (joblib, `concurrent.futures`) is affected only by `set_pickling`.

    A handle holds the memory until it is loaded for the first time, as a message in flight does. `shmtensor-manager ls`
    shows handles that were not loaded, and `shmtensor-manager gc --in-flight` releases them. A handle that is loaded
    again works as long as the memory exists. Memory that is not the manager's is pickled by value. copy and deepcopy
    always copy values.

    Args:
        how: "handle" or "value".

    Raises:
        InvalidArgument: `how` is something else.
    """
    token = _context.set(_checked(how))
    try:
        yield
    finally:
        _context.reset(token)


def set_pickling(how: How) -> None:
    """Choose how plain pickle writes shared tensors in this process and its forked children. Does not block.

    The default is "value". See `pickling`. Raises InvalidArgument if `how` is neither "handle" nor "value".
    """
    global _process
    _process = _checked(how)


def _checked(how: How) -> How:
    if how not in get_args(How):
        raise InvalidArgument(f"pickling must be by 'handle' or 'value', not {how!r}")
    storage.plain_reducer = _reduce
    return how


def _reduce(shared: Storage) -> tuple[Any, ...] | None:
    """Reduce a storage to a handle with a ticket; None: by value."""
    if (_context.get() or _process) != "handle":
        return None
    block, kind = shared_block(shared._region)
    if block is None:
        return None
    manager = manager_of(block)
    name = (block.segment, block.index, block.generation, *manager.ticket(block))
    group = manager.native.group.group_id
    return open_handle, (manager.address, group, name, shared.dtype.name, shared.size(), RECEIVED[kind])


def open_handle(
    where: bytes, group: int, name: tuple[int, int, int, int, int], dtype: str, size: int, kind: int
) -> Storage:
    """Open the storage behind a handle in a plain pickle. Any process of this user on this machine can open it.

    Blocks for requests to the manager if this process is not in its group yet.

    Raises:
        SegmentLost: no manager answers at the address.
        StaleHandle: the manager there has another group, or the memory has been freed.
        InvalidArgument, ManagerError, OutOfMemory: as `reductions.rebuild_storage`.
    """
    try:
        manager = client.at(where)
    except ManagerUnavailable as error:
        raise SegmentLost(
            f"cannot open a tensor of {size} {dtype} elements that was pickled by handle: its manager at "
            f"{os.fsdecode(where)} has ended, or belongs to another machine, container or user, for which tensors must "
            f"be pickled by value ({error})"
        ) from error
    if manager.native.group.group_id != group:
        raise StaleHandle(
            f"cannot open a tensor of {size} {dtype} elements that was pickled by handle: the manager at "
            f"{os.fsdecode(where)} has another group; the tensor's manager has ended, or is on another machine, for "
            "which tensors must be pickled by value"
        )
    return rebuild_storage((where, name), dtype, size, kind)
