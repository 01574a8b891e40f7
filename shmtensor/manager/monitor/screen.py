"""The full-screen view of `shmtensor-manager top`, made with Textual."""

from __future__ import annotations

import time
from dataclasses import replace

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane

from shmtensor.errors import ShmTensorError
from shmtensor.manager.monitor import tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, ClassVar, Literal

    from shmtensor.manager.monitor.snapshot import Snapshot
    from shmtensor.manager.monitor.watch import Watch


class Looked(Message):
    """A snapshot was taken; `problem`: why there is none."""

    def __init__(self, snapshots: list[Snapshot], problem: str = "") -> None:
        super().__init__()
        self.snapshots = snapshots
        self.problem = problem


class Top(App[None]):
    """A tab with a table for each kind of object; takes a snapshot at each interval, in a separate thread."""

    TITLE: str | None = "shmtensor-manager top"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    AUTO_FOCUS: ClassVar[str | None] = "DataTable"
    CSS: ClassVar[str] = (
        "#filter { display: none; } #filter.shown { display: block; } TabbedContent, DataTable { height: 1fr; }"
    )
    BINDINGS = [  # noqa: RUF012  (Textual's own type)
        Binding("s", "sort", "Sort by next column"),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter"),
        Binding("escape", "unfilter", "No filter"),
        Binding("p", "pause", "Pause"),
        Binding("q", "quit", "Quit"),
        *(Binding(str(number), f"open({number})", show=False) for number in range(1, 10)),
    ]

    def __init__(self, watch: Watch, chosen: Sequence[tables.Table], view: tables.View, interval: float) -> None:
        super().__init__()
        self._watch = watch
        self._interval = interval
        self._tables = {table.name: table for table in chosen}
        self._views = {table.name: view for table in chosen}
        self._snapshots: list[Snapshot] = []
        self._problem = ""
        self._paused = self._looking = False

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Static(id="head")
        with TabbedContent(id="tabs"):
            for number, name in enumerate(self._tables, 1):
                with TabPane(f"{number} {name}", id=name):
                    yield DataTable(id=f"table-{name}", cursor_type="row", zebra_stripes=True)
        yield Input(placeholder="only rows that contain ...", id="filter")
        yield Footer()

    def on_ready(self) -> None:
        """Take a snapshot now, and at each interval."""
        self.set_interval(self._interval, self._look)
        self._look()

    def _look(self) -> None:
        if not (self._paused or self._looking):
            self._looking = True
            self.run_worker(self._look_in_thread, thread=True)

    def _look_in_thread(self) -> None:
        try:
            self.post_message(Looked(self._watch.look()))
        except ShmTensorError as problem:  # the last manager has ended; another one may start
            self.post_message(Looked([], str(problem)))

    def on_looked(self, event: Looked) -> None:
        """Show the snapshots."""
        self._looking = False
        if len(self.query(DataTable)) < len(self._tables):
            return  # the screen is being closed
        self._snapshots = event.snapshots
        self._problem = event.problem
        self._fill(self.query_one(TabbedContent).active)
        self._head()

    def on_tabbed_content_tab_activated(self) -> None:
        """Show the last snapshots in the tab that was opened."""
        self._fill(self.query_one(TabbedContent).active)

    def _head(self) -> None:
        at = max((snapshot.taken for snapshot in self._snapshots), default=time.time())
        what = self._problem or ", ".join(snapshot.address for snapshot in self._snapshots)
        how = "paused" if self._paused else f"every {self._interval:g} s"
        head = f"{time.strftime('%H:%M:%S', time.localtime(at))}  {how}  {what}"
        self.query_one("#head", Static).update(Text(head))

    def _fill(self, name: str) -> None:
        """Write the rows of a table again; the cursor and the scroll position stay."""
        table, view = self._tables[name], self._views[name]
        shown: DataTable[Any] = self.query_one(f"#table-{name}", DataTable)
        row, scrolled = shown.cursor_row, shown.scroll_y
        shown.clear(columns=True)
        order = view.sort if any(one.title.lower() == view.sort for one in table.columns) else table.order
        sides: list[Literal["left", "right"]] = ["right" if column.is_number else "left" for column in table.columns]
        for column, side in zip(table.columns, sides, strict=True):
            mark = ("^" if column.is_number == view.reverse else "v") if column.title.lower() == order else " "
            shown.add_column(Text(f"{column.title} {mark}", justify=side), key=column.title)
        for texts in tables.cells(table, self._snapshots, view):
            shown.add_row(*(Text(text, justify=side) for text, side in zip(texts, sides, strict=True)))
        shown.move_cursor(row=row, scroll=False)
        shown.scroll_to(y=scrolled, animate=False)

    def _change(self, **changes: Any) -> None:
        name = self.query_one(TabbedContent).active
        self._views[name] = replace(self._views[name], **changes)
        self._fill(name)

    def action_sort(self) -> None:
        """Sort the visible table by the next column."""
        name = self.query_one(TabbedContent).active
        table, view = self._tables[name], self._views[name]
        titles = [column.title.lower() for column in table.columns]
        now = view.sort if view.sort in titles else table.order
        self._change(sort=titles[(titles.index(now) + 1) % len(titles)])

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the column whose header was clicked; a second click reverses the order."""
        view, title = self._views[self.query_one(TabbedContent).active], str(event.column_key.value).lower()
        self._change(sort=title, reverse=view.sort == title and not view.reverse)

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._change(reverse=not self._views[self.query_one(TabbedContent).active].reverse)

    def action_filter(self) -> None:
        """Ask for the text that rows must contain."""
        entry = self.query_one("#filter", Input)
        entry.add_class("shown")
        entry.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter all tables by what has been typed so far."""
        self._views = {name: replace(view, text=event.value) for name, view in self._views.items()}
        self._fill(self.query_one(TabbedContent).active)

    def on_input_submitted(self) -> None:
        """Go back to the table; the filter stays."""
        self._focus_table()

    def action_unfilter(self) -> None:
        """Show all rows again."""
        entry = self.query_one("#filter", Input)
        entry.value = ""
        entry.remove_class("shown")
        self._focus_table()

    def action_pause(self) -> None:
        """Pause the snapshots, or continue."""
        self._paused = not self._paused
        self._head()
        self._look()

    def action_open(self, number: int) -> None:
        """Open the tab with that number."""
        if number <= len(self._tables):
            self.query_one(TabbedContent).active = list(self._tables)[number - 1]
            self._focus_table()

    def _focus_table(self) -> None:
        self.query_one(f"#table-{self.query_one(TabbedContent).active}", DataTable).focus()
