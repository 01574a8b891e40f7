"""Elementwise special functions, computed by SciPy (the extra `scipy`), which is imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from ..errors import MissingExtra
from .dispatch import Array, Module, export, methods_of
from .elementwise import unary


@cache
def _scipys(name: str) -> Callable[..., Any]:
    try:
        from scipy import special
    except ImportError as error:
        raise MissingExtra(
            f"{name} needs SciPy, which cannot be imported ({error}); pip install 'shmtensor[scipy]'"
        ) from error
    return getattr(special, name)  # type: ignore[no-any-return]


def _lazy(name: str, doc: str) -> Callable[..., Any]:
    def compute(xp: Module, a: Array, out: Array | None = None) -> Array:
        return _scipys(name)(a, out=out)

    compute.__doc__, compute.__module__ = doc, __name__
    return compute


digamma = unary("digamma", _lazy("psi", "The derivative of lgamma."))
erf = unary("erf", _lazy("erf", "The error function."))
erfc = unary("erfc", _lazy("erfc", "1 - erf(x)."))
erfinv = unary("erfinv", _lazy("erfinv", "The inverse of erf."))
i0 = unary("i0", _lazy("i0", "The modified Bessel function of order 0."), method=False)
lgamma = unary("lgamma", _lazy("gammaln", "log(|gamma(x)|)."))
ndtri = unary("ndtri", _lazy("ndtri", "The inverse of the normal distribution."), method=False)

__all__ = export(globals())
METHODS: Final = methods_of(__name__)
