"""Model (d): holds move through a ring with undo records; and the end of a ring that no process holds.

Moving a hold is one store of its word that leaves the block as it is, so counts stay and no arena lock is needed.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from explore import Model, State, Step, put

RING, FREE = "ring", "free"  # owners of a hold besides processes; FREE stands for a word of 0
MANAGER = 4
NAMES = ("producer", "other producer", "consumer", "other consumer", "manager")
MESSAGE = ((0, 1), (2,))  # producer -> entries of the holds that its message moves
PUT, GET = 0, 1  # the ring's two robust locks, each with an undo record


class Undo(NamedTuple):
    """The transfer to take back if `by` dies before its commit: that of the message at that position."""

    by: int
    position: int


class Ring(NamedTuple):
    kills: int
    alive: Any
    reclaimed: Any
    pc: Any
    word: Any  # owner of each hold entry
    slots: Any  # messages: (producer, its entries)
    head: int
    tail: int
    lock: Any
    undo: Any
    got: Any  # ghost: per consumer, the messages it relies on
    count: int  # ghost: how many messages were delivered
    holds: Any  # which processes hold the ring itself
    end: str  # "" | "reclaiming": what the ring's number holds is being released | "gone": destroyed
    next: bool  # a message is inside the next ring of that number


class Transfer(Model):
    """Two producers, two consumers, a manager. A process that takes a dead holder's lock first undoes its transfer."""

    safeguards = ("undo", "undo-first", "note-first", "publish-last", "commit-last")

    def start(self) -> State:
        return Ring(
            kills=0,
            alive=(True,) * 5,
            reclaimed=(False,) * 4,
            pc=(None,) * 5,
            word=(0, 0, 1),
            slots=(),
            head=0,
            tail=0,
            lock=(None, None),
            undo=(None, None),
            got=((), ()),
            count=0,
            holds=(False,) * 4,
            end="",
            next=False,
        )

    def steps(self, s: State) -> Iterator[Step]:
        for i, pc in enumerate(s.pc):
            if not s.alive[i]:
                if i == MANAGER:
                    yield "a new manager starts", s._replace(alive=put(s.alive, i, True), pc=put(s.pc, i, None))
                continue
            if s.kills < self.kills:
                got = s.got if i not in (2, 3) else put(s.got, i - 2, ())
                yield (
                    f"KILL {NAMES[i]}" + (f" before {pc[0]}" if pc else ""),
                    s._replace(kills=s.kills + 1, alive=put(s.alive, i, False), pc=put(s.pc, i, None), got=got),
                )
            begin = self.manage(s) if i == MANAGER else self.idle(s, i)
            for what, n in getattr(self, pc[0])(s, i, *pc[1:]) if pc else begin:
                yield f"{NAMES[i]} {what}", n

    def free(self, s: State, side: int) -> bool:
        return s.lock[side] is None or not s.alive[s.lock[side]]

    def idle(self, s: State, i: int) -> Iterator[Step]:
        side = PUT if i < 2 else GET
        may = all(m[0] != i for m in s.slots[: s.tail]) if side == PUT else s.head < s.tail
        if may and self.free(s, side):
            yield (
                f"locks {'PUT' if side == PUT else 'GET'}",
                self.go(s, i, "take_back", side, lock=put(s.lock, side, i)),
            )
        if side == GET and s.got[i - 2]:
            m, *rest = s.got[i - 2]
            word = tuple(FREE if e in MESSAGE[m] else w for e, w in enumerate(s.word))
            yield f"releases message {m}", s._replace(word=word, got=put(s.got, i - 2, tuple(rest)))

    def go(self, s: State, i: int, *pc: Any, **stores: Any) -> State:
        return s._replace(pc=put(s.pc, i, pc or None), **stores)

    def take_back(self, s: State, i: int, side: int) -> Iterator[Step]:
        """Undo the transfer of a dead holder of this lock. Each store is idempotent, so this may be repeated."""
        u = s.undo[side]
        if u and self.keeps("undo"):
            done = u.position < (s.tail if side == PUT else s.head)
            back = u.by if side == PUT else RING
            wrong = [] if done else [e for e in s.slots[u.position][1] if s.word[e] != back]
            if wrong:
                if s.word[wrong[0]] == FREE:
                    yield "undoes a hold that is gone", self.go(s, i, "resurrected")
                yield f"undoes word[{wrong[0]}]", s._replace(word=put(s.word, wrong[0], back))
            else:
                yield "clears the undo record", s._replace(undo=put(s.undo, side, None))
        elif i == MANAGER:
            yield "unlocks", self.go(s, i, lock=put(s.lock, side, None))
        elif side == PUT:
            n = s._replace(slots=(*s.slots[: s.tail], (i, MESSAGE[i])))
            yield "writes the message", self.go(n, i, "note", side, s.tail)
        elif s.head < s.tail:
            yield from self.note(s, i, side, s.head)
        else:
            yield "unlocks, as the ring is empty", self.go(s, i, lock=put(s.lock, side, None))

    def note(self, s: State, i: int, side: int, position: int) -> Iterator[Step]:
        early = not self.keeps("publish-last" if side == PUT else "commit-last")
        n = self.go(s, i, "publish" if early else "own", side, s.slots[position][1], 0)
        if not self.keeps("note-first"):
            yield "goes on with no undo record", n
        else:
            yield "writes the undo record", n._replace(undo=put(s.undo, side, Undo(i, position)))

    def own(self, s: State, i: int, side: int, entries: tuple[int, ...], k: int) -> Iterator[Step]:
        """Hand over one hold: to the ring, or to the consumer."""
        last = k + 1 == len(entries)
        early = not self.keeps("publish-last" if side == PUT else "commit-last")
        after_all = ("clear", side) if early else ("publish", side, entries, k)
        then = after_all if last else ("own", side, entries, k + 1)
        owner = RING if side == PUT else i
        yield (
            f"stores word[{entries[k]}]={NAMES[i] if side == GET else RING}",
            self.go(s, i, *then, word=put(s.word, entries[k], owner)),
        )

    def publish(self, s: State, i: int, side: int, entries: tuple[int, ...], k: int) -> Iterator[Step]:
        """The commit: one store of tail or head."""
        early = not self.keeps("publish-last" if side == PUT else "commit-last")
        then = ("own", side, entries, 0) if early else ("clear", side)
        if side == PUT:
            yield f"stores tail={s.tail + 1}", self.go(s, i, *then, tail=s.tail + 1)
        else:
            got = put(s.got, i - 2, (*s.got[i - 2], s.slots[s.head][0]))
            yield f"stores head={s.head + 1}", self.go(s, i, *then, head=s.head + 1, got=got, count=s.count + 1)

    def clear(self, s: State, i: int, side: int) -> Iterator[Step]:
        yield "clears the undo record", self.go(s, i, "unlock", side, undo=put(s.undo, side, None))

    def unlock(self, s: State, i: int, side: int) -> Iterator[Step]:
        yield "unlocks", self.go(s, i, lock=put(s.lock, side, None))

    def resurrected(self, s: State, i: int) -> Iterator[Step]:
        return iter(())

    def manage(self, s: State) -> Iterator[Step]:
        """Reclaim the dead; first try the locks that a dead client's slot names, without waiting."""
        for d in range(4):
            if s.alive[d] or s.reclaimed[d]:
                continue
            named = [x for x in (PUT, GET) if s.lock[x] == d or (s.undo[x] and s.undo[x].by == d)]
            if named and self.keeps("undo") and self.keeps("undo-first"):
                if self.free(s, named[0]):
                    n = self.go(s, MANAGER, "take_back", named[0], lock=put(s.lock, named[0], MANAGER))
                    yield f"locks the ring for the dead {NAMES[d]}", n
                continue
            mine = [e for e, owner in enumerate(s.word) if owner == d]
            if mine:
                yield f"releases entry {mine[0]} of the dead {NAMES[d]}", s._replace(word=put(s.word, mine[0], FREE))
            if s.holds[d]:
                yield f"releases the ring for the dead {NAMES[d]}", s._replace(holds=put(s.holds, d, False))
            if not mine and not s.holds[d]:
                yield f"has reclaimed the {NAMES[d]}", s._replace(reclaimed=put(s.reclaimed, d, True))

    def inside(self, s: State) -> tuple[Any, ...]:
        """The messages whose blocks must live."""
        queued: tuple[Any, ...] = s.slots[s.head : s.tail]
        return queued

    def broken(self, s: State) -> str | None:
        queued = self.inside(s)
        for c in (2, 3):
            getting = s.pc[c] and s.pc[c][0] == "own"
            for m in s.got[c - 2]:
                if not getting and any(s.word[e] != c for e in MESSAGE[m]):
                    return f"use after free: {NAMES[c]} relies on a block that it does not hold"
        for p in (0, 1):
            sent = any(m[0] == p for m in s.slots[: s.tail])
            if s.alive[p] and not sent and s.pc[p] is None and any(s.word[e] != p for e in MESSAGE[p]):
                return f"{NAMES[p]} lost a block that it did not send"
        if s.count > len(MESSAGE):
            return "a message was delivered twice"
        if any(s.word[e] == FREE for m in queued for e in m[1]):
            return "use after free: a block of a queued message is free"
        if any(pc and pc[0] == "resurrected" for pc in s.pc):
            return "a released hold came back"
        quiet = not any(s.pc) and s.alive[MANAGER] and all(a or r for a, r in zip(s.alive, s.reclaimed, strict=False))
        return self.wrong_owner(s, queued) if quiet and not any(s.undo) else None

    def wrong_owner(self, s: State, queued: tuple[Any, ...]) -> str | None:
        """When no operation is under way, every hold belongs to its rightful owner."""
        entries = {e for m in queued for e in m[1]}
        if any(s.word[e] != RING for e in entries):
            return "a queued block is not held by the ring"
        for e, owner in enumerate(s.word):
            if owner == RING and e not in entries:
                return "leak: the ring holds a block of no message"
            if owner in range(4) and s.reclaimed[owner]:
                return "leak: a reclaimed process holds a block"
            if owner in (2, 3) and not any(e in MESSAGE[m] for m in s.got[owner - 2]):
                return "leak: a consumer holds a block that it never got"
        return None


NEXT = 3  # the entry of a message in the next ring of the same number


class Ending(Transfer):
    """One producer, one consumer: each releases the ring or dies; the messages inside end with the last hold on it."""

    safeguards = ("undo-first", "ring-reclaim", "ring-last")

    def start(self) -> State:
        s: State = super().start()
        return s._replace(
            alive=(True, False, True, False, True),
            reclaimed=(False, True, False, True),
            word=(0, 0, FREE, "its sender"),
            holds=(True, False, True, False),
        )

    def steps(self, s: State) -> Iterator[Step]:
        yield from super().steps(s)
        number_free = s.end == "gone" or (s.end == "reclaiming" and not self.keeps("ring-last"))
        if number_free and not s.next:
            yield (
                "a message comes into the next ring of that number",
                s._replace(next=True, word=put(s.word, NEXT, RING)),
            )

    def idle(self, s: State, i: int) -> Iterator[Step]:
        for what, n in super().idle(s, i):
            if s.holds[i] or what.startswith("releases"):
                yield what, n
        if s.holds[i]:
            yield "lets go of the ring", s._replace(holds=put(s.holds, i, False))

    def manage(self, s: State) -> Iterator[Step]:
        """Also: once no process holds the ring, release what its number holds, destroy it, and free the number."""
        yield from super().manage(s)
        mine = [e for e, owner in enumerate(s.word) if owner == RING]
        if s.end == "" and not any(s.holds):
            yield (
                "finds that nobody holds the ring",
                s._replace(end="reclaiming" if self.keeps("ring-reclaim") else "gone"),
            )
        elif s.end == "reclaiming" and mine:
            yield f"releases entry {mine[0]} of the ring", s._replace(word=put(s.word, mine[0], FREE))
        elif s.end == "reclaiming":
            yield "destroys the ring", s._replace(end="gone")

    def inside(self, s: State) -> tuple[Any, ...]:
        return (*(() if s.end else super().inside(s)), *((("next", (NEXT,)),) if s.next else ()))

    def wrong_owner(self, s: State, queued: tuple[Any, ...]) -> str | None:
        return None if s.end == "reclaiming" else super().wrong_owner(s, queued)
