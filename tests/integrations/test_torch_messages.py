"""torch tensors in messages and arguments: the same memory, aliasing, flags and errors as with torch's own."""

from __future__ import annotations

import collections
import gc
import os
import resource
import signal
import subprocess
import sys
from typing import Any

import pytest
from manager_world import TORCH_BOUND, until

torch = pytest.importorskip("torch")

import shmtensor  # noqa: E402
import shmtensor.multiprocessing as mp  # noqa: E402
from shmtensor import errors  # noqa: E402
from shmtensor.integrations.torch import memory  # noqa: E402

pytestmark = pytest.mark.torch
FORK = mp.get_context("fork")
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.uint16, torch.bool, torch.complex64, torch.float8_e5m2,
]  # fmt: skip


def finish(process: Any) -> None:
    process.join(TORCH_BOUND)
    assert process.exitcode == 0


def in_ours(tensor: Any) -> bool:
    return shmtensor.from_torch(tensor).is_shared()


def sent(value: Any, queue: Any = None) -> Any:
    queue = mp.Queue() if queue is None else queue
    queue.put(value)
    return queue.get()


def fill(queue: Any, done: Any) -> None:
    data = queue.get(timeout=TORCH_BOUND)
    data[0][:] = 4
    done.set()


def test_sender_sees_what_the_receiver_writes(ctx: Any) -> None:
    x = torch.zeros(5, 5)
    data = [x, x[:, 1]]
    queue, done = ctx.Queue(), ctx.Event()
    queue.put(data)
    process = ctx.Process(target=fill, args=(queue, done))
    process.start()
    assert done.wait(TORCH_BOUND)
    assert data[0].eq(4).all() and data[1].eq(4).all()
    finish(process)


def put_twice(queue: Any, done: Any) -> None:
    x = torch.ones(5, 5)
    queue.put(x)
    queue.put(x)
    assert done.wait(TORCH_BOUND)


def test_what_is_received_twice_is_one_storage(ctx: Any) -> None:
    queue, done = ctx.Queue(), ctx.Event()
    process = ctx.Process(target=put_twice, args=(queue, done))
    process.start()
    first, second = queue.get(timeout=TORCH_BOUND), queue.get(timeout=TORCH_BOUND)
    assert first.eq(1).all()
    assert first.untyped_storage()._cdata == second.untyped_storage()._cdata
    del second
    gc.collect()
    assert first.eq(1).all()
    done.set()
    finish(process)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_put_and_get_in_one_process_give_the_original_storage() -> None:
    x = torch.randn(5, 5)
    data = [x.storage(), x.untyped_storage(), x, x[2], x[:, 1], x.T]
    back = sent(data)
    number = x.untyped_storage()._cdata
    assert back[0]._cdata == number and type(back[0]) is type(data[0])
    assert back[1]._cdata == number and type(back[1]) is torch.UntypedStorage
    for mine, theirs in zip(data[2:], back[2:], strict=True):
        assert theirs.untyped_storage()._cdata == number
        assert torch.equal(mine, theirs) and mine.stride() == theirs.stride()
        assert mine.storage_offset() == theirs.storage_offset()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_types(dtype: Any) -> None:
    x = torch.arange(6).reshape(2, 3).to(dtype)
    y = sent(x)
    assert y.dtype == dtype and y.shape == (2, 3) and y.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_empty_and_meta_tensors(dtype: Any, device: str) -> None:
    for shape in ((0,), (0, 3), *(((2, 3),) if device == "meta" else ())):
        out = sent(torch.empty(shape, dtype=dtype, device=device))
        assert out.shape == shape and out.dtype == dtype and out.device.type == device


def test_memory_of_a_sent_tensor_cannot_be_resized() -> None:
    x = torch.zeros(4)
    sent(x)
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(100)


def test_all_that_refers_to_a_sent_storage_follows() -> None:
    x = torch.zeros(4, 4)
    view, parameter, row = x.view(2, 8), torch.nn.Parameter(x), x[1]
    y = sent(row)
    assert y.shape == (4,)
    y[0] = 7
    assert x[1, 0] == view[0, 4] == parameter[1, 0] == row[0] == 7
    assert in_ours(view) and in_ours(parameter)


# -- gradients and classes --------------------------------------------------------------------------------------------


def test_flags_and_classes_of_leaves() -> None:
    for requires_grad in (False, True):
        plain = torch.arange(4.0).requires_grad_(requires_grad)
        parameter = torch.nn.Parameter(torch.arange(4.0), requires_grad=requires_grad)
        plain.grad = torch.ones(4)
        for x in (plain, parameter):
            y = sent(x)
            assert type(y) is type(x) and y.requires_grad == requires_grad
            assert y.grad is None and y.is_leaf and y.data_ptr() == x.data_ptr()


def test_conjugated_and_negated_tensors() -> None:
    """Through torch's reducers they arrive without conjugation and negation."""
    z = torch.tensor([1 + 2j, 3 - 4j])
    negated = z.conj().imag
    assert z.conj().is_conj() and negated.is_neg()
    for x in (z.conj(), negated, z.conj().detach().requires_grad_(), torch._neg_view(z.conj())):
        y = sent(x)
        assert torch.equal(y, x) and (y.is_conj(), y.is_neg()) == (x.is_conj(), x.is_neg())
        assert y.requires_grad == x.requires_grad and y.is_leaf and in_ours(z)
        assert y.data_ptr() == x.data_ptr()
    with pytest.raises(RuntimeError, match="non-leaf"):
        mp.SimpleQueue().put(z.requires_grad_().conj())


def test_an_integer_parameter() -> None:
    x = torch.nn.Parameter(torch.tensor([1, 2]), requires_grad=False)
    y = sent(x)
    assert type(y) is torch.nn.Parameter and y.dtype == torch.int64 and not y.requires_grad


@pytest.mark.parametrize("make", [mp.Queue, mp.SimpleQueue])
def test_results_with_a_graph_are_refused(make: Any) -> None:
    x = torch.arange(4.0).requires_grad_() * 2
    queue = make()
    with pytest.raises(RuntimeError, match="non-leaf"):
        queue.put(x)
    assert torch.equal(sent(x.detach(), queue), x.detach())


def test_hooks_stay_behind() -> None:
    x = torch.zeros(3, requires_grad=True)
    x.register_hook(torch.utils.hooks.unserializable_hook(lambda g: None))
    assert not sent(x)._backward_hooks
    y = torch.zeros(3, requires_grad=True)
    y.register_hook(lambda g: None)
    with pytest.warns(UserWarning, match="hook"):
        sent(y)


class Named(torch.Tensor):
    label = ""


def test_subclasses_keep_their_class_and_attributes() -> None:
    x = torch.zeros(3).as_subclass(Named)
    x.label = "one"
    y = sent(x)
    assert type(y) is Named and y.label == "one"
    y[0] = 3
    assert x[0] == 3


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_sparse_tensors() -> None:
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    for sparse in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((1, 1))):
        y = sent(sparse)
        assert y.layout == sparse.layout and torch.equal(y.to_dense(), dense)
        values = y._values() if y.layout is torch.sparse_coo else y.values()
        assert in_ours(values)
    coo = dense.to_sparse()
    assert sent(coo).is_coalesced() == coo.is_coalesced()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors(layout: Any) -> None:
    parts = [torch.arange(3.0), torch.arange(5.0)]
    out = sent(torch.nested.nested_tensor(parts, layout=layout))
    assert out.is_nested and out.layout == layout
    for mine, theirs in zip(parts, out.unbind(), strict=True):
        assert torch.equal(mine, theirs)


def step(module: Any, replies: Any) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 1
    replies.put(module)


def test_modules(ctx: Any) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
    module[2].weight = torch.nn.Parameter(module[0].weight.detach().T)  # another view of the same storage
    if ctx.get_start_method() == "fork":
        shmtensor.integrations.torch.share_module(module)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    replies = ctx.Queue()
    process = ctx.Process(target=step, args=(module, replies))
    process.start()
    back = replies.get(timeout=TORCH_BOUND)
    finish(process)
    for name, value in module.named_parameters():
        times = 2 if name in ("0.weight", "2.weight") else 1
        assert torch.allclose(value, before[name] + times)
    for (_, mine), (_, theirs) in zip(module.named_parameters(), back.named_parameters(), strict=True):
        assert mine.data_ptr() == theirs.data_ptr()


# -- every way to another process -------------------------------------------------------------------------------------


def add(tensor: Any) -> Any:
    tensor.fill_(4)
    return tensor.add(1)


def test_pools(ctx: Any) -> None:
    buffers = [torch.zeros(2, 2) for _ in range(4)]
    with ctx.Pool(2) as pool:
        results = pool.map(add, buffers, 1)
    assert all(torch.equal(result, torch.full((2, 2), 5.0)) for result in results)
    assert all(torch.equal(buffer, torch.full((2, 2), 4.0)) for buffer in buffers)


def test_pipes() -> None:
    here, there = mp.Pipe()
    x = torch.zeros(3)
    here.send({"x": x})
    y = there.recv()["x"]
    y[0] = 1
    assert x[0] == 1 and in_ours(x)


def add_three(tensor: Any) -> None:
    tensor += 3


def test_arguments(ctx: Any) -> None:
    x = torch.zeros(5, 5)
    if ctx.get_start_method() == "fork":
        shmtensor.integrations.torch.share_tensor_(x)
    process = ctx.Process(target=add_three, args=(x,))
    process.start()
    finish(process)
    assert x.eq(3).all() and in_ours(x)


def add_index(index: int, tensor: Any) -> None:
    tensor[index] += index + 1


@pytest.mark.exhaustive
def test_spawn_of_several() -> None:
    x = torch.zeros(3)
    mp.spawn(add_index, (x,), nprocs=3)
    assert x.tolist() == [1, 2, 3]


def read_state(broadcast: Any, ready: Any, replies: Any) -> None:
    with broadcast.reader() as reader:
        ready.release()
        state = reader.get(timeout=TORCH_BOUND)
        replies.put({name: float(value.sum()) for name, value in state.items()})
        state["weight"][0] += 1


def test_a_broadcast_of_a_state_dict_reaches_all_readers(ctx: Any) -> None:
    """Through torch's reducers the second one got EOFError."""
    module = torch.nn.Linear(3, 2)
    broadcast, ready, replies = ctx.Broadcast(4), ctx.Semaphore(0), ctx.Queue()
    readers = [ctx.Process(target=read_state, args=(broadcast, ready, replies)) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in readers:
        assert ready.acquire(timeout=TORCH_BOUND)
    wanted = {name: pytest.approx(float(value.sum()), abs=10) for name, value in module.state_dict().items()}
    row = module.weight.detach()[0].clone()
    broadcast.put(module.state_dict())
    for _ in readers:
        assert replies.get(timeout=TORCH_BOUND) == wanted
    for reader in readers:
        finish(reader)
    assert (module.weight.detach()[0] > row).all()  # by 1 to 3: they may have added at the same time


def put_and_end(queue: Any, how: str) -> None:
    queue.put(torch.arange(1000.0))
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("how", ["ended", "killed"])
def test_a_tensor_outlives_its_sender(how: str) -> None:
    """Through torch's reducers: FileNotFoundError."""
    queue = mp.Queue()
    process = FORK.Process(target=put_and_end, args=(queue, how))
    process.start()
    process.join(TORCH_BOUND)
    assert torch.equal(queue.get(timeout=TORCH_BOUND), torch.arange(1000.0))


def receive_many(queue: Any, replies: Any, count: int) -> None:
    limit_descriptors()
    tensors = [queue.get(timeout=TORCH_BOUND) for _ in range(count)]
    replies.put(sum(int(tensor[0]) for tensor in tensors))


def limit_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


MANY = """
import torch, shmtensor.multiprocessing as mp
from test_torch_messages import limit_descriptors, receive_many
limit_descriptors()
queue, replies = mp.Queue(), mp.Queue()
process = mp.get_context("fork").Process(target=receive_many, args=(queue, replies, 2000))
process.start()
kept = [torch.full((64,), float(i)) for i in range(2000)]
for tensor in kept:
    queue.put(tensor)
assert replies.get(timeout=60) == sum(range(2000))
process.join(60)
assert process.exitcode == 0 and all(tensor.is_shared() for tensor in kept)
"""


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    here = os.path.dirname(__file__)  # noqa: PTH120
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path]), **variables}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.exhaustive
def test_2000_tensors_with_128_descriptors() -> None:
    done = run(MANY)
    assert done.returncode == 0, done.stderr


def test_memory_of_received_tensors_is_freed() -> None:
    manager = shmtensor.manager.client.default()
    queue = mp.Queue()
    sent(torch.zeros(8), queue)
    gc.collect()
    before = manager.native.stats().nbytes
    for _ in range(50):
        sent(torch.zeros(100_000), queue)
    until(lambda: manager.native.stats().nbytes <= before + 500_000, "the tensors to go")


# -- what torch has shared ---------------------------------------------------------------------------------------------


def take_theirs(queue: Any, replies: Any) -> None:
    queue.get(timeout=TORCH_BOUND).fill_(6)
    replies.put(True)


def test_memory_that_torch_has_shared_stays_there() -> None:
    x = torch.zeros(4).share_memory_()
    queue, replies = mp.Queue(), mp.Queue()
    process = FORK.Process(target=take_theirs, args=(queue, replies))
    process.start()
    queue.put(x)
    assert replies.get(timeout=TORCH_BOUND)
    finish(process)
    assert x.eq(6).all() and not in_ours(x)


def test_memory_that_torch_has_shared_is_received_once() -> None:
    broadcast = mp.Broadcast(4)
    with broadcast.reader() as first, broadcast.reader() as second:
        broadcast.put(collections.OrderedDict(x=torch.zeros(4).share_memory_()))
        assert first.get(timeout=TORCH_BOUND)["x"].eq(0).all()
        with pytest.raises(errors.StaleHandle, match="share_tensor_"):
            second.get(timeout=TORCH_BOUND)


# -- what is not torch's -----------------------------------------------------------------------------------------------


def test_a_program_without_torch_does_not_load_it() -> None:
    done = run(
        "import sys, shmtensor, shmtensor.multiprocessing as mp\n"
        "queue = mp.Queue(); queue.put({1, 2}); queue.put(shmtensor.zeros(3)); queue.get(); queue.get()\n"
        "assert 'torch' not in sys.modules and 'shmtensor.integrations' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr


def test_torch_that_is_imported_later_is_known_at_the_next_message() -> None:
    done = run(
        "import shmtensor.multiprocessing as mp\n"
        "queue = mp.Queue(); queue.put({1, 2}); queue.get()\n"
        "import torch\n"
        "x = torch.zeros(3); queue.put(x); y = queue.get(); y[0] = 1\n"
        "assert x[0] == 1 and x.is_shared() and y._typed_storage()._cdata == x._typed_storage()._cdata"
    )
    assert done.returncode == 0, done.stderr


# -- as programs for torch.multiprocessing do it -----------------------------------------------------------------------


class Adding(mp.Process):
    def __init__(self, tensor: Any) -> None:
        super().__init__(daemon=True)
        self.tensor = tensor

    def run(self) -> None:
        self.tensor.add_(3)


def test_a_process_that_has_a_tensor() -> None:
    for share in (torch.Tensor.share_memory_, shmtensor.integrations.torch.share_tensor_):
        tensor = torch.zeros(5, 5)
        process = Adding(share(tensor))
        process.start()
        finish(process)
        assert tensor.eq(3).all()


def backward(number: int) -> int:
    torch.rand(3).requires_grad_(True).mean().backward()
    return number**2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_gradients_in_pools(method: str) -> None:
    backward(1)
    with mp.get_context(method).Pool(2) as pool:
        assert pool.map(backward, [1, 2, 3]) == [1, 4, 9]


def test_gradients_of_both_sides_are_their_own() -> None:
    x = torch.nn.Parameter(torch.arange(25.0).view(5, 5))
    x.grad = torch.zeros(5, 5)
    there, back = mp.Queue(), mp.Queue()
    process = FORK.Process(target=set_gradient, args=(there, back))
    process.start()
    there.put(x)
    assert back.get(timeout=TORCH_BOUND) == (True, torch.nn.Parameter)
    finish(process)
    assert x.eq(1).all() and x.grad.eq(0).all()


def set_gradient(there: Any, back: Any) -> None:
    x = there.get(timeout=TORCH_BOUND)
    had_none = x.grad is None
    x.data.fill_(1)
    x.grad = torch.ones(5, 5)
    back.put((had_none, type(x)))


def test_segments_with_names() -> None:
    code = (
        "import torch, shmtensor.multiprocessing as mp\n"
        "mp.set_sharing_strategy('file_system')\n"
        "x = torch.randn(5, 5); queue = mp.Queue(); queue.put([x, x[2], x[:, 1]])\n"
        "for y in queue.get():\n"
        "    assert y.untyped_storage()._cdata == x.untyped_storage()._cdata and y.is_shared()\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not memory.can_move(), reason="this torch cannot move a storage")
def test_the_memory_of_a_tensor_is_looked_for_once(monkeypatch: Any) -> None:
    asked = []
    look = memory.from_dlpack

    def counted(capsule: Any) -> Any:
        asked.append(capsule)
        return look(capsule)

    monkeypatch.setattr(memory, "from_dlpack", counted)
    queue: Any = mp.SimpleQueue()
    x = torch.arange(6.0)
    assert not x.is_shared() and not x.is_shared()
    queue.put((x, x[2:]))
    assert x.is_shared() and len(asked) == 1
    found, part = queue.get()
    found[3] = 9
    assert x[3] == 9 == part[1]
    x.untyped_storage()._swap_data_ptr_(torch.arange(6.0).untyped_storage())
    assert not x.is_shared() and len(asked) == 2, "it is other memory by now"
