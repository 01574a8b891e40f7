"""The files of a running manager are removed by common means; there is never more than one group at an address."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from manager_world import BOUND, World, is_alive, kill, line_of, tell, until

from shmtensor import errors
from shmtensor.manager import address, client, launch, lockfile
from shmtensor.manager.connection import NothingThere, Observer

pytestmark = pytest.mark.any_python

NAMES = ("mine.sock", "mine.sock.lock", "mine.journal", "mine.log")


@pytest.fixture
def home(here: World) -> Iterator[Path]:
    """A directory for a manager alone."""
    path = here.directory / "home"
    path.mkdir(0o700)
    yield path
    until(lambda: not here.managers(), "the managers to leave")


@pytest.fixture
def manager(home: Path) -> Iterator[client.Manager]:
    """This process as a client of a manager in the background, whose directory nobody else uses."""
    path = os.fsencode(home / "mine.sock")
    launch.start(path)
    made = client.at(path)
    yield made
    made.close()


def is_complete(home: Path) -> bool:
    return all((home / name).exists() for name in NAMES)


def clear(home: Path) -> None:
    """Remove all of it, as far as its manager is not faster."""
    shutil.rmtree(home, ignore_errors=True)


def pid_at(manager: client.Manager) -> int:
    """Of the manager that a stranger finds. A socket that was put back is there before anybody listens on it."""

    def look() -> bool:
        with suppress(NothingThere), Observer(manager.address) as observer:
            found.append(observer.welcome.pid)
        return bool(found)

    found: list[int] = []
    until(look, "somebody to listen")
    return found[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_removed_is_put_back(manager: client.Manager, home: Path, name: str) -> None:
    pid, block = manager.stats().pid, manager.allocate(64)
    for _ in range(2):
        (home / name).unlink()
        until(lambda: is_complete(home), "the file")
    until(lambda: "has been put back" in (home / "mine.log").read_text(), "the log to say so")
    assert pid_at(manager) == manager.stats().pid == pid
    launch.start(manager.address)  # finds that one
    assert pid_at(manager) == pid
    assert manager.open(manager.export(block)) is block


@pytest.mark.parametrize("how", ["removed", "moved", "moved with what it lies in"])
def test_the_directory_goes(manager: client.Manager, home: Path, how: str) -> None:
    pid, block = manager.stats().pid, manager.allocate(64)
    manager.bind(b"/mine", block)
    away = home.parent / "away"
    if how == "removed":
        clear(home)
        until(lambda: is_complete(home), "the files")
    elif how == "moved":
        home.rename(away)
        until(lambda: is_complete(home), "the files")
        assert is_complete(away), "what was moved is nobody's business"
    else:
        home.parent.rename(str(home.parent) + "-away")
        try:
            launch.start(manager.address)  # nobody tells the manager of that, but who looks for it
            assert is_complete(home)
        finally:
            shutil.rmtree(str(home.parent) + "-away")
    assert home.stat().st_mode & 0o777 == 0o700
    assert pid_at(manager) == manager.stats().pid == pid
    assert manager.open(b"/mine") is block


def test_a_named_object_exists_once(here: World) -> None:
    code = (
        "import sys, shmtensor.multiprocessing as mp\n"
        "from shmtensor.manager import client\n"
        "q = mp.Queue(10, name='work'); print(client.default().stats().group, flush=True); sys.stdin.readline()\n"
        "q.put(sys.argv[1]); print('put', flush=True); sys.stdin.readline()\n"
        "print(q.get(), flush=True)\n"
    )
    env = {"SHMTENSOR_GROUP": "one", "SHMTENSOR_RUNTIME_DIR": str(here.directory / "home")}
    first = here.script(code, "first", env=env)
    group = line_of(first)
    clear(here.directory / "home")
    second = here.script(code, "second", env=env)
    assert line_of(second) == group
    for process in (first, second):
        tell(process)
        assert line_of(process) == "put"
    for process, said in ((second, "first"), (first, "second")):
        tell(process)
        assert line_of(process) == said
        assert process.wait(BOUND) == 0


def test_many_that_start_while_the_directory_is_removed_find_one_group(manager: client.Manager, home: Path) -> None:
    group, pid = manager.stats().group, manager.stats().pid
    code = (
        "import sys; from shmtensor.manager import client, launch\n"
        "path = sys.argv[1].encode(); launch.start(path); print(client.at(path).stats().group)\n"
    )
    words = [sys.executable, "-c", code, os.fsdecode(manager.address)]
    starters = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    while any(starter.poll() is None for starter in starters):
        clear(home)
        until(lambda: is_complete(home), "the files")
    said = {starter.communicate(timeout=BOUND)[0].strip() for starter in starters}
    # Its files may be gone again where it asks; but never does it find another group.
    assert said <= {group, ""}
    assert pid_at(manager) == pid


def test_a_manager_that_is_not_told_looks_when_it_is_looked_for(
    here: World, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system has no more descriptors for watching directories."""
    refuse = "def refuse():\n    raise OSError(24, 'as many as allowed')\n"
    program = launch._PROGRAM.replace(
        "run.background", "from shmtensor import _native;_native.directory_watch=refuse;run.background"
    )
    monkeypatch.setattr(launch, "_PROGRAM", refuse + program)
    path = os.fsencode(home / "mine.sock")
    launch.start(path)
    made = client.at(path)
    pid = made.stats().pid
    assert not [fd for fd in Path(f"/proc/{pid}/fd").iterdir() if "inotify" in str(fd.readlink())]
    for _ in range(3):
        clear(home)
        launch.start(path)
        assert pid_at(made) == made.stats().pid == pid
    made.close()


@pytest.mark.exhaustive
def test_a_stopped_manager_is_named(manager: client.Manager, home: Path) -> None:
    pid = manager.stats().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        clear(home)
        with pytest.raises(errors.ManagerUnavailable, match=f"kill -CONT {pid}"):
            launch.start(manager.address)
        assert not (home / "mine.sock.lock").exists()
    finally:
        os.kill(pid, signal.SIGCONT)
    launch.start(manager.address)
    assert pid_at(manager) == pid


def test_a_dead_one_is_not_waited_for(manager: client.Manager, home: Path) -> None:
    block = manager.allocate(64)
    pid = manager.stats().pid
    os.kill(pid, signal.SIGSTOP)
    (home / "mine.sock.lock").unlink()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid), "the manager to die")
    assert manager.stats().epoch == 2
    assert manager.open(manager.export(block)) is block


@pytest.mark.parametrize("name", ["mine.sock", "mine.sock.lock"])
def test_what_others_put_in_its_place_stays(manager: client.Manager, home: Path, name: str) -> None:
    pid = manager.stats().pid
    foreign = home / "foreign"
    foreign.write_text("of somebody")
    foreign.rename(home / name)
    log = home / "mine.log"
    until(lambda: "cannot be put back" in log.read_text(), "the log to say so")
    assert (home / name).read_text() == "of somebody"
    assert manager.stats().pid == pid, "who is connected goes on"
    (home / name).unlink()
    until(lambda: is_complete(home), "the file")
    assert pid_at(manager) == pid
    assert log.read_text().count("cannot be put back") == 1


def test_a_directory_that_is_not_ours_alone_gets_no_socket(manager: client.Manager, home: Path) -> None:
    pid = manager.stats().pid
    others = home.parent / "others"
    others.mkdir()
    os.kill(pid, signal.SIGSTOP)
    home.rename(home.parent / "away")
    home.symlink_to(others)
    os.kill(pid, signal.SIGCONT)
    log = home.parent / "away" / "mine.log"
    until(lambda: "symbolic link" in log.read_text(), "the log to say so")
    assert manager.stats().pid == pid and not list(others.iterdir())
    home.unlink()
    launch.start(manager.address)
    assert is_complete(home)
    assert pid_at(manager) == pid


def test_who_was_about_to_be_served_is_served(manager: client.Manager, home: Path) -> None:
    """They have connected to the socket that was removed."""
    pid = manager.stats().pid
    os.kill(pid, signal.SIGSTOP)
    waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(40)]
    for sock in waiting:
        sock.connect(manager.address)
        sock.send(b"not a request")
    (home / "mine.sock").unlink()
    os.kill(pid, signal.SIGCONT)
    for sock in waiting:
        sock.settimeout(BOUND)
        assert sock.recv(1000), "an answer"
        sock.close()
    until(lambda: is_complete(home), "the socket")
    assert pid_at(manager) == pid


def test_a_socket_that_was_passed_on_is_replaced_by_its_own(here: World, home: Path) -> None:
    path = home / "passed.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(100)
        code = (
            "import os, sys; os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')\n"
            "fd = int(sys.argv[1]); os.dup2(fd, 3, inheritable=True) if fd != 3 else None\n"
            "os.execv(sys.executable, [sys.executable, '-m', 'shmtensor.manager', 'serve', '--idle-exit', '1'])\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(listener.fileno())],
            env=here.env,
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        here.processes.append(process)
        user = client.at(os.fsencode(path))
        path.unlink()
        until(path.exists, "another socket")
        assert pid_at(user) == process.pid
        user.close()
        assert process.wait(BOUND) == 0
        assert not path.exists(), "the second one was its own"


def test_a_lock_file_says_whose_it_is(tmp_path: Path) -> None:
    lock = lockfile.open_lock(os.fsencode(tmp_path / "x.lock"))
    assert lockfile.Life.read(lock) is None
    for idle, most in ((None, None), (0.5, 7)):
        lockfile.Life(12, idle, most, b"/with a blank/x.sock").write(lock)
        life = lockfile.Life.read(lock)
        assert life is not None
        assert (life.pid, life.idle_exit, life.max_clients, life.address) == (12, idle, most, b"/with a blank/x.sock")
    os.pwrite(lock, b"of somebody", 0)
    assert lockfile.Life.read(lock) is None
    os.close(lock)


@pytest.mark.parametrize("other_starts", [True, False])
def test_a_lock_file_removed_before_the_socket_exists(here: World, home: Path, other_starts: bool) -> None:
    """Neither of two managers finds the other; the first one gives up and leaves the files of the second alone."""
    path = home / "mine.sock"
    code = (
        "import os, sys\n"
        "from shmtensor.manager import launch\n"
        "from shmtensor.manager.daemon import run\n"
        "address, listen = os.fsencode(sys.argv[1]), run.listen\n"
        "def late(address):\n"
        "    os.unlink(address + b'.lock')\n"
        "    if sys.argv[2] == 'True':\n"
        "        launch.start(address)\n"
        "    return listen(address)\n"
        "run.listen = late\n"
        "try:\n"
        "    run.serve(address, lambda: print('serves'))\n"
        "except run.AlreadyRunning as problem:\n"
        "    print(problem)\n"
    )
    command = [sys.executable, "-c", code, str(path), str(other_starts)]
    done = subprocess.run(command, env=here.env, capture_output=True, text=True, timeout=BOUND, check=False)
    assert (done.returncode, done.stdout) == (
        0,
        f"the lock file of {path} was removed while the manager started; start it again\n",
    ), done.stderr
    if other_starts:
        made = client.at(os.fsencode(path))
        assert pid_at(made) == made.stats().pid
        assert is_complete(home)
        made.close()
    else:
        assert not path.exists()


def test_the_lock_of_another_manager_is_not_taken_for_its_own(manager: client.Manager, home: Path) -> None:
    """It was killed, and its process id is another's by now: only what has the file open counts."""
    from shmtensor.manager.daemon.takeover import find_manager

    device = home.stat().st_dev
    (home / "mine.sock.lock").rename(home.parent / "mine.sock.lock")
    lock = lockfile.open_lock(os.fsencode(home.parent / "mine.sock.lock"))
    assert find_manager(manager.address, device) == manager.stats().pid, "it has kept that, or has another by now"
    assert find_manager(address.check_address(home / "other.sock"), device) is None
    assert find_manager(manager.address, device + 1) is None
    os.close(lock)


def test_nothing_of_it_is_left(here: World, home: Path) -> None:
    path = here.serve(address=home / "mine.sock")
    for name in ("mine.sock", "mine.sock.lock", "mine.journal"):
        (home / name).unlink()
        until(lambda: all((home / each).exists() for each in NAMES[:3]), "the files")
    descriptors = len(list(Path(f"/proc/{here.server.pid}/fd").iterdir()))
    clear(home)
    until(lambda: all((home / each).exists() for each in NAMES[:3]), "the files")
    assert len(list(Path(f"/proc/{here.server.pid}/fd").iterdir())) == descriptors
    assert here.command("stop", "--address", os.fsdecode(path)).returncode == 0
    assert here.server.wait(BOUND) == 0
    assert not list(home.iterdir())


def test_killed_beside_its_files_it_is_followed(here: World, home: Path) -> None:
    path = here.serve(address=home / "mine.sock")
    user = client.at(path)
    block = user.allocate(64)
    user.bind(b"/mine", block)
    clear(home)
    until(lambda: all((home / each).exists() for each in NAMES[:3]), "the files")
    kill(here.server)
    assert user.open(b"/mine") is block
    assert user.stats().epoch == 2
    del block
    user.close()
