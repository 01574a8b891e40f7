"""Zip archives with aligned, uncompressed members: where members are in a file, and how they are written."""

from __future__ import annotations

import contextlib
import io
import struct
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ..errors import FileDamaged
from .entries import read_exactly

ALIGNMENT: Final = 64
"""Alignment in bytes of the members in a file, so that arrays in them can be mapped."""
_LOCAL: Final = struct.Struct("<4s22xHH")  # of a local header: signature, bytes of the name, bytes of the extra field
_PADDING: Final = 0xD935  # the extra field that aligns what follows, as Android's tools have it
_PIECE: Final = 1 << 20  # bytes written at once
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@contextlib.contextmanager
def writing(file: io.RawIOBase) -> Iterator[zipfile.ZipFile]:
    """Return a new archive in a file."""
    buffered = io.BufferedWriter(file)  # zipfile does not check how much was written
    try:
        with zipfile.ZipFile(buffered, "w") as archive:
            yield archive
    finally:
        buffered.detach()


def put(archive: zipfile.ZipFile, name: str, content: Iterable[Any]) -> None:
    """Write a member. Blocks as writing does. Raises OSError.

    Args:
        archive: from `writing`.
        name: name of the member.
        content: buffers of bytes, written in order. Each piece is copied, so that the checksum is right even if other
            processes write to the buffers meanwhile.
    """
    info = zipfile.ZipInfo(name)
    # The header of a member: 30 bytes, its name, our padding (4 and more), 20 for its size in 64 bits.
    start = archive.start_dir + 30 + len(info.filename.encode()) + 4 + 20
    padding = -start % ALIGNMENT
    info.extra = struct.pack("<HH", _PADDING, padding) + bytes(padding)
    info.external_attr = 0o600 << 16
    with archive.open(info, "w", force_zip64=True) as member:
        for data in content:
            for at in range(0, len(data), _PIECE):
                member.write(bytes(data[at : at + _PIECE]))


def members(
    file: io.RawIOBase, size: int, path: str, what: str
) -> tuple[zipfile.ZipFile, list[tuple[int, zipfile.ZipInfo]]]:
    """Return an archive, and its members with the offsets of their bytes. Blocks as reading does.

    Raises:
        FileDamaged: not a zip archive, or members that overlap or are beyond the end.
    """
    try:
        archive = zipfile.ZipFile(file)
        places = [(_data_offset(archive, info, file, path), info) for info in archive.infolist()]
    except FileDamaged:
        raise
    except Exception as error:  # zipfile raises exceptions of many types
        raise FileDamaged(f"{path}: not a zip archive of {what}: {error}") from error
    before = 0
    for offset, info in sorted(places, key=lambda place: place[1].header_offset):
        if info.header_offset < before or offset + info.compress_size > size:
            raise FileDamaged(f"{path}: {info.filename!r} overlaps another member or the end of the file")
        before = offset + info.compress_size
    return archive, places


def _data_offset(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: io.RawIOBase, path: str) -> int:
    """Return the offset of a member's bytes."""
    if info.compress_type not in _METHODS or info.flag_bits & 0x1 or info.is_dir():
        raise FileDamaged(f"{path}: {info.filename!r} is a directory, encrypted, or compressed in an unknown way")
    archive.open(info).close()  # checks its local header
    header = bytearray(_LOCAL.size)
    read_exactly(file, info.header_offset, memoryview(header), path)
    _, name, extra = _LOCAL.unpack(header)
    return int(info.header_offset + _LOCAL.size + name + extra)
