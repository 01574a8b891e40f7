"""Functions of neural networks: torch's `nn.functional`, with its names, arguments, defaults and gradients.

Tensors are (samples, channels, ...) where a function has channels, and most functions take them without samples, too.
Nothing in this package blocks, except what draws random numbers while another thread draws.
"""

from __future__ import annotations

from ..._missing import suggest as _suggest
from ..._tensor import methods as _methods  # noqa: F401  installs the methods of Tensor
from ..._tensor.activations import hardshrink as hardshrink
from ..._tensor.activations import prelu as prelu
from ..._tensor.distances import pdist as pdist
from . import (
    activation,
    affine,
    attention,
    averaging,
    classification,
    convolution,
    ctc,
    distances,
    dropouts,
    embeddings,
    fractional,
    grids,
    interpolation,
    losses,
    margins,
    normalization,
    padding,
    pooling,
    shuffling,
    unfolding,
)
from .activation import *
from .affine import *
from .attention import *
from .averaging import *
from .classification import *
from .convolution import *
from .ctc import *
from .distances import *
from .dropouts import *
from .embeddings import *
from .fractional import *
from .grids import *
from .interpolation import *
from .losses import *
from .margins import *
from .normalization import *
from .padding import *
from .pooling import *
from .shuffling import *
from .unfolding import *

__all__ = [
    *activation.__all__, *attention.__all__, *averaging.__all__, *classification.__all__, *convolution.__all__,
    *ctc.__all__, *distances.__all__, *dropouts.__all__, *embeddings.__all__, *fractional.__all__, *grids.__all__,
    *interpolation.__all__, *affine.__all__, *losses.__all__, *margins.__all__, *normalization.__all__,
    *padding.__all__, *pooling.__all__, *shuffling.__all__, *unfolding.__all__, "hardshrink", "pdist",
    "prelu",
]  # fmt: skip
_suggest(globals())
