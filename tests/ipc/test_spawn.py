"""Processes started together: they share, fail and end together."""

from __future__ import annotations

import functools
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from manager_world import BOUND, is_alive, until, world
from tiers import first

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor.ipc.spawn import ProcessContext, ProcessException, _Report

METHODS = ("fork", "spawn", "forkserver")


@pytest.fixture(autouse=True)
def no_descriptors_left() -> Iterator[None]:
    before = len(_report_descriptors())
    yield
    gc.collect()
    assert len(_report_descriptors()) <= before, "memory files of reports are still open"


def _report_descriptors() -> list[str]:
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except FileNotFoundError:
            continue
    return [link for link in links if "shmtensor-report" in link]


def start(fn: Any, *args: Any, nprocs: int = 1, method: str = "fork", daemon: bool = False) -> ProcessContext:
    context = mp.start_processes(fn, args, nprocs, join=False, daemon=daemon, start_method=method)
    assert isinstance(context, ProcessContext)
    return context


def until_there(path: Path, count: int = 1) -> None:
    until(lambda: len(list(path.iterdir())) >= count, f"{count} children to get going")


# ----------------------------------------------------------------------------------------------- what the children run


def _sleep(index: int, there: Path) -> None:
    (there / str(index)).touch()
    while True:
        signal.pause()


def _sleep_deaf(index: int, there: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _sleep(index, there)


def _sleep_politely(index: int, there: Path) -> None:
    def leave(*_: Any) -> None:
        (there / "polite").touch()
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    _sleep(index, there)


def _fill_own(index: int, tensor: Any, factor: float) -> None:
    tensor[index].fill_(index * factor)


def _divide(index: int) -> None:
    try:
        [][index]
    except IndexError:
        1 / 0  # noqa: B018


def _raise_long(index: int) -> None:
    raise ValueError("x" * 1_000_000 + "\udc80 end")


class _Stop(BaseException):
    pass


def _raise_base(index: int) -> None:
    raise _Stop("base")


def _exit(index: int, status: Any) -> None:
    sys.exit(status)


def _kill_self(index: int, number: int) -> None:
    os.kill(os.getpid(), number)


def _interrupted(index: int) -> None:
    raise KeyboardInterrupt


def _one_fails(index: int, there: Path, others: Any) -> None:
    if index == 1:
        until_there(there, 2)
        raise RuntimeError("one is enough")
    others(index, there)


def _wait_for(index: int, path: Path) -> None:
    until((path / "go").exists, "the word to go")


# ------------------------------------------------------------------------------------------------------------- success


@pytest.mark.parametrize("method", METHODS)
def test_children_share_the_tensors_in_their_arguments(method: str) -> None:
    tensor = shmtensor.zeros(3, 4, shared=True)
    result = mp.spawn(_fill_own, (tensor, 2.0), nprocs=3, start_method=method)
    assert result is None
    assert tensor.tolist() == [[0.0] * 4, [2.0] * 4, [4.0] * 4]


def test_defaults_are_one_process_that_is_waited_for() -> None:
    tensor = shmtensor.zeros(1, 2)
    assert mp.spawn(_fill_own, [tensor, 1.0]) is None
    assert tensor.is_shared()


def test_join_times_out_and_then_is_done(tmp_path: Path) -> None:
    context = start(_wait_for, tmp_path, nprocs=2)
    assert context.pids() == [process.pid for process in context.processes]
    assert sorted(context.sentinels.values()) == [0, 1]
    assert context.join(timeout=0) is False
    assert context.join(timeout=0.05) is False
    (tmp_path / "go").touch()
    assert context.join(BOUND) is True
    assert context.sentinels == {}
    assert context.join() is True


def test_daemons(tmp_path: Path) -> None:
    context = start(_wait_for, tmp_path, daemon=True)
    assert context.processes[0].daemon
    (tmp_path / "go").touch()
    assert context.join(BOUND)


# ------------------------------------------------------------------------------------------------------------- failing


@pytest.mark.parametrize("method", METHODS)
def test_a_child_that_raises(method: str) -> None:
    context = start(_divide, method=method)
    with pytest.raises(mp.ProcessRaisedException) as caught:
        context.join(BOUND)
    error = caught.value
    assert isinstance(error, errors.ShmTensorError) and isinstance(error, RuntimeError)
    assert (error.error_index, error.pid) == (0, context.pids()[0])
    for text in ("Process 0", "in _divide", "IndexError", "During handling", "ZeroDivisionError: division by zero"):
        assert text in str(error)
    with pytest.raises(mp.ProcessRaisedException) as again:
        context.join()
    assert again.value is error


def test_a_long_traceback_is_whole() -> None:
    with pytest.raises(mp.ProcessRaisedException, match=r"x{1000000}\\udc80 end\n$"):
        start(_raise_long).join(BOUND)


def test_exceptions_outside_of_exception_are_told_too() -> None:
    with pytest.raises(mp.ProcessRaisedException, match=r"_Stop: base"):
        start(_raise_base).join(BOUND)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_a_child_that_is_killed(method: str, name: str) -> None:
    context = start(_kill_self, signal.Signals[name], method=method)
    with pytest.raises(mp.ProcessExitedException, match=name) as caught:
        context.join(BOUND)
    error = caught.value
    assert (error.error_index, error.pid, error.signal_name) == (0, context.pids()[0], name)
    assert error.exit_code == -signal.Signals[name]


def test_a_signal_without_a_name() -> None:
    with pytest.raises(mp.ProcessExitedException) as caught:
        start(_kill_self, signal.SIGRTMIN + 3).join(BOUND)
    assert caught.value.signal_name == f"<Unknown signal {signal.SIGRTMIN + 3}>"


@pytest.mark.parametrize("method", METHODS)
def test_a_child_that_exits(method: str) -> None:
    with pytest.raises(mp.ProcessExitedException, match="exit code 3") as caught:
        start(_exit, 3, method=method).join(BOUND)
    assert (caught.value.exit_code, caught.value.signal_name) == (3, None)
    assert start(_exit, 0, method=method).join(BOUND)


def test_an_interrupted_child_has_not_succeeded() -> None:
    with pytest.raises(mp.ProcessExitedException) as caught:
        start(_interrupted).join(BOUND)
    assert caught.value.exit_code == 130


def test_half_a_report_is_none() -> None:
    report = _Report()
    assert report.read() is None
    os.pwrite(report._file.number, b"\0" * 8 + b"Traceback (most", 0)  # killed before its length was written
    assert report.read() is None
    report.write("whole\n")
    assert report.read() == "whole\n"
    report.close()


def test_errors_cross_processes() -> None:
    exited = mp.ProcessExitedException("m", 1, 2, -9, "SIGKILL")
    for error in (exited, mp.ProcessRaisedException("m", 1, 2)):
        arrived: ProcessException = pickle.loads(pickle.dumps(error))
        assert type(arrived) is type(error)
        assert vars(arrived) == vars(error)
        assert arrived.error_pid == arrived.pid


# ---------------------------------------------------------------------------------------------------- ending the others


@pytest.mark.parametrize("method", METHODS)
def test_the_first_failure_ends_the_others(tmp_path: Path, method: str) -> None:
    context = start(_one_fails, tmp_path, _sleep, nprocs=3, method=method)
    with pytest.raises(mp.ProcessRaisedException, match="one is enough") as caught:
        context.join(BOUND)
    assert caught.value.error_index == 1
    assert [process.exitcode for process in context.processes] == [-signal.SIGTERM, 1, -signal.SIGTERM]
    assert not any(is_alive(pid) for pid in context.pids())


def test_those_that_refuse_are_killed_after_the_grace_period(tmp_path: Path) -> None:
    context = start(_one_fails, tmp_path, _sleep_deaf, nprocs=3)
    with pytest.raises(mp.ProcessRaisedException):
        context.join(BOUND, grace_period=0.2)
    assert [process.exitcode for process in context.processes] == [-signal.SIGKILL, 1, -signal.SIGKILL]


def test_those_that_clean_up_have_time_for_it(tmp_path: Path) -> None:
    context = start(_one_fails, tmp_path, _sleep_politely, nprocs=3)
    with pytest.raises(mp.ProcessRaisedException):
        context.join(BOUND)
    assert [process.exitcode for process in context.processes] == [0, 1, 0]
    assert (tmp_path / "polite").exists()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_in_the_parent_ends_the_children(tmp_path: Path, method: str) -> None:
    main = threading.main_thread().ident or 0

    def waits() -> bool:
        callers, frame = [], sys._current_frames()[main].f_back
        while frame is not None:
            callers.append(frame.f_code)
            frame = frame.f_back
        return mp.ProcessContext.join.__code__ in callers

    def interrupt() -> None:
        until_there(tmp_path, 2)
        until(waits, "the main thread to wait for the children")
        signal.pthread_kill(main, signal.SIGINT)

    context = start(_sleep, tmp_path, nprocs=2, method=method)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        context.join(BOUND)
    thread.join(BOUND)
    assert not any(is_alive(pid) for pid in context.pids())
    with pytest.raises(mp.ProcessExitedException, match="SIGTERM"):
        context.join()


class _PicklesOnce:
    """Reaches one child only."""

    there: Path
    count = 0

    def __reduce__(self) -> Any:
        type(self).count += 1
        if self.count > 1:
            until_there(self.there)
            raise RuntimeError("only once")
        return str, ("once",)


def _sleep_with(index: int, there: Path, _: Any) -> None:
    (there / str(os.getpid())).touch()
    _sleep(index, there / "..")


def test_a_child_that_cannot_be_started_ends_those_that_were(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    once = _PicklesOnce()
    once.there = there
    with pytest.raises(RuntimeError, match="only once"):
        mp.spawn(_sleep_with, (there, once), nprocs=2)
    (pid,) = (int(path.name) for path in there.iterdir())
    assert not is_alive(pid)


# ---------------------------------------------------------------------------------------------------------- the parent

PARENT = """
import os, signal, sys, threading
from pathlib import Path
import shmtensor.multiprocessing as mp

def sleep(index, there):
    (there / str(os.getpid())).touch()
    while True:
        signal.pause()

def main():
    method, is_main, there = sys.argv[1], sys.argv[2] == "main", Path(sys.argv[3])
    signal.signal(signal.SIGTERM, lambda *_: None)  # forked children have this at first
    def work():
        mp.start_processes(sleep, (there,), 2, join=False, start_method=method)
    if is_main:
        work()
    else:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    print("started", flush=True)
    signal.pause()

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("thread", first(["main", "other"]))
def test_children_die_with_their_parent_and_not_with_its_thread(tmp_path: Path, method: str, thread: str) -> None:
    there = tmp_path / "there"
    there.mkdir()
    script = tmp_path / "program.py"
    script.write_text(PARENT)
    with world() as w:
        parent = w.popen(str(script), method, thread, str(there))
        assert parent.stdout is not None
        assert parent.stdout.readline().strip() == "started"  # the thread that started them has ended
        until_there(there, 2)
        pids = [int(path.name) for path in there.iterdir()]
        assert all(is_alive(pid) for pid in pids)
        parent.kill()
        parent.wait(BOUND)
        until(lambda: not any(is_alive(pid) for pid in pids), "orphans to end")


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_parent_that_ended_too_early_is_noticed(is_direct: bool) -> None:
    """The child starts only after its parent is gone: there is nothing left to be told."""
    code = f"""
import os, sys, multiprocessing
from shmtensor.ipc.spawn import _end_with_parent

def late(parent):
    os.read(gate_r, 1)
    while os.getppid() == parent:
        pass
    _end_with_parent({is_direct})
    os.write(out, b"survived")

if __name__ == "__main__":
    gate_r, gate_w = os.pipe()
    out = int(sys.argv[1])
    process = multiprocessing.get_context("fork").Process(target=late, args=(os.getpid(),))
    process.start()
    os.write(gate_w, b"x")
    os._exit(0)
"""
    reading, writing = os.pipe()
    try:
        subprocess.run([sys.executable, "-c", code, str(writing)], check=True, pass_fds=[writing], timeout=BOUND)
    finally:
        os.close(writing)
    assert os.read(reading, 100) == b""  # comes when the child has ended
    os.close(reading)


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"fn": "name"}, "callable"),
        ({"args": 3}, "tuple or list"),
        ({"args": "ab"}, r"args=\(value,\)"),
        ({"nprocs": 0}, "at least 1"),
        ({"nprocs": -1}, "at least 1"),
        ({"nprocs": 2.0}, "integer"),
        ({"nprocs": True}, "integer"),
        ({"nprocs": None}, "integer"),
        ({"start_method": "magic"}, "'magic'; choose one of fork"),
        ({"start_method": None}, "None; choose one of"),
        ({"start_method": []}, "choose one of"),
    ],
)
@pytest.mark.parametrize("start_them", [mp.spawn, mp.start_processes])
def test_bad_input(start_them: Any, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        start_them(**{"fn": _divide, **changes})


def test_bad_input_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        mp.spawn(_divide, nprocs=0)


def test_any_callable_when_forked() -> None:
    tensor = shmtensor.zeros(2, 1, shared=True)
    assert start(functools.partial(_fill_own, factor=3.0), tensor, nprocs=2).join(BOUND)
    assert start(lambda index, t: t.add_(1), tensor).join(BOUND)
    assert tensor.tolist() == [[1.0], [4.0]]
