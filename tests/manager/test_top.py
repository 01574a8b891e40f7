"""`shmtensor-manager top`: the plain forms and their tables."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress

import pytest
from manager_world import BOUND, World, line_of
from tiers import first

from shmtensor.errors import InvalidArgument
from shmtensor.manager import cli, client
from shmtensor.manager.connection import Observer
from shmtensor.manager.monitor import snapshot, tables, top
from shmtensor.manager.monitor.tables import View, cells, choose


@pytest.fixture
def user(here: World) -> Iterator[client.Manager]:
    made = client.at(here.serve())
    yield made
    made.close()


def tables_of(text: str) -> list[list[str]]:
    """Lines of each table."""
    return [part.split("\n") for part in text.rstrip("\n").split("\n\n")]


def test_once_shows_each_table_that_has_rows(here: World, user: client.Manager) -> None:
    kept = [user.allocate(10_000) for _ in range(2)]
    ring = user.create_ring()
    user.bind(b"/work", ring)
    done = here.command("top", "--once")
    assert done.returncode == 0, done.stderr
    groups, processes, segments, blocks, rings, names = tables_of(done.stdout)
    assert groups[0].split()[:4] == ["MANAGER", "PID", "UPTIME", "CLIENTS"]
    assert os.fsdecode(user.address) in groups[1] and str(here.server.pid) in groups[1]
    assert processes[0].split()[0] == "PID" and processes[1].split()[0] == str(os.getpid())
    assert len(segments) == 3 and any("arena" in line and "19.5 KiB" in line for line in segments)
    assert sum("client" in line and str(os.getpid()) in line for line in blocks) == 3
    assert rings[0].split()[0] == "RING" and "/work" in rings[1]
    assert names[1].split()[0] == "/work"
    del kept, ring


STORE = """
import shmtensor as st
store = st.Store("features", max_bytes="1M", create=True)
for number in range(3):
    store.put(str(number), st.ones(100_000))
held = store.get("2")
print(flush=True)
input()
"""


def in_flight(here: World) -> str:
    """What the table of groups says, in two spaces or more from its neighbours."""
    header, row = tables_of(here.command("top", "--once", "--table", "groups").stdout)[0]
    end = header.index("IN FLIGHT") + len("IN FLIGHT")
    return row[:end].split()[-1]


def test_messages_and_pickles_are_in_flight(here: World, user: client.Manager) -> None:
    kept = user.allocate(100)
    user.ticket(kept)
    user.bind(b"/kept", kept)
    program = here.script(
        "import shmtensor as st, shmtensor.multiprocessing as mp\n"
        "queue = mp.Queue()\nqueue.put(st.zeros(10))\nqueue.put(st.zeros(10))\nprint(flush=True)\ninput()"
    )
    assert line_of(program) == ""
    assert in_flight(here) == "3"
    assert "released 1 tickets" in here.command("gc", "--in-flight", "0").stdout
    assert in_flight(here) == "2"


def test_stores_and_who_holds_what_is_in_them(here: World, user: client.Manager) -> None:
    program = here.script(STORE, env={"SHMTENSOR_SITES": "1"})
    assert line_of(program) == ""
    done = here.command("top", "--once", "--table", "stores", "--table", "blocks", "--table", "rings")
    assert done.returncode == 0, done.stderr
    stores, blocks = tables_of(done.stdout)  # a store is not a queue
    (store,) = stores[1:]
    columns = dict(zip(stores[0].split(), store.replace(" KiB", "KiB").replace(" MiB", "MiB").split(), strict=False))
    assert (columns["NAME"], columns["OBJECTS"], columns["LIMIT"]) == ("/features", "2", "1.0MiB")
    assert columns["BYTES"].startswith("78") and " 1 " in store  # evicted
    held = [line for line in blocks if "390.6 KiB" in line]
    assert len(held) == 3 and all("<string>:5" in line for line in held)
    assert sum("/features" in line for line in held) == 2
    assert sum(str(program.pid) in line for line in held) == 1
    (group,) = json.loads(here.command("top", "--once", "--json").stdout)["groups"]
    assert {row["kind"] for row in group["holders"]} == {"client", "message", "name"}
    assert in_flight(here) == "0", "a store keeps what it has"


def test_json_is_one_document_with_all(here: World, user: client.Manager) -> None:
    kept = user.allocate(10_000)
    (group,) = json.loads(here.command("top", "--once", "--json").stdout)["groups"]
    assert group["stats"]["pid"] == here.server.pid
    assert group["processes"][0]["pid"] == os.getpid() and group["processes"][0]["held_bytes"] == 10_000
    assert {"segments", "rings", "names", "locks", "holders", "holds", "taken"} <= group.keys()
    del kept


@pytest.mark.exhaustive
def test_json_goes_on_line_by_line(here: World, user: client.Manager) -> None:
    process = here.popen("-m", "shmtensor.manager", "top", "--json", "--interval", "0.1")
    assert process.stdout is not None
    documents = [json.loads(process.stdout.readline()) for _ in range(3)]
    taken = [document["groups"][0]["taken"] for document in documents]
    assert taken == sorted(set(taken))
    process.send_signal(signal.SIGINT)
    assert process.wait(BOUND) == 0


def test_plain_goes_on_until_it_is_interrupted(here: World, user: client.Manager) -> None:
    process = here.popen("-m", "shmtensor.manager", "top", "--interval", "0.1", "--table", "groups")
    assert process.stdout is not None and process.stderr is not None
    heads = 0
    while heads < 3:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        assert "\x1b" not in line  # it is no terminal
        heads += line.startswith("MANAGER")
    process.send_signal(signal.SIGINT)
    assert process.wait(BOUND) == 0
    assert not process.stderr.read()


def test_it_goes_on_with_the_next_manager(here: World, user: client.Manager) -> None:
    kept = user.allocate(64)
    process = here.popen("-m", "shmtensor.manager", "top", "--json", "--interval", "0.1")
    assert process.stdout is not None
    pids = {json.loads(process.stdout.readline())["groups"][0]["stats"]["pid"]}
    assert here.command("stop").returncode == 0
    while len(pids) < 2:
        groups = json.loads(process.stdout.readline())["groups"]
        pids |= {group["stats"]["pid"] for group in groups}
    process.send_signal(signal.SIGINT)
    assert process.wait(BOUND) == 0
    del kept


@pytest.mark.exhaustive
def test_a_pipe_that_is_closed_ends_it(here: World, user: client.Manager) -> None:
    process = here.popen("-m", "shmtensor.manager", "top", "--json", "--interval", "0.1")
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(BOUND) == 1


@pytest.mark.exhaustive
def test_all_managers_are_shown(here: World) -> None:
    code = "from shmtensor.manager import client\nclient.default()\nprint(flush=True)\ninput()"
    for token in ("one", "two"):
        program = here.script(code, env={"SHMTENSOR_GROUP": token})
        assert program.stdout is not None and program.stdout.readline() == "\n"
    done = here.command("top", "--once", "--table", "groups")
    assert "one.sock" in done.stdout and "two.sock" in done.stdout
    done = here.command("top", "--once", "--table", "groups", env={"SHMTENSOR_GROUP": "two"})
    assert "one.sock" not in done.stdout and "two.sock" in done.stdout


@pytest.mark.parametrize("option", first(["--plain", "--once", "--json"]))
def test_none_running_is_said_and_fails(here: World, option: str) -> None:
    done = here.command("top", option)
    assert done.returncode == 1 and "no manager runs at" in done.stderr and not done.stdout


@pytest.mark.parametrize(
    ("option", "value"), [("--interval", "0"), ("--interval", "x"), ("--rows", "-1"), ("--rows", "x")]
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], option: str, value: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["top", option, value])
    assert ended.value.code == 2 and f"{value} is not a number" in capsys.readouterr().err


def test_unknown_tables_and_columns_are_named(here: World, user: client.Manager) -> None:
    done = here.command("top", "--once", "--table", "chairs")
    assert done.returncode == 1 and "'chairs'" in done.stderr and "processes" in done.stderr
    done = here.command("top", "--once", "--sort", "colour")
    assert done.returncode == 1 and "'colour'" in done.stderr and "held" in done.stderr


@pytest.fixture
def found(user: client.Manager) -> snapshot.Snapshot:
    """Three names, of blocks in one segment."""
    blocks = [user.allocate(64) for _ in range(3)]
    for name, block in zip((b"/pear", b"/Apple", b"/fig"), blocks, strict=True):
        user.bind(name, block)
    with Observer(user.address) as observer:
        return snapshot.take(observer)


def column(rows: list[list[str]], at: int) -> list[str]:
    return [row[at] for row in rows]


def test_text_is_sorted_upward_and_numbers_downward(found: snapshot.Snapshot) -> None:
    (names,) = choose(["names"])
    assert column(cells(names, [found], View()), 0) == ["/Apple", "/fig", "/pear"]
    assert column(cells(names, [found], View(reverse=True)), 0) == ["/pear", "/fig", "/Apple"]
    blocks = sorted(name.block for name in found.names)
    assert column(cells(names, [found], View("block", reverse=True)), 3) == [str(block) for block in blocks]
    assert column(cells(names, [found], View("block")), 3) == [str(block) for block in reversed(blocks)]
    assert cells(names, [found], View("pss")) == cells(names, [found], View())  # a column of another table


def test_rows_are_filtered_by_any_text_in_them(found: snapshot.Snapshot) -> None:
    (names,) = choose(["names"])
    assert column(cells(names, [found], View(text="APP")), 0) == ["/Apple"]
    assert cells(names, [found], View(text="nothing like it")) == []


def test_what_is_not_known_comes_last(found: snapshot.Snapshot) -> None:
    from dataclasses import replace

    (process,) = found.processes
    known = replace(process, slot=9, pss_bytes=5)
    unknown = replace(process, slot=10, pss_bytes=None, pid=1)
    other = replace(found, processes=(unknown, known))
    (processes,) = choose(["processes"])
    for reverse in (False, True):
        rows = cells(processes, [other], View("pss", reverse))
        assert column(rows, 8) == ["5 B", "-"]


def test_commands_are_shortened() -> None:
    assert tables.shortened(None) is None and tables.shortened("python a/b.py") == "python a/b.py"
    assert tables.shortened("/usr/bin/python a/b.py") == "python a/b.py"
    assert tables.shortened("/usr/bin/python /home/a/b.py /c") == "python b.py /c"
    long = tables.shortened("x" * 100)
    assert long is not None and len(long) == tables.COMMAND_LETTERS and long.endswith("...")


def test_unknown_names_raise() -> None:
    with pytest.raises(InvalidArgument, match="names, locks"):
        choose(["chairs"])


def test_rows_are_bounded(here: World, user: client.Manager) -> None:
    kept = [user.allocate(64) for _ in range(5)]
    for number, block in enumerate(kept):
        user.bind(f"/name{number}".encode(), block)
    lines = here.command("top", "--once", "--table", "names", "--rows", "2").stdout.split("\n")
    assert len(lines) == 5 and lines[3] == "and 3 more names"
    assert len(here.command("top", "--once", "--table", "names", "--rows", "0").stdout.split("\n")) == 7
    del kept


def test_a_command_line_cannot_write_to_the_terminal(here: World) -> None:
    here.serve()
    code = "from shmtensor.manager import client\nm = client.default()\nprint(flush=True)\ninput()"
    program = here.script(code, "\x1b[31mred\nline")
    assert program.stdout is not None and program.stdout.readline() == "\n"
    (group,) = json.loads(here.command("top", "--once", "--json").stdout)["groups"]
    (process,) = group["processes"]
    assert process["command"].endswith("?[31mred line")


def on_terminal(here: World, code: str, *arguments: str, columns: int = 60) -> tuple[subprocess.Popen[bytes], int]:
    """Run a program whose output is a terminal of 10 lines; returns it and the terminal's other end."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 10, columns, 0, 0))
    env = {key: value for key, value in here.env.items() if key not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=env, stdin=its, stdout=its, stderr=subprocess.PIPE
    )
    os.close(its)
    return process, ours


RUN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from shmtensor.manager.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_plain_on_a_terminal_fits_it_and_is_written_over(here: World, user: client.Manager) -> None:
    kept = [user.allocate(64) for _ in range(20)]
    for number, block in enumerate(kept):
        user.bind(f"/{number}-a-name-that-is-longer-than-others".encode(), block)
    process, terminal = on_terminal(here, RUN, "top", "--plain", "--interval", "0.1", "--rows", "0")
    shown = b""
    while shown.count(b"\x1b[2J") < 3:
        shown += os.read(terminal, 65536)
    process.send_signal(signal.SIGINT)
    with suppress(OSError):  # what it still writes, until it has closed the terminal
        while os.read(terminal, 65536):
            pass
    os.close(terminal)
    _, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    _, screen, *_ = shown.decode().split(top.CLEAR)
    lines = screen.split("\r\n")
    assert len(lines) <= 10 and max(map(len, lines)) <= 60 and "every 0.1 s" in lines[0]
    del kept


def test_without_textual_it_says_what_to_install(here: World, user: client.Manager) -> None:
    process, terminal = on_terminal(here, "import sys; sys.modules['textual'] = None" + RUN, "top")
    _, errors = process.communicate(timeout=BOUND)
    os.close(terminal)
    assert process.returncode == 1
    assert b"pip install 'shmtensor[top]'" in errors and b"--plain" in errors
