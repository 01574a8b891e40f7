"""A manager under a supervisor: the same process over restarts, what it tells the supervisor, what `status` says."""

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
from manager_world import BOUND, Wire, World, is_alive, line_of, until
from tiers import first

from shmtensor.manager import client, launch
from shmtensor.manager import protocol as p
from shmtensor.manager.daemon import handover

pytestmark = pytest.mark.any_python


class Supervisor:
    """The socket of a supervisor, to which its services send messages."""

    def __init__(self, here: World, is_abstract: bool) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.settimeout(BOUND)
        name = str(here.directory / "notify")
        self.sock.bind("\0" + name if is_abstract else name)
        here.env["NOTIFY_SOCKET"] = "@" + name if is_abstract else name

    def next(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.sock.recv(4096).decode().splitlines())

    def said_nothing(self) -> bool:
        self.sock.setblocking(False)
        try:
            self.sock.recv(4096)
        except BlockingIOError:
            return True
        return False


@pytest.fixture(params=first([False, True]), ids=["path", "abstract"])
def supervisor(here: World, request: pytest.FixtureRequest) -> Iterator[Supervisor]:
    made = Supervisor(here, request.param)
    yield made
    made.sock.close()


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
    supervisor = Supervisor(here, False)
    supervisor.sock.close()
    here.serve()
    assert here.command("restart").returncode == 0
    assert kind(here).startswith("supervised service")


def test_a_socket_that_a_supervisor_makes_blocking_again(here: World) -> None:
    """As systemd does when it starts the next process of a service, while another one in the background serves."""
    code = (
        "import os, sys; os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')\n"
        "os.dup2(int(sys.argv[1]), 3) if sys.argv[1] != '3' else os.set_inheritable(3, True)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'shmtensor.manager', 'serve'])\n"
    )
    path = here.directory / "manager.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        service = subprocess.Popen(
            [sys.executable, "-c", code, str(listener.fileno())],
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
