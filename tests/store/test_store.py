"""Store: objects by key, immutable, in shared memory; a reader holds its object, a killed process leaves nothing."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from broadcast_world import finish, kill
from manager_world import BOUND, live_blocks, reclaim, until
from native_programs import program

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor.manager import client
from shmtensor.store import ObjectNotFound, Store, StoreChange

METHODS = ("fork", "spawn")


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made._native.check_invariants()


def settled(rings: int = 0) -> int:
    """Live blocks in arenas, once the stores and queues of earlier tests have ended, but for `rings` of them."""

    def have_ended() -> bool:
        reclaim()
        return len(client.default().list()["rings"]) == rings

    until(have_ended, "earlier stores and queues to end")
    return live_blocks()


def test_out_of_memory_says_what_could_be_removed_and_who_has_the_rest(store: Store) -> None:
    settled(rings=1)
    store.put("read", st.ones(1 << 19, dtype=st.float32))
    store.put("free", st.ones(1 << 18, dtype=st.float32))
    held = store.get("read")
    with pytest.raises(errors.OutOfMemory) as caught:
        client.default().allocate(1 << 45)
    text = str(caught.value)
    assert "without readers, including pinned ones: 1.0 MiB in a store without a name" in text
    assert "3.0 MiB by a store without a name" in text and f"MiB by pid {os.getpid()}" in text
    assert "delete objects of stores, release tensors" in text
    store.delete("free")
    with pytest.raises(errors.OutOfMemory) as caught:
        client.default().allocate(1 << 45)
    assert "without readers" not in str(caught.value)
    named = Store("features")
    named.put("free", st.ones(1 << 18, dtype=st.float32))
    with pytest.raises(
        errors.OutOfMemory, match=r"1\.0 MiB in the store 'features'.*`shmtensor-manager store rm features`"
    ):
        client.default().allocate(1 << 45)
    named.destroy()
    del held


DELETES = """
import sys
import shmtensor as st
store = st.Store("deleted", create=False)
if sys.argv[1] == "delete":
    assert store.delete("x")
else:
    assert store.expire() == 1
"""


@pytest.mark.parametrize("how", ["delete", "expire"])
def test_who_never_read_an_object_frees_its_memory(how: str) -> None:
    """The segment of the object is not mapped there."""
    store = Store("deleted")
    before = settled(rings=1)
    store.put("x", st.ones(1 << 18), ttl=0.001 if how == "expire" else None)
    assert live_blocks() > before
    time.sleep(0.002)
    subprocess.run([sys.executable, "-c", DELETES, how], check=True, timeout=BOUND)
    assert live_blocks() == before
    assert store.stats().expired == (how == "expire")
    store.destroy()


def test_expire_removes_what_nobody_can_get(store: Store) -> None:
    before = live_blocks()
    for number in range(3000):
        store.put(str(number), st.ones(100), ttl=0.001 if number % 2 else None)
    time.sleep(0.002)
    found = store.expire() + store.stats().expired  # some went with puts
    assert store.stats().expired == 1500 and found >= 1500
    assert len(store) == len(store.keys()) == 1500 and live_blocks() == before + 1500
    assert store.expire() == 0


def limited(nbytes: int, **more: Any) -> Store:
    return Store(max_bytes=nbytes, **more)


# --------------------------------------------------------------------------------------------------------------- values


def test_a_tensor_comes_back_read_only_and_without_a_copy(store: Store) -> None:
    original = st.arange(1000, dtype=st.float32).reshape(10, 100)
    store.put("x", original)
    original.zero_()
    first, second = store.get("x"), store.get("x")
    assert first.tolist() == st.arange(1000, dtype=st.float32).reshape(10, 100).tolist()
    assert first.data_ptr() == second.data_ptr() and first.is_shared()
    for write in (lambda: first.add_(1), lambda: first.__setitem__(0, 1), lambda: first.numpy().__setitem__(0, 1)):
        with pytest.raises((errors.LayoutError, ValueError)):
            write()
    with pytest.raises(ValueError, match="WRITEABLE"):
        first.numpy().flags.writeable = True


VALUES = [
    None, True, -3, 2**40, 1.5, 2j, "text", "\u732b", b"bytes", (), [1, (2.0, "a")], {"a": {"b": [1]}},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_values(store: Store, value: Any) -> None:
    store.put("v", value)
    assert store.get("v") == value and type(store.get("v")) is type(value)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32", "complex128"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (40, 50)])
def test_types_and_shapes(store: Store, dtype: str, shape: tuple[int, ...]) -> None:
    array = (np.arange(int(np.prod(shape))) % 2).astype(dtype).reshape(shape)
    store.put("a", {"tensor": st.from_numpy(array.copy()), "array": array})
    got = store.get("a")
    assert type(got["tensor"]) is st.Tensor and type(got["array"]) is np.ndarray
    np.testing.assert_array_equal(got["tensor"].numpy(), array)
    np.testing.assert_array_equal(got["array"], array)
    assert got["array"].dtype == array.dtype and not got["array"].flags.writeable


def test_layouts_are_kept_in_value() -> None:
    store = Store()
    base = np.arange(24.0).reshape(2, 3, 4)
    for name, view in {
        "t": base.T,
        "step": base[:, ::2],
        "back": base[:, ::-1],
        "bc": np.broadcast_to(1.0, (3, 2)),
    }.items():
        store.put(name, view)
        np.testing.assert_array_equal(store.get(name), view)
        if name in ("t", "step"):
            store.put(f"tensor {name}", st.from_numpy(view))
            np.testing.assert_array_equal(store.get(f"tensor {name}").numpy(), view)


def test_what_was_shared_already_is_copied(store: Store) -> None:
    tensor = st.ones(4).share_memory_()
    store.put("t", tensor)
    tensor.fill_(5)
    assert store.get("t").tolist() == [1] * 4


def test_gradients_are_not_stored(store: Store) -> None:
    store.put("w", st.ones(3, requires_grad=True))
    assert not store.get("w").requires_grad


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


def circle() -> list[Any]:
    made: list[Any] = [1]
    made.append(made)
    return made


OTHERS = {
    "object": (object(), "value is of type object; a store takes tensors and ndarrays"),
    "set": ({"a": [1, {1, 2}]}, r"value\['a'\]\[1\] is of type set"),
    "key": ({(1, Path("/")): 1}, r"a key of value\[1\] is of type PosixPath"),
    "scalar": (np.float64(1), r"a NumPy scalar of type float64; put its item\(\)"),
    "large": (2**70, "an int beyond 64 bits"),
    "objects": (np.array(["a"], object), "value is an ndarray of object"),
    "fields": (np.zeros(1, [("a", int)]), "an ndarray with fields; put a dict"),
    "int4": ((np.zeros(1, ml_dtypes.int4),), r"value\[0\] is an ndarray of int4; put its view\(uint8\)"),
    "big-endian": (np.zeros(1, ">f4"), r"other byte order; put its astype\(float32\)"),
    "deep": (nested(33), "a part of the value is more than 32 containers deep"),
    "circle": (circle(), r"value\[1\] is a container that contains itself"),
}


@pytest.mark.parametrize(("value", "why"), OTHERS.values(), ids=list(OTHERS))
def test_other_values_are_refused_and_named(store: Store, value: Any, why: str) -> None:
    with pytest.raises(errors.DTypeError, match=f"cannot put 'v' into a store: .*{why}"):
        store.put("v", value)
    with pytest.raises(errors.DTypeError, match=f"cannot put 'w' into a store: .*{why}"):
        store.put_many({"v": 1, "w": value})
    assert len(store) == 0


def test_the_refused_one_is_named_beside_one_with_a_gradient(store: Store) -> None:
    with pytest.raises(errors.DTypeError, match="cannot put 'v' into a store: value is of type set"):
        store.put_many({"w": st.ones(3, requires_grad=True), "v": {1}})


@pytest.mark.parametrize("dtype", [st.bfloat16, st.float8_e4m3fn, st.float8_e5m2], ids=str)
def test_numbers_of_ml_dtypes(store: Store, dtype: Any) -> None:
    x = st.arange(2000, dtype=st.float32).to(dtype).view(50, 40)
    store.put("x", {"tensor": x, "columns": x.t()[::2], "array": x.numpy()})
    got = store.get("x")
    assert {part.dtype for part in got.values()} == {dtype, x.numpy().dtype}
    for part, wanted in (("tensor", x), ("columns", x.t()[::2]), ("array", x)):
        assert np.asarray(got[part]).tobytes() == wanted.numpy().tobytes()


def test_as_deep_as_can_be(store: Store) -> None:
    store.put("v", nested(32))
    assert store.get("v") == nested(32)


def test_a_value_that_is_got_can_be_put_and_sent_again(store: Store) -> None:
    store.put("a", st.arange(5))
    store.put("b", store.get("a"))
    queue = mp.SimpleQueue()
    queue.put(store.get("b"))
    got = queue.get()
    assert got.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(errors.LayoutError):
        got.add_(1)
    assert pickle.loads(pickle.dumps(store.get("a"))).tolist() == [0, 1, 2, 3, 4]


# ----------------------------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize("key", ["a", "a/b c", "\u732b\n\0", "x" * 1024, "../../etc", "'; drop"])
def test_odd_keys(store: Store, key: str) -> None:
    store.put(key, 1)
    assert store.get(key) == 1 and key in store and store.keys() == [key] and store.stat(key).key == key
    assert store.delete(key) and key not in store and not store.delete(key)


@pytest.mark.parametrize("key", ["", "x" * 1025, "\u732b" * 400, 3, None, b"a"], ids=repr)
def test_keys_that_are_none(store: Store, key: Any) -> None:
    for call in (lambda: store.put(key, 1), lambda: store.get(key), lambda: store.delete(key)):
        with pytest.raises(errors.InvalidArgument, match="key" if isinstance(key, str) else r"give str\(key\)"):
            call()


def test_a_key_without_utf_8(store: Store) -> None:
    for call in (lambda: store.put("\ud800", 1), lambda: store.get("\ud800"), lambda: store.keys("\ud800")):
        with pytest.raises(errors.InvalidArgument, match="UTF-8"):
            call()


@pytest.mark.parametrize("version", [0, -1, 1 << 64, "1", 1.0])
def test_versions_that_put_never_returns(store: Store, version: Any) -> None:
    store.put("a", 1)
    with pytest.raises(errors.InvalidArgument, match="version must be an int from 1 on"):
        store.get("a", version=version)


def test_who_fails_to_create_takes_nothing_of_others(store: Store) -> None:
    with pytest.raises(errors.NameTaken, match="not reserved"), store.create("k", 3):
        assert store.delete("k")
        store.put("k", "of somebody")
    assert store.get("k") == "of somebody"
    with pytest.raises(errors.NameTaken, match="not reserved"), store.create("l", 3):
        store.delete("l")
        later = store.create("l", 4)
        tensor = later.__enter__()
    tensor.fill_(2)
    later.__exit__(None, None, None)
    assert store.get("l").tolist() == [2] * 4
    with pytest.raises(errors.NameTaken, match="is reserved: a process is creating"), store.create("m", 3):
        store.put("m", 1)


def test_a_child_that_is_forked_meanwhile_seals_nothing(store: Store) -> None:
    made = store.create("k", 3)
    tensor = made.__enter__()
    pid = os.fork()
    if pid == 0:
        made.__exit__(None, None, None)
        os._exit(0 if "k" not in store else 1)
    assert os.waitpid(pid, 0)[1] == 0
    tensor.fill_(1)
    made.__exit__(None, None, None)
    assert store.get("k").tolist() == [1] * 3


ALIASES = {
    "view": lambda x: x[1:], "array": lambda x: x.numpy(), "storage": lambda x: x.untyped_storage(),
    "detached": lambda x: x.detach(),
}  # fmt: skip


@pytest.mark.parametrize("alias", ALIASES.values(), ids=list(ALIASES))
def test_nobody_writes_a_sealed_object_through_what_was_there_before(store: Store, alias: Any) -> None:
    with store.create("k", 3, st.int64) as tensor:
        other = alias(tensor)
        tensor.fill_(1)
    if isinstance(other, st.UntypedStorage):
        other.fill_(2)
    else:
        other[:] = 2
    assert store.get("k").tolist() == [1] * 3


def test_another_process_has_the_memory_of_what_is_sealed(store: Store) -> None:
    queue, has_it, sealed = mp.SimpleQueue(), mp.Event(), mp.Event()

    def write() -> None:
        found = queue.get()
        has_it.set()
        sealed.wait(BOUND)
        found.fill_(2)

    child = mp.get_context("fork").Process(target=write)
    child.start()
    with store.create("k", 3, st.int64) as tensor:
        tensor.fill_(1)
        queue.put(tensor)
        assert has_it.wait(BOUND)
    sealed.set()
    finish(child)
    assert store.get("k").tolist() == [1] * 3


def test_several_objects_that_are_too_large_together_are_counted() -> None:
    store = limited(10_000)
    with pytest.raises(
        errors.QuotaExceeded, match=r"no room for 3 objects \('a', ...\) of 23\.\d KiB .* larger than max"
    ):
        store.put_many({key: st.zeros(2000) for key in "abc"})


def test_keys_are_listed_in_order_by_prefix(store: Store) -> None:
    names = [f"{letter}/{number}" for letter in "cab" for number in range(1500)]
    for name in names:
        store.put(name, 0)
    assert store.keys() == sorted(names) == list(store)
    assert store.keys("b/") == sorted(name for name in names if name.startswith("b/"))
    assert store.keys("b/7") == sorted(name for name in names if name.startswith("b/7"))
    assert store.keys("d") == [] and len(store) == len(names)
    for name in names[::2]:
        store.delete(name)
    assert store.keys() == sorted(names[1::2])


# ------------------------------------------------------------------------------------------------------------- versions


def test_a_key_that_exists_is_taken(store: Store) -> None:
    first = store.put("k", 1)
    with pytest.raises(errors.NameTaken, match="replace=True"):
        store.put("k", 2)
    assert store.get("k") == 1
    old = store.get("k")
    second = store.put("k", 2, replace=True)
    assert second > first and store.get("k") == 2 and old == 1
    assert store.get("k", version=second) == 2
    with pytest.raises(ObjectNotFound, match=f"version {first}"):
        store.get("k", version=first)


def test_who_has_an_older_version_keeps_it(store: Store) -> None:
    store.put("k", st.zeros(1000))
    old = store.get("k")
    for value in range(1, 20):
        store.put("k", st.full((1000,), float(value)), replace=True)
    store.delete("k")
    store.put("other", st.ones(1000))
    assert old.sum().item() == 0


def test_put_many_is_all_or_nothing(store: Store) -> None:
    versions = store.put_many({"a": 1, "b": st.ones(3), "c": [2]})
    assert list(versions) == ["a", "b", "c"] == store.keys() and len(set(versions.values())) == 3
    with pytest.raises(errors.NameTaken, match="'c'"):
        store.put_many({"d": 1, "c": 2})
    with pytest.raises(errors.DTypeError):
        store.put_many({"d": 1, "e": object()})
    assert store.keys() == ["a", "b", "c"] and store.put_many({}) == {}
    store.put_many({"d": 1, "c": 9}, replace=True)
    assert store.get("c") == 9


def test_memory_goes_with_the_last_who_has_it() -> None:
    before = settled()
    store = Store()
    for i in range(50):
        store.put(f"k{i}", st.zeros(1000))
    kept = store.get("k7")
    for key in store:
        store.delete(key)
    assert live_blocks() == before + 1
    assert kept.sum().item() == 0
    del kept
    assert live_blocks() == before
    store.put("last", st.zeros(1000))
    del store
    gc.collect()
    until(lambda: live_blocks() == before, "what the store held to be free")


# --------------------------------------------------------------------------------------------------------------- create


def test_create_seals_at_the_end_of_the_block(store: Store) -> None:
    with store.create("c", (4, 5), st.int32) as tensor:
        assert "c" not in store and store.keys() == [] and tensor.shape == (4, 5) and tensor.dtype is st.int32
        with pytest.raises(errors.NameTaken):
            store.put("c", 1)
        with pytest.raises(errors.NameTaken), store.create("c", 3):
            pass
        tensor.fill_(7)
        pointer = tensor.data_ptr()
    got = store.get("c")
    assert got.tolist() == [[7] * 5] * 4 and live_blocks() and pointer
    with pytest.raises(errors.LayoutError):
        tensor.fill_(1)


def test_a_block_that_raises_leaves_the_key_free() -> None:
    before = settled()
    store = Store()
    with pytest.raises(ZeroDivisionError), store.create("c", 1000) as tensor:
        tensor.fill_(1 / 0)
    del tensor
    assert "c" not in store and store.put("c", 1) and live_blocks() == before


def create_and_wait(store: Store, queue: Any) -> None:
    with store.create("c", 100_000) as tensor:
        tensor.fill_(1)
        queue.put("reserved")
        time.sleep(600)


@pytest.mark.parametrize("method", METHODS)
def test_a_writer_that_dies_before_the_seal_frees_key_and_memory(method: str) -> None:
    before = settled()
    store, context = Store(), mp.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=create_and_wait, args=(store, queue))
    process.start()
    assert queue.get() == "reserved"
    with pytest.raises(errors.NameTaken):
        store.put("c", 1)
    waiting: list[Any] = []
    thread = threading.Thread(target=lambda: waiting.append(store.get("c", timeout=BOUND)))
    thread.start()
    kill(process)
    until(lambda: live_blocks() == before, "the memory to be free", 5)

    def put() -> bool:
        try:
            return store.put("c", 5) > 0
        except errors.NameTaken:
            return False

    until(put, "the key to be free", 5)
    thread.join(BOUND)
    assert waiting == [5]


# ----------------------------------------------------------------------------------------------------------------- time


def test_what_has_a_time_to_live_goes(store: Store) -> None:
    store.put("soon", 1, ttl=0.05)
    store.put("later", 2, ttl=1000)
    assert 900 < (store.stat("later").expires_in or 0) <= 1000 and store.stat("later").version == 2
    until(lambda: "soon" not in store, "the object to expire")
    assert store.keys() == ["later"]
    with pytest.raises(ObjectNotFound):
        store.get("soon")
    assert store.put("soon", 3)
    store.touch("later", ttl=0)
    assert "later" not in store
    store.touch("soon", ttl=100)
    store.touch("soon", ttl=float("inf"))
    assert store.stat("soon").expires_in is None


@pytest.mark.parametrize("ttl", [-1, float("nan"), "1", 1e12])
def test_times_that_are_none(store: Store, ttl: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="ttl"):
        store.put("k", 1, ttl=ttl)


def test_waiting_ends_with_the_object_or_the_time(store: Store) -> None:
    begin = time.monotonic()
    with pytest.raises(ObjectNotFound, match=r"waited 0\.05 s"):
        store.get("k", timeout=0.05)
    assert time.monotonic() - begin >= 0.05
    timer = threading.Timer(0.05, store.put, ("k", 4))
    timer.start()
    assert store.get("k", timeout=BOUND) == 4
    timer.join()


def test_get_takes_no_default_as_a_dict_does(store: Store) -> None:
    store.put("k", 1)
    for key in ("k", "missing"):
        with pytest.raises(TypeError, match="positional"):
            store.get(key, 0)  # type: ignore[misc]


def test_watch_yields_changes_under_a_prefix(store: Store) -> None:
    store.put("a/old", 1)
    changes = store.watch("a/", timeout=0.2)
    store.put("b/no", 1)
    version = store.put("a/new", 1)
    store.delete("a/old")
    assert {(change.key, change.version) for change in changes} == {("a/old", None), ("a/new", version)}


def test_watch_yields_what_is_over(store: Store) -> None:
    store.put("a", 1, ttl=0.2)
    store.put("b", 1, ttl=1000)
    changes = store.watch(timeout=BOUND)
    assert next(changes) == StoreChange("a", None)
    store.touch("b", ttl=0.1)
    assert next(changes) == StoreChange("b", None)
    version = store.put("a", 2, ttl=0.3)
    assert list(itertools.islice(changes, 2)) == [StoreChange("a", version), StoreChange("a", None)]


def test_watch_waits_while_another_thread_shortens_a_time_to_live(store: Store) -> None:
    store.put("a", 1)
    found: list[StoreChange] = []
    changes = store.watch(timeout=BOUND)
    thread = threading.Thread(target=lambda: found.append(next(changes)))
    thread.start()
    store.touch("a", ttl=0.05)
    thread.join(BOUND)
    assert found == [StoreChange("a", None)]


def test_watch_refuses_a_timeout_that_is_not_a_number(store: Store) -> None:
    with pytest.raises(errors.InvalidArgument, match="timeout must be seconds, or None, not 'x'"):
        store.watch(timeout="x")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ the limit


def test_objects_that_nobody_uses_make_room() -> None:
    store = limited(100_000)
    for i in range(50):
        store.put(f"k{i:02}", st.zeros(1000))
        store.get("k00")
    found = store.stats()
    assert found.nbytes <= 100_000 and found.evicted == 50 - found.objects and "k49" in store
    assert "k00" in store, "what is used often stays"


def test_pinned_and_held_objects_stay_and_a_full_store_names_them() -> None:
    store = limited(12_500)
    store.put("pinned", st.zeros(1000), pin=True)
    store.put("held", st.zeros(1000))
    held = store.get("held")
    store.put("free", st.zeros(1000))
    store.put("next", st.zeros(1000))
    assert store.keys() == ["held", "next", "pinned"] and held.sum().item() == 0
    with pytest.raises(errors.QuotaExceeded, match=r"'held' \(3.9 KiB, 1 holders\).*drop or unpin") as caught:
        store.put_many({"x": st.zeros(1000), "y": st.zeros(1000)})
    assert "pinned" in str(caught.value)
    assert store.keys() == ["held", "pinned"] or store.keys() == ["held", "next", "pinned"]
    del held
    store.touch("pinned", pin=False)
    store.put_many({"x": st.zeros(1000), "y": st.zeros(1000)})
    with pytest.raises(errors.QuotaExceeded, match="larger than max_bytes"):
        store.put("z", st.zeros(10_000))


def test_without_eviction_a_full_store_refuses() -> None:
    store = limited(5_000, evict=None)
    store.put("a", st.zeros(1000))
    with pytest.raises(errors.QuotaExceeded, match="evict=None"):
        store.put("b", st.zeros(1000))
    store.put("a", st.ones(1000), replace=True)
    assert store.keys() == ["a"]


# -------------------------------------------------------------------------------------------------------- several of it


def test_a_name_is_one_store() -> None:
    first = Store("same", max_bytes="1M")
    first.put("k", 3)
    second = Store("same")
    assert second.get("k") == 3 and second.stats().max_bytes == 1 << 20
    with pytest.raises(errors.InvalidArgument, match="max_bytes=1048576"):
        Store("same", max_bytes="2M")
    with pytest.raises(errors.InvalidArgument, match="Store"):
        mp.SimpleQueue(name="same")
    for bad in (0, -1, "x", 1.5):
        with pytest.raises(errors.InvalidArgument, match="max_bytes"):
            Store(max_bytes=bad)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="evict"):
        Store(evict="fifo")
    first.destroy()
    assert second.keys() == []


def read(store: Store, keys: list[str], queue: Any) -> None:
    kept = [store.get(key) for key in keys]
    queue.put([tensor.sum().item() for tensor in kept])
    if keys == ["held"]:
        time.sleep(600)
    store.put(f"by {os.getpid()}", st.ones(10))


@pytest.mark.parametrize("method", METHODS)
def test_processes_share_it(method: str) -> None:
    store, context = Store(), mp.get_context(method)
    for i in range(10):
        store.put(str(i), st.full((100,), float(i)))
    queue = context.SimpleQueue()
    process = context.Process(target=read, args=(store, [str(i) for i in range(10)], queue))
    process.start()
    assert queue.get() == [100.0 * i for i in range(10)]
    pid = process.pid
    finish(process)
    assert store.get(f"by {pid}").sum().item() == 10, "it outlives who put it"


def test_a_reader_that_is_killed_holds_nothing() -> None:
    store, context = Store(), mp.get_context("fork")
    store.put("held", st.zeros(1000))
    queue = context.SimpleQueue()
    process = context.Process(target=read, args=(store, ["held"], queue))
    process.start()
    assert queue.get() == [0]
    assert store.stat("held").holders == 1
    kill(process)
    until(lambda: store.stat("held").holders == 0, "the dead reader's hold to end", 5)


def work(store: Store, seed: int) -> None:
    dice = np.random.default_rng(seed)
    for _ in range(400):
        key = f"k{dice.integers(20)}"
        value = float(dice.integers(1000))
        store.put(key, st.full((int(dice.integers(1, 3000)),), value), replace=True)
        try:
            found = store.get(f"k{dice.integers(20)}")
        except ObjectNotFound:
            continue
        assert found.min().item() == found.max().item()


def test_processes_and_threads_change_it_at_once() -> None:
    store, context = limited(100_000), mp.get_context("fork")
    processes = [context.Process(target=work, args=(store, seed)) for seed in range(2)]
    for process in processes:
        process.start()
    threads = [threading.Thread(target=work, args=(store, seed)) for seed in range(2, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in processes:
        finish(process)
    store._native.check_invariants()


def test_a_get_makes_no_system_call(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    code = """
import os, shmtensor as st
store = st.Store()
value = st.zeros(1000)
for i in range(100): store.put(str(i), value)
def work():
    for i in range(1000):
        store.get(str(i % 100))
        store.put("again", value, replace=True)
work()
os.write(2, b"BEGIN")
work()
os.write(2, b"END")
"""
    log = tmp_path / "calls"
    subprocess.run(
        ["strace", "-o", log, sys.executable, "-c", code], timeout=BOUND * 2, check=True, capture_output=True
    )
    lines = log.read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if '"BEGIN"' in line)
    end = next(i for i, line in enumerate(lines) if '"END"' in line)
    assert lines[begin + 1 : end] == []


# ------------------------------------------------------------------------------------------------------ native programs


@pytest.mark.exhaustive
@pytest.mark.any_python
def test_the_store_killed_at_every_point() -> None:
    done = program("store")
    assert done.returncode == 0 and "0 never reached" in done.stdout, done.stdout + done.stderr


@pytest.mark.exhaustive
@pytest.mark.any_python
def test_random_kills() -> None:
    done = program("store", "storm", "300")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_key_is_put_again_after_its_time() -> None:
    store = Store(max_bytes=100_000)
    for i in range(60):
        store.put(f"k{i}", i)
    store.put("it", np.zeros(60_000, np.uint8), ttl=0)
    for i in range(4):
        store.put(f"more{i}", i)
    store.put("it", np.ones(60_000, np.uint8))
    found = store.stats()
    assert found.objects == 65 and found.evicted == 0 and found.expired == 1


def test_replaced_objects_make_room_in_any_order() -> None:
    large, small = np.zeros(90_000, np.uint8), np.zeros(10, np.uint8)
    for keys in ("ab", "ba"):
        store = Store(max_bytes=100_000)
        store.put("a", large)
        store.put_many({key: small if key == "a" else large for key in keys}, replace=True)
        assert list(store) == ["a", "b"]


def test_a_watch_without_a_time() -> None:
    with pytest.raises(errors.InvalidArgument, match="timeout must be seconds"):
        Store().watch(timeout=float("nan"))


@pytest.mark.parametrize("replaced", [lambda t: setattr(t, "data", st.ones(3)), lambda t: t.set_(st.ones(3))])
def test_memory_that_is_replaced_is_not_sealed(replaced: Any) -> None:
    store = Store()
    with pytest.raises(errors.InvalidArgument, match="fill it in place"), store.create("it", 3) as tensor:
        replaced(tensor)
    assert not len(store)
    with store.create("it", 3) as tensor:
        tensor.fill_(1).requires_grad_()
    found = store.get("it")
    assert not found.requires_grad and found.sum().item() == 3
