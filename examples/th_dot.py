"""TH's example program: ten floats from each of two files, their dot product plus the sum of the first, printed.

    python examples/th_dot.py [FOLDER]

The files x and y are text, such as `seq 1 10 > x` writes. Missing files are written first: x with 1 to 10, y with 10
to 1, so that the answer is 275.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import shmtensor
from shmtensor.errors import FileDamaged
from shmtensor.files import DiskFile

COUNT = 10


def read(path: Path) -> shmtensor.Tensor:
    """A tensor of the first ten floats of a file. Raises FileDamaged, OSError."""
    storage = shmtensor.FloatStorage(COUNT)
    with DiskFile(path) as file:
        file.read_float_storage(storage)
    return shmtensor.FloatTensor(storage)


def write(path: Path, values: shmtensor.Tensor) -> None:
    """Write floats as text. Raises OSError."""
    with DiskFile(path, "w") as file:
        file.write_float_storage(values.storage())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="where x and y are (default: here)")
    folder = parser.parse_args().folder
    numbers = list(range(1, COUNT + 1))
    try:
        for name, values in (("x", numbers), ("y", numbers[::-1])):
            if not (folder / name).exists():
                write(folder / name, shmtensor.FloatTensor(values))
        x, y = read(folder / "x"), read(folder / "y")
    except (FileDamaged, OSError) as error:
        print(f"th_dot: {error}", file=sys.stderr)
        return 1
    print(f"{(x * y).sum() + x.sum():f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
