"""How many threads the libraries use that compute for NumPy. Nothing in this module blocks.

These are the BLAS and OpenMP libraries of this process, which the package threadpoolctl finds.
"""

from __future__ import annotations

from typing import Any

from .errors import DTypeError, InvalidArgument, MissingExtra
from .storage.arguments import integer


def get_num_threads() -> int:
    """How many threads matrix products and linear algebra use in this process.

    Raises:
        MissingExtra: the package threadpoolctl is not installed.
    """
    found = [int(one["num_threads"]) for one in _threadpoolctl().threadpool_info()]
    return max(found, default=1)


def set_num_threads(n: Any) -> None:
    """Let matrix products and linear algebra use `n` threads in this process.

    Raises:
        DTypeError: n is not an integer.
        InvalidArgument: n below 1.
        MissingExtra: the package threadpoolctl is not installed.
    """
    try:
        count = integer(n)
    except TypeError:
        raise DTypeError(f"the number of threads {n!r} is not an integer") from None
    if count < 1:
        raise InvalidArgument(f"asked for {count} threads; give one or more")
    _threadpoolctl().threadpool_limits(count)


def _threadpoolctl() -> Any:
    try:
        import threadpoolctl  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise MissingExtra(
            f"the number of threads is known to the package threadpoolctl, which cannot be imported ({error}); "
            "pip install threadpoolctl, or set OPENBLAS_NUM_THREADS before the program starts"
        ) from error
    return threadpoolctl
