"""A manager under a supervisor: one process over restarts, its notifications, and the output of `status`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from manager_world import BOUND, Wire, World, is_alive, kill, line_of, tell, until
from tiers import first

from shmtensor.manager import client, launch
from shmtensor.manager import protocol as p
from shmtensor.manager.daemon import handover

pytestmark = pytest.mark.any_python


class Supervisor:
    """The socket of a supervisor, to which its services send messages and descriptors to keep."""

    def __init__(self, here: World, is_abstract: bool) -> None:
        self.here = here
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        name = str(here.directory / "notify")
        self.sock.bind("\0" + name if is_abstract else name)
        here.env["NOTIFY_SOCKET"] = "@" + name if is_abstract else name
        self.kept: dict[str, list[int]] = {}

    def close(self) -> None:
        self.sock.close()
        for name in list(self.kept):
            self.drop(name)

    def drop(self, name: str) -> None:
        for fd in self.kept.pop(name, ()):
            os.close(fd)

    def receive(self) -> dict[str, str] | None:
        """The next message that is not about descriptors; None: none is there."""
        while True:
            try:
                data, descriptors, *_ = socket.recv_fds(self.sock, 4096, 16)
            except BlockingIOError:
                return None
            said = dict(line.split("=", 1) for line in data.decode().splitlines())
            if "FDSTOREREMOVE" in said:
                self.drop(said["FDNAME"])
            elif "FDSTORE" in said:
                self.kept.setdefault(said["FDNAME"], []).extend(descriptors)
            else:
                return said

    def hear(self) -> None:
        """Receive all messages that are there."""
        while self.receive() is not None:
            pass

    def keeps(self, count: int) -> bool:
        """Whether it keeps descriptors under so many names."""
        self.hear()
        return len(self.kept) == count

    def next(self) -> dict[str, str]:
        said: dict[str, str] = until(self.receive, "a message of the service")
        return said

    def said_nothing(self) -> bool:
        return self.receive() is None

    def serve(self) -> subprocess.Popen[str]:
        """Start the service with the descriptors that are kept for it."""
        self.hear()
        kept = [(name, fd) for name, descriptors in self.kept.items() for fd in descriptors]
        code = (
            "import os, sys\naddress, names, *fds = sys.argv[1:]; count = len(fds)\n"
            "high = [os.dup2(int(fd), 200 + i, inheritable=False) for i, fd in enumerate(fds)]\n"
            "for fd in fds: os.set_inheritable(int(fd), False)\n"
            "for i, fd in enumerate(high): os.dup2(fd, 3 + i)\n"
            "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(count), LISTEN_FDNAMES=names)\n"
            "os.execv(sys.executable, [sys.executable, '-m', 'shmtensor.manager', 'serve', '--address', address])\n"
        )
        words = [str(self.here.directory / "manager.sock"), ":".join(name for name, _ in kept)]
        service = subprocess.Popen(
            [sys.executable, "-c", code, *words, *(str(fd) for _, fd in kept)],
            env=self.here.env,
            pass_fds=[fd for _, fd in kept],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.here.processes.append(service)
        assert "listening" in line_of(service)
        return service


@pytest.fixture(params=first([False, True]), ids=["path", "abstract"])
def supervisor(here: World, request: pytest.FixtureRequest) -> Iterator[Supervisor]:
    made = Supervisor(here, request.param)
    yield made
    made.close()


def kind(here: World) -> str:
    """What `status` says that the manager is."""
    done = here.command("status")
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("kind "))
    return line.split(None, 1)[1]


def test_the_supervised_process_stays_over_restarts(here: World, supervisor: Supervisor) -> None:
    path = here.serve()
    pid = here.server.pid
    said = supervisor.next()
    assert (said["READY"], said["MAINPID"]) == ("1", str(pid)) and os.fsdecode(path) in said["STATUS"]
    user = client.at(path)
    block = user.allocate(64)
    memoryview(block)[:4] = b"kept"
    for epoch in (2, 3):
        assert kind(here) == "supervised service, until it is stopped"
        done = here.command("restart", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["after"] == json.loads(done.stdout)["before"] == pid
        assert supervisor.next()["MAINPID"] == str(pid)
        stats = here.observe(path)["stats"]
        assert (stats["pid"], stats["epoch"], stats["supervised"], stats["private"]) == (pid, epoch, True, False)
        assert here.server.poll() is None and user.open(user.export(block)) is block
    here.server.terminate()
    assert supervisor.next()["STOPPING"] == "1"
    assert here.server.wait(BOUND) == 0
    assert kind(here) == "continues in the background for a `serve` that has ended, until its last client has ended"
    assert json.loads(here.command("status", "--json").stdout)["supervised"] is False
    here.serve()
    assert supervisor.next()["MAINPID"] == str(here.server.pid)
    assert kind(here).startswith("supervised service")
    assert bytes(memoryview(block)[:4]) == b"kept" and user.open(user.export(block)) is block
    assert supervisor.said_nothing(), "the one in the background is not its service"
    del block
    user.close()


def test_only_services_have_a_supervisor(here: World, supervisor: Supervisor) -> None:
    code = "import sys; from shmtensor.manager import client; m = client.default(); print(m.stats().pid, flush=True)"
    here.run(code)
    assert supervisor.said_nothing()


def test_a_supervisor_that_has_gone_is_no_reason_to_end(here: World) -> None:
    Supervisor(here, False).close()
    here.serve()
    assert here.command("restart").returncode == 0
    assert kind(here).startswith("supervised service")


def test_a_socket_that_a_supervisor_makes_blocking_again(here: World) -> None:
    """As systemd does when it starts the next process of a service, while another one in the background serves."""
    code = (
        "import os, sys; os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')\n"
        "os.dup2(int(sys.argv[1]), 3) if sys.argv[1] != '3' else os.set_inheritable(3, True)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'shmtensor.manager', 'serve', '--address', sys.argv[2]])\n"
    )
    path = here.directory / "manager.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        service = subprocess.Popen(
            [sys.executable, "-c", code, str(listener.fileno()), str(path)],
            env=here.env,
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        here.processes.append(service)
        line_of(service)
        wire = Wire(os.fsencode(path))
        wire.hello()
        listener.setblocking(True)
        assert here.observe(os.fsencode(path))["stats"]["pid"] == service.pid
        assert wire.ask(p.Stats()), "it waits for no further connection"


def test_what_status_says_of_each_kind(here: World) -> None:
    here.env.pop("NOTIFY_SOCKET", None)
    here.serve()
    assert kind(here) == "in the foreground, until it is stopped"
    here.server.terminate()
    assert here.server.wait(BOUND) == 0
    path = here.serve("--idle-exit", "90")
    assert kind(here) == "in the foreground, ends 1 min 30 s after its last client"
    here.server.terminate()
    assert here.server.wait(BOUND) == 0
    launch.start(path, None)  # as `restart` does after it has killed a service that did not answer
    assert kind(here) == "in the background, until it is stopped"
    assert here.command("stop").returncode == 0
    launch.start(path)
    user = client.at(path)
    assert kind(here) == "started on demand, ends 0.5 s after its last client"
    user.close()


# ----------------------------------------------------------------------------------------------------- what it keeps


SENDER = """
import sys
from shmtensor.manager import client
client.set_strategy(sys.argv[1])
m = client.default()
b = m.allocate(100_000_000 if sys.argv[2] == "large" else 8192)
memoryview(b)[:4] = b"sent"
print(b.segment, b.index, b.generation, *m.ticket(b))
"""
RECEIVER = """
import sys
from shmtensor.manager import client
m = client.default()
b = m.redeem(*map(int, sys.argv[1:]))
print(bytes(memoryview(b)[:4]).decode())
"""


@pytest.mark.parametrize(
    ("strategy", "block"), first([("file_descriptor", "small"), ("file_descriptor", "large"), ("file_system", "small")])
)
def test_what_nobody_has_mapped_outlives_kills(here: World, supervisor: Supervisor, strategy: str, block: str) -> None:
    service = supervisor.serve()
    numbers = here.run(SENDER, strategy, block).split()
    path = os.fsencode(here.directory / "manager.sock")
    until(lambda: not here.observe(path)["clients"], "the sender to be reclaimed")
    before = here.observe(path)["stats"]
    for epoch in (2, 3, 4, 5):
        if epoch == 3:
            assert here.command("restart").returncode == 0
        else:
            kill(service)
            service = supervisor.serve()
        stats = here.observe(path)["stats"]
        assert (stats["group"], stats["epoch"], stats["clients"]) == (before["group"], epoch, 0)
        assert (stats["live_blocks"], stats["segments"]) == (1, 1)
        assert stats["descriptors"] == before["descriptors"], "those that it was given are closed"
        supervisor.hear()
        assert sorted(len(descriptors) for descriptors in supervisor.kept.values()) == [1, 2], "and not given twice"
    assert here.run(RECEIVER, *numbers) == "sent\n"
    until(lambda: not here.observe(path)["segments"], "the segment to go")
    until(lambda: supervisor.keeps(1), "the supervisor to drop it")
    assert list(supervisor.kept) == [f"shmtensor-{before['group']}.5"]


CONSUMER = """
import sys
import shmtensor.multiprocessing as mp
queue = mp.Queue(name="work")
print("there", flush=True)
sys.stdin.readline()
print(sum(float(queue.get(timeout=20)[0]) for _ in range(20)), flush=True)
"""
PRODUCER = """
import shmtensor, shmtensor.multiprocessing as mp
queue = mp.Queue(name="work")
for number in range(20):
    queue.put(shmtensor.full((1000,), float(number), shared=True))
"""


def test_messages_of_senders_that_have_ended_outlive_a_kill(here: World, supervisor: Supervisor) -> None:
    service = supervisor.serve()
    consumer = here.script(CONSUMER)
    assert line_of(consumer) == "there"
    here.run(PRODUCER)
    path = os.fsencode(here.directory / "manager.sock")
    until(lambda: len(here.observe(path)["clients"]) == 1, "the producer to be reclaimed")
    kill(service)
    supervisor.serve()
    tell(consumer)
    assert line_of(consumer) == "190.0"


def test_what_a_supervisor_kept_of_a_group_that_is_no_more(here: World, supervisor: Supervisor) -> None:
    service = supervisor.serve()
    here.run(SENDER, "file_descriptor", "small")
    kill(service)
    (here.directory / "manager.journal").unlink()
    supervisor.serve()
    until(lambda: supervisor.keeps(1), "the supervisor to drop the earlier ones")
    stats = here.observe(os.fsencode(here.directory / "manager.sock"))["stats"]
    assert list(supervisor.kept) == [f"shmtensor-{stats['group']}.1"]


def test_only_what_still_exists_is_kept(here: World, supervisor: Supervisor) -> None:
    """A manager in the background, which the supervisor does not hear, destroys a segment meanwhile."""
    supervisor.serve()
    path = os.fsencode(here.directory / "manager.sock")
    numbers = here.run(SENDER, "file_descriptor", "large").split()
    user = client.at(path)
    here.processes[0].terminate()
    assert here.processes[0].wait(BOUND) == 0
    assert supervisor.keeps(2)
    assert here.run(RECEIVER, *numbers) == "sent\n"
    until(lambda: not here.observe(path)["segments"], "the segment to go")
    block = user.allocate(64)
    supervisor.serve()
    (segment,) = here.observe(path)["segments"]
    until(
        lambda: supervisor.receive() or len(supervisor.kept) == 2, "the supervisor to drop the one and keep the other"
    )
    group = here.observe(path)["stats"]["group"]
    assert set(supervisor.kept) == {f"shmtensor-{group}.3", f"shmtensor-{group}-{segment['id']}"}
    del block
    user.close()


USER = """
import sys
from shmtensor.manager import client
m = client.default()
b = m.allocate(64)
print("there", flush=True)
for line in sys.stdin:
    print(m.stats().private, m.open(m.export(b)) is b, flush=True)
"""


def test_a_manager_that_a_client_starts_finds_what_the_supervisor_keeps(here: World, supervisor: Supervisor) -> None:
    """A client was faster than the supervisor. Its manager looks for memory in all processes of the user."""
    service = supervisor.serve()
    path = os.fsencode(here.directory / "manager.sock")
    user = here.script(USER)
    assert line_of(user) == "there"
    numbers = here.run(SENDER, "file_descriptor", "large").split()
    kill(service)
    tell(user)
    assert line_of(user) == "True True", "one in the background serves"
    supervisor.serve()
    assert numbers[0] in {str(segment["id"]) for segment in here.observe(path)["segments"]}
    assert here.run(RECEIVER, *numbers) == "sent\n"
    tell(user)
    assert line_of(user) == "False True"


# ------------------------------------------------------------------------------------------------------ what goes wrong


SERVE = """
import sys
from shmtensor.manager import cli
from shmtensor.manager.daemon import handover
setattr(handover, sys.argv[1], sys.argv[2])
sys.exit(cli.main(["serve", "--json"]))
"""
PATH = "import sys; sys.path += sys.argv[2:]; from shmtensor.manager import protocol; "
VERSION = "from shmtensor.manager.daemon import handover, run; import shmtensor._native as native; "
REHEARSALS = {
    "another protocol": (
        PATH + VERSION + "protocol.PROTOCOL_VERSION += 1; run.rehearse(sys.argv[1])",
        "end the clients",
    ),
    "another layout": (PATH + VERSION + "native.LAYOUT_VERSION += 1; run.rehearse(sys.argv[1])", "layout"),
    "cannot be imported": ("import sys; import nothing_of_that_name", "nothing_of_that_name"),
    "is killed": ("import os; os.kill(os.getpid(), 9)", "exit code -9"),
}


def served(here: World, name: str, value: str) -> tuple[subprocess.Popen[str], bytes]:
    """A service in whose `handover` a program is another one."""
    service = here.script(SERVE, name, value)
    while line_of(service) != "}":
        pass
    return service, os.fsencode(here.directory / "manager.sock")


@pytest.mark.parametrize("trouble", first(REHEARSALS))
def test_a_service_does_not_give_way_to_what_would_not_start(here: World, trouble: str) -> None:
    program, words = REHEARSALS[trouble]
    service, path = served(here, "_REHEARSAL", program)
    user = client.at(path)
    block = user.allocate(64)
    done = here.command("restart")
    assert done.returncode == 1
    assert words in done.stderr and f"pid {service.pid} continues" in done.stderr, done.stderr
    stats = here.observe(path)["stats"]
    assert (stats["pid"], stats["epoch"], stats["private"]) == (service.pid, 1, False)
    assert service.poll() is None and user.open(user.export(block)) is block
    del block
    user.close()


def test_a_stop_during_a_restart_is_not_lost(here: World) -> None:
    """The signal comes before the fresh interpreter has a handler for it."""
    service, path = served(here, "_PROGRAM", f"import os; os.kill(os.getpid(), {signal.SIGTERM:d});{handover._PROGRAM}")
    user = client.at(path)
    block = user.allocate(64)
    here.command("restart")
    assert service.wait(BOUND) == 0, "it served, and ended as asked"
    stats = here.observe(path)["stats"]
    assert stats["left"] and stats["epoch"] == 3
    assert user.open(user.export(block)) is block
    del block
    user.close()
    until(lambda: not is_alive(stats["pid"]), "the one in the background to leave")


def test_a_rehearsal_leaves_nothing(here: World) -> None:
    path = here.serve()
    before = {entry.name for entry in Path(f"/proc/{here.server.pid}/fd").iterdir()}
    assert here.command("restart").returncode == 0
    until(lambda: here.managers() == [here.server.pid], "the keeper to have ended")
    after = {entry.name for entry in Path(f"/proc/{here.server.pid}/fd").iterdir()}
    assert len(after) == len(before)
    assert here.observe(path)["stats"]["pid"] == here.server.pid
