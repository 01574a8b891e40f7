"""The loss of connectionist temporal classification. Nothing in this module blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..._tensor.core import Tensor
from ..._tensor.creation import tensor
from ..._tensor.dispatch import Array, Module, export
from ..._tensor.masks import where
from ..._tensor.result_types import require_floating
from ...errors import InvalidArgument
from .rows import function, hidden, reduced


class _Paths:
    """The labels of each sample with blanks between them, and the allowed transitions.

    Attributes:
        labels: (samples, 2 * longest + 1).
        skips: whether the label two places before may come directly before.
        ends: the last place of each sample.
        lengths: of the inputs.
    """

    def __init__(self, targets: Array, lengths: Array, target_lengths: Array, blank: int) -> None:
        samples, longest = len(lengths), int(target_lengths.max(initial=0))
        wanted = np.full((samples, longest), blank, np.int64)
        inside = np.arange(longest) < target_lengths[:, None]
        if targets.ndim == 1:
            wanted[inside] = targets[: int(target_lengths.sum())]
        else:
            wanted[inside] = targets[:, :longest][inside]
        self.labels = np.full((samples, 2 * longest + 1), blank, np.int64)
        self.labels[:, 1::2] = wanted
        self.skips = np.zeros(self.labels.shape, bool)
        self.skips[:, 2:] = (self.labels[:, 2:] != blank) & (self.labels[:, 2:] != self.labels[:, :-2])
        self.ends = 2 * target_lengths
        self.lengths = lengths

    def of_labels(self, log_probs: Array) -> Array:
        """The log-probability of each place's label: (time, samples, places)."""
        return np.take_along_axis(log_probs, np.broadcast_to(self.labels, (len(log_probs), *self.labels.shape)), 2)


def _shifted(a: Array, count: int) -> Array:
    """Moved to later places, or to earlier ones."""
    made = np.full_like(a, -np.inf)
    if abs(count) < a.shape[1]:
        made[(slice(None), slice(count, None) if count > 0 else slice(None, count))] = (
            a[:, :-count] if count > 0 else a[:, -count:]
        )
    return made


def _forward(found: Array, paths: _Paths) -> Array:
    """The logarithm of the probability of reaching each place at each time."""
    made = np.full_like(found, -np.inf)
    made[0, :, :2] = found[0, :, :2]
    made[0, paths.ends == 0, 1:] = -np.inf
    for t in range(1, len(found)):
        before = made[t - 1]
        skipped = np.where(paths.skips, _shifted(before, 2), -np.inf)
        made[t] = np.logaddexp(np.logaddexp(before, _shifted(before, 1)), skipped) + found[t]
    return made


def _backward(found: Array, paths: _Paths) -> Iterator[tuple[int, Array]]:
    """For each time, from the last: the logarithm of the probability of reaching the end from each place."""
    samples, places = paths.labels.shape
    at = np.arange(places)
    ends = (at == paths.ends[:, None]) | (at == paths.ends[:, None] - 1)
    follows = np.zeros_like(paths.skips)
    follows[:, :-2] = paths.skips[:, 2:]
    after = np.full((samples, places), -np.inf, found.dtype)
    for t in range(len(found) - 1, -1, -1):
        skipped = np.where(follows, _shifted(after, -2), -np.inf)
        made = np.logaddexp(np.logaddexp(after, _shifted(after, -1)), skipped) + found[t]
        last = (paths.lengths == t + 1)[:, None]
        made = np.where(last, np.where(ends, found[t], -np.inf), made)
        after = np.where((paths.lengths > t)[:, None], made, -np.inf)
        yield t, after


def _losses(alpha: Array, paths: _Paths) -> Array:
    samples = np.arange(len(paths.ends))
    last = alpha[np.maximum(paths.lengths - 1, 0), samples]
    end = last[samples, paths.ends]
    before = np.where(paths.ends > 0, last[samples, np.maximum(paths.ends - 1, 0)], -np.inf)
    made = -np.logaddexp(end, before)
    return np.where(paths.lengths > 0, made, np.where(paths.ends == 0, 0, np.inf)).astype(alpha.dtype)


@hidden(
    name="ctc_loss",
    gradient={
        "log_probs": lambda g, log_probs, targets, lengths, target_lengths, blank: _ctc_back(  # type: ignore[has-type]
            g, log_probs, targets, lengths, target_lengths, blank
        )
    },
)
def _ctc(xp: Module, log_probs: Array, targets: Array, lengths: Array, target_lengths: Array, blank: int) -> Array:
    """The loss of each sample of (time, samples, classes)."""
    paths = _Paths(targets, lengths, target_lengths, blank)
    with np.errstate(all="ignore"):
        return _losses(_forward(paths.of_labels(log_probs), paths), paths)


@hidden(name="ctc_back")
def _ctc_back(
    xp: Module, output: Array, log_probs: Array, targets: Array, lengths: Array, target_lengths: Array, blank: int
) -> Array:
    """The gradient with respect to the input of log_softmax, as in torch."""
    paths = _Paths(targets, lengths, target_lengths, blank)
    samples = xp.arange(len(paths.ends))[:, None]
    with np.errstate(all="ignore"):
        found = paths.of_labels(log_probs)
        alpha = _forward(found, paths)
        loss = _losses(alpha, paths)[:, None]
        made = np.exp(log_probs)
        for t, beta in _backward(found, paths):
            shares = np.exp(alpha[t] + beta - found[t] + loss)
            np.subtract.at(made[t], (samples, paths.labels), np.nan_to_num(shares, nan=0.0))
        made *= output[:, None]
    made[xp.arange(len(made))[:, None] >= paths.lengths] = 0
    return made


def _numbers(values: Any) -> Tensor:
    return values.to("int64") if isinstance(values, Tensor) else tensor(values, dtype="int64")


@function
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative logarithm of the probability of label sequences, over all their alignments.

    Args:
        log_probs: log-probabilities (time, samples, classes), or without samples.
        targets: labels (samples, longest), or the concatenated labels of all samples.
        input_lengths, target_lengths: lengths of each sample.
        blank: the class that is not a label.
        reduction: "mean" (of losses divided by the lengths of their targets), "sum" or "none".
        zero_infinity: losses that are infinite, and their gradients, are 0.

    Raises:
        InvalidArgument: shapes or lengths that do not fit, or another reduction.
        DTypeError: log-probabilities that are not floating-point.
    """
    require_floating("ctc_loss", log_probs._array)
    has_samples = log_probs.ndim == 3
    if not has_samples:
        log_probs = log_probs.unsqueeze(1)
    lengths, sizes = _numbers(input_lengths).reshape(-1), _numbers(target_lengths).reshape(-1)
    if not has_samples and targets.ndim == 1:
        targets = targets.unsqueeze(0)
    if log_probs.ndim != 3 or lengths.shape != log_probs.shape[1:2] or sizes.shape != lengths.shape:
        raise InvalidArgument(
            f"ctc_loss of shape {log_probs.shape} with lengths of shapes {lengths.shape} and {sizes.shape}"
        )
    if not 0 <= blank < log_probs.shape[2] or (lengths.numel() and int(lengths.max()) > log_probs.shape[0]):
        raise InvalidArgument(f"ctc_loss of shape {log_probs.shape} with blank {blank} and lengths {lengths.tolist()}")
    loss = _ctc(log_probs, targets, lengths, sizes, blank)
    if zero_infinity:
        loss = where(loss.detach().isinf(), 0, loss)
    if reduction == "mean":
        return (loss / sizes.clamp(min=1).to(loss.dtype)).mean()
    return reduced(loss if has_samples or reduction != "none" else loss.squeeze(0), reduction)


__all__ = export(globals())
