"""Layers on tensors of any axes: activations, affine maps and norms of the last axes, changes of shape, containers."""

from __future__ import annotations

from typing import Any

from networks.draws import Call, Draws, Layer, Step, leaf, require, step

ANY = (2, 3, 4, 5)
ARGUMENTS: dict[str, Any] = {
    "Identity": lambda r: (),
    "CELU": lambda r: (r.one_of(0.5, 1.5), r.chance()),
    "ELU": lambda r: (r.one_of(0.5, 1.5), r.chance()),
    "SELU": lambda r: (r.chance(),),
    "GELU": lambda r: (r.one_of("none", "tanh"),),
    "Hardshrink": lambda r: (r.one_of(0.1, 0.5),),
    "Softshrink": lambda r: (r.one_of(0.1, 0.5),),
    "Hardsigmoid": lambda r: (r.chance(),),
    "Hardswish": lambda r: (r.chance(),),
    "Hardtanh": lambda r: (-r.one_of(0.5, 1.0), r.one_of(0.5, 2.0), r.chance()),
    "LeakyReLU": lambda r: (r.one_of(0.01, 0.3), r.chance()),
    "LogSigmoid": lambda r: (),
    "Mish": lambda r: (r.chance(),),
    "ReLU": lambda r: (r.chance(),),
    "ReLU6": lambda r: (r.chance(),),
    "Sigmoid": lambda r: (),
    "SiLU": lambda r: (r.chance(),),
    "Softplus": lambda r: (r.one_of(1.0, 2.0), r.one_of(20.0, 0.5)),
    "Softsign": lambda r: (),
    "Tanh": lambda r: (),
    "Tanhshrink": lambda r: (),
    "Threshold": lambda r: (r.one_of(0.1, -0.3), r.one_of(2.0, -1.0), r.chance()),
}
"""Arguments of activations."""


def _in_place(call: Call) -> Any:
    """The layer on a copy, since leaves and results that rules need must not change."""
    return call.layers[0](call.x * 1.0)


def activation(name: str) -> Any:
    def draw(r: Draws, shape: Any) -> Step:
        return Step(_in_place, (Layer(name, ARGUMENTS[name](r)),))

    return draw


def softmax(name: str) -> Any:
    def draw(r: Draws, shape: Any) -> Step:
        return step(name, r.number(-len(shape), len(shape) - 1))

    return draw


def glu(r: Draws, shape: Any) -> Step:
    axis = r.one_of(*range(1, len(shape)))
    require(shape[axis] % 2 == 0)
    return step("GLU", axis)


def prelu(r: Draws, shape: Any) -> Step:
    return step("PReLU", r.one_of(1, shape[1]), r.one_of(0.25, 0.1))


def linear(r: Draws, shape: Any) -> Step:
    return step("Linear", shape[-1], r.number(2, 6), r.chance(0.7))


def _with_itself(call: Call) -> Any:
    """The layer on the input, and on the input with other samples."""
    made = call.layers[0](call.x, call.x.roll(1, 0) * call.given["scale"])
    return made if made.ndim > 1 else made.reshape(-1, 1)


def _pair(r: Draws, shape: Any, layer: Layer) -> Step:
    return Step(_with_itself, (layer,), {"scale": leaf(r.positive(shape[-1]))})


def bilinear(r: Draws, shape: Any) -> Step:
    return _pair(r, shape, Layer("Bilinear", (shape[-1], shape[-1], r.number(2, 4), r.chance(0.7))))


def cosine(r: Draws, shape: Any) -> Step:
    return _pair(r, shape, Layer("CosineSimilarity", (r.number(1, len(shape) - 1), r.one_of(1e-8, 1e-3))))


def pairwise(r: Draws, shape: Any) -> Step:
    return _pair(r, shape, Layer("PairwiseDistance", (r.one_of(1.0, 2.0, 3.0), r.one_of(1e-6, 1e-3), r.chance())))


def layer_norm(r: Draws, shape: Any) -> Step:
    sizes = shape[r.number(1, len(shape) - 1) :]
    how = {"elementwise_affine": r.chance(0.7), "bias": r.chance(0.7)}
    return step("LayerNorm", sizes[0] if len(sizes) == 1 and r.chance() else sizes, r.one_of(1e-5, 1e-2), **how)


def rms_norm(r: Draws, shape: Any) -> Step:
    return step("RMSNorm", shape[r.number(1, len(shape) - 1) :], r.one_of(None, 1e-2), r.chance(0.7))


def flatten(r: Draws, shape: Any) -> Step:
    first = r.number(1, len(shape) - 1)
    return step("Flatten", first, r.one_of(-1, r.number(first, len(shape) - 1)))


def unflatten(r: Draws, shape: Any) -> Step:
    axis = r.number(1, len(shape) - 1)
    parts = [n for n in range(2, shape[axis]) if shape[axis] % n == 0]
    require(bool(parts) and len(shape) < 5)
    part = r.one_of(*parts)
    return step("Unflatten", axis, (part, r.one_of(-1, shape[axis] // part)))


def _inner(r: Draws, shape: Any) -> list[Layer]:
    """Some layers that keep the shape."""
    every: list[Any] = [activation("Softplus"), activation("Tanh"), layer_norm, prelu, softmax("LogSoftmax")]
    return [r.one_of(*every)(r, shape).layers[0] for _ in range(r.number(1, 3))] + [
        Layer("Linear", (shape[-1], shape[-1]))
    ]


def sequential(r: Draws, shape: Any) -> Step:
    return step("Sequential", *_inner(r, shape))


def _each(call: Call) -> Any:
    """The sum of all layers' results."""
    held = call.layers[0]
    made = call.x
    for one in held.values() if hasattr(held, "values") else held:
        made = made + one(call.x)
    return made


def module_list(r: Draws, shape: Any) -> Step:
    return Step(_each, (Layer("ModuleList", (_inner(r, shape),)),))


def module_dict(r: Draws, shape: Any) -> Step:
    return Step(_each, (Layer("ModuleDict", ({f"one{i}": one for i, one in enumerate(_inner(r, shape))},)),))


def _scaled(call: Call) -> Any:
    held = call.layers[0]
    made = call.x
    for one in held.values() if hasattr(held, "values") else held:
        made = made * one
    return made


def parameter_list(r: Draws, shape: Any) -> Step:
    return Step(_scaled, (Layer("ParameterList", ([r.values(shape[-1]) for _ in range(r.number(1, 3))],)),))


def parameter_dict(r: Draws, shape: Any) -> Step:
    values = {name: r.values(shape[-1]) for name in "abc"[: r.number(1, 3)]}
    return Step(_scaled, (Layer("ParameterDict", (values,)),))


ELEMENTWISE: dict[str, Any] = {
    **{name: (activation(name), ANY) for name in ARGUMENTS},
    **{name: (softmax(name), ANY) for name in ("Softmax", "LogSoftmax", "Softmin")},
    "Softmax2d": (lambda r, shape: step("Softmax2d"), (4,)), "GLU": (glu, ANY), "PReLU": (prelu, ANY),
    "Linear": (linear, ANY), "Bilinear": (bilinear, ANY), "CosineSimilarity": (cosine, ANY),
    "PairwiseDistance": (pairwise, ANY), "LayerNorm": (layer_norm, ANY), "RMSNorm": (rms_norm, ANY),
    "Flatten": (flatten, ANY), "Unflatten": (unflatten, ANY), "Sequential": (sequential, ANY),
    "ModuleList": (module_list, ANY), "ModuleDict": (module_dict, ANY), "ParameterList": (parameter_list, ANY),
    "ParameterDict": (parameter_dict, ANY),
}  # fmt: skip
"""The function that draws a layer of each name, and the numbers of axes."""
