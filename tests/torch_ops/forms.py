"""Other forms of an operation: its method, in-place method, `out=`, and whether the result is a view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import shmtensor as st
from torch_ops.arguments import ours, theirs
from torch_ops.comparing import Disagreement, compare, leaves, name_of
from torch_ops.samples import IN_PLACE, PROPERTIES, UNINITIALIZED, Case

Form = tuple[str, Callable[[], None]]


def forms(case: Case) -> Iterator[Form]:
    """Each form that torch computes for a sample, with a call that judges ours."""
    yield from _memory(case)
    if case.name in IN_PLACE | PROPERTIES:
        return
    if isinstance(case.sample.input, torch.Tensor):
        yield from _method(case)
        yield from _in_place(case)
    if case.info.supports_out and case.name not in UNINITIALIZED:
        yield from _out(case)


def _memory(case: Case) -> Iterator[Form]:
    x = theirs(case.sample.input)
    if not isinstance(x, torch.Tensor) or case.name in IN_PLACE or case.name.endswith("_"):  # which get a copy
        return
    expected = [_is_view(one, x) for _, one in leaves(case.by_torch(case.info.op, 1, x))]

    def judge() -> None:
        mine = ours(case.sample.input)
        found = [_is_view(one, mine) for _, one in leaves(case.by_us(case.function, mine))]
        for wanted, got in zip(expected, found, strict=True):
            if wanted is not None and got is not wanted:
                raise Disagreement("a view, and torch gives a copy" if got else "a copy, and torch gives a view")

    yield "memory", judge


def _is_view(one: Any, x: Any) -> bool | None:
    """Whether a result is in the memory of a tensor; None: it has no memory, or torch has not computed it yet."""
    if isinstance(one, torch.Tensor):
        if not one.numel() or one.layout is not torch.strided or one.is_conj() or one.is_neg():
            return None
        return one.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    if isinstance(one, st.Tensor):
        return one.storage() is x.storage() or np.shares_memory(one.numpy(), x.numpy())
    return None


def _attempted(compute: Callable[[], Any]) -> bool:
    try:
        compute()
    except Exception:  # torch refuses it
        return False
    return True


def _method(case: Case) -> Iterator[Form]:
    name = getattr(case.info.method_variant, "__name__", "")
    own = getattr(st.Tensor, name, None)
    if not name.isidentifier() or own is case.function:
        return
    if _attempted(lambda: case.by_torch(case.info.method_variant, 1)):

        def judge() -> None:
            if own is None:
                raise Disagreement(f"there is no method {name}")
            case.check(case.by_us(own))

        yield "method", judge


def _in_place(case: Case) -> Iterator[Form]:
    variant = case.info.inplace_variant
    name = getattr(variant, "__name__", "")
    expected = theirs(case.sample.input)
    if case.sample.broadcasts_input or not name.isidentifier():
        return
    if not _attempted(lambda: case.by_torch(variant, 1, expected)):
        return

    def judge() -> None:
        own = getattr(st.Tensor, name, None)
        if own is None:
            raise Disagreement(f"there is no method {name}")
        x = ours(case.sample.input)
        if case.by_us(own, x) is not x:
            raise Disagreement(f"{name} does not give its tensor")
        compare(expected, x, values=not case.is_random)

    yield "in place", judge


def _out(case: Case) -> Iterator[Form]:
    wanted = [one for _, one in leaves(case.expected) if isinstance(one, torch.Tensor)]
    targets = [torch.empty_like(one) for one in wanted]
    several = isinstance(case.expected, tuple)
    result = None

    def by_torch() -> None:
        nonlocal result
        result = case.by_torch(case.info.op, 1, out=_packed(targets, several))

    if not targets or not _attempted(by_torch):
        return

    def judge() -> None:
        own = [st.zeros(tuple(one.shape), dtype=getattr(st, name_of(one.dtype))) for one in wanted]
        found = case.by_us(case.function, out=_packed(own, several))
        if result is None and found is not None:
            raise Disagreement("the result is not None")
        for target, one in zip(own, found if several and found is not None else [found], strict=False):
            if one is not None and one is not target:
                raise Disagreement("the result is not the tensor that was given as out")
        case.check(_packed(own, several) if found is None else found)

    yield "out", judge


def _packed(targets: list[Any], several: bool) -> Any:
    return tuple(targets) if several else targets[0]
