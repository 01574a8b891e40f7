"""Arguments by torch's names: a call by keyword gives the same result as a call by position."""

from __future__ import annotations

import inspect
import warnings
from functools import reduce
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor import linalg
from shmtensor.errors import DTypeError, InvalidArgument

X = st.tensor([[3.0, 1, 2], [9, 8, 7]])
Y = st.tensor([[1.0, 5, 2], [4, 0, 7]])
AT = st.tensor([[0, 1, 0]])
CALLS = """
abs(input=X) | abs(X)
add(input=X, other=Y) | add(X, Y)
add(X, other=Y, alpha=2) | add(X, Y, alpha=2)
add(input=X, other=Y, alpha=2) | add(X, Y, alpha=2)
addcmul(input=X, tensor1=X, tensor2=Y) | addcmul(X, X, Y)
addmm(input=X @ X.T, mat1=X, mat2=Y.T) | addmm(X @ X.T, X, Y.T)
allclose(input=X, other=Y) | allclose(X, Y)
argmax(input=X, dim=1) | argmax(X, 1)
argsort(input=X, dim=0) | argsort(X, 0)
bincount(input=AT[0], minlength=3) | bincount(AT[0], None, 3)
bmm(input=X[None], mat2=Y.T[None]) | bmm(X[None], Y.T[None])
broadcast_to(input=X, size=(1, 2, 3)) | broadcast_to(X, (1, 2, 3))
bucketize(input=X, boundaries=st.tensor([1.0, 5])) | bucketize(X, st.tensor([1.0, 5]))
cat(tensors=[X, Y], dim=1) | cat([X, Y], 1)
chunk(input=X, chunks=2) | chunk(X, 2)
clamp(input=X, min=2) | clamp(X, 2)
clone(input=X) | clone(X)
concat(tensors=(X, Y), dim=1) | concat((X, Y), 1)
cumsum(input=X, dim=1) | cumsum(X, 1)
diff(input=X) | diff(X)
div(input=Y, other=X, rounding_mode="floor") | div(Y, X, rounding_mode="floor")
eq(input=X, other=Y) | eq(X, Y)
equal(input=X, other=Y) | equal(X, Y)
exp(input=X) | exp(X)
flip(input=X, dims=(0,)) | flip(X, (0,))
gather(input=X, dim=0, index=AT) | gather(X, 0, AT)
gt(input=AT, other=0.5) | gt(AT, 0.5)
hstack(tensors=[X, Y]) | hstack([X, Y])
index_add(input=X, dim=0, index=AT[0, :2], source=Y, alpha=2) | index_add(X, 0, AT[0, :2], Y, alpha=2)
index_fill(input=X, dim=0, index=AT[0], value=2) | index_fill(X, 0, AT[0], 2)
index_select(input=X, dim=0, index=AT[0]) | index_select(X, 0, AT[0])
isclose(input=X, other=Y, rtol=1) | isclose(X, Y, 1)
kthvalue(input=X, k=2) | kthvalue(X, 2)
lerp(input=X, end=Y, weight=0.5) | lerp(X, Y, 0.5)
linalg.det(A=X @ X.T) | linalg.det(X @ X.T)
linalg.cross(input=X, other=Y) | linalg.cross(X, Y)
masked_fill(input=X, mask=X > 2, value=0) | masked_fill(X, X > 2, 0)
masked_select(input=X, mask=X > 2) | masked_select(X, X > 2)
matmul(input=X, other=Y.T) | matmul(X, Y.T)
max(input=X) | max(X)
max(input=X, dim=1, keepdim=True) | max(X, 1, True)
max(input=X, other=Y) | max(X, Y)
mean(input=X, dim=0) | mean(X, 0)
median(input=X, dim=1) | median(X, 1)
mm(input=X, mat2=Y.T) | mm(X, Y.T)
movedim(input=X, source=0, destination=1) | movedim(X, 0, 1)
msort(input=X) | msort(X)
mul(input=AT, other=X[:1]) | mul(AT, X[:1])
nonzero(input=X, as_tuple=True) | nonzero(X, as_tuple=True)
norm(input=X, p=1, dim=1) | norm(X, 1, 1)
permute(input=X, dims=(1, 0)) | permute(X, (1, 0))
pow(input=X, exponent=2) | pow(X, 2)
pow(2, exponent=X) | pow(2, X)
quantile(input=X, q=0.5, dim=0) | quantile(X, 0.5, 0)
reshape(input=X, shape=(3, 2)) | reshape(X, (3, 2))
roll(input=X, shifts=1, dims=0) | roll(X, 1, 0)
scatter(input=X, dim=0, index=AT, src=Y) | scatter(X, 0, AT, Y)
scatter(input=X, dim=0, index=AT, value=2.5) | scatter(X, 0, AT, 2.5)
scatter_add(input=X, dim=0, index=AT, src=Y) | scatter_add(X, 0, AT, Y)
searchsorted(sorted_sequence=Y[0, :2], input=X) | searchsorted(Y[0, :2], X)
sort(input=X, dim=0, descending=True) | sort(X, 0, True)
split(tensor=X, split_size_or_sections=1, dim=1) | split(X, 1, 1)
sqrt(input=AT) | sqrt(AT)
squeeze(input=X[:1], dim=0) | squeeze(X[:1], 0)
stack(tensors=[X, Y], dim=1) | stack([X, Y], 1)
sub(input=X, other=Y) | sub(X, Y)
sum(input=X, dim=(0, 1)) | sum(X, (0, 1))
swapaxes(input=X, axis0=0, axis1=1) | swapaxes(X, 0, 1)
take(input=X, index=AT) | take(X, AT)
tensor_split(input=X, sections=2, dim=1) | tensor_split(X, 2, 1)
tensordot(a=X, b=Y, dims=2) | tensordot(X, Y, 2)
tile(input=X, dims=(1, 2)) | tile(X, (1, 2))
topk(input=X, k=2, dim=1, largest=False) | topk(X, 2, 1, False)
tril(input=X, diagonal=1) | tril(X, 1)
unbind(input=X, dim=1) | unbind(X, 1)
unsqueeze(input=X, dim=0) | unsqueeze(X, 0)
vsplit(input=X, indices=[1]) | vsplit(X, [1])
where(condition=X > 2, input=X, other=Y) | where(X > 2, X, Y)
X.clone().add_(other=Y) | X + Y
X.clone().add_(other=Y, alpha=2) | X + 2 * Y
X.clone().pow_(exponent=2) | X * X
X.masked_fill(mask=X > 2, value=0) | X.masked_fill(X > 2, 0)
exp_(input=X.clone()) | exp(X)
X.view(size=(3, 2)) | X.view(3, 2)
X.view(dtype=st.int32) | X.view(st.int32)
X.reshape(shape=(3, 2)) | X.reshape(3, 2)
X.permute(dims=(1, 0)) | X.permute(1, 0)
X[0].expand(size=(2, 3)) | X[0].expand(2, 3)
X.tile(dims=(2, 1)) | X.tile(2, 1)
X.clone().copy_(src=Y) | Y
"""
NAMES = {name: getattr(st, name) for name in dir(st)} | {"X": X, "Y": Y, "AT": AT, "st": st, "linalg": linalg}
WITHOUT_NAMES = {"zero_(input)": "it is the method, the tensor of which is `self`"}
"""Torch's functions, calls of which by torch's names are not taken, and why."""


def flat(value: Any) -> list[Any]:
    """The tensors and numbers of a result, one after the other."""
    return [each for one in value for each in flat(one)] if isinstance(value, list | tuple) else [value]


def require_same(found: Any, expected: Any) -> None:
    assert len(flat(found)) == len(flat(expected))
    for one, other in zip(flat(found), flat(expected), strict=True):
        assert type(one) is type(other)
        if isinstance(one, st.Tensor):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one.numpy(), other.numpy())
        else:
            assert one == other


@pytest.mark.parametrize("line", CALLS.strip().splitlines())
def test_a_call_by_names_is_the_call_by_position(line):
    by_name, by_position = line.split("|")
    require_same(*[eval(text, {"__builtins__": {}}, NAMES) for text in (by_name, by_position)])


def test_views_by_names_stay_on_the_storage():
    assert st.squeeze(input=X[:1]).storage() is X.storage()
    assert st.permute(input=X, dims=(1, 0)).storage() is X.storage()


def test_results_by_names_go_to_out():
    out = st.empty(2, 3)
    for made in (st.add(input=X, other=Y, out=out), st.tril(input=X, out=out), st.cumsum(input=X, dim=0, out=out)):
        assert made is out
    assert out.tolist() == st.cumsum(X, 0).tolist()


def test_help_shows_names_that_can_be_given():
    assert [*inspect.signature(st.lerp).parameters] == ["input", "end", "weight", "out"]
    assert [*inspect.signature(st.add).parameters] == ["input", "other", "alpha", "out"]
    kinds = {one.kind for one in inspect.signature(st.tril).parameters.values()}
    assert inspect.Parameter.POSITIONAL_ONLY not in kinds


def test_wrong_names_say_so():
    for call, message in (
        (lambda: st.abs(foo=X), r"abs\(\) missing a required argument: 'input'"),
        (lambda: st.abs(X, foo=1), r"abs\(\) got an unexpected keyword argument 'foo'"),
        (lambda: st.abs(X, input=X), r"abs\(\) multiple values for argument 'input'"),
        (lambda: st.add(X), r"add\(\) missing a required argument: 'other'"),
        (lambda: st.add(input=X, other=X, foo=1), r"add\(\) got an unexpected keyword argument 'foo'"),
        (lambda: st.add(X, Y, input=X), r"add\(\) .*'input'"),
        (lambda: st.tril(), r"tril\(\) missing a required argument: 'input'"),
        (lambda: st.tril(input=X, foo=1), r"tril\(\) got an unexpected keyword argument 'foo'"),
        (lambda: st.lerp(X, weight=0.5), r"lerp\(\) missing a required argument: 'end'"),
        (lambda: st.tile(X, dims=(1, 1), repetitions=(1, 1)), r"tile\(\) multiple values for argument 'repetitions'"),
        (lambda: X.add_(other=1, out=X), r"add_\(\) got an unexpected keyword argument 'out'"),
        (lambda: st.scatter(X, 0, AT, foo=Y), r"scatter_\(\) .*'src'"),
    ):
        with pytest.raises(TypeError, match=message):
            call()


def test_wrong_values_by_names_say_so():
    for given in ([1.0], np.ones(2), None, "a"):
        with pytest.raises(DTypeError, match="tril of a"):
            st.tril(input=given)
    with pytest.raises(DTypeError, match="abs of a list"):
        st.abs(input=[1.0])
    with pytest.raises(InvalidArgument, match="stack of no tensors"):
        st.stack(tensors=[])
    with pytest.raises(InvalidArgument, match="stack of a"):
        st.stack(tensors=X)
    with pytest.raises(DTypeError, match="cat of a int"):
        st.cat(tensors=[X, 1])
    with pytest.raises(st.errors.IndexOutOfRange, match="index 5"):
        st.index_select(input=X, dim=0, index=st.tensor([5]))


def test_the_array_api_keeps_its_names():
    assert st.array_api.sort(X, axis=0).tolist() == st.sort(input=X, dim=0).values.tolist()
    with pytest.raises(TypeError, match="unexpected keyword argument 'bogus'"):
        st.array_api.sum(X, bogus=1)


# -- every function of torch's -----------------------------------------------------------------------------------------


def names_of(torch: Any, name: str, function: Any) -> list[list[str]]:
    """Names of the arguments of each overload."""
    try:
        return [[*inspect.signature(function).parameters]]
    except ValueError:
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name.replace('.', '_')}")
        if not schemas and name.startswith("special."):
            schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name.removeprefix('special.')}")
        found = [[one.name for one in schema.arguments] for schema in schemas if "out" not in schema.overload_name]
        renamed = ("x",) if name == "linalg.vector_norm" else ("input", "A")  # Python's names for `self`
        return [[first if one == "self" else one for one in names] for names in found for first in renamed]


def calls_by_names(torch: Any, info: Any) -> Any:
    """For each sample by which torch can be called with names alone: our function, what it gives, and those names."""
    from torch_ops.arguments import Absent, ours, theirs

    try:
        function, own = (reduce(getattr, info.name.split("."), module) for module in (torch, st))
    except AttributeError:
        return
    if not (callable(function) and callable(own)):
        return
    seen = set()
    torch.manual_seed(0)
    # Not info.sample_inputs, which looks at the whole stack for each sample.
    for sample in info.sample_inputs_func(info, "cpu", torch.float32, requires_grad=False):
        values = [sample.input, *sample.args]
        for names in names_of(torch, info.name, function):
            how = dict(zip(names, values, strict=False)) | sample.kwargs
            if len(how) < len(values) + len(sample.kwargs) or tuple(how) in seen:
                continue
            try:
                function(**{name: theirs(one) for name, one in how.items()})
                expected = own(*[ours(one) for one in values], **{key: ours(one) for key, one in sample.kwargs.items()})
                arguments = {name: ours(one) for name, one in how.items()}
            except (TypeError, RuntimeError, IndexError, ValueError, Absent):
                continue  # not torch's names, or nothing to compare with
            seen.add(tuple(how))
            yield own, expected, arguments


@pytest.mark.torch
@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_every_function_takes_torchs_names():
    torch = pytest.importorskip("torch")
    pytest.importorskip("expecttest", reason="torch's database of operations needs it")
    from torch.testing._internal.common_methods_invocations import op_db

    wrong, count = {}, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info in op_db:
            if "." in info.name and info.name.split(".")[0] not in ("linalg", "special", "fft"):
                continue
            if torch.float32 not in info.dtypes or info.variant_test_name:
                continue
            for own, expected, how in calls_by_names(torch, info):
                count += 1
                try:
                    found = flat(own(**how))
                    assert [type(one) for one in found] == [type(one) for one in flat(expected)]
                    assert all(one.shape == other.shape for one, other in zip(found, flat(expected), strict=True)
                               if isinstance(one, st.Tensor))  # fmt: skip
                except Exception as error:
                    wrong[f"{info.name}({', '.join(how)})"] = f"{type(error).__name__}: {error}"
    assert count > 500, count
    assert {name: text for name, text in wrong.items() if name not in WITHOUT_NAMES} == {}
