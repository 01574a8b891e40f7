"""Finding and starting a manager, from real processes."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from manager_world import BOUND, World, is_alive, kill, line_of, tell, until

from shmtensor import errors
from shmtensor.manager import address, client, launch, protocol
from shmtensor.manager.connection import Observer, connect
from shmtensor.manager.daemon import run

PRINT = (
    "from shmtensor.manager import client; m = client.default(); print(m.address.decode(), m.stats().pid, flush=True)"
)


def test_the_first_need_starts_the_users_manager_which_leaves(here: World) -> None:
    address, pid = here.run(PRINT).split()
    assert address == str(here.directory / "manager.sock")
    assert int(pid) not in (0, os.getpid())
    until(lambda: not is_alive(int(pid)), "the manager to leave")
    until(lambda: {entry.name for entry in here.directory.iterdir()} == {"start.lock"}, "its files to be gone")


def test_descendants_find_it_without_being_told(here: World) -> None:
    code = f"import subprocess, sys; {PRINT}; subprocess.run([sys.executable, '-c', {PRINT!r}], check=True)"
    first, second = here.run(code).splitlines()
    assert first == second


MEET = """
import sys, shmtensor, shmtensor.multiprocessing as mp
own = shmtensor.ones(1000, shared=True)  # each may have started a manager before the name is looked at
q, lock = mp.Queue(name="jobs"), mp.Lock(name="lock")
print("ready", flush=True)
sys.stdin.readline()
"""


def test_programs_that_are_not_related_meet_by_name_whoever_comes_first(here: World) -> None:
    one, two = (
        here.script(MEET + "q.put(own)\nsys.stdin.readline()"),
        here.script(MEET + "print(int(q.get(timeout=20).sum()))"),
    )
    assert [line_of(one), line_of(two)] == ["ready", "ready"]
    tell(one)
    tell(two)
    assert line_of(two) == "1000"
    assert len(here.managers()) == 1


def test_a_group_of_its_own_is_for_those_who_choose_it(here: World) -> None:
    code = f"{PRINT}; import os; print(os.environ.get('SHMTENSOR_GROUP'))"
    address, _, token = here.run(code).split()
    assert address.endswith("/manager.sock") and token == "None"
    address, _, token = here.run(code, env={"SHMTENSOR_GROUP": "mine"}).split()
    assert address.endswith("/mine.sock") and token == "mine"


APART = """
import os
import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor.manager import client
manager = client.default()
print(os.environ.get("SHMTENSOR_GROUP", "none"), *manager.native.group.quotas())
mp.Queue().put(1)
for make in (mp.Queue, mp.Broadcast, mp.Lock, mp.Semaphore, mp.Event, mp.Condition):
    try:
        make(name="x")
    except errors.ManagerUnavailable as problem:
        print(problem)
"""


def test_a_program_with_quotas_limits_no_other(here: World) -> None:
    quota = {"SHMTENSOR_MAX_BYTES": "48M"}
    with_quota = f"import subprocess, sys\n{APART}"
    with_quota += f"subprocess.run([sys.executable, '-c', {APART!r}], check=True)\n"
    first, *said = here.run(with_quota, env=quota).splitlines()
    assert first.startswith("quota") and first.endswith(f" {48 << 20} 0")
    assert first in said, "a descendant has the same group"
    assert len(said) == 13 and sum("SHMTENSOR_MAX_BYTES" in line and "SHMTENSOR_GROUP" in line for line in said) == 12
    assert here.run(APART).splitlines() == ["none 0 0"]
    assert here.run(APART, env={**quota, "SHMTENSOR_GROUP": "mine"}).splitlines() == [f"mine {48 << 20} 0"]
    here.serve("--max-bytes", "48M")
    (said,) = here.run(
        "import shmtensor, shmtensor.multiprocessing as mp; q = mp.Queue(name='x'); " + PRINT, env=quota
    ).splitlines()
    assert said.split()[0].endswith("/manager.sock"), "one that has just these quotas is for this program"


def test_beside_a_manager_of_another_version_a_program_has_its_own(here: World) -> None:
    other = here.script(
        "import os, sys\n"
        "from shmtensor.manager import protocol\nfrom shmtensor.manager.daemon import run, server\n"
        "protocol.PROTOCOL_VERSION += 1\n"
        "run.serve(os.fsencode(sys.argv[1]), lambda: print('ready', flush=True), log='')",
        str(here.directory / "manager.sock"),
    )
    assert line_of(other) == "ready"
    first, *said = here.run(APART).splitlines()
    assert first.startswith("version")
    assert len(said) == 6 and all("another version" in line for line in said)


def test_a_manager_keeps_no_limit_and_no_habit_of_its_starter(here: World) -> None:
    code = (
        "import os, resource, signal, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.nice(5); os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))\n"
        "open('/proc/self/oom_score_adj', 'w').write('500')\n"
        f"{PRINT}; sys.stdin.readline()\n"
    )
    program = here.script(code)
    pid = int(line_of(program).split()[1])
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    assert soft == hard
    ignored = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn"))
    assert not int(ignored.split()[1], 16) >> (signal.SIGTERM - 1) & 1
    if os.geteuid() == 0:
        assert os.getpriority(os.PRIO_PROCESS, pid) == 0
        assert os.sched_getscheduler(pid) == os.SCHED_OTHER
        assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "0"
    tell(program)  # it ignores SIGTERM


def test_many_starting_at_once_end_up_with_one(here: World) -> None:
    code = f"import sys; sys.stdin.readline(); {PRINT}; sys.stdin.readline()"
    processes = [here.script(code) for _ in range(8)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = set()
    for process in processes:
        assert process.stdout is not None
        answers.add(process.stdout.readline())
    assert len(answers) == 1, answers
    assert len(here.managers()) == 1
    for process in processes:
        process.communicate("end\n", timeout=BOUND)
        assert process.returncode == 0


def test_starting_again_and_again_while_the_last_one_leaves(here: World) -> None:
    code = (
        "import os\n"
        "from shmtensor.manager import client, launch\n"
        "pids = set()\n"
        "for _ in range(15):\n"
        "    m = client.default(); pids.add(m.stats().pid); m.allocate(64); m.close()\n"
        "print(len(pids))\n"
    )
    original = here.run(code)
    assert int(original) >= 1


def test_threads_share_one_connection(here: World) -> None:
    code = (
        "import threading\n"
        "from shmtensor.manager import client\n"
        "found = []\n"
        "threads = [threading.Thread(target=lambda: found.append(client.default())) for _ in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert len(set(map(id, found))) == 1\n"
        "m = found[0]; block = m.allocate(64); names = []\n"
        "many = lambda: names.extend(m.export(block) for _ in range(200))\n"
        "threads = [threading.Thread(target=many) for _ in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert len(names) == 1600 and len(set(names)) == 1\n"
        "assert m.stats().clients == 1\n"
    )
    here.run(code)


def test_the_daemon_holds_nothing_of_its_starter(here: World) -> None:
    code = (
        "import os, sys; read_end, write_end = os.pipe(); os.set_inheritable(write_end, True); "
        f"{PRINT}; print(os.getsid(0), os.getpgrp(), flush=True); sys.stdin.readline()"
    )
    process = here.script(code)
    assert process.stdout is not None
    pid = int(process.stdout.readline().split()[1])
    session = int(process.stdout.readline().split()[0])
    assert os.getsid(pid) != session
    stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    assert int(stat[1]) != process.pid, "it must not be a child of its starter"
    pipes = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    theirs = {str(entry.readlink()) for entry in Path(f"/proc/{process.pid}/fd").iterdir()}
    assert not [pipe for pipe in pipes if pipe.startswith("pipe:") and pipe in theirs]
    kill(process)
    until(lambda: not is_alive(pid), "the manager to leave after its only client was killed")


def test_a_manager_that_serves_is_the_users_and_the_variable_comes_first(here: World) -> None:
    address = here.serve()
    assert here.run(PRINT).split()[0] == os.fsdecode(address)
    other = here.serve(address=here.directory / "third.sock")
    named = here.run(PRINT, env={"SHMTENSOR_MANAGER": os.fsdecode(other)})
    assert named.split()[0] == os.fsdecode(other)


def failure(here: World, env: dict[str, str]) -> str:
    code = (
        "from shmtensor import errors\nfrom shmtensor.manager import client\n"
        "try:\n    client.default()\n"
        "except errors.ManagerError as problem:\n    print(type(problem).__name__, problem)\n"
    )
    return here.run(code, env=env)


def test_a_manager_named_by_the_user_is_never_started(here: World) -> None:
    path = here.directory / "nothing.sock"
    said = failure(here, {"SHMTENSOR_MANAGER": str(path)})
    assert said.startswith("ManagerUnavailable") and "SHMTENSOR_MANAGER" in said and str(path) in said
    assert not list(here.directory.iterdir())


def test_what_is_not_a_socket(here: World) -> None:
    path = here.directory / "file"
    path.write_text("x")
    said = failure(here, {"SHMTENSOR_MANAGER": str(path)})
    assert said.startswith("ManagerUnavailable") and "not a socket" in said


def test_a_socket_of_another_kind_or_a_stale_one(here: World) -> None:
    path = str(here.directory / "stream.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        assert "another type" in failure(here, {"SHMTENSOR_MANAGER": path})
    assert "no process listens" in failure(here, {"SHMTENSOR_MANAGER": path})


def imposter(path: str, reply: bytes) -> tuple[socket.socket, threading.Thread]:
    """Something that listens like a manager and answers every HELLO with `reply`."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen()

    def answer() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock:
                if not sock.recv(4096):
                    return
                sock.send(reply)

    thread = threading.Thread(target=answer)
    thread.start()
    return listener, thread


def dismiss(path: str, listener: socket.socket, thread: threading.Thread) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as last:
        last.connect(path)
    thread.join(BOUND)
    listener.close()


def test_another_version_is_an_error_where_it_was_named_and_passed_over_where_not(here: World) -> None:
    path = str(here.directory / "manager.sock")
    text = "the manager speaks protocol 9, this process speaks 1"
    reply = protocol.encode(protocol.Error(protocol.VERSION, 9, text), 1)
    listener, thread = imposter(path, reply)
    try:
        said = failure(here, {"SHMTENSOR_MANAGER": path})
        assert said.startswith("ProtocolError") and "protocol 9" in said
        found = here.run(PRINT).split()[0]
        assert found != path and found.startswith(str(here.directory))
    finally:
        dismiss(path, listener, thread)


def test_what_speaks_something_else(here: World) -> None:
    path = str(here.directory / "other.sock")
    listener, thread = imposter(path, b"HTTP/1.0 400 Bad Request\r\n\r\n")
    try:
        assert failure(here, {"SHMTENSOR_MANAGER": path}).startswith("ProtocolError")
    finally:
        dismiss(path, listener, thread)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a socket of another user")
def test_another_users_socket(here: World) -> None:
    path = str(here.directory / "theirs.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        os.chown(path, 12345, 12345)
        said = failure(here, {"SHMTENSOR_MANAGER": path})
    assert "belongs to uid" in said and "12345" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_the_manager_refuses_another_uid(here: World) -> None:
    address = here.serve()
    here.directory.chmod(0o711)
    Path(os.fsdecode(address)).chmod(0o666)
    code = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); os.setuid(12345); "
        "s.connect(sys.argv[1]); print(s.recv(4096)[24:].decode(), len(s.recv(10))); s.close()"
    )
    said = here.run(code, os.fsdecode(address))
    assert "the client has uid 12345" in said


def test_a_directory_that_is_not_ours_alone(here: World) -> None:
    shared = here.directory / "shared"
    shared.mkdir()
    (shared / "letter").write_text("dear")
    shared.chmod(0o755)
    said = failure(here, {"SHMTENSOR_RUNTIME_DIR": str(shared)})
    assert "open to other users" in said and f"chmod 700 {shared}" in said
    assert shared.stat().st_mode & 0o777 == 0o755
    link = here.directory / "link"
    link.symlink_to(here.directory)
    assert "symbolic link" in failure(here, {"SHMTENSOR_RUNTIME_DIR": str(link)})
    file = here.directory / "plain"
    file.write_text("")
    assert "SHMTENSOR_RUNTIME_DIR" in failure(here, {"SHMTENSOR_RUNTIME_DIR": str(file)})


@pytest.mark.parametrize(
    ("mode", "content", "is_closed"),
    [
        (0o755, {}, True),
        (0o777, {"x.sock.lock": "1 0.5 -", "start.lock": "", "x.log": "", "x.journal": ""}, True),
        (0o755, {"x.sock": "a file"}, False),
        (0o1777, {}, False),
        (0o2755, {}, False),
    ],
)
def test_a_directory_of_managers_alone_is_closed_to_others(
    here: World, mode: int, content: dict[str, str], is_closed: bool
) -> None:
    shared = here.directory / "shared"
    shared.mkdir()
    for name, text in content.items():
        (shared / name).write_text(text)
    shared.chmod(mode)
    said = failure(here, {"SHMTENSOR_RUNTIME_DIR": str(shared)})
    assert (said == "") == is_closed
    assert ("chmod" in said) == (not is_closed and mode == 0o755), "never for one that is shared on purpose"
    assert shared.stat().st_mode & 0o7777 == (0o700 if is_closed else mode)


def test_where_no_process_may_be_started(here: World) -> None:
    code = (
        "import os, subprocess\n"
        "from shmtensor import errors\nfrom shmtensor.manager import client, launch\n"
        "import sys; sys.executable = '/nonexistent/python'\n"
        "try:\n    client.default()\nexcept errors.ManagerUnavailable as problem:\n    print(problem)\n"
    )
    said = here.run(code)
    assert "No such file" in said and "SHMTENSOR_MANAGER" in said


def test_a_path_too_long_for_a_socket(here: World) -> None:
    with pytest.raises(errors.InvalidArgument, match="at most 100"):
        client.at("/tmp/" + "x" * 120)
    for wrong in ("", b"a\0b"):
        with pytest.raises(errors.InvalidArgument):
            client.at(wrong)


def test_start_lock_is_waited_for_with_a_bound(here: World) -> None:
    with launch.StartLock(str(here.directory)):
        code = (
            "import sys\nfrom shmtensor import errors\nfrom shmtensor.manager import launch\n"
            "try:\n    launch.StartLock(sys.argv[1], 0.05).__enter__()\n"
            "except errors.ManagerTimeout as problem:\n    print(problem)\n"
        )
        assert "start.lock" in here.run(code, str(here.directory))


def test_sigkill_of_everyone_leaves_nothing_but_files(here: World) -> None:
    code = f"import sys; block = None; {PRINT}; block = m.allocate(1 << 20); sys.stdin.readline()"
    processes = [here.script(code) for _ in range(3)]
    pids = set()
    for process in processes:
        assert process.stdout is not None
        pids.add(int(process.stdout.readline().split()[1]))
    (pid,) = pids
    os.kill(pid, signal.SIGKILL)
    for process in processes:
        kill(process)
    until(lambda: not here.managers(), "the manager to be dead")
    assert {entry.suffix for entry in here.directory.iterdir()} <= {".sock", ".lock", ".log", ".journal"}
    again = here.run(PRINT, env={"SHMTENSOR_GROUP": "next"}).split()[1]
    until(lambda: not is_alive(int(again)), "the next manager to leave")
    assert {entry.name for entry in here.directory.iterdir()} == {"start.lock"}


def test_a_user_who_cannot_be_told_from_others_is_refused(here: World) -> None:
    unshare = ["unshare", "--user"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("no user namespace may be made here")
    code = (
        "from shmtensor import errors\nfrom shmtensor.manager import client\n"
        "try:\n    client.default()\nexcept errors.ManagerUnavailable as problem:\n    print(problem)\n"
    )
    done = subprocess.run([*unshare, sys.executable, "-c", code], env=here.env, capture_output=True, text=True)
    assert "every unmapped user" in done.stdout, done.stderr


def test_no_descriptor_left_to_connect_with(here: World) -> None:
    path = here.serve()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = os.dup(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(errors.ManagerUnavailable, match="Too many open files"):
            connect(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.close(taken)


@pytest.mark.parametrize(("limit", "said"), [(0, "File too large"), (100 << 10, "limit of file sizes (ulimit -f)")])
def test_a_start_that_fails_leaves_no_log(here: World, limit: int, said: str) -> None:
    code = (
        "import resource\nfrom shmtensor import errors\nfrom shmtensor.manager import client\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "try:\n    client.default()\nexcept errors.ManagerUnavailable as problem:\n    print(problem)\n"
    )
    assert said in here.run(code)
    assert [entry.name for entry in here.directory.iterdir()] == ["start.lock"]


def test_a_second_start_takes_no_log_from_the_first(here: World) -> None:
    path = os.fsencode(here.directory / "twice.sock")
    launch.start(path)
    with Observer(path) as observer:
        log = Path(os.fsdecode(address.log_path(path)))
        assert log.exists()
        launch.start(path)
        assert log.exists(), "the first one writes to it still"
        observer.request(protocol.Stop())
        observer.wait_closed()


def test_an_interpreter_that_starts_nothing(here: World) -> None:
    code = (
        "import sys\nfrom shmtensor import errors\nfrom shmtensor.manager import client\n"
        "sys.executable = '/bin/true'\n"
        "try:\n    client.default()\nexcept errors.ManagerUnavailable as problem:\n    print(problem)\n"
    )
    assert "no message" in here.run(code)


def test_old_logs_of_dead_managers_are_cleared_away(here: World) -> None:
    old, new, foreign = (here.directory / name for name in ("old.log", "new.log", "foreign.log"))
    for log in (old, new):
        log.write_text("shmtensor-manager[1]: why it ended")
    foreign.write_text("why something else ended")
    long_ago = time.time() - run.KEEP_LOG_SECONDS - 1
    for log in (old, foreign):
        os.utime(log, (long_ago, long_ago))
    here.run(PRINT)
    assert new.exists() and not old.exists()
    assert foreign.exists(), "that is not a manager's"


@pytest.mark.parametrize("name", ["x.sock", "x.journal", "x.journal.new", "x.sock.lock"])
@pytest.mark.parametrize("content", ["of somebody", "12 of somebody", "group of somebody", "\0" * 200 + "image"])
def test_a_file_of_somebody_else_is_never_replaced(here: World, name: str, content: str) -> None:
    path = here.directory / name
    path.write_text(content)
    refused = here.command("serve", "--address", str(here.directory / "x.sock"))
    assert refused.returncode == 1
    assert str(path) in refused.stderr and "move the file" in refused.stderr
    assert path.read_text() == content
    assert [entry.name for entry in here.directory.iterdir()] == [name]


def test_a_manager_that_clears_away_leaves_the_files_of_others(here: World) -> None:
    theirs = {"a.journal": "diary", "b.sock.lock": "key", "c.sock": "x", "c.journal": "group 1\n", "d.sock": "y"}
    for name, content in theirs.items():
        (here.directory / name).write_text(content)
    dead = here.directory / "dead.journal"
    dead.write_text("group 1\n")
    here.run(PRINT)
    assert not dead.exists()
    assert {name: (here.directory / name).read_text() for name in theirs} == theirs


def test_files_of_another_pid_namespace_are_left_for_a_week(here: World) -> None:
    """Between two managers, a group whose processes cannot be seen from here seems to have ended."""
    own = Path("/proc/self/ns/pid").stat().st_ino
    contents = {"own": f"group 1\nnamespace {own}\n", "other": f"group 1\nnamespace {own + 1}\n"}
    contents["old"] = contents["other"]
    for name, content in contents.items():
        (here.directory / f"{name}.journal").write_text(content)
    week = 7 * 86400 + 60
    os.utime(here.directory / "old.journal", (time.time() - week,) * 2)
    here.run(PRINT)
    assert [name for name in contents if (here.directory / f"{name}.journal").exists()] == ["other"]


@pytest.mark.parametrize("content", ["", "\0" * 30, "group 1\nname", "group 12", "group 1\n\0\0\n"])
def test_what_a_crash_left_of_a_journal_is_cleared_away(here: World, content: str) -> None:
    (here.directory / "x.journal").write_text(content)
    (here.directory / "x.journal.new").write_text(content)
    (here.directory / "x.sock.lock").write_text("1 0.5 -")
    address = here.serve(address=here.directory / "x.sock")
    with Observer(address) as observer:
        observer.request(protocol.Stop())
    assert here.server.wait(BOUND) == 0
    assert not (here.directory / "x.journal").exists()
