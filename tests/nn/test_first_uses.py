"""Files of modules and functions are imported when one of their names is used for the first time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shmtensor import errors, nn
from shmtensor.nn import functional, modules


def run(code: str) -> str:
    """What a program prints that has `nn`."""
    done = subprocess.run(
        [sys.executable, "-c", f"import shmtensor as st\nfrom shmtensor import nn\nimport sys\n{code}"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def loaded(code: str) -> set[str]:
    """Files of `nn` that are loaded after a program."""
    found = run(f"{code}\nprint(*sys.modules)").split()
    return {name.removeprefix("shmtensor.nn.") for name in found if name.startswith("shmtensor.nn.")}


FIRST = {"functional", "functional.index", "init", "memory", "modules", "parameter"}


@pytest.mark.parametrize(
    "code", ["", "dir(nn), dir(nn.functional), nn.__all__", "hasattr(nn, 'Liner'), hasattr(nn.functional, 'relo')"]
)
def test_looking_names_up_loads_nothing(code: str) -> None:
    assert loaded(code) == FIRST


def test_a_name_loads_its_file() -> None:
    assert loaded("nn.functional.pixel_shuffle") == FIRST | {"functional.shuffling", "functional.rows"}
    found = loaded("nn.Linear(2, 3)")
    assert "modules.linear" in found and "modules.conv" not in found and "functional.affine" not in found
    assert "functional.affine" in loaded("nn.Linear(2, 3)(st.ones(2))")
    assert loaded("nn.utils") == FIRST | {"utils", "utils.rnn"}
    assert loaded("nn.utils.parameters_to_vector") == FIRST | {"utils", "utils.rnn", "utils.vectors"}


def test_neither_layers_nor_their_start_values_load_linear_algebra() -> None:
    assert (
        run("nn.Linear(2, 3), nn.Conv2d(1, 2, 3), nn.LSTM(2, 3)\nprint('shmtensor.linalg' in sys.modules)") == "False"
    )


def test_stars_give_every_name() -> None:
    code = "from shmtensor.nn import *\nfrom shmtensor.nn.functional import *\nprint(Linear, conv2d, utils)"
    assert run(code).startswith("<class 'shmtensor.nn.modules.linear.Linear'>")


def test_every_name_is_there() -> None:
    for module in (nn, functional, modules, nn.utils):
        for name in module.__all__:
            assert getattr(module, name) is vars(module)[name]
        assert {*module.__all__} <= {*dir(module)}
        assert len(module.__all__) == len({*module.__all__})
    assert all(issubclass(getattr(nn, name), nn.Module) for name in modules.__all__)


@pytest.mark.parametrize(
    ("module", "name", "nearest"),
    [(nn, "Liner", "Linear"), (functional, "reluu", "relu"), (modules, "Conv2", "Conv2d")],
)
def test_another_name_is_an_error_that_says_the_nearest(module: object, name: str, nearest: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; the nearest name is '{nearest}'"):
        getattr(module, name)


def test_shapes_are_checked_after_a_first_use() -> None:
    with pytest.raises(errors.InvalidArgument):
        functional.pixel_shuffle(nn.Parameter(), 2)
