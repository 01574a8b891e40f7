"""`StoreMapping`: the results of a Dask worker in a `shmtensor.Store`."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ..._tensor.core import Tensor
from ...errors import DTypeError, OutOfMemory
from ...store import Store

Key: TypeAlias = Any  # a key of Dask: str, int, float, or a tuple of these

_DEPTH: Final = 32  # maximum depth of nested containers in a store
_FOLDER: Final = "shmtensor-store"

_log = logging.getLogger(__name__)


class Spilled(NamedTuple):
    """Bytes of results in files, in Dask's form: bytes saved in memory, and bytes of the files."""

    memory: int
    disk: int


class StoreMapping(MutableMapping[Key, Any]):
    """The results that a Dask worker has computed or received, for `distributed.Worker(data=...)`.

    Tensors and ndarrays, and tuples, lists and dicts with these, are in an unnamed `shmtensor.Store` of this worker:
    they are copied there once. Values that a store does not accept (any other objects; tensors that require gradients;
    numbers without an array) are in an additional dict. Values read from the store are read-only views of its memory,
    without a copy: a task must not write to its inputs, as Dask requires anyway.

    With `max_bytes`, the least recently used results are written to files; none is removed. A result for which the
    store still has no room stays in private memory, with a warning. When the worker ends or is killed, its store ends,
    and the manager frees the memory. Dask removes the files with the worker's directory.

    Use it from one process: `Worker(data=StoreMapping())` or, if workers are separate processes,
    `LocalCluster(data=(StoreMapping, {"max_bytes": "4G"}))`.
    """

    def __init__(self, max_bytes: int | str | None = None, worker_local_directory: str | None = None) -> None:
        """Create an empty store. Blocks until a manager has been found or started.

        Args:
            max_bytes: maximum bytes of results in shared memory, as a number or as "4G"; None: no limit, and no files.
            worker_local_directory: parent of the directory of the files; Dask passes the worker's own. None: no files.

        Raises:
            InvalidArgument: a malformed `max_bytes`, or a path that cannot be a directory.
            OutOfMemory, ManagerError: as `Store`.
        """
        files = None
        if max_bytes is not None and worker_local_directory is not None:
            files = Path(worker_local_directory) / _FOLDER
        self._store = Store(max_bytes=max_bytes, evict=None, spill=files)
        self._names: dict[Key, str] = {}  # in the store
        self._others: dict[Key, Any] = {}
        self._numbers = itertools.count()

    def __repr__(self) -> str:
        return f"StoreMapping({len(self._names)} in {self._store!r}, {len(self._others)} in private memory)"

    @property
    def store(self) -> Store:
        """The store with the results."""
        return self._store

    @property
    def spilled_total(self) -> Spilled:
        """Bytes in files, which Dask's dashboard and scheduler count as spilled. Does not block."""
        nbytes = self._store.stats().spilled_nbytes
        return Spilled(nbytes, nbytes)

    def __setitem__(self, key: Key, value: Any) -> None:
        """Set the value of a key, or replace it. Blocks while it is copied, or others are spilled.

        Raises:
            LockTimeout, ClientUnavailable, ManagerError: see `shmtensor.errors`.
        """
        if _belongs_in_store(value):
            name = self._names.get(key) or str(next(self._numbers))
            try:
                self._store.put(name, value, replace=True)
            except DTypeError:
                pass  # it has a part that a store does not accept
            except OutOfMemory as problem:
                _log.warning("the result %r stays in private memory: %s", key, problem)
            else:
                self._others.pop(key, None)
                self._names[key] = name
                return
        self._forget_stored(key)
        self._others[key] = value

    def __getitem__(self, key: Key) -> Any:
        """Return the value of a key. Blocks while a spilled one is read.

        Raises:
            KeyError: there is none.
            ObjectDamaged: its file is missing or damaged.
        """
        name = self._names.get(key)
        return self._others[key] if name is None else self._store.get(name)

    def __delitem__(self, key: Key) -> None:
        """Remove a value; tasks that have it keep it. Does not block. Raises KeyError."""
        if not self._forget_stored(key):
            del self._others[key]

    def _forget_stored(self, key: Key) -> bool:
        name = self._names.pop(key, None)
        if name is not None:
            self._store.delete(name)
        return name is not None

    def __contains__(self, key: object) -> bool:
        return key in self._names or key in self._others

    def __len__(self) -> int:
        return len(self._names) + len(self._others)

    def __iter__(self) -> Iterator[Key]:
        return itertools.chain(self._names, self._others)

    def clear(self) -> None:
        """Remove all values. Does not block."""
        for key in list(self._names):
            self._forget_stored(key)
        self._others.clear()


def _belongs_in_store(value: Any) -> bool:
    """Whether a value has a tensor or an array, and no tensor that would lose its gradient there."""
    found = False
    pending = [(value, 0)]
    while pending:
        part, depth = pending.pop()
        kind = type(part)
        if kind is Tensor:
            if part.requires_grad:
                return False
            found = True
        elif kind is np.ndarray:
            found = True
        elif kind in (tuple, list, dict):
            if depth == _DEPTH:
                return False
            pending += [(item, depth + 1) for item in (part.values() if kind is dict else part)]
    return found
