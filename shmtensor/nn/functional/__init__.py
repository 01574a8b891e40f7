"""Functions of neural networks: torch's `nn.functional`, with its names, arguments, defaults and gradients.

Tensors are (samples, channels, ...) where a function has channels, and most functions take them without samples, too.
Nothing in this package blocks, except functions that draw random numbers while another thread draws. The module of each
function is imported at its first use. Type checkers read `__init__.pyi`, which tools/stubs.py generates from the rows.
"""

from __future__ import annotations

from ..._loading import later as _later
from ..._tensor import methods as _methods  # noqa: F401  installs the methods of Tensor
from .index import FUNCTIONS as _FUNCTIONS

_OTHERS = {"_tensor.activations": "hardshrink prelu", "_tensor.distances": "pdist"}
__all__ = _later(globals(), _FUNCTIONS | _OTHERS)
