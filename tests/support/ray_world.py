"""A Ray cluster of two nodes on this machine, the second one in another group, and actors that pass tensors."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from manager_world import BOUND, SUPPORT, is_alive, until
from ray.cluster_utils import Cluster

import shmtensor as st
from shmtensor.integrations.ray import handle, register
from shmtensor.manager import client

register()

HERE, THERE = {"here": 0.01}, {"there": 0.01}
"""The resources by which an actor runs on the first node, and on the second one."""


@contextmanager
def two_nodes() -> Iterator[None]:
    """A cluster to which this process is connected; afterwards, all its processes have ended."""
    # In /tmp: the path of a socket has a limit.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "RAY_AUTH_MODE", "RAY_ADDRESS", "RAY_TMPDIR")}
    os.environ["PYTHONPATH"] = f"{SUPPORT}:{before['PYTHONPATH'] or ''}"
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ.pop("RAY_ADDRESS", None)
    os.environ["RAY_TMPDIR"] = folder
    Path(folder, "ray").mkdir()
    cluster = Cluster(shutdown_at_exit=False)
    node = {"num_cpus": 4, "object_store_memory": 100 << 20, "include_dashboard": False}
    try:
        cluster.add_node(resources={"here": 1}, **node)
        cluster.add_node(resources={"there": 1}, env_vars={"SHMTENSOR_GROUP": "there"}, **node)
        ray.init(address=cluster.address, log_to_driver=False)
        try:
            yield
        finally:
            ray.shutdown()
    finally:
        cluster.shutdown()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        until(lambda: not left(folder), "processes of Ray to end")
        shutil.rmtree(folder, ignore_errors=True)


def left(folder: str) -> list[int]:
    """Processes of a cluster, by its folder."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            try:
                words = (path / "cmdline").read_bytes()
            except OSError:
                continue
            if folder.encode() in words and is_alive(int(path.name)):
                found.append(int(path.name))
    return found


def blocks() -> int:
    """Live blocks of the group of this process and of the first node."""
    gc.collect()
    return client.default().stats().live_blocks


class Part:
    """An actor that makes tensors, reads those of others, and reports what it has."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def pid(self) -> int:
        return os.getpid()

    def do(self, function: Any, *values: Any) -> Any:
        """The result of a function of this actor and the received value."""
        return function(self, *values)

    @ray.method(tensor_transport="shmtensor")
    def give(self, function: Any, *values: Any) -> Any:
        return function(self, *values)

    @ray.method(tensor_transport="shmtensor_torch")
    def give_torch(self, function: Any, *values: Any) -> Any:
        return function(self, *values)

    def lend(self, other: Any, method: str, function: Any) -> Any:
        """Pass another actor a handle of a tensor that is kept here; returns its result."""
        return ray.get(getattr(other, method).remote(function, handle(self.kept[-1])))

    def held(self, transport: str) -> list[str]:
        """Ids of the objects whose memory is kept here."""
        from ray.experimental.rdt.util import get_tensor_transport_manager

        return list(get_tensor_transport_manager(transport.upper())._held)

    def own_blocks(self) -> int:
        """Live blocks of this actor's group."""
        return blocks()


def start(where: dict[str, float] = HERE) -> Any:
    """An actor on one of the nodes, once it runs."""
    actor = ray.remote(Part).options(num_cpus=0, resources=where, enable_tensor_transport=True).remote()
    ray.get(actor.pid.remote(), timeout=BOUND * 6)
    return actor


def end(*actors: Any) -> None:
    """End actors, and wait until their processes have ended."""
    pids = [ray.get(actor.pid.remote(), timeout=BOUND) for actor in actors]
    for actor in actors:
        ray.kill(actor)
    until(lambda: not any(is_alive(pid) for pid in pids), "actors to end")


def kill(actor: Any) -> None:
    """SIGKILL the process of an actor."""
    pid = ray.get(actor.pid.remote(), timeout=BOUND)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid), "the actor's process to end")


def ones(_: Any, *sizes: int) -> Any:
    return st.ones(*sizes)
