"""The compared stores of arrays by key: ours, Ray's, Redis over a Unix socket, lmdb, used as their documentation does.

Each returns float32 arrays. The measuring process opens a peer and, except for Ray, so does a process that fills it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import have

PAGE = 1024  # elements


class Peer:
    """The interface that is compared: `get` and `read` of one key, `put` of a value that replaces the present one."""

    def __init__(self, folder: str) -> None:
        """Open the store in `folder`, or create it if it does not exist."""

    def put(self, key: str, array: Any) -> None:
        raise NotImplementedError

    def get(self, key: str) -> Any:
        raise NotImplementedError

    def read(self, key: str) -> float:
        """One element of each page."""
        return float(self.get(key)[::PAGE].sum())

    def put_many(self, values: dict[str, bytes]) -> None:
        raise NotImplementedError

    def put_bytes(self, key: str, value: bytes) -> None:
        raise NotImplementedError

    def get_bytes(self, key: str) -> bytes:
        raise NotImplementedError

    def keys(self, prefix: str) -> list[Any]:
        raise NotImplementedError

    def close(self) -> None:
        """Close the store; called by the process that opened it first."""


class Ours(Peer):
    def __init__(self, folder: str) -> None:
        import shmtensor

        self.store = shmtensor.Store(Path(folder).name)
        self.get = self.get_bytes = self.store.get  # type: ignore[method-assign]
        self.keys = self.store.keys  # type: ignore[method-assign]

    def put(self, key: str, array: Any) -> None:
        self.store.put(key, array, replace=True)

    def put_bytes(self, key: str, value: bytes) -> None:
        self.store.put(key, value, replace=True)

    def put_many(self, values: dict[str, bytes]) -> None:
        self.store.put_many(values, replace=True)

    def close(self) -> None:
        self.store.destroy()


class Ray(Peer):
    """Objects have no keys in Ray: the reader has their references."""

    def __init__(self, folder: str) -> None:
        import ray

        ray.init(
            num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
            object_store_memory=1 << 30, _temp_dir=str(Path(folder).parent / "ray"),  # the path of a socket has a limit
        )  # fmt: skip
        self.ray = ray
        self.references: dict[str, Any] = {}

    def put(self, key: str, array: Any) -> None:
        self.references[key] = self.ray.put(array)

    def get(self, key: str) -> Any:
        return self.ray.get(self.references[key])

    def close(self) -> None:
        self.ray.shutdown()


class Redis(Peer):
    def __init__(self, folder: str) -> None:
        import redis

        path = f"{folder}/redis.sock"
        self.server = None
        if not Path(path).exists():
            command = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no"]
            self.server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
            deadline = time.monotonic() + 20
            while not Path(path).exists() and time.monotonic() < deadline:
                time.sleep(0.01)
        self.client: Any = redis.Redis(unix_socket_path=path)

    def put(self, key: str, array: Any) -> None:
        self.client.set(key, memoryview(array).cast("B"))

    def get(self, key: str) -> Any:
        return np.frombuffer(self.client.get(key), np.float32)

    def put_bytes(self, key: str, value: bytes) -> None:
        self.client.set(key, value)

    def put_many(self, values: dict[str, bytes]) -> None:
        self.client.mset(values)

    def get_bytes(self, key: str) -> bytes:
        found: bytes = self.client.get(key)
        return found

    def keys(self, prefix: str) -> list[Any]:
        return list(self.client.scan_iter(match=f"{prefix}*", count=10_000))

    def close(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait()


class Lmdb(Peer):
    """Values are copied out of the map, which is lmdb's default. Nothing is synchronised to disk."""

    def __init__(self, folder: str) -> None:
        import lmdb

        self.env = lmdb.open(f"{folder}/lmdb", map_size=4 << 30, sync=False, metasync=False, writemap=True)

    def put(self, key: str, array: Any) -> None:
        with self.env.begin(write=True) as transaction:
            transaction.put(key.encode(), memoryview(array).cast("B"))

    def get(self, key: str) -> Any:
        with self.env.begin() as transaction:
            return np.frombuffer(transaction.get(key.encode()), np.float32)

    def put_bytes(self, key: str, value: bytes) -> None:
        with self.env.begin(write=True) as transaction:
            transaction.put(key.encode(), value)

    def put_many(self, values: dict[str, bytes]) -> None:
        with self.env.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti([(key.encode(), value) for key, value in values.items()])

    def get_bytes(self, key: str) -> bytes:
        with self.env.begin() as transaction:
            found: bytes = transaction.get(key.encode())
            return found

    def keys(self, prefix: str) -> list[Any]:
        begins = prefix.encode()
        found = []
        with self.env.begin() as transaction, transaction.cursor() as cursor:
            cursor.set_range(begins)
            for key in cursor.iternext(values=False):
                if not key.startswith(begins):
                    break
                found.append(key)
        return found

    def close(self) -> None:
        self.env.close()


class LmdbMapped(Lmdb):
    """Values are parts of the map, valid until the transaction ends, so they are read inside it."""

    def get(self, key: str) -> Any:
        with self.env.begin(buffers=True) as transaction:
            np.frombuffer(transaction.get(key.encode()), np.float32)

    def read(self, key: str) -> float:
        with self.env.begin(buffers=True) as transaction:
            return float(np.frombuffer(transaction.get(key.encode()), np.float32)[::PAGE].sum())


OURS, RAY, REDIS, LMDB, MAPPED = "shmtensor", "Ray", "Redis, Unix socket", "lmdb", "lmdb, in its transaction"
PEERS: dict[str, tuple[type[Peer], str]] = {
    OURS: (Ours, "shmtensor"), RAY: (Ray, "ray"), REDIS: (Redis, "redis"), LMDB: (Lmdb, "lmdb"),
    MAPPED: (LmdbMapped, "lmdb"),
}  # fmt: skip
"""The class of each, and the module that it needs."""


def absent() -> dict[str, str]:
    """The peers that cannot be run here, and why."""
    found = {name: f"{module} is not installed" for name, (_, module) in PEERS.items() if not have(module)}
    if shutil.which("redis-server") is None:
        found.setdefault(REDIS, "redis-server is not installed")
    return found


def fill(name: str, folder: str, sizes: Iterable[int]) -> None:
    """Put an array of each size, with its size as key, in another process than the reader."""
    os.environ["OMP_NUM_THREADS"] = "1"
    peer = PEERS[name][0](folder)
    for nbytes in sizes:
        peer.put(str(nbytes), np.ones(nbytes // 4, np.float32))
