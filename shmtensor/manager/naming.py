"""Named objects: open the one that exists, or create it."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic, sleep

from shmtensor import errors
from shmtensor.manager import address as addresses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from shmtensor._native import Block
    from shmtensor.manager.membership import Manager

_MAX_PAUSE_SECONDS = 0.05
"""Longest pause between two lookups of a name that another process has not bound yet."""


def open_or_create(
    manager: Manager,
    name: bytes | None,
    make: Callable[[], Block],
    create: bool | None = None,
    timeout: float | None = None,
) -> tuple[Block, bool]:
    """Open the block with a name, or create it and bind the name. If two processes race, one of them creates it.

    Args:
        manager: the manager of the name and the block.
        name: the name; None: create a block without a name.
        make: returns a new block that is ready for use by other processes.
        create: True: create it. False: open it, waiting up to `timeout` seconds. None: open it or else create it.
        timeout: seconds to wait with create=False; None: 0.

    Returns:
        (block, whether it was created).

    Raises:
        NameTaken: create is True and the name is bound to a live block.
        UnknownHandle: create is False and the name is not bound to a live block.
        InvalidArgument: create is not True, False or None; create=False without a name; a timeout without
            create=False.
        ManagerUnavailable: names cannot be used in this process's group (docs/protocol.md, "Finding the manager").
        ShmTensorError: as `Manager.open`, `Manager.bind` and `make`.
    """
    create = _checked_create(create, timeout)
    if name is None:
        if create is False:
            raise errors.InvalidArgument("create=False opens an existing object, so it needs a name")
        return make(), True
    addresses.check_names_meet(manager.address)
    if create is False:
        return _await(manager, name, timeout or 0.0), False
    made = None
    while True:
        block = manager.find(name)
        if block is not None and create:
            raise errors.NameTaken(
                f"create=True, but the name {name[1:].decode()!r} already exists; leave out create to open it, or use "
                "another name"
            )
        if block is not None:
            return block, False
        if made is None:
            made = make()
        with suppress(errors.NameTaken):  # another process bound the name first
            manager.bind(name, made)
            return made, True


def _await(manager: Manager, name: bytes, timeout: float) -> Block:
    deadline = monotonic() + timeout
    pause = 0.001
    while (block := manager.find(name)) is None:
        left = deadline - monotonic()
        if left <= 0:
            raise errors.UnknownHandle(
                f"no object is named {name[1:].decode()!r} (waited {timeout:g} s), and create=False does not "
                "create it; check that the program that creates it is running, or give a longer timeout"
            )
        sleep(min(left, pause))
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
    return block


def _checked_create(create: bool | None, timeout: float | None) -> bool | None:
    """Check these arguments of `open_or_create`. Returns `create` as a bool or None. Raises InvalidArgument."""
    if create not in (True, False, None):
        raise errors.InvalidArgument(
            f"create must be True (create), False (open) or None (open or else create), not {create!r}"
        )
    create = None if create is None else bool(create)  # 0 and 1 are accepted
    try:
        is_bound = timeout is None or (create is False and timeout >= 0)
    except TypeError:
        is_bound = False
    if not is_bound:
        raise errors.InvalidArgument(
            f"timeout={timeout!r} with create={create!r}: a timeout must be 0 seconds or more and needs "
            "create=False, which waits until the name exists"
        )
    return create
