"""Layers beside torch's: the same state gives the same results, gradients, keys and text."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import shmtensor as st

pytestmark = pytest.mark.torch
torch: Any = pytest.importorskip("torch")


def case(name: str, *args: Any, to: Any = (2, 3, 5), seed: int = 0, text: str = "", **how: Any) -> Any:
    """A layer, its arguments, and shapes or values of its inputs."""
    shown = ", ".join([*map(str, args), *[f"{key}={value}" for key, value in how.items()], text])
    return pytest.param(name, args, how, to if isinstance(to, list) else [to], id=f"{name}({shown})"[:80])


def classes(*shape: int, below: int) -> Any:
    return np.random.default_rng(1).integers(0, below, shape)


IMAGE, SIGNAL, VOLUME = (2, 4, 8, 7), (2, 4, 9), (2, 4, 5, 6, 7)
CASES = [
    case("Identity"), case("Linear", 5, 4), case("Linear", 5, 4, bias=False), case("Linear", 5, 4, to=(5,)),
    case("Bilinear", 5, 4, 3, to=[(2, 5), (2, 4)]), case("Bilinear", 5, 4, 3, bias=False, to=[(2, 5), (2, 4)]),
    case("Conv1d", 4, 6, 3, to=SIGNAL), case("Conv1d", 4, 6, 3, 2, 1, 2, groups=2, to=SIGNAL),
    case("Conv1d", 4, 6, 3, padding=2, padding_mode="circular", to=SIGNAL),
    case("Conv2d", 4, 6, 3, to=IMAGE),
    case("Conv2d", 4, 6, (3, 2), stride=(1, 2), padding=(2, 1), bias=False, to=IMAGE),
    case("Conv2d", 4, 4, 3, padding="same", to=IMAGE), case("Conv2d", 4, 4, 3, padding="valid", to=IMAGE),
    case("Conv2d", 4, 4, (3, 4), padding="same", padding_mode="reflect", dilation=2, to=IMAGE),
    case("Conv2d", 4, 4, 3, padding=1, padding_mode="replicate", to=IMAGE),
    case("Conv2d", 4, 8, 3, groups=4, dilation=2, to=IMAGE), case("Conv2d", 4, 6, 3, to=(4, 8, 7)),
    case("Conv3d", 4, 2, 3, padding=1, to=VOLUME),
    case("ConvTranspose1d", 4, 6, 3, stride=2, to=SIGNAL),
    case("ConvTranspose2d", 4, 6, 3, 2, 1, 1, groups=2, to=IMAGE),
    case("ConvTranspose2d", 4, 6, 3, dilation=2, to=IMAGE),
    case("ConvTranspose3d", 4, 2, 2, to=VOLUME),
    case("MaxPool1d", 3, to=SIGNAL), case("MaxPool2d", 3, 2, 1, to=IMAGE),
    case("MaxPool2d", 2, ceil_mode=True, to=IMAGE),
    case("MaxPool2d", 2, return_indices=True, to=IMAGE), case("MaxPool3d", 2, to=VOLUME),
    case("AvgPool1d", 3, to=SIGNAL), case("AvgPool2d", 3, 2, 1, to=IMAGE),
    case("AvgPool2d", (3, 2), padding=1, count_include_pad=False, divisor_override=5, to=IMAGE),
    case("AvgPool3d", 2, to=VOLUME),
    case("LPPool1d", 2, 3, to=SIGNAL), case("LPPool2d", 4, 2, 1, to=IMAGE), case("LPPool3d", 2, 2, to=VOLUME),
    case("AdaptiveAvgPool1d", 4, to=SIGNAL), case("AdaptiveAvgPool2d", (3, None), to=IMAGE),
    case("AdaptiveAvgPool3d", 2, to=VOLUME),
    case("AdaptiveMaxPool1d", 4, to=SIGNAL), case("AdaptiveMaxPool2d", 3, return_indices=True, to=IMAGE),
    case("AdaptiveMaxPool3d", 2, to=VOLUME),
    case("ConstantPad1d", 2, 1.5, to=SIGNAL), case("ConstantPad2d", (1, 2, 0, 1), 1.5, to=IMAGE),
    case("ConstantPad3d", 1, 0.5, to=VOLUME), case("ZeroPad1d", 1, to=SIGNAL),
    case("ZeroPad2d", (1, 0, 2, 1), to=IMAGE),
    case("ZeroPad3d", 1, to=VOLUME), case("ReflectionPad1d", 2, to=SIGNAL),
    case("ReflectionPad2d", (1, 2, 3, 0), to=IMAGE),
    case("ReflectionPad3d", 1, to=VOLUME), case("ReplicationPad1d", 2, to=SIGNAL),
    case("ReplicationPad2d", 2, to=IMAGE), case("ReplicationPad3d", 1, to=VOLUME), case("CircularPad1d", 2, to=SIGNAL),
    case("CircularPad2d", (1, 2, 3, 0), to=IMAGE), case("CircularPad3d", 1, to=VOLUME),
    case("ReLU"), case("ReLU", inplace=True), case("ReLU6"), case("Hardtanh"), case("Hardtanh", -0.5, 0.25),
    case("Hardsigmoid"), case("Hardswish"), case("SELU"), case("SiLU"), case("Mish"), case("ELU", 0.5),
    case("CELU", 0.5), case("LeakyReLU", 0.2), case("PReLU"), case("PReLU", 3, 0.1), case("GELU"),
    case("GELU", approximate="tanh"), case("GLU", to=(2, 6)), case("Softplus", 2, 1), case("Hardshrink", 0.3),
    case("Softshrink", 0.3), case("Sigmoid"), case("Tanh"), case("LogSigmoid"), case("Softsign"), case("Tanhshrink"),
    case("Threshold", 0.1, 20), case("Softmax", 1), case("LogSoftmax", -1), case("Softmin", 0),
    case("Softmax2d", to=IMAGE),
    case("BatchNorm1d", 4, to=(6, 4)), case("BatchNorm1d", 4, to=SIGNAL),
    case("BatchNorm2d", 4, momentum=None, to=IMAGE),
    case("BatchNorm2d", 4, affine=False, to=IMAGE), case("BatchNorm2d", 4, track_running_stats=False, to=IMAGE),
    case("BatchNorm3d", 4, eps=1e-3, to=VOLUME),
    case("InstanceNorm1d", 4, to=SIGNAL), case("InstanceNorm2d", 4, affine=True, to=IMAGE),
    case("InstanceNorm2d", 4, track_running_stats=True, to=IMAGE), case("InstanceNorm2d", 4, to=(4, 8, 7)),
    case("InstanceNorm3d", 4, to=VOLUME),
    case("LayerNorm", 5), case("LayerNorm", (3, 5), eps=1e-3), case("LayerNorm", 5, bias=False),
    case("LayerNorm", 5, elementwise_affine=False), case("GroupNorm", 2, 4, to=IMAGE),
    case("GroupNorm", 2, 4, affine=False, to=IMAGE), case("RMSNorm", 5), case("RMSNorm", (3, 5), eps=1e-3),
    case("LocalResponseNorm", 3, to=IMAGE),
    case("Embedding", 10, 4, to=[classes(3, 5, below=10)]),
    case("Embedding", 10, 4, padding_idx=-2, to=[classes(3, 5, below=10)]),
    case("Embedding", 10, 4, max_norm=1.0, scale_grad_by_freq=True, to=[classes(3, 5, below=10)]),
    case("EmbeddingBag", 10, 4, to=[classes(3, 5, below=10)]),
    case("EmbeddingBag", 10, 4, mode="sum", padding_idx=2, to=[classes(7, below=10), np.array([0, 3, 3])]),
    case("EmbeddingBag", 10, 4, mode="max", to=[classes(3, 5, below=10)]),
    case("Dropout", 0.0), case("Dropout1d", 0.0), case("Dropout2d", 0.0, to=IMAGE), case("Dropout3d", 0.0, to=VOLUME),
    case("AlphaDropout", 0.0), case("FeatureAlphaDropout", 0.0),
    case("Flatten"), case("Flatten", 0, 1), case("Unflatten", 1, (1, 3)),
    case("Fold", (4, 5), 2, to=(2, 12, 12)), case("Unfold", 2, 1, 1, 2, to=IMAGE),
    case("Upsample", scale_factor=2, to=IMAGE), case("Upsample", (5, 6), mode="bilinear", align_corners=True, to=IMAGE),
    case("Upsample", scale_factor=(2.0, 1.5), mode="bicubic", to=IMAGE),
    case("UpsamplingNearest2d", scale_factor=2, to=IMAGE),
    case("UpsamplingBilinear2d", (5, 6), to=IMAGE), case("PixelShuffle", 2, to=IMAGE),
    case("PixelUnshuffle", 2, to=(2, 4, 8, 6)), case("ChannelShuffle", 2, to=IMAGE),
    case("PairwiseDistance", to=[(3, 5), (3, 5)]), case("PairwiseDistance", 1, keepdim=True, to=[(3, 5), (3, 5)]),
    case("CosineSimilarity", to=[(3, 5), (3, 5)]),
    case("MultiheadAttention", 6, 2, to=[(4, 2, 6)] * 3), case("MultiheadAttention", 6, 2, to=[(4, 6)] * 3),
    case("MultiheadAttention", 6, 3, bias=False, add_zero_attn=True, batch_first=True, to=[(2, 4, 6)] * 3),
    case("MultiheadAttention", 6, 2, add_bias_kv=True, kdim=3, vdim=5, to=[(4, 2, 6), (7, 2, 3), (7, 2, 5)]),
    case("TransformerEncoderLayer", 6, 2, 8, 0.0, to=(4, 2, 6)),
    case("TransformerEncoderLayer", 6, 2, 8, 0.0, "gelu", batch_first=True, norm_first=True, to=(2, 4, 6)),
    case("TransformerDecoderLayer", 6, 2, 8, 0.0, to=[(4, 2, 6), (5, 2, 6)]),
    case("TransformerDecoderLayer", 6, 2, 8, 0.0, norm_first=True, bias=False, to=[(4, 2, 6), (5, 2, 6)]),
    case("Transformer", 6, 2, 1, 2, 8, 0.0, to=[(5, 2, 6), (4, 2, 6)]),
    case("RNN", 5, 4, to=(3, 2, 5)), case("RNN", 5, 4, 2, "relu", batch_first=True, bidirectional=True),
    case("LSTM", 5, 4, to=(3, 5)), case("LSTM", 5, 4, 2, bidirectional=True), case("LSTM", 5, 4, bias=False),
    case("LSTM", 5, 4, 2, proj_size=3, bidirectional=True), case("LSTM", 5, 4, to=[(6, 3, 5), ((1, 3, 4), (1, 3, 4))]),
    case("GRU", 5, 4), case("GRU", 5, 4, 2, bias=False, batch_first=True, bidirectional=True),
    case("GRU", 5, 4, to=[(6, 3, 5), (1, 3, 4)]),
    case("RNNCell", 5, 4, to=(3, 5)), case("RNNCell", 5, 4, nonlinearity="relu", to=[(3, 5), (3, 4)]),
    case("LSTMCell", 5, 4, to=(3, 5)), case("LSTMCell", 5, 4, bias=False, to=[(5,), ((4,), (4,))]),
    case("GRUCell", 5, 4, to=[(3, 5), (3, 4)]),
    case("L1Loss", to=[(3, 5), (3, 5)]), case("MSELoss", reduction="sum", to=[(3, 5), (3, 5)]),
    case("NLLLoss", to=[(3, 5), classes(3, below=5)]), case("CrossEntropyLoss", to=[(3, 5), classes(3, below=5)]),
    case("CrossEntropyLoss", ignore_index=1, to=[(6, 5), classes(6, below=5)]),
    case("CrossEntropyLoss", ignore_index=1, label_smoothing=0.1, to=[(3, 5, 2), classes(3, 2, below=5)]),
    case("PoissonNLLLoss", to=[(3, 5), (3, 5)]),
    case("GaussianNLLLoss", full=True, to=[(3, 5), (3, 5), np.full((3, 1), 0.5)]),
    case("KLDivLoss", reduction="batchmean", log_target=True, to=[(3, 5), (3, 5)]),
    case("BCELoss", to=[np.linspace(0.1, 0.9, 6), np.linspace(0.2, 0.7, 6)]),
    case("BCEWithLogitsLoss", reduction="none", to=[(3, 5), np.full((3, 5), 0.25)]),
    case("HingeEmbeddingLoss", 0.5, to=[(6,), np.array([1.0, -1, 1, -1, 1, -1])]),
    case("MultiLabelMarginLoss", to=[(2, 4), np.array([[3, 0, -1, 1], [1, -1, 0, 0]])]),
    case("SmoothL1Loss", beta=0.5, to=[(3, 5), (3, 5)]), case("HuberLoss", delta=0.5, to=[(3, 5), (3, 5)]),
    case("SoftMarginLoss", to=[(6,), np.array([1.0, -1, 1, -1, 1, -1])]),
    case("MultiLabelSoftMarginLoss", to=[(2, 4), np.eye(2, 4)]),
    case("CosineEmbeddingLoss", 0.1, to=[(3, 5), (3, 5), np.array([1.0, -1, 1])]),
    case("MarginRankingLoss", 0.1, to=[(3,), (3,), np.array([1.0, -1, 1])]),
    case("MultiMarginLoss", 2, 0.5, to=[(3, 5), classes(3, below=5)]),
    case("TripletMarginLoss", 0.5, swap=True, to=[(3, 5), (3, 5), (3, 5)]),
    case("TripletMarginWithDistanceLoss", to=[(3, 5), (3, 5), (3, 5)]),
    case("CTCLoss", to=[np.log(np.full((6, 2, 4), 0.25)), np.array([[1, 2], [3, 1]]), np.array([6, 5]), np.array([2,
         1])]),
]  # fmt: skip


def pair(name: str, args: Any, how: Any) -> tuple[Any, Any]:
    """torch's layer and ours, of float64, with torch's state in both."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = getattr(torch.nn, name)(*args, **how).double()
    ours = getattr(st.nn, name)(*args, **how).double()
    with torch.no_grad():
        for tensor in (*theirs.parameters(), *theirs.buffers()):
            if tensor.is_floating_point() and tensor.numel():
                tensor.add_(torch.rand_like(tensor) * 0.1)
    state = {key: st.asarray(value.detach().numpy().copy()) for key, value in theirs.state_dict().items()}
    assert repr(ours.load_state_dict(state)) == "<All keys matched successfully>"
    return theirs, ours


def inputs_of(to: list[Any], library: Any, *, recorded: bool = False) -> list[Any]:
    """Random tensors of shapes, and given values; `recorded`: the random ones require gradients."""
    random = np.random.default_rng(7)

    def make(one: Any) -> Any:
        if isinstance(one, tuple) and one and isinstance(one[0], tuple):
            return tuple([make(part) for part in one])
        values = random.standard_normal(one) if isinstance(one, tuple) else one
        tensor = library.asarray(values.copy())
        return tensor.requires_grad_() if recorded and isinstance(one, tuple) else tensor

    return [make(one) for one in to]


def flat(result: Any) -> list[Any]:
    if isinstance(result, tuple | list):
        return [tensor for part in result for tensor in flat(part)]
    return [] if result is None else [result]


def assert_same(ours: Any, theirs: Any, within: float = 1e-10) -> None:
    found, wanted = np.asarray(ours.detach()), theirs.detach().numpy()
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=within, atol=within)


@pytest.mark.parametrize(("name", "args", "how", "to"), CASES)
def test_a_layer_computes_what_torch_computes(name: str, args: Any, how: Any, to: Any) -> None:
    theirs, ours = pair(name, args, how)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for mode in (True, False):
        results = flat(ours.train(mode)(*inputs_of(to, st))), flat(theirs.train(mode)(*inputs_of(to, torch)))
        assert len(results[0]) == len(results[1])
        for mine, other in zip(*results, strict=True):
            assert_same(mine, other)
    for key, value in theirs.state_dict().items():
        assert_same(ours.state_dict()[key], value)


@pytest.mark.parametrize(("name", "args", "how", "to"), CASES)
def test_a_layer_has_torchs_text(name: str, args: Any, how: Any, to: Any) -> None:
    theirs, ours = pair(name, args, how)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize(("name", "args", "how", "to"), CASES)
def test_a_layer_has_torchs_gradients(name: str, args: Any, how: Any, to: Any) -> None:
    theirs, ours = pair(name, args, how)
    gradients = []
    for layer, library in ((ours, st), (theirs, torch)):
        given = inputs_of(to, library, recorded=True)
        if how.get("inplace"):
            given = [one.clone() for one in given]
        leaves = [one for one in flat(given) if one.is_leaf and one.requires_grad]
        results = [one for one in flat(layer(*given)) if one.requires_grad]
        if not results:
            return
        of_results = [library.asarray(np.cos(np.arange(one.numel())).reshape(one.shape)) for one in results]
        library.autograd.backward(results, of_results)
        gradients.append([one.grad for one in [*leaves, *layer.parameters()]])
    assert len(gradients[0]) == len(gradients[1])
    for mine, other in zip(*gradients, strict=True):
        assert (mine is None) == (other is None)
        if other is not None:
            assert_same(mine, other)


def signature(made: Any) -> list[tuple[str, Any]]:
    import inspect

    parameters = inspect.signature(made).parameters.values()
    return [(one.name, one.default) for one in parameters]


@pytest.mark.parametrize("name", sorted(set(st.nn.__all__) - {"functional", "init", "modules", "parameter", "utils"}))
def test_a_class_has_torchs_arguments(name: str) -> None:
    mine, other = signature(getattr(st.nn, name)), signature(getattr(torch.nn, name))
    variable = {"args", "kwargs"} & {one for one, _ in other}
    if variable:
        return
    assert [one for one, _ in mine] == [one for one, _ in other]
    for (_, own), (_, wanted) in zip(mine, other, strict=True):
        assert own == wanted or callable(wanted)
