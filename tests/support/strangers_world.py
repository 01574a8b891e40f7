"""A program that closes every descriptor it did not open, and opens its own files under their numbers.

`python strangers_world.py SCENARIO KIND DIRECTORY`: each scenario prepares, calls `take()`, and then checks after each
step that the program's own files are unchanged. Run by test_descriptors.py.
"""

from __future__ import annotations

import array
import fcntl
import gc
import hashlib
import io
import os
import pickle
import select
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
from manager_world import BOUND, is_alive, until
from memory_world import reserved_pages

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor.allocators import MapAllocator, MapFlags, RefcountedMapAllocator
from shmtensor.manager import client
from shmtensor.manager.launch import StartLock

KINDS = ("file", "sparse", "pipe", "socket")
MIB = 1 << 20
_F_OFD_GETLK = 36
_UNREAD = b"unread"


class Strangers:
    """The program's own files under the numbers: files, or pairs of pipe ends or sockets with unread data in each."""

    def __init__(self, kind: str, directory: str, is_wanted: Callable[[int], bool]) -> None:
        self.kind = kind
        self.path = Path(directory, f"{kind}-{os.getpid()}")
        if kind == "file":
            self.path.write_bytes(np.random.default_rng(1).bytes(4 * MIB))
        elif kind == "sparse":
            with self.path.open("wb") as file:
                file.truncate(2 << 30)
                file.seek(MIB)
                file.write(bytes([7]) * 4096)
        kept = sorted(int(path.name) for path in Path("/proc/self/fd").iterdir())
        wanted = [number for number in kept if number > 2 and is_wanted(number)]
        for number in wanted:
            with suppress(OSError):  # that of the look itself
                os.close(number)
        self.numbers: list[int] = []
        while len(self.numbers) < 2 or max(self.numbers) < wanted[-1] + 3:
            self.numbers += self._open()
        if self.path.exists():
            os.fsync(self.numbers[0])
            fcntl.lockf(self.numbers[0], fcntl.LOCK_EX)
            fcntl.flock(self.numbers[0], fcntl.LOCK_EX)
        self.pid = os.getpid()
        self.before = [self._look(number) for number in self.numbers]

    def _open(self) -> list[int]:
        if self.kind == "pipe":
            ends = os.pipe()
            os.write(ends[1], _UNREAD)
            return list(ends)
        if self.kind == "socket":
            pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for end in pair:
                end.send(_UNREAD)
            return [end.detach() for end in pair]
        number = os.open(self.path, os.O_RDWR)
        os.lseek(number, 1000 + number, os.SEEK_SET)
        return [number]

    def _look(self, number: int) -> tuple[Any, ...]:
        found = os.fstat(number)
        flags = fcntl.fcntl(number, fcntl.F_GETFL), fcntl.fcntl(number, fcntl.F_GETFD)
        common = (number, found.st_dev, found.st_ino, found.st_mode, *flags)
        if self.kind in ("pipe", "socket"):
            waiting = array.array("i", [0])
            fcntl.ioctl(number, termios.FIONREAD, waiting)
            return (*common, waiting[0])
        return (*common, found.st_size, found.st_blocks, found.st_mtime_ns, os.lseek(number, 0, os.SEEK_CUR))

    def check(self, after: str) -> None:
        """Check that the program's own files are unchanged, and have the same locks."""
        for before in self.before:
            assert self._look(before[0]) == before, f"after {after}: {self._look(before[0])} and not {before}"
        if self.kind == "socket":  # each has one message to read; a child that shares them may check at the same time
            for number in self.numbers:
                end = socket.socket(fileno=number)
                found = end.recv(100, socket.MSG_DONTWAIT | socket.MSG_PEEK)
                end.detach()
                assert found == _UNREAD, f"after {after}: {found!r} was sent"
        if not self.path.exists():
            return
        if self.kind == "file":
            content = os.pread(self.numbers[0], 5 * MIB, 0)
            wanted = hashlib.sha256(np.random.default_rng(1).bytes(4 * MIB)).digest()
            assert hashlib.sha256(content).digest() == wanted, f"after {after}: the content is another"
        else:
            assert os.pread(self.numbers[0], 4096, MIB) == bytes([7]) * 4096, f"after {after}"
        if os.getpid() == self.pid:
            asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            found = struct.unpack("hhqqi4x", fcntl.fcntl(self.numbers[1], _F_OFD_GETLK, asked))[0]
            assert found == fcntl.F_WRLCK, f"after {after}: the lock on the file is gone (fcntl)"
        try:
            fcntl.flock(self.numbers[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            raise AssertionError(f"after {after}: the lock on the file is gone (flock)")


def take(is_wanted: Callable[[int], bool] = lambda number: True) -> Strangers:
    """Close the wanted descriptors, and open others under their numbers."""
    gc.collect()
    return Strangers(sys.argv[2], sys.argv[3], is_wanted)


def is_memory(number: int) -> bool:
    try:
        return "memfd:shmtensor" in str(Path(f"/proc/self/fd/{number}").readlink())
    except OSError:  # that of the look itself
        return False


class Memory:
    """The pages of the group's payloads, according to the manager's descriptors."""

    def __init__(self) -> None:
        self.manager = client.default()
        self.pid = self.manager.stats().pid

    def allocate(self, nbytes: int) -> Any:
        """A block whose pages are reserved before they are touched; its ends are marked."""
        block = self.manager.allocate(nbytes)
        live = self.manager.native.stats().nbytes
        pages = reserved_pages(self.pid)
        assert pages >= live, f"{nbytes} bytes were handed out: {live} are in use, {pages} have pages"
        memoryview(block)[:9] = memoryview(block)[-9:] = bytes([nbytes % 251]) * 9
        return block

    def check(self) -> None:
        self.manager.native.check_invariants()


def arrived(value: Any) -> Any:
    """The value that this process gets when it receives its own message."""
    return pickle.loads(bytes(ForkingPickler.dumps(value)))


def child(work: Callable[[], None]) -> int:
    """Fork a child that calls the function; returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def join(pid: int) -> None:
    until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), "a child to end")
    assert os.waitpid(pid, 0)[1] == 0


def readable(number: int) -> bool:
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))


# ---------------------------------------------------------------------------------------------------------- scenarios


def memory() -> None:
    """Allocating beyond warm memory, freeing, giving back: arenas and dedicated segments."""
    memory = Memory()
    kept = st.full((300_000,), 7.0, shared=True)
    warm = [memory.allocate(size) for size in (100, 70_000, 5 * MIB, 16 * MIB)]
    dedicated = memory.allocate(257 * MIB)
    del dedicated, warm
    strangers = take()
    pages = reserved_pages(memory.pid)
    given = st.empty_cache()
    strangers.check("giving back")
    assert given > 256 * MIB and reserved_pages(memory.pid) <= pages - given + MIB
    blocks = [memory.allocate(size) for size in (100, 70_000, 5 * MIB, 40 * MIB, 100)]
    strangers.check("allocating")
    blocks.append(memory.allocate(257 * MIB))
    strangers.check("allocating a large block")
    many = [memory.manager.allocate(64) for _ in range(20_000)]  # more records and entries than there are pages for
    strangers.check("allocating many")
    for block in blocks:
        assert bytes(memoryview(block)[-9:]) == bytes([block.nbytes % 251]) * 9
    del block, blocks, many
    assert st.empty_cache() > 256 * MIB
    strangers.check("giving back again")
    assert reserved_pages(memory.pid) < 8 * MIB
    assert kept.storage().tolist() == [7.0] * 300_000
    memory.check()
    fresh = st.full((3 * MIB,), 3.0, shared=True)
    assert float(fresh.sum()) == 9.0 * MIB
    strangers.check("tensors")


def without_the_manager() -> None:
    """The same while no descriptor can be requested, since the manager is stopped."""
    memory = Memory()
    kept = st.full((300_000,), 7.0, shared=True)
    warm = [memory.allocate(size) for size in (70_000, 5 * MIB)]
    del warm
    strangers = take()
    os.kill(memory.pid, signal.SIGSTOP)
    try:
        for _ in range(3):
            assert st.empty_cache() > 5 * MIB - 8192
            strangers.check("giving back")
            blocks = [memory.allocate(size) for size in (100, 70_000, 5 * MIB, 24 * MIB, 777_777)]
            strangers.check("allocating")
            for block in blocks:
                assert bytes(memoryview(block)[-9:]) == bytes([block.nbytes % 251]) * 9
            del block, blocks
        reserved = memory.manager.native.stats().reserved
        assert 0 <= reserved - reserved_pages(memory.pid) < MIB, "what is counted is what is there"
        memory.check()
    finally:
        os.kill(memory.pid, signal.SIGCONT)
    assert float(kept.sum()) == 2_100_000.0
    strangers.check("all")


def named() -> None:
    """Memory with names in /dev/shm, which is a file system that can be full."""
    client.set_strategy("file_system")
    memory = Memory()
    kept = st.full((300_000,), 7.0, shared=True)
    warm = memory.manager.allocate(5 * MIB)
    del warm
    strangers = take()
    assert st.empty_cache() >= 5 * MIB
    strangers.check("giving back")
    os.kill(memory.pid, signal.SIGSTOP)  # no descriptor can be requested
    try:
        for _ in range(3):
            blocks = [memory.manager.allocate(size) for size in (100, 70_000, 5 * MIB)]
            strangers.check("allocating")
            del blocks
            st.empty_cache()
            strangers.check("giving back")
    finally:
        os.kill(memory.pid, signal.SIGCONT)
    assert float(kept.sum()) == 2_100_000.0
    memory.check()


def views() -> None:
    """The views of receivers: read-only pages and private pages."""
    plain = [st.full((size,), 5.0) for size in (10, 40_000, 2 * MIB)]
    readonly = [tensor.clone().share_memory_(readonly=True) for tensor in plain]
    private = [tensor.clone().share_memory_(copy_on_write=True) for tensor in plain]
    strangers = take()
    for tensor in readonly:
        got = arrived(tensor)
        assert float(got.sum()) == 5.0 * got.numel() and not got.numpy().flags.writeable
        strangers.check("a read-only view")
    for tensor in private:
        got = arrived(tensor)
        assert float(got.sum()) == 5.0 * got.numel()
        got.fill_(1.0)
        assert float(got.sum()) == got.numel() and float(tensor.sum()) == 5.0 * tensor.numel()
        again = arrived(got)
        assert float(again.sum()) == got.numel()
        strangers.check("a view of one's own")
    del got, again, tensor, readonly, private
    gc.collect()
    st.empty_cache()
    strangers.check("dropping views")
    moved = st.arange(100_000).share_memory_()
    assert int(arrived(moved).sum()) == sum(range(100_000))
    strangers.check("share_memory_")


def watch(tasks: Any, answers: Any, ready: Any) -> None:
    number = tasks.fileno()
    ready[0] = 1
    for _ in range(3):
        poll = select.poll()
        poll.register(number, select.POLLIN)
        assert poll.poll(BOUND * 1000), "nobody said that there is a message"
        answers.put(float(tasks.get(timeout=BOUND).sum()))


def queues() -> None:
    """A queue that grows, and is watched by this process and by another one."""
    tasks, answers = mp.Queue(), mp.Queue()
    ready = st.zeros(1, shared=True)

    pid = child(partial(watch, tasks, answers, ready))
    until(lambda: float(ready[0]) == 1, "the child to watch")
    assert answers.fileno() >= 0  # watched here, too
    strangers = take()
    for _ in range(3):
        tasks.put(st.ones(1000, shared=True))
        strangers.check("a put that is watched elsewhere")
        assert answers.get(timeout=BOUND) == 1000.0
        strangers.check("a get of a queue that is watched here")
    join(pid)
    strangers.check("a child's end")
    own = mp.Queue()
    for number in range(4000):
        own.put((number, b"x" * 1000))
    strangers.check("growing a queue")
    assert readable(own.fileno()) and own.fileno() not in strangers.numbers
    for number in range(4000):
        assert own.get(timeout=BOUND) == (number, b"x" * 1000)
    assert not readable(own.fileno())
    own.put(np.arange(100_000))
    assert readable(own.fileno())
    assert own.get(timeout=BOUND).sum() == sum(range(100_000))
    strangers.check("a watched queue")
    for _ in range(4000):  # a ring that existed before
        tasks.put(b"y" * 1000)
    strangers.check("growing a queue whose descriptor is lost")
    assert all(tasks.get(timeout=BOUND) == b"y" * 1000 for _ in range(4000))
    del own, tasks, answers
    gc.collect()
    strangers.check("dropping queues")


def grown_without_the_manager() -> None:
    """A queue whose descriptor cannot be requested: the manager is stopped."""
    memory = Memory()
    queue = mp.SimpleQueue()
    strangers = take()
    before = reserved_pages(memory.pid)
    os.kill(memory.pid, signal.SIGSTOP)
    try:
        for number in range(2000):
            queue.put((number, b"z" * 1000))
        assert reserved_pages(memory.pid) >= before + 2 * MIB
        assert all(queue.get() == (number, b"z" * 1000) for number in range(2000))
        strangers.check("growing")
    finally:
        os.kill(memory.pid, signal.SIGCONT)


def read(cast: Any, ready: Any) -> None:
    with cast.reader() as reader:
        ready[0] = 1
        for number in range(50):
            assert float(reader.get(timeout=BOUND)[0]) == number
        ready[1] = 1


def broadcast() -> None:
    """A writer and readers on both sides of a fork."""
    cast = mp.Broadcast(100)
    ready = st.zeros(2, shared=True)

    pid = child(partial(read, cast, ready))
    until(lambda: float(ready[0]) == 1, "the child to read")
    reader = cast.reader()
    assert reader.fileno() >= 0
    strangers = take()
    for number in range(50):
        cast.put(st.full((50_000,), float(number), shared=True))
        if number % 2:
            assert float(reader.get(timeout=BOUND).sum()) == (number - 1) / 2 * 50_000 * 1.0
    strangers.check("a broadcast")
    join(pid)
    assert float(ready[1]) == 1
    for number in range(25, 50):
        assert float(reader.get(timeout=BOUND).sum()) == number * 50_000.0
    strangers.check("a watched broadcast")
    assert not readable(reader.fileno()) and reader.fileno() not in strangers.numbers
    cast.put(1)
    assert readable(reader.fileno()) and reader.get(timeout=BOUND) == 1 and not readable(reader.fileno())
    for _ in range(100):
        cast.put(b"w" * 20_000)
    strangers.check("growing a broadcast")
    assert all(reader.get(timeout=BOUND) == b"w" * 20_000 for _ in range(100))
    reader.close()
    cast.close()
    del cast, reader
    gc.collect()
    strangers.check("dropping a broadcast")


def forked() -> None:
    """A child that closes all descriptors: as receiver, owner, sender; its children; children of such a parent."""
    memory = Memory()
    tensor = st.full((100_000,), 2.0, shared=True)
    there, back = mp.Queue(), mp.Queue()
    lock = mp.Lock()

    def daemon() -> None:
        strangers = take()
        for _ in range(2):
            got = there.get(timeout=BOUND)
            strangers.check("a get")
            with lock:
                got += 1
            back.put(st.full((3 * MIB,), float(got[0]), shared=True))
            strangers.check("a put")
        memory.check()
        del got
        st.empty_cache()
        strangers.check("giving back")
        join(child(lambda: strangers.check("a fork")))
        strangers.check("a child's end")
        tensor.fill_(9.0)

    pid = child(daemon)
    for number in range(2):
        there.put(tensor)
        assert float(back.get(timeout=BOUND)[-1]) == 3.0 + number
    join(pid)
    assert float(tensor.sum()) == 900_000.0
    until(lambda: memory.manager.stats().clients == 1, "its slot to be freed")
    strangers = take()

    def later() -> None:
        strangers.check("being born")
        back.put(st.full((100_000,), float(tensor[0]), shared=True))
        more = memory.manager.allocate(9 * MIB)
        strangers.check("allocating")
        del more
        st.empty_cache()
        strangers.check("giving back")

    for _ in range(2):
        pid = child(later)
        strangers.check("a fork")
        assert float(back.get(timeout=BOUND).sum()) == 900_000.0
        join(pid)
        strangers.check("its end")
    until(lambda: memory.manager.stats().clients == 1, "their slots to be freed")


def add_one(tensor: Any, answers: Any) -> None:
    tensor += 1
    answers.put(st.full((1000,), float(tensor[0]), shared=True))


def close_all_and_fail(_index: int, kind: str, directory: str) -> None:
    sys.argv[1:] = ["", kind, directory]
    gone = take()
    sys.stderr = io.StringIO()
    globals()["gone"] = gone
    raise ValueError("its traceback is not for the program's files")


def spawned() -> None:
    """Starting processes from a parent that closed all descriptors, and a process that closes them and fails."""
    ctx = mp.get_context("spawn")
    tensor, answers = st.zeros(1000, shared=True), ctx.SimpleQueue()
    strangers = take()
    process = ctx.Process(target=add_one, args=(tensor, answers))
    process.start()
    strangers.check("starting a process")
    assert float(answers.get().sum()) == 1000.0
    process.join(BOUND)
    assert process.exitcode == 0 and float(tensor[0]) == 1.0
    del process
    gc.collect()
    strangers.check("the end of a process")
    try:
        mp.spawn(close_all_and_fail, (sys.argv[2], sys.argv[3]), nprocs=1)
    except mp.ProcessExitedException as problem:
        assert problem.exit_code == 1
    else:
        raise AssertionError("it ended well")
    strangers.check("starting and failing")
    for path in Path(sys.argv[3]).glob("file-*"):  # the child's, too
        assert path.read_bytes() == np.random.default_rng(1).bytes(4 * MIB)


def killed() -> None:
    """The manager is killed; descriptors that were requested again can be handed over."""
    memory = Memory()
    tensor = st.full((100_000,), 4.0, shared=True)
    queue = mp.SimpleQueue()
    strangers = take()
    assert len(memory.manager.native.lost()) == 2
    name = memory.manager.export(tensor.storage()._region)  # the first request after it
    strangers.check("a request")
    assert memory.manager.native.lost() == []
    before = {row["id"] for row in memory.manager.list()["segments"]}
    for _ in range(2):
        pid = memory.manager.stats().pid
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: not is_alive(pid), "the manager to die")
        strangers.check("a manager's death")
        queue.put(st.full((MIB,), 6.0, shared=True))
        assert float(queue.get().sum()) == 6.0 * MIB
        assert memory.manager.open(name).index == tensor.storage()._region.index
        assert {row["id"] for row in memory.manager.list()["segments"]} >= before
        strangers.check("the next manager")
    assert float(tensor.sum()) == 400_000.0


def killed_first() -> None:
    """The manager is killed before this process could request anything again: mapped memory continues to work."""
    memory = Memory()
    tensor = st.full((100_000,), 4.0, shared=True)
    queue = mp.SimpleQueue()
    strangers = take()
    os.kill(memory.pid, signal.SIGKILL)
    until(lambda: not is_alive(memory.pid), "the manager to die")
    for number in range(300):
        queue.put((number, b"x" * 1000))
    blocks = [memory.manager.allocate(size) for size in (100, 70_000, 5 * MIB, 40 * MIB)]
    strangers.check("going on")
    assert all(queue.get() == (number, b"x" * 1000) for number in range(300))
    memory.check()
    del blocks
    st.empty_cache()
    strangers.check("giving back")
    assert float(tensor.sum()) == 400_000.0


def segments_alone() -> None:
    """Only the descriptors of memory are closed: reserving pages detects this, and gets them again."""
    memory = Memory()
    tensor = st.full((100_000,), 4.0, shared=True)
    strangers = take(is_memory)
    assert len(memory.manager.native.lost()) == 1
    block = memory.manager.allocate(9 * MIB)
    small = memory.manager.allocate(100)  # this searches for a manager, as after its death
    strangers.check("allocating")
    assert memory.manager.native.lost() == []
    del block, small
    assert float(tensor.sum()) == 400_000.0
    memory.check()
    strangers.check("all")


def pressure() -> None:
    """Without any call here: another process is short of memory, and this one gives back the memory that it keeps."""
    memory = Memory()
    kept = memory.allocate(40 * MIB)
    del kept
    turn = st.zeros(1, shared=True)

    def other() -> None:
        until(lambda: float(turn[0]) == 1, "its turn")

        def block() -> Any:
            try:
                return memory.manager.allocate(40 * MIB)
            except errors.QuotaExceeded:
                return None

        until(block, "the other to give back")
        turn[0] = 2

    pid = child(other)
    strangers = take()
    turn[0] = 1
    deadline = time.monotonic() + BOUND
    while float(turn[0]) != 2:
        assert time.monotonic() < deadline, "nothing was given back"
        one = st.zeros(10, shared=True)
        del one
    strangers.check("giving back under pressure")
    join(pid)


def mapped() -> None:
    """Regions over files and shared-memory objects, which keep descriptors or had them."""
    path = Path(sys.argv[3], "mapped")
    path.write_bytes(bytes(range(256)) * 1000)
    shared = MapFlags.SHAREDMEM
    counted = RefcountedMapAllocator(None)
    first = counted.malloc(100_000)
    name = first.obj.label
    by_name = RefcountedMapAllocator(name, shared | MapFlags.NOCREATE)
    second = by_name.malloc(0)
    anonymous = MapAllocator(None, shared | MapFlags.UNLINK | MapFlags.KEEPFD)
    kept = anonymous.malloc(8192)
    file = MapAllocator(path, MapFlags.SHARED | MapFlags.KEEPFD)
    storage = st.ByteStorage(256_000, allocator=MapAllocator(path, MapFlags.SHARED))
    private = st.ByteStorage(256_000, allocator=MapAllocator(path))
    region = file.malloc(0)
    sent, _size = (own := st.FloatStorage._new_using_fd(1000))._share_fd_()
    assert sent >= 0
    strangers = take()
    assert kept.fd == region.fd == -1
    for send in (st.FloatStorage._share_fd_, arrived):
        try:
            send(own)
        except errors.InvalidArgument:
            pass
        else:
            raise AssertionError("a stranger's descriptor was sent")
    assert counted.incref(first) == 3 and counted.decref(first) == 2
    strangers.check("counting")
    counted.free(first)
    assert Path("/dev/shm" + name).exists()
    by_name.free(second)
    assert not Path("/dev/shm" + name).exists()
    strangers.check("counting out")
    anonymous.free(kept)
    file.free(region)
    assert storage[255] == private[255] == 255
    del storage, private, own
    gc.collect()
    strangers.check("unmapping")
    assert path.read_bytes() == bytes(range(256)) * 1000


def start_lock() -> None:
    """The lock under which managers are started."""
    other = StartLock(sys.argv[3])
    with StartLock(sys.argv[3]):
        strangers = take()
        with other:
            strangers.check("waiting for it")
    strangers.check("letting go of it")


def goodbye() -> None:
    """Leaving the group."""
    memory = Memory()
    tensors = [st.zeros(1000, shared=True), st.zeros(9 * MIB, shared=True)]
    queue = mp.SimpleQueue()
    queue.put(1)
    assert queue.fileno() >= 0
    strangers = take()
    del tensors, queue
    gc.collect()
    strangers.check("dropping all")
    memory.manager.close()
    strangers.check("leaving")


def leaving() -> None:
    """The end of the process with all its objects; a child checks after it has ended."""
    memory = Memory()
    globals()["kept"] = [
        st.zeros(1000, shared=True),
        st.zeros(9 * MIB, shared=True),
        mp.SimpleQueue(),
        memory.manager.allocate(70_000),
        MapAllocator(None, MapFlags.SHAREDMEM | MapFlags.UNLINK | MapFlags.KEEPFD).malloc(8192),
        RefcountedMapAllocator(None).malloc(8192),
    ]
    globals()["kept"][2].fileno()
    strangers = globals()["strangers"] = take()
    parent = os.getpid()

    def look() -> None:
        until(lambda: os.getppid() != parent, "the parent to end")
        strangers.check("the end of a process")

    child(look)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("done", flush=True)
