"""The managers of this process: `default()` finds or starts one, `at(address)` connects, `adopt()` serves children."""

# pathlib costs time at every start of a manager.
# ruff: noqa: PTH120

from __future__ import annotations

import os
import threading
from time import monotonic

from shmtensor import errors
from shmtensor._loading import load
from shmtensor.manager import address as addresses
from shmtensor.manager import launch
from shmtensor.manager.connection import REQUEST_SECONDS, NothingThere, connect
from shmtensor.manager.joining import Place
from shmtensor.manager.membership import Manager, Stats
from shmtensor.manager.strategy import STRATEGIES, set_strategy, strategy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmtensor import _native

__all__ = [
    "STRATEGIES",
    "Manager",
    "Place",
    "Stats",
    "adopt",
    "at",
    "default",
    "of",
    "set_strategy",
    "strategy",
    "trim",
]

_lock = threading.RLock()
_managers: dict[bytes, Manager] = {}
_default: Manager | None = None


def _after_fork() -> None:
    # Another thread of the parent may have held the lock; that thread does not exist here.
    global _lock
    _lock = threading.RLock()
    for manager in list(_managers.values()):
        manager.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _forget(manager: Manager) -> None:
    """Remove a manager whose group this process leaves."""
    global _default
    with _lock:
        if _managers.get(manager.address) is manager:
            del _managers[manager.address]
        if _default is manager:
            _default = None


def at(address: bytes | str, timeout: float = REQUEST_SECONDS, starts: bool = True) -> Manager:
    """Return the manager at `address`; connects on first use. Blocks up to `timeout` seconds.

    Args:
        address: path of the manager's socket.
        timeout: seconds.
        starts: if the manager ends before it answers, start another one.

    Raises:
        ManagerUnavailable: no manager runs there, or it is not a socket, or it belongs to another user.
        ProtocolError: the manager has another version, or what listens there is not a manager.
        ManagerTimeout, QuotaExceeded, InvalidArgument: see `shmtensor.errors`.
    """
    known = _managers.get(address)  # type: ignore[arg-type]
    if known is not None:
        return known
    path = addresses.check_address(address)
    with _lock:
        manager = _managers.get(path)
        if manager is None:
            _sample_sites()
            manager = _managers[path] = Manager(path, connect(path, timeout), timeout, starts=starts, on_close=_forget)
        return manager


def _sample_sites() -> None:
    """Record which lines make blocks, if SHMTENSOR_SITES is set. Raises InvalidArgument."""
    if not _managers and os.environ.get("SHMTENSOR_SITES"):
        load("manager.sites").sample_as_told()


def of(native: _native.Client) -> Manager | None:
    """Return the manager of a native client; None if this process has left its group. Does not block."""
    for manager in list(_managers.values()):
        if manager.native is native:
            return manager
    return None


def adopt(address: bytes | str, fd: int, place: Place) -> Manager:
    """Become a client through the socket that a spawned child inherited from its parent's `embryo()`.

    Args:
        address: path of the manager's socket.
        fd: the socket, taken over. A successor recognizes the embryo by it: keep a copy open until this returns.
        place: the slot of the embryo.

    Raises:
        InvalidArgument: this process is a client at that address already.
        ShmTensorError: as `joining.introduce`.
    """
    path = addresses.check_address(address)
    with _lock:
        if path in _managers:
            os.close(fd)
            raise errors.InvalidArgument(
                f"this process is already a client of the manager at {os.fsdecode(path)}; use that one"
            )
        _sample_sites()
        os.set_inheritable(fd, False)
        manager = _managers[path] = Manager(path, fd, place=place, on_close=_forget)
        return manager


def default() -> Manager:
    """Return the manager of this process, found or started on first use (docs/protocol.md, "Finding the manager").

    May block for some seconds while a manager starts. Thread-safe.

    Raises:
        ManagerUnavailable: no manager runs at SHMTENSOR_MANAGER, or none can be started.
        ProtocolError: the manager at SHMTENSOR_MANAGER has another version.
        ManagerTimeout, QuotaExceeded, InvalidArgument: see `shmtensor.errors`.
    """
    global _default
    if _default is not None:
        return _default
    with _lock:
        if _default is None:
            _default = _find()
        return _default


def _find() -> Manager:
    chosen = os.environ.get(addresses.MANAGER_VARIABLE)
    if chosen:
        try:
            return at(chosen)
        except NothingThere as problem:
            raise errors.ManagerUnavailable(
                f"{addresses.MANAGER_VARIABLE} is set, but {problem}. Start a manager there (`shmtensor-manager serve "
                f"--address {chosen}`), or unset the variable"
            ) from None
    directory = addresses.runtime_directory()
    shared = addresses.shared_address(directory)
    token = addresses.group_token()
    if token is None:
        try:
            manager = _found_or_started(shared)
        except errors.ProtocolError:
            token = addresses.group_apart("version")
        else:
            if not (manager.is_private and manager.native.group.is_foreign):
                return manager
            manager.close()  # this process could not start a successor
            token = addresses.group_apart("namespace")
    elif addresses.reason_apart(token) == "quota":
        try:
            manager = at(shared, starts=False)  # a manager started from here would have our quotas
            if manager.native.group.quotas() == addresses.own_quotas():
                return manager
            manager.close()
        except errors.ManagerError:
            pass
    return _found_or_started(addresses.group_address(directory, token))


def _found_or_started(address: bytes) -> Manager:
    """Return the manager at `address`; start one if there is none. Raises as `default` does."""
    try:
        return at(address)
    except NothingThere:
        pass
    deadline = monotonic() + launch.START_SECONDS
    with launch.StartLock(os.path.dirname(os.fsdecode(address))):
        while True:
            # Another process may have started one while we waited for the lock, or the last one may just have ended.
            try:
                return at(address)
            except NothingThere:
                if monotonic() > deadline:
                    raise errors.ManagerUnavailable(
                        f"each manager started at {os.fsdecode(address)} within {launch.START_SECONDS:g} s ended at "
                        f"once; the reason may be in {os.fsdecode(addresses.log_path(address))}"
                    ) from None
            launch.start(address)


def trim() -> int:
    """Give cached pages back to the system, in every group of this process; returns their number of bytes."""
    return sum(manager.native.trim() for manager in list(_managers.values()))
