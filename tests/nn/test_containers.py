"""Containers: their members, the order and the names."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import pytest

import shmtensor as st
from shmtensor import errors, nn


def flats(count: int) -> list[nn.Module]:
    return [nn.Flatten(0, i) for i in range(count)]


def test_sequential_calls_one_after_the_other() -> None:
    class Plus(nn.Module):
        def forward(self, x: int) -> int:
            return x * 2 + 1

    model = nn.Sequential(Plus(), Plus())
    assert model(1) == 7
    assert (model * 2)(1) == 31
    assert nn.Sequential(OrderedDict(a=Plus(), b=Plus()))(1) == 7
    assert nn.Sequential()(5) == 5


def test_sequential_is_a_list() -> None:
    a, b, c, d = flats(4)
    model = nn.Sequential(a, b)
    assert [*model] == [a, b]
    assert (model[0], model[-1], len(model)) == (a, b, 2)
    assert model.append(c) is model
    model.insert(1, d)
    assert [*model] == [a, d, b, c]
    assert [name for name, _ in model.named_children()] == ["0", "1", "2", "3"]
    assert model.pop(1) is d
    del model[0:2]
    assert [*model.named_children()] == [("0", c)]
    model[0] = a
    assert model[0] is a
    named = nn.Sequential(OrderedDict(first=a, second=b))
    assert named.second is b
    assert [*named[1:].named_children()] == [("second", b)]
    assert [*(named + nn.Sequential(c))] == [a, b, c]
    named += nn.Sequential(d)
    assert len(named) == 3
    model *= 3
    assert len(model) == 3
    assert model.extend([b, c])[-1] is c


def test_module_list() -> None:
    a, b, c, d = flats(4)
    model = nn.ModuleList([a, b])
    model += [c]
    assert [*model] == [a, b, c]
    assert [*model[:2]] == [a, b]
    assert isinstance(model[:2], nn.ModuleList)
    model.insert(0, d)
    assert [*model.state_dict()] == []
    assert [*model.__add__([a])] == [d, a, b, c, a]
    del model[1]
    assert [name for name, _ in model.named_children()] == ["0", "1", "2"]
    model[-1] = a
    assert model.pop(2) is a
    assert repr(nn.ModuleList([nn.Identity(), nn.Identity(), nn.Flatten()])) == (
        "ModuleList(\n  (0-1): 2 x Identity()\n  (2): Flatten(start_dim=1, end_dim=-1)\n)"
    )


def test_module_dict() -> None:
    a, b, c, _ = flats(4)
    model = nn.ModuleDict({"x": a})
    model["y"] = b
    model.update([("z", c)])
    model.update(nn.ModuleDict({"x": c}))
    assert [*model] == ["x", "y", "z"]
    assert [*model.values()] == [c, b, c]
    assert "y" in model
    assert len(model) == 3
    assert model.pop("y") is b
    del model["z"]
    assert [*model.items()] == [("x", c)]
    model.clear()
    assert len(model) == 0


def test_parameter_list() -> None:
    values = nn.ParameterList([st.zeros(2), nn.Parameter(st.ones(1)), "text"])
    assert isinstance(values[0], nn.Parameter)
    assert [*values.state_dict()] == ["0", "1"]
    values.append(st.ones(3)).extend([1.5])
    values[-2] = st.zeros(4)
    assert [name for name, _ in values.named_parameters()] == ["0", "1", "3"]
    assert len(values[1:3]) == 2
    values += [st.ones(1)]
    assert len(values) == 6
    assert len(copy.deepcopy(values)) == 6
    assert repr(nn.ParameterList([st.zeros(2, 3), 3])) == (
        "ParameterList(\n"
        "    (0): Parameter containing: [shmtensor.float32 of size 2x3]\n"
        "    (1): Object of type: int\n)"
    )


def test_parameter_dict() -> None:
    values = nn.ParameterDict({"a": st.zeros(2)})
    values["b"] = 4
    assert isinstance(values["a"], nn.Parameter)
    assert [*values.state_dict()] == ["a"]
    assert values.get("c", 7) == 7
    assert values.setdefault("c", 8) == 8
    assert [*reversed(values)] == ["c", "b", "a"]
    assert values.popitem() == ("c", 8)
    assert values.pop("b") == 4
    both = values | nn.ParameterDict({"d": 1})
    assert [*both.keys()] == ["a", "d"]
    both |= nn.ParameterDict({"e": 2})
    assert len(both) == 3
    assert [*values.copy().items()] == [("a", values["a"])]
    assert [*values.fromkeys(["p", "q"], 3).values()] == [3, 3]
    del values["a"]
    assert "a" not in values
    both.clear()
    assert len(both) == 0


def test_what_else_lists_and_dicts_of_members_can_do() -> None:
    a, b, c, d = flats(4)
    model = nn.ModuleList([a, b, c, d])
    del model[1:3]
    assert [*model.named_children()] == [("0", a), ("1", d)]
    assert repr(nn.ModuleList()) == "ModuleList()"
    named = nn.ModuleDict({"a": a, "b": b})
    assert [*named.keys()] == ["a", "b"]
    values = nn.ParameterDict({"a": st.zeros(2, 3), "b": 4})
    assert [*values] == ["a", "b"]
    assert repr(values) == (
        "ParameterDict(\n"
        "    (a): Parameter containing: [shmtensor.FloatTensor of size 2x3]\n"
        "    (b): Object of type: int\n)"
    )
    first = nn.ParameterDict({"b": 1, "c": 2})
    joined = values.__ror__(first)
    assert [*joined.items()] == [("b", 4), ("c", 2), ("a", values["a"])]
    assert [*first.items()] == [("b", 1), ("c", 2)]


REFUSED: list[Any] = [
    (lambda: nn.Sequential(3), errors.DTypeError, "int is not a Module subclass"),
    (lambda: nn.Sequential(nn.Identity())[3], errors.IndexOutOfRange, "index 3 is out of range"),
    (lambda: nn.Sequential() + 3, errors.InvalidArgument, "supports only objects of Sequential class"),
    (lambda: nn.Sequential(nn.Identity()) * 0, errors.InvalidArgument, "Non-positive multiplication factor"),
    (lambda: nn.Sequential().insert(2, nn.Identity()), errors.IndexOutOfRange, "Index out of range: 2"),
    (lambda: nn.Sequential().insert(0, 3), errors.DTypeError, "module should be of type"),
    (lambda: nn.Sequential().__iadd__([nn.Identity()]), errors.InvalidArgument, "Sequential class, but list is given"),
    (lambda: nn.Sequential(nn.Identity()) * 1.5, errors.DTypeError, "unsupported operand type(s) for *"),
    (lambda: nn.ModuleDict([3]), errors.DTypeError, "sequence element #0 should be Iterable; is int"),
    (lambda: nn.ModuleList(3), errors.DTypeError, "should be called with an iterable"),
    (lambda: nn.ModuleList()[0], errors.IndexOutOfRange, "index 0 is out of range"),
    (lambda: nn.ModuleDict(3), errors.DTypeError, "iterable of key/value pairs"),
    (lambda: nn.ModuleDict([("a",)]), errors.InvalidArgument, "has length 1; 2 is required"),
    (lambda: nn.ParameterDict({"a": 1})["b"], KeyError, "b"),
    (lambda: nn.ParameterDict()(1), errors.DTypeError, "should not be called"),
    (lambda: nn.ParameterList(st.zeros(2)), errors.DTypeError, "should be called with an iterable"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused(number: int) -> None:
    call, error, text = REFUSED[number]
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
