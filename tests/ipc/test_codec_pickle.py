"""Values that the codec leaves to pickle: user-defined reducers, unpicklable values, values that change meanwhile."""

from __future__ import annotations

import pickle
import socket
import threading
from multiprocessing import connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
from codec_world import PICKLED, Record, Refuses, held, kind, native, nothing_is_kept, there

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import _native
from shmtensor._tensor.methods import Tensor
from shmtensor.ipc import codec

nothing_kept = pytest.fixture(autouse=True)(nothing_is_kept)


def test_reducers_of_multiprocessing_work() -> None:
    a, b = socket.socketpair()
    with a, b:
        got = there(a, PICKLED)
        with got:
            got.send(b"through")
            assert b.recv(20) == b"through"
    left, right = mp.Pipe()
    moved = there([left], PICKLED)[0]
    assert isinstance(moved, connection.Connection)
    moved.send([1])
    assert right.recv() == [1]
    for end in (left, right, moved):
        end.close()


class Registered:
    pass


def test_reducers_that_users_register_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForkingPickler, "_extra_reducers", dict(ForkingPickler._extra_reducers))
    ForkingPickler.register(Registered, lambda obj: (str, ("registered",)))
    assert there([Registered()], PICKLED) == ["registered"]
    ForkingPickler.register(np.ndarray, lambda obj: (str, ("array",)))
    assert there([Registered(), np.zeros(3)], PICKLED) == ["registered", "array"]


class Nested:
    """Encodes while it is being encoded."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __reduce__(self) -> Any:
        inner = codec.encode_for_wire([self.content, Record("n", self.content)])
        plain = bytes(ForkingPickler.dumps(self.content))
        return restore, (inner, plain, self.content)


def restore(inner: bytes, plain: bytes, content: Any) -> Any:
    return codec.decode_from_wire(inner), pickle.loads(plain), content


def test_a_reducer_may_encode() -> None:
    tensor = shmtensor.ones(3)
    inner, plain, direct = there([Nested(tensor), tensor], PICKLED)[0]
    assert inner[0] is not direct
    assert inner[0].storage() is inner[1].content.storage() is plain.storage() is direct.storage() is tensor.storage()


@pytest.mark.parametrize("bad", [Refuses(), lambda: 1, threading.Lock(), (i for i in ())], ids=kind)
def test_what_cannot_be_pickled_raises_and_leaves_nothing(bad: Any) -> None:
    tensor = shmtensor.zeros(1000).share_memory_()
    before = held()
    for value in (bad, [np.zeros(1000), tensor, bad], [Record("r", np.zeros(9000)), tensor.storage(), bad]):
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
            _native.pack(native(), value)
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
            codec.encode_for_wire(value)
    assert held() == before


def test_a_class_that_cannot_be_imported_is_pickles_own_error() -> None:
    body, blocks = _native.pack(native(), [Record("r", 1), np.zeros(1000)])
    assert body.count(b"Record") == 1
    with pytest.raises(AttributeError, match="Recorx"):
        _native.unpack(body.replace(b"Record", b"Recorx"), blocks)
    module = Record.__module__.encode()
    with pytest.raises(ModuleNotFoundError):
        _native.unpack(body.replace(module, b"x" * len(module)), blocks)


def test_buffers_of_users() -> None:
    assert there([Registered, pickle.PickleBuffer(b"abc")], PICKLED)[1] == b"abc"
    got = there(pickle.PickleBuffer(bytearray(2000)), PICKLED)
    assert type(got) is memoryview
    assert len(got) == 2000
    with pytest.raises((BufferError, pickle.PicklingError)):
        there(pickle.PickleBuffer(memoryview(bytearray(10))[::2]))


def test_a_list_that_changes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = shmtensor.zeros(3)
    value: list[Any] = [tensor, *range(100)]
    share = Tensor.share_memory_

    def shrink(self: Tensor) -> Tensor:
        del value[1:]
        return share(self)

    monkeypatch.setattr(Tensor, "share_memory_", shrink)
    assert len(there(value, PICKLED)) == 1
    table: dict[int, Any] = {0: shmtensor.zeros(3), 1: 2}

    def grow(self: Tensor) -> Tensor:
        table.update(dict.fromkeys(range(100), 1))
        return share(self)

    monkeypatch.setattr(Tensor, "share_memory_", grow)
    assert len(there(table, PICKLED)) == 100
