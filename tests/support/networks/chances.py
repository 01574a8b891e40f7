"""Layers that are random in training. torch's layers use the random numbers that ours drew."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from networks.draws import Call, Draws, Layer, Step

LEAST = 1.7580993408473766
"""The absolute value of the minimum of SELU."""


def _drawn(call: Call) -> tuple[Any, Any]:
    """The results of our layer for the input and, with the same random numbers, for minus ones."""
    layer = call.layers[0]
    call.library.manual_seed(call.number)
    of_ones = layer(-call.library.ones_like(call.x.detach()))
    call.library.manual_seed(call.number)
    return layer(call.x), of_ones.numpy()


def dropped(call: Call) -> Any:
    """Dropout, also by channel and for results of SELU."""
    layer = call.layers[0]
    if not layer.training or layer.p in (0, 1):
        return layer(call.x)
    alpha = "Alpha" in type(layer).__name__
    scale = 1 / math.sqrt((1 - layer.p) * (1 + layer.p * LEAST**2))
    shift = scale * LEAST * layer.p
    if call.library.__name__ == "shmtensor":
        made, of_ones = _drawn(call)
        kept = of_ones > (shift - 1.3 * scale) if alpha else of_ones != 0
        if "Feature" in type(layer).__name__ or type(layer).__name__.endswith("d"):
            channels = kept.reshape(*kept.shape[:2], -1)
            assert (channels == channels[:, :, :1]).all()
        call.masks[call.number] = kept.astype(float)
        return made
    if call.number not in call.masks:
        return layer(call.x)
    mask = call.library.from_numpy(call.masks[call.number])
    if not alpha:
        return call.x * mask / (1 - layer.p)
    return (call.x * mask - LEAST * (1 - mask)) * scale + shift


def sloped(call: Call) -> Any:
    """RReLU."""
    layer = call.layers[0]
    if not layer.training:
        return layer(call.x)
    if call.library.__name__ == "shmtensor":
        made, of_ones = _drawn(call)
        call.masks[call.number] = np.array(-of_ones)
        return made
    if call.number not in call.masks:
        return layer(call.x)
    return call.library.where(call.x > 0, call.x, call.x * call.library.from_numpy(call.masks[call.number]))


def dropout(name: str) -> Any:
    def draw(r: Draws, shape: Any) -> Step:
        return Step(dropped, (Layer(name, (r.one_of(0.0, 0.3, 0.6, 1.0 if name == "Dropout" else 0.5),)),))

    return draw


def rrelu(r: Draws, shape: Any) -> Step:
    return Step(sloped, (Layer("RReLU", (0.1, r.one_of(0.1, 0.4))),))


CHANCES: dict[str, Any] = {
    **{name: (dropout(name), (2, 3, 4, 5)) for name in ("Dropout", "AlphaDropout", "FeatureAlphaDropout")},
    "RReLU": (rrelu, (2, 3, 4, 5)),
}
"""The function that draws a layer of each name, and the numbers of axes."""
