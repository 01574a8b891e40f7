"""Model (a): allocate, attach by handle, release, drain, rebuild after a death, reclaim.

Mirrors native/heap/segment_metadata.cpp.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from arena import Arena
from explore import State, Step, put


class ArenaState(NamedTuple):
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
    asked: Any  # ghost: the handle a process is attaching by


class Holds(Arena):
    """An owner, a client whose slot may be given to a new one, and a manager; two blocks, three entries."""

    safeguards = ("rebuild", "count-in-place", "generation", "drain-lock", "trylock", "slot-last")
    names = ("owner", "client", "manager")
    blocks = 2
    entries = 3
    reborn = True
    allocations = 3  # in all

    def start(self) -> State:
        return ArenaState(**self.fields(), asked=(None,) * len(self.names))

    def idle(self, s: State, i: int) -> Iterator[Step]:
        if i == 0:
            if sum(s.gen) < self.allocations:
                yield from self.begin_allocate(s, i)
            yield from self.begin_drain(s, i)
        elif not s.held[i]:
            for b in range(self.blocks):
                for g in range(1, s.gen[b] + 1):  # every handle that was ever given out
                    yield from self.take(s, i, f"attach {b}.{g}", "attach", b, g)
        yield from self.begin_release(s, i)

    def committed(self, s: State, i: int, b: int, e: int, kind: str) -> State:
        g = s.asked[i][1] if s.asked[i] else s.gen[b]  # a process trusts the handle that it was given
        return s._replace(held=put(s.held, i, (*s.held[i], (b, g, e))), asked=put(s.asked, i, None))

    def broken(self, s: State) -> str | None:
        if not self.keeps("trylock") and s.pc[-1] and s.pc[-1][0] == "wait" and s.lock not in (None, "dead"):
            return f"the manager waits for {self.names[s.lock]}, which may be stopped for ever"
        return super().broken(s)


class TwoClients(Holds):
    """The same with two clients that race to attach, release and take over the lock; one block."""

    safeguards = ()
    names = ("owner", "client", "other client", "manager")
    blocks = 1
    allocations = 2
