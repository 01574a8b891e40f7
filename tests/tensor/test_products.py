"""Products of vectors and matrices against NumPy and torch: results, `out=`, and refusals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmtensor
from shmtensor._tensor.core import wrap
from shmtensor.dtypes import BY_DTYPE
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument, LayoutError

TYPES = [kind for kind in ("int8", "int32", "int64", "float32", "float64", "complex64") if np.dtype(kind) in BY_DTYPE]
# name -> shapes of the operands; an operand x that is added to comes first
SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "dot": ((5,), (5,)),
    "vdot": ((5,), (5,)),
    "outer": ((3,), (4,)),
    "ger": ((3,), (4,)),
    "mv": ((3, 4), (4,)),
    "mm": ((3, 4), (4, 2)),
    "bmm": ((2, 3, 4), (2, 4, 5)),
    "addr": ((3, 4), (3,), (4,)),
    "addmv": ((3,), (3, 4), (4,)),
    "addmm": ((3, 2), (3, 4), (4, 2)),
    "baddbmm": ((2, 3, 5), (2, 3, 4), (2, 4, 5)),
    "addbmm": ((3, 5), (2, 3, 4), (2, 4, 5)),
}
EXPRESSIONS = {
    "dot": "i,i->",
    "outer": "i,j->ij",
    "ger": "i,j->ij",
    "mv": "ij,j->i",
    "mm": "ij,jk->ik",
    "bmm": "bij,bjk->bik",
    "addr": "i,j->ij",
    "addmv": "ij,j->i",
    "addmm": "ij,jk->ik",
    "baddbmm": "bij,bjk->bik",
    "addbmm": "bij,bjk->ik",
}
SUMS = ("addr", "addmv", "addmm", "baddbmm", "addbmm")


def values(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    whole = rng.integers(-3, 4, shape)
    return (whole + 1j * rng.integers(-3, 4, shape) if np.dtype(dtype).kind == "c" else whole).astype(dtype)


def operands(name: str, dtype: str, shared: bool = False) -> tuple[list[Any], list[Any]]:
    """Arrays, and tensors of the same values."""
    arrays = [values(shape, dtype, i) for i, shape in enumerate(SHAPES[name])]
    return arrays, [shmtensor.tensor(a, shared=shared) for a in arrays]


def expected(name: str, arrays: list[Any], beta: Any = 1, alpha: Any = 1) -> Any:
    if name == "vdot":
        return np.vdot(*arrays)
    product = np.einsum(EXPRESSIONS[name], *arrays[-2:])
    return beta * arrays[0] + alpha * product if name in SUMS else product


@pytest.mark.parametrize("shared", [False, True], ids=["heap", "shared"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_values_and_types(name: str, dtype: str, shared: bool) -> None:
    arrays, tensors = operands(name, dtype, shared)
    made = getattr(shmtensor, name)(*tensors)
    assert made.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(made.numpy(), expected(name, arrays))
    np.testing.assert_array_equal(getattr(tensors[0], name)(*tensors[1:]).numpy(), made.numpy())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_into_out_without_another_place(name: str, dtype: str) -> None:
    arrays, tensors = operands(name, dtype, shared=True)
    wanted = expected(name, arrays)
    out = shmtensor.empty(wanted.shape, dtype=dtype, shared=True)
    where = out.data_ptr()
    assert getattr(shmtensor, name)(*tensors, out=out) is out
    assert out.data_ptr() == where
    np.testing.assert_array_equal(out.numpy(), wanted)


def test_out_is_given_to_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def matmul(a: Any, b: Any, out: Any = None) -> Any:
        seen.append(out)
        return multiply(a, b, out)

    multiply = np.matmul
    monkeypatch.setattr(np, "matmul", matmul)
    out = shmtensor.empty(3, 2, dtype="float64", shared=True)
    a, b, x = (shmtensor.ones(*shape, dtype="float64", shared=True) for shape in ((3, 4), (4, 2), (3, 2)))
    shmtensor.mm(a, b, out=out)
    shmtensor.addmm(x, a, b, out=out)
    shmtensor.addmm(out, a, b, beta=0, out=out)
    assert all(np.shares_memory(one, out.numpy()) for one in seen)
    assert len(seen) == 3


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("beta, alpha", [(0, 1), (1, 1), (2, 3), (-1, 0)])
@pytest.mark.parametrize("name", SUMS)
def test_sums_in_place(name: str, beta: int, alpha: int, dtype: str) -> None:
    arrays, tensors = operands(name, dtype, shared=True)
    wanted = expected(name, arrays, beta, alpha)
    np.testing.assert_array_equal(
        getattr(shmtensor, name)(*tensors, beta=beta, alpha=alpha).numpy(), wanted.astype(dtype)
    )
    x = tensors[0]
    view = x.view(*x.shape)
    assert getattr(x, f"{name}_")(*tensors[1:], beta=beta, alpha=alpha) is x
    np.testing.assert_array_equal(view.numpy(), wanted.astype(dtype))


@pytest.mark.parametrize("name", SUMS)
def test_beta_of_0_ignores_what_is_there(name: str) -> None:
    arrays, tensors = operands(name, "float32")
    nothing = shmtensor.full(tensors[0].shape, float("nan"))
    wanted = expected(name, arrays, beta=0)
    np.testing.assert_array_equal(getattr(shmtensor, name)(nothing, *tensors[1:], beta=0).numpy(), wanted)
    np.testing.assert_array_equal(getattr(nothing, f"{name}_")(*tensors[1:], beta=0).numpy(), wanted)
    assert np.isnan(
        getattr(shmtensor, name)(shmtensor.full(tensors[0].shape, float("nan")), *tensors[1:]).numpy()
    ).all()


def test_what_is_added_broadcasts_but_not_in_place() -> None:
    a, b = shmtensor.ones(3, 4), shmtensor.ones(4, 2)
    assert shmtensor.addmm(shmtensor.tensor([1.0, 2.0]), a, b).tolist() == [[5, 6]] * 3
    assert shmtensor.addmm(shmtensor.tensor(1.0), a, b, beta=shmtensor.tensor(2)).tolist() == [[6, 6]] * 3
    with pytest.raises(InvalidArgument, match=r"shape \(2,\).*shape \(3, 2\)"):
        shmtensor.ones(2).addmm_(a, b)
    with pytest.raises(InvalidArgument):
        shmtensor.addmm(shmtensor.ones(3), a, b)


@given(st.sampled_from(("x", "a", "b", "part")), st.integers(0, 2), st.integers(-1, 2))
def test_out_may_lie_over_operands(which: str, beta: int, alpha: int) -> None:
    memory = shmtensor.arange(27).to("float64").reshape(3, 3, 3)
    x, a, b = memory.unbind()
    arrays = [one.numpy().copy() for one in (x, a, b)]
    whole = memory.reshape(9, 3)
    out = {"x": x, "a": a, "b": b, "part": whole[1:4]}[which]
    made = shmtensor.addmm(x, a, b, beta=beta, alpha=alpha, out=out)
    np.testing.assert_array_equal(made.numpy(), expected("addmm", arrays, beta, alpha))


def test_views_and_read_only_operands() -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    t = shmtensor.tensor(array, shared=True)
    for a, b in itertools.product((t[0], t[1].flip([0]), t[0][:, ::2].repeat_interleave(2, 1)), repeat=2):
        np.testing.assert_array_equal(a.mm(b.T).numpy(), a.numpy() @ b.numpy().T)
    array.flags.writeable = False
    mine = wrap(array)
    np.testing.assert_array_equal(mine[0].mm(mine[1].T).numpy(), array[0] @ array[1].T)
    for over in (wrap(array[0, :, :3]), wrap(array[0, :, :3].T)):
        with pytest.raises(LayoutError, match="read-only"):
            shmtensor.mm(mine[0], mine[1].T, out=over)
        with pytest.raises(LayoutError, match="read-only"):
            over.addmm_(mine[0], mine[1].T)
    with pytest.raises(LayoutError, match="share memory"):
        shmtensor.zeros(1, 3).double().expand(3, 3).addmm_(mine[0], mine[1].T)


def test_empty_ones() -> None:
    assert shmtensor.mm(shmtensor.ones(3, 0), shmtensor.ones(0, 2)).tolist() == [[0, 0]] * 3
    assert shmtensor.addmm(shmtensor.ones(3, 2), shmtensor.ones(3, 0), shmtensor.ones(0, 2)).tolist() == [[1, 1]] * 3
    assert shmtensor.dot(shmtensor.ones(0), shmtensor.ones(0)).item() == 0
    assert shmtensor.bmm(shmtensor.ones(0, 3, 4), shmtensor.ones(0, 4, 2)).shape == (0, 3, 2)
    assert shmtensor.addbmm(shmtensor.ones(3, 2), shmtensor.ones(0, 3, 4), shmtensor.ones(0, 4, 2)).sum() == 6
    assert shmtensor.addbmm(shmtensor.ones(0, 2), shmtensor.ones(2, 0, 4), shmtensor.ones(2, 4, 2)).shape == (0, 2)


@pytest.mark.parametrize("name", SHAPES)
def test_wrong_shapes(name: str) -> None:
    function = getattr(shmtensor, name)
    _, tensors = operands(name, "float32")
    with pytest.raises(InvalidArgument, match="takes"):
        function(*tensors[:-1], shmtensor.ones(2, 2, 2, 2))
    with pytest.raises(InvalidArgument, match="shape"):
        function(*tensors, out=shmtensor.empty(7, 7))
    if name not in ("outer", "ger", "addr"):
        longer = shmtensor.ones(*[n + 1 for n in SHAPES[name][-1]])
        with pytest.raises(InvalidArgument, match="is not"):
            function(*tensors[:-1], longer)


@pytest.mark.parametrize("name", SHAPES)
def test_wrong_types(name: str) -> None:
    function = getattr(shmtensor, name)
    arrays, tensors = operands(name, "float32")
    wanted = expected(name, arrays)
    if name not in ("outer", "ger"):
        with pytest.raises(DTypeError, match=r"float32.*float64"):
            function(*tensors[:-1], tensors[-1].double())
    with pytest.raises(DTypeError, match=r"float64.*float32"):
        function(*tensors, out=shmtensor.empty(wanted.shape, dtype="float64"))
    with pytest.raises(DTypeError, match="ndarray"):
        function(*tensors[:-1], arrays[-1])
    if name in SUMS:
        with pytest.raises(DTypeError, match=r"float64.*float32"):
            function(tensors[0].double(), *tensors[1:])
        whole = [t.long() for t in tensors]
        if name == "addr":
            for scales in ({"beta": 0.5}, {"alpha": 0.5}):
                with pytest.raises(DTypeError, match="whole number"):
                    function(*whole, **scales)
        else:  # as torch has it, without the fraction
            for scales, rounded in (({"beta": 0.5}, {"beta": 0}), ({"alpha": 1.5}, {"alpha": 1})):
                assert function(*whole, **scales).tolist() == function(*whole, **rounded).tolist()


def test_arguments_as_torch_has_them() -> None:
    x, y = shmtensor.ones(1, 3, 4), shmtensor.arange(24.0).reshape(2, 3, 4)
    assert shmtensor.tensordot(y, y, dims=1 + 2).item() == float((y * y).sum().item())
    assert shmtensor.tensordot(y, y, ([0, 1], [0, 1])).shape == shmtensor.tensordot(y, b=y, axes=([0, 1], [0, 1])).shape
    assert shmtensor.tensordot(x, y, dims=((0, 1), (0, 1))).tolist() == [[60, 66, 72, 78]] * 4  # over the axis of 1
    assert shmtensor.tensordot(y, y, shmtensor.tensor([3])).item() == shmtensor.tensordot(y, y, 3).item()
    with pytest.raises(InvalidArgument):
        shmtensor.tensordot(y, y, ([0], [1]))
    assert shmtensor.vecdot(y, y=y, dim=1).shape == shmtensor.vecdot(y, y, axis=1).shape == (2, 4)
    a = shmtensor.eye(2)
    assert shmtensor.addmm(a, mat1=a, mat2=a, beta=2).tolist() == [[3, 0], [0, 3]]
    assert a.addmm_(mat1=a, mat2=a) is a
    true = shmtensor.ones(2, dtype="bool")
    assert shmtensor.addr(~true, true, true, alpha=2).tolist() == [[True, True]] * 2


def test_inner_kron_einsum() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(4, 3)
    x, y = shmtensor.from_numpy(a), shmtensor.from_numpy(b)
    np.testing.assert_array_equal(shmtensor.inner(x, y).numpy(), np.inner(a, b))
    np.testing.assert_array_equal(x.kron(y).numpy(), np.kron(a, b))
    np.testing.assert_array_equal(shmtensor.einsum("ij,kj->ik", x, y).numpy(), a @ b.T)
    np.testing.assert_array_equal(shmtensor.einsum("ij,kj,lj->", x, y, y).numpy(), np.einsum("ij,kj,lj->", a, b, b))
    turned = shmtensor.einsum("ij->ji", x)
    turned.zero_()
    assert x.sum().item() == 15  # a tensor of its own
    with pytest.raises(InvalidArgument):
        shmtensor.inner(x, y.T)
    for equation in ("ij,jk->ik", "ij", "ij,kj->iz", "((", "ij,kj,lj->"):
        with pytest.raises(InvalidArgument):
            shmtensor.einsum(equation, x, y)


def test_chain_matmul() -> None:
    arrays = [np.random.default_rng(i).random(shape) for i, shape in enumerate(((3, 4), (4, 9), (9, 2)))]
    tensors = [shmtensor.from_numpy(a) for a in arrays]
    np.testing.assert_allclose(shmtensor.chain_matmul(*tensors).numpy(), arrays[0] @ arrays[1] @ arrays[2])
    alone = shmtensor.chain_matmul(tensors[0])
    assert alone is not tensors[0] and np.array_equal(alone.numpy(), arrays[0])
    for bad in ((), (tensors[0], tensors[2])):
        with pytest.raises(InvalidArgument):
            shmtensor.chain_matmul(*bad)


def test_trace() -> None:
    x = shmtensor.arange(6, dtype="uint8").reshape(2, 3)
    assert (shmtensor.trace(x).item(), x.trace().dtype) == (4, np.int64)
    assert x.float().trace().dtype == np.float32
    assert shmtensor.zeros(0, 0).trace().item() == 0
    with pytest.raises(InvalidArgument, match=r"linalg\.trace"):
        shmtensor.zeros(2, 2, 2).trace()


def test_cross() -> None:
    a, b = np.random.default_rng(1).random((2, 4, 3, 3))
    x, y = shmtensor.from_numpy(a), shmtensor.from_numpy(b)
    np.testing.assert_array_equal(x.cross(y).numpy(), np.cross(a, b, axis=1))  # the first axis of size 3
    np.testing.assert_array_equal(x.cross(y, 2).numpy(), np.cross(a, b))
    np.testing.assert_array_equal(x.cross(y[0, 0], -1).numpy(), np.cross(a, b[0, 0]))
    with pytest.raises(IndexOutOfRange):
        x.cross(y, 3)
    for one, other, dim in ((x, y, 0), (x, y[0, 0], 0), (x[:, :2, :2], y, None), (x, y[:, :2], 1), (x, y[:2], 1)):
        with pytest.raises(InvalidArgument):
            one.cross(other, dim)


def test_blas_level_1() -> None:
    """TH's swap, scal, copy and axpy, which are methods of storages and tensors."""
    x, y = shmtensor.tensor([1.0, 2, 3]), shmtensor.tensor([10.0, 20, 30])
    assert x.clone().mul_(2).tolist() == [2, 4, 6]
    assert y.clone().add_(x, alpha=2).tolist() == [12, 24, 36]
    assert shmtensor.zeros(3).copy_(x).tolist() == [1, 2, 3]
    x[...], y[...] = y.clone(), x.clone()
    assert (x.tolist(), y.tolist()) == ([10, 20, 30], [1, 2, 3])


@pytest.mark.torch
@pytest.mark.parametrize("name", [*SHAPES, "inner", "kron", "trace", "cross"])
def test_as_torch_has_it(name: str) -> None:
    torch = pytest.importorskip("torch")
    shapes = {"inner": ((2, 3), (4, 3)), "kron": ((2, 3), (4,)), "trace": ((3, 4),), "cross": ((2, 3), (2, 3))}
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(shape) for shape in {**SHAPES, **shapes}[name]]
    how: dict[str, Any] = {"beta": 0.5, "alpha": -2.0} if name in SUMS else {"dim": 1} if name == "cross" else {}
    ours = getattr(shmtensor, name)(*[shmtensor.from_numpy(a) for a in arrays], **how)
    theirs = getattr(torch, name)(*[torch.from_numpy(a) for a in arrays], **how)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12, atol=1e-12)
    assert ours.shape == tuple(theirs.shape)


def test_einsum_of_a_list_and_of_integers() -> None:
    x = shmtensor.tensor([[1, 2], [3, 4]], dtype="int32")
    assert shmtensor.einsum("ij,jk->ik", [x, x]).tolist() == [[7, 10], [15, 22]]
    assert shmtensor.einsum("ij,jk->ik", (x, x)).dtype == shmtensor.int32
    for equation, expected in (("ij->i", [3, 7]), ("ii", 5), ("ij->", 10)):
        found = shmtensor.einsum(equation, [x])
        assert found.tolist() == expected and found.dtype == shmtensor.int64  # as sum() has it


def test_bfloat16_stays_bfloat16():
    a, v = shmtensor.ones(2, 2, dtype="bfloat16"), shmtensor.ones(2, dtype="bfloat16")
    for found in [
        a @ a,
        a @ v,
        v @ v,
        shmtensor.mm(a, a),
        shmtensor.mv(a, v),
        shmtensor.bmm(a[None], a[None]),
        shmtensor.addmm(a, a, a),
        shmtensor.addmv(v, a, v),
        shmtensor.einsum("ij,jk->ik", a, a),
        shmtensor.vecdot(a, a),
        shmtensor.matrix_power(a, 2),
        shmtensor.kron(a, a),
        shmtensor.linalg.norm(v),
        shmtensor.linalg.vector_norm(v, 3),
        shmtensor.dist(v, v),
        shmtensor.matmul(a, a, out=shmtensor.empty(2, 2, dtype="bfloat16")),
    ]:
        assert found.dtype == shmtensor.bfloat16
    with pytest.raises(InvalidArgument, match="matmul gives shape"):
        shmtensor.matmul(a, a, out=shmtensor.empty(3, 2, dtype="bfloat16"))
    with pytest.raises(InvalidArgument):
        a @ 2
    assert (a @ a).tolist() == [[2.0, 2.0], [2.0, 2.0]]
