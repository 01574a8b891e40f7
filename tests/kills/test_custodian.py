"""A named store outlives the SIGKILL of its manager although no process maps it, and is freed in the end."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from manager_world import World, is_alive, kill, line_of, tell, until
from tiers import first

from shmtensor import errors

pytestmark = pytest.mark.any_python

FILL = """
import sys
import shmtensor as st
store = st.Store("features")
for i in range(50):
    store.put(f"k{i:02}", {"x": st.full((1000 + i,), float(i)), "i": i})
store.put("large", st.full((3 << 20,), 5.0))
print("filled", flush=True)
"""
CHECK = """
import sys
import shmtensor as st
store = st.Store("features", create=False)
for i in range(50):
    found = store.get(f"k{i:02}")
    assert found["i"] == i and found["x"].shape == (1000 + i,) and (found["x"] == i).all()
assert store.get("large").shape == (3 << 20,) and (store.get("large") == 5).all()
for name in sys.argv[1:]:
    assert (store.get(name) == len(name)).all()
store._native.check_invariants()
"""
HOLD = "sys.stdin.readline()\n"


def is_custodian(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_bytes() == b"shmtensor-cust\n"


def custodians(here: World) -> list[int]:
    """Pids of the custodians of this world's managers."""
    found = []
    for pid in here.managers():
        with suppress(OSError):  # it has ended
            found += [pid] * is_custodian(pid)
    return found


def has_all(here: World, pid: int, manager: int) -> bool:
    """Whether the process has the memfds that the manager has."""

    def memory(of: int) -> set[str]:
        try:
            links = {str(path.readlink()) for path in Path(f"/proc/{of}/fd").iterdir()}
        except OSError:
            return set()
        return {link for link in links if link.startswith("/memfd:shmtensor")}

    return bool(memory(pid)) and memory(pid) == memory(manager)


def custodian(here: World, address: bytes) -> int:
    """The custodian of the manager there, once it has all memory and the manager has no client."""
    listing = until(lambda: found if not (found := here.observe(address))["clients"] else None, "clients to go")
    manager = listing["stats"]["pid"]

    def found() -> int:
        there = [pid for pid in custodians(here) if has_all(here, pid, manager)]
        return there[0] if len(there) == 1 and custodians(here) == there else 0

    return until(found, "a custodian")


def next_manager(here: World, address: bytes, before: int) -> int:
    """The pid of the manager after that one."""

    def pid() -> int:
        try:
            return here.observe(address)["stats"]["pid"]
        except errors.ShmTensorError:
            return before

    return until(lambda: (now := pid()) != before and now, "the next manager")


def until_all_end(here: World) -> int:
    """Wait until there is no manager and no custodian. Returns how many managers there were."""
    seen: dict[int, bool] = {}

    def ended() -> bool:
        now = here.managers()
        for pid in now:
            with suppress(OSError):  # it has ended
                seen[pid] = not is_custodian(pid)
        return not now

    until(ended, "all to end")
    return sum(seen.values())


def nothing_left(here: World) -> bool:
    return not [path for path in here.directory.iterdir() if path.suffix != ".log" and path.name != "start.lock"]


def filled(here: World, *options: str) -> tuple[bytes, dict[str, str]]:
    address = here.serve(*options)
    env = {"SHMTENSOR_MANAGER": os.fsdecode(address)}
    here.run(FILL, env=env)
    return address, env


@pytest.mark.exhaustive
@pytest.mark.parametrize("times", first([2, 25]))
def test_what_nobody_maps_survives_the_managers_kill(here: World, times: int) -> None:
    address, env = filled(here)
    names: list[str] = []
    for i in range(times):
        custodian(here, address)
        pid = here.observe(address)["stats"]["pid"]
        os.kill(pid, signal.SIGKILL)
        next_manager(here, address, pid)
        here.run(CHECK + f"store.put('n' * {i + 1}, st.full((5000,), {i + 1}.0))", *names, env=env)
        names.append("n" * (i + 1))
    here.run(CHECK, *names, env=env)
    stats = here.observe(address)["stats"]
    assert stats["epoch"] == times + 1 and stats["idle_exit"] is None
    here.command("stop", "--address", os.fsdecode(address))
    until(lambda: not here.managers(), "the manager to end")


@pytest.mark.exhaustive
def test_a_manager_that_a_client_starts_stays_as_long_as_the_killed_one(here: World) -> None:
    address, env = filled(here)
    os.kill(custodian(here, address), signal.SIGSTOP)  # so that the client starts it
    program = here.script(
        CHECK
        + "from shmtensor.manager import client\nmanager = client.default()\n"
        + "print('has', flush=True)\n"
        + HOLD
        + "print(manager.stats().epoch, flush=True)\n"
        + HOLD,
        env=env,
    )
    assert line_of(program) == "has"
    stopped = custodians(here)
    try:
        kill(here.server)
        tell(program)
        assert line_of(program) == "2"
        assert here.observe(address)["stats"]["idle_exit"] is None
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    tell(program)
    program.wait()
    custodian(here, address)
    here.run(CHECK, env=env)


def test_a_custodian_that_is_killed_is_replaced(here: World) -> None:
    address, env = filled(here)
    first_one = custodian(here, address)
    os.kill(first_one, signal.SIGKILL)
    until(lambda: custodian(here, address) != first_one, "another custodian")
    kill(here.server)
    next_manager(here, address, here.server.pid)
    here.run(CHECK, env=env)


@pytest.mark.exhaustive
def test_a_custodian_has_no_more_than_the_memory(here: World) -> None:
    address, _env = filled(here)
    links = {str(path.readlink()) for path in Path(f"/proc/{custodian(here, address)}/fd").iterdir()}
    others = {link for link in links if not link.startswith("/memfd:shmtensor-")}
    assert "/dev/null" in others and len(others - {"/dev/null"}) == 1, others  # the line
    assert not [link for link in others if link.startswith("socket:") or "lock" in link]


@pytest.mark.exhaustive
def test_manager_and_custodian_killed_at_once(here: World) -> None:
    address, env = filled(here)
    both = [custodian(here, address), here.server.pid]
    for pid in both:
        os.kill(pid, signal.SIGSTOP)
    for pid in both:
        os.kill(pid, signal.SIGKILL)
    here.server.wait()
    until(lambda: not here.managers(), "both to end")
    here.serve()
    stats = here.observe(address)["stats"]
    assert (stats["epoch"], stats["segments"], stats["names"]) == (1, 0, 0)
    here.run("import shmtensor as st; assert not st.Store('features').keys()", env=env)
    here.run(FILL, env=env)
    here.run(CHECK, env=env)


@pytest.mark.exhaustive
def test_a_manager_that_is_stopped_leaves_nothing(here: World) -> None:
    address, _env = filled(here)
    custodian(here, address)
    here.command("stop", "--address", os.fsdecode(address))
    here.server.wait()
    assert until_all_end(here) <= 2  # the second one, in the background, waits for clients for a while
    assert nothing_left(here)


@pytest.mark.exhaustive
def test_a_private_manager_leaves_nothing(here: World) -> None:
    program = here.script(FILL + HOLD)
    assert line_of(program) == "filled"
    until(lambda: custodians(here), "a custodian")
    tell(program)
    assert until_all_end(here) == 1
    program.wait()
    assert nothing_left(here)


@pytest.mark.exhaustive
def test_without_a_named_store_there_is_no_custodian(here: World) -> None:
    address = here.serve()
    env = {"SHMTENSOR_MANAGER": os.fsdecode(address)}
    program = here.script(
        "import sys\nimport shmtensor as st\nimport shmtensor.multiprocessing as mp\n"
        "store, queue, tensor = st.Store(), mp.SimpleQueue(name='q'), st.zeros(5).share_memory_()\n"
        "store.put('a', tensor)\nqueue.put(tensor)\nprint('made', flush=True)\n"
        + HOLD
        + "named = st.Store('features')\nprint('named', flush=True)\n"
        + HOLD
        + "named.destroy()\nprint('destroyed', flush=True)\n"
        + HOLD,
        env=env,
    )
    assert line_of(program) == "made"
    sweeps = here.observe(address)["stats"]["uptime_seconds"] + 0.6
    until(lambda: here.observe(address)["stats"]["uptime_seconds"] > sweeps, "two sweeps")
    assert not custodians(here)
    tell(program)
    until(lambda: custodians(here), "a custodian")
    tell(program)
    assert line_of(program) == "named" and line_of(program) == "destroyed"
    until(lambda: not custodians(here), "the custodian to end")
    assert here.server.poll() is None
    tell(program)
    program.wait()


@pytest.mark.exhaustive
def test_a_restart_and_a_handover_have_custodians(here: World) -> None:
    address, env = filled(here)
    before = custodian(here, address)
    assert here.command("restart", "--address", os.fsdecode(address)).returncode == 0
    until(lambda: not is_alive(before), "the first custodian to end")
    before = custodian(here, address)
    here.run(CHECK, env=env)
    manager = here.observe(address)["stats"]["pid"]
    os.kill(manager, signal.SIGKILL)
    manager = next_manager(here, address, manager)
    before = custodian(here, address)
    here.run(CHECK, env=env)
    # A service takes the role of the manager in the background, and has the memory.
    here.serve()
    until(lambda: not is_alive(before) and not is_alive(manager), "the manager in the background to end")
    custodian(here, address)
    here.run(CHECK, env=env)
