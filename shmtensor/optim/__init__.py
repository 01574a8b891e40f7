"""Optimizers, under torch's names and with its arguments and checkpoints: `optim.SGD(model.parameters(), lr=0.1)`.

A step changes parameters in place, with arrays in blocks and without intermediate arrays of their sizes. Processes that
share parameters (`share_memory_()`) and an optimizer (`share_memory()`) train one model: see docs/hogwild.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._loading import later as _later
from . import lr_scheduler as lr_scheduler
from .adadelta import Adadelta
from .adagrad import Adagrad
from .adam import Adam, AdamW
from .adamax import Adamax
from .asgd import ASGD
from .lbfgs import LBFGS
from .nadam import NAdam
from .optimizer import Optimizer
from .radam import RAdam
from .rmsprop import RMSprop
from .rprop import Rprop
from .sgd import SGD
from .sparse_adam import SparseAdam

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "Optimizer", "RAdam", "RMSprop",
    "Rprop", "SparseAdam", "lr_scheduler", "swa_utils",
]  # fmt: skip

if TYPE_CHECKING:
    from . import swa_utils as swa_utils

_later(globals(), {}, ["swa_utils"])  # it needs `nn`
