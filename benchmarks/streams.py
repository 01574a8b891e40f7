"""The streams of the benchmark of fresh tensors, and the functions that read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.transports import Transport

MANY = 900
SMALL, BATCH, PLAIN = 4 << 10, 38_535_168, 64 << 20  # bytes; a batch is (64, 3, 224, 224) float32
ONE_BY_ONE = "fresh 4 KiB tensors one by one"
BATCHES = "stream of fresh 38.5 MB batches"
ARRAYS = "stream of plain 64 MiB ndarrays"
MESSAGE = f"one message of {MANY} fresh 4 KiB tensors"
# By work: bytes of a tensor, how many wait in the queue, the unit of the figure.
STREAMS = {ONE_BY_ONE: (SMALL, 256, "1/s"), BATCHES: (BATCH, 4, "B/s"), ARRAYS: (PLAIN, 4, "B/s")}


def drain(transport: Transport, queues: Sequence[Any], number: int, count: int) -> None:
    queue = queues[number]
    for _ in range(count):
        transport.read(queue.get())


def read_all(transport: Transport, queues: Sequence[Any], number: int) -> None:
    for tensor in queues[number].get():
        transport.read(tensor)
