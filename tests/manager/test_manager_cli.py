"""The command `shmtensor-manager`, as a user types it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from manager_world import BOUND, World, line_of, tell, until
from tiers import first

from shmtensor.manager import cli, client, display, shortage
from shmtensor.manager.monitor import leaks


@pytest.fixture
def user(here: World) -> Iterator[client.Manager]:
    """A manager at the default place with this process as its client."""
    made = client.at(here.serve())
    yield made
    made.close()


@pytest.mark.parametrize("command", ["status", "ls", "gc", "stop"])
def test_none_running_is_said_and_fails(here: World, command: str) -> None:
    done = here.command(command)
    assert done.returncode == 1
    assert "no manager runs at" in done.stderr and str(here.directory) in done.stderr
    assert not done.stdout
    assert not list(here.directory.iterdir())


def test_wrong_usage(here: World) -> None:
    wrong = ([], ["fly"], ["gc", "--in-flight", "-1"], ["gc", "--in-flight", "nan"], ["serve", "--max-clients", "0"])
    for arguments in wrong:
        assert here.command(*arguments).returncode == 2
    for arguments in (["serve", "--max-clients", "x"], ["serve", "--idle-exit", "x"]):
        said = here.command(*arguments).stderr
        assert "x is not a number" in said


def test_serve_says_where_it_listens(here: World) -> None:
    process = here.popen("-m", "shmtensor.manager", "serve")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert str(here.directory / "manager.sock") in line and str(process.pid) in line
    assert here.command("stop").returncode == 0
    assert process.wait(BOUND) == 0


def test_status(here: World, user: client.Manager) -> None:
    figures = json.loads(here.command("status", "--json").stdout)
    assert figures["address"] == os.fsdecode(user.address)
    assert figures["pid"] == here.server.pid
    assert figures["clients"] == 1 and not figures["private"]
    assert {"version", "uptime_seconds", "log", "segments", "live_bytes"} <= set(figures)
    text = here.command("status").stdout
    for word in ("address", "pid", "version", "uptime", "log", "clients", "segments", str(here.server.pid)):
        assert word in text


def test_ls(here: World, user: client.Manager) -> None:
    assert "no segments" in here.command("ls").stdout
    kept = user.allocate(10_000)
    user.ticket(kept)
    user.export(kept)
    document = json.loads(here.command("ls", "--json").stdout)
    (segment,) = document["segments"]
    assert segment["live_blocks"] == 1 and segment["names"] == 1
    assert {row["kind"] for row in segment["holders"]} == {"client", "ticket"}
    (ticket,) = document["in_flight"]
    assert ticket["bytes"] == 10_000 and ticket["age_seconds"] >= 0
    text = here.command("ls").stdout
    for word in ("SEGMENT", "arena", f"pid {os.getpid()}", "in flight", "9.8 KiB", "any receiver"):
        assert word in text, text
    assert here.command("gc", "--in-flight", "0").stdout.startswith("released 1 tickets in flight")
    assert "nothing is in flight" in here.command("ls").stdout
    del kept


def test_command_lines_that_are_no_text(here: World, user: client.Manager) -> None:
    code = "from shmtensor.manager import client\nb = client.default().allocate(64)\nprint(flush=True)\ninput()"
    program = here.script(code, os.fsdecode(b"a\xffb"), "\x1b[31mred")
    assert line_of(program) == ""
    assert shortage.command_line(program.pid).endswith(" a\ufffdb ?[31mred")
    rows = [line for line in here.command("ls").stdout.splitlines() if f"pid {program.pid} " in line]
    assert any("python" in row for row in rows), rows


def test_paths_that_are_no_text(here: World) -> None:
    address = here.directory / os.fsdecode(b"z\xff.sock")
    here.serve(address=address)
    done = here.command("status")
    assert done.returncode == 0 and r"z\udcff.sock" in done.stdout
    assert json.loads(here.command("status", "--json").stdout)["address"] == str(address)


@pytest.mark.parametrize("command", ["status", "ls", "leaks"])
def test_looks_give_a_stopped_manager_up_early(
    here: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    for module in (cli, leaks):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    address = os.fsdecode(here.serve())
    here.server.send_signal(signal.SIGSTOP)
    try:
        begun = time.monotonic()
        assert cli.main([command, "--address", address]) == 1
        assert time.monotonic() - begun < BOUND
    finally:
        here.server.send_signal(signal.SIGCONT)
    assert "within 0.2 s" in capsys.readouterr().err


def test_gc_json(here: World, user: client.Manager) -> None:
    block = user.allocate(64)
    user.export(block)
    del block
    assert json.loads(here.command("gc", "--json").stdout) == {
        "tickets": 0,
        "names": 1,
        "segments": 0,
        "nbytes": 0,
        "busy": 0,
    }


def test_stop(here: World) -> None:
    here.serve()
    done = json.loads(here.command("stop", "--json").stdout)
    assert done["pid"] == here.server.pid and done["stopped"]
    assert here.server.wait(BOUND) == 0


def test_address_variable_and_group_choose_the_manager(here: World) -> None:
    path = here.directory / "own.sock"
    address = os.fsdecode(here.serve(address=path))
    assert json.loads(here.command("status", "--json", "--address", address).stdout)["address"] == address
    env = {"SHMTENSOR_MANAGER": address}
    assert json.loads(here.command("status", "--json", env=env).stdout)["address"] == address
    env = {"SHMTENSOR_GROUP": "own"}
    assert json.loads(here.command("status", "--json", env=env).stdout)["address"] == address
    env = {"SHMTENSOR_GROUP": "other"}
    assert here.command("status", env=env).returncode == 1
    wrong = here.command("status", "--address", str(here.directory / "no.sock"))
    assert wrong.returncode == 1 and "no.sock" in wrong.stderr


STAYS = """
import sys
from shmtensor.manager import client
print(client.default().address.decode(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("command", first(["status", "stop", "ls", "gc", "restart"], 2))
def test_the_only_manager_is_found_whatever_its_address(here: World, command: str) -> None:
    program = here.script(STAYS, env={"SHMTENSOR_GROUP": "tree"})
    address = line_of(program)
    (here.directory / "stale.sock").write_text("")
    done = here.command(command)
    assert done.returncode == 0, done.stderr
    if command == "status":
        assert address in done.stdout and "started on demand" in done.stdout
    tell(program)


def test_one_elsewhere_is_found_where_no_directory_is_chosen(here: World) -> None:
    address = here.serve(address=here.directory / "somewhere")
    del here.env["SHMTENSOR_RUNTIME_DIR"]
    here.env["XDG_RUNTIME_DIR"] = str(here.directory)
    done = here.command("status")
    # Other managers may run on this machine.
    assert os.fsdecode(address) in done.stdout + done.stderr


@pytest.mark.parametrize("command", first(["status", "stop", "ls", "gc", "restart"], 2))
def test_of_several_one_is_to_be_chosen(here: World, command: str) -> None:
    programs = [here.script(STAYS, env={"SHMTENSOR_GROUP": token}) for token in ("one", "two")]
    addresses = [line_of(program) for program in programs]
    done = here.command(command)
    assert done.returncode == 1 and not done.stdout
    assert "2 managers" in done.stderr and "--address" in done.stderr
    for program, address in zip(programs, addresses, strict=True):
        line = next(line for line in done.stderr.splitlines() if address in line)
        assert f"(pid {program.pid})" in line and "python" in line
    assert here.command(command, "--address", addresses[0]).returncode == 0
    assert here.command(command, env={"SHMTENSOR_GROUP": "two"}).returncode == 0


def test_status_all_lists_every_socket_and_the_log_of_each(here: World) -> None:
    assert here.command("status", "--all").returncode == 1
    alone = here.script(STAYS, env={"SHMTENSOR_GROUP": "tree"})
    assert line_of(alone).endswith("tree.sock")
    (Path(here.directory) / "dead.sock").write_text("")
    rows = json.loads(here.command("status", "--all", "--json").stdout)
    assert [Path(row["address"]).name for row in rows] == ["dead.sock", "tree.sock"]
    assert "not a socket" in rows[0]["error"]
    assert rows[1]["private"] and Path(rows[1]["log"]).exists()
    assert "tree.sock" in here.command("status", "--all").stdout
    alone.communicate("end\n", timeout=BOUND)
    until(lambda: not here.managers(), "the manager to leave")
    assert not Path(rows[1]["log"]).exists()


def test_serve_refuses_a_directory_open_to_others(here: World) -> None:
    open_to_all = here.directory / "open"
    open_to_all.mkdir()
    (open_to_all / "letter").write_text("dear")
    open_to_all.chmod(0o755)
    done = here.command("serve", "--address", str(open_to_all / "m.sock"))
    assert done.returncode == 1 and "mode 0755" in done.stderr and f"chmod 700 {open_to_all}" in done.stderr


def test_sizes_and_times_for_people() -> None:
    assert [display.size(value) for value in (0, 1023, 1024, 1536 << 20, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 GiB",
        "5.0 TiB",
    ]
    assert [display.duration(value) for value in (0.04, 59, 185, 7800, 97200)] == [
        "0.0 s",
        "59 s",
        "3 min 5 s",
        "2 h 10 min",
        "1 d 3 h",
    ]


def test_names_of_what_was_freed_are_neither_counted_nor_listed(here: World) -> None:
    here.serve()
    code = (
        "from shmtensor.manager import client; import shmtensor.multiprocessing as mp; q = mp.Queue(name='work')\n"
        "m = client.default(); b = m.allocate(64); m.export(b); m.bind(b'/mine', b); input(); del b\n"
        "print(flush=True); input()"
    )
    user = here.script(code)
    until(lambda: json.loads(here.command("status", "--json").stdout)["names"] == 3, "three names")
    tell(user)
    assert user.stdout is not None and user.stdout.readline() == "\n"
    assert json.loads(here.command("status", "--json").stdout)["names"] == 1
    document = json.loads(here.command("ls", "--json").stdout)
    assert document["names_total"] == len(document["names"]) == 1
    assert sum(row["names"] for row in document["segments"]) == 1
    tell(user)
    assert user.wait(BOUND) == 0
    until(lambda: not json.loads(here.command("ls", "--json").stdout)["segments"], "what it had to be gone")
    assert json.loads(here.command("status", "--json").stdout)["names"] == 0
    assert json.loads(here.command("ls", "--json").stdout)["names"] == []


def test_what_a_listing_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHOW_HOLDERS", "SHOW_NAMES", "SHOW_IN_FLIGHT"):
        monkeypatch.setattr(display, name, 1)
    segment: dict[str, Any] = {
        "ring": None,
        "dedicated": False,
        "payload_bytes": 1 << 20,
        "reserved_bytes": 4096,
        "live_blocks": 3,
    }
    segment |= {"live_bytes": 3000, "names": 2, "owner": 7, "name": "", "busy": False}
    holder: dict[str, Any] = {"ring": None, "kind": "client", "slot": 1, "blocks": 1, "oldest_seconds": 1.0}
    holders = [{**holder, "bytes": nbytes} for nbytes in (100, 300, 200)]
    sent = {"segment": 1, "block": 0, "bytes": 8, "age_seconds": 2.0, "slot": 0}
    found = display.listing(
        {
            "clients": [{"slot": 1, "pid": 1, "state": "client"}],
            "segments": [
                {**segment, "id": 1, "holders": holders},
                {**segment, "id": 2, "holders": None},
                {**segment, "id": 3, "holders": None, "busy": True},
            ],
            "rings": [],
            "names": [{"name": f"n{number}", "segment": 1, "block": number} for number in range(2)],
            "names_total": 5,
            "in_flight": [sent, sent],
            "in_flight_total": 4,
        }
    )
    rows = [line.split() for line in found.splitlines()]
    assert ["1", "arena", "1.0", "MiB", "4.0", "KiB", "3", "2.9", "KiB", "2", "slot", "7", "-"] in rows, "not a client"
    assert ["1", "pid", "1", "1", "300", "B"] in [row[:6] for row in rows]
    assert ["1", "and", "2", "more", "2", "300", "B"] in rows
    assert ["2", "(too", "many", "blocks", "to", "list)"] in rows and ["3", "(locked)"] in rows
    assert "and 4 more" in found.splitlines() and found.endswith("and 3 more") and "4 in flight" in found


@pytest.mark.exhaustive
def test_output_that_cannot_be_written(here: World) -> None:
    """`/dev/full` is a disk without room."""
    here.serve()
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "shmtensor.manager", "status"],
            env=here.env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=BOUND,
        )
    assert done.returncode == 1
    assert done.stderr == "shmtensor-manager: the output cannot be written: No space left on device\n"
