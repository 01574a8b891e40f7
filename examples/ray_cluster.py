"""Ray actors pass batches: on one node as handles of shared memory, to another node as bytes.

The cluster has two nodes on this machine. The second one is in another shmtensor group, like another machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster
from tqdm import tqdm

import shmtensor as st
from shmtensor.integrations.ray import handle, register

register()  # before the decorator below names the transport

PENDING = 4  # batches under way


@ray.remote(num_cpus=0, enable_tensor_transport=True)
class Camera:
    """Produces pictures, which are always the same."""

    def __init__(self, megabytes: float) -> None:
        self.picture = np.ones(int(megabytes * 1e6) // 4, np.float32)

    @ray.method(tensor_transport="shmtensor")
    def take(self) -> st.Tensor:
        batch = st.empty(len(self.picture), shared=True)
        np.copyto(batch.numpy(), self.picture)
        return batch

    def take_array(self) -> Any:
        return self.picture.copy()

    def show(self, viewer: Any, count: int) -> float:
        """Call the viewer directly. A handle does not keep its batch alive, so this actor does until the call ends."""
        pending: deque[tuple[Any, Any]] = deque()
        total = 0.0
        for _ in range(count):
            batch = st.empty(len(self.picture), shared=True)
            np.copyto(batch.numpy(), self.picture)
            pending.append((viewer.look.remote(handle(batch)), batch))
            if len(pending) == PENDING:
                total += ray.get(pending[0][0])
                pending.popleft()  # not before: the tuple has the batch
        return total + sum(float(ray.get(reference)) for reference, _ in pending)


@ray.remote(num_cpus=0, enable_tensor_transport=True)
class Viewer:
    """Reads one number in 1,024."""

    def look(self, batch: Any) -> float:
        return float(batch[::1024].sum())


def started(actor: Any, node: str, *args: Any) -> Any:
    """Start an actor on a node. (Type checkers see the result of Ray's decorator as the undecorated class.)"""
    return actor.options(resources={node: 0.01}).remote(*args)


def pass_on(take: Any, viewer: Any, count: int, bar: Any) -> float:
    """Pass references to batches from a camera to a viewer; returns the sum of the numbers that it has read."""
    pending: deque[Any] = deque()
    total = 0.0
    for _ in range(count):
        pending.append(viewer.look.remote(take.remote()))
        if len(pending) == PENDING:
            total += ray.get(pending.popleft())
            bar.update()
    for reference in pending:
        total += ray.get(reference)
        bar.update()
    return total


def shown(camera: Any, viewer: Any, count: int, bar: Any) -> float:
    """Have a camera call a viewer; returns the sum of the numbers that it has read."""
    total: float = ray.get(camera.show.remote(viewer, count))
    bar.update(count)
    return total


def run(megabytes: float, count: int) -> bool:
    """Measure each way, and print a table. Returns whether all batches arrived."""
    camera = started(Camera, "first", megabytes)
    near, far = started(Viewer, "first"), started(Viewer, "second")
    few = max(PENDING, count // 4)
    ways: list[tuple[str, int, Callable[[int, Any], float]]] = [
        ("one node, tensor transport", count, lambda n, bar: pass_on(camera.take, near, n, bar)),
        ("one node, handles", count, lambda n, bar: shown(camera, near, n, bar)),
        ("one node, arrays in Ray's store", few, lambda n, bar: pass_on(camera.take_array, near, n, bar)),
        ("two nodes, tensor transport", few, lambda n, bar: pass_on(camera.take, far, n, bar)),
        ("two nodes, arrays in Ray's store", few, lambda n, bar: pass_on(camera.take_array, far, n, bar)),
    ]
    seen = len(range(0, int(megabytes * 1e6) // 4, 1024))
    rows, complete = [], True
    with tqdm(total=sum(n for _, n, _ in ways), unit=" batches", disable=None, dynamic_ncols=True) as bar:
        for label, n, way in ways:
            bar.set_description(label)
            with tqdm(disable=True) as quiet:
                way(2, quiet)  # warm-up: actors connect, and memory is reserved
            start = time.perf_counter()
            total = way(n, bar)
            seconds = time.perf_counter() - start
            complete &= total == n * seen
            rows.append((label, n, seconds / n * 1e3, n * megabytes / 1e3 / seconds))
    print("\nway                                batches   ms/batch     GB/s")
    for label, n, milliseconds, rate in rows:
        print(f"{label:35}{n:7}{milliseconds:11.2f}{rate:9.2f}")
    return complete


@contextmanager
def two_nodes() -> Iterator[None]:
    """Start a cluster of two nodes on this machine, and connect to it."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder, "ray").mkdir()
        os.environ |= {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled"}
        os.environ["PYTHONPATH"] = f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"
        cluster = Cluster()
        options = {"num_cpus": 2, "object_store_memory": 512 << 20, "include_dashboard": False}
        try:
            cluster.add_node(resources={"first": 1}, **options)
            cluster.add_node(resources={"second": 1}, env_vars={"SHMTENSOR_GROUP": "second"}, **options)
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            yield
        finally:
            ray.shutdown()
            cluster.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=40, metavar="N", help="of each way (default: %(default)s)")
    parser.add_argument("--megabytes", type=float, default=38.5, metavar="MB", help="of a batch (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.batches < 1 or arguments.megabytes < 0.01:
        parser.error("at least one batch, of at least 0.01 MB")
    try:
        with two_nodes():
            complete = run(arguments.megabytes, arguments.batches)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    if not complete:
        print("ray_cluster: not all batches arrived whole", file=sys.stderr)
    return not complete


if __name__ == "__main__":
    sys.exit(main())
