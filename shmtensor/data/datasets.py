"""Datasets with samples by index or in a stream, and combinations of datasets. Names and semantics are torch's."""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from .._tensor.core import Tensor
from ..errors import DTypeError, IndexOutOfRange, InvalidArgument, NotSupported, type_name
from ..random.sampling import randperm
from .leaves import array_of, torch_tensor

T_co = TypeVar("T_co", covariant=True)


def method_of(dataset: Any, name: str) -> Any:
    """Return `fill` or `__getitems__` of a dataset; None if it has none that returns the samples of its `__getitem__`.

    The method does not count if a class inherits it but overrides `__getitem__`, or if a wrapper gets it from the
    wrapped object, because the samples may differ. `fill` of an array is a different method. Does not block.
    """
    kind = type(dataset)
    if isinstance(dataset, np.ndarray | Tensor) or hasattr(kind, "__dlpack__"):
        return None
    for base in kind.__mro__:
        if name in vars(base):
            return getattr(dataset, name, None)
        if "__getitem__" in vars(base):
            return None
    return None


def _fill_of(dataset: Any) -> Callable[[int, Any], None]:
    """`fill` of a dataset. Raises AttributeError: it has none."""
    function: Callable[[int, Any], None] | None = method_of(dataset, "fill")
    if function is None:
        raise AttributeError(f"{type(dataset).__name__} has no fill that gives the samples of its __getitem__")
    return function


class Dataset(Generic[T_co]):
    """Base of datasets whose samples have indices: a subclass defines `__getitem__` and `__len__`.

    It may also define two methods for the loader. They are not used in a class that inherits them and overrides
    `__getitem__`:

    - `__getitems__(indices)`: return a list of samples, if loading several at once is faster;
    - `fill(index, out)`: write a sample into `out`, a tree of arrays in the memory of the batch.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotSupported("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> Dataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Base of datasets that are streams: a subclass defines `__iter__`.

    There is one iterator for all workers. A subclass may define `load(item)`: then the iterator yields raw items, and
    the workers turn them into samples.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotSupported("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset[Any]) -> Dataset[Any]:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Tensors of equal length; a sample is a tuple of a row of each.

    Args:
        *tensors: shmtensor's or torch's tensors, or arrays.

    Raises:
        InvalidArgument: no tensors, or tensors of unequal length.
        DTypeError: other objects, such as lists, as in torch; `StackDataset` accepts these.
    """

    def __init__(self, *tensors: Any) -> None:
        if not tensors:
            raise InvalidArgument("a TensorDataset without tensors; give at least one")
        for tensor in tensors:
            if not (hasattr(tensor, "shape") and hasattr(tensor, "dtype")):
                raise DTypeError(
                    f"a TensorDataset takes tensors and arrays, not a {type_name(tensor)}; make a tensor of it, or use "
                    "StackDataset"
                )
        lengths = [len(tensor) for tensor in tensors]
        if len(set(lengths)) > 1:
            raise InvalidArgument(
                f"Size mismatch between tensors: the first axes have sizes {lengths}; give tensors with as many samples"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple([tensor[index] for tensor in self.tensors])

    @property
    def fill(self) -> Callable[[int, Sequence[Any]], None]:
        """A function that writes a sample into a tuple of arrays. Exists if there are only tensors and NumPy arrays."""
        if not all(isinstance(tensor, (Tensor, np.ndarray, torch_tensor())) for tensor in self.tensors):
            raise AttributeError("fill needs tensors and NumPy's arrays")
        return self._write

    def _write(self, index: int, out: Sequence[Any]) -> None:
        for tensor, row in zip(self.tensors, out, strict=True):
            row[...] = tensor._live()[index] if isinstance(tensor, Tensor) else array_of(tensor[index])

    def __len__(self) -> int:
        return len(self.tensors[0])


def tell_epoch(datasets: Iterable[Any], epoch: int) -> None:
    """Call `set_epoch` of all datasets that have it, also inside torch's combined datasets. Does not block."""
    for dataset in datasets:
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(epoch)
        else:
            tell_epoch(_combined_by_torch(dataset), epoch)


def _combined_by_torch(dataset: Any) -> Iterable[Any]:
    """Return the datasets inside a combined dataset of torch; none if they are created during its iteration."""
    torch = sys.modules.get("torch.utils.data")
    if torch is not None and isinstance(dataset, torch.Subset):
        return (dataset.dataset,)
    if torch is None or not isinstance(dataset, torch.ConcatDataset | torch.StackDataset | torch.ChainDataset):
        return ()
    if isinstance(dataset.datasets, dict):
        return dataset.datasets.values()
    return dataset.datasets if isinstance(dataset.datasets, Sequence) else ()


def _samples_of(dataset: Any, indices: Sequence[Any]) -> Sequence[Any]:
    """Return samples by `__getitems__` if the dataset has it, else one by one."""
    several = method_of(dataset, "__getitems__")
    if several is None:
        return [dataset[index] for index in indices]
    samples: Sequence[Any] = several(indices)
    if len(samples) != len(indices):
        raise InvalidArgument(
            f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(samples)}: __getitems__ of "
            f"{type(dataset).__name__} must return a sample for each index"
        )
    return samples


class StackDataset(Dataset[Any]):
    """Datasets of equal length side by side; a sample consists of one sample of each.

    Args:
        *args: datasets; a sample is a tuple.
        **kwargs: datasets by name, instead of `args`; a sample is a dict.

    Raises:
        InvalidArgument: no datasets, both args and kwargs, or datasets of unequal length.
    """

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise InvalidArgument(
                "Supported either ``tuple``- (via ``args``) or ``dict``- (via ``kwargs``) like input/output, but both "
                "types are given."
            )
        if not args and not kwargs:
            raise InvalidArgument("At least one dataset should be passed")
        self.datasets = args or kwargs
        lengths = [len(dataset) for dataset in args or kwargs.values()]
        if len(set(lengths)) > 1:
            raise InvalidArgument(
                f"Size mismatch between datasets: their lengths are {lengths}; "
                "give datasets of one length, or Subsets of them"
            )
        self._length = lengths[0]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple([dataset[index] for dataset in self.datasets])

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        if isinstance(self.datasets, dict):
            columns = [_samples_of(dataset, indices) for dataset in self.datasets.values()]
            return [dict(zip(self.datasets, parts, strict=True)) for parts in zip(*columns, strict=True)]
        return list(zip(*[_samples_of(dataset, indices) for dataset in self.datasets], strict=True))

    def set_epoch(self, epoch: int) -> None:
        """`set_epoch` of the datasets that have it. Does not block."""
        tell_epoch(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets, epoch)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other.

    Args:
        datasets: datasets that have indices.

    Raises:
        InvalidArgument: no datasets, or a stream among them.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets: list[Any] = list(datasets)
        if not self.datasets:
            raise InvalidArgument("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise InvalidArgument("ConcatDataset does not support IterableDataset; use ChainDataset")
        self.cumulative_sizes: list[int] = list(itertools.accumulate(len(dataset) for dataset in self.datasets))

    def set_epoch(self, epoch: int) -> None:
        """`set_epoch` of the datasets that have it. Does not block."""
        tell_epoch(self.datasets, epoch)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def _place(self, index: int) -> tuple[int, int]:
        """Return (number of the dataset that has an index, its index there). Raises IndexOutOfRange."""
        wanted = index + len(self) if index < 0 else index
        if not 0 <= wanted < len(self):
            raise IndexOutOfRange(
                f"index {index} of a ConcatDataset of {len(self)} samples; use {-len(self)} to {len(self) - 1}"
            )
        which = bisect_right(self.cumulative_sizes, wanted)
        return which, wanted - (self.cumulative_sizes[which - 1] if which else 0)

    def __getitem__(self, index: int) -> T_co:
        which, place = self._place(index)
        sample: T_co = self.datasets[which][place]
        return sample

    @property
    def fill(self) -> Callable[[int, Any], None]:
        """A `fill` made of those of the datasets. Exists if all have it."""
        functions = [_fill_of(dataset) for dataset in self.datasets]

        def fill(index: int, out: Any) -> None:
            which, place = self._place(index)
            functions[which](place, out)

        return fill


class ChainDataset(IterableDataset[T_co]):
    """Streams one after the other.

    Args:
        datasets: IterableDatasets; their types are checked when they are iterated.

    Raises:
        InvalidArgument: a dataset of another type, in `__iter__` or `__len__`.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def _streams(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise InvalidArgument("ChainDataset only supports IterableDataset; use ConcatDataset")
            yield dataset

    def __iter__(self) -> Iterator[T_co]:
        for dataset in self._streams():
            yield from dataset

    def set_epoch(self, epoch: int) -> None:
        """Call `set_epoch` of the datasets that have it, unless they are created during iteration. Does not block."""
        tell_epoch(self.datasets if isinstance(self.datasets, Sequence) else (), epoch)

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._streams())


class Subset(Dataset[T_co]):
    """Selected samples of a dataset.

    Args:
        dataset: the dataset.
        indices: a sequence of the samples' indices.

    Raises:
        NotSupported: a subclass changes `__getitem__` but not `__getitems__`, which the loader calls.
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        kind = type(self)
        if kind.__getitem__ is not Subset.__getitem__ and kind.__getitems__ is Subset.__getitems__:
            raise NotSupported(
                f"{kind.__name__} overrides __getitem__ but not __getitems__, which the loader calls. Add:\n"
                "    def __getitems__(self, indices):\n"
                "        return [self[index] for index in indices]"
            )
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> T_co:
        if isinstance(index, list):
            several: T_co = self.dataset[[self.indices[one] for one in index]]
            return several
        sample: T_co = self.dataset[self.indices[index]]
        return sample

    def __getitems__(self, indices: Sequence[int]) -> Sequence[T_co]:
        return _samples_of(self.dataset, [self.indices[index] for index in indices])

    @property
    def fill(self) -> Callable[[int, Any], None]:
        """`fill` of the dataset, if it has it, unless a subclass changes the samples."""
        function = _fill_of(self.dataset)
        if type(self).__getitem__ is not Subset.__getitem__:
            raise AttributeError(f"{type(self).__name__} has its own __getitem__, so fill cannot be the dataset's")
        return lambda index, out: function(self.indices[index], out)

    def set_epoch(self, epoch: int) -> None:
        """Call `set_epoch` of the dataset, if it has it. Does not block."""
        tell_epoch([self.dataset], epoch)

    def __len__(self) -> int:
        return len(self.indices)


def _counts(total: int, fractions: Sequence[float]) -> list[int]:
    """Return the number of samples of each fraction of `total`; the remainder goes to the first fractions, one each."""
    for place, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise InvalidArgument(f"Fraction at index {place} is not between 0 and 1")
    counts = [math.floor(total * fraction) for fraction in fractions]
    for place in range(total - sum(counts)):
        counts[place % len(counts)] += 1
    for place, count in enumerate(counts):
        if count == 0:
            warnings.warn(
                f"Length of split at index {place} is 0. This might result in an empty dataset.", stacklevel=3
            )
    return counts


def _permutation(n: int, generator: Any) -> list[int]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(generator, torch.Generator):
        return torch.randperm(n, generator=generator).tolist()  # type: ignore[no-any-return]
    return randperm(n, generator=generator).tolist()  # type: ignore[no-any-return]


def random_split(dataset: Any, lengths: Sequence[float], generator: Any = None) -> list[Subset[Any]]:
    """Split a dataset at random into disjoint parts. The same seed gives torch's split. Does not block.

    Args:
        dataset: a dataset with indices and a `len()`.
        lengths: the length of each part; or fractions, whose sum is 1.
        generator: shmtensor's or torch's; default `shmtensor.default_generator`.

    Raises:
        InvalidArgument: lengths whose sum is neither the dataset's length nor 1, or a fraction outside 0 to 1.
        DTypeError: a generator of another type.
    """
    total = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _counts(total, lengths)
    if sum(lengths) != total:
        raise InvalidArgument(
            f"Sum of input lengths does not equal the length of the input dataset: {list(lengths)} for {total} "
            "samples; give lengths with that sum, or fractions with the sum 1"
        )
    order = iter(_permutation(total, generator))
    return [Subset(dataset, list(itertools.islice(order, int(length)))) for length in lengths]
