"""Losses, which end a network."""

from __future__ import annotations

from typing import Any

import numpy as np

from networks.draws import Call, Draws, Layer, Step, leaf, require

ANY = (2, 3, 4, 5)


def _lost(call: Call) -> Any:
    given = dict(call.given)
    before = given.pop("before")
    x = call.x if before is None else getattr(call.library.nn.functional, before)(call.x, **given.pop("how", {}))
    return call.layers[0](x, *given["others"])


def _loss(layer: Layer, *others: Any, before: str | None = None, **how: Any) -> Step:
    return Step(_lost, (layer,), {"before": before, "others": list(others), **({"how": how} if how else {})})


def _reduction(r: Draws) -> str:
    return str(r.one_of("mean", "sum", "none"))


def difference(name: str, **choices: tuple[Any, ...]) -> Any:
    def draw(r: Draws, shape: Any) -> Step:
        how = {key: r.one_of(*values) for key, values in choices.items()}
        return _loss(Layer(name, (), {"reduction": _reduction(r), **how}), leaf(r.values(*shape)))

    return draw


def of_signs(name: str, margin: bool) -> Any:
    def draw(r: Draws, shape: Any) -> Step:
        how = {"margin": r.one_of(0.5, 1.0)} if margin else {}
        return _loss(Layer(name, (), {"reduction": _reduction(r), **how}), r.signs(*shape))

    return draw


def kl_div(r: Draws, shape: Any) -> Step:
    target = r.positive(*shape)
    target /= target.sum(1, keepdims=True)
    log_target = r.chance()
    layer = Layer(
        "KLDivLoss", (), {"reduction": r.one_of("mean", "sum", "none", "batchmean"), "log_target": log_target}
    )
    return _loss(layer, np.log(target) if log_target else target, before="log_softmax", dim=1)


def poisson_nll(r: Draws, shape: Any) -> Step:
    of_log = r.chance()
    how = {"log_input": of_log, "full": r.chance(), "reduction": _reduction(r)}
    return _loss(Layer("PoissonNLLLoss", (), how), 3 * r.positive(*shape), before=None if of_log else "softplus")


def gaussian_nll(r: Draws, shape: Any) -> Step:
    variance = leaf(r.positive(*shape[:-1], r.one_of(1, shape[-1])))
    return _loss(
        Layer("GaussianNLLLoss", (), {"full": r.chance(), "reduction": _reduction(r)}), leaf(r.values(*shape)), variance
    )


def bce(r: Draws, shape: Any) -> Step:
    layer = Layer("BCELoss", (r.one_of(None, r.positive(*shape)),), {"reduction": _reduction(r)})
    return _loss(layer, r.positive(*shape), before="sigmoid")


def bce_with_logits(r: Draws, shape: Any) -> Step:
    how = {"reduction": _reduction(r), "pos_weight": r.one_of(None, 2 * r.positive(shape[-1]))}
    return _loss(Layer("BCEWithLogitsLoss", (r.one_of(None, r.positive(*shape)),), how), r.positive(*shape))


def nll(name: str) -> Any:
    def draw(r: Draws, shape: Any) -> Step:
        classes = r.classes(shape[1], shape[0], *shape[2:])
        ignored = r.one_of(-100, int(classes.flat[0])) if np.unique(classes).size > 1 else -100
        how = {"ignore_index": ignored, "reduction": _reduction(r)}
        layer = Layer(name, (r.one_of(None, r.positive(shape[1])),), how)
        return _loss(layer, classes, before="log_softmax", dim=1)

    return draw


def cross_entropy(r: Draws, shape: Any) -> Step:
    how: dict[str, Any] = {"reduction": _reduction(r), "label_smoothing": r.one_of(0.0, 0.2)}
    weight = r.one_of(None, r.positive(shape[1]))
    if r.chance(0.3):
        target = r.positive(*shape)
        return _loss(Layer("CrossEntropyLoss", (weight,), how), leaf(target / target.sum(1, keepdims=True)))
    classes = r.classes(shape[1], shape[0], *shape[2:])
    if np.unique(classes).size > 1:
        how["ignore_index"] = r.one_of(-100, int(classes.flat[0]))
    return _loss(Layer("CrossEntropyLoss", (weight,), how), classes)


def multi_label_margin(r: Draws, shape: Any) -> Step:
    targets = np.full(shape, -1)
    for row in targets:
        count = r.number(0, shape[1])
        row[:count] = r.random.permutation(shape[1])[:count]
    return _loss(Layer("MultiLabelMarginLoss", (), {"reduction": _reduction(r)}), targets)


def multi_label_soft_margin(r: Draws, shape: Any) -> Step:
    layer = Layer("MultiLabelSoftMarginLoss", (r.one_of(None, r.positive(shape[1])),), {"reduction": _reduction(r)})
    return _loss(layer, r.classes(2, *shape).astype(float))


def cosine_embedding(r: Draws, shape: Any) -> Step:
    layer = Layer("CosineEmbeddingLoss", (r.one_of(0.0, -0.3),), {"reduction": _reduction(r)})
    return _loss(layer, leaf(r.values(*shape)), r.signs(shape[0]))


def margin_ranking(r: Draws, shape: Any) -> Step:
    layer = Layer("MarginRankingLoss", (r.one_of(0.0, 0.5),), {"reduction": _reduction(r)})
    return _loss(layer, leaf(r.values(*shape)), r.signs(*shape))


def multi_margin(r: Draws, shape: Any) -> Step:
    weight = r.one_of(None, r.positive(shape[1]))
    layer = Layer("MultiMarginLoss", (r.one_of(1, 2), r.one_of(0.5, 1.0), weight), {"reduction": _reduction(r)})
    return _loss(layer, r.classes(shape[1], shape[0]))


def triplet(r: Draws, shape: Any) -> Step:
    how = {"margin": r.one_of(0.5, 3.0), "p": r.one_of(1.0, 2.0, 3.0), "swap": r.chance(), "reduction": _reduction(r)}
    return _loss(Layer("TripletMarginLoss", (), how), leaf(r.values(*shape)), leaf(r.values(*shape)))


def triplet_with_distance(r: Draws, shape: Any) -> Step:
    distance = r.one_of(None, Layer("PairwiseDistance", (1.0,)), Layer("CosineSimilarity"))
    how = {"distance_function": distance, "margin": r.one_of(0.5, 3.0), "swap": r.chance(), "reduction": _reduction(r)}
    return _loss(Layer("TripletMarginWithDistanceLoss", (), how), leaf(r.values(*shape)), leaf(r.values(*shape)))


def ctc(r: Draws, shape: Any) -> Step:
    steps, samples, classes = shape
    require(classes > 1)
    blank = r.number(0, classes - 1)
    others = np.array([n for n in range(classes) if n != blank])
    most = max(1, steps // 2)
    lengths = np.array([r.number(1, most) for _ in range(samples)])
    targets = r.random.choice(others, (samples, most))
    if r.chance():
        targets = np.concatenate([row[:n] for row, n in zip(targets, lengths, strict=True)])
    inputs = np.array([r.number(2 * n - 1, steps) if 2 * n - 1 <= steps else steps for n in lengths])
    layer = Layer("CTCLoss", (blank, _reduction(r), True))
    return _loss(layer, targets, inputs, lengths, before="log_softmax", dim=2)


LOSSES: dict[str, Any] = {
    "L1Loss": (difference("L1Loss"), ANY), "MSELoss": (difference("MSELoss"), ANY),
    "SmoothL1Loss": (difference("SmoothL1Loss", beta=(1.0, 0.3, 0.0)), ANY),
    "HuberLoss": (difference("HuberLoss", delta=(1.0, 0.3)), ANY), "KLDivLoss": (kl_div, ANY),
    "PoissonNLLLoss": (poisson_nll, ANY), "GaussianNLLLoss": (gaussian_nll, ANY), "BCELoss": (bce, ANY),
    "BCEWithLogitsLoss": (bce_with_logits, ANY), "NLLLoss": (nll("NLLLoss"), ANY),
    "NLLLoss2d": (nll("NLLLoss2d"), (4,)), "CrossEntropyLoss": (cross_entropy, ANY),
    "HingeEmbeddingLoss": (of_signs("HingeEmbeddingLoss", True), ANY),
    "SoftMarginLoss": (of_signs("SoftMarginLoss", False), ANY), "MultiLabelMarginLoss": (multi_label_margin, (2,)),
    "MultiLabelSoftMarginLoss": (multi_label_soft_margin, (2,)), "CosineEmbeddingLoss": (cosine_embedding, (2,)),
    "MarginRankingLoss": (margin_ranking, ANY), "MultiMarginLoss": (multi_margin, (2,)),
    "TripletMarginLoss": (triplet, (2,)), "TripletMarginWithDistanceLoss": (triplet_with_distance, (2,)),
    "CTCLoss": (ctc, (3,)),
}  # fmt: skip
"""The function that draws a loss of each name, and the numbers of axes."""
