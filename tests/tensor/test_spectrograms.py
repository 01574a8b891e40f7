"""stft and istft: against torch, against each other, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shmtensor as st

SIGNAL = np.sin(np.arange(400, dtype=np.float32) ** 2 / 300)
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"n_fft": 32},
    "hop": {"n_fft": 32, "hop_length": 8, "normalized": True},
    "short window": {"n_fft": 32, "win_length": 20, "hop_length": 5},
    "all frequencies": {"n_fft": 15, "hop_length": 4, "onesided": False},
    "zeros": {"n_fft": 32, "pad_mode": "constant"},
    "replicated": {"n_fft": 32, "pad_mode": "replicate"},
    "circular": {"n_fft": 32, "pad_mode": "circular"},
    "not centred": {"n_fft": 32, "center": False, "hop_length": 7},
    "aligned": {"n_fft": 32, "win_length": 20, "hop_length": 5, "center": False, "align_to_window": True},
}


@pytest.mark.torch
@pytest.mark.parametrize("how", SETTINGS.values(), ids=list(SETTINGS))
def test_pieces_are_those_of_torch(how: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    width = how.get("win_length", how["n_fft"])
    theirs = torch.stft(
        torch.from_numpy(SIGNAL), window=torch.hann_window(width) + 0.1, return_complex=True, **how
    )  # fmt: skip
    found = st.stft(st.from_numpy(SIGNAL), window=st.hann_window(width) + 0.1, return_complex=True, **how)
    assert found.dtype == st.complex64
    np.testing.assert_allclose(found.numpy(), theirs.numpy(), atol=1e-4)


@pytest.mark.parametrize("name", ["plain", "hop", "short window", "all frequencies"])
def test_the_inverse_gives_the_signal(name: str) -> None:
    how = SETTINGS[name]
    window = st.hann_window(how.get("win_length", how["n_fft"]))
    x = st.from_numpy(np.stack([SIGNAL, SIGNAL[::-1]]))
    found = x.stft(window=window, return_complex=True, **how)
    again = found.istft(window=window, length=400, **how)
    assert again.dtype == st.float32
    np.testing.assert_allclose(again.numpy(), x.numpy(), atol=1e-5)


def test_complex_signals() -> None:
    x = st.from_numpy((SIGNAL + 1j * SIGNAL[::-1]).astype(np.complex64))
    found = st.stft(x, 16)
    assert found.shape == (16, 101)
    np.testing.assert_allclose(st.istft(found, 16, return_complex=True).numpy(), x.numpy(), atol=1e-5)


def test_two_parts() -> None:
    x = st.from_numpy(SIGNAL)
    parts = st.stft(x, 16, return_complex=False)
    np.testing.assert_array_equal(parts.numpy(), st.view_as_real(st.stft(x, 16, return_complex=True)).numpy())


WRONG: list[tuple[str, Any]] = [
    ("needs return_complex", lambda x: st.stft(x, 16)),
    ("n_fft=0", lambda x: st.stft(x, 0, return_complex=True)),
    ("win_length=17", lambda x: st.stft(x, 16, win_length=17, return_complex=True)),
    (r"window of shape \(3,\)", lambda x: st.stft(x, 16, window=st.ones(3), return_complex=True)),
    ("too short", lambda x: st.stft(x[:5], 16, return_complex=True)),
    ("too short", lambda x: st.stft(x[:5], 16, center=False, return_complex=True)),
    ("pad_mode 'none'", lambda x: st.stft(x, 16, pad_mode="none", return_complex=True)),
    ("align_to_window", lambda x: st.stft(x, 16, align_to_window=True, return_complex=True)),
    ("onesided", lambda x: st.stft(x.cfloat(), 16, onesided=True)),
    (r"shape \(\)", lambda x: st.stft(x[0], 16, return_complex=True)),
    ("do not fit", lambda x: st.istft(st.ones(5, 9, dtype=st.cfloat), 16)),
    ("give all of them", lambda x: st.istft(st.ones(9, 9, dtype=st.cfloat), 16, return_complex=True)),
    ("overlap", lambda x: st.istft(st.ones(9, 9, dtype=st.cfloat), 16, window=st.zeros(16))),
]


@pytest.mark.parametrize(("message", "call"), WRONG)
def test_what_is_refused(message: str, call: Any) -> None:
    with pytest.raises(st.errors.InvalidArgument, match=message):
        call(st.from_numpy(SIGNAL))


def test_types_that_are_refused() -> None:
    with pytest.raises(st.errors.DTypeError, match="int64"):
        st.stft(st.arange(100), 16, return_complex=True)
    with pytest.raises(st.errors.DTypeError, match="float32"):
        st.istft(st.ones(9, 9), 16)
