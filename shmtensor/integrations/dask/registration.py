"""Registration of tensors on the workers of a cluster."""

from __future__ import annotations

from typing import Any

from distributed import WorkerPlugin


class Registration(WorkerPlugin):  # type: ignore[misc]
    """Registers tensors on a worker: to unpickle it, the worker imports `shmtensor.integrations.dask`."""

    name = "shmtensor"
    idempotent = True


def register(client: Any) -> None:
    """Register tensors on all workers of a cluster, including later ones. Blocks until the current ones have done so.

    With an asynchronous client it returns an awaitable. Further calls change nothing.

    Args:
        client: a `distributed.Client`.
    """
    return client.register_plugin(Registration())  # type: ignore[no-any-return]
