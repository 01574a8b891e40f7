"""The judge detects each kind of difference."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import shmtensor as st

pytestmark = pytest.mark.torch
torch: Any = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's database of operations needs it")

from torch_ops import chance, entries, factors, gradients, ties  # noqa: E402  need torch
from torch_ops.comparing import Disagreement, compare  # noqa: E402

X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("expected", "found", "what"),
    [
        (X, st.arange(6.0).view(2, 3) + 0.1, "values"),
        (X, st.arange(6.0), "shape"),
        (X, st.arange(6.0, dtype=st.float64).view(2, 3), "dtype"),
        (X, np.arange(6.0), "not a tensor"),
        (torch.tensor([1, 2]), st.tensor([1, 3]), "values"),
        (torch.tensor([True]), st.tensor([False]), "values"),
        ((X, X[0]), (st.arange(6.0).view(2, 3), st.arange(3.0) + 1), r"\[1\] values"),
        ((X,), (), "structure"),
        ((torch.ones(1),), [st.ones(1)], "list, not tuple"),
        (X.max(0), (st.tensor([3.0, 4, 5]), st.tensor([1, 1, 1])), "without the name values"),
        (2, 2.0, "not a int"),
        (True, 1, "not a bool"),
        (2.0, 2.1, "not 2.0"),
        (torch.float32, st.float64, "not torch.float32"),
    ],
)
def test_compare_refuses(expected: Any, found: Any, what: str) -> None:
    with pytest.raises(Disagreement, match=what):
        compare(expected, found)


def test_compare_accepts() -> None:
    compare((X, [2, 1.5, None, True]), (st.arange(6.0).view(2, 3), [2, 1.5, None, True]))
    compare(X.max(0), st.arange(6.0).view(2, 3).max(0))
    compare(torch.tensor([np.nan, np.inf]), st.tensor([np.nan, np.inf]))


def _sample(*args: Any, **kwargs: Any) -> Any:
    return SimpleNamespace(input=torch.tensor([2, 1, 2, 1]), args=args, kwargs=kwargs)


def _pair(values: Any, indices: Any) -> tuple[Any, Any]:
    return st.tensor(values), st.tensor(indices)


def test_ties_may_be_in_any_order() -> None:
    expected = torch.tensor([2, 1, 2, 1]).sort(stable=True)
    for indices in ([1, 3, 0, 2], [3, 1, 2, 0]):
        ties.check("sort", _sample(), expected, _pair([1, 1, 2, 2], indices))
        ties.check("argsort", _sample(), expected.indices, st.tensor(indices))
    for values, indices in (([1, 1, 2, 2], [1, 1, 0, 2]), ([1, 1, 2, 2], [0, 1, 2, 3]), ([1, 1, 2, 3], [1, 3, 0, 2])):
        with pytest.raises(Disagreement):
            ties.check("sort", _sample(), expected, _pair(values, indices))
    assert ties.concerns("sort", _sample()) and not ties.concerns("sort", _sample(stable=True))
    assert not ties.concerns("max", _sample())


def test_reduced_ties() -> None:
    expected = torch.tensor([2, 1, 2, 1]).kthvalue(2)
    ties.check("kthvalue", _sample(2), expected, _pair(1, 1))
    for values, indices in ((1, 0), (2, 0), (1, 4)):
        with pytest.raises(Disagreement):
            ties.check("kthvalue", _sample(2), expected, _pair(values, indices))


def test_random_results_lie_where_torchs_do() -> None:
    draws = [torch.rand(20) for _ in range(4)]
    chance.check(draws, st.full((20,), 0.5))
    for wrong in (st.full((20,), 5.0), st.full((20,), np.nan)):
        with pytest.raises(Disagreement):
            chance.check(draws, wrong)
    with pytest.raises(Disagreement, match="whole"):
        chance.check([torch.randint(9, (20,)) for _ in range(4)], st.full((20,), 0.5))
    with pytest.raises(Disagreement, match="values"):
        chance.check([torch.ones(2)] * 4, st.zeros(2))


def test_factors_must_give_the_matrix() -> None:
    a = torch.tensor([[2.0, 1], [1, 3]])
    sample = SimpleNamespace(input=a, args=(), kwargs={})
    found = st.linalg.svd(st.tensor(a.tolist()))
    factors.check("linalg.svd", sample, found)
    factors.check("linalg.eigh", sample, st.linalg.eigh(st.tensor(a.tolist())))
    with pytest.raises(Disagreement):
        factors.check("linalg.svd", sample, (found[0], found[1], -found[2]))
    with pytest.raises(Disagreement):
        factors.check("linalg.eigh", sample, (st.tensor([1.0, 2]), st.eye(2)))


@pytest.mark.parametrize(
    ("name", "form"), [("add", "values"), ("add_", "in place"), ("flip", "method"), ("transpose", "memory")]
)
def test_a_broken_form_is_seen(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {entries.label(info): number for number, info in enumerate(entries.entries())}
    number = listed[name.removesuffix("_")]
    good = entries.look(number, ("float32",), 1)
    assert not good.differs and good.samples and good.forms
    broken = {
        "add": (st, lambda x, y, **how: x - y),
        "add_": (st.Tensor, lambda x, y, **how: x),
        "flip": (st.Tensor, lambda x, *dims, **how: x),
        "transpose": (st, lambda *args, **how: st.Tensor.transpose(*args, **how).clone()),
    }
    where, function = broken[name]
    monkeypatch.setattr(where, name, function)
    bad = entries.look(number, ("float32",), 100)
    assert bad.differs and (form == "values" or any(why.startswith(form) for why in bad.why))
    assert entries.Look("nothing compared", 1).differs


class Product(st.autograd.Function):
    """x * y with a gradient for which `rule` is responsible."""

    rule: Any = None

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return tuple([one.sum_to_size(like.shape) for one, like in zip(Product.rule(g, x, y), (x, y), strict=True)])


def _no_rule(g: Any, x: Any, y: Any) -> Any:
    raise st.errors.GradientError("mul has no gradient; detach() its argument")


@pytest.mark.parametrize(
    ("rule", "order", "seen"),
    [
        (lambda g, x, y: (g * y, g * x), 2, ""),
        (lambda g, x, y: (g * y * 1.0000001, g * x), 1, "gradient of input 0"),
        (lambda g, x, y: (g * y, g * x * 0), 1, "gradient of input 1"),
        (lambda g, x, y: (g * y.detach(), g * x), 1, ""),
        (lambda g, x, y: (g * y.detach(), g * x), 2, "second gradient"),
        (_no_rule, 1, "has no gradient"),
    ],
    ids=["right", "near", "one input", "first", "second", "no rule"],
)
def test_a_wrong_rule_is_seen(rule: Any, order: int, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    number = {entries.label(info): number for number, info in enumerate(entries.entries())}["mul"]
    monkeypatch.setattr(st, "mul", Product.apply)
    monkeypatch.setattr(Product, "rule", staticmethod(rule))
    found = gradients.look(number, ("float64",), 1, order)
    assert found.samples and found.forms + bool(seen)
    assert found.differs is bool(seen) and ("no rule" in found.state) is ("no gradient" in seen)
    assert not seen or seen in found.why[0]


def test_random_gradients_are_judged_by_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    number = {entries.label(info): number for number, info in enumerate(entries.entries())}["nn.functional.dropout"]
    good = gradients.look(number, ("float64",), 1, 1)
    assert good.samples and not good.differs
    monkeypatch.setattr(st.nn.functional, "dropout", lambda x, p=0.5, **how: x * st.rand_like(x) + x.detach())
    assert gradients.look(number, ("float64",), 1, 1).differs
