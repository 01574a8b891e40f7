"""The drop-in for multiprocessing: standard names, and tensors sent by handle."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manager_world import BOUND, is_alive, no_names_left, shm_names, until, world

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor.ipc.reductions import reduce_storage
from shmtensor.manager import client

METHODS = ("fork", "spawn", "forkserver")


def finish(process: Any) -> None:
    process.join(BOUND)
    assert process.exitcode == 0, f"the child ended with {process.exitcode}"
    process.close()


def sent(value: Any) -> bytes:
    """What a queue or pipe would carry."""
    return bytes(ForkingPickler.dumps(value))


def in_flight() -> int:
    count: int = client.default().list()["in_flight_total"]
    return count


# ------------------------------------------------------------------------------------------------------ standard names


def test_everything_that_the_standard_module_exports_is_here() -> None:
    for name in multiprocessing.__all__:
        assert hasattr(mp, name), name
        assert name in mp.__all__
    for name in ("connection", "pool", "queues", "shared_memory", "managers", "synchronize", "util"):
        assert getattr(mp, name) is __import__(f"multiprocessing.{name}", fromlist=["x"])
    with pytest.raises(AttributeError, match="no_such_thing"):
        mp.no_such_thing  # noqa: B018


def test_contexts_are_ours_and_leave_the_standard_ones_alone() -> None:
    for method in METHODS:
        assert mp.get_context(method).Process is not multiprocessing.get_context(method).Process
        assert isinstance(mp.get_context(method), type(multiprocessing.get_context(method)))
    with pytest.raises(ValueError, match="magic"):
        mp.get_context("magic")


def test_the_program_has_one_default_start_method() -> None:
    chosen = mp.get_start_method()
    try:
        for chooser, method in [(mp, "spawn"), (multiprocessing, "forkserver")]:
            chooser.set_start_method(method, force=True)
            assert mp.get_start_method() == multiprocessing.get_start_method() == method
            assert mp.get_context() is mp.get_context(method)
        with pytest.raises(RuntimeError, match="already been set"):
            mp.set_start_method("spawn")
    finally:
        mp.set_start_method(chosen, force=True)


def _tell_method(out: Any) -> None:
    out.put((mp.get_start_method(), type(mp.current_process()).__module__))


def test_a_child_has_the_method_that_started_it(ctx: Any) -> None:
    out = ctx.SimpleQueue()
    process = ctx.Process(target=_tell_method, args=(out,))
    process.start()
    assert out.get() == (ctx.get_start_method(), "shmtensor.multiprocessing")
    finish(process)
    out.close()


def test_sharing_strategies() -> None:
    assert mp.get_all_sharing_strategies() == {"file_descriptor", "file_system"}
    assert mp.get_sharing_strategy() == "file_descriptor"
    with pytest.raises(errors.InvalidArgument, match="carrier pigeon"):
        mp.set_sharing_strategy("carrier pigeon")


# ------------------------------------------------------------------------------------------------------------ crossing


def _change(tensors: Any, inbox: Any, outbox: Any) -> None:
    whole, part = tensors
    assert whole.storage() is part.storage()
    part.add_(1)
    received = inbox.get()
    received.fill_(7)
    outbox.put(received)
    outbox.put(shmtensor.full((3,), 2.5))  # ours alone, and we exit at once
    inbox.close()


def test_tensors_alias_through_arguments_and_queues(ctx: Any) -> None:
    whole = shmtensor.zeros(6)
    part = whole[2:4]
    if ctx.get_start_method() == "fork":
        whole.share_memory_()  # nothing is pickled on the way into a forked child
    inbox, outbox = ctx.Queue(), ctx.Queue()
    process = ctx.Process(target=_change, args=((whole, part), inbox, outbox))
    process.start()
    other = shmtensor.zeros(2, 3)
    inbox.put(other)
    back = outbox.get(timeout=BOUND)
    fresh = outbox.get(timeout=BOUND)
    finish(process)
    assert whole.tolist() == [0, 0, 1, 1, 0, 0]
    assert whole.is_shared()
    assert other.tolist() == [[7, 7, 7]] * 2
    assert back.storage() is other.storage()
    assert fresh.tolist() == [2.5] * 3
    for queue in (inbox, outbox):
        queue.close()
        queue.join_thread()


def _double(tensor: Any) -> Any:
    tensor.mul_(2)
    return tensor


def test_pool(ctx: Any) -> None:
    tensors = [shmtensor.full((n,), float(n)) for n in range(1, 5)]
    with ctx.Pool(2) as pool:
        results = pool.map_async(_double, tensors).get(BOUND)
        pool.close()
        pool.join()
    for n, (tensor, result) in enumerate(zip(tensors, results, strict=True), 1):
        assert result.storage() is tensor.storage()
        assert tensor.tolist() == [2.0 * n] * n


def test_pipe_in_one_process() -> None:
    left, right = mp.Pipe()
    tensor = shmtensor.arange(4)
    left.send({"t": tensor, "view": tensor[1:], "storage": tensor.storage()})
    message = right.recv()
    assert message["t"].storage() is tensor.storage() is message["storage"]
    assert message["view"].tolist() == [1, 2, 3]
    left.close()
    right.close()


@pytest.mark.parametrize("dtype", [row.dtype for row in shmtensor.dtypes.ELEMENT_TYPES], ids=str)
def test_every_type_crosses(dtype: Any) -> None:
    tensor = shmtensor.tensor([0, 1, 1], dtype=dtype)
    arrived = pickle.loads(sent(tensor))
    assert arrived.dtype == dtype
    assert arrived.tolist() == tensor.tolist()
    storage = pickle.loads(sent(tensor.storage()))
    assert storage is tensor.storage()


def test_shapes_strides_and_empties_cross() -> None:
    tensor = shmtensor.arange(12).view(3, 4)
    for view in (tensor.t(), tensor[1:, ::2], tensor.select(0, 1), shmtensor.empty(0), shmtensor.zeros(2, 0, 3)):
        arrived = pickle.loads(sent(view))
        assert arrived.shape == view.shape
        assert arrived.stride() == view.stride()
        assert arrived.storage_offset() == view.storage_offset()
        assert arrived.tolist() == view.tolist()


def test_plain_pickle_and_deepcopy_go_by_value() -> None:
    tensor = shmtensor.ones(4, shared=True)
    for other in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):
        assert other.storage() is not tensor.storage()
        other.fill_(3)
        assert tensor.tolist() == [1] * 4
    assert b"/torch_" not in pickle.dumps(tensor)


def test_memory_files_and_mapped_files_cross(tmp_path: Path) -> None:
    from_descriptor = shmtensor.FloatStorage._new_using_fd(4)
    from_descriptor.fill_(2)
    path = tmp_path / "weights"
    path.write_bytes(np.arange(4, dtype=np.float32).tobytes())
    from_path = shmtensor.FloatStorage.from_file(path, shared=True)
    left, right = mp.Pipe()
    left.send([from_descriptor, from_path])
    arrived = right.recv()
    assert [list(s) for s in arrived] == [[2] * 4, [0, 1, 2, 3]]
    arrived[0].fill_(5)
    arrived[1].fill_(6)
    assert list(from_descriptor) == [5] * 4
    assert np.fromfile(path, np.float32).tolist() == [6] * 4
    left.close()
    right.close()


# ---------------------------------------------------------------------------------------------------------- life times


def test_a_message_keeps_its_memory_until_it_is_read() -> None:
    before = in_flight()
    message = sent(shmtensor.full((1000,), 4.0))
    gc.collect()
    assert in_flight() == before + 1
    others = [shmtensor.full((1000,), 9.0, shared=True) for _ in range(20)]
    arrived = pickle.loads(message)
    assert in_flight() == before
    assert arrived.tolist() == [4.0] * 1000
    assert pickle.loads(message).storage() is arrived.storage()  # read twice while it lives
    del arrived, others
    gc.collect()
    with pytest.raises(errors.StaleHandle, match="freed"):
        pickle.loads(message)


def test_what_was_never_read_can_be_collected() -> None:
    before = in_flight()
    message = sent(shmtensor.ones(10))
    gc.collect()
    assert in_flight() == before + 1
    client.default().gc(in_flight=0.0)
    assert in_flight() == 0
    with pytest.raises(errors.StaleHandle):
        pickle.loads(message)


@pytest.mark.parametrize("value", [-1, 2**64, None, "x", 1.5])
def test_forged_messages(value: Any) -> None:
    tensor = shmtensor.ones(10)
    rebuild, ((where, name), dtype, size) = reduce_storage(tensor.storage())
    for i in range(len(name)):
        with pytest.raises(errors.InvalidArgument):
            rebuild((where, (*name[:i], value, *name[i + 1 :])), dtype, size)
    assert rebuild((where, name), dtype, size) is tensor.storage()


def test_what_could_not_be_sent_is_not_in_flight() -> None:
    before = in_flight()
    tensor = shmtensor.ones(10)
    near, far = mp.Pipe()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        near.send([tensor, lambda: 0])
    assert in_flight() == before
    near.send(tensor)
    assert far.recv().storage() is tensor.storage()


def _send_and_die(out: Any) -> None:
    out.put(shmtensor.full((1 << 16,), 3.0))  # a SimpleQueue writes before put() returns
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_sender_may_be_killed_after_put(ctx: Any) -> None:
    out = ctx.SimpleQueue()
    process = ctx.Process(target=_send_and_die, args=(out,))
    process.start()
    process.join(BOUND)
    assert process.exitcode == -signal.SIGKILL
    until(
        lambda: process.pid not in [c["pid"] for c in client.default().list()["clients"]], "the sender to be reclaimed"
    )
    assert (out.get().numpy() == 3.0).all()
    out.close()
    process.close()


def _never_called(tensor: Any) -> None:
    raise AssertionError


class _Unpicklable:
    def __reduce__(self) -> Any:
        raise RuntimeError("cannot be sent")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_child_that_never_starts_holds_nothing(method: str) -> None:
    process = mp.get_context(method).Process(target=_never_called, args=(shmtensor.ones(100), _Unpicklable()))
    with pytest.raises(RuntimeError, match="cannot be sent"):
        process.start()
    del process
    gc.collect()

    def only_us() -> bool:
        listing = client.default().list()
        return [c["pid"] for c in listing["clients"] if c["state"] != "client"] == [] and not any(
            holder["slot"] not in (0, client.default().native.slot)
            for segment in listing["segments"]
            for holder in segment["holders"] or []
        )

    until(only_us, "the embryo to be reclaimed")


def _import_side_effect(tensor: Any, out: Any) -> None:
    out.put(tensor.tolist())


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_child_that_is_a_client_before_its_arguments_arrive(method: str) -> None:
    with world() as w:
        script = w.directory / "program.py"
        script.write_text(
            f"""
import shmtensor, shmtensor.multiprocessing as mp
early = shmtensor.ones(3, shared=True)  # at import: in the child, before it has its arguments
def work(tensor, out):
    tensor.add_(early)
    out.put(tensor)
if __name__ == "__main__":
    ctx = mp.get_context({method!r})
    out, tensor = ctx.SimpleQueue(), shmtensor.zeros(3)
    process = ctx.Process(target=work, args=(tensor, out))
    process.start()
    assert out.get().storage() is tensor.storage()
    process.join()
    print(process.exitcode, tensor.tolist())
"""
        )
        process = w.popen(str(script))
        out, err = process.communicate(timeout=BOUND * 2)
        assert out.strip() == "0 [1.0, 1.0, 1.0]", err


@pytest.mark.parametrize("another", [False, True], ids=["nobody", "another manager"])
def test_segment_lost_when_sender_and_manager_are_gone(another: bool) -> None:
    """The manager is stopped first, so that the sender cannot see it end and start the next one."""
    with world() as w:
        pid, message = w.run(
            """
import os, signal
import shmtensor, shmtensor.multiprocessing as mp
from multiprocessing.reduction import ForkingPickler
from shmtensor.manager import client
tensor = shmtensor.ones(10)
message = bytes(ForkingPickler.dumps(tensor)).hex()
manager = client.default().stats().pid
os.kill(manager, signal.SIGSTOP)
print(manager, message, flush=True)
os._exit(0)
"""
        ).split()
        os.kill(int(pid), signal.SIGKILL)
        until(lambda: not is_alive(int(pid)), "the manager to end")
        if another:
            w.serve()
        with pytest.raises(errors.SegmentLost, match="10 float32 elements"):
            pickle.loads(bytes.fromhex(message))


# ------------------------------------------------------------------------------------------------------ kill and audit

HOLDER = """
import sys
import shmtensor
from shmtensor.manager import client
tensors = [shmtensor.ones(100, shared=True) for _ in range(1000)]
print(client.default().address.decode(), flush=True)
sys.stdin.readline()
"""


def test_a_killed_client_is_reclaimed_within_a_second() -> None:
    with world() as w:
        address = w.serve()
        process = w.script(HOLDER, env={"SHMTENSOR_MANAGER": os.fsdecode(address)})
        assert process.stdout is not None
        process.stdout.readline()
        assert w.observe(address)["stats"]["live_blocks"] == 1000
        process.kill()
        process.wait(BOUND)
        until(lambda: w.observe(address)["stats"]["live_blocks"] == 0, "1,000 blocks to be free")
        until(lambda: w.observe(address)["segments"] == [], "their segment to go")


def test_killing_everyone_leaves_nothing() -> None:
    before = shm_names()
    with world() as w:
        process = w.script(HOLDER)
        assert process.stdout is not None
        process.stdout.readline()
        managers = w.managers()
        assert len(managers) == 1
        process.kill()
        os.kill(managers[0], signal.SIGKILL)
        process.wait(BOUND)
        until(lambda: not w.managers(), "the manager to be gone")
        assert {path.suffix for path in w.directory.iterdir()} <= {".sock", ".lock", ".log", ".journal"}
        # The next one clears the stale socket away.
        assert w.run("import shmtensor; print(shmtensor.ones(2, shared=True).tolist())").strip() == "[1.0, 1.0]"
    no_names_left(before)


def test_many_processes_that_start_at_once_share_one_manager() -> None:
    with world() as w:
        out = w.run(
            """
import subprocess, sys
import shmtensor.multiprocessing  # the group exists from here on; its manager does not
code = ("import sys; from shmtensor.manager import client; sys.stdin.readline();"
        "print(client.default().stats().pid, flush=True); sys.stdin.readline()")
children = [subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) for _ in range(8)]
for child in children:
    child.stdin.write("go\\n"); child.stdin.flush()
print(len({child.stdout.readline() for child in children}))
for child in children:
    child.communicate("done\\n")
"""
        )
        assert out.strip() == "1"


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_reaches_the_program_and_not_the_manager() -> None:
    with world() as w:
        process = w.script(
            """
import os, signal, sys
import shmtensor
from shmtensor.manager import client
tensor = shmtensor.ones(4, shared=True)
try:
    os.killpg(os.getpgrp(), signal.SIGINT)
    signal.pause()
except KeyboardInterrupt:
    pass
print(client.default().stats().clients, shmtensor.zeros(1 << 20, shared=True).is_shared())
""".replace("import os,", "import os; os.setpgid(0, 0); import", 1)
        )
        out, err = process.communicate(timeout=BOUND)
        assert out.strip() == "1 True", err


def test_a_pipe_of_the_program_closes_when_it_ends() -> None:
    with world() as w:
        process = w.script("import shmtensor; shmtensor.ones(4, shared=True); print('done')")
        out, _ = process.communicate(timeout=BOUND)  # would wait for the manager if it held our pipe
        assert out == "done\n"


def test_threads_send_side_by_side() -> None:
    left, right = mp.Pipe()
    lock = threading.Lock()
    failures: list[BaseException] = []

    def work(value: int) -> None:
        try:
            for _ in range(100):
                tensor = shmtensor.full((50,), float(value))
                with lock:
                    left.send(tensor)
                    arrived = right.recv()
                assert arrived.storage() is tensor.storage()
                assert arrived.tolist() == [float(value)] * 50
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    left.close()
    right.close()
    assert not failures


def test_importing_starts_nothing() -> None:
    with world() as w:
        w.run("import shmtensor.multiprocessing, shmtensor; shmtensor.ones(3)")
        assert w.managers() == []
        assert list(w.directory.iterdir()) == []
    assert "shmtensor.multiprocessing" in sys.modules


def test_what_a_child_sent_outlives_it_though_the_parent_never_shared() -> None:
    with world() as w:
        out = w.run(
            """
import os, time
import shmtensor, shmtensor.multiprocessing as mp
def work(out):
    out.put(shmtensor.ones(4))
mp.set_start_method("fork")
out = mp.SimpleQueue()
child = mp.Process(target=work, args=(out,))
child.start()
child.join()
time.sleep(1.5)  # longer than a manager without clients lingers
print(out.get().tolist())
"""
        )
        assert out.strip() == "[1.0, 1.0, 1.0, 1.0]"


def test_a_program_without_tensors_needs_no_manager() -> None:
    with world() as w:
        code = """
import shmtensor.multiprocessing as mp
def work(out):
    out.send("worked")
mp.set_start_method("fork")
reader, writer = mp.Pipe(duplex=False)
child = mp.Process(target=work, args=(writer,))
child.start()
print(reader.recv())
child.join()
"""
        too_long = str(w.directory / ("x" * 100))  # for the path of a socket
        for variable, value in (("SHMTENSOR_RUNTIME_DIR", too_long), ("SHMTENSOR_MANAGER", "/no/such/socket")):
            assert w.run(code, env={variable: value}).strip() == "worked"
