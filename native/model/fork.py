"""Model (c): fork and spawn with an embryo slot. Mirrors the fork hooks of native/heap/client_fork.cpp,
native/heap/group.cpp, manager/daemon/state.py, manager/daemon/handshake.py.

Adding and releasing a hold is one step each here, as `holds` proves for one arena.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from explore import Model, State, Step, put

FREE, EMBRYO, CLIENT, DEAD = "FREE", "EMBRYO", "CLIENT", "DEAD"  # states of a slot
P, E = 1, 2  # the parent's slot, and the one that the child gets
NOBODY = 0  # the parent field of a slot that has none; as stale content: a slot whose client is gone
COMING = ("born", "spawned", "waiting")  # the child's, while it has not come for its slot
MAKING = ("half", "claimed", "holding", "after")  # the parent's, from the claim to the end of fork


class Slot(NamedTuple):
    """The one word of a slot."""

    state: str
    parent: int
    generation: int


class Fork(NamedTuple):
    kills: int
    parent: Any  # its pc: idle, locked, half, claimed, holding, after, done; or dead
    child: Any  # its pc: unborn; forked: born, taken, holding; spawned: spawned, waiting; running, fenced; or dead
    manager: Any  # idle or dead
    next: Any  # pc of the client that is given the parent's slot after it: unborn, born, claimed, done
    slots: Any  # of P and E
    mine: Any  # the generation of E that parent and child, and the next client, have claimed
    private: bool  # the parent's process-private lock is held by the forking thread
    held: Any  # blocks that the parent relies on
    child_held: Any  # blocks that the child relies on: those for which its parent gave it holds
    words: Any  # the truth: (block, slot) of every hold, sorted
    ends: Any  # the processes that have the child's end of the socket open
    todo: Any  # blocks for which the embryo has no hold yet
    queue: int  # in the parent's connection: an EMBRYO message not yet read, of this generation (0: none)
    hello: bool  # in the child's socket: a HELLO not yet read
    registered: int  # the manager has the other end of the socket of the embryo of this generation (0: none)
    awaited: int  # the manager has found the embryo of this generation by its slot, and gives it some time (0: none)
    known: bool  # the manager watches the process of the child
    dropped: bool  # the parent has no connection to the manager
    spawned: bool  # the child asks for its slot with a HELLO; a forked one takes it
    troubled: bool  # ghost: a manager has died, or hung up on the parent


class Forking(Model):
    """A parent with two threads (one makes a child, one opens and drops blocks), the child, the manager, and a later
    client.

    A forked child moves its slot from EMBRYO to CLIENT itself, by a swap; for a spawned one, the manager does, when it
    reads its HELLO or REJOIN. Checked: the child relies on no block for which it has no hold; no process takes a slot
    of another; a child is refused its slot only if a manager has died or closed the parent's connection; once the dead
    are reclaimed, none of their slots and holds is left.
    """

    safeguards = (
        "prepare-lock",
        "prepare-holds",
        "one-word",
        "drain-first",
        "embryo-first",
        "swap",
        "slot-generation",
        "welcome",
        "sweep",
        "message-generation",
    )
    mortal = False  # whether the manager may die and be replaced

    def start(self) -> State:
        return Fork(
            kills=0,
            parent="idle",
            child="unborn",
            manager="idle",
            next="unborn",
            slots=(Slot(CLIENT, NOBODY, 0), Slot(FREE, NOBODY, 0)),
            mine=(0, 0),
            private=False,
            held=(0,),
            child_held=(),
            words=((0, P),),
            ends=(),
            todo=(),
            queue=0,
            hello=False,
            registered=0,
            awaited=0,
            known=False,
            dropped=False,
            spawned=False,
            troubled=False,
        )

    def steps(self, s: State) -> Iterator[Step]:
        if s.kills < self.kills:
            yield from self.kill(s)
        yield from self.fork(s)
        yield from self.thread(s)
        yield from self.be_child(s)
        yield from self.manage(s)
        yield from self.hang_up(s)
        yield from self.later(s)

    def kill(self, s: State) -> Iterator[Step]:
        s = s._replace(kills=s.kills + 1)
        if s.parent != "dead":
            ends = tuple(x for x in s.ends if x != "parent")
            yield f"KILL parent at {s.parent}", s._replace(parent="dead", held=(), private=False, ends=ends)
        if s.child not in ("unborn", "dead"):
            ends = tuple(x for x in s.ends if x != "child")
            yield f"KILL child at {s.child}", s._replace(child="dead", child_held=(), ends=ends)
        if self.mortal and s.manager != "dead":
            n = s._replace(manager="dead", queue=0, hello=False, registered=0, awaited=0, known=False)
            yield "KILL manager", n._replace(dropped=True, troubled=True)

    # -- the thread that makes a child: pthread_atfork's prepare, fork, parent; or a spawn ---------------------------

    def fork(self, s: State) -> Iterator[Step]:
        pc = s.parent
        if pc == "idle":
            yield "parent takes its private lock", s._replace(private=self.keeps("prepare-lock"), parent="locked")
        elif pc == "locked" and s.slots[1].state == FREE:
            old = s.slots[1]
            g = old.generation + 1
            if self.keeps("one-word"):
                claimed = s._replace(slots=put(s.slots, 1, Slot(EMBRYO, P, g)), mine=(g, s.mine[1]), parent="claimed")
                yield "parent swaps the slot to EMBRYO", claimed
            else:
                half = s._replace(
                    slots=put(s.slots, 1, Slot(EMBRYO, old.parent, g)), mine=(g, s.mine[1]), parent="half"
                )
                yield "parent swaps the state to EMBRYO", half
        elif pc == "half":
            yield (
                "parent stores the parent field",
                s._replace(slots=put(s.slots, 1, s.slots[1]._replace(parent=P)), parent="claimed"),
            )
        elif pc == "claimed":
            n = s._replace(ends=("parent",), parent="holding", todo=s.held)
            if s.dropped:
                yield "parent cannot send EMBRYO", n
            else:
                yield "parent sends EMBRYO with one end", n._replace(queue=s.mine[0])
        elif pc == "holding":
            if s.todo and self.keeps("prepare-holds"):
                yield f"parent adds the embryo's hold of {s.todo[0]}", hold(s, s.todo[0], E)._replace(todo=s.todo[1:])
            else:
                n = s._replace(parent="after", child="born", child_held=s.held, ends=("parent", "child"))
                yield "fork", n
                if self.keeps("prepare-lock") and self.keeps("prepare-holds"):
                    yield "spawn", n._replace(child="spawned", spawned=True)
                yield "fork fails", s._replace(parent="after")
        elif pc == "after":
            ends = tuple(x for x in s.ends if x != "parent")
            yield "parent closes its copy of the child's end", s._replace(ends=ends, private=False, parent="done")

    def thread(self, s: State) -> Iterator[Step]:
        """The parent's other thread: opens block 1, drops blocks, reconnects, when the private lock is free."""
        if s.parent == "dead" or s.private:
            return
        if s.dropped and s.manager != "dead" and s.parent not in MAKING:
            yield "parent rejoins", s._replace(dropped=False)
        if 1 not in s.held and s.parent != "done":
            yield "thread attaches block 1", hold(s, 1, P)._replace(held=(*s.held, 1))
        for b in s.held:
            yield f"thread releases block {b}", release(s, b, P)._replace(held=tuple(x for x in s.held if x != b))

    # -- the child -------------------------------------------------------------------------------------------------

    def is_mine(self, s: State, state: str, parent: int) -> bool:
        """Whether E is still the slot that the parent has claimed for this child."""
        now = s.slots[1]
        return (now.state, now.parent) == (state, parent) and (
            now.generation == s.mine[0] or not self.keeps("slot-generation")
        )

    def taken(self, s: State, **more: Any) -> State:
        return s._replace(slots=put(s.slots, 1, Slot(CLIENT, NOBODY, s.mine[0])), **more)

    def be_child(self, s: State) -> Iterator[Step]:
        pc = s.child
        listening = s.manager != "dead" and s.mine[0] in (s.registered, s.queue)  # a process has the socket's other end
        if pc == "born":
            if self.is_mine(s, EMBRYO, P) or not self.keeps("swap"):
                yield "child swaps its slot to CLIENT", self.taken(s, child="taken")
            else:
                yield "child finds its slot gone: it holds nothing", s._replace(child="fenced", child_held=(), ends=())
        elif pc == "taken":
            yield "child sends HELLO", s._replace(hello=listening, child="holding")
        elif pc == "spawned":
            if not self.keeps("welcome"):
                yield "spawned child sends HELLO and goes on", s._replace(hello=listening, child="running")
            elif listening:
                yield "spawned child sends HELLO", s._replace(hello=True, child="waiting")
            elif s.manager != "dead":
                yield from self.rejoin(s)
        elif pc == "waiting" and not listening and s.manager != "dead":
            yield from self.rejoin(s)
        elif pc == "holding":
            missing = [b for b in s.child_held if (b, E) not in s.words]
            if missing and not self.keeps("prepare-holds"):
                if not any(w[0] == missing[0] for w in s.words):
                    yield "child runs", s._replace(child="running")  # the block has been given to another process
                    return
                yield f"child adds its hold of {missing[0]}", hold(s, missing[0], E)
            else:
                yield "child runs", s._replace(child="running")
        elif pc == "running":
            for b in s.child_held:
                left = tuple(x for x in s.child_held if x != b)
                yield f"child releases block {b}", release(s, b, E)._replace(child_held=left)
            if s.ends == ("child",):
                yield "child closes descriptors that it does not know", s._replace(ends=())

    def rejoin(self, s: State) -> Iterator[Step]:
        """A spawned child whose socket leads nowhere asks by slot and generation."""
        if self.is_mine(s, EMBRYO, P):
            n = self.taken(s, child="running", known=True, awaited=0)
            yield "manager takes REJOIN for the embryo", n
        elif self.is_mine(s, CLIENT, NOBODY):  # its HELLO was read, and the manager died
            yield "manager takes REJOIN", s._replace(child="running", known=True)
        else:
            yield "manager refuses REJOIN", s._replace(child="fenced", child_held=(), ends=())

    # -- the manager -----------------------------------------------------------------------------------------------

    def manage(self, s: State) -> Iterator[Step]:
        """A manager acts on the messages it has read, on pidfds and on the slots; a new one has only the last two."""
        parent, slot = s.slots
        if s.manager == "dead":
            n = s._replace(manager="idle", known=slot.state == CLIENT)
            yield "a new manager starts", n._replace(awaited=slot.generation if slot.state == EMBRYO else 0)
            return
        if s.queue:
            yield from self.read_embryo(s)
        if s.registered and s.hello:
            yield from self.read_hello(s)
        drained = not s.queue or not self.keeps("drain-first")
        if s.parent == "dead" and parent.state == CLIENT and s.next == "unborn" and drained:
            yield "manager marks the parent dead", s._replace(slots=put(s.slots, 0, parent._replace(state=DEAD)))
        if s.registered and not s.ends and not s.hello:
            yield from self.nobody_comes(s, "EOF", s.registered)
        if s.awaited and (not self.keeps("grace") or not self.may_come(s)):
            yield from self.nobody_comes(s, "nobody came", s.awaited)
        if not s.registered and not s.awaited:
            if slot.state == EMBRYO and drained and (slot.parent != P or parent.state != CLIENT):
                yield "manager swaps the embryo to DEAD (its parent is dead)", self.die(s)
            elif slot.state == CLIENT and not s.known and (self.keeps("sweep") or parent.state == DEAD):
                yield "manager finds an unannounced child by its slot", s._replace(known=True)
        if slot.state == CLIENT and s.known and s.child == "dead":
            yield "manager marks the child dead", self.die(s)
        for index, x in ((P, parent), (E, slot)):
            if x.state == DEAD:
                mine = [b for b, owner in s.words if owner == index]
                if mine:
                    yield f"manager releases block {mine[0]} of slot {index}", release(s, mine[0], index)
                elif index == E or slot.state != EMBRYO or not self.keeps("embryo-first"):  # it outlives its embryos
                    n = s._replace(slots=put(s.slots, index - 1, x._replace(state=FREE)))
                    yield f"manager frees slot {index}", n

    def read_embryo(self, s: State) -> Iterator[Step]:
        slot, n = s.slots[1], s._replace(queue=0)
        fresh = s.queue == slot.generation or not self.keeps("message-generation")
        if fresh and (slot.state == CLIENT or slot[:2] == (EMBRYO, P)):
            yield "manager reads EMBRYO", n._replace(registered=s.queue, awaited=0)
        else:
            yield "manager refuses EMBRYO", n._replace(hello=False)

    def read_hello(self, s: State) -> Iterator[Step]:
        n = s._replace(hello=False, registered=0, known=True)
        if not s.spawned or self.is_mine(s, CLIENT, NOBODY):
            yield "manager reads HELLO", n
        elif self.is_mine(s, EMBRYO, P):
            child = "running" if s.child == "waiting" else s.child
            yield "manager reads HELLO, swaps the slot to CLIENT and sends WELCOME", self.taken(n, child=child)
        else:
            child = "fenced" if s.child == "waiting" else s.child
            yield "manager refuses HELLO", n._replace(known=s.known, child=child, child_held=(), ends=())

    def may_come(self, s: State) -> bool:
        """A child may still come for the embryo; the time that it is given is enough for that."""
        return s.child in COMING or (s.parent in MAKING and s.child == "unborn") or s.next == "claimed"

    def nobody_comes(self, s: State, why: str, generation: int) -> Iterator[Step]:
        """The end of an embryo, unless it has made itself a client; decided by the word that the manager knows."""
        slot, n = s.slots[1], s._replace(registered=0, awaited=0)
        if generation != slot.generation and self.keeps("message-generation"):
            yield f"manager finds another in the embryo's slot ({why})", n
        elif slot.state == EMBRYO:
            yield f"manager swaps the embryo to DEAD ({why})", self.die(n)
        else:
            yield f"manager finds that the embryo is a client ({why})", n._replace(known=slot.state == CLIENT)

    def die(self, s: State) -> State:
        return s._replace(slots=put(s.slots, 1, s.slots[1]._replace(state=DEAD)), known=False)

    def hang_up(self, s: State) -> Iterator[Step]:
        """Any reason to close a live client's connection: a malformed message, no descriptors left, a full queue."""
        if s.manager == "dead" or s.parent == "dead" or s.troubled:
            return
        if not s.queue or not self.keeps("drain-first"):
            n = s._replace(dropped=True, troubled=True, queue=0, hello=s.hello and not s.queue)
            yield "manager closes the parent's connection", n

    # -- a later client in the parent's slot -----------------------------------------------------------------------

    def later(self, s: State) -> Iterator[Step]:
        if s.next == "unborn" and s.parent == "dead" and s.slots[0].state == FREE:
            yield (
                "a new client takes the parent's slot",
                s._replace(next="born", slots=put(s.slots, 0, Slot(CLIENT, NOBODY, s.slots[0].generation + 1))),
            )
        elif s.next == "born" and s.slots[1].state == FREE:
            g = s.slots[1].generation + 1
            yield (
                "the new client claims an embryo",
                s._replace(next="claimed", slots=put(s.slots, 1, Slot(EMBRYO, P, g)), mine=(s.mine[0], g)),
            )

    # -- what must hold --------------------------------------------------------------------------------------------

    def broken(self, s: State) -> str | None:
        if s.child == "running":  # before that, only the fork hook has run in it
            for b in s.child_held:
                if (b, E) not in s.words:
                    return f"use after free: the child relies on block {b} and has no hold of it"
        if any((b, P) not in s.words for b in s.held):
            return "use after free: the parent's hold is gone"
        slot = s.slots[1]
        if s.next == "claimed" and slot != Slot(EMBRYO, P, s.mine[1]):
            return f"the slot of another's embryo was taken: it says {slot.state}"
        if s.child in ("taken", "holding", "running") and slot != Slot(CLIENT, NOBODY, s.mine[0]):
            return f"the slot of a live child says {slot.state}"
        if s.parent in MAKING and s.child == "unborn" and slot.state != EMBRYO:
            return f"the slot of a fork under way says {slot.state}"
        if s.child == "fenced" and (not s.troubled or s.parent != "dead"):
            return "a child was refused its slot though its parent lives, or nothing happened to their connection"
        return self.leak(s) if not any(True for _ in self.manage(s)) else None

    def leak(self, s: State) -> str | None:
        """When the manager has nothing left to do, the dead have no slots and no holds."""
        if s.parent == "dead" and any(owner == P for _, owner in s.words):
            return "leak: the dead parent holds a block"
        over = s.child == "dead" or s.child == "fenced" or (s.child == "unborn" and s.parent in ("dead", "done"))
        if not over or s.next == "claimed" or s.parent in MAKING:
            return None
        if s.slots[1].state == EMBRYO and s.troubled and s.parent != "dead":
            return None  # not announced: it stays until its parent ends, since a child may still come for it
        if s.slots[1].state != FREE:
            return f"leak: the slot of no child says {s.slots[1].state}"
        if any(owner == E for _, owner in s.words):
            return "leak: a free slot holds a block"
        return None


class Failover(Forking):
    """The same with a manager that may die with all messages it had read; a new one has only the slots and pidfds."""

    safeguards = (*Forking.safeguards, "grace")
    mortal = True


def hold(s: State, block: int, slot: int) -> State:
    return s._replace(words=tuple(sorted({*s.words, (block, slot)})))


def release(s: State, block: int, slot: int) -> State:
    return s._replace(words=tuple(w for w in s.words if w != (block, slot)))
