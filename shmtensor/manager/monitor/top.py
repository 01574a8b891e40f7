"""`shmtensor-manager top`: groups, processes, memory, queues, stores, names and locks, kept up to date."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import asdict

from shmtensor._loading import load
from shmtensor.errors import MissingExtra, ShmTensorError
from shmtensor.manager import display
from shmtensor.manager.monitor import tables
from shmtensor.manager.monitor.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmtensor.manager.monitor.snapshot import Snapshot

CLEAR = "\x1b[H\x1b[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    names = ", ".join(table.name for table in tables.TABLES)
    parser.add_argument("--once", action="store_true", help="print the tables once and end")
    parser.add_argument("--plain", action="store_true", help="print the tables at each interval; needs no package")
    parser.add_argument(
        "--interval", type=_seconds, default=2.0, metavar="S", help="seconds between two snapshots (default: 2)"
    )
    parser.add_argument("--table", action="append", metavar="NAME", help=f"only this table, or these ({names})")
    parser.add_argument("--sort", metavar="COLUMN", type=str.lower, help="sort by this column, where a table has it")
    parser.add_argument("--reverse", action="store_true", help="reverse the order of rows")
    parser.add_argument("--filter", default="", metavar="TEXT", help="only rows that contain this text")
    parser.add_argument(
        "--rows", type=_rows, default=20, metavar="N", help="print at most N rows of each table (default 20; 0: all)"
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 0.1 to 86400")
    return value


def _rows(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a number >= 0")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Show the view until the user ends it, or once. Raises ShmTensorError."""
    chosen = tables.choose(options.table)
    tables.check_sort(options.sort, chosen)
    view = tables.View(options.sort, options.reverse, options.filter)
    with Watch(options.address) as watch:
        if options.once:
            snapshots = watch.look()
            if options.json:
                print(json.dumps(document(snapshots), indent=2))
            else:
                print(text(chosen, snapshots, view, options.rows))
        elif options.json:
            _repeat(options.interval, watch, lambda found, _: print(json.dumps(document(found)), flush=True))
        elif options.plain or not sys.stdout.isatty():
            _print_plain(options, chosen, view, watch)
        else:
            try:
                screen = load("manager.monitor.screen")
            except ModuleNotFoundError as error:
                raise MissingExtra(
                    f"the full-screen view needs Textual ({error}): pip install 'shmtensor[top]', or use --plain"
                ) from None
            watch.look()  # none may run
            screen.Top(watch, chosen, view, options.interval).run()
    return 0


def document(snapshots: list[Snapshot]) -> dict[str, object]:
    """Return the JSON document of snapshots taken at one time."""
    return {"groups": [asdict(snapshot) for snapshot in snapshots]}


def text(chosen: list[tables.Table], snapshots: list[Snapshot], view: tables.View, rows: int = 0) -> str:
    """Return the tables as aligned text; at most `rows` rows of each, 0: all. Tables without rows are left out."""
    return "\n".join(_lines(chosen, snapshots, view, rows))


def _lines(chosen: list[tables.Table], snapshots: list[Snapshot], view: tables.View, rows: int) -> Iterator[str]:
    first = True
    for table in chosen:
        cells = tables.cells(table, snapshots, view)
        if not cells:
            continue
        if not first:
            yield ""
        first = False
        shown = cells[:rows] if rows else cells
        right = {at for at, column in enumerate(table.columns) if column.is_number}
        yield from display.table([column.title for column in table.columns], shown, right)
        if len(cells) > len(shown):
            yield f"and {len(cells) - len(shown)} more {table.name}"
    if first:
        yield "nothing to show"


def _print_plain(options: argparse.Namespace, chosen: list[tables.Table], view: tables.View, watch: Watch) -> None:
    """Print the tables at each interval: on a terminal in place of the last ones, elsewhere below them."""
    on_terminal = sys.stdout.isatty()

    def show(snapshots: list[Snapshot], problem: str) -> None:
        head = f"{time.strftime('%H:%M:%S')}  every {options.interval:g} s"
        lines = [head, "", *(problem or text(chosen, snapshots, view, options.rows)).split("\n")]
        if on_terminal:
            room = shutil.get_terminal_size()
            lines = [line[: room.columns] for line in lines[: room.lines - 1]]
        print((CLEAR if on_terminal else "") + "\n".join(lines), end="\n" if on_terminal else "\n\n", flush=True)

    _repeat(options.interval, watch, show)


def _repeat(interval: float, watch: Watch, show: Callable[[list[Snapshot], str], None]) -> None:
    """Take and show snapshots now and after each interval until the user interrupts, or show why there are none.

    Raises ShmTensorError: no manager runs at the start. If the last one ends later, another one may start.
    """
    try:
        snapshots, problem = watch.look(), ""
        while True:
            show(snapshots, problem)
            time.sleep(interval)
            try:
                snapshots, problem = watch.look(), ""
            except ShmTensorError as error:
                snapshots, problem = [], str(error)
    except KeyboardInterrupt:
        pass
