"""Queues, locks and broadcasts in messages: reply queues, arguments of tasks, and what a message holds."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from manager_world import BOUND, World, kill, line_of, until

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import _native, errors
from shmtensor.ipc import queues
from shmtensor.manager import client

FORK = mp.get_context("fork")
MAKERS: list[Callable[..., Any]] = [mp.SimpleQueue, mp.Queue, mp.JoinableQueue]


@pytest.fixture
def nothing_stays() -> Iterator[client.Manager]:
    """The default manager; all queues that the test makes are to be gone after it."""
    gc.collect()
    manager = client.default()
    before = manager.stats().rings
    yield manager
    gc.collect()
    until(lambda: manager.stats().rings <= before, "the queues to go")


def finish(process: Any) -> None:
    process.join(BOUND)
    assert process.exitcode == 0


def answer(requests: Any) -> None:
    while (request := requests.get()) is not None:
        number, replies = request
        replies.put((number * number, shmtensor.full((100,), float(number))))
        del request, replies


def test_a_request_carries_its_reply_queue(ctx: Any, nothing_stays: client.Manager) -> None:
    requests = ctx.Queue()
    server = ctx.Process(target=answer, args=(requests,))
    server.start()
    for make in (ctx.SimpleQueue, ctx.Queue, ctx.JoinableQueue):
        for number in range(3):
            replies = make()
            requests.put((number, replies))
            square, tensor = mp.connection.wait([replies._reader], BOUND)[0].recv()
            assert square == number * number and tensor.sum() == 100 * number
            del replies, tensor
    dropped = ctx.Queue()
    requests.put((1, dropped))  # the client does not wait for the answer
    del dropped
    requests.put(None)
    finish(server)


@pytest.mark.parametrize("make", MAKERS)
def test_the_message_holds_the_queue(make: Callable[..., Any], nothing_stays: client.Manager) -> None:
    outer, inner = mp.Queue(), make()
    inner.put(shmtensor.full((1000,), 5.0))
    nbytes = inner._ring.block.nbytes
    outer.put(["work", {"reply": inner}])
    assert outer.stats().nbytes < nbytes, "a queue does not count for a message that carries it"
    del inner
    gc.collect()
    (text, found) = outer.get(timeout=BOUND)
    assert text == "work" and type(found["reply"]).__name__ == make.__name__
    assert found["reply"].get().sum() == 5000


def test_a_queue_counts_only_by_its_name_in_a_bounded_queue() -> None:
    outer = mp.Queue(maxbytes=10_000)
    outer.put(mp.Queue(), timeout=BOUND)
    assert outer.get(timeout=BOUND).empty()


def test_a_queue_that_comes_twice_is_one_ring() -> None:
    q, outer = mp.Queue(3), mp.Queue()
    outer.put(q)
    outer.put((q, q))
    first = outer.get(timeout=BOUND)
    second, third = outer.get(timeout=BOUND)
    assert second is third
    assert first._ring is second._ring is q._ring
    first.put(1)
    assert second.get(timeout=BOUND) == 1 and q._maxsize == 3
    first.close()
    q.put(2)
    assert q.get(timeout=BOUND) == 2


def test_a_known_queue_comes_without_a_request(nothing_stays: client.Manager) -> None:
    here, there = FORK.Queue(), FORK.Queue()
    server = FORK.Process(target=pass_on, args=(here, there))
    server.start()
    q = FORK.Queue()
    here.put(q)
    there.get(timeout=BOUND).put(1)
    before = nothing_stays.stats().requests
    for _ in range(20):
        here.put(q)
        there.get(timeout=BOUND).put(1)
    assert nothing_stays.stats().requests == before + 1, "the one is this question"
    here.put(None)
    finish(server)


def pass_on(here: Any, there: Any) -> None:
    while (q := here.get()) is not None:
        there.put(q)
        del q


def take_turns(board: Any) -> None:
    parts = board.get(timeout=BOUND)
    with parts["condition"]:
        parts["condition"].notify_all()
    parts["event"].wait(BOUND)
    parts["semaphore"].release()
    with parts["rlock"], parts["rlock"]:
        pass
    assert not parts["lock"].acquire(timeout=0.01), "what the sender holds it holds still"
    parts["barrier"].wait(BOUND)
    assert parts["lock"].acquire(timeout=BOUND) and not parts["lock"].owner_died
    parts["lock"].release()
    parts["bounded"].acquire()


def test_locks_and_events_in_messages(ctx: Any) -> None:
    parts = {
        "lock": ctx.Lock(),
        "rlock": ctx.RLock(),
        "semaphore": ctx.Semaphore(0),
        "bounded": ctx.BoundedSemaphore(2),
        "condition": ctx.Condition(),
        "event": ctx.Event(),
        "barrier": ctx.Barrier(2),
    }
    parts["lock"].acquire()
    board = ctx.Queue()
    child = ctx.Process(target=take_turns, args=(board,))
    child.start()
    with parts["condition"]:
        board.put(parts)
        assert parts["condition"].wait(BOUND)
    parts["event"].set()
    assert parts["semaphore"].acquire(timeout=BOUND)
    parts["barrier"].wait(BOUND)
    parts["lock"].release()
    finish(child)
    assert parts["bounded"].get_value() == 1


def reply(queue: Any, lock: Any, number: int) -> int:
    with lock:
        queue.put(number)
    return number


def test_tasks_arguments(ctx: Any, nothing_stays: client.Manager) -> None:
    with ctx.Pool(2) as pool:
        queue, lock = ctx.Queue(), ctx.Lock()
        assert pool.apply_async(reply, (queue, lock, 1)).get(BOUND) == 1
        assert pool.starmap(reply, [(queue, lock, n) for n in range(2, 10)]) == list(range(2, 10))
        assert sorted(queue.get(timeout=BOUND) for _ in range(9)) == list(range(1, 10))
        made = pool.apply(mp.SimpleQueue)
        made.put("a result may be a queue")
        assert made.get()
        result = pool.apply_async(os.getpid)
        for refused in (pool, result):
            with pytest.raises(NotImplementedError, match="pool"):
                queue.put(refused)
        pool.close()
        pool.join()
    del made, queue


def hear(end: Any) -> None:
    cast, results = end.recv()
    reader = cast.reader()
    results.put("ready")
    results.put(reader.get(timeout=BOUND))


def test_a_broadcast_through_a_pipe(ctx: Any) -> None:
    ours, theirs = ctx.Pipe()
    cast, results = ctx.Broadcast(4, policy="drop_oldest"), ctx.Queue()
    child = ctx.Process(target=hear, args=(theirs,))
    child.start()
    ours.send((cast, results))
    assert results.get(timeout=BOUND) == "ready"
    cast.put("news")
    assert results.get(timeout=BOUND) == "news"
    finish(child)
    with pytest.raises(TypeError, match="send the Broadcast"):
        results.put(cast.reader())
    results.put(cast)
    again = results.get(timeout=BOUND)
    for number in range(10):
        cast.put(number)
    del cast  # what is left makes room still
    for number in range(10):
        again.put(number)
    assert again.policy == "drop_oldest"


def test_a_queue_in_a_broadcast_reaches_each_reader() -> None:
    cast, inner = mp.Broadcast(4), mp.Queue()
    readers = [cast.reader(), cast.reader()]
    cast.put(inner)
    for reader in readers:
        reader.get(timeout=BOUND).put("here")
    assert [inner.get(timeout=BOUND) for _ in readers] == ["here", "here"]


class Kept(queues.Queue):
    """A subclass goes along as its base does."""


def test_subclasses_and_pickles_inside_messages() -> None:
    import pickle

    class Wrapped:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __reduce__(self) -> Any:  # as cloudpickle wraps what it pickles itself
            return pickle.loads, (pickle.dumps(self.inner),)

    outer = mp.Queue()
    kept = Kept()
    outer.put(kept)
    found = outer.get(timeout=BOUND)
    assert type(found) is Kept and found._ring is kept._ring
    outer.put(Wrapped(kept))
    assert outer.stats().put_nbytes < 10_000
    assert outer.get(timeout=BOUND)._ring is kept._ring


def test_threads_that_send_and_drop_queues_at_once(nothing_stays: client.Manager) -> None:
    carrier = mp.Queue()
    wrong: list[BaseException] = []

    def carry() -> None:
        try:
            for number in range(100):
                q = mp.SimpleQueue()
                q.put(number)
                carrier.put(q)
                del q
                carrier.get(timeout=BOUND).get()
        except BaseException as problem:
            wrong.append(problem)

    threads = [threading.Thread(target=carry) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * BOUND)
    assert not wrong


SENDER = (
    "import os, signal, sys\nimport shmtensor, shmtensor.multiprocessing as mp\n"
    "outer = mp.Queue(name='outer'); print('ready', flush=True); sys.stdin.readline()\n"
    "inner, event = mp.Queue(), mp.Event(); inner.put(shmtensor.full((1000,), 7.0)); event.set()\n"
    "outer.put((inner, event)); os.kill(os.getpid(), signal.SIGKILL)\n"
)


def test_a_sender_killed_right_after_put(here: World) -> None:
    address = here.serve()
    sender = here.script(SENDER, env={"SHMTENSOR_MANAGER": os.fsdecode(address)})
    assert line_of(sender) == "ready"
    code = (
        "import sys, shmtensor.multiprocessing as mp\nouter = mp.Queue(name='outer'); print('ready', flush=True)\n"
        "inner, event = outer.get(timeout=20); print(float(inner.get(timeout=20).sum()), event.is_set(), flush=True)\n"
        "sys.stdin.readline()\n"
    )
    receiver = here.script(code, env={"SHMTENSOR_MANAGER": os.fsdecode(address)})
    assert line_of(receiver) == "ready"
    assert sender.stdin is not None
    sender.stdin.write("\n")
    sender.stdin.flush()
    assert sender.wait(BOUND) == -signal.SIGKILL
    assert line_of(receiver) == "7000.0 True"
    held = here.observe(address)
    assert held["stats"]["rings"] == 2
    kill(receiver)
    until(lambda: here.observe(address)["stats"]["rings"] == 0, "the queues to go")
    assert here.observe(address)["stats"]["live_blocks"] == 0


def test_ls_says_which_ring_holds_a_queue() -> None:
    manager = client.default()
    outer, inner = mp.Queue(), mp.Queue()
    number, segment = outer._ring, inner._ring.block.segment
    outer.put(inner)
    ticket = manager.ticket(inner._ring.block)
    listing = manager.list()
    (row,) = (row for row in listing["segments"] if row["id"] == segment)
    (theirs,) = (row["ring"] for row in listing["rings"] if row["segment"] == number.block.segment)
    assert [(h["ring"], h["kind"]) for h in row["holders"] if h["ring"]] == [(theirs, "message")]
    (flight,) = (row for row in listing["in_flight"] if row["segment"] == segment)
    assert flight["bytes"] < _native.RING_BYTES, "what it has reserved"
    manager.redeem(segment, 0, 1, *ticket)


def test_a_closed_group_of_names_is_no_holder(here: World) -> None:
    """What has a name, and is in itself, still ends; the name is free again."""
    address = here.serve()
    env = {"SHMTENSOR_MANAGER": os.fsdecode(address)}
    here.run("import shmtensor.multiprocessing as mp\nq = mp.Queue(7, name='own'); q.put(q); q.put('old')\n", env=env)
    until(lambda: here.observe(address)["stats"]["rings"] == 0, "the queue in itself to go")
    found = here.run(
        "import shmtensor.multiprocessing as mp\nq = mp.Queue(name='own'); print(q.qsize())\nq.put(1)\n", env=env
    )
    assert found.strip() == "0"


def test_a_stale_handle_of_an_ended_ring_is_refused() -> None:
    manager = client.default()
    q = mp.Queue()
    q.put(q)
    triple = (q._ring.block.segment, 0, 1)
    rings = manager.stats().rings
    del q
    gc.collect()
    until(lambda: manager.stats().rings < rings, "the queue to go")
    with pytest.raises((errors.StaleHandle, errors.UnknownHandle)):
        manager.attach(*triple)
