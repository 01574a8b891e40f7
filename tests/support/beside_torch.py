"""Comparing the results of a program with torch and with shmtensor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """A result without objects of either library: tensors as (type, sizes, array), types and devices as their names.

    The structure is kept: lists, tuples and dictionaries remain; a named result becomes a tuple.
    """
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, tuple):
        return tuple([plain(one) for one in value])
    if isinstance(value, bool | int | float | complex | str | bytes | None):
        return value
    if hasattr(value, "numpy"):  # a tensor of either
        name = str(value.dtype).rpartition(".")[2]
        value = value.detach()
        if name == "bfloat16":  # torch has no array of it
            value = value.float()
        return name, tuple(value.shape), np.asarray(value.numpy())
    if isinstance(value, np.ndarray | np.generic):
        return value
    return str(getattr(value, "name", value)).removeprefix("torch.").removeprefix("shmtensor.")


def require_alike(ours: Any, theirs: Any, where: str = "the result", tolerance: float = 2e-4) -> None:
    """Assert that two plain results agree: structure, types and sizes exactly, numbers to float32 precision."""
    if isinstance(ours, np.ndarray | np.generic):
        assert np.shape(ours) == np.shape(theirs) and ours.dtype == theirs.dtype, where
        if ours.dtype.kind in "fc":
            assert np.allclose(ours, theirs, tolerance, tolerance / 10, equal_nan=True), (
                f"{where}: {ours}, not {theirs}"
            )
        else:
            assert np.array_equal(ours, theirs), f"{where}: {ours}, not {theirs}"
        return
    assert type(ours) is type(theirs), f"{where}: a {type(ours).__name__}, not a {type(theirs).__name__}: {theirs!r}"
    if isinstance(ours, dict):
        assert [*ours] == [*theirs], where
        for key in ours:
            require_alike(ours[key], theirs[key], f"{where}[{key!r}]", tolerance)
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs), f"{where}: {len(ours)} values, not {len(theirs)}"
        for number, pair in enumerate(zip(ours, theirs, strict=True)):
            require_alike(*pair, f"{where}[{number}]", tolerance)
    elif isinstance(ours, float):
        alike = math.isclose(ours, theirs, rel_tol=tolerance, abs_tol=tolerance / 10)
        assert alike or (ours != ours and theirs != theirs), f"{where}: {ours}, not {theirs}"
    else:
        assert ours == theirs, f"{where}: {ours!r}, not {theirs!r}"
