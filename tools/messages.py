"""One error message, as the readers of Python and of C++ find it (python_messages.py, native_messages.py)."""

from __future__ import annotations

import re
from dataclasses import dataclass

FEATURES = {
    "Tensors": "_tensor array_api dtypes layouts devices cuda atomics threads accounts utils "
    "native/array native/operation native/tensors native/module_atomics",
    "Linear algebra, random numbers, transforms": "linalg random special fft native/module_random",
    "Gradients": "autograd gradients native/autograd_nodes native/autograd_passes native/autograd_rules",
    "Storages and allocators": "storage allocators native/module_blocks native/views",
    "Neural networks": "nn hogwild native/module_layers",
    "Optimizers": "optim native/module_training",
    "Loading of data": "data",
    "Files": "files",
    "Queues, pools and processes": "ipc multiprocessing native/rings native/rings_get native/rings_put "
    "native/rings_move native/module_queue native/module_ring native/module_broadcast native/module_sync native/waits "
    "native/codec_read native/codec_write native/codec_memory native/module_codec",
    "Stores": "store native/module_store",
    "Channels": "channel",
    "The manager and shared memory": "manager hooks native/errors native/module_client native/module_group "
    "native/module_segment native/module_system",
    "GPUs": "gpu native/module_gpu",
    "DLPack, torch, Ray and Dask": "integrations native/module_dlpack",
}
GENERAL = "Names and imports"
"""The feature of all other modules."""
_FEATURE_OF = {part: title for title, parts in FEATURES.items() for part in parts.split()}


@dataclass(frozen=True)
class Message:
    """One message: the class that a program sees, where it is made, and its text with placeholders in braces."""

    kind: str
    place: str
    line: int
    text: str

    @property
    def feature(self) -> str:
        """The feature of the module that makes it."""
        parts = self.place.removesuffix(".py").removesuffix(".cpp").split("/")
        return _FEATURE_OF.get("/".join(parts[:2]) if parts[0] == "native" else parts[0], GENERAL)


def has_words(text: str) -> bool:
    """Whether a text has words between its placeholders."""
    return re.search(r"[A-Za-z]{2}", re.sub(r"\{[^{}]*\}", "", text)) is not None
