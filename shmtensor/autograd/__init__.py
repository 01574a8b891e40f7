"""Reverse-mode differentiation: a graph of nodes that is built while tensors are computed (docs/autograd.md)."""

from __future__ import annotations

import os

from .._native import Node as Node
from .._native import interrupt_passes
from . import graph as graph
from .anomaly import detect_anomaly as detect_anomaly
from .anomaly import set_detect_anomaly as set_detect_anomaly
from .checkpoint import checkpoint as checkpoint
from .checkpoint import checkpoint_sequential as checkpoint_sequential
from .function import Function as Function
from .function import InplaceFunction as InplaceFunction
from .gradcheck import GradcheckError as GradcheckError
from .gradcheck import gradcheck as gradcheck
from .gradcheck import gradgradcheck as gradgradcheck
from .modes import enable_grad as enable_grad
from .modes import inference_mode as inference_mode
from .modes import is_grad_enabled as is_grad_enabled
from .modes import no_grad as no_grad
from .modes import set_grad_enabled as set_grad_enabled
from .passes import backward as backward
from .passes import grad as grad
from .variable import Variable as Variable

os.register_at_fork(after_in_child=interrupt_passes)
