"""Objects of a store that are spilled to files: they come back, and a damaged file causes an error for its object."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manager_world import World, kill, line_of, until

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor.manager import client
from shmtensor.manager.ring_kinds import STORE
from shmtensor.store import ObjectDamaged, ObjectNotFound, Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(max_bytes=20_000, spill=tmp_path / "spilled")
    yield made
    made._native.check_invariants()


def fill(store: Store, count: int) -> None:
    for i in range(count):
        store.put(f"k{i:02}", {"x": st.full((1000,), float(i)), "y": (np.arange(i), "text", i, None, b"b", 2j)})


def check(store: Store, i: int) -> None:
    found = store.get(f"k{i:02}")
    assert found["x"].shape == (1000,) and (found["x"] == i).all()
    array, *rest = found["y"]
    assert rest == ["text", i, None, b"b", 2j] and type(found["y"]) is tuple
    assert type(array) is np.ndarray and array.tolist() == list(range(i))


def files(store: Store) -> set[str]:
    assert store._files is not None
    return {path.name for path in store._files.path.iterdir()} - {"store.json"}


def test_what_has_no_room_goes_to_files_and_comes_back(store: Store) -> None:
    fill(store, 30)
    found = store.stats()
    assert found.objects == 30 and found.spilled >= 24 and found.nbytes <= 20_000 and found.evicted == 0
    assert len(files(store)) == found.spilled and found.spilled_nbytes > 24 * 4000
    for i in range(30):
        check(store, i)
    assert store.keys() == [f"k{i:02}" for i in range(30)]


def test_spilled_tensors_are_read_only_and_survive_their_file(store: Store) -> None:
    fill(store, 10)
    spilled = next(key for key in store if store.stat(key).spilled and key > "k00")
    found = store.get(spilled)
    for array in (found["x"], found["y"][0]):
        with pytest.raises((errors.LayoutError, ValueError)):
            array[0] = 1
    assert store.delete(spilled) and spilled not in store
    assert (found["x"] == float(spilled[1:])).all()


def test_files_go_with_their_objects(store: Store) -> None:
    fill(store, 20)
    for key in store.keys()[:10]:
        store.delete(key)
    assert len(files(store)) == store.stats().spilled
    for key in store:
        store.put(key, 1, replace=True)
    assert not files(store) and store.stats().spilled == 0


def test_what_is_left_of_the_dead_is_swept(store: Store) -> None:
    assert store._files is not None
    fill(store, 10)
    (store._files.path / "999999.safetensors").write_bytes(b"left")
    (store._files.path / "mine.txt").write_bytes(b"not the store's")
    store._native.writing = True  # as who was killed leaves it
    fill_more(store)
    assert "999999.safetensors" not in files(store) and "mine.txt" in files(store) and not store._native.writing
    assert len(files(store)) == store.stats().spilled + 1


def test_a_removal_does_not_look_at_all_files(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, 10)
    assert store._files is not None
    monkeypatch.setattr(store._files, "sweep", None)
    for key in [key for key in store if store.stat(key).spilled]:
        there = len(files(store))
        assert store.delete(key) and len(files(store)) == there - 1
    assert not files(store)


def test_many_removals_at_once(tmp_path: Path) -> None:
    store = Store(max_bytes=5_000, spill=tmp_path)
    store.put_many({f"k{i}": i for i in range(3)})
    for i in range(100):
        store.put(f"e{i}", st.zeros(600), ttl=0 if i % 2 else 1000)
    for i in range(100):
        store.put(f"s{i}", st.zeros(600))
    for i in range(100):
        store.touch(f"s{i}", ttl=0)
    assert store.expire() > 64
    assert len(files(store)) == store.stats().spilled


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda a: a.copy().T, lambda a: a.T[::-1], lambda a: a[:, 1]])
@pytest.mark.parametrize("nested", [False, True])
def test_arrays_of_any_layout_come_back(tmp_path: Path, layout: Any, nested: bool) -> None:
    array = layout(np.arange(600.0).reshape(20, 30))
    store = Store(max_bytes=6_000, spill=tmp_path)
    store.put("it", {"a": [array]} if nested else array)
    store.put("other", np.zeros(5_900, np.uint8))
    assert store.stat("it").spilled
    found = store.get("it")
    assert ((found["a"][0] if nested else found) == array).all()


def test_an_object_that_no_file_can_have(tmp_path: Path) -> None:
    store = Store(max_bytes=100_000, spill=tmp_path / "a", spill_bytes=15_000)
    store.put("large", np.zeros(50_000, np.uint8))
    for i in range(9):
        store.put(f"k{i}", np.zeros(5_000, np.uint8))
    store.put("next", np.zeros(9_000, np.uint8))
    assert "large" not in store and store.stats().evicted == 1 and len(store) == 10
    kept = Store(max_bytes=100_000, spill=tmp_path / "b", spill_bytes=15_000, evict=None)
    kept.put("large", np.zeros(50_000, np.uint8))
    for i in range(9):
        kept.put(f"k{i}", np.zeros(5_000, np.uint8))
    for i in range(2):
        kept.put(f"next{i}", np.zeros(5_000, np.uint8))
    assert len(kept) == 12 and kept.stats().spilled == 2 and not kept.stat("large").spilled
    with pytest.raises(errors.QuotaExceeded, match="evict=None"):
        kept.put("last", np.zeros(20_000, np.uint8))


def test_those_who_open_it_at_once_make_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        for i in range(5):
            path, barrier = tmp_path / str(i), threading.Barrier(4)

            def opened(path: Path = path, barrier: threading.Barrier = barrier) -> Store:
                barrier.wait(60)
                return Store("at_once", max_bytes=10_000, spill=path)

            stores = [one.result(60) for one in [threads.submit(opened) for _ in range(4)]]
            stores[0].put(str(i), i)
            assert [list(store) for store in stores] == [[str(i)]] * 4
            stores.pop().destroy()
            stores.clear()
            gc.collect()


def test_create_of_one_that_exists(tmp_path: Path) -> None:
    store = Store("spills", max_bytes=10_000, spill=tmp_path / "a")
    for other in ("a", "b"):
        with pytest.raises(errors.NameTaken, match="already exists"):
            Store("spills", create=True, max_bytes=10_000, spill=tmp_path / other)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    store.destroy()


def test_without_descriptors_nothing_counts_as_damaged(store: Store) -> None:
    fill(store, 10)
    spilled = next(key for key in store if store.stat(key).spilled)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            store.get(spilled)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    check(store, int(spilled[1:]))


def test_pinned_and_held_objects_stay_in_memory(store: Store) -> None:
    store.put("pinned", st.zeros(1000), pin=True)
    store.put("held", st.zeros(1000))
    held = store.get("held")
    fill(store, 10)
    assert not store.stat("pinned").spilled and not store.stat("held").spilled and held.sum().item() == 0
    del held


def test_a_limit_of_the_files(tmp_path: Path) -> None:
    store = Store(max_bytes=10_000, spill=tmp_path, spill_bytes=20_000)
    fill(store, 20)
    found = store.stats()
    assert found.spilled_nbytes <= 20_000 and found.evicted == 20 - found.objects > 10 and "k19" in store
    assert len(files(store)) == found.spilled
    kept = Store(max_bytes=10_000, spill=tmp_path / "kept", spill_bytes=20_000, evict=None)
    with pytest.raises(errors.QuotaExceeded, match="in files"):
        fill(kept, 20)
    for i in range(len(kept)):
        check(kept, i)
    assert len(files(kept)) == kept.stats().spilled


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "short":
        path.write_bytes(data[:100])
    elif how == "flipped":
        path.write_bytes(data[:-1000] + bytes([data[-1000] ^ 1]) + data[-999:])
    else:
        path.write_bytes(b"other")


@pytest.mark.parametrize("how", ["gone", "short", "flipped", "other"])
def test_a_damaged_file_is_the_error_of_its_object_alone(store: Store, how: str) -> None:
    assert store._files is not None
    fill(store, 12)
    spilled = [key for key in store if store.stat(key).spilled]
    damage(store._files.file_of(store.stat(spilled[0]).version), how)
    for _ in range(2):
        with pytest.raises(ObjectDamaged, match=r"replace=True"):
            store.get(spilled[0])
    for key in spilled[1:]:
        check(store, int(key[1:]))
    store.put(spilled[0], 3, replace=True)
    assert store.get(spilled[0]) == 3


def test_a_directory_that_vanishes(store: Store) -> None:
    assert store._files is not None
    fill(store, 10)
    for path in store._files.path.iterdir():
        path.unlink()
    store._files.path.rmdir()
    with pytest.raises(errors.QuotaExceeded, match=r"nothing can be spilled.*nothing is lost"):
        fill_more(store)
    resident = [key for key in store if not store.stat(key).spilled]
    assert resident
    for key in resident:
        if key.startswith("k"):
            check(store, int(key[1:]))
    store._files.path.mkdir()
    fill_more(store)


def fill_more(store: Store) -> None:
    for i in range(10):
        store.put(f"more{i}", st.zeros(1000), replace=True)


def test_a_full_disk_loses_nothing(store: Store) -> None:
    fill(store, 4)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        with pytest.raises(errors.QuotaExceeded, match=r"File too large.*nothing is lost"):
            fill_more(store)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    for i in range(4):
        check(store, i)
    assert not [name for name in files(store) if not name.endswith(".safetensors")]


def test_a_directory_is_of_one_store(store: Store, tmp_path: Path) -> None:
    fill(store, 10)
    with pytest.raises(errors.InvalidArgument, match=r"belongs to the store None of .*give each store a directory"):
        Store("other", max_bytes=20_000, spill=tmp_path / "spilled")
    for i in range(10):
        check(store, i)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "1000.safetensors").touch()
    with pytest.raises(errors.InvalidArgument, match="has files that may belong to another store; give an empty"):
        Store(max_bytes=20_000, spill=foreign)
    assert (foreign / "1000.safetensors").exists()


def test_the_directory_of_a_store_that_has_ended_is_for_the_next(tmp_path: Path) -> None:
    first = Store(max_bytes=20_000, spill=tmp_path)
    fill(first, 10)
    assert files(first)
    del first
    gc.collect()
    until(lambda: not [row for row in client.default().list()["rings"] if row["kind"] == STORE], "the store to end")
    (tmp_path / f".1.safetensors.{'a' * 16}.tmp").touch()  # of a process that was killed
    (tmp_path / "notes.txt").touch()
    second = Store(max_bytes=20_000, spill=tmp_path)
    assert not files(second) - {"notes.txt"}
    fill(second, 10)
    check(second, 0)


def test_the_store_of_a_manager_that_was_killed_may_still_be_there(tmp_path: Path) -> None:
    """Its clients go on without a manager; only its socket says so."""
    address, spilled = tmp_path / "killed.sock", tmp_path / "spilled"
    spilled.mkdir()
    (spilled / "1.safetensors").touch()
    noted = {"name": "x", "address": os.fspath(address), "group": "0", "segment": 1}
    (spilled / "store.json").write_text(json.dumps(noted))
    address.touch()
    with pytest.raises(errors.InvalidArgument, match="belongs to the store 'x'"):
        Store(max_bytes=20_000, spill=spilled)
    assert (spilled / "1.safetensors").exists()
    address.unlink()  # as a manager that ends does
    assert not files(Store(max_bytes=20_000, spill=spilled))


def test_a_fork_during_a_spill_blocks_nobody(store: Store) -> None:
    assert store._files is not None
    with store._files.exclusive():
        pid = os.fork()
        if pid == 0:
            signal.pause()
    try:
        with store._files.exclusive(waits=False):
            pass
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_who_opens_and_deletes_does_not_wait_for_who_spills(tmp_path: Path) -> None:
    store = Store("spills", max_bytes=20_000, spill=tmp_path)
    fill(store, 10)
    assert store._files is not None
    with store._files.exclusive():
        other = Store("spills")
        spilled = next(key for key in other if other.stat(key).spilled)
        assert other.delete(spilled)
    store.delete(next(key for key in other if other.stat(key).spilled))
    assert len(files(store)) == store.stats().spilled
    store.destroy()


def test_what_no_file_can_have_stays_in_memory() -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Store(max_bytes=20_000, spill=directory)
        store.put("long", np.ones(100, np.longdouble))
        fill(store, 10)
        assert not store.stat("long").spilled and store.get("long")[0] == 1


def test_a_pin_that_comes_while_it_is_written_holds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("pinned", st.zeros(1000))
    assert store._files is not None
    write = store._files.write

    def pins(version: int, value: object) -> None:
        if isinstance(value, st.Tensor):
            store.touch("pinned", pin=True)
        write(version, value)

    monkeypatch.setattr(store._files, "write", pins)
    fill(store, 10)
    assert store.stat("pinned").pinned and not store.stat("pinned").spilled


def test_a_file_that_leads_to_itself_is_damaged(store: Store) -> None:
    fill(store, 10)
    assert store._files is not None
    spilled = next(key for key in store if store.stat(key).spilled)
    path = store._files.file_of(store.stat(spilled).version)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(ObjectDamaged, match="delete the object"):
        store.get(spilled)


@pytest.mark.parametrize("spill", [3, b"bytes", "a\0b", "x" * 2000, "\ud800"], ids=repr)
def test_what_is_no_path(spill: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="spill must be the path"):
        Store(max_bytes=1000, spill=spill)


def test_arguments_that_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgument, match="max_bytes"):
        Store(spill=tmp_path)
    with pytest.raises(errors.InvalidArgument, match="spill_bytes needs spill"):
        Store(max_bytes=1000, spill_bytes=1000)
    (tmp_path / "file").touch()
    with pytest.raises(errors.InvalidArgument, match="cannot be a directory"):
        Store(max_bytes=1000, spill=tmp_path / "file")
    store = Store("spills", max_bytes=1000, spill=tmp_path / "a")
    with pytest.raises(errors.InvalidArgument, match="spill="):
        Store("spills", spill=tmp_path / "b")
    assert Store("spills")._files is not None
    store.destroy()


def put_some(store: Store) -> None:
    for i in range(8):
        store.put(f"k{i}", st.zeros(2000))


def test_objects_of_others_go_where_ones_own_cannot(tmp_path: Path) -> None:
    """The key that is put again is the only object whose memory this process has mapped."""
    store = Store(max_bytes=90_000, spill=tmp_path)
    process = mp.get_context("spawn").Process(target=put_some, args=(store,))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    process.close()
    store.put("mine", st.ones(3000))
    store.put("mine", st.ones(8000), replace=True)
    assert store.stats().spilled


def work(store: Store, seed: int) -> None:
    dice = np.random.default_rng(seed)
    for _ in range(150):
        key, value = f"k{dice.integers(40)}", float(dice.integers(1000))
        store.put(key, {"x": st.full((int(dice.integers(1, 3000)),), value)}, replace=True)
        try:
            found = store.get(f"k{dice.integers(40)}")["x"]
        except ObjectNotFound:
            continue
        assert found.min().item() == found.max().item()


def test_several_processes_spill_at_once(tmp_path: Path) -> None:
    # More than all objects of 12 kB that three processes hold at once, each what it has and what it gets.
    store = Store(max_bytes=100_000, spill=tmp_path)
    processes = [mp.get_context("fork").Process(target=work, args=(store, seed)) for seed in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
        process.close()
    gc.collect()
    store.put("last", 1)
    assert store._files is not None and store.stats().spilled
    store._native.check_invariants()
    store._sweep()
    assert len(files(store)) == store.stats().spilled


WORK = """
import sys, zlib
import numpy as np
import shmtensor as st
store = st.Store("spills", max_bytes="200K", spill=sys.argv[1])
dice = np.random.default_rng(int(sys.argv[2]))
print("begun", flush=True)
while True:
    data = dice.integers(0, 256, int(dice.integers(1, 30_000)), dtype=np.uint8)
    store.put(f"k{dice.integers(40)}", [zlib.crc32(data), data], replace=True)
    try:
        sum, found = store.get(f"k{dice.integers(40)}")
    except KeyError:
        continue
    assert zlib.crc32(found) == sum, "torn"
"""


@pytest.mark.exhaustive
@pytest.mark.any_python
def test_those_who_spill_are_killed(here: World, tmp_path: Path) -> None:
    env = {"SHMTENSOR_MANAGER": os.fsdecode(here.serve())}
    processes = []
    for i in range(7):
        process = here.script(WORK, str(tmp_path), str(i), env=env)
        assert line_of(process) == "begun"
        processes.append(process)
        if i >= 2:
            first = processes.pop(0)
            assert first.poll() is None, first.communicate()[1]
            kill(first)
    for process in processes:
        assert process.poll() is None, process.communicate()[1]
        kill(process)
    here.run(
        "import shmtensor as st, zlib\nstore = st.Store('spills')\n"
        "for key in store:\n    sum, data = store.get(key)\n    assert zlib.crc32(data) == sum\n"
        "store._native.check_invariants()\nprint(store.stats().spilled)\nstore.destroy()",
        env=env,
    )
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".safetensors"]
    until(lambda: not here.observe(os.fsencode(env["SHMTENSOR_MANAGER"]))["segments"], "the store to end")
