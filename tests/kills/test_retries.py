"""Each way to talk to a manager, with one that is killed between request and answer (docs/protocol.md)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from manager_world import BOUND, World, is_alive, kill, line_of, until
from tiers import first

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor.manager import client, launch, protocol
from shmtensor.manager.connection import Observer, connect

pytestmark = pytest.mark.any_python

# What each manager runs before it serves. The file says at what the first to come there kills itself, and is gone then.
FAILPOINTS = """
import os, signal
from shmtensor.manager import protocol
from shmtensor.manager.daemon import connections, server
asked = ""
def reached(point):
    try:
        with open(os.environ["ARMED"]) as file:
            if file.read() != point:
                return
        os.unlink(os.environ["ARMED"])
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
def serve(address, ready, **options):
    def tell():
        reached("start ready")
        ready()
        reached("start told")
    reached("start forked")
    proceed(address, tell, **options)
def dispatch(self, connection, message, *rest):
    name = type(message).__name__
    global asked
    reached("before " + name)
    asked = name
    act(self, connection, message, *rest)
def reply(self, *arguments):
    reached("after " + asked)
    answer(self, *arguments)
reached("start begun")
proceed, run.serve = run.serve, serve
act, server.Server._dispatch = server.Server._dispatch, dispatch
answer, connections.Connections.reply = connections.Connections.reply, reply
"""


class Doomed:
    """A client of managers that are killed where they are told to be."""

    def __init__(self, here: World, armed: Path) -> None:
        self.here = here
        self.armed = armed
        self.path = os.fsencode(here.directory / "mine.sock")
        launch.start(self.path)
        self.manager = client.at(self.path)
        self.block = self.manager.allocate(64)

    def arm(self, point: str) -> None:
        fresh = self.armed.with_suffix(".new")
        fresh.write_text(point)
        fresh.rename(self.armed)

    def script(self, code: str) -> Any:
        """A process that may do something at the same address."""
        return self.here.script(
            "import sys; from shmtensor.manager import client; path = sys.argv[1]\n" + code, os.fsdecode(self.path)
        )

    def another(self) -> client.Manager:
        """A second client, in the same process."""
        return client.Manager(self.path, connect(self.path))


@pytest.fixture
def doomed(here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Doomed]:
    program = launch._PROGRAM.replace("run.background", "exec(sys.argv.pop(1));run.background")
    assert program != launch._PROGRAM
    program = program.replace("sys.argv[4:]", "sys.argv[5:]")
    monkeypatch.setattr(launch, "_PROGRAM", f"import sys;sys.argv.insert(1,{FAILPOINTS!r});{program}")
    monkeypatch.setenv("ARMED", str(tmp_path / "armed"))
    made = Doomed(here, tmp_path / "armed")
    monkeypatch.setattr(client, "_default", made.manager)
    yield made
    assert not made.armed.exists(), "no manager came there"
    del made.block
    made.manager.close()
    until(lambda: not here.managers(), "the manager to leave")


def create(doomed: Doomed) -> None:
    other = doomed.script(
        "m = client.at(path); b = m.allocate(64); memoryview(b)[:3] = b'abc'\n"
        "print(m.export(b).decode(), flush=True); sys.stdin.readline()"
    )
    block = doomed.manager.open(line_of(other).encode())
    assert bytes(memoryview(block)[:3]) == b"abc"
    del block
    kill(other)
    until(lambda: doomed.manager.stats().live_blocks == 1, "its block to be freed")


def create_ring(doomed: Doomed) -> None:
    ring = doomed.manager.create_ring()
    assert doomed.manager.stats().rings == 1
    del ring
    until(lambda: not doomed.manager.stats().rings, "the ring to go")


def look_up(doomed: Doomed) -> None:
    """LOOKUP and MAP."""
    memoryview(doomed.block)[:3] = b"abc"
    name = doomed.manager.export(doomed.block)
    other = doomed.another()
    found = other.open(name)
    assert bytes(memoryview(found)[:3]) == b"abc"
    del found
    other.close()


def give_back(doomed: Doomed) -> None:
    reply, descriptors = doomed.manager._request(protocol.Create(0, protocol.RING))
    for fd in descriptors:
        os.close(fd)
    assert isinstance(reply, protocol.Segment)
    doomed.manager.return_segment(reply.segment)
    until(lambda: not doomed.manager.stats().rings, "the ring to go")


def export(doomed: Doomed) -> None:
    name = doomed.manager.export(doomed.block)
    assert doomed.manager.export(doomed.block) == name
    assert doomed.manager.open(name) is doomed.block


def bind(doomed: Doomed) -> None:
    """BIND and UNEXPORT."""
    doomed.manager.bind(b"/mine", doomed.block)
    assert doomed.manager.open(b"/mine") is doomed.block
    doomed.manager.unexport(b"/mine")
    with pytest.raises(errors.UnknownHandle):
        doomed.manager.open(b"/mine")


def event(doomed: Doomed) -> None:
    ring = doomed.manager.create_ring()
    os.close(doomed.manager.event(ring.segment))
    del ring


def look(doomed: Doomed) -> None:
    """LIST and STATS."""
    assert doomed.manager.stats().live_blocks == 1
    assert len(doomed.manager.list()["clients"]) == 1


def collect(doomed: Doomed) -> None:
    assert not doomed.manager.gc().busy


def say_goodbye(doomed: Doomed) -> None:
    other = doomed.script(
        "m = client.at(path); m.allocate(64); m.close(); print('left', flush=True); sys.stdin.readline()"
    )
    assert line_of(other) == "left"
    kill(other)  # where no manager was there to hear of it, the end of the process counts
    until(lambda: doomed.manager.stats().clients == 1, "its slot to be freed")


def stop(doomed: Doomed) -> None:
    epoch = doomed.manager.stats().epoch
    doomed.manager.stop()
    assert doomed.manager.stats().epoch == epoch + 1, "one has ended, and one has followed"


def join(doomed: Doomed) -> None:
    """HELLO of a process that is new to the group."""
    other = doomed.script(
        "m = client.at(path); b = m.allocate(64); print(m.stats().group, flush=True); sys.stdin.readline()"
    )
    stats = doomed.manager.stats()
    assert line_of(other) == stats.group
    assert doomed.manager.stats().clients == 2
    kill(other)
    until(lambda: doomed.manager.stats().clients == 1, "its slot to be freed")


def adopt(doomed: Doomed) -> None:
    """HELLO of a spawned child, whose slot is there already with what its arguments hold."""
    ctx = mp.get_context("spawn")
    tensor = shmtensor.full((10,), 5.0, shared=True)
    results = ctx.SimpleQueue()
    child = ctx.Process(target=total, args=(tensor, results))
    child.start()
    assert results.get() == 50
    child.join(BOUND)
    assert child.exitcode == 0


def fork(doomed: Doomed) -> None:
    """EMBRYO, and HELLO without an answer."""
    ctx = mp.get_context("fork")
    tensor = shmtensor.full((10,), 5.0, shared=True)
    results = ctx.SimpleQueue()
    child = ctx.Process(target=total, args=(tensor, results))
    child.start()
    assert results.get() == 50
    child.join(BOUND)
    assert child.exitcode == 0
    until(lambda: doomed.manager.stats().clients == 1, "its slot to be freed")


def total(tensor: Any, results: Any) -> None:
    fresh = shmtensor.zeros(1 << 22, shared=True)  # asks the manager
    results.put(float(tensor.sum() + fresh.sum()))


def come_back(doomed: Doomed) -> None:
    """REJOIN: the manager before was killed, too."""
    with Observer(doomed.path) as observer:
        os.kill(observer.welcome.pid, signal.SIGKILL)
        until(lambda: not is_alive(observer.welcome.pid), "the manager to die")
    assert doomed.manager.stats().live_blocks == 1


PATHS: dict[str, Callable[[Doomed], None]] = {
    "Create": create,
    "Create ring": create_ring,
    "Lookup": look_up,
    "Map": look_up,
    "Return": give_back,
    "Export": export,
    "Bind": bind,
    "Unexport": bind,
    "Event": event,
    "List": look,
    "Stats": look,
    "Collect": collect,
    "Goodbye": say_goodbye,
    "Stop": stop,
    "Hello": join,
    "Hello of a spawned child": adopt,
    "Embryo": fork,
    "Hello of a forked child": fork,
    "Rejoin": come_back,
}
UNANSWERED = ("Embryo", "Hello of a forked child")


@pytest.mark.parametrize(
    ("when", "what"),
    first(
        [(when, what) for when in ("after", "before") for what in PATHS if when == "before" or what not in UNANSWERED],
        6,
    ),
)
def test_the_manager_is_killed_before_it_answers(doomed: Doomed, when: str, what: str) -> None:
    """Before it has done what was asked, and after it has."""
    doomed.arm(f"{when} {what.split()[0]}")
    PATHS[what](doomed)


@pytest.mark.parametrize("request_of", ["Hello", "Stats"])
def test_who_only_looks_on_is_told(doomed: Doomed, request_of: str) -> None:
    """Nothing is started to be looked at, nor is the next manager stopped in the place of this one."""
    doomed.arm(f"after {request_of}")
    said = r"ended before it answered|ended or closed the connection"
    with pytest.raises(errors.ManagerError, match=said), Observer(doomed.path) as observer:
        observer.document(protocol.Stats())
    until(lambda: not doomed.here.managers(), "the manager to be dead, and no other to be there")


# ---------------------------------------------------------------------------------------------------------- the start


@pytest.mark.parametrize("point", ["begun", "forked", "ready", "told"])
def test_a_manager_is_killed_while_it_is_started(doomed: Doomed, point: str) -> None:
    pid = doomed.manager.stats().pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid), "the manager to die")
    doomed.arm(f"start {point}")
    assert doomed.manager.stats().live_blocks == 1


@pytest.mark.parametrize("point", ["begun", "forked", "ready"])
def test_the_first_manager_is_killed_while_it_is_started(
    doomed: Doomed, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    doomed.arm(f"start {point}")
    launch.start(doomed.path + b".sock")
    other = client.at(doomed.path + b".sock")
    assert other.stats().clients == 1
    other.close()


def test_a_starter_is_killed_while_others_wait(here: World, doomed: Doomed) -> None:
    code = (
        "import sys; from shmtensor.manager import launch\n"
        "with launch.StartLock(sys.argv[1]):\n    print('has it', flush=True); sys.stdin.readline()\n"
    )
    starter = here.script(code, str(here.directory))
    assert line_of(starter) == "has it"
    pid = doomed.manager.stats().pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid), "the manager to die")
    found: list[int] = []
    waiters = [threading.Thread(target=lambda: found.append(doomed.manager.stats().live_blocks)) for _ in range(2)]
    for waiter in waiters:
        waiter.start()
    until(lambda: launch._start_locks, "one of them to wait")
    assert not found
    kill(starter)
    for waiter in waiters:
        waiter.join(BOUND)
    assert found == [1, 1]


def test_one_that_says_why_it_cannot_start_is_not_started_again(
    here: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    monkeypatch.setattr(launch, "_PROGRAM", f"open({str(starts)!r}, 'a').write('x'); raise SystemExit('because')")
    with pytest.raises(errors.ManagerUnavailable, match="because"):
        launch.start(os.fsencode(here.directory / "x.sock"))
    assert starts.read_text() == "x"


def test_one_that_is_killed_each_time_is_given_up(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_PROGRAM", "import os; os.kill(os.getpid(), 9)")
    monkeypatch.setattr(launch, "START_SECONDS", 0.5)
    with pytest.raises(errors.ManagerUnavailable, match=r"code -9|not ready"):
        launch.start(os.fsencode(here.directory / "x.sock"))


def test_what_listens_and_never_answers_is_given_up(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever accepts is not a manager: it closes each connection."""
    path = here.directory / "x.sock"
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "s.bind(sys.argv[1]); s.listen()\n"
        "print('listens', flush=True)\nwhile True:\n    s.accept()[0].close()\n"
    )
    listener = here.script(code, str(path))
    assert line_of(listener) == "listens"
    with pytest.raises(errors.ManagerUnavailable, match="ended before it answered"):
        client.at(path, 0.5)


def test_a_signal_handler_asks_while_its_thread_starts_a_manager(here: World) -> None:
    code = (
        "import os, signal; from shmtensor.manager import client, launch\n"
        "m = client.default(); b = m.allocate(64); os.kill(m.stats().pid, signal.SIGKILL); start = launch.start\n"
        "def interrupted(*arguments):\n"
        "    launch.start = start; signal.raise_signal(signal.SIGUSR1); start(*arguments)\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print(m.open(m.export(b)) is b))\n"
        "launch.start = interrupted; before = len(os.listdir('/proc/self/fd'))\n"
        "print(m.open(m.export(b)) is b, m.stats().epoch, len(os.listdir('/proc/self/fd')) - before)\n"
    )
    assert here.run(code).split() == ["True", "True", "2", "0"]
    assert sys.executable
