"""Batches on a GPU, one ahead: the next one is copied while the program computes with the current one.

The memory of a copy is allocated on the program's stream, so it is reused in the order of that stream. The copy runs on
a separate stream, after the work already submitted to the program's stream: that on the batch before. The program's
stream waits for the copy when the batch is handed out; the CPU does not wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from .._loading import load
from .._tensor.core import Tensor
from .._tensor.creation import empty
from ..devices import Device, device_of
from ..errors import InvalidArgument
from .outputs import converted


class Copier(Protocol):
    """Copies the tensors of one library on a separate stream."""

    handle: int
    """Device of the stream."""

    def begin(self) -> None:
        """Have the stream wait for the work submitted to the current one."""

    def copy(self, tensor: Any) -> Any:
        """Return a copy on the device, made on the stream."""

    def end(self) -> Any:
        """Return an event that is complete once the copies are."""

    def hand_out(self, event: Any, copies: list[Any]) -> None:
        """Have the current stream wait for an event of `end`."""


class _OurCopier:
    """Copies our tensors, by streams of CuPy."""

    def __init__(self, device: Device) -> None:
        self._cuda, self._device = load("cuda"), device
        self._stream = self._cuda.Stream(device)
        self.handle = self._stream.ptr

    def begin(self) -> None:
        self._stream.wait_event(self._cuda.current_stream(self._device).record())

    def copy(self, tensor: Tensor) -> Tensor:
        target = empty(tensor.shape, dtype=tensor.dtype, device=self._device)
        with self._cuda.stream(self._stream):
            return target.copy_(tensor, non_blocking=True)

    def end(self) -> Any:
        return self._stream.record()

    def hand_out(self, event: Any, copies: list[Tensor]) -> None:
        self._cuda.current_stream(self._device).wait_event(event)


class _TorchCopier:
    """Copies torch's tensors."""

    def __init__(self, device: Device) -> None:
        import torch

        self._torch = torch
        self._device = torch.device("cuda", device.index or 0)
        self._stream = torch.cuda.Stream(self._device)
        self.handle = self._stream.cuda_stream

    def begin(self) -> None:
        self._stream.wait_stream(self._torch.cuda.current_stream(self._device))

    def copy(self, tensor: Any) -> Any:
        target = self._torch.empty_like(tensor, device=self._device)
        target.record_stream(self._stream)
        with self._torch.cuda.stream(self._stream):
            return target.copy_(tensor, non_blocking=True)

    def end(self) -> Any:
        return self._stream.record_event()

    def hand_out(self, event: Any, copies: list[Any]) -> None:
        current = self._torch.cuda.current_stream(self._device)
        current.wait_event(event)
        for copy in copies:
            copy.record_stream(current)


class Prefetched:
    """An iterator of batches whose tensors are on a GPU. `data.DataLoader.prefetch_to` makes it."""

    def __init__(self, batches: Iterable[Any], device: Any) -> None:
        """Raises DeviceUnavailable: no GPU can be used; InvalidArgument: there is no such GPU."""
        self._device = device_of(device)
        if self._device.type != "cuda":
            raise InvalidArgument(f"prefetch_to copies to a GPU, not to {device!r}; give 'cuda' or 'cuda:1'")
        self._batches = iter(batches)
        self._copiers: dict[type, Copier] = {}
        self._next: _Copied | None = None
        self._is_begun = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """Return the next batch. Blocks until the loader has the one after it."""
        if not self._is_begun:
            self._is_begun = True
            self._next = self._copied()
        found = self._next
        if found is None:
            raise StopIteration
        self._next = self._copied()
        for copier, event, copies in found.events:
            copier.hand_out(event, copies)
        return found.batch

    def _copied(self) -> _Copied | None:
        """Start to copy the next batch. None: there is none."""
        for batch in self._batches:
            copying = _Copying(self._copiers, self._device)
            tree = converted(batch, copying)
            events = [(copier, copier.end(), copies) for copier, copies in copying.done.values()]
            for copier, _, copies in events:
                load("gpu.order").keep_until_done((batch, copies), self._device.index or 0, copier.handle)
            return _Copied(tree, events)
        return None


class _Copied(NamedTuple):
    """A batch whose copies were started."""

    batch: Any
    events: list[tuple[Copier, Any, list[Any]]]


class _Copying:
    """Converts the tensors of a batch: copies them."""

    def __init__(self, copiers: dict[type, Copier], device: Device) -> None:
        self._copiers, self._device = copiers, device
        self.done: dict[type, tuple[Copier, list[Any]]] = {}

    def __call__(self, tensor: Tensor) -> Any:
        return self._copy(_OurCopier, tensor)

    def theirs(self, tensor: Any) -> Any:
        """As a call, for torch's tensors."""
        return self._copy(_TorchCopier, tensor)

    def _copy(self, kind: type, tensor: Any) -> Any:
        if tensor.device.type != "cpu":
            return tensor
        if kind not in self._copiers:
            self._copiers[kind] = kind(self._device)
        if kind not in self.done:
            self.done[kind] = self._copiers[kind], []
            self._copiers[kind].begin()
        copier, copies = self.done[kind]
        copies.append(copier.copy(tensor))
        return copies[-1]
