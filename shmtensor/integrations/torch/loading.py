"""torch's DataLoader with our processes, queues and memory."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils import worker
from torch.utils.data._utils.collate import collate, collate_tensor_fn, default_collate_fn_map

from ... import multiprocessing as mp
from ..._tensor.core import Tensor
from ...errors import InvalidArgument
from .conversions import to_torch
from .memory import fresh


def collate_tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Stack torch tensors as torch's default collate does; in a worker, into our shared memory."""
    first = batch[0]
    if get_worker_info() is None or first.is_nested or first.layout is not torch.strided or not _fits(first):
        return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    shape = (len(batch), *first.size())
    out = torch.empty(0, dtype=first.dtype, device="cpu").set_(fresh(len(batch) * first.nbytes), 0, shape)
    return torch.stack(batch, 0, out=out)


def _fits(tensor: Any) -> bool:
    return bool(tensor.device.type == "cpu" and tensor.nbytes)


def collate_ours(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Stack tensors of ours as torch tensors."""
    return collate([to_torch(tensor) for tensor in batch], collate_fn_map=collate_fn_map)


default_collate_fn_map[Tensor] = collate_ours


def _collate_into_our_memory() -> None:
    default_collate_fn_map[torch.Tensor] = collate_tensors


def begin_worker(number: int, workers: int, seed: int, dataset: Any) -> None:
    """Make `torch.utils.data.get_worker_info()` and torch's default collate work in a worker of our loader."""
    worker._worker_info = worker.WorkerInfo(id=number, num_workers=workers, seed=seed, dataset=dataset)
    _collate_into_our_memory()


class _Worker:
    """The part of a process that makes torch's default collate write into our memory."""

    def run(self) -> None:
        _collate_into_our_memory()
        super().run()  # type: ignore[misc]


class ForkWorker(_Worker, mp.ForkProcess):
    """A forked process that collates into our memory."""


class SpawnWorker(_Worker, mp.SpawnProcess):
    """A process in a new interpreter that collates into our memory."""


class ForkServerWorker(_Worker, mp.ForkServerProcess):
    """A process of the fork server that collates into our memory."""


class ForkContext(mp.ForkContext):
    """The fork context of `shmtensor.multiprocessing`, with these workers."""

    Process: ClassVar[type[ForkWorker]] = ForkWorker


class SpawnContext(mp.SpawnContext):
    """The spawn context of `shmtensor.multiprocessing`, with these workers."""

    Process: ClassVar[type[SpawnWorker]] = SpawnWorker


class ForkServerContext(mp.ForkServerContext):
    """The forkserver context of `shmtensor.multiprocessing`, with these workers."""

    Process: ClassVar[type[ForkServerWorker]] = ForkServerWorker


_CONTEXTS: Final[dict[str, Any]] = {
    "fork": ForkContext(),
    "spawn": SpawnContext(),
    "forkserver": ForkServerContext(),
}


def context(method: str | None = None) -> Any:
    """Return the context for `torch.utils.data.DataLoader(..., multiprocessing_context=context("fork"))`.

    Its workers collate into our shared memory with torch's default collate, so no `collate_fn=` is needed. The result
    of the program's own `collate_fn` is moved there when it is sent.

    Args:
        method: "fork", "spawn" or "forkserver"; None: the default start method.

    Raises:
        InvalidArgument: an unknown start method.
    """
    method = mp.get_start_method() if method is None else method
    if method not in _CONTEXTS:
        raise InvalidArgument(f"{method!r} is not a start method; choose one of {', '.join(_CONTEXTS)}")
    return _CONTEXTS[method]
