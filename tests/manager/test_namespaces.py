"""Clients of one manager in other PID, user and mount namespaces, as in containers."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from manager_world import BOUND, World, line_of, until, world
from ring_bytes import PUT_LOCK, RingBytes

from shmtensor.manager import client
from shmtensor.manager.daemon import peers

pytestmark = pytest.mark.any_python

PYTHON = [sys.executable, "-W", "error", "-c"]
PIDS = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
OWNER_DIED, WAITERS, THREAD = 0x40000000, 0x80000000, 0x3FFFFFFF


def may(*command: str) -> bool:
    try:
        return subprocess.run([*command, "true"], capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


needs_pids = pytest.mark.skipif(not may(*PIDS), reason="a PID namespace needs unshare, and the right to use it")
needs_mounts = pytest.mark.skipif(not may("unshare", "--mount"), reason="a mount namespace needs the right to make one")
needs_users = pytest.mark.skipif(not may("unshare", "--user"), reason="a user namespace needs the right to make one")


@pytest.fixture
def here() -> Iterator[World]:
    with world() as made:
        yield made


class Contained:
    """A program that is process 1 of a PID namespace of its own. It is told lines and prints lines."""

    def __init__(self, here: World, code: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*PIDS, *PYTHON, code, *arguments],
            env=here.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        here.processes.append(self.process)

    @property
    def pid(self) -> int:
        """As we see it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    def line(self) -> str:
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return line.strip()

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(BOUND)


HEAD = """
import os, sys, threading
import numpy as np
from shmtensor.manager import client
m = client._default = client.at(sys.argv[1])
from shmtensor import multiprocessing as mp
from shmtensor.ipc.queues import Queue
from shmtensor.ipc.synchronize import Lock
assert os.getpid() == 1 and threading.get_native_id() == 1
"""


@needs_pids
def test_two_clients_with_the_same_pid_share_and_one_dies(here: World) -> None:
    """Both are process 1 and thread 1. What the dead one held goes, and nothing else."""
    address = os.fsdecode(here.serve())
    code = HEAD + (
        "q, back, lock = Queue(name='there'), Queue(name='back'), Lock(name='lock')\n"
        "kept = [m.allocate(100_000) for _ in range(10)]\n"
        "for block in kept: memoryview(block)[:] = sys.argv[2].encode() * 100_000\n"
        "print(m.native.slot, flush=True)\n"
        "for line in sys.stdin:\n"
        "    word = line.strip()\n"
        "    if word == 'send':\n"
        "        for i in range(50): q.put((i, np.full(5000, i)))\n"
        "    elif word == 'receive':\n"
        "        got = [q.get(timeout=20) for _ in range(50)]\n"
        "        assert all((a == i).all() for i, a in got); del got\n"
        "    elif word == 'lock': lock.acquire()\n"
        "    elif word == 'try': print(lock.acquire(timeout=0.5), flush=True); continue\n"
        "    elif word == 'wait': print(lock.acquire(timeout=20), flush=True); continue\n"
        "    elif word == 'check':\n"
        "        assert all(bytes(memoryview(b)) == sys.argv[2].encode() * 100_000 for b in kept)\n"
        "    print('ok', flush=True)\n"
    )
    one, two = Contained(here, code, address, "1"), Contained(here, code, address, "2")
    slots = [int(one.line()), int(two.line())]
    assert len(set(slots)) == 2
    for sender, receiver in ((one, two), (two, one)):
        sender.tell("send")
        receiver.tell("receive")
        assert sender.line() == receiver.line() == "ok"
    one.tell("lock")
    assert one.line() == "ok"
    two.tell("try")
    assert two.line() == "False", "the lock of a living process of the same number was taken"
    before = here.observe(os.fsencode(address))["stats"]["live_blocks"]
    two.tell("wait")
    one.kill()
    assert two.line() == "True"

    def left() -> bool:
        document = here.observe(os.fsencode(address))
        holders = {row["slot"] for segment in document["segments"] for row in segment["holders"] or ()}
        return slots[0] not in holders and not document["stats"]["dying"]

    until(left, "what the dead one held to go")
    assert here.observe(os.fsencode(address))["stats"]["live_blocks"] <= before - 10
    two.tell("check")
    assert two.line() == "ok"
    two.kill()
    until(lambda: here.observe(os.fsencode(address))["stats"]["segments"] == 0, "everything to go")


@needs_pids
def test_who_dies_waiting_does_not_take_the_holder_of_the_same_number_along(here: World) -> None:
    """The kernel tells the holder of a robust mutex by its thread number in its own namespace: 1 here, twice."""
    address = os.fsdecode(here.serve())
    manager = client.at(address)
    holder = Contained(
        here,
        HEAD + "from ring_bytes import *\nq = Queue(name='there')\nRingBytes(m, m.open(b'/there')).lock(PUT_LOCK)\n"
        "print('held', flush=True); sys.stdin.readline()\n",
        address,
    )
    assert holder.line() == "held"
    ring = RingBytes(manager, manager.open(b"/there"))
    view = ring.view
    putting = HEAD + "q = Queue(name='there')\nprint('here', flush=True); q.put(1)\n"

    def word() -> int:
        return int(struct.unpack_from("<I", view, PUT_LOCK)[0])

    assert word() & THREAD == 1
    for _ in range(3):
        waiter = Contained(here, putting, address)
        assert waiter.line() == "here"
        until(lambda: word() & WAITERS, "it to wait")
        waiter.kill()
        assert word() & THREAD == 1 and not word() & OWNER_DIED, "the lock was taken from a living holder"
        struct.pack_into("<I", view, PUT_LOCK, 1)  # the mark of the waiter, so that the next one sets it again
    waiter = Contained(here, putting, address)
    until(lambda: word() & WAITERS, "the last one to wait")
    holder.kill()
    assert waiter.process.wait(BOUND) == 0, "it gets the lock of the dead"
    view.release()
    del ring
    manager.close()


@needs_pids
def test_who_is_in_another_pid_namespace_is_known_to_be(here: World) -> None:
    """Others must not look in their own /proc for a number that means somebody else there."""
    address = os.fsdecode(here.serve())
    inside = Contained(here, HEAD + "print(m.native.slot, flush=True); sys.stdin.readline()", address)
    slot = int(inside.line())
    assert peers.is_foreign(inside.pid) and not peers.is_foreign(os.getpid()) and peers.is_foreign(0)
    (row,) = (row for row in here.observe(os.fsencode(address))["clients"] if row["slot"] == slot)
    assert (row["pid"], row["start_time"]) in ((0, 0), (inside.pid, 0)), "without its start time it is nobody to them"
    inside.kill()
    until(lambda: not here.observe(os.fsencode(address))["stats"]["clients"], "it to be reclaimed")


@needs_pids
def test_a_manager_inside_and_a_client_outside(here: World) -> None:
    """It sees no number of the client at all, and knows of its death all the same."""
    path = here.directory / "inside.sock"
    code = "import sys; from shmtensor.manager.cli import main; sys.exit(main(['serve', '--address', sys.argv[1]]))"
    inside = Contained(here, code, str(path))
    inside.line()
    outside = here.script(
        "import sys; from shmtensor.manager import client; m = client.at(sys.argv[1]); b = m.allocate(1000)\n"
        "print('here', flush=True); sys.stdin.readline()",
        str(path),
    )
    assert outside.stdout is not None and outside.stdout.readline() == "here\n"
    assert here.observe(os.fsencode(path))["stats"]["live_blocks"] == 1
    outside.kill()
    until(lambda: not here.observe(os.fsencode(path))["stats"]["clients"], "the client to be reclaimed")
    assert here.observe(os.fsencode(path))["stats"]["segments"] == 0
    inside.kill()


@needs_pids
def test_a_manager_on_demand_outside_is_not_for_programs_inside(here: World) -> None:
    """Process ids mean others there, so they could not start the next one; a name says so."""
    finds = (
        "import os, sys\n"
        "from shmtensor import errors\nfrom shmtensor.manager import client\nfrom shmtensor.ipc.queues import Queue\n"
        "print(os.path.basename(client.default().address.decode()), flush=True)\n"
        "try:\n    Queue(name='there'); print('made', flush=True)\n"
        "except errors.ManagerUnavailable as problem:\n    print(problem, flush=True)\n"
        "sys.stdin.readline()\n"
    )
    outside = here.script(finds)
    assert [line_of(outside), line_of(outside)] == ["manager.sock", "made"]
    inside = Contained(here, finds)
    assert inside.line().startswith("namespace")
    assert "another PID namespace" in inside.line()
    inside.kill()
    here.env["SHMTENSOR_GROUP"] = "chosen"
    inside = Contained(here, finds)
    assert [inside.line(), inside.line()] == ["chosen.sock", "made"]
    inside.kill()


# --------------------------------------------------------------------------------------------------- users and mounts


@needs_users
def test_a_user_namespace_without_our_uid_is_refused(here: World) -> None:
    """There the process has the overflow uid, which stands for everybody without a name."""
    address = os.fsdecode(here.serve())
    code = (
        "import os, sys\nfrom shmtensor import errors\nfrom shmtensor.manager import client\n"
        "try:\n    client.at(sys.argv[1])\n"
        "except errors.ManagerUnavailable as problem:\n    print(os.getuid(), problem)\n"
    )
    done = subprocess.run(
        ["unshare", "--user", *PYTHON, code, address], env=here.env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("65534 ") and "cannot be distinguished from theirs" in done.stdout, done.stdout
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", *PYTHON, code + "else:\n    print('served')", address],
        env=here.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "served\n" or "another user" in done.stdout, done


SHARE = """
import os, sys
import numpy as np
import shmtensor
from shmtensor import multiprocessing as mp
from shmtensor.manager import client

def child(q, tensor):
    tensor[:] = 3
    q.put(np.arange(1_000_000))

if __name__ == "__main__":
    tensor = shmtensor.zeros(1 << 20, shared=True)
    ctx = mp.get_context("fork")
    q = ctx.Queue()
    process = ctx.Process(target=child, args=(q, tensor))
    process.start()
    assert q.get(timeout=20).sum() == 499999500000
    process.join()
    assert tensor[12345] == 3
    print(os.fsdecode(client.default().address))
"""


def contained(here: World, mounts: str, env: dict[str, str], without: tuple[str, ...] = ()) -> str:
    """What SHARE prints in a mount namespace that `mounts`, a shell script, arranged."""
    kept = {key: value for key, value in here.env.items() if key not in without}
    # The interpreter itself, since the environment it came from may lie where the script mounts something.
    kept["PYTHONPATH"] = ":".join([here.env["PYTHONPATH"], *SITES])
    command = f'{mounts}\nexec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", command, "sh", os.path.realpath(sys.executable), *PYTHON[1:], SHARE],
        env={**kept, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SITES = [path for path in sys.path if path.endswith("-packages")]
HOMELESS = ("SHMTENSOR_RUNTIME_DIR", "XDG_RUNTIME_DIR", "HOME", "TMPDIR")


@needs_mounts
def test_64_kib_of_dev_shm_are_enough(here: World) -> None:
    """Docker gives 64 MiB; the default strategy needs none of it."""
    assert contained(here, "mount -t tmpfs -o size=64k tmpfs /dev/shm", {}).startswith(str(here.directory))


@pytest.mark.exhaustive
@needs_mounts
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount here")
def test_a_read_only_root(here: World) -> None:
    """With a writable /tmp, and without one: then the socket lies in /dev/shm."""
    uid = os.geteuid()
    code = [here.env["PYTHONPATH"].split(":")[0], *SITES]  # which may lie in /tmp
    bound = [f"/dev/shm/code{number}" for number in range(len(code))]
    binds = "".join(f"mkdir {there}; mount --bind {path} {there}\n" for path, there in zip(code, bound, strict=True))
    for options, place in (("", "/tmp"), ("-o ro", "/dev/shm")):
        mounts = (
            f"mount -t tmpfs tmpfs /dev/shm\n{binds}cd /\n"
            f"mount -t tmpfs {options} tmpfs /tmp; mount -o remount,ro,bind /"
        )
        found = contained(here, mounts, {"PYTHONPATH": ":".join(bound)}, HOMELESS)
        assert found.startswith(f"{place}/shmtensor-{uid}/")


@needs_mounts
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount here")
def test_no_home_no_runtime_directory_and_a_temporary_one_that_cannot_be_written_to(here: World) -> None:
    mounts = f"mkdir -p {here.directory}/ro; mount -t tmpfs -o ro tmpfs {here.directory}/ro"
    found = contained(here, mounts, {"TMPDIR": f"{here.directory}/ro"}, HOMELESS)
    assert found.startswith(f"/tmp/shmtensor-{os.geteuid()}/")
    session = {"XDG_RUNTIME_DIR": f"{here.directory}/ro", "TMPDIR": str(here.directory)}
    found = contained(here, mounts, session, HOMELESS)
    assert found.startswith(f"{here.directory}/shmtensor-{os.geteuid()}/")
