"""The queues as in the standard library: bounds, timeouts, closing, names, every start method."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import util
from pathlib import Path
from queue import Empty, Full
from typing import Any

import numpy as np
import pytest
from manager_world import BOUND, World, kill, line_of, tell, until, world
from tiers import first

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor.ipc import queues

METHODS = ("fork", "spawn", "forkserver")
MAKERS: list[Callable[..., Any]] = [mp.SimpleQueue, mp.Queue, mp.JoinableQueue]


@pytest.fixture
def here() -> Iterator[World]:
    with world() as made:
        yield made


@pytest.mark.parametrize("make", MAKERS)
def test_messages_come_in_order(make: Callable[..., Any]) -> None:
    q = make()
    assert q.empty()
    for i in range(1000):
        q.put(i)
    assert not q.empty()
    assert [q.get() for _ in range(1000)] == list(range(1000))
    assert q.empty()


def test_dropped_queues_leave_no_descriptor() -> None:
    mp.Queue().put(1)  # the manager is connected
    before = len(list(Path("/proc/self/fd").iterdir()))
    dropped = [mp.Queue() for _ in range(20)]
    assert len(list(Path("/proc/self/fd").iterdir())) > before
    del dropped
    # At once: the next to need a descriptor may be a library that makes no queue, so that nothing else would free them.
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_queue_that_was_dropped_and_opened_again_is_mapped_again() -> None:
    keeper = mp.Process(target=_serve_by_name, args=("again", there := mp.Event(), go := mp.Event()))
    keeper.start()
    assert there.wait(BOUND)
    for i in range(3):
        q = mp.Queue(name="again")
        q.put(i)
        assert q.get(timeout=BOUND) == i
        del q
    go.set()
    keeper.join(BOUND)
    assert keeper.exitcode == 0


def _serve_by_name(name: str, there: Any, go: Any) -> None:
    q = mp.Queue(name=name)
    there.set()
    go.wait(BOUND)
    q.close()


@pytest.mark.parametrize("maxsize", [1, 2, 7])
def test_a_bounded_queue_takes_so_many(maxsize: int) -> None:
    q = mp.Queue(maxsize)
    for i in range(maxsize):
        assert not q.full()
        assert q.qsize() == i
        q.put_nowait(i)
    assert q.full()
    for block, timeout in ((False, None), (False, 5), (True, 0), (True, 0.01), (True, -1)):
        with pytest.raises(Full):
            q.put("no", block, timeout)
    assert [q.get_nowait() for _ in range(maxsize)] == list(range(maxsize))
    for block, timeout in ((False, None), (False, 5), (True, 0), (True, 0.01), (True, -1)):
        with pytest.raises(Empty):
            q.get(block, timeout)
    q.put(1)
    assert q.get() == 1


@pytest.mark.parametrize("maxsize", [0, -1, -100, 2**40])
def test_no_bound(maxsize: int) -> None:
    q = mp.Queue(maxsize)
    for i in range(100):
        q.put_nowait(i)
    assert not q.full()
    assert q.qsize() == 100


@pytest.mark.parametrize("maxsize", [1.5, "3", None])
def test_bounds_are_whole_numbers(maxsize: Any) -> None:
    with pytest.raises(TypeError, match="maxsize"):
        mp.Queue(maxsize)
    with pytest.raises(TypeError, match="maxbytes"):
        mp.Queue(maxbytes=maxsize)


def test_a_timeout_is_a_number() -> None:
    q = mp.Queue(1)
    with pytest.raises(TypeError):
        q.get(True, "soon")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        q.put(1, True, "soon")  # type: ignore[arg-type]
    assert q.empty()


def test_an_unbounded_queue_grows() -> None:
    q = mp.Queue()
    first = q.stats().capacity
    text = "x" * 16000
    for i in range(2000):
        q.put((i, text))
    stats = q.stats()
    assert first == 1 << 16
    assert stats.capacity >= stats.nbytes > 32_000_000
    for i in range(2000):
        assert q.get() == (i, text)
    assert q.stats().nbytes == 0


def test_it_grows_around_its_end() -> None:
    q = mp.Queue()
    put = got = 0
    for size in (900, 5000, 15000):
        for _ in range(150):
            for _ in range(3):
                q.put((put, b"y" * size))
                put += 1
            assert q.get()[0] == got
            got += 1
    while not q.empty():
        assert q.get()[0] == got
        got += 1
    assert put == got


@pytest.mark.parametrize("make", [mp.Queue, mp.JoinableQueue])
def test_a_closed_queue(make: Callable[..., Any]) -> None:
    q = make()
    q.put(1)
    with pytest.raises(AssertionError):
        q.join_thread()
    q.close()
    q.close()
    q.join_thread()
    q.cancel_join_thread()
    calls: list[Callable[[], Any]] = [
        lambda: q.put(1),
        q.get,
        lambda: q.put_nowait(1),
        q.get_nowait,
        lambda: q.put_many([1]),
        lambda: q.get_many(1),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="is closed"):
            call()
    for call in (q.empty, q._reader.poll, q._reader.recv, lambda: q._writer.send(1)):
        with pytest.raises(OSError, match="closed"):
            call()
    assert q.qsize() == 1


def test_a_closed_simple_queue() -> None:
    q = mp.SimpleQueue()
    q.close()
    with pytest.raises(ValueError, match="is closed"):
        q.put(1)
    with pytest.raises(ValueError, match="is closed"):
        q.get()
    with pytest.raises(OSError, match="closed"):
        q.empty()


def close_and_put_nothing(q: Any) -> None:
    q.close()


def test_closing_is_of_one_process() -> None:
    q = mp.Queue()
    process = mp.Process(target=close_and_put_nothing, args=(q,))
    process.start()
    process.join()
    assert process.exitcode == 0
    q.put(1)
    assert q.get() == 1


def test_joining() -> None:
    q = mp.JoinableQueue()
    q.join()
    with pytest.raises(ValueError, match="too many"):
        q.task_done()
    for i in range(3):
        q.put(i)
    joined = threading.Event()
    thread = threading.Thread(target=lambda: (q.join(), joined.set()))
    thread.start()
    for _ in range(3):
        assert not joined.is_set()
        assert q.stats().unfinished > 0
        q.get()
        q.task_done()
    assert joined.wait(BOUND)
    thread.join()
    with pytest.raises(ValueError, match="too many"):
        q.task_done()


def work_off(q: Any, done: Any) -> None:
    while (item := q.get()) is not None:
        done.put(item * item)
        q.task_done()
    q.task_done()


@pytest.mark.parametrize("method", METHODS)
def test_workers(method: str) -> None:
    context = mp.get_context(method)
    q, done = context.JoinableQueue(), context.Queue()
    workers = [context.Process(target=work_off, args=(q, done)) for _ in range(2)]
    for worker in workers:
        worker.start()
    q.put_many(range(50))
    q.join()
    assert sorted(done.get() for _ in range(50)) == [i * i for i in range(50)]
    q.put_many([None, None])
    q.join()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0


@pytest.mark.parametrize("make", MAKERS)
def test_plain_pickle_refuses_a_queue(make: Callable[..., Any]) -> None:
    q = make()
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(RuntimeError, match="inheritance or in messages"):
            copying(q)


def test_from_module_and_contexts() -> None:
    for maker in (mp, *(mp.get_context(method) for method in METHODS)):
        assert type(maker.Queue()) is queues.Queue
        assert type(maker.JoinableQueue(3)) is queues.JoinableQueue
        assert type(maker.SimpleQueue()) is queues.SimpleQueue
    standard = multiprocessing.get_context("spawn")
    q = queues.Queue(2, ctx=standard)
    q.put(1)
    assert q.get() == 1
    assert queues.Queue[int].__origin__ is queues.Queue  # type: ignore[attr-defined]


def test_bytes_are_bounded_too() -> None:
    q = mp.Queue(maxbytes=10_000)
    tensor = shmtensor.zeros(1000)
    q.put(tensor)
    assert 4000 < q.stats().nbytes < 4200
    q.put(tensor)
    assert not q.full()
    with pytest.raises(Full):
        q.put(tensor, timeout=0.01)
    q.put(1)
    q.get()
    q.put(tensor, timeout=0)
    with pytest.raises(errors.MessageTooLarge, match="maxbytes 10000"):
        q.put(shmtensor.zeros(3000))
    with pytest.raises(errors.MessageTooLarge, match="maxbytes 10000"):
        q.put_many([1, 2, b"z" * 11_000])
    assert q.qsize() == 3
    for most in (0, "3", 1.5):
        with pytest.raises(errors.InvalidArgument, match=f"not {most!r}"):
            q.get_many(most)  # type: ignore[arg-type]
    assert len(q.get_many(np.int64(10))) == 3  # type: ignore[arg-type]


def test_many_at_once() -> None:
    q = mp.Queue(5)
    assert q.put_many([]) == 0
    assert q.put_many(iter("ab")) == 2
    assert q.put_many("cdefgh", timeout=0.01) == 3
    with pytest.raises(Full):
        q.put_many("x", False)
    assert q.get_many(2) == ["a", "b"]
    assert q.get_many(1000) == ["c", "d", "e"]
    with pytest.raises(Empty):
        q.get_many(2, timeout=0.01)
    with pytest.raises(TypeError):
        q.put_many(5)  # type: ignore[arg-type]
    for most in (0, -1, 2.0, "2"):
        with pytest.raises(errors.InvalidArgument):
            q.get_many(most)  # type: ignore[arg-type]
    q.put(1)
    assert q.get_many(2**80) == [1]
    wide = mp.Queue()
    assert wide.put_many(range(1000)) == 1000
    assert wide.get_many(1000) == list(range(1000))


def test_many_wait_for_room() -> None:
    q = mp.Queue(3)
    thread = threading.Thread(target=q.put_many, args=(range(500),))
    thread.start()
    got: list[int] = []
    while len(got) < 500:
        got += q.get_many(100, timeout=BOUND)
    thread.join()
    assert got == list(range(500))


def test_figures() -> None:
    q = mp.JoinableQueue()
    q.put_many([b"a" * 100, b"b" * 100])
    q.get()
    q.task_done()
    q.put(1)
    stats = q.stats()
    assert (stats.messages, stats.peak_messages, stats.put, stats.taken, stats.unfinished) == (2, 2, 3, 1, 2)
    assert 100 < stats.nbytes < 200 < stats.put_nbytes < 300
    assert (stats.put_lock_pid, stats.get_lock_pid) == (0, 0)


# --------------------------------------------------------------------------------------------------------------- names


def test_a_name_is_one_queue(here: World) -> None:
    here.serve()
    code = "import shmtensor.multiprocessing as mp; q = mp.Queue(name='jobs'); back = mp.SimpleQueue(name='back')\n"
    one = here.script(code + "q.put(20); print(back.get(), flush=True); input()")
    assert here.run(code + "back.put(q.get() + 1); print('ok')") == "ok\n"
    assert one.stdout is not None
    assert one.stdout.readline() == "21\n"
    kill(one)


def test_a_timeout_that_is_not_a_number_is_refused() -> None:
    q = mp.Queue(1)
    q.put("here")
    for wait in (q.put, lambda _, **how: mp.Queue().get(**how), lambda _, **how: mp.Barrier(2).wait(**how)):
        with pytest.raises(ValueError, match="not a number"):
            wait("x", timeout=float("nan"))


def test_what_a_name_stands_for() -> None:
    q = mp.Queue(3, name="test.kinds")
    q.put("here")
    for same in (mp.Queue(name="test.kinds"), mp.Queue(3, name="/test.kinds")):
        assert same.qsize() == 1
        assert same._maxsize == 3
    for make in (mp.SimpleQueue, mp.JoinableQueue):
        with pytest.raises(errors.InvalidArgument, match="is the name of a Queue"):
            make(name="test.kinds")
    with pytest.raises(errors.InvalidArgument, match=r"'test\.kinds' is the name of another kind of object"):
        mp.Lock(name="test.kinds")
    with pytest.raises(errors.InvalidArgument, match="maxsize=3, not 4"):
        mp.Queue(4, name="test.kinds")
    for name in ("", "a/b", "a b", "x" * 200, "\ud800", 3, b"bytes"):
        with pytest.raises(errors.InvalidArgument, match="name of a shared object"):
            mp.Queue(name=name)  # type: ignore[arg-type]
    assert q.get() == "here"


OWNER = """
import sys, shmtensor.multiprocessing as mp
from queue import Full
q = mp.{kind}(2, maxbytes=1000, name="work")
print(*q._ring.limits(), flush=True)
try:
    q.put(b"x", timeout=0.05)
except Full:
    print("full", flush=True)
sys.stdin.readline()
q.put(b"y", timeout=20)
"""


@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue"])
def test_who_opens_first_without_bounds_leaves_them_to_the_owner(here: World, kind: str) -> None:
    code = f"""
import sys, shmtensor.multiprocessing as mp
q = mp.{kind}(name="work")
for i in range(5):
    q.put(i)
print("ready", flush=True)
sys.stdin.readline()
print([q.get() for i in range(4)], flush=True)
sys.stdin.readline()
print([q.get(timeout=20) for i in range(2)], flush=True)
"""
    consumer = here.script(code)
    assert line_of(consumer) == "ready"
    owner = here.script(OWNER.format(kind=kind))
    assert [line_of(owner), line_of(owner)] == ["2 1000", "full"]
    tell(consumer)
    assert line_of(consumer) == "[0, 1, 2, 3]", "what was inside stays"
    tell(owner)
    tell(consumer)
    assert line_of(consumer) == "[4, b'y']"


def test_bounds_are_set_once_each_by_the_first_who_gives_them() -> None:
    q = mp.Queue(name="test.bounds")
    assert mp.Queue(maxbytes=500, name="test.bounds")._maxsize == 2**31 - 1
    assert mp.Queue(3, name="test.bounds")._maxsize == 3
    assert q._ring.limits() == (3, 500)
    for wrong in ({"maxsize": 4}, {"maxbytes": 501}):
        with pytest.raises(errors.InvalidArgument, match=r"'test\.bounds' exists with"):
            mp.Queue(name="test.bounds", **wrong)  # type: ignore[arg-type]
    with pytest.raises(errors.MessageTooLarge):
        q.put(b"x" * 501)
    fresh = mp.Queue(name="test.bounds.2")
    assert mp.Queue(3, name="test.bounds.2").full() is False
    with pytest.raises(errors.InvalidArgument):
        mp.Queue(4, maxbytes=7, name="test.bounds.2")
    assert fresh._ring.limits() == (3, 0), "what is refused sets nothing"


def test_of_many_who_give_bounds_at_once_one_sets_them(in_time: None) -> None:
    q = mp.Queue(name="test.race")
    ready, won, lost = threading.Barrier(8), [], []

    def give(bound: int) -> None:
        ready.wait()
        try:
            mp.Queue(bound, name="test.race")
            won.append(bound)
        except errors.InvalidArgument:
            lost.append(bound)

    threads = [threading.Thread(target=give, args=(bound,)) for bound in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [q._maxsize] and len(lost) == 7


NAMED = {
    "Queue": (), "JoinableQueue": (), "SimpleQueue": (), "Broadcast": (3,), "Lock": (), "RLock": (), "Semaphore": (2,),
    "BoundedSemaphore": (2,), "Event": (), "Condition": (),
}  # fmt: skip


@pytest.mark.parametrize("kind", NAMED)
def test_made_or_opened_as_asked(kind: str) -> None:
    make, bounds, name = getattr(mp, kind), NAMED[kind], f"test.create.{kind}"
    with pytest.raises(errors.UnknownHandle, match=rf"'test\.create\.{kind}.*create=False does not create it"):
        make(name=name, create=False)
    with pytest.raises(errors.UnknownHandle):
        make(name=name, create=False, timeout=0.01)
    kept = make(*bounds, name=name, create=True)
    with pytest.raises(errors.NameTaken, match=rf"'test\.create\.{kind}.*already exists"):
        make(*bounds, name=name, create=True)
    opened = make(name=name, create=False)
    again = make(*bounds, name=name, create=False, timeout=5)
    assert type(opened) is type(again) is type(kept)
    del kept, opened, again

    def made_again() -> bool:
        with suppress(errors.NameTaken):  # the manager may be looking at the block: then its end is put off
            make(*bounds, name=name, create=True)
            return True
        return False

    until(made_again, "the name to end with its last holder")
    make(*bounds, create=True)
    for wrong in (
        {"create": False},
        {"name": name, "timeout": 1},
        {"name": name, "create": False, "timeout": float("nan")},
        {"name": name, "create": False, "timeout": "x"},
    ):
        with pytest.raises(errors.InvalidArgument, match="create=False"):
            make(*bounds, **wrong)
    with pytest.raises(errors.InvalidArgument, match=r"create must be True .* not 'no'"):
        make(*bounds, name=name, create="no")
    with pytest.raises(errors.UnknownHandle):
        make(name=f"{name}.not", create=0)


@pytest.mark.parametrize("kind", first(NAMED, 2))
def test_who_comes_first_may_wait_until_it_is_made(here: World, kind: str) -> None:
    code = "import sys, shmtensor.multiprocessing as mp\nmp.Queue(name='others')\nprint('looks', flush=True)\n"
    first = here.script(code + f"x = mp.{kind}(name='x', create=False, timeout=20)\nprint('has it', flush=True)")
    assert line_of(first) == "looks"
    second = here.script(
        f"import sys, shmtensor.multiprocessing as mp\nx = mp.{kind}(*{NAMED[kind]}, name='x', create=True)\n"
        "print('made', flush=True); sys.stdin.readline()"
    )
    assert [line_of(second), line_of(first)] == ["made", "has it"]
    tell(second)


def test_a_name_ends_with_its_last_holder() -> None:
    q = mp.Queue(name="test.ends")
    q.put(1)
    del q
    again = mp.JoinableQueue(5, name="test.ends")
    assert again.empty()


def open_by_name(name: str, back: Any) -> None:
    mp.Queue(name=name).put(os.getpid())
    back.put("done")


@pytest.mark.parametrize("method", METHODS)
def test_children_open_names(method: str) -> None:
    context = mp.get_context(method)
    q, back = mp.Queue(name=f"test.children.{method}"), context.SimpleQueue()
    process = context.Process(target=open_by_name, args=(f"test.children.{method}", back))
    process.start()
    assert back.get() == "done"
    assert q.get() == process.pid
    process.join()


# ------------------------------------------------------------------------------------- what is left of those who ended

HEAD = """
import os, signal, sys
import numpy as np, shmtensor, shmtensor.multiprocessing as mp
q = mp.Queue(name="q")
"""


def live(here: World) -> tuple[int, int]:
    """(live blocks, live bytes) but for the rings themselves."""
    segments = here.observe(os.fsencode(here.directory / "manager.sock"))["segments"]
    arenas = [row for row in segments if not row.get("ring")]
    return sum(row["live_blocks"] for row in arenas), sum(row["live_bytes"] for row in arenas)


@pytest.mark.parametrize("end", ["sys.exit()", "os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_messages_outlive_their_sender(here: World, end: str) -> None:
    here.serve()
    keeper = here.script(
        HEAD + "print('open', flush=True); input()\nfor m in q.get_many(9): print(m[0], float(m[1].sum()))"
    )
    assert keeper.stdout is not None
    assert keeper.stdout.readline() == "open\n"
    sender = here.script(
        HEAD + "for i in range(3): q.put((i, shmtensor.ones(100_000)))\n"
        f"q.put((3, np.ones(200_000))); q.put((4, np.ones(2))); {end}"
    )
    sender.wait(BOUND)
    out, err = keeper.communicate("\n", timeout=BOUND)
    assert not err
    sums = [float(line.split()[1]) for line in out.splitlines()]
    assert sums == [100_000, 100_000, 100_000, 200_000, 2]


def test_a_dropped_queue_gives_back_what_is_inside(here: World) -> None:
    here.serve()
    for end in ("del q, tensor", "os.kill(os.getpid(), signal.SIGKILL)"):
        process = here.script(
            HEAD + "tensor = shmtensor.ones(10**6, shared=True)\n"
            "q.put([tensor, np.ones(10**6)]); q.put(shmtensor.ones(5)); q.put(b'x' * 10**6)\n"
            f"print('put', flush=True); input()\n{end}\nprint('end', flush=True); input()"
        )
        assert process.stdout is not None and process.stdin is not None and process.stderr is not None
        assert process.stdout.readline() == "put\n", process.stderr.read()
        assert live(here)[1] > 12_000_000
        process.stdin.write("\n")
        process.stdin.flush()
        until(lambda: live(here) == (0, 0), "the memory of the messages inside")
        kill(process)


def forever(q: Any) -> None:
    signal.pause()


@pytest.mark.parametrize("method", METHODS)
def test_a_child_that_dies_keeps_nothing(method: str) -> None:
    context = mp.get_context(method)
    q = context.Queue()
    process = context.Process(target=forever, args=(q,))
    process.start()
    q.put(shmtensor.ones(1000))
    process.kill()
    process.join()
    assert float(q.get().sum()) == 1000
    q.put(1)
    assert q.get() == 1


CLONE = """
import ctypes
q.put(shmtensor.ones(10, shared=True))
libc = ctypes.CDLL(None, use_errno=True)
pid = libc.syscall(56, 17, 0, 0, 0, 0)  # clone(SIGCHLD): a fork that no hook hears of
if pid == 0:
    from shmtensor.errors import ClientUnavailable
    done = 0
    for call in (lambda: q.put(1), q.get_nowait, lambda: q.put_many([1]), lambda: q.get_many(1)):
        try:
            call()
        except ClientUnavailable:
            done += 1
    os._exit(done)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), q.qsize(), q.get().tolist())
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of a system call")
def test_a_process_cloned_without_hooks(here: World) -> None:
    here.serve()
    assert here.run(HEAD + CLONE) == f"4 1 {[1.0] * 10}\n"


def test_a_fork_leaves_a_queue_registered_once() -> None:
    q = mp.Queue()

    def entries() -> int:
        return sum(one is q for one in util._afterfork_registry.values())

    assert entries() == 1
    q.close()
    util._run_after_forkers()  # what each forked child does first
    assert entries() == 1
    q.put(1)  # open again, as the standard queue is in a child
    assert q.get() == 1
