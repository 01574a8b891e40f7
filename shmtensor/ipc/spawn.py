"""Several processes, ended together: `spawn`, `start_processes` and `ProcessContext`, as in torch.multiprocessing.

Each process calls `fn(i, *args)`. The first that fails ends the others, and its traceback is raised in the parent. A
process that was started here ends when its parent does: at its start SIGTERM gets its default action back and is
unblocked, and the parent's death brings that signal. Only a handler that `fn` installs itself can put that end off.

The traceback crosses in a memory file which the parent made: it needs no reader while the child writes, stays when the
child is killed, and has no name to clean up.
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
from typing import Any

from .._native import Descriptor
from ..errors import InvalidArgument, ShmTensorError, type_name
from .processes import context_of

GRACE_SECONDS = 30.0
"""From SIGTERM to SIGKILL where the caller names no grace period; torch's figure."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LENGTH = struct.Struct("=Q")  # bytes of text behind it; 0 until the text is whole


class ProcessException(ShmTensorError, RuntimeError):
    """A process that was started together with others failed; the others have been ended.

    Attributes:
        msg: the message. error_index: the process's index, from 0. pid, error_pid (torch's name): its process id.
    """

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.pid = self.error_pid = pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """`fn` raised; the message holds the whole traceback of the child."""


class ProcessExitedException(ProcessException):
    """The process was killed by a signal, or exited with another status than 0 without an exception in `fn`.

    Attributes:
        exit_code: its exit status, or minus the signal's number. signal_name: "SIGKILL", say; None without a signal.
    """

    def __init__(self, msg: str, error_index: int, pid: int, exit_code: int, signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


class _Report:
    """One text from a child to its parent, in a memory file. None of its methods block."""

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
            file.seek(0)  # the position is one for all processes that have this file
            file.write(bytes(_LENGTH.size) + data)
        os.pwrite(self._file.number, _LENGTH.pack(len(data)), 0)  # from here on it counts

    def read(self) -> str | None:
        """The text; None when there is none, or not all of it, or when this program closed the file."""
        if not self._file.is_ours:
            return None
        with open(self._file.number, "rb", closefd=False) as file:
            file.seek(0)
            (length,) = _LENGTH.unpack(file.read(_LENGTH.size).ljust(_LENGTH.size, b"\0"))
            return file.read(length).decode() if length else None


def _end_with_parent(is_direct: bool) -> None:
    """Let SIGTERM come when the parent ends, or at once when it has ended already. Does not block.

    The kernel's own signal (prctl(2), PR_SET_PDEATHSIG) reaches even a child that never gives back the interpreter. But
    it comes with the end of the THREAD that started the child, and of the fork server where that one forked it: so it
    serves children of a main thread only (`is_direct`), and for the others a thread waits for the parent's end.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked child has its parent's handler
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    parent = multiprocessing.parent_process()
    assert parent is not None and parent.pid is not None
    if is_direct:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed; a sandbox may forbid it")
        has_parent = os.getppid() == parent.pid  # else it ended before prctl, and nothing would come
    else:
        try:
            pidfd = os.pidfd_open(parent.pid)
        except ProcessLookupError:
            has_parent = False
        else:
            threading.Thread(target=_await_end, args=(pidfd,), name="shmtensor-parent", daemon=True).start()
            has_parent = parent.is_alive()  # else the number may have been another process's already
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
        sys.exit(128 + signal.SIGINT)  # as a shell has it; the parent's traceback is enough for a ^C
    except SystemExit:
        raise
    except BaseException:
        report.write(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """Processes that were started together.

    Attributes:
        processes: the process objects, by index. sentinels: of those not yet seen to end, sentinel -> index.
    """

    def __init__(self, processes: Sequence[Any], reports: Sequence[_Report]) -> None:
        self.processes = list(processes)
        self.sentinels: dict[int, int] = {process.sentinel: index for index, process in enumerate(self.processes)}
        self._reports = list(reports)
        self._failure: ProcessException | None = None

    def pids(self) -> list[int]:
        """The process ids, by index. Does not block."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until every process has ended, or one has failed. Blocks, up to `timeout`.

        After a failure, and after a KeyboardInterrupt here, the others are ended: SIGTERM, and SIGKILL for those that
        are there `grace_period` later. That comes on top of `timeout`; a further KeyboardInterrupt cuts it short.
        Torch's `join` may give False whenever some process has ended; a loop around it works here too.

        Args:
            timeout: seconds; None waits without a bound, 0 or less only looks.
            grace_period: seconds from SIGTERM to SIGKILL; None is `GRACE_SECONDS`.

        Returns:
            True when all have ended with status 0; False when the time was up first.

        Raises:
            ProcessRaisedException: `fn` raised in a process. This, like the next, is raised by later calls again.
            ProcessExitedException: a process was killed, or exited with another status than 0.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while self.sentinels and self._failure is None:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                ended: list[Any] = connection.wait(list(self.sentinels), left)
                if not ended:
                    return False
                for index in sorted(self.sentinels.pop(sentinel) for sentinel in ended):
                    self.processes[index].join()
                    self._failure = self._failure or self._failure_of(index)
                if self._failure is not None:
                    self.sentinels.clear()
                    self._end(grace_period)
        except KeyboardInterrupt:
            self._end(grace_period)
            raise
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        return True

    def _failure_of(self, index: int) -> ProcessException | None:
        """Why process `index`, which has ended, counts as failed."""
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
        advice = "its standard error may say why, or the kernel's log if it used too much memory"
        message = f"process {index} terminated with {how} (pid {pid}); {advice}"
        return ProcessExitedException(message, index, pid, code, name)

    def _end(self, grace_period: float | None) -> None:
        """End the processes that still run. Blocks, up to the grace period."""
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


def start_processes(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Start processes that call `fn(i, *args)`, i from 0. Blocks until all have ended, unless `join` is false.

    Args:
        fn: a function that the children can import; with "fork", any callable.
        args: a tuple or list. Tensors in it go by handle: all processes have the same memory.
        nprocs: how many, 1 or more.
        join: wait for them (`ProcessContext.join`).
        daemon: end them when this program ends, rather than wait for them then.
        start_method: "spawn", "fork" or "forkserver".

    Returns:
        None, or the ProcessContext if `join` is false.

    Raises:
        InvalidArgument: an argument is none of the above.
        ProcessRaisedException, ProcessExitedException: as `ProcessContext.join`.
    """
    if not callable(fn):
        raise InvalidArgument(f"fn has to be callable, as fn(i, *args), and {fn!r} is not; pass the function itself")
    if not isinstance(args, tuple | list):
        raise InvalidArgument(f"args has to be a tuple or list, not {type_name(args)}; write args=(value,) for one")
    if not isinstance(nprocs, int) or isinstance(nprocs, bool) or nprocs < 1:
        raise InvalidArgument(f"nprocs has to be a whole number of processes, 1 or more, not {nprocs!r}")
    methods = multiprocessing.get_all_start_methods()
    if start_method not in methods:
        raise InvalidArgument(f"there is no start method {start_method!r}; choose one of {', '.join(methods)}")
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
"""The name that torch's programs use; there other start methods are refused, here they work."""
