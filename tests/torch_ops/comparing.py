"""Comparing a result of torch with ours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import shmtensor as st

TOLERANCES = {"float16": (1e-2, 1e-3), "float32": (2e-4, 2e-5), "complex64": (5e-4, 5e-5)}
"""Relative and absolute; of other types EXACT or DOUBLE."""
DOUBLE = (1e-7, 1e-8)


class Disagreement(Exception):
    """The results differ; the message says how."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """What a result consists of, with its place: lengths, tensors, numbers, types."""
    if isinstance(value, list | tuple):
        yield f"{path} length", len(value)
        for number, one in enumerate(value):
            yield from leaves(one, f"{path}[{number}]")
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from leaves(value[key], f"{path}[{key!r}]")
    else:
        yield path, value


def compare(expected: Any, found: Any, *, values: bool = True) -> None:
    """Compare a result of torch with ours: structure, types, shapes and, if wanted, values. Raises Disagreement."""
    wanted, got = list(leaves(expected)), list(leaves(found))
    if [path for path, _ in wanted] != [path for path, _ in got]:
        raise Disagreement(
            f"structure: {type(expected).__name__} of {len(wanted)}, not {type(found).__name__} of {len(got)}"
        )
    _compare_structure(expected, found)
    for (path, theirs), (_, mine) in zip(wanted, got, strict=True):
        _compare_one(path, theirs, mine, values)


def _compare_structure(expected: Any, found: Any) -> None:
    """Compare tuples, lists and the names in named results, at all depths."""
    if not isinstance(expected, list | tuple):
        return
    if isinstance(expected, tuple) is not isinstance(found, tuple):
        raise Disagreement(f"structure: {type(found).__name__}, not {type(expected).__name__}")
    names = getattr(type(expected), "__match_args__", ()) if hasattr(type(expected), "n_fields") else ()
    for name, one in zip(names, found, strict=bool(names)):
        if getattr(found, name, None) is not one:
            raise Disagreement(f"structure: {type(found).__name__} without the name {name}")
    for one, other in zip(expected, found, strict=True):
        _compare_structure(one, other)


def _compare_one(path: str, theirs: Any, mine: Any, values: bool) -> None:
    if isinstance(theirs, torch.Tensor):
        if not isinstance(mine, st.Tensor):
            raise Disagreement(f"{path} is a {type(mine).__name__}, not a tensor")
        if name_of(theirs.dtype) != name_of(mine.dtype):
            raise Disagreement(f"{path} dtype: {mine.dtype}, not {theirs.dtype}")
        if tuple(theirs.shape) != tuple(mine.shape):
            raise Disagreement(f"{path} shape: {tuple(mine.shape)}, not {tuple(theirs.shape)}")
        if values:
            plain, found = theirs.detach().resolve_conj().resolve_neg(), np.asarray(mine.numpy())
            if theirs.dtype is torch.bfloat16:  # torch gives no array of it
                plain, found = plain.float(), found.astype(np.float32)
            compare_values(path, plain.numpy(), found)
    elif isinstance(theirs, torch.dtype):
        if name_of(theirs) != name_of(mine):
            raise Disagreement(f"{path}: {mine}, not {theirs}")
    elif isinstance(theirs, bool | int | float | complex) and type(theirs) is not type(mine):
        raise Disagreement(f"{path}: a {type(mine).__name__}, not a {type(theirs).__name__}")
    elif isinstance(theirs, float) and values:
        if not math.isclose(theirs, mine, rel_tol=1e-4, abs_tol=1e-5) and not (theirs != theirs and mine != mine):
            raise Disagreement(f"{path}: {mine}, not {theirs}")
    elif values and theirs != mine:
        raise Disagreement(f"{path}: {mine!r}, not {theirs!r}")


def name_of(dtype: Any) -> str:
    """The name of a type of torch's or ours, without the module."""
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.").removeprefix("shmtensor.")


def compare_values(path: str, theirs: np.ndarray, mine: np.ndarray) -> None:
    """Compare elements: of integers and bool exactly, of others within TOLERANCES. Raises Disagreement."""
    if theirs.shape != mine.shape:
        raise Disagreement(f"{path} shape: {mine.shape}, not {theirs.shape}")
    if theirs.dtype.kind not in "fc":
        if not np.array_equal(theirs, mine):
            raise Disagreement(f"{path} values: {_short(mine)}, not {_short(theirs)}")
        return
    relative, absolute = TOLERANCES.get(theirs.dtype.name, DOUBLE)
    with np.errstate(all="ignore"):
        if not np.allclose(mine, theirs, relative, absolute, equal_nan=True):
            raise Disagreement(f"{path} values: {_short(mine)}, not {_short(theirs)}")


def _short(array: np.ndarray) -> str:
    return " ".join(np.array2string(array.ravel()[:6], precision=5, threshold=6).split())
