"""Comparing functions of nn.functional by shmtensor and by torch: values, first and second derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmtensor as st

VALUES, GRADIENTS, SECOND = 1e-10, 1e-10, 1e-8
"""The relative and absolute tolerance."""


def numbers(*shape: int, seed: int = 0, of: str = "normal") -> Any:
    """Random float64 numbers: normal, or from 0 to 1."""
    made = np.random.default_rng(seed + sum(shape))
    return made.standard_normal(shape) if of == "normal" else made.uniform(0.05, 0.95, shape)


class Fixed(np.ndarray):
    """Numbers whose gradients are not compared."""


def fixed(values: Any) -> Any:
    """Numbers that become a tensor which does not require grad."""
    return np.asarray(values).view(Fixed)


def near(ours: Any, theirs: Any, tolerance: float, what: str) -> None:
    """Compare two arrays; None is as good as zeros. Raises AssertionError."""
    if ours is None or theirs is None:
        other = theirs if ours is None else ours
        assert other is None or not np.any(other.detach().numpy(**({} if theirs is None else {"force": True}))), what
        return
    a, b = ours.detach().numpy(), theirs.detach().resolve_conj().numpy(force=True)
    assert a.shape == b.shape and a.dtype == b.dtype, f"{what}: {a.shape} {a.dtype}, not {b.shape} {b.dtype}"
    assert np.allclose(a, b, tolerance, tolerance, equal_nan=True), f"{what}: {a}, not {b}"


def _leaves(result: Any) -> list[Any]:
    return [one for one in result if one is not None] if isinstance(result, tuple | list) else [result]


def _made(value: Any, make: Callable[[Any], Any], inputs: list[Any]) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    tensor = make(np.array(value))
    if value.dtype.kind in "fc" and not isinstance(value, Fixed):
        tensor.requires_grad = True
        inputs.append(tensor)
    return tensor


def beside_torch(name: str, *args: Any, second: bool = True, **how: Any) -> None:
    """Call a function of both libraries; arrays among the arguments become tensors, whose gradients are compared."""
    torch = pytest.importorskip("torch")
    results = []
    for library, make in ((st, st.from_numpy), (torch, torch.from_numpy)):
        inputs: list[Any] = []
        given = [_made(one, make, inputs) for one in args]
        named = {key: _made(one, make, inputs) for key, one in how.items()}
        function: Any = library.nn.functional
        for part in name.split("."):
            function = getattr(function, part)
        outputs = _leaves(function(*given, **named))
        results.append((library, make, inputs, outputs))
    for ours, theirs in zip(results[0][3], results[1][3], strict=True):
        near(ours, theirs, VALUES, name)
    _compare(name, results, GRADIENTS, second)


def _compare(name: str, results: list[Any], tolerance: float, again: bool) -> None:
    found = []
    for library, make, inputs, outputs in results:
        roots = [one for one in outputs if one is not None and one.requires_grad]
        generator = np.random.default_rng(5)
        seeds = [generator.standard_normal(tuple(one.shape)) for one in roots]
        seeds = [
            make(np.asarray(g).astype(str(one.dtype).rpartition(".")[2])) for g, one in zip(seeds, roots, strict=True)
        ]
        if not roots or not inputs:
            return
        how = {"create_graph": again, "allow_unused": True}
        found.append((library, make, inputs, library.autograd.grad(roots, inputs, seeds, **how)))
    for number, (ours, theirs) in enumerate(zip(found[0][3], found[1][3], strict=True)):
        near(ours, theirs, tolerance, f"{name}: gradient {number}")
    if again:
        kept = [i for i, one in enumerate(found[1][3]) if one is not None and one.requires_grad]
        later = [(*one[:3], [one[3][i] for i in kept]) for one in found]
        if all(x is not None and x.requires_grad for x in later[0][3]):
            _compare(name, later, SECOND, False)
