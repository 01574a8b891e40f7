"""The seed corpus: a file for each input, in one archive, so that a change of the corpus changes one file."""

from __future__ import annotations

import zipfile
from pathlib import Path

ARCHIVE = Path(__file__).with_name("corpus.zip")
_DATE = (1980, 1, 1, 0, 0, 0)


def unpack(folder: Path) -> None:
    """Put each input into `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)


def pack(folder: Path) -> None:
    """Make the archive anew of the files in `folder`; of the same files the same bytes."""
    with zipfile.ZipFile(ARCHIVE, "w") as archive:
        for path in sorted(folder.iterdir()):
            archive.writestr(zipfile.ZipInfo(path.name, _DATE), path.read_bytes())
