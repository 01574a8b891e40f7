"""Running a manager: in the foreground (`serve`), or in the background on demand (`background`).

A manager in the background is started by `launch` and re-parented before it serves. The starter sees one short-lived
child, whose exit means "ready" or gives the reason of a failure; no zombie and no long-lived child remains.
"""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH108, PTH110, PTH116, PTH118, PTH120, PTH123, PTH208, SIM105

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import sys
from time import monotonic, sleep, time

from shmtensor._loading import load
from shmtensor.errors import ManagerUnavailable
from shmtensor.manager import address as addresses
from shmtensor.manager.daemon import handover, journal, notify
from shmtensor.manager.daemon.guard import Guard, listen, open_log, remove, remove_empty_log
from shmtensor.manager.daemon.handover import Role
from shmtensor.manager.daemon.journal import Past
from shmtensor.manager.daemon.notify import is_kept_name
from shmtensor.manager.launch import IDLE_EXIT_SECONDS, KILLED, POLL_SECONDS, READY, SUCCEED_SECONDS
from shmtensor.manager.lockfile import Life, answers, head, is_life, is_still, open_lock, try_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shmtensor._native import Group
    from shmtensor.manager.daemon.server import Server

KEEP_LOG_SECONDS = 7 * 86400.0
"""Logs of dead managers are kept this long; after that, the next manager that starts removes them."""
LOG_HEAD = b"shmtensor-manager["
"""Prefix of the lines that a manager logs."""
_FIRST_INHERITED = 3  # as systemd passes descriptors


class AlreadyRunning(ManagerUnavailable):
    """Another manager serves this address."""


def _take_role(role: Role) -> None:
    """Lock the lock file of the address, or take the role over from a manager in the background. Blocks up to 3 s.

    If the lock file of a running manager was removed, that manager is asked to put it back.

    Raises:
        AlreadyRunning: another manager serves the address.
        ManagerUnavailable: the file cannot be written, or a running manager does not put its files back.
    """
    shown, path = os.fsdecode(role.address), addresses.lock_path(role.address)
    is_served = role.listener is not None  # the listener was passed on to us, so an answer proves nothing
    deadline = monotonic() + SUCCEED_SECONDS
    while True:
        fd, lost = open_lock(path), None
        if try_lock(fd):
            lost = _claim(fd, role)
            if lost == os.getpid():
                role.lock = fd
                return
        os.close(fd)
        if lost is not None:
            from shmtensor.manager.daemon.takeover import ask_to_look

            ask_to_look(lost)
        elif not role.is_private and handover.ask(role):
            return
        if monotonic() > deadline and lost is not None:
            raise ManagerUnavailable(
                f"the files of the manager at {shown} were removed; it is still running (pid {lost}) but did not put "
                f"them back within {SUCCEED_SECONDS:g} s. If it is stopped, continue it (`kill -CONT {lost}`); "
                f"otherwise end it (`kill -KILL {lost}`)"
            )
        if monotonic() > deadline or (not is_served and os.path.exists(role.address) and answers(role.address)):
            raise AlreadyRunning(
                f"a manager already runs at {shown}; "
                "use it, stop it with `shmtensor-manager stop`, or choose another address"
            )
        sleep(POLL_SECONDS)


def _claim(lock: int, role: Role) -> int | None:
    """Claim the address whose lock file we have just locked.

    Returns:
        Our own pid; or the pid of a running manager whose lock file was removed; None: our file was removed.
    """
    from shmtensor.manager.daemon.takeover import find_manager

    path, found = addresses.lock_path(role.address), os.fstat(lock)
    role.killed = Life.read(lock)
    try:
        role.life.write(lock)  # before the check of the path: if the file is removed later, its content identifies us
    except OSError as problem:
        if is_still(path, found):
            remove(path)
        os.close(lock)
        raise ManagerUnavailable(
            f"cannot write the lock file {os.fsdecode(path)}: {problem.strerror}; "
            "free space there, or choose another directory"
        ) from None
    # A manager that ends unlinks the file: the locked file must still be the one at the path.
    if not is_still(path, found):
        return None
    other = find_manager(role.address, found.st_dev)
    if other is None:
        return os.getpid()
    remove(path)
    return other


def _remove_old_log(log: bytes) -> None:
    if os.path.exists(addresses.lock_path(log.removesuffix(b".log") + b".sock")):
        return  # its manager is running, or this sweep removes its files
    try:
        if time() - os.stat(log).st_mtime > KEEP_LOG_SECONDS and (head(log) or b"").startswith(LOG_HEAD):
            os.unlink(log)
    except OSError:
        pass  # as in `_sweep`


def _left_behind(address: bytes, keepers: Iterable[int] = ()) -> tuple[Past, Group | None]:
    """Return the previous manager's journal at `address`, and its group if that still exists. Needs the lock.

    Args:
        address: path of the socket.
        keepers: pids of processes that have the group.
    """
    past = journal.read(addresses.journal_path(address))
    if past.group is None:
        return past, None
    from shmtensor.manager.daemon.takeover import find_group

    return past, find_group(past.group, addresses.own_uid(), keepers)


def _in_the_way(address: bytes, is_served: bool = False) -> tuple[bytes, str] | None:
    """Find a file of another program that a manager at `address` would replace. Returns (path, expected kind).

    Args:
        address: path of the socket.
        is_served: the listening socket was passed on to us, so the file at `address` is not replaced.
    """
    try:
        if not is_served and not stat.S_ISSOCK(os.lstat(address).st_mode):
            return address, "a socket"
    except OSError:
        pass  # no file
    path = addresses.journal_path(address)
    for each in (path, path + b".new"):
        if not journal.is_free(each):
            return each, "the journal of a manager"
    path = addresses.lock_path(address)
    found = head(path)
    if found is None or (found and not is_life(found)):
        return path, "the lock file of a manager"
    return None


def _clear(address: bytes, past: Past) -> None:
    """Remove the files of a group that has ended at `address`. The caller holds its lock."""
    if past.shm:
        from shmtensor.manager.daemon.memory import remove_shm

        for name in past.shm:
            remove_shm(name)
    path = addresses.journal_path(address)
    for each in (path, path + b".new"):
        if journal.is_free(each) and journal.read(each).group in (None, past.group):
            remove(each)


def _sweep(directory: bytes, own: bytes) -> None:
    """Remove the files of groups that have ended from the directory: sockets, locks, journals, old logs."""
    bases = set()
    for entry in os.listdir(directory):
        if entry.endswith(b".log"):
            _remove_old_log(os.path.join(directory, entry))
        for suffix in (b".sock.lock", b".journal"):
            if entry.endswith(suffix):
                bases.add(os.path.join(directory, entry.removesuffix(suffix)))
    for base in bases - {own.removesuffix(b".sock")}:
        address = base + b".sock"
        if _in_the_way(address):
            continue
        try:
            fd = open_lock(addresses.lock_path(address))
        except ManagerUnavailable:
            continue
        try:
            if try_lock(fd):
                past, group = _left_behind(address)
                if group is None and _may_clear(address, past):
                    _clear(address, past)
                    remove(address)
                    remove_empty_log(address)
                    remove(addresses.lock_path(address))
        except (OSError, ManagerUnavailable):
            pass  # problems with another manager's files must not keep this one from starting
        finally:
            os.close(fd)


def _may_clear(address: bytes, past: Past) -> bool:
    """Whether a group that was not found has ended. In another PID namespace it may live on between two managers."""
    if past.namespace in (None, journal.pid_namespace()):
        return True
    return time() - os.stat(addresses.journal_path(address)).st_mtime > KEEP_LOG_SECONDS


def inherited() -> tuple[socket.socket | None, dict[str, list[int]]]:
    """Return the descriptors that a service manager (systemd) passed to this process.

    Returns:
        (the listening socket, or None; the descriptors that it kept for the service, by name).

    Raises:
        ManagerUnavailable: the passed sockets cannot be served.
    """
    kept: dict[str, list[int]] = {}
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or not os.environ.get("LISTEN_FDS", "").isdecimal():
        return None, kept
    count = int(os.environ["LISTEN_FDS"])
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    others = []
    for number in range(count):
        fd, name = _FIRST_INHERITED + number, names[number] if number < len(names) else ""
        if is_kept_name(name):
            os.set_inheritable(fd, False)
            kept.setdefault(name, []).append(fd)
        else:
            others.append(fd)
    if not others:
        return None, kept
    listener = None
    if len(others) == 1:
        try:
            listener = socket.socket(fileno=others[0])
        except OSError:
            pass
    if (
        listener is None
        or (listener.family, listener.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET)
        or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        or not isinstance(listener.getsockname(), str)
    ):
        raise ManagerUnavailable(
            f"a manager needs exactly one listening SOCK_SEQPACKET unix socket with a path, but of the {count} "
            f"descriptors of LISTEN_FDS, {others} are not that; use ListenSequentialPacket= in the systemd socket unit"
        )
    listener.set_inheritable(False)
    return listener, kept


def _raise_descriptor_limit() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            pass  # then fewer segments are possible, which is reported when the limit is hit


def serve(
    address: bytes,
    ready: Callable[[], None],
    *,
    listener: socket.socket | None = None,
    kept: dict[str, list[int]] | None = None,
    is_private: bool = False,
    max_clients: int | None = None,
    max_bytes: int | None = None,
    max_bytes_per_client: int | None = None,
    idle_exit: float | None = None,
    log: str | None = None,
) -> None:
    """Run a manager at `address` in this process until it is stopped or idle. Blocks.

    If the previous manager of the group was killed, its group is taken over with the segments of its clients. Unless
    `is_private`, a manager in the background is asked to hand over its role and segments. If this manager is stopped
    while clients or blocks remain, a child of this process continues in the background, and this process returns.

    Args:
        address: absolute path of the socket.
        ready: called once when connections are accepted.
        listener: a listening socket for the address, kept when this manager ends; None: create and remove one.
        kept: descriptors of the previous process of this service that its supervisor kept, by name; taken over.
        is_private: the manager was started on demand and runs in the background.
        max_clients: further clients are refused; None: MAX_CLIENTS.
        max_bytes: payload that all clients together may reserve; None: the quota of the group that is taken over, else
            SHMTENSOR_MAX_BYTES, else no limit.
        max_bytes_per_client: as `max_bytes`, for each client, with SHMTENSOR_MAX_BYTES_PER_CLIENT.
        idle_exit: end this many seconds after the last client; None: never.
        log: where stderr goes, reported by STATS; None: redirect it to the log beside the socket.

    Raises:
        AlreadyRunning: another manager serves this address.
        ManagerUnavailable: the directory, lock or socket cannot be used, a file of another program is in the way, or
            a quota in the environment is not a size.
    """
    of_new_group = addresses.own_quotas()
    addresses.own_directory(os.path.dirname(os.fsdecode(address)))
    found = _in_the_way(address, listener is not None)
    if found:
        raise ManagerUnavailable(
            f"{os.fsdecode(found[0])} is not {found[1]}, and a manager at {os.fsdecode(address)} would overwrite it; "
            f"move the file, or use another address (`--address`, {addresses.MANAGER_VARIABLE}, "
            f"{addresses.RUNTIME_VARIABLE})"
        )
    role = Role(
        address,
        listener=listener,
        is_own=listener is None,
        is_private=is_private,
        idle_exit=idle_exit,
        max_clients=max_clients,
        log=log,
    )
    role.kept = kept or {}
    _take_role(role)
    role.ready = ready
    _rule(role, of_new_group, (max_bytes, max_bytes_per_client))


def again(text: str) -> None:
    """Continue as the manager in the fresh interpreter that `handover.restart` executes."""
    try:
        role = handover.executed(text)
        if role.is_private:
            _detach()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for the keeper
        _rule(role, (0, 0), (None, None))
    except ManagerUnavailable as problem:
        sys.exit(f"{LOG_HEAD.decode()}{os.getpid()}]: cannot restart: {problem}")


def rehearse(text: str) -> None:
    """Check, in a fresh interpreter, that this version can continue the group of a manager that restarts."""
    load("manager.daemon.server")
    try:
        handover.check_versions(text)
    except ManagerUnavailable as problem:
        sys.exit(str(problem))
    os.write(1, READY)


def _rule(role: Role, quotas: tuple[int, int], asked: tuple[int | None, int | None]) -> None:
    """Run the manager, with one `Server` after another, until another process has the role or no manager is needed.

    Args:
        role: the role of manager at an address.
        quotas: quotas of a new group.
        asked: quotas that also replace those of a group that is taken over; None: leave them unchanged.
    """
    try:
        # Only once the lock is held: a manager that ends removes its log if it is empty.
        if role.log is None:
            role.log = open_log(role.address)
        _raise_descriptor_limit()
        server: Server | None = None
        while server is None or (server.is_to_be_followed and _goes_on(role, server)):
            server = _open_server(role, server, quotas, asked)
            asked = (None, None)
            with server:
                role.taken()
                try:
                    server.run()
                    if not role.is_private and not server.is_restarting:
                        notify.stopping()
                finally:
                    role.dead = None if server.replaced or server.needs_successor else server.past
                    if not server.is_to_be_followed:
                        # Removed first: clients that connect from now on start another manager.
                        _remove_socket(role)
        server.close()
    except ManagerUnavailable:
        raise
    except BaseException:
        if role.is_private:
            import traceback

            print(f"{LOG_HEAD.decode()}{os.getpid()}]: failed", file=sys.stderr)
            traceback.print_exc()
        raise
    finally:
        if not role.is_others:
            _clear_away(role)
        role.close()


def _open_server(
    role: Role, before: Server | None, quotas: tuple[int, int], asked: tuple[int | None, int | None]
) -> Server:
    """Create the server, with the segments of `before`, of `role.keeper`, or of a killed manager's clients.

    Raises ManagerUnavailable.
    """
    address = role.address
    from shmtensor.manager.daemon.server import MAX_CLIENTS, Server

    addresses.own_directory(os.path.dirname(os.fsdecode(address)))  # it may have been removed meanwhile
    try:
        role.life.write(role.lock)
    except OSError as problem:
        raise ManagerUnavailable(f"cannot write the lock file of {os.fsdecode(address)}: {problem.strerror}") from None
    if before is None:
        past, group = _left_behind(address, role.keepers)
        role.dead = None
        if group is None:
            if role.keeper:
                raise ManagerUnavailable(
                    "the previous manager's group was not found; another version may have been installed"
                )
            _clear(address, past)
            role.dead = past
        _sweep(os.path.dirname(address), address)
    else:
        past, group = journal.read(addresses.journal_path(address)), before.group
        past = past if past.group == before.group_id else before.past
    if role.listener is None:
        _listen(role)
    elif role.made is None:
        role.made = _socket_at(address)
    try:
        server = Server(
            address,
            Guard(role),
            past=past,
            group=group,
            before=before,
            kept=role.kept_numbers(group),
            keepers=role.keepers,
            is_private=role.is_private,
            is_left=role.is_left,
            max_clients=MAX_CLIENTS if role.max_clients is None else role.max_clients,
            idle_exit=role.idle_exit,
            log=role.log or "",
        )
    except OSError as problem:
        if problem.errno == errno.EXDEV:
            raise ManagerUnavailable(
                f"the group at {os.fsdecode(address)} belongs to another PID namespace, where process ids differ; "
                "start its next manager there"
            ) from None
        raise ManagerUnavailable(
            f"the group's shared memory cannot be created or taken over: {problem.strerror}"
            + ("; raise the limit of file sizes (ulimit -f)" if problem.errno == errno.EFBIG else "")
        ) from None
    role.release_kept(server.kept_names)
    if role.is_private and role.killed is not None and server.state.keeps_names:
        # Objects kept by a name exist as long as they would have with that manager.
        role.idle_exit = server.idle_exit = role.killed.idle_exit
        role.life.write(role.lock)
    role.killed = None
    kept = quotas if group is None else group.quotas()
    server.group.set_quotas(*(mine if each is None else each for mine, each in zip(kept, asked, strict=True)))
    return server


def _listen(role: Role) -> None:
    """Create the socket of a role whose lock file is locked.

    If that file was removed before the socket was bound, a manager that started meanwhile found neither, and has locked
    another one: `find_manager` looks for the socket first.

    Raises:
        AlreadyRunning: the lock file was removed.
        ManagerUnavailable: the socket cannot be created.
    """
    remove(role.address)
    refused = None
    try:
        role.listener = listen(role.address)
        role.made = _socket_at(role.address)
    except ManagerUnavailable as problem:
        refused = problem
    if not is_still(addresses.lock_path(role.address), os.fstat(role.lock)):
        raise AlreadyRunning(
            f"the lock file of {os.fsdecode(role.address)} was removed while the manager started; start it again"
        )
    if refused is not None:
        raise refused


def _goes_on(role: Role, server: Server) -> bool:
    """Hand over to a successor. True: this process has to serve, as the successor or because there is none."""
    signal.pthread_sigmask(signal.SIG_BLOCK, handover.END_SIGNALS)
    try:
        if server.asker is not None:
            role.is_others = handover.give(role, server.asker, server.request_id)
            return not role.is_others
        if server.is_restarting:
            if handover.restart(role):
                server.close()
                os._exit(0)
            _say("the new manager did not start; the previous one continues in the background")
        else:
            _say("its memory is still in use; a process in the background serves it until it is released")
            if not handover.leave(role):
                return False
            if role.idle_exit is None:
                role.idle_exit = IDLE_EXIT_SECONDS
    except OSError as problem:
        what = "restart" if server.is_restarting else "start a successor"
        _say(f"cannot {what}: {problem.strerror}")
        return server.is_restarting
    _go_to_background(role)
    return True


def _say(text: str) -> None:
    print(f"{LOG_HEAD.decode()}{os.getpid()}]: {text}", file=sys.stderr, flush=True)


def _clear_away(role: Role) -> None:
    """Remove the files of a manager that ends without a successor."""
    if role.dead is not None:
        _clear(role.address, role.dead)
    _remove_socket(role)
    if is_still(addresses.lock_path(role.address), os.fstat(role.lock)):
        remove_empty_log(role.address)
        remove(addresses.lock_path(role.address))


def _remove_socket(role: Role) -> None:
    """Remove the socket file if it is ours, not another manager's."""
    if role.is_own and role.made is not None and is_still(role.address, role.made):
        remove(role.address)


def _socket_at(path: bytes) -> os.stat_result | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found if stat.S_ISSOCK(found.st_mode) else None


def background(address_text: str, idle: str, clients: str) -> None:
    """Fork, serve in the child, and report readiness by the exit of this process. `launch.start` runs this."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    try:
        child = os.fork()
    except OSError as problem:
        print(f"fork was refused: {problem.strerror}", file=sys.stderr)
        os._exit(1)
    if child:
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            said = pipe.read()
        if said == READY:
            os.write(1, READY)
            os._exit(0)
        os.write(2, said or KILLED)
        os._exit(1)
    os.close(read_end)
    os.dup2(0, 1)  # the starter reads stdout until it is closed
    address = os.fsencode(address_text)
    code = 0
    waiting = True

    def report(said: bytes) -> None:
        nonlocal waiting
        if waiting:
            waiting = False
            os.write(write_end, said)
            os.close(write_end)

    try:
        _detach()
        serve(
            address,
            lambda: report(READY),
            idle_exit=float(idle) if idle else None,
            is_private=True,
            max_clients=int(clients) if clients else None,
        )
    except AlreadyRunning:
        report(READY)  # the starter only needs a manager
    except BaseException as problem:
        code = 1
        report(f"{problem}\n".encode("utf-8", "replace"))
    sys.stderr.flush()
    os._exit(code)


def _detach() -> None:
    """Undo settings inherited from the starter, since the manager serves other programs as well.

    The cgroup, the hard limits and the environment cannot be undone.
    """
    import resource

    os.chdir("/")
    os.umask(0o077)
    for number in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):
        hard = resource.getrlimit(number)[1]
        resource.setrlimit(number, (hard, hard))
    undoings: tuple[Callable[[], object], ...] = (
        lambda: os.sched_setaffinity(0, range(os.cpu_count() or 1)),
        lambda: os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0)),
        lambda: os.setpriority(os.PRIO_PROCESS, 0, 0),
        lambda: _write("oom_score_adj", b"0"),
        lambda: _write("comm", b"shmtensor-mgr"),
    )
    for undo in undoings:
        try:
            undo()
        except OSError:
            pass  # not permitted for this user
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:  # a handler of the previous server is kept
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)


def _write(name: str, content: bytes) -> None:
    with open(f"/proc/self/{name}", "wb", buffering=0) as file:
        file.write(content)


def _go_to_background(role: Role) -> None:
    """Detach from the terminal and from stdin, stdout and stderr, as a manager in the background."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(null, 1)
    if not stat.S_ISREG(os.fstat(2).st_mode):  # a regular file is kept as the log
        try:
            role.log = open_log(role.address)
        except ManagerUnavailable:
            os.dup2(null, 2)
    os.close(null)
    _detach()
    if not role.is_private:
        role.is_private, role.is_left, role.idle_exit = True, True, IDLE_EXIT_SECONDS
