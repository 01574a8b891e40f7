"""Stores of arrays by key: reading and putting 4 KiB and 64 MiB, and a million keys."""

from __future__ import annotations

import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.measure import Figure, collector_off, run_contender, seconds_per_call
from benchmarks.store_peers import LMDB, MAPPED, OURS, PEERS, RAY, REDIS, absent, fill

TURNS = 3
SIZES = {"4 KiB": 4 << 10, "64 MiB": 64 << 20}
COPY = "numpy.copyto"
BATCH_SECONDS = 0.05
HOT, MANY = 1_000, 1_000_000
USES = 50_000  # minimum uses of keys, over all rounds
TARGETS = {
    "`get` of 4 KiB": "3 us",
    "`get` of 64 MiB": "3 us, 1/20 of each",
    "`put` of 4 KiB": "5 us",
    "`put` of 64 MiB": "1.2 x copyto",
}


def timed(function: Callable[[], object], batches: int = 7) -> float:
    """Median seconds of a call, in batches of about 50 ms."""
    function()
    begin = time.perf_counter()
    function()
    once = time.perf_counter() - begin
    return seconds_per_call(function, max(1, min(10_000, int(BATCH_SECONDS / once))), batches)


def folder_of_its_own() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="store-", dir=os.environ["SHMTENSOR_RUNTIME_DIR"])


def objects(name: str) -> dict[str, float]:
    """Seconds of each piece of work with one object of each size, put by another process."""
    with folder_of_its_own() as folder:
        peer = PEERS[name][0](folder)
        try:
            if name == RAY:
                for nbytes in SIZES.values():
                    peer.put(str(nbytes), np.ones(nbytes // 4, np.float32))
            else:
                context = multiprocessing.get_context("spawn")
                other = context.Process(target=fill, args=(name, folder, list(SIZES.values())))
                other.start()
                other.join()
            found: dict[str, float] = {}
            for words, nbytes in SIZES.items():
                key = str(nbytes)
                assert peer.read(key) == nbytes / 4096
                found[f"`get` of {words}"] = timed(lambda key=key: peer.get(key))  # type: ignore[misc]
                found[f"reading {words}"] = timed(lambda key=key: peer.read(key))  # type: ignore[misc]
                if name != MAPPED:
                    found |= puts(peer, words, nbytes)
            return found
        finally:
            peer.close()


def puts(peer: Any, words: str, nbytes: int) -> dict[str, float]:
    """Seconds of a put that replaces an object, and of a copy into warm memory; they take turns."""
    source = np.ones(nbytes // 4, np.float32)
    target = np.zeros_like(source)
    rounds = 25 if nbytes > 1 << 20 else 2_000
    taken, copies = [], []
    with collector_off():
        for _ in range(rounds):
            begin = time.perf_counter()
            peer.put("replaced", source)
            taken.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            np.copyto(target, source)
            copies.append(time.perf_counter() - begin)
    return {f"`put` of {words}": statistics.median(taken[5:]), f"{COPY} of {words}": statistics.median(copies[5:])}


def many(name: str) -> dict[str, float]:
    """Seconds of a get among a thousand and a million keys, and of listing the ten keys of a prefix. 64-byte values."""
    names = [f"{i // 10:06}/{i % 10}" for i in range(MANY)]
    chance = random.Random(1)
    chance.shuffle(names)
    hot = names[:HOT]
    found = {}
    with folder_of_its_own() as folder:
        peer = PEERS[name][0](folder)
        try:
            value = bytes(64)

            def put(key: str) -> None:
                peer.put_bytes(key, value)

            def fill(some: list[str]) -> None:
                for start in range(0, len(some), 1_000):
                    peer.put_many({key: key.encode() * 8 for key in some[start : start + 1_000]})

            def each(use: Callable[[str], object], some: list[str]) -> float:
                """Median seconds of a use of a key, in an order drawn at random before."""
                rounds = []
                with collector_off():
                    for _ in range(1 + max(5, USES // len(some))):
                        begin = time.perf_counter()
                        for key in some:
                            use(key)
                        rounds.append((time.perf_counter() - begin) / len(some))
                return statistics.median(rounds[1:])

            fill(hot)
            found |= {"get among 1,000": each(peer.get_bytes, hot), "put among 1,000": each(put, hot)}
            fill(names[HOT:])
            found["get among 1,000,000"] = each(peer.get_bytes, hot)
            some = chance.sample(names, 10_000)
            found |= {"get any": each(peer.get_bytes, some), "put any": each(put, some)}
            prefixes = iter([key[:7] for key in chance.choices(names, k=100_000)])
            assert len(peer.keys("012345/")) == 10
            found["prefix"] = timed(lambda: peer.keys(next(prefixes)), 3)
            return found
        finally:
            peer.close()


def measure() -> Iterator[Figure]:
    missing = absent()
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in PEERS}
    for _ in range(TURNS):
        for name in PEERS:
            if name not in missing:
                turns[name].append(run_contender("store:objects", name))

    def median(name: str, work: str) -> float | None:
        values = [turn[work] for turn in turns[name] if work in turn]
        return statistics.median(values) if values else None

    for words in SIZES:
        for kind in ("`get` of", "reading", "`put` of"):
            work = f"{kind} {words}"
            for name in PEERS:
                value, copy = median(name, work), median(name, f"{COPY} of {words}")
                if value is None and name not in missing:
                    continue
                note = missing.get(name, "")
                if value is not None and copy is not None and kind == "`put` of" and words == "64 MiB":
                    note = f"{value / copy:.2f} x copyto"
                yield Figure(work, name, value, "s", TARGETS.get(work, "") if name == OURS else "", note)
            if kind == "`put` of":
                yield Figure(work, f"`{COPY}` alone", median(OURS, f"{COPY} of {words}"), "s", "", "warm memory")
    rows = {name: run_contender("store:many", name) for name in (OURS, REDIS, LMDB) if name not in missing}
    for key, work, target in (
        ("get among 1,000", "`get` of 64 B, any of 1,000 keys, among 1,000", ""),
        ("get among 1,000,000", "`get` of 64 B, any of 1,000 keys, among 1,000,000", "as among 1,000"),
        ("get any", "`get` of 64 B, any of 1,000,000 keys", ""),
        ("put among 1,000", "`put` of 64 B, any of 1,000 keys", ""),
        ("put any", "`put` of 64 B, any of 1,000,000 keys", ""),
        ("prefix", "the 10 keys of a prefix, among 1,000,000", "by index"),
    ):
        for name in (OURS, REDIS, LMDB):
            row = rows.get(name)
            note = missing.get(name, "")
            if row and (fewer := row.get(f"{key.split()[0]} among 1,000")) and not key.endswith(" 1,000"):
                note = f"{row[key] / fewer:.2f} x among 1,000"
            yield Figure(work, name, row and row[key], "s", target if name == OURS else "", note)
