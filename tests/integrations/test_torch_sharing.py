"""share_module, share_tensor_, conversions, and operations of torch itself on tensors in our memory."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from manager_world import TORCH_BOUND
from tiers import first

torch = pytest.importorskip("torch")

import torch.multiprocessing as torch_mp  # noqa: E402

import shmtensor  # noqa: E402
import shmtensor.multiprocessing as mp  # noqa: E402
from shmtensor import errors  # noqa: E402
from shmtensor.integrations.torch import from_torch, memory, share_module, share_tensor_, to_torch  # noqa: E402

pytestmark = pytest.mark.torch


def in_ours(tensor: Any) -> bool:
    return from_torch(tensor).is_shared()


def blocks() -> int:
    gc.collect()
    return shmtensor.manager.client.default().native.stats().blocks


# -- moving ------------------------------------------------------------------------------------------------------------


def test_all_views_follow_a_tensor() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    row, flat, column = x[1], x.view(12), x[:, 2]
    assert share_tensor_(row) is row
    assert x.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert all(tensor.is_shared() and in_ours(tensor) for tensor in (x, row, flat, column))
    row[2] = 50
    assert x[1, 2] == flat[6] == column[1] == 50
    address = x.data_ptr()
    share_tensor_(x)
    assert x.data_ptr() == address


def test_a_module_with_its_optimizer_and_state() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4, bias=False))
    module[2].weight = module[0].weight
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9)
    state, parameters = module.state_dict(), list(module.parameters())
    before = blocks()
    assert share_module(module) is module
    # weight, bias; of the normalisation weight, bias, mean, variance, number of batches
    assert blocks() == before + 7
    assert all(tensor.is_shared() for tensor in (*module.parameters(), *module.buffers(), *state.values()))
    assert [id(one) for one in module.parameters()] == [id(one) for one in parameters]
    assert module[2].weight is module[0].weight
    module(torch.arange(8.0).reshape(2, 4).sin()).exp().sum().backward()
    assert not parameters[0].grad.is_shared()
    kept = state["0.weight"].clone()
    optimizer.step()
    assert not torch.equal(state["0.weight"], kept)
    assert torch.equal(state["0.weight"], module[0].weight)


def test_parts_of_one_storage_are_one_block() -> None:
    whole = torch.zeros(6, 4)
    module = torch.nn.ParameterList([torch.nn.Parameter(part) for part in whole.split(2)])
    before = blocks()
    share_module(module)
    assert blocks() == before + 1
    whole += 1
    assert all(parameter.eq(1).all() for parameter in module)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_sparse_and_nested_tensors() -> None:
    dense = torch.eye(3)
    coo, csr, csc = dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc()
    for tensor in (coo, csr, csc):
        share_tensor_(tensor)
        assert torch.equal(tensor.to_dense(), dense)
    parts = [coo._indices(), coo._values(), csr.crow_indices(), csr.col_indices(), csr.values(), csc.ccol_indices()]
    assert all(in_ours(part) for part in parts)
    for layout in (torch.strided, torch.jagged):
        nested = share_tensor_(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout))
        assert in_ours(nested.values()) and nested.unbind()[1].sum() == 3


def test_empty_tensors_are_left() -> None:
    x = share_tensor_(torch.empty(0, 3))
    assert x.shape == (0, 3) and not x.is_shared()


def test_what_cannot_move() -> None:
    with pytest.raises(errors.DTypeError, match=r"torch\.Tensor"):
        share_tensor_(np.zeros(3))
    with pytest.raises(errors.DTypeError, match="Module"):
        share_module(torch.zeros(3))
    with pytest.raises(errors.InvalidArgument, match="meta"):
        share_tensor_(torch.empty(3, device="meta"))
    with pytest.raises(errors.InvalidArgument, match="torch's shared memory"):
        share_tensor_(torch.zeros(3).share_memory_())


def test_a_layout_without_memory_cannot_move() -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch without MKL-DNN")
    with pytest.raises(errors.InvalidArgument, match=r"layout torch\._mkldnn .* share tensor\.to_dense\(\)"):
        share_tensor_(torch.eye(3).to_mkldnn())


@pytest.mark.parametrize("bad", ["parameter", "buffer", "device"])
def test_a_module_that_cannot_be_shared_is_not_moved_in_part(bad) -> None:
    module = torch.nn.Module()
    module.first = torch.nn.Parameter(torch.ones(3))
    if bad == "buffer":
        module.register_buffer("second", torch.ones(3).share_memory_())
    else:
        module.second = torch.nn.Parameter(
            torch.ones(3, device="meta") if bad == "device" else torch.ones(3).share_memory_()
        )
    with pytest.raises(errors.InvalidArgument, match=r"'second' of a Module cannot be shared, so nothing was moved"):
        share_module(module)
    assert not module.first.is_shared() and not in_ours(module.first)


def test_a_sparse_tensor_that_cannot_be_shared_is_not_moved_in_part() -> None:
    tensor = torch.sparse_coo_tensor([[0, 1]], torch.ones(2).share_memory_(), (3,), check_invariants=True)
    with pytest.raises(errors.InvalidArgument, match="torch's shared memory"):
        share_tensor_(tensor)
    assert not tensor._indices().is_shared()


TAKEN = {
    "numpy": lambda x: x.numpy(),
    "row": lambda x: x[1].numpy(),
    "from_torch": shmtensor.from_torch,
    "from_dlpack": shmtensor.from_dlpack,
    "numpy by DLPack": np.from_dlpack,
}


@pytest.mark.parametrize("how", TAKEN)
@pytest.mark.parametrize("send", [False, True], ids=["share_tensor_", "put"])
def test_arrays_that_were_taken_before_keep_the_old_memory(how: str, send: bool) -> None:
    """The old memory was freed; large arrays of it were a segmentation fault."""
    x = torch.ones(3, 1_000_000)  # so large that the C library returns its memory at once
    array = TAKEN[how](x)
    if send:
        mp.SimpleQueue().put(x)
    else:
        share_tensor_(x)
    x.fill_(2)
    assert np.all(np.asarray(array) == 1)
    del x
    gc.collect()
    assert np.all(np.asarray(array) == 1)


@pytest.mark.parametrize("make", [torch.zeros, lambda n: torch.from_numpy(np.zeros(n, np.float32))])
def test_memory_that_nobody_sees_is_not_kept(make: Any) -> None:
    for send in (share_tensor_, mp.SimpleQueue().put):
        x = make(100)
        x.numpy()
        x.tolist()
        send(x)
        assert memory._LEFT not in vars(x.untyped_storage())
        assert from_torch(x).is_shared() and x.eq(0).all()


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_lazy_modules_are_shared_once_they_have_a_shape() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LazyLinear(3))
    with pytest.raises(errors.InvalidArgument, match=r"'1\.weight' of a Sequential has no shape yet"):
        share_module(module)
    assert not module[0].weight.is_shared()
    with pytest.raises(errors.InvalidArgument, match="no shape yet"):
        share_tensor_(module[1].weight)
    module(torch.zeros(1, 2))
    assert all(parameter.is_shared() for parameter in share_module(module).parameters())


def test_threads_that_share_one_tensor() -> None:
    for _ in range(20):
        x = torch.arange(1000.0)
        threads = [threading.Thread(target=share_tensor_, args=(x[i:],)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TORCH_BOUND)
        assert in_ours(x) and torch.equal(x, torch.arange(1000.0))


def test_memory_goes_with_the_last_tensor() -> None:
    before = blocks()
    x = share_tensor_(torch.zeros(100))
    view = x[3:]
    del x
    assert blocks() == before + 1
    del view
    assert blocks() == before


# -- what torch says and does ------------------------------------------------------------------------------------------


def test_tensors_over_our_memory_are_shared_and_stay() -> None:
    """torch said that they were not, and moved them to memory of its own."""
    ours = shmtensor.zeros(8, shared=True)
    theirs = torch.from_dlpack(ours)
    assert theirs.is_shared() and theirs[2:].is_shared() and theirs.untyped_storage().is_shared()
    theirs.share_memory_()
    torch.nn.Parameter(theirs).share_memory_()
    theirs[0] = 5
    assert ours[0].item() == 5
    with pytest.raises(errors.InvalidArgument, match="handle"):
        theirs.untyped_storage()._share_fd_cpu_()
    with pytest.raises(errors.InvalidArgument, match="handle"):
        theirs.untyped_storage()._share_filename_cpu_()


def test_it_is_so_without_an_import() -> None:
    code = (
        "import torch, shmtensor\n"
        "x = shmtensor.zeros(3, shared=True); t = torch.from_dlpack(x); assert t.is_shared()\n"
        "t.share_memory_(); t += 1; assert x.sum().item() == 3\n"
        "assert not torch.zeros(3).is_shared() and torch.zeros(3).share_memory_().is_shared()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


def add_one(inbox: Any, outbox: Any) -> None:
    x = inbox.get()
    x += 1
    outbox.put(x)
    outbox.get()  # until the parent has it


@pytest.mark.parametrize("strategy", first(["file_descriptor", "file_system"]))
def test_torchs_queues_and_arguments_send_handles_of_our_memory(strategy: str) -> None:
    ours = shmtensor.zeros(8, shared=True)
    theirs = torch.from_dlpack(ours)
    before = torch_mp.get_sharing_strategy()
    torch_mp.set_sharing_strategy(strategy)
    try:
        ctx = torch_mp.get_context("spawn")
        inbox, outbox = ctx.SimpleQueue(), ctx.SimpleQueue()
        process = ctx.Process(target=add_one, args=(inbox, outbox))
        process.start()
        inbox.put(theirs)
        back = outbox.get()
        assert back.untyped_storage()._cdata == theirs.untyped_storage()._cdata
        outbox.put(None)
        process.join(TORCH_BOUND)
        assert process.exitcode == 0 and ours.tolist() == [1] * 8
        process = ctx.Process(target=torch.Tensor.add_, args=(theirs, 1))
        process.start()
        process.join(TORCH_BOUND)
        assert process.exitcode == 0 and ours.tolist() == [2] * 8
    finally:
        torch_mp.set_sharing_strategy(before)


def test_torchs_queues_keep_torchs_way_for_other_memory() -> None:
    queue = torch_mp.SimpleQueue()
    x = torch.zeros(4)
    queue.put(x)
    y = queue.get()
    y[0] = 1
    assert x[0] == 1 and x.is_shared() and not in_ours(x)


@pytest.mark.skipif(not memory.can_move(), reason="a torch without moves of storages")
def test_a_storage_that_is_moved_away_is_private_again() -> None:
    x = share_tensor_(torch.zeros(4))
    assert x.is_shared()
    x.untyped_storage()._swap_data_ptr_(torch.ones(4).untyped_storage())
    assert not x.is_shared() and x.sum() == 4
    share_tensor_(x)
    assert in_ours(x) and x.sum() == 4


def test_copies_are_private() -> None:
    x = share_tensor_(torch.arange(4.0))
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone(), torch.load(file)):
        assert torch.equal(x, y) and y.data_ptr() != x.data_ptr() and not y.is_shared()


def test_lent_memory_is_read_only_for_receivers() -> None:
    ours = shmtensor.arange(1000.0).share_memory_(readonly=True)
    theirs = to_torch(ours)
    queue = mp.Queue()
    queue.put(theirs)
    received = queue.get(timeout=TORCH_BOUND)
    theirs[0] = 5
    assert received[0] == 5
    with pytest.raises(errors.LayoutError):
        from_torch(received)[0] = 1


# -- conversions ------------------------------------------------------------------------------------------------------


def test_there_and_back_is_the_same_memory() -> None:
    for shared in (False, True):
        ours = shmtensor.zeros(3, 4, shared=shared)
        theirs = ours[1:].T.torch()
        assert type(theirs) is torch.Tensor and theirs.shape == (4, 2) and theirs.stride() == (1, 4)
        theirs[2, 0] = 9
        back = shmtensor.from_torch(theirs)
        assert ours[1, 2].item() == back[2, 0].item() == 9 and back.is_shared() == shared
    assert back.storage() is ours.storage()


def test_tensors_on_one_storage_are_so_in_torch() -> None:
    ours = shmtensor.zeros(3, 4, dtype=shmtensor.float64, shared=True)
    whole, row = ours.torch(), ours[2].torch()
    assert whole.untyped_storage()._cdata == row.untyped_storage()._cdata
    assert row.storage_offset() == 8 and whole.untyped_storage().nbytes() == 96


def test_readonly_and_empty_memory() -> None:
    lent = shmtensor.arange(8.0).share_memory_(readonly=True)
    queue = mp.Queue()
    queue.put(lent)
    received = queue.get(timeout=TORCH_BOUND)
    assert received[2:].torch().tolist() == lent[2:].torch().tolist() == [2, 3, 4, 5, 6, 7]
    assert shmtensor.zeros(0, 3, shared=True).torch().shape == (0, 3)
    assert shmtensor.zeros(4, shared=True)[4:].torch().shape == (0,)


def test_gradients_are_not_carried_over() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    ours = shmtensor.from_torch(parameter)
    assert not ours.requires_grad and ours.data_ptr() == parameter.data_ptr()
    assert not shmtensor.ones(3, requires_grad=True).torch().requires_grad
    with pytest.raises(errors.DTypeError, match="torch"):
        shmtensor.from_torch(np.ones(3))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "complex64", "bfloat16"])
def test_types(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    ours = shmtensor.ones(3, dtype=getattr(shmtensor, dtype), shared=True)
    theirs = ours[1:].torch()
    assert str(theirs.dtype) == f"torch.{dtype}" and theirs.shape == (2,)
    assert shmtensor.from_torch(theirs).dtype == ours.dtype


# -- a torch that cannot move storages --------------------------------------------------------------------------------

WITHOUT = """
import torch
import shmtensor.integrations.torch.memory as memory
from shmtensor.integrations.torch import reductions, share_module, share_tensor_
import shmtensor.multiprocessing as mp
memory._SWAP = "_a_method_that_this_torch_lacks"
assert not memory.can_move()
reductions.install()

module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
module[1].weight = torch.nn.Parameter(module[0].weight.detach().T)
optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
state, parameters = module.state_dict(), list(module.parameters())
share_module(module)
assert all(one.is_shared() for one in module.parameters())
assert parameters[0] is next(module.parameters())
with torch.no_grad():
    module[0].weight[0, 1] = 7
assert module[1].weight[1, 0] == 7  # tied weights are

x = torch.zeros(4, 4, requires_grad=True)
queue = mp.Queue()
queue.put([x, x.detach()[1], torch.nn.Parameter(torch.ones(2))])
y, row, parameter = queue.get()
assert x.is_shared() and y.requires_grad and type(parameter) is torch.nn.Parameter
with torch.no_grad():
    y[1, 2] = 3
assert x[1, 2] == 3 and row[2] == 3

try:
    share_tensor_(torch.zeros(3).share_memory_())
except ValueError as error:
    assert "torch's shared memory" in str(error)
else:
    raise AssertionError("moved")

queue.put(torch.eye(2).to_sparse())
assert queue.get().to_dense()[1, 1] == 1
queue.put(torch.zeros(3).untyped_storage())
assert queue.get().nbytes() == 12
"""


@pytest.mark.exhaustive
def test_a_torch_without_moves_of_storages() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


def test_without_torch_the_error_says_what_to_install(tmp_path: Any) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    code = "import shmtensor\ntry: shmtensor.zeros(3).torch()\nexcept ModuleNotFoundError as e: print(e)"
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "shmtensor[torch]" in done.stdout, done.stderr
