"""Model (n): a session of two ends over many connections. Mirrors shmtensor/channel/session.py and channel/link.

One direction carries messages, the other their acknowledgements. A connection is two queues of frames. Either side may
lose it, and the frames under way to that side are then lost. The state that a link process keeps in shared memory
(`window`, `sent`, `put`) is exact after a kill, as `moves` and `moves-in` prove.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from explore import Model, State, Step, put


class Connection(NamedTuple):
    """`c`, `l`: its state at the connected and at the listening end. `up`: frames to the latter; `down`: back."""

    c: str  # "hello": waits for WELCOME | "up" | "closed"
    l: Any  # "new": waits for HELLO | (session, received): answered, not used yet | "up" | "closed"  # noqa: E741
    up: Any
    down: Any


class Sender(NamedTuple):
    """The messages moved into the window and those acknowledged; the other fields belong to this connection."""

    acknowledged: int = 0
    last: int = 0
    next: int = 1
    sent: int = 0
    credit: int = 0
    limit: int = 0


class Receiver(NamedTuple):
    """`arrived`: messages without room; `bytes`: received on this connection; `said`: the last ACK."""

    put: int = 0
    accepted: int = 0
    arrived: Any = ()
    bytes: int = 0
    said: Any = None
    touched: bool = False
    seen: int = 0  # messages taken from the ring, before it was last found full
    watch: Any = None  # told when more than so many were taken


class Situation(NamedTuple):
    kills: int
    dropped: bool  # the listening end has given the session up
    connections: Any
    incarnation: int  # of the connected end
    welcomed: int  # the session that its first WELCOME named; 0: there was none
    lost: bool
    mine: Any  # the connection of the connected end
    known: Any  # the incarnation that the listening end knows, if it has a session
    session: int  # of the listening end: numbers that were given out
    peer: Any  # the connection that the listening end uses
    sender: Sender
    receiver: Receiver
    inside: int  # messages in the receiver's ring
    taken: int  # from it
    asked: int  # messages that its users have asked for
    got: Any  # ghost: (incarnation, number) of the last message that was put
    wrong: str


class Session(Model):
    """The connected end puts, the listening end receives into a bounded ring, from which local users take.

    A kill is also: a connection that is lost, at either side; silence, after which the listening end gives the session
    up; a connected end of a named stream whose memory is lost and which begins anew.

    Checked: messages are put in order, each once; no more are under way than the receiver allows; neither side reports
    an error of the other; nothing stops before all messages have arrived and the window is empty, or the connected end
    knows that the session was given up. Beats are left out: they would hide a wait without an event.
    """

    safeguards: tuple[str, ...] = (
        "duplicates",
        "ack-put",
        "window",
        "credit",
        "limit",
        "credit-reset",
        "old-closed",
        "room-seen",
        "incarnation",
        "older",
        "wait-old",
        "resumes",
        "resumes-number",
        "use-session",
    )
    alternatives = ("acknowledged by ACK only", "large window")
    puts = True  # the connected end sends
    messages = 2
    bound = 1  # of the ring, of a listening end that receives
    slots = 2  # connections

    def __init__(self, kills: int, without: str | None = None) -> None:
        super().__init__(kills, without)
        self.is_large = without in ("large window", "limit", "duplicates")  # then it is the limit that binds
        self.window = 3 if self.is_large else 1  # messages

    def start(self) -> State:
        return Situation(
            kills=0,
            dropped=False,
            connections=(None,) * self.slots,
            incarnation=1,
            welcomed=0,
            lost=False,
            mine=None,
            known=None,
            session=0,
            peer=None,
            sender=Sender(),
            receiver=Receiver(),
            inside=0,
            taken=0,
            asked=0,
            got=(1, 0),
            wrong="",
        )

    def steps(self, s: State) -> Iterator[Step]:
        yield from self.quiet(s)
        if s.kills < self.kills:
            for what, n in self.faults(s):
                yield what, n._replace(kills=s.kills + 1)

    def quiet(self, s: State) -> Iterator[Step]:
        """The steps without faults."""
        if s.mine is None and not s.lost and None in s.connections:
            k = s.connections.index(None)
            hello = ("HELLO", s.incarnation, s.welcomed, s.receiver.put)
            n = s._replace(mine=k, connections=put(s.connections, k, Connection("hello", "new", (hello,), ())))
            yield f"connected end connects ({k})", n
        for k, c in enumerate(s.connections):
            if c is None:
                continue
            if c.up and (c.l in ("new", "up")):
                frame = c.up[0]
                n = self.at(s, k, c._replace(up=c.up[1:]))
                done = self.answer(n, k, *frame[1:]) if frame[0] == "HELLO" else self.frame(n, *frame)
                if done is not None:
                    yield f"listening end reads {frame} ({k})", done
            if isinstance(c.l, tuple):
                yield f"listening end uses {k}", self.use(s, k, *c.l)
            if c.down and c.c != "closed":
                frame = c.down[0]
                n = self.at(s, k, c._replace(down=c.down[1:]))
                done = self.frame(n, *frame) if c.c == "up" else self.answered(n, k, *frame)
                yield f"connected end reads {frame} ({k})", done
            if c.c == "closed":
                yield f"listening end sees the end of {k}", self.close_l(s, k)
            elif c.l == "closed":
                yield f"connected end sees the end of {k}", self.close_c(s, k)
        yield from self.send(s)
        yield from self.acknowledge(s)
        yield from self.users(s)
        if s.receiver.watch is not None and s.taken != s.receiver.watch:
            yield "receiver sees that one was taken", self.has_room(s)

    def users(self, s: State) -> Iterator[Step]:
        """The steps of the receiver's processes."""
        if s.inside:
            yield "a message is taken from the ring", s._replace(inside=s.inside - 1, taken=s.taken + 1)

    # -- connections -----------------------------------------------------------------------------------------------

    @staticmethod
    def at(s: State, k: int, c: Connection) -> State:
        gone = c.c == "closed" and c.l == "closed"
        return s._replace(connections=put(s.connections, k, None if gone else c))

    def close_c(self, s: State, k: int) -> State:
        n = self.at(s, k, s.connections[k]._replace(c="closed", down=()))
        return n._replace(mine=None) if s.mine == k else n

    def close_l(self, s: State, k: int) -> State:
        n = self.at(s, k, s.connections[k]._replace(l="closed", up=()))
        return n._replace(peer=None) if s.peer == k else n

    def answer(self, s: State, k: int, incarnation: int, resumes: int, received: int) -> State | None:
        """The listening end answers HELLO; None: it waits until it sees the end of the connection before."""
        c = s.connections[k]
        refuse = self.at(s, k, c._replace(l="closed", up=(), down=(("REFUSE",),)))
        if s.known is not None and incarnation < s.known and self.keeps("older"):
            return refuse
        if s.known is None or (s.known != incarnation and self.keeps("incarnation")):
            if s.peer is not None:
                return None if self.keeps("wait-old") else refuse
            if resumes and self.keeps("resumes"):
                return refuse
            s = self.begin(s, incarnation)
        elif resumes not in (0, s.session) and self.keeps("resumes") and self.keeps("resumes-number"):
            return refuse
        if not self.puts and not s.sender.acknowledged <= received <= s.sender.last:
            return refuse
        return self.at(s, k, c._replace(l=(s.session, received), down=(("WELCOME", s.receiver.put, s.session),)))

    def begin(self, s: State, incarnation: Any) -> State:
        """The listening end begins a session in a new row, and has dropped the former session."""
        s = s._replace(known=incarnation, session=s.session + (incarnation is not None))
        return s._replace(receiver=Receiver()) if self.puts else s._replace(sender=Sender())

    def use(self, s: State, k: int, session: int, received: int) -> State:
        if s.known is None or (s.session != session and self.keeps("use-session")):
            return self.close_l(s, k)
        if s.peer is not None and self.keeps("old-closed"):
            s = self.close_l(s, s.peer)
        if not self.puts and not s.sender.acknowledged <= received <= s.sender.last:  # it was answered long ago
            return self.close_l(s, k)
        s = self.at(s, k, s.connections[k]._replace(l="up"))._replace(peer=k)
        return self.connected(s, receives=self.puts, received=received)

    def answered(self, s: State, k: int, kind: str, received: int = 0, session: int = 0) -> State:
        """The connected end reads WELCOME or REFUSE."""
        if kind == "REFUSE":
            return self.lose(s, k, "the session is refused, which the listening end did not give up")
        if self.puts and not s.sender.acknowledged <= received <= s.sender.last:
            return self.lose(s, k, f"the listening end has received message {received} of {s.sender.last}")
        s = self.at(s, k, s.connections[k]._replace(c="up"))._replace(welcomed=s.welcomed or session)
        return self.connected(s, receives=not self.puts, received=received)

    def lose(self, s: State, k: int, why: str) -> State:
        """The connected end is lost, as it must be if the listening end has given the session up."""
        return self.close_c(s, k)._replace(lost=True) if s.dropped else s._replace(wrong=why)

    def connected(self, s: State, receives: bool, received: int) -> State:
        """One side uses a new connection."""
        if receives:
            return s._replace(receiver=s.receiver._replace(bytes=0, said=None, touched=True))
        one = s.sender
        if self.keeps("credit-reset"):
            one = one._replace(sent=0, credit=0)
        if self.without != "acknowledged by ACK only":
            one = one._replace(acknowledged=max(received, one.acknowledged))
        return s._replace(sender=one._replace(next=one.acknowledged + 1, limit=0))

    # -- messages --------------------------------------------------------------------------------------------------

    def way(self, s: State, of_sender: bool) -> tuple[Any, str]:
        """(the connection that a side uses, the field of the frames that it sends)."""
        if of_sender == self.puts:
            return s.mine if s.mine is not None and s.connections[s.mine].c == "up" else None, "up"
        return s.peer, "down"

    def push(self, s: State, k: int, field: str, frame: Any) -> State:
        c = s.connections[k]
        if (c.l if field == "up" else c.c) == "closed":
            return s
        return self.at(s, k, c._replace(**{field: (*getattr(c, field), frame)}))

    def send(self, s: State) -> Iterator[Step]:
        k, field = self.way(s, of_sender=True)
        one = s.sender
        may = one.sent < one.credit or not self.keeps("credit")
        if k is None or not may or (one.next > one.limit and (self.keeps("limit") or one.limit == 0)):
            return
        if one.next > self.messages:
            return
        incarnation = s.incarnation if self.puts else s.known
        after = one._replace(last=max(one.last, one.next), next=one.next + 1, sent=one.sent + 1)
        if not self.keeps("window"):
            after = after._replace(acknowledged=one.next)
        yield f"sender sends {one.next}", self.push(s._replace(sender=after), k, field, ("DATA", one.next, incarnation))

    def frame(self, s: State, kind: str, number: int, *rest: Any) -> State:
        """A side reads a frame."""
        if kind == "ACK":
            one, (credit, limit) = s.sender, rest
            if not one.acknowledged <= number <= one.last and self.keeps("window"):
                return s._replace(wrong=f"message {number} is acknowledged: not {one.acknowledged} to {one.last}")
            acknowledged = max(number, one.acknowledged)
            behind = max(one.next, acknowledged + 1)
            return s._replace(
                sender=one._replace(acknowledged=acknowledged, next=behind, credit=max(one.credit, credit), limit=limit)
            )
        to = s.receiver
        if number > to.accepted + 1:
            return s._replace(wrong=f"message {number} came after message {to.accepted}")
        to = to._replace(bytes=to.bytes + 1, touched=True)
        if number == to.accepted + 1 or not self.keeps("duplicates"):
            arrived = (*to.arrived, (rest[0], number))
            to = to._replace(accepted=max(to.accepted, number), arrived=arrived)
        return self.deliver(s._replace(receiver=to))

    def deliver(self, s: State) -> State:
        """Put what has arrived into the ring, as far as there is room."""
        to = s.receiver._replace(seen=s.taken)
        arrived, inside, got, wrong = list(to.arrived), s.inside, s.got, s.wrong
        while arrived and (not self.puts or inside < self.bound):
            incarnation, number = arrived.pop(0)
            follows = (got[0], got[1] + 1) if incarnation == got[0] else (max(incarnation, got[0]), 1)
            if (incarnation, number) != follows:
                wrong = f"message {number} of incarnation {incarnation} was put after message {got[1]} of {got[0]}"
            got, inside = (incarnation, number), inside + 1
        to = to._replace(arrived=tuple(arrived), put=to.put + len(to.arrived) - len(arrived))
        return s._replace(receiver=to, inside=inside, got=got, wrong=wrong)

    def acknowledge(self, s: State) -> Iterator[Step]:
        k, field = self.way(s, of_sender=False)
        to = s.receiver
        if k is None or not to.touched:
            return
        said, watch = self.allowance(s)
        s = s._replace(receiver=to._replace(touched=False, said=said, watch=watch))
        yield (
            f"receiver says {said}" if said != to.said else "receiver has nothing new to say",
            self.push(s, k, field, ("ACK", *said)) if said != to.said else s,
        )

    def allowance(self, s: State) -> tuple[Any, Any]:
        """The content of an ACK, and whether to be told of room."""
        to = s.receiver
        watch = to.watch
        if to.arrived:
            watch = to.seen if self.keeps("room-seen") else s.taken
        number = to.put if self.keeps("ack-put") else to.accepted
        return (number, to.bytes - len(to.arrived) + self.window, to.put + self.bound), watch

    def has_room(self, s: State) -> State:
        s = self.deliver(s._replace(receiver=s.receiver._replace(watch=None)))
        return s._replace(receiver=s.receiver._replace(touched=True))

    # -- faults ----------------------------------------------------------------------------------------------------

    def faults(self, s: State) -> Iterator[Step]:
        for k, c in enumerate(s.connections):
            if c and c.c != "closed":
                yield f"LOST to the connected end: {k}", self.close_c(s, k)
            if c and c.l != "closed":
                yield f"LOST to the listening end: {k}", self.close_l(s, k)
        n = s if s.mine is None else self.close_c(s, s.mine)
        yield "KILL link of the connected end", self.forget(n, receives=not self.puts)
        yield from self.begin_anew(n)
        n = s
        for k, c in enumerate(s.connections):
            if c and c.l != "closed":
                n = self.close_l(n, k)
        yield "KILL link of the listening end", self.forget(n, receives=self.puts)
        if s.known is not None and s.peer is None and not s.dropped:
            yield "SILENCE: listening end gives the session up", self.begin(s, None)._replace(dropped=True)

    def forget(self, s: State, receives: bool) -> State:
        """The memory of a link process is gone."""
        if receives:
            return s._replace(receiver=Receiver(put=s.receiver.put, accepted=s.receiver.put))
        one = s.sender
        return s._replace(sender=Sender(one.acknowledged, one.last, one.acknowledged + 1))

    def begin_anew(self, s: State) -> Iterator[Step]:
        if s.incarnation == 1:
            n = s._replace(incarnation=2, welcomed=0, lost=False)
            if self.puts:
                n = n._replace(sender=Sender())
            else:
                n = n._replace(receiver=Receiver(), inside=0, taken=0, asked=0, got=(2, 0))
            yield "LOST memory of the connected end, which begins anew", n

    # -- what must hold --------------------------------------------------------------------------------------------

    def under_way(self, s: State) -> int:
        """Messages that the receiver may still get on its connections."""
        field, side = ("up", "l") if self.puts else ("down", "c")
        open_ = [c for c in s.connections if c and getattr(c, side) == "up"]
        return sum(frame[0] == "DATA" for c in open_ for frame in getattr(c, field))

    def broken(self, s: State) -> str | None:
        if s.wrong:
            return str(s.wrong)
        if self.too_much(s):
            return "more is under way than the receiver allows"
        same = s.known == s.incarnation and not s.dropped
        if same and self.too_many(s):
            return "the sender has taken more messages than it may"
        if next(self.quiet(s), None) is None and not s.lost:
            one, to = s.sender, s.receiver
            if not one.acknowledged == one.last == to.put == self.messages or s.got[1] != self.messages:
                return f"stuck: {to.put} messages were put, and {one.acknowledged} of {one.last} are acknowledged"
        return None

    def too_much(self, s: Situation) -> bool:
        return len(s.receiver.arrived) + self.under_way(s) > self.window

    def too_many(self, s: Situation) -> bool:
        return s.sender.last > s.receiver.put + self.bound


class Fetching(Session):
    """The listening end sends, and the connected end fetches messages that its users ask for, and some more.

    Its ring has no bound; the messages in it count against the credit instead. A user who asks tells the link only if
    few messages are in the ring.
    """

    safeguards = (
        "window",
        "credit",
        "limit",
        "credit-reset",
        "old-closed",
        "watch",
        "incarnation",
        "older",
        "wait-old",
        "use-session",
    )
    puts = False

    def __init__(self, kills: int, without: str | None = None) -> None:
        super().__init__(kills, without)
        self.prefetch = 1 if self.is_large else 2

    def users(self, s: State) -> Iterator[Step]:
        if s.asked < self.messages:
            told = s.receiver.touched or s.inside <= self.prefetch // 2
            n = s._replace(asked=s.asked + 1, receiver=s.receiver._replace(touched=told))
            yield "a user asks for a message", n
        if s.taken < s.asked:
            yield from super().users(s)

    def allowance(self, s: State) -> tuple[Any, Any]:
        to = s.receiver
        watch = s.taken if s.inside and self.keeps("watch") else to.watch
        limit = s.asked + self.prefetch - 1 if s.asked else 0
        return (to.put, to.bytes - s.inside + self.window, limit), watch

    def too_much(self, s: Situation) -> bool:
        return s.inside + self.under_way(s) > self.window

    def too_many(self, s: Situation) -> bool:
        return s.sender.last > s.asked + self.prefetch - 1
