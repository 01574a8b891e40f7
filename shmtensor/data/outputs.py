"""Conversion of batches for the program: to our tensors, or other libraries' arrays and tensors over their memory."""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._tensor.core import Tensor
from .._tensor.dlpack import from_torch
from ..errors import InvalidArgument, MissingExtra, ShmTensorError
from .collate import _mapped, _sequenced
from .leaves import PLAIN, torch_tensor
from .state import listed

_SCALARS: Final = (str, bytes, bytearray, memoryview, range, array)
"""Sequences without tensors, which are not searched."""
OUTPUTS: Final = ("shmtensor", "numpy", "torch", "jax")


def _same(tensor: Tensor) -> Any:
    return tensor


def _plain(tensor: Tensor) -> Any:
    return tensor.detach() if tensor.requires_grad else tensor


def _numpy(tensor: Tensor) -> Any:
    return _plain(tensor).numpy()


def converter(output: str) -> Callable[[Tensor], Any]:
    """Return the function that converts tensors of batches for the program, without a copy and without gradients.

    Args:
        output: "shmtensor", "numpy", "torch" or "jax".

    Raises:
        InvalidArgument: an unknown output.
        MissingExtra: the library is not installed.
    """
    if output not in OUTPUTS:
        raise InvalidArgument(f"output must be one of {', '.join(map(repr, OUTPUTS))}, not {output!r}")
    if output == "shmtensor":
        return _same
    if output == "numpy":
        return _numpy
    try:
        library: Any = importlib.import_module(output)
        module: Any = importlib.import_module("jax.dlpack") if output == "jax" else library
    except ImportError as error:
        raise MissingExtra(f"output={output!r} needs {output}, which is not installed") from error

    def convert(tensor: Tensor) -> Any:
        return module.from_dlpack(_plain(tensor))

    return convert


def converted(tree: Any, convert: Callable[[Tensor], Any]) -> Any:
    """Return the tree with each tensor converted, in mappings and sequences of any type; keep parts without tensors.

    torch's tensors are converted by `convert.theirs`, if it exists.
    """
    if type(tree) in PLAIN:
        return tree
    if isinstance(tree, Tensor):
        return convert(tree)
    if isinstance(tree, torch_tensor()):
        theirs = getattr(convert, "theirs", None)
        return tree if theirs is None else theirs(tree)
    if isinstance(tree, Mapping):
        found = {key: converted(part, convert) for key, part in tree.items()}
        is_same = all(found[key] is part for key, part in tree.items())
        return tree if is_same else _mapped(tree, found.__getitem__)
    if isinstance(tree, Sequence) and not isinstance(tree, _SCALARS):
        given = list(tree)
        parts = [converted(part, convert) for part in given]
        if all(one is other for one, other in zip(parts, given, strict=True)):
            return tree
        if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
            return type(tree)(parts)
        return _sequenced(tree, parts, lambda part: part)
    return tree


def arrays_in(tree: Any) -> list[NDArray[Any]]:
    """Return the arrays in a tree of mappings and sequences of any type: of tensors, NumPy's, torch's if possible."""
    found: list[NDArray[Any]] = []
    _collect(tree, found)
    return found


def _collect(tree: Any, found: list[NDArray[Any]]) -> None:
    if type(tree) in PLAIN:
        return
    if isinstance(tree, Tensor):
        found.append(tree._live())
    elif isinstance(tree, np.ndarray):
        found.append(tree)
    elif isinstance(tree, Mapping):
        for part in tree.values():
            _collect(part, found)
    elif isinstance(tree, Sequence) and not isinstance(tree, _SCALARS):
        for part in tree:
            _collect(part, found)
    elif isinstance(tree, torch_tensor()):
        with suppress(ShmTensorError, BufferError, RuntimeError, TypeError):  # sparse, of another device, ...
            found.append(from_torch(tree.detach())._live())


@contextmanager
def bounded(keys: Any) -> Iterator[None]:
    """Convert a RecursionError in a `with` statement to InvalidArgument with the keys of the batch."""
    try:
        yield
    except RecursionError:
        found = listed(keys)
        names = ", ".join(map(repr, found[:8])) + (", ..." if len(found) > 8 else "")
        raise InvalidArgument(
            f"the batch of indices {names} contains itself, or is nested too deeply; samples, and the result of "
            "collate_fn, must be trees of moderate depth"
        ) from None


def detached(tree: Any) -> Any:
    """Return the tree with its tensors detached: without recorded gradients."""
    return converted(tree, _plain)
