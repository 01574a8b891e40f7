"""gradcheck of every row that has a gradient rule, with small inputs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest
from tiers import first

import shmtensor as st
from shmtensor._tensor.dispatch import Result, Row, all_rows
from shmtensor.autograd import gradcheck, gradgradcheck
from shmtensor.nn import functional

for _module in iter_modules(functional.__path__):
    import_module(f"{functional.__name__}.{_module.name}")


def _callable(row: Row) -> Callable[..., Any] | None:
    """What calls an operation; None: others do, for whom it was made."""
    if row.properties:
        name = next(iter(row.properties))
        return lambda x: getattr(x, name)
    return row.function or next(iter(row.methods.values()), None)


ROWS = {row.name: row for row in all_rows() if row.gradient is not None and _callable(row) is not None}


def d(*shape: int) -> Any:
    """Different numbers between 0.2 and 0.8, which are the same in each run."""
    values = np.random.default_rng(3).permutation(int(np.prod(shape, dtype=int))).reshape(shape)
    return st.from_numpy(0.2 + 0.6 * (values + 0.31) / max(values.size, 1)).requires_grad_()


def other(*shape: int) -> Any:
    """Numbers that differ from all of `d`, and from their multiples."""
    return (d(*shape).detach().flip(0) * 0.91 + 0.017).requires_grad_()


def z(*shape: int) -> Any:
    return (d(*shape).detach() + 1j * d(*shape).detach().flip(0)).requires_grad_()


def i(*numbers: int) -> Any:
    return st.tensor(numbers)


def factored() -> tuple[Any, ...]:
    """Factors of a matrix, and the order of its rows."""
    factors, order = st.linalg.lu_factor(d(3, 3).detach())
    return factors.requires_grad_(), order


MASK = st.tensor([[True, False, True], [False, True, False], [False, False, True]])
COLUMNS = st.tensor([[0, 2, 1], [1, 1, 0]])

# Arguments, where one or two matrices do not do.
ARGUMENTS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "softmax": lambda: (d(2, 3), 1),
    "log_softmax": lambda: (d(2, 3), 0),
    "threshold": lambda: (d(3, 3), 0.5, 7),
    "threshold_": lambda: (d(3, 3), 0.5, 7),
    "prelu": lambda: (d(2, 3) - 0.45, d(3)),
    "polygamma": lambda: (1, d(3)),
    "polygamma_": lambda: (d(3), 2),
    "mvlgamma": lambda: (d(3) + 2, 2),
    "view": lambda: (d(2, 3), 3, 2),
    "reshape": lambda: (d(2, 3), (3, 2)),
    "unflatten": lambda: (d(4, 3), 0, (2, 2)),
    "narrow": lambda: (d(3, 3), 1, 1, 2),
    "select": lambda: (d(3, 3), 1, 2),
    "permute_dims": lambda: (d(2, 3, 1), (2, 0, 1)),
    "permute": lambda: (d(2, 3, 1), (2, 0, 1)),
    "transpose": lambda: (d(2, 3), 0, 1),
    "_imaginary_part": lambda: (z(3),),
    "moveaxis": lambda: (d(2, 3, 1), 0, 2),
    "expand_dims": lambda: (d(3), 0),
    "unsqueeze": lambda: (d(3), 1),
    "broadcast_to": lambda: (d(3, 1), (2, 3, 4)),
    "expand": lambda: (d(3, 1), 3, 4),
    "unfold": lambda: (d(5), 0, 3, 1),
    "roll": lambda: (d(3, 2), 1, 0),
    "repeat": lambda: (d(3), 2),
    "repeat_interleave": lambda: (d(3), i(1, 0, 2)),
    "tile": lambda: (d(2, 2), (2, 3)),
    "take": lambda: (d(3, 3), i(0, 8, 8)),
    "take_along_axis": lambda: (d(2, 3), COLUMNS),
    "take_along_dim": lambda: (d(2, 3), COLUMNS, 1),
    "index_select": lambda: (d(3, 2), 0, i(2, 2, 0)),
    "gather": lambda: (d(2, 3), 1, COLUMNS),
    "scatter_": lambda: (d(2, 3), 1, st.tensor([[0, 2], [1, 0]]), d(2, 2)),
    "scatter_add_": lambda: (d(2, 3), 1, COLUMNS, d(2, 3)),
    "index_add_": lambda: (d(3, 2), 0, i(2, 2), d(2, 2)),
    "index_copy_": lambda: (d(3, 2), 0, i(2, 0), d(2, 2)),
    "index_fill_": lambda: (d(3, 2), 0, i(2, 0), 5.0),
    "put_": lambda: (d(3, 3), i(8, 1), d(2)),
    "masked_select": lambda: (d(3, 3), MASK),
    "masked_fill_": lambda: (d(3, 3), MASK, 5.0),
    "masked_scatter_": lambda: (d(3, 3), MASK, d(3, 3)),
    "scatter_reduce_": lambda: (d(2, 3), 1, COLUMNS, d(2, 3) + 1, "amax"),
    "index_reduce_": lambda: (d(3, 2), 0, i(2, 2), d(2, 2), "prod"),
    "lerp": lambda: (d(3), d(3) + 1, d(3)),
    "bincount": lambda: (i(0, 2, 2), d(3)),
    "vander": lambda: (d(3),),
    "constant_pad_nd": lambda: (d(2, 3), (1, 2)),
    "view_as_real": lambda: (z(3),),
    "view_as_real_copy": lambda: (z(3),),
    "view_as_complex": lambda: (d(3, 2),),
    "view_as_complex_copy": lambda: (d(3, 2),),
    "dot": lambda: (d(3), d(3)),
    "vdot": lambda: (z(3), z(3)),
    "outer": lambda: (d(3), d(2)),
    "addr": lambda: (d(3, 2), d(3), d(2)),
    "mv": lambda: (d(3, 2), d(2)),
    "addmv": lambda: (d(3), d(3, 2), d(2)),
    "addmm": lambda: (d(3, 2), d(3, 2), d(2, 2)),
    "bmm": lambda: (d(2, 3, 2), d(2, 2, 2)),
    "baddbmm": lambda: (d(2, 3, 2), d(2, 3, 2), d(2, 2, 2)),
    "addbmm": lambda: (d(3, 2), d(2, 3, 2), d(2, 2, 2)),
    "tensorinv": lambda: (d(4, 4).detach().reshape(2, 2, 4).requires_grad_(), 2),
    "tensorsolve": lambda: (d(2, 2, 4), d(2, 2)),
    "solve_triangular": lambda: (d(3, 3), d(3, 2)),
    "triangular_solve": lambda: (d(3, 2), d(3, 3)),
    "lu_solve": lambda: (*factored(), d(3, 2)),
    "lu_unpack": lambda: factored(),
    "householder_product": lambda: (d(3, 2), d(2)),
    "ormqr": lambda: (d(3, 2), d(2), d(3, 2)),
    "matrix_power": lambda: (d(3, 3), 3),
    "fractional_matrix_power": lambda: (d(3, 3), 0.5),
    "gesv": lambda: (d(3, 2), d(3, 3)),
    "astype": lambda: (d(3), st.complex128),
    "chunk": lambda: (d(4, 2), 2),
    "split": lambda: (d(4, 2), 3),
    "tensor_split": lambda: (d(4, 2), 3),
    "split_with_sizes": lambda: (d(4, 2), (1, 3)),
    "unsafe_split": lambda: (d(4, 2), 3),
    "unsafe_chunk": lambda: (d(4, 2), 2),
    "hsplit": lambda: (d(2, 4), 2),
    "vsplit": lambda: (d(4, 2), 2),
    "dsplit": lambda: (d(1, 2, 4), 2),
    "diagonal_scatter": lambda: (d(3, 3), d(3)),
    "select_scatter": lambda: (d(3, 3), d(3), 0, 1),
    "cumulative_sum": lambda: (d(3),),
    "cumulative_prod": lambda: (d(3),),
    "logcumsumexp": lambda: (d(3, 2), 0),
    "cumsum": lambda: (d(3, 2), 0),
    "cumprod": lambda: (d(3, 2), 0),
    "cummax": lambda: (d(3, 2), 0),
    "cummin": lambda: (d(3, 2), 0),
    "renorm": lambda: (d(3, 3), 2, 0, 0.5),
    "fill_diagonal_": lambda: (d(3, 3), 5.0),
    "nanquantile": lambda: (d(4), 0.3),
    "quantile": lambda: (d(4), d(2)),
    "topk": lambda: (d(4), 2),
    "kthvalue": lambda: (d(4), 2),
    "acosh": lambda: (d(3) + 1.5,),
    "igamma": lambda: (d(3).detach(), d(3)),
    "igammac": lambda: (d(3).detach(), d(3)),
    "zeta": lambda: (d(3).detach() + 2, d(3)),
    "uniform_": lambda: (d(3),),
    "normal_": lambda: (d(3), 0.5, 2.0),  # and zeros for these, as in torch
    "cartesian_prod": lambda: (d(2), d(3)),
    "log_normal_": lambda: (d(3),),
    "exponential_": lambda: (d(3),),
    "cauchy_": lambda: (d(3),),
    "geometric_": lambda: (d(3), 0.5),
    "bernoulli_": lambda: (d(3), 0.5),
    "random_": lambda: (d(3),),
    "celu_": lambda: (d(3) - 0.45,),
    "selu_": lambda: (d(3) - 0.45,),
}
LISTS = frozenset({"concat", "cat", "stack", "hstack", "vstack", "dstack", "column_stack", "multi_dot"})  # fmt: skip
"""Of tensors, as first argument."""
ZEROS = frozenset({"poisson", "binomial"})
"""Results are random, and gradients zero."""
ESTIMATED = frozenset({"logm", "fractional_matrix_power"})
"""SciPy chooses their approximation with random numbers."""


def positive(a: Any) -> Any:
    return a @ a.mT + st.eye(3, dtype=st.float64)


def dominant(a: Any) -> Any:
    return a + 2 * st.eye(3, dtype=st.float64)


# What makes a matrix as an operation takes it, which is differentiated too.
MATRICES = {
    **dict.fromkeys(("cholesky", "cholesky_ex", "eigh", "eigvalsh", "symeig", "logdet", "logm", "sqrtm",
                     "fractional_matrix_power"), positive),
    **dict.fromkeys(("signm", "inv", "matrix_exp", "det", "slogdet"), dominant),
    "cholesky_inverse": lambda a: dominant(a).tril(),
}  # fmt: skip
SECOND = {
    "cholesky_solve": lambda b, a: (b, dominant(a).tril()),
    "gesv": lambda b, a: (b, dominant(a)),
    "triangular_solve": lambda b, a: (b, dominant(a)),
    "solve_triangular": lambda a, b: (dominant(a).triu(), b),
}
NAMED = {"solve_triangular": {"upper": True}}
OUTPUTS = {
    "eigh": lambda found: (found[0], found[1].abs()),
    **dict.fromkeys(("symeig", "gesv", "eig", "lstsq"), lambda found: found[0]),
    "svd": lambda found: found[1],
}
"""What is compared of results that are not unique, or are not all differentiable."""


def differentiable(found: Any) -> list[Any]:
    """The results of an operation that have gradients."""
    several = found if isinstance(found, tuple | list) else [found]
    return [one for one in several if isinstance(one, st.Tensor) and one.requires_grad]


def case_of(row: Row) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of tensors, and small inputs."""
    name, call = row.name, _callable(row)
    assert call is not None
    changes = row.result is Result.SAME or name.endswith("_")

    def function(*args: Any) -> Any:
        st.manual_seed(0)
        if name in LISTS:
            return call(list(args))
        if name in MATRICES:
            args = (MATRICES[name](args[0]), *args[1:])
        if name in SECOND:
            args = SECOND[name](*args)
        found = call(args[0].clone() if changes else args[0], *args[1:], **NAMED.get(name, {}))
        return OUTPUTS[name](found) if name in OUTPUTS else found

    if name in LISTS:
        return function, (d(2, 2), other(2, 2))
    if name in ARGUMENTS:
        return function, ARGUMENTS[name]()
    for inputs in ((d(3, 3),), (d(3, 3), other(3, 3))):
        try:
            found = function(*inputs)
        except Exception:  # not its arguments
            continue
        if any(
            isinstance(one, st.Tensor) and one.requires_grad for one in (found if isinstance(found, tuple) else [found])
        ):
            return function, inputs
    raise AssertionError(f"write arguments of {name} into ARGUMENTS")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ROWS)
def test_first_gradients(name: str) -> None:
    function, inputs = case_of(ROWS[name])
    if name in ZEROS:
        y = function(*inputs)
        assert all((one == 0).all() for one in st.autograd.grad(y.sum(), inputs))
        return
    assert gradcheck(function, inputs, atol=1e-5, rtol=1e-4, nondet_tol=1e-9 if name in ESTIMATED else 0.0)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [name for name in ROWS if name not in ZEROS])
def test_second_gradients(name: str) -> None:
    function, inputs = case_of(ROWS[name])
    several = differentiable(function(*inputs))
    seeds = [st.from_numpy(np.random.default_rng(1).standard_normal(one.shape)).to(one.dtype) for one in several]
    found = st.autograd.grad(several, [one for one in inputs if isinstance(one, st.Tensor) and one.requires_grad],
                             [one.requires_grad_() for one in seeds], create_graph=True, allow_unused=True)  # fmt: skip
    if any(one is not None and one.requires_grad for one in found):  # not those of zeros
        apart = 1e-9 if name in ESTIMATED else 0.0
        assert gradgradcheck(
            function, inputs, [one.detach().requires_grad_() for one in seeds], atol=1e-4, rtol=1e-3, nondet_tol=apart
        )


def slopes(call: Callable[..., Any], name: str) -> list[Any]:
    """First and second gradients of an operation of results of others, called by `call`."""
    function, inputs = case_of(ROWS[name])
    leaves = [one for one in inputs if isinstance(one, st.Tensor) and one.requires_grad]

    def part(*args: Any) -> Any:
        return function(*[one * 1 if isinstance(one, st.Tensor) and one.requires_grad else one for one in args])

    results = differentiable(call(part, *inputs))
    once = st.autograd.grad(results, leaves, [*map(st.ones_like, results)], create_graph=True, allow_unused=True)
    again = [one for one in once if one is not None and one.requires_grad]
    second = st.autograd.grad(again, leaves, [*map(st.ones_like, again)], allow_unused=True) if again else ()
    return [*once, *second]


SOME = [*ROWS][::6]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", first([*SOME, *(name for name in ROWS if name not in SOME)], len(SOME)))
def test_in_a_checkpoint(name: str) -> None:
    direct = slopes(lambda function, *args: function(*args), name)
    again = slopes(st.autograd.checkpoint, name)
    assert [one is None for one in again] == [one is None for one in direct]
    for a, b in zip(again, direct, strict=True):
        assert a is None or np.array_equal(a.detach().numpy(), b.detach().numpy(), equal_nan=True)
