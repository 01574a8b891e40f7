"""Limits of the system: file descriptors, mappings, connections. Each process in here sets its own."""

from __future__ import annotations

import os
import resource

import pytest
from manager_world import BOUND, Wire, World, kill, line_of, tell, until

from shmtensor._native import LAYOUT_VERSION
from shmtensor.manager import client, protocol

pytestmark = pytest.mark.any_python

CONNECTIONS = 5_000
CLIENTS = 1_000


@pytest.mark.exhaustive
def test_64_descriptors_are_enough_for_50_000_tensors_alive_and_sent(here: World) -> None:
    code = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import shmtensor as st
import shmtensor.multiprocessing as mp
from memory_world import mappings

ALL, PART = 50_000, 1_000

def receive(queue, answers):
    kept = []
    while len(kept) < ALL:
        kept += queue.get(timeout=60)
    good = all(int(tensor[0]) == n and int(tensor[-1]) == n for n, tensor in enumerate(kept))
    answers.put((good, len(os.listdir("/proc/self/fd")), mappings()))

def main():
    context = mp.get_context("fork")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=receive, args=(queue, answers))
    child.start()
    kept = []
    for part in range(ALL // PART):
        tensors = [st.full((100,), part * PART + n, dtype=st.int64) for n in range(PART)]
        queue.put(tensors)
        kept += tensors
    print(*answers.get(timeout=60), len(os.listdir("/proc/self/fd")), mappings())
    assert all(int(tensor[50]) == n for n, tensor in enumerate(kept))
    child.join()
    assert child.exitcode == 0

main()
"""
    good, *counts = here.run(code).split()
    assert good == "True"
    theirs, their_mappings, ours, our_mappings = map(int, counts)
    assert theirs < 32 and ours < 32
    # The group; metadata and payload of the arena; metadata and payload of two queues.
    assert their_mappings <= 7 and our_mappings <= 7


@pytest.mark.exhaustive
def test_mappings_are_a_constant_for_each_segment(here: World) -> None:
    code = """
import sys, os
from memory_world import mappings
from shmtensor.manager import client
import shmtensor.multiprocessing as mp
before = mappings()
manager = client.default()
assert (before, mappings()) == (0, 1), mappings()          # the group
small = [manager.allocate(100) for _ in range(20_000)]
assert mappings() == 3, mappings()                         # an arena: metadata and payload
large = [manager.allocate(300 << 20) for _ in range(5)]
assert mappings() == 13, mappings()
queue = mp.Queue()
assert mappings() == 15, mappings()
queue.put_many(list(range(1000)))
views = [manager.attach(b.segment, b.index, b.generation) for b in small + large]
assert mappings() == 15, mappings()
del queue
assert mappings() == 13, mappings()
print("fine")
"""
    assert here.run(code).strip() == "fine"


def test_a_fork_that_finds_no_descriptor_says_so_and_what_to_do(here: World) -> None:
    code = """
import os, resource
import shmtensor as st
from shmtensor import errors
from shmtensor.manager import client
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
tensor = st.full((10,), 7, dtype=st.int64).share_memory_()
block = client.default().allocate(80)
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass

def child():
    for fd in taken:
        os.close(fd)
    for use in (lambda: memoryview(block), lambda: st.zeros(3, dtype=st.int64).share_memory_()):
        try:
            use()
            os._exit(1)
        except errors.ClientUnavailable as problem:
            said = str(problem)
        if "no file descriptors left" not in said or "ulimit -n" not in said:
            print(said, flush=True)
            os._exit(2)
    if not os.fork():   # and so it is for its children
        try:
            memoryview(block)
        except errors.ClientUnavailable as problem:
            os._exit(0 if "no file descriptors left" in str(problem) else 4)
        os._exit(3)
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))

pid = os.fork()
if not pid:
    child()
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
assert code == 0, code
assert int(tensor[3]) == 7             # the parent goes on,
for fd in taken:
    os.close(fd)
pid = os.fork()                        # and the next fork is as any other
if not pid:
    os._exit(0 if len(memoryview(block)) == 80 and st.zeros(3, dtype=st.int64).share_memory_().is_shared() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print("fine")
"""
    assert here.run(code).strip() == "fine"


CONNECT = f"""
import os, resource, socket, sys
from shmtensor._native import LAYOUT_VERSION
from shmtensor.manager import protocol
_soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, {CONNECTIONS} + 100), hard))
hello = protocol.encode(protocol.Hello(protocol.PROTOCOL_VERSION, LAYOUT_VERSION), 1)
kept, refused, texts = [], [], set()
def reply_on(sock):
    data, descriptors, _flags, _from = socket.recv_fds(sock, protocol.MAX_REPLY_BYTES, 2)
    for fd in descriptors:
        os.close(fd)
    return protocol.decode_reply(data)[1] if data else None
for _ in range({CONNECTIONS}):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout({BOUND})
    sock.connect(sys.argv[1])
    sock.send(hello)
    reply = reply_on(sock)
    if isinstance(reply, protocol.Welcome):
        kept.append(sock)
    else:
        assert reply.code == protocol.LIMIT and reply_on(sock) is None
        refused.append(sock)
        texts.add(reply.text)
print(len(kept), len(refused), *texts, sep="\\n", flush=True)
for line in sys.stdin:                      # those that were let in are served
    answers = 0
    for sock in kept[:: len(kept) // 100]:
        sock.send(protocol.encode(protocol.Stats(), 2))
        answers += isinstance(reply_on(sock), protocol.Document)
    print(answers, flush=True)
    kept[0].send(protocol.encode(protocol.Goodbye(), 3))
    assert isinstance(reply_on(kept.pop(0)), protocol.Ok)
    print("left", flush=True)
"""


@pytest.mark.exhaustive
def test_5000_connections_asked_of_a_manager_of_1000(here: World) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < CONNECTIONS + 100:
        pytest.skip(f"{CONNECTIONS} connections take as many descriptors, and the hard limit here is {hard}")
    address = here.serve("--max-clients", str(CLIENTS))
    manager = client.at(address)
    others = here.script(CONNECT, os.fsdecode(address))
    assert int(line_of(others)) == CLIENTS - 1
    assert int(line_of(others)) == CONNECTIONS - (CLIENTS - 1)
    said = line_of(others)
    assert f"maximum of {CLIENTS} clients" in said and "--max-clients" in said
    block = manager.allocate(1 << 20)
    assert manager.open(manager.export(block)) is block
    figures = manager.stats()
    assert (figures.clients, figures.refused) == (CLIENTS, CONNECTIONS - (CLIENTS - 1))
    assert figures.descriptors < 2 * CLIENTS + 50, "those that were refused cost nothing"
    with pytest.raises(AssertionError, match="maximum of"):
        Wire(address).hello()
    tell(others)
    assert int(line_of(others)) >= 100
    assert line_of(others) == "left"
    Wire(address).hello()  # who leaves makes room
    del block
    kill(others)
    until(lambda: manager.stats().clients <= 2, "the killed others to go")
    manager.close()


def test_a_manager_without_descriptors_refuses_and_serves_who_is_there(here: World) -> None:
    code = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from shmtensor.manager.cli import main
sys.exit(main(["serve", "--address", sys.argv[1]]))
"""
    path = here.directory / "few.sock"
    process = here.script(code, str(path))
    assert process.stdout is not None
    assert "listening" in process.stdout.readline()
    manager = client.at(str(path))
    wires = []
    for _ in range(60):
        wire = Wire(os.fsencode(path))
        wire.send(protocol.Hello(protocol.PROTOCOL_VERSION, LAYOUT_VERSION))
        wires.append(wire)
    replies = [wire.receive() for wire in wires]
    for fd in [fd for _number, _reply, fds in replies for fd in fds]:
        os.close(fd)
    refusals = [reply for _number, reply, _fds in replies if isinstance(reply, protocol.Error)]
    assert refusals and len(refusals) < 50
    assert all(one.code == protocol.LIMIT and "file descriptor" in one.text for one in refusals)
    block = manager.allocate(1000)  # for which the manager needs descriptors
    assert manager.stats().clients >= 10
    for wire in wires:
        wire.close()
    del block
    manager.close()
