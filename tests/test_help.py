"""Descriptions of the objects and functions of shmtensor.multiprocessing: signatures, help, reprs."""

from __future__ import annotations

import ast
import ctypes
import inspect
import os
import pydoc
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broadcast_world import finish
from manager_world import BOUND
from ring_bytes import GET_LOCK, PUT_LOCK

import shmtensor.multiprocessing as mp
from shmtensor.ipc import broadcast, connection, pool, queues, synchronize

MADE: dict[str, Callable[..., Any]] = {
    "Barrier": synchronize.Barrier,
    "BoundedSemaphore": synchronize.BoundedSemaphore,
    "Broadcast": broadcast.Broadcast,
    "Condition": synchronize.Condition,
    "Event": synchronize.Event,
    "JoinableQueue": queues.JoinableQueue,
    "Lock": synchronize.Lock,
    "Pipe": connection.Pipe,
    "Pool": pool.Pool,
    "Queue": queues.Queue,
    "RLock": synchronize.RLock,
    "Semaphore": synchronize.Semaphore,
    "SimpleQueue": queues.SimpleQueue,
}
"""What the factories of contexts make, or call."""


def parameters(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
    """But for what a factory gives itself, and for what is private."""
    return [
        (one.name, one.kind, one.default)
        for one in inspect.signature(function).parameters.values()
        if one.name not in ("ctx", "context") and not one.name.startswith("_")
    ]


def test_these_are_all_factories() -> None:
    made = [name for name in dir(mp._Objects) if name in vars(mp._Objects) and name[0].isupper()]
    assert made == sorted(MADE)


@pytest.mark.parametrize("name", MADE)
def test_a_factory_shows_what_it_makes(name: str) -> None:
    made = MADE[name]
    for factory in (getattr(mp, name), getattr(mp.get_context("spawn"), name)):
        assert parameters(factory) == parameters(made)
        shown = inspect.getdoc(factory)
        assert shown is not None
        assert "See shmtensor" not in shown
        for part in (made, made.__init__) if isinstance(made, type) else (made,):  # type: ignore[misc]
            said = inspect.getdoc(part)
            assert said is not None
            assert re.sub(r"^ +(ctx|context): .*\n", "", said, flags=re.MULTILINE) in shown
        first = (inspect.getdoc(made) or "").split("\n")[0]
        assert first in pydoc.render_doc(factory, renderer=pydoc.plaintext)
        for parameter in inspect.signature(factory).parameters:
            assert parameter not in ("ctx", "context")


def test_what_is_exported_is_what_the_standard_module_takes_from_its_context() -> None:
    context = mp._default_context
    for name in [name for name in dir(context) if not name.startswith("_")]:
        assert getattr(mp, name) == getattr(context, name)
        assert name in mp.__all__
    assert mp.__all__ == sorted(set(mp.__all__))
    for name in mp.__all__:
        assert getattr(mp, name) is not None


def test_every_public_name_is_exported() -> None:
    public = {name for name in vars(mp) if not name.startswith("_") and not inspect.ismodule(getattr(mp, name))}
    own = {name for name in public if getattr(getattr(mp, name), "__module__", mp.__name__) == mp.__name__}
    assert own - set(mp.__all__) == {"SUBDEBUG", "SUBWARNING"}


def test_every_function_says_what_it_does() -> None:
    for name in mp.__all__:
        function = getattr(mp, name)
        if inspect.isroutine(function) and function.__module__.startswith("shmtensor"):
            assert inspect.getdoc(function), name


def test_a_program_without_docstrings_runs() -> None:
    code = "import shmtensor.multiprocessing as mp; print(mp.Queue.__doc__ or None)"
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, timeout=BOUND)
    assert (done.stdout, done.returncode) == ("None\n", 0), done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_context_gives_those_of_this_module(method: str) -> None:
    for source in (mp, mp.get_context("fork"), mp.get_context("spawn")):
        assert source.get_context(method) is mp.get_context(method)
    assert mp.get_context(method).get_context() is mp.get_context(method)
    with pytest.raises(ValueError, match="cannot find context"):
        mp.get_context("fork").get_context("thread")


# ---------------------------------------------------------------------------------------------------------------- reprs


def test_queues() -> None:
    q = mp.Queue(10, maxbytes=1000)
    q.put("a")
    assert repr(q) == "<Queue(messages=1, maxsize=10, maxbytes=1000)>"
    assert repr(mp.SimpleQueue()) == "<SimpleQueue(messages=0, maxsize=0, maxbytes=0)>"
    assert repr(mp.JoinableQueue(3)) == "<JoinableQueue(messages=0, maxsize=3, maxbytes=0)>"
    assert repr(mp.Queue(2, name="named")) == "<Queue(name='named', messages=0, maxsize=2, maxbytes=0)>"
    q.close()
    assert repr(q) == "<Queue(messages=1, maxsize=10, maxbytes=1000, closed=True)>"
    with pytest.raises(ValueError, match=r"Queue <Queue\(messages=1.* is closed"):
        q.put("b")


def test_broadcasts_and_readers() -> None:
    cast = mp.Broadcast(5, maxbytes=1000, policy="drop_oldest", name="news")
    reader = cast.reader()
    for i in range(7):
        cast.put(i)
    facts = "name='news', messages=5, maxsize=5, maxbytes=1000, policy='drop_oldest'"
    assert repr(cast) == f"<Broadcast({facts})>"
    assert reader.latest() == 6
    cast.put(7)
    bounds = "maxsize=5, maxbytes=1000"
    assert repr(reader) == f"<BroadcastReader(name='news', lag=1, missed=2, skipped=4, {bounds})>"
    reader.close()
    cast.close()
    assert repr(reader) == f"<BroadcastReader(name='news', closed=True, {bounds})>"
    assert "closed=True" in repr(cast)


def test_locks() -> None:
    assert repr(mp.Lock()) == "<Lock(owner=None)>"
    lock = mp.Lock(name="a-lock")
    assert repr(lock) == "<Lock(owner=None, name='a-lock')>"
    with lock:
        assert repr(lock) == "<Lock(owner=MainProcess, name='a-lock')>"
    assert repr(mp.RLock(name="r-lock")) == "<RLock(None, 0, name='r-lock')>"
    assert repr(mp.Semaphore(3, name="units")) == "<Semaphore(value=3, name='units')>"
    assert repr(mp.BoundedSemaphore(3, name="most")) == "<BoundedSemaphore(value=3, maxvalue=3, name='most')>"
    assert re.fullmatch(r"<Event at 0x\w+ name='flag' unset>", repr(mp.Event(name="flag")))
    assert repr(mp.Condition(name="told")) == "<Condition(<RLock(None, 0, name='told')>, 0, name='told')>"


KINDS = [name for name in MADE if name not in ("Pipe", "Pool")]


@pytest.mark.parametrize("name", KINDS)
def test_of_what_could_not_be_made(name: str) -> None:
    made: Any = MADE[name]
    assert made.__name__ in repr(made.__new__(made))


def every() -> list[Any]:
    cast = mp.Broadcast(3)
    others = [name for name in KINDS if name not in ("Barrier", "Broadcast")]
    return [cast, cast.reader(), mp.Barrier(3), *(getattr(mp, name)() for name in others)]


def show(objects: list[Any], results: Any) -> None:
    results.put([repr(one) for one in objects])


def test_in_a_forked_child() -> None:
    ctx = mp.get_context("fork")
    objects, results = every(), ctx.SimpleQueue()
    child = ctx.Process(target=show, args=(objects, results))
    child.start()
    shown = results.get()
    finish(child)
    for there, here in zip(shown, objects, strict=True):
        # Who reads here is another's there, and addresses are the same.
        assert there == repr(here) or "foreign=True" in there


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of the system call")
def test_in_a_process_that_was_forked_past_the_hooks() -> None:
    objects = every()
    ends = os.pipe()
    pid = ctypes.CDLL(None).syscall(57)
    if pid == 0:
        try:
            os.write(ends[1], repr([repr(one) for one in objects]).encode())
        finally:
            os._exit(0)
    os.close(ends[1])
    with os.fdopen(ends[0], "rb") as pipe:
        shown = ast.literal_eval(pipe.read().decode())
    os.waitpid(pid, 0)
    assert len(shown) == len(objects)
    assert all(type(one).__name__ in there for one, there in zip(objects, shown, strict=True))


def test_a_repr_waits_for_no_lock() -> None:
    q, cast, lock = mp.Queue(3), mp.Broadcast(3), mp.Lock()
    reader = cast.reader()
    assert lock.acquire()
    libc = ctypes.CDLL(None)
    mutexes = [ctypes.c_void_p(one._ring.block.address + at) for one in (q, cast) for at in (PUT_LOCK, GET_LOCK)]
    assert [libc.pthread_mutex_trylock(mutex) for mutex in mutexes] == [0] * 4
    try:
        shown = [repr(one) for one in (q, cast, reader, lock)]
    finally:
        assert [libc.pthread_mutex_unlock(mutex) for mutex in mutexes] == [0] * 4
    assert all(one.startswith("<") for one in shown)


SHOWS = """
import os, shmtensor.multiprocessing as mp
cast = mp.Broadcast(3)
every = [cast, cast.reader(), mp.Queue(), mp.Lock(), mp.RLock(), mp.Semaphore(), mp.Condition(), mp.Event()]
show = lambda: [repr(one) for one in every]
show()
os.write(2, b"BEGIN")
show()
os.write(2, b"END")
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_repr_makes_no_system_call(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    command = ["strace", "-o", str(log), sys.executable, "-c", SHOWS]
    subprocess.run(command, timeout=BOUND * 2, check=True, capture_output=True)
    lines = log.read_text().splitlines()
    begin, end = (next(i for i, line in enumerate(lines) if f'"{word}"' in line) for word in ("BEGIN", "END"))
    assert lines[begin + 1 : end] == []
