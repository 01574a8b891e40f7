"""The tables of `top`: their columns, and how rows are sorted and filtered."""

from __future__ import annotations

from dataclasses import dataclass

from shmtensor.errors import InvalidArgument
from shmtensor.manager.display import duration
from shmtensor.manager.shortage import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from shmtensor.manager.monitor.snapshot import Hold, Snapshot

    Figure = int | float | str | None


COMMAND_LETTERS = 60
"""Characters of a command line that are shown."""


@dataclass(frozen=True)
class Column:
    """A column: its values, by which rows are sorted, and their text. None is shown as "-" and comes last."""

    title: str
    value: Callable[[Any, Snapshot], Figure]
    text: Callable[[Any], str] | None = None
    """Formats a number; None: values are text, shown unchanged and left-aligned."""

    @property
    def is_number(self) -> bool:
        """Whether it is right-aligned, and sorted in descending order."""
        return self.text is not None

    def show(self, value: Figure) -> str:
        """Return the text of a value."""
        if value is None:
            return "-"
        return self.text(value) if self.text else str(value)


@dataclass(frozen=True)
class Table:
    """A table of one kind of object. `order`: the column by which it is sorted at first."""

    name: str
    things: Callable[[Snapshot], Sequence[Any]]
    columns: tuple[Column, ...]
    order: str


@dataclass(frozen=True)
class View:
    """Which rows of tables are shown, and in what order. `sort` None: each by its own column."""

    sort: str | None = None
    reverse: bool = False
    text: str = ""
    """Only rows that contain this text are shown, ignoring case."""


def threads_text(threads: dict[str, int]) -> str | None:
    """Return the threads of a process by state: "1 R, 4 S"."""
    return ", ".join(f"{count} {state}" for state, count in threads.items()) or None


def shortened(command: str | None) -> str | None:
    """Return a command line that fits into a table, without the folders of the program and of its script."""
    if command is None:
        return None
    program, *rest = command.split(" ")
    if rest and rest[0].startswith("/"):
        rest[0] = rest[0].rpartition("/")[2]
    line = " ".join([program.rpartition("/")[2], *rest])
    return line if len(line) <= COMMAND_LETTERS else line[: COMMAND_LETTERS - 3] + "..."


def cells(table: Table, snapshots: Iterable[Snapshot], view: View) -> list[list[str]]:
    """Return the texts of the rows that `view` shows, sorted."""
    column = next((one for one in table.columns if one.title.lower() == view.sort), None)
    if column is None:
        column = next(one for one in table.columns if one.title.lower() == table.order)
    wanted = view.text.lower()
    rows = []
    for snapshot in snapshots:
        for thing in table.things(snapshot):
            texts = [one.show(one.value(thing, snapshot)) for one in table.columns]
            if any(wanted in text.lower() for text in texts):
                rows.append((column.value(thing, snapshot), texts))
    known: list[tuple[Any, list[str]]] = [row for row in rows if row[0] is not None]
    known.sort(key=lambda row: row[0], reverse=column.is_number != view.reverse)
    return [texts for _, texts in known] + [texts for value, texts in rows if value is None]


def choose(names: Sequence[str] | None) -> list[Table]:
    """Return the tables of these names; None: all. Raises InvalidArgument."""
    known = {table.name: table for table in TABLES}
    for name in names or ():
        if name not in known:
            raise InvalidArgument(f"there is no table {name!r}; choose from {', '.join(known)}")
    return [known[name] for name in names] if names else list(TABLES)


def check_sort(title: str | None, tables: Iterable[Table]) -> None:
    """Raise InvalidArgument if no table has such a column."""
    titles = {column.title.lower(): None for table in tables for column in table.columns}
    if title is not None and title not in titles:
        raise InvalidArgument(f"there is no column {title!r}; choose from {', '.join(titles)}")


def _number(title: str, value: Callable[[Any, Snapshot], Figure]) -> Column:
    return Column(title, value, lambda number: f"{number:,}")


def _id(title: str, value: Callable[[Any, Snapshot], Figure]) -> Column:
    return Column(title, value, str)


def _size(title: str, value: Callable[[Any, Snapshot], Figure]) -> Column:
    return Column(title, value, size)


def _age(title: str, value: Callable[[Any, Snapshot], Figure]) -> Column:
    return Column(title, value, duration)


def _rate(title: str, value: Callable[[Any, Snapshot], Figure]) -> Column:
    return Column(title, value, lambda number: f"{number:,.0f}/s")


def _size_rate(title: str, value: Callable[[Any, Snapshot], Figure]) -> Column:
    return Column(title, value, lambda number: f"{size(number)}/s")


def _quota(snapshot: Snapshot) -> str | None:
    bounds = [(snapshot.stats.max_bytes, "in all"), (snapshot.stats.max_bytes_per_client, "each")]
    return ", ".join(f"{size(nbytes)} {whose}" for nbytes, whose in bounds if nbytes) or None


def _command(snapshot: Snapshot, slot: int | None) -> str | None:
    return next((shortened(one.command) for one in snapshot.processes if one.slot == slot), None)


def _holder(hold: Hold, snapshot: Snapshot) -> str | None:
    """Return the owner of a hold: a process's command, or a ring."""
    if hold.ring is None:
        return "a pickle" if hold.kind == "ticket" else _command(snapshot, hold.slot)
    return ring_text(hold.ring, snapshot)


def ring_text(number: int, snapshot: Snapshot) -> str:
    """Describe a ring: "Queue 8193 frames"."""
    found = next((one for one in snapshot.rings if one.number == number), None)
    name = f" {found.name}" if found and found.name else ""
    return f"{found.kind if found else 'ring'} {number}{name}"


def stores(snapshot: Snapshot) -> set[int | None]:
    """Return the rings that are stores, which keep their objects on purpose."""
    return {ring.number for ring in snapshot.rings if ring.kind == "Store"}


def _in_flight(snapshot: Snapshot) -> int:
    """Count the blocks in pickles and in messages, without the objects of stores."""
    kept = stores(snapshot)
    return sum(one.blocks for one in snapshot.holders if one.kind in ("ticket", "message") and one.ring not in kept)


TABLES = (
    Table(
        "groups",
        lambda snapshot: [snapshot],
        (
            Column("MANAGER", lambda one, _: one.address),
            _id("PID", lambda one, _: one.stats.pid),
            _age("UPTIME", lambda one, _: one.stats.uptime_seconds),
            _number("CLIENTS", lambda one, _: one.stats.clients),
            _number("SEGMENTS", lambda one, _: one.stats.segments),
            _number("RINGS", lambda one, _: one.stats.rings),
            _number("BLOCKS", lambda one, _: one.stats.live_blocks),
            _size("LIVE", lambda one, _: one.stats.live_bytes),
            _size("RESERVED", lambda one, _: one.stats.reserved_bytes),
            Column("QUOTA", lambda one, _: _quota(one)),
            _number("IN FLIGHT", lambda one, _: _in_flight(one)),
            _number("REQUESTS", lambda one, _: one.stats.requests),
        ),
        "manager",
    ),
    Table(
        "processes",
        lambda snapshot: snapshot.processes,
        (
            _id("PID", lambda one, _: one.pid),
            Column("STATE", lambda one, _: one.state),
            Column("THREADS", lambda one, _: threads_text(one.threads)),
            _age("AGE", lambda one, _: one.age_seconds),
            _number("BLOCKS", lambda one, _: one.held_blocks),
            _size("HELD", lambda one, _: one.held_bytes),
            _age("OLDEST", lambda one, _: one.oldest_seconds),
            _size("RESERVED", lambda one, _: one.reserved_bytes),
            _size("PSS", lambda one, _: one.pss_bytes),
            _number("LOCKS", lambda one, _: one.locks),
            Column("COMMAND", lambda one, _: shortened(one.command)),
        ),
        "held",
    ),
    Table(
        "segments",
        lambda snapshot: snapshot.segments,
        (
            _id("SEGMENT", lambda one, _: one.id),
            Column("KIND", lambda one, _: one.kind),
            _id("OWNER", lambda one, _: one.owner_pid),
            _size("SIZE", lambda one, _: one.payload_bytes),
            _size("RESERVED", lambda one, _: one.reserved_bytes),
            _number("BLOCKS", lambda one, _: one.live_blocks),
            _size("LIVE", lambda one, _: one.live_bytes),
            _number("HOLDERS", lambda one, _: one.holders),
            _number("NAMES", lambda one, _: one.names),
            Column("SHM NAME", lambda one, _: one.shm_name),
        ),
        "live",
    ),
    Table(
        "blocks",
        lambda snapshot: snapshot.holds,
        (
            _id("SEGMENT", lambda one, _: one.segment),
            _id("BLOCK", lambda one, _: one.block),
            _size("BYTES", lambda one, _: one.bytes),
            _age("AGE", lambda one, _: one.age_seconds),
            Column("HELD AS", lambda one, _: one.kind),
            _id("PID", lambda one, _: one.pid),
            Column("MADE AT", lambda one, _: one.site),
            Column("HOLDER", _holder),
        ),
        "bytes",
    ),
    Table(
        "rings",
        lambda snapshot: [ring for ring in snapshot.rings if ring.store is None],
        (
            _id("RING", lambda one, _: one.number),
            Column("KIND", lambda one, _: one.kind),
            Column("NAME", lambda one, _: one.name),
            _number("PROCESSES", lambda one, _: one.processes),
            _number("MESSAGES", lambda one, _: one.messages),
            _number("AT MOST", lambda one, _: one.max_messages or None),
            _number("PEAK", lambda one, _: one.peak_messages),
            _size("BYTES", lambda one, _: one.bytes),
            _rate("PUT", lambda one, _: one.rates and one.rates.put_messages),
            _rate("GOT", lambda one, _: one.rates and one.rates.got_messages),
            _size_rate("PUT BYTES", lambda one, _: one.rates and one.rates.put_bytes),
            _size_rate("GOT BYTES", lambda one, _: one.rates and one.rates.got_bytes),
        ),
        "messages",
    ),
    Table(
        "stores",
        lambda snapshot: [ring for ring in snapshot.rings if ring.store is not None],
        (
            _id("RING", lambda one, _: one.number),
            Column("NAME", lambda one, _: one.name),
            _number("PROCESSES", lambda one, _: one.processes),
            _number("OBJECTS", lambda one, _: one.store.objects),
            _size("BYTES", lambda one, _: one.store.bytes),
            _size("LIMIT", lambda one, _: one.store.max_bytes or None),
            _number("SPILLED", lambda one, _: one.store.spilled),
            _size("IN FILES", lambda one, _: one.store.spilled_bytes),
            _number("EVICTED", lambda one, _: one.store.evicted),
            _number("EXPIRED", lambda one, _: one.store.expired),
            _size("TABLE", lambda one, _: one.store.table_bytes),
        ),
        "bytes",
    ),
    Table(
        "names",
        lambda snapshot: snapshot.names,
        (
            Column("NAME", lambda one, _: one.name),
            Column("KIND", lambda one, _: one.kind),
            _id("SEGMENT", lambda one, _: one.segment),
            _id("BLOCK", lambda one, _: one.block),
        ),
        "name",
    ),
    Table(
        "locks",
        lambda snapshot: snapshot.locks,
        (
            Column("LOCK", lambda one, _: one.place),
            _id("PID", lambda one, _: one.pid),
            _number("LOOKS", lambda one, _: one.looks),
            Column("THREADS", lambda one, _: threads_text(one.threads)),
            Column("COMMAND", lambda one, _: shortened(one.command)),
        ),
        "looks",
    ),
)
"""All tables, in the order in which they are shown."""
