"""The full-screen view of `shmtensor-manager top`, driven by Textual's pilot."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from manager_world import BOUND, World

from shmtensor.manager import client
from shmtensor.manager.monitor import tables
from shmtensor.manager.monitor.watch import Watch

pytest.importorskip("textual")

from textual.pilot import Pilot
from textual.widgets import DataTable, Footer, Input, Static

from shmtensor.manager.monitor.screen import Top


@pytest.fixture
def user(here: World) -> Iterator[client.Manager]:
    made = client.at(here.serve())
    yield made
    made.close()


def drive(user: client.Manager, steps: Callable[[Top, Pilot[None]], Awaitable[None]], interval: float = 0.1) -> None:
    async def drive_it() -> None:
        with Watch(os.fsdecode(user.address)) as watch:
            app = Top(watch, tables.TABLES, tables.View(), interval)
            async with app.run_test(size=(160, 40)) as pilot:
                await until(pilot, lambda: rows(app, "groups"))
                await steps(app, pilot)

    asyncio.run(drive_it())


async def until(pilot: Pilot[None], condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(BOUND):
        while not condition():
            await pilot.pause(0.01)


def rows(app: Top, name: str) -> list[list[str]]:
    """Of a table, once it is there."""
    return [
        [str(cell) for cell in table.get_row_at(at)]
        for table in app.query(f"#table-{name}").results(DataTable)
        for at in range(table.row_count)
    ]


def heads(app: Top, name: str) -> list[str]:
    return [str(column.label) for column in app.query_one(f"#table-{name}", DataTable).ordered_columns]


def text_of(app: Top, what: str) -> str:
    return str(app.query_one(what, Static).render())


def test_every_table_has_a_tab_and_is_kept_up_to_date(user: client.Manager) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("2")
        assert rows(app, "processes")[0][0] == str(os.getpid())
        await pilot.press("3")
        assert not rows(app, "segments")
        kept = user.allocate(10_000)
        await until(pilot, lambda: rows(app, "segments"))
        assert rows(app, "segments")[0][1] == "arena"
        assert "every 0.1 s" in text_of(app, "#head") and os.fsdecode(user.address) in text_of(app, "#head")
        del kept

    drive(user, steps)


def test_keys_sort_and_reverse_the_table_in_sight(user: client.Manager) -> None:
    kept = [user.allocate(64) for _ in range(3)]
    for name, block in zip((b"/pear", b"/Apple", b"/fig"), kept, strict=True):
        user.bind(name, block)

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("7")
        assert [row[0] for row in rows(app, "names")] == ["/Apple", "/fig", "/pear"]
        assert heads(app, "names")[0] == "NAME ^"
        await pilot.press("r")
        assert [row[0] for row in rows(app, "names")] == ["/pear", "/fig", "/Apple"]
        assert heads(app, "names")[0] == "NAME v"
        await pilot.press("r", "s", "s", "s")
        blocks = [int(row[3]) for row in rows(app, "names")]
        assert blocks == sorted(blocks, reverse=True)
        assert heads(app, "names")[3] == "BLOCK v" and heads(app, "names")[0] == "NAME  "
        await pilot.press("s")
        assert heads(app, "names")[0] == "NAME ^"

    drive(user, steps)


def test_a_filter_is_typed_and_taken_back(user: client.Manager) -> None:
    kept = [user.allocate(64) for _ in range(2)]
    for name, block in zip((b"/pear", b"/fig"), kept, strict=True):
        user.bind(name, block)

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("7", "slash", "p", "e", "a")
        assert [row[0] for row in rows(app, "names")] == ["/pear"]
        await pilot.press("enter", "s")
        assert [row[0] for row in rows(app, "names")] == ["/pear"]  # the key sorted, and was not typed
        assert app.query_one("#filter", Input).value == "pea"
        await pilot.press("escape")
        assert len(rows(app, "names")) == 2
        assert not app.query_one("#filter").has_class("shown")

    drive(user, steps)


@pytest.mark.exhaustive
def test_a_pause_stops_looking(user: client.Manager) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("3", "p")
        await until(pilot, lambda: "paused" in text_of(app, "#head"))
        await until(pilot, lambda: not app._looking)
        kept = user.allocate(64)
        before = app._snapshots
        for _ in range(5):
            await pilot.pause(0.1)
        assert app._snapshots is before and not rows(app, "segments")
        await pilot.press("p")
        await until(pilot, lambda: rows(app, "segments"))
        del kept

    drive(user, steps)


def test_the_footer_shows_the_keys(user: client.Manager) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        shown = {binding.binding.description for binding in app.screen.active_bindings.values() if binding.binding.show}
        assert {"Filter", "Pause", "Quit", "Reverse"} <= shown
        assert app.query_one(Footer).is_mounted
        await pilot.press("q")

    drive(user, steps)


def test_text_is_shown_as_it_is(user: client.Manager) -> None:
    """Textual would read what is in brackets as colours."""
    path = Watch(os.fsdecode(user.address))
    with path as watch:
        (found,) = watch.look()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        from dataclasses import replace

        await pilot.press("2", "p")
        await until(pilot, lambda: not app._looking)
        process = replace(found.processes[0], command="python [red]a.py[/red] [/nothing]")
        app._snapshots = [replace(found, processes=(process,))]
        app._fill("processes")
        assert rows(app, "processes")[0][-1] == "python [red]a.py[/red] [/nothing]"
        await pilot.pause()

    drive(user, steps)


def test_it_goes_on_when_the_manager_ends(here: World, user: client.Manager) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        user.close()  # else the manager goes on
        assert here.command("stop").returncode == 0
        await until(pilot, lambda: "no manager runs" in text_of(app, "#head"))
        assert not rows(app, "groups")
        here.serve()
        await until(pilot, lambda: rows(app, "groups"))

    drive(user, steps)
