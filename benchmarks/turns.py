"""Contenders take turns, so that all see the same load; a peer that is absent or fails gets a row with the reason."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks import actors
from benchmarks.measure import ContenderFailed, Figure, have, run_contender
from benchmarks.transports import TRANSPORTS

TURNS = 3
PEERS = {name: (transport.name, transport.needs) for name, transport in TRANSPORTS.items()} | {
    "ray": (actors.NAME, actors.NEEDS)
}


@dataclass
class Results:
    turns: dict[str, list[dict[str, float]]]  # by contender: each turn's figures by work
    absent: dict[str, str] = field(default_factory=dict)  # by contender: why

    def median(self, contender: str, work: str) -> float | None:
        values = [turn[work] for turn in self.turns[contender] if work in turn]
        return statistics.median(values) if values else None

    def figure(self, contender: str, key: str, work: str, words: str, unit: str, target: str = "") -> Figure:
        value = self.median(contender, key)
        note = self.absent.get(contender, "") if value is None else ""
        return Figure(work, words, value, unit, target, note)

    def figures(self, work: str, unit: str, target: str = "") -> Iterator[Figure]:
        """The row of each transport that does this work, or that is absent or failed before it."""
        for name, (words, _) in PEERS.items():
            if name in self.turns and (self.median(name, work) is not None or name in self.absent):
                yield self.figure(name, work, work, words, unit, target if name == "shmtensor" else "")


def take_turns(contenders: Mapping[str, tuple[Any, ...]]) -> Results:
    """Runs each contender (arguments of run_contender) in each turn. Raises ContenderFailed for shmtensor's own."""
    results = Results({name: [] for name in contenders})
    for name in contenders:
        if name in PEERS and not have(PEERS[name][1].partition(".")[0]):
            results.absent[name] = f"{PEERS[name][1]} is not installed"
    for _ in range(TURNS):
        for name, call in contenders.items():
            if name in results.absent:
                continue
            try:
                results.turns[name].append(run_contender(*call))
            except ContenderFailed as error:
                if name == "shmtensor":
                    raise
                results.absent[name] = str(error)
    return results
