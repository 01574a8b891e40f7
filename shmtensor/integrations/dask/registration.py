"""Registration of tensors on the workers of a cluster."""

from __future__ import annotations

from typing import Any

from distributed import WorkerPlugin


class Registration(WorkerPlugin):  # type: ignore[misc]
    """Registers tensors on a worker: to receive it, the worker imports `shmtensor.integrations.dask`."""

    name = "shmtensor"
    idempotent = True


def register(client: Any) -> None:
    """Register tensors on all workers of a cluster, those that join later too. Blocks until the present ones have.

    With an asynchronous client it returns something to await. Called again, it changes nothing.

    Args:
        client: a `distributed.Client`.
    """
    return client.register_plugin(Registration())  # type: ignore[no-any-return]
