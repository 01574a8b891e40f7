"""Model (m): a link process moves messages between a ring that others use too and a window, or a row, of its own.

One link process works at a time; another one follows when it is killed. The model `ring` covers holds: here a transfer
is a record, a commit number and one store of the head (or tail). Mirrors native/ipc/ring.cpp
(`note`, `undo`, `take`, `peek`, `commit_number`), shmtensor/channel/link/stream.py and `Link._recover`.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from explore import Model, State, Step, put

LINK, OTHER = 0, 1
DEAD = "somebody dead"  # the holder of a lock whose holder was killed


class Record(NamedTuple):
    """An undo record: the position of a transfer, and whether it has a commit number."""

    position: int
    numbered: bool


class Row(NamedTuple):
    """A session. `value`: the word `sent` or `put`."""

    number: int  # 0: free
    value: int


class Entry(NamedTuple):
    """A run of messages in the window."""

    session: int
    first: int
    messages: Any

    @property
    def last(self) -> int:
        """Its last sequence number."""
        return self.first + len(self.messages) - 1


class Moving(NamedTuple):
    """A message of a session, as in commit numbers and `moving_last`."""

    session: int
    last: int


class Situation(NamedTuple):
    kills: int
    alive: Any
    pc: Any
    lock: Any  # of this end of the ring
    undo: Any
    commit: Any  # the commit number of this end
    before: Any  # commit_before
    at: int  # the position of this end of the ring: head or tail
    rows: Any
    sessions: int  # so far
    true: Any  # ghost: of each session, how many messages were moved
    refused: bool  # the window, or the ring, had no memory once
    # messages going out
    tail: int
    first: int  # moving_first
    moving: Any  # moving_last
    window: Any
    taken: Any  # ghost: by consumers
    dropped: Any  # ghost: with the sessions that were given up
    # of a broadcast
    cursors: Any  # where the reader of each session is
    beyond: int  # moving_beyond
    # messages coming in
    inside: Any  # what was put: (session, sequence number), or (0, n) of a local producer


class Moves(Model):
    """The common part of both directions: kills, the lock of one end of a ring, its undo record."""

    who: ClassVar[tuple[str, str]]
    end: ClassVar[str]

    def start(self) -> State:
        return Situation(
            kills=0,
            alive=(True, True),
            pc=(None, None),
            lock=None,
            undo=None,
            commit=None,
            before=None,
            at=0,
            rows=(Row(1, 0), Row(2, 0)),
            sessions=2,
            true=(0, 0, 0),
            refused=False,
            tail=0,
            first=0,
            moving=None,
            window=(),
            taken=(),
            dropped=(),
            cursors=(0, 0),
            beyond=0,
            inside=(),
        )

    def steps(self, s: State) -> Iterator[Step]:
        for i, name in enumerate(self.who):
            if not s.alive[i]:
                begin = ("recover",) if i == LINK else ()
                yield f"another {name} starts", self.go(s, i, *begin, alive=put(s.alive, i, True))
                continue
            if s.kills < self.kills:
                dead = self.go(s, i, alive=put(s.alive, i, False), kills=s.kills + 1)
                where = f" before {s.pc[i][0]}" if s.pc[i] else ""
                yield f"KILL {name}{where}", dead._replace(lock=DEAD if s.lock == i else s.lock)
            pc = s.pc[i]
            idle = self.idle(s) if i == LINK else self.other(s)
            for what, n in getattr(self, pc[0])(s, i, *pc[1:]) if pc else idle:
                yield f"{name} {what}", n

    def go(self, s: State, i: int, *pc: Any, **stores: Any) -> State:
        return s._replace(pc=put(s.pc, i, pc or None), **stores)

    def idle(self, s: State) -> Iterator[Step]:
        """The operations that the link may begin."""
        raise NotImplementedError

    def other(self, s: State) -> Iterator[Step]:
        """The operations that the consumer, or the producer, may begin."""
        raise NotImplementedError

    def lock(self, s: State, i: int, why: str, *then: Any) -> Iterator[Step]:
        if s.lock in (None, DEAD):
            yield f"locks {why}", self.go(s, i, "undo", then, lock=i)

    def undo(self, s: State, i: int, then: Any) -> Iterator[Step]:
        """Follow the undo record of a dead holder. Each store is idempotent, so this may be repeated."""
        if s.undo is None:
            yield from getattr(self, then[0])(s, i, *then[1:])
            return
        open_ = s.at == s.undo.position or not self.keeps("committed")
        numbered = s.undo.numbered or not self.keeps("numbered")
        if open_ and numbered and self.keeps("undo") and s.commit != s.before:
            yield "undoes the commit number", s._replace(commit=s.before)
        else:
            yield "clears the undo record of a dead one", s._replace(undo=None)

    def order(self, numbered: bool) -> list[str]:
        """The stores of a transfer."""
        if not numbered:
            return ["record", "move", "clear"]
        note = ["before", "record", "number"]
        if not self.keeps("before-first"):
            note = ["record", "before", "number"]
        if not self.keeps("record-first"):
            note = ["before", "number", "record"]
        return [*note, "move", "clear"]

    def transfer(self, s: State, i: int, step: int, number: Any, move: Any, then: Any) -> Iterator[Step]:
        """One store of a transfer; `move`: the messages."""
        order = self.order(number is not None)
        what = order[step]
        pc = ("transfer", step + 1, number, move, then) if step + 1 < len(order) else then
        n = self.go(s, i, *pc)
        if what == "before":
            yield "saves commit_before", n._replace(before=s.commit)
        elif what == "record":
            yield "writes the undo record", n._replace(undo=Record(s.at, number is not None))
        elif what == "number":
            yield f"stores commit number {tuple(number)}", n._replace(commit=number)
        elif what == "move":
            yield f"stores {self.end}", self.moved(n, i, number, move)
        else:
            yield "clears the undo record", n._replace(undo=None)

    def moved(self, s: State, i: int, number: Any, move: Any) -> State:
        """The one store that commits."""
        raise NotImplementedError

    def unlock(self, s: State, i: int, *then: Any) -> Iterator[Step]:
        yield "unlocks", self.go(s, i, *then, lock=None)

    # -- the next link process --------------------------------------------------------------------------------------

    def recover(self, s: State, i: int) -> Iterator[Step]:
        if not self.keeps("recover"):
            yield "does not look", self.go(s, i)
        elif self.keeps("undo-first"):
            yield from self.lock(s, i, "to read the commit number", "read")
        else:
            yield "reads the commit number without the lock", self.go(s, i, "decide", s.commit)

    def read(self, s: State, i: int) -> Iterator[Step]:
        yield "reads the commit number and unlocks", self.go(s, i, "decide", s.commit, lock=None)

    def decide(self, s: State, i: int, number: Any) -> Iterator[Step]:
        """Compare the move that was under way with the number."""
        raise NotImplementedError

    def row_of(self, s: State, number: Any) -> int | None:
        """The row of the session in a commit number."""
        if number is None:
            return None
        return next((r for r, row in enumerate(s.rows) if row.number == number.session), None)

    def begin(self, s: State) -> Iterator[Step]:
        """Use the first row for another session."""
        if s.rows[0].number == 0 and s.sessions < len(s.true):
            yield (
                f"begins session {s.sessions + 1}",
                s._replace(rows=put(s.rows, 0, Row(s.sessions + 1, 0)), sessions=s.sessions + 1),
            )

    def count(self, s: State, i: int, r: int, count: int, *then: Any) -> Iterator[Step]:
        """Store `sent` or `put`."""
        yield (
            f"stores {self.word}={count} of session {s.rows[r].number}",
            self.go(s, i, *then, rows=put(s.rows, r, s.rows[r]._replace(value=count))),
        )

    word: ClassVar[str]


class Outgoing(Moves):
    """From the ring into the window. Two sessions share the ring with a consumer; the row of one is used again.

    Checked: each message is in exactly one of the ring, the window and a consumer (or was dropped with a session that
    was given up); those of a session are in order, without a gap; `sent` of its row is exact whenever the link is idle.
    """

    safeguards: tuple[str, ...] = (
        "undo",
        "undo-first",
        "numbered",
        "committed",
        "record-first",
        "moving-first",
        "range",
        "same",
        "unput",
        "recover",
        "sent",
        "session",
    )
    alternatives = ("words in any order, never cleared", "order in place of range")
    who = ("link", "consumer")
    end = "head"
    word = "sent"
    messages = 3
    run = 2  # messages at most
    words: tuple[str, ...] = ("note_first", "note_moving")

    def idle(self, s: State) -> Iterator[Step]:
        for r, row in enumerate(s.rows):
            if row.number and s.at < s.tail:
                for run in range(1, self.run + 1):
                    yield from self.lock(s, LINK, f"to peek at {run} for session {row.number}", "peek", r, run)
        if s.rows[0].number == 1:
            yield "gives session 1 up", self.go(s, LINK, "drop")
        yield from self.begin(s)

    def other(self, s: State) -> Iterator[Step]:
        if s.tail < self.messages:
            yield f"or a producer puts message {s.tail}", s._replace(tail=s.tail + 1)
        if s.at < s.tail:
            yield from self.lock(s, OTHER, "to take", "get")

    def get(self, s: State, i: int) -> Iterator[Step]:
        if s.at < s.tail:
            yield from self.transfer(s, i, 0, None, None, ("unlock",))
        else:
            yield from self.unlock(s, i)

    def peek(self, s: State, i: int, r: int, run: int) -> Iterator[Step]:
        run = min(run, s.tail - s.at)
        if run == 0:
            yield from self.unlock(s, i)
            return
        yield (
            f"sees {run} from message {s.at} and unlocks",
            self.go(s, i, *self.order_of_move(), r, s.at, run, lock=None),
        )

    def order_of_move(self) -> list[str]:
        """The stores of a move before the messages are taken."""
        words = list(self.words)
        if self.without == "words in any order, never cleared":
            words = [words[-1], *words[:-1]]
        return [*words, "store"] if self.keeps("moving-first") else ["store", *words]

    def then(self, s: State, i: int, pc: tuple[Any, ...], **stores: Any) -> State:
        """Continue with the next of three stores, or with the take. `pc`: stores left, row, first message, messages."""
        *left, r, at, run = pc
        return self.go(s, i, *(left or ("take",)), r, at, run, **stores)

    def note_first(self, s: State, i: int, *pc: Any) -> Iterator[Step]:
        first = s.rows[pc[-3]].value + 1
        yield f"stores moving_first={first}", self.then(s, i, pc, first=first)

    def note_moving(self, s: State, i: int, *pc: Any) -> Iterator[Step]:
        moving = self.number_of(s, *pc[-3:])
        yield f"stores moving_last={tuple(moving)}", self.then(s, i, pc, moving=moving)

    def range_of(self, s: State, r: int, run: int) -> tuple[int, int, int]:
        return s.rows[r].number, s.rows[r].value + 1, s.rows[r].value + run

    def number_of(self, s: State, r: int, at: int, run: int) -> Moving:
        return Moving(s.rows[r].number, s.rows[r].value + run)

    def store(self, s: State, i: int, *pc: Any) -> Iterator[Step]:
        r, at, run = pc[-3:]
        entry = Entry(s.rows[r].number, s.rows[r].value + 1, tuple(range(at, at + run)))
        yield f"puts {entry.messages} into the window", self.then(s, i, pc, window=(*s.window, entry))
        if not s.refused:
            n = self.go(s, i, *(("clear",) if self.without == "order in place of range" else ()), refused=True)
            yield "is refused memory for the window", n

    def take(self, s: State, i: int, r: int, at: int, run: int) -> Iterator[Step]:
        yield from self.lock(s, i, "to take them", "take_them", r, at, run)

    def take_them(self, s: State, i: int, r: int, at: int, run: int) -> Iterator[Step]:
        if s.at != at and (self.keeps("same") or s.tail - s.at < run):
            yield (
                "finds them taken and unlocks",
                self.go(s, i, "unput", *self.range_of(s, r, run), lock=None),
            )
        else:
            number = self.number_of(s, r, at, run)
            yield from self.transfer(s, i, 0, number, run, ("unlock", "count", r, number.last, "clear"))

    def moved(self, s: State, i: int, number: Any, move: Any) -> State:
        if number is None:
            return s._replace(at=s.at + 1, taken=(*s.taken, s.at))
        return s._replace(at=s.at + move, true=put(s.true, number.session - 1, number.last))

    def names(self, e: Entry, session: int, first: int, last: int) -> bool:
        """Whether this is the key of the entry."""
        range_ = self.keeps("range") and self.without != "order in place of range"
        return (e.session, e.first) == (session, first) and (e.last == last or not range_)

    def unput(self, s: State, i: int, session: int, first: int, last: int) -> Iterator[Step]:
        left = tuple(e for e in s.window if not self.names(e, session, first, last) or not self.keeps("unput"))
        yield f"deletes {first} to {last} of session {session} from the window", self.go(s, i, "clear", window=left)

    def clear(self, s: State, i: int) -> Iterator[Step]:
        never = self.without == "words in any order, never cleared"
        yield "stores moving_last=0", self.go(s, i, moving=s.moving if never else None)

    def drop(self, s: State, i: int) -> Iterator[Step]:
        mine = [e for e in s.window if e.session == s.rows[0].number]
        if mine:
            window = tuple(e for e in s.window if e != mine[0])
            dropped = (*s.dropped, *mine[0].messages)
            yield f"deletes {mine[0].messages} from the window", s._replace(window=window, dropped=dropped)
        else:
            yield "frees the row", self.go(s, i, rows=put(s.rows, 0, Row(0, 0)))

    def decide(self, s: State, i: int, number: Any) -> Iterator[Step]:
        r = self.row_of(s, s.moving)
        if s.moving is None:
            yield "finds nothing under way", self.go(s, i)
        elif r is None:
            yield "finds a move of no session", self.go(s, i, "clear")
        elif number == s.moving or (number and not self.keeps("session") and number.last == s.moving.last):
            then = ("count", r, s.moving.last, "clear") if self.keeps("sent") else ("clear",)
            yield "finds that they were taken", self.go(s, i, *then)
        else:
            yield "finds that they were not taken", self.go(s, i, "unput", s.moving.session, s.first, s.moving.last)

    def broken(self, s: State) -> str | None:
        waiting = [m for e in s.window for m in e.messages]
        places = [*range(s.at, s.tail), *waiting, *s.taken, *s.dropped]
        for m in range(s.tail):
            if m not in places:
                return f"message {m} is lost"
        if not s.alive[LINK] or s.pc[LINK]:
            return None
        for m in range(s.tail):
            if places.count(m) > 1:
                return f"message {m} is in two places"
        for row in s.rows:
            if row.number and row.value != s.true[row.number - 1]:
                return f"sent={row.value} of session {row.number}, which was given {s.true[row.number - 1]}"
            entries = [e for e in s.window if e.session == row.number]
            for e, beyond in zip(entries, [*(e.first for e in entries[1:]), row.value + 1], strict=False):
                if e.last + 1 != beyond:
                    return f"a gap after message {e.first} of session {row.number}"
        return None


class Incoming(Moves):
    """From other ends into the ring, into which a local producer puts as well.

    Checked: the ring has each message of each session once and in order; `put` of its row, from which the other end
    continues, is exact whenever the link is idle.
    """

    safeguards = (
        "undo",
        "undo-first",
        "numbered",
        "committed",
        "record-first",
        "before-first",
        "recover",
        "session",
        "row-first",
        "count-refused",
    )
    who = ("link", "producer")
    end = "tail"
    word = "put"
    run = 2

    def idle(self, s: State) -> Iterator[Step]:
        for r, row in enumerate(s.rows):
            left = (2 if r == 0 else 1) - row.value
            if row.number and left > 0:
                for run in range(1, min(self.run, left) + 1):
                    yield from self.lock(s, LINK, f"to put {run} of session {row.number}", "one", r, row.value, run)
        if s.rows[0].number == 1:
            yield "gives session 1 up", s._replace(rows=put(s.rows, 0, Row(0, 0)))
        yield from self.begin(s)

    def other(self, s: State) -> Iterator[Step]:
        mine = sum(session == 0 for session, _ in s.inside)
        if mine < 1:
            yield from self.lock(s, OTHER, "to put", "put_own")

    def put_own(self, s: State, i: int) -> Iterator[Step]:
        yield from self.transfer(s, i, 0, None, (0, 1), ("unlock",))

    def one(self, s: State, i: int, r: int, have: int, left: int) -> Iterator[Step]:
        """With the lock held: put the next of `left` messages; the row has not counted those up to `have`."""
        row = s.rows[r]
        then = ("count", r, have) if self.keeps("row-first") else ()
        if left == 0:
            yield "unlocks", self.go(s, i, *then, lock=None)
            return
        number = Moving(row.number, have + 1)
        yield from self.transfer(s, i, 0, number, tuple(number), ("one", r, have + 1, left - 1))
        if not s.refused and left < self.run:
            then = ("count", r, have) if self.keeps("count-refused") else ()
            yield "is refused memory and unlocks", self.go(s, i, *then, lock=None, refused=True)

    def moved(self, s: State, i: int, number: Any, move: Any) -> State:
        true = s.true if number is None else put(s.true, number.session - 1, number.last)
        return s._replace(at=s.at + 1, inside=(*s.inside, tuple(move)), true=true)

    def decide(self, s: State, i: int, number: Any) -> Iterator[Step]:
        r = self.row_of(s, number)
        if number is not None and not self.keeps("session") and s.rows[0].number:
            r = 0  # determined by the row alone
        if r is not None and number.last > s.rows[r].value:
            yield from self.count(s, i, r, number.last)
        else:
            yield "finds nothing to add", self.go(s, i)

    def broken(self, s: State) -> str | None:
        for session in range(1, len(s.true) + 1):
            order = [n for of, n in s.inside if of == session]
            if order != list(range(1, len(order) + 1)):
                return f"the ring was given messages {order} of session {session}"
        if s.alive[LINK] and not s.pc[LINK]:
            for row in s.rows:
                if row.number and row.value != s.true[row.number - 1]:
                    return f"put={row.value} of session {row.number}, of which {s.true[row.number - 1]} were put"
        return None


class Following(Outgoing):
    """From a broadcast into the windows of two sessions: a reader's cursor each, and no other consumers.

    A producer drops the oldest message when there is no room, and moves cursors past it, so a cursor does not tell what
    a window contains. An entry in the window commits a move; recovery then finishes the reading.

    Checked: each session has each message once and in order, except those that were dropped before it had them.
    """

    safeguards = ("window-decides", "read-on", "moving-first", "range", "recover")
    who = ("link", "putter")
    words = ("note_first", "note_beyond", "note_moving")

    def idle(self, s: State) -> Iterator[Step]:
        for r, cursor in enumerate(s.cursors):
            if s.tail > cursor:
                for run in range(1, self.run + 1):
                    yield f"peeks for session {r + 1}", self.go(s, LINK, "peek", r, run)

    def peek(self, s: State, i: int, r: int, run: int) -> Iterator[Step]:
        at = s.cursors[r]
        run = min(run, s.tail - at)
        if run == 0:
            yield "finds nothing", self.go(s, i)
        else:
            yield f"sees {run} from message {at}", self.go(s, i, *self.order_of_move(), r, at, run)

    def note_beyond(self, s: State, i: int, *pc: Any) -> Iterator[Step]:
        beyond = pc[-2] + pc[-1]
        yield f"stores moving_beyond={beyond}", self.then(s, i, pc, beyond=beyond)

    def take(self, s: State, i: int, r: int, at: int, run: int) -> Iterator[Step]:
        yield from self.read_on(s, i, r, at + run, s.rows[r].value + run)

    def read_on(self, s: State, i: int, r: int, beyond: int, last: int) -> Iterator[Step]:
        """Move the cursor message by message: in between, it is within the run."""
        if s.cursors[r] < beyond:
            n = self.go(s, i, "read_on", r, beyond, last, cursors=put(s.cursors, r, s.cursors[r] + 1))
            yield f"moves the cursor of session {r + 1} to {s.cursors[r] + 1}", n
        else:
            yield from self.count(s, i, r, last, "clear")

    def other(self, s: State) -> Iterator[Step]:
        if s.tail < self.messages:
            yield f"puts message {s.tail}", s._replace(tail=s.tail + 1)
        if s.at < s.tail:
            behind = [r for r, cursor in enumerate(s.cursors) if cursor == s.at]
            missed = [(r, s.at) for r in behind if s.at not in self.waiting(s, r + 1)]
            cursors = tuple(max(cursor, s.at + 1) for cursor in s.cursors)
            yield (
                f"drops message {s.at}",
                s._replace(at=s.at + 1, cursors=cursors, dropped=tuple(sorted((*s.dropped, *missed)))),
            )

    def recover(self, s: State, i: int) -> Iterator[Step]:
        if s.moving is None or not self.keeps("recover"):
            yield "finds nothing under way", self.go(s, i)
            return
        session, last = s.moving
        r = session - 1
        there = any(self.names(e, session, s.first, last) for e in s.window)
        then: tuple[Any, ...] = ("clear",)
        if not self.keeps("window-decides"):
            then = ("count", r, last, "clear") if s.cursors[r] >= s.beyond else ("unput", session, s.first, last)
        elif there:
            then = ("read_on", r, s.beyond, last) if self.keeps("read-on") else ("count", r, last, "clear")
        yield f"looks at the move {tuple(s.moving)}", self.go(s, i, *then)

    @staticmethod
    def waiting(s: State, session: int) -> list[int]:
        """The messages of a session in the window."""
        return [m for e in s.window if e.session == session for m in e.messages]

    def broken(self, s: State) -> str | None:
        if not s.alive[LINK] or s.pc[LINK]:
            return None
        for r, row in enumerate(s.rows):
            mine = self.waiting(s, row.number)
            read = range(s.cursors[r])
            if mine != sorted({*mine} & {*read}):
                return f"session {row.number} has messages {mine} in the window; its reader has read {len(read)}"
            if missing := [m for m in read if m not in mine and (r, m) not in s.dropped]:
                return f"session {row.number} misses messages {missing}, which were not dropped before it read them"
            if row.value != len(mine):
                return f"sent={row.value} of session {row.number}, which was given {len(mine)}"
        return None
