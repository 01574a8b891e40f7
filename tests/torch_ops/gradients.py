"""Gradients of the operations of torch's database, by torch and by shmtensor: `make torch-ops GRAD=1`, or 2."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import shmtensor as st
from shmtensor.autograd import gradcheck
from torch_ops.arguments import ours, theirs
from torch_ops.chance import RANDOM
from torch_ops.comparing import TOLERANCES as SINGLE
from torch_ops.comparing import Disagreement, leaves
from torch_ops.entries import Look, entries, function_of, label, summary
from torch_ops.samples import IN_PLACE, PROPERTIES

TOLERANCES = {1: 1e-8, 2: 1e-6}
"""Of gradients, and of gradients of these: relative, and absolute where elements are below 1."""
LARGEST = 200
"""Elements of the inputs of random operations, which are judged by differences."""


class GradientLook(Look):
    """What was found out about the gradients of one entry. Its forms are in-place methods."""

    has_rule = True

    @property
    def state(self) -> str:
        if self.is_present and not self.has_rule:
            return f"no rule; {super().state}"
        return super().state


def is_differentiable(info: Any) -> bool:
    """Whether torch has gradients of an entry."""
    return bool(info.supports_autograd and torch.float64 in info.supported_backward_dtypes("cpu"))


def look(number: int, dtypes: tuple[str, ...], shown: int, order: int) -> Look:
    """Compare the gradients of the samples of one entry; of order 2 also the gradients of these."""
    warnings.simplefilter("ignore")
    info = entries()[number]
    function = function_of(info)
    found = GradientLook(label(info), shown)
    found.is_present = function is not None
    for dtype in dtypes:
        kind = getattr(torch, dtype)
        if function is None or kind not in info.supported_backward_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        try:
            made = list(info.sample_inputs("cpu", kind, requires_grad=True))
        except Exception:  # torch cannot make its own samples
            found.unmade.append(dtype)
            continue
        for sample in made:
            _look_at_sample(found, info, function, sample, summary(dtype, sample), order)
    return found


def _look_at_sample(found: GradientLook, info: Any, function: Any, sample: Any, what: str, order: int) -> None:
    if info.name in IN_PLACE or info.name.rstrip("_") in IN_PLACE:
        function = _of_copy(function)
    try:
        expected = Pass(info.op, sample, theirs)
    except Exception:  # torch refuses it
        return
    found.samples += 1
    try:
        _judge(info, function, sample, expected, order if info.supports_gradgrad else 1)
    except Exception as problem:
        found.note(what, problem)
        found.has_rule = found.has_rule and "has no gradient" not in str(problem)
        return
    found.agreeing += 1
    name = getattr(info.inplace_variant, "__name__", "")
    own = getattr(st.Tensor, name, None)
    skips = info.name in IN_PLACE | PROPERTIES or sample.broadcasts_input or not info.supports_inplace_autograd
    if own is None or skips:
        return
    try:
        expected = Pass(_of_copy(info.inplace_variant), sample, theirs)
    except Exception:
        return
    found.forms += 1
    try:
        _judge(info, _of_copy(own), sample, expected, 1)
        found.agreeing_forms += 1
    except Exception as problem:
        found.note(f"in place: {what}", problem)


def _of_copy(method: Callable[..., Any]) -> Callable[..., Any]:
    """An in-place method, of a copy of its tensor."""
    return lambda x, *args, **how: method(x.clone(), *args, **how)


class Pass:
    """One call of a function with copies of a sample's arguments, and gradients of its results.

    Attributes:
        is_random: of torch's functions, whether it has used random numbers.
    """

    def __init__(self, function: Callable[..., Any], sample: Any, copy: Callable[[Any], Any], seed: int = 1) -> None:
        library = torch if copy is theirs else st
        library.manual_seed(seed)
        self._library = library
        args, how = _copied((sample.input, *sample.args), copy), _copied(dict(sample.kwargs), copy)
        self._run = lambda: sample.output_process_fn_grad(function(*args, **how))
        self.inputs = [one for _, one in leaves([args, how]) if isinstance(one, library.Tensor) and one.requires_grad]
        before = torch.get_rng_state()
        self.results = [one for _, one in leaves(self._run()) if isinstance(one, library.Tensor)]
        self.is_random = not torch.equal(before, torch.get_rng_state())

    def differentiable(self) -> list[bool]:
        """Which of the results have gradients."""
        return [bool(one.requires_grad) for one in self.results]

    def backward(self, cotangents: list[Any], create_graph: bool = False) -> list[Any]:
        """Gradients of the inputs, None where there is none. The cotangents are for results that have gradients."""
        wanted = [one for one in self.results if one.requires_grad]
        how = {"create_graph": create_graph, "retain_graph": True, "allow_unused": True}
        return list(self._library.autograd.grad(wanted, self.inputs, cotangents, **how))

    def again(self, gradients: list[Any], cotangents: list[Any], seeds: list[Any]) -> list[Any]:
        """Gradients of gradients: of the inputs and of the cotangents of the first pass."""
        pairs = [
            (one, seed) for one, seed in zip(gradients, seeds, strict=True) if one is not None and seed is not None
        ]
        pairs = [(one, seed) for one, seed in pairs if one.requires_grad]
        targets = [*self.inputs, *cotangents]
        wanted, given = [one for one, _ in pairs], [seed for _, seed in pairs]
        if not pairs:
            return [None] * len(targets)
        return list(self._library.autograd.grad(wanted, targets, given, allow_unused=True))

    def check(self) -> None:
        """Compare with differences, the same random numbers each time."""

        def compute(*_: Any) -> Any:
            self._library.manual_seed(1)
            return tuple([one for _, one in leaves(self._run()) if isinstance(one, st.Tensor)])

        if self.inputs and sum(one.numel() for one in self.inputs) < LARGEST:
            gradcheck(compute, self.inputs, atol=1e-4)


def _copied(value: Any, copy: Callable[[Any], Any]) -> Any:
    """A copy of arguments, in which the same tensors require gradients."""
    if isinstance(value, torch.Tensor):
        is_short = value.dtype is torch.bfloat16  # for which there is no array
        made = copy(value.float() if is_short else value).detach()
        made = made.to((st if copy is ours else torch).bfloat16) if is_short else made
        made.requires_grad = value.requires_grad
        return made
    if isinstance(value, dict):
        return {key: _copied(one, copy) for key, one in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return type(value)(_copied(one, copy) for one in value)
    return copy(value)


def _judge(info: Any, function: Callable[..., Any], sample: Any, expected: Pass, order: int) -> None:
    """Compare the gradients of a sample. Raises Disagreement."""
    found = Pass(function, sample, ours)
    if found.differentiable() != expected.differentiable():
        raise Disagreement(f"results that require grad: {found.differentiable()}, not {expected.differentiable()}")
    if not any(expected.differentiable()):
        return
    if expected.is_random and (info.name not in RANDOM or info.name.startswith("nn.")):  # else zeros
        found.check()
        return
    seeds = [_random(one) for one in expected.results if one.requires_grad]
    _compare("gradient", expected.backward(_copied(seeds, theirs)), found.backward(_copied(seeds, ours)), TOLERANCES[1])
    if order > 1:
        seeds = [one.requires_grad_() for one in seeds]
        wanted_seeds, own_seeds = _copied(seeds, theirs), _copied(seeds, ours)
        try:
            wanted = expected.backward(wanted_seeds, True)
            created = [_random(one) if one is not None and one.requires_grad else None for one in wanted]
            second = expected.again(wanted, wanted_seeds, _copied(created, theirs))
        except RuntimeError:  # torch has none
            return
        got = found.again(found.backward(own_seeds, True), own_seeds, _copied(created, ours))
        _compare("second gradient", second, got, TOLERANCES[2])


def _random(x: torch.Tensor) -> torch.Tensor:
    return torch.randn(x.shape, dtype=x.dtype)


def _compare(what: str, expected: list[Any], found: list[Any], tolerance: float) -> None:
    """Compare gradients; None is one of zeros. Raises Disagreement."""
    for i, (theirs_, mine) in enumerate(zip(expected, found, strict=True)):
        if theirs_ is None and mine is None:
            continue
        wanted = np.zeros(()) if theirs_ is None else _dense(theirs_).detach().numpy(force=True)
        got = np.zeros(wanted.shape, wanted.dtype) if mine is None else _dense(mine).detach().numpy()
        place = f"{what} of input {i}"
        if theirs_ is not None and (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
            raise Disagreement(f"{place}: {got.dtype} {got.shape}, not {wanted.dtype} {wanted.shape}")
        relative, absolute = SINGLE.get(wanted.dtype.name, (tolerance, tolerance))  # other inputs may be of float32
        with np.errstate(all="ignore"):
            wanted = np.broadcast_to(wanted, got.shape)
            if not np.allclose(got, wanted, relative, absolute, equal_nan=True):
                far = np.unravel_index(np.nanargmax(np.abs(got - wanted)), got.shape) if got.ndim else ()
                raise Disagreement(f"{place}: at {tuple(map(int, far))} {got[far]}, not {wanted[far]}")


def _dense(gradient: Any) -> Any:
    """A gradient that can become an array."""
    if getattr(gradient, "is_sparse", False):
        gradient = gradient.to_dense()
    return gradient.half() if gradient.dtype in (torch.bfloat16, st.bfloat16) else gradient
