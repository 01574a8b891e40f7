"""Every element type, for tests over all of them; types of a missing package are skipped."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from shmtensor.dtypes import TABLE

EVERY_ROW = [
    pytest.param(
        row,
        id=row.prefix,
        marks=pytest.mark.skipif(
            row.package is not None and find_spec(row.package) is None, reason=f"needs {row.package}"
        ),
    )
    for row in TABLE
]
needs_ml_dtypes = pytest.mark.skipif(find_spec("ml_dtypes") is None, reason="needs ml_dtypes")
