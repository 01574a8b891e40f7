"""Word vectors: processes that train two shared tables, beside threads of gensim's Word2Vec, on the same text."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.measure import ROOT, Figure, have, run_contender

TURNS = 3
EPOCHS = 10
OURS, AUTOGRAD, THEIRS = "shmtensor", "shmtensor, by autograd", "gensim `Word2Vec`"


def train(contender: str, count: int, seed: int) -> dict[str, float]:
    """Words a second and the final accuracy, as examples/word2vec_hogwild.py measures them."""
    sys.path.append(str(ROOT / "examples"))
    import word2vec_hogwild as example

    from shmtensor import hogwild

    hogwild.set_single_thread()
    text = example.load().share_memory()
    settings = argparse.Namespace(epochs=EPOCHS, seed=seed, autograd=contender == AUTOGRAD, start_method="fork")
    run: Any = (example.run_gensim if contender == THEIRS else example.run_hogwild)(settings, text, count)
    return {"speed": run.speed, "accuracy": run.accuracy}


def measure() -> Iterator[Figure]:
    contenders = [OURS, AUTOGRAD, *([THEIRS] if have("gensim") else [])]
    turns: dict[tuple[str, int], list[dict[str, float]]] = {}
    for seed in range(TURNS):
        for contender in contenders:
            for count in (1, 2):
                found: dict[str, float] = run_contender("words:train", contender, count, seed)
                turns.setdefault((contender, count), []).append(found)

    def median(contender: str, count: int, name: str) -> float:
        return statistics.median(turn[name] for turn in turns[contender, count])

    for count in (1, 2):
        for contender in contenders:
            speed = median(contender, count, "speed")
            note = f"accuracy {median(contender, count, 'accuracy'):.3f}"
            if count > 1:
                note += f"; {speed / median(contender, 1, 'speed'):.2f} x one"
            target = {1: "as gensim", 2: "1.8 x one"}[count] if contender == OURS else ""
            what = "process or thread" if count == 1 else "processes or threads"
            yield Figure(f"words a second, {count} {what}", contender, speed, "1/s", target, note)
    if not have("gensim"):
        yield Figure("words a second, 1 process or thread", THEIRS, None, "1/s", "", "gensim is not installed")
