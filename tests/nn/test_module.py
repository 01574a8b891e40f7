"""Module: members, hooks, state, modes, copies and text."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections import OrderedDict
from typing import Any

import pytest

import shmtensor as st
from shmtensor import errors, nn


class Affine(nn.Module):
    """A layer that needs no functions."""

    def __init__(self, inputs: int = 2, outputs: int = 3) -> None:
        super().__init__()
        self.inputs = inputs
        self.weight = nn.Parameter(st.ones(outputs, inputs))
        self.bias = nn.Parameter(st.zeros(outputs))
        self.register_buffer("count", st.tensor(0))
        self.register_buffer("scratch", st.zeros(2), persistent=False)

    def forward(self, x: Any) -> Any:
        return st.matmul(x, self.weight.detach().t()) + self.bias.detach()

    def extra_repr(self) -> str:
        return f"{self.inputs}"

    @property
    def total(self) -> Any:
        return [1, 2].summ()  # type: ignore[attr-defined]


def network() -> nn.Module:
    return nn.Sequential(Affine(), nn.Sequential(Affine(3, 4), nn.Identity()))


# -- members -----------------------------------------------------------------------------------------------------------


def test_members_are_found_by_path_and_once() -> None:
    model = network()
    shared = Affine()
    model.first = shared
    model.second = shared
    assert [name for name, _ in model.named_parameters()] == [
        "0.weight", "0.bias", "1.0.weight", "1.0.bias", "first.weight", "first.bias",
    ]  # fmt: skip
    assert "second.weight" in dict(model.named_parameters(remove_duplicate=False))
    assert [name for name, _ in model.named_modules()] == ["", "0", "1", "1.0", "1.1", "first"]
    assert [name for name, _ in model.named_children()] == ["0", "1", "first"]
    assert [name for name, _ in model[0].named_buffers("p")] == ["p.count", "p.scratch"]
    assert len([*model.parameters(recurse=False)]) == 0


def test_a_member_is_an_attribute_and_an_item() -> None:
    layer = Affine()
    assert layer.weight is layer._parameters["weight"]
    other = nn.Parameter(st.zeros(1))
    layer._parameters["weight"] = other
    assert layer.weight is other
    del layer._parameters["weight"]
    assert not hasattr(layer, "weight")
    layer._parameters.update(weight=other)
    assert layer.weight is other
    assert layer._parameters.pop("weight") is other
    assert layer._parameters.pop("weight", 3) == 3
    assert not hasattr(layer, "weight")
    layer._buffers.clear()
    assert not hasattr(layer, "count")
    layer._parameters = OrderedDict(new=other)  # type: ignore[assignment]
    assert layer.new is other


def test_assignment_registers_replaces_and_removes() -> None:
    layer = Affine()
    layer.extra = 3
    layer.extra = nn.Parameter(st.zeros(1))
    assert "extra" in layer._parameters
    layer.child = nn.Identity()
    layer.child = nn.Parameter(st.zeros(1))
    assert "child" in layer._parameters
    assert layer._modules == {}
    layer.other = nn.Identity()
    layer.other = None
    assert layer._modules == {"other": None}
    del layer.child, layer.extra
    layer.scratch = st.ones(2)
    assert layer._buffers["scratch"] is layer.scratch
    assert "scratch" not in layer.state_dict()
    layer.fresh = nn.Buffer(st.ones(1), persistent=False)
    assert "fresh" in layer._buffers
    assert "fresh" not in layer.state_dict()
    layer.bias = None
    assert [*layer._parameters] == ["weight", "bias"]
    assert "bias" not in layer.state_dict()
    del layer.weight
    assert [*layer._parameters] == ["bias"]
    with pytest.raises(AttributeError):
        del layer.weight


REFUSED: list[Any] = [
    (lambda m: setattr(m, "weight", 3), errors.DTypeError, "cannot assign 'int' as parameter 'weight'"),
    (lambda m: setattr(m, "weight", st.zeros(1)), errors.DTypeError, "as parameter 'weight'"),
    (lambda m: setattr(m, "count", 3), errors.DTypeError, "cannot assign 'int' as buffer 'count'"),
    (lambda m: m.register_parameter("a.b", None), errors.InvalidArgument, "can't contain"),
    (lambda m: m.register_parameter("", None), errors.InvalidArgument, "empty string"),
    (lambda m: m.register_parameter("inputs", None), errors.InvalidArgument, "attribute 'inputs' already exists"),
    (lambda m: m.register_parameter(3, None), errors.DTypeError, "should be a string"),
    (lambda m: m.register_parameter("x", st.zeros(1)), errors.DTypeError, "Parameter or None required"),
    (lambda m: m.register_buffer("x", 3), errors.DTypeError, "Tensor or None required"),
    (lambda m: m.register_buffer("weight", None), errors.InvalidArgument, "already exists"),
    (lambda m: m.add_module("x", 3), errors.DTypeError, "is not a Module subclass"),
    (lambda m: m.no_such_thing, AttributeError, "'Affine' object has no attribute 'no_such_thing'"),
    (lambda m: m.wieght, AttributeError, "the nearest name is 'weight'"),
    (lambda m: m.total, AttributeError, "'list' object has no attribute 'summ'"),
    (lambda m: m.get_submodule("a.b"), AttributeError, "Affine has no attribute `a`"),
    (lambda m: m.get_submodule("weight"), AttributeError, "is not an nn.Module"),
    (lambda m: m.get_parameter("count"), AttributeError, "`count` is not an nn.Parameter"),
    (lambda m: m.get_buffer("weight"), AttributeError, "`weight` is not a buffer"),
    (lambda m: m.train(3), errors.InvalidArgument, "training mode is expected to be boolean"),
    (lambda m: m.to(st.int32), errors.DTypeError, "only accepts floating point or complex dtypes"),
    (lambda m: m.to([1]), errors.InvalidArgument, "to([1]): give a type, a device, both or a tensor"),
    (lambda m: m.get_parameter("wieght"), AttributeError, "Affine has no attribute `wieght`"),
    (lambda m: m.get_buffer("total2"), AttributeError, "Affine has no attribute `total2`"),
    (lambda m: m.set_submodule("x", 3), errors.InvalidArgument, "`module` is not an nn.Module, found <class 'int'>"),
    (lambda m: m.set_submodule("inputs", nn.Identity()), AttributeError, "`inputs` is not an nn.Module"),
    (lambda m: m.get_extra_state(), errors.NotSupported, "Affine has no extra state; define get_extra_state"),
    (lambda m: m.set_extra_state(1), errors.NotSupported, "Affine takes no extra state; define set_extra_state"),
    (lambda m: m.to("cuda"), errors.DeviceUnavailable, "no GPU can be used"),
    (lambda m: m.cuda(), errors.DeviceUnavailable, "no GPU can be used"),
    (lambda m: m.load_state_dict(3), errors.DTypeError, "dict-like"),
    (lambda m: nn.Module()(3), errors.NotSupported, 'missing the required "forward" function'),
    (lambda m: nn.Module(3), TypeError, "takes none"),
    (lambda m: nn.Parameter(3), errors.DTypeError, "a Parameter of a int"),
    (lambda m: nn.Parameter(st.zeros(2, dtype=st.int64)), errors.DTypeError, ""),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused(number: int) -> None:
    call, error, text = REFUSED[number]
    with pytest.raises(error) as caught:
        call(Affine())
    assert text in str(caught.value)


@pytest.mark.parametrize("value", [nn.Identity(), nn.Parameter(st.zeros(1)), nn.Buffer(st.zeros(1))], ids=type)
def test_members_need_the_base_class_to_be_initialized(value: Any) -> None:
    class Hasty(nn.Module):
        def __init__(self) -> None:
            self.member = value

    with pytest.raises(AttributeError, match=r"before Module.__init__\(\) call"):
        Hasty()


def test_paths() -> None:
    model = network()
    assert model.get_submodule("1.0") is model[1][0]
    assert model.get_submodule("") is model
    assert model.get_parameter("1.0.bias") is model[1][0].bias
    assert model.get_buffer("0.count") is model[0].count
    model.set_submodule("1.1", nn.Flatten())
    assert isinstance(model[1][1], nn.Flatten)
    with pytest.raises(AttributeError):
        model.set_submodule("1.x.y", nn.Flatten())
    with pytest.raises(AttributeError):
        model.set_submodule("1.new", nn.Flatten(), strict=True)
    with pytest.raises(errors.InvalidArgument):
        model.set_submodule("", nn.Flatten())


def test_apply_visits_children_first() -> None:
    seen: list[str] = []
    model = network()
    assert model.apply(lambda one: seen.append(type(one).__name__)) is model
    assert seen == ["Affine", "Affine", "Identity", "Sequential", "Sequential"]


# -- calls and hooks ---------------------------------------------------------------------------------------------------


def test_hooks_see_and_replace_arguments_and_results() -> None:
    layer = Affine()
    seen: list[Any] = []
    before = layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    layer.register_forward_hook(lambda module, args, output: seen.append((args[0].tolist(), output.tolist())))
    with layer.register_forward_hook(lambda module, args, output: output + 1):
        assert layer(st.ones(2)).tolist() == [5, 5, 5]
    assert seen == [([2, 2], [4, 4, 4])]
    assert layer(st.ones(2)).tolist() == [4, 4, 4]
    before.remove()
    before.remove()
    assert layer(st.ones(2)).tolist() == [2, 2, 2]
    assert layer._forward_pre_hooks == {}


def test_hooks_with_keywords_and_order() -> None:
    class Named(nn.Module):
        def forward(self, x: int, *, by: int = 1) -> int:
            return x * by

    layer = Named()
    order: list[str] = []
    layer.register_forward_pre_hook(lambda module, args, how: (args, {"by": how["by"] + 1}), with_kwargs=True)
    layer.register_forward_hook(lambda module, args, how, result: order.append(f"second {how}"), with_kwargs=True)
    layer.register_forward_hook(lambda module, args, result: order.append("first"), prepend=True)
    assert layer(3, by=4) == 15
    assert order == ["first", "second {'by': 5}"]
    layer.register_forward_pre_hook(lambda module, args, how: 3, with_kwargs=True)
    with pytest.raises(errors.DTypeError, match="must return None or"):
        layer(3, by=4)


def test_hooks_that_are_always_called() -> None:
    class Broken(nn.Module):
        def forward(self) -> None:
            raise KeyError("broken")

    layer = Broken()
    seen: list[Any] = []
    layer.register_forward_hook(lambda module, args, result: seen.append(result), always_call=True)
    layer.register_forward_hook(lambda module, args, result: seen.append("not"))
    with pytest.raises(KeyError):
        layer()
    assert seen == [None]


def test_hooks_of_all_modules() -> None:
    from shmtensor.nn.modules import module as modules

    seen: list[str] = []
    with (
        modules.register_module_forward_pre_hook(lambda module, args: seen.append(type(module).__name__)),
        modules.register_module_forward_hook(lambda module, args, result: seen.append("after")),
        modules.register_module_parameter_registration_hook(lambda module, name, param: seen.append(name)),
        modules.register_module_buffer_registration_hook(lambda module, name, buffer: seen.append(name)),
        modules.register_module_module_registration_hook(lambda module, name, child: seen.append(name)),
    ):
        nn.Sequential(Affine())(st.ones(2))
    assert seen == ["weight", "bias", "count", "scratch", "0", "Sequential", "Affine", "after", "after"]
    Affine()
    assert len(seen) == 9


class Twice(nn.Module):
    """Two inputs, an argument that is not a tensor, and two outputs."""

    def forward(self, x: Any, y: Any, factor: int) -> Any:
        return _times(x, y), _times(y, y)


class _Product(st.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x.detach() * y.detach()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return g.detach() * y.detach(), g.detach() * x.detach()


def _times(x: Any, y: Any) -> Any:
    return _Product.apply(x, y)


def test_backward_hooks_see_and_replace_gradients() -> None:
    layer = Twice()
    seen: list[Any] = []
    x, y = st.tensor([2.0], requires_grad=True), st.tensor([3.0], requires_grad=True)

    def before(module: Any, grads: Any) -> Any:
        seen.append([one.tolist() for one in grads])
        return (grads[0].detach() * 10, grads[1])

    def after(module: Any, grads_in: Any, grads_out: Any) -> Any:
        seen.append(([None if one is None else one.tolist() for one in grads_in], [one.tolist() for one in grads_out]))
        return (grads_in[0].detach() + 1, grads_in[1], None)

    layer.register_full_backward_pre_hook(before)
    handle = layer.register_full_backward_hook(after)
    st.autograd.backward(layer(x, y, 2), [st.ones(1), st.ones(1)])
    assert seen == [[[1.0], [1.0]], ([[30.0], [26.0], None], [[10.0], [1.0]])]
    assert (x.grad.tolist(), y.grad.tolist()) == ([31.0], [26.0])
    handle.remove()
    st.autograd.backward(layer(x, y, 2), [st.ones(1), st.ones(1)])
    assert len(seen) == 3
    assert x.grad.tolist() == [61.0]


def test_backward_hooks_without_gradients_of_inputs() -> None:
    layer = nn.Identity()
    weight = nn.Parameter(st.tensor([2.0]))
    layer.forward = lambda x: _times(x, weight)  # type: ignore[method-assign]
    seen: list[Any] = []
    layer.register_full_backward_hook(lambda module, before, after: seen.append((before, after[0].tolist())))
    layer(st.tensor([3.0])).backward()
    assert seen == [((None,), [1.0])]
    assert weight.grad.tolist() == [3.0]
    with st.no_grad():
        layer(st.tensor([3.0]))


@pytest.mark.parametrize("name", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_what_backward_hooks_give_has_to_fit(name: str) -> None:
    given: list[Any] = []

    def wrong(module: Any, *grads: Any) -> Any:
        return given[-1]

    layer = nn.Linear(2, 2)
    getattr(layer, name)(wrong)
    for one, error, message in (
        ((st.ones(1, 2), st.ones(1, 2)), st.errors.InvalidArgument, "hook wrong of Linear returned 2 gradients for 1 "),
        ((st.ones(3),), st.errors.InvalidArgument, r"hook wrong returned a gradient of shape \(3,\) in place of"),
        ((st.ones(1, 2).double(),), st.errors.DTypeError, "hook wrong returned a gradient of float64"),
        ("text", st.errors.DTypeError, "hook wrong returned a str"),
    ):
        given.append(one)
        with pytest.raises(error, match=message):
            layer(st.ones(1, 2, requires_grad=True)).sum().backward()


def test_backward_hooks_are_not_called_without_gradients_of_outputs() -> None:
    layer = nn.Identity()
    layer.forward = lambda x: {"result": x * 2}  # type: ignore
    seen: list[Any] = []
    layer.register_full_backward_hook(lambda module, before, after: seen.append(after))
    x = st.ones(2, requires_grad=True)
    layer(x)["result"].sum().backward()
    assert seen == [] and x.grad.tolist() == [2.0, 2.0]


# -- state -------------------------------------------------------------------------------------------------------------


def test_the_state_shares_memory_and_has_versions() -> None:
    model = network()
    state = model.state_dict()
    assert [*state] == ["0.weight", "0.bias", "0.count", "1.0.weight", "1.0.bias", "1.0.count"]
    assert [*state._metadata] == ["", "0", "1", "1.0", "1.1"]
    assert type(state["0.weight"]) is st.Tensor
    assert not state["0.weight"].requires_grad
    state["0.weight"].fill_(7)
    assert model[0].weight.tolist() == [[7, 7]] * 3
    assert model.state_dict(keep_vars=True)["0.weight"] is model[0].weight
    assert [*model[0].state_dict(prefix="a.")] == ["a.weight", "a.bias", "a.count"]


def test_load_state_dict_copies_or_assigns() -> None:
    model, other = network(), network()
    for parameter in other.parameters():
        parameter.detach().fill_(5)
    keep = model[0].weight
    assert repr(model.load_state_dict(other.state_dict())) == "<All keys matched successfully>"
    assert model[0].weight is keep
    assert keep.tolist() == [[5, 5]] * 3
    state = other.state_dict()
    model.load_state_dict(state, assign=True)
    assert model[0].weight is not keep
    assert isinstance(model[0].weight, nn.Parameter)
    assert model[0].weight.data_ptr() == state["0.weight"].data_ptr()


def test_load_state_dict_says_all_that_does_not_fit() -> None:
    with pytest.raises(errors.StateDictMismatch) as caught:
        Affine().load_state_dict({"weight": st.zeros(3), "other": st.zeros(1), "a.b": st.zeros(1), "bias": 3})
    assert isinstance(caught.value, RuntimeError)
    assert str(caught.value) == (
        "Error(s) in loading state_dict for Affine:\n"
        '\tMissing key(s) in state_dict: "count". \n'
        '\tUnexpected key(s) in state_dict: "other", "a.b". \n'
        "\tsize mismatch for weight: copying a param with shape (3,) from checkpoint, the shape in current model is "
        "(3, 2).\n"
        '\tWhile copying the parameter named "bias", expected a Tensor from checkpoint but received '
        "<class 'int'>"
    )
    keys = Affine().load_state_dict({"other": st.zeros(1)}, strict=False)
    assert keys.missing_keys == ["weight", "bias", "count"]
    assert keys.unexpected_keys == ["other"]
    assert repr(keys).startswith("_IncompatibleKeys(missing_keys=['weight'")


def test_load_state_dict_leaves_no_reference_cycles() -> None:
    model = network()
    state = model.state_dict()
    gc.collect()
    gc.disable()
    try:
        model.load_state_dict(state)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_extra_state() -> None:
    class Extra(Affine):
        extra: Any = 1

        def get_extra_state(self) -> Any:
            return {"extra": self.extra}

        def set_extra_state(self, state: Any) -> None:
            self.extra = state["extra"]

    one, two = Extra(), Extra()
    one.extra = 5
    state = one.state_dict()
    assert state["_extra_state"] == {"extra": 5}
    two.load_state_dict(state)
    assert two.extra == 5
    del state["_extra_state"]
    with pytest.raises(errors.StateDictMismatch, match=r'Missing key.*"_extra_state"'):
        two.load_state_dict(state)
    with pytest.raises(errors.StateDictMismatch, match=r'Unexpected key.*"_extra_state"'):
        Affine().load_state_dict(one.state_dict())


def test_hooks_of_states() -> None:
    layer = Affine()
    seen: list[Any] = []
    layer.register_state_dict_pre_hook(lambda module, prefix, keep_vars: seen.append(("before", prefix)))
    layer.register_state_dict_post_hook(lambda module, state, prefix, local: seen.append(len(state)))
    layer.register_load_state_dict_pre_hook(lambda module, state, prefix, *rest: state.pop("bias"))
    layer.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear())
    state = layer.state_dict()
    assert seen == [("before", ""), 3]
    assert not layer.load_state_dict(state).missing_keys
    assert "bias" in state


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_have_members_of_their_own(copied: Any) -> None:
    model = network()
    model[0].weight.detach().fill_(3)
    model[0].bias.note = "kept"
    model[0].bias.requires_grad = False
    model.tied = model[0]
    other = copied(model)
    assert repr(other) == repr(model)
    assert other[0].weight.tolist() == model[0].weight.tolist()
    assert other[0].weight is other[0]._parameters["weight"]
    assert isinstance(other[0].weight, nn.Parameter)
    assert other[0].weight.requires_grad
    assert not other[0].bias.requires_grad
    assert other[0].bias.note == "kept"
    assert other.tied is other[0]
    assert "scratch" not in other[0].state_dict()
    model[0].weight.detach().fill_(4)
    assert other[0].weight.tolist() == [[3, 3]] * 3
    other[0]._parameters["weight"] = None
    assert model[0].weight is not None


def test_a_shallow_copy_has_the_same_tensors() -> None:
    layer = Affine()
    other = copy.copy(layer)
    assert other.weight is layer.weight
    other.weight = None
    assert layer.weight is not None


# -- modes and types ---------------------------------------------------------------------------------------------------


def test_modes() -> None:
    model = network()
    assert model.training
    assert model.eval() is model
    assert not model[1][0].training
    assert model.train()[1][0].training
    model.requires_grad_(False)
    assert not any(one.requires_grad for one in model.parameters())


def test_zero_grad() -> None:
    layer = Affine()
    layer.weight.grad = st.ones(3, 2)
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad.tolist() == [[0, 0]] * 3
    layer.zero_grad()
    assert layer.weight.grad is None


def test_conversions_keep_parameters_and_convert_what_is_floating() -> None:
    model = network()
    weight = model[0].weight
    weight.grad = st.ones(3, 2)
    assert model.double() is model
    assert model[0].weight is weight
    assert (weight.dtype, weight.grad.dtype, model[0].count.dtype) == (st.float64, st.float64, st.int64)
    assert model[0].scratch.dtype == st.float64
    for call, wanted in (
        (lambda: model.half(), st.float16), (lambda: model.float(), st.float32),
        (lambda: model.to(st.float64), st.float64), (lambda: model.to("cpu", st.float32), st.float32),
        (lambda: model.to(st.zeros(1, dtype=st.float64)), st.float64), (lambda: model.type(st.float32), st.float32),
        (lambda: model.to(dtype=st.float64, non_blocking=True), st.float64), (lambda: model.cpu(), st.float64),
    ):  # fmt: skip
        assert call() is model
        assert model[0].weight.dtype == wanted
    memory = weight.data_ptr()
    assert model.to(st.float64)[0].weight.data_ptr() == memory
    assert model.to_empty(device="cpu")[0].weight.data_ptr() != memory


def test_share_memory_moves_parameters_and_buffers_but_no_gradients() -> None:
    model = network()
    model[0].weight.grad = st.ones(3, 2)
    assert model.share_memory() is model
    assert all(tensor.is_shared() for tensor in (*model.parameters(), *model.buffers()))
    assert not model[0].weight.grad.is_shared()


# -- text --------------------------------------------------------------------------------------------------------------


def test_text() -> None:
    assert repr(network()) == (
        "Sequential(\n  (0): Affine(2)\n  (1): Sequential(\n    (0): Affine(3)\n    (1): Identity()\n  )\n)"
    )
    layer = Affine()
    layer.child = nn.Identity()
    assert repr(layer) == "Affine(\n  2\n  (child): Identity()\n)"
    assert repr(nn.Parameter(st.zeros(2))) == "Parameter containing:\ntensor([0., 0.], requires_grad=True)"
    assert repr(nn.Parameter(st.zeros(2), requires_grad=False)) == "Parameter containing:\ntensor([0., 0.])"
    assert "weight" in dir(layer)
    assert "0" not in dir(network())


@pytest.mark.parametrize(
    ("register", "word"),
    [("register_parameter", "parameters"), ("register_buffer", "buffer"), ("add_module", "module")],
)
def test_registration_needs_the_base_class_to_be_initialized(register: str, word: str) -> None:
    class Hasty(nn.Module):
        def __init__(self) -> None:
            getattr(self, register)("member", None)

    with pytest.raises(AttributeError, match=rf"cannot assign {word} before Module.__init__\(\) call"):
        Hasty()


def test_a_buffer_is_pickled_with_its_attributes() -> None:
    buffer = nn.Buffer(st.ones(2), persistent=False)
    buffer.note = 3
    found = pickle.loads(pickle.dumps(buffer))
    assert type(found) is nn.Buffer and found.tolist() == [1, 1] and (found.persistent, found.note) == (False, 3)
    found.fill_(5)
    assert buffer.tolist() == [1, 1]
    layer = nn.Identity()
    layer.kept, layer.left = nn.Buffer(st.zeros(1)), buffer
    again = pickle.loads(pickle.dumps(layer))
    assert type(again.left) is nn.Buffer and [*again.state_dict()] == ["kept"]


def test_members_as_a_dict() -> None:
    layer = Affine()
    members = layer._buffers
    first = members["count"]
    members |= {"more": st.ones(1)}
    assert members is layer._buffers and layer.more.tolist() == [1]
    assert members.setdefault("count", st.ones(1)) is first
    assert members.setdefault("last", st.ones(2)) is layer.last
    name, last = members.popitem()
    assert (name, last.tolist()) == ("last", [1, 1]) and not hasattr(layer, "last")
    copied = members.copy()
    assert type(copied) is dict and [*copied] == ["count", "scratch", "more"]
    del copied["count"]
    assert layer.count is first
    empty = nn.Identity()._buffers
    with pytest.raises(KeyError):
        empty.popitem()


def test_other_names() -> None:
    layer, child = Affine(), nn.Identity()
    layer.register_module("child", child)
    assert layer.child is child
    seen: list[Any] = []
    with pytest.raises(errors.DTypeError, match="is not a Module subclass"):
        layer.register_module("x", 3)
    layer = nn.Linear(2, 1)
    layer.register_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].tolist()))
    layer(st.ones(1, 2)).sum().backward()
    assert seen == [[[1]]]
    assert layer.bfloat16() is layer and {one.dtype for one in layer.parameters()} == {st.bfloat16}


def test_a_class_beside_module_is_initialized_if_asked() -> None:
    class Named:
        def __init__(self, name: str, *, size: int = 0) -> None:
            self.name, self.size = name, size

    class Both(nn.Module, Named):
        call_super_init = True

        def __init__(self) -> None:
            super().__init__("both", size=3)
            self.weight = nn.Parameter(st.zeros(1))

    made = Both()
    assert (made.name, made.size, [*made.state_dict()]) == ("both", 3, ["weight"])


def test_state_dict_with_arguments_by_position() -> None:
    layer, found = nn.Linear(2, 1), OrderedDict[str, Any]()
    assert layer.state_dict(found, "a.", True) is found
    assert [*found] == ["a.weight", "a.bias"] and found["a.weight"] is layer.weight
    assert [*layer.state_dict(None, "b.")] == ["b.weight", "b.bias"]
    other: dict[str, Any] = {}
    assert layer.state_dict(found, destination=other, prefix="c.") is other and [*other] == ["c.weight", "c.bias"]


def test_a_hook_replaces_the_state() -> None:
    layer = nn.Linear(2, 1)
    layer._register_state_dict_hook(lambda module, state, prefix, metadata: {f"x.{key}": state[key] for key in state})
    assert [*layer.state_dict()] == ["x.weight", "x.bias"]


def test_states_of_older_versions_and_of_types_that_do_not_fit() -> None:
    layer = Affine()
    layer.load_state_dict({**layer.state_dict(), "count": st.tensor([5])})
    assert layer.count.shape == () and layer.count == 5
    with pytest.raises(errors.StateDictMismatch, match=r'copying the parameter named "weight".* an exception occurred'):
        layer.load_state_dict({**layer.state_dict(), "weight": st.ones(3, 2, dtype=st.int64)}, assign=True)


def test_hooks_of_gradients_of_all_modules() -> None:
    seen: list[Any] = []
    handles = [
        nn.modules.module.register_module_full_backward_pre_hook(lambda m, outputs: (outputs[0] * 2,)),
        nn.modules.module.register_module_full_backward_hook(lambda m, inputs, outputs: seen.append((m, outputs[0]))),
    ]
    try:
        layer = nn.Linear(2, 1)
        layer(st.ones(1, 2)).sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    assert [(m, g.tolist()) for m, g in seen] == [(layer, [[2]])]
    assert layer.bias.grad.tolist() == [2]
    layer(st.ones(1, 2)).sum().backward()
    assert len(seen) == 1 and layer.bias.grad.tolist() == [3]


def test_results_that_backward_hooks_cannot_see() -> None:
    class Gives(nn.Module):
        def forward(self, x: Any, result: Any) -> Any:
            return {"list": [x], "number": 3}[result]

    layer = Gives()
    layer.register_full_backward_hook(lambda module, inputs, outputs: None)
    x = st.ones(1, requires_grad=True)
    assert layer(x, "list")[0].tolist() == [1]
    with pytest.raises(errors.DTypeError, match="whose result is a int; return tensors"):
        layer(x, "number")


# -- parameters --------------------------------------------------------------------------------------------------------


def test_a_parameter_shares_the_memory_of_its_data() -> None:
    data = st.zeros(3)
    parameter = nn.Parameter(data)
    data.fill_(2)
    assert parameter.tolist() == [2, 2, 2]
    assert parameter.requires_grad
    assert parameter.is_leaf
    assert isinstance(parameter, st.Tensor)
    assert nn.Parameter().shape == (0,)
    data.share_memory_()
    data.fill_(3)
    assert parameter.tolist() == [3, 3, 3]


def test_a_module_is_freed_with_its_last_reference() -> None:
    gc.disable()
    try:
        model = network()
        parameter = weakref.ref(model[0].weight)
        model(st.ones(2))
        copy.deepcopy(model)
        assert parameter() is not None
        del model
        assert parameter() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("library", ["shmtensor", "torch"])
def test_a_wrapper_that_passes_attributes_on_may_have_a_module(library: str) -> None:
    t = pytest.importorskip(library)

    class Wrapper(t.nn.Module):  # type: ignore[name-defined, misc]
        head = None

        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module
            self.head = t.nn.Linear(1, 1)

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.module, name)

    wrapper = Wrapper(t.nn.Linear(2, 3))
    assert wrapper.in_features == 2 and [name for name, _ in wrapper.named_children()] == ["module", "head"]


@pytest.mark.parametrize("library", ["shmtensor", "torch"])
def test_a_copy_of_a_model_begins_without_gradients(library: str) -> None:
    t = pytest.importorskip(library)

    model = t.nn.Linear(2, 3)
    model(t.ones(2)).sum().backward()
    made = copy.deepcopy(model)
    assert made.weight.grad is None and model.weight.grad is not None
    assert made.weight.requires_grad and made.weight.tolist() == model.weight.tolist()
    x = t.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    assert copy.deepcopy(x).grad.tolist() == [2, 2]


def test_a_shallow_copy_of_a_parameter_is_one_over_the_same_memory():
    parameter = nn.Parameter(st.ones(3), requires_grad=False)
    parameter.note = "kept"  # type: ignore[attr-defined]
    copied = copy.copy(parameter)
    assert type(copied) is nn.Parameter and not copied.requires_grad and vars(copied) == {"note": "kept"}
    parameter[0] = 7
    assert copied[0] == 7


def test_a_shallow_copy_of_a_subclass_does_not_need_its_constructor():
    class Scaled(nn.Parameter):
        def __new__(cls, data, scale):
            made = super().__new__(cls, data)
            made.scale = scale
            return made

    copied = copy.copy(Scaled(st.ones(3), 0.5))
    assert type(copied) is Scaled and copied.scale == 0.5 and copied.requires_grad


def test_a_shallow_copy_of_a_buffer_is_one_over_the_same_memory():
    buffer = nn.Buffer(st.ones(3), persistent=False)
    copied = copy.copy(buffer)
    assert type(copied) is nn.Buffer and not copied.persistent
    buffer[0] = 7
    assert copied[0] == 7
