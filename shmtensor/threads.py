"""The number of threads of the libraries that compute for NumPy. Nothing in this module blocks.

These are the BLAS and OpenMP libraries of this process, found by the package threadpoolctl; without it, OpenBLAS, which
is part of NumPy's and SciPy's wheels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from .errors import DTypeError, InvalidArgument, MissingExtra
from .storage.arguments import integer

_OPENBLAS: Final = [
    f"{prefix}openblas_{{}}_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "_64_", "")
]
"""Names of its functions, which differ between builds."""


def get_num_threads() -> int:
    """Return the number of threads of matrix products and linear algebra in this process.

    Raises:
        MissingExtra: there is no OpenBLAS, and the package threadpoolctl is not installed.
    """
    package = _threadpoolctl()
    if package is None:
        return max(int(get()) for get in _openblas("get"))
    found = [int(one["num_threads"]) for one in package.threadpool_info()]
    return max(found, default=1)


def set_num_threads(n: Any) -> None:
    """Set the number of threads of matrix products and linear algebra in this process.

    Raises:
        DTypeError: n is not an integer.
        InvalidArgument: n is less than 1.
        MissingExtra: there is no OpenBLAS, and the package threadpoolctl is not installed.
    """
    try:
        count = integer(n)
    except TypeError:
        raise DTypeError(f"the number of threads {n!r} is not an integer; give one from 1") from None
    if count < 1:
        raise InvalidArgument(f"asked for {count} threads; give one or more")
    package = _threadpoolctl()
    if package is not None:
        package.threadpool_limits(count)
        return
    for change in _openblas("set"):
        change(count)


def _threadpoolctl() -> Any:
    try:
        import threadpoolctl  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return None
    return threadpoolctl


def _openblas(doing: str) -> list[Callable[..., int]]:
    """Return each OpenBLAS's function that gets or sets the number of threads. Raises MissingExtra: there is none."""
    import numpy.linalg  # noqa: F401  # loads it

    mapped = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    paths = {parts[5] for parts in mapped if len(parts) == 6 and "openblas" in Path(parts[5]).name}
    found = []
    for library in [ctypes.CDLL(path) for path in sorted(paths)]:
        found += [getattr(library, name.format(doing)) for name in _OPENBLAS if hasattr(library, name.format(doing))][
            :1
        ]
    if not found:
        raise MissingExtra(
            "the number of threads of this BLAS library is known to the package threadpoolctl, which cannot be "
            "imported; pip install threadpoolctl, or set OMP_NUM_THREADS before the program starts"
        )
    return found
