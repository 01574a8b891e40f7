"""Ray: actors pass tensors as handles of shared memory (docs/cluster.md).

`register()` adds two tensor transports for `@ray.method(tensor_transport=...)` and `ray.put(_tensor_transport=...)`:
"shmtensor" for tensors of shmtensor, "shmtensor_torch" for those of torch.
"""

from __future__ import annotations

try:
    import ray
except ModuleNotFoundError as _problem:
    raise ModuleNotFoundError(
        "shmtensor.integrations.ray needs Ray; install it with: pip install 'shmtensor[ray]'", name="ray"
    ) from _problem

from .handles import handle, open_handle, pack_handle
from .registration import register

__all__ = ["handle", "open_handle", "pack_handle", "register"]

del ray
