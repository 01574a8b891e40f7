"""`Store`: objects by key in shared memory (docs/store.md).

Its table is a ring of its own kind (native/ipc/store.hpp). Every process reads and changes it directly, under a lock
that survives the death of its holder. The memory of an object is a block, held by the table and by each reader that has
the object.
"""

from __future__ import annotations

import json
import math
import operator
import os
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, Self

from .._native import (
    STORE_EXISTS,
    STORE_FULL,
    STORE_NOT_RESERVED,
    STORE_PUT,
    STORE_REFUSE,
    STORE_REPLACE,
    STORE_SEAL,
    STORE_TOO_LARGE,
    BlockGone,
    LockBusy,
    Refused,
    Ring,
    Spilled,
    StoreRing,
)
from ..errors import (
    DTypeError,
    InvalidArgument,
    ManagerTimeout,
    NameTaken,
    QuotaExceeded,
    ShmTensorError,
)
from ..ipc import reductions
from ..ipc.queues import RingObject, shown
from ..manager import client, protocol
from ..manager.connection import Observer
from ..manager.ring_kinds import STORE
from ..manager.selection import ANSWER_SECONDS
from ..manager.shortage import parse_size, size
from .creation import Creation
from .spilling import ObjectDamaged, SpillDirectory
from .values import refusal

if TYPE_CHECKING:
    from .._native import Block, PutResult
    from ..dtypes import dtype as DType  # noqa: N812

_TRIES: Final = 64  # attempts to spill an object before a store counts as full
_LONGEST_PATH: Final = 1023  # bytes of the path of a spill directory
_SHOWN: Final = 5  # objects named in the message of a full store

_stores: Final[weakref.WeakValueDictionary[Ring, StoreRing]] = weakref.WeakValueDictionary()
"""The StoreRing of each ring in use here."""


class ObjectNotFound(ShmTensorError, KeyError):
    """No object of that key, or not of that version, is in the store."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would quote it


@dataclass(frozen=True)
class ObjectStats:
    """Statistics of an object, a snapshot."""

    key: str
    version: int
    nbytes: int
    """Bytes that count against `max_bytes`: its memory and its structure."""
    created: float
    """Seconds since 1970."""
    expires_in: float | None
    """Seconds until it is removed; None: never."""
    pinned: bool
    spilled: bool
    """Whether its content is in a file, and not in memory."""
    holders: int
    """Holds of readers on its memory: a process counts at most once for each part of the object."""


@dataclass(frozen=True)
class StoreStats:
    """Statistics of a store, a snapshot."""

    objects: int
    """Objects in memory and in files, including expired ones that have not been removed yet."""
    nbytes: int
    """Bytes of the objects in memory."""
    max_bytes: int | None
    spilled: int
    """Objects whose content is in files."""
    spilled_nbytes: int
    max_spilled_nbytes: int | None
    evicted: int
    """Objects removed so far to make room."""
    expired: int
    """Expired objects removed so far to make room."""
    table_nbytes: int
    """Memory of the table itself."""


@dataclass(frozen=True)
class StoreChange:
    """A change that `Store.watch` saw."""

    key: str
    version: int | None
    """Version of the current object; None: it was removed."""


class Store(RingObject):
    """Immutable objects by key, in shared memory of this machine. Use it from any number of processes and threads."""

    _KIND = STORE

    def __init__(
        self,
        name: str | None = None,
        *,
        max_bytes: int | str | None = None,
        evict: str | None = "lru",
        spill: str | os.PathLike[str] | None = None,
        spill_bytes: int | str | None = None,
        create: bool | None = None,
        timeout: float | None = None,
    ) -> None:
        """Open the store with a name, or create it. Blocks up to `timeout` seconds.

        A store with a name lives as long as its group: until the manager is stopped, or, with a manager that was
        started on demand, until the last process has left. If the manager is killed, the next one has all objects, even
        those that no process holds. A store without a name ends with the last process that has it open.

        Args:
            name: letters, digits, '_', '-' and '.'. Programs of this user that give the same name share the store.
            max_bytes: maximum number of bytes of all objects, as a number or as "8G"; None: no limit, or that of the
                existing store.
            evict: "lru": where `max_bytes` leaves no room, evict objects without readers, the least recently used first
                (approximately, by samples of 16). None: `put` raises instead. Used only when the store is created.
            spill: a directory for this store alone, which is made if it is missing. Evicted objects are written there,
                one `.safetensors` file each, and `get` maps the file. The directory's mode decides who else can read
                them.
            spill_bytes: maximum number of bytes of all spilled objects. Beyond it the least recently used ones are
                removed, or with evict=None `put` raises. None: no limit.
            create: as for `multiprocessing.SimpleQueue`.
            timeout: as for `multiprocessing.SimpleQueue`.

        Raises:
            InvalidArgument: a malformed name, a name of another kind of object, a store with other limits, spill
                without max_bytes, spill_bytes without spill, or a path that cannot be a directory or belongs to another
                store.
            NameTaken, UnknownHandle, ManagerUnavailable, OutOfMemory, ManagerError: as SimpleQueue.
        """
        if not (evict is None or evict == "lru"):
            raise InvalidArgument(f"evict must be 'lru' or None, not {evict!r}")
        self._limit = _bytes_of(max_bytes, "max_bytes")
        self._evicts = evict == "lru"
        self._spill_path = "" if spill is None else _path_of(spill)
        self._spill_limit = _bytes_of(spill_bytes, "spill_bytes")
        if self._spill_limit and not self._spill_path:
            raise InvalidArgument("spill_bytes needs spill, the directory of the files")
        with self._making(name, create):
            super().__init__((0, 0), name, create, timeout)
        if name is not None:
            self._manager.native.keep(self._ring.block)

    def _making(self, name: str | None, create: bool | None) -> AbstractContextManager[None]:
        """Admit one process at a time that makes a store with this spill directory; the next ones find the store."""
        if not self._spill_path or not self._limit or create is False:
            return nullcontext()
        if name is not None and client.default().find(reductions.name_of(name)) is not None:
            return nullcontext()
        return SpillDirectory(self._spill_path).making()

    def _agree(self, ring: Ring, bounds: tuple[int, int], name: str | None) -> None:
        native = _native_of(ring)
        if native.is_new():
            if self._spill_path and not self._limit:
                raise InvalidArgument("spill needs max_bytes: objects go to files where memory has no room for them")
            if self._spill_path:
                SpillDirectory(self._spill_path).claim(self._noted(ring, name), _lives)
            native.make(self._limit, self._evicts, self._spill_path, self._spill_limit)
        found = native.stats()
        for what, asked, there in (
            ("max_bytes", self._limit, found.max_bytes),
            ("spill", self._spill_path, native.spill_path),
            ("spill_bytes", self._spill_limit, found.max_spilled_bytes),
        ):
            if asked and asked != there:
                raise InvalidArgument(
                    f"the store {name!r} exists with {what}={there or None!r}, not {asked!r}; leave {what} out, or use "
                    "another name"
                )

    def _noted(self, ring: Ring, name: str | None) -> dict[str, Any]:
        """Return a description that identifies this store, for other stores with the same directory."""
        stats = client.default().stats()
        return {"name": name, "address": stats.address, "group": stats.group, "segment": ring.block.segment}

    def _open(self, manager: client.Manager, block: Block) -> None:
        super()._open(manager, block)
        self._native = _native_of(self._ring)
        self._native_get = self._native.get
        path = self._native.spill_path
        self._files = SpillDirectory(path) if path else None
        if self._files is not None:
            self._sweep()

    def _facts(self) -> dict[str, Any]:
        found = self._native.stats()
        return {"objects": found.objects, "nbytes": found.nbytes, "max_bytes": found.max_bytes or None}

    def __repr__(self) -> str:
        return shown(self, self._name, self._facts())

    @property
    def _called(self) -> str:
        return "this store" if self._name is None else f"the store {self._name!r}"

    # ------------------------------------------------------------------------------------------------------- objects

    def put(self, key: str, value: Any, ttl: float | None = None, pin: bool = False, replace: bool = False) -> int:
        """Put a copy of a value under a key; every process sees it at once.

        Blocks for memory, and in a store that spills, while files are written.

        Args:
            key: a str of 1 to 1024 bytes in UTF-8.
            value: a tensor or ndarray of numbers, None, a bool, int, float, complex, str or bytes, or a tuple, list or
                dict of these. Of a NumPy scalar, put its `item()`. Gradients are not stored.
            ttl: seconds until it is removed, including time in which the machine is suspended.
            pin: never evict it.
            replace: allow it to replace an object of that key, as its next version. Readers of the older version keep
                it.

        Returns:
            Its version: a number higher than that of all objects put before.

        Raises:
            NameTaken: the key is in use, and `replace` is False; or another process is creating the object of that key.
            DTypeError: `value` contains something else.
            QuotaExceeded: `max_bytes` leaves no room; the message names the largest objects that cannot be evicted.
            InvalidArgument: a malformed key, or a negative `ttl`.
            OutOfMemory, LockTimeout, ClientUnavailable, ManagerError: see `shmtensor.errors`.
        """
        present = STORE_REPLACE if replace else STORE_REFUSE
        return self._put([key], [value], _expiry(ttl), pin, present)[0]

    def put_many(
        self, objects: Mapping[str, Any], ttl: float | None = None, pin: bool = False, replace: bool = False
    ) -> dict[str, int]:
        """Put several objects as `put` does: all at once, or none. Returns their versions by key."""
        if not isinstance(objects, Mapping):
            raise InvalidArgument(f"put_many takes a dict of objects by key, not {type(objects).__name__}")
        keys = list(objects)
        present = STORE_REPLACE if replace else STORE_REFUSE
        versions = self._put(keys, list(objects.values()), _expiry(ttl), pin, present)
        return dict(zip(keys, versions, strict=True))

    def _put(
        self,
        keys: list[str],
        values: list[Any],
        expires: int,
        pin: bool,
        present: int,
        copies: bool = True,
        reservation: int = 0,
    ) -> list[int]:
        result = self._try_put(keys, values, expires, pin, present, copies, reservation)
        if result.status == STORE_FULL and self._files is not None:
            # One after the other: the writer of an object's file holds the object.
            with self._spilling(keys[result.which]):
                while result.status == STORE_FULL and self._spill(result.nbytes, keys):
                    result = self._try_put(keys, values, expires, pin, present, copies, reservation)
        if result.status == STORE_PUT:
            self._remove_files()
            return result.versions
        key = keys[result.which]
        if result.status == STORE_EXISTS:
            if present == STORE_REPLACE or self._native.stat(key) is None:
                raise NameTaken(
                    f"the key {key!r} of {self._called} is reserved: a process is creating its object; "
                    "wait for it with get(timeout=), or choose another key"
                )
            raise NameTaken(
                f"{self._called} has an object {key!r} already; replace=True (--replace) puts the next version"
            )
        if result.status == STORE_NOT_RESERVED:
            raise NameTaken(
                f"the key {key!r} is not reserved for this process any more, because it was deleted; create it again"
            )
        what = repr(key) if len(keys) == 1 else f"{len(keys)} objects ({key!r}, ...)"
        raise QuotaExceeded(self._shortage(f"{what} of {size(result.nbytes)}", result.status == STORE_TOO_LARGE))

    def _try_put(self, keys: list[str], values: list[Any], *how: Any) -> PutResult:
        """Call `StoreRing.put`, with its further arguments. Raises DTypeError, and as `put`."""
        try:
            return self._native.put(keys, values, *how)
        except TypeError:
            raise DTypeError(f"cannot put {_refusals(keys, values)}") from None
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    @contextmanager
    def _spilling(self, key: str) -> Iterator[None]:
        assert self._files is not None
        try:
            with self._files.exclusive():
                if self._native.writing:  # the writer failed, or was killed
                    self._files.sweep(self._native.spilled())
                self._native.writing = True
                yield
                self._native.writing = False
        except OSError as error:
            raise QuotaExceeded(
                f"no room for {key!r} in {self._called}, and nothing can be spilled to "
                f"{os.fspath(self._files.path)!r}: {error.strerror or error}; nothing is lost. Make room there, or "
                "delete objects"
            ) from None

    def _spill(self, nbytes: int, but: list[str]) -> bool:
        """Move objects to files until there is room for `nbytes`. False: none was moved. Raises OSError."""
        moved = False
        while True:
            found = self._native.stats()
            if found.nbytes + nbytes <= found.max_bytes:  # other processes may have made room
                return True
            if not self._spill_one(but):
                return moved
            moved = True

    def _spill_one(self, but: list[str]) -> bool:
        """Move the least recently used object to a file. False: none may be moved. Raises OSError."""
        assert self._files is not None
        for _ in range(_TRIES):
            chosen = self._native.choose(but)
            if chosen is None:
                return False
            key, version = chosen
            if not version:  # an object that cannot be written to a file was evicted
                return True
            try:
                self._files.write(version, self._native_get(key, version))
            except KeyError:  # it was removed meanwhile
                return True
            except ShmTensorError:  # its memory is lost, or it cannot be written to a file: choose another object
                self._native.touch(key, None, None)
                continue
            status = self._native.spill(key, version)
            if status == STORE_PUT:
                return True
            self._files.remove(version)
            if status == STORE_FULL:
                return False
        return False

    def _remove_files(self) -> None:
        """Remove the files of spilled objects that are not in the store any more."""
        if self._files is None or not self._native.stats().dropped:
            return
        versions = self._native.take_dropped()
        if versions is None:
            self._sweep()
        else:
            for version in versions:
                self._files.remove(version)

    def _sweep(self) -> None:
        """Remove files that the table does not name, unless another process is writing a file."""
        assert self._files is not None
        with suppress(OSError), self._files.exclusive(waits=False):
            self._native.forget_dropped()
            self._files.sweep(self._native.spilled())

    def _read(self, key: str, version: int | None, spilled: int) -> Any:
        """Return a spilled object. Raises KeyError: it was removed meanwhile."""
        while True:
            assert self._files is not None
            try:
                return self._files.read(spilled)
            except FileNotFoundError:
                found = self._native.stat(key)
                if found is not None and found.spilled and found.version == spilled:
                    path = os.fspath(self._files.file_of(spilled))
                    raise ObjectDamaged(
                        f"the file {path!r} of the spilled object {key!r} is missing; delete the object or put it "
                        "again with replace=True"
                    ) from None
            try:
                return self._native_get(key, version or 0)
            except Spilled as again:
                spilled = again.args[0]

    def _shortage(self, what: str, never: bool) -> str:
        found = self._native.stats()
        text = f"no room for {what} in {self._called}: {size(found.nbytes)} of {size(found.max_bytes)} used"
        if found.max_spilled_bytes:
            text += f", and {size(found.spilled_nbytes)} of {size(found.max_spilled_bytes)} in files"
        if never and not found.max_bytes:
            return f"no room for {what} in {self._called}: its table has its full size of 1 GiB; delete objects"
        if never:
            return f"{text}, and this is larger than max_bytes; use a store with a higher limit"
        held = [stats for name in self.keys() if (stats := self._stat(name)) and (stats.pinned or stats.holders)]
        held.sort(key=lambda stats: -stats.nbytes)
        rows = [
            f"{stats.key!r} ({size(stats.nbytes)}, {'pinned' if stats.pinned else f'{stats.holders} holders'})"
            for stats in held[:_SHOWN]
        ]
        if not rows:
            why = "the store was created with evict=None" if not found.evicts else "all objects were in use"
            return f"{text}; {why}: delete objects, or use a store with a higher limit"
        return (
            f"{text}; {len(held)} objects cannot be evicted, because they are read or pinned, the largest: "
            f"{', '.join(rows)}; drop or unpin some, or use a store with a higher limit"
        )

    def create(
        self, key: str, shape: int | tuple[int, ...], dtype: DType | None = None, ttl: float | None = None, *,
        pin: bool = False,
    ) -> Creation:  # fmt: skip
        """Create an object in place: `with store.create(key, shape, dtype) as t:` gives a tensor to be filled.

        At the end of the block the object is sealed: every process sees it, and it is read-only. If views or arrays of
        `t` still exist, or another process has `t`, a copy is sealed.

        Until then the key is reserved: `get` with a timeout waits for it, `put` raises NameTaken. If the block raises,
        or the process dies, the key and the memory are freed.

        Args:
            key: as for `put`.
            shape: of the tensor.
            dtype: of the tensor; None: the default floating-point type.
            ttl: as for `put`, from the moment it is sealed.
            pin: as for `put`.

        Raises:
            NameTaken: the key is in use or reserved.
            QuotaExceeded: at the end of the block, as `put`; the object is lost.
            InvalidArgument, OutOfMemory, ManagerError: as `put`.
        """
        return Creation(
            shape,
            dtype,
            reserve=lambda: self._reserve(key),
            seal=lambda tensor, copies, reservation: self._put(
                [key], [tensor], _expiry(ttl), pin, STORE_SEAL, copies, reservation
            )[0],
            give_up=lambda reservation: self._native.give_up(key, reservation),
        )

    def get(self, key: str, *, timeout: float | None = None, version: int | None = None) -> Any:
        """Return the object of a key. Tensors and arrays in it are read-only views of the store's memory.

        They stay valid as long as this process has them, even if the key is deleted or replaced. A missing key has no
        default: it raises. Makes no system call if the segment of the object is mapped already. Blocks only with
        `timeout`, or to read a spilled object.

        Args:
            key: as for `put`.
            timeout: seconds to wait until there is such an object; None: do not wait.
            version: return only this version; None: the current one.

        Raises:
            ObjectNotFound: there is none, or none within `timeout`; a KeyError.
            ObjectDamaged: it is spilled, and its file is missing or damaged.
            OSError: it is spilled, and this process has no descriptor left to open its file.
            SegmentLost: its memory was lost with its writer and the manager.
            InvalidArgument, LockTimeout, ClientUnavailable, ManagerError: see `shmtensor.errors`.
        """
        try:
            try:
                return self._native_get(key, 0 if version is None else _version(version), timeout)
            except Spilled as problem:
                return self._read(key, version, problem.args[0])
        except KeyError:
            waited = "" if timeout is None else f" (waited {max(0, timeout):g} s)"
            of_version = "" if version is None else f" of version {version}"
            raise ObjectNotFound(
                f"no object {key!r}{of_version} is in {self._called}{waited}; "
                "put it first, or see keys() for the existing keys"
            ) from None
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    def delete(self, key: str) -> bool:
        """Remove the object of a key. Processes that have it keep it. Returns whether there was one.

        Does not block.
        """
        there = self._native.remove(key)
        self._remove_files()
        return there

    def expire(self) -> int:
        """Remove all expired objects, and return their number.

        `get` never returns an expired object. But its memory is freed only by this call, when room is needed, or after
        later puts. Does not block.
        """
        expired = self._native.expire()
        self._remove_files()
        return expired

    def touch(self, key: str, ttl: float | None = None, *, pin: bool | None = None) -> None:
        """Mark the object of a key as used, and set when it expires, or whether it is pinned.

        Args:
            key: as for `put`.
            ttl: seconds from now; None: unchanged; infinity: never.
            pin: whether it is pinned; None: unchanged.

        Raises:
            ObjectNotFound: there is none.
            InvalidArgument: a malformed key, or a negative `ttl`.
        """
        expires = None if ttl is None else 0 if ttl == float("inf") else _expiry(ttl)
        if not self._native.touch(key, expires, pin):
            raise ObjectNotFound(
                f"no object {key!r} is in {self._called}; put it first, or see keys() for the existing keys"
            )

    def stat(self, key: str) -> ObjectStats:
        """Return statistics of the object of a key. Raises ObjectNotFound. Does not block."""
        found = self._stat(key)
        if found is None:
            raise ObjectNotFound(
                f"no object {key!r} is in {self._called}; put it first, or see keys() for the existing keys"
            )
        return found

    def _stat(self, key: str) -> ObjectStats | None:
        found = self._native.stat(key)
        if found is None:
            return None
        left = None if not found.expires_ns else max(0.0, (found.expires_ns - _boot_ns()) / 1e9)
        return ObjectStats(
            key, found.version, found.nbytes, found.created_ns / 1e9, left, found.pinned, found.spilled, found.holders
        )

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with `prefix`, in the order of their bytes in UTF-8. Does not block.

        The keys are read 1024 at a time. Of the objects put or removed meanwhile, the result may reflect only some.
        """
        return self._native.keys(prefix)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._native.stat(key) is not None

    def __len__(self) -> int:
        return int(self._native.stats().objects)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __bool__(self) -> bool:
        return True

    def watch(self, prefix: str = "", timeout: float | None = None) -> Iterator[StoreChange]:
        """Yield changes of the objects whose keys begin with `prefix`, from now on. Blocks until there is one.

        Of several changes of one key in a row it may yield only the last. An expired object counts as removed. Each
        search for changes reads all keys with the prefix, so a short prefix in a large store is slow.

        Args:
            prefix: beginning of the keys.
            timeout: seconds without a change after which the iterator ends; None: never.
        """
        if timeout is not None and (not isinstance(timeout, Real) or timeout != timeout):
            raise InvalidArgument(f"timeout must be seconds, or None, not {timeout!r}")
        seen = self._native.changes()
        known, ends = self._versions(prefix)
        return self._changes(prefix, timeout, seen, known, ends)

    def _changes(
        self, prefix: str, timeout: float | None, seen: int, known: dict[str, int], ends: float
    ) -> Iterator[StoreChange]:
        while True:
            deadline = math.inf if timeout is None else time.monotonic() + timeout
            changes: list[StoreChange] = []
            while not changes:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                left = min(left, ends - _boot_ns() * 1e-9)
                seen = self._native.await_change(seen, None if left == math.inf else max(0.0, left))
                now, ends = self._versions(prefix)
                changes = [StoreChange(key, None) for key in known if key not in now]
                changes += [StoreChange(key, version) for key, version in now.items() if known.get(key) != version]
                known = now
            yield from changes

    def _versions(self, prefix: str) -> tuple[dict[str, int], float]:
        """Return the versions of objects by key, and when the next object expires, in seconds of CLOCK_BOOTTIME."""
        found = self._native.keys(prefix, True)
        ends = min((expires for _, _, expires in found if expires), default=math.inf)
        return {key: version for key, version, _ in found}, ends * 1e-9

    # ----------------------------------------------------------------------------------------------------- the store

    def stats(self) -> StoreStats:
        """Return statistics, a snapshot. Does not block."""
        found = self._native.stats()
        return StoreStats(
            found.objects,
            found.nbytes,
            found.max_bytes or None,
            found.spilled,
            found.spilled_nbytes,
            found.max_spilled_bytes or None,
            found.evicted,
            found.expired,
            found.reserved_bytes,
        )

    def destroy(self) -> None:
        """Remove all objects. The store ends once no process has it open; processes keep the objects they have."""
        for key in self.keys():
            self._native.remove(key)
        self.expire()
        self._manager.native.keep(self._ring.block, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _reserve(self, key: str) -> int:
        try:
            reserved = self._native.reserve_key(key)
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)
        if not reserved:
            raise NameTaken(
                f"{self._called} has an object {key!r} already, or a process is creating it; "
                "delete it, or choose another key"
            )
        return reserved


def _native_of(ring: Ring) -> StoreRing:
    native = _stores.get(ring)
    if native is None:
        native = _stores[ring] = StoreRing(ring)
    return native


def _lives(noted: dict[str, Any]) -> bool:
    """Return whether the store that a directory's description names may still exist.

    A manager that was killed leaves its socket, and its clients may continue; a manager that ends removes its socket.
    """
    try:
        with Observer(os.fsencode(noted["address"]), ANSWER_SECONDS) as observer:
            stats = json.loads(observer.document(protocol.Stats()))
            listing = json.loads(observer.document(protocol.List()))
    except ManagerTimeout:
        return True
    except (ShmTensorError, OSError):
        return os.path.exists(noted["address"])  # noqa: PTH110
    except (LookupError, TypeError, ValueError):
        return False  # it does not describe a store
    rings = {row["segment"] for row in listing["rings"] if row["kind"] == STORE}
    return bool(stats["group"] == noted.get("group") and noted.get("segment") in rings)


def _path_of(spill: str | os.PathLike[str]) -> str:
    """Return the absolute path of a directory. Raises InvalidArgument: it is not a valid path."""
    try:
        path = os.path.abspath(os.fspath(spill))  # noqa: PTH100
        if not isinstance(path, str) or "\0" in path or len(path.encode()) > _LONGEST_PATH:
            raise ValueError
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"spill must be the path of a directory, a str of at most {_LONGEST_PATH} bytes, not {spill!r}"
        ) from None
    return path


def _version(version: int) -> int:
    try:
        number = operator.index(version)
    except TypeError:
        number = 0
    if not 0 < number < 1 << 64 or isinstance(version, bool):
        raise InvalidArgument(f"version must be an int from 1 on, as put returns it, not {version!r}")
    return number


def _refusals(keys: list[str], values: list[Any]) -> str:
    """Return which object a store does not accept, and why."""
    found = next(((key, why) for key, value in zip(keys, values, strict=True) if (why := refusal(value))), None)
    return f"{keys[0]!r} into a store" if found is None else f"{found[0]!r} into a store: {found[1]}"


def _boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _expiry(ttl: float | None) -> int:
    """Return when something expires, in ns of CLOCK_BOOTTIME; 0: never. Raises InvalidArgument."""
    if ttl is None:
        return 0
    try:
        valid = bool(0 <= ttl < 1e9)
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise InvalidArgument(f"ttl must be 0 or more seconds, below 1e9, or None, not {ttl!r}")
    return _boot_ns() + max(1, int(ttl * 1e9))


def _bytes_of(limit: int | str | None, name: str) -> int:
    if limit is None:
        return 0
    try:
        nbytes = parse_size(str(limit)) if isinstance(limit, str) else limit.__index__()
    except (AttributeError, ValueError):
        nbytes = 0
    if not 1 <= nbytes < 1 << 63:
        raise InvalidArgument(f"{name} must be at least 1, a size such as '8G', or None, not {limit!r}")
    return int(nbytes)
