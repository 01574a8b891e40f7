"""The table of element types, and what it refuses."""

import numpy as np
import pytest

from shmtensor import dtypes
from shmtensor.errors import DTypeError


def test_table_is_complete_and_without_doubles():
    assert len(dtypes.BY_DTYPE) == len(dtypes.ELEMENT_TYPES) == 9
    assert len({row.prefix for row in dtypes.ELEMENT_TYPES}) == 9
    for row in dtypes.ELEMENT_TYPES:
        assert row.dtype.isnative
        assert dtypes.dtype_of(row.dtype) is row.dtype


@pytest.mark.parametrize(
    ("spec", "expected"),
    [(None, "float32"), ("float64", "float64"), (np.int16, "int16"), (bool, "bool"), (dtypes.uint8, "uint8")],
)
def test_dtype_of_takes_what_numpy_takes(spec, expected):
    assert dtypes.dtype_of(spec).name == expected


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (object, "Python objects"),
        (np.dtype([("a", "i4")]), "structured"),
        (np.dtype(">f4"), "byte order"),
        (np.complex64, "complex64"),
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
