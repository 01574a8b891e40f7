"""Using a manager: blocks, names, its end, forks; from real processes."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from manager_world import BOUND, World, kill, until

from shmtensor import _native, errors
from shmtensor.manager import client, protocol
from shmtensor.manager.connection import Observer, connect


@pytest.fixture
def manager(here: World) -> Iterator[client.Manager]:
    """This process as a client of a manager of its own; the test must drop its blocks."""
    made = client.at(here.serve())
    yield made
    made.close()


def test_blocks_and_names(manager: client.Manager) -> None:
    block = manager.allocate(1000)
    memoryview(block)[:5] = b"hello"
    name = manager.export(block)
    assert name.startswith(b"/torch_%d_" % os.getpid())
    assert manager.export(block) == name
    assert manager.open(name) is block
    assert manager.attach(block.segment, block.index, block.generation) is block
    hold, mark = manager.ticket(block)
    listing = manager.list()
    assert listing["in_flight_total"] == 1
    assert manager.redeem(block.segment, block.index, block.generation, hold, mark) is block
    triple = (block.segment, block.index, block.generation)
    del block
    with pytest.raises(errors.StaleHandle):
        manager.open(name)
    with pytest.raises(errors.StaleHandle):
        manager.attach(*triple)
    assert manager.gc().names == 1
    with pytest.raises(errors.UnknownHandle):
        manager.open(name)
    with pytest.raises(errors.UnknownHandle):
        manager.unexport(name)
    for wrong in (b"", b"torch", b"/a/b", b"/" + b"x" * 64):
        with pytest.raises(errors.InvalidArgument):
            manager.open(wrong)


def test_numbers_that_no_block_can_have(manager: client.Manager) -> None:
    for ask in (
        lambda: manager.attach(-1, 0, 0),
        lambda: manager.attach(1, 1 << 32, 0),
        lambda: manager.redeem(1, 0, 1, 1 << 40, 5),
        lambda: manager.return_segment(-1),
        lambda: manager.allocate(1 << 70),
        lambda: client.at("\ud800"),
        lambda: client.at(-1),  # type: ignore[arg-type]
    ):
        with pytest.raises(errors.InvalidArgument):
            ask()


def test_a_name_opens_in_another_process(here: World) -> None:
    manager = client.at(here.serve())
    block = manager.allocate(4096)
    memoryview(block)[:2] = b"ab"
    code = (
        "import sys; from shmtensor.manager import client; m = client.at(sys.argv[1]); "
        "b = m.open(sys.argv[2].encode()); v = memoryview(b); print(bytes(v[:2])); v[:2] = b'cd'"
    )
    assert here.run(code, os.fsdecode(manager.address), manager.export(block).decode()).strip() == "b'ab'"
    assert bytes(memoryview(block)[:2]) == b"cd"
    del block
    manager.close()


def test_sizes(manager: client.Manager) -> None:
    for wrong in (0, -1, _native.MAX_SEGMENT_BYTES + 1):
        with pytest.raises(errors.InvalidArgument):
            manager.allocate(wrong)
    large = manager.allocate(_native.DEDICATED_FROM + 1)
    small = manager.allocate(1)
    listing = {row["id"]: row for row in manager.list()["segments"]}
    assert listing[large.segment]["dedicated"] and not listing[small.segment]["dedicated"]
    assert listing[small.segment]["payload_bytes"] == _native.ARENA_BYTES
    del large, small


def test_out_of_memory_names_sizes_limits_and_holders(manager: client.Manager) -> None:
    kept = manager.allocate(4096)
    asked = 1 << 45
    with pytest.raises(errors.OutOfMemory) as caught:
        manager.allocate(asked)
    text = str(caught.value)
    for word in (str(asked), "available on this machine", "largest holders", f"pid {os.getpid()}"):
        assert word in text, text
    assert isinstance(caught.value, MemoryError)
    assert manager.allocate(64).nbytes == 64
    del kept


def test_named_strategy(manager: client.Manager) -> None:
    if shutil.disk_usage("/dev/shm").free < 2 * _native.DEDICATED_FROM:
        pytest.skip("/dev/shm has no room for a segment of one block")
    with pytest.raises(errors.InvalidArgument, match="file_descriptor"):
        client.set_strategy("carrier_pigeon")
    client.set_strategy("file_system")
    try:
        assert client.strategy() == "file_system"
        block = manager.allocate(_native.DEDICATED_FROM + 1)
    finally:
        client.set_strategy("file_descriptor")
    (row,) = [row for row in manager.list()["segments"] if row["id"] == block.segment]
    assert (Path("/dev/shm") / row["name"][1:]).exists()
    del block


def test_a_manager_on_demand_makes_named_segments_too(here: World) -> None:
    code = (
        "from pathlib import Path\nfrom shmtensor.manager import client\n"
        "client.set_strategy('file_system'); m = client.default(); block = m.allocate(100)\n"
        "(row,) = m.list()['segments']; path = Path('/dev/shm' + row['name'])\n"
        "assert path.exists(); print(path)\n"
    )
    path = Path(here.run(code).strip())
    until(lambda: not path.exists(), "the name to go with the manager")


def test_gc_ends_what_is_in_flight(manager: client.Manager) -> None:
    block = manager.allocate(64)
    hold, mark = manager.ticket(block)
    triple = (block.segment, block.index, block.generation)
    assert manager.gc().tickets == 0
    assert manager.gc(3600).tickets == 0
    assert manager.gc(0).tickets == 1
    del block
    with pytest.raises(errors.StaleHandle):
        manager.redeem(*triple, hold, mark)
    for wrong in (-1, float("nan")):
        with pytest.raises(errors.InvalidArgument):
            manager.gc(wrong)


def test_a_process_is_a_client_of_several(here: World) -> None:
    one, two = client.at(here.serve()), client.at(here.serve(address=here.directory / "b.sock"))
    assert one is not two
    assert client.at(one.address) is one
    assert one.stats().group != two.stats().group
    one.close()
    two.close()


def test_close_wants_no_blocks_and_frees_the_slot(here: World) -> None:
    manager = client.at(here.serve())
    block = manager.allocate(64)
    with pytest.raises(errors.InvalidArgument, match="1 shared block"):
        manager.close()
    del block
    address = manager.address
    manager.close()
    assert here.observe(address)["stats"]["clients"] == 0
    again = client.at(address)
    assert again is not manager
    again.close()


def test_a_manager_that_ended(here: World) -> None:
    manager = client.at(here.serve())
    block = manager.allocate(4096)
    memoryview(block)[:1] = b"x"
    kill(here.server)
    assert bytes(memoryview(block)[:1]) == b"x"
    assert manager.stats().epoch == 2, "this process started the next one"
    more = manager.allocate(4096)
    assert more.nbytes == 4096
    del block, more
    manager.close()


def test_stopping_the_manager_leaves_mapped_memory_alone(here: World) -> None:
    manager = client.at(here.serve())
    block = manager.allocate(1 << 20)
    memoryview(block)[:4] = b"keep"
    manager.stop()
    assert here.server.wait(BOUND) == 0
    assert bytes(memoryview(block)[:4]) == b"keep"
    del block
    manager.close()


def test_a_stopped_manager_times_out_and_its_late_segment_is_kept(here: World) -> None:
    manager = client.at(here.serve())
    here.server.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(errors.ManagerTimeout):
            manager._request(protocol.Create(1 << 30), 0.2)
    finally:
        here.server.send_signal(signal.SIGCONT)
    assert manager.stats().segments == 1
    block = manager.allocate(64)
    assert manager.stats().segments == 1, "the segment that came late must be used"
    del block
    manager.close()


def test_an_observer_waits_as_long_as_it_was_told(here: World) -> None:
    with Observer(here.serve(), 0.25) as observer:
        here.server.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(errors.ManagerTimeout, match=r"0\.25 s"):
                observer.document(protocol.Stats())
        finally:
            here.server.send_signal(signal.SIGCONT)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_interrupts_a_request(here: World) -> None:
    code = (
        "import sys; from shmtensor.manager import client\n"
        "m = client.at(sys.argv[1]); print('ready', flush=True); sys.stdin.readline()\n"
        "try:\n    m.stats()\nexcept KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
    )
    address = here.serve()
    process = here.script(code, os.fsdecode(address))
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline()
    here.server.send_signal(signal.SIGSTOP)
    try:
        process.stdin.write("go\n")
        process.stdin.flush()
        syscall = Path(f"/proc/{process.pid}/wchan")
        until(lambda: "poll" in syscall.read_text() or "poll" in _stack(process.pid), "the request to wait", 5)
    except (AssertionError, OSError):
        pass  # where the kernel does not tell, the signal comes at some other moment of the request
    process.send_signal(signal.SIGINT)
    out, _err = process.communicate(timeout=BOUND)
    here.server.send_signal(signal.SIGCONT)
    assert "interrupted" in out


def _stack(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stack").read_text()
    except OSError:
        return ""


def test_a_closed_descriptor_is_replaced_and_nobody_elses_touched(here: World) -> None:
    code = (
        "import os, socket, sys\nfrom shmtensor import errors\nfrom shmtensor.manager import client\n"
        "m = client.at(sys.argv[1]); m.stats(); fd = m.native.connection\n"
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "os.dup2(a.fileno(), fd)\n"
        "assert m.stats().clients == 1 and m.native.connection != fd\n"
        "assert os.fstat(fd).st_ino == os.fstat(a.fileno()).st_ino\n"
        "b.setblocking(False)\n"
        "try:\n    print('leaked', b.recv(100))\nexcept BlockingIOError:\n    print('quiet')\n"
        "a.close(); b.close()\n"
    )
    said = here.run(code, os.fsdecode(here.serve()))
    assert said == "quiet\n"


def test_a_forked_child_is_a_client_of_its_own(here: World) -> None:
    code = (
        "import os, sys\nfrom shmtensor.manager import client\n"
        "m = client.default(); block = m.allocate(4096); mine = m.native.slot; stats = m.stats()\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    assert client.default() is m and m.native.slot != mine\n"
        "    memoryview(block)[:3] = b'abc'\n"
        "    assert m.stats().clients == 2\n"
        "    own = m.allocate(64); name = m.export(own)\n"
        "    assert name.startswith(b'/torch_%d_' % os.getpid()), name\n"
        "    os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "assert bytes(memoryview(block)[:3]) == b'abc'\n"
        "assert m.export(block).startswith(b'/torch_%d_' % os.getpid())\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    child = os.fork()\n"
        "    if not child: os._exit(0 if m.stats().clients >= 2 else 1)\n"
        "    os._exit(os.waitpid(child, 0)[1] and 1)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "print(m.stats().live_blocks)\n"
    )
    assert here.run(code).strip() == "1"


def test_a_child_outlives_its_parent_with_the_block(here: World) -> None:
    code = (
        "import os, sys\nfrom shmtensor.manager import client\n"
        "m = client.at(sys.argv[1]); block = m.allocate(4096); memoryview(block)[:3] = b'abc'\n"
        "if os.fork(): print('parent', flush=True); os._exit(0)\n"
        "sys.stdin.readline()\n"
        "assert bytes(memoryview(block)[:3]) == b'abc'\n"
        "print('child', m.stats().live_blocks, flush=True)\n"
    )
    address = here.serve()
    process = here.script(code, os.fsdecode(address))
    process.wait(BOUND)
    until(lambda: here.observe(address)["stats"]["clients"] == 1, "the parent to be reclaimed")
    stats = here.observe(address)["stats"]
    assert (stats["live_blocks"], stats["orphans"]) == (1, 1)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.read().split() == ["parent", "child", "1"]
    until(lambda: not here.observe(address)["stats"]["segments"], "the orphan to go with its last block")


def test_forks_by_the_hundred_leave_nothing(here: World) -> None:
    code = (
        "import os, sys\nfrom shmtensor.manager import client\n"
        "m = client.at(sys.argv[1]); block = m.allocate(4096)\n"
        "for _ in range(100):\n"
        "    pid = os.fork()\n"
        "    if not pid: os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
        "print('done', flush=True); sys.stdin.readline()\n"
    )
    address = here.serve()
    process = here.script(code, os.fsdecode(address))
    assert process.stdout is not None and process.stdout.readline()

    def settled() -> bool:
        document = here.observe(address)
        return [row["state"] for row in document["clients"]] == ["client"] and not document["stats"]["embryos"]

    until(settled, "the children's slots to be free")
    (segment,) = here.observe(address)["segments"]
    assert [row["blocks"] for row in segment["holders"]] == [1]
    assert "slot" not in Path(f"/proc/{here.server.pid}/comm").read_text()


def test_a_spawned_child_adopts_its_embryo(here: World) -> None:
    code = (
        "import os, subprocess, sys\nfrom shmtensor.manager import client\n"
        "m = client.default(); block = m.allocate(4096); memoryview(block)[:3] = b'abc'\n"
        "slot, generation, fd = m.native.embryo(); hold, mark = m.ticket(block, slot)\n"
        "os.set_inheritable(fd, True)\n"
        "child = ('import sys; from shmtensor.manager import client\\n'\n"
        "  'a, fd, slot, generation, *rest = sys.argv[1:]\\n'\n"
        "  'm = client.adopt(a, int(fd), client.Place(int(slot), int(generation), 0))\\n'\n"
        "  'assert m.native.slot == int(slot)\\n'\n"
        "  'assert client.default() is m; b = m.redeem(*map(int, rest)); print(bytes(memoryview(b)[:3]))')\n"
        "numbers = [fd, slot, generation, block.segment, block.index, block.generation, hold, mark]\n"
        "p = subprocess.Popen([sys.executable, '-c', child, m.address.decode(), *map(str, numbers)], pass_fds=[fd])\n"
        "os.close(fd); assert p.wait() == 0\n"
    )
    assert here.run(code).strip() == "b'abc'"


def test_an_embryo_that_is_never_started_gives_its_holds_back(manager: client.Manager) -> None:
    block = manager.allocate(64)
    slot, _generation, fd = manager.native.embryo()
    manager.ticket(block, slot)
    assert manager.list()["in_flight_total"] == 1
    os.close(fd)
    until(lambda: not manager.list()["in_flight_total"], "the embryo's hold to be released")
    del block


def test_requests_find_their_way_among_many_connections(here: World) -> None:
    address = here.serve()
    watchers = [connect(address) for _ in range(200)]
    manager = client.at(address)
    block = manager.allocate(64)
    names = {manager.export(block) for _ in range(500)}
    assert len(names) == 1
    del block
    manager.close()
    for fd in watchers:
        os.close(fd)


def test_an_observer_counts_as_nobody(here: World) -> None:
    address = here.serve()
    with Observer(address) as observer:
        assert observer.welcome.slot == 0
        assert here.observe(address)["stats"]["clients"] == 0


def test_no_descriptor_left_for_what_the_manager_sends(here: World) -> None:
    code = (
        "import os, resource, sys\nfrom shmtensor import errors\nfrom shmtensor.manager import client\n"
        "m = client.at(sys.argv[1]); m.stats()\n"
        "limits = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "free = os.dup(0); os.close(free); resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))\n"
        "for ask in (lambda: m.allocate(64), m.stats, m.list):\n"
        "    try:\n        ask()\n"
        "    except errors.QuotaExceeded as problem:\n        print('ulimit -n' in str(problem))\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, limits)\n"
        "print(m.stats().segments)\n"
        "b = m.allocate(64); print(m.stats().segments)\n"
    )
    assert here.run(code, os.fsdecode(here.serve())).split() == ["True", "True", "True", "0", "1"]


def test_no_address_space_left_for_a_segment(here: World) -> None:
    code = (
        "import os, pathlib, resource, sys\nfrom shmtensor import errors\nfrom shmtensor.manager import client\n"
        "m = client.at(sys.argv[1]); used = int(pathlib.Path('/proc/self/statm').read_text().split()[0]) * 4096\n"
        "limits = resource.getrlimit(resource.RLIMIT_AS); before = len(os.listdir('/proc/self/fd'))\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20), limits[1]))\n"
        "try:\n    m.allocate(64)\nexcept errors.OutOfMemory as problem:\n    print('ulimit -v' in str(problem))\n"
        "resource.setrlimit(resource.RLIMIT_AS, limits)\n"
        "print(m.stats().segments, len(os.listdir('/proc/self/fd')) - before)\n"
        "b = m.allocate(64); print(m.stats().segments)\n"
    )
    assert here.run(code, os.fsdecode(here.serve())).split() == ["True", "0", "0", "1"]


@pytest.mark.exhaustive
def test_what_is_no_size_and_how_it_is_shown(manager: client.Manager) -> None:
    assert repr(manager) == f"<Manager at {os.fsdecode(manager.address)}, slot {manager.native.slot}>"
    with pytest.raises(TypeError):
        manager.allocate("x")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="not 4611686018427387904"):
        manager.allocate(1 << 62)
    assert client.of(manager.native) is manager
    native = manager.native
    manager.close()
    assert client.of(native) is None, "it has left"
