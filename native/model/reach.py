"""Model (i): rings in messages of rings.

Mirrors native/ipc/reach.cpp, Group::may_open, Ring::get_one, Broadcast::read_one.

Two rings, each in a message of the other or of itself; a process that takes them out, reads them as the reader of a
broadcast does, puts them back, releases them, or opens one by its name; it may be killed anywhere. The manager looks
for rings that no process can reach. An entry is a hold on one ring; a message is the entry that it holds.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from explore import Model, State, Step, put

P, DEAD = "process", "dead"  # owners of entries beside the rings 0 and 1; None: a free entry
ENTRIES = ((0, 0), (1, 1), (0, 2), (1, 3), (0, 4), (1, 5))  # (ring that is held, entry): three of each ring
OF = tuple(ring for ring, _ in ENTRIES)
ORDER = tuple(
    sorted(range(len(ENTRIES)), key=lambda e: -OF[e])
)  # the order in which they are read: those on ring 1 first


class Reach(NamedTuple):
    kills: int
    moves: int  # that the process may still begin
    alive: bool
    undone: bool  # the dead process's transfer has been undone
    pc: Any
    owner: Any  # of each entry
    inside: Any  # per ring: the entries in its messages, oldest first
    head: Any  # per ring: messages ever taken
    cursor: Any  # per ring: messages that the reader in it has read
    undo: Any  # per ring: the entry that is being taken
    known: bool  # the process may open ring 0 by its name
    look: int
    ended: int
    sealed: Any  # per ring: the look that sealed it
    manager: Any  # pc
    over: Any  # per ring: its holds have been released
    lost: bool  # ghost: no process could reach a ring when the look began


class Cycles(Model):
    """One process, two rings, a manager that looks; it may be replaced."""

    safeguards = ("versions", "cursors", "versions-first", "seal", "decide", "undo-first", "cycles")
    moves = 3
    looks = 2

    def start(self) -> State:
        return Reach(
            kills=0,
            moves=self.moves,
            alive=True,
            undone=False,
            pc=None,
            owner=(1, 0, P, None, None, None),  # each in a message of the other; the process holds ring 0
            inside=((1,), (0,)),
            head=(0, 0),
            cursor=(0, 0),
            undo=(None, None),
            known=True,
            look=0,
            ended=0,
            sealed=(0, 0),
            manager=None,
            over=(False, False),
            lost=False,
        )

    def steps(self, s: State) -> Iterator[Step]:
        if s.kills < self.kills:
            if s.alive:
                # Its entries belong to the dead slot until that is reclaimed.
                dead = tuple(DEAD if o == P else o for o in s.owner)
                yield "KILL process", s._replace(kills=s.kills + 1, alive=False, pc=None, owner=dead)
            if s.manager:
                yield "KILL manager", s._replace(kills=s.kills + 1, manager=None)
        if s.alive:
            for what, n in getattr(self, s.pc[0])(s, *s.pc[1:]) if s.pc else self.idle(s):
                yield f"process {what}", n
        if s.manager:
            for what, n in getattr(self, s.manager[0])(s, *s.manager[1:]):
                yield f"manager {what}", n
        else:
            for what, n in self.manage(s):
                yield f"manager {what}", n

    # -- the process -----------------------------------------------------------------------------------------------

    def mine(self, s: State, ring: int) -> list[int]:
        return [e for e, owner in enumerate(s.owner) if owner == P and OF[e] == ring]

    def locked(self, s: State, ring: int) -> bool:
        """Whether the manager locks the ring's metadata: entries are not added or freed, but may change owners."""
        at = s.manager[4] if s.manager and s.manager[0] == "read" else 0
        return at > 0 and OF[ORDER[at]] == OF[ORDER[at - 1]] == ring

    def room(self, s: State, ring: int) -> int | None:
        if self.locked(s, ring):
            return None
        return next((e for e, owner in enumerate(s.owner) if owner is None and OF[e] == ring), None)

    def idle(self, s: State) -> Iterator[Step]:
        for ring in (0, 1):
            held = self.mine(s, ring)
            if held and not self.locked(s, ring):
                yield f"lets go of {ring}", s._replace(owner=put(s.owner, held[-1], None))
            if not s.moves:
                continue
            n = s._replace(moves=s.moves - 1)
            if held and s.inside[ring]:
                yield f"begins to take out of {ring}", n._replace(pc=("note", ring))
                if s.cursor[ring] < s.head[ring] + len(s.inside[ring]):
                    yield f"begins to read in {ring}", n._replace(pc=("hold", ring))
            for other in (0, 1):
                free = self.room(s, other)
                if held and self.mine(s, other) and free is not None:
                    yield (
                        f"puts {other} into {ring}",  # one step: no process gains a ring by it
                        n._replace(
                            owner=put(n.owner, free, ring),
                            inside=put(n.inside, ring, (*n.inside[ring], free)),
                        ),
                    )
        # By its name: the entry is added, and the seal read, under the lock of the metadata.
        free = self.room(s, 0)
        live = any(o is not None for e, o in enumerate(s.owner) if OF[e] == 0)
        if s.known and live and free is not None:
            n = s._replace(known=False)
            if s.sealed[0] and s.sealed[0] == s.ended:
                yield "finds that ring 0 has ended", n
            else:
                void = s.sealed[0] != 0 and s.sealed[0] == s.look and self.keeps("seal")
                n = n._replace(look=s.look + 1) if void else n
                yield "opens ring 0 by its name", n._replace(owner=put(s.owner, free, P))

    def note(self, s: State, ring: int) -> Iterator[Step]:
        yield "notes the undo record", s._replace(pc=("own", ring), undo=put(s.undo, ring, s.inside[ring][0]))

    def own(self, s: State, ring: int) -> Iterator[Step]:
        yield (
            f"stores its own name in entry {s.inside[ring][0]}",
            s._replace(pc=("commit", ring), owner=put(s.owner, s.inside[ring][0], P)),
        )

    def commit(self, s: State, ring: int) -> Iterator[Step]:
        n = s._replace(
            head=put(s.head, ring, s.head[ring] + 1),
            inside=put(s.inside, ring, s.inside[ring][1:]),
            undo=put(s.undo, ring, None),
        )
        yield f"stores head of {ring}", n._replace(pc=None)

    def hold(self, s: State, ring: int) -> Iterator[Step]:
        """A reader of a broadcast: an entry of its own, then the cursor; the message stays."""
        at = max(s.cursor[ring], s.head[ring]) - s.head[ring]
        free = self.room(s, OF[s.inside[ring][at]])
        if free is not None:
            yield "adds a hold of its own", s._replace(pc=("move", ring), owner=put(s.owner, free, P))
        else:
            yield "finds no room", s._replace(pc=None)

    def move(self, s: State, ring: int) -> Iterator[Step]:
        read = max(s.cursor[ring], s.head[ring]) + 1
        yield f"moves its cursor in {ring}", s._replace(pc=None, cursor=put(s.cursor, ring, read))

    # -- the manager -----------------------------------------------------------------------------------------------

    def manage(self, s: State) -> Iterator[Step]:
        if not s.alive:
            undone = not any(e is not None for e in s.undo)
            if not undone and (self.keeps("undo-first") or DEAD not in s.owner):
                yield "undoes what the dead process left", self.undone(s)
            elif DEAD in s.owner:
                yield "reclaims the dead process", s._replace(owner=tuple(None if o == DEAD else o for o in s.owner))
        if any(x and x == s.ended for x in s.sealed) and not all(s.over[r] for r in (0, 1) if s.sealed[r] == s.ended):
            ring = next(r for r in (0, 1) if s.sealed[r] == s.ended and not s.over[r])
            yield f"begins to release what {ring} holds", s._replace(manager=("release", ring))
        elif s.look < self.looks and self.keeps("cycles"):
            lost = not s.known and not any(o in (P, DEAD) for o in s.owner)
            yield "begins a look", s._replace(look=s.look + 1, manager=("seal", s.look + 1, 0), lost=lost)

    def undone(self, s: State) -> State:
        owner, undo = s.owner, s.undo
        for ring in (0, 1):
            if undo[ring] is not None and owner[undo[ring]] == DEAD:
                owner = put(owner, undo[ring], ring)
            undo = put(undo, ring, None)
        return s._replace(owner=owner, undo=undo)

    def seal(self, s: State, look: int, ring: int) -> Iterator[Step]:
        if s.over[ring]:
            yield "finds one that has ended", s._replace(manager=None)
            return
        following = ("seal", look, 1) if ring == 0 else ("versions", look, None, (), None)
        yield f"seals {ring}", s._replace(sealed=put(s.sealed, ring, look), manager=following)

    def version(self, s: State) -> Any:
        return s.head, s.cursor if self.keeps("cursors") else None

    def versions(self, s: State, look: int, before: Any, seen: Any, _: Any) -> Iterator[Step]:
        first = self.version(s) if self.keeps("versions-first") else None
        yield "reads heads and cursors", s._replace(manager=("read", look, first, (), 0))

    def read(self, s: State, look: int, before: Any, seen: Any, at: int) -> Iterator[Step]:
        seen = tuple(sorted({*seen, s.owner[ORDER[at]]}, key=str))
        if at + 1 < len(ORDER):
            following = ("read", look, before, seen, at + 1)
        else:
            following = ("judge", look, before or self.version(s), seen, None)
        yield f"reads entry {ORDER[at]}", s._replace(manager=following)

    def judge(self, s: State, look: int, before: Any, seen: Any, _: Any) -> Iterator[Step]:
        same = before == self.version(s) or not self.keeps("versions")
        if P in seen or DEAD in seen or not same:
            yield "finds them reached", s._replace(manager=("misled",) if s.lost else None)
        else:
            yield "finds nobody", s._replace(manager=("decide", look))

    def misled(self, s: State) -> Iterator[Step]:
        return iter(())

    def decide(self, s: State, look: int) -> Iterator[Step]:
        if look != s.look and self.keeps("decide"):
            yield "finds its look void", s._replace(manager=None)
        else:
            yield "decides", s._replace(ended=look, look=max(s.look, look), manager=None)

    def release(self, s: State, ring: int) -> Iterator[Step]:
        owner = tuple(None if o == ring else o for o in s.owner)
        yield f"releases what {ring} holds", s._replace(owner=owner, over=put(s.over, ring, True), manager=None)

    # -- what must hold --------------------------------------------------------------------------------------------

    def broken(self, s: State) -> str | None:
        ended = [r for r in (0, 1) if s.over[r] or (s.ended and s.sealed[r] == s.ended)]
        if s.alive and any(self.mine(s, r) for r in ended):
            return "use after free: a process holds a ring that has ended"
        for ring in (0, 1):
            taking = s.undo[ring] is not None
            if ring not in ended and any(s.owner[e] != ring for e in s.inside[ring][1 if taking else 0 :]):
                return "a message of a ring that lives holds nothing"
            if ring in ended and s.over[ring] and ring in s.owner:
                return "leak: an entry is left to a ring that is gone"
        if s.manager == ("misled",):
            return "leak: the manager takes rings for reached that nobody can reach"
        idle = s.manager is None and s.pc is None and not s.known and not any(o in (P, DEAD) for o in s.owner)
        if idle and not self.keeps("cycles") and any(o is not None for o in s.owner):
            return "leak: rings that nobody can reach hold each other"
        return None
