"""Sequences of several lengths in one batch: padded to one length, or packed without padding.

A packed batch has the first elements of all sequences, then the second ones, and so on, longest sequence first. Nothing
here blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from ..._tensor.core import wrap
from ..._tensor.creation import asarray, full
from ..._tensor.joining import cat, stack
from ..._tensor.methods import Tensor
from ...errors import DTypeError, InvalidArgument, type_name


class PackedSequence:
    """Sequences without padding, which recurrent layers take and return.

    Args:
        data: the elements of all sequences, (rows, ...).
        batch_sizes: number of sequences that have each step, int64.
        sorted_indices: the numbers of the sequences in the order that they have here; None: their own order.
        unsorted_indices: the places of the sequences here.

    Raises:
        DTypeError: data or batch_sizes is not a tensor.
    """

    __slots__ = ("batch_sizes", "data", "sorted_indices", "unsorted_indices")

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None

    def __init__(
        self, data: Tensor, batch_sizes: Tensor | None = None, sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(data, Tensor) or not isinstance(batch_sizes, Tensor):
            raise DTypeError(f"a PackedSequence of {type_name(data)} and {type_name(batch_sizes)}; give two tensors")
        self.data = data
        self.batch_sizes = batch_sizes
        self.sorted_indices = sorted_indices
        self.unsorted_indices = invert_permutation(sorted_indices) if unsorted_indices is None else unsorted_indices

    def __iter__(self) -> Any:
        return iter((self.data, self.batch_sizes, self.sorted_indices, self.unsorted_indices))

    def __getitem__(self, index: int) -> Any:
        return [*self][index]

    def __len__(self) -> int:
        return 4

    def __repr__(self) -> str:
        return (
            f"PackedSequence(data={self.data!r}, batch_sizes={self.batch_sizes!r}, "
            f"sorted_indices={self.sorted_indices!r}, unsorted_indices={self.unsorted_indices!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedSequence, (*self,)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """The same sequences with converted elements, as `Tensor.to`."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        return type(self)(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def double(self) -> Self:
        """The same sequences in float64."""
        return self.to(self.data.double().dtype)

    def float(self) -> Self:
        """The same sequences in float32."""
        return self.to(self.data.float().dtype)

    def cpu(self) -> Self:
        """Itself."""
        return self


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The inverse of a permutation; None for None."""
    return None if permutation is None else wrap(np.argsort(permutation._live(), kind="stable"))


def _lengths_of(lengths: Any, count: int) -> list[int]:
    """The lengths as numbers. Raises InvalidArgument: not as many as sequences, or not positive."""
    found = [int(one) for one in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    if len(found) != count:
        raise InvalidArgument(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(found)} (batch_size={count})"
        )
    if min(found, default=0) <= 0:
        raise InvalidArgument("Length of all samples has to be greater than 0, and there has to be at least one")
    return found


def _places(lengths: Sequence[int], steps: int) -> tuple[Any, Any]:
    """For each packed row, its row in a padded batch (flat, steps first); and the number of rows of each step."""
    there = np.arange(steps)[:, None] < np.asarray(lengths)
    return np.flatnonzero(there), there.sum(1)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack a padded batch.

    Args:
        input: (L, N, ...), or (N, L, ...) with batch_first.
        lengths: length of each sequence: a tensor or list of N integers.
        batch_first: the first axis is that of sequences.
        enforce_sorted: the sequences are in the order of their lengths, the longest first; otherwise they are sorted.

    Raises:
        InvalidArgument: lengths that are not positive, too large, not sorted, or not as many as sequences.
    """
    if batch_first:
        input = input.transpose(0, 1)
    steps, count = input.shape[:2]
    found = _lengths_of(lengths, count)
    order = None
    if not enforce_sorted:
        order = wrap(np.argsort([-one for one in found], kind="stable"))
        found = [found[i] for i in order.tolist()]
        input = input.index_select(1, order)
    elif found != sorted(found, reverse=True):
        raise InvalidArgument(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement"
        )
    if found[0] > steps:
        raise InvalidArgument(f"a length of {found[0]}, and the batch has {steps} steps; give shorter lengths")
    rows, sizes = _places(found, found[0])
    flat = input[: found[0]].reshape(-1, *input.shape[2:])
    return PackedSequence(flat.index_select(0, wrap(rows)), wrap(sizes), order)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Pad packed sequences to one length.

    Args:
        sequence: the sequences.
        batch_first: the first axis of the result is that of sequences.
        padding_value: the value after the end of shorter sequences.
        total_length: this length, instead of that of the longest sequence.

    Returns:
        (padded, lengths): (L, N, ...), or (N, L, ...) with batch_first; and int64.

    Raises:
        InvalidArgument: total_length is too small.
    """
    data, sizes, _, unsorted = sequence
    counts = sizes._live()
    steps, count = len(counts), int(counts[0])
    if total_length is not None and total_length < steps:
        raise InvalidArgument(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {steps}"
        )
    lengths = (np.arange(count) < counts[:, None]).sum(0)
    rows, _ = _places([*lengths], steps)
    whole = steps if total_length is None else total_length
    places = np.full(whole * count, len(data), np.int64)  # the last row is the padding
    places[rows] = np.arange(len(data))
    padding = full((1, *data.shape[1:]), padding_value, dtype=data.dtype)
    padded = cat([data, padding]).index_select(0, wrap(places)).reshape(whole, count, *data.shape[1:])
    found = wrap(lengths)
    if unsorted is not None:
        padded, found = padded.index_select(1, unsorted), found.index_select(0, unsorted)
    return (padded.transpose(0, 1) if batch_first else padded), found


def pad_sequence(
    sequences: Tensor | Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:  # fmt: skip
    """Pad sequences to the length of the longest.

    Args:
        sequences: tensors (L, ...).
        batch_first: the first axis of the result is that of sequences.
        padding_value: the value that fills up shorter sequences.
        padding_side: "right" or "left".

    Returns:
        (L, N, ...), or (N, L, ...) with batch_first.

    Raises:
        InvalidArgument: no sequences, other sizes than the first axis, or another side.
    """
    every = [*sequences]
    if not every or padding_side not in ("left", "right"):
        raise InvalidArgument(
            f"pad_sequence of {len(every)} sequences on the {padding_side}; give some, 'left' or 'right'"
        )
    longest = max(len(one) for one in every)
    made = []
    for one in every:
        padding = full((longest - len(one), *one.shape[1:]), padding_value, dtype=one.dtype)
        made.append(cat([one, padding] if padding_side == "right" else [padding, one]))
    return stack(made, 0 if batch_first else 1)


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences, tensors (L, ...). Raises InvalidArgument: as pack_padded_sequence."""
    lengths = asarray([len(one) for one in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded batch, without padding, as views."""
    padded = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [padded[i, : int(length)] for i, length in enumerate(lengths.tolist())]


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed batch."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
