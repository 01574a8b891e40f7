"""The ways to pass a tensor between processes, behind one small interface, so that each does the same work.

A transport makes queues and tensors, and is sent to the other process with them. Each uses its library's best means
for the job: torch allocates its tensors in shared memory, as its DataLoader does. Ray, which passes arguments to actors
instead of messages to queues, is in actors.py.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

NUMBERS = itertools.count()
ICEORYX2_PREFIX = "shmtensor-bench-"  # of the files that it leaves in /dev/shm
PATIENCE = 120.0  # seconds for one piece of work


class Transport:
    """The standard library: ndarrays by value. The other transports override parts of it."""

    name = "stdlib"
    needs = "multiprocessing"
    starts = "multiprocessing"  # the module whose processes and queues it uses
    kinds: tuple[str, ...] = ("SimpleQueue", "Queue")

    def context(self, method: str) -> Any:
        return importlib.import_module(self.starts).get_context(method)

    def settle(self) -> None:
        """Called in each process before anything else."""

    def queue(self, context: Any, kind: str, largest: int, limit: int = 0) -> Any:
        """A queue for messages of up to `largest` bytes, with at most `limit` messages (0: the default)."""
        return context.Queue(limit) if kind == "Queue" else context.SimpleQueue()

    def fresh(self, queue: Any, source: Any) -> Any:
        """A new tensor, filled from an ndarray by one copy; the queue is the one that it will be put into."""
        return source.copy()

    def add_one(self, tensor: Any) -> None:
        tensor[0] += 1

    def read(self, tensor: Any) -> float:
        """One value in 1,024 (for 4 KiB of float32: one)."""
        return float(tensor[::1024].sum() if len(tensor) > 1024 else tensor[0])


class Shmtensor(Transport):
    name = "shmtensor"
    needs = "shmtensor"
    starts = "shmtensor.multiprocessing"

    def settle(self) -> None:
        import shmtensor

        self.empty = shmtensor.empty

    def fresh(self, queue: Any, source: Any) -> Any:
        tensor = self.empty(source.size, shared=True)
        np.copyto(tensor.numpy(), source)
        return tensor

    def add_one(self, tensor: Any) -> None:
        tensor.numpy()[0] += 1

    def read(self, tensor: Any) -> float:
        return super().read(tensor.numpy() if hasattr(tensor, "numpy") else tensor)


class Torch(Shmtensor):
    needs = "torch"
    starts = "torch.multiprocessing"

    def __init__(self, strategy: str) -> None:
        self.strategy = strategy
        self.name = f"torch, {strategy}"

    def settle(self) -> None:
        import torch
        import torch.multiprocessing

        torch.multiprocessing.set_sharing_strategy(self.strategy)
        torch.set_num_threads(1)

    def fresh(self, queue: Any, source: Any) -> Any:
        import torch

        storage = torch.UntypedStorage._new_shared(source.nbytes)
        tensor = torch.empty(0).set_(storage, 0, (source.size,))  # type: ignore[call-overload]
        np.copyto(tensor.numpy(), source)
        return tensor


class FasterFifo(Transport):
    name = "faster-fifo"
    needs = "faster_fifo"
    kinds = ("Queue",)

    def queue(self, context: Any, kind: str, largest: int, limit: int = 0) -> Any:
        import faster_fifo

        return faster_fifo.Queue(max(1_000_000, (largest + 1024) * (limit or 3)))


class Iceoryx2(Transport):
    """Publish and subscribe, busy polling. iceoryx2 has no queues: each of ours has one writer and one reader."""

    name = "iceoryx2, busy polling"
    needs = "iceoryx2"
    kinds = ("Queue",)

    def queue(self, context: Any, kind: str, largest: int, limit: int = 0) -> Any:
        return Iceoryx2Queue(f"{os.getpid()}-{next(NUMBERS)}", largest, limit or 4)

    def fresh(self, queue: Any, source: Any) -> Any:
        loan = queue.loan()
        np.copyto(np.frombuffer(loan, np.float32), source)
        return loan

    def add_one(self, tensor: Any) -> None:
        tensor.first = tensor[0] + 1  # received tensors are mapped read-only

    def read(self, tensor: Any) -> float:
        return super().read(np.frombuffer(tensor, np.float32))


class Iceoryx2Queue:
    """A service; a process opens its end on first use. Tensors are ctypes arrays over its samples.

    A received sample cannot be forwarded. Putting one sends a new sample with only the first element, which is fast.
    """

    def __init__(self, name: str, largest: int, limit: int) -> None:
        self.name, self.largest, self.limit = name, largest, limit
        self.array = ctypes.c_float * (largest // 4)
        self.publisher: Any = None
        self.subscriber: Any = None

    def __getstate__(self) -> Any:
        return self.name, self.largest, self.limit

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def open(self, writes: bool) -> None:
        import iceoryx2

        iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
        config = iceoryx2.config.default()
        config.global_cfg.root_path = iceoryx2.Path.new(os.environ["SHMTENSOR_RUNTIME_DIR"] + "/iceoryx2/")
        config.global_cfg.prefix = iceoryx2.FileName.new(ICEORYX2_PREFIX)
        self.node = iceoryx2.NodeBuilder.new().config(config).create(iceoryx2.ServiceType.Ipc)
        service = (
            self.node.service_builder(iceoryx2.ServiceName.new(self.name))
            .publish_subscribe(iceoryx2.Slice[ctypes.c_uint8])
            .max_publishers(1)
            .max_subscribers(1)
            .payload_alignment(iceoryx2.Alignment.new(64))
            .subscriber_max_buffer_size(self.limit)
            .enable_safe_overflow(False)
            .open_or_create()
        )
        if writes:
            builder = service.publisher_builder().initial_max_slice_len(self.largest)
            wait = iceoryx2.BackpressureStrategy.RetryUntilDelivered
            self.publisher = builder.backpressure_strategy(wait).create()
        else:
            self.subscriber = service.subscriber_builder().create()

    def loan(self) -> Any:
        sample = self.publisher.loan_slice_uninit(self.largest)
        array = self.array.from_address(sample.payload_ptr)
        array.loan = sample
        return array

    def put(self, array: Any) -> None:
        loan = getattr(array, "loan", None)
        if loan is None:
            loan = self.publisher.loan_slice_uninit(self.largest)
            ctypes.c_float.from_address(loan.payload_ptr).value = getattr(array, "first", array[0])
        loan.assume_init().send()

    def get(self) -> Any:
        receive = self.subscriber.receive
        while (sample := receive()) is None:
            pass
        array = self.array.from_address(sample.payload_ptr)  # every message is of the largest size
        array.sample = sample
        return array


TRANSPORTS = {
    "shmtensor": Shmtensor(),
    "torch fd": Torch("file_descriptor"),
    "torch fs": Torch("file_system"),
    "stdlib": Transport(),
    "faster-fifo": FasterFifo(),
    "iceoryx2": Iceoryx2(),
}


# ---- the process at the other end ------------------------------------------------------------------------------------


class Other:
    """A spawned process that does one piece of work after another, as it is told through a pipe.

    A piece of work is a function of a module here: function(transport, queues, *arguments). `time()` returns when it
    was done, on the clock that all processes share (`time.perf_counter`).
    """

    def __init__(self, transport: Transport, *queues: Any, writes: Sequence[bool]) -> None:
        """`writes`: for each queue, whether this process writes to it."""
        transport.settle()
        context = transport.context("spawn")
        self.pipe, theirs = multiprocessing.get_context("spawn").Pipe()
        ends = [not end for end in writes]
        self.process = context.Process(target=serve, args=(transport, theirs, queues, ends), daemon=True)
        self.process.start()
        theirs.close()
        for queue, end in zip(queues, writes, strict=True):
            open_end(queue, end)
        self.pipe.recv()  # both have opened their ends

    def begin(self, work: Callable[..., object], *arguments: object) -> None:
        """Returns when the other process is about to start the work."""
        self.pipe.send((work, arguments))
        self.pipe.recv()

    def done(self) -> float:
        if not self.pipe.poll(PATIENCE):
            raise TimeoutError(f"the other process did not finish within {PATIENCE:.0f} s")
        return float(self.pipe.recv())

    def end(self) -> None:
        self.pipe.send(None)
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def serve(transport: Transport, pipe: Connection, queues: Sequence[Any], writes: Sequence[bool]) -> None:
    transport.settle()
    for queue, end in zip(queues, writes, strict=True):
        open_end(queue, end)
    pipe.send(None)
    gc.disable()
    while (order := pipe.recv()) is not None:
        work, arguments = order
        pipe.send(None)
        work(transport, queues, *arguments)
        pipe.send(time.perf_counter())


def open_end(queue: Any, writes: bool) -> None:
    if isinstance(queue, Iceoryx2Queue):
        queue.open(writes)
