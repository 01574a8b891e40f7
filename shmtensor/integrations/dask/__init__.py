"""Dask: tensors in its messages, and results of workers in a `shmtensor.Store` (docs/cluster.md).

Importing the module registers tensors with Dask in this process: their messages (`messages`), their size, and their
tokens. Every process that receives a tensor must import it: `register(client)` does so on all workers of a cluster, and
a worker with `data=(StoreMapping, {...})` does so by itself.
"""

from __future__ import annotations

try:
    import distributed
except ModuleNotFoundError as _problem:
    raise ModuleNotFoundError(
        "shmtensor.integrations.dask needs Dask with its scheduler; install them with: pip install 'shmtensor[dask]'",
        name=_problem.name,
    ) from _problem

from . import messages
from .mapping import StoreMapping
from .registration import register

__all__ = ["StoreMapping", "register"]

messages.install()
del distributed
