"""Parameters of shmtensor and of torch with equal values, for tests of optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np

import shmtensor
from shmtensor import Tensor

RATE = {"lr": 0.05}
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}),
    ("SGD", {**RATE, "weight_decay": 0.1}),
    ("SGD", {**RATE, "momentum": 0.9}),
    ("SGD", {**RATE, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {**RATE, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {**RATE, "maximize": True}),
    ("Adam", {}),
    ("Adam", {**RATE, "weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {**RATE, "betas": (0.5, 0.6), "eps": 1e-3, "maximize": True}),
    ("Adam", {**RATE, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {}),
    ("AdamW", {**RATE, "weight_decay": 0.3, "amsgrad": True, "maximize": True}),
    ("Adagrad", {}),
    ("Adagrad", {**RATE, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "maximize": True}),
    ("Adadelta", {}),
    ("Adadelta", {"rho": 0.7, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {**RATE, "centered": True, "weight_decay": 0.1}),
    ("RMSprop", {**RATE, "momentum": 0.9, "alpha": 0.8, "maximize": True}),
    ("RMSprop", {**RATE, "momentum": 0.5, "centered": True}),
    ("Adamax", {}),
    ("Adamax", {**RATE, "weight_decay": 0.1, "eps": 0.01, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {**RATE, "weight_decay": 0.1, "momentum_decay": 0.1}),
    ("NAdam", {**RATE, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RAdam", {}),
    ("RAdam", {**RATE, "weight_decay": 0.1, "betas": (0.8, 0.9), "maximize": True}),
    ("RAdam", {**RATE, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.1, "etas": (0.4, 1.3), "step_sizes": (0.01, 0.2), "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {**RATE, "lambd": 0.1, "alpha": 0.5, "t0": 20, "weight_decay": 0.1, "maximize": True}),
]
"""Every optimizer that takes dense gradients, with options; LBFGS needs a loss."""


def options_id(value: Any) -> str:
    return "-".join(f"{name}={one}" for name, one in value.items()) if isinstance(value, dict) else str(value)


def parameter(values: Any, dtype: Any = None) -> Tensor:
    """A leaf with a copy of values."""
    made = tensor(np.array(values, dtype=dtype, order="K"))
    return made.requires_grad_() if made.numpy().dtype.kind not in "iu" else made


def tensor(array: Any) -> Tensor:
    """A tensor over an array."""
    return shmtensor.from_numpy(np.asarray(array))
