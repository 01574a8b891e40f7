"""Model (g): a manager that dies, or is stopped, is followed by another, and may continue later. Mirrors _release_in in
manager/daemon/state.py.

Nothing marks a manager as stopped: it takes no step for any time, and then continues where it was. One slot, whose
client dies or lives, and which another process gets later; two segments with holds of that slot; a ring from which it
takes a message. A hold's word names only the slot; its true owner (a generation) is a ghost.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from explore import Model, State, Step, put

FREE, EMBRYO, CLIENT, DEAD = "FREE", "EMBRYO", "CLIENT", "DEAD"
MANAGERS = 3
X, Y = 0, 1
SEGMENTS = ("X", "Y")
RING, SLOT, GONE = "the ring", "the slot", "nobody"  # the owners of the hold of the message in the ring


class Word(NamedTuple):
    """A slot's word. `mark`: of a dead slot the epoch of the manager that marked it dead, else 0."""

    state: str
    mark: int
    generation: int


class Manager(NamedTuple):
    pc: Any  # None: nothing under way; ("unborn",), ("over",): dead, or has found that it was replaced
    client: Any  # (word, process by its pid) of the client that it knows in the slot
    dead_word: Any  # the word of the slot that it is reclaiming


class Group(NamedTuple):
    kills: int
    epoch: int
    managers: Any
    word: Word
    pid: int  # the process that the slot's second field names
    alive: Any  # of the processes of generations 1, 2, 3: "unborn", "alive", "dead"
    holds: Any  # per segment: the true owners of its holds, which all name the slot
    locks: Any  # per segment: the manager that has its lock
    needs: Any  # ghost: per process, the segments in which it relies on a block
    record: bool  # the undo record of the first process's transfer
    message: str  # the owner of the hold of the message that it takes
    inside: bool  # the message is still in the ring


class Takeover(Model):
    """Three managers at most, two of them stopped or dead; a client, and the next two in its slot.

    Checked: no process relies on a block without a hold; the slot of a live process is not reclaimed or given to
    another; once the current manager has nothing to do, no hold and no slot of the dead is left.
    """

    safeguards = ("fence", "cas", "mark", "sweep", "claim-word", "pid-in-word", "undo-first", "all-segments")

    def start(self) -> State:
        return Group(
            kills=0,
            epoch=1,
            managers=(Manager(None, (Word(CLIENT, 0, 1), 1), None),) + (Manager(("unborn",), None, None),) * 2,
            word=Word(CLIENT, 0, 1),
            pid=1,
            alive=("alive", "unborn", "unborn"),
            holds=((1,), (1,)),
            locks=(None, None),
            needs=((X, Y), (), ()),
            record=True,
            message=RING,
            inside=True,
        )

    def steps(self, s: State) -> Iterator[Step]:
        if s.kills < self.kills:
            yield from self.kill(s)
        for g in (1, 2, 3):
            if s.alive[g - 1] == "alive":
                for what, n in self.live(s, g):
                    yield f"process {g} {what}", n
        g = s.word.generation + 1
        if s.word.state == FREE and g <= 3:
            n = s._replace(word=Word(CLIENT, 0, g), pid=g, alive=put(s.alive, g - 1, "alive"))
            yield f"process {g} is forked and takes the slot", n
        for k, m in enumerate(s.managers):
            if m.pc == ("unborn",):
                yield f"manager {k + 1} leads", self.at(s, k, "scan")._replace(epoch=k + 1)
                break
        for k, m in enumerate(s.managers):
            if m.pc not in (("unborn",), ("over",)):
                begin = self.idle(s, k) if m.pc is None else getattr(self, m.pc[0])(s, k, *m.pc[1:])
                for what, n in begin:
                    yield f"manager {k + 1} {what}", n

    def at(self, s: State, k: int, *pc: Any, **more: Any) -> State:
        return s._replace(managers=put(s.managers, k, s.managers[k]._replace(pc=pc or None, **more)))

    def over(self, s: State, k: int) -> State:
        locks = tuple(None if holder == k else holder for holder in s.locks)
        return self.at(s, k, "over", client=None, dead_word=None)._replace(locks=locks)

    def kill(self, s: State) -> Iterator[Step]:
        n = s._replace(kills=s.kills + 1)
        for g in (1, 2, 3):
            if s.alive[g - 1] == "alive":
                dead = n._replace(alive=put(n.alive, g - 1, "dead"), needs=put(n.needs, g - 1, ()))
                yield f"KILL process {g}", dead
        for k, m in enumerate(s.managers):
            if m.pc not in (("unborn",), ("over",)):
                yield f"KILL manager {k + 1}" + (f" before {m.pc[0]}" if m.pc else ""), self.over(n, k)

    def live(self, s: State, g: int) -> Iterator[Step]:
        if g == 1:
            if s.message == RING and s.inside:
                yield "takes the message's hold", s._replace(message=SLOT)
            elif s.inside:
                yield "commits", s._replace(inside=False)
            elif s.record:
                yield "clears the undo record", s._replace(record=False)
            return
        for i in (X, Y):
            if i not in s.needs[g - 1] and (i == X or s.locks[i] is None):
                how = "is given a block of X by a ring, without its lock" if i == X else "opens a block of Y"
                n = s._replace(holds=put(s.holds, i, tuple(sorted((*s.holds[i], g)))))
                yield how, n._replace(needs=put(n.needs, g - 1, tuple(sorted((*s.needs[g - 1], i)))))

    # -- a manager -------------------------------------------------------------------------------------------------

    def leads(self, s: State, k: int) -> bool:
        return bool(s.epoch == k + 1)

    def scan(self, s: State, k: int) -> Iterator[Step]:
        """Begin with the content of the table."""
        yield from self.look(s, k)
        if s.word.state == FREE:
            yield "finds nobody", self.at(s, k)

    def look(self, s: State, k: int) -> Iterator[Step]:
        """Read the table for slots that this manager was not told of. It marks a dead slot as its own, so that no
        earlier manager frees it."""
        if s.word.state == CLIENT:
            yield "finds a client", self.at(s, k, client=self.client(s))
        elif s.word.state == EMBRYO or (s.word.state == DEAD and self.keeps("mark")):
            yield f"finds {s.word.state} and marks it DEAD", self.dead_slot(s, k)
        elif s.word.state == DEAD:
            yield "finds DEAD", self.at(s, k, "undo", dead_word=s.word)

    def client(self, s: State) -> tuple[Word, int]:
        """The process is known by the pid in the word itself; or by another field, which is stored by itself."""
        return s.word, s.word.generation if self.keeps("pid-in-word") else s.pid

    def dead_slot(self, s: State, k: int) -> State:
        word = Word(DEAD, k + 1 if self.keeps("mark") else 0, s.word.generation)
        return self.at(s, k, "undo", client=None, dead_word=word)._replace(word=word)

    def idle(self, s: State, k: int) -> Iterator[Step]:
        m = s.managers[k]
        if not self.leads(s, k):
            yield "finds that it was replaced", self.over(s, k)
        if m.client and s.alive[m.client[1] - 1] == "dead":
            yield "hears of a death", self.at(s, k, "mark_dead")
        if m.client is None and (self.keeps("sweep") or s.word.state == CLIENT):
            yield from self.look(s, k)
        if s.word.state == FREE and s.word.generation < 3 and m.client is None:
            word = Word(EMBRYO, 0, s.word.generation + 1)
            n = self.at(s, k, "welcome", word)._replace(word=word, pid=word.generation)
            yield "reads HELLO and claims the slot", n

    def welcome(self, s: State, k: int, word: Word) -> Iterator[Step]:
        g = word.generation
        now = s.word if not self.keeps("claim-word") else word
        if s.word == now or not self.keeps("cas"):
            n = s._replace(word=Word(CLIENT, 0, now.generation), alive=put(s.alive, g - 1, "alive"))
            then = () if self.keeps("pid-in-word") else ("name", g)
            yield "swaps it to CLIENT", self.at(n, k, *then, client=(n.word, g))
        else:
            yield "finds that the slot was taken away, and refuses", self.at(s, k)

    def name(self, s: State, k: int, g: int) -> Iterator[Step]:
        yield "stores the process id beside the word", self.at(s, k)._replace(pid=g)

    def mark_dead(self, s: State, k: int) -> Iterator[Step]:
        known = s.managers[k].client[0]
        if s.word == known or not self.keeps("cas"):
            yield "swaps the slot to DEAD", self.dead_slot(s, k)
        else:
            yield "finds another word", self.at(s, k, client=None)

    def undo(self, s: State, k: int) -> Iterator[Step]:
        """Undo the transfer of the dead process in the ring, as one step; `ring` has its steps."""
        n = self.at(s, k, "lock", X)
        if self.keeps("undo-first") and s.record and s.managers[k].dead_word.generation == 1:
            back = s.inside and s.message == SLOT
            yield "undoes the transfer", n._replace(record=False, message=RING if back else s.message)
        else:
            yield "finds nothing to undo", n

    def lock(self, s: State, k: int, i: int) -> Iterator[Step]:
        if s.locks[i] is None:
            then = ("fence", i) if self.keeps("fence") else ("release", i)
            yield f"locks {SEGMENTS[i]}", self.at(s, k, *then)._replace(locks=put(s.locks, i, k))

    def fence(self, s: State, k: int, i: int) -> Iterator[Step]:
        if self.leads(s, k):
            yield "sees that it leads", self.at(s, k, "release", i)
        else:
            yield "sees that it was replaced", self.over(s, k)

    def release(self, s: State, k: int, i: int) -> Iterator[Step]:
        if s.holds[i]:
            yield f"releases a hold in {SEGMENTS[i]}", s._replace(holds=put(s.holds, i, s.holds[i][1:]))
        elif i == X and s.message == SLOT:
            yield "releases the message's hold", s._replace(message=GONE)
        else:
            more = i == X and self.keeps("all-segments")
            n = self.at(s, k, "lock", Y) if more else self.at(s, k, "free")
            yield f"unlocks {SEGMENTS[i]}", n._replace(locks=put(s.locks, i, None))

    def free(self, s: State, k: int) -> Iterator[Step]:
        dead_word = s.managers[k].dead_word
        n = self.at(s, k, dead_word=None)
        if s.word == dead_word or not self.keeps("cas"):
            yield "swaps the slot to FREE", n._replace(word=Word(FREE, 0, dead_word.generation))
        else:
            yield "finds another word, and lets it be", n

    # -- what must hold --------------------------------------------------------------------------------------------

    def broken(self, s: State) -> str | None:
        for g in (1, 2, 3):
            if s.alive[g - 1] != "alive":
                continue
            for i in s.needs[g - 1]:
                if g not in s.holds[i]:
                    return f"use after free: process {g} relies on a block of {SEGMENTS[i]} and has no hold of it"
            if s.word != Word(CLIENT, 0, g):
                return f"the slot of live process {g} says {s.word.state}, generation {s.word.generation}"
        if s.inside and s.message == GONE:
            return "use after free: the block of a message inside is free"
        if s.alive[0] == "alive" and not s.inside and s.message != SLOT:
            return "use after free: process 1 relies on the message and has no hold of it"
        return self.leak(s)

    def leak(self, s: State) -> str | None:
        """When the current manager has nothing left to do, the dead have no slots and no holds."""
        m = s.managers[s.epoch - 1]
        if m.pc is not None or any(lock is not None for lock in s.locks):
            return None
        if m.client and s.alive[m.client[1] - 1] == "dead":
            return None
        if m.client is None and s.word.state == CLIENT:
            return None
        if self.keeps("sweep") and any(True for _ in self.look(s, s.epoch - 1)) and m.client is None:
            return None
        dead = [g for g in (1, 2, 3) if s.alive[g - 1] == "dead"]
        if s.word.state in (DEAD, EMBRYO) or (s.word.state == CLIENT and s.word.generation in dead):
            return f"leak: the slot of dead process {s.word.generation} stays {s.word.state}"
        for i in (X, Y):
            if any(g in s.holds[i] for g in dead):
                return f"leak: a dead process holds a block of {SEGMENTS[i]}"
        return None
