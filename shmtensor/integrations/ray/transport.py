"""Tensor transports of Ray (`ray.experimental.register_tensor_transport`) by which actors pass tensors as handles.

The source keeps the blocks of an object's tensors under its object id, until Ray reports that there are no references
to it. The object's metadata describes their places without holds, so a lost message leaves nothing behind. The receiver
opens the blocks, and then has its own holds; in another group it fetches copies.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.experimental.rdt.tensor_transport_manager import (
    CommunicatorMetadata,
    TensorTransportManager,
    TensorTransportMetadata,
)

from ..._native import Block
from .fetching import Address, Connection, own_address
from .places import Group, own_group, place_of

# Ray 2.60 creates the manager of its transfers at first use, without a lock: the thread that receives and the one that
# waits may create one each, and the tensors are lost. An actor imports this module before either thread needs it.
with suppress(AttributeError):
    _ = ray._private.worker.global_worker.rdt_manager


@dataclass
class Metadata(TensorTransportMetadata):  # type: ignore[misc]
    """The places of an object's tensors."""

    group: Group | None = None
    address: Address | None = None
    places: tuple[Any, ...] = ()


class TensorTransport(TensorTransportManager):  # type: ignore[misc]
    """Transport of `shmtensor.Tensor`. Ray makes one in each process that uses it, and calls it from its threads."""

    NAME = "SHMTENSOR"

    def __init__(self) -> None:
        self._held: dict[str, list[Block | None]] = {}  # by object id
        self._fetches: dict[str, Connection] = {}  # in progress
        self._changing = threading.Lock()

    # ----------------------------------------------------------------------------------------------- capabilities for
    # Ray

    def tensor_transport_backend(self) -> str:
        """Return the name of the transport."""
        return self.NAME

    @staticmethod
    def is_one_sided() -> bool:
        """Return True: only the receiver acts."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """Return True. With False, Ray would kill both actors when one of them dies."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """Return True. Asking the actor would take as long as another call."""
        return True

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        """Return empty metadata: that of the object has everything that a receiver needs."""
        return CommunicatorMetadata()

    # --------------------------------------------------------------------------------------------------- in the source

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Metadata:
        """Keep the memory of an object's tensors, and return their places. Private memory is moved first.

        Raises:
            InvalidArgument: a tensor without CPU memory of its own.
            OutOfMemory, ManagerError: as `share_memory_`.
        """
        found = [self._place_of(tensor) for tensor in rdt_object]
        with self._changing:
            self._held[obj_id] = [block for _, block in found]
        return Metadata(
            tensor_meta=[(tensor.shape, tensor.dtype) for tensor in rdt_object],
            tensor_device="cpu",
            group=own_group(),
            address=own_address(),
            places=tuple(place for place, _ in found),
        )

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Metadata, tensors: list[Any]) -> None:
        """Release an object's memory. Receivers that have opened it keep it."""
        with self._changing:
            self._held.pop(obj_id, None)

    def send_multiple_tensors(self, tensors: Any, tensor_transport_metadata: Any, communicator_metadata: Any) -> None:
        """Raise NotImplementedError: only the receiver acts."""
        raise NotImplementedError("tensors of shmtensor are not sent; their receivers open their memory")

    # ------------------------------------------------------------------------------------------------- in the receiver

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: Metadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """Return an object's tensors: over the same memory in the same group, else copies in shared memory.

        Blocks while they are fetched. With `target_buffers`, they are copied into those.

        Raises:
            StaleHandle, SegmentLost: the source has ended.
            NotSupported: it is on another machine, and there are no keys (docs/cluster.md).
            OutOfMemory, ManagerError: as `shmtensor.empty(..., shared=True)`.
        """
        found = self._received(obj_id, tensor_transport_metadata)
        if not target_buffers:
            return found
        for target, tensor in zip(target_buffers, found, strict=True):
            target.copy_(tensor)
        return list(target_buffers)

    def _received(self, obj_id: str, metadata: Metadata) -> list[Any]:
        if metadata.group == own_group():
            return [place.open() for place in metadata.places]
        assert metadata.address is not None
        with Connection(metadata.address) as connection:
            with self._changing:
                self._fetches[obj_id] = connection
            try:
                return [place.fetched(connection.fetch) for place in metadata.places]
            finally:
                with self._changing:
                    self._fetches.pop(obj_id, None)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """Make the fetch of an object fail, if one is in progress. Does not block."""
        with self._changing:
            connection = self._fetches.get(obj_id)
            if connection is not None:
                connection.abort()

    @staticmethod
    def _place_of(tensor: Any) -> tuple[Any, Block | None]:
        return place_of(tensor)


class TorchTransport(TensorTransport):
    """Transport of `torch.Tensor`: dense tensors in CPU memory."""

    NAME = "SHMTENSOR_TORCH"

    @staticmethod
    def _place_of(tensor: Any) -> tuple[Any, Block | None]:
        from . import torch_places

        return torch_places.place_of(tensor)
