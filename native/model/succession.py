"""Model (j): a manager passes its role, and the segments that only it has mapped, to the next one. Mirrors handover.py,
and _rule, _goes_on and _take_role in run.py, of manager/daemon.

A segment contains a message that was not received: its sender has ended, so only the manager has it. A service
is restarted (its process forks a keeper and becomes the successor by exec), stopped (a forked child is the successor)
and started again (the new service asks the child in the background for its role). The lock of the address belongs to
the open file: it is held as long as one of the processes that share it lives.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from explore import Model, State, Step, put

SERVICE, CHILD, NEXT = 0, 1, 2
NAMES = ("the service", "its child", "the next service")


class Process(NamedTuple):
    pc: Any  # "unborn", "over", "serves", "forks", "execs", "fresh", "took", "asks", ("waits for", successor)
    segment: bool = False  # has its descriptor
    lock: bool = False  # shares the lock
    background: bool = False
    said: bool = False  # GOODBYE, on the line to its keeper


class World(NamedTuple):
    kills: int
    processes: Any
    client: Any  # the receiver: "none", "has it", "lost it", "dead"
    restarts: int
    stopped: bool
    hit: bool  # ghost: a process that had the segment was killed
    given_up: bool  # ghost: it is lost


OVER = Process("over")


class Succession(Model):
    """A service, the child that it forks, and the service that a supervisor starts after it; a client.

    Checked: the segment is lost only if a process that had it was killed, never by the steps of processes, nor because
    a successor fails; no two serve at once, and in the end one serves, and no keeper is left.
    """

    safeguards = (
        "keeper",
        "keeper-scan",
        "take-first",
        "wait",
        "resume",
        "resume-after-kill",
        "shared-lock",
        "fork",
        "ask",
    )

    def start(self) -> State:
        service = Process("serves", segment=True, lock=True)
        return World(0, (service, Process("unborn"), Process("unborn")), "none", 0, False, False, False)

    def has(self, s: State) -> bool:
        return s.client == "has it" or any(p.segment for p in s.processes)

    def steps(self, s: State) -> Iterator[Step]:
        for what, n in self.all_steps(s):
            if self.has(s) and not self.has(n) and not n.hit:
                n = n._replace(given_up=True)
            yield what, n

    def all_steps(self, s: State) -> Iterator[Step]:
        if s.kills < self.kills:
            n = s._replace(kills=s.kills + 1)
            for i, p in enumerate(s.processes):
                if p.pc not in ("unborn", "over"):
                    yield f"KILL {NAMES[i]}", self.at(n._replace(hit=n.hit or p.segment), i, OVER)
            if s.client == "has it":
                yield "KILL the client", n._replace(client="dead", hit=True)
        yield from self.own_steps(s)

    def at(self, s: State, i: int, p: Process) -> State:
        return s._replace(processes=put(s.processes, i, p))

    def own_steps(self, s: State) -> Iterator[Step]:
        """All steps except kills."""
        for i, p in enumerate(s.processes):
            for what, n in self.act(s, i, p):
                yield f"{NAMES[i]} {what}", n
        service, _child, following = s.processes
        if service.pc == "over" and following.pc == "unborn":
            yield "the supervisor starts the next service", self.at(s, NEXT, Process("asks"))

    def act(self, s: State, i: int, p: Process) -> Iterator[Step]:
        if p.pc == "serves":
            yield from self.serve(s, i, p)
        elif p.pc == "forks":
            lock = self.keeps("shared-lock")
            keeper = Process(("waits for", i), segment=True, lock=lock)
            n = self.at(s, i, p._replace(pc="execs"))
            yield "forks a keeper", self.at(n, CHILD, keeper) if self.keeps("keeper") else n
        elif p.pc == "execs":
            yield "becomes a fresh interpreter", self.at(s, i, Process("fresh", lock=True))
        elif p.pc == "fresh":
            yield from self.take(s, i, p)
        elif p.pc == "took":
            yield "says GOODBYE, and serves", self.at(s, i, p._replace(pc="serves", said=True))
        elif p.pc == "asks":
            yield from self.ask(s, i)
        elif p.pc[0] == "waits for":
            yield from self.wait(s, i, p, p.pc[1])
        if p.pc in ("fresh", "took") and s.kills < self.kills:
            yield "fails, and ends", self.at(s._replace(kills=s.kills + 1), i, OVER)

    def serve(self, s: State, i: int, p: Process) -> Iterator[Step]:
        if s.client == "none":
            yield (
                "gives the client the segment, or says that it is lost",
                s._replace(client="has it" if p.segment else "lost it"),
            )
        if i == SERVICE and s.restarts < 1 and s.processes[CHILD].pc == "unborn":
            yield "is told to restart", self.at(s._replace(restarts=s.restarts + 1), i, p._replace(pc="forks"))
        if i == SERVICE and not s.stopped and s.processes[CHILD].pc in ("unborn", "over"):
            n = s._replace(stopped=True)
            yield "is stopped", self.leave(n, i, p) if self.keeps("fork") else self.at(n, i, OVER)

    def leave(self, s: State, i: int, p: Process) -> State:
        """Fork a successor, which has everything that this process has."""
        n = self.at(s, i, p._replace(pc=("waits for", CHILD)))
        return self.at(n, CHILD, Process("took", segment=p.segment, lock=True, background=True))

    def take(self, s: State, i: int, p: Process) -> Iterator[Step]:
        """Search the keeper and the clients."""
        keepers = any(x.segment and x.pc == ("waits for", i) for x in s.processes)
        found = s.client == "has it" or (keepers and self.keeps("keeper-scan"))
        if not self.keeps("take-first") and not p.said:
            yield "says GOODBYE", self.at(s, i, p._replace(said=True))
        yield "takes the segments", self.at(s, i, p._replace(pc="took", segment=found))

    def ask(self, s: State, i: int) -> Iterator[Step]:
        """A service that is started: it takes a free lock, or gets the role from a background manager, or ends."""
        holders = [k for k, x in enumerate(s.processes) if x.lock]
        if not holders:
            yield "takes the lock", self.at(s, i, Process("fresh", lock=True))
        for k in holders:
            x = s.processes[k]
            if x.pc == "serves" and x.background:
                if self.keeps("ask"):
                    n = self.at(s, k, x._replace(pc=("waits for", i)))
                    yield "is given the role", self.at(n, i, Process("fresh", lock=True))
                else:
                    n = self.at(s, k, OVER)
                    yield "kills the one in the background", self.at(n, i, Process("fresh", lock=True))
            elif x.pc == "serves":
                yield "finds another service, and ends", self.at(s, i, OVER)

    def wait(self, s: State, i: int, p: Process, successor: int) -> Iterator[Step]:
        it = s.processes[successor]
        again = self.at(s, i, p._replace(pc="serves", background=True, lock=True))
        if it.said or not self.keeps("wait"):
            yield "ends, as the successor serves", self.at(s, i, OVER)
        elif it.pc == "over" and i == SERVICE:
            yield "forks another successor", self.leave(s, i, p) if self.keeps("resume") else self.at(s, i, OVER)
        elif it.pc == "over":
            yield "serves again, as the successor has ended", again if self.keeps("resume") else self.at(s, i, OVER)
        elif it.pc in ("fresh", "took") and s.kills < self.kills:
            n = self.at(s._replace(kills=s.kills + 1), successor, OVER)
            yield "kills the successor that takes too long", n
            if not self.keeps("resume-after-kill"):
                yield "kills the successor just when it says GOODBYE, and ends", self.at(n, i, OVER)

    # -- what must hold --------------------------------------------------------------------------------------------

    def broken(self, s: State) -> str | None:
        if s.given_up:
            return "what was sent is lost, though nobody was killed who had it"
        if s.client == "lost it" and self.has(s):
            return "the client is told that it is lost, and a living process has it"
        if sum(p.pc == "serves" for p in s.processes) > 1:
            return "two managers serve at once"
        if any(True for _ in self.own_steps(s)):
            return None
        if any(p.lock for p in s.processes) and not any(p.pc == "serves" for p in s.processes):
            return "the lock is held and nobody serves"
        if any(isinstance(p.pc, tuple) for p in s.processes):
            return "leak: a keeper stays"
        return None
