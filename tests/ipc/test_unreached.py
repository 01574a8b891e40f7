"""Queues held only by messages in one another: they end with their content, unless a process can reach them."""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from manager_world import BOUND, World, is_alive, kill, line_of, tell, until

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor.manager import client

FORK = mp.get_context("fork")
SECONDS = float(os.environ.get("SHMTENSOR_UNREACHED_SECONDS", "3"))


@pytest.fixture
def manager() -> Iterator[client.Manager]:
    """The default manager, whose rings and blocks have to be as many as before the test in the end."""
    gc.collect()
    found = client.default()
    queue = mp.Queue()  # an arena of this process's is there from now on
    queue.put(shmtensor.zeros(10, shared=True))
    del queue
    found.gc()
    until(lambda: found.stats().dying == 0, "others to be reclaimed")
    before = found.stats()
    yield found
    gc.collect()
    until(lambda: found.stats().rings <= before.rings, "the queues to go")
    until(lambda: found.stats().live_blocks <= before.live_blocks, "all that was in them to go")
    assert found.stats().segments <= before.segments


def fill(queue: Any) -> None:
    queue.put((shmtensor.full((1000,), 1.0), b"x" * 50_000))


def ring_of(size: int) -> list[Any]:
    """Queues of which each is in the one before it, and the first in the last."""
    queues = [mp.Queue() for _ in range(size)]
    for holder, held in zip(queues, [*queues[1:], queues[0]], strict=True):
        fill(holder)
        holder.put(["next", held])
    return queues


@pytest.mark.parametrize("size", [1, 2, 50])
def test_a_cycle_ends_with_all_that_is_in_it(manager: client.Manager, size: int) -> None:
    queues = ring_of(size)
    assert manager.stats().rings >= size
    del queues


def test_a_cycle_that_one_process_holds_lives(manager: client.Manager) -> None:
    queue = ring_of(5)[0]
    gc.collect()
    for _ in range(4):
        manager.gc()  # looks
    for _ in range(7):
        tensor, text = queue.get(timeout=BOUND)
        assert tensor.sum() == 1000 and text == b"x" * 50_000
        word, following = queue.get(timeout=BOUND)
        assert word == "next"
        fill(queue)
        queue.put([word, following])
        queue = following


def test_what_hangs_on_a_cycle_goes_with_it(manager: client.Manager) -> None:
    """A chain deeper than a stack, out of a cycle; locks and tensors in it."""
    cycle = ring_of(2)
    below = cycle[0]
    for _ in range(300):
        inner = mp.Queue()
        inner.put(mp.Event())
        below.put(inner)
        below = inner
    del cycle, below, inner


def test_a_queue_dropped_with_queues_inside(manager: client.Manager) -> None:
    outer = mp.Queue()
    for _ in range(20):
        inner = mp.Queue()
        fill(inner)
        outer.put(inner)
    del outer, inner


def test_broadcasts_in_each_other(manager: client.Manager) -> None:
    one, other = mp.Broadcast(4), mp.Broadcast(4)
    readers = [one.reader(), other.reader()]
    one.put(other)
    other.put(one)
    del one, other
    manager.gc()
    again = readers[0].get(timeout=BOUND).reader(from_oldest=True)
    assert again.get(timeout=BOUND).stats().messages <= 1
    del readers, again


def test_what_a_dead_process_had_in_its_hands(manager: client.Manager) -> None:
    """It put cycles, and was killed with messages that were its own alone."""
    ready = FORK.Queue()
    child = FORK.Process(target=make_cycles, args=(ready,))
    child.start()
    assert ready.get(timeout=BOUND)
    child.kill()
    child.join(BOUND)


def make_cycles(ready: Any) -> None:
    kept = [ring_of(3) for _ in range(3)]
    ring_of(2)
    ready.put(len(kept))
    signal.pause()


def wander(start: Any, found: Any, seconds: float, seed: int) -> None:
    """Hold one queue of a cycle at a time; take the next out of it, put it back elsewhere, let go of the first."""
    choose = random.Random(seed)
    here, steps, end = start.get(timeout=BOUND), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        name, there = here.get(timeout=BOUND)
        assert name == "next"
        if choose.random() < 0.3:
            there.put(("proof", shmtensor.full((50,), float(steps))))
            kind, tensor = there.get(timeout=BOUND)
            while kind != "proof":
                there.put((kind, tensor))
                kind, tensor = there.get(timeout=BOUND)
            assert (tensor.numpy() == steps).all()
            del tensor
        # The one that was held goes into the one that is held now, and nowhere else: behind whoever looks.
        there.put(("next", here))
        here = there
        del there
        steps += 1
    found.put(steps)


@pytest.mark.exhaustive
def test_a_cycle_is_not_ended_under_a_process_that_wanders_in_it(manager: client.Manager) -> None:
    """It holds one queue, or two for a moment, of a cycle that messages hold; the manager looks all the time."""
    start, found = FORK.Queue(), FORK.Queue()
    children = [FORK.Process(target=wander, args=(start, found, SECONDS, seed)) for seed in range(2)]
    for child in children:
        child.start()
        a, b = mp.Queue(), mp.Queue()
        b.put(("next", a))
        a.put(("next", b))
        start.put(a)
        del a, b
    looks = 0
    while any(child.is_alive() for child in children):
        manager.gc()
        looks += 1
    steps = [found.get(timeout=BOUND) for _ in children]
    for child in children:
        child.join(BOUND)
        assert child.exitcode == 0
    assert looks > 10 and min(steps) > 10, (looks, steps)


CYCLES = (
    "import os, sys, shmtensor, shmtensor.multiprocessing as mp\n"
    "keep = mp.Queue(); kept = mp.Queue(); kept.put(kept); keep.put(kept); kept.put('there'); del kept\n"
    "print('ready', flush=True)\n"
    "for line in sys.stdin:\n"
    "    if line.strip() == 'make':\n"
    "        for _ in range(10):\n"
    "            a, b = mp.Queue(), mp.Queue(); a.put(b); b.put(a); a.put(shmtensor.ones(1000)); del a, b\n"
    "    else:\n"
    "        found = keep.get(timeout=20); again = found.get(timeout=20); assert found.get(timeout=20) == 'there'\n"
    "        again.put(again); again.put('there'); keep.put(again); del found, again\n"
    "    print('done', flush=True)\n"
)


def stats(here: World) -> Any:
    """Of the private manager there."""
    (address,) = here.directory.glob("*.sock")
    return here.observe(os.fsencode(address))["stats"]


@pytest.mark.exhaustive
def test_managers_that_are_killed_leave_it_to_the_next(here: World) -> None:
    user = here.script(CYCLES)
    assert line_of(user) == "ready"
    for turn in range(4):
        tell(user, "make")  # which a manager is needed for
        assert line_of(user) == "done"
        pid = stats(here)["pid"]
        time.sleep(0.1 * turn)  # it looks each 0.25 s
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: not is_alive(pid), "it to end")
        tell(user, "check")
        assert line_of(user) == "done"
    tell(user, "make")
    assert line_of(user) == "done"
    until(lambda: stats(here)["rings"] == 2, "all cycles but the one that is held to go")
    kill(user)


@pytest.mark.exhaustive
def test_a_name_found_while_the_manager_looks_keeps_all(here: World) -> None:
    """Whoever opens a queue of a cycle by its name in time has it whole; else it makes a new one."""
    address = here.serve()
    # One at a time, so that each finds what the one before left in a cycle that is about to end.
    code = (
        "import random, time, shmtensor.multiprocessing as mp\n"
        "from shmtensor.manager import client\n"
        "made = found = 0\n"
        "for turn in range(40):\n"
        "    a = mp.Queue(name='a')\n"
        "    if a.empty():\n"
        "        made += 1; b = mp.Queue(); b.put(a); b.put('b'); a.put(b); a.put('a')\n"
        "    else:\n"
        "        found += 1; b = a.get(timeout=20); assert a.get(timeout=20) == 'a'\n"
        "        back = b.get(timeout=20); assert b.get(timeout=20) == 'b' and back._ring is a._ring\n"
        "        b.put(back); b.put('b'); a.put(b); a.put('a'); del back\n"
        "    del a, b; time.sleep(random.uniform(0, 0.3) if turn % 4 else 0)\n"
        "print(made, found)\n"
    )
    made, found = map(int, here.run(code, env={"SHMTENSOR_MANAGER": os.fsdecode(address)}).split())
    assert made + found == 40 and made and found
    until(lambda: here.observe(address)["stats"]["rings"] == 0, "the last of them to go")


def test_a_ticket_keeps_a_cycle(manager: client.Manager) -> None:
    ours, theirs = mp.Pipe()
    ours.send(ring_of(2)[0])
    gc.collect()
    for _ in range(4):
        manager.gc()
    found = theirs.recv()
    found.get()
    assert found.get()[0] == "next"
