"""Everything that `shmtensor` has beside its modules, in one place: the array API's namespace and torch's names."""

from __future__ import annotations

from ._tensor import *
from .allocators import MapFlags as MapFlags
from .creation import *
from .dtypes import *
from .elementwise import *
from .inspection import *
from .linalg.routines import *
from .memory import StorageFlags as StorageFlags
from .memory import empty_cache as empty_cache
from .products import *
from .selection import *
from .shapes import *
from .sorting import *
from .statistical import *
from .storage import *
