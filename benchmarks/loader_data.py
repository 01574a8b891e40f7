"""The datasets of the loader benchmarks."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.measure import ROOT


class InMemory:
    """Rows of an array in memory, each repeated several times."""

    def __init__(self, rows: int, shape: tuple[int, ...], length: int) -> None:
        import numpy as np

        self.x, self.length = np.random.default_rng(0).standard_normal((rows, *shape), dtype=np.float32), length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.x[index % len(self.x)]


class Photographs:
    """Crops, (32, 32, 3) uint8, each from a JPEG file that is decoded for it. An index always gives the same crop."""

    def __init__(self, length: int) -> None:
        sys.path.append(str(ROOT / "examples"))
        from common import photographs

        self.files, self.length = list(photographs.files().values()), length
        self.decoded, self.cut = photographs.decoded, photographs.cut

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        import numpy as np

        photograph = self.decoded(self.files[index % len(self.files)])
        return np.array(self.cut(photograph, 0, photograph.width, np.random.default_rng(int(index))))
