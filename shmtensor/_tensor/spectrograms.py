"""Transforms of short pieces of a signal: `stft`, and its inverse. Nothing in this module blocks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .. import fft
from ..errors import DTypeError, InvalidArgument
from .complex_parts import view_as_real
from .core import Tensor, array_of, index_of
from .creation import from_numpy, ones
from .dispatch import Array, Module, composed, export, operation

PADDING: Final = {"reflect": "reflect", "constant": "constant", "replicate": "edge", "circular": "wrap"}
"""torch's names of padding modes, and NumPy's."""
LEAST: Final = 1e-11
"""The sum of the squares of windows below which a sample cannot be reconstructed."""


def _lengths(name: str, n_fft: Any, hop_length: Any, win_length: Any) -> tuple[int, int, int]:
    points = index_of(n_fft, "n_fft")
    hop = points // 4 if hop_length is None else index_of(hop_length, "hop_length")
    length = points if win_length is None else index_of(win_length, "win_length")
    if points < 1 or hop < 1 or not 0 < length <= points:
        raise InvalidArgument(
            f"{name} with n_fft={points}, hop_length={hop} and win_length={length}; give numbers from 1, and a window "
            "no longer than n_fft"
        )
    return points, hop, length


def _window(name: str, window: Tensor | None, length: int, points: int, x: Tensor) -> Tensor:
    """The window, with zeros on both sides."""
    if window is not None and window.shape != (length,):
        raise InvalidArgument(f"{name} with a window of shape {window.shape}; give one of win_length={length} values")
    values = ones(length, dtype=x.real.dtype) if window is None else window
    return values if length == points else _surrounded(values, (points - length) // 2, points)


def _surrounded(x: Tensor, before: int, size: int) -> Tensor:
    """The tensor with zeros before and after the elements of the last axis, `size` elements in all."""
    have = x.shape[-1]
    return x.new_zeros((*x.shape[:-1], size)).slice_scatter(x, -1, before, before + have)


@composed()
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The Fourier transforms of pieces of signals: (..., frequencies, pieces), of signals (n) or (several, n).

    Args:
        n_fft: length of a piece.
        hop_length: from one piece to the next; default a quarter of n_fft.
        win_length: length of the window, which stands in the middle of a piece; default n_fft.
        window: factors of this length; default ones.
        center: pieces are centred at their time: the signal is continued by n_fft // 2 at both ends.
        pad_mode: "reflect", "constant" (zeros), "replicate" or "circular".
        normalized: divided by the root of n_fft.
        onesided: only n_fft // 2 + 1 frequencies; the others follow by symmetry. Default for real signals and windows.
        return_complex: False: real and imaginary parts in a last axis. Must be given for real signals.
        align_to_window: with center=False: the first window begins at the first element.

    Raises:
        InvalidArgument: lengths, shapes, a mode, incompatible arguments; a signal that is too short.
        DTypeError: integers.
    """
    points, hop, length = _lengths("stft", n_fft, hop_length, win_length)
    kind, ndim = array_of(input).dtype.kind, input.ndim
    if kind not in "fc":
        raise DTypeError(f"stft of a tensor of {input.dtype.name}; it takes floating-point and complex numbers")
    if ndim not in (1, 2):
        raise InvalidArgument(f"stft of a tensor of shape {input.shape}; give one axis or two")
    is_complex = kind == "c" or (window is not None and array_of(window).dtype.kind == "c")
    if return_complex is None and not is_complex:
        raise InvalidArgument("stft of real numbers needs return_complex; give True, or False for two parts")
    if is_complex and onesided:
        raise InvalidArgument("stft of complex numbers has no onesided=True; leave it out")
    signal = _continued(input, points, length, center, pad_mode, align_to_window)
    if signal.shape[-1] < points:
        raise InvalidArgument(f"stft with n_fft={points} of a signal of {signal.shape[-1]} elements; it is too short")
    pieces = signal.unfold(-1, points, hop) * _window("stft", window, length, points, input)
    halved = not is_complex if onesided is None else onesided
    found = (fft.rfft if halved else fft.fft)(pieces, norm="ortho" if normalized else None).swapaxes(-1, -2)
    return found if return_complex is not False else view_as_real(found)


def _continued(
    x: Tensor, points: int, length: int, center: bool, pad_mode: str, align_to_window: bool | None
) -> Tensor:
    """The signal with the padding at its ends."""
    if center and align_to_window is not None:
        raise InvalidArgument("stft with align_to_window; it is for center=False")
    if pad_mode not in PADDING:
        raise InvalidArgument(f"stft with pad_mode {pad_mode!r}; give one of {', '.join(PADDING)}")
    more = points // 2 if center else (points - length) // 2 if align_to_window else 0
    if not more:
        return x
    have = x.shape[-1]
    if (pad_mode == "reflect" and more >= have) or (pad_mode != "constant" and not have):
        raise InvalidArgument(f"stft of a signal of {have} elements, continued by {more} at both ends; it is too short")
    if pad_mode == "constant":
        return _surrounded(x, more, have + 2 * more)
    places = np.pad(np.arange(have), more, PADDING[pad_mode])  # type: ignore[call-overload]
    return x.index_select(-1, from_numpy(places))


@composed()
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signals whose `stft` is `input`: (..., frequencies, pieces), complex. Overlapping pieces are summed.

    Args:
        n_fft, hop_length, win_length, window, center, normalized, onesided: as for stft.
        length: length of the signal, which is cut or filled with zeros; default as far as it is known.
        return_complex: the signal is complex.

    Raises:
        InvalidArgument: lengths, shapes, incompatible arguments; windows that leave elements unknown.
        DTypeError: real numbers.
    """
    points, hop, wide = _lengths("istft", n_fft, hop_length, win_length)
    shape = array_of(input).shape
    if not input.is_complex():
        raise DTypeError(f"istft of a tensor of {input.dtype.name}; it takes complex numbers")
    if len(shape) not in (2, 3) or 0 in shape:
        raise InvalidArgument(f"istft of a tensor of shape {shape}; give (frequencies, pieces), or several of these")
    halved = shape[-2] != points if onesided is None else onesided
    if shape[-2] != (points // 2 + 1 if halved else points):
        raise InvalidArgument(f"istft with n_fft={points} of a tensor of shape {shape}; its frequencies do not fit")
    if return_complex and halved:
        raise InvalidArgument("istft with return_complex of one half of the frequencies; give all of them")
    if not return_complex and window is not None and window.is_complex():
        raise InvalidArgument("istft with a complex window; give return_complex=True")
    norm = "ortho" if normalized else None
    spectra = input.swapaxes(-1, -2)
    if return_complex:
        pieces = fft.ifft(spectra, norm=norm)
    else:
        pieces = fft.irfft(spectra.narrow(-1, 0, points // 2 + 1), points, norm=norm)
    factors = _window("istft", window, wide, points, input)
    return _joined(pieces * factors, factors, hop, points // 2 if center else 0, length)


def _joined(pieces: Tensor, factors: Tensor, hop: int, skipped: int, length: int | None) -> Tensor:
    """The sum of pieces, divided by that of the squares of their windows, without what is skipped at the ends."""
    signal = _overlapped(pieces, hop)
    weights = _overlapped((factors * factors).expand(pieces.shape[-2:]), hop)
    size = signal.shape[-1]
    end = min(size, size - skipped if length is None else skipped + length)
    if end <= skipped or not float(weights.narrow(0, skipped, end - skipped).abs().min()) >= LEAST:
        raise InvalidArgument("istft with windows that do not overlap enough to know every element; take a smaller hop")
    signal = signal.narrow(-1, skipped, end - skipped) / weights.narrow(0, skipped, end - skipped)
    return signal if length is None or signal.shape[-1] == length else _surrounded(signal, 0, length)


@operation(
    name="overlapped", function=False, method=False,
    gradient=lambda g, x_shape, hop: g.unfold(-1, x_shape[-1], hop),
)  # fmt: skip
def _overlapped(xp: Module, x: Array, hop: int) -> Array:
    """The sum of pieces (..., pieces, n), each of which begins `hop` elements after the one before."""
    *several, count, points = x.shape
    made = xp.zeros((*several, points + hop * (count - 1)), x.dtype)
    for i in range(count):
        made[..., i * hop : i * hop + points] += x[..., i, :]
    return made


__all__ = export(globals())
