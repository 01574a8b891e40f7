"""Small files of torch's format that claim huge sizes or impossible content."""

from __future__ import annotations

import io
import zipfile

import pytest

import shmtensor as st
from shmtensor.errors import FileDamaged, NotSupported

HEAD = b"\x80\x02"
STORAGE = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x02tQ"


def crafted(pickle: bytes) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/data.pkl", pickle)
        archive.writestr("a/data/0", bytes(8))
    file.seek(0)
    return file


def test_a_key_of_enormous_text():
    """Each level of the tuple contains the one before twice; its text would have 2**60 characters."""
    levels = b")q\0" + b"h\0h\0\x86q\0" * 60
    pickle = HEAD + levels + b"(X\x07\0\0\0storagectorch\nFloatStorage\nh\0X\x03\0\0\0cpuK\x02tQ."
    with pytest.raises(FileDamaged, match="no storage a tuple"):
        st.load(crafted(pickle), format="torch")


@pytest.mark.parametrize("arguments", [b"](K\x01e\x85R", b"X\x01\0\0\0a\x85R"])
def test_a_counter_of_other_values(arguments: bytes):
    with pytest.raises(FileDamaged, match="Counter"):
        st.load(crafted(HEAD + b"ccollections\nCounter\n" + arguments + b"."), format="torch")


def test_a_device_of_nested_tuples():
    with pytest.raises(FileDamaged, match="device a tuple"):
        st.load(crafted(HEAD + b"ctorch\ndevice\n)" + b"\x85" * 100_000 + b"\x85R."), format="torch")


def test_attributes_are_inspected():
    pickle = HEAD + b"ccollections\nOrderedDict\n)R}X\x09\0\0\0_metadatactorch._utils\n_rebuild_tensor\nsb."
    with pytest.raises(FileDamaged, match="among the values"):
        st.load(crafted(pickle), format="torch")


def test_a_negated_tensor_of_many_elements_and_little_memory():
    size, stride = b"J" + (10**8).to_bytes(4, "little") + b"\x85", b"K\0\x85"
    extra = b"}X\x03\0\0\0neg\x88s"
    pickle = (
        HEAD + b"ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE + b"K\0" + size + stride + b"\x89}" + extra + b"tR."
    )
    with pytest.raises(NotSupported, match="overlap"):
        st.load(crafted(pickle), format="torch")


def test_an_ordered_dict_of_a_tensor():
    pickle = HEAD + b"ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE + b"K\0K\x02\x85K\x01\x85\x89}tRq\1"
    with pytest.raises(FileDamaged, match="OrderedDict"):
        st.load(crafted(pickle[:2] + b"ccollections\nOrderedDict\n" + pickle[2:-2] + b"\x85R."), format="torch")
