"""Norms of gradients, parameters as a vector, and packed sequences, also beside torch."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor import errors, nn
from shmtensor.nn import utils
from shmtensor.nn.utils import rnn


def with_gradients(library: Any, *values: Any) -> list[Any]:
    made = []
    for one in values:
        parameter = library.nn.Parameter(library.asarray(np.zeros_like(one)))
        parameter.grad = library.asarray(one.copy())
        made.append(parameter)
    return [*made, library.nn.Parameter(library.zeros(2))]


VALUES = (np.arange(-3.0, 3.0).reshape(2, 3), np.array([0.5, -8.0]))


@pytest.mark.torch
@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("most", [0.5, 100.0])
def test_clipped_norms_are_torchs(norm: float, most: float) -> None:
    torch: Any = pytest.importorskip("torch")
    ours, theirs = with_gradients(st, *VALUES), with_gradients(torch, *VALUES)
    made = utils.clip_grad_norm_(ours, most, norm)
    wanted = torch.nn.utils.clip_grad_norm_(theirs, most, norm)
    np.testing.assert_allclose(made.item(), wanted.item(), rtol=1e-12)
    for mine, other in zip(ours[:2], theirs[:2], strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-12)
    assert ours[2].grad is None


@pytest.mark.torch
@pytest.mark.filterwarnings("error")
def test_gradients_of_float16_are_clipped_as_torchs() -> None:
    torch: Any = pytest.importorskip("torch")
    found = []
    for library in (st, torch):
        parameter = library.nn.Parameter(library.ones(2).half())
        parameter.grad = library.full((2,), 300.0).half()
        total = library.nn.utils.clip_grad_norm_([parameter], 1.0)
        found.append([total.item(), *parameter.grad.tolist()])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3)
    assert found[0][0] == 424.25


def test_clipped_values() -> None:
    parameters = with_gradients(st, *VALUES)
    utils.clip_grad_value_(parameters, 1.5)
    assert parameters[0].grad.tolist() == [[-1.5, -1.5, -1], [0, 1, 1.5]]
    utils.clip_grad_value_(parameters[1], 0.25)
    assert parameters[1].grad.tolist() == [0.25, -0.25]


def test_norms_that_are_not_finite_are_refused_if_asked() -> None:
    parameters = with_gradients(st, np.array([np.inf, 1]))
    with pytest.raises(errors.InvalidArgument, match="non-finite"):
        utils.clip_grad_norm_(parameters, 1, error_if_nonfinite=True)
    assert parameters[0].grad.tolist() == [np.inf, 1]
    assert utils.get_total_norm([]).item() == 0
    assert utils.clip_grad_norm_(parameters[1], 1).item() == 0


def test_parameters_as_a_vector_and_back() -> None:
    parameters = [nn.Parameter(st.ones(2, 2)), nn.Parameter(st.zeros(3))]
    vector = utils.parameters_to_vector(parameters)
    assert vector.tolist() == [1, 1, 1, 1, 0, 0, 0]
    values = st.arange(7, dtype=st.float32)
    utils.vector_to_parameters(values, parameters)
    assert parameters[0].tolist() == [[0, 1], [2, 3]]
    values.fill_(9)
    assert parameters[1].tolist() == [9, 9, 9]
    with pytest.raises(errors.InvalidArgument, match="7"):
        utils.vector_to_parameters(st.zeros(6), parameters)
    with pytest.raises(errors.DTypeError):
        utils.vector_to_parameters([0] * 7, parameters)  # type: ignore[arg-type]


# -- packed sequences --------------------------------------------------------------------------------------------------

LENGTHS = [[5, 3, 1], [2, 5, 3], [4, 4, 4], [1, 1, 3]]


def batch(library: Any, lengths: list[int], batch_first: bool) -> Any:
    longest, count = 5, len(lengths)
    values = np.random.default_rng(0).standard_normal((count, longest, 4) if batch_first else (longest, count, 4))
    return library.asarray(values)


def same(ours: Any, theirs: Any) -> None:
    assert (ours is None) == (theirs is None)
    if theirs is not None:
        np.testing.assert_allclose(np.asarray(ours.detach()), theirs.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_packing_is_torchs(lengths: list[int], batch_first: bool) -> None:
    torch: Any = pytest.importorskip("torch")
    theirs_rnn = torch.nn.utils.rnn
    how = {"batch_first": batch_first, "enforce_sorted": lengths == sorted(lengths, reverse=True)}
    ours = rnn.pack_padded_sequence(batch(st, lengths, batch_first), st.tensor(lengths), **how)
    theirs = theirs_rnn.pack_padded_sequence(batch(torch, lengths, batch_first), torch.tensor(lengths), **how)
    same(ours.batch_sizes, theirs.batch_sizes)
    if len(set(lengths)) == len(lengths):  # the order of equal lengths is open
        same(ours.data, theirs.data)
        same(ours.sorted_indices, theirs.sorted_indices)
        same(ours.unsorted_indices, theirs.unsorted_indices)
    for more in ({}, {"padding_value": -1.0, "total_length": 7}):
        mine = rnn.pad_packed_sequence(ours, batch_first, **more)
        other = theirs_rnn.pad_packed_sequence(theirs, batch_first, **more)
        same(mine[0], other[0])
        same(mine[1], other[1])
    for mine, other in zip(rnn.unpack_sequence(ours), theirs_rnn.unpack_sequence(theirs), strict=True):
        same(mine, other)


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_packed_sequences_go_through_layers_as_torchs(kind: str, lengths: list[int]) -> None:
    torch: Any = pytest.importorskip("torch")
    torch.manual_seed(0)
    theirs = getattr(torch.nn, kind)(4, 3, 2, bidirectional=True).double()
    ours = getattr(nn, kind)(4, 3, 2, bidirectional=True).double()
    ours.load_state_dict({key: st.asarray(value.numpy().copy()) for key, value in theirs.state_dict().items()})
    first = np.random.default_rng(1).standard_normal((4, 3, 3))
    found = []
    for library, layer, tools in ((st, ours, rnn), (torch, theirs, torch.nn.utils.rnn)):
        x = batch(library, lengths, False).requires_grad_()
        state = library.asarray(first.copy())
        packed = tools.pack_padded_sequence(x, library.tensor(lengths), enforce_sorted=False)
        output, last = layer(packed, (state, state) if kind == "LSTM" else state)
        padded, _ = tools.pad_packed_sequence(output)
        last = last if kind == "LSTM" else (last,)
        library.autograd.backward([padded, *last], [library.ones_like(one) for one in (padded, *last)])
        found.append([padded, *last, x.grad, *[one.grad for one in layer.parameters()]])
    for mine, other in zip(*found, strict=True):
        same(mine, other)


def test_padding() -> None:
    sequences = [st.ones(2), st.full((3,), 2.0)]
    assert rnn.pad_sequence(sequences, batch_first=True).tolist() == [[1, 1, 0], [2, 2, 2]]
    assert rnn.pad_sequence(sequences, True, 5, "left").tolist() == [[5, 1, 1], [2, 2, 2]]
    assert rnn.pad_sequence(sequences).shape == (3, 2)
    packed = rnn.pack_sequence(sequences, enforce_sorted=False)
    assert [one.tolist() for one in rnn.unpack_sequence(packed)] == [[1, 1], [2, 2, 2]]
    other = copy.deepcopy(packed).double()
    assert other.data.dtype == st.float64
    assert other.batch_sizes.tolist() == [2, 2, 1]


def test_the_older_name_of_clip_grad_norm_() -> None:
    parameter = nn.Parameter(st.zeros(2))
    parameter.grad = st.tensor([3.0, 4.0])
    with pytest.warns(FutureWarning, match="in favor of `nn.utils.clip_grad_norm_`"):
        total = utils.clip_grad_norm([parameter], 1.0)
    assert total == 5 and np.allclose(parameter.grad, [0.6, 0.8], 1e-4)


def test_what_else_a_packed_sequence_can_do() -> None:
    packed = rnn.pack_padded_sequence(st.ones(3, 2), [3, 1])
    assert packed[1] is packed.batch_sizes and packed[0] is packed.data
    assert repr(packed).startswith("PackedSequence(data=tensor([1., 1., 1., 1.]), batch_sizes=tensor([2, 1, 1]")
    assert packed.to("cpu") is packed and packed.cpu() is packed and packed.float() is packed
    double = packed.double()
    assert double.data.dtype == st.float64 and double.batch_sizes is packed.batch_sizes
    assert double.float().data.dtype == st.float32


REFUSED: list[Any] = [
    (lambda x: rnn.pack_padded_sequence(x, [1, 2]), errors.InvalidArgument, "sorted in decreasing order"),
    (lambda x: rnn.pack_padded_sequence(x, [2, 0]), errors.InvalidArgument, "greater than 0"),
    (lambda x: rnn.pack_padded_sequence(x, [2]), errors.InvalidArgument, "equal to batch_size"),
    (lambda x: rnn.pack_padded_sequence(x, [4, 2]), errors.InvalidArgument, "3 steps"),
    (
        lambda x: rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [3, 2]), total_length=2),
        errors.InvalidArgument,
        "3",
    ),
    (lambda x: rnn.PackedSequence(3), errors.DTypeError, "two tensors"),
    (lambda x: rnn.pad_sequence([]), errors.InvalidArgument, "0 sequences"),
    (lambda x: nn.LSTM(4, 3)(st.zeros(2, 2, 5)), errors.InvalidArgument, "Expected 4, got 5"),
    (lambda x: nn.LSTM(4, 3)(st.zeros(2, 2, 4), (st.zeros(1, 2, 3), st.zeros(1, 1, 3))), errors.InvalidArgument, "cx"),
    (lambda x: nn.GRU(4, 3)(st.zeros(4)), errors.InvalidArgument, "2D or 3D"),
    (lambda x: nn.GRU(4, 0), errors.InvalidArgument, "hidden_size must be greater than zero"),
    (lambda x: nn.LSTM(4, 3, proj_size=3), errors.InvalidArgument, "smaller than hidden_size"),
    (lambda x: nn.RNN(4, 3, nonlinearity="sin"), errors.InvalidArgument, "Unknown nonlinearity"),
    (lambda x: nn.GRU(4, 3, 2, dropout=2), errors.InvalidArgument, "range"),
    (lambda x: nn.GRUCell(4, 3)(st.zeros(2, 4), st.zeros(1, 3)), errors.InvalidArgument, "state of shape"),
    (lambda x: nn.LSTMCell(4, 3)(st.zeros(2, 5)), errors.InvalidArgument, "input_size is 4"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused(number: int) -> None:
    call, error, text = REFUSED[number]
    with pytest.raises(error, match=text):
        call(st.zeros(3, 2, 4))


def test_dropout_of_one_layer_warns() -> None:
    with pytest.warns(UserWarning, match="num_layers"):
        nn.GRU(4, 3, dropout=0.5)
