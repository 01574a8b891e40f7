"""The rights of receivers of a tensor: full access, read-only, or a private copy."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import operator
import os
import pickle
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manager_world import BOUND, reclaim, until, world
from tiers import first

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor._native import VIEW_FROZEN, VIEW_LENT, VIEW_PERSONAL, VIEW_READONLY, Block, View
from shmtensor.ipc.reductions import reduce_storage
from shmtensor.manager import client

SIZES = {"tiny": 6, "copied": 4000, "mapped": 20_000}
"""Elements of float32: under 64 KiB a private copy is one, from there on it is a mapping."""


@pytest.fixture(params=SIZES.values(), ids=SIZES.keys())
def tensor(request: pytest.FixtureRequest) -> Any:
    return shmtensor.arange(request.param).to("float32")


def place(value: Any) -> str:
    storage = value if isinstance(value, shmtensor.Storage) else value.storage()
    return str(storage._place())


def sent(value: Any) -> bytes:
    return bytes(ForkingPickler.dumps(value))


def arrived(value: Any) -> Any:
    """What this process gets when it receives its own message."""
    return pickle.loads(sent(value))


def base_of(array: Any) -> Any:
    while type(array) is np.ndarray:
        array = array.base
    return array


def receive(end: Any) -> Any:
    assert end.poll(BOUND), "nothing arrived"
    return end.recv()


@contextmanager
def child(ctx: Any, work: Callable[..., None], *arguments: Any, exitcode: int = 0) -> Iterator[Any]:
    """A process that runs work(its end of a pipe, *arguments), and our end of the pipe."""
    ours, theirs = ctx.Pipe()
    process = ctx.Process(target=work, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        yield ours
        process.join(BOUND)
        assert process.exitcode == exitcode
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


WRITES: dict[str, Callable[[Any], Any]] = {
    "element": lambda t: operator.setitem(t, 0, 1),
    "fill_": lambda t: t.fill_(1),
    "zero_": lambda t: t.zero_(),
    "copy_": lambda t: t.copy_(t.clone()),
    "+=": lambda t: operator.iadd(t, 1),
    "mul_": lambda t: t.mul_(2),
    "exp_": lambda t: t.exp_(),
    "index_add_atomic_": lambda t: t.index_add_atomic_(0, shmtensor.tensor([0]), t[:1].clone()),
    "storage element": lambda t: operator.setitem(t.storage(), 0, 1),
    "storage fill_": lambda t: t.storage().fill_(1),
    "storage copy_": lambda t: t.storage().copy_(t.storage().clone()),
}


def assert_not_writable(tensor: Any) -> None:
    before = tensor.tolist()
    for name, write in WRITES.items():
        with pytest.raises(errors.LayoutError, match="read-only"):
            write(tensor)
            raise AssertionError(f"{name} went through")
    array = tensor.numpy()
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True
    assert tensor.tolist() == before


# ------------------------------------------------------------------------------------------------------- what is asked


def test_what_is_asked_shows() -> None:
    plain, lent, frozen = (shmtensor.ones(3) for _ in range(3))
    assert plain.share_memory_() is plain
    assert lent.share_memory_(readonly=True) is lent
    assert frozen.share_memory_(copy_on_write=True) is frozen
    for tensor, where in ((plain, "shared"), (lent, "lent"), (frozen, "frozen")):
        assert tensor.is_shared()
        assert f"memory={where}" in repr(tensor)
        assert f"memory={where}" in repr(tensor.storage())
    assert "memory=read-only" in repr(arrived(lent))
    assert "memory=" not in repr(arrived(frozen))
    assert arrived(frozen).storage()._place() == "private"
    assert arrived(lent).is_shared()
    assert not arrived(frozen).is_shared()  # nobody else can have that memory
    # What the C++ codec goes by: the Block itself lies under tensors with all rights and under no other.
    assert type(base_of(plain.numpy())) is Block
    for tensor in (lent, frozen, arrived(lent), arrived(frozen)):
        assert type(base_of(tensor.numpy())) is View


def test_both_at_once_is_refused() -> None:
    tensor = shmtensor.ones(3)
    with pytest.raises(errors.InvalidArgument, match="exclude each other"):
        tensor.share_memory_(readonly=True, copy_on_write=True)
    assert not tensor.is_shared()


def test_rights_never_widen() -> None:
    tensor = shmtensor.ones(3)
    array = tensor.share_memory_(readonly=True).numpy()
    assert place(tensor.share_memory_()) == "lent"
    tensor.fill_(2)
    assert array.tolist() == [2] * 3
    assert place(tensor.share_memory_(copy_on_write=True)) == "frozen"
    assert_not_writable(tensor)
    assert place(tensor.share_memory_(readonly=True)) == "read-only"
    assert_not_writable(tensor)
    assert place(arrived(tensor)) == "read-only"
    received = arrived(shmtensor.ones(3).share_memory_(readonly=True))
    assert place(received.share_memory_(readonly=True)) == "read-only"
    assert place(received.share_memory_()) == "read-only"
    assert place(arrived(received.share_memory_(copy_on_write=True))) == "private"


def test_tensors_and_parts_of_a_storage_follow(tensor: Any) -> None:
    part = tensor[2:5]
    values, early = part.tolist(), tensor.numpy()
    piece = tensor.storage()[1:4]
    piece.share_memory_(readonly=True)
    assert place(part) == place(piece) == place(tensor) == "lent"
    part.share_memory_(copy_on_write=True)
    assert place(part) == place(piece) == place(tensor) == "frozen"
    assert part.tolist() == values
    assert list(piece) == [1, 2, 3]
    assert_not_writable(part)
    early[0] = 5  # the array from before it was shared keeps its memory
    assert tensor[0].item() == 0


def test_only_the_managers_memory_can_be_restricted(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(16))
    for storage in (shmtensor.FloatStorage._new_using_fd(4), shmtensor.FloatStorage.from_file(path, shared=True)):
        with pytest.raises(errors.InvalidArgument, match="copy it"):
            storage.share_memory_(readonly=True)
        storage.fill_(1)
    mine = shmtensor.FloatStorage.from_file(path)  # private: moves
    assert place(mine.share_memory_(readonly=True)) == "lent"


def test_restricted_memory_has_no_handle_by_name() -> None:
    for how in ({"readonly": True}, {"copy_on_write": True}):
        storage = shmtensor.ones(3).share_memory_(**how).storage()
        with pytest.raises(errors.InvalidArgument, match="multiprocessing"):
            storage._share_filename_()
        with pytest.raises(errors.InvalidArgument, match="does not have its own descriptor"):
            storage._share_fd_()
        storage._shared_incref()._shared_decref()


@pytest.mark.parametrize("how", ["readonly", "copy_on_write"])
@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), (1,)])
def test_empty_and_single(how: str, shape: tuple[int, ...]) -> None:
    tensor = shmtensor.zeros(*shape).share_memory_(**{how: True})
    assert arrived(tensor).shape == shape
    assert arrived(arrived(tensor)).tolist() == tensor.tolist()


def test_views_arrive_as_they_are(tensor: Any) -> None:
    whole = tensor.view(2, -1)
    for how in ("readonly", "copy_on_write"):
        whole.share_memory_(**{how: True})
        for view in (whole.t(), whole[1:, ::2], whole.select(1, 2)):
            got = arrived(view)
            assert got.stride() == view.stride()
            assert got.storage_offset() == view.storage_offset()
            assert got.tolist() == view.tolist()


def test_plain_pickle_goes_by_value() -> None:
    for how in ("readonly", "copy_on_write"):
        tensor = shmtensor.ones(3).share_memory_(**{how: True})
        for copy in (pickle.loads(pickle.dumps(tensor)), pickle.loads(pickle.dumps(arrived(tensor))), tensor.clone()):
            assert place(copy.fill_(4)) == "heap"
        assert tensor.tolist() == [1] * 3


# ---------------------------------------------------------------------------------------------- one process, both ends


def test_own_message_read_only(tensor: Any) -> None:
    tensor.share_memory_(readonly=True)
    first, second = arrived(tensor), arrived(tensor[1:])
    assert first.storage() is second.storage()
    assert first.storage() is not tensor.storage()
    assert_not_writable(first)
    tensor.fill_(9)
    assert second[0].item() == 9
    assert arrived(first).storage() is first.storage()


def test_own_message_copy_on_write(tensor: Any) -> None:
    values = tensor.tolist()
    tensor.share_memory_(copy_on_write=True)
    first, second = arrived(tensor), arrived(tensor)
    whole, part = arrived([tensor, tensor[1:]])
    assert whole.storage() is part.storage()  # one message, one copy
    first.fill_(1)
    part.fill_(2)
    assert second.tolist() == tensor.tolist() == values
    assert whole.tolist() == values[:1] + [2] * (len(values) - 1)
    assert (first.numpy() == 1).all()
    assert type(base_of(first.numpy())) is View


def test_a_private_copy_is_like_heap_memory(tensor: Any) -> None:
    mine = arrived(tensor.share_memory_(copy_on_write=True))
    values = mine.add_(1).tolist()
    mine.share_memory_()  # moves into memory of its own
    assert place(mine) == "shared"
    assert arrived(mine).storage() is mine.storage()
    assert mine.tolist() == values
    other = arrived(tensor)
    other.storage().resize_(3)
    assert list(other.storage()) == [0, 1, 2]


def test_arrays_keep_the_memory(tensor: Any) -> None:
    values = tensor.tolist()
    for how in ("readonly", "copy_on_write"):
        array = arrived(tensor.clone().share_memory_(**{how: True})).numpy()
        gc.collect()
        others = [shmtensor.full((tensor.numel(),), 7.0, shared=True) for _ in range(4)]
        assert array.tolist() == values
        del others


def test_a_tensor_over_an_array_of_lent_memory_is_lent(tensor: Any) -> None:
    tensor.share_memory_(readonly=True)
    again = shmtensor.from_numpy(tensor.numpy())
    assert again.storage() is tensor.storage()
    with pytest.raises(errors.LayoutError, match="read-only"):
        shmtensor.from_numpy(arrived(tensor).numpy())


def test_forged_kinds() -> None:
    tensor = shmtensor.ones(3).share_memory_(readonly=True)
    rebuild, (sent, dtype, size, kind) = reduce_storage(tensor.storage())
    assert kind == VIEW_READONLY
    for forged in (VIEW_LENT, VIEW_FROZEN, -1, 99, None, "x"):
        with pytest.raises(errors.InvalidArgument, match="kind"):
            rebuild(sent, dtype, size, forged)
    assert place(rebuild(sent, dtype, size, kind)) == "read-only"


# ------------------------------------------------------------------------------------------------------ other processes


def _read(end: Any, tensor: Any) -> None:
    """Say what there is, twice; then what else was received."""
    assert_not_writable(tensor)
    end.send((place(tensor), float(tensor.sum())))
    assert receive(end) == "changed"
    end.send(float(tensor.sum()))
    other = receive(end)
    assert_not_writable(other)
    assert other.storage() is tensor.storage()
    end.send(other)


def test_read_only_receivers(ctx: Any, tensor: Any) -> None:
    tensor.share_memory_(readonly=True)
    size = tensor.numel()
    with child(ctx, _read, tensor) as end:
        assert receive(end) == ("read-only", float(tensor.sum()))
        tensor.fill_(3)
        end.send("changed")
        assert receive(end) == 3 * size
        end.send(tensor[1:])
        back = receive(end)
        assert place(back) == "read-only"
        assert_not_writable(back)
        assert place(tensor) == "lent"


def _write(end: Any, tensor: Any) -> None:
    """Change it, say what there is, send it on."""
    tensor.mul_(2).add_(receive(end))
    end.send((place(tensor), tensor[:3].tolist()))
    end.send(tensor)
    assert receive(end) == "changed"
    end.send((place(tensor), tensor[:3].tolist()))


def test_copy_on_write_receivers(ctx: Any, tensor: Any) -> None:
    values = tensor.tolist()
    tensor.share_memory_(copy_on_write=True)
    with child(ctx, _write, tensor) as one, child(ctx, _write, tensor) as two:
        one.send(10)
        two.send(20)
        assert receive(one) == ("private", [10, 12, 14])
        assert receive(two) == ("private", [20, 22, 24])
        passed_on = receive(one)  # as it was when it was sent
        assert place(passed_on) == "private"
        assert passed_on.tolist() == [2 * value + 10 for value in values]
        passed_on.fill_(-1)
        receive(two)
        one.send("changed")
        two.send("changed")
        assert receive(one) == ("private", [10, 12, 14])
        assert receive(two) == ("private", [20, 22, 24])
    assert tensor.tolist() == values
    assert_not_writable(tensor)


def _relay(end: Any) -> None:
    end.send(receive(end))
    receive(end)


@pytest.mark.parametrize("how", ["readonly", "copy_on_write"])
def test_the_mode_stays_on_every_way(how: str, tensor: Any) -> None:
    ctx = mp.get_context("spawn")
    tensor.share_memory_(**{how: True})
    expected = {"readonly": "read-only", "copy_on_write": "private"}[how]
    values, travelling = tensor.tolist(), tensor
    with child(ctx, _relay) as one, child(ctx, _relay) as two:
        for end in (one, two):
            end.send(travelling)
            travelling = receive(end)
            assert place(travelling) == expected
            assert travelling.tolist() == values
        one.send(None)
        two.send(None)


def _write_by_address(end: Any, tensor: Any, through: str) -> None:
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    array = tensor.numpy()
    address = tensor.data_ptr() if through == "tensor" else array.__array_interface__["data"][0]
    end.send(ctypes.c_float.from_address(address).value)
    ctypes.c_float.from_address(address).value = 99
    end.send("written")


@pytest.mark.parametrize("through", first(["tensor", "array"]))
def test_a_write_by_address_ends_the_writer(ctx: Any, tensor: Any, through: str) -> None:
    tensor.share_memory_(readonly=True)
    with child(ctx, _write_by_address, tensor[2:], through, exitcode=-signal.SIGSEGV) as end:
        assert receive(end) == 2
        assert end.poll(BOUND)
        with pytest.raises(EOFError):
            end.recv()
    assert tensor[2].item() == 2
    tensor[2] = 5


def test_a_private_copy_may_be_written_by_address(tensor: Any) -> None:
    tensor.share_memory_(copy_on_write=True)
    with child(mp.get_context("spawn"), _write_by_address, tensor[2:], "tensor") as end:
        assert [receive(end), receive(end)] == [2, "written"]
    assert tensor[2].item() == 2


def _two_forks(end: Any, tensor: Any) -> None:
    tensor.fill_(5)
    with child(mp.get_context("fork"), _overwrite, tensor) as grandchild:
        assert receive(grandchild) == 6
        end.send((place(tensor), float(tensor[0])))


def _overwrite(end: Any, tensor: Any) -> None:
    tensor.fill_(6)
    end.send(float(tensor[0]))


def test_a_fork_of_a_receiver_has_a_copy_too(tensor: Any) -> None:
    tensor.share_memory_(copy_on_write=True)
    with child(mp.get_context("fork"), _two_forks, tensor) as end:
        assert receive(end) == ("private", 5)
    assert tensor[1].item() == 1


# ---------------------------------------------------------------------------------------------------- deaths and limits


def _hold(end: Any, tensors: Any) -> None:
    for tensor in tensors:
        if place(tensor) == "private":
            tensor.fill_(1)
    end.send((os.getpid(), [place(tensor) for tensor in tensors]))
    signal.pause()


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_a_killed_receiver_leaves_nothing(size: int) -> None:
    reclaim()
    before = client.default().stats().live_blocks
    tensors = [shmtensor.ones(size).share_memory_(**{how: True}) for how in ("readonly", "copy_on_write")]
    with child(mp.get_context("spawn"), _hold, tensors, exitcode=-signal.SIGKILL) as end:
        pid, places = receive(end)
        assert places == ["read-only", "private"]
        os.kill(pid, signal.SIGKILL)
    assert all((tensor.numpy() == 1).all() for tensor in tensors)
    del tensors
    reclaim()
    until(lambda: client.default().stats().live_blocks == before, "the blocks to be free")
    client.default().native.check_invariants()


SENDER = """
import os, signal, sys
import shmtensor, shmtensor.multiprocessing as mp
from multiprocessing.reduction import ForkingPickler
size = int(sys.argv[1])
messages = [shmtensor.full((size,), 3.0).share_memory_(readonly=True),
            shmtensor.full((size,), 4.0).share_memory_(copy_on_write=True)]
print(bytes(ForkingPickler.dumps(messages)).hex(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_the_sender_may_be_killed(size: int) -> None:
    with world() as w:
        address = w.serve()
        process = w.script(SENDER, str(size), env={"SHMTENSOR_MANAGER": os.fsdecode(address)})
        message, _ = process.communicate(timeout=BOUND)
        assert process.returncode == -signal.SIGKILL
        manager = client.at(address)
        until(lambda: manager.stats().clients == 1, "the sender to be reclaimed")
        lent, private = pickle.loads(bytes.fromhex(message))
        assert (lent.numpy() == 3).all()
        assert (private.add_(1).numpy() == 5).all()
        assert [place(lent), place(private)] == ["read-only", "private"]
        del lent, private
        gc.collect()
        assert manager.stats().live_blocks == 0
        manager.close()
        until(lambda: w.observe(address)["segments"] == [], "the segment to go")


def mappings(rights: str) -> int:
    """Mappings of segments in this process with these rights."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum(line.split()[1] == rights and "memfd:shmtensor-" in line for line in lines)


def test_one_mapping_for_all_read_only_tensors_and_one_for_each_private_one() -> None:
    tensors = [shmtensor.ones(100).share_memory_(readonly=True) for _ in range(300)]
    descriptors, read_only = len(os.listdir("/proc/self/fd")), mappings("r--s")  # noqa: PTH208
    got = [arrived(tensor) for tensor in tensors]
    assert mappings("r--s") == read_only
    small = [arrived(shmtensor.ones(100).share_memory_(copy_on_write=True)) for _ in range(300)]
    assert mappings("rw-p") == 0
    large = [arrived(shmtensor.ones(1 << 14).share_memory_(copy_on_write=True)) for _ in range(3)]
    assert 1 <= mappings("rw-p") <= 3  # neighbours may be joined
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208
    del got, small, large
    gc.collect()
    assert mappings("rw-p") == 0


def test_a_segment_of_its_own() -> None:
    tensor = shmtensor.empty((256 << 20) + 1, dtype="uint8", shared=True)
    tensor[-1] = 7
    tensor.share_memory_(readonly=True)
    assert arrived(tensor)[-1].item() == 7
    private = arrived(tensor.share_memory_(copy_on_write=True))
    private[-1] = 8
    assert tensor[-1].item() == 7
    assert mappings("r--s") >= 1
    before = mappings("rw-p")
    del private
    gc.collect()
    assert mappings("rw-p") == before - 1


def test_no_room_for_a_mapping() -> None:
    with world() as w:
        w.run(
            """
import pickle, resource
import shmtensor, shmtensor.multiprocessing
from shmtensor import errors
from multiprocessing.reduction import ForkingPickler
tensor = shmtensor.ones(1 << 20).share_memory_()
other = shmtensor.ones(1 << 20)
with open("/proc/self/statm") as figures:
    used = int(figures.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), -1))  # the arena takes 1 GiB of address space again
for t, how in ((tensor, "readonly"), (tensor, "copy_on_write"), (other, "readonly")):
    try:
        t.share_memory_(**{how: True})
        raise AssertionError("there was room")
    except errors.OutOfMemory as error:
        assert "ulimit -v" in str(error), error
assert tensor.storage()._place() == "shared" and other.storage()._place() == "heap"
tensor.fill_(2), other.fill_(2)
assert pickle.loads(bytes(ForkingPickler.dumps(tensor))).storage() is tensor.storage()
"""
        )


# -------------------------------------------------------------------------------------------------------------- native


def test_views_of_a_block() -> None:
    block = client.default().allocate(100_000)
    memoryview(block)[0] = 1
    lent, readonly, frozen, personal = (
        View(block, kind) for kind in (VIEW_LENT, VIEW_READONLY, VIEW_FROZEN, VIEW_PERSONAL)
    )
    assert lent.address == block.address
    assert readonly.address == frozen.address != block.address
    for view in (lent, readonly, frozen, personal):
        assert view.nbytes == block.nbytes == memoryview(view).nbytes
        assert view.block is block
        array = view.array(np.dtype("u1"), (2, 2), offset=1, strides=(1, 1))
        assert array.base is view
        assert array.flags.writeable == (view in (lent, personal)) != memoryview(view).readonly
        with pytest.raises(ValueError, match="does not fit"):
            view.array(np.dtype("u1"), (100_001,))
    memoryview(personal)[0] = 2
    memoryview(lent)[0] = 3
    assert [memoryview(view)[0] for view in (block, readonly, frozen, personal)] == [3, 3, 3, 2]
    for kind in (0, 5, -1):
        with pytest.raises(ValueError, match="kind"):
            View(block, kind)
    with pytest.raises(TypeError):
        View(personal, VIEW_LENT)


def test_a_small_private_copy_lets_its_block_go() -> None:
    blocks = client.default().native.stats().blocks
    view = View(client.default().allocate(1000), VIEW_PERSONAL)
    assert view.block is None
    assert client.default().native.stats().blocks == blocks
    assert view.address % 64 == 0
    large = View(client.default().allocate(1 << 16), VIEW_PERSONAL)
    assert client.default().native.stats().blocks == blocks + 1
    del large
    assert client.default().native.stats().blocks == blocks


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x[500],
        lambda x: x.sum(),
        lambda x: x.fill_(7),
        lambda x: x.numpy(),
        lambda x: memoryview(x),
        lambda x: x[1:].clone(),
        lambda x: x.share_memory_(),
    ],
)
def test_a_tensor_whose_storage_lost_its_elements_has_nothing_to_read(use: Callable[[Any], object]) -> None:
    """NumPy does not look at strides where the buffer is empty."""
    x = shmtensor.ones(1000)
    x.storage().resize_(0)
    with pytest.raises((errors.InvalidArgument, BufferError), match="beyond"):
        use(x)


@pytest.mark.parametrize("shared", [False, True])
def test_a_storage_without_elements_is_nobodys_window(shared: bool) -> None:
    empty = shmtensor.zeros(0, shared=shared)
    with pytest.raises(errors.InvalidArgument, match="beyond"):
        shmtensor.zeros(1).set_(empty.storage(), 0, (1000,), (1,))
    assert shmtensor.zeros(1).set_(empty.storage(), 0, (0,), (1,)).tolist() == []


@pytest.mark.parametrize("how", ["readonly", "copy_on_write"])
def test_a_queue_holds_restricted_memory_that_nobody_has_received(how: str) -> None:
    """Not the group: what nobody can receive any more is free."""
    native = client.default().native
    gc.collect()
    blocks, in_flight = native.stats().blocks, client.default().list()["in_flight_total"]
    queue = mp.Queue()
    queue.put(shmtensor.ones(1000).share_memory_(**{how: True}))
    received = queue.get(timeout=BOUND)
    queue.put(received)
    del received
    assert client.default().list()["in_flight_total"] == in_flight
    del queue
    gc.collect()
    assert native.stats().blocks == blocks
