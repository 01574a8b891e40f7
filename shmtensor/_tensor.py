"""Tensors with all their methods: what modules above the tensor layer import."""

from __future__ import annotations

from . import methods as methods
from ._core import SETTLED as SETTLED
from ._core import TENSOR_CLASSES as TENSOR_CLASSES
from ._core import Tensor as Tensor
from ._core import wrap as wrap

globals().update({cls.__name__: cls for cls in TENSOR_CLASSES.values()})
