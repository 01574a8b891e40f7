"""Being the manager at an address: in the foreground (`serve`), or in the background for whoever needs one.

The background one is started by `launch` and re-parented before it serves: the starter sees one short-lived child,
whose exit means "ready" or carries the reason why not, and no zombie or long-lived child is left to it.
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

from shmtensor.errors import ManagerUnavailable
from shmtensor.manager import address as addresses
from shmtensor.manager.daemon import handover, journal
from shmtensor.manager.daemon.guard import Guard, listen, open_log, remove, remove_empty_log
from shmtensor.manager.daemon.handover import Seat
from shmtensor.manager.daemon.journal import Past
from shmtensor.manager.launch import IDLE_EXIT_SECONDS, KILLED, POLL_SECONDS, READY, SUCCEED_SECONDS
from shmtensor.manager.lockfile import answers, head, is_life, is_still, open_lock, try_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from shmtensor._native import Group
    from shmtensor.manager.daemon.server import Server

KEEP_LOG_SECONDS = 7 * 86400.0
"""What a dead manager logged can be read for this long; then the next one to start clears it away."""
LOG_HEAD = b"shmtensor-manager["
"""So begins what a manager logs."""
_FIRST_INHERITED = 3  # as systemd passes descriptors


class AlreadyRunning(ManagerUnavailable):
    """A manager serves this address already."""


def _take_seat(seat: Seat) -> None:
    """Take the lock that says "a manager serves this address", which is held from then on, from nobody or from a
    manager in the background, with all that it has. Blocks up to 3 s.

    A manager of which somebody has removed the lock file is looked for, and asked to put it back.

    Raises:
        AlreadyRunning. ManagerUnavailable: the file cannot be written, or a manager lives that does not put it back.
    """
    shown, path = os.fsdecode(seat.address), addresses.lock_path(seat.address)
    is_served = seat.listener is not None  # somebody listens there for us, so that an answer says nothing
    deadline = monotonic() + SUCCEED_SECONDS
    while True:
        fd, lost = open_lock(path), None
        if try_lock(fd):
            lost = _claim(fd, seat)
            if lost == os.getpid():
                seat.lock = fd
                return
        os.close(fd)
        if lost is not None:
            from shmtensor.manager.daemon.takeover import ask_to_look

            ask_to_look(lost)
        elif not seat.is_private and handover.ask(seat):
            return
        if monotonic() > deadline and lost is not None:
            raise ManagerUnavailable(
                f"the files of the manager at {shown} were removed; it lives (pid {lost}), but has not put them back "
                f"within {SUCCEED_SECONDS:g} s. If it is stopped, let it go on (`kill -CONT {lost}`), or else end it "
                f"(`kill -KILL {lost}`)"
            )
        if monotonic() > deadline or (not is_served and os.path.exists(seat.address) and answers(seat.address)):
            raise AlreadyRunning(f"a manager runs at {shown} already")
        sleep(POLL_SECONDS)


def _claim(lock: int, seat: Seat) -> int | None:
    """Whose the address is, of which we have just locked the file: our own pid, or that of a manager that lost it.

    None: the file is not at its path any more.
    """
    from shmtensor.manager.daemon.takeover import find_manager

    path, found = addresses.lock_path(seat.address), os.fstat(lock)
    try:
        seat.life.write(lock)  # before the look at the path: whoever removes the file after that finds us by it
    except OSError as problem:
        if is_still(path, found):
            remove(path)
        os.close(lock)
        raise ManagerUnavailable(f"the lock file {os.fsdecode(path)} cannot be written: {problem.strerror}") from None
    # A manager that leaves unlinks the file: what we locked must still be what others will find.
    if not is_still(path, found):
        return None
    other = find_manager(seat.address, found.st_dev)
    if other is None:
        return os.getpid()
    remove(path)
    return other


def _remove_old_log(log: bytes) -> None:
    if os.path.exists(addresses.lock_path(log.removesuffix(b".log") + b".sock")):
        return  # its manager lives, or is cleared away by this sweep
    try:
        if time() - os.stat(log).st_mtime > KEEP_LOG_SECONDS and (head(log) or b"").startswith(LOG_HEAD):
            os.unlink(log)
    except OSError:
        pass  # as in `_sweep`


def _left_behind(address: bytes, keeper: int = 0) -> tuple[Past, Group | None]:
    """What the manager before wrote down at `address`, and its group if that lives; the caller holds the lock.

    Args:
        keeper: the process that has it for sure; 0: none is known.
    """
    past = journal.read(addresses.journal_path(address))
    if past.group is None:
        return past, None
    from shmtensor.manager.daemon.takeover import find_group

    return past, find_group(past.group, addresses.own_uid(), keeper)


def _in_the_way(address: bytes, is_served: bool = False) -> tuple[bytes, str] | None:
    """(path, what it is not) of a file beside `address`, or there, that no manager made and that one would replace.

    Args:
        is_served: somebody listens there for us, so that the socket is left alone.
    """
    try:
        if not is_served and not stat.S_ISSOCK(os.lstat(address).st_mode):
            return address, "a socket"
    except OSError:
        pass  # nothing there
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
    """Remove what a dead manager left of a dead group at `address`; the caller holds its lock."""
    if past.shm:
        from shmtensor.manager.daemon.memory import unlink_shm

        for name in past.shm:
            unlink_shm(name)
    path = addresses.journal_path(address)
    for each in (path, path + b".new"):
        if journal.is_free(each) and journal.read(each).group in (None, past.group):
            remove(each)


def _sweep(directory: bytes, own: bytes) -> None:
    """Clear away what dead managers of dead groups left in the directory: sockets, locks, journals, old logs."""
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
                if group is None:
                    _clear(address, past)
                    remove(address)
                    remove_empty_log(address)
                    remove(addresses.lock_path(address))
        except (OSError, ManagerUnavailable):
            pass  # someone else's trouble; it must not keep this manager from starting
        finally:
            os.close(fd)


def inherited_listener() -> socket.socket | None:
    """The socket on which a service manager (systemd) listens for us and that it passed on, if it did.

    Raises:
        ManagerUnavailable: what it passed is not one that a manager can serve.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or not os.environ.get("LISTEN_FDS", "").isdecimal():
        return None
    count = int(os.environ["LISTEN_FDS"])
    listener = None
    if count == 1:
        try:
            listener = socket.socket(fileno=_FIRST_INHERITED)
        except OSError:
            pass
    if (
        listener is None
        or (listener.family, listener.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET)
        or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        or not isinstance(listener.getsockname(), str)
    ):
        raise ManagerUnavailable(
            f"LISTEN_FDS is {count} and descriptor {_FIRST_INHERITED} is not what a manager serves: one listening unix "
            "socket with a path (in a systemd socket unit: ListenSequentialPacket=)"
        )
    listener.set_inheritable(False)
    return listener


def _raise_descriptor_limit() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            pass  # fewer segments fit; the error that says so comes then


def serve(
    address: bytes,
    ready: Callable[[], None],
    *,
    listener: socket.socket | None = None,
    is_private: bool = False,
    max_clients: int | None = None,
    max_bytes: int | None = None,
    max_bytes_per_client: int | None = None,
    idle_exit: float | None = None,
    log: str | None = None,
) -> None:
    """Serve at `address` in this process until stopped or idle; `ready` is called when connections are accepted.

    A group whose manager was killed is taken over with all that its clients have. A manager in the background is asked
    for its place, with all that it has itself, unless `is_private`. When this manager is stopped while anything lives,
    a child of this process goes on in the background, and this process returns.

    Args:
        listener: what listens there already, and stays when this manager ends; None: we make it, and remove it.
        max_bytes: payload that may be reserved in all; None: as in a group that is taken over, else as
            SHMTENSOR_MAX_BYTES says, else without a bound.
        max_bytes_per_client: the same of each client, with SHMTENSOR_MAX_BYTES_PER_CLIENT.
        is_private: it runs in the background, because a client needed it.
        log: where stderr goes, for STATS; None: it is sent to the log beside the socket.
    Raises:
        AlreadyRunning: a manager serves this address.
        ManagerUnavailable: directory, lock or socket are refused, somebody's file lies where one of ours would, or a
            quota in the environment is no size.
    """
    of_new_group = addresses.own_quotas()
    addresses.own_directory(os.path.dirname(os.fsdecode(address)))
    found = _in_the_way(address, listener is not None)
    if found:
        raise ManagerUnavailable(
            f"{os.fsdecode(found[0])} is not {found[1]}, and a manager at {os.fsdecode(address)} would replace it: "
            f"move it away, or give another address (`--address`, {addresses.MANAGER_VARIABLE}, "
            f"{addresses.RUNTIME_VARIABLE})"
        )
    seat = Seat(
        address,
        listener=listener,
        is_own=listener is None,
        is_private=is_private,
        idle_exit=idle_exit,
        max_clients=max_clients,
        log=log,
    )
    _take_seat(seat)
    seat.ready = ready
    _rule(seat, of_new_group, (max_bytes, max_bytes_per_client))


def again(text: str) -> None:
    """What the interpreter runs that `handover.restart` put in the place of a manager's."""
    try:
        seat = handover.executed(text)
        if seat.is_private:
            _detach()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keeper
        _rule(seat, (0, 0), (None, None))
    except ManagerUnavailable as problem:
        sys.exit(f"{LOG_HEAD.decode()}{os.getpid()}]: it cannot start anew: {problem}")


def _rule(seat: Seat, quotas: tuple[int, int], asked: tuple[int | None, int | None]) -> None:
    """Be the manager in `seat`, by one server after the other, until another process is or nobody needs one.

    Args:
        quotas: of a new group.
        asked: quotas that hold in a group that is taken over as well.
    """
    try:
        # Not before the lock: a manager that leaves takes its log along if it is empty.
        if seat.log is None:
            seat.log = open_log(seat.address)
        _raise_descriptor_limit()
        server: Server | None = None
        while server is None or (server.is_to_be_followed and _goes_on(seat, server)):
            server = _open_server(seat, server, quotas, asked)
            asked = (None, None)
            with server:
                seat.taken()
                try:
                    server.run()
                finally:
                    seat.dead = None if server.replaced or server.has_heirs else server.past
                    if not server.is_to_be_followed:
                        # The path goes first: whoever looks from now on finds nothing and starts another manager.
                        _remove_socket(seat)
        server.close()
    except ManagerUnavailable:
        raise
    except BaseException:
        if seat.is_private:
            import traceback

            print(f"{LOG_HEAD.decode()}{os.getpid()}]: failed", file=sys.stderr)
            traceback.print_exc()
        raise
    finally:
        if not seat.is_others:
            _clear_away(seat)
        seat.close()


def _open_server(
    seat: Seat, before: Server | None, quotas: tuple[int, int], asked: tuple[int | None, int | None]
) -> Server:
    """A server in `seat`, with what `before` has, or `seat.keeper`, or else what is left. Raises ManagerUnavailable."""
    address = seat.address
    from shmtensor.manager.daemon.server import MAX_CLIENTS, Server

    addresses.own_directory(os.path.dirname(os.fsdecode(address)))  # somebody may have removed it meanwhile
    try:
        seat.life.write(seat.lock)
    except OSError as problem:
        raise ManagerUnavailable(
            f"the lock file of {os.fsdecode(address)} cannot be written: {problem.strerror}"
        ) from None
    if before is None:
        past, group = _left_behind(address, seat.keeper)
        seat.dead = None
        if group is None:
            if seat.keeper:
                raise ManagerUnavailable(
                    "the group of the manager before cannot be found; is another version installed now?"
                )
            _clear(address, past)
            seat.dead = past
        _sweep(os.path.dirname(address), address)
    else:
        past, group = journal.read(addresses.journal_path(address)), before.group
        past = past if past.group == before.group_id else before.past
    if seat.listener is None:
        remove(address)
        seat.listener = listen(address)
    if seat.made is None:
        seat.made = _socket_at(address)
    try:
        server = Server(
            address,
            Guard(seat),
            past=past,
            group=group,
            before=before,
            keeper=seat.keeper,
            is_private=seat.is_private,
            max_clients=MAX_CLIENTS if seat.max_clients is None else seat.max_clients,
            idle_exit=seat.idle_exit,
            log=seat.log or "",
        )
    except OSError as problem:
        if problem.errno == errno.EXDEV:
            raise ManagerUnavailable(
                f"the group at {os.fsdecode(address)} belongs to another PID namespace, where process ids mean "
                "others: start its next manager there"
            ) from None
        raise ManagerUnavailable(
            f"the group's shared memory cannot be made, or not be taken over: {problem.strerror}"
            + ("; raise the limit of file sizes (ulimit -f)" if problem.errno == errno.EFBIG else "")
        ) from None
    kept = quotas if group is None else group.quotas()
    server.group.set_quotas(*(mine if each is None else each for mine, each in zip(kept, asked, strict=True)))
    return server


def _goes_on(seat: Seat, server: Server) -> bool:
    """Have another process follow `server`; True: it is this one that goes on, as the heir or since there is none."""
    try:
        if server.asker is not None:
            seat.is_others = handover.give(seat, server.asker, server.request_id)
            return not seat.is_others
        if server.is_restarting:
            handover.restart(seat)
            _say("the new manager did not start; the one before goes on in the background")
        else:
            _say("its memory is in use still: a process in the background goes on until it is not")
            if not handover.leave(seat):
                return False
    except OSError as problem:
        what = "start anew" if server.is_restarting else "leave another in its place"
        _say(f"it cannot {what}: {problem.strerror}")
        return server.is_restarting
    _go_to_background(seat)
    return True


def _say(text: str) -> None:
    print(f"{LOG_HEAD.decode()}{os.getpid()}]: {text}", file=sys.stderr, flush=True)


def _clear_away(seat: Seat) -> None:
    """Remove what lies at the address, of a manager that ends and leaves nobody in its place."""
    if seat.dead is not None:
        _clear(seat.address, seat.dead)
    _remove_socket(seat)
    if is_still(addresses.lock_path(seat.address), os.fstat(seat.lock)):
        remove_empty_log(seat.address)
        remove(addresses.lock_path(seat.address))


def _remove_socket(seat: Seat) -> None:
    """Remove the socket file if it is ours, and not that of a manager that has taken this one's place."""
    if seat.is_own and seat.made is not None and is_still(seat.address, seat.made):
        remove(seat.address)


def _socket_at(path: bytes) -> os.stat_result | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found if stat.S_ISSOCK(found.st_mode) else None


def background(address_text: str, idle: str, clients: str) -> None:
    """What the started interpreter runs: fork, serve in the child, report readiness by the exit of this process."""
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
    os.dup2(0, 1)  # the starter waits for the end of it
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
        report(READY)  # all that was wanted
    except BaseException as problem:
        code = 1
        report(f"{problem}\n".encode("utf-8", "replace"))
    sys.stderr.flush()
    os._exit(code)


def _detach() -> None:
    """Keep nothing of the starter that can be undone: other programs are to be served as this one is.

    Its cgroup, its hard limits and its environment stay.
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
            pass  # as far as this user may
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:  # a handler of the server before is as good as that of the next
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)


def _write(name: str, content: bytes) -> None:
    with open(f"/proc/self/{name}", "wb", buffering=0) as file:
        file.write(content)


def _go_to_background(seat: Seat) -> None:
    """Serve on as a manager in the background does: what else this process was started for has ended."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(null, 1)
    if not stat.S_ISREG(os.fstat(2).st_mode):  # a file goes on to be the log
        try:
            seat.log = open_log(seat.address)
        except ManagerUnavailable:
            os.dup2(null, 2)
    os.close(null)
    _detach()
    if not seat.is_private:
        seat.is_private, seat.idle_exit = True, IDLE_EXIT_SECONDS
