"""Helpers for tests of DLPack: hand-made capsules, which count their deletions, and tensors."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor.manager import client

PLACES = pytest.mark.parametrize("shared", [False, True], ids=["heap", "shared"])
NAMED = {
    "bfloat16": (4, 16), "float8_e3m4": (7, 8), "float8_e4m3": (8, 8), "float8_e4m3b11fnuz": (9, 8),
    "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8), "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}  # fmt: skip
"""Types of ml_dtypes: DLPack's type code and bits."""
NAMES = {False: b"dltensor", True: b"dltensor_versioned"}


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("axes", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


STRUCTS = {False: Managed, True: ManagedVersioned}

new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
name_at = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_GetName", ctypes.pythonapi))
pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
rename_at = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _drop(capsule: int) -> None:
    """The destructor of every producer's capsule: calls the deleter if the capsule was not consumed."""
    for versioned, name in NAMES.items():
        if name_at(capsule) == name:
            deleter = STRUCTS[versioned].from_address(pointer_at(capsule, name)).deleter
            if deleter:
                Deleter(deleter)(pointer_at(capsule, name))


class Made:
    """A producer of a tensor with the fields from the arguments, and the bytes 0, 1, 2, ... as its content."""

    def __init__(
        self,
        sizes: Sequence[int] | None = (3,),
        strides: Sequence[int] | None = None,
        *,
        type: tuple[int, int, int] = (0, 32, 1),
        device: tuple[int, int] = (1, 0),
        axes: int | None = None,
        at: int | None = 0,
        offset: int = 0,
        versioned: bool = True,
        version: tuple[int, int] = (1, 1),
        flags: int = 0,
        name: bytes | None = None,
        deletes: bool = True,
        nbytes: int = 256,
    ) -> None:
        self.memory = (ctypes.c_uint8 * nbytes)(*(i % 256 for i in range(nbytes)))
        self.deleted = 0
        self.asked: dict[str, Any] = {}
        self._deleter = Deleter(self._delete)
        self._sizes = (ctypes.c_int64 * len(sizes))(*sizes) if sizes is not None else None
        self._strides = (ctypes.c_int64 * len(strides))(*strides) if strides is not None else None
        self.managed = STRUCTS[versioned]()
        self.managed.deleter = ctypes.cast(self._deleter, ctypes.c_void_p) if deletes else None
        if versioned:
            self.managed.version[:] = version
            self.managed.flags = flags
        t = self.managed.tensor
        t.data = None if at is None else ctypes.addressof(self.memory) + at
        t.device[:] = device
        t.axes = len(sizes or ()) if axes is None else axes
        t.code, t.bits, t.lanes = type
        if self._sizes is not None:
            t.sizes = self._sizes
        if self._strides is not None:
            t.strides = self._strides
        t.byte_offset = offset
        self._name = NAMES[versioned] if name is None else name

    def _delete(self, managed: int) -> None:
        assert managed == ctypes.addressof(self.managed)
        self.deleted += 1

    def capsule(self) -> Any:
        return new(ctypes.addressof(self.managed), self._name, ctypes.cast(_drop, ctypes.c_void_p))

    def __dlpack__(self, **asked: Any) -> Any:
        self.asked = asked
        return self.capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return tuple(self.managed.tensor.device)


def name_of(capsule: Any) -> str:
    return (name_at(id(capsule)) or b"").decode()


def content_of(capsule: Any) -> Any:
    """The struct in a capsule, which is not consumed."""
    name = name_at(id(capsule))
    struct = STRUCTS[name.endswith(b"versioned")].from_address(pointer_at(id(capsule), name))
    struct.where = pointer_at(id(capsule), name)
    return struct


def take(capsule: Any) -> tuple[int, int]:
    """Consume a capsule, as another library does: (address of its deleter, the argument for it)."""
    content = content_of(capsule)
    name = name_at(id(capsule))
    _kept.append(b"used_" + name)
    rename_at(id(capsule), _kept[-1])
    return content.deleter, content.where


_kept: list[bytes] = []  # names of capsules, which only have pointers to them


def twelve(shared: bool, dtype: Any = np.float32) -> Any:
    """A tensor of shape (3, 4)."""
    return shmtensor.tensor(np.arange(12).astype(dtype), shared=shared).view(3, 4)


def run(code: str, **env: str) -> str:
    """Run a program in a process of its own, which must succeed and write nothing to stderr."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def sent(value: Any) -> Any:
    """The value as a receiver gets it."""
    queue = mp.SimpleQueue()
    queue.put(value)
    return queue.get()


def blocks() -> int:
    """Blocks that this process holds."""
    gc.collect()
    return int(client.default().native.stats().blocks)
