"""Functions of nn.functional: what they refuse, their other names, and rarer types and forms of inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from functional_world import beside_torch, fixed, numbers

import shmtensor as st
import shmtensor.nn.functional as F  # noqa: N812  # as everybody imports it
from shmtensor.autograd import grad, gradgradcheck
from shmtensor.autograd.sparse import SparseGradient
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument, NotSupported


def z(*shape, dtype="float32"):
    return st.zeros(*shape, dtype=dtype)


def attention(x, heads=1, weight=None, **how):
    """Self-attention with weights of ones; two axes give a tensor without an axis of samples."""
    width = x.shape[-1]
    weight = st.ones(3 * width, width) if weight is None else weight
    arguments = (x, x, x, width, heads, weight, None, None, None, False, 0.0, st.ones(width, width), None)
    return F.multi_head_attention_forward(*arguments, **how)


def without_weights(x):
    return F.multi_head_attention_forward(x, x, x, 2, 1, None, None, None, None, False, 0.0, z(2, 2), None)


INVALID = [
    (lambda: F.conv_transpose1d(z(1, 3, 4), z(3, 1, 2), groups=2), "with 2 groups and weights of shape"),
    (lambda: F.conv_transpose1d(z(1, 1, 1), z(1, 1, 1), padding=1), "they must be from 1"),
    (lambda: F.ctc_loss(z(4, 2, 3), z(2, 1, dtype="int64"), [4], [1]), r"lengths of shapes \(1,\) and \(1,\)"),
    (lambda: F.binary_cross_entropy_with_logits(z(2), z(3)), "give one shape"),
    (lambda: F.gaussian_nll_loss(z(2, 3), z(2, 3), st.ones(2, 2)), r"with var of shape \(2, 2\)"),
    (lambda: F.pad(z(2, 3), (4, 0), "circular"), "wrapping 4 elements of 3"),
    (lambda: F.pad(z(1, 2, 3), (1, 1, 1), "reflect"), "give two numbers for each of the last 1 to 3 axes"),
    (lambda: F.pad(z(3), (1, 1), "replicate"), "behind channels"),
    (lambda: F.pad(z(1, 3), (-2, -1), "replicate"), "leave at least one element"),
    (lambda: F.pad(z(1, 0), (1, 1), "replicate"), "leave at least one element"),
    (lambda: F.hardtanh(z(2, dtype="uint8"), -1, 1), "uint8 from -1; give a bound from 0"),
    (lambda: F.batch_norm(z(3), None, None), r"batch_norm of a tensor of shape \(3,\)"),
    (lambda: F.instance_norm(z(3)), r"instance_norm of a tensor of shape \(3,\)"),
    (lambda: F.local_response_norm(z(2, 3), 2), "give at least three axes"),
    (lambda: F.grid_sample(z(1, 1, 2, 2), z(1, 1, 1, 2), padding_mode="mirror"), "padding_mode 'mirror'"),
    (lambda: F.embedding_bag(st.tensor([0, 1]), z(2, 2), st.tensor([1])), "offsets from 1 to 1"),
    (lambda: F.embedding_bag(st.tensor([0, 1]), z(2, 2), st.tensor([0, 3])), "numbers from 0 to 2"),
    (
        lambda: F.embedding_bag(st.tensor([[0]]), z(2, 2), per_sample_weights=st.ones(1, 1)),
        "mode 'mean' with per_sample_weights",
    ),
    (
        lambda: F.embedding_bag(st.tensor([[0]]), z(2, 2), mode="sum", per_sample_weights=st.ones(2)),
        r"per_sample_weights of shape \(2,\); give \(1, 1\)",
    ),
    (lambda: F.one_hot(z(0, dtype="int64")), "one_hot of 0 elements with num_classes -1"),
    (lambda: F.one_hot(z(1, dtype="int64"), 0), "one_hot of 1 elements with num_classes 0"),
    (lambda: F.adaptive_avg_pool1d(z(2, 3, 0), 2), "only the axis of samples may be empty"),
    (lambda: F.margin_ranking_loss(z(2), z(2), z(2, 1)), "give as many axes"),
    (lambda: F.multi_margin_loss(z(2, 3), z(3, dtype="int64")), r"with a target of shape \(3,\)"),
    (lambda: F.multi_margin_loss(z(2, 3), z(2, dtype="int64"), weight=z(2)), r"weights of shape \(2,\); give \(3,\)"),
    (lambda: F.cosine_embedding_loss(z(2, 3), z(2, 3), z(2, 1)), r"with a target of shape \(2, 1\)"),
    (lambda: F.triplet_margin_loss(z(2, 3), z(2, 3), z(3)), "triplet_margin_loss of shapes .* give as many axes"),
    (lambda: F.triplet_margin_with_distance_loss(z(3), z(3), z(3), margin=0), "with margin 0; give a number above 0"),
    (lambda: F.triplet_margin_with_distance_loss(z(2, 3), z(2, 3), z(3)), "with_distance_loss of shapes"),
    (lambda: without_weights(z(1, 1, 2)), "without in_proj_weight"),
    (lambda: attention(z(1, 1, 2), use_separate_proj_weight=True, q_proj_weight=z(2, 2)), "give all three"),
    (lambda: attention(z(1, 1, 2), is_causal=True), "with is_causal; give attn_mask"),
    (lambda: attention(z(1, 1, 3), 2), "embeddings of 3 with 2 heads"),
    (lambda: F.interpolate(z(1, 1, 2), 4, recompute_scale_factor=True), "that is for scale_factor"),
    (lambda: F.interpolate(z(1, 1, 2), scale_factor=(2, 2)), "give one number, or 1"),
    (lambda: F.interpolate(z(1, 1, 2), scale_factor=0.25), r"to sizes \(0,\); they must be from 1"),
    (lambda: F.interpolate(z(1, 1, 2), 2, mode="cubic"), "mode 'cubic'; give one of nearest"),
    (lambda: F.interpolate(z(1, 1, 2), 2, antialias=True), "antialias; that is for bilinear and bicubic"),
]


@pytest.mark.parametrize("number", range(len(INVALID)))
def test_what_is_refused(number):
    call, text = INVALID[number]
    with pytest.raises(InvalidArgument, match=text):
        call()


def test_types_and_classes_that_are_refused():
    with pytest.raises(DTypeError, match="probabilities of int64"):
        F.cross_entropy(z(2, 3), z(2, 3, dtype="int64"))
    with pytest.raises(DTypeError, match="a mask of int64; give bool or floating-point"):
        attention(z(1, 1, 2), attn_mask=z(1, 1, dtype="int64"))
    with pytest.raises(IndexOutOfRange, match="target 3; give classes from 0 to 2"):
        F.multilabel_margin_loss(z(2, 3), st.tensor([[0, -1, 1], [3, -1, 7]]))


def test_third_derivatives_have_no_formula():
    x = st.tensor([0.5], dtype=st.float64, requires_grad=True)
    (first,) = grad(F.silu(x), x, create_graph=True)
    (second,) = grad(first, x, create_graph=True)
    with pytest.raises(NotSupported, match="derivative 3 of silu; there are 2"):
        second.backward()


def test_other_names():
    x = st.from_numpy(numbers(2, 3, 6))
    image, volume = st.from_numpy(numbers(2, 3, 6, 5)), st.from_numpy(numbers(2, 3, 4, 5, 6))
    for rank, one in ((1, x), (2, image), (3, volume)):
        for name, argument in ((f"max_pool{rank}d", 2), (f"adaptive_max_pool{rank}d", 3)):
            wanted = getattr(F, name)(one, argument, return_indices=True)
            result = getattr(F, f"{name}_with_indices")(one, argument)
            assert np.array_equal(result[0], getattr(F, name)(one, argument))
            assert np.array_equal(result[1], wanted[1])
            planes = one.reshape(6, -1)  # an index is that of an element of the plane
            assert np.array_equal(planes.gather(1, wanted[1].reshape(6, -1)), wanted[0].reshape(6, -1))
    assert np.array_equal(F.native_channel_shuffle(image, 3), F.channel_shuffle(image, 3))
    small = st.tensor([[[[1.0, 3.0]]]])
    assert F.upsample(small, (1, 4)).tolist() == F.upsample_nearest(small, (1, 4)).tolist() == [[[[1, 1, 3, 3]]]]
    assert F.upsample_bilinear(small, (1, 5)).tolist() == [[[[1, 1.5, 2, 2.5, 3]]]]
    assert F.upsample(small, scale_factor=(1, 2), mode="nearest").tolist() == [[[[1, 1, 3, 3]]]]


def test_activations_in_place():
    x = st.tensor([-2.0, 0.5, 3.0])
    assert F.threshold_(x, 1.0, 7.0) is x and x.tolist() == [7, 7, 3]
    x = st.tensor([-2.0, 3.0])
    assert F.rrelu_(x, 0.25, 0.75) is x and x.tolist() == [-1, 3]
    x = st.full((100,), -1.0)
    assert F.rrelu_(x, 0.25, 0.75, training=True) is x
    assert -0.75 <= x.min() < x.max() <= -0.25


def test_integers():
    x = st.tensor([-5, -1, 0, 2, 9])
    assert F.hardtanh(x, -2.0, 4.0).tolist() == [-2, -1, 0, 2, 4] and F.hardtanh(x).dtype == st.int64
    assert F.hardtanh(st.tensor([1, 200], dtype="uint8"), 2, 100).tolist() == [2, 100]
    assert F.avg_pool1d(st.tensor([[-3, 0, 5, 6]]), 2).tolist() == [[-1, 5]]  # towards 0, as in torch
    image = st.tensor([[[[0, 250], [3, 255]]]], dtype="uint8")
    made = F.interpolate(image, (2, 3), mode="bilinear", align_corners=True)
    assert made.dtype == st.uint8 and made.tolist() == [[[[0, 125, 250], [3, 129, 255]]]]
    bounded = F.interpolate(st.tensor([[[[0, 0, 255, 255, 0, 0]] * 2]], dtype="uint8"), (2, 24), mode="bicubic")
    assert (bounded.min(), bounded.max()) == (0, 255)  # bicubic interpolation goes beyond the elements


@pytest.mark.parametrize("shape", [(4,), (2, 4), (3, 2, 4)])
def test_gradients_of_linear_in_half_precision(shape):
    x, weight = numbers(*shape), numbers(3, 4)
    found = []
    for dtype in ("float16", "float64"):
        tensors = [st.tensor(one, dtype=dtype, requires_grad=True) for one in (x, weight)]
        (F.linear(*tensors) ** 2).sum().backward()
        found.append([one.grad for one in tensors])
    for half, whole, at in zip(*found, (shape, (3, 4)), strict=True):
        assert half.dtype == st.float16 and half.shape == at
        assert np.allclose(half.numpy(), whole.numpy(), 0.02, 0.02)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_second_derivatives_of_cross_entropy(reduction):
    x = st.tensor(numbers(4, 3), requires_grad=True)
    target, weight = st.tensor([0, 2, 1, 2]), st.tensor([1.0, 0.5, 2.0], dtype=st.float64)
    assert gradgradcheck(lambda x: F.cross_entropy(x, target, reduction=reduction), [x])
    assert gradgradcheck(lambda x: F.cross_entropy(x, target, weight, ignore_index=1, reduction=reduction), [x])


def test_variances_of_rows():
    x, target = st.from_numpy(numbers(2, 3)), z(2, 3, dtype="float64")
    var = st.tensor([0.5, 2.0], dtype=st.float64)
    whole = F.gaussian_nll_loss(x, target, var.unsqueeze(1).expand(2, 3).clone(), reduction="none")
    assert np.allclose(F.gaussian_nll_loss(x, target, var, reduction="none"), whole)
    assert np.allclose(whole, 0.5 * (var.log().unsqueeze(1) + x * x / var.unsqueeze(1)))


def test_empty_inputs():
    assert F.batch_norm(z(0), None, None).shape == (0,)
    assert F.local_response_norm(z(2, 0, 3), 2).shape == (2, 0, 3)
    at, table = z(0, dtype="int64"), st.ones(3, 2, requires_grad=True)
    bags = F.embedding_bag(at, table, z(2, dtype="int64"), mode="max")
    assert bags.tolist() == [[0, 0], [0, 0]]
    bags.sum().backward()
    assert table.grad.tolist() == [[0, 0]] * 3
    for init in (st.nn.init.kaiming_uniform_, st.nn.init.kaiming_normal_):
        empty = z(0, 4)
        assert init(empty) is empty


@pytest.mark.parametrize("padding", [None, 1])
def test_sparse_gradients_by_frequency(padding):
    at = st.tensor([2, 0, 2, 1])
    found = []
    for sparse in (True, False):
        table = st.tensor(numbers(4, 3), requires_grad=True)
        made = F.embedding(at, table, padding, scale_grad_by_freq=True, sparse=sparse)
        (made * st.from_numpy(numbers(4, 3, seed=1))).sum().backward()
        found.append(table.grad)
    assert isinstance(found[0], SparseGradient)
    assert np.allclose(found[0].to_dense(), found[1])
    assert np.allclose(found[1][2], numbers(4, 3, seed=1)[[0, 2]].mean(0))


def test_second_gradients_by_frequency():
    at, table = st.tensor([[2, 0], [2, 1]]), st.tensor(numbers(4, 3), requires_grad=True)
    factor = st.tensor(numbers(2, 2, 3), requires_grad=True)
    (first,) = grad((F.embedding(at, table, 0, scale_grad_by_freq=True) * factor).sum(), table, create_graph=True)
    (second,) = grad(first.sum(), factor)  # of a factor: how much of it the table's gradient has
    assert second.tolist() == [[[0.5] * 3, [0] * 3], [[0.5] * 3, [1] * 3]]


@pytest.mark.torch
def test_embeddings_by_frequency_beside_torch():
    at = np.array([[2, 0], [2, 1]])
    beside_torch("embedding", at, numbers(4, 3), second=False, scale_grad_by_freq=True)
    beside_torch("embedding_bag", at, numbers(4, 3), second=False, mode="sum", scale_grad_by_freq=True)


def test_one_element_on_a_grid():
    x = st.tensor([[[[3.0]]]])
    grid = st.tensor([[[[-5.0, 0.5], [0.0, 9.0]]]])
    made = F.grid_sample(x, grid, padding_mode="reflection", align_corners=True)
    assert made.tolist() == [[[[3, 3]]]]


def test_fractional_pooling_without_samples():
    x = st.from_numpy(numbers(3, 7, 6))
    random = st.rand(1, 3, 2, dtype=st.float64)
    made, at = F.fractional_max_pool2d(x, 2, (3, 4), return_indices=True, _random_samples=random)
    wide = F.fractional_max_pool2d(x.unsqueeze(0), 2, (3, 4), _random_samples=random)
    assert made.shape == at.shape == (3, 3, 4) and np.array_equal(made, wide[0])
    assert np.array_equal(x.reshape(3, -1).gather(1, at.reshape(3, -1)), made.reshape(3, -1))


def test_windows_of_one_element_with_a_bias():
    x, weight, bias = numbers(2, 3, 5), numbers(4, 3, 1), numbers(4)
    for kind in ("float64", "float32", "float16", "complex128"):
        made = F.conv1d(*[st.tensor(one).to(kind) for one in (x, weight, bias)])
        wanted = np.einsum("ncl,oc->nol", x, weight[:, :, 0]) + bias[:, None]
        assert str(made.dtype).endswith(kind) and np.allclose(made.numpy(), wanted, 0.02, 0.02)


def test_dropouts():
    x = st.full((50, 4), 2.0)
    assert F.alpha_dropout(x, 1.0, training=True).tolist() == [[0] * 4] * 50
    y = x.clone()
    assert F.alpha_dropout(y, 1.0, training=True, inplace=True) is y and not y.any()
    for name, shape in (("dropout1d", (50, 4)), ("dropout3d", (50, 2, 1, 2))):
        y = st.ones(*shape)
        made = getattr(F, name)(y)
        assert made.shape == shape and y.all()
        rows = made.reshape(50, 4)
        assert {tuple(row) for row in rows.tolist()} == {(0,) * 4, (2,) * 4}  # whole channels
        assert getattr(F, name)(y, inplace=True) is y
        assert {tuple(row) for row in y.reshape(50, 4).tolist()} == {(0,) * 4, (2,) * 4}


def test_dropout_of_attention():
    x = st.from_numpy(numbers(2, 3, 4))
    assert F.scaled_dot_product_attention(x, x, x, dropout_p=1.0).tolist() == z(2, 3, 4).tolist()
    kept = F.scaled_dot_product_attention(x, x, st.ones(2, 3, 4, dtype=st.float64), dropout_p=0.5)
    assert (kept >= 0).all() and np.allclose(kept[..., :1], kept) and not np.allclose(kept, 1)
    layer = st.nn.MultiheadAttention(4, 2, dropout=1.0, bias=False)
    made, weights = layer(x.float(), x.float(), x.float())
    assert not made.any() and not weights.any()
    assert layer.eval()(x.float(), x.float(), x.float())[0].any()


@pytest.mark.torch
def test_attention_beside_torch():
    x, weight, out = numbers(3, 2, 4), numbers(12, 4), numbers(4, 4, seed=2)
    name, rest = "multi_head_attention_forward", (None, None, None, False, 0.0, out, None)
    for static in ({"static_k": numbers(4, 5, 2)}, {"static_v": numbers(4, 3, 2)}):
        if "static_k" in static:
            static["static_v"] = numbers(4, 5, 2, seed=4)
        beside_torch(name, x, x, x, 4, 2, weight, *rest, second=False, **static)
    mask = np.triu(np.full((3, 3), -math.inf), 1)
    beside_torch(
        name, x, x, x, 4, 2, weight, *rest, second=False, attn_mask=fixed(mask), is_causal=True, need_weights=False
    )


def test_ctc_without_samples():
    scores = st.from_numpy(numbers(6, 1, 4)).log_softmax(-1)
    target = st.tensor([[1, 2]])
    for reduction, shape in (("none", ()), ("sum", ()), ("mean", ())):
        one = F.ctc_loss(scores[:, 0], target[0], 6, 2, reduction=reduction)
        assert one.shape == shape
        assert np.allclose(one, F.ctc_loss(scores, target, [6], [2], reduction=reduction))
    blanks = F.ctc_loss(scores, z(1, 0, dtype="int64"), [6], [0], reduction="sum")  # no labels: each step is blank
    assert np.allclose(blanks, -scores[:, 0, 0].sum())


@pytest.mark.parametrize(
    ("average", "reduce", "reduction"), [(None, False, "none"), (False, None, "sum"), (True, True, "mean")]
)
def test_older_arguments_of_losses(average, reduce, reduction):
    x, y = st.from_numpy(numbers(2, 3)), st.from_numpy(numbers(2, 3, seed=1))
    for name, args in (("l1_loss", (y,)), ("multi_margin_loss", (st.tensor([0, 2]),))):
        loss = getattr(F, name)
        assert np.array_equal(loss(x, *args, size_average=average, reduce=reduce), loss(x, *args, reduction=reduction))
