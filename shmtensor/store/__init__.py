"""Named, immutable objects that several processes read without copying (docs/store.md)."""

from .spilling import ObjectDamaged as ObjectDamaged
from .store import ObjectNotFound as ObjectNotFound
from .store import ObjectStats as ObjectStats
from .store import Store as Store
from .store import StoreChange as StoreChange
from .store import StoreStats as StoreStats

__all__ = ["ObjectDamaged", "ObjectNotFound", "ObjectStats", "Store", "StoreChange", "StoreStats"]
