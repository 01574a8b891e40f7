"""Files of numbers with TH's interface, and files of tensors in other libraries' formats.

`DiskFile`, `MemoryFile` and `PipeFile` read and write numbers one by one or a storage at a time, as text or binary,
byte for byte as TH does. `save` and `load` keep tensors as `.npy`, `.npz` and `.safetensors`,
and checkpoints, objects that contain tensors, in a format of shmtensor and in torch's.
"""

from __future__ import annotations

from .disk import DiskFile as DiskFile
from .file import File as File
from .memory import MemoryFile as MemoryFile
from .pipe import PipeFile as PipeFile
from .saving import load as load
from .saving import save as save

__all__ = ["DiskFile", "File", "MemoryFile", "PipeFile", "load", "save"]
