"""Datasets, and the loading of their samples by worker processes, with torch's names, arguments and semantics.

Workers of a `DataLoader` write samples into batches in shared memory, which the program receives without a copy. See
docs/data.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._loading import load as _load
from .._missing import missing as _missing

if TYPE_CHECKING:
    from .collate import Padded as Padded
    from .collate import Ragged as Ragged
    from .collate import default_collate as default_collate
    from .collate import default_collate_fn_map as default_collate_fn_map
    from .collate import default_convert as default_convert
    from .collate import pad_collate as pad_collate
    from .collate import ragged_collate as ragged_collate
    from .datasets import ChainDataset as ChainDataset
    from .datasets import ConcatDataset as ConcatDataset
    from .datasets import Dataset as Dataset
    from .datasets import IterableDataset as IterableDataset
    from .datasets import StackDataset as StackDataset
    from .datasets import Subset as Subset
    from .datasets import TensorDataset as TensorDataset
    from .datasets import random_split as random_split
    from .loader import DataLoader as DataLoader
    from .randoms import WorkerInfo as WorkerInfo
    from .randoms import get_worker_info as get_worker_info
    from .randoms import sample_generator as sample_generator
    from .samplers import BatchSampler as BatchSampler
    from .samplers import BucketSampler as BucketSampler
    from .samplers import DistributedSampler as DistributedSampler
    from .samplers import RandomSampler as RandomSampler
    from .samplers import Sampler as Sampler
    from .samplers import SequentialSampler as SequentialSampler
    from .samplers import SubsetRandomSampler as SubsetRandomSampler
    from .samplers import WeightedRandomSampler as WeightedRandomSampler
    from .shared_list import SharedList as SharedList
    from .simulations import Simulations as Simulations
    from .stats import LoaderStats as LoaderStats
    from .tuning import Tuning as Tuning
    from .worker_pool import PoolStats as PoolStats
    from .worker_pool import WorkerPool as WorkerPool

_NAMES = {
    "collate": (
        "Padded", "Ragged", "default_collate", "default_collate_fn_map", "default_convert", "pad_collate",
        "ragged_collate",
    ),
    "datasets": (
        "ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset",
        "random_split",
    ),
    "loader": ("DataLoader",),
    "randoms": ("WorkerInfo", "get_worker_info", "sample_generator"),
    "samplers": (
        "BatchSampler", "BucketSampler", "DistributedSampler", "RandomSampler", "Sampler", "SequentialSampler",
        "SubsetRandomSampler", "WeightedRandomSampler",
    ),
    "shared_list": ("SharedList",),
    "simulations": ("Simulations",),
    "stats": ("LoaderStats",),
    "tuning": ("Tuning",),
    "worker_pool": ("PoolStats", "WorkerPool"),
}  # fmt: skip
"""Public names by module. A module is imported when one of its names is used first."""

_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def _find(name: str) -> Any:
    if name not in _MODULE_OF:
        raise _missing(__name__, name, __all__)
    value = globals()[name] = getattr(_load(f"data.{_MODULE_OF[name]}"), name)
    return value


if not TYPE_CHECKING:
    __getattr__ = _find
