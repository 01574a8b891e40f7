"""`shmtensor-manager doctor`: its findings in a prepared tree of files, and on this machine."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from manager_world import World, is_alive, kill, line_of, until
from refusing import failing, limited

from shmtensor import _native, errors
from shmtensor.manager import address
from shmtensor.manager.monitor import doctor
from shmtensor.manager.monitor.checks import clients, files, kernel, limits, login, memory, versions
from shmtensor.manager.monitor.checks.machine import STATES, Finding, Machine, Running

pytestmark = pytest.mark.any_python

UID = 1234
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max file size             unlimited            unlimited            bytes
Max open files            1024                 524288               files
Max locked memory         8388608              8388608              bytes
Max address space         unlimited            unlimited            bytes
"""
MEMINFO = "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nCommitLimit: 4096 kB\nCommitted_AS: 1024 kB\n"
MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
41 22 0:40 / /dev/shm rw,nosuid,nodev,noexec - tmpfs tmpfs rw,size=8G
"""
HEALTHY = {
    "proc/self/limits": LIMITS,
    "proc/self/mountinfo": MOUNTS,
    "proc/self/cgroup": "0::/user/job\n",
    "proc/meminfo": MEMINFO,
    "proc/sys/vm/max_map_count": "65530\n",
    "proc/sys/vm/overcommit_memory": "0\n",
    "proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
    "proc/sys/kernel/yama/ptrace_scope": "1\n",
    "proc/net/unix": "Num RefCount Protocol Flags Type St Inode Path\n",
    "dev/shm/other": "",
    "var/lib/systemd/linger/1234": "",
}


class Tree:
    """A root directory with the files of a machine where all is well, which tests change."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runtime = root / "runtime"
        self.runtime.mkdir(mode=0o700)
        (root / "run/systemd/seats").mkdir(parents=True)
        self.write(HEALTHY)
        (root / "proc/self/fd").mkdir()

    def write(self, content: dict[str, str | None]) -> None:
        for name, text in content.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(text)

    def machine(self, *managers: Running, uid: int = UID) -> Machine:
        return Machine(str(self.runtime), managers, str(self.root), uid)


@pytest.fixture
def tree() -> Iterator[Tree]:
    # Short, since a socket's path has a limit, and open, since a test looks as another user.
    root = Path(tempfile.mkdtemp(prefix="shmt-", dir="/tmp"))
    root.chmod(0o755)
    yield Tree(root)
    shutil.rmtree(root)


def swapped(text: str, *pairs: str) -> str:
    """`text` with strings replaced that it must have."""
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    return text


def test_where_all_is_well_nothing_is_to_be_done(tree: Tree) -> None:
    for check in (*limits.CHECKS, memory.machine_memory, memory.cgroups, versions.kernel, *login.CHECKS):
        for finding in check(tree.machine()):
            assert (finding.state, finding.advice) == ("ok", ""), finding


CASES = {
    "few descriptors": (limits.open_files, {"proc/self/limits": swapped(LIMITS, "1024 ", "64   ")}, "warning", "64"),
    "few clients": (limits.open_files, {"proc/self/limits": swapped(LIMITS, "524288", "4096  ")}, "note", "2040"),
    "no limits": (limits.open_files, {"proc/self/limits": None}, "note", "cannot be read"),
    "little address space": (
        limits.address_space,
        {"proc/self/limits": swapped(LIMITS, "address space         unlimited", "address space         4294967296")},
        "warning",
        "4.0 GiB",
    ),
    "some address space": (
        limits.address_space,
        {
            "proc/self/limits": swapped(
                LIMITS, "address space         unlimited", "address space         99999999999999"
            )
        },
        "note",
        "TiB",
    ),
    "small files": (
        limits.file_size,
        {"proc/self/limits": swapped(LIMITS, "file size             unlimited", "file size             1048576")},
        "problem",
        "1.0 MiB",
    ),
    "locked memory": (limits.locked_memory, {"dev/nvidia0": ""}, "note", "8.0 MiB"),
    "few maps": (limits.memory_maps, {"proc/sys/vm/max_map_count": "1000\n"}, "warning", "1000"),
    "strict overcommit": (limits.overcommit, {"proc/sys/vm/overcommit_memory": "2\n"}, "warning", "3.0 MiB of 4.0 MiB"),
    "nothing to commit": (
        limits.overcommit,
        {"proc/sys/vm/overcommit_memory": "2\n", "proc/meminfo": swapped(MEMINFO, "1024 kB", "4096 kB")},
        "problem",
        "0 B of 4.0 MiB",
    ),
    "little memory": (
        memory.machine_memory,
        {"proc/meminfo": swapped(MEMINFO, "8388608", "999999")},
        "warning",
        "of 16.0 GiB",
    ),
    "no memory": (memory.machine_memory, {"proc/meminfo": swapped(MEMINFO, "8388608", "9999")}, "problem", "0 B"),
    "no meminfo": (memory.machine_memory, {"proc/meminfo": None}, "warning", "cannot be read"),
    "cgroup": (
        memory.cgroups,
        {"sys/fs/cgroup/user/memory.max": "1073741824\n", "sys/fs/cgroup/user/memory.current": "1048576\n"},
        "note",
        "/user: 1023.0 MiB of 1.0 GiB free",
    ),
    "cgroup nearly full": (
        memory.cgroups,
        {"sys/fs/cgroup/user/memory.max": "1073741824\n", "sys/fs/cgroup/user/memory.current": "1023741824\n"},
        "warning",
        "/user: ",
    ),
    "cgroup full": (
        memory.cgroups,
        {"sys/fs/cgroup/user/job/memory.max": "1073741824\n", "sys/fs/cgroup/user/job/memory.current": "1073741824\n"},
        "problem",
        "/user/job: 0 B",
    ),
    "memory.high": (
        memory.cgroups,
        {"sys/fs/cgroup/user/memory.high": "1048576\n", "sys/fs/cgroup/user/memory.current": "1048577\n"},
        "warning",
        "/user: memory.high is 1.0 MiB",
    ),
    "memory.high, not reached": (
        memory.cgroups,
        {"sys/fs/cgroup/user/memory.high": "1048576\n", "sys/fs/cgroup/user/memory.current": "5\n"},
        "note",
        "/user: memory.high is 1.0 MiB",
    ),
    "/dev/shm not mounted": (
        memory.dev_shm,
        {"proc/self/mountinfo": swapped(MOUNTS, "/dev/shm", "/mnt")},
        "warning",
        "lies on ext4",
    ),
    "/dev/shm read-only": (
        memory.dev_shm,
        {"proc/self/mountinfo": swapped(MOUNTS, "/dev/shm rw", "/dev/shm ro")},
        "warning",
        "read-only",
    ),
    "old kernel": (versions.kernel, {"proc/sys/kernel/osrelease": "5.4.0-1\n"}, "note", "5.4.0"),
    "no lingering": (login.logout, {"var/lib/systemd/linger/1234": None}, "note", "RemoveIPC"),
    "processes are killed": (
        login.logout,
        {
            "var/lib/systemd/linger/1234": None,
            "etc/systemd/logind.conf": "[Login]\n#KillUserProcesses=no\nRemoveIPC=no\n",
            "usr/lib/systemd/logind.conf.d/10.conf": "KillUserProcesses=no\n",
            "etc/systemd/logind.conf.d/20.conf": "KillUserProcesses = yes\n",
        },
        "note",
        "KillUserProcesses",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_files_of_a_machine_say(tree: Tree, case: str) -> None:
    check, content, state, words = CASES[case]
    tree.write(content)
    findings = check(tree.machine())
    worst = max(findings, key=lambda finding: STATES.index(finding.state))
    assert worst.state == state and words in worst.found + worst.advice, findings
    assert worst.advice or worst.state == "note"


def test_dev_shm(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LITTLE_LEFT", 0.0)
    monkeypatch.setattr(memory, "SMALL_SHM", 0)
    assert memory.dev_shm(tree.machine())[0].state == "ok"
    monkeypatch.setattr(memory, "SMALL_SHM", 1 << 62)
    (finding,) = memory.dev_shm(tree.machine())
    assert finding.state == "warning" and "--shm-size" in finding.advice and "file_descriptor" in finding.advice
    shutil.rmtree(tree.root / "dev")
    (finding,) = memory.dev_shm(tree.machine())
    assert finding.state == "warning" and "missing" in finding.found


def test_settings_of_logind_of_which_the_later_file_wins(tree: Tree) -> None:
    tree.write(dict(CASES["processes are killed"][1]))
    (finding,) = login.logout(tree.machine())
    assert "RemoveIPC" not in finding.found and "enable-linger 1234" in finding.advice
    assert login.logout(tree.machine(uid=0)) == login.logout(tree.machine(uid=999)) == []


@pytest.mark.parametrize(
    ("place", "state", "words"),
    [("", "ok", "mode 0700"), ("none", "ok", "does not exist"), ("file", "problem", "not a directory")],
)
def test_runtime_directories(tree: Tree, place: str, state: str, words: str) -> None:
    (tree.root / "file").touch()
    directory = tree.runtime if not place else tree.root / place
    (finding,) = files.runtime_directory(Machine(str(directory), root=str(tree.root)))
    assert finding.state == state and words in finding.found


def test_runtime_directories_that_cannot_be_used(tree: Tree) -> None:
    def found(directory: Path, uid: int = os.geteuid()) -> Finding:
        (finding,) = files.runtime_directory(Machine(str(directory), root=str(tree.root), uid=uid))
        assert finding.state == "problem" and address.RUNTIME_VARIABLE in finding.advice
        return finding

    assert "not 77" in found(tree.runtime, 77).found
    tree.runtime.chmod(0o750)
    assert f"chmod 700 {tree.runtime}" in found(tree.runtime).advice
    assert "too long" in found(tree.runtime / ("x" * 100)).found


def test_a_runtime_directory_elsewhere(tree: Tree) -> None:
    tree.write({"proc/self/mountinfo": MOUNTS + f"50 22 0:50 / {tree.root} rw - nfs4 server:/home rw\n"})
    (finding,) = files.runtime_directory(Machine(str(tree.runtime), root=str(tree.root)))
    assert finding.state == "warning" and "nfs4" in finding.found


def test_names_left_in_dev_shm(tree: Tree) -> None:
    names = [f"torch_{number}_77" for number in (1, 2, 3, 4)]
    tree.write({f"dev/shm/{name}": "" for name in names} | {"dev/shm/torch_1_2_3": "", "proc/9/maps": ""})
    tree.write({"proc/9/maps": f"7f00-7f01 rw-s 00000000 00:2e 12 /dev/shm/{names[0]}\n"})
    (tree.root / "proc/9/fd").mkdir()
    (tree.root / "proc/9/fd/5").symlink_to(f"/dev/shm/{names[1]}")
    (tree.runtime / "x.journal").write_text(f"group 5\nshm /{names[2]} 8\nshm /{names[0]} 9\n")
    journal, other = files.left_names(tree.machine(uid=os.geteuid()))
    assert journal.state == "note" and journal.found.split()[0] == names[2]
    assert other.state == "warning" and other.advice.endswith(f": rm /dev/shm/{names[3]}")
    (finding,) = files.left_names(tree.machine(uid=os.geteuid() + 1))
    assert finding.state == "ok", "they belong to another user"


def test_journals_that_are_no_files(tree: Tree) -> None:
    tree.write({"dev/shm/torch_1_77": ""})
    (tree.runtime / "directory.journal").mkdir()
    os.mkfifo(tree.runtime / "fifo.journal")
    (tree.root / "file").write_text("group 5\nshm /torch_1_77 8\n")
    (tree.runtime / "link.journal").symlink_to(tree.root / "file")
    before = set(Path("/proc/self/fd").iterdir())
    (finding,) = files.left_names(tree.machine(uid=os.geteuid()))
    assert finding.state == "warning" and "torch_1_77" in finding.found
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_processes_whose_descriptors_may_not_be_read(tree: Tree, here: World) -> None:
    for pid in (8, 9):
        (tree.root / f"proc/{pid}/fd").mkdir(parents=True)
    code = (
        "import os, sys\nfrom shmtensor.manager.monitor.checks import kernel\n"
        "from shmtensor.manager.monitor.checks.machine import Machine, Running\n"
        "if os.geteuid() == 0: os.setresuid(4242, 4242, 4242)\n"
        "(found,) = kernel.processes(Machine('/', (Running('x', {'pid': 8}, (9, 10)),), sys.argv[1]))\n"
        "print(found.state, found.found)"
    )
    assert here.run(code, str(tree.root)).startswith("ok the descriptors of the 3 processes")
    (tree.root / "proc/9/fd").chmod(0)
    said = here.run(code, str(tree.root))
    (tree.root / "proc/9/fd").chmod(0o700)
    assert said.startswith("warning") and "pid 9 cannot" in said and "does not matter" in said


def test_a_manager_of_another_version_and_one_that_runs_out_of_descriptors(tree: Tree) -> None:
    stats = {"version": "0.0.1", "pid": 1, "clients": 2, "descriptors": 90, "max_descriptors": 100}
    machine = tree.machine(Running("/x.sock", stats))
    (finding,) = versions.managers(machine)
    assert finding.state == "note" and "0.0.1" in finding.found and "restart" in finding.advice
    assert "uses 90 of 100" in limits.open_files(machine)[-1].found


def test_clients_that_are_stopped(tree: Tree) -> None:
    for pid, state in ((7, "T"), (8, "S"), (9, "t"), (11, "T")):
        tree.write({f"proc/{pid}/stat": f"{pid} (a) T b) {state} 1 1 0\n"})
    (finding,) = clients.stopped(tree.machine(Running("x", pids=(8, 10))))
    assert (finding.state, finding.found) == ("ok", "none of the 2 clients is stopped")
    assert clients.stopped(tree.machine())[0].state == "ok"
    signalled, traced = clients.stopped(tree.machine(Running("x", pids=(11, 8, 9)), Running("y", pids=(7,))))
    assert signalled.state == traced.state == "warning"
    assert signalled.found.endswith("pid 7, 11") and signalled.advice.endswith("kill -CONT 7 11")
    assert "locks" in signalled.advice
    assert traced.found == "stopped by a debugger: pid 9" and "kill" not in traced.advice


# ----------------------------------------------------------------------------------------------------- on this machine


def examined(here: World, code: int | None = None, **env: str) -> dict[str, list[dict[str, str]]]:
    """The findings of the command, by their names."""
    done = here.command("doctor", "--json", env=env)
    document = json.loads(done.stdout)
    assert done.returncode == (document["state"] == "problem") and not done.stderr
    assert code is None or done.returncode == code
    found: dict[str, list[dict[str, str]]] = {}
    for row in document["checks"]:
        assert row["state"] in STATES and row["found"] and "\n" not in row["found"]
        found.setdefault(row["name"], []).append(row)
    return found


def test_this_machine(here: World) -> None:
    found = examined(here)
    assert set(found) >= {
        "versions",
        "manager",
        "open files",
        "memory",
        "cgroups",
        "/dev/shm",
        "memory files",
        "pidfds",
    }
    assert f"layout {_native.LAYOUT_VERSION}" in found["versions"][0]["found"]
    assert "none runs" in found["manager"][0]["found"]
    assert not list(here.directory.iterdir()), "it changes nothing"
    text = here.command("doctor").stdout
    assert "versions" in text and text.splitlines()[-1].endswith(" ok")


def test_the_manager_that_runs_and_what_it_leaves_when_it_is_killed(here: World) -> None:
    path = here.serve()
    found = examined(here)
    assert found["manager"][0]["state"] == "ok" and f"pid {here.server.pid}" in found["manager"][0]["found"]
    assert found["stale files"][0]["state"] == "ok"
    assert "processes of the running managers" in found["taking over"][0]["found"]
    kill(here.server)
    (stale,) = examined(here)["stale files"]
    assert stale["state"] == "note"
    for name in ("manager.sock", "manager.sock.lock", "manager.journal"):
        assert name in stale["found"] and (here.directory / name).exists()
    here.serve()
    assert examined(here)["stale files"][0]["state"] == "ok"
    here.directory.chmod(0o755)
    try:
        assert examined(here, 1)["directory"][0]["state"] == "problem"
    finally:
        here.directory.chmod(0o700)
    assert os.fsdecode(path) in here.command("doctor").stdout


def test_a_manager_of_another_protocol(here: World) -> None:
    code = (
        "import sys\nfrom shmtensor.manager import cli, protocol\n"
        "protocol.PROTOCOL_VERSION += 1\nsys.exit(cli.main(['serve', '--json']))\n"
    )
    service = here.script(code)
    while line_of(service) != "}":
        pass
    (manager,) = examined(here, 1)["manager"]
    assert manager["state"] == "problem" and "protocol" in manager["found"] and "restart" in manager["advice"]


def test_files_in_the_way_and_a_socket_that_somebody_else_serves(here: World) -> None:
    (here.directory / "letter.sock").write_text("dear")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(here.directory / "unit.sock"))
        (here.directory / "unit.sock.lock").touch()
        assert {row["state"] for row in examined(here)["stale files"]} == {"note", "warning"}, "it does not listen yet"
        listener.listen()
        (finding,) = examined(here)["stale files"]
        assert finding["state"] == "warning" and "letter.sock is not a socket" in finding["found"]
        with pytest.raises(BlockingIOError):
            listener.setblocking(False)
            listener.accept()  # a connection would have had systemd start a manager


def test_paths_that_are_no_text(here: World) -> None:
    odd = os.fsdecode(b"z\xff")
    (here.directory / f"{odd}.sock.lock").touch()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(here.directory / f"{odd}2.sock"))
        listener.listen()
        (stale,) = examined(here)["stale files"]
    assert stale["found"].startswith(f"no manager runs for {odd}.sock.lock in ")
    done = here.command("doctor")
    assert done.returncode in (0, 1) and not done.stderr and r"z\udcff.sock.lock" in done.stdout
    place = {address.RUNTIME_VARIABLE: str(here.directory / odd)}
    (directory,) = examined(here, **place)["directory"]
    assert directory["found"].startswith(f"{here.directory / odd} does not exist yet")
    done = here.command("doctor", env=place)
    assert done.returncode in (0, 1) and not done.stderr and r"/z\udcff does not exist yet" in done.stdout
    (here.directory / odd).mkdir(0o700)
    os.mkfifo(here.directory / odd / "x.journal")
    (directory,) = examined(here, **place)["directory"]
    assert directory["state"] == "ok"


def test_a_client_that_is_stopped(here: World) -> None:
    here.env["SHMTENSOR_MANAGER"] = os.fsdecode(here.serve())
    client = here.script(
        "import shmtensor.multiprocessing as mp\nlock = mp.Lock()\nlock.acquire()\nprint('held', flush=True)\ninput()"
    )
    assert line_of(client) == "held"
    assert examined(here)["clients"][0]["state"] == "ok"
    client.send_signal(signal.SIGSTOP)
    until(lambda: Path(f"/proc/{client.pid}/stat").read_text().split()[2] == "T", "the client to stop")
    (stopped,) = examined(here)["clients"]
    assert stopped["state"] == "warning" and stopped["advice"].endswith(f"kill -CONT {client.pid}")
    client.send_signal(signal.SIGCONT)


@pytest.mark.exhaustive
def test_a_manager_that_is_stopped(here: World) -> None:
    here.serve()
    here.server.send_signal(signal.SIGSTOP)
    try:
        (manager,) = examined(here, 1)["manager"]
        assert manager["state"] == "problem" and "kill -CONT" in manager["advice"]
    finally:
        here.server.send_signal(signal.SIGCONT)
    until(lambda: is_alive(here.server.pid), "the manager")


def test_system_calls_that_are_refused(here: World) -> None:
    code = (
        "import os, resource, sys\nfrom shmtensor.manager.monitor.checks import kernel\n"
        "from shmtensor.manager.monitor.checks.machine import Machine\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))\n"
        "for check in (kernel.memory_files, kernel.file_watches):\n"
        "    (found,) = check(Machine('/'))\n    os.write(1, f'{found.state} {found.found}\\n'.encode())\n"
        "(found,) = kernel.process_descriptors(Machine('/'))\nos.write(1, f'{found.state} {found.found}\\n'.encode())"
    )
    memory_file, watch, pidfd = here.run(code).splitlines()
    assert memory_file.startswith("problem memfd_create is refused")
    assert watch.startswith("note refused")
    assert pidfd.startswith("problem pidfd_open is refused")


def test_states_from_good_to_bad() -> None:
    findings = [Finding("a", state, "found") for state in ("note", "problem", "ok")]
    assert doctor.worst(findings) == "problem" and doctor.worst(findings[:1]) == "note" and doctor.worst([]) == "ok"
    assert doctor.text(findings).endswith("1 problem, 0 warnings, 1 note, 1 ok")


def only(findings: list[Finding]) -> tuple[str, str, str]:
    (finding,) = findings
    return finding.state, finding.found, finding.advice


def test_the_kernel_without_descriptors(tree: Tree) -> None:
    machine = tree.machine()
    tree.write({"proc/sys/fs/inotify/max_user_instances": "128\n"})
    assert only(kernel.memory_files(machine))[0] == only(kernel.file_watches(machine))[0] == "ok"
    with limited(resource.RLIMIT_NOFILE, 0):
        found = [only(check(machine)) for check in (kernel.memory_files, kernel.process_descriptors)]
    (file, advice), (pidfd, also) = [each[1:] for each in found if each[0] == "problem"]
    assert file == f"memfd_create is refused: {os.strerror(errno.EMFILE)}" and advice.endswith("allow memfd_create")
    assert pidfd == f"pidfd_open is refused: {os.strerror(errno.EMFILE)}" and also.endswith("allow it")
    tree.write({"proc/sys/vm/memfd_noexec": "2\n"})
    with limited(resource.RLIMIT_NOFILE, 0):
        watch = only(kernel.file_watches(machine))
    assert watch[:2] == ("note", f"refused: {os.strerror(errno.EMFILE)}")
    assert watch[2].endswith("raise fs.inotify.max_user_instances (None)"), "no descriptor to read it with either"


def test_a_kernel_that_refuses_memory_files_without_a_seal(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.write({"proc/sys/vm/memfd_noexec": "2\n"})
    with monkeypatch.context() as patch:
        patch.setattr(os, "memfd_create", failing(errno.EACCES))
        state, _found, advice = only(kernel.memory_files(tree.machine()))
    assert state == "problem" and "vm.memfd_noexec is 2" in advice


def test_memory_files_that_cannot_grow(tree: Tree) -> None:
    with limited(resource.RLIMIT_FSIZE, 0):
        state, found, advice = only(kernel.memory_files(tree.machine()))
    assert state == "problem" and "cannot be sealed or reserved: File too large" in found and "gVisor" in advice


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOPROTOOPT, "the kernel has no SO_PEERPIDFD"), (errno.EPERM, "SO_PEERPIDFD is refused: Operation not")],
)
def test_kernels_without_pidfds_of_peers(tree: Tree, monkeypatch: pytest.MonkeyPatch, number: int, words: str) -> None:
    class Refusing(socket.socket):
        getsockopt = failing(number)

    def pair(*kinds: int) -> tuple[socket.socket, socket.socket]:
        return Refusing(*kinds), Refusing(*kinds)

    monkeypatch.setattr(socket, "socketpair", pair)
    state, found, _advice = only(kernel.process_descriptors(tree.machine()))
    assert state == "note" and words in found


def test_processes_that_may_not_be_seen(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree.root / "proc/8/fd").mkdir(parents=True)
    machine = tree.machine(Running("x", {"pid": 8}, (9, 10)))  # two have ended
    assert only(kernel.processes(machine))[0] == "ok"
    with monkeypatch.context() as patch:
        patch.setattr(Machine, "files_of", failing(errno.EACCES))
        state, found, advice = only(kernel.processes(machine))
    assert state == "warning" and "of pid 8, 9, 10 cannot be read (" in found and "PR_SET_DUMPABLE" in advice
    (tree.root / "proc/self/fd").rmdir()
    assert only(kernel.processes(machine))[:2] == ("problem", "/proc is not mounted")


def test_settings_that_cannot_be_read(tree: Tree) -> None:
    tree.write({"proc/sys/vm/max_map_count": None, "proc/sys/vm/overcommit_memory": None, "dev/nvidia0": ""})
    assert only(limits.memory_maps(tree.machine()))[:2] == ("note", "vm.max_map_count cannot be read")
    assert only(limits.overcommit(tree.machine()))[:2] == ("note", "vm.overcommit_memory cannot be read")
    assert only(limits.locked_memory(tree.machine()))[:2] == ("note", "limited to 8.0 MiB")
    tree.write({"proc/self/limits": swapped(LIMITS, "8388608              8388608", "unlimited            unlimited")})
    assert only(limits.locked_memory(tree.machine()))[:2] == ("ok", "not limited")


def test_dev_shm_that_is_full_or_closed(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        state, found, advice = only(memory.dev_shm(tree.machine()))
    assert (state, found) == ("warning", "this user may not create files there") and "chmod 1777" in advice
    values = list(os.statvfs(tree.root))
    values[5:8] = 1000, 0, 0  # files: all, free, available
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _: os.statvfs_result(values))
        state, found, advice = only(memory.dev_shm(tree.machine()))
    assert state == "warning" and found.endswith("no inodes left") and "nr_inodes" in advice


def test_places_that_cannot_be_looked_into(tree: Tree) -> None:
    (tree.root / "file").touch()
    state, found, advice = only(files.runtime_directory(Machine(str(tree.root / "file/below"), root=str(tree.root))))
    assert state == "problem" and found.endswith("Not a directory") and address.RUNTIME_VARIABLE in advice
    shutil.rmtree(tree.root / "dev/shm")
    assert files.left_names(tree.machine()) == []


def test_packages_and_managers_that_are_not_there(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("sys.path", [])  # where packages are installed
        state, found, advice = only(versions.installed(tree.machine()))
    assert (state, found[-8:]) == ("note", "no NumPy") and "pip install numpy" in advice
    refused = Running("x", problem=errors.ManagerUnavailable("it belongs to uid 7"))
    assert only(versions.managers(tree.machine(refused)))[:2] == ("problem", "it belongs to uid 7")
