"""Parameters as one vector, and back. Nothing here blocks."""

from __future__ import annotations

from collections.abc import Iterable

from ..._tensor.joining import cat
from ..._tensor.methods import Tensor
from ...errors import DTypeError, InvalidArgument, type_name


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters, one after the other. A copy. Raises InvalidArgument: no parameters."""
    return cat([one.reshape(-1) for one in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make each parameter a view of its elements in a vector.

    Raises:
        DTypeError: vec is not a tensor.
        InvalidArgument: it has fewer elements than the parameters.
    """
    if not isinstance(vec, Tensor):
        raise DTypeError(f"expected a Tensor, but got: {type_name(vec)}")
    every = [*parameters]
    total = sum(one.numel() for one in every)
    if total > vec.numel():
        raise InvalidArgument(f"a vector of {vec.numel()} elements for parameters of {total}; give as many")
    source, start = vec.detach(), 0
    for one in every:
        end = start + one.numel()
        one.data = source[start:end].reshape(one.shape)
        start = end
