"""The manager's files where the system refuses, or where others have put something else in their place."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from manager_world import World, until
from refusing import failing, limited, open_descriptors

from shmtensor import _native, errors
from shmtensor.manager import address as addresses
from shmtensor.manager import launch, lockfile, shortage
from shmtensor.manager.connection import Observer
from shmtensor.manager.daemon import handover, journal, run
from shmtensor.manager.daemon.handover import Role
from shmtensor.manager.daemon.journal import Journal, Past

pytestmark = pytest.mark.any_python


@pytest.fixture(autouse=True)
def no_descriptor_left() -> Iterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors() == before


def role_at(path: bytes, **more: Any) -> Role:
    """A manager's role at that address."""
    settings: dict[str, Any] = {
        "listener": None,
        "is_own": True,
        "is_private": False,
        "idle_exit": None,
        "max_clients": None,
        "log": None,
    }
    return Role(path, **{**settings, **more})


# ------------------------------------------------------------------------------------------------------------ addresses


@pytest.mark.parametrize(("number", "is_known"), [(errno.ENOENT, True), (errno.EACCES, False)])
def test_whether_the_overflow_uid_is_a_users(monkeypatch: pytest.MonkeyPatch, number: int, is_known: bool) -> None:
    """Without /proc, the overflow uid is 65534; a kernel without user namespaces has no file of mappings."""
    monkeypatch.setattr(addresses, "open", failing(number), raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    if is_known:
        assert addresses.own_uid() == 65534
    else:
        with pytest.raises(errors.ManagerUnavailable, match="stands for every unmapped user"):
            addresses.own_uid()


def test_directories_that_cannot_be_made_or_are_anothers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.ManagerUnavailable, match=r"cannot create the directory .*: Not a directory"):
        addresses.own_directory(str(tmp_path / "file" / "runtime"))
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(errors.ManagerUnavailable, match=f"belongs to uid {uid}, and this process has uid {uid + 1}"):
        addresses.own_directory(str(tmp_path))


@pytest.mark.parametrize("refused", ["open", "fchmod"])
def test_a_directory_that_cannot_be_closed_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    tmp_path.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(os, refused, failing(errno.EPERM))
        with pytest.raises(errors.ManagerUnavailable, match=r"open to other users \(mode 0755\)"):
            addresses.own_directory(str(tmp_path))
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert addresses.own_directory(str(tmp_path)) == str(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_where_the_runtime_directory_is_without_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(addresses.RUNTIME_VARIABLE)
    monkeypatch.setattr(os, "geteuid", lambda: 987654)
    for variable, value in (("XDG_RUNTIME_DIR", tmp_path / "missing"), ("TMPDIR", tmp_path)):
        monkeypatch.setenv(variable, str(value))
    assert addresses.runtime_path() == f"{tmp_path}/shmtensor-987654"
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    assert addresses.runtime_path() == "/tmp/shmtensor-987654"
    monkeypatch.setattr(os, "access", lambda path, _mode: path == "/dev/shm")
    assert addresses.runtime_path() == "/dev/shm/shmtensor-987654"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert addresses.runtime_path() == "/tmp/shmtensor-987654", "which the error names"


@pytest.mark.parametrize("token", ["a/b", "x" * 33, "é"])
def test_what_is_no_token_of_a_group(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv(addresses.GROUP_VARIABLE, token)
    with pytest.raises(errors.InvalidArgument, match="1 to 32 ASCII letters and digits"):
        addresses.group_token()


# ----------------------------------------------------------------------------------------------------------- lock files


@pytest.mark.parametrize("text", [b"12 1.2.3 - /x.sock", b"12 - 1.5 /x.sock", b"12 1e - /x.sock"])
def test_numbers_in_a_lock_file_that_are_none(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "x.lock"
    path.write_bytes(text)
    with path.open("rb") as file:
        assert lockfile.Life.read(file.fileno()) is None


def test_a_file_system_without_locks(tmp_path: Path) -> None:
    """The kernel refuses to lock a descriptor that only names a file."""
    fd = os.open(tmp_path, os.O_PATH)
    with pytest.raises(errors.ManagerUnavailable, match="does not support flock: Bad file descriptor"):
        lockfile.try_lock(fd)
    os.close(fd)


def test_the_first_bytes_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "fifo")
    assert lockfile.head(os.fsencode(file), 4) == b"cont"
    assert lockfile.head(os.fsencode(tmp_path / "missing")) == b""
    for name in ("link", "fifo", ""):
        assert lockfile.head(os.fsencode(tmp_path / name)) is None
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", failing(errno.EIO))
        assert lockfile.head(os.fsencode(file)) is None


def test_who_answers_has_others_waiting(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "x.sock")
    assert not lockfile.answers(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        assert not lockfile.answers(path), "it does not listen"
        listener.listen(0)
        assert lockfile.answers(path)
        assert lockfile.answers(path), "the backlog is full, as the first connection still waits"


def test_managers_that_cannot_be_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.fsencode(tmp_path / "x.sock")
    with pytest.raises(errors.ManagerUnavailable, match="names no process"):
        launch.kill(path)
    monkeypatch.setattr(launch, "SUCCEED_SECONDS", 0.0)
    held = lockfile.open_lock(addresses.lock_path(path))
    assert lockfile.try_lock(held)
    gone = 1 << 30  # larger than any pid
    lockfile.Life(gone, None, None, path).write(held)
    with pytest.raises(errors.ManagerTimeout, match=rf"\(pid {gone}\) did not end after SIGKILL"):
        launch.kill(path)
    lockfile.Life(1, None, None, path).write(held)  # it lives, but has not this file
    monkeypatch.setattr(os, "listdir", failing(errno.ESRCH))
    with pytest.raises(errors.ManagerTimeout, match=r"\(pid 1\) did not end"):
        launch.kill(path)
    os.close(held)


def test_a_successor_that_a_supervisor_started_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_PROGRAM", "raise SystemExit('started another')")
    path = os.fsencode(tmp_path / "x.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        launch.succeed(path, None, None)
        listener.setblocking(False)
        listener.accept()[0].close()  # the look, which finds it


# ------------------------------------------------------------------------------------------------------------- journals


def test_lines_that_are_no_records_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    path.write_text("group 5\nnamespace\nshm /a b\nshm /b\nname n 1 2\nname\ngone\nother 1\nshm /c 7\nshm /d")
    past = journal.read(os.fsencode(path))
    assert (past.group, past.namespace, past.shm, past.names) == (5, None, {b"/c": 7}, {})


def past_of(group: int) -> Past:
    past = Past()
    past.group = group
    return past


def test_a_namespace_that_is_not_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", failing(errno.ENOENT))
        facts = past_of(3).facts
    assert facts == [b"group 3", b"namespace 0"]


def test_a_journal_that_cannot_be_written_yet(tmp_path: Path) -> None:
    path = tmp_path / "later" / "x.journal"
    with pytest.raises(FileNotFoundError):
        Journal(os.fsencode(path), past_of(3))
    made = Journal(os.fsencode(path), past_of(3), may_wait=True)
    path.parent.mkdir()
    assert made.keep() and not made.keep()
    assert journal.read(os.fsencode(path)).group == 3
    made.close()


@pytest.mark.parametrize("removable", [True, False])
def test_a_journal_that_cannot_take_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removable: bool) -> None:
    path = os.fsencode(tmp_path / "x.journal")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing(errno.EROFS))
        if not removable:
            patch.setattr(os, "unlink", failing(errno.EROFS))
        with pytest.raises(OSError, match="Read-only file system"):
            Journal(path, past_of(3))
    assert [entry.name for entry in tmp_path.iterdir()] == ([] if removable else ["x.journal.new"])
    Journal(path, past_of(3)).close()  # what was left there is one of ours
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.journal"]


def test_a_disk_that_is_full_in_the_middle_of_a_record(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    made = Journal(os.fsencode(path), past_of(3))
    with limited(resource.RLIMIT_FSIZE, path.stat().st_size + 5):
        with pytest.raises(OSError, match="No space left"):
            made.shm(b"/torn", 7)
        made.gone(b"/other")  # raises nothing
    made.shm(b"/whole", 8)
    made.close()
    assert path.read_text().splitlines()[2:] == ["shm /", "shm /whole 8"]
    assert journal.read(os.fsencode(path)).shm == {b"/whole": 8}


def test_a_long_journal_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "KEEP_LINES", 4)
    path = tmp_path / "x.journal"
    made = Journal(os.fsencode(path), past_of(3))
    made.name(b"kept", (1, 2, 3), (4, 5))
    for number in range(20):
        made.shm(b"/x%d" % number, number)
        made.gone(b"/x%d" % number)
        assert len(path.read_text().splitlines()) <= 4 + 4 * 2
    made.close()
    past = journal.read(os.fsencode(path))
    assert past.names == {b"kept": ((1, 2, 3), (4, 5))} and not past.shm


# ------------------------------------------------------------------------------------------------------ a manager's end


def test_a_lock_file_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    path = tmp_path / "x.sock"
    with limited(resource.RLIMIT_FSIZE, 0), pytest.raises(errors.ManagerUnavailable, match="free space there"):
        run.serve(os.fsencode(path), lambda: None)
    assert not list(tmp_path.iterdir())
    role = role_at(os.fsencode(path), lock=lockfile.open_lock(addresses.lock_path(os.fsencode(path))))
    with (
        limited(resource.RLIMIT_FSIZE, 0),
        pytest.raises(errors.ManagerUnavailable, match="cannot write the lock file of"),
    ):
        run._open_server(role, None, (0, 0), (None, None))
    role.close()


def old(path: Path) -> None:
    long_ago = time.time() - 2 * run.KEEP_LOG_SECONDS
    os.utime(path, (long_ago, long_ago))


def test_files_of_others_that_cannot_be_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = os.fsencode(tmp_path)
    (tmp_path / "dangling.log").symlink_to(tmp_path / "missing")
    (tmp_path / "dead.journal").write_text("group 987654321\n")
    (tmp_path / "dead.log").write_bytes(run.LOG_HEAD + b"1]: ended\n")
    old(tmp_path / "dead.log")
    names = {"dangling.log", "dead.journal"}

    def read_only(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *more, **named)

    opened = os.open
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        run._sweep(directory, directory + b"/own.sock")
    assert {entry.name for entry in tmp_path.iterdir()} == names, "the log is old; the journal cannot be locked"
    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", failing(errno.ENOLCK))
        run._sweep(directory, directory + b"/own.sock")
    assert {entry.name for entry in tmp_path.iterdir()} == {*names, "dead.sock.lock"}
    run._sweep(directory, directory + b"/own.sock")
    assert {entry.name for entry in tmp_path.iterdir()} == {"dangling.log"}


def test_a_manager_has_as_many_descriptors_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with limited(resource.RLIMIT_NOFILE, min(soft, 256)):
        run._raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    with limited(resource.RLIMIT_NOFILE, min(soft, 256)), monkeypatch.context() as patch:
        patch.setattr(resource, "setrlimit", failing(errno.EPERM))
        run._raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(soft, 256), hard)


@pytest.mark.parametrize(("is_restarting", "said"), [(False, "cannot start a successor"), (True, "cannot restart")])
def test_a_manager_that_may_not_fork(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_restarting: bool,
    said: str,
) -> None:
    """One that was asked to restart serves again; one that was stopped ends."""
    handler, mask = signal.getsignal(signal.SIGCHLD), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    server: Any = SimpleNamespace(asker=None, is_restarting=is_restarting)
    monkeypatch.setattr(os, "fork", failing(errno.EAGAIN))
    try:
        assert run._goes_on(role_at(os.fsencode(tmp_path / "x.sock")), server) is is_restarting
    finally:
        signal.signal(signal.SIGCHLD, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert f"]: {said}: {os.strerror(errno.EAGAIN)}\n" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------------- handover


def test_a_line_whose_other_side_has_ended() -> None:
    """The keeper is not needed any more once the successor serves; a successor that has ended does not serve."""
    served = []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    role = role_at(b"/x.sock", is_private=True, keeper=1, line=ours)
    role.ready = lambda: served.append(True)
    theirs.close()
    role.taken()
    assert served == [True] and role.line is None and role.keeper == 0 and ours.fileno() < 0
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.send(b"unread")
    theirs.close()
    assert not handover.stand_by(ours, -1), "the connection was reset"
    assert ours.fileno() < 0


def test_who_asked_for_the_role_and_has_ended(tmp_path: Path) -> None:
    from shmtensor.manager.daemon.peers import Connection, Kind

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.close()
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        role = role_at(b"/x.sock", lock=lock, listener=listener)
        assert not handover.give(role, Connection(ours, Kind.OBSERVER, os.getpid()), 1)
        assert ours.fileno() < 0
    os.close(lock)


# -------------------------------------------------------------------------------------------------------- without /proc


def test_memory_that_is_not_known_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (shortage.available() or 0) > 0
    monkeypatch.setattr(shortage, "open", failing(errno.ENOENT), raising=False)
    assert shortage.available() is None
    group = _native.Group.create(5)
    text = shortage.describe("a segment", errno.ENOMEM, 4096, "", False, None, group, 0)
    assert os.strerror(errno.ENOMEM) in text and "on this machine" not in text


# ---------------------------------------------------------------------------------------------------- in the background

BACKGROUND = """
import errno, os, sys
from shmtensor.manager.daemon import run
def refuse(*_):
    raise OSError(errno.EPERM, "not here")
for name in sys.argv[2:]:
    setattr(os, name, refuse)
run.background(sys.argv[1], "0.2", "5")
"""


def begin(here: World, *refused: str) -> tuple[int, str, str]:
    """Start a manager as `launch` does. Returns the exit code, and what it said."""
    process = here.script(BACKGROUND, str(here.directory / "manager.sock"), *refused)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.exhaustive
def test_starting_in_the_background(here: World) -> None:
    settings = ("sched_setaffinity", "sched_setscheduler", "setpriority")  # that a user may not change
    assert begin(here, *settings) == (0, "ready", "")
    with Observer(os.fsencode(here.directory / "manager.sock")) as observer:
        pid = observer.welcome.pid
        assert begin(here) == (0, "ready", ""), "the starter only needs a manager"
        with Observer(observer.address) as other:
            assert other.welcome.pid == pid
    until(lambda: not here.managers() and not (here.directory / "manager.sock").exists(), "the manager to leave")


@pytest.mark.exhaustive
def test_what_cannot_be_started_in_the_background_says_why(here: World) -> None:
    assert begin(here, "fork") == (1, "", "fork was refused: not here\n")
    (here.directory / "manager.sock").write_text("dear")
    code, out, err = begin(here)
    assert (code, out) == (1, "") and "manager.sock is not a socket" in err.splitlines()[-1]
    (here.directory / "manager.sock").unlink()
