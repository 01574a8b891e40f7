"""Worker pools: functions over streams, and steps of many simulations, beside the standard library."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks.measure import Figure, collector_off, run_contender

WORKERS = 2
ROUNDS = 7
CARTS = 256
STEPS = 10  # of each cart in a round
MOVES = (1, 20)  # moves in a step
IMAP, FUTURES = "`multiprocessing.Pool.imap`", "`ProcessPoolExecutor.map`"
MAPS: dict[str, tuple[str, int, int]] = {
    "one": ("items a second, x -> x, one at a time", 1, 4_000),
    "chunks": ("items a second, x -> x, 64 at a time", 64, 60_000),
    "arrays": ("items a second, x -> 256 kB float32, one at a time", 1, 1_000),
}
"""For each case: its title, items that a worker takes at once, items."""


def same(x: int) -> int:
    return x


def array_of(x: int) -> Any:
    return np.full(64 * 1024, x, np.float32)


def maps(kind: str) -> dict[str, float]:
    """Items a second of each pool, which take turns."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    from shmtensor.data import WorkerPool

    _, chunk, items = MAPS[kind]
    function = array_of if kind == "arrays" else same
    with ExitStack() as stack:
        ours = stack.enter_context(WorkerPool(WORKERS))
        pool = stack.enter_context(multiprocessing.Pool(WORKERS))
        executor = stack.enter_context(ProcessPoolExecutor(WORKERS))
        calls: dict[str, Callable[[], Iterable[Any]]] = {
            "shmtensor": lambda: ours.map(function, range(items), chunk=chunk),
            IMAP: lambda: pool.imap(function, range(items), chunk),
            FUTURES: lambda: executor.map(function, range(items), chunksize=chunk),
        }
        return rates(calls, items)


def rates(calls: dict[str, Callable[[], Iterable[Any]]], count: int) -> dict[str, float]:
    """The median rate per second of each, after a round that is not counted."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    with collector_off():
        for _ in range(ROUNDS + 1):
            for name, call in calls.items():
                begin = time.perf_counter()
                for _ in call():
                    pass
                found[name].append(count / (time.perf_counter() - begin))
    return {name: statistics.median(some[1:]) for name, some in found.items()}


class Cart:
    """A cart that balances a pole, as in Gymnasium: one environment, in NumPy and Python numbers.

    A step has `moves` moves.
    """

    def __init__(self, moves: int, number: int) -> None:
        self.moves = moves
        self.random = np.random.default_rng(number)
        self.state = self.random.uniform(-0.05, 0.05, 4)

    def step(self, action: Any) -> tuple[Any, float, bool]:
        fallen = False
        for _ in range(self.moves):
            fallen |= self.move(action)
        return self.state.astype(np.float32), 1.0, fallen

    def move(self, action: Any) -> bool:
        position, speed, angle, turning = self.state.tolist()
        sin, cos = math.sin(angle), math.cos(angle)
        push = ((10.0 if action else -10.0) + 0.05 * turning**2 * sin) / 1.1
        falling = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        pulled = push - 0.05 * falling * cos / 1.1
        self.state = np.array(
            (position + 0.02 * speed, speed + 0.02 * pulled, angle + 0.02 * turning, turning + 0.02 * falling)
        )
        fallen = bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095)
        if fallen:
            self.state = self.random.uniform(-0.05, 0.05, 4)
        return fallen


def serve(pipe: Any, numbers: list[int], moves: int, together: bool) -> None:
    """A worker with a pipe, which steps its carts one at a time, or all for one message."""
    carts = [Cart(moves, number) for number in numbers]
    while (message := pipe.recv()) is not None:
        if together:
            pipe.send([cart.step(action) for cart, action in zip(carts, message, strict=True)])
        else:
            place, action = message
            pipe.send(carts[place].step(action))


class Pipes:
    """Carts behind pipes, with results stacked as Gymnasium's AsyncVectorEnv does."""

    def __init__(self, moves: int, together: bool) -> None:
        import multiprocessing

        self.together = together
        self.numbers = [list(range(worker, CARTS, WORKERS)) for worker in range(WORKERS)]
        self.pipes, self.processes = [], []
        for numbers in self.numbers:
            here, there = multiprocessing.Pipe()
            process = multiprocessing.Process(target=serve, args=(there, numbers, moves, together), daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def step(self, actions: Any) -> Any:
        found: list[Any] = [None] * CARTS
        if self.together:
            for pipe, numbers in zip(self.pipes, self.numbers, strict=True):
                pipe.send(actions[numbers])
            for pipe, numbers in zip(self.pipes, self.numbers, strict=True):
                for number, result in zip(numbers, pipe.recv(), strict=True):
                    found[number] = result
        else:
            for number in range(CARTS):
                self.pipes[number % WORKERS].send((number // WORKERS, actions[number]))
            for number in range(CARTS):
                found[number] = self.pipes[number % WORKERS].recv()
        return stacked(found)

    def __enter__(self) -> Pipes:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join()


def stacked(results: list[Any]) -> Any:
    states, rewards, ends = zip(*results, strict=True)
    return np.stack(states), np.array(rewards), np.array(ends)


def simulations(moves: int) -> dict[str, float]:
    """Steps a second of all carts, in one process and in workers, which take turns."""
    from shmtensor.data import WorkerPool

    actions = np.random.default_rng(0).integers(0, 2, (STEPS, CARTS))
    with ExitStack() as stack:
        pool = stack.enter_context(WorkerPool(WORKERS, output="numpy"))
        factory = functools.partial(Cart, moves)
        ours, halves = pool.simulations(factory, CARTS), pool.simulations(factory, CARTS)
        alone = [Cart(moves, number) for number in range(CARTS)]
        single, together = Pipes(moves, False), Pipes(moves, True)
        stack.enter_context(single)
        stack.enter_context(together)

        def all_at_once() -> Iterator[Any]:
            for some in actions:
                ours.send(some)
                yield ours.gather(CARTS)

        def by_halves() -> Iterator[Any]:
            halves.send(actions[0])
            for step in range(2 * STEPS - 2):
                ids, values = halves.gather(CARTS // 2, CARTS // 2)
                yield values
                halves.send(actions[step // 2 + 1][ids], ids)
            yield halves.gather(CARTS)

        def in_a_loop() -> Iterator[Any]:
            for some in actions:
                yield stacked([cart.step(action) for cart, action in zip(alone, some, strict=True)])

        calls: dict[str, Callable[[], Iterable[Any]]] = {
            "shmtensor, `gather(256)`": all_at_once,
            "shmtensor, `gather(128, 128)`": by_halves,
            "a loop in one process": in_a_loop,
            "pipes, a message for each environment": lambda: map(single.step, actions),
            "pipes, a message for each worker": lambda: map(together.step, actions),
        }
        return rates(calls, STEPS * CARTS)


def measure() -> Iterator[Figure]:
    for kind, (work, _, _) in MAPS.items():
        for contender, rate in run_contender("worker_pool:maps", kind).items():
            yield Figure(f"{work}, {WORKERS} workers", contender, rate, "1/s")
    for moves in MOVES:
        work = f"steps a second, {CARTS} cart-poles, {moves} move{'s' * (moves > 1)} for each step, {WORKERS} workers"
        for contender, rate in run_contender("worker_pool:simulations", moves).items():
            yield Figure(work, contender, rate, "1/s")
