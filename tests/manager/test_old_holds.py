"""`shmtensor-manager leaks`: old holds by process and line, and messages that were never received."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
from manager_world import World, line_of

from shmtensor.manager import cli, client, protocol
from shmtensor.manager.connection import Observer
from shmtensor.manager.monitor import leaks, snapshot

PROGRAM = """
import os, sys
import shmtensor as st
import shmtensor.multiprocessing as mp

queue = mp.Queue(name="work")
kept = [st.zeros(1000, shared=True) for _ in range(3)]  # line 7
other = st.zeros(2000, shared=True)  # line 8
queue.put(st.zeros(500, shared=True))  # line 9
print(os.getpid(), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def user(here: World) -> Iterator[client.Manager]:
    made = client.at(here.serve())
    yield made
    made.close()


def test_holds_are_grouped_by_process_and_line(here: World) -> None:
    path = here.directory / "program.py"
    path.write_text(PROGRAM)
    pid = int(line_of(here.popen(str(path), env={"SHMTENSOR_SITES": "1"})))
    document = json.loads(here.command("leaks", "--older", "0", "--json").stdout)
    rows = [
        (row["pid"], row["site"], row["holds"], row["bytes"]) for row in document["groups"] if row["what"] == "block"
    ]
    assert rows == [
        (pid, f"{path}:7", 3, 12_000),
        (pid, f"{path}:8", 1, 8_000),
        (None, f"{path}:9", 1, 2_000),
    ]
    (queue,) = [row for row in document["groups"] if row["what"] == "Queue"]
    assert queue["pid"] == pid and queue["holds"] == 1
    assert not document["unlisted"] and not document["unlisted_segments"] and document["older_seconds"] == 0
    text = here.command("leaks", "--older", "0").stdout
    held, sent = text.split("\n\n")[:2]
    assert held.startswith("held for 0.0 s or longer:") and f"{path}:7" in held and f"pid {pid}" in held
    assert "program.py" in held and "the memory of a Queue" in held
    assert sent.startswith("sent 0.0 s ago or earlier and not received:") and "/work" in sent and f"{path}:9" in sent
    assert "SHMTENSOR_SITES" not in text


def test_what_is_young_is_no_leak(here: World) -> None:
    path = here.directory / "program.py"
    path.write_text(PROGRAM)
    line_of(here.popen(str(path)))
    done = here.command("leaks")
    assert done.returncode == 0
    assert done.stdout == (
        "nothing is held for 1 min 0 s or longer\n\nnothing that was sent 1 min 0 s ago or earlier is still in flight\n"
    )
    assert json.loads(here.command("leaks", "--json").stdout)["groups"] == []


def test_without_sampling_it_says_how_to_sample(here: World, user: client.Manager) -> None:
    kept = user.allocate(64)
    text = here.command("leaks", "--older", "0").stdout
    assert "not sampled" in text and "SHMTENSOR_SITES=100" in text
    del kept


@pytest.fixture
def found(user: client.Manager) -> snapshot.Snapshot:
    """Three blocks of this process, 50, 51 and 52 seconds old, the first of which a pickle holds too."""
    kept = [user.allocate(100) for _ in range(3)]
    user.ticket(kept[0])
    with Observer(user.address) as observer:
        taken = snapshot.take(observer)
        observer.request(protocol.Collect(0.0))  # the ticket, for which the manager would wait
    ages = {block.index: 50.0 + number for number, block in enumerate(kept)}
    return replace(taken, holds=tuple(replace(hold, age_seconds=ages[hold.block]) for hold in taken.holds))


def test_only_what_is_old_enough_counts(found: snapshot.Snapshot) -> None:
    (group,) = leaks.old_holds(found, 51)
    assert (group.pid, group.holds, group.bytes, group.oldest_seconds) == (os.getpid(), 2, 200, 52)
    assert group.what == "block" and not group.in_flight and group.command
    assert leaks.old_holds(found, 53) == []
    held, ticket = leaks.old_holds(found, 50)
    assert held.holds == 3 and ticket.in_flight and ticket.ring is None and ticket.bytes == 100
    assert "a pickle" in leaks.text([ticket], [], found, 50)


def test_lines_are_apart(found: snapshot.Snapshot) -> None:
    sites = ["a.py:1", "a.py:2", "a.py:1", None]
    marked = tuple(replace(hold, site=site) for hold, site in zip(found.holds, sites, strict=True))
    groups = leaks.old_holds(replace(found, holds=marked), 0)
    assert [(group.in_flight, group.holds) for group in groups if group.site == "a.py:1"] in (
        [(False, 2)],
        [(False, 1), (True, 1)],
    )
    assert sum(group.holds for group in groups) == 4


def test_holds_that_are_not_listed_are_said(found: snapshot.Snapshot) -> None:
    assert leaks.unlisted_holds(found, 0) == []
    many = tuple(replace(one, blocks=one.blocks + 7) if one.kind == "client" else one for one in found.holders)
    more = replace(found, holders=many)
    (one,) = leaks.unlisted_holds(more, 50)
    assert (one.pid, one.ring, one.holds) == (os.getpid(), None, 7)
    assert f"pid {os.getpid()} has 7 more holds" in leaks.text([], [one], more, 50)
    assert leaks.unlisted_holds(more, 51) == []  # the youngest that is listed is younger, and so are the others


def test_segments_that_are_not_listed_are_said(found: snapshot.Snapshot) -> None:
    assert "2 segments were locked" in leaks.text([], [], replace(found, unlisted_segments=2), 60)


@pytest.mark.parametrize("wrong", ["-1", "x", "nan"])
def test_wrong_usage(capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["leaks", "--older", wrong])
    assert ended.value.code == 2 and f"{wrong} is not a number of seconds" in capsys.readouterr().err


def test_none_running_is_said_and_fails(here: World) -> None:
    done = here.command("leaks")
    assert done.returncode == 1 and "no manager runs at" in done.stderr
