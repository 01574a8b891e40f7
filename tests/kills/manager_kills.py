"""Kills the manager at each line of its own code, once in each run, while a client uses all features.

    python tests/kills/manager_kills.py                 every line that the scenario reaches, in random order
    python tests/kills/manager_kills.py --most 30       no more than that many
    python tests/kills/manager_kills.py --at state.py:120 --nth 2

So each line of the manager is a failpoint, without changes to its code. `sys.settrace` in each manager that is started
counts the passages of one line; the first manager to pass it for the nth time sends itself SIGKILL. The scenario exits
with 0 if all guarantees for clients held, and nothing was left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import _native, errors
from shmtensor.manager import client, connection, launch, protocol
from shmtensor.manager.daemon import journal

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))

from manager_world import BOUND, ROOT, SUPPORT, until

RUN_SECONDS = 60.0
LEFT = (".journal", ".log", ".sock", ".lock")
"""What may lie about when the last manager was killed at its end; the next one clears it away."""

# What each manager runs before it serves. KILL_AT: file:line:nth, or nothing to write down which lines are passed.
TRACER = """
import atexit, os, signal, sys
directory, at = os.environ["KILLS_DIRECTORY"], os.environ.get("KILL_AT", "")
where, _, nth = at.rpartition(":")
passed = {}
def line(frame, event, _argument):
    if event == "line":
        place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        passed[place] = passed.get(place, 0) + 1
        if place == where and passed[place] == int(nth):
            try:
                os.close(os.open(directory + "/killed", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return line
            os.kill(os.getpid(), signal.SIGKILL)
        if not at and passed[place] == 1:
            with open(directory + "/lines", "a") as file:
                file.write(place + "\\n")
    return line
def call(frame, event, _argument):
    name = frame.f_code.co_filename
    return line if "/shmtensor/manager/" in name and frame.f_code.co_flags & 1 else None  # functions alone
sys.settrace(call)
"""
ANEW = f"import shmtensor.manager.daemon.handover as h; h._PROGRAM = {TRACER!r} + h._PROGRAM; "
"""One that is restarted is traced as well."""
SERVICE = TRACER + ANEW + "from shmtensor.manager.cli import main; main(['serve', '--address', sys.argv[1]])"


class Scenario:
    """What a client does, from a manager's start to the end of the last one. Runs in a process of its own."""

    def __init__(self, directory: str) -> None:
        launch._PROGRAM = TRACER + launch._PROGRAM.replace("run.background", ANEW + "run.background")
        self.path = os.fsencode(Path(directory) / "x.sock")
        self.ctx = mp.get_context("fork")

    def join(self) -> client.Manager:
        launch.start(self.path)
        try:
            return client.at(self.path)
        except connection.NothingThere:  # it was killed as soon as it had said that it is there
            launch.start(self.path)
            return client.at(self.path)

    def run(self) -> None:
        self.manager = client._default = self.join()
        self.share()
        gc.collect()  # what was raised on the way may hold on to queues
        until(lambda: self.clients() == {os.getpid()}, "all children to be reclaimed")
        until(lambda: self.manager.stats().rings == 0, "the queues to go")
        assert self.manager.stats().live_blocks == 0, self.manager.list()
        assert not self.manager.list()["in_flight"]
        self.manager.close()
        until(lambda: not self.is_served(), "the last manager to leave")

    def share(self) -> None:
        """Tensors, queues, processes, names; two managers."""
        tensor = shmtensor.full((1000,), 3.0, shared=True)
        tasks, results = self.ctx.Queue(), self.ctx.Queue()
        workers = [self.ctx.Process(target=work, args=(tasks, results)) for _ in range(2)]
        for worker in workers:
            worker.start()
        kept = self.send_queues(tensor)
        for _ in range(3):
            tasks.put(tensor)
        for _ in range(3):
            assert mp.connection.wait([results._reader], BOUND)
            assert (results.get(timeout=BOUND).numpy() == 4.0).all()
        self.manager.bind(b"/mine", tensor.storage()._region)
        self.use_names(tensor)
        self.use_other_memory(tensor)
        workers[0].kill()
        workers[0].join(BOUND)
        until(lambda: workers[0].pid not in self.clients(), "the dead worker to be reclaimed")
        # Another manager takes over, and is perhaps the one that is killed.
        os.kill(self.manager.stats().pid, signal.SIGKILL)
        self.manager.bind(b"/other", tensor.storage()._region)
        assert self.manager.open(b"/mine") is tensor.storage()._region
        self.use_names(tensor)
        self.hand_over()
        assert self.manager.open(b"/mine") is tensor.storage()._region
        late = self.ctx.Process(target=work, args=(tasks, results))
        late.start()
        tasks.put(tensor)
        assert (results.get(timeout=BOUND).numpy() == 4.0).all()
        other = kept.get(timeout=BOUND)
        assert (other.get(timeout=BOUND).numpy() == 3.0).all()
        assert other.get(timeout=BOUND)._ring is kept._ring
        other.put(other)
        for _ in range(2):
            tasks.put(None)
        for worker in (workers[1], late):
            worker.join(BOUND)
            assert worker.exitcode == 0, worker.exitcode

    def send_queues(self, tensor: Any) -> Any:
        """Queues in each other: two that are dropped, two of which one is kept, given back here."""
        for _ in range(2):
            one, other = self.ctx.Queue(), self.ctx.Queue()
            for holder, held in ((one, other), (other, one)):
                holder.put(tensor)
                holder.put(held)
            assert (one.get(timeout=BOUND).numpy() == 3.0).all()
        return one

    def use_names(self, tensor: Any) -> None:
        self.manager.stats()
        self.manager.gc(1000.0)
        name = self.manager.export(tensor.storage()._region)
        block = self.manager.open(name)
        assert block is tensor.storage()._region
        assert self.manager.export(block) == name
        self.manager.unexport(name)

    def hand_over(self) -> None:
        """A restart; a service that takes the place of the manager in the background, and is stopped."""
        self.manager.stats()
        with contextlib.suppress(errors.ManagerError), connection.Observer(self.path) as observer:
            observer.request(protocol.Restart())
            observer.wait_closed()
        self.manager.stats()
        words = [sys.executable, "-c", SERVICE, os.fsdecode(self.path)]
        environment = {**os.environ, "NOTIFY_SOCKET": f"@{os.fsdecode(self.path)}"}  # of a supervisor that has gone
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as service:
            assert service.stdout is not None
            if service.stdout.readline():
                self.manager.list(5.0)
            service.terminate()
        self.manager.list(5.0)

    def use_other_memory(self, tensor: Any) -> None:
        """A segment of its own in /dev/shm, and a child that is never started."""
        client.set_strategy("file_system")
        big = shmtensor.zeros(_native.DEDICATED_FROM + 1, dtype="uint8", shared=True)
        client.set_strategy("file_descriptor")
        del big
        slot, _generation, fd = self.manager.native.embryo()
        self.manager.ticket(tensor.storage()._region, slot)
        os.close(fd)

    def clients(self) -> set[int]:
        return {row["pid"] for row in self.manager.list()["clients"]}

    def is_served(self) -> bool:
        with contextlib.suppress(errors.ManagerError), connection.Observer(self.path) as observer:
            return bool(observer.welcome)
        return False


def work(tasks: Any, results: Any) -> None:
    kept = []
    while (value := tasks.get()) is not None:
        kept.append(value)
        results.put(value + 1)


def run(at: str) -> tuple[str, str, list[str]]:
    """(verdict, what the scenario said, lines passed) of one run: "ok", "not reached" or "FAILED"."""
    with tempfile.TemporaryDirectory(prefix="shmt-", dir="/tmp") as directory:
        environment = {**os.environ, "KILLS_DIRECTORY": directory, "KILL_AT": at, "SHMTENSOR_RUNTIME_DIR": directory}
        environment["PYTHONPATH"] = f"{ROOT}:{SUPPORT}"
        try:
            done = subprocess.run(
                [sys.executable, "-W", "error", __file__, "--scenario", directory],
                env=environment,
                capture_output=True,
                text=True,
                timeout=RUN_SECONDS,
            )
            said, code = done.stderr + done.stdout, done.returncode
        except subprocess.TimeoutExpired as problem:
            said, code = f"hung: {problem.stderr!r}", -1
        lines = Path(directory, "lines").read_text().split() if Path(directory, "lines").exists() else []
        if code == 0 and at and not Path(directory, "killed").exists():
            return "not reached", "", lines
        if code == 0:
            names = {entry.name for entry in Path(directory).iterdir()} - {"killed", "lines"}
            for path in Path(directory).glob("*.journal"):  # as the next manager would, had it a directory to look into
                for name in journal.read(os.fsencode(path)).shm:
                    Path("/dev/shm" + name.decode()).unlink(missing_ok=True)
            strange = sorted(name for name in names if not name.endswith(LEFT))
            return ("FAILED", f"left behind: {strange}", lines) if strange else ("ok", "", lines)
        return "FAILED", said, lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scenario", help=argparse.SUPPRESS)
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--at")
    parser.add_argument("--nth", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.scenario:
        Scenario(options.scenario).run()
        return 0
    verdict, said, lines = run("")
    if verdict != "ok":
        print("without a kill:", verdict, said)
        return 1
    seed = options.seed or random.SystemRandom().randrange(1, 1 << 31)
    choose = random.Random(seed)
    places = [options.at] if options.at else sorted(set(lines))
    choose.shuffle(places)
    if options.most:
        places = places[: options.most]
    specs = [f"{place}:{options.nth or choose.choice((1, 1, 1, 2))}" for place in places]
    print(f"seed {seed}: {len(specs)} of the {len(set(lines))} lines that are reached")
    counts = Counter(ok=0, FAILED=0)
    with ThreadPoolExecutor(os.cpu_count()) as runner:
        for spec, (verdict, said, _) in zip(specs, runner.map(run, specs), strict=True):
            counts[verdict] += 1
            if verdict == "FAILED":
                print(f"{spec}: {said[-3000:]}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
