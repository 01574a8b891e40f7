"""One sample of torch's database of operations, computed by torch and by shmtensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import shmtensor as st

UNINITIALIZED = frozenset({"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"})
"""Their values mean nothing."""
RANDOM = frozenset({"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal",
                    "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform"})  # fmt: skip
"""torch's database seeds them itself, so that they are the same in each call."""
PROPERTIES = frozenset({"H", "T", "mH", "mT", "imag", "real"})
IN_PLACE = frozenset({"cauchy", "exponential", "fill", "geometric", "log_normal", "uniform", "zero"})
"""torch's database calls the in-place method of a copy."""
ARRANGED: dict[str, Callable[..., Any]] = {
    "einsum": lambda operands, equation: st.einsum(equation, operands),
    "polygamma": lambda x, n: st.polygamma(n, x),
    "special.polygamma": lambda x, n: st.special.polygamma(n, x),
    "where": lambda x, condition, other: st.where(condition, x, other),
}
"""torch's database calls these with other arguments than the function takes."""
TOLERANCES = {"float16": (1e-2, 1e-3), "float32": (2e-4, 2e-5), "complex64": (5e-4, 5e-5)}
"""Relative and absolute; of other types EXACT or DOUBLE."""
DOUBLE = (1e-7, 1e-8)


class Absent(Exception):
    """A type, flag or other value of torch's that shmtensor does not have."""


class Disagreement(Exception):
    """The results differ; the message says how."""


def find(name: str) -> Callable[..., Any] | None:
    """Our callable for an operation of torch's; None if there is none."""
    if name in PROPERTIES and hasattr(st.Tensor, name):
        return lambda x: getattr(x, name)
    if name in IN_PLACE:
        return getattr(st.Tensor, f"{name}_", None)
    if name in ARRANGED:
        return ARRANGED[name]
    if hasattr(st.Tensor, name) and not callable(getattr(torch, name, None)):
        return getattr(st.Tensor, name)  # torch has the method only
    place: Any = st
    try:
        for part in name.split("."):
            place = getattr(place, part)
    except AttributeError:
        place = None
    if not callable(place):  # absent, or a type: `bool` is also a method
        place = getattr(st.Tensor, name, None)
    if not callable(place):  # a type, such as float, beside a method
        place = getattr(st.Tensor, name, None)
    return place if callable(place) else None


def ours(value: Any) -> Any:
    """Return a copy of an argument of torch's, as ours."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise Absent("sparse tensors")
        if value.dtype in (torch.bfloat16, torch.complex32):
            raise Absent(f"{value.dtype} in an argument")
        return st.from_numpy(_array(value))
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        name = str(value).removeprefix("torch.")
        if not hasattr(st, name):
            raise Absent(name)
        return getattr(st, name)
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, torch.Generator):
        return st.Generator()
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, list | tuple):
        return type(value)(ours(one) for one in value)
    if isinstance(value, dict):
        return {key: ours(one) for key, one in value.items()}
    return value


def _array(x: torch.Tensor) -> np.ndarray:
    """A copy with the same strides."""
    whole = x.detach().resolve_conj().resolve_neg()
    copy = torch.empty_strided(whole.shape, whole.stride(), dtype=whole.dtype)
    if any(stride == 0 and size > 1 for size, stride in zip(whole.shape, whole.stride(), strict=True)):
        return np.broadcast_to(whole.contiguous().numpy().copy(), whole.shape)
    return copy.copy_(whole).numpy()


def theirs(value: Any) -> Any:
    """Return a copy of an argument for torch."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return type(value)(theirs(one) for one in value)
    return value


def to_torch(value: Any) -> Any:
    """Return our result as torch's, for the functions of the database that make results comparable."""
    if isinstance(value, st.Tensor):
        return torch.from_numpy(np.array(value.numpy()))
    if isinstance(value, list | tuple):
        return tuple(to_torch(one) for one in value)
    return value


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, list | tuple):
        yield f"{path} length", len(value)
        for number, one in enumerate(value):
            yield from _leaves(one, f"{path}[{number}]")
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from _leaves(value[key], f"{path}[{key!r}]")
    else:
        yield path, value


def compare(expected: Any, found: Any, *, values: bool = True) -> None:
    """Compare a result of torch with ours: structure, types, shapes and, if wanted, values. Raises Disagreement."""
    wanted, got = list(_leaves(expected)), list(_leaves(found))
    if [path for path, _ in wanted] != [path for path, _ in got]:
        raise Disagreement(
            f"structure: {type(expected).__name__} of {len(wanted)}, not {type(found).__name__} of {len(got)}"
        )
    for (path, theirs), (_, mine) in zip(wanted, got, strict=True):
        _compare_one(path, theirs, mine, values)


def _compare_one(path: str, theirs: Any, mine: Any, values: bool) -> None:
    if isinstance(theirs, torch.Tensor):
        if not isinstance(mine, st.Tensor):
            raise Disagreement(f"{path} is a {type(mine).__name__}, not a tensor")
        if str(theirs.dtype).removeprefix("torch.") != _name(mine.dtype):
            raise Disagreement(f"{path} dtype: {mine.dtype}, not {theirs.dtype}")
        if tuple(theirs.shape) != tuple(mine.shape):
            raise Disagreement(f"{path} shape: {tuple(mine.shape)}, not {tuple(theirs.shape)}")
        if values:
            plain, found = theirs.detach().resolve_conj().resolve_neg(), np.asarray(mine.numpy())
            if theirs.dtype is torch.bfloat16:  # torch gives no array of it
                plain, found = plain.float(), found.astype(np.float32)
            _compare_values(path, plain.numpy(), found)
    elif isinstance(theirs, torch.dtype):
        if str(theirs).removeprefix("torch.") != _name(mine):
            raise Disagreement(f"{path}: {mine}, not {theirs}")
    elif isinstance(theirs, float) and values:
        if not math.isclose(theirs, mine, rel_tol=1e-4, abs_tol=1e-5) and not (theirs != theirs and mine != mine):
            raise Disagreement(f"{path}: {mine}, not {theirs}")
    elif values and (theirs != mine or isinstance(theirs, bool) is not isinstance(mine, bool)):
        raise Disagreement(f"{path}: {mine!r}, not {theirs!r}")


def _name(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.").removeprefix("shmtensor.")


def _compare_values(path: str, theirs: np.ndarray, mine: np.ndarray) -> None:
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


def judge(info: Any, function: Callable[..., Any], sample: Any, name: str) -> None:
    """Compute a sample with both and compare. Raises Disagreement, Absent, or what our function raised."""

    def by_torch(seed: int) -> Any:
        torch.manual_seed(seed)
        arguments = theirs(tuple(sample.args)), {key: theirs(value) for key, value in sample.kwargs.items()}
        return info.op(theirs(sample.input), *arguments[0], **arguments[1])

    expected = by_torch(1)
    arguments, named = [ours(one) for one in sample.args], {key: ours(value) for key, value in sample.kwargs.items()}
    found = function(ours(sample.input), *arguments, **named)
    is_random = name in UNINITIALIZED | RANDOM
    if not is_random:
        try:
            again = by_torch(2)
            for (_, one), (_, other) in zip(_leaves(expected), _leaves(again), strict=True):
                if isinstance(one, torch.Tensor) and not torch.equal(one.nan_to_num(), other.nan_to_num()):
                    is_random = True
        except (RuntimeError, TypeError, NotImplementedError):
            pass
    if not is_random and sample.output_process_fn_grad is not None:
        try:
            processed = sample.output_process_fn_grad(expected)
        except Exception:  # meant for gradients only
            processed = expected
        if processed is not expected:
            compare(expected, found, values=False)
            mine = sample.output_process_fn_grad(_like(expected, to_torch(found)))
            for (path, one), (_, other) in zip(_leaves(processed), _leaves(mine), strict=True):
                if isinstance(one, torch.Tensor):
                    _compare_values(path, one.detach().resolve_conj().numpy(), other.detach().resolve_conj().numpy())
            return
    compare(expected, found, values=not is_random)


def _like(expected: Any, found: Any) -> Any:
    """Named results as torch has them."""
    return type(expected)(found) if isinstance(expected, tuple) and type(expected) is not tuple else found
