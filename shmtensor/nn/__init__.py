"""Neural networks: modules, and functions on tensors, with torch's names, arguments, defaults and keys of states.

A checkpoint that torch wrote, `torch.save(model.state_dict(), f)`, loads with
`model.load_state_dict(shmtensor.load(f))`. `model.share_memory()` moves parameters and buffers to shared memory, so
that processes train one model.

Files of modules and functions are imported at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._loading import later as _later
from . import functional as functional
from . import init as init
from . import modules as modules
from . import parameter as parameter
from .memory import keep_freed_memory as _keep_freed_memory
from .modules import __all__ as _classes
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter

if TYPE_CHECKING:
    from . import utils as utils
    from .modules import *

__all__ = [*_classes, "Buffer", "Parameter", "functional", "init", "modules", "parameter", "utils"]
_later(globals(), {"nn.modules": " ".join(_classes)}, ["utils"])
_keep_freed_memory()
