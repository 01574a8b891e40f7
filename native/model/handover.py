"""Model (h): segments and rings that the next manager finds, and those that come late. Mirrors takeover.py, state.py,
handshake.py (_rejoin) and server.py (_search) of manager/daemon, and manager/membership.py (_recover).

A manager keeps what it made; the next one finds things whose descriptors some process has. In between are answers that
were sent and not read yet: no `/proc/<pid>/fd` shows them. A stopped manager takes no step for any time.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from explore import Model, State, Step, put

A, B, TICKET = 0, 1, 2
NAMES = ("A", "B")


class Thing(NamedTuple):
    """A segment or a ring. `serial` (a ghost) distinguishes it from others with its number."""

    number: int
    serial: int


class Answer(NamedTuple):
    """An answer in a client's connection. `wrong` (a ghost): it says that a thing is lost which a process has."""

    thing: Any  # None: it is lost
    wrong: bool = False


class World(NamedTuple):
    kills: int
    epoch: int
    managers: Any  # "unborn", "alive" or "over"
    has: Any  # per manager: the things that it knows
    back: Any  # the clients that have connected to the current manager
    alive: Any
    server: Any  # per client: the manager that it is connected to
    asks: Any  # per client: its request: None, ("CREATE", None), ("MAP", thing)
    inbox: Any  # per client: answers
    former: Any  # per client: the answers of a connection that it gave up, and another thread is about to read
    fds: Any  # per client: the things that it has
    next: int  # the number of the next thing, in the group's header
    made: int
    sent: Any  # the thing that A has told B of
    told: Any  # what B was told of it: None, "opened", "of the end", or "wrong": that it is lost, though it is not
    holds: Any  # (segment, client or TICKET): holds by the number of a slot; of rings: (number, ring)
    slot: str  # of A: "A", "dead", "free" (the next process in it would be taken for A)
    orphans: Any  # segments without an owner, according to the current manager
    seen: Any  # ghost: what living processes had when the current manager came
    late: Any  # things that came after their dead holder was reclaimed elsewhere; of rings: those that had a message
    free: Any  # per manager: numbers of rings that it may give out again
    ending: Any  # numbers of rings whose holds the current manager releases


class Handover(Model):
    """Two clients, three managers; A makes a segment and tells B of it.

    Checked: no process is told that a thing is lost which a living process has; no number names two things; no hold of
    a dead process is left in the name of the next one in its slot.
    """

    safeguards = (
        "counter",
        "scan",
        "rejoin-scan",
        "search",
        "old-first",
        "back-first",
        "late-reclaim",
        "owner-generation",
        "group-ticket",
    )
    things = 2  # made at most
    managers = 3
    remembers = True  # what living processes had when a manager came

    def start(self) -> State:
        return World(
            kills=0,
            epoch=1,
            managers=("alive", "unborn", "unborn"),
            has=((), (), ()),
            back=(A, B),
            alive=(True, True),
            server=(1, 1),
            asks=(None, None),
            inbox=((), ()),
            former=((), ()),
            fds=((), ()),
            next=1,
            made=0,
            sent=None,
            told=None,
            holds=(),
            slot="A",
            orphans=(),
            seen=(),
            late=(),
            free=((), (), ()),
            ending=(),
        )

    def steps(self, s: State) -> Iterator[Step]:
        if s.kills < self.kills:
            yield from self.kill(s)
        for c in (A, B):
            if s.alive[c]:
                for what, n in (*self.converse(s, c), *self.act(s, c)):
                    yield f"{NAMES[c]} {what}", n
        for k, state in enumerate(s.managers, 1):
            if state == "alive":
                for what, n in self.serve(s, k):
                    yield f"manager {k} {what}", n
        if s.managers[s.epoch - 1] == "alive":
            for what, n in self.work(s, s.epoch):
                yield f"manager {s.epoch} {what}", n
        if s.epoch < self.managers:
            yield f"manager {s.epoch + 1} leads", self.lead(s)

    def kill(self, s: State) -> Iterator[Step]:
        n = s._replace(kills=s.kills + 1)
        for c in (A, B):
            if s.alive[c]:
                dead = n._replace(
                    alive=put(n.alive, c, False),
                    asks=put(n.asks, c, None),
                    inbox=put(n.inbox, c, ()),
                    former=put(n.former, c, ()),
                    fds=put(n.fds, c, ()),
                    told=None if c == B else n.told,
                )
                yield f"KILL {NAMES[c]}", dead
        for k, state in enumerate(s.managers, 1):
            if state == "alive":
                yield f"KILL manager {k}", self.over(n, k)

    def over(self, s: State, k: int) -> State:
        """Its answers stay where they are; its knowledge is gone."""
        return s._replace(
            managers=put(s.managers, k - 1, "over"), has=put(s.has, k - 1, ()), free=put(s.free, k - 1, ())
        )

    # -- managers --------------------------------------------------------------------------------------------------

    def lead(self, s: State) -> State:
        """The former manager is dead, or will find that it was replaced. The new one has what it finds in processes."""
        n = s._replace(
            epoch=s.epoch + 1,
            managers=put(s.managers, s.epoch, "alive"),
            back=tuple(c for c in (A, B) if not s.alive[c]),
            ending=(),
            orphans=(),
            seen=tuple(sorted({*s.fds[A], *s.fds[B]})) if self.remembers else (),
        )
        return self.adopt(n, n.epoch, *s.fds[A], *s.fds[B]) if self.keeps("scan") else n

    def adopt(self, s: State, k: int, *things: Thing) -> State:
        """Manager k keeps what it did not know."""
        new = tuple(t for t in things if t not in s.has[k - 1])
        late = new if s.slot == "dead" and not self.keeps("late-reclaim") else ()
        if k == s.epoch and (s.slot == "dead" or (s.slot == "free" and self.keeps("owner-generation"))):
            s = self.orphan(s, *new)
        return s._replace(has=put(s.has, k - 1, tuple(sorted({*s.has[k - 1], *new}))), late=(*s.late, *late))

    def orphan(self, s: State, *things: Thing) -> State:
        """All that A made; B's segments do not matter here."""
        return s._replace(orphans=tuple(sorted({*s.orphans, *(t for t in things if t == s.sent)})))

    def serve(self, s: State, k: int) -> Iterator[Step]:
        """Answer a request of a client. A manager that was replaced does so too, until it reads the epoch."""
        if k != s.epoch:
            yield "finds that it was replaced", self.over(s, k)
        for c in (A, B):
            if s.asks[c] is None or s.server[c] != k or not s.alive[c]:
                continue
            what, thing = s.asks[c]
            n = s._replace(asks=put(s.asks, c, None))
            if what == "CREATE":
                yield from self.make(n, k, c)
                continue
            n, found = self.find(n, k, thing)
            wrong = found is None and any(thing in s.fds[x] for x in (A, B))
            yield (
                f"answers MAP of {NAMES[c]}" if found else f"tells {NAMES[c]} that it is lost",
                n._replace(inbox=put(n.inbox, c, (*n.inbox[c], Answer(found, wrong)))),
            )

    def make(self, s: State, k: int, c: int) -> Iterator[Step]:
        number = s.next if self.keeps("counter") else 1 + max((t.number for t in s.has[k - 1]), default=0)
        n = s._replace(next=s.next + 1)
        yield f"makes segment {number} for {NAMES[c]}", self.give(n, k, c, Thing(number, s.made))

    def give(self, s: State, k: int, c: int, thing: Thing) -> State:
        return s._replace(
            made=s.made + 1,
            has=put(s.has, k - 1, (*s.has[k - 1], thing)),
            inbox=put(s.inbox, c, (*s.inbox[c], Answer(thing))),
        )

    def find(self, s: State, k: int, thing: Thing) -> tuple[State, Thing | None]:
        """The thing with this number; if there is none, search the clients that have not come back once more."""
        found = [t for t in s.has[k - 1] if self.is_named(t, thing)]
        if not found and self.keeps("search"):
            s = self.adopt(s, k, *(t for c in (A, B) if s.server[c] != k for t in s.fds[c]))
            found = [t for t in s.has[k - 1] if self.is_named(t, thing)]
        return s, found[0] if found else None

    def is_named(self, thing: Thing, asked: Thing) -> bool:
        return thing.number == asked.number

    def all_back(self, s: State) -> bool:
        return not self.keeps("back-first") or all(c in s.back or not s.alive[c] for c in (A, B))

    def work(self, s: State, k: int) -> Iterator[Step]:
        """The holds of the dead are released at once; their slot is free once no unread answer can name a segment."""
        if not s.alive[A] and s.slot == "A":
            yield "marks A dead", self.orphan(s._replace(slot="dead"), *s.has[k - 1])
        if s.slot == "dead":
            mine = [h for h in s.holds if h[1] == A and h[0] in s.has[k - 1] and h[0] not in s.late]
            if mine:
                yield "releases a hold of A", s._replace(holds=tuple(h for h in s.holds if h != mine[0]))
            elif self.all_back(s):
                yield "frees the slot of A", s._replace(slot="free")
        for t in s.orphans:
            if not any(h[0] == t for h in s.holds):
                left = put(s.has, k - 1, tuple(x for x in s.has[k - 1] if x != t))
                n = s._replace(has=left, orphans=tuple(x for x in s.orphans if x != t), told="of the end")
                yield (
                    "destroys an orphan without blocks",
                    n._replace(fds=(n.fds[A], tuple(x for x in n.fds[B] if x != t))),
                )

    # -- clients ---------------------------------------------------------------------------------------------------

    def converse(self, s: State, c: int) -> Iterator[Step]:
        for where in ("inbox", "former"):
            box = getattr(s, where)[c]
            if box:
                n = s._replace(**{where: put(getattr(s, where), c, box[1:])})
                if box[0].thing is None:
                    yield "reads that it is lost", n._replace(told="wrong" if box[0].wrong else "of the end")
                else:
                    fds = tuple(sorted({*s.fds[c], box[0].thing}))
                    yield f"reads its answer: segment {box[0].thing.number}", n._replace(fds=put(n.fds, c, fds))
        if s.server[c] != s.epoch and s.managers[s.epoch - 1] == "alive":
            n = s._replace(
                server=put(s.server, c, s.epoch),
                asks=put(s.asks, c, None),
                inbox=put(s.inbox, c, ()),
                back=tuple(sorted({*s.back, c})),
            )
            if not self.keeps("old-first"):
                n = n._replace(former=put(s.former, c, s.inbox[c]))
            yield "rejoins", self.adopt(n, n.epoch, *s.fds[c]) if self.keeps("rejoin-scan") else n

    def idle(self, s: State, c: int) -> bool:
        return s.asks[c] is None and not s.inbox[c] and not s.former[c]

    def act(self, s: State, c: int) -> Iterator[Step]:
        if c == A and s.sent is None:
            if s.fds[A]:
                t = s.fds[A][0]
                ticket = ((t, TICKET),) if self.keeps("group-ticket") else ()
                yield "allocates a block and sends B a ticket", s._replace(sent=t, holds=((t, A), *ticket))
            elif self.idle(s, A) and s.made < self.things:
                yield "asks for a segment", s._replace(asks=put(s.asks, A, ("CREATE", None)))
        if c == B and s.sent:
            if s.sent not in s.fds[B]:
                if self.idle(s, B) and s.told is None:
                    yield "asks for the segment", s._replace(asks=put(s.asks, B, ("MAP", s.sent)))
            elif s.told is None and not any(h[0] == s.sent for h in s.holds):
                yield "finds the block gone that it has a ticket for", s._replace(told="gone")
            elif s.told is None:
                holds = {*s.holds, (s.sent, B)} - {(s.sent, TICKET)}
                yield "redeems the ticket", s._replace(holds=tuple(sorted(holds)), told="opened")
            elif s.told == "opened":
                holds = {*s.holds} - {(s.sent, B)}
                yield "releases the block", s._replace(holds=tuple(sorted(holds)), told="of the end")
        if c == B and self.idle(s, B) and s.made < self.things and s.sent:
            yield "asks for a segment", s._replace(asks=put(s.asks, B, ("CREATE", None)))

    # -- what must hold --------------------------------------------------------------------------------------------

    def around(self, s: State) -> set[Thing]:
        """The things that living processes have."""
        return {*s.fds[A], *s.fds[B]}

    def broken(self, s: State) -> str | None:
        if s.told == "wrong":
            return "B is told that a segment is lost which a living process has"
        if s.told == "gone":
            return "what was sent cannot be received, though a living process has its segment"
        if s.told == "opened" and (s.sent, B) not in s.holds:
            return "use after free: B relies on the block and has no hold of it"
        around = {*self.around(s), *s.has[s.epoch - 1]}
        if len({t.number for t in around}) < len(around):
            return "a number names two things"
        if any(h[1] == A and h[0] in self.around(s) for h in s.holds) and s.slot == "free":
            return "leak: a hold of a dead process stays in the name of the next one in its slot"
        unknown = [t for t in s.seen if t in self.around(s) and t not in s.has[s.epoch - 1]]
        if s.slot == "dead" and s.managers[s.epoch - 1] == "alive" and any((t, A) in s.holds for t in unknown):
            return "leak: the hold of a dead process waits for a living one to come back, which may never do so"
        done = s.slot == "free" and s.managers[s.epoch - 1] == "alive" and self.all_back(s)
        if done and s.sent in s.has[s.epoch - 1] and s.sent not in s.orphans:
            return "leak: the segment of a dead process is taken for that of the next one in its slot"
        return None


class LostRings(Handover):
    """Rings: their messages hold blocks in the name of the ring's number, in a segment that every manager knows.

    Only a manager itself knows the numbers that it has freed; the next one treats the numbers of rings that it does not
    find as lost. Also checked: the message of a ring that lives keeps its block; in the end, a ring that no process has
    holds nothing.
    """

    safeguards = ("counter", "rejoin-scan", "old-first", "back-first", "lost-release", "ring-last")
    managers = 2
    remembers = False

    def start(self) -> State:
        # Number 1 belonged to a ring that has ended.
        return super().start()._replace(next=2, free=((1,), (), ()))

    def make(self, s: State, k: int, c: int) -> Iterator[Step]:
        free = s.free[k - 1]
        if free:
            n = s._replace(free=put(s.free, k - 1, free[1:]))
            yield (
                f"makes ring {free[0]} for {NAMES[c]}, a number that came free",
                self.give(n, k, c, Thing(free[0], s.made)),
            )
        else:
            for what, n in super().make(s, k, c):
                yield what.replace("segment", "ring"), n

    def is_named(self, thing: Thing, asked: Thing) -> bool:
        return thing == asked  # by the number of its segment, which is given out once

    def work(self, s: State, k: int) -> Iterator[Step]:
        """End the rings that no process has; release the holds of rings unknown since the last manager."""
        has, free = s.has[k - 1], s.free[k - 1]
        for number in s.ending:
            held = [h for h in s.holds if h[0] == number]
            lost = number not in [t.number for t in has]
            if held and not (lost and not self.keeps("lost-release")):
                n = s._replace(holds=tuple(h for h in s.holds if h != held[0]))
                yield f"releases a hold of number {number}", n
            else:
                n = s._replace(
                    ending=tuple(x for x in s.ending if x != number),
                    has=put(s.has, k - 1, tuple(t for t in has if t.number != number)),
                    free=put(s.free, k - 1, tuple(sorted({*free, number}))),
                )
                yield f"may give number {number} to another ring", n
        for t in has:
            if t not in self.held(s) and t.number not in s.ending:
                n = s._replace(ending=(*s.ending, t.number))
                if not self.keeps("ring-last"):
                    n = n._replace(free=put(s.free, k - 1, tuple(sorted({*free, t.number}))))
                yield f"finds that nobody has ring {t.number}", n
        if self.all_back(s):
            known = {*(t.number for t in has), *free, *s.ending}
            for number in range(1, s.next):
                if number not in known:
                    yield f"takes ring {number} for lost", s._replace(ending=(*s.ending, number))

    def held(self, s: State) -> set[Thing]:
        """The rings in use: those that a process has or may still learn of, and the one that B was told of."""
        told = (s.sent,) if s.sent and s.alive[B] and s.told is None else ()
        return {*told, *self.around(s), *(a.thing for c in (A, B) if s.alive[c] for a in (*s.inbox[c], *s.former[c]))}

    def act(self, s: State, c: int) -> Iterator[Step]:
        for t in s.fds[c]:
            if (t.number, t) not in s.holds and t not in s.late:
                n = s._replace(holds=tuple(sorted({*s.holds, (t.number, t)})), late=tuple(sorted((*s.late, t))))
                yield f"puts a message into ring {t.number}", n
            if c == A and s.sent is None and s.epoch == 1:
                yield "tells B of its ring", s._replace(sent=t)
            if self.idle(s, c):
                n = s._replace(fds=put(s.fds, c, tuple(x for x in s.fds[c] if x != t)))
                yield f"lets go of ring {t.number}", n._replace(told="of the end" if c == B and t == s.sent else s.told)
        if self.idle(s, c):
            if not s.fds[c] and s.made == c:  # A makes the first, B the second
                yield "asks for a ring", s._replace(asks=put(s.asks, c, ("CREATE", None)))
            if c == B and s.sent and s.sent not in s.fds[B] and s.told is None:
                yield "asks for the ring", s._replace(asks=put(s.asks, c, ("MAP", s.sent)))

    def broken(self, s: State) -> str | None:
        if s.told == "wrong":
            return "B is told that a ring is lost which a living process has"
        around = {*self.around(s), *s.has[s.epoch - 1]}
        if len({t.number for t in around}) < len(around):
            return "a number names two rings"
        if any((t.number, t) not in s.holds for t in s.late if t in self.around(s)):
            return "use after free: the message of a ring that lives has lost its block"
        if s.managers[s.epoch - 1] != "alive" or not self.all_back(s) or any(True for _ in self.work(s, s.epoch)):
            return None
        if any(t not in self.held(s) for _, t in s.holds):
            return "leak: a ring that nobody has holds a block"
        return None
