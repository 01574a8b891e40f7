"""Neural networks: modules, and functions on tensors, with torch's names, arguments, defaults and keys of states.

A checkpoint that torch wrote, `torch.save(model.state_dict(), f)`, loads by `model.load_state_dict(shmtensor.load(f))`.
`model.share_memory()` moves parameters and buffers to shared memory, so that processes train one model.
"""

from __future__ import annotations

from .._missing import suggest as _suggest
from . import functional as functional
from . import init as init
from . import modules as modules
from . import parameter as parameter
from . import utils as utils
from .modules import *
from .modules import __all__ as _modules
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter

__all__ = [*_modules, "Buffer", "Parameter", "functional", "init", "modules", "parameter", "utils"]
_suggest(globals())
