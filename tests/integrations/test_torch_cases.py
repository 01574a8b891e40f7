"""The CPU cases of torch's own test_multiprocessing.py, with shmtensor.multiprocessing in the place of torch's.

| torch's case | here |
| --- | --- |
| test_fd_sharing, test_fd_preserve_sharing, test_fd_pool | `sharing`, `preserved`, `pool`, and test_torch_messages.py |
| test_fs_sharing, test_fs_preserve_sharing, test_fs_pool | the same with the strategy file_system, in a program |
| test_fs | `names`; a name is that of a segment, which may stay for the next tensor until the process ends |
| test_inherit_tensor | test_a_process_that_has_a_tensor in test_torch_messages.py |
| test_autograd_errors, test_autograd_fine_with_spawn | test_gradients_in_pools, there; without a GPU forks are fine |
| test_empty_tensor_sharing, also _meta, test_tensor_sharing_meta | test_empty_and_meta_tensors, there |
| test_meta_simple (which torch skips on Linux) | test_meta_tensors_in_another_process |
| test_variable_sharing, test_leaf_variable_sharing, test_parameter_sharing | `variables` |
| test_non_leaf_variable_sharing | test_results_with_a_graph_are_refused in test_torch_messages.py |
| test_integer_parameter_serialization_cpu | test_an_integer_parameter_as_an_argument |
| test_empty_shared, test_is_shared, test_fs_is_shared | test_what_is_shared |
| test_set_thread_name | none: the two functions are private to torch, and not about memory |
| test_cuda_*, test_event*, and others that need CUDA | none: torch sends CUDA tensors itself |
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from manager_world import TORCH_BOUND, World, until

torch = pytest.importorskip("torch")

import shmtensor  # noqa: E402
import shmtensor.multiprocessing as mp  # noqa: E402
from shmtensor.integrations.torch import share_tensor_  # noqa: E402

pytestmark = pytest.mark.torch
REPEATS = 30
FORK = mp.get_context("fork")


def finish(process: Any) -> None:
    process.join(TORCH_BOUND)
    assert process.exitcode == 0


def started(target: Callable[..., Any], *arguments: Any, ctx: Any = FORK) -> Any:
    process = ctx.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


# -- memory ------------------------------------------------------------------------------------------------------------


def fill(queue: Any, done: Any) -> None:
    data = queue.get(timeout=TORCH_BOUND)
    data[0][:] = 4
    done.set()


def send_twice(queue: Any, done: Any, device: str = "cpu") -> None:
    x = torch.ones(5, 5, device=device)
    queue.put(x)
    queue.put(x)
    assert done.wait(TORCH_BOUND)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def sharing() -> None:
    x = torch.zeros(5, 5)
    data = [x, x[:, 1]]
    queue, done = FORK.Queue(), FORK.Event()
    queue.put(data)
    process = started(fill, queue, done)
    assert done.wait(TORCH_BOUND)
    assert all(part.eq(4).all() for part in data)
    finish(process)
    queue, done = FORK.Queue(), FORK.Event()
    process = started(send_twice, queue, done)
    first, second = queue.get(timeout=TORCH_BOUND), queue.get(timeout=TORCH_BOUND)
    assert first.eq(1).all()
    assert first.untyped_storage()._cdata == second.untyped_storage()._cdata
    del first, second
    done.set()
    finish(process)


def preserved() -> None:
    x = torch.randn(5, 5)
    data = [x._typed_storage(), x, x[2], x[:, 1]]
    queue = FORK.Queue()
    queue.put(data)
    storage, *tensors = queue.get(timeout=TORCH_BOUND)
    number = data[0]._cdata
    assert storage._cdata == number and type(storage) is type(data[0])
    assert all(tensor.untyped_storage()._cdata == number for tensor in tensors)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(tensors, data[1:], strict=True))


def fill_and_add(tensor: Any) -> Any:
    tensor.fill_(4)
    return tensor.add(1)


def pool() -> None:
    buffers = [torch.zeros(2, 2) for _ in range(4)]
    with FORK.Pool(2) as workers:
        results = workers.map(fill_and_add, buffers, 1)
    assert all(torch.equal(result, torch.full((2, 2), 5.0)) for result in results)
    assert all(torch.equal(buffer, torch.full((2, 2), 4.0)) for buffer in buffers)


def descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def blocks() -> int:
    gc.collect()
    return shmtensor.manager.client.default().native.stats().blocks


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", [sharing, preserved, pool], ids=lambda case: case.__name__)
def test_many_times_without_leaks(case: Callable[[], None]) -> None:
    case()
    before, kept = descriptors(), blocks()
    for _ in range(REPEATS):
        case()
    assert descriptors() <= before + 5
    until(lambda: blocks() <= kept, "the tensors to go")
    assert not list(Path("/dev/shm").glob(f"torch_{os.getpid()}_*"))


def names() -> None:
    """A storage in a message has a name in /dev/shm, as has each one of torch's with that strategy."""
    queue = mp.Queue()
    queue.put(torch.zeros(4).untyped_storage())
    assert list(Path("/dev/shm").glob(f"torch_{os.getpid()}_*"))
    assert queue.get(timeout=TORCH_BOUND).nbytes() == 16


NAMED = """
import os
import test_torch_cases as cases
cases.mp.set_sharing_strategy("file_system")
for case in (cases.names, cases.sharing, cases.preserved, cases.pool, cases.variables):
    for _ in range(3):
        case()
assert cases.torch.zeros(3).share_memory_().is_shared()
print(os.getpid())
"""


@pytest.mark.exhaustive
def test_segments_with_names(here: World) -> None:
    paths = f"{Path(__file__).parent}:{here.env['PYTHONPATH']}"
    pid = here.run(NAMED, env={"PYTHONPATH": paths}).strip()
    until(lambda: not list(Path("/dev/shm").glob(f"torch_{pid}_*")), "the names to go")


# -- gradients ---------------------------------------------------------------------------------------------------------


def seen(queue: Any, replies: Any, changed: Any) -> None:
    x = queue.get(timeout=TORCH_BOUND)
    replies.put("ready")
    assert changed.wait(TORCH_BOUND)
    wanted = torch.arange(1.0, 26).view(5, 5)
    wanted[0, 0] = 1000
    found = [x.data.equal(wanted), x.grad is None, not x._backward_hooks, x.requires_grad, type(x)]
    x.data[:] = torch.ones(5, 5)
    x.grad = torch.ones(5, 5)
    replies.put(found)


def variables() -> None:
    """Both sides see the values that the other one writes; gradients and hooks are their own."""
    for kind in (torch.nn.Parameter, torch.Tensor):
        for requires_grad in (True, False):
            x = torch.arange(1.0, 26).view(5, 5)
            x = torch.nn.Parameter(x, requires_grad) if kind is torch.nn.Parameter else x.requires_grad_(requires_grad)
            if requires_grad:
                x.register_hook(torch.utils.hooks.unserializable_hook(lambda grad: None))
            x.grad = torch.zeros(5, 5)
            queue, replies, changed = FORK.Queue(), FORK.Queue(), FORK.Event()
            process = started(seen, queue, replies, changed)
            queue.put(x)
            assert replies.get(timeout=TORCH_BOUND) == "ready"
            x.data[0, 0] = 1000
            x.grad.data[:] = torch.ones(5, 5) * 4
            changed.set()
            assert replies.get(timeout=TORCH_BOUND) == [True, True, True, requires_grad, kind]
            finish(process)
            assert x.data.eq(1).all() and x.grad.eq(4).all()


def test_variables_and_parameters() -> None:
    variables()


def next_of(parameter: Any) -> None:
    assert (parameter + 1).item() == 1 and type(parameter) is torch.nn.Parameter


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_an_integer_parameter_as_an_argument(method: str) -> None:
    parameter = torch.nn.Parameter(torch.tensor(0), requires_grad=False)
    finish(started(next_of, parameter, ctx=mp.get_context(method)))


# -- others ------------------------------------------------------------------------------------------------------------


def test_meta_tensors_in_another_process() -> None:
    queue, done = FORK.Queue(), FORK.Event()
    process = started(send_twice, queue, done, "meta")
    first, second = queue.get(timeout=TORCH_BOUND), queue.get(timeout=TORCH_BOUND)
    assert first.device.type == second.device.type == "meta" and first.shape == second.shape == (5, 5)
    done.set()
    finish(process)


@pytest.mark.parametrize("share", [torch.Tensor.share_memory_, share_tensor_], ids=["torch's", "ours"])
def test_what_is_shared(share: Callable[[Any], Any]) -> None:
    share(torch.tensor([]))
    x = torch.randn(5, 5)
    assert not x.is_shared()
    assert share(x) is x and x.is_shared() and x[1:].is_shared()


def test_all_names_of_torch_are_here() -> None:
    import torch.multiprocessing as theirs

    public = {"spawn", "start_processes", "ProcessContext", "SpawnContext", "ProcessRaisedException"}
    public |= {"ProcessExitedException", *theirs.__all__}
    assert not {name for name in public if not hasattr(mp, name)}
