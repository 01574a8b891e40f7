"""Random results: the properties that hold although the generators differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from torch_ops.comparing import Disagreement, compare_values, leaves

RANDOM = frozenset({"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal",
                    "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform",
                    *[f"nn.functional.{one}" for one in (
                        "alpha_dropout", "dropout", "dropout2d", "dropout3d", "feature_alpha_dropout",
                        "fractional_max_pool2d", "fractional_max_pool3d", "multi_head_attention_forward", "rrelu",
                        "scaled_dot_product_attention",
                    )]})  # fmt: skip
DRAWS = 16
"""How often torch draws, to see where its values lie."""


def check(draws: list[Any], found: Any) -> None:
    """Compare a result with several draws of torch's, of the same structure.

    Where these are all equal, so is ours. Else it is finite and whole where they are, and lies between their smallest
    and largest value, or beyond by no more than the distance of these. Raises Disagreement.
    """
    several = [[one for _, one in leaves(draw)] for draw in draws]
    for theirs, (path, mine) in zip(zip(*several, strict=True), leaves(found), strict=True):
        if isinstance(theirs[0], torch.Tensor) and theirs[0].numel():
            _check_one(path, np.stack([one.numpy() for one in theirs]), mine.numpy())


def _check_one(path: str, theirs: np.ndarray, mine: np.ndarray) -> None:
    if (theirs == theirs[0]).all():
        compare_values(path, theirs[0], mine)
        return
    for part in ("real", "imag"):
        drawn, ours = getattr(theirs, part).astype(float), getattr(mine, part).astype(float)
        if np.isfinite(drawn).all() and not np.isfinite(ours).all():
            raise Disagreement(f"{path}: not finite")
        if (drawn == np.rint(drawn)).all() and not (ours == np.rint(ours)).all():
            raise Disagreement(f"{path}: not whole numbers")
        low, high = np.nanmin(drawn), np.nanmax(drawn)
        if ours.min() < 2 * low - high or ours.max() > 2 * high - low:
            raise Disagreement(f"{path}: from {ours.min()} to {ours.max()}; torch's are from {low} to {high}")
