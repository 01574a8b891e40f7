"""PyTorch programs in our shared memory (docs/torch.md).

`shmtensor.multiprocessing` in the place of `torch.multiprocessing` sends torch tensors, storages, Parameters and
modules as handles in our memory. `share_module`, `share_optimizer` and `share_tensor_` move what exists. With
`context`, the workers of torch's DataLoader collate into our memory.

The module is imported by the first message, DLPack export or import of a process that has imported torch. It changes
four methods of `torch.UntypedStorage` and torch's registered reducer of it, only for storages in our memory:
`is_shared()` is True, `share_memory_()` does not move them, and torch's queues send them as handles.
`torch.Tensor.__dlpack__` records which storages were exported to other libraries, so that their arrays stay valid when
the storage is moved.
"""

from __future__ import annotations

try:
    import torch
except ModuleNotFoundError as _problem:
    raise ModuleNotFoundError(
        "shmtensor.integrations.torch needs PyTorch; install it with: pip install 'shmtensor[torch]'", name="torch"
    ) from _problem

from . import reductions, storages
from .conversions import from_torch, to_torch
from .loading import context
from .optimizers import share_optimizer
from .sharing import share_module, share_tensor_

__all__ = ["context", "from_torch", "share_module", "share_optimizer", "share_tensor_", "to_torch"]

storages.install()
reductions.install()
del torch
