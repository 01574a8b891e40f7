"""Model (f): a broadcast: a ring whose messages every reader sees. Mirrors native/ipc/broadcast.cpp.

The model `ring` proves a transfer, so a put is one step here. Taking a message out has its undo record as there. Adding
a hold under a segment's lock, and releasing one, are one step each.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from explore import Model, State, Step, put

RING, FREE = "ring", "free"  # owners of a message's hold besides processes; FREE stands for a word of 0
NAMES = ("putter", "reader", "other reader", "manager")
PUTTER, MANAGER = 0, 3
READERS = (1, 2)


class Row(NamedTuple):
    """A row of the readers' table: its owner, and the message that it reads next."""

    owner: Any  # (slot, its generation, serial); None: nobody's
    cursor: int


NOBODYS = Row(None, 0)


class Reader(NamedTuple):
    """A reader's own record of its row. `closed`: it has left, and may leave once more (a finalizer)."""

    row: int
    owner: Any
    closed: bool


class Situation(NamedTuple):
    kills: int
    alive: Any
    slot: Any  # (state, generation) of the slots of putter and readers
    pc: Any
    lock: Any  # get_lock
    undo: Any  # (by whom, message)
    rows: Any
    reader: Any  # per process: what it reads by
    former: Any  # per process: what it read by, and left, before
    joins: int
    head: int
    tail: int
    word: Any  # of each message: who has the hold that came with it
    extra: Any  # (message, process): holds that readers added
    got: Any  # ghost: per process, the messages it relies on
    next: Any  # ghost: per reader, the message it must be given next


class Broadcast(Model):
    """A process that puts and drops, two readers that join, read and leave, the manager; a new reader may get a slot.

    Checked: no process relies on a message's block without a hold; each reader gets every message from where it joined,
    except those that were dropped before it read them; no row names a message that is gone; the dead block no process.
    """

    safeguards = (
        "look",
        "cursors-first",
        "own-hold",
        "read-lock",
        "lives",
        "generation",
        "undo",
        "undo-first",
    )
    messages = 2
    joins = 2  # in all
    closes_twice = False  # whether a process may leave once more by a reader that it closed before

    def start(self) -> State:
        return Situation(
            kills=0,
            alive=(True,) * 4,
            slot=(("CLIENT", 0),) * 3,
            pc=(None,) * 4,
            lock=None,
            undo=None,
            rows=(NOBODYS, NOBODYS),
            reader=(None,) * 3,
            former=(None,) * 3,
            joins=0,
            head=0,
            tail=0,
            word=(FREE,) * self.messages,
            extra=(),
            got=((),) * 3,
            next=(0,) * 3,
        )

    def steps(self, s: State) -> Iterator[Step]:
        for i, pc in enumerate(s.pc):
            if not s.alive[i]:
                if i == MANAGER:
                    yield "a new manager starts", s._replace(alive=put(s.alive, i, True))
                elif i == 1 and s.slot[i] == ("FREE", 0):
                    n = s._replace(alive=put(s.alive, i, True), slot=put(s.slot, i, ("CLIENT", 1)))
                    yield "a new process takes the reader's slot", n
                continue
            if s.kills < self.kills:
                n = s._replace(kills=s.kills + 1, alive=put(s.alive, i, False), pc=put(s.pc, i, None))
                if i != MANAGER:
                    n = n._replace(got=put(s.got, i, ()), reader=put(s.reader, i, None), former=put(s.former, i, None))
                    n = n._replace(next=put(s.next, i, 0))
                yield f"KILL {NAMES[i]}" + (f" before {pc[0]}" if pc else ""), n
            begin = self.manage(s) if i == MANAGER else self.idle(s, i)
            for what, n in getattr(self, pc[0])(s, i, *pc[1:]) if pc else begin:
                yield f"{NAMES[i]} {what}", n

    def go(self, s: State, i: int, *pc: Any, **stores: Any) -> State:
        return s._replace(pc=put(s.pc, i, pc or None), **stores)

    def take(self, s: State, i: int, why: str, *then: Any) -> Iterator[Step]:
        if s.lock is None or not s.alive[s.lock]:
            yield f"locks to {why}", self.go(s, i, "take_back", then, lock=i)

    def unlock(self, s: State, i: int) -> Iterator[Step]:
        yield "unlocks", self.go(s, i, lock=None)

    def take_back(self, s: State, i: int, then: tuple[Any, ...]) -> Iterator[Step]:
        """Undo the transfer of a dead holder of the lock, as in `ring`."""
        if s.undo and self.keeps("undo"):
            by, m = s.undo
            if m >= s.head and s.word[m] != RING:
                if s.word[m] != by:
                    yield "undoes a hold that is gone", self.go(s, i, "resurrected")
                yield f"undoes word[{m}]", s._replace(word=put(s.word, m, RING))
            else:
                yield "clears the undo record", s._replace(undo=None)
        else:
            yield from getattr(self, then[0])(s, i, *then[1:])

    def resurrected(self, s: State, i: int) -> Iterator[Step]:
        return iter(())

    # -- what processes do -----------------------------------------------------------------------------------------

    def idle(self, s: State, i: int) -> Iterator[Step]:
        if i == PUTTER:
            if s.tail < self.messages:
                yield f"puts message {s.tail}", s._replace(word=put(s.word, s.tail, RING), tail=s.tail + 1)
            if s.head < s.tail:
                for which in ("oldest", "passed"):
                    yield from self.take(s, i, f"drop ({which})", "drop", which)
        else:
            reader = s.reader[i]
            if (reader is None or reader.closed) and s.joins < self.joins:
                yield from self.take(s, i, "join", "join")
            if reader and (self.closes_twice or not reader.closed) and s.rows[reader.row].cursor < s.tail:
                if self.keeps("read-lock"):
                    yield from self.take(s, i, "read", "read")
                else:
                    yield from self.read(s, i)
            for which, old in (("reader", reader), ("former", s.former[i])):
                if old and (which == "former" or not old.closed):
                    yield from self.leave(s, i, which, old)
        for m in s.got[i]:
            word = put(s.word, m, FREE) if s.word[m] == i else s.word
            extra = tuple(x for x in s.extra if x != (m, i))
            got = put(s.got, i, tuple(x for x in s.got[i] if x != m))
            yield f"releases message {m}", s._replace(word=word, extra=extra, got=got)

    def is_same(self, one: Any, other: Any) -> bool:
        return bool(one == other if self.keeps("serial") else one and other and one[:2] == other[:2])

    def leave(self, s: State, i: int, which: str, reader: Reader) -> Iterator[Step]:
        """Without the lock: a compare-and-swap of the row's owner. A second time, it has no effect."""
        rows = s.rows
        if self.is_same(rows[reader.row].owner, reader.owner) or not self.keeps("leave-compare"):
            rows = put(rows, reader.row, NOBODYS)
        if which == "former":
            yield "leaves once more by its former reader", s._replace(rows=rows, former=put(s.former, i, None))
        else:
            n = s._replace(rows=rows, reader=put(s.reader, i, reader._replace(closed=True)))
            yield "leaves", n._replace(next=put(s.next, i, 0))

    def lives(self, s: State, owner: Any) -> bool:
        """Whether a row's owner counts, by the word of its slot."""
        slot, generation, _ = owner
        state, now = s.slot[slot]
        fresh = now == generation or not self.keeps("generation")
        return not self.keeps("lives") or (state == "CLIENT" and fresh)

    def join(self, s: State, i: int) -> Iterator[Step]:
        for r, row in enumerate(s.rows):
            if row.owner is None or not self.lives(s, row.owner):
                for where, at in {"oldest": s.head, "newest": s.tail}.items():
                    n = s._replace(rows=put(s.rows, r, Row(None, at)), joins=s.joins + 1)
                    yield f"clears row {r} and stores its cursor ({where})", self.go(n, i, "joined", r, at)
                return
        yield "finds no row and unlocks", self.go(s, i, lock=None)

    def joined(self, s: State, i: int, r: int, at: int) -> Iterator[Step]:
        before = s.reader[i]
        owner = (i, s.slot[i][1], before.owner[2] + 1 if before else 0)
        former = before if before and self.closes_twice else s.former[i]
        n = s._replace(
            rows=put(s.rows, r, s.rows[r]._replace(owner=owner)),
            reader=put(s.reader, i, Reader(r, owner, closed=False)),
            former=put(s.former, i, former),
            next=put(s.next, i, at),
        )
        yield f"stores its name in row {r}", self.go(n, i, "unlock")

    def lacking(self, s: State, but: int | None) -> list[int]:
        """The rows of readers that have not read the message at the head."""
        rows = enumerate(s.rows)
        return [r for r, row in rows if r != but and row.owner and self.lives(s, row.owner) and row.cursor == s.head]

    def clear_row(self, s: State, i: int) -> Iterator[Step]:
        for r, row in enumerate(s.rows):
            if row.owner and not self.lives(s, row.owner):
                yield f"clears row {r} of the dead", s._replace(rows=put(s.rows, r, NOBODYS))

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, s: State, i: int) -> Iterator[Step]:
        reader = s.reader[i]
        m = s.rows[reader.row].cursor
        stop = ("unlock",) if self.keeps("read-lock") else ()
        if (s.rows[reader.row].owner != reader.owner and self.keeps("row-check")) or m >= s.tail:
            yield "finds nothing to read", self.go(s, i, *stop)
            return
        last = m == s.head and self.keeps("read-lock") and not (self.lacking(s, reader.row) and self.keeps("look"))
        if last:
            yield from self.clear_row(s, i)
            n = self.cursor_to(s, i, m + 1)
            yield f"stores its cursor: it is the last to read message {m}", self.go(n, i, "note", m)
        else:
            yield f"finds message {m}", self.go(s, i, "add_hold", m)

    def cursor_to(self, s: State, i: int, at: int) -> State:
        r = s.reader[i].row
        mine = s.rows[r].owner == s.reader[i].owner
        return s._replace(
            rows=put(s.rows, r, s.rows[r]._replace(cursor=at)), next=put(s.next, i, at) if mine else s.next
        )

    def add_hold(self, s: State, i: int, m: int) -> Iterator[Step]:
        if not self.keeps("own-hold"):
            yield from self.move_on(s, i, m)
        elif s.word[m] == FREE and not any(x == m for x, _ in s.extra):
            yield "finds the block of a message gone", self.go(s, i, "damaged")
        else:
            yield (
                f"adds a hold of message {m}",
                self.go(s, i, "move_on", m, extra=tuple(sorted({*s.extra, (m, i)}))),
            )

    def damaged(self, s: State, i: int) -> Iterator[Step]:
        return iter(())

    def move_on(self, s: State, i: int, m: int) -> Iterator[Step]:
        n = self.cursor_to(s, i, m + 1)
        n = n._replace(got=put(s.got, i, tuple(sorted((*s.got[i], m)))))
        yield f"stores its cursor past message {m}", self.go(n, i, *(("unlock",) if self.keeps("read-lock") else ()))

    # -- a message is taken out ------------------------------------------------------------------------------------

    def drop(self, s: State, i: int, which: str) -> Iterator[Step]:
        lacking = self.lacking(s, None) if s.head < s.tail else []
        if s.head == s.tail or (lacking and which == "passed"):
            yield "may not drop", self.go(s, i, "unlock")
            return
        yield from self.clear_row(s, i)
        if lacking and self.keeps("cursors-first"):
            yield from self.skip(s, lacking[0], s.head)
        else:
            yield from self.note(s, i, s.head)

    def skip(self, s: State, r: int, m: int) -> Iterator[Step]:
        owner = s.rows[r].owner
        mine = s.reader[owner[0]] and s.reader[owner[0]].owner == owner
        n = s._replace(rows=put(s.rows, r, s.rows[r]._replace(cursor=m + 1)))
        yield (
            f"moves the cursor of row {r} past message {m}",
            n._replace(next=put(s.next, owner[0], m + 1) if mine else s.next),
        )

    def note(self, s: State, i: int, m: int) -> Iterator[Step]:
        yield "writes the undo record", self.go(s, i, "own", m, undo=(i, m))

    def own(self, s: State, i: int, m: int) -> Iterator[Step]:
        yield f"stores word[{m}]={NAMES[i]}", self.go(s, i, "commit", m, word=put(s.word, m, i))

    def commit(self, s: State, i: int, m: int) -> Iterator[Step]:
        n = s._replace(head=m + 1, got=put(s.got, i, tuple(sorted((*s.got[i], m)))))
        late = i == PUTTER and not self.keeps("cursors-first")
        yield f"stores head={m + 1}", self.go(n, i, *(("late", m) if late else ("clear",)))

    def late(self, s: State, i: int, m: int) -> Iterator[Step]:
        behind = [r for r, row in enumerate(s.rows) if row.owner and row.cursor == m]
        if behind:
            yield from self.skip(s, behind[0], m)
        else:
            yield from self.clear(s, i)

    def clear(self, s: State, i: int) -> Iterator[Step]:
        yield "clears the undo record", self.go(s, i, "unlock", undo=None)

    # -- the manager -----------------------------------------------------------------------------------------------

    def manage(self, s: State) -> Iterator[Step]:
        for d in range(3):
            state, generation = s.slot[d]
            if s.alive[d] or state == "FREE":
                continue
            if state == "CLIENT":
                yield f"marks the {NAMES[d]} dead", s._replace(slot=put(s.slot, d, ("DEAD", generation)))
            elif s.undo and s.undo[0] == d and self.keeps("undo") and self.keeps("undo-first"):
                yield from self.take(s, MANAGER, f"undo what the {NAMES[d]} left", "unlock")
            elif d in s.word:
                m = s.word.index(d)
                yield f"releases message {m} of the dead {NAMES[d]}", s._replace(word=put(s.word, m, FREE))
            elif any(x == d for _, x in s.extra):
                left = tuple(x for x in s.extra if x[1] != d)
                yield f"releases what the dead {NAMES[d]} added", s._replace(extra=left)
            else:
                yield f"frees the slot of the {NAMES[d]}", s._replace(slot=put(s.slot, d, ("FREE", generation)))

    # -- what must hold --------------------------------------------------------------------------------------------

    def broken(self, s: State) -> str | None:
        for i in range(3):
            for m in s.got[i]:
                if s.word[m] != i and (m, i) not in s.extra:
                    return f"use after free: {NAMES[i]} relies on message {m} and has no hold of it"
            if s.pc[i] and s.pc[i][0] in ("damaged", "resurrected"):
                return f"{NAMES[i]} finds a hold gone that must be there"
        if any(s.word[m] == FREE for m in range(s.head, s.tail)):
            return "use after free: the block of a message inside is free"
        locked = s.lock is not None and s.alive[s.lock]
        for i in READERS:
            reader = s.reader[i]
            if not reader or reader.closed:
                continue
            row = s.rows[reader.row]
            if row.owner != reader.owner:
                return f"{NAMES[i]} has lost its row"
            if row.cursor != s.next[i]:
                return f"{NAMES[i]} missed a message that was not dropped"
            if row.cursor < s.head and not locked:
                return f"the cursor of {NAMES[i]} names a message that is gone"
        for row in s.rows:
            if row.owner and s.slot[row.owner[0]] == ("FREE", row.owner[1]) and self.lives(s, row.owner):
                return "the row of a dead reader counts for ever"
            if row.owner and s.slot[row.owner[0]][1] != row.owner[1] and self.lives(s, row.owner):
                return "the row of a dead reader counts for the next process in its slot"
        quiet = not any(s.pc) and s.alive[MANAGER] and not any(True for _ in self.manage(s))
        return self.wrong_owner(s) if quiet and s.undo is None else None

    def wrong_owner(self, s: State) -> str | None:
        """When no operation is under way, every hold belongs to its rightful owner."""
        for m, owner in enumerate(s.word):
            if owner == RING and not s.head <= m < s.tail:
                return "leak: the ring holds a block of no message"
            if owner in (0, 1, 2) and m not in s.got[owner]:
                return f"leak: {NAMES[owner]} holds a message that it never got"
        if any(m not in s.got[i] for m, i in s.extra):
            return "leak: a reader holds a message that it does not know of"
        return None


class Rows(Broadcast):
    """The same with one message less and one join more: readers that leave, join again and use what they left."""

    safeguards = ("row-check", "serial", "leave-compare")
    messages = 1
    joins = 3
    closes_twice = True
