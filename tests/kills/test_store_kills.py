"""A store under kills of its writers, its readers and the manager: sealed objects stay, and are whole."""

from __future__ import annotations

import json
import os
import signal

import pytest
from manager_world import World, kill, line_of, tell, until
from tiers import first

FILL = """
import sys
import shmtensor as st
store = st.Store("features")
for i in range(200):
    store.put(f"k{i:03}", {"x": st.full((1000 + i,), float(i)), "i": i})
print("filled", flush=True)
"""
CHECK = """
import shmtensor as st
store = st.Store("features", create=False)
assert store.keys()[:200] == [f"k{i:03}" for i in range(200)], store.keys()
for i in range(200):
    found = store.get(f"k{i:03}")
    assert found["i"] == i and found["x"].shape == (1000 + i,) and (found["x"] == i).all()
store._native.check_invariants()
"""


@pytest.mark.exhaustive
def test_a_named_store_outlives_its_processes(here: World) -> None:
    env = {"SHMTENSOR_MANAGER": os.fsdecode(here.serve())}
    here.run(FILL, env=env)
    here.run(CHECK, env=env)
    here.run("import shmtensor as st; st.Store('features').destroy()", env=env)
    until(lambda: not here.observe(os.fsencode(env["SHMTENSOR_MANAGER"]))["segments"], "the store to end")


@pytest.mark.any_python
@pytest.mark.parametrize("times", first([3, 100]))
def test_a_manager_that_is_killed_loses_nothing_of_a_store(here: World, times: int) -> None:
    env = {"SHMTENSOR_MANAGER": os.fsdecode(here.serve())}
    program = here.script(
        FILL + "from shmtensor.manager import client\nimport os, signal\n"
        "for line in sys.stdin:\n"
        "    os.kill(client.default().stats().pid, signal.SIGKILL)\n"
        "    assert len(store) == len(store.keys()) and store.get('k007')['i'] == 7\n"
        "    store.put(line.strip(), st.full((5000,), 7.0))\n"
        "    client.default().stats()  # of the next manager\n"
        "    print('put', flush=True)\n",
        env=env,
    )
    assert line_of(program) == "filled"
    for i in range(times):
        tell(program, f"more{i}")
        assert line_of(program) == "put"
        if i % 10 == 0:
            here.run(CHECK + f"assert (store.get('more{i}') == 7).all() and len(store) == {201 + i}", env=env)
    kill(program)


WRITE = """
import sys, zlib
import numpy as np
import shmtensor as st
store = st.Store("many", max_bytes="2M")
dice = np.random.default_rng(int(sys.argv[1]))
print("begun", flush=True)
while True:
    data = dice.integers(0, 256, int(dice.integers(1, 20_000)), dtype=np.uint8)
    key = f"k{dice.integers(50)}"
    step = dice.integers(4)
    if step == 0:
        store.delete(key)
    elif step == 1:
        try:
            with store.create(key, len(data), st.uint8) as tensor:
                tensor.copy_(st.from_numpy(data))
        except st.errors.NameTaken:
            pass
    else:
        store.put(key, data, replace=True)
    sum = zlib.crc32(data)
    store.put_many({"left": [sum, data], "right": [sum, data]}, replace=True)
"""
READ = """
import sys, zlib
import shmtensor as st
store = st.Store("many")
print("begun", flush=True)
while True:
    for name in ("left", "right"):
        found = store.get(name, timeout=10)
        assert zlib.crc32(found[1]) == found[0], "torn"
    for key in store.keys("k"):
        try:
            store.get(key)
        except st.store.ObjectNotFound:
            pass
"""


@pytest.mark.exhaustive
@pytest.mark.any_python
@pytest.mark.parametrize("kills", first([6, 30]))
def test_those_who_write_and_read_are_killed(here: World, kills: int) -> None:
    env = {"SHMTENSOR_MANAGER": os.fsdecode(here.serve("--max-bytes", "2G"))}
    here.run("import shmtensor as st; st.Store('many', max_bytes='2M')", env=env)

    def begin(code: str, seed: int) -> object:
        process = here.script(code, str(seed), env=env)
        assert line_of(process) == "begun"
        return process

    processes = [begin(WRITE, 1), begin(READ, 2)]
    for i in range(kills):
        process = processes.pop(0)
        assert process.poll() is None, process.communicate()[1]
        process.send_signal(signal.SIGKILL)
        process.wait()
        processes.append(begin(READ if i % 2 else WRITE, i))
    for process in processes:
        assert process.poll() is None, process.communicate()[1]
        kill(process)
    here.run(
        "import shmtensor as st, zlib\nstore = st.Store('many')\n"
        "left, right = store.get('left'), store.get('right')\n"
        "assert zlib.crc32(left[1]) == left[0] == right[0] == zlib.crc32(right[1])\n"
        "store._native.check_invariants()\nassert store.stats().nbytes <= 2 << 20\nstore.destroy()",
        env=env,
    )
    until(lambda: not here.observe(os.fsencode(env["SHMTENSOR_MANAGER"]))["segments"], "the store to end")


@pytest.mark.exhaustive
def test_what_a_store_keeps_is_not_in_flight(here: World) -> None:
    address = os.fsdecode(here.serve())
    here.run(FILL, env={"SHMTENSOR_MANAGER": address})
    done = here.command("leaks", "--older", "0", "--json", "--address", address)
    found = json.loads(done.stdout)
    assert done.returncode == 0 and not found["groups"] and not found["unlisted"], done.stdout
    assert "the group, by its name" in here.command("ls", "--address", address).stdout
    here.run("import shmtensor as st; st.Store('features').destroy()", env={"SHMTENSOR_MANAGER": address})
