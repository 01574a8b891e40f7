"""Groups of processes that end together: `spawn`, `start_processes`, `ProcessContext`, as in torch.multiprocessing.

Each process calls `fn(i, *args)`. When one fails, the others are ended, and its traceback is raised in the parent. A
process also ends when its parent ends: at its start SIGTERM is unblocked and gets its default action, and the parent's
death sends that signal. Only a handler that `fn` installs can prevent this.

The traceback is passed in a memory file of the parent: the child can write it without a reader, and the file survives a
kill of the child and leaves no name behind.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import select
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import connection, reduction
from typing import Any, Literal, overload

from .._native import Descriptor
from ..errors import InvalidArgument, ShmTensorError, type_name
from ..storage.arguments import require_integer
from .processes import context_of

GRACE_SECONDS = 30.0
"""Default time from SIGTERM to SIGKILL, as in torch."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LENGTH = struct.Struct("=Q")  # bytes of text that follow; 0 until the text is complete


class ProcessException(ShmTensorError, RuntimeError):
    """One of several processes failed, and the others have been ended.

    Attributes:
        msg: the message.
        error_index: index of the process, from 0.
        pid: its process id; also `error_pid`, torch's name.
    """

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.pid: int = pid
        self.error_pid: int = pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """An exception was raised in `fn`; the message contains the traceback of the child."""


class ProcessExitedException(ProcessException):
    """The process was killed by a signal, or exited with a non-zero status without an exception in `fn`.

    Attributes:
        exit_code: exit status, or the negative signal number.
        signal_name: for example "SIGKILL"; None without a signal.
    """

    def __init__(self, msg: str, error_index: int, pid: int, exit_code: int, signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


class _Report:
    """A text from a child to its parent, in a memory file. No method blocks."""

    def __init__(self, fd: int | None = None) -> None:
        self._file = Descriptor(os.memfd_create("shmtensor-report") if fd is None else fd)
        self.close = self._file.close

    def __reduce__(self) -> tuple[Any, ...]:
        return _Report._arrive, (reduction.DupFd(self._file.number),)

    @classmethod
    def _arrive(cls, duplicate: Any) -> _Report:
        fd: int = duplicate.detach()
        os.set_inheritable(fd, False)
        return cls(fd)

    def write(self, text: str) -> None:
        data = text.encode(errors="backslashreplace")
        if not self._file.is_ours:  # the program closed it
            sys.stderr.write(text)
            return
        with open(self._file.number, "wb", closefd=False) as file:
            file.seek(0)  # all processes that have this file share its position
            file.write(bytes(_LENGTH.size) + data)
        os.pwrite(self._file.number, _LENGTH.pack(len(data)), 0)  # the text is valid from here on

    def read(self) -> str | None:
        """Return the text; None if it is missing or incomplete, or if this program closed the file."""
        if not self._file.is_ours:
            return None
        with open(self._file.number, "rb", closefd=False) as file:
            file.seek(0)
            (length,) = _LENGTH.unpack(file.read(_LENGTH.size).ljust(_LENGTH.size, b"\0"))
            return file.read(length).decode() if length else None


def _end_with_parent(is_direct: bool) -> None:
    """Send this process SIGTERM when its parent ends, or at once if it has ended. Does not block.

    The kernel's signal (prctl(2), PR_SET_PDEATHSIG) reaches even a child that never returns to the interpreter. But it
    is sent at the end of the thread that started the child, or of the fork server. So it is used only for children of
    a main thread (`is_direct`); for others, a thread waits for the parent's end.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked child has its parent's handler
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    parent = multiprocessing.parent_process()
    assert parent is not None and parent.pid is not None
    if is_direct:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed; a sandbox may forbid it")
        has_parent = os.getppid() == parent.pid  # else it ended before prctl, and there will be no signal
    else:
        try:
            pidfd = os.pidfd_open(parent.pid)
        except ProcessLookupError:
            has_parent = False
        else:
            threading.Thread(target=_await_end, args=(pidfd,), name="shmtensor-parent", daemon=True).start()
            has_parent = parent.is_alive()  # else the pid may have been reused already
    if not has_parent:
        signal.raise_signal(signal.SIGTERM)


def _await_end(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)


def _run(fn: Callable[..., Any], index: int, args: Sequence[Any], report: _Report, is_direct: bool) -> None:
    _end_with_parent(is_direct)
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)  # as in shells; for Ctrl-C the parent's traceback is enough
    except SystemExit:
        raise
    except BaseException:
        report.write(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """Processes that were started together.

    Attributes:
        processes: the process objects, by index.
        sentinels: sentinel -> index of each process whose end has not been seen yet.
    """

    def __init__(self, processes: Sequence[Any], reports: Sequence[_Report]) -> None:
        self.processes: list[Any] = list(processes)
        self.sentinels: dict[int, int] = {process.sentinel: index for index, process in enumerate(self.processes)}
        self._reports = list(reports)
        self._failure: ProcessException | None = None

    def pids(self) -> list[int]:
        """Return the process ids, by index. Does not block."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until every process has ended or one has failed. Blocks up to `timeout` seconds.

        After a failure, or a KeyboardInterrupt here, the other processes get SIGTERM, and SIGKILL after `grace_period`.
        That time is in addition to `timeout`; another KeyboardInterrupt ends it early. Torch's `join` may return False
        whenever a process has ended; a loop around it works here too.

        Args:
            timeout: seconds; None: no bound; 0 or less: do not wait.
            grace_period: seconds from SIGTERM to SIGKILL; None: `GRACE_SECONDS`.

        Returns:
            True if all have ended with status 0, False if `timeout` expired.

        Raises:
            ProcessRaisedException: `fn` raised in a process. Later calls raise it again.
            ProcessExitedException: a process was killed, or exited with a non-zero status. Later calls raise it again.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            in_time = self._wait(deadline)
            if self._failure is not None:
                self.sentinels.clear()
                self._end(grace_period)
        except KeyboardInterrupt:
            self._end(grace_period)
            raise
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        return in_time

    def _wait(self, deadline: float | None) -> bool:
        """Wait until all processes have ended, or one has failed. Returns False if the deadline passes before."""
        while self.sentinels and self._failure is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ended: list[Any] = connection.wait(list(self.sentinels), left)
            if not ended:
                return False
            for index in sorted(self.sentinels.pop(sentinel) for sentinel in ended):
                self.processes[index].join()
                self._failure = self._failure or self._failure_of(index)
        return True

    def _failure_of(self, index: int) -> ProcessException | None:
        """Return the exception for process `index`, which has ended; None if it succeeded."""
        pid, code = self.processes[index].pid, self.processes[index].exitcode
        text = self._reports[index].read()
        self._reports[index].close()
        if code == 0:
            return None
        if text is not None:
            message = f"\n\n-- Process {index} (pid {pid}) terminated with the following error:\n{text}"
            return ProcessRaisedException(message, index, pid)
        known = {number.value: number.name for number in signal.Signals}
        name = None if code > 0 else known.get(-code, f"<Unknown signal {-code}>")
        how = f"exit code {code}" if name is None else f"signal {name}"
        advice = "see its standard error, or the kernel's log if it used too much memory"
        message = f"process {index} terminated with {how} (pid {pid}); {advice}"
        return ProcessExitedException(message, index, pid, code, name)

    def _end(self, grace_period: float | None) -> None:
        """End the processes that are still running. Blocks up to the grace period."""
        deadline = time.monotonic() + (GRACE_SECONDS if grace_period is None else grace_period)
        try:
            for process in [p for p in self.processes if p.is_alive()]:
                process.terminate()
            for process in self.processes:
                process.join(max(0.0, deadline - time.monotonic()))
        finally:
            for process in [p for p in self.processes if p.is_alive()]:
                process.kill()
                process.join()


@overload
def start_processes(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: Literal[True] = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> None: ...
@overload
def start_processes(
    fn: Callable[..., Any],
    args: Sequence[Any],
    nprocs: int,
    join: Literal[False],
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext: ...
@overload
def start_processes(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    *,
    join: Literal[False],
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext: ...
@overload
def start_processes(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None: ...
def start_processes(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Start processes that call `fn(i, *args)` with i from 0. Blocks until all have ended, unless `join` is false.

    Args:
        fn: a function that the children can import; with "fork", any callable.
        args: a tuple or list. Tensors in it are sent by handle, so all processes share their memory.
        nprocs: number of processes, at least 1.
        join: wait for them (`ProcessContext.join`).
        daemon: end them when this program ends, instead of waiting for them.
        start_method: "spawn", "fork" or "forkserver".

    Returns:
        None, or the ProcessContext if `join` is false.

    Raises:
        InvalidArgument: an invalid argument.
        ProcessRaisedException, ProcessExitedException: as `ProcessContext.join`.
    """
    if not callable(fn):
        raise InvalidArgument(f"fn must be callable as fn(i, *args), and {fn!r} is not; pass the function itself")
    if not isinstance(args, tuple | list):
        raise InvalidArgument(f"args must be a tuple or list, not {type_name(args)}; write args=(value,) for one")
    nprocs = require_integer("nprocs", nprocs, 1)
    methods = multiprocessing.get_all_start_methods()
    if start_method not in methods:
        raise InvalidArgument(f"unknown start method {start_method!r}; choose one of {', '.join(methods)}")
    context = context_of(start_method)
    is_direct = start_method != "forkserver" and threading.current_thread() is threading.main_thread()
    processes: list[Any] = []
    reports: list[_Report] = []
    try:
        for index in range(nprocs):
            report = _Report()
            process = context.Process(target=_run, args=(fn, index, args, report, is_direct), daemon=daemon)
            process.start()
            processes.append(process)
            reports.append(report)
    except BaseException:
        ProcessContext(processes, reports)._end(None)
        raise
    started = ProcessContext(processes, reports)
    if join:
        started.join()
    return None if join else started


spawn = start_processes
"""torch's name of the function. Other start methods than "spawn" work here as well."""
