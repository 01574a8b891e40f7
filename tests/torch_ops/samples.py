"""One sample of torch's database of operations, computed by torch and by shmtensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as database

import shmtensor as st
import shmtensor.nn.functional
from torch_ops import chance, factors, ties
from torch_ops.arguments import as_torch, ours, theirs
from torch_ops.comparing import Disagreement, compare, compare_values, leaves

UNINITIALIZED = frozenset({"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"})
"""Their values mean nothing."""
PROPERTIES = frozenset({"H", "T", "mH", "mT", "imag", "real"})
IN_PLACE = frozenset({"cauchy", "exponential", "fill", "geometric", "log_normal", "uniform", "zero"})
"""torch's database calls the in-place method of a copy."""
ARRANGED: dict[str, Callable[..., Any]] = {
    "linalg.lstsq:grad_oriented": lambda a, b, driver: tuple(st.linalg.lstsq(a, b, driver=driver)[:2]),
    "linalg.pinv:singular": lambda a, b: st.linalg.pinv(a @ b.mT),
    "pca_lowrank": lambda a, b, **how: st.pca_lowrank(a @ b.mT, **how),
    "svd_lowrank": lambda a, b, **how: st.svd_lowrank(a @ b.mT, **how),
    "einsum": lambda operands, equation, **how: st.einsum(equation, operands, **how),
    "nn.functional.embedding": lambda table, at, **how: st.nn.functional.embedding(at, table, **how),
    "nn.functional.embedding_bag": lambda table, at, **how: st.nn.functional.embedding_bag(at, table, **how),
    "nn.functional.triplet_margin_with_distance_loss": lambda a, b, c, distance_function=None, **how: (
        st.nn.functional.triplet_margin_with_distance_loss(a, b, c, **how)
    ),
    "polygamma": lambda x, n, **how: st.polygamma(n, x, **how),
    "slice": lambda x, dim=0, start=None, end=None, step=1: x[(slice(None),) * dim + (slice(start, end, step),)],
    "special.polygamma": lambda x, n, **how: st.special.polygamma(n, x, **how),
    "where": lambda x, condition, other, **how: st.where(condition, x, other, **how),
}
"""torch's database calls these with other arguments than the function takes; `slice` is Python's syntax."""

database.wrapper_set_seed = lambda op, *args, **how: op(*args, **how)  # random results are to be seen as such


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
    return place if callable(place) else None


class Case:
    """One sample, with what torch gives for it."""

    def __init__(self, info: Any, function: Callable[..., Any], sample: Any) -> None:
        self.info = info
        self.name = str(info.name)
        self.function = function
        self.sample = sample
        self.expected = self.by_torch(info.op, 1)
        self.has_values = self.name not in UNINITIALIZED
        self.is_random = self.has_values and (self.name in chance.RANDOM or self._differs_by_seed())

    def by_torch(self, function: Callable[..., Any], seed: int, x: Any = None, **more: Any) -> Any:
        """What a function of torch's gives; `x`: the first argument, if not a copy of the sample's."""
        torch.manual_seed(seed)
        how = {key: theirs(value) for key, value in self.sample.kwargs.items()}
        return function(theirs(self.sample.input) if x is None else x, *theirs(tuple(self.sample.args)), **how, **more)

    def by_us(self, function: Callable[..., Any], x: Any = None, **more: Any) -> Any:
        """What a function of ours gives; `x`: the first argument, if not a copy of the sample's."""
        st.manual_seed(7)
        how = {key: ours(value) for key, value in self.sample.kwargs.items()}
        first = ours(self.sample.input) if x is None else x
        return function(first, *[ours(one) for one in self.sample.args], **how, **more)

    def _differs_by_seed(self) -> bool:
        other = self.by_torch(self.info.op, 2)
        return any(
            isinstance(one, torch.Tensor)
            and one.layout is torch.strided
            and not torch.allclose(one, again, rtol=0.01, equal_nan=True)
            for (_, one), (_, again) in zip(leaves(self.expected), leaves(other), strict=True)
            if not isinstance(one, torch.Tensor) or one.dtype is not torch.bool
        )

    def check(self, found: Any) -> None:
        """Compare our result of the function, or of another form of it, with torch's. Raises Disagreement."""
        if self.name in factors.AMBIGUOUS:
            compare(self.expected, found, values=False)
            if self.name not in factors.APPROXIMATE:
                self._check_processed(found)
            factors.check(self.name, self.sample, found)
        elif self.is_random:
            if self.name not in chance.RANDOM:
                raise Disagreement("torch gives other values for each seed, and chance.RANDOM does not name it")
            compare(self.expected, found, values=False)
            chance.check([self.by_torch(self.info.op, seed) for seed in range(chance.DRAWS)], found)
        elif ties.concerns(self.name, self.sample):
            compare(self.expected, found, values=False)
            ties.check(self.name, self.sample, self.expected, found)
        else:
            compare(self.expected, found, values=self.has_values)

    def _check_processed(self, found: Any) -> None:
        """Compare what the database makes of results that are not unique: absolute values, or some of them."""
        process = self.sample.output_process_fn_grad
        if process is None:
            raise Disagreement("the database does not say what can be compared of it")
        mine = as_torch(found)
        named = isinstance(self.expected, tuple) and type(self.expected) is not tuple
        again = process(type(self.expected)(mine) if named else mine)
        for (path, one), (_, other) in zip(leaves(process(self.expected)), leaves(again), strict=True):
            if isinstance(one, torch.Tensor):
                compare_values(path, one.detach().resolve_conj().numpy(), other.detach().resolve_conj().numpy())
