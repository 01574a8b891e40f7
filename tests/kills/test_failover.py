"""The manager is killed, stopped, replaced, restarted: its clients continue, and the next one knows its state."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manager_world import BOUND, World, is_alive, kill, line_of, tell, until

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor.manager import address, client, joining, launch, protocol
from shmtensor.manager.connection import Observer

pytestmark = pytest.mark.any_python

METHODS = ("fork", "spawn", "forkserver")


@pytest.fixture
def manager(here: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[client.Manager]:
    """This process as a client of a manager on demand of its own, which may be killed."""
    path = os.fsencode(here.directory / "mine.sock")
    launch.start(path)
    made = client.at(path)
    monkeypatch.setattr(client, "_default", made)
    try:
        yield made
    finally:
        made.close()
        until(lambda: not here.managers(), "the manager to leave")


def kill_manager(manager: client.Manager) -> int:
    pid = manager.stats().pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid), "the manager to die")
    return pid


@contextmanager
def unseen(manager: client.Manager) -> Iterator[None]:
    """What happens inside, the manager does not see: it is stopped, and killed in the end."""
    pid = manager.stats().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)


def forked(target: Callable[[Any, Any], None], task: Any) -> tuple[Any, Any, Any]:
    """A process that has done its first task, the queue of its tasks, and that of its results with one in it."""
    ctx = mp.get_context("fork")
    tasks, results = ctx.SimpleQueue(), ctx.SimpleQueue()
    process = ctx.Process(target=target, args=(tasks, results))
    process.start()
    tasks.put(task)
    until(lambda: not results.empty(), "the first result")
    return process, tasks, results


def clients(manager: client.Manager) -> dict[int, str]:
    """pid -> state."""
    return {row["pid"]: row["state"] for row in manager.list()["clients"]}


def echo(tasks: Any, results: Any) -> None:
    while True:
        value = tasks.get()
        if value is None:
            return
        results.put(value)


# --------------------------------------------------------------------------------------------------------------- killed


@pytest.mark.parametrize("method", METHODS)
def test_clients_go_on_and_the_next_manager_knows_everything(manager: client.Manager, method: str) -> None:
    ctx = mp.get_context(method)
    tasks, results = ctx.Queue(), ctx.Queue()
    worker = ctx.Process(target=echo, args=(tasks, results))
    worker.start()
    tensor = shmtensor.full((1000,), 7.0, shared=True)
    tasks.put(tensor)
    back = results.get(timeout=BOUND)
    name = manager.export(tensor.storage()._region)
    before = manager.list()
    for epoch in (2, 3):
        kill_manager(manager)
        tasks.put(tensor)  # nobody needs a manager for that
        assert results.get(timeout=BOUND)[3] == 7.0
        stats = manager.stats()
        assert (stats.epoch, stats.clients) == (epoch, 2)
        after = manager.list()
        for field in ("id", "owner", "ring", "payload_bytes", "live_blocks"):
            assert sorted(str(row[field]) for row in after["segments"]) == sorted(
                str(row[field]) for row in before["segments"]
            ), field
        block = manager.open(name)
        assert block.index == tensor.storage()._region.index
        del block
        assert manager.export(tensor.storage()._region) == name
    fresh = shmtensor.ones(10_000_000, shared=True)
    tasks.put(fresh)
    assert results.get(timeout=BOUND).sum() == 10_000_000
    tasks.put(None)
    worker.join(BOUND)
    assert worker.exitcode == 0
    until(lambda: set(clients(manager)) == {os.getpid()}, "the worker's slot to be freed")
    del tensor, back, fresh, tasks, results
    until(lambda: manager.stats().live_blocks == 0, "all blocks to be free")


def test_who_died_while_there_was_no_manager_is_reaped(manager: client.Manager) -> None:
    tensor = shmtensor.zeros(1000, shared=True)
    worker, _tasks, results = forked(hold_and_wait, tensor)
    assert results.get() == "held"
    live = manager.stats().live_blocks
    kill_manager(manager)
    worker.kill()
    worker.join(BOUND)
    until(lambda: set(clients(manager)) == {os.getpid()}, "the dead worker to be reclaimed")
    until(lambda: manager.stats().live_blocks < live, "what it held to be free")
    assert manager.stats().epoch == 2


def hold_and_wait(tasks: Any, results: Any) -> None:
    kept = [tasks.get(), shmtensor.ones(5000, shared=True)]
    results.put("held")
    tasks.get()
    del kept


def test_a_process_that_waits_sees_to_it_that_there_is_a_manager(manager: client.Manager) -> None:
    """Nobody asks for anything; the dead client's memory is free all the same."""
    victim, _tasks, results = forked(hold_and_wait, shmtensor.zeros(10, shared=True))
    assert results.get() == "held"
    ctx = mp.get_context("fork")
    never = ctx.SimpleQueue()
    waiter = ctx.Process(target=never.get)
    waiter.start()
    until(lambda: len(clients(manager)) == 3, "three clients")
    before = kill_manager(manager)
    victim.kill()
    victim.join(BOUND)
    found = until(lambda: [pid for pid in managers_at(manager) if pid != before], "somebody to start a manager")
    assert len(found) == 1
    with Observer(manager.address) as observer:
        until(lambda: b'"live_blocks": 3' in observer.document(protocol.Stats()), "the dead to be reclaimed")
    never.put(None)
    waiter.join(BOUND)
    assert waiter.exitcode == 0


def managers_at(manager: client.Manager) -> list[int]:
    try:
        with Observer(manager.address) as observer:
            return [observer.welcome.pid]
    except errors.ManagerError:
        return []


def test_memory_of_a_client_that_does_nothing_is_found(manager: client.Manager) -> None:
    """The sender is stopped, so it cannot hand anything over: its segment is taken from it all the same."""
    sender, tasks, results = forked(send_own, "go")
    os.kill(sender.pid, signal.SIGSTOP)
    try:
        kill_manager(manager)
        arrived = results.get()  # its segment was never mapped here
        assert (arrived.numpy() == np.arange(100_000)).all()
    finally:
        os.kill(sender.pid, signal.SIGCONT)
    tasks.put(None)
    sender.join(BOUND)
    assert sender.exitcode == 0


def send_own(tasks: Any, results: Any) -> None:
    while tasks.get() is not None:
        results.put(shmtensor.arange(100_000, shared=True))


def test_a_message_whose_memory_went_with_sender_and_manager_is_lost(manager: client.Manager) -> None:
    sender, _tasks, results = forked(send_own, "go")
    with unseen(manager):
        sender.kill()
    sender.join(BOUND)
    with pytest.raises(errors.SegmentLost, match="ended before"):
        results.get()
    results.put("the next")
    assert results.get() == "the next"


@pytest.mark.parametrize("method", METHODS)
def test_children_are_started_while_there_is_no_manager(manager: client.Manager, method: str) -> None:
    ctx = mp.get_context(method)
    tensor = shmtensor.zeros(1000, shared=True)
    results = ctx.SimpleQueue()
    if method == "forkserver":  # it is started with the first process
        first = ctx.Process(target=add_one, args=(tensor, results))
        first.start()
        first.join(BOUND)
        assert results.get() == 1
    kill_manager(manager)
    child = ctx.Process(target=add_one, args=(tensor, results))
    child.start()
    assert results.get() == tensor[0]
    child.join(BOUND)
    assert child.exitcode == 0
    until(lambda: set(clients(manager)) == {os.getpid()}, "its slot to be freed")


def add_one(tensor: Any, results: Any) -> None:
    tensor += 1
    results.put(float(tensor[0]))


@pytest.mark.parametrize("reuse", [False, True])
def test_a_forked_child_that_closes_all_descriptors_comes_back(here: World, reuse: bool) -> None:
    code = (
        "import os, sys, shmtensor; from shmtensor.manager import client\n"
        "tensor = shmtensor.full((1000,), 7.0, shared=True); child = os.fork()\n"
        "if child:\n    sys.exit(os.waitpid(child, 0)[1])\n"
        "os.closerange(3, 1024); mine = [os.open('/dev/null', os.O_RDONLY) for _ in range(int(sys.argv[1]))]\n"
        "name = client.default().export(shmtensor.ones(1 << 24, shared=True).storage()._region)\n"
        "client.default().unexport(name); [os.fstat(fd) for fd in mine]; print(float(tensor.sum()), flush=True)\n"
        "os._exit(0)\n"
    )
    assert here.run(code, "50" if reuse else "0") == "7000.0\n"


def test_a_child_forked_and_killed_without_a_manager_leaves_nothing(manager: client.Manager) -> None:
    tensor = shmtensor.zeros(1000, shared=True)
    kill_manager(manager)
    pids = []
    read_end, write_end = os.pipe()
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            os.write(write_end, b"x")
            signal.pause()
        pids.append(pid)
        assert os.read(read_end, 1) == b"x"
    os.close(read_end)
    os.close(write_end)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    until(lambda: set(clients(manager)) == {os.getpid()}, "their slots to be freed")
    (row,) = [row for row in manager.list()["segments"] if row["live_blocks"]]
    assert [(holder["kind"], holder["blocks"]) for holder in row["holders"]] == [("client", 1)]
    del tensor


def test_a_child_that_was_being_spawned_comes_for_its_slot(manager: client.Manager) -> None:
    tensor = shmtensor.full((10,), 5.0, shared=True)
    block = tensor.storage()._region
    slot, generation, fd = manager.native.embryo()
    hold, mark = manager.ticket(block, slot)
    kill_manager(manager)
    place = manager.place_of(slot, generation)
    os.set_inheritable(fd, True)
    code = (
        "import sys; from shmtensor.manager import client\n"
        "address, fd, slot, generation, group, *rest = sys.argv[1:]\n"
        "m = client.adopt(address, int(fd), client.Place(int(slot), int(generation), int(group)))\n"
        "b = m.redeem(*map(int, rest)); print(m.native.slot, bytes(memoryview(b)[:4]).hex())\n"
    )
    numbers = (fd, slot, generation, place.group, block.segment, block.index, block.generation, hold, mark)
    words = [sys.executable, "-c", code, os.fsdecode(manager.address), *map(str, numbers)]
    done = subprocess.run(words, pass_fds=[fd], capture_output=True, text=True, timeout=BOUND)
    os.close(fd)
    assert done.stdout.split() == [str(slot), np.float32(5).tobytes().hex()], done.stderr
    until(lambda: set(clients(manager)) == {os.getpid()}, "its slot to be freed")


def test_who_waits_at_a_queues_event_is_woken_after_a_change_of_managers(manager: client.Manager) -> None:
    ctx = mp.get_context("fork")
    queue = ctx.Queue()
    reader, writer = ctx.Pipe()
    waiter = ctx.Process(target=wait_at, args=(queue, writer))
    waiter.start()
    assert reader.recv() == "waiting"
    kill_manager(manager)
    assert manager.stats().epoch == 2
    putter = ctx.Process(target=queue.put, args=("woken",))  # this one has to ask for the event
    putter.start()
    assert reader.poll(BOUND) and reader.recv() == "woken"
    for process in (waiter, putter):
        process.join(BOUND)
        assert process.exitcode == 0


def wait_at(queue: Any, writer: Any) -> None:
    assert not mp.connection.wait([queue._reader], 0)  # from now on the event is there
    writer.send("waiting")
    assert mp.connection.wait([queue._reader], BOUND)
    writer.send(queue.get())


def test_a_ring_that_died_with_messages_inside_gives_their_memory_back(manager: client.Manager) -> None:
    """Queue and manager end at once; the messages' blocks are ours."""
    code = (
        "import os, sys; from shmtensor.manager import client\n"
        "import shmtensor, shmtensor.multiprocessing as mp\n"
        "client._default = client.at(sys.argv[1]); b = client.default().open(sys.argv[2].encode())\n"
        "q = mp.SimpleQueue(); q.put(shmtensor.ones(10, shared=True)); print('put', flush=True); sys.stdin.readline()\n"
    )
    block = manager.allocate(5000)
    child = subprocess.Popen(
        [sys.executable, "-c", code, os.fsdecode(manager.address), manager.export(block).decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "put\n"
    with unseen(manager):
        kill(child)
    for stream in (child.stdin, child.stdout):
        assert stream is not None
        stream.close()
    until(lambda: manager.stats().live_blocks == 1, "all that was the child's to be free")
    assert not manager.list()["rings"]
    del block


def test_names_in_dev_shm_stay_while_their_memory_lives(manager: client.Manager) -> None:
    client.set_strategy("file_system")
    try:
        tensor = shmtensor.ones(1000, shared=True)
        (name,) = [row["name"] for row in manager.list()["segments"] if row["name"]]
        kill_manager(manager)
        assert manager.stats().epoch == 2
        assert Path("/dev/shm" + name).exists()
        assert [row["name"] for row in manager.list()["segments"] if row["name"]] == [name]
    finally:
        client.set_strategy("file_descriptor")
    del tensor
    manager.close()
    until(lambda: not Path("/dev/shm" + name).exists(), "the name to go with the group")


def test_names_are_for_those_to_take_back_who_asked_for_them(manager: client.Manager, here: World) -> None:
    """Under the next manager as well."""
    block = manager.allocate(64)
    names = [b"/mine", manager.export(block)]
    manager.bind(names[0], block)
    code = (
        "import sys; from shmtensor import errors; from shmtensor.manager import client\n"
        "m = client.at(sys.argv[1])\n"
        "for name in sys.argv[2:]:\n"
        "    try: m.unexport(name.encode())\n"
        "    except errors.ManagerError as refused: print(refused)\n"
    )
    for _ in range(2):
        told = here.run(code, os.fsdecode(manager.address), *map(os.fsdecode, names)).splitlines()
        assert len(told) == 2 and all(f"pid {os.getpid()}" in line for line in told)
        assert all(manager.open(name) is block for name in names)
        kill_manager(manager)
        assert manager.stats().names == 2
    for name in names:
        manager.unexport(name)


def test_names_of_users_outlive_a_manager(manager: client.Manager) -> None:
    block, other = manager.allocate(64), manager.allocate(64)
    manager.bind(b"/mine", block)
    manager.bind(b"/gone", other)
    manager.unexport(b"/gone")
    kill_manager(manager)
    assert manager.open(b"/mine") is block
    with pytest.raises(errors.UnknownHandle):
        manager.open(b"/gone")


@pytest.mark.parametrize("content", [None, "", "group 7"])
def test_a_journal_that_was_taken_away_is_put_back(manager: client.Manager, here: World, content: str | None) -> None:
    tensor = shmtensor.ones(1000, shared=True)
    manager.bind(b"/mine", tensor.storage()._region)
    journal = Path(os.fsdecode(address.journal_path(manager.address)))
    said = journal.read_text()
    for epoch, change in ((2, "restart"), (3, "kill")):
        journal.unlink()
        if content is not None:
            journal.write_text(content.replace("7", said.split()[1]))
        if change == "restart":
            done = here.command("restart", "--address", os.fsdecode(manager.address))
            assert done.returncode == 0, done.stderr
        else:
            until(lambda: manager.stats() and journal.exists() and journal.read_text() == said, "the journal")
            kill_manager(manager)
        assert manager.stats().epoch == epoch
        assert manager.open(b"/mine") is tensor.storage()._region


@pytest.mark.parametrize("content", ["of somebody", "group 1\n"])
def test_what_others_put_in_the_place_of_the_journal_stays(manager: client.Manager, here: World, content: str) -> None:
    journal = Path(os.fsdecode(address.journal_path(manager.address)))
    theirs = here.directory / "theirs"
    theirs.write_text(content)
    theirs.replace(journal)  # in one step: a missing one is put back at once
    log = Path(manager.stats().log)
    until(lambda: manager.stats() and "cannot be put back" in log.read_text(), "the manager to look")
    manager.close()
    until(lambda: not here.managers(), "the manager to leave")
    assert journal.read_text() == content


# ------------------------------------------------------------------------------------------------- stopped and replaced


def test_a_manager_that_was_stopped_and_replaced_acts_no_more(manager: client.Manager, here: World) -> None:
    tensor = shmtensor.ones(1000, shared=True)
    old = manager.stats().pid
    os.kill(old, signal.SIGSTOP)
    try:
        # As of one in another PID namespace: it has its lock, on a file that nobody finds, and is not found itself.
        lock = Path(os.fsdecode(address.lock_path(manager.address)))
        lock.write_text("")
        lock.unlink()
        Path(os.fsdecode(manager.address)).unlink()
        launch.start(manager.address)
        stats = manager.stats()  # finds out that its own is not the manager any more
        assert stats.pid != old and stats.epoch == 2
        ctx = mp.get_context("fork")
        held = ctx.Process(target=time.sleep, args=(BOUND,))
        held.start()
        until(lambda: clients(manager).get(held.pid) == "client", "the child to be known")
    finally:
        with suppress(ProcessLookupError):  # its successor has killed it, and somebody may have waited for it
            os.kill(old, signal.SIGCONT)
    until(lambda: not is_alive(old), "the one that was replaced to leave")
    assert Path(os.fsdecode(manager.address)).exists(), "that is its successor's"
    assert clients(manager)[held.pid] == "client"
    assert manager.stats().epoch == 2
    held.kill()
    held.join(BOUND)
    until(lambda: len(clients(manager)) == 1, "the child to be reclaimed")
    assert manager.open(manager.export(tensor.storage()._region)) is not None


def test_two_that_start_at_once_end_as_one(manager: client.Manager, here: World) -> None:
    tensor = shmtensor.ones(1000, shared=True)
    kill_manager(manager)
    starters = [threading.Thread(target=launch.start, args=(manager.address,)) for _ in range(4)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join(BOUND)
    until(lambda: len(here.managers()) == 1, "all but one to leave")
    assert manager.stats().epoch == 2
    assert tensor.sum() == 1000


def test_restart_loses_no_request(manager: client.Manager, here: World) -> None:
    over = threading.Event()
    problems: list[BaseException] = []
    counts = [0, 0]

    def ask(number: int) -> None:
        try:
            while not over.is_set():
                block = manager.allocate(1 << 16)
                assert manager.open(manager.export(block)) is block
                counts[number] += 1
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    seen = {(manager.stats().pid, manager.stats().epoch)}
    for _ in range(3):
        done = here.command("restart", "--address", os.fsdecode(manager.address))
        assert done.returncode == 0, done.stderr
        before = list(counts)
        until(lambda then=before: all(map(int.__gt__, counts, then)), "requests to go on")
        seen.add((manager.stats().pid, manager.stats().epoch))
    over.set()
    for thread in threads:
        thread.join(BOUND)
    assert not problems
    assert len(seen) == 4 and len({pid for pid, _epoch in seen}) == 1


def test_each_thread_that_waited_for_a_stopped_manager_is_told_which(manager: client.Manager) -> None:
    problems: list[str] = []

    def ask() -> None:
        with pytest.raises(errors.ManagerTimeout) as caught:
            manager.list(0.5)
        problems.append(str(caught.value))

    pid = manager.stats().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert len(problems) == 3
    for problem in problems:
        assert os.fsdecode(manager.address) in problem and "0.5" in problem and "stopped" in problem


@pytest.mark.exhaustive
def test_restart_of_one_that_does_not_answer(manager: client.Manager, here: World) -> None:
    tensor = shmtensor.ones(1000, shared=True)
    old = manager.stats().pid
    os.kill(old, signal.SIGSTOP)
    done = here.command("restart", "--address", os.fsdecode(manager.address))
    assert done.returncode == 0, done.stderr
    assert "killed" in done.stdout
    assert not is_alive(old)
    assert manager.stats().clients == 1
    assert tensor.sum() == 1000


def test_a_client_starts_the_next_manager_of_a_service(here: World) -> None:
    """Nothing restarts it: the client goes on at once, with a manager that leaves after it."""
    path = here.serve()
    user = client.at(path)
    block = user.allocate(64)
    kill(here.server)
    more = user.allocate(1 << 30)  # needs a segment
    stats = user.stats()
    assert (stats.epoch, stats.private, stats.clients) == (2, True, 1)
    assert user.open(user.export(block)) is block
    del block, more
    user.close()
    until(lambda: not here.managers(), "the manager to leave")


def test_a_supervisor_and_the_clients_start_one_manager(here: World) -> None:
    path = here.serve()
    code = (
        "import os, sys; from shmtensor.manager import client\n"
        "m = client.at(sys.argv[1]); b = m.allocate(64); print('ready', flush=True); sys.stdin.readline()\n"
        "print(m.stats().epoch, m.open(m.export(b)) is b, m.stats().pid, flush=True); sys.stdin.readline()\n"
    )
    processes = [here.script(code, os.fsdecode(path)) for _ in range(3)]
    for process in processes:
        assert line_of(process) == "ready"
    kill(here.server)
    for process in processes:
        tell(process)
    supervised = here.popen("-m", "shmtensor.manager", "serve", "--json", "--address", os.fsdecode(path))
    answers = [line_of(process).split() for process in processes]
    others = {int(pid) for _epoch, _same, pid in answers} - {supervised.pid}
    assert len(others) <= 1, answers
    assert all(same == "True" for _epoch, same, _pid in answers)
    assert supervised.stdout is not None and supervised.stdout.readline(), "it takes the place of one in the background"
    for process in processes:
        tell(process)
        assert process.wait(BOUND) == 0
    assert json.loads(here.command("status", "--json").stdout)["pid"] == supervised.pid


def test_a_socket_that_is_passed_on_stays(here: World) -> None:
    """As systemd does: it listens, starts a manager when somebody comes, and again after that one was killed."""
    path = here.directory / "passed.sock"
    here.directory.chmod(0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(100)

        def serve() -> subprocess.Popen[str]:
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
            return process

        first = serve()
        user = client.at(os.fsencode(path))
        block = user.allocate(64)
        kill(first)
        answers: list[int] = []
        asker = threading.Thread(target=lambda: answers.append(user.stats().epoch))
        asker.start()
        second = serve()
        asker.join(BOUND)
        assert answers == [2]
        assert user.open(user.export(block)) is block
        del block
        user.close()
        assert second.wait(BOUND) == 0, "it leaves when nobody is left"
        assert path.exists(), "but the socket is not its own"


def test_what_is_passed_on_must_be_a_socket(here: World) -> None:
    code = (
        "import os, sys; os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); os.dup2(0, 3)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'shmtensor.manager', 'serve'])\n"
    )
    process = here.script(code)
    _out, err = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert "ListenSequentialPacket" in err


# --------------------------------------------------------------------------------------------------------- nobody there


@pytest.mark.parametrize("trouble", ["no interpreter", "another file"])
def test_requests_say_at_once_why_no_manager_can_be_started(
    here: World, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    path = here.serve()
    user = client.at(path)
    block = user.allocate(64)
    kill(here.server)
    journal = Path(os.fsdecode(address.journal_path(path)))
    said = journal.read_text()
    if trouble == "another file":
        journal.write_text("of somebody")
    else:
        monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(joining, "sleep", None)  # nothing is waited for
    with pytest.raises(errors.ManagerUnavailable, match=r"would overwrite it|executable is empty"):
        user.list()
    assert memoryview(block)[:1] is not None
    again = user.allocate(64)
    journal.write_text(said)
    del block, again
    user.close()


def test_another_group_at_the_same_address_is_refused(here: World) -> None:
    """The journal is gone with the manager, so the next one cannot know of us; and must not take us for its own."""
    path = here.serve()
    user = client.at(path)
    block = user.allocate(64)
    kill(here.server)
    Path(os.fsdecode(address.journal_path(path))).unlink()
    assert here.serve() == path
    with pytest.raises(errors.ManagerError, match="another group"):
        user.stats()
    memoryview(block)[:1] = b"x"
    del block
    user.close()


# ------------------------------------------------------------------------------------- a new manager in a bad position


def test_a_manager_that_cannot_be_started_leaves_the_group_as_it_is(manager: client.Manager, here: World) -> None:
    tensor = shmtensor.ones(1000, shared=True)
    name = manager.export(tensor.storage()._region)
    kill_manager(manager)
    log = address.log_path(manager.address)
    directory = Path(os.fsdecode(log))
    directory.unlink(missing_ok=True)
    directory.mkdir()  # the next one cannot write its log
    with pytest.raises(errors.ManagerUnavailable, match="log"):
        launch.start(manager.address)
    assert Path(os.fsdecode(address.journal_path(manager.address))).exists()
    directory.rmdir()
    assert manager.stats().epoch == 2
    assert manager.open(name) is tensor.storage()._region


def test_clients_that_cannot_be_looked_at_live(manager: client.Manager, here: World) -> None:
    """The next manager has no descriptor left to read their maps: that is no reason to take their memory away."""
    tensors = [shmtensor.ones(1 << 18, shared=True) for _ in range(3)]
    queues = [mp.SimpleQueue() for _ in range(12)]
    kill_manager(manager)
    code = (
        "import resource, sys; from shmtensor import errors; from shmtensor.manager import launch\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))\n"
        "try:\n    launch.start(sys.argv[1].encode())\n"
        "except errors.ManagerUnavailable as problem:\n    print(problem)\n"
    )
    assert "Too many open files" in here.run(code, os.fsdecode(manager.address))
    assert all(tensor.sum() == 1 << 18 for tensor in tensors)
    assert manager.stats().epoch >= 2 and manager.stats().rings == len(queues)
    assert all(tensor.sum() == 1 << 18 for tensor in tensors)


def test_a_program_that_ignores_its_children_starts_one_manager(here: World) -> None:
    code = (
        "import os, signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "import shmtensor; from shmtensor.manager import client\n"
        "t = shmtensor.ones(10, shared=True); m = client.default(); os.kill(m.stats().pid, signal.SIGKILL)\n"
        "print(m.stats().epoch, float(t.sum()))\n"
    )
    assert here.run(code) == "2 10.0\n"


def test_a_fork_beside_a_start_keeps_no_lock(here: World) -> None:
    directory = str(here.directory)
    inside, over = threading.Event(), threading.Event()

    def hold() -> None:
        with launch.StartLock(directory):
            inside.set()
            over.wait(BOUND)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(BOUND)
    waiter = threading.Thread(target=lambda: launch.StartLock(directory).__enter__().__exit__())
    waiter.start()
    pid = os.fork()
    if not pid:
        signal.pause()
    over.set()
    for thread in (holder, waiter):
        thread.join(BOUND)
    try:
        with launch.StartLock(directory, 1.0):
            pass
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_only_the_holder_of_the_lock_is_killed(here: World) -> None:
    path = here.directory / "x.sock"
    lock = Path(os.fsdecode(address.lock_path(os.fsencode(path))))
    innocent = here.script("import sys; sys.stdin.readline()")
    lock.write_text(f"{innocent.pid} - -")
    launch._kill_if(innocent.pid, lock.stat())
    assert innocent.poll() is None


@pytest.mark.exhaustive
def test_a_manager_is_no_client_of_its_own(here: World) -> None:
    """A client's child that becomes the next manager by exec: its slot is not that of a living client."""
    path = here.serve()
    code = (
        "import subprocess, sys; from shmtensor.manager import client\n"
        "m = client.at(sys.argv[1]); b = m.allocate(64); print('ready', flush=True); sys.stdin.readline()\n"
        "command = [sys.executable, '-m', 'shmtensor.manager', 'serve', '--address', sys.argv[1]]\n"
        "started = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=int); started.stdout.readline()\n"
        "print(started.pid, flush=True); sys.stdin.readline()\n"
    )
    program = here.script(code, os.fsdecode(path))
    assert line_of(program) == "ready"
    kill(here.server)
    tell(program)
    pid = int(line_of(program))
    pids = until(lambda: {row["pid"] for row in here.observe(path)["clients"]}, "the program to come back")
    until(lambda: {row["pid"] for row in here.observe(path)["clients"]} == {program.pid}, f"{pid} to be none of {pids}")
    tell(program)
    program.wait(BOUND)
    os.kill(pid, signal.SIGTERM)
