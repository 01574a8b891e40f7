"""A manager passes its role to the next one: segments that only it had mapped are still there afterwards."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from manager_world import BOUND, Wire, World, kill, line_of, tell, until
from tiers import first

from shmtensor.manager import address, launch
from shmtensor.manager import protocol as p
from shmtensor.manager.connection import Observer
from shmtensor.manager.daemon import handover

pytestmark = pytest.mark.any_python

KEEPER = """
import os, sys
import shmtensor.multiprocessing as mp
from shmtensor.manager import client
client._default = client.at(sys.argv[1])
queue = mp.Queue(name="work")
print("there", flush=True)
event = sys.stdin.readline().strip() == "event"
if event:
    assert not mp.connection.wait([queue._reader], 0)
    print("watched", flush=True)
    sys.stdin.readline()
    assert mp.connection.wait([queue._reader], 20)
values = []
for number in range(100):
    tensor = queue.get(timeout=20)
    assert tensor.shape == (1000,) and (tensor.numpy() == number).all(), number
    values.append(tensor)
assert not event or not mp.connection.wait([queue._reader], 0)
print("received", float(sum(tensor[0] for tensor in values)), client.default().stats().epoch, flush=True)
sys.stdin.readline()
"""
PRODUCER = """
import os, sys
import shmtensor, shmtensor.multiprocessing as mp
from shmtensor.manager import client
client.set_strategy(sys.argv[2])
client._default = client.at(sys.argv[1])
queue = mp.Queue(name="work")
for number in range(100):
    queue.put(shmtensor.full((1000,), float(number), shared=True))
"""


class Unread:
    """A hundred tensors that a process put and ended; who has the queue has mapped none of them."""

    def __init__(self, here: World, path: bytes, strategy: str = "file_descriptor", event: bool = False) -> None:
        self.here = here
        self.path = path
        self.consumer = here.script(KEEPER, os.fsdecode(path))
        assert line_of(self.consumer) == "there"
        if event:
            tell(self.consumer, "event")
            assert line_of(self.consumer) == "watched"
        here.run(PRODUCER, os.fsdecode(path), strategy)
        until(lambda: len(here.observe(path)["clients"]) == 1, "the producer to be reclaimed")

    def receive(self) -> int:
        """All arrives, as it was; gives the epoch."""
        tell(self.consumer)
        said, total, epoch = line_of(self.consumer).split()
        assert (said, float(total)) == ("received", 4950.0)
        tell(self.consumer)
        assert self.consumer.wait(BOUND) == 0
        return int(epoch)


def restart(here: World, path: bytes) -> dict[str, Any]:
    done = here.command("restart", "--json", "--address", os.fsdecode(path))
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def managers(here: World) -> set[int]:
    """Those that serve, without the scripts that name the package."""
    return {*here.managers()} - {process.pid for process in here.processes if process is not here.server}


def pid_at(path: bytes) -> int:
    with Observer(path) as observer:
        return observer.welcome.pid


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
@pytest.mark.parametrize("event", first([False, True]))
def test_a_restart_keeps_what_nobody_has_received(here: World, strategy: str, event: bool) -> None:
    path = here.serve()
    unread = Unread(here, path, strategy, event)
    for _ in range(2):
        assert restart(here, path)["after"] == here.server.pid
    assert unread.receive() == 3


@pytest.mark.parametrize("strategy", first(["file_descriptor", "file_system"]))
@pytest.mark.parametrize("ends", first(["SIGTERM", "SIGINT", "SIGHUP", "stop"]))
def test_who_is_stopped_and_started_again_keeps_what_nobody_has_received(here: World, ends: str, strategy: str) -> None:
    path = here.serve()
    unread = Unread(here, path, strategy, event=True)
    for _ in range(2):
        before = here.server
        if ends == "stop":
            answer = json.loads(here.command("stop", "--json").stdout)
            assert answer["pid"] == before.pid and answer["successor"] not in (None, before.pid)
        else:
            before.send_signal(getattr(signal, ends))
        assert before.wait(BOUND) == 0
        assert pid_at(path) != before.pid, "one in the background has its place"
        stats = here.observe(path)["stats"]
        assert stats["private"] and stats["idle_exit"] == launch.IDLE_EXIT_SECONDS
        assert Path(stats["log"]) == Path(os.fsdecode(address.log_path(path)))
        assert here.serve() == path
        stats = here.observe(path)["stats"]
        assert (stats["pid"], stats["private"]) == (here.server.pid, False)
        until(lambda: managers(here) == {here.server.pid}, "the one in the background to have left")
    assert unread.receive() == 5


def test_names_and_queues_outlive_every_way_to_the_next_manager(here: World) -> None:
    path = here.serve()
    unread = Unread(here, path)
    names = here.observe(path)["names"]
    assert names
    restart(here, path)
    assert here.observe(path)["names"] == names
    here.server.send_signal(signal.SIGTERM)
    assert here.server.wait(BOUND) == 0
    assert here.observe(path)["names"] == names
    restart(here, path)  # of the one in the background
    stats = here.observe(path)["stats"]
    assert stats["private"], "which it still is"
    here.serve()
    assert here.observe(path)["names"] == names
    assert unread.receive() == 5


def test_what_is_in_flight_keeps_a_manager_that_has_no_client(here: World) -> None:
    path = here.serve()
    code = (
        "import sys; from shmtensor.manager import client\nm = client.at(sys.argv[1])\n"
        "b = m.allocate(8192); memoryview(b)[:4] = b'sent'\n"
        "print(b.segment, b.index, b.generation, *m.ticket(b))\n"
    )
    numbers = here.run(code, os.fsdecode(path)).split()
    until(lambda: not here.observe(path)["clients"], "the sender to be reclaimed")
    restart(here, path)
    here.server.terminate()
    assert here.server.wait(BOUND) == 0
    here.serve()
    code = (
        "import sys; from shmtensor.manager import client\nm = client.at(sys.argv[1])\n"
        "b = m.redeem(*map(int, sys.argv[2:])); print(bytes(memoryview(b)[:4]).decode())\n"
    )
    assert here.run(code, os.fsdecode(path), *numbers) == "sent\n"


def test_who_has_nothing_left_to_keep_ends(here: World) -> None:
    path = here.serve()
    restart(here, path)
    here.run("import sys; from shmtensor.manager import client; client.at(sys.argv[1]).allocate(10)", os.fsdecode(path))
    until(lambda: not here.observe(path)["clients"] and not here.observe(path)["stats"]["dying"], "the client to go")
    answer = json.loads(here.command("stop", "--json").stdout)
    assert answer["successor"] is None
    assert here.server.wait(BOUND) == 0
    until(lambda: not here.managers(), "the manager to have ended")
    assert {entry.name for entry in here.directory.iterdir()} == set()


def test_the_one_in_the_background_leaves_after_its_last_client(here: World) -> None:
    path = here.serve()
    user = here.script(KEEPER, os.fsdecode(path))
    assert line_of(user) == "there"
    here.server.terminate()
    assert here.server.wait(BOUND) == 0
    assert managers(here) == {pid_at(path)}
    kill(user)
    until(lambda: not here.managers(), "the manager in the background to leave")
    assert {entry.name for entry in here.directory.iterdir()} <= {"manager.log"}


def test_a_restart_keeps_process_log_and_kind(here: World) -> None:
    log = here.directory.parent / (here.directory.name + ".log")
    try:
        with log.open("w") as file:
            service = subprocess.Popen(
                [sys.executable, "-m", "shmtensor.manager", "serve"],
                env=here.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        here.server = service
        here.processes.append(service)
        assert service.stdout is not None and service.stdout.readline()
        path = os.fsencode(here.directory / "manager.sock")
        before = here.observe(path)["stats"]
        assert before["log"] == str(log)
        for epoch in (2, 3):
            assert restart(here, path) == {"address": os.fsdecode(path), "before": service.pid, "after": service.pid}
            after = here.observe(path)["stats"]
            for field in (
                "pid",
                "log",
                "private",
                "idle_exit",
                "max_clients",
                "max_bytes",
                "max_bytes_per_client",
                "group",
            ):
                assert after[field] == before[field], field
            assert after["epoch"] == epoch
            until(lambda: managers(here) == {service.pid}, "the keeper to have ended")
        service.send_signal(signal.SIGTERM)
        assert service.wait(BOUND) == 0
        assert service.stdout.read() == "", "it says once where it listens"
        assert log.read_text().count("restarts at the request") == 2
    finally:
        log.unlink()


def test_a_private_manager_is_restarted_as_one(here: World) -> None:
    path = os.fsencode(here.directory / "mine.sock")
    launch.start(path, 0.3, 17)
    wire = Wire(path)
    wire.hello()
    before = here.observe(path)["stats"]
    restart(here, path)
    after = here.observe(path)["stats"]
    for field in ("pid", "log", "private", "idle_exit", "max_clients"):
        assert after[field] == before[field], field
    assert "restarts at the request" in Path(after["log"]).read_text()
    children = Path(f"/proc/{after['pid']}/task/{after['pid']}/children")
    until(lambda: not children.read_text(), "the keeper to be gone")
    wire.close()
    until(lambda: not here.managers(), "it to leave after its last client")


# ------------------------------------------------------------------------------------------- a successor that fails


FAILS = """
import sys
from shmtensor.manager import cli
from shmtensor.manager.daemon import handover
handover._PROGRAM = sys.argv[1]
sys.exit(cli.main(["serve", "--json"]))
"""
PATH = (
    "import sys; sys.path += sys.argv[2:]; from shmtensor.manager import protocol; "
    "from shmtensor.manager.daemon import handover, run, takeover; "
)
SUCCESSORS = {
    "cannot import": "1 / 0",
    "is killed": "import os; os.kill(os.getpid(), 9)",
    "speaks another version": PATH + "protocol.PROTOCOL_VERSION += 1; run.again(sys.argv[1])",
    "finds no group": PATH + "takeover.find_group = lambda *_: None; run.again(sys.argv[1])",
    "has led already": PATH + "handover.Role.taken = lambda _: 1 / 0; run.again(sys.argv[1])",
}


@pytest.mark.parametrize("successor", first(SUCCESSORS, 2))
def test_a_restart_that_cannot_start_loses_nothing(here: World, successor: str) -> None:
    service = here.script(FAILS, SUCCESSORS[successor])
    assert service.stdout is not None and service.stderr is not None
    while line_of(service) != "}":
        pass
    path = os.fsencode(here.directory / "manager.sock")
    unread = Unread(here, path, event=True)
    done = here.command("restart", "--address", os.fsdecode(path))
    assert done.returncode == 1
    assert "did not start" in done.stderr and "background" in done.stderr
    assert service.wait(BOUND) != 0
    said = service.stderr.read()
    assert "did not start" in said
    assert successor != "cannot import" or "ZeroDivisionError" in said
    assert here.observe(path)["stats"]["private"]
    assert here.serve() == path, "the supervisor's next"
    assert unread.receive() >= 3


def test_a_child_that_is_killed_before_it_serves_is_followed_by_another(here: World) -> None:
    code = (
        "import os, sys\nfrom shmtensor.manager import cli\nfrom shmtensor.manager.daemon import handover\n"
        "taken = handover.Role.taken; parent = os.getpid()\n"
        "def killed(role):\n"
        "    if os.getpid() != parent and not os.path.exists(sys.argv[1]):\n"
        "        open(sys.argv[1], 'w').close(); os.kill(os.getpid(), 9)\n"
        "    taken(role)\n"
        "handover.Role.taken = killed; sys.exit(cli.main(['serve', '--json']))\n"
    )
    mark = here.directory / "killed"
    service = here.script(code, str(mark))
    while line_of(service) != "}":
        pass
    path = os.fsencode(here.directory / "manager.sock")
    unread = Unread(here, path, event=True)
    service.terminate()
    assert service.wait(BOUND) == 0
    assert mark.exists() and here.observe(path)["stats"]["private"]
    assert unread.receive() == 3


def test_a_restart_without_an_interpreter_is_refused(here: World) -> None:
    code = FAILS.replace("handover._PROGRAM", "sys.executable")
    service = here.script(code, str(here.directory / "nothing"))
    while line_of(service) != "}":
        pass
    done = here.command("restart")
    assert done.returncode == 1 and "nothing" in done.stderr
    assert pid_at(os.fsencode(here.directory / "manager.sock")) == service.pid


def test_a_restart_that_is_killed_loses_nothing(here: World) -> None:
    path = here.serve()
    unread = Unread(here, path)
    wire = Wire(path)
    wire.hello(p.OBSERVER)
    words = Path(f"/proc/{here.server.pid}/cmdline")
    before = words.read_bytes()
    assert wire.ask(p.Restart()) == p.Ok()
    until(lambda: words.read_bytes() not in (before, b""), "the fresh interpreter")
    kill(here.server)
    wire.close()
    here.serve()
    assert unread.receive() >= 2


def test_who_asks_for_a_place_and_does_not_take_it(here: World) -> None:
    path = here.serve()
    unread = Unread(here, path, event=True)
    here.server.terminate()
    assert here.server.wait(BOUND) == 0
    for epoch, more in ((3, False), (4, True)):
        wire = Wire(path)
        wire.hello(p.OBSERVER)
        wire.send(p.Succeed(), 5)
        if more:  # which does not say that it serves
            wire.send(p.Stats(), 6)
        number, role, descriptors = wire.receive()
        assert (number, role) == (5, p.Role(p.OWN))
        for fd in descriptors:
            os.close(fd)
        wire.close()
        assert here.observe(path)["stats"]["epoch"] == epoch
    assert unread.receive() == 4


def test_an_heir_that_hangs_is_killed(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    successor = here.script("import sys; sys.stdin.readline()")
    monkeypatch.setattr(handover, "SUCCESSOR_SECONDS", 0.1)
    line, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with other:
        assert not handover.stand_by(line, os.pidfd_open(successor.pid))
    assert successor.wait(BOUND) == -signal.SIGKILL


def test_a_served_manager_keeps_its_place(here: World) -> None:
    path = here.serve()
    wire = Wire(path)
    wire.hello(p.OBSERVER)
    reply = wire.ask(p.Succeed())
    assert isinstance(reply, p.Error) and reply.code == p.DENIED
    wire.close()
    second = here.command("serve", "--address", os.fsdecode(path))
    assert second.returncode == 1 and "already" in second.stderr
    assert pid_at(path) == here.server.pid
