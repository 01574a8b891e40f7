"""Model (b): a block is sent in a pickle, whose ticket is redeemed never, once or several times.

Mirrors native/heap/segment_metadata.cpp.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from arena import CLIENT, GROUP, OUT, TICKET, Arena
from explore import State, Step, put


class Mail(NamedTuple):
    alive: Any
    reclaimed: Any
    pc: Any
    kills: int
    lock: Any
    gen: Any
    where: Any
    count: Any
    word: Any
    mark: Any
    chain: Any
    returned: Any
    private: Any
    held: Any
    asked: Any  # ghost: the pickle a process is redeeming
    sent: Any  # every pickle that was ever made: (block, generation, entry, mark)
    loaded: Any  # ghost: the pickles that were loaded, one entry for each time


class Tickets(Arena):
    """A sender, two receivers and a manager; one block, two entries. Any receiver may load any pickle, several times.

    Checked beside the arena's properties: until a pickle is loaded, its ticket's hold exists, so that what was sent can
    be received.
    """

    safeguards = ("rebuild", "generation", "mark", "redeem-lock")
    alternatives = ("redeem-lock, mark in the word",)
    names = ("sender", "receiver", "other receiver", "manager")
    blocks = 1
    entries = 2
    allocations = 2
    tickets = 2
    loads = 3  # of pickles, in all

    def start(self) -> State:
        return Mail(**self.fields(), asked=(None,) * 4, sent=(), loaded=())

    def idle(self, s: State, i: int) -> Iterator[Step]:
        if i == 0:
            if sum(s.gen) < self.allocations:
                yield from self.begin_allocate(s, i)
            yield from self.begin_drain(s, i)
            if s.held[i] and len(s.sent) < self.tickets:
                b = s.held[i][0][0]
                yield from self.take(s, i, f"make a ticket for {b}", "pop", b, GROUP, TICKET)
        elif not s.held[i] and len(s.loaded) < self.loads:
            for t in s.sent:
                n = s._replace(asked=put(s.asked, i, t))
                if self.without and self.without.startswith("redeem-lock"):
                    yield from self.check_unlocked(n, i, t)
                else:
                    yield from self.take(n, i, f"redeem {t}", "redeem", t)
        yield from self.begin_release(s, i)

    def committed(self, s: State, i: int, b: int, e: int, kind: str) -> State:
        if kind == TICKET:
            if self.without == "redeem-lock, mark in the word":
                s = s._replace(word=put(s.word, e, (b, GROUP, TICKET, s.mark[e])))
            return s._replace(sent=(*s.sent, (b, s.gen[b], e, s.mark[e])))
        if s.asked[i]:
            return self.got(s, i, e)
        return s._replace(held=put(s.held, i, (*s.held[i], (b, s.gen[b], e))))

    def got(self, s: State, i: int, e: int) -> State:
        """A pickle was loaded, and entry e is the hold; the process relies on it as the one that the pickle names."""
        return s._replace(
            held=put(s.held, i, (*s.held[i], (*s.asked[i][:2], e))),
            asked=put(s.asked, i, None),
            loaded=(*s.loaded, s.asked[i]),
        )

    def redeem(self, s: State, i: int, t: tuple[int, int, int, int]) -> Iterator[Step]:
        """Under the lock: generation, kind and mark are read, then one store hands the hold over; the count stays."""
        b, g, e, m = t
        fresh = s.gen[b] == g or not self.keeps("generation")
        if fresh and s.word[e] == (b, GROUP, TICKET) and (s.mark[e] == m or not self.keeps("mark")):
            n = s._replace(word=put(s.word, e, (b, i, CLIENT)), pc=put(s.pc, i, ("unlock",)))
            yield f"stores word[{e}]={b},CLIENT: redeemed", self.got(n, i, e)
        else:
            yield from self.attach(s, i, b, g)

    def attach(self, s: State, i: int, b: int, g: int) -> Iterator[Step]:
        if s.count[b] and (s.gen[b] == g or not self.keeps("generation")) and s.chain:
            yield from self.pop(s, i, b, i, CLIENT)
        else:
            n = s._replace(asked=put(s.asked, i, None), loaded=(*s.loaded, s.asked[i]))
            n = n._replace(pc=put(n.pc, i, ("unlock",)))
            yield f"is refused block {b} of generation {g}", n

    # -- without the lock ------------------------------------------------------------------------------------------

    def check_unlocked(self, s: State, i: int, t: tuple[int, int, int, int]) -> Iterator[Step]:
        b, g, e, m = t
        n = ("swap", t) if s.gen[b] == g and s.mark[e] == m else ("lock_to_attach", b, g)
        yield f"{self.names[i]} checks generation and mark of {t}", s._replace(pc=put(s.pc, i, n))

    def swap(self, s: State, i: int, t: tuple[int, int, int, int]) -> Iterator[Step]:
        b, g, e, m = t
        bits = (m,) if self.without == "redeem-lock, mark in the word" else ()
        if s.word[e] == (b, GROUP, TICKET, *bits):
            n = s._replace(word=put(s.word, e, (b, i, CLIENT)), pc=put(s.pc, i, None))
            yield f"swaps word[{e}] to {b},CLIENT", self.got(n, i, e)
        else:
            yield "fails to swap", s._replace(pc=put(s.pc, i, ("lock_to_attach", b, g)))

    def lock_to_attach(self, s: State, i: int, b: int, g: int) -> Iterator[Step]:
        yield from self.take(s, i, "attach", "attach", b, g)

    def broken(self, s: State) -> str | None:
        for b, g, e, m in s.sent:
            if (b, g, e, m) not in s.loaded:
                if s.word[e] is None or s.word[e][:3] != (b, GROUP, TICKET) or s.mark[e] != m or s.gen[b] != g:
                    return f"what was sent cannot be received: entry {e} says {s.word[e]}, not ticket {m}"
                if s.where[b] != OUT:
                    return f"block {b} is in flight and at home"
        for i, holds in enumerate(s.held):
            for b, g, _ in holds:
                if s.gen[b] != g:
                    return f"a stale handle attached: {self.names[i]} asked for block {b}.{g} and got {b}.{s.gen[b]}"
        return super().broken(s)
