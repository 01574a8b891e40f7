"""The table of element types, the objects generated from it, and refusals."""

import ast
import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from element_types import EVERY_ROW, needs_ml_dtypes

import shmtensor
from shmtensor import dtypes
from shmtensor.errors import DTypeError, MissingExtra, ShmTensorError


def test_table_is_complete_and_without_doubles():
    assert len(dtypes.TABLE) == 17
    assert len(dtypes.ELEMENT_TYPES) == 14
    for names in ([row.prefix for row in dtypes.TABLE], [row.name for row in dtypes.TABLE]):
        assert len(set(names)) == len(names)
    for row in dtypes.ELEMENT_TYPES:
        assert row.dtype.isnative
        assert row.dtype.name == row.name
        assert dtypes.dtype_of(row.dtype) is row.dtype
        assert dtypes.BY_DTYPE[row.dtype] is row


@pytest.mark.parametrize("row", EVERY_ROW)
def test_a_row_gives_its_names(row):
    dtype = getattr(shmtensor, row.name)
    assert dtype is getattr(dtypes, row.name)
    assert isinstance(dtype, shmtensor.dtype)
    assert dtype == row.dtype == dtype.dtype == dtypes.dtype_of(dtype)
    assert dtypes.dtype_of(row.name) is row.dtype
    storage, tensor = getattr(shmtensor, f"{row.prefix}Storage"), getattr(shmtensor, f"{row.prefix}Tensor")
    assert storage.dtype is dtype
    assert storage.__name__ == f"{row.prefix}Storage"
    assert isinstance(shmtensor.zeros(2, dtype=row.dtype), tensor)
    assert callable(getattr(storage, row.method))


def test_type_checkers_see_every_row():
    tree = ast.parse((Path(dtypes.__file__).parent / "_tensor/typed.pyi").read_text())
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert classes == {f"{row.prefix}{suffix}" for row in dtypes.TABLE for suffix in ("Storage", "Tensor")}
    names = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert names == {*dtypes.ALIASES, *dtypes.BY_NAME}


def test_names_that_no_row_has():
    for module, name in (
        (dtypes, "float13"), (shmtensor.storage, "NoStorage"), (shmtensor.storage, "FloatTensor"), (dtypes, "FLOAT32"),
    ):  # fmt: skip
        with pytest.raises(AttributeError, match=name):
            getattr(module, name)
    assert shmtensor.bool is shmtensor.bool_ is dtypes.bool_
    assert "bool" not in shmtensor.__all__, "a star import would hide the builtin"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (None, "float32"), ("float64", "float64"), (np.int16, "int16"), (bool, "bool"), (dtypes.uint8, "uint8"),
        (complex, "complex128"), ("H", "uint16"),
    ],
)  # fmt: skip
def test_dtype_of_takes_what_numpy_takes(spec, expected):
    assert dtypes.dtype_of(spec).name == expected


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (object, "Python objects"),
        (np.dtype([("a", "i4")]), "structured"),
        (np.dtype(">f4"), "byte order"),
        (np.dtype(">c8"), "byte order"),
        (np.longdouble, "not supported"),
        (np.clongdouble, "not supported"),
        ("S3", "not supported"),
        ("no such type", "is not a dtype"),
        (3.5, "is not a dtype"),
    ],
)
def test_refuses_by_name_and_says_what_there_is(spec, says):
    with pytest.raises(DTypeError, match=says) as caught:
        dtypes.dtype_of(spec)
    assert "float32" in str(caught.value)


def test_metadata_is_dropped():
    assert dtypes.require_supported(np.dtype("f4", metadata={"unit": "m"})).metadata is None


def test_a_missing_package_is_an_error_that_names_its_extra(tmp_path):
    (tmp_path / "ml_dtypes.py").write_text("raise ImportError('not here')")
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import shmtensor
from shmtensor.errors import MissingExtra
for ask in (
    lambda: shmtensor.bfloat16, lambda: shmtensor.zeros(3, dtype="bfloat16"), lambda: shmtensor.Float8E5M2Storage(2),
    lambda: shmtensor.BFloat16Tensor(2), lambda: shmtensor.zeros(2).to("float8_e4m3fn"),
    lambda: shmtensor.FloatStorage(1).bfloat16(),
):
    try:
        ask()
    except MissingExtra as error:
        assert "shmtensor[ml-dtypes]" in str(error), error
    else:
        raise AssertionError(ask)
from shmtensor import *
print(*[dtype.name for dtype in shmtensor.dtypes.BY_DTYPE])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [row.name for row in dtypes.ELEMENT_TYPES]
    assert issubclass(MissingExtra, ImportError)
    assert issubclass(MissingExtra, ShmTensorError)


@needs_ml_dtypes
def test_the_package_is_loaded_when_needed_and_no_earlier():
    code = """
import sys, shmtensor
shmtensor.zeros(3).storage(); shmtensor.FloatTensor(3); shmtensor.multiprocessing; shmtensor.tensor([1.0]).to("int8")
assert "ml_dtypes" not in sys.modules
import ml_dtypes, numpy
array = numpy.zeros(3, ml_dtypes.bfloat16)  # one that somebody else made
made = shmtensor.from_numpy(array)
assert type(made.storage()).__name__ == "BFloat16Storage" and isinstance(made, shmtensor.BFloat16Tensor)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_ml_dtypes
def test_other_types_of_the_package_are_refused():
    import ml_dtypes

    with pytest.raises(DTypeError, match="float8_e4m3b11fnuz"):
        dtypes.dtype_of(ml_dtypes.float8_e4m3b11fnuz)


@pytest.mark.parametrize("row", EVERY_ROW)
def test_a_dtype_says_what_it_is(row):
    dtype = getattr(shmtensor, row.name)
    assert repr(dtype) == str(dtype) == f"shmtensor.{row.name}"
    assert (dtype.name, dtype.itemsize, dtype.kind) == (row.name, row.dtype.itemsize, row.dtype.kind)
    assert dtype.is_complex == row.name.startswith("complex")
    assert dtype.is_floating_point == ("float" in row.name)
    assert dtype.is_signed == (not row.name.startswith(("uint", "bool")))
    assert copy.copy(dtype) is copy.deepcopy(dtype) is pickle.loads(pickle.dumps(dtype)) is dtype
    with pytest.raises(AttributeError):
        dtype.name = "other"


@pytest.mark.parametrize("row", EVERY_ROW)
def test_a_dtype_is_equal_to_numpys(row):
    dtype = getattr(shmtensor, row.name)
    for same in (row.dtype, row.dtype.type, row.name):
        assert dtype == same
        assert same == dtype or isinstance(same, type), "of a class NumPy knows nothing"
        assert (dtype != same) is False
    assert hash(dtype) == hash(row.dtype)
    assert {row.dtype: 1}[dtype] == 1
    for other in (np.dtype("datetime64[s]"), "no type", None, float, 3, object()):
        assert dtype != other
    assert [one.name for one in dtypes.TABLE if one.dtype == dtype] == [row.name]


@pytest.mark.parametrize("row", EVERY_ROW)
def test_numpy_takes_a_dtype(row):
    dtype = getattr(shmtensor, row.name)
    assert np.dtype(dtype) is row.dtype or np.dtype(dtype) == row.dtype
    assert np.zeros(2, dtype).dtype == dtype
    assert np.zeros(2).astype(dtype).dtype == dtype
    assert np.asarray(shmtensor.zeros(2, dtype=dtype)).dtype == dtype
    assert shmtensor.zeros(2, dtype=dtype).dtype is shmtensor.zeros(2, dtype=row.dtype).dtype is dtype


def test_types_to_and_from_complex():
    assert [one.to_complex() for one in (shmtensor.float32, shmtensor.complex128)] == ["complex64", "complex128"]
    assert [one.to_real() for one in (shmtensor.complex64, shmtensor.complex128)] == ["float32", "float64"]
    for dtype in (shmtensor.float16, shmtensor.int8, shmtensor.bool):
        assert dtype.to_real() is dtype
        with pytest.raises(DTypeError, match=dtype.name):
            dtype.to_complex()
