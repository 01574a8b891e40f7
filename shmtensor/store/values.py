"""Error messages for values that a store does not accept: `refusal` finds the part that could not be encoded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from .._tensor.core import Tensor

_DEPTH: Final = 32  # containers in containers, as native/python/codec_body.hpp has it
_TAKEN: Final = "tensors and ndarrays of numbers, None, bool, int, float, complex, str, bytes, tuple, list and dict"


def refusal(value: Any) -> str:
    """Return why a store does not accept a value: the part, its place and what to do. Empty: it accepts it."""
    return next((f"{place} is {found}" for place, found in _walk(value, "value", ()) if found), "")


def _walk(value: Any, place: str, above: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    kind = type(value)
    if kind in (tuple, list, dict):
        if id(value) in above:
            yield place, "a container that contains itself; a store takes trees of values"
            return
        if len(above) == _DEPTH:
            yield "a part of the value", f"more than {_DEPTH} containers deep"
            return
        pairs = value.items() if kind is dict else enumerate(value)
        for key, item in list(pairs):
            if kind is dict:
                yield from _walk(key, f"a key of {place}", (*above, id(value)))
            yield from _walk(item, f"{place}[{key!r}]", (*above, id(value)))
    else:
        yield place, _leaf(value)


def _leaf(value: Any) -> str:
    """Return why a store refuses a value other than a container; an empty string if it accepts the value."""
    kind = type(value)
    if kind is Tensor or kind is np.ndarray:
        dtype = value._array.dtype if kind is Tensor else value.dtype
        what = "a tensor" if kind is Tensor else "an ndarray"
        if dtype.isbuiltin == 2:
            if dtype.name == "bfloat16" or dtype.name.startswith("float8_"):
                return ""
            return f"{what} of {dtype.name}; put its view(uint{8 * dtype.itemsize})"
        if dtype.names:
            return f"{what} with fields; put a dict of them"
        if dtype.kind not in "biufc":
            return f"{what} of {dtype}; a store takes numbers: put them as a list, or encode them"
        return "" if dtype.isnative else f"{what} of the other byte order; put its astype({dtype.newbyteorder('=')})"
    if kind is int:
        return "" if -(2**63) <= value < 2**63 else "an int beyond 64 bits; put it as a str or bytes"
    if value is None or kind in (bool, float, complex, str, bytes):
        return ""
    if isinstance(value, np.generic):
        return f"a NumPy scalar of type {kind.__name__}; put its item()"
    return f"of type {kind.__name__}; a store takes {_TAKEN}: convert it, or put its pickle as bytes"
