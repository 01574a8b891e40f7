"""Helpers for training: norms of gradients, parameters as a vector, sequences of several lengths, computed weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._loading import later as _later
from . import rnn as rnn

if TYPE_CHECKING:
    from .gradients import clip_grad_norm as clip_grad_norm
    from .gradients import clip_grad_norm_ as clip_grad_norm_
    from .gradients import clip_grad_value_ as clip_grad_value_
    from .gradients import clip_grads_with_norm_ as clip_grads_with_norm_
    from .gradients import get_total_norm as get_total_norm
    from .normalized import remove_spectral_norm as remove_spectral_norm
    from .normalized import remove_weight_norm as remove_weight_norm
    from .normalized import spectral_norm as spectral_norm
    from .normalized import weight_norm as weight_norm
    from .vectors import parameters_to_vector as parameters_to_vector
    from .vectors import vector_to_parameters as vector_to_parameters

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm",
    "parameters_to_vector", "remove_spectral_norm", "remove_weight_norm", "rnn", "spectral_norm",
    "vector_to_parameters", "weight_norm",
]  # fmt: skip
_later(
    globals(),
    {
        "nn.utils.gradients": "clip_grad_norm clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ get_total_norm",
        "nn.utils.normalized": "remove_spectral_norm remove_weight_norm spectral_norm weight_norm",
        "nn.utils.vectors": "parameters_to_vector vector_to_parameters",
    },
)
