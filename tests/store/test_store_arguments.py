"""What a store takes, says and refuses, in one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.errors import DTypeError, InvalidArgument
from shmtensor.store import ObjectNotFound, Store


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store(max_bytes=1_000_000)
    yield made
    made._native.check_invariants()


def test_its_text_and_truth(store: Store) -> None:
    """Unlike a dict without items, a store without objects is true."""
    assert repr(store) == "<Store(objects=0, nbytes=0, max_bytes=1000000)>"
    assert store and not len(store)
    store.put("a", 1)
    assert repr(store).startswith("<Store(objects=1, nbytes=") and store


def test_a_with_statement_ends_nothing() -> None:
    with Store() as store:
        store.put("a", 1)
    assert store.get("a") == 1


def circle() -> list[Any]:
    value: list[Any] = [1]
    value.append({"b": value})
    return value


def tower() -> Any:
    value: Any = 1
    for _ in range(33):
        value = [value]
    return value


def test_the_deepest_value(store: Store) -> None:
    store.put("a", tower()[0])
    assert store.get("a") == tower()[0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (circle(), r"value\[1\]\['b'\] is a container that contains itself; a store takes trees of values"),
        (tower(), "a part of the value is more than 32 containers deep"),
        ([st.ones(2, dtype=st.bfloat16), object()], r"value\[1\] is of type object"),
        ({"a": st.ones(2, dtype=st.float8_e5m2), "b": {1}}, r"value\['b'\] is of type set"),
        ([np.zeros(2, "U1")], r"value\[0\] is"),
    ],
)
def test_what_cannot_be_put(store: Store, value: Any, message: str) -> None:
    with pytest.raises(DTypeError, match=f"cannot put 'a' into a store: {message}"):
        store.put("a", value)
    assert not len(store)


def test_objects_without_keys(store: Store) -> None:
    with pytest.raises(InvalidArgument, match="put_many takes a dict of objects by key, not list"):
        store.put_many([("a", 1)])  # type: ignore[arg-type]


def test_touching_what_is_not_there(store: Store) -> None:
    with pytest.raises(ObjectNotFound, match="no object 'a' is in this store; put it first, or see keys"):
        store.touch("a", ttl=1)


def test_an_object_is_created_once(store: Store) -> None:
    creation = store.create("a", (2,), st.float32)
    with creation as tensor:
        tensor.fill_(3)
    with pytest.raises(InvalidArgument, match=r"a Creation can be used once; call Store\.create again"), creation:
        pass
    assert store.get("a").tolist() == [3, 3]


@pytest.mark.parametrize("note", ["{}", "[]", "{", json.dumps({"address": 5}), json.dumps({"address": "/no\0/a"})])
def test_a_directory_with_a_note_that_names_no_store(tmp_path: Path, note: str) -> None:
    """Its writer was killed, or it is not a store's: what lies beside it belongs to nobody."""
    (tmp_path / "store.json").write_text(note)
    (tmp_path / "5.safetensors").write_text("rest")
    store = Store(max_bytes=1_000_000, spill=tmp_path)
    assert not (tmp_path / "5.safetensors").exists()
    assert "segment" in json.loads((tmp_path / "store.json").read_text())
    store.put("a", 1)
    assert store.get("a") == 1


def test_a_directory_whose_note_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "store.json").mkdir()
    with pytest.raises(InvalidArgument, match="cannot be used: Is a directory; give another path"):
        Store(max_bytes=1_000_000, spill=tmp_path)
