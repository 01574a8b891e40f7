"""Hooks for errors and for allocations that fail."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from manager_world import world

import shmtensor
from shmtensor import errors, hooks
from shmtensor.allocators import DefaultAllocator, default
from shmtensor.allocators import map as map_allocator
from shmtensor.errors import DTypeError, InvalidArgument, MappingError, OutOfMemory, ShmTensorError


class Mine(Exception):
    pass


@pytest.fixture(autouse=True)
def clean():
    yield
    for set_handler in (
        hooks.set_error_handler, hooks.set_default_error_handler,
        hooks.set_arg_error_handler, hooks.set_default_arg_error_handler,
    ):  # fmt: skip
        set_handler(None)
    hooks.set_low_memory_callback(None)
    errors.observer = None


def bad_argument():
    shmtensor.zeros(-1)


def other_error():
    shmtensor.FloatStorage.from_file("/nonexistent/file")


KINDS = [
    (hooks.set_error_handler, hooks.set_default_error_handler, other_error, bad_argument, MappingError),
    (hooks.set_arg_error_handler, hooks.set_default_arg_error_handler, bad_argument, other_error, InvalidArgument),
]


@pytest.mark.parametrize(("of_thread", "of_all", "fail", "fail_otherwise", "kind"), KINDS)
def test_handlers_are_told_and_the_error_is_raised(of_thread, of_all, fail, fail_otherwise, kind):
    told, of_default = [], []
    of_all(lambda error, data: of_default.append((error, data)), "default")
    of_thread(lambda error, data: told.append((error, data)), "thread")
    with pytest.raises(kind) as caught:
        fail()
    assert told == [(caught.value, "thread")]
    with pytest.raises(ShmTensorError):
        fail_otherwise()
    assert len(told) == 1, "the other kind has handlers of its own"
    of_thread(None)
    with pytest.raises(kind) as caught:
        fail()
    assert of_default == [(caught.value, "default")]
    of_all(None)
    with pytest.raises(kind):
        fail()
    assert (len(told), len(of_default)) == (1, 1)


@pytest.mark.parametrize(("of_thread", "of_all", "fail", "fail_otherwise", "kind"), KINDS)
def test_a_handler_may_raise_its_own(of_thread, of_all, fail, fail_otherwise, kind):
    def translate(error, data):
        raise Mine(data + str(error)) from error

    of_thread(translate, "seen: ")
    with pytest.raises(Mine, match="seen: ") as caught:
        fail()
    assert isinstance(caught.value.__cause__, kind)
    assert str(caught.value.__cause__) in str(caught.value)


def test_handlers_of_threads_do_not_meet():
    told = []
    hooks.set_default_arg_error_handler(lambda error, data: told.append("default"))
    hooks.set_arg_error_handler(lambda error, data: told.append("main"))

    def work():
        for handler in (None, lambda error, data: told.append("other")):
            if handler:
                hooks.set_arg_error_handler(handler)
            with pytest.raises(InvalidArgument):
                bad_argument()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    with pytest.raises(InvalidArgument):
        bad_argument()
    assert told == ["default", "other", "main"]


def test_a_handler_that_errs_is_not_told_of_it():
    told = []

    def handler(error, data):
        told.append(error)
        with pytest.raises(InvalidArgument):
            bad_argument()

    hooks.set_arg_error_handler(handler)
    with pytest.raises(InvalidArgument):
        bad_argument()
    assert len(told) == 1


def test_errors_of_the_core_are_told():
    told = []
    hooks.set_arg_error_handler(lambda error, data: told.append(type(error)))
    with pytest.raises(InvalidArgument):
        shmtensor.atomics.fetch_add(shmtensor.zeros(3, dtype="int64"), "x", 1)
    with pytest.raises(DTypeError):
        shmtensor.atomics.fetch_add(shmtensor.zeros(3, dtype="int8"), 0, 1)
    assert told == [InvalidArgument, DTypeError]


def test_errors_keep_their_forms():
    error = MappingError(2, "no such thing", "name")
    assert (error.errno, error.strerror, error.filename) == (2, "no such thing", "name")
    died = []
    hooks.set_error_handler(lambda error, data: died.append(error.pid))
    errors.WorkerDied("gone", 7, 1, "SIGKILL")
    assert died == [7], "a handler sees all of the error"


@pytest.mark.parametrize("set_hook", [hooks.set_error_handler, hooks.set_low_memory_callback])
def test_what_cannot_be_called_is_refused(set_hook):
    with pytest.raises(DTypeError):
        set_hook(3)


# -- low memory


def refusing(monkeypatch, times):
    """Have the heap refuse the next `times` requests."""
    left = [times]
    make = np.empty

    def empty(*arguments, **named):
        if left[0]:
            left[0] -= 1
            raise MemoryError("refused by the test")
        return make(*arguments, **named)

    monkeypatch.setattr(default.np, "empty", empty)


@pytest.mark.parametrize("make", [lambda: DefaultAllocator().malloc(800), lambda: shmtensor.empty(200)])
def test_the_heap_is_tried_again(monkeypatch, make):
    asked = []
    hooks.set_low_memory_callback(asked.append)
    refusing(monkeypatch, 1)
    make()
    assert asked == [], "collecting garbage was enough"
    refusing(monkeypatch, 2)
    make()
    assert asked == [800]
    refusing(monkeypatch, 3)
    with pytest.raises(OutOfMemory, match="800"):
        make()
    assert asked == [800, 800]
    hooks.set_low_memory_callback(None)
    refusing(monkeypatch, 2)
    with pytest.raises(OutOfMemory):
        make()
    refusing(monkeypatch, 0)


def test_a_callback_that_raises_is_heard(monkeypatch):
    def stop(nbytes):
        raise Mine(nbytes)

    hooks.set_low_memory_callback(stop)
    refusing(monkeypatch, 2)
    with pytest.raises(Mine):
        shmtensor.empty(3)
    refusing(monkeypatch, 0)


def test_a_callback_is_not_called_for_itself(monkeypatch):
    asked = []

    def greedy(nbytes):
        asked.append(nbytes)
        refusing(monkeypatch, 2)
        with pytest.raises(OutOfMemory):
            shmtensor.empty(50)

    hooks.set_low_memory_callback(greedy)
    refusing(monkeypatch, 2)
    shmtensor.empty(3)
    assert asked == [12]


def test_memory_files_are_tried_again(monkeypatch):
    asked = []

    def require(nbytes, label):
        if len(asked) < 1:
            raise OutOfMemory("refused by the test")

    monkeypatch.setattr(map_allocator, "_require_memory", require)
    with pytest.raises(OutOfMemory):
        shmtensor.FloatStorage._new_using_fd(100)
    hooks.set_low_memory_callback(asked.append)
    assert shmtensor.FloatStorage._new_using_fd(100).size() == 100
    assert asked == [400]


SHARED = """
import gc, sys
import numpy as np
import shmtensor
from shmtensor import hooks, multiprocessing as mp
from shmtensor.errors import OutOfMemory
how, = sys.argv[1:]
MiB = 1 << 20
cache = [shmtensor.ones(16 * MiB, dtype="uint8", shared=True)]
asked = []
def free(nbytes):
    asked.append(nbytes)
    cache.clear()
def more():
    if how == "block":
        return shmtensor.empty(40 * MiB, dtype="uint8", shared=True)
    queue = mp.Queue()
    queue.put(np.ones(40 * MiB, np.uint8))
    return queue.get()
try:
    more()
except OutOfMemory:
    pass
else:
    raise SystemExit("the quota was not reached")
hooks.set_low_memory_callback(free)
assert more().nbytes == 40 * MiB
assert asked == [40 * MiB], asked
cache.append(shmtensor.ones(16 * MiB, dtype="uint8", shared=True))
hooks.set_low_memory_callback(asked.append)
try:
    more()
except OutOfMemory:
    assert asked == [40 * MiB] * 2, asked
else:
    raise SystemExit("nothing was freed, and yet there was room")
"""


@pytest.mark.parametrize("how", ["block", "message"])
def test_shared_memory_is_tried_again(how):
    with world() as made:
        made.run(SHARED.replace("how, = sys.argv[1:]", f"how = {how!r}"), env={"SHMTENSOR_MAX_BYTES": "48M"})


COMPUTED = """
import resource
import numpy as np
import shmtensor as st
from shmtensor import hooks
from shmtensor.errors import OutOfMemory
MiB = 1 << 20
used = int(open("/proc/self/statm").read().split()[0]) * 4096
x = st.ones(64 * MiB, dtype="uint8")
resource.setrlimit(resource.RLIMIT_AS, (used + 240 * MiB, resource.RLIM_INFINITY))
asked = []
for compute in (lambda: x + x, lambda: -x, lambda: 1 + x, lambda: x.clone(), lambda: st.cat([x, x[:1]])):
    cache = [np.ones(80 * MiB, np.uint8), np.ones(30 * MiB, np.uint8)]
    hooks.set_low_memory_callback(None)
    try:
        compute()
        raise SystemExit("there was room")
    except OutOfMemory:
        pass
    hooks.set_low_memory_callback(lambda nbytes: (asked.append(nbytes), cache.clear()))
    assert compute().nbytes >= 64 * MiB
assert len(asked) == 5 and min(asked) == 64 * MiB, asked
"""


def test_what_is_computed_is_tried_again():
    done = subprocess.run([sys.executable, "-c", COMPUTED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
