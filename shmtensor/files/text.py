"""Numbers as text in the formats of C's printf and scanf, in blocks with NumPy where possible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..dtypes import NumpyType

BLOCK: Final = 1 << 14
"""Numbers written at once."""
MAX_LENGTH: Final = 4096
"""Maximum number of characters of a number."""
_FEW: Final = 8  # up to this many numbers, scanning them one by one is faster than NumPy

_SPACES: Final = b" \t\n\v\f\r"
_IS_SPACE: Final = np.isin(np.arange(256), list(_SPACES))
_SPACE: Final = re.compile(rb"[ \t-\r]*")
_PATTERNS: Final = {
    "i": re.compile(rb"[+-]?[0-9]+"),
    "f": re.compile(
        rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
        rb"|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?|[nN][aA][nN])"
    ),
}
"""Kind of a dtype -> what scanf accepts as a number."""
# The beginning of a number that may continue after the end of the text: "-", "1e", "in".
_BEGUN: Final = re.compile(rb"[+-]?(?:[iI][nN]?|[nN][aA]?|\.)?")


def _conversion(dtype: NumpyType) -> bytes:
    """Return the conversion of printf: %.9g reproduces a float32, %.17g a float64."""
    return b"%d" if dtype.kind in "iu" else b"%.17g" if dtype.itemsize == 8 else b"%.9g"


def written(values: NDArray[Any], spacing: bool) -> Iterator[tuple[bytes, int]]:
    """Yield (text, number of values) in blocks. Does not block.

    Args:
        values: one axis, of integers or floats.
        spacing: write spaces between numbers and a newline after the last.
    """
    conversion = _conversion(values.dtype)
    between = b" " if spacing else b""
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        end = b"" if not spacing else b"\n" if start + len(block) == len(values) else b" "
        form = between.join([conversion] * len(block)) + end
        yield _signed(form, block) % tuple(block.tolist()), len(block)


def _signed(form: bytes, block: NDArray[Any]) -> bytes:
    """Add the signs of negative NaNs, which C writes and Python does not."""
    if block.dtype.kind != "f":
        return form
    negative = np.isnan(block) & np.signbit(block)
    if not negative.any():
        return form
    parts = form.split(b"%")
    for index in np.flatnonzero(negative):
        parts[index] += b"-"
    return b"%".join(parts)


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of scanning a piece of text."""

    count: int
    """Number of numbers found."""
    used: int
    """Bytes up to the end of the last number, or up to something that is not a number."""
    stopped: bool
    """Whether something that is not a number of this type follows. False: the text ends."""


def scan(text: Any, start: int, stop: int, final: bool, out: NDArray[Any]) -> Scan:
    """Read numbers out of `text[start:stop]` into `out`, as scanf does. Does not block.

    Args:
        text: bytes or a view of them.
        start: first byte.
        stop: end of the bytes.
        final: whether the text ends at `stop`. Otherwise a number that ends there is left, since it may continue.
        out: one axis, of integers or floats; at most as many numbers as it has room for are read.
    """
    if len(out) > _FEW:
        found = _scan_block(text, start, stop, final, out)
        if found is not None:
            return found
    return _scan_each(text, start, stop, final, out)


def _scan_block(text: Any, start: int, stop: int, final: bool, out: NDArray[Any]) -> Scan | None:
    """Scan with NumPy; None if the text is not numbers separated by spaces."""
    view = np.frombuffer(text, np.uint8, stop - start, start) if stop > start else np.empty(0, np.uint8)
    space = _IS_SPACE[view]
    ends = np.flatnonzero(space[1:] & ~space[:-1]) + 1
    if final and len(space) and not space[-1]:
        ends = np.append(ends, len(space))
    ends = ends[: len(out)]
    if not len(ends):
        return None
    used = int(ends[-1])
    wide = np.int64 if out.dtype.kind in "iu" else np.float64
    try:
        # The 7 shows that everything before it was read: NumPy before 2.4 stops silently, or with a warning, at
        # something that is not a number.
        values = np.fromstring(view[:used].tobytes() + b" 7", wide, sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    if len(values) != len(ends) + 1 or values[-1] != 7:
        return None
    values = values[:-1]
    if wide is np.int64:
        bounds = np.iinfo(out.dtype)
        # Beyond int64 NumPy returns the bound, so values at the bound are scanned again.
        if bool(((values < bounds.min) | (values > bounds.max)).any()) or (
            bounds.bits == 64 and bool(((values == bounds.min) | (values == bounds.max)).any())
        ):
            return None
    with np.errstate(over="ignore"):  # values that are too large become infinity, as in scanf
        out[: len(values)] = values
    return Scan(len(values), used, False)


def _scan_each(text: Any, start: int, stop: int, final: bool, out: NDArray[Any]) -> Scan:
    integral = out.dtype.kind in "iu"
    pattern = _PATTERNS["i" if integral else "f"]
    bounds = np.iinfo(out.dtype) if integral else None
    at = start
    for index in range(len(out)):
        space = _SPACE.match(text, at, stop)
        first = at if space is None else space.end()
        if first == stop:
            return Scan(index, first - start, False)
        found = pattern.match(text, first, min(stop, first + MAX_LENGTH + 1))
        end = first if found is None else found.end()
        if end - first > MAX_LENGTH:
            return Scan(index, first - start, True)
        if not final and (end == stop or _goes_on(text, first, end, stop)):
            return Scan(index, first - start, False)
        if found is None:
            return Scan(index, first - start, True)
        if bounds is not None:
            number = int(found[0])
            if not bounds.min <= number <= bounds.max:
                return Scan(index, first - start, True)
            out[index] = number
        else:
            with np.errstate(over="ignore"):  # as above
                out[index] = float(found[0])
        at = end
    return Scan(len(out), at - start, False)


def _goes_on(text: Any, first: int, end: int, stop: int) -> bool:
    """Whether more text could extend the number, or the beginning of one, from `first` to the end of the text."""
    if end > first:  # "1" of "1e+", whose exponent may follow; "inf" of "infin"
        rest = bytes(text[end : end + 6])
        return stop - end < 6 and re.fullmatch(rb"[eE][+-]?|[iI](?:[nN](?:[iI](?:[tT])?)?)?", rest) is not None
    begun = _BEGUN.match(text, first, stop)
    return begun is not None and begun.end() == stop
