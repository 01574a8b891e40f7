"""The manager is killed at each line of its own code, once a run, under a client that does a bit of everything.

    python tests/manager_kills.py                 every line that the scenario reaches, in random order
    python tests/manager_kills.py --most 30       no more than that many
    python tests/manager_kills.py --at state.py:120 --nth 2

So each line of the manager is a failpoint, and none has to be written into it. `sys.settrace` in each manager that is
started counts the passages of one line and sends SIGKILL at the nth; the others go on. The scenario ends 0 when all that
a client was promised held, and nothing was left behind.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
MANAGER = HERE.parent / "shmtensor" / "manager"
FILES = ("journal", "launch", "memory", "peers", "protocol", "rings", "server", "service", "state", "takeover")
RUN_SECONDS = 60.0

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


def scenario(directory: str) -> None:
    """What a client does. Runs in a process of its own."""
    import contextlib
    import signal

    from manager_world import BOUND, until

    import shmtensor
    import shmtensor.multiprocessing as mp
    from shmtensor import errors
    from shmtensor.manager import client, connection, launch

    launch._PROGRAM = TRACER + "\n" + launch._PROGRAM
    path = os.fsencode(Path(directory) / "x.sock")

    def patiently(start: object) -> None:
        """Starting a manager that is killed while it starts is refused, and the next one is another."""
        for attempt in range(3):
            with contextlib.suppress(errors.ManagerUnavailable):
                start()  # type: ignore[operator]
                return
        raise AssertionError(f"no manager could be started {attempt + 1} times")

    patiently(lambda: launch.start(path))
    for _ in range(3):
        with contextlib.suppress(errors.ManagerUnavailable):
            client.at(path)
            break
        patiently(lambda: launch.start(path))
    manager = client._default = client.at(path)
    ctx = mp.get_context("fork")

    def again(what: object) -> object:
        """A request may fail when the manager that was to be started for it is the one that is killed."""
        for _ in range(2):
            with contextlib.suppress(errors.ManagerUnavailable):
                return what()  # type: ignore[operator]
        return what()  # type: ignore[operator]

    def clients() -> set[int]:
        return {row["pid"] for row in again(manager.list)["clients"]}  # type: ignore[index]

    def checks(tensor: object, name: bytes) -> None:
        again(lambda: manager.stats())
        again(lambda: manager.gc(1000.0))
        block = again(lambda: manager.open(name))
        assert block is tensor.storage()._region  # type: ignore[attr-defined]
        assert again(lambda: manager.export(block)) == name
        with contextlib.suppress(errors.UnknownHandle):  # asked again, it is gone already
            again(lambda: manager.unexport(name))

    def child(tasks: object, results: object) -> None:
        kept = []
        while (value := tasks.get()) is not None:  # type: ignore[attr-defined]
            kept.append(value)
            results.put(value + 1)  # type: ignore[attr-defined]

    tensor = again(lambda: shmtensor.full((1000,), 3.0, shared=True))
    block = tensor.storage()._region  # type: ignore[attr-defined]
    tasks, results = again(ctx.Queue), again(ctx.Queue)
    workers = [ctx.Process(target=child, args=(tasks, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for _ in range(3):
        tasks.put(tensor)  # type: ignore[attr-defined]
    for _ in range(3):
        assert mp.connection.wait([results._reader], BOUND)  # type: ignore[attr-defined]
        assert (results.get(timeout=BOUND).numpy() == 4.0).all()  # type: ignore[attr-defined]
    name = again(lambda: manager.export(block))
    with contextlib.suppress(errors.NameTaken):  # asked again, it is ours already
        again(lambda: manager.bind(b"/mine", block))
    checks(tensor, name)  # type: ignore[arg-type]
    client.set_strategy("file_system")
    manager.native.trim()
    big = again(lambda: shmtensor.zeros(300 << 18, shared=True))  # an arena does not hold it: a segment of its own
    client.set_strategy("file_descriptor")
    del big
    slot, _generation, fd = manager.native.embryo()
    hold, _mark = manager.ticket(block, slot)
    os.close(fd)
    assert hold >= 0
    workers[0].kill()
    workers[0].join(BOUND)
    until(lambda: workers[0].pid not in clients(), "the dead worker to be reaped")
    # Another manager takes over, and is perhaps the one that is killed.
    stats = again(manager.stats)
    os.kill(stats.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    again(lambda: manager.bind(b"/other", block))
    assert again(lambda: manager.open(b"/mine")) is block
    name = again(lambda: manager.export(block))
    checks(tensor, name)  # type: ignore[arg-type]
    late = ctx.Process(target=child, args=(tasks, results))
    late.start()
    tasks.put(tensor)  # type: ignore[attr-defined]
    assert (results.get(timeout=BOUND).numpy() == 4.0).all()  # type: ignore[attr-defined]
    for _ in range(2):
        tasks.put(None)  # type: ignore[attr-defined]
    for worker in (workers[1], late):
        worker.join(BOUND)
        assert worker.exitcode == 0, worker.exitcode
    until(lambda: clients() == {os.getpid()}, "all children to be reaped")
    tasks.close(), results.close()  # type: ignore[attr-defined]
    del tasks, results, workers, worker, late
    until(lambda: again(manager.stats).rings == 0, "the queues to go")  # type: ignore[attr-defined]
    assert again(manager.stats).live_blocks == 1, again(manager.list)  # type: ignore[attr-defined]
    assert not again(manager.list)["in_flight"] or "embryo" in str(again(manager.list))  # type: ignore[index]
    del tensor, block
    manager.close()

    def leftover() -> bool:
        with contextlib.suppress(errors.ManagerError), connection.Observer(path) as observer:
            return bool(observer.welcome)
        return False

    until(lambda: not leftover(), "the last manager to leave")


def run(at: str) -> tuple[str, str, list[str]]:
    """(verdict, what the scenario said, lines passed) of one run: "ok", "not reached" or "FAILED"."""
    with tempfile.TemporaryDirectory(prefix="shmt-", dir="/tmp") as directory:
        environment = {**os.environ, "KILLS_DIRECTORY": directory, "KILL_AT": at, "SHMTENSOR_RUNTIME_DIR": directory}
        environment["PYTHONPATH"] = f"{HERE.parent}:{HERE}"
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
            names = set(os.listdir(directory)) - {"killed", "lines", "start.lock"}
            journals = {name for name in names if name.endswith((".journal", ".log", ".sock", ".lock"))}
            if at.startswith(("launch", "journal")) or not names - journals:
                return "ok", "", lines
            return "FAILED", f"left behind: {sorted(names)}", lines
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
        scenario(options.scenario)
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
    specs = [f"{place}:{options.nth or choose.choice((1, 1, 2, 5))}" for place in places]
    print(f"seed {seed}: {len(specs)} of {len(set(lines))} lines of {len(FILES)} files")
    counts = {"ok": 0, "not reached": 0, "FAILED": 0}
    with ThreadPoolExecutor(os.cpu_count()) as runner:
        for spec, (verdict, said, _) in zip(specs, runner.map(run, specs), strict=True):
            counts[verdict] += 1
            if verdict == "FAILED":
                print(f"{spec}: {said[-3000:]}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
