"""The counter of the batches that a program holds."""

import gc
import sys

import numpy as np
import pytest

from shmtensor.data.stats import Held


def stopped_at(line: int, held: Held, arrays: list[np.ndarray]) -> bool:
    """Whether `add` had so many lines; Ctrl-C comes before the last of them."""
    lines = 0

    def trace(frame, event, arg):
        nonlocal lines
        if frame.f_code.co_filename == sys.modules[Held.__module__].__file__ and event == "line":
            lines += 1
            if lines == line:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        held.add(arrays)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_ctrl_c_at_any_line_of_counting_leaves_no_error_and_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", problems.append)
    line, stopped = 0, True
    while stopped:
        line += 1
        held = Held()
        base = np.zeros(100)
        arrays = [np.zeros(10), base[:5], base[5:]]
        stopped = stopped_at(line, held, arrays)
        if not stopped:
            assert (held.batches, held.nbytes) == (1, 80 + 800)
        del arrays, base
        gc.collect()
        assert not problems and (held.batches, held.nbytes) == (0, 0)
    assert line > 10


def test_memory_of_several_batches_is_nobodys() -> None:
    held = Held()
    base = np.zeros(100)
    assert held.add([base[:50]]) == 400 and held.batches == 1
    assert held.add([base[50:]]) == 400 and held.batches == 0 and held.nbytes == 0


def test_the_end_of_a_batch_runs_no_code_in_which_ctrl_c_would_be_lost() -> None:
    held = Held()
    arrays = [np.zeros(10)]
    held.add(arrays)
    ran: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: ran.append(frame.f_code.co_name) if event == "call" else None)
    try:
        arrays.clear()
    finally:
        sys.setprofile(before)
    assert not ran and held.batches == 0
