"""Batches of samples: torch's default collation, and collation of samples of unequal lengths."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._tensor.core import Tensor
from .._tensor.creation import asarray, empty, tensor
from .._tensor.joining import stack
from ..dtypes import BY_DTYPE, default_float, promoted
from ..errors import DTypeError, InvalidArgument, SampleMismatch, SampleTypeError, type_name
from ..storage.arguments import array_from, require_integer
from .leaves import array_of, is_masked, numbers_of, torch_tensor
from .randoms import get_worker_info

CollateMap: TypeAlias = dict[Any, Callable[..., Any]]
"""Functions that collate, by the type of samples, or a tuple of types: `f(batch, *, collate_fn_map)`."""


_NUMBERS: Final = frozenset({float, int, bool})
_INT64_END: Final = 2**63
_SHOWN_BITS: Final = 256
"""Larger integers are not shown in messages."""


PADDING_ADVICE: Final = "; give them one shape, or use pad_collate or ragged_collate"
COLLATION_ADVICE: Final = "; give a collate_fn, or register a function for it in default_collate_fn_map"
"""Advice at the end of messages. Callers without a collate_fn argument leave it out."""


class _IsTorch(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch_tensor())


class TorchTensor(metaclass=_IsTorch):
    """In place of torch.Tensor in a map of collation, without an import of torch."""


class _IsNumbers(type):
    def __instancecheck__(cls, value: object) -> bool:
        return type(value) is list and all(isinstance(one, int | float) for one in value)


class NumberList(metaclass=_IsNumbers):
    """The type of lists of Python's numbers in a map of collation."""


# -- trees -------------------------------------------------------------------------------------------------------------


def _mapped(data: Mapping[Any, Any], convert: Callable[[Any], Any]) -> Any:
    """Return a mapping of the same type with `convert(key)` for each key; a dict if the type cannot be created so."""
    try:
        if isinstance(data, MutableMapping):
            clone: Any = copy.copy(data)
            clone.update({key: convert(key) for key in data})
            return clone
        kind: Any = type(data)
        return kind({key: convert(key) for key in data})
    except DTypeError:
        raise
    except TypeError:
        return {key: convert(key) for key in data}


def _sequenced(data: Sequence[Any], parts: Iterable[Any], convert: Callable[[Any], Any]) -> Any:
    """Return a sequence of the same type with each part converted; a list for a tuple or range."""
    kind: Any = type(data)
    if isinstance(data, tuple):
        return kind(*map(convert, parts)) if hasattr(data, "_fields") else [convert(part) for part in parts]
    found = [convert(part) for part in parts]
    try:
        if isinstance(data, MutableSequence):
            clone: Any = copy.copy(data)
            for place, part in enumerate(found):
                clone[place] = part
            return clone
        return kind(found)
    except TypeError:
        return found


def collate(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Any:
    """Collate samples by a map of functions; mappings, namedtuples and sequences are collated part by part.

    Does not block.

    Args:
        batch: samples; the type and tree of the first one apply to all.
        collate_fn_map: functions by the type of samples: the type itself, else the first base class of it in the map.
            Default: `default_collate_fn_map`.

    Raises:
        SampleTypeError: objects of a type that is not in the map.
        SampleMismatch: samples of different length, keys or shape; it says which.
    """
    functions = default_collate_fn_map if collate_fn_map is None else collate_fn_map
    if not len(batch):
        raise InvalidArgument("a batch without samples cannot be collated; give at least one sample")
    first = batch[0]
    function = functions.get(type(first))
    if function is None:
        function = next((functions[kind] for kind in functions if isinstance(first, kind)), None)
    if function is not None:
        return function(batch, collate_fn_map=functions)
    part = functools.partial(collate, collate_fn_map=functions)
    if isinstance(first, Mapping):
        return _mapped(first, lambda key: part(_of_key(batch, key)))
    if isinstance(first, Sequence):
        _require_equal_lengths(batch)
        return _sequenced(first, list(zip(*batch, strict=True)), part)
    raise SampleTypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {type_name(first)} (sample 0 of the batch){COLLATION_ADVICE}",
        (0,),
    )


def _of_key(batch: Sequence[Any], key: Any) -> list[Any]:
    try:
        return [sample[key] for sample in batch]
    except (KeyError, IndexError, TypeError):
        for place, sample in enumerate(batch):
            if not isinstance(sample, Mapping):
                _refuse_kinds(batch, place)
        place = next(place for place, sample in enumerate(batch) if key not in sample)
        raise SampleMismatch(
            f"sample 0 of the batch has the key {key!r}, and sample {place} does not; "
            "give all samples the same keys, or pass a collate_fn",
            (0, place),
        ) from None


def _require_equal_lengths(batch: Sequence[Any]) -> None:
    length = len(batch[0])
    for place, sample in enumerate(batch):
        if not isinstance(sample, Sequence):
            _refuse_kinds(batch, place)
        if len(sample) != length:
            raise SampleMismatch(
                f"each element in list of batch should be of equal size: sample 0 of the batch has {length} elements, "
                f"sample {place} has {len(sample)}{PADDING_ADVICE}",
                (0, place),
            )


def _refuse_kinds(batch: Sequence[Any], place: int) -> NoReturn:
    """Raise SampleMismatch: the sample at a place is not of the kind of the first one."""
    raise SampleMismatch(
        f"sample 0 of the batch is a {type_name(batch[0])}, sample {place} a {type_name(batch[place])}; "
        "give samples of one type, or pass a collate_fn",
        (0, place),
    )


# -- what each type becomes --------------------------------------------------------------------------------------------


def _refuse_shapes(arrays: Sequence[NDArray[Any]]) -> NoReturn:
    """Raise SampleMismatch with the indices of arrays whose shape differs from the first one's."""
    first = arrays[0].shape
    others = [(place, array.shape) for place, array in enumerate(arrays) if array.shape != first]
    listed = ", ".join(f"sample {place} {shape}" for place, shape in others[:4]) + (", ..." if len(others) > 4 else "")
    raise SampleMismatch(
        f"samples of a batch have unequal shapes: sample 0 has {first}, {listed}{PADDING_ADVICE}",
        (0, *(place for place, _ in others)),
    )


def _require_int64(integers: Iterable[Any], place: int) -> None:
    """Raise SampleMismatch if one of Python's integers in a sample is beyond int64."""
    for number in integers:
        if isinstance(number, int) and not -_INT64_END <= number < _INT64_END:
            shown = number if number.bit_length() <= _SHOWN_BITS else f"an integer of {number.bit_length()} bits"
            remedy = "np.uint64(x)" if 0 < number < 2 * _INT64_END else "float(x)"
            raise SampleMismatch(
                f"sample {place} of the batch is or has {shown}, and Python's integers become int64 in a batch; use "
                f"{remedy} in place of x in all samples",
                (place,),
            )


def _numbers(sample: Any, place: int) -> NDArray[Any] | None:
    """Return the array of a number, an array or a list of numbers; None: it is none of these."""
    if not isinstance(sample, int | float | list):
        return numbers_of(sample)
    try:
        array = np.asarray(sample)
    except ValueError:  # lists of unequal length in a list
        return None
    if array.dtype not in (np.int64, np.bool_):
        parts = sample if isinstance(sample, list) else [sample]
        if not any(isinstance(part, float) for part in parts):
            _require_int64(parts, place)
        elif array.dtype == np.object_ and isinstance(sample, NumberList):
            array = array_from(sample, np.dtype(np.float64))
    return numbers_of(array)


def _unfit(sample: Any) -> tuple[str, str]:
    """Return (description of a sample without an array of numbers, advice)."""
    array = array_of(sample)
    if array is not None:
        dtype = array.dtype
        if dtype.newbyteorder("=") in BY_DTYPE:
            return (
                f"an array of {dtype.str}, whose byte order is not this machine's",
                'convert it with array.astype(array.dtype.newbyteorder("=")), or give a collate_fn',
            )
        return (
            f"an array of {dtype}, a type that tensors do not have",
            "convert it to a type of numbers that they have, or give a collate_fn",
        )
    if isinstance(sample, torch_tensor()):
        if sample.is_nested:
            return "a nested torch tensor", "give its parts as samples, or give a collate_fn"
        if str(sample.layout) != "torch.strided":
            return f"a sparse torch tensor ({sample.layout})", "make it dense with .to_dense(), or give a collate_fn"
        if str(sample.device) != "cpu":
            return f"a torch tensor on {sample.device}", "copy it with .cpu(), or give a collate_fn"
        return f"a torch tensor of {sample.dtype}", "convert it to a type that shmtensor has, or give a collate_fn"
    return type_name(sample), "give a collate_fn"


def _arrays_of(batch: Sequence[Any]) -> list[NDArray[Any]]:
    found = []
    for place, sample in enumerate(batch):
        array = _numbers(sample, place)
        if array is None:
            what, remedy = _unfit(sample)
            raise SampleTypeError(
                "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
                f"found {what} (sample {place} of the batch); {remedy}",
                (place,),
            )
        found.append(array)
    return found


def _require_numbers(batch: Sequence[Any]) -> None:
    """Raise SampleTypeError if a sample is not a number, array or tensor; SampleMismatch if it has an axis."""
    if set(map(type, batch)) <= _NUMBERS:
        return
    arrays = []
    for place, sample in enumerate(batch):
        array = np.asarray(sample) if isinstance(sample, int | float) else numbers_of(sample)
        if array is None:
            raise SampleTypeError(
                f"default_collate: sample 0 of the batch is a number, and sample {place} a {type_name(sample)}; give "
                "all samples one type",
                (0, place),
            )
        arrays.append(array)
    if any(array.ndim for array in arrays):
        _refuse_shapes(arrays)


def _common_type(batch: Sequence[Any], arrays: Sequence[NDArray[Any]]) -> np.dtype[Any]:
    """Return the type of a batch, promoted as in torch; Python's floats count as the default type."""
    return _promoted(
        default_float() if type(one) is float else array.dtype for one, array in zip(batch, arrays, strict=True)
    )


def _promoted(types: Iterable[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the type that can hold all, regardless of their order."""
    return functools.reduce(promoted, sorted(set(types), key=str))


def _result(shape: tuple[int, ...], dtype: Any) -> Tensor:
    """Return an uninitialised tensor; in a worker it is in shared memory, so that it is sent without a copy."""
    return empty(shape, dtype=dtype, shared=get_worker_info() is not None)


def _collate_arrays(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Tensor:
    arrays = _arrays_of(batch)
    if any(array.shape != arrays[0].shape for array in arrays):
        _refuse_shapes(arrays)
    if any(isinstance(sample, Tensor) and sample.requires_grad for sample in batch):
        joined: Tensor = stack([asarray(sample) for sample in batch])
        return joined
    made = _result((len(arrays), *arrays[0].shape), _common_type(batch, arrays))
    np.stack(arrays, out=made._live(), casting="unsafe")
    return made


def _collate_numbers(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Tensor:
    return tensor(np.asarray(batch)) if len(set(map(type, batch))) == 1 else _collate_arrays(batch)


def _collate_floats(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Tensor:
    _require_numbers(batch)
    return tensor(list(batch), dtype=np.float64)


def _collate_integers(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Tensor:
    types = set(map(type, batch))
    if not types <= _NUMBERS:
        return _collate_arrays(batch)
    if float in types:
        return tensor(list(batch), dtype=default_float())
    array = np.asarray(batch)
    if array.dtype != np.int64:
        for place, number in enumerate(batch):
            _require_int64([number], place)
    return tensor(array)


def _collate_text(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Sequence[Any]:
    return batch


default_collate_fn_map: CollateMap = {
    Tensor: _collate_arrays,
    np.ndarray: _collate_arrays,
    (np.bool_, np.number, np.object_): _collate_numbers,
    float: _collate_floats,
    int: _collate_integers,
    str: _collate_text,
    bytes: _collate_text,
    TorchTensor: _collate_arrays,
}
"""The functions of `default_collate` for each type of samples; programs may change it, like torch's."""


def default_collate(batch: Sequence[Any]) -> Any:
    """Return the batch of samples, each array with a new first axis. Does not block.

    Tensors, arrays and torch tensors become tensors of their type; Python's floats become float64, integers int64, and
    bools bool; strings and bytes are unchanged. Mappings, namedtuples and sequences keep their type (tuples become
    lists, as in torch), with each part collated. Unequal types are promoted as in torch: if the first sample is a
    Python float, numbers become float64; otherwise Python's floats count as the default type.

    Args:
        batch: a sequence of samples with equal trees.

    Raises:
        SampleTypeError: other objects; the message names the first.
        SampleMismatch: samples of unequal shape, length or keys, or one of Python's integers that int64 cannot hold in
            a batch without floats; the message names them.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def _collate_unordered(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """Collate numbers and arrays of equal shape; Python's floats are float64 at any position."""
    if float in set(map(type, batch)) <= _NUMBERS:
        return tensor(list(batch), dtype=np.float64)
    arrays = _arrays_of(batch)
    if any(array.shape != arrays[0].shape for array in arrays):
        _refuse_shapes(arrays)
    made = _result((len(arrays), *arrays[0].shape), _promoted(array.dtype for array in arrays))
    np.stack(arrays, out=made._live(), casting="unsafe")
    return made


def unordered_collate_fn_map() -> CollateMap:
    """Return the default map, but with result types of numbers and arrays that do not depend on the order of samples.

    Python's floats count as float64 everywhere. Functions that a program has registered stay; gradients are lost.
    """
    ours = (_collate_arrays, _collate_numbers, _collate_floats, _collate_integers)
    return {kind: _collate_unordered if made in ours else made for kind, made in default_collate_fn_map.items()}


def default_convert(data: Any) -> Any:
    """Return a sample with its arrays, NumPy numbers and torch tensors replaced by tensors over the same memory.

    Arrays of strings and objects, masked arrays, numbers and other objects are unchanged; tuples become lists, as in
    torch. Does not block.
    """
    if isinstance(data, Tensor) or is_masked(data):
        return data
    array = numbers_of(data)
    if array is not None:
        return asarray(array)
    if isinstance(data, np.ndarray | np.generic | TorchTensor):
        return data
    if isinstance(data, Mapping):
        return _mapped(data, lambda key: default_convert(data[key]))
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _sequenced(data, data, default_convert)
    return data


# -- samples of unequal lengths ----------------------------------------------------------------------------------------


class Padded(NamedTuple):
    """Arrays of unequal shape in one padded tensor, and the length of each along the first axis."""

    values: Tensor
    lengths: Tensor


class Ragged(NamedTuple):
    """Arrays concatenated along the first axis: array i is `values[offsets[i]:offsets[i + 1]]`."""

    values: Tensor
    offsets: Tensor

    def unbind(self) -> list[Tensor]:
        """Return the arrays, as views of `values`."""
        ends = self.offsets.tolist()
        return [self.values[start:stop] for start, stop in pairwise(ends)]


def _pad(
    batch: Sequence[Any], padding_value: Any, lengths: bool, multiple_of: int, collate_fn_map: CollateMap | None
) -> Any:
    arrays = _arrays_of(batch)
    if any(array.ndim != arrays[0].ndim for array in arrays):
        _refuse_shapes(arrays)
    shape = [max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True)]
    if shape:
        shape[0] += -shape[0] % multiple_of
    made = _result((len(arrays), *shape), _common_type(batch, arrays))
    values: Any = made._live()
    whole = tuple(shape)
    for row, array in enumerate(arrays):
        if array.shape != whole:
            values[row, ...] = padding_value
        values[(row, *map(slice, array.shape))] = array
    if not lengths or not shape:
        return made
    return Padded(made, tensor([len(array) for array in arrays]))


def pad_collate(batch: Sequence[Any], *, padding_value: Any = 0, lengths: bool = False, multiple_of: int = 1) -> Any:
    """Collate as `default_collate`, but pad arrays of unequal shape at their ends to the largest size of each axis.

    A list of Python's numbers counts as an array. Pass options with `functools.partial`. Does not block.

    Args:
        batch: samples; arrays at the same place of the tree must have the same number of axes.
        padding_value: value of the padding.
        lengths: return a `Padded(values, lengths)` in place of each tensor, with the lengths of the first axis.
        multiple_of: pad the first axis to a multiple of this.

    Raises:
        DTypeError: other objects.
        SampleMismatch: arrays with different numbers of axes.
        InvalidArgument: multiple_of below 1.
    """
    multiple_of = require_integer("multiple_of", multiple_of, 1)
    pad = functools.partial(_pad, padding_value=padding_value, lengths=lengths, multiple_of=multiple_of)
    return collate(batch, collate_fn_map=_with_arrays(pad))


def _join(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Any:
    arrays = _arrays_of(batch)
    if arrays[0].ndim == 0:
        return _collate_arrays(batch)
    if any(array.ndim == 0 or array.shape[1:] != arrays[0].shape[1:] for array in arrays):
        _refuse_shapes(arrays)
    offsets = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([len(array) for array in arrays], out=offsets[1:])
    made = _result((int(offsets[-1]), *arrays[0].shape[1:]), _common_type(batch, arrays))
    np.concatenate(arrays, out=made._live(), casting="unsafe")
    return Ragged(made, tensor(offsets))


def ragged_collate(batch: Sequence[Any]) -> Any:
    """Collate as `default_collate` does, but concatenate arrays, with their offsets: `Ragged(values, offsets)`.

    This applies to all arrays with an axis, also to those of equal lengths. A list of Python's numbers counts as an
    array. Does not block.

    Raises:
        DTypeError: other objects.
        SampleMismatch: arrays that differ in axes other than the first.
    """
    return collate(batch, collate_fn_map=_with_arrays(_join))


def _with_arrays(function: Callable[..., Any]) -> CollateMap:
    """Return the default map with another function for arrays."""
    arrays = dict.fromkeys((NumberList, Tensor, np.ndarray, TorchTensor), function)
    return {**arrays, **{kind: made for kind, made in default_collate_fn_map.items() if kind not in arrays}}
