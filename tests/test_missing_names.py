"""Missing names: the error suggests the nearest name, and finding that a name is missing stays fast."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest

import shmtensor as st

PLACES = {
    "shmtensor": st, "shmtensor.linalg": st.linalg, "shmtensor.fft": st.fft, "shmtensor.special": st.special,
    "shmtensor.random": st.random, "shmtensor.array_api": st.array_api,
    "shmtensor.array_api.linalg": st.array_api.linalg, "shmtensor.cuda": st.cuda,
}  # fmt: skip
NEAREST = [
    ("shmtensor", "soft_max", "softmax"), ("shmtensor", "zeroes", "zeros"), ("shmtensor", "Float32", "float32"),
    ("shmtensor.linalg", "slog_det", "slogdet"), ("shmtensor.linalg", "eigenvals", "eigvals"),
    ("shmtensor.fft", "fft_freq", "fftfreq"), ("shmtensor.special", "expitt", "expit"),
    ("shmtensor.random", "rand_int", "randint"), ("shmtensor.array_api", "permute_dim", "permute_dims"),
    ("shmtensor.array_api.linalg", "vec_norm", "vector_norm"), ("shmtensor.cuda", "available", "is_available"),
]  # fmt: skip


def error_of(place: Any, name: str) -> AttributeError:
    with pytest.raises(AttributeError) as caught:
        getattr(place, name)
    return caught.value


@pytest.mark.parametrize(("place", "name", "nearest"), NEAREST)
def test_a_module_says_the_nearest_name(place: str, name: str, nearest: str) -> None:
    assert str(error_of(PLACES[place], name)) == (
        f"module {place!r} has no attribute {name!r}; the nearest name is {nearest!r}"
    )


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["zqxjkwv", "_private", "__array_x__", "_repr_html_"])
def test_nothing_is_near_some_names(place: str, name: str) -> None:
    error = error_of(PLACES[place], name)
    assert str(error) == f"module {place!r} has no attribute {name!r}"
    if name.startswith("_"):
        assert type(error) is AttributeError


def test_the_error_can_be_sent() -> None:
    error = pickle.loads(pickle.dumps(error_of(st, "soft_max")))
    assert type(error) is AttributeError
    assert str(error).endswith("the nearest name is 'softmax'")


def test_a_look_that_finds_nothing_compares_no_names() -> None:
    code = (
        "import shmtensor as st, sys; hasattr(st, 'soft_max'), hasattr(st.linalg, 'x'); print('difflib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize("what", ["st.zeros(3)", "st.Tensor"])
def test_python_says_the_nearest_name_of_a_tensor(what: str) -> None:
    """A `__getattr__` would slow every attribute down; Python itself compares names of classes with fewer than 750."""
    code = f"import shmtensor as st; {what}.soft_max"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "has no attribute 'soft_max'. Did you mean: 'softmax'?" in done.stderr
    assert "__getattr__" not in dir(st.Tensor)


def test_probes_of_other_libraries_find_nothing() -> None:
    x = st.zeros(3)
    for name in ("__array_struct__", "_repr_html_", "__cuda_array_interface__", "_ipython_display_"):
        error = error_of(x, name)
        assert type(error) is AttributeError
