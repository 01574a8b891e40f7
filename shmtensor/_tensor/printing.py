"""The text of a tensor, which is torch's, and the options for it.

`Tensor.__repr__` loads this module when the first tensor is printed. Nothing in it blocks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..devices import CPU
from ..dtypes import BY_DTYPE, default_complex, default_float
from ..errors import InvalidArgument
from ..storage.arguments import integer
from .core import Tensor


@dataclass(frozen=True, slots=True)
class Options:
    """How tensors are printed; `set_printoptions` says what each field means."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


PROFILES: Final = {
    "default": Options(), "short": Options(precision=2, edgeitems=2), "full": Options(threshold=math.inf),
}  # fmt: skip
_UNNAMED: Final = (np.dtype(np.int64), np.dtype(np.bool_))

_MOST: Final = {"precision": 1000, "edgeitems": sys.maxsize // 2, "linewidth": sys.maxsize}

_options = PROFILES["default"]


# -- options -----------------------------------------------------------------------------------------------------------


def set_printoptions(
    precision: Any = None,
    threshold: Any = None,
    edgeitems: Any = None,
    linewidth: Any = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed in this process. An option that is None stays as it is, except for sci_mode.

    Args:
        precision: digits after the decimal point, at most 1000 (at first 4).
        threshold: a tensor of more elements is printed in part, with "..." for the rest (1000; `inf`: never).
        edgeitems: elements at the beginning and at the end of each axis that are printed of such a tensor (3).
        linewidth: characters in a line (80).
        profile: "default", "short" (precision 2, edgeitems 2) or "full" (threshold inf): sets these four first.
        sci_mode: whether numbers are written with powers of ten. None: where they are above 1e8, below 1e-4, or the
            largest is more than 1000 times the smallest.

    Raises:
        InvalidArgument: no such profile, or a value that is not such a number. No option was changed.
    """
    global _options
    if profile is not None and profile not in PROFILES:
        raise InvalidArgument(f"asked for the profile {profile!r}; use one of {', '.join(PROFILES)}")
    counts = {"precision": precision, "edgeitems": edgeitems, "linewidth": linewidth}
    changes: dict[str, Any] = {name: _count(name, value) for name, value in counts.items() if value is not None}
    if threshold is not None:
        changes["threshold"] = _threshold(threshold)
    if sci_mode is not None and not isinstance(sci_mode, bool | np.bool_):
        raise InvalidArgument(f"sci_mode {sci_mode!r} is not True, False or None; use one of these")
    base = _options if profile is None else PROFILES[profile]
    _options = replace(base, **changes, sci_mode=None if sci_mode is None else bool(sci_mode))


def get_printoptions() -> dict[str, Any]:
    """Return how tensors are printed, as arguments for `set_printoptions`."""
    return asdict(_options)


def _count(name: str, value: Any) -> int:
    try:
        count = integer(value)
    except TypeError:
        count = -1
    if not 0 <= count <= _MOST[name]:
        raise InvalidArgument(f"{name} {value!r:.100} is not an integer from 0 to {_MOST[name]}; give one")
    return count


def _threshold(value: Any) -> float:
    try:
        if not isinstance(value, str) and not math.isnan(value):
            return value if type(value) is int else float(value)
    except (TypeError, ValueError):
        pass
    raise InvalidArgument(f"threshold {value!r} is not a number; give one, or inf")


# -- a tensor ----------------------------------------------------------------------------------------------------------


def text_of(tensor: Tensor) -> str:
    """Return torch's text for a tensor; its types are named `shmtensor.float64`.

    In addition it has `memory=` and the kind of memory where other processes can have it. Values, type and options are
    those of one moment, also when other threads change the options and other processes the values.
    """
    options = _options
    array = tensor._on_host()
    prefix = "tensor(" if type(tensor) is Tensor else f"{type(tensor).__name__}("
    text = prefix + _values(array, len(prefix), options)
    return _with_facts(text, list(_facts(tensor, array, options)), len(prefix), options.linewidth)


def _facts(tensor: Tensor, array: NDArray[Any], options: Options) -> Iterator[str]:
    """The properties of a tensor that are printed after its values."""
    if tensor.device != CPU:
        yield f"device='{tensor.device}'"
    if (array.ndim != 1 and not array.size) or (array.size and not options.edgeitems):
        yield f"size={array.shape}"
    # The types that values have by default are not printed. Integers are recognizable only if there are values.
    unnamed = (default_float(), default_complex(), *_UNNAMED) if array.size else (default_float(),)
    if array.dtype not in unnamed:
        yield f"dtype=shmtensor.{BY_DTYPE[array.dtype].name}"
    if tensor.requires_grad:
        node = tensor.grad_fn
        yield "requires_grad=True" if node is None else f"grad_fn=<{node.name()}>"
    storage = tensor.storage()
    if storage.is_shared():
        yield f"memory={storage._place()}"


def _with_facts(text: str, facts: list[str], indent: int, linewidth: int) -> str:
    """The text followed by the facts, each on a new line if the line would be too long."""
    column = len(text) - text.rfind("\n") + 1
    for fact in facts:
        width = len(fact.replace("shmtensor.", "torch."))  # so that lines end where torch's do
        if column + width + 2 > linewidth:
            text += f",\n{' ' * indent}{fact}"
            column = indent + width
        else:
            text += f", {fact}"
            column += width + 2
    return f"{text})"


def _values(array: NDArray[Any], indent: int, options: Options) -> str:
    """The values in brackets, one for each axis."""
    if not array.size:
        return "[]"
    edge = options.edgeitems
    cut = tuple(array.size > options.threshold and count > 2 * edge for count in array.shape)
    if any(cut):
        ends = [
            [*range(edge), *range(count - edge, count)] if short else range(count)
            for count, short in zip(array.shape, cut, strict=True)
        ]
        array = array[np.ix_(*ends)]
    cells, width = _cells(np.array(array.reshape(-1)), options)
    if not cut:
        return cells[0]
    in_line = max(1, (options.linewidth - indent - len(cut) + 1) // (width + 2))
    return _nested(iter(cells), tuple(zip(array.shape, cut, strict=True)), edge, indent + 1, in_line)


def _nested(cells: Iterator[str], axes: tuple[tuple[int, bool], ...], edge: int, indent: int, in_line: int) -> str:
    """Put the next cells in brackets.

    Args:
        cells: the text of each element, in order; as many as are needed are taken.
        axes: for each axis, how many elements of it are printed, and whether it has others in their middle.
        edge: how many are printed before the middle.
        indent: where lines begin that follow in the same brackets.
        in_line: how many cells a line has.
    """
    (count, cut), *inner = axes
    if inner:
        parts = [_nested(cells, tuple(inner), edge, indent + 1, in_line) for _ in range(count)]
    else:
        parts = list(islice(cells, count))
    if cut:
        parts.insert(edge, "..." if inner or not edge else " ...")
    if not inner:
        parts = [", ".join(parts[first : first + in_line]) for first in range(0, len(parts), in_line)]
    between = "," + "\n" * max(1, len(inner)) + " " * indent
    return f"[{between.join(parts)}]"


# -- numbers -----------------------------------------------------------------------------------------------------------


def _cells(values: NDArray[Any], options: Options) -> tuple[list[str], int]:
    """The text of each value, filled up to a common width, and this width. A wide nan, inf or 0 may exceed it."""
    if values.dtype.kind == "c":
        (reals, real_width), (imaginary, width) = _cells(values.real, options), _cells(values.imag, options)
        return [_complex(*parts) for parts in zip(reals, imaginary, strict=True)], real_width + width + 1
    if values.dtype.kind in "biu":
        texts = [str(value) for value in values.tolist()]
        width = max(map(len, texts), default=1)
    else:
        with np.errstate(all="ignore"):  # a signalling nan
            values = values.astype(np.float64)
        decides = np.isfinite(values) & (values != 0)
        write = _notation(values[decides], options)
        texts = [write(value) for value in values.tolist()]
        width = max((len(text) for text, one in zip(texts, decides.tolist(), strict=True) if one), default=1)
    return [text.rjust(width) for text in texts], width


def _complex(real: str, imaginary: str) -> str:
    imaginary = imaginary.lstrip()
    return f"{real}{imaginary}j" if imaginary[0] == "-" else f"{real}+{imaginary}j"


def _notation(values: NDArray[Any], options: Options) -> Callable[[float], str]:
    """The format of numbers that include these, all finite and not 0."""
    if not values.size:
        return _whole
    powers = options.sci_mode
    if powers is None:
        sizes = np.abs(values)
        least, most = float(sizes.min()), float(sizes.max())
        powers = most / least > 1000 or most > 1e8 or least < 1e-4
    if powers:
        return f"{{:.{options.precision}e}}".format
    return _whole if (values == np.ceil(values)).all() else f"{{:.{options.precision}f}}".format


def _whole(value: float) -> str:
    """A float that is a whole number, so that it can be told from an integer."""
    return f"{value:.0f}." if math.isfinite(value) else str(value)
