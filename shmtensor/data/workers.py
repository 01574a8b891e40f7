"""The crew of a loader or pool: worker processes that are started, watched, replaced and ended.

Each worker has its own queue of jobs, and all share one queue of results. Workers ignore SIGINT and SIGTERM, which
terminals and batch systems send to whole groups: the parent decides when they end. They end when the parent ends,
whatever the reason.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import parent_process, resource_tracker, util
from pathlib import Path
from typing import Any, Final

from ..errors import ShmTensorError, WorkerDied
from ..ipc.queues import Empty, SimpleQueue
from .fork_server import ForkServerWorker, start_server
from .shipping import Shipment

__all__ = ["Crew", "Member"]

_GRACE: Final = 0.25
"""Seconds for a worker to end by itself once it is asked to; it may be in the middle of a sample."""
_MEANT_FOR_THE_PROGRAM: Final = (signal.SIGINT, signal.SIGTERM)


class Member:
    """One worker process.

    Attributes:
        number: its place in the crew, from 0; a replacement has its predecessor's place.
        word: a number above 0, unique among all processes of the crew; it identifies the worker in claims.
        jobs: the queue that it takes jobs from.
        process: the process object.
    """

    def __init__(self, number: int, word: int, process: Any, jobs: SimpleQueue[Any]) -> None:
        self.number: int = number
        self.word: int = word
        self.process: Any = process
        self.jobs: SimpleQueue[Any] = jobs

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid  # type: ignore[no-any-return]

    def unread(self) -> list[Any]:
        """Take back the jobs that it has not taken yet. Does not block."""
        found: list[Any] = []
        with suppress(Empty):
            while True:
                found.append(self.jobs._ring.get(False, None))
        return found

    def is_stopped(self) -> bool:
        """Whether a signal such as SIGSTOP has stopped it. Does not block."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"T", b"t")
        except OSError:
            return False

    def death(self, doing: str) -> WorkerDied:
        """Return the error for a worker that ended unexpectedly.

        Args:
            doing: text about what it was doing, and advice, for the message.
        """
        code = self.process.exitcode
        name = None
        if code < 0:
            known = {number.value: number.name for number in signal.Signals}
            name = known.get(-code, f"signal {-code}")
        how = f"ended with exit code {code}" if name is None else f"was killed by {name}"
        cause = _CAUSES.get(name or "", _EXITED if name is None else "see the kernel's log")
        return WorkerDied(f"worker {self.number} (pid {self.pid}) {how} {doing}; {cause}", self.pid, code, name)


_EXITED: Final = "code that it ran may have called exit, or the process failed to start: see its standard error"
_CAUSES: Final = {
    "SIGKILL": "the likely cause is the kernel's out-of-memory killer (see dmesg): use fewer workers",
    "SIGSEGV": "the likely cause is a fault in native code that it ran: run that without workers to see",
    "SIGABRT": "native code that it ran called abort: see its standard error",
    "SIGBUS": "the likely cause is memory or a file that was truncated, or a full /dev/shm",
    "SIGFPE": "the likely cause is a division by zero in native code that it ran",
    "SIGXCPU": "it used more processor time than ulimit -t allows",
}


class Crew:
    """Worker processes that run `target(word, number, jobs, results, *arguments)`.

    It ends its workers when it is dropped, and at the interpreter's exit.

    Args:
        context: context of shmtensor.multiprocessing that starts the processes.
        count: number of workers.
        target: function that they run; it returns once it takes None from `jobs`.
        arguments: further arguments.

    Attributes:
        members: the workers, by place.
        results: the queue from the workers.

    Raises as starting a process does; then none is left.
    """

    def __init__(self, context: Any, count: int, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._context, self._target = context, target
        self._arguments = arguments if context.get_start_method() == "fork" else Shipment(arguments)
        self._last_word = 0
        self.results: SimpleQueue[Any] = SimpleQueue(ctx=context)
        self.members: list[Member] = []
        self._pid = os.getpid()
        self.stop: util.Finalize[None] = util.Finalize(self, _stop, args=(self.members, self._pid), exitpriority=20)
        try:
            for number in range(count):
                self._start(number)
        except BaseException:
            self.stop()
            raise

    def _start(self, number: int) -> Member:
        self._last_word += 1
        jobs: SimpleQueue[Any] = SimpleQueue(ctx=self._context)
        arguments = (self._last_word, number, jobs, self.results)
        method = self._context.get_start_method()
        kind = ForkServerWorker if method == "forkserver" else self._context.Process
        process = kind(
            target=_run, args=(self._target, arguments, self._arguments), name=f"DataWorker-{number}", daemon=True
        )
        member = Member(number, self._last_word, process, jobs)
        if method == "forkserver":
            start_server(_deferred)
        elif method == "spawn":
            resource_tracker.ensure_running()  # its start would unblock signals
        with _deferred():  # so no worker gets them before it ignores them, and none is forgotten
            process.start()
            self.members[number : number + 1] = [member]
        return member

    def send(self, job: Any) -> None:
        """Put a job into the queue of each worker. Blocks only for memory; raises as SimpleQueue.put."""
        for member in self.members:
            member.jobs.put(job)

    def ended(self) -> list[Member]:
        """The workers that have ended. Does not block."""
        return [member for member in self.members if member.process.exitcode is not None]

    def replace(self, member: Member) -> Member:
        """Start a worker in the place of one that has ended. Raises as starting a process does."""
        member.process.join()
        return self._start(member.number)

    def wait(self, seconds: float) -> Any:
        """Return the next result; None if none came. Blocks up to `seconds`; raises as SimpleQueue.get."""
        with suppress(Empty):
            return self.results._ring.get(True, seconds)
        return None

    def is_inherited(self) -> bool:
        """Whether this process is a fork of the one that started the workers, so they are not its children."""
        return os.getpid() != self._pid


@contextmanager
def _deferred() -> Iterator[None]:
    """Defer SIGINT and SIGTERM to the end of a `with` statement. Processes started within begin with them blocked.

    Blocking them is not enough: another thread of the process may take a signal, and its Python handler is then called
    in the main thread.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _MEANT_FOR_THE_PROGRAM)
    handlers: dict[int, Any] = {}
    came: list[int] = []
    try:
        if threading.current_thread() is threading.main_thread():
            for number in _MEANT_FOR_THE_PROGRAM:
                handler = signal.getsignal(number)
                if callable(handler):  # not SIG_DFL and SIG_IGN, which are members of an enumeration
                    handlers[number] = handler
                    signal.signal(number, lambda one, _: came.append(one))
        yield
    finally:
        try:
            for replaced, handler in handlers.items():
                signal.signal(replaced, handler)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for one in came:
            signal.raise_signal(one)


def _stop(members: list[Member], pid: int) -> None:
    """End the workers: ask them to, and kill those that do not end soon. Ctrl-C is deferred."""
    if os.getpid() == pid:
        with _deferred():
            _end(members)


def _end(crew: list[Member]) -> None:
    members = crew[:]
    crew.clear()  # so that threads that still run at the interpreter's exit do not report these as dead
    for member in members:
        with suppress(ShmTensorError, OSError):
            member.jobs.put(None)
    deadline = time.monotonic() + _GRACE
    for member in members:
        member.process.join(max(0.0, deadline - time.monotonic()))
    for member in members:
        if member.process.exitcode is None:
            member.process.kill()
    for member in members:
        member.process.join()


# ---------------------------------------------------------------------------------------------------------- the worker


def _run(target: Callable[..., Any], arguments: tuple[Any, ...], more: Any) -> None:
    for number in _MEANT_FOR_THE_PROGRAM:
        signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _MEANT_FOR_THE_PROGRAM)
    _end_with_parent()
    target(*arguments, *more)


def _ignore(number: int, frame: Any) -> None:
    """Ignore a signal, as SIG_IGN does, except that programs started here have the default action."""


def _end_with_parent() -> None:
    """Let this process be killed when its parent ends, or at once if it has ended. Does not block.

    A thread waits for the end, so a process that a signal has stopped ends only once it is continued. The kernel's
    signal for the parent's death (PR_SET_PDEATHSIG) would not wait, but it is sent when the thread that started the
    process ends, or the fork server.
    """
    parent = parent_process()
    assert parent is not None and parent.pid is not None
    try:
        pidfd = os.pidfd_open(parent.pid)
    except ProcessLookupError:
        os._exit(1)
    if not parent.is_alive():  # the pid may have been reused
        os._exit(1)
    threading.Thread(target=_await_end, args=(pidfd,), name="shmtensor-parent", daemon=True).start()


def _await_end(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll()
    os.kill(os.getpid(), signal.SIGKILL)
