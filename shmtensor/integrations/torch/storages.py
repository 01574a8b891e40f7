"""Methods of torch's storages for our memory: it counts as shared, is not moved, and cannot be exported by torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import torch

from ...errors import InvalidArgument
from .memory import lend, place_of

_is_shared: Final[Callable[..., Any]] = torch.UntypedStorage.is_shared
_share_memory_: Final[Callable[..., Any]] = torch.UntypedStorage.share_memory_
_export: Final[Callable[..., Any]] = torch.Tensor.__dlpack__


def is_torch_shared(storage: Any) -> bool:
    """Whether an untyped storage is in torch's own shared memory. Does not block."""
    return bool(_is_shared(storage))


@wraps(_is_shared)
def is_shared(self: Any) -> bool:  # noqa: D103
    return is_torch_shared(self) or place_of(self) is not None


@wraps(_share_memory_)
def share_memory_(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: D103
    return self if place_of(self) is not None else _share_memory_(self, *args, **kwargs)


@wraps(_export)
def __dlpack__(self: Any, *args: Any, **kwargs: Any) -> Any:
    capsule = _export(self, *args, **kwargs)
    if self.device.type == "cpu":
        lend(self.untyped_storage())
    return capsule


def _refusing(export: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method that exports storages, so that it raises for ours, which it would move out of our memory."""

    @wraps(export)
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        if place_of(self) is not None:
            raise InvalidArgument(
                f"a torch storage of {self.nbytes()} bytes in shmtensor's shared memory cannot be exported by torch "
                "without a copy; send the tensor through a queue, which sends its handle, or export a clone()"
            )
        return export(self, *args, **kwargs)

    return refuse


def install() -> None:
    """Put these methods into `torch.UntypedStorage` and `torch.Tensor`. Other storages get torch's behaviour."""
    cls: Any = torch.UntypedStorage
    cls.is_shared = is_shared
    cls.share_memory_ = share_memory_
    torch.Tensor.__dlpack__ = __dlpack__
    for name in ("_share_fd_cpu_", "_share_filename_cpu_"):
        setattr(cls, name, _refusing(getattr(cls, name)))
