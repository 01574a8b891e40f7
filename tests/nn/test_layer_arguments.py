"""Layers: arguments and inputs that they refuse, older arguments, and ways to make and use them that are rare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor import errors, nn


def z(*shape: int) -> Any:
    return st.zeros(*shape)


INVALID: list[Any] = [
    (lambda: nn.Conv1d(4, 4, 3, groups=0), "groups must be a positive integer"),
    (lambda: nn.Conv2d(3, 4, 3, groups=2), "in_channels must be divisible by groups"),
    (lambda: nn.Conv2d(4, 3, 3, groups=2), "out_channels must be divisible by groups"),
    (lambda: nn.Conv2d(4, 4, 3, padding="some"), "Invalid padding string 'some'"),
    (lambda: nn.Conv2d(4, 4, 3, 2, "same"), "padding='same' is not supported for strided convolutions"),
    (lambda: nn.Conv2d(4, 4, 3, padding_mode="mirror"), "but got padding_mode='mirror'"),
    (lambda: nn.ConvTranspose2d(4, 4, 3, padding_mode="reflect"), 'Only "zeros" padding mode is supported'),
    (
        lambda: nn.ConvTranspose1d(1, 1, 3, 2)(z(1, 1, 4), [8]),
        r"size of \[8\], but valid sizes range from \[9\] to \[10\]",
    ),
    (lambda: nn.ConvTranspose2d(1, 1, 3, 2)(z(1, 1, 4, 4), [9]), r"must have 2 or 4 elements \(got 1\)"),
    (lambda: nn.Dropout(1.5), "between 0 and 1, but got 1.5"),
    (lambda: nn.Bilinear(0, 2, 3), "in1_features must be > 0, but got 0"),
    (lambda: nn.GroupNorm(2, 5), r"num_channels \(5\) must be divisible by num_groups \(2\)"),
    (lambda: nn.MultiheadAttention(0, 1), "must be greater than 0, got embed_dim=0"),
    (lambda: nn.MultiheadAttention(4, 0), "must be greater than 0, got embed_dim=4 and num_heads=0"),
    (lambda: nn.MultiheadAttention(5, 2), "divisible by num_heads; got embed_dim=5 and num_heads=2"),
    (lambda: nn.BatchNorm1d(3)(z(3)), r"expected 2D or 3D input \(got 1D input\)"),
    (lambda: nn.BatchNorm2d(3)(z(2, 3, 4)), r"expected 4D input \(got 3D input\)"),
    (lambda: nn.BatchNorm3d(3)(z(2, 3)), r"expected 5D input \(got 2D input\)"),
    (lambda: nn.InstanceNorm2d(3)(z(3, 4)), r"expected 3D or 4D input \(got 2D input\)"),
    (
        lambda: nn.InstanceNorm2d(3, affine=True)(z(2, 4, 5, 5)),
        r"size at dim=1 to match num_features \(3\), but got: 4",
    ),
    (lambda: nn.FractionalMaxPool2d(2), "requires specifying either an output size, or a pooling ratio"),
    (lambda: nn.FractionalMaxPool3d(2, 3, 0.5), "only one of output_size and output_ratio"),
    (lambda: nn.FractionalMaxPool2d(2, output_ratio=(0.5, 1.5)), r"between 0 and 1 \(got \(0.5, 1.5\)\)"),
    (lambda: nn.Hardtanh(1.0, 1.0), "max_val 1.0 is not larger than min_val 1.0"),
    (lambda: nn.Softmax2d()(z(2, 3)), "expected input to be 3D or 4D, got 2D instead"),
    (lambda: nn.TransformerEncoderLayer(4, 2, 8, activation="sin"), "activation should be relu/gelu, not sin"),
    (lambda: nn.Transformer(4, 2, 1, 1, 8)(z(3, 2, 4), z(3, 1, 4)), "batch number of src and tgt must be equal"),
    (lambda: nn.Transformer(4, 2, 1, 1, 8, batch_first=True)(z(3, 2, 4), z(2, 2, 4)), "batch number of src and tgt"),
    (lambda: nn.Transformer(4, 2, 1, 1, 8)(z(3, 2, 4), z(3, 2, 5)), "must be equal to d_model"),
    (lambda: nn.MultiMarginLoss(3), "only p == 1 and p == 2 supported"),
    (lambda: nn.MultiMarginLoss(weight=z(2, 2)), r"weight must be None or have one axis; got shape \(2, 2\)"),
    (lambda: nn.TripletMarginLoss(0), "margin to be greater than 0, got 0 instead"),
    (lambda: nn.TripletMarginWithDistanceLoss(margin=-1), "margin to be greater than 0, got -1 instead"),
    (lambda: nn.Embedding(3, 2, 3), "within num_embeddings; got 3 of 3"),
    (lambda: nn.EmbeddingBag(3, 2, padding_idx=-4), "within num_embeddings; got -4 of 3"),
    (lambda: nn.Embedding(3, 2, _weight=z(2, 2)), r"Shape of weight \(2, 2\) does not match num_embeddings 3"),
    (lambda: nn.Embedding.from_pretrained(z(3)), r"expected to be 2-dimensional; got shape \(3,\)"),
    (lambda: nn.EmbeddingBag.from_pretrained(z(3, 2, 1)), "expected to be 2-dimensional"),
    (lambda: nn.LSTM(4, 3, proj_size=-1), "proj_size should be a positive integer or zero"),
    (lambda: nn.RNNBase("SIN", 4, 3), "Unrecognized RNN mode: SIN"),
    (lambda: nn.LSTM(4, 3)(z(2, 2, 4), (z(1, 2, 3),)), "1 first states; give 2"),
    (lambda: nn.GRU(4, 3)(z(0, 2, 4)), "a sequence without steps"),
    (lambda: nn.GRUCell(4, 3)(z(1, 2, 4)), "GRUCell: Expected input to be 1D or 2D, got 3D instead"),
    (lambda: nn.LSTMCell(4, 3)(z(2, 4), (z(2, 3), z(3))), "LSTMCell: Expected hidden to be 2D, got 1D instead"),
    (lambda: nn.RNNCell(4, 3, nonlinearity="sin")(z(2, 4)), "Unknown nonlinearity: sin"),
]
OF_OTHER_TYPES: list[Any] = [
    (lambda: nn.Unflatten("N", (2, 2)), "number of an axis for dim, but found type str"),
    (lambda: nn.Unflatten(1, 4), "must be a tuple of ints, but found type int"),
    (lambda: nn.Unflatten(1, (2, 2.0)), "found element of type float at pos 1"),
    (lambda: nn.GRU(4, 3.0), "hidden_size should be of type int, got: float"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("number", range(len(INVALID)))
def test_what_layers_refuse(number: int) -> None:
    call, text = INVALID[number]
    with pytest.raises(errors.InvalidArgument, match=text):
        call()


@pytest.mark.parametrize("number", range(len(OF_OTHER_TYPES)))
def test_types_that_layers_refuse(number: int) -> None:
    call, text = OF_OTHER_TYPES[number]
    with pytest.raises(errors.DTypeError, match=text):
        call()


TEXTS: list[Any] = [
    (lambda: nn.AvgPool1d(3, padding=1), "AvgPool1d(kernel_size=(3,), stride=(3,), padding=(1,))"),
    (lambda: nn.MaxUnpool2d(2, padding=1), "MaxUnpool2d(kernel_size=(2, 2), stride=(2, 2), padding=(1, 1))"),
    (lambda: nn.RReLU(0.1, 0.3, inplace=True), "RReLU(lower=0.1, upper=0.3, inplace=True)"),
    (
        lambda: nn.Embedding(5, 2, 0, max_norm=1.0, norm_type=3.0),
        "Embedding(5, 2, padding_idx=0, max_norm=1.0, norm_type=3.0)",
    ),
    (lambda: nn.Bilinear(1, 2, 3, bias=False), "Bilinear(in1_features=1, in2_features=2, out_features=3, bias=False)"),
]


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_texts(number: int) -> None:
    make, text = TEXTS[number]
    assert repr(make()) == text


@pytest.mark.parametrize(
    ("average", "reduce", "reduction"),
    [(None, False, "none"), (True, False, "none"), (None, True, "mean"), (False, None, "sum"), (False, True, "sum")],
)
def test_older_arguments_of_losses(average: bool | None, reduce: bool | None, reduction: str) -> None:
    with pytest.warns(UserWarning, match=f"please use reduction='{reduction}' instead"):
        loss = nn.MSELoss(average, reduce)
    assert loss.reduction == reduction
    found = loss(st.tensor([1.0, 3.0]), st.tensor([0.0, 0.0]))
    assert found.tolist() == {"none": [1, 9], "sum": 10, "mean": 5}[reduction]
    functional: Any = nn.functional
    assert functional.mse_loss(st.tensor([1.0, 3.0]), z(2), average, reduce).tolist() == found.tolist()


def test_older_bounds_of_hardtanh() -> None:
    with pytest.warns(FutureWarning, match="keyword argument `min_value` is deprecated"):
        layer = nn.Hardtanh(min_value=-2.0)
    assert layer(st.tensor([-3.0, -1.5, 3.0])).tolist() == [-2, -1.5, 1]
    with pytest.warns(FutureWarning, match="rename to `max_val`"):
        assert nn.Hardtanh(max_value=2.0)(st.tensor([-3.0, 3.0])).tolist() == [-1, 2]


@pytest.mark.parametrize("shape", [(1, 1, 4), (1, 4)])
@pytest.mark.parametrize("size", [9, 10])
def test_transposed_convolution_to_a_size(shape: tuple[int, ...], size: int) -> None:
    layer = nn.ConvTranspose1d(1, 1, 3, stride=2, bias=False)
    layer.weight.detach().fill_(1.0)
    wanted = [1.0, 1, 2, 1, 2, 1, 2, 1, 1, 0][:size]
    for given in ([size], [*shape[:-1], size]):
        made = layer(st.ones(*shape), output_size=given)
        assert made.shape == (*shape[:-1], size) and made.reshape(-1).tolist() == wanted


def test_instance_norm_of_another_number_of_channels() -> None:
    x = st.tensor(np.random.default_rng(0).standard_normal((2, 4, 5)).astype(np.float32))
    with pytest.warns(UserWarning, match="size at dim=1 does not match num_features"):
        made = nn.InstanceNorm1d(3)(x)
    assert np.allclose(made, nn.InstanceNorm1d(4)(x))


def test_embeddings_of_a_matrix() -> None:
    matrix = st.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    table = nn.Embedding.from_pretrained(matrix, padding_idx=-1)
    assert table.padding_idx == 2 and not table.weight.requires_grad
    assert table(st.tensor([2, 0])).tolist() == [[5, 6], [1, 2]]
    matrix[0] = 7.0
    assert table.weight[0].tolist() == [7, 7]
    assert nn.Embedding.from_pretrained(matrix, freeze=False).weight.requires_grad
    bags = nn.EmbeddingBag.from_pretrained(matrix, mode="sum")
    assert bags(st.tensor([[1, 2]])).tolist() == [[8, 10]] and not bags.weight.requires_grad
    bags = nn.EmbeddingBag.from_pretrained(matrix, freeze=False, padding_idx=0)
    assert bags.weight.requires_grad
    assert bags(st.tensor([[1, 0], [0, 2]])).tolist() == [[3, 4], [5, 6]]


@pytest.mark.exhaustive
def test_activation_of_a_transformer() -> None:
    x = st.tensor(np.random.default_rng(0).standard_normal((3, 2, 4)).astype(np.float32))
    found = []
    for activation in ("relu", nn.functional.relu, None, "gelu"):
        st.manual_seed(0)
        found.append(np.asarray(nn.TransformerEncoderLayer(4, 2, 8, 0.0, activation)(x).detach()))
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all() and not np.allclose(found[0], found[3])
    assert nn.Transformer.generate_square_subsequent_mask(3).tolist() == [
        [0, float("-inf"), float("-inf")], [0, 0, float("-inf")], [0, 0, 0],
    ]  # fmt: skip


def test_initial_weight_of_prelu() -> None:
    layer = nn.PReLU(2, init=0.5)
    layer.weight.detach().fill_(3.0)
    layer.reset_parameters()
    assert layer.weight.tolist() == [0.5, 0.5]


def test_states_of_a_sequence_without_an_axis_of_samples() -> None:
    layer = nn.LSTM(4, 3, 2, bidirectional=True)
    assert [len(names) for names in layer.all_weights] == [4] * 4
    assert layer.all_weights[1][0] is layer.weight_ih_l0_reverse
    x = st.tensor(np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32))
    h, c = [st.tensor(np.random.default_rng(i).standard_normal((4, 3)).astype(np.float32)) for i in (1, 2)]
    made, (hidden, cell) = layer(x, (h, c))
    whole, (more, cells) = layer(x.unsqueeze(1), (h.unsqueeze(1), c.unsqueeze(1)))
    for ours, theirs in ((made, whole), (hidden, more), (cell, cells)):
        assert ours.shape == theirs.squeeze(1).shape
        assert np.allclose(ours.detach(), theirs.squeeze(1).detach())
