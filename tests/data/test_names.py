"""The names of shmtensor.data, and what importing it loads."""

import subprocess
import sys

import pytest

import shmtensor as st


def loaded_after(statement):
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    return set(done.stdout.split())


def test_importing_it_loads_nothing_else():
    loaded = loaded_after("import shmtensor.data")
    assert "numpy" not in loaded and "shmtensor.data.samplers" not in loaded


def test_no_name_of_it_imports_torch():
    pytest.importorskip("torch")
    assert "torch" not in loaded_after("import shmtensor as st\nfor name in st.data.__all__: getattr(st.data, name)")


def test_every_name_resolves():
    for name in st.data.__all__:
        value = getattr(st.data, name)
        assert getattr(value, "__name__", name) == name
    with pytest.raises(AttributeError, match="RandomSampler"):
        st.data.RandomSampller  # noqa: B018
