"""The metadata of one arena in the models, and the steps that all of them share.

Each step is one store to shared memory (or one private one). Stores to memory that no process can reach yet (the link
of an entry before the chain's head names it) are left out: no process can see them, and a rebuild does not read them.
"""

from collections.abc import Iterator
from typing import Any

from explore import Model, State, Step, put

HOME, OUT = "HOME", "OUT"  # where a block is: in its owner's private lists, or given out
DEAD = "dead"  # the lock's state after its holder died: the next taker gets EOWNERDEAD
GROUP = "group"  # slot 0, owner of tickets
CLIENT, TICKET = "CLIENT", "TICKET"  # kinds of a hold


class Arena(Model):
    """One arena; process 0 owns it, the last process is the manager, those between are clients that attach and release.

    A state has at least these fields: alive, reclaimed, pc, kills (of processes); lock, gen, where, count (of blocks);
    word, mark (of hold entries); chain (free entries); returned (the chain of blocks freed by others); private (the
    owner's list of free blocks); held (per process: the (block, generation, entry) it relies on).
    """

    names: tuple[str, ...]
    blocks: int
    entries: int

    @property
    def manager(self) -> int:
        return len(self.names) - 1

    def fields(self) -> dict[str, Any]:
        """The initial fields of every arena model: all blocks at home, all entries free."""
        n = len(self.names)
        return dict(  # noqa: C408
            alive=(True,) * n,
            reclaimed=(False,) * n,
            pc=(None,) * n,
            kills=0,
            lock=None,
            gen=(0,) * self.blocks,
            where=(HOME,) * self.blocks,
            count=(0,) * self.blocks,
            word=(None,) * self.entries,
            mark=(0,) * self.entries,
            chain=tuple(range(self.entries)),
            returned=(),
            private=tuple(range(self.blocks)),
            held=((),) * n,
        )

    def steps(self, s: State) -> Iterator[Step]:
        for i, pc in enumerate(s.pc):
            if not s.alive[i]:
                if i == self.manager:
                    yield "a new manager starts", s._replace(alive=put(s.alive, i, True))
                elif i > 0 and s.reclaimed[i] and self.reborn:
                    yield (
                        f"a new client takes the slot of {self.names[i]}",
                        s._replace(alive=put(s.alive, i, True), reclaimed=put(s.reclaimed, i, False)),
                    )
                continue
            if s.kills < self.kills:
                yield (
                    f"KILL {self.names[i]}" + (f" before {pc[0]}" if pc else ""),
                    s._replace(
                        alive=put(s.alive, i, False),
                        pc=put(s.pc, i, None),
                        held=put(s.held, i, ()),
                        lock=DEAD if s.lock == i else s.lock,
                        kills=s.kills + 1,
                    ),
                )
            if pc is None:
                yield from self.manage(s, i) if i == self.manager else self.idle(s, i)
            else:
                for what, n in getattr(self, pc[0])(s, i, *pc[1:]):
                    yield f"{self.names[i]} {what}", n

    reborn = False  # whether a reclaimed client's slot is given to a new one

    def idle(self, s: State, i: int) -> Iterator[Step]:
        """The operations that a client or the owner may begin."""
        raise NotImplementedError

    # -- the robust lock -------------------------------------------------------------------------------------------

    def take(self, s: State, i: int, why: str, *then: Any) -> Iterator[Step]:
        """Lock and continue with `then`; after EOWNERDEAD, rebuild the derived state first."""
        what = f"{self.names[i]} locks to {why}"
        if s.lock is None or (s.lock == DEAD and not self.keeps("rebuild")):
            yield what, s._replace(lock=i, pc=put(s.pc, i, then))
        elif s.lock == DEAD:
            yield what + " (EOWNERDEAD)", s._replace(lock=i, pc=put(s.pc, i, ("rebuild", 0, then)))

    def rebuild(self, s: State, i: int, k: int, then: tuple[Any, ...]) -> Iterator[Step]:
        """Derive counts, free chain and returned chain from the hold words again, store by store."""

        def go(**stores: Any) -> State:
            return s._replace(pc=put(s.pc, i, ("rebuild", k + 1, then)), **stores)

        nb, ne = self.blocks, self.entries
        if k == 0 and any(s.count) and not self.keeps("count-in-place"):
            yield "clears every count", s._replace(count=(0,) * nb)
        elif k < nb:
            real = sum(w is not None and w[0] == k for w in s.word)
            yield f"rebuilds count[{k}]={real}", go(count=put(s.count, k, real))
        elif k == nb:
            yield "empties the free chain and the returned chain", go(chain=(), returned=())
        elif k <= nb + ne:
            e = k - nb - 1
            yield f"rebuilds the chain at {e}", go(chain=s.chain if s.word[e] else (e, *s.chain))
        elif k <= nb + ne + nb:
            b = k - nb - ne - 1
            lost = s.where[b] == OUT and s.count[b] == 0
            yield f"rebuilds the returned chain at {b}", go(returned=(b, *s.returned) if lost else s.returned)
        else:
            yield "marks the lock consistent", s._replace(pc=put(s.pc, i, then))

    def unlock(self, s: State, i: int) -> Iterator[Step]:
        yield "unlocks", s._replace(lock=None, pc=put(s.pc, i, None))

    # -- the owner allocates ---------------------------------------------------------------------------------------

    def begin_allocate(self, s: State, i: int) -> Iterator[Step]:
        if s.private:
            b = s.private[0]
            yield from self.take(s._replace(private=s.private[1:]), i, f"allocate {b}", "new_generation", b)

    def new_generation(self, s: State, i: int, b: int) -> Iterator[Step]:
        if not s.chain:  # no hold entry left: the block goes back
            yield "finds no hold entry", s._replace(private=(b, *s.private), pc=put(s.pc, i, ("unlock",)))
            return
        yield f"stores gen[{b}]+=1", s._replace(gen=put(s.gen, b, s.gen[b] + 1), pc=put(s.pc, i, ("give_out", b)))

    def give_out(self, s: State, i: int, b: int) -> Iterator[Step]:
        yield f"stores where[{b}]=OUT", s._replace(where=put(s.where, b, OUT), pc=put(s.pc, i, ("pop", b, i, CLIENT)))

    # -- a hold is added -------------------------------------------------------------------------------------------

    def pop(self, s: State, i: int, b: int, owner: Any, kind: str) -> Iterator[Step]:
        if not s.chain:
            yield "finds no hold entry", s._replace(pc=put(s.pc, i, ("unlock",)))
            return
        e = s.chain[0]
        then = ("write_mark", b, e, owner, kind) if kind == TICKET else ("commit", b, e, owner, kind)
        yield f"pops entry {e}", s._replace(chain=s.chain[1:], pc=put(s.pc, i, then))

    def write_mark(self, s: State, i: int, b: int, e: int, owner: Any, kind: str) -> Iterator[Step]:
        yield (
            f"stores mark[{e}]+=1",
            s._replace(mark=put(s.mark, e, s.mark[e] + 1), pc=put(s.pc, i, ("commit", b, e, owner, kind))),
        )

    def commit(self, s: State, i: int, b: int, e: int, owner: Any, kind: str) -> Iterator[Step]:
        """The one store that makes the hold real."""
        n = s._replace(word=put(s.word, e, (b, owner, kind)), pc=put(s.pc, i, ("count_up", b)))
        yield f"stores word[{e}]={b},{kind}", self.committed(n, i, b, e, kind)

    def committed(self, s: State, i: int, b: int, e: int, kind: str) -> State:
        """The state of the process after its commit."""
        return s._replace(held=put(s.held, i, (*s.held[i], (b, s.gen[b], e))))

    def count_up(self, s: State, i: int, b: int) -> Iterator[Step]:
        yield f"stores count[{b}]+=1", s._replace(count=put(s.count, b, s.count[b] + 1), pc=put(s.pc, i, ("unlock",)))

    # -- anyone attaches by handle ---------------------------------------------------------------------------------

    def attach(self, s: State, i: int, b: int, g: int) -> Iterator[Step]:
        live = s.count[b] > 0 and (s.gen[b] == g or not self.keeps("generation"))
        if live:  # the check is a read, and part of the step of the first store
            for what, n in self.pop(s, i, b, i, CLIENT):
                # a stale handle is checked against the block that it named
                yield what, n._replace(asked=put(s.asked, i, (b, g)))
        else:
            yield f"is refused block {b} of generation {g}", s._replace(pc=put(s.pc, i, ("unlock",)))

    # -- a hold is released ----------------------------------------------------------------------------------------

    def begin_release(self, s: State, i: int) -> Iterator[Step]:
        for hold in s.held[i]:
            n = s._replace(held=put(s.held, i, tuple(h for h in s.held[i] if h != hold)))
            yield from self.take(n, i, f"release entry {hold[2]}", "clear", hold[0], hold[2], ("unlock",))

    def clear(self, s: State, i: int, b: int, e: int, then: tuple[Any, ...]) -> Iterator[Step]:
        yield f"stores word[{e}]=0", s._replace(word=put(s.word, e, None), pc=put(s.pc, i, ("count_down", b, e, then)))

    def count_down(self, s: State, i: int, b: int, e: int, then: tuple[Any, ...]) -> Iterator[Step]:
        left = s.count[b] - 1
        yield (
            f"stores count[{b}]={left}",
            s._replace(count=put(s.count, b, left), pc=put(s.pc, i, ("push", b, e, left, then))),
        )

    def push(self, s: State, i: int, b: int, e: int, left: int, then: tuple[Any, ...]) -> Iterator[Step]:
        if left == 0:
            then = ("take_home", b) if i == 0 else ("push_returned", b, then)
        yield f"pushes entry {e}", s._replace(chain=(e, *s.chain), pc=put(s.pc, i, then))

    def take_home(self, s: State, i: int, b: int) -> Iterator[Step]:
        yield (
            f"stores where[{b}]=HOME",
            s._replace(where=put(s.where, b, HOME), private=(b, *s.private), pc=put(s.pc, i, ("unlock",))),
        )

    def push_returned(self, s: State, i: int, b: int, then: tuple[Any, ...]) -> Iterator[Step]:
        yield f"pushes block {b} on the returned chain", s._replace(returned=(b, *s.returned), pc=put(s.pc, i, then))

    def begin_drain(self, s: State, i: int) -> Iterator[Step]:
        if s.returned:
            if self.keeps("drain-lock"):
                yield from self.take(s, i, "drain", "pop_returned", ("unlock",))
            else:
                yield from self.pop_returned(s, i, None)

    def pop_returned(self, s: State, i: int, then: tuple[Any, ...] | None) -> Iterator[Step]:
        if s.returned:
            b = s.returned[0]
            yield (
                f"pops block {b} off the returned chain",
                s._replace(returned=s.returned[1:], pc=put(s.pc, i, ("drained", b, then))),
            )
        else:
            yield "finds the returned chain empty", s._replace(pc=put(s.pc, i, then))

    def drained(self, s: State, i: int, b: int, then: tuple[Any, ...] | None) -> Iterator[Step]:
        yield (
            f"stores where[{b}]=HOME",
            s._replace(where=put(s.where, b, HOME), private=(b, *s.private), pc=put(s.pc, i, then)),
        )

    # -- the manager -----------------------------------------------------------------------------------------------

    def manage(self, s: State, i: int) -> Iterator[Step]:
        """Reclaim a dead client: try its segment's lock, and retry later if it is held. Uses only the tables."""
        for d in range(self.manager):
            if s.alive[d] or s.reclaimed[d]:
                continue
            if not self.keeps("slot-last"):
                yield (
                    f"manager frees the slot of {self.names[d]}",
                    s._replace(reclaimed=put(s.reclaimed, d, True), pc=put(s.pc, i, ("wait", d))),
                )
            elif s.lock not in (None, DEAD) and not self.keeps("trylock"):
                yield "manager waits for the lock", s._replace(pc=put(s.pc, i, ("wait", d)))
            else:
                yield from self.take(s, i, f"reclaim {self.names[d]}", "reclaim", d)

    def wait(self, s: State, i: int, d: int) -> Iterator[Step]:
        yield from self.take(s, i, f"reclaim {self.names[d]}", "reclaim", d)

    def reclaim(self, s: State, i: int, d: int) -> Iterator[Step]:
        for e, w in enumerate(s.word):
            if w and w[1] == d:
                yield from self.clear(s, i, w[0], e, ("reclaim", d))
                return
        yield "unlocks", s._replace(lock=None, pc=put(s.pc, i, ("free_slot", d)))

    def free_slot(self, s: State, i: int, d: int) -> Iterator[Step]:
        yield (
            f"frees the slot of {self.names[d]}",
            s._replace(reclaimed=put(s.reclaimed, d, True), pc=put(s.pc, i, None)),
        )

    # -- what must hold --------------------------------------------------------------------------------------------

    def broken(self, s: State) -> str | None:
        for i, holds in enumerate(s.held):
            for b, g, e in holds:
                if s.word[e] != (b, i, CLIENT):
                    return f"use after free: {self.names[i]} relies on entry {e}, which says {s.word[e]}"
                if s.gen[b] != g or s.where[b] != OUT:
                    return f"use after free: {self.names[i]} relies on block {b}, given out again or taken home"
                if s.pc[i] is None and s.count[b] == 0:
                    return f"a look without the lock finds count[{b}]=0, but {self.names[i]} holds the block"
                if b in s.returned or (s.alive[0] and b in s.private):
                    return f"block {b} is held and on a free list"
        if s.alive[0]:
            spare = [*s.private, *s.returned]
            if len(spare) != len(set(spare)):
                return "double allocation: a block is twice on the free lists"
        return self.derived_wrong(s) if s.lock is None else None

    def derived_wrong(self, s: State) -> str | None:
        """Whenever the lock is free, the derived state agrees with the hold words."""
        draining = s.pc[0][1] if s.pc[0] and s.pc[0][0] == "drained" else None  # only where draining takes no lock
        for b in range(self.blocks):
            if b == draining:
                continue
            real = sum(w is not None and w[0] == b for w in s.word)
            if s.count[b] != real:
                return f"count[{b}] is {s.count[b]}, its entries are {real}"
            if real and s.where[b] != OUT:
                return f"block {b} has a hold and is at home"
            if (s.where[b] == OUT and not real) != (s.returned.count(b) == 1):
                times = s.returned.count(b)
                return f"leak: block {b} is {s.where[b]} with {real} holds, {times} times on the returned chain"
            if s.alive[0] and s.pc[0] is None and s.where[b] == HOME and s.private.count(b) != 1:
                return f"leak: block {b} is at home and in no list of its owner"
        if sorted(s.chain) != [e for e, w in enumerate(s.word) if w is None]:
            return f"the free chain is {s.chain}, the words are {s.word}"
        for e, w in enumerate(s.word):
            if w is None or w[2] != CLIENT or any(h[2] == e for h in s.held[w[1]]):
                continue
            if s.pc[w[1]] is None if s.alive[w[1]] else s.reclaimed[w[1]] and s.pc[-1] is None:
                return f"leak: entry {e} names {self.names[w[1]]}, which does not know of it"
        return None
