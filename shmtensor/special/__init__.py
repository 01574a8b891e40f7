"""Special functions: those of `torch.special`, element by element.

Most are computed by SciPy (the extra `scipy`), which is imported on first use. Integers are computed as float32.
Functions that `shmtensor` has as well are the same ones here, under these names: `expit` is `sigmoid`, `gammaln` is
`lgamma`. Nothing in this package blocks.
"""

from __future__ import annotations

from .._missing import suggest as _suggest
from .._tensor.activations import log_softmax as log_softmax
from .._tensor.activations import softmax as softmax
from .._tensor.elementwise import exp2 as exp2
from .._tensor.elementwise import expm1 as expm1
from .._tensor.elementwise import log1p as log1p
from .._tensor.elementwise import round as round
from .._tensor.elementwise import sigmoid as expit
from .._tensor.special import digamma as digamma
from .._tensor.special import digamma as psi
from .._tensor.special import erf as erf
from .._tensor.special import erfc as erfc
from .._tensor.special import erfinv as erfinv
from .._tensor.special import i0 as i0
from .._tensor.special import igamma as gammainc
from .._tensor.special import igammac as gammaincc
from .._tensor.special import lgamma as gammaln
from .._tensor.special import logit as logit
from .._tensor.special import mvlgamma as multigammaln
from .._tensor.special import ndtri as ndtri
from .._tensor.special import polygamma as polygamma
from .._tensor.special import sinc as sinc
from .._tensor.special import xlogy as xlogy
from .._tensor.statistical import logsumexp as logsumexp
from . import bessel, polynomials, probabilities
from .bessel import *
from .polynomials import *
from .probabilities import *

__all__ = [
    *bessel.__all__, *polynomials.__all__, *probabilities.__all__, "digamma", "erf", "erfc", "erfinv", "exp2", "expit",
    "expm1", "gammainc", "gammaincc", "gammaln", "i0", "log1p", "log_softmax", "logit", "logsumexp", "multigammaln",
    "ndtri", "polygamma", "psi", "round", "sinc", "softmax", "xlogy",
]  # fmt: skip
_suggest(globals())
