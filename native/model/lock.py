"""Model (e): a lock that is one word, its sleepers, and the death of its holder. Mirrors native/ipc/sync.cpp."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from explore import Model, State, Step, put

FREE = (None, False)


class Word(NamedTuple):
    alive: Any  # of each process: "alive", "killed" or "noted" (marked by the manager)
    pc: Any
    left: Any  # how often each still wants the lock
    word: Any  # (holder, asleep)
    inherited: bool
    torn: Any  # ghost: the process that is changing the guarded data, or died doing so
    kills: int


class Lock(Model):
    """Three processes that want the lock, and a manager that may notice a death, late or never."""

    safeguards = ("compare", "look", "thorough", "asleep-again", "word-kept")
    count = 3
    turns = 2

    def start(self) -> State:
        each = range(self.count)
        return Word(
            tuple("alive" for _ in each), tuple(() for _ in each), tuple(self.turns for _ in each), FREE, False, None, 0
        )

    def steps(self, s: State) -> Iterator[Step]:
        for i in range(self.count):
            if s.alive[i] == "alive":
                if not s.pc[i] and s.left[i]:
                    left = put(s.left, i, s.left[i] - 1)
                    yield f"{i} wants it", self.at(s, i, "read", False, False)._replace(left=left)
                yield from self.of(s, i, looks=True)
                if s.kills < self.kills and s.pc[i]:
                    yield (
                        f"KILL {i}",
                        s._replace(alive=put(s.alive, i, "killed"), pc=put(s.pc, i, ()), kills=s.kills + 1),
                    )
            elif s.alive[i] == "killed":
                noted = s._replace(alive=put(s.alive, i, "noted"))
                if not self.keeps("word-kept") and s.word[0] == i:
                    noted = noted._replace(word=FREE)
                yield f"the manager notes that {i} is dead", noted

    @staticmethod
    def at(s: State, i: int, *pc: Any) -> State:
        return s._replace(pc=put(s.pc, i, pc))

    def of(self, s: State, i: int, looks: bool) -> Iterator[Step]:
        """The next step of process i, once it has begun. `looks`: 100 ms may pass."""
        match s.pc[i]:
            case ("read", waited, thorough):
                holder, asleep = s.word
                dead = holder is not None and (
                    s.alive[holder] == "noted" or (thorough and self.keeps("thorough") and s.alive[holder] == "killed")
                )
                if holder is None or dead:
                    yield f"{i} reads: free", self.at(s, i, "take", s.word, waited)
                else:
                    yield f"{i} reads: held", self.at(s, i, "sleep" if asleep else "mark", s.word)
            case ("take", seen, waited):
                if s.word != seen and self.keeps("compare"):
                    yield f"{i} finds it taken", self.at(s, i, "read", waited, False)
                else:
                    asleep = seen[1] or (waited and self.keeps("asleep-again"))
                    yield f"{i} takes it", self.at(s, i, "note", seen[0] is not None)._replace(word=(i, asleep))
            case ("mark", seen):
                if s.word == seen:
                    marked = (seen[0], True)
                    yield f"{i} marks it", self.at(s, i, "sleep", marked)._replace(word=marked)
                else:
                    yield f"{i} cannot mark it", self.at(s, i, "read", True, False)
            case ("sleep", seen):
                fits = s.word == seen  # the kernel compares
                yield f"{i} sleeps", self.at(s, i, "asleep") if fits else self.at(s, i, "read", True, False)
            case ("asleep",):
                if looks and self.keeps("look"):
                    yield f"{i} looks", self.at(s, i, "read", True, True)
            case ("note", inherited):
                yield f"{i} notes", self.at(s, i, "in")._replace(inherited=inherited)
            case ("in",):
                yield f"{i} changes what it guards", self.at(s, i, "changing")._replace(torn=i)
            case ("changing",):
                yield f"{i} is done", self.at(s, i, "out")._replace(torn=None)
            case ("out",):
                yield f"{i} frees it", self.at(s, i, *(("wake",) if s.word[1] else ()))._replace(word=FREE)
            case ("wake",):
                sleepers = [j for j in range(self.count) if s.pc[j] == ("asleep",) and s.alive[j] == "alive"]
                for j in sleepers:
                    yield f"{i} wakes {j}", self.at(self.at(s, i), j, "read", True, False)
                if not sleepers:
                    yield f"{i} wakes nobody", self.at(s, i)

    def waits_for_ever(self, s: State) -> int | None:
        """A process that never ends if all continue and none is killed; without the 100 ms check if none was killed."""
        for _ in range(20 * self.count):
            busy = [i for i in range(self.count) if s.alive[i] == "alive" and s.pc[i]]
            if not busy:
                return None
            for i in busy:
                s = next((n for _, n in self.of(s, i, looks=s.kills > 0)), s)
        return busy[0]

    def broken(self, s: State) -> str | None:
        inside = [i for i in range(self.count) if s.pc[i] and s.pc[i][0] in ("note", "in", "changing", "out")]
        if len(inside) > 1:
            return f"{inside[0]} and {inside[1]} hold the lock"
        for i in inside:
            if s.pc[i][0] == "in" and s.torn is not None and not s.inherited:
                return f"{i} is not told that {s.torn} died with the lock"
        if (waiter := self.waits_for_ever(s)) is not None:
            return f"{waiter} waits for ever"
        return None
