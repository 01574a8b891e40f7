"""Model (c): fork with an embryo slot. Mirrors the fork hooks of native/client.cpp, native/group.cpp, manager/state.py.

What `holds` proves of one arena is taken for granted here: adding and releasing a hold is one step.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from explore import Model, State, Step, put

FREE, EMBRYO, CLIENT, DEAD = "FREE", "EMBRYO", "CLIENT", "DEAD"  # states of a slot
P, E = 1, 2  # the parent's slot, and the one that the child gets
NOBODY = 0  # the parent field of a slot that has none; as stale content: a slot whose client is gone


class Slot(NamedTuple):
    """The one word of a slot."""

    state: str
    parent: int
    generation: int


class Fork(NamedTuple):
    kills: int
    parent: Any  # its pc: idle, claimed ..., done; or dead
    child: Any  # its pc: unborn, born, taken, running, fenced; or dead
    manager: Any  # idle or dead
    next: Any  # pc of the client that is given the parent's slot after it: unborn, born, claimed, done
    slots: Any  # of P and E
    mine: Any  # the generation of E that parent and child, and the next client, have claimed
    private: bool  # the parent's process-private lock is held by the forking thread
    held: Any  # blocks that the parent relies on
    child_held: Any  # blocks that the child relies on: what its parent relied on at the instant of fork
    words: Any  # the truth: (block, slot) of every hold, sorted
    ends: Any  # who has the child's end of the socket open
    todo: Any  # blocks that the embryo has still to get a hold of
    queue: int  # in the parent's connection: an EMBRYO message not yet read, of this generation (0: none)
    hello: bool  # in the child's socket: a HELLO not yet read
    registered: int  # the manager has the other end of the socket of the embryo of this generation (0: none)
    known: bool  # the manager has read HELLO and watches the child's pidfd
    dropped: bool  # the manager has closed the parent's connection, for a reason of its own
    replaced: bool  # ghost: a manager has died


class Forking(Model):
    """A parent with two threads (one forks, one opens and drops blocks), the child, the manager, and a later client.

    The manager, which is the only one to move a slot on from EMBRYO here, does so when it reads the child's HELLO.
    Checked: the child relies on no block that it has no hold for; nobody takes a slot that is another's; a child is
    refused its slot only where a manager has died or hung up on the parent; once the dead are reaped no slot and no
    hold of theirs is left.
    """

    safeguards = ("prepare-lock", "prepare-holds", "one-word", "drain-first", "hello-first", "embryo-first")
    mortal = False  # whether the manager may die and be replaced; then the child itself takes its slot, by a swap

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
            known=False,
            dropped=False,
            replaced=False,
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
            n = s._replace(manager="dead", replaced=True, queue=0, hello=False, registered=0, known=False)
            yield "KILL manager", n

    # -- the forking thread: pthread_atfork's prepare, fork, parent ------------------------------------------------

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
        elif pc == "claimed" and s.dropped:
            yield (
                "parent cannot send EMBRYO and frees the slot",
                s._replace(slots=put(s.slots, 1, Slot(FREE, NOBODY, s.mine[0])), parent="alone"),
            )
        elif pc == "alone":  # the child will not use what it does not hold
            yield "fork", s._replace(child="fenced", private=False, parent="done")
        elif pc == "claimed":
            n = s._replace(ends=("parent",), parent="holding", todo=s.held)
            yield "parent sends EMBRYO with one end", n._replace(queue=0 if s.manager == "dead" else s.mine[0])
        elif pc == "holding":
            if s.todo and self.keeps("prepare-holds"):
                yield f"parent adds the embryo's hold of {s.todo[0]}", hold(s, s.todo[0], E)._replace(todo=s.todo[1:])
            else:
                n = s._replace(parent="after", child="born", child_held=s.held, ends=("parent", "child"))
                yield "fork", n
                yield "fork fails", s._replace(parent="after")
        elif pc == "after":
            ends = tuple(x for x in s.ends if x != "parent")
            yield "parent closes its copy of the child's end", s._replace(ends=ends, private=False, parent="done")

    def thread(self, s: State) -> Iterator[Step]:
        """The parent's other thread: opens block 1 and drops what there is, when the private lock is free."""
        if s.parent == "dead" or s.private:
            return
        if 1 not in s.held and s.parent != "done":
            yield "thread attaches block 1", hold(s, 1, P)._replace(held=(*s.held, 1))
        for b in s.held:
            yield f"thread releases block {b}", release(s, b, P)._replace(held=tuple(x for x in s.held if x != b))

    # -- the child -------------------------------------------------------------------------------------------------

    def be_child(self, s: State) -> Iterator[Step]:
        pc, now = s.child, s.slots[1]
        if pc == "born" and not self.mortal:
            if s.mine[0] in (s.registered, s.queue):
                yield "child sends HELLO", s._replace(hello=True, child="holding")
            else:
                yield "child cannot send HELLO: it holds nothing", s._replace(child="fenced", child_held=(), ends=())
        elif pc == "born":
            expected = now.state == EMBRYO and now.parent == P
            if self.keeps("slot-generation"):
                expected = expected and now.generation == s.mine[0]
            if expected or not self.keeps("swap"):
                yield (
                    "child swaps its slot to CLIENT",
                    s._replace(slots=put(s.slots, 1, Slot(CLIENT, NOBODY, s.mine[0])), child="taken"),
                )
            else:
                yield "child finds its slot gone: it holds nothing", s._replace(child="fenced", child_held=())
        elif pc == "taken":
            sent = s.manager != "dead" and s.mine[0] in (s.registered, s.queue)
            yield "child sends HELLO", s._replace(hello=sent, child="holding")
        elif pc == "holding":
            missing = [b for b in s.child_held if (b, E) not in s.words]
            if missing and not self.keeps("prepare-holds"):
                if not any(w[0] == missing[0] for w in s.words):
                    yield "child runs", s._replace(child="running")  # the block has been given to somebody else
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

    # -- the manager -----------------------------------------------------------------------------------------------

    def manage(self, s: State) -> Iterator[Step]:
        """A manager acts on what it has read, on pidfds and on the slots; a new one has only the last two."""
        if s.manager == "dead":
            yield "a new manager starts", s._replace(manager="idle")
            return
        if s.queue:
            yield "manager reads EMBRYO", s._replace(queue=0, registered=s.queue)
        if s.registered and s.hello:
            n = s._replace(hello=False, known=True)
            if not self.mortal:
                n = n._replace(slots=put(s.slots, 1, Slot(CLIENT, NOBODY, s.mine[0])))
            yield "manager reads HELLO", n
        parent, slot = s.slots
        drained = not s.queue or not self.keeps("drain-first")
        if s.parent == "dead" and parent.state == CLIENT and s.next == "unborn" and drained:
            yield "manager marks the parent dead", s._replace(slots=put(s.slots, 0, parent._replace(state=DEAD)))
        registered = s.registered and (s.registered == slot.generation or not self.keeps("message-generation"))
        over = registered and not s.ends and not s.known and (not s.hello or not self.keeps("hello-first"))  # EOF
        orphan = not registered and (slot.parent != P or parent.state != CLIENT)
        orphan = orphan and drained
        if slot.state == EMBRYO and (over or orphan):
            yield f"manager swaps the embryo to DEAD ({'EOF' if over else 'its parent is dead'})", self.die(s)
        watched = s.child == "dead" or (over and not self.keeps("hello-first"))
        if slot.state == CLIENT and watched:  # by its pidfd, or by pid and start time in the slot
            yield "manager marks the child dead", self.die(s)
        for index, x in ((P, parent), (E, slot)):
            if x.state == DEAD:
                mine = [b for b, owner in s.words if owner == index]
                if mine:
                    yield f"manager releases block {mine[0]} of slot {index}", release(s, mine[0], index)
                elif index == E or slot.state != EMBRYO or not self.keeps("embryo-first"):  # it outlives its embryos
                    n = s._replace(slots=put(s.slots, index - 1, x._replace(state=FREE)))
                    yield f"manager frees slot {index}", n

    def die(self, s: State) -> State:
        return s._replace(slots=put(s.slots, 1, s.slots[1]._replace(state=DEAD)), registered=0)

    def hang_up(self, s: State) -> Iterator[Step]:
        """Any reason to close a live client's connection: a malformed message, no descriptors left, a full queue."""
        if not self.mortal and s.parent != "dead" and not s.dropped and (not s.queue or not self.keeps("drain-first")):
            yield (
                "manager closes the parent's connection",
                s._replace(dropped=True, queue=0, hello=s.hello and not s.queue),
            )

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
        if s.child == "running":  # before, only the fork hook has run in it
            for b in s.child_held:
                if (b, E) not in s.words:
                    return f"use after free: the child relies on block {b} and has no hold of it"
        if any((b, P) not in s.words for b in s.held):
            return "use after free: the parent's hold is gone"
        slot = s.slots[1]
        if s.next == "claimed" and slot != Slot(EMBRYO, P, s.mine[1]):
            return f"the slot of another's embryo was taken: it says {slot.state}"
        takers = ("taken", "holding", "running")
        waiting = not self.mortal and s.hello and slot == Slot(EMBRYO, P, s.mine[0])
        if s.child in takers and slot != Slot(CLIENT, NOBODY, s.mine[0]) and not waiting:
            return f"the slot of a live child says {slot.state}"
        if s.parent in ("claimed", "holding", "after") and s.child == "unborn" and slot.state != EMBRYO:
            return f"the slot of a fork under way says {slot.state}"
        if s.child == "fenced" and not s.replaced and not s.dropped:
            return "a child was refused its slot though no manager died or hung up"
        return self.leak(s) if not any(True for _ in self.manage(s)) else None

    def leak(self, s: State) -> str | None:
        """With nothing left for the manager to do, the dead have nothing."""
        if s.parent == "dead" and any(owner == P for _, owner in s.words):
            return "leak: the dead parent holds a block"
        over = s.child == "dead" or s.child == "fenced" or (s.child == "unborn" and s.parent in ("dead", "done"))
        if not over or s.next == "claimed" or s.parent in ("half", "claimed", "holding", "after"):
            return None
        if s.slots[1].state == EMBRYO and s.replaced and s.parent != "dead":
            return None  # stays until the parent ends: the new manager cannot know that there is no child
        if s.slots[1].state != FREE:
            return f"leak: the slot of no child says {s.slots[1].state}"
        if any(owner == E for _, owner in s.words):
            return "leak: a free slot holds a block"
        return None


class Failover(Forking):
    """The same with a manager that may die with all it had read; a new one has only the slots and the pidfds."""

    safeguards = (*Forking.safeguards, "swap", "slot-generation", "message-generation")
    mortal = True


def hold(s: State, block: int, slot: int) -> State:
    return s._replace(words=tuple(sorted({*s.words, (block, slot)})))


def release(s: State, block: int, slot: int) -> State:
    return s._replace(words=tuple(w for w in s.words if w != (block, slot)))
