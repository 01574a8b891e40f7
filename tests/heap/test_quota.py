"""Quotas: bytes in all and by client, counted before they are reserved, by whom, and what becomes of it at a death."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from manager_world import BOUND, World, kill, line_of, tell, until
from memory_world import reserved_pages
from quota_world import MIB, Group

from shmtensor.errors import OutOfMemory, QuotaExceeded
from shmtensor.manager import display, shortage
from shmtensor.manager.shortage import parse_size

pytestmark = pytest.mark.any_python


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("1", 1),
        ("4096", 4096),
        ("512M", 512 << 20),
        ("4G", 4 << 30),
        ("1.5k", 1536),
        ("2GiB", 2 << 30),
        ("3 TB", 3 << 40),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "M", "0", "-1M", "12Q", "0.5", "nan", "inf", "9999999T"])
def test_what_is_no_size_is_refused(here: World, text: str) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


def test_wrong_quotas_are_wrong_usage(here: World) -> None:
    for option in ("--max-bytes", "--max-bytes-per-client"):
        done = here.command("serve", option, "12Q")
        assert done.returncode == 2
        assert "12Q is not a size such as 512M" in done.stderr


def test_the_manager_says_its_quotas(here: World) -> None:
    group = Group(here, "--max-bytes", "64M", "--max-bytes-per-client", "16M")
    manager = group.manager
    figures = manager.stats()
    assert (figures.max_bytes, figures.max_bytes_per_client, figures.charged_bytes) == (64 * MIB, 16 * MIB, 0)
    block = manager.allocate(MIB)
    assert manager.stats().charged_bytes == MIB
    (row,) = manager.list()["clients"]
    assert row["reserved_bytes"] == MIB
    text = here.command("status", "--address", os.fsdecode(group.address)).stdout
    assert "1.0 MiB counted of 64.0 MiB in all, 16.0 MiB for each client" in text
    del block
    manager.close()
    assert "quota        none" in display.status(
        {**json.loads(here.command("status", "--address", os.fsdecode(group.address), "--json").stdout)}
        | {"max_bytes": 0, "max_bytes_per_client": 0}
    )


def test_a_private_manager_takes_quotas_from_the_environment(here: World) -> None:
    code = """
from shmtensor.manager import client
figures = client.default().stats()
print(figures.max_bytes, figures.max_bytes_per_client)
"""
    variables = {"SHMTENSOR_MAX_BYTES": "48M", "SHMTENSOR_MAX_BYTES_PER_CLIENT": "1.5M"}
    assert here.run(code, env=variables).split() == [str(48 * MIB), str(3 * MIB // 2)]


def test_a_quota_in_the_environment_that_is_none_is_named(here: World) -> None:
    code = """
from shmtensor import errors
from shmtensor.manager import client
try:
    client.default()
except errors.ManagerUnavailable as problem:
    print(problem)
"""
    said = here.run(code, env={"SHMTENSOR_MAX_BYTES": "much"})
    assert "SHMTENSOR_MAX_BYTES must be a size" in said and "'much'" in said and "512M" in said


def test_the_error_names_request_limit_what_is_free_and_who_holds_most(here: World) -> None:
    group = Group(here, "--max-bytes", "32M", "--max-bytes-per-client", "24M")
    other = group.script("kept, _ = fill(10 << 20, 1)\nsay(os.getpid())\nsys.stdin.readline()")
    pid = line_of(other)
    manager = group.manager
    mine = [manager.allocate(4 * MIB) for _ in range(5)]
    with pytest.raises(QuotaExceeded) as raised:
        manager.allocate(6 * MIB)
    said = str(raised.value)
    assert isinstance(raised.value, OutOfMemory | MemoryError)
    assert "6291456 bytes (6.0 MiB)" in said
    assert "the manager's --max-bytes-per-client" in said
    assert "2.0 MiB of the quota of 32.0 MiB for all clients" in said
    assert "4.0 MiB of the quota of 24.0 MiB for this process" in said
    assert f"20.0 MiB by pid {os.getpid()} (" in said and Path(sys.executable).name in said
    assert f"10.0 MiB by pid {pid} (" in said
    with pytest.raises(QuotaExceeded, match=r"limit hit: the manager's --max-bytes[.]"):
        manager.allocate(3 * MIB)
    native = manager.native
    for asked, advice in ((6 * MIB, "release tensors"), (1 * MIB, "try again")):  # by the time that it is said
        text = shortage.describe("a segment", errno.EDQUOT, asked, "", False, None, native.group, native.slot)
        assert advice in text.partition("What to do: ")[2]
    mine.clear()
    tell(other)
    other.wait(BOUND)
    until(lambda: manager.stats().charged_bytes <= 20 * MIB, "the dead client's bytes to count no more")
    manager.allocate(20 * MIB)
    manager.close()


@pytest.mark.parametrize("size", [1000, 100_000, 3 * MIB])
def test_filled_to_the_quota_a_process_lives_and_goes_on_after_releasing(here: World, size: int) -> None:
    group = Group(here, "--max-bytes", "32M")
    code = f"""
for again in range(3):
    kept, said = fill({size})
    assert said and len(kept) * {size} > 0.8 * (32 << 20), (len(kept), said)
    assert manager.native.stats().reserved <= 32 << 20
    assert all(memoryview(block)[-1] == n % 251 for n, block in enumerate(kept))
    del kept
    manager.native.check_invariants()
say("fine")
"""
    assert group.run(code) == "fine"


def test_each_client_has_a_quota_and_all_together_have_one(here: World) -> None:
    group = Group(here, "--max-bytes", "40M", "--max-bytes-per-client", "16M")
    code = "kept, said = fill(1 << 20)\nsay(len(kept), 'per-client' in said)\nsys.stdin.readline()"
    clients = []
    for expected in ["16 True", "16 True", "8 False", "0 False"]:
        clients.append(group.script(code))
        assert line_of(clients[-1]) == expected
    assert reserved_pages(here.server.pid) == 40 * MIB
    kill(clients[0])
    fifth = group.script(
        "import time\nend = time.monotonic() + 20\nkept = []\n"
        "while len(kept) < 16 and time.monotonic() < end: kept += fill(1 << 20)[0]\nsay(len(kept))"
    )
    assert line_of(fifth) == "16", "the killed client's share is another's"


def test_a_forked_child_counts_for_itself(here: World) -> None:
    group = Group(here, "--max-bytes-per-client", "8M")
    code = """
kept, _ = fill(1 << 20)
assert len(kept) == 8
pid = os.fork()
if not pid:
    mine, said = fill(1 << 20)
    assert len(mine) == 8 and said, (len(mine), said)
    assert memoryview(kept[3])[0] == 3
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
say("fine")
"""
    assert group.run(code) == "fine"


def test_what_this_process_keeps_for_later_goes_before_it_is_refused(here: World) -> None:
    group = Group(here, "--max-bytes", "32M")
    code = """
small, _ = fill(4000, 7000)   # 27 MiB
del small
assert manager.native.stats().free > 26 << 20
large, said = fill(30 << 20, 1)
assert len(large) == 1, said
del large
dedicated, said = fill(300 << 20, 1)
assert not dedicated and manager.native.stats().owned == 1, "a segment was made for what is refused"
say("fine")
"""
    assert group.run(code) == "fine"


def test_who_is_refused_has_the_others_give_back_what_they_keep(here: World) -> None:
    group = Group(here, "--max-bytes", "32M")
    manager = group.manager
    block = manager.allocate(24 * MIB)
    del block  # kept for later
    small = manager.allocate(100)
    assert manager.stats().charged_bytes >= 24 * MIB
    code = """
kept, said = fill(16 << 20, 1)
say(len(kept), 'reserved, including caches: 24' in said)
sys.stdin.readline()
kept, said = fill(16 << 20, 1)
say(len(kept), said)
"""
    other = group.script(code)
    assert line_of(other) == "0 True"
    assert manager.native.stats().reserved >= 24 * MIB
    del small  # the next thing that this process does
    assert manager.native.stats().reserved < 2 * MIB
    tell(other)
    assert line_of(other) == "1"
    manager.close()


def test_an_orphan_counts_for_the_group_with_the_pages_that_it_still_has(here: World) -> None:
    group = Group(here, "--max-bytes", "64M")
    manager = group.manager
    owner = group.script(
        "kept, _ = fill(1 << 20, 40)\none = kept[20]\nsay(one.segment, one.index, one.generation)\nsys.stdin.readline()"
    )
    one = manager.attach(*map(int, line_of(owner).split()))
    assert manager.stats().charged_bytes >= 40 * MIB
    kill(owner)
    until(lambda: manager.stats().charged_bytes == MIB, "all but the one block to be given back")
    assert manager.native.group.reserved(0) == MIB == reserved_pages(here.server.pid)
    assert bytes(memoryview(one)) == bytes([20]) * MIB
    mine = [manager.allocate(21 * MIB) for _ in range(3)]
    with pytest.raises(QuotaExceeded):
        manager.allocate(MIB)
    del one
    until(lambda: manager.native.group.reserved(0) == 0, "the orphan to go")
    mine.append(manager.allocate(MIB))
    del mine
    manager.close()


STORM = """
import random
random.seed(os.getpid())
kept = []
say("ready")
while True:
    try:
        kept.append(manager.allocate(random.choice([5000, 70_000, 900_000, 5 << 20])))
    except errors.QuotaExceeded:
        kept.clear() if random.random() < 0.3 else kept.pop(random.randrange(len(kept))) if kept else None
    if len(kept) > 300 or random.random() < 0.02:
        del kept[::2]
    if random.random() < 0.005:
        manager.native.trim()
"""


@contextmanager
def standing_still(processes: list[Any]) -> Iterator[None]:
    """Nobody of them runs."""
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    for process in processes:
        state = Path(f"/proc/{process.pid}/stat")
        until(lambda state=state: state.read_text().rpartition(")")[2].split()[0] in "TZX", "it stands still")  # type: ignore[misc]
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


@pytest.mark.exhaustive
def test_the_quota_is_never_exceeded_and_nothing_counts_for_the_killed(here: World) -> None:
    group = Group(here, "--max-bytes", "48M", "--max-bytes-per-client", "32M")
    manager = group.manager
    storms = [group.script(STORM) for _ in range(3)]
    most = 0
    for storm in storms:
        assert line_of(storm) == "ready"
    for turn in range(12):
        for _ in range(20):
            with standing_still(storms):  # or pages would be counted where they were and where they are
                most = max(most, reserved_pages(here.server.pid))
            assert most <= 48 * MIB
            time.sleep(0.002)
        victim = storms.pop(0)
        victim.send_signal(signal.SIGKILL)
        victim.wait(BOUND)
        if turn < 9:
            storms.append(group.script(STORM))
            line_of(storms[-1])
    for storm in storms:
        kill(storm)
    assert most > 40 * MIB, "the storm came nowhere near its quota"
    until(lambda: manager.stats().charged_bytes == 0, "nothing to count for the dead")
    assert reserved_pages(here.server.pid) == 0
    manager.close()


QUEUE = """
import shmtensor.multiprocessing as mp
os.environ["SHMTENSOR_MANAGER"] = os.environ["AT"]
"""


def test_a_queue_that_cannot_grow_says_so_and_loses_nothing(here: World) -> None:
    group = Group(here, "--max-bytes", "4M")
    code = (
        QUEUE
        + """
queue = mp.Queue()
assert manager.native.group.reserved(0) == 80 << 10
kept, _ = fill(1 << 20, 3)
put = 0
try:
    while True:
        queue.put(b"%08d" % put + bytes(8000))
        put += 1
except errors.QuotaExceeded as problem:
    assert "making the queue larger" in str(problem) and "--max-bytes" in str(problem), problem
assert put > 50
charged = manager.native.group.charged()
assert charged <= 4 << 20, charged
for n in range(put // 2):
    assert queue.get() == b"%08d" % n + bytes(8000)
queue.put(b"room again")           # what was taken made room
kept.clear()
for n in range(put):               # and now it may grow
    queue.put(n)
assert manager.native.group.charged() <= 4 << 20
for n in range(put // 2, put):
    assert queue.get() == b"%08d" % n + bytes(8000)
assert queue.get() == b"room again"
assert [queue.get() for _ in range(put)] == list(range(put))
assert queue.empty()
say("fine")
"""
    )
    assert group.run(code) == "fine"
    manager = group.manager
    until(lambda: manager.stats().charged_bytes == 0, "the dropped queue to count no more")
    manager.close()


def test_what_rings_have_reserved_counts_until_they_go(here: World) -> None:
    group = Group(here, "--max-bytes", "8M")
    code = (
        QUEUE
        + """
queue = mp.Queue()
for n in range(250):
    queue.put(bytes(8000))
say(manager.native.group.reserved(0))
sys.stdin.readline()
"""
    )
    process = group.script(code)
    counted = int(line_of(process))
    assert counted == reserved_pages(here.server.pid) > 2 * MIB
    manager = group.manager
    time.sleep(0.6)  # the manager has looked itself meanwhile, and counts the same
    assert manager.native.group.reserved(0) == counted
    kill(process)
    until(lambda: manager.stats().charged_bytes == 0, "the dropped queue to count no more")
    manager.close()


def test_a_new_queue_may_be_refused_too(here: World) -> None:
    group = Group(here, "--max-bytes", "1M")
    code = (
        QUEUE
        + """
block = manager.allocate(1 << 20)
try:
    mp.Queue()
    say("made")
except errors.QuotaExceeded as problem:
    say(problem)
del block
queue = mp.Queue()               # what was kept for later has been given back
queue.put(1)
say(queue.get())
"""
    )
    said, got = group.run(code).splitlines()
    assert "81920 bytes" in said and "--max-bytes" in said and "0 of them free" in said
    assert got == "1"


def test_what_nobody_could_have_given_disturbs_nobody(here: World) -> None:
    group = Group(here, "--max-bytes", "32M", "--max-bytes-per-client", "24M")
    manager = group.manager
    block = manager.allocate(10 * MIB)
    del block  # kept for later
    code = """
for size in (40 << 20, 25 << 20, 1 << 40):
    try:
        manager.allocate(size)
    except errors.QuotaExceeded:
        say("refused")
"""
    assert group.run(code).split() == ["refused"] * 3
    manager.allocate(100)
    assert manager.native.stats().reserved >= 10 * MIB
    manager.close()


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_quotas_and_what_counts_outlive_the_manager(here: World, how: str) -> None:
    group = Group(here, "--max-bytes", "32M", "--max-bytes-per-client", "24M")
    owner = group.script(
        "kept, _ = fill(1 << 20, 20)\none = kept[7]\nsay(one.segment, one.index, one.generation)\nsys.stdin.readline()"
    )
    manager = group.manager
    one = manager.attach(*map(int, line_of(owner).split()))
    before, charged = manager.stats().epoch, manager.stats().charged_bytes
    assert charged >= 20 * MIB
    if how == "restart":
        assert here.command("restart", "--address", os.fsdecode(group.address)).returncode == 0
    else:
        kill(here.server)
        kill(owner)  # with nobody there to see it
        assert here.serve(address=Path(os.fsdecode(group.address))) == group.address
    figures = manager.stats()
    assert figures.epoch > before
    assert (figures.max_bytes, figures.max_bytes_per_client) == (32 * MIB, 24 * MIB)
    if how == "restart":
        assert figures.charged_bytes == charged
        kill(owner)
    until(lambda: manager.stats().charged_bytes == MIB, "the orphan to count with the one block that is held")
    assert manager.native.group.reserved(0) == MIB
    with pytest.raises(QuotaExceeded, match="per-client"):
        manager.allocate(25 * MIB)
    del one
    until(lambda: manager.stats().charged_bytes == 0, "the orphan to go")
    manager.stop()
    manager.close()


def test_a_restart_without_clients_keeps_the_quotas(here: World) -> None:
    address = os.fsdecode(here.serve("--max-bytes", "32M"))
    assert here.command("restart", "--address", address).returncode == 0
    figures = json.loads(here.command("status", "--address", address, "--json").stdout)
    assert (figures["max_bytes"], figures["max_bytes_per_client"]) == (32 * MIB, 0)
    assert here.command("stop", "--address", address).returncode == 0
