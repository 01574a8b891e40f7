"""Transforms of short pieces of a signal: `stft`, and its inverse. Nothing in this module blocks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError, InvalidArgument
from .core import index_of
from .dispatch import Array, Module, export, operation

PADDING: Final = {"reflect": "reflect", "constant": "constant", "replicate": "edge", "circular": "wrap"}
"""torch's names of what continues a signal, and NumPy's."""
LEAST: Final = 1e-11
"""The sum of the squares of windows, below which nothing is known of a sample."""


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


def _window(name: str, window: Array | None, length: int, points: int, real: Any) -> NDArray[Any]:
    """The window, with zeros on both sides."""
    if window is not None and window.shape != (length,):
        raise InvalidArgument(f"{name} with a window of shape {window.shape}; give one of win_length={length} values")
    left = (points - length) // 2
    values = np.ones(length, real) if window is None else window
    return np.pad(values, (left, points - length - left))


@operation()
def stft(
    xp: Module,
    x: Array,
    /,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Array | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Array:
    """The Fourier transforms of pieces of signals: (..., frequencies, pieces), of signals (n) or (several, n).

    Args:
        n_fft: length of a piece.
        hop_length: from one piece to the next; default a quarter of n_fft.
        win_length: length of the window, which stands in the middle of a piece; default n_fft.
        window: factors of this length; default ones.
        center: pieces are centred at their time: the signal is continued by n_fft // 2 at both ends.
        pad_mode: "reflect", "constant" (zeros), "replicate" or "circular".
        normalized: divided by the root of n_fft.
        onesided: n_fft // 2 + 1 frequencies, of which the others follow; default for real signals and windows.
        return_complex: False: real and imaginary parts in a last axis. Must be given for real signals.
        align_to_window: with center=False: the first window begins at the first element.

    Raises:
        InvalidArgument: lengths, shapes, a mode, arguments that do not go together; a signal that is too short.
        DTypeError: integers.
    """
    points, hop, length = _lengths("stft", n_fft, hop_length, win_length)
    if x.dtype.kind not in "fc":
        raise DTypeError(f"stft of a tensor of {x.dtype.name}; it takes floating-point and complex numbers")
    if x.ndim not in (1, 2):
        raise InvalidArgument(f"stft of a tensor of shape {x.shape}; give one axis or two")
    is_complex = x.dtype.kind == "c" or (window is not None and window.dtype.kind == "c")
    if return_complex is None and not is_complex:
        raise InvalidArgument("stft of real numbers needs return_complex; give True, or False for two parts")
    if is_complex and onesided:
        raise InvalidArgument("stft of complex numbers has no onesided=True; leave it out")
    signal = _continued(x, points, length, center, pad_mode, align_to_window)
    if signal.shape[-1] < points:
        raise InvalidArgument(f"stft with n_fft={points} of a signal of {signal.shape[-1]} elements; it is too short")
    pieces = np.lib.stride_tricks.sliding_window_view(signal, points, -1)[..., ::hop, :]
    pieces = pieces * _window("stft", window, length, points, x.real.dtype)
    halved = not is_complex if onesided is None else onesided
    found = (xp.fft.rfft if halved else xp.fft.fft)(pieces, norm="ortho" if normalized else None)
    found = found.swapaxes(-1, -2)
    return found if return_complex is not False else xp.stack((found.real, found.imag), -1)


def _continued(x: Array, points: int, length: int, center: bool, pad_mode: str, align_to_window: bool | None) -> Array:
    """The signal with what is added at its ends."""
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
    widths = [(0, 0)] * (x.ndim - 1) + [(more, more)]
    return np.pad(x, widths, PADDING[pad_mode])  # type: ignore[call-overload]


@operation()
def istft(
    xp: Module,
    x: Array,
    /,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Array | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Array:
    """The signals of which `stft` gives this: (..., frequencies, pieces), complex; the sum of pieces that overlap.

    Args:
        n_fft, hop_length, win_length, window, center, normalized, onesided: as stft was given them.
        length: of the signal, which is cut or filled with zeros; default as far as it is known.
        return_complex: the signal is complex.

    Raises:
        InvalidArgument: lengths, shapes, arguments that do not go together; windows that leave elements unknown.
        DTypeError: real numbers.
    """
    points, hop, wide = _lengths("istft", n_fft, hop_length, win_length)
    if x.dtype.kind != "c":
        raise DTypeError(f"istft of a tensor of {x.dtype.name}; it takes complex numbers")
    if x.ndim not in (2, 3) or not x.size:
        raise InvalidArgument(f"istft of a tensor of shape {x.shape}; give (frequencies, pieces), or several of these")
    halved = x.shape[-2] != points if onesided is None else onesided
    if x.shape[-2] != (points // 2 + 1 if halved else points):
        raise InvalidArgument(f"istft with n_fft={points} of a tensor of shape {x.shape}; its frequencies do not fit")
    if return_complex and halved:
        raise InvalidArgument("istft with return_complex of one half of the frequencies; give all of them")
    if not return_complex and window is not None and window.dtype.kind == "c":
        raise InvalidArgument("istft with a complex window; give return_complex=True")
    norm = "ortho" if normalized else None
    spectra = x.swapaxes(-1, -2)
    if return_complex:
        pieces = xp.fft.ifft(spectra, norm=norm)
    else:
        pieces = xp.fft.irfft(spectra[..., : points // 2 + 1], points, norm=norm)
    factors = _window("istft", window, wide, points, x.real.dtype)
    return _overlapped(pieces * factors, factors, hop, points // 2 if center else 0, length)


def _overlapped(pieces: Array, factors: Array, hop: int, skipped: int, length: int | None) -> Array:
    """The sum of pieces, divided by that of the squares of their windows, without what is skipped at the ends."""
    *several, count, points = pieces.shape
    size = points + hop * (count - 1)
    signal = np.zeros((*several, size), np.result_type(pieces, factors))
    weights = np.zeros(size, factors.dtype)
    for i in range(count):
        signal[..., i * hop : i * hop + points] += pieces[..., i, :]
        weights[i * hop : i * hop + points] += factors**2
    end = size - skipped if length is None else skipped + length
    signal, weights = signal[..., skipped:end], weights[skipped:end]
    if not weights.size or np.abs(weights).min() < LEAST:
        raise InvalidArgument("istft with windows that do not overlap enough to know every element; take a smaller hop")
    signal = signal / weights
    lacking = 0 if length is None else length - signal.shape[-1]
    return np.pad(signal, [(0, 0)] * len(several) + [(0, lacking)]) if lacking else signal


__all__ = export(globals())
