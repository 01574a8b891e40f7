"""Distances between rows, covariances and correlations. Results are copies; nothing in this module blocks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..dtypes import default_float
from ..errors import DTypeError, InvalidArgument
from . import distance_rules as rules
from .complex_parts import complex
from .core import Tensor
from .dispatch import Array, Module, composed, export, operation

_AT_ONCE: Final = 1 << 20  # differences that are in memory at a time


def _norm(xp: Module, apart: Array, p: float) -> Array:
    """The p-norm of the last axis."""
    if p == 2:
        return xp.sqrt(xp.sum(apart * apart, axis=-1))
    size = xp.abs(apart)
    if p == 0:
        return xp.sum(size != 0, axis=-1).astype(apart.dtype)
    if p == np.inf:
        return xp.max(size, axis=-1, initial=0)
    return xp.sum(size, axis=-1) if p == 1 else xp.sum(size**p, axis=-1) ** (1 / p)


def _require(a: Array, p: float, name: str) -> None:
    if a.dtype.kind != "f":
        raise DTypeError(f"{name} of a tensor of {a.dtype.name}; convert it to a floating-point type with to()")
    if not p >= 0:
        raise InvalidArgument(f"{name} with p {p}; give a norm from 0")


@operation(method=False, fails="distances to a tensor of shape {x2.shape} of", gradient={("x1", "x2"): rules.of_cdist})
def cdist(xp: Module, x1: Array, x2: Array, p: float = 2.0, compute_mode: Any = None) -> Array:
    """The p-norm of the difference of each row of `x1` and each row of `x2`; axes before the last two broadcast.

    Args:
        compute_mode: has no effect.

    Raises:
        DTypeError: not floating-point types; InvalidArgument: fewer than two axes, shapes, p < 0.
    """
    for one in (x1, x2):
        _require(one, p, "cdist")
        if one.ndim < 2:
            raise InvalidArgument(f"cdist of a tensor of shape {one.shape}; it needs two axes")
    if x1.shape[-1] != x2.shape[-1]:
        raise InvalidArgument(f"cdist of rows of {x1.shape[-1]} and of {x2.shape[-1]} values; give as many")
    batch = np.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    made = xp.empty((*batch, x1.shape[-2], x2.shape[-2]), np.result_type(x1, x2))
    rows = max(1, _AT_ONCE // max(1, x2.size))
    for i in range(0, x1.shape[-2], rows):
        made[..., i : i + rows, :] = _norm(xp, x1[..., i : i + rows, None, :] - x2[..., None, :, :], p)
    return made


@operation(method=False, fails="distances between the rows of", gradient=rules.of_pdist)
def pdist(xp: Module, x: Array, /, p: float = 2.0) -> Array:
    """The p-norm of the difference of each row of a matrix and each one after it, on one axis.

    Raises DTypeError: not a floating-point type; InvalidArgument: not a matrix, p < 0.
    """
    _require(x, p, "pdist")
    if x.ndim != 2:
        raise InvalidArgument(f"pdist of a tensor of shape {x.shape}; give a matrix")
    parts = [_norm(xp, x[i] - x[i + 1 :], p) for i in range(len(x) - 1)]
    return xp.concatenate(parts) if parts else xp.empty(0, x.dtype)


# -- variables as rows -------------------------------------------------------------------------------------------------


def _weights(fweights: Any, aweights: Any, count: int) -> Any:
    """The product of both kinds of weights, or None."""
    for one, what in ((fweights, "fweights"), (aweights, "aweights")):
        if one is None:
            continue
        if one.shape != (count,) and not (one.ndim == 0 and count == 1):
            raise InvalidArgument(f"cov with {what} of shape {one.shape}; give one for each of {count} observations")
        if one.size and one.min() < 0:
            raise InvalidArgument(f"cov with {what} below 0; give weights from 0")
    if fweights is not None and fweights.dtype.kind not in "iu":
        raise DTypeError(f"cov with fweights of {fweights.dtype.name}; give integers")
    if fweights is None or aweights is None:
        return aweights if fweights is None else fweights
    return fweights * aweights


def _covariance(xp: Module, a: Array, correction: float, fweights: Any, aweights: Any) -> Array:
    if a.ndim > 2:
        raise InvalidArgument(f"cov of a tensor of shape {a.shape}; give at most two axes")
    kind = default_float() if a.dtype.kind in "biu" else a.dtype
    rows = a.reshape(1, -1) if a.ndim < 2 else a
    if a.dtype.kind in "biu":
        rows = rows.astype(np.float64)
    count = rows.shape[1]
    w = _weights(fweights, aweights, count)
    total = count if w is None else w.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        if w is not None and aweights is not None and correction:
            free = total - correction * (w * aweights).sum() / total
        else:
            free = total - correction
        mean = (rows if w is None else rows * w).sum(axis=1, keepdims=True) / total
        apart = rows - mean
        other = (apart if w is None else apart * w).T.conj()
        made = xp.true_divide(apart @ other, max(free, 0))
    return made.astype(kind, copy=False)


@operation(fails="covariances of", gradient={("x", "aweights"): rules.of_cov})
def cov(
    xp: Module,
    x: Array,
    /,
    *,
    correction: float = 1,
    fweights: Array | None = None,
    aweights: Array | None = None,
) -> Array:
    """The covariance matrix of variables, which are rows; for one variable its variance, without axes.

    Args:
        correction: subtracted from the number of observations (columns).
        fweights: how often each observation was made: integers.
        aweights: weight of each observation.

    Raises:
        InvalidArgument: more than two axes; weights below 0 or of another size; DTypeError: fweights of other types.
    """
    return xp.squeeze(_covariance(xp, x, correction, fweights, aweights))


@composed()
def corrcoef(input: Tensor) -> Tensor:
    """The correlation coefficients of variables, which are rows. Raises InvalidArgument: more than two axes."""
    together = cov(input)
    if not together.ndim:
        return together / together
    spread = together.diagonal().real.sqrt()
    made = together / spread.unsqueeze(1) / spread
    return complex(made.real.clip(-1, 1), made.imag.clip(-1, 1)) if made.is_complex() else made.clip(-1, 1)


__all__ = export(globals())
