"""Layers on (samples, channels, ...): convolutions, pooling, padding, normalisation of channels, changes of shape."""

from __future__ import annotations

from typing import Any

from networks.chances import dropped
from networks.draws import Call, Draws, Layer, Step, plain, require, step

MODES = {3: ("nearest", "linear"), 4: ("nearest", "bilinear", "bicubic", "nearest-exact"), 5: ("nearest", "trilinear")}
"""Modes of interpolation by the number of axes."""


def conv(r: Draws, shape: Any, axes: int) -> Step:
    groups = r.one_of(*[n for n in range(1, shape[1] + 1) if shape[1] % n == 0])
    padding = r.one_of("same", "valid", r.sizes(axes, 0, 2), r.sizes(axes, 0, 2))
    stride = 1 if padding == "same" else r.sizes(axes, 1, 2)
    mode = r.one_of("zeros", "zeros", "reflect", "replicate", "circular")
    return step(
        f"Conv{axes}d", shape[1], groups * r.number(1, 2), r.sizes(axes, 1, 3), stride=stride, padding=padding,
        dilation=r.sizes(axes, 1, 2), groups=groups, bias=r.chance(0.7), padding_mode=mode,
    )  # fmt: skip


def conv_transpose(r: Draws, shape: Any, axes: int) -> Step:
    groups = r.one_of(*[n for n in range(1, shape[1] + 1) if shape[1] % n == 0])
    stride = r.number(1, 2)
    return step(
        f"ConvTranspose{axes}d", shape[1], groups * r.number(1, 2), r.sizes(axes, 1, 3), stride, r.sizes(axes, 0, 1),
        output_padding=r.number(0, stride - 1), groups=groups, bias=r.chance(0.7), dilation=r.sizes(axes, 1, 2),
    )  # fmt: skip


def _pooled(call: Call) -> Any:
    made = call.layers[0](call.x)
    if call.layers[0].return_indices:
        made, found = made
        call.sides.append(made * found)
    return made


def max_pool(r: Draws, shape: Any, axes: int) -> Step:
    how = {"padding": r.number(0, 1), "dilation": r.sizes(axes, 1, 2), "return_indices": r.chance()}
    stride = r.one_of(None, r.sizes(axes, 1, 3))
    return Step(_pooled, (Layer(f"MaxPool{axes}d", (r.sizes(axes, 2, 3), stride), how | {"ceil_mode": r.chance()}),))


def _unpooled(call: Call) -> Any:
    pool, unpool = call.layers
    made, found = pool(call.x)
    return unpool(made, found, output_size=call.x.shape)


def max_unpool(r: Draws, shape: Any, axes: int) -> Step:
    size = r.sizes(axes, 2, 3)
    pool = Layer(f"MaxPool{axes}d", (size,), {"return_indices": True})
    return Step(_unpooled, (pool, Layer(f"MaxUnpool{axes}d", (size,))))


def avg_pool(r: Draws, shape: Any, axes: int) -> Step:
    how = {} if axes == 1 else {"divisor_override": r.one_of(None, r.number(1, 5))}
    return step(
        f"AvgPool{axes}d", r.number(2, 3) if axes == 1 else r.sizes(axes, 2, 3), r.one_of(None, r.number(1, 3)),
        r.number(0, 1), r.chance(), r.chance(), **how,
    )  # fmt: skip


def lp_pool(r: Draws, shape: Any, axes: int) -> Step:
    size = r.number(1, 3) if axes == 1 else r.sizes(axes, 1, 3)
    return step(f"LPPool{axes}d", r.one_of(1, 2.0, 4), size, r.one_of(None, r.number(1, 2)), r.chance())


def adaptive_avg_pool(r: Draws, shape: Any, axes: int) -> Step:
    return step(f"AdaptiveAvgPool{axes}d", _adaptive(r, axes))


def adaptive_max_pool(r: Draws, shape: Any, axes: int) -> Step:
    return Step(_pooled, (Layer(f"AdaptiveMaxPool{axes}d", (_adaptive(r, axes), r.chance())),))


def _adaptive(r: Draws, axes: int) -> Any:
    if axes == 1 or r.chance(0.4):
        return r.number(1, 4)
    return tuple([r.one_of(None, r.number(1, 4)) for _ in range(axes)])


def fractional_max_pool(r: Draws, shape: Any, axes: int) -> Step:
    require(min(shape[2:]) >= 3)
    size = (
        {"output_size": r.sizes(axes, 1, 2)}
        if r.chance()
        else {"output_ratio": tuple(r.random.uniform(0.4, 0.7, axes))}
    )
    samples = {"_random_samples": r.positive(*shape[:2], axes), "return_indices": r.chance()}
    return Step(_pooled, (Layer(f"FractionalMaxPool{axes}d", (r.sizes(axes, 1, 2),), size | samples),))


def _amounts(r: Draws, axes: int, low: int = 0) -> Any:
    return r.number(1, 2) if r.chance() else tuple([r.number(low, 2) for _ in range(2 * axes)])


def constant_pad(r: Draws, shape: Any, axes: int) -> Step:
    return step(f"ConstantPad{axes}d", _amounts(r, axes, -1), r.one_of(0.5, -1.5))


def zero_pad(r: Draws, shape: Any, axes: int) -> Step:
    return step(f"ZeroPad{axes}d", _amounts(r, axes, -1))


def reflection_pad(r: Draws, shape: Any, axes: int) -> Step:
    return step(f"ReflectionPad{axes}d", _amounts(r, axes))


def replication_pad(r: Draws, shape: Any, axes: int) -> Step:
    return step(f"ReplicationPad{axes}d", _amounts(r, axes))


def circular_pad(r: Draws, shape: Any, axes: int) -> Step:
    return step(f"CircularPad{axes}d", _amounts(r, axes))


def batch_norm(r: Draws, shape: Any, axes: int) -> Step:
    return step(
        f"BatchNorm{axes}d", shape[1], r.one_of(1e-5, 1e-2), r.one_of(0.1, 0.7, None), r.chance(0.7), r.chance(0.7)
    )


def instance_norm(r: Draws, shape: Any, axes: int) -> Step:
    require(min(shape[2:]) > 1)
    return step(f"InstanceNorm{axes}d", shape[1], r.one_of(1e-5, 1e-2), r.one_of(0.1, 0.7), r.chance(), r.chance())


def dropout(r: Draws, shape: Any, axes: int) -> Step:
    return Step(dropped, (Layer(f"Dropout{axes}d", (r.one_of(0.0, 0.3, 0.6),)),))


BY_AXES: dict[str, Any] = {
    "Conv{}d": conv, "ConvTranspose{}d": conv_transpose, "MaxPool{}d": max_pool, "MaxUnpool{}d": max_unpool,
    "AvgPool{}d": avg_pool, "LPPool{}d": lp_pool, "AdaptiveAvgPool{}d": adaptive_avg_pool,
    "AdaptiveMaxPool{}d": adaptive_max_pool, "FractionalMaxPool{}d": fractional_max_pool,
    "ConstantPad{}d": constant_pad, "ZeroPad{}d": zero_pad, "ReflectionPad{}d": reflection_pad,
    "ReplicationPad{}d": replication_pad, "CircularPad{}d": circular_pad, "BatchNorm{}d": batch_norm,
    "InstanceNorm{}d": instance_norm, "Dropout{}d": dropout,
}  # fmt: skip
"""The function that draws a layer whose name has the number of axes after the channels."""


def group_norm(r: Draws, shape: Any) -> Step:
    groups = r.one_of(*[n for n in range(1, shape[1] + 1) if shape[1] % n == 0])
    require(len(shape) > 2 or groups < shape[1])
    return step("GroupNorm", groups, shape[1], r.one_of(1e-5, 1e-2), r.chance(0.7))


def local_response_norm(r: Draws, shape: Any) -> Step:
    return step("LocalResponseNorm", r.number(1, 4), r.one_of(1e-4, 0.1), r.one_of(0.75, 1.5), r.one_of(1.0, 2.0))


def upsample(r: Draws, shape: Any) -> Step:
    axes, mode = len(shape) - 2, r.one_of(*MODES[len(shape)])
    how: dict[str, Any] = {} if "nearest" in mode else {"align_corners": r.one_of(None, False, True)}
    if r.chance():
        return step("Upsample", r.sizes(axes, 1, 7), None, mode, **how)
    scale = r.one_of(2, 1.5, tuple([r.one_of(0.7, 1.5, 2.0) for _ in range(axes)]))
    return step("Upsample", None, scale, mode, **how, recompute_scale_factor=r.one_of(None, True))


def upsampling_nearest(r: Draws, shape: Any) -> Step:
    return step("UpsamplingNearest2d", r.sizes(2, 1, 7)) if r.chance() else step("UpsamplingNearest2d", None, 1.5)


def upsampling_bilinear(r: Draws, shape: Any) -> Step:
    return step("UpsamplingBilinear2d", r.sizes(2, 1, 7)) if r.chance() else step("UpsamplingBilinear2d", None, 1.5)


def pixel_shuffle(r: Draws, shape: Any) -> Step:
    return step("PixelShuffle", r.one_of(1, 2))


def pixel_unshuffle(r: Draws, shape: Any) -> Step:
    return step("PixelUnshuffle", r.one_of(1, 2, 3))


def channel_shuffle(r: Draws, shape: Any) -> Step:
    return step("ChannelShuffle", r.one_of(*[n for n in range(1, shape[1] + 1) if shape[1] % n == 0]))


def unfold(r: Draws, shape: Any) -> Step:
    how = {"dilation": r.sizes(2, 1, 2), "padding": r.sizes(2, 0, 1), "stride": r.sizes(2, 1, 2)}
    return step("Unfold", r.sizes(2, 1, 3), **how)


def fold(r: Draws, shape: Any) -> Step:
    one = unfold(r, shape).layers[0]
    return Step(plain, (Layer("Sequential", (one, Layer("Fold", (shape[2:], *one.args), one.how))),))


SPATIAL: dict[str, Any] = {
    "GroupNorm": (group_norm, (2, 3, 4, 5)), "LocalResponseNorm": (local_response_norm, (3, 4, 5)),
    "Upsample": (upsample, (3, 4, 5)), "UpsamplingNearest2d": (upsampling_nearest, (4,)),
    "UpsamplingBilinear2d": (upsampling_bilinear, (4,)), "PixelShuffle": (pixel_shuffle, (4,)),
    "PixelUnshuffle": (pixel_unshuffle, (4,)), "ChannelShuffle": (channel_shuffle, (3, 4, 5)),
    "Unfold": (unfold, (4,)), "Fold": (fold, (4,)),
}  # fmt: skip
"""The function that draws a layer of another name, and the numbers of axes."""


def _of(function: Any, axes: int) -> Any:
    return lambda r, shape: function(r, shape, axes)


for _name, _function in BY_AXES.items():
    for _axes in (2, 3) if "Fractional" in _name else (1, 2, 3):
        SPATIAL[_name.format(_axes)] = (_of(_function, _axes), (_axes + 2,))
