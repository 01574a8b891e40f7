"""Losses: how far predictions are from targets.

`reduction` is "mean", "sum" or "none": the loss of each element.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ..._tensor.methods import Tensor
from ...errors import InvalidArgument
from .. import functional
from .distance import PairwiseDistance
from .module import Module


class _Loss(Module):
    """A loss.

    Args:
        size_average: older form of reduction: False for "sum".
        reduce: older form of reduction: False for "none".
        reduction: "mean", "sum" or "none".
    """

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        if size_average is not None or reduce is not None:
            average = size_average is None or size_average
            reduction = "none" if reduce is not None and not reduce else "mean" if average else "sum"
            warnings.warn(
                f"size_average and reduce args will be deprecated, please use reduction={reduction!r} instead.",
                stacklevel=3,
            )
        self.reduction = reduction


class _WeightedLoss(_Loss):
    """A loss with weights.

    Args:
        weight: the weights, for example of classes; None: all 1.
        size_average: older form of reduction: False for "sum".
        reduce: older form of reduction: False for "none".
        reduction: "mean", "sum" or "none".
    """

    weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """|input - target|."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """(input - target) squared."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.mse_loss(input, target, reduction=self.reduction)


class NLLLoss(_WeightedLoss):
    """-input[target] of log-probabilities (N, C, ...) and classes (N, ...).

    Args:
        weight: weight of each class; None: all 1.
        size_average: older form of reduction: False for "sum".
        ignore_index: a class that does not count.
        reduce: older form of reduction: False for "none".
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
        reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.nll_loss(
            input, target, ignore_index=self.ignore_index, weight=self.weight, reduction=self.reduction
        )


class NLLLoss2d(NLLLoss):
    """NLLLoss under an older name."""


class CrossEntropyLoss(_WeightedLoss):
    """-log_softmax(input)[target] of (N, C, ...), and classes (N, ...) or probabilities (N, C, ...).

    Args:
        weight: weight of each class; None: all 1.
        size_average: older form of reduction: False for "sum".
        ignore_index: a class that does not count.
        reduce: older form of reduction: False for "none".
        reduction: "mean", "sum" or "none".
        label_smoothing: part of the targets that is spread over all classes.
    """

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
        reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.cross_entropy(
            input, target, ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing, weight=self.weight, reduction=self.reduction,
        )  # fmt: skip


class PoissonNLLLoss(_Loss):
    """exp(log_input) - target * log_input: the negative log-likelihood of counts.

    Args:
        log_input: inputs are logarithms.
        full: add Stirling's term.
        size_average: older form of reduction: False for "sum".
        eps: added to inputs that are not logarithms.
        reduce: older form of reduction: False for "none".
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self, log_input: bool = True, full: bool = False, size_average: bool | None = None, eps: float = 1e-8,
        reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class GaussianNLLLoss(_Loss):
    """The negative log-likelihood of targets under normal distributions, (log(var) + (input - target) ** 2 / var) / 2.

    Args:
        full: add the constant term.
        eps: lower bound of variances.
        reduction: "mean", "sum" or "none".
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Any) -> Tensor:
        """The loss."""
        return functional.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class KLDivLoss(_Loss):
    """target * (log(target) - input): divergence of log-probabilities from probabilities.

    Args:
        size_average: older form of reduction: False for "sum".
        reduce: older form of reduction: False for "none".
        reduction: "mean", "batchmean", "sum" or "none".
        log_target: targets are logarithms.
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
        log_target: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.kl_div(input, target, log_target=self.log_target, reduction=self.reduction)


class BCELoss(_WeightedLoss):
    """-(target * log(input) + (1 - target) * log(1 - input)) of probabilities."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """BCELoss of sigmoid(input).

    Args:
        weight: the weights; None: all 1.
        size_average: older form of reduction: False for "sum".
        reduce: older form of reduction: False for "none".
        reduction: "mean", "sum" or "none".
        pos_weight: weights of positive targets; None: all 1.
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean", pos_weight: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class HingeEmbeddingLoss(_Loss):
    """input where target is 1, max(0, margin - input) where it is -1.

    Args:
        margin: the margin.
        size_average: older form of reduction: False for "sum".
        reduce: older form of reduction: False for "none".
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """max(0, 1 - (input[target] - input[other])) / C, for several targets of a sample."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.multilabel_margin_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """|input - target|, and half its square divided by beta below beta.

    Args:
        size_average: older form of reduction: False for "sum".
        reduce: older form of reduction: False for "none".
        reduction: "mean", "sum" or "none".
        beta: the bound.
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.smooth_l1_loss(input, target, beta=self.beta, reduction=self.reduction)


class HuberLoss(_Loss):
    """delta * (|input - target| - delta / 2), and half its square below delta.

    Args:
        reduction: "mean", "sum" or "none".
        delta: the bound.
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.huber_loss(input, target, delta=self.delta, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * input))."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The mean over classes of BCEWithLogitsLoss."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class CosineEmbeddingLoss(_Loss):
    """1 - cosine where target is 1, max(0, cosine - margin) where it is -1.

    Args:
        margin: the margin.
        size_average: older form of reduction: False for "sum".
        reduce: older form of reduction: False for "none".
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(_Loss):
    """max(0, -target * (input1 - input2) + margin).

    Args:
        margin: the margin.
        size_average: older form of reduction: False for "sum".
        reduce: older form of reduction: False for "none".
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """max(0, margin - input[target] + input[other]) ** p / C.

    Args:
        p: 1 or 2.
        margin: the margin.
        weight: weight of each class; None: all 1.
        size_average: older form of reduction: False for "sum".
        reduce: older form of reduction: False for "none".
        reduction: "mean", "sum" or "none".

    Raises:
        InvalidArgument: another p, or weights of other than one axis.
    """

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: bool | None = None,
        reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise InvalidArgument("only p == 1 and p == 2 supported")
        if weight is not None and weight.dim() != 1:
            raise InvalidArgument(f"weight must be None or have one axis; got shape {weight.shape}")
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return functional.multi_margin_loss(
            input, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction
        )


class TripletMarginLoss(_Loss):
    """max(0, distance(anchor, positive) - distance(anchor, negative) + margin).

    Args:
        margin: the margin, above 0.
        p: the norm.
        eps: added to differences.
        swap: take the distance of positive and negative, where it is less than that of anchor and negative.
        size_average: older form of reduction: False for "sum".
        reduce: older form of reduction: False for "none".
        reduction: "mean", "sum" or "none".

    Raises:
        InvalidArgument: margin is not above 0.
    """

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
        size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise InvalidArgument(f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead")
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss."""
        return functional.triplet_margin_loss(
            anchor, positive, negative, margin=self.margin, p=self.p, eps=self.eps, swap=self.swap,
            reduction=self.reduction,
        )  # fmt: skip


class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss with another distance.

    Args:
        distance_function: of two tensors; None: PairwiseDistance.
        margin: the margin, above 0.
        swap: take the distance of positive and negative, where it is less than that of anchor and negative.
        reduction: "mean", "sum" or "none".

    Raises:
        InvalidArgument: margin is not above 0.
    """

    def __init__(
        self, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0,
        swap: bool = False, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(reduction=reduction)
        if margin <= 0:
            raise InvalidArgument(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin} instead"
            )
        self.distance_function: Any = PairwiseDistance() if distance_function is None else distance_function
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss."""
        return functional.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function, margin=self.margin, swap=self.swap,
            reduction=self.reduction,
        )  # fmt: skip


class CTCLoss(_Loss):
    """The negative log-likelihood of a sequence of labels, with blanks, in a longer sequence of log-probabilities.

    Args:
        blank: class of the blank.
        reduction: "mean", "sum" or "none".
        zero_infinity: infinite losses are 0.
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        """The loss.

        Args:
            log_probs: of shape (T, N, C) or (T, C).
            targets: labels, of shape (N, S), or the concatenated labels of all sequences.
            input_lengths: length of each sequence, (N).
            target_lengths: length of each sequence of labels, (N).
        """
        return functional.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )
