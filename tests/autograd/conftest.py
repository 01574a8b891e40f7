"""`t` is the library of a test: shmtensor and, if it is installed, torch, which confirms the test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import shmtensor as st


@pytest.fixture(params=["shmtensor", pytest.param("torch", marks=pytest.mark.torch)])
def t(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


@pytest.fixture(autouse=True)
def same_mode() -> Iterator[None]:
    """No test leaves a mode behind."""
    yield
    modes = st.is_grad_enabled(), st.is_inference_mode_enabled()
    st.set_grad_enabled(True)
    assert modes == (True, False)
