"""Tensors with all their methods: what modules above the tensor layer import."""

from __future__ import annotations

from . import methods as methods
from ._core import SETTLED as SETTLED
from ._core import Tensor as Tensor
