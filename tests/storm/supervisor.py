"""The schedule of a storm: process, time and signal of each kill. Checks all waits; holds all shared objects.

The actions follow from the seed; their effects depend on where the processes are at that moment.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor.manager import client

from . import audit, content, probe, processes, roles
from . import board as notes
from .board import Board
from .crew import Crew, Member
from .stage import MOST_TAKEN, Journal, Stage

QUIET_EVERY: Final = 25
"""Kills between two quiet points."""
PROBE_EVERY: Final = 50
RELEASE_BOUND: Final = 1.0
"""Seconds until a dead client's memory is free. Those for which the manager had to wait for a core do not count."""
SLOTS_BOUND: Final = 12.0
"""Seconds until the slots of the dead are free: they wait until all are back with a new manager; memory does not."""
MANAGER_BOUND: Final = 1.0
"""Seconds until a request is answered after the manager was killed. Those for which the next one had to wait for a core
do not count, and as many again for its starter, which has gone: the machine may have other work. Time in which it
sleeps, computes or is locked out counts."""
PAUSE_BOUND: Final = 20.0
"""Seconds in which everybody rests at a quiet point."""
POSTED: Final = 6
"""Messages that nobody has received when the manager is restarted."""
_LOOK: Final = 0.02

SIGNALS: Final = {"SIGKILL": 0.6, "SIGSEGV": 0.12, "SIGTERM": 0.13, "SIGSTOP, SIGKILL": 0.15}
MOMENTS: Final = {"any": 0.35, "just after an operation began": 0.45, "inside a lock": 0.2}


@dataclass
class Findings:
    """What a storm did and what was seen. Times in seconds."""

    kills: Counter[str] = field(default_factory=Counter)
    """By role."""
    signals: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    stops: int = 0
    """Processes stopped and continued."""
    releases: list[float] = field(default_factory=list)
    managers: list[float] = field(default_factory=list)
    """From the kill of a manager to the first answer of the next."""
    restarts: list[float] = field(default_factory=list)
    """Of managers, on purpose: until the command has returned."""
    quiet: list[audit.Holdings] = field(default_factory=list)
    stranded_bytes: int = 0
    stranded_blocks: int = 0
    late: list[str] = field(default_factory=list)
    """What took longer than its bound of a second."""
    overdue: int = 0
    """Waits past their bound."""
    inherited: list[int] = field(default_factory=list)
    """Bytes that workers of the pool held because their parent held them when it forked them."""
    probes: Counter[str] = field(default_factory=Counter)

    @property
    def killed(self) -> int:
        return self.kills.total()


class Supervisor:
    """One storm, from the first process to the last quiet point."""

    def __init__(self, cast: tuple[str, ...], board: Board, journal: Journal, seed: int, pace: float) -> None:
        self.choose = random.Random(seed)
        self.board = board
        self.journal = journal
        self.findings = Findings()
        self.stage = Stage.build(journal.directory)
        self.manager = client.default()
        self.manager_pid = self.manager.stats().pid
        processes.adopt_orphans()
        self.crew = Crew(cast, self.stage, board, journal, self.choose, pace)
        self._points = 0
        self._overdue: set[tuple[int, int]] = set()
        self._watched = 0.0

    # ---------------------------------------------------------------------------------------------------------- course

    def start(self) -> None:
        """Everybody begins, and a first quiet point says what the living hold. Blocks some seconds."""
        self.crew.restart()
        self.quiet()

    def storm(self, kills: int, manager_kills: int, restarts: int, tell: Callable[[str], None]) -> None:
        """Kill and stop until `kills` have been killed, `manager_kills` of them managers. Blocks.

        Args:
            restarts: how often the manager is restarted on purpose meanwhile.
        """
        managers_at = {round((i + 0.5) * kills / manager_kills) for i in range(manager_kills)}
        restarts_at = Counter(int((i + 0.25) * kills / restarts) for i in range(restarts))
        while (killed := self.findings.killed) < kills:
            for _ in range(restarts_at.pop(killed, 0)):
                self.restart_manager()
            if killed in managers_at:
                managers_at.discard(killed)
                self.kill_manager()
            else:
                self.step()
            if self.findings.killed == killed:
                continue
            if (killed + 1) % PROBE_EVERY == 0 or killed + 1 == kills // 2:
                self.probe()
            if (killed + 1) % QUIET_EVERY == 0 or killed + 1 == kills:
                self.quiet()
                tell(self.line())

    def line(self) -> str:
        """How far it is."""
        return (
            f"{self.findings.killed} kills, {self.board.total(notes.VERIFIED)} messages verified, "
            f"{len(self.journal.problems())} problems, {len(self.findings.late)} late"
        )

    def step(self) -> None:
        """One thing that happens to somebody."""
        self.idle(self.choose.uniform(0, 0.02))
        roll = self.choose.random()
        member = self.choose.choice(self.crew.members)
        if roll < 0.08:
            self.kill_child()
        elif member.process is None:
            pass  # its place is not filled again yet
        elif roll < 0.2:
            self.stop(member, self.choose.uniform(0, 0.15))
        else:
            self.kill(member)

    def end(self) -> None:
        """Everybody rests, then leaves in order; who does not is a problem."""
        self.quiet(is_last=True)
        for member in self.crew.living():
            self.terminate(member)
        self.wait_until(lambda: not self.strangers(), 10.0, "children of those who left to end")

    # --------------------------------------------------------------------------------------------------------- watching

    def idle(self, seconds: float) -> None:
        """Watch for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.watch()
            time.sleep(min(left, _LOOK))

    def wait_until(self, condition: Callable[[], Any], bound: float, what: str) -> bool:
        """Watch until `condition()` is true; gives whether it was. A problem if it is not within the bound."""
        until = time.monotonic() + bound
        while not condition():
            if time.monotonic() > until:
                self.journal.problem(f"waited {bound:g} s for {what}")
                return False
            self.watch()
            time.sleep(0.005)
        return True

    def watch(self) -> None:
        """Look for waits past their bound, for who ended of itself, and fill places again."""
        now = time.monotonic()
        if now - self._watched < _LOOK:
            return
        self._watched = now
        for member in self.crew.living():
            for row in member.rows:
                bound = notes.OPERATIONS[operation := row[notes.OPERATION]].bound
                if bound and row.waited() > bound * notes.SECOND:
                    name = notes.OPERATIONS[operation].name
                    if (row.number, row[notes.SERIAL]) not in self._overdue:
                        self._overdue.add((row.number, row[notes.SERIAL]))
                        self.findings.overdue += 1
                        self.journal.problem(
                            f"hang: {member} waits for more than {bound:g} s in {name}\n{audit.where(member)}"
                        )
            if not member.process.is_alive():
                name = str(member)
                self.journal.problem(f"{name} ended of itself with {self.crew.wait_for(member)}")
                self.adopt(member, [])
        self.crew.reap_strangers()
        self.crew.restart()

    def strangers(self) -> list[int]:
        """Children of this process that are neither in the crew, nor a manager or a server of the standard library."""
        self.crew.reap_strangers()
        known = {member.process.pid for member in self.crew.living()}
        return [
            pid
            for pid in processes.children(os.getpid())
            if pid not in known
            and processes.is_running(pid)
            and "shmtensor.manager" not in (words := processes.command(pid))
            and "resource_tracker" not in words
        ]

    # ----------------------------------------------------------------------------------------------------------- kills

    def kill(self, member: Member) -> None:
        """Kill a process at some moment with some signal, see that its memory becomes free, and fill its place."""
        chosen = self.choose.choices(list(SIGNALS), list(SIGNALS.values()))[0]
        moment = self.choose.choices(list(MOMENTS), list(MOMENTS.values()))[0]
        delay = self.choose.uniform(0, 500e-6)
        users = self.choose.choice(list(roles.USERS))
        is_stopped = False
        with self.board.halt():
            if moment == "just after an operation began":
                self.await_operation(member, delay)
            elif moment == "inside a lock":
                hit = self.stop_inside([other for other in self.crew.living() if other.role in roles.USERS[users]])
                is_stopped = hit is not None
                if hit is not None:
                    member, moment = hit, f"inside a {users}'s lock" if users == "queue" else moment
                else:
                    moment = "any"
            pid = member.process.pid
            if chosen == "SIGSTOP, SIGKILL" and not is_stopped:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(delay * 50)
            if chosen == "SIGTERM" and not is_stopped and member.is_polite and member.row[notes.READY]:
                self.terminate(member)
                after = time.monotonic()
            else:
                children = processes.children(pid) if member.role in roles.PARENTS else []
                after = time.monotonic()
                os.kill(pid, signal.SIGTERM if chosen == "SIGTERM" else
                        signal.SIGSEGV if chosen == "SIGSEGV" else signal.SIGKILL)  # fmt: skip
                if is_stopped and chosen in ("SIGTERM", "SIGSEGV"):
                    os.kill(pid, signal.SIGCONT)
                self.crew.wait_for(member)
                self.adopt(member, children)
        self.findings.kills[member.role] += 1
        self.findings.signals[chosen] += 1
        self.findings.moments[moment] += 1
        numbers = member.row.pledged()
        if numbers is not None and member.role not in roles.PARENTS:
            self.await_release(member, numbers, after)
        self.crew.restart()

    def terminate(self, member: Member) -> None:
        """SIGTERM, and see that the process ends, whatever it is doing."""
        leaving = member.rows[-1]
        children = processes.children(member.process.pid)
        with leaving.doing(notes.LEAVE):
            os.kill(member.process.pid, signal.SIGTERM)
            member.process.join(notes.OPERATIONS[notes.LEAVE].bound)
        if member.process.exitcode is None:
            self.findings.overdue += 1
            self.journal.problem(f"hang: {member} does not end on SIGTERM\n{audit.where(member)}")
            os.kill(member.process.pid, signal.SIGKILL)
        elif member.process.exitcode not in (0, -signal.SIGTERM):
            self.journal.problem(f"{member} ended with {member.process.exitcode} on SIGTERM")
        self.crew.wait_for(member)
        self.adopt(member, children)

    def adopt(self, member: Member, children: list[int]) -> None:
        """Wait for the children of one who has ended before its place is filled; those of no other place are its."""
        others = {pid for other in self.crew.members if other is not member for pid in other.orphans}
        member.orphans = [pid for pid in {*children, *self.strangers()} if pid not in others]

    def kill_child(self) -> None:
        """A worker of the pool, or a forked child."""
        parents = [member for member in self.crew.living() if member.role in roles.PARENTS]
        found = [(member, pid) for member in parents for pid in processes.children(member.process.pid)]
        if not found:
            return
        member, pid = self.choose.choice(found)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.findings.kills["pool's worker" if member.role == "pool" else "forked child"] += 1
        self.findings.signals["SIGKILL"] += 1
        self.findings.moments["any"] += 1

    def await_operation(self, member: Member, delay: float) -> None:
        """Until the process begins something new, and a little longer; not for ever."""
        row, pid = self.choose.choice(member.resting_rows), member.process.pid
        before = row[notes.SERIAL]
        until = time.monotonic() + 0.02
        while row[notes.SERIAL] == before and time.monotonic() < until and processes.is_running(pid):
            time.sleep(20e-6)
        until = time.monotonic() + delay
        while time.monotonic() < until:
            pass

    def stop_inside(self, members: list[Member]) -> Member | None:
        """Stop one of them while it has a lock, and leave it stopped; None: none was hit for a while."""

        def is_inside(member: Member) -> bool:
            if member.role == "trainer":
                return bool(member.row[notes.INSIDE])
            stats = self.stage.work.stats()
            return member.process.pid in (stats.put_lock_pid, stats.get_lock_pid)

        until = time.monotonic() + 0.15
        while time.monotonic() < until:
            for member in members:
                if is_inside(member):
                    os.kill(member.process.pid, signal.SIGSTOP)
                    os.waitid(os.P_PID, member.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
                    if is_inside(member):
                        return member
                    os.kill(member.process.pid, signal.SIGCONT)
        return None

    def stop(self, member: Member, seconds: float) -> None:
        """Stop a process for a while; the others' waits with a timeout must end in time."""
        with self.board.halt(member.row):
            os.kill(member.process.pid, signal.SIGSTOP)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                time.sleep(_LOOK / 2)
            os.kill(member.process.pid, signal.SIGCONT)
        self.findings.stops += 1

    def await_release(self, member: Member, numbers: tuple[int, int, int], after: float) -> None:
        """Until the block that the dead process held can be attached no more."""
        queued = processes.queued(self.manager_pid)
        while True:
            try:
                self.manager.attach(*numbers)
            except (errors.StaleHandle, errors.UnknownHandle):
                break
            except errors.ManagerError:
                pass  # it was killed just now, and the segment not mapped here yet
            if time.monotonic() - after > 5 * RELEASE_BOUND:
                self.journal.problem(
                    f"the block that {member} held is not free {5 * RELEASE_BOUND:g} s after its death"
                )
                break
            self.watch()
            time.sleep(0.0005)
        self.findings.releases.append(time.monotonic() - after)
        queued = processes.queued(self.manager_pid) - queued
        if self.findings.releases[-1] - queued > RELEASE_BOUND:
            self.findings.late.append(
                f"a dead process's memory was free after {self.findings.releases[-1]:.2f} s, for {queued:.2f} s of "
                "which the manager waited for a core"
            )

    def kill_manager(self) -> None:
        """Kill the manager, and measure until the next one answers."""
        self.idle(self.choose.uniform(0, 0.05))
        os.kill(self.manager_pid, signal.SIGKILL)
        after = time.monotonic()
        while True:
            processes.reap(self.manager_pid)
            try:
                self.manager = client.default()
                pid = self.manager.stats().pid
            except errors.ManagerError as problem:
                if time.monotonic() - after > 10 * MANAGER_BOUND:
                    self.journal.problem(f"no manager answers {10 * MANAGER_BOUND:g} s after one was killed: {problem}")
                    raise
                time.sleep(0.001)
                continue
            if pid != self.manager_pid:
                break
        self.manager_pid = pid
        self.findings.managers.append(time.monotonic() - after)
        self.findings.kills["manager"] += 1
        self.findings.signals["SIGKILL"] += 1
        self.findings.moments["any"] += 1
        queued = processes.queued(pid)
        if self.findings.managers[-1] - 2 * queued > MANAGER_BOUND:
            self.findings.late.append(
                f"the next manager answered after {self.findings.managers[-1]:.2f} s, for {queued:.2f} s of which it "
                "waited for a core"
            )

    def restart_manager(self) -> None:
        """Restart the manager while nobody but it has what an ended process sent; then receive that."""
        self.idle(self.choose.uniform(0, 0.05))
        seed = self.choose.randrange(2**32)
        sender = mp.get_context("fork").Process(target=roles.post, args=(self.stage.mail, seed, POSTED))
        sender.start()
        sender.join(PAUSE_BOUND)
        if sender.exitcode != 0:
            sender.kill()
            self.journal.problem(f"who was to send and leave ended with {sender.exitcode}")
        began = time.monotonic()
        command = [sys.executable, "-m", "shmtensor.manager", "restart"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PAUSE_BOUND, check=False)
        self.findings.restarts.append(time.monotonic() - began)
        if done.returncode:
            self.journal.problem(f"restart: {done.stderr.strip()}")
        for number, kind, size in roles.posted(seed, POSTED):
            try:
                found, value = self.stage.mail.get(timeout=PAUSE_BOUND)
            except (mp.queues.Empty, errors.ShmTensorError) as problem:
                self.journal.problem(f"a message sent before a restart of the manager: {problem!r}")
                continue
            if found != number or content.wrong_bytes(number, kind, size, value):
                self.journal.problem(f"a message sent before a restart of the manager: {found:#x}, not {number:#x}")
            del value
        self.manager_pid = self.manager.stats().pid

    # ---------------------------------------------------------------------------------------------------- quiet points

    def probe(self) -> None:
        """Stop somebody who has a lock; timeouts and Ctrl-C still work for the others, and the manager goes on."""
        trainers = [member for member in self.crew.living() if member.role == "trainer" and member.row[notes.READY]]
        if not trainers:
            return
        with self.board.halt():
            owner = None
            for _ in range(5):
                if owner is None:
                    owner = self.stop_inside(trainers)
            if owner is None:
                return
            start = time.monotonic_ns()
            try:
                if not owner.row[notes.INSIDE]:
                    return
                probe.run(mp.get_context("fork"), self.stage.lock, self.journal)
                asked = time.monotonic()
                self.manager.stats()
                if time.monotonic() - asked > probe.SLACK:
                    self.journal.problem(
                        f"the manager took {time.monotonic() - asked:.1f} s with a lock's owner stopped"
                    )
                self.findings.probes["lock's owner stopped"] += 1
            finally:
                os.kill(owner.process.pid, signal.SIGCONT)
                owner.row[notes.OWN_HALT] += time.monotonic_ns() - start

    def quiet(self, is_last: bool = False) -> None:
        """All rest, and what lives is compared with what the living hold. They go on unless it is the last time."""
        if not self.wait_until(self.crew.is_complete, PAUSE_BOUND, "everybody to be there"):
            return
        self._points += 1
        cells = self.board.cells
        cells[notes.PAUSE] = self._points
        try:
            # Those who send have whom they wait for still; those who receive have not once the others rest.
            if self._rest(False):
                with self.board.halt():
                    if self._drain():
                        self._compare()
        finally:
            if not is_last:
                cells[notes.PAUSE] = cells[notes.DRAIN] = 0

    def _rest(self, draining: bool) -> bool:
        """Wait until those who send rest, or all; gives whether they do."""
        who = "all" if draining else "those who send"
        if self.wait_until(lambda: self._resting(draining), PAUSE_BOUND, f"{who} to rest"):
            return True
        self.journal.problem(f"not at rest: {self._missing()}")
        return False

    def _resting(self, draining: bool) -> bool:
        """Whether those who send (who receive, too) rest."""
        return all(
            row[notes.RESTING] == self._points
            for member in self.crew.members
            for place, row in enumerate(member.resting_rows)
            if draining or not (member.role == "consumer" or (member.role == "threads" and place == 2))
        )

    def _missing(self) -> str:
        return ", ".join(
            f"{member} row {place} ({notes.OPERATIONS[row[notes.OPERATION]].name})"
            for member in self.crew.members
            for place, row in enumerate(member.resting_rows)
            if row[notes.RESTING] != self._points
        )

    def _drain(self) -> bool:
        """Have those who receive take what is left, and rest; gives whether they do."""
        if not self.wait_until(lambda: not self.strangers(), PAUSE_BOUND, "children of the dead to end"):
            return False
        try:
            consumers = sum(member.role == "consumer" for member in self.crew.members)
            for _ in range(consumers):
                self.stage.work.put(roles.TOKEN, timeout=PAUSE_BOUND)
            if consumers:
                self.stage.news.put(roles.TOKEN, timeout=PAUSE_BOUND)  # who puts finds out which readers are dead
        except mp.queues.Full:
            self.journal.problem("a queue that is being emptied stays full")
            return False
        self.board.cells[notes.DRAIN] = self._points
        return self._rest(True)

    def _compare(self) -> None:
        """What lives now against what lived at the first quiet point. A release may take its second."""
        findings = self.findings
        for key in self.stage.objects:
            self.stage.objects.delete(key)
        self.stage.objects.expire()
        if not findings.quiet:
            self._renew_workers()
            time.sleep(RELEASE_BOUND)
            self.wait_until(
                lambda: audit.Holdings.of(self.manager).dead == 0,
                SLOTS_BOUND,
                "slots of the dead to be free",
            )
            findings.quiet.append(audit.Holdings.of(self.manager))
            return
        first = findings.quiet[0]
        now, _ = self._await_holdings(first, RELEASE_BOUND)
        if now != first:
            self._renew_workers()
            before = now
            now, seconds = self._await_holdings(first, SLOTS_BOUND)
            if now.nbytes < before.nbytes:
                findings.inherited.append(before.nbytes - now.nbytes)
            if now == first and seconds > RELEASE_BOUND:
                findings.late.append(f"what dead workers of the pool held was free after {seconds:.2f} s")
        findings.quiet.append(now)
        if now != first:
            self.journal.problem(f"at rest after {findings.killed} kills: {now}, and at first: {first}\n{now.detail}")
        findings.stranded_bytes = max(findings.stranded_bytes, now.nbytes - first.nbytes)
        findings.stranded_blocks = max(findings.stranded_blocks, now.blocks - first.blocks)

    def _await_holdings(self, expected: audit.Holdings, bound: float) -> tuple[audit.Holdings, float]:
        """What lives, once it is as expected, or after a while, and seconds until its memory was, `bound` at most."""
        began = time.monotonic()
        seconds = 0.0
        while (now := audit.Holdings.of(self.manager)) != expected:
            is_free = replace(now, dead=expected.dead) == expected
            waited = time.monotonic() - began
            if not is_free:
                seconds = waited
            if waited > (SLOTS_BOUND if is_free else bound):
                break
            time.sleep(0.01)
        return now, seconds

    def _renew_workers(self) -> None:
        """Have the pools replace their workers now that they have no task.

        A forked process has what its parent had, so a worker that was forked while its parent held a result keeps that
        for life. That is fork's way, and no memory of the dead. One after the other, so that the same is left each
        time: the first new one has the receipt (8 bytes, shmtensor/ipc/pool.py) of the old one that was still there.
        """
        for pool in [member.process.pid for member in self.crew.members if member.role == "pool"]:
            self._await_worker(pool, set(), 2)
            for old in processes.children(pool):
                before = set(processes.children(pool))
                os.kill(old, signal.SIGKILL)
                self._await_worker(pool, before, 1)

    def _await_worker(self, pool: int, before: set[int], count: int) -> None:
        def is_there() -> bool:
            return len(set(processes.children(pool)) - before) == count

        self.wait_until(is_there, PAUSE_BOUND, "the workers of the pool")

    def most_lost(self) -> int:
        """Messages that may have died with those who had just taken them."""
        takers = sum(count for role, count in self.findings.kills.items() if role in ("consumer", "threads"))
        return takers * MOST_TAKEN
