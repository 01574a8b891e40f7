"""Finding, starting and using a manager, from real processes."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from manager_world import BOUND, World, is_alive, kill, until, world

from shmtensor import _native, errors
from shmtensor.manager import client, launch, protocol
from shmtensor.manager.connection import Observer, connect


@pytest.fixture
def here() -> Iterator[World]:
    with world() as made:
        yield made


@pytest.fixture
def manager(here: World) -> Iterator[client.Manager]:
    """This process as a client of a manager of its own; the test must drop its blocks."""
    made = client.at(here.serve())
    yield made
    made.close()


PRINT = (
    "from shmtensor.manager import client; m = client.default(); print(m.address.decode(), m.stats().pid, flush=True)"
)


def test_the_first_need_starts_a_private_manager_that_leaves(here: World) -> None:
    address, pid = here.run(PRINT).split()
    assert Path(address).parent == here.directory
    assert int(pid) not in (0, os.getpid())
    until(lambda: not is_alive(int(pid)), "the private manager to leave")
    until(lambda: {entry.name for entry in here.directory.iterdir()} == {"start.lock"}, "its files to be gone")


def test_descendants_find_it_without_being_told(here: World) -> None:
    code = f"import subprocess, sys; {PRINT}; subprocess.run([sys.executable, '-c', {PRINT!r}], check=True)"
    first, second = here.run(code).splitlines()
    assert first == second


def test_many_starting_at_once_end_up_with_one(here: World) -> None:
    code = f"import sys; sys.stdin.readline(); {PRINT}; sys.stdin.readline()"
    processes = [here.script(code, env={"SHMTENSOR_GROUP": "together"}) for _ in range(8)]
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
    code = code.replace("from shmtensor", "os.environ['SHMTENSOR_GROUP'] = 'again'\nfrom shmtensor", 1)
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


def test_the_users_own_manager_comes_before_a_private_one(here: World) -> None:
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
    assert "nobody listens" in failure(here, {"SHMTENSOR_MANAGER": path})


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
    assert "another user" in said and "12345" in said


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
    assert "you are uid 12345" in said


def test_a_directory_that_is_not_ours_alone(here: World) -> None:
    shared = here.directory / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    assert "open to other users" in failure(here, {"SHMTENSOR_RUNTIME_DIR": str(shared)})
    link = here.directory / "link"
    link.symlink_to(here.directory)
    assert "symbolic link" in failure(here, {"SHMTENSOR_RUNTIME_DIR": str(link)})
    file = here.directory / "plain"
    file.write_text("")
    assert "SHMTENSOR_RUNTIME_DIR" in failure(here, {"SHMTENSOR_RUNTIME_DIR": str(file)})


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
    large = manager.allocate(client.DEDICATED_ABOVE + 1)
    small = manager.allocate(1)
    listing = {row["id"]: row for row in manager.list()["segments"]}
    assert listing[large.segment]["dedicated"] and not listing[small.segment]["dedicated"]
    assert listing[small.segment]["payload_bytes"] == client.ARENA_BYTES
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
    with pytest.raises(errors.InvalidArgument, match="file_descriptor"):
        client.set_strategy("carrier_pigeon")
    client.set_strategy("file_system")
    try:
        assert client.strategy() == "file_system"
        block = manager.allocate(client.DEDICATED_ABOVE + 1)
    finally:
        client.set_strategy("file_descriptor")
    (row,) = [row for row in manager.list()["segments"] if row["id"] == block.segment]
    assert (Path("/dev/shm") / row["name"][1:]).exists()
    del block


def test_a_private_manager_makes_named_segments_too(here: World) -> None:
    code = (
        "from pathlib import Path\nfrom shmtensor.manager import client\n"
        "client.set_strategy('file_system'); m = client.default(); block = m.allocate(100)\n"
        "(row,) = m.list()['segments']; path = Path('/dev/shm' + row['name'])\n"
        "assert path.exists(); print(path)\n"
    )
    path = Path(here.run(code).strip())
    until(lambda: not path.exists(), "the name to go with the private manager")


def test_sigkill_of_everyone_leaves_nothing_but_files(here: World) -> None:
    code = f"import sys; block = None; {PRINT}; block = m.allocate(1 << 20); sys.stdin.readline()"
    processes = [here.script(code, env={"SHMTENSOR_GROUP": "doomed"}) for _ in range(3)]
    pids = set()
    for process in processes:
        assert process.stdout is not None
        pids.add(int(process.stdout.readline().split()[1]))
    (pid,) = pids
    os.kill(pid, signal.SIGKILL)
    for process in processes:
        kill(process)
    until(lambda: not here.managers(), "the manager to be dead")
    assert {entry.suffix for entry in here.directory.iterdir()} <= {".sock", ".lock", ".log"}
    again = here.run(PRINT, env={"SHMTENSOR_GROUP": "next"}).split()[1]
    until(lambda: not is_alive(int(again)), "the next manager to leave")
    assert {entry.name for entry in here.directory.iterdir()} == {"start.lock"}


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
    with pytest.raises(errors.ManagerError, match="goes on working"):
        manager.stats()
    assert bytes(memoryview(block)[:1]) == b"x"
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


def test_a_closed_descriptor_is_noticed_and_nobody_elses_written_to(here: World) -> None:
    code = (
        "import os, socket, sys\nfrom shmtensor import errors\nfrom shmtensor.manager import client\n"
        "m = client.at(sys.argv[1]); m.stats(); fd = m.native.connection\n"
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "os.dup2(a.fileno(), fd)\n"
        "try:\n    m.stats()\nexcept errors.ManagerError as problem:\n    print(problem)\n"
        "b.setblocking(False)\n"
        "try:\n    print('leaked', b.recv(100))\nexcept BlockingIOError:\n    print('quiet')\n"
        "a.close(); b.close()\n"
    )
    said = here.run(code, os.fsdecode(here.serve()))
    assert "something else" in said and said.endswith("quiet\n")


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
    until(lambda: here.observe(address)["stats"]["clients"] == 1, "the parent to be reaped")
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
        "slot, fd = m.native.embryo(); hold, mark = m.ticket(block, slot)\n"
        "os.set_inheritable(fd, True)\n"
        "child = ('import sys; from shmtensor.manager import client\\n'\n"
        "  'a, fd, slot, *rest = sys.argv[1:]; m = client.adopt(a, int(fd)); assert m.native.slot == int(slot)\\n'\n"
        "  'assert client.default() is m; b = m.redeem(*map(int, rest)); print(bytes(memoryview(b)[:3]))')\n"
        "arguments = [m.address.decode(), fd, slot, block.segment, block.index, block.generation, hold, mark]\n"
        "p = subprocess.Popen([sys.executable, '-c', child, *map(str, arguments)], pass_fds=[fd])\n"
        "os.close(fd); assert p.wait() == 0\n"
    )
    assert here.run(code).strip() == "b'abc'"


def test_an_embryo_that_is_never_started_gives_its_holds_back(manager: client.Manager) -> None:
    block = manager.allocate(64)
    slot, fd = manager.native.embryo()
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
