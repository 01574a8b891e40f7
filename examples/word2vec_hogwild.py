"""Hogwild with word vectors: processes learn the words of Python's documentation, each from its own part of it.

The text is what the Python installation carries: the topics of `help()` and the docstrings of the standard library.
Every process reads its own range of it, again and again. Skip-gram with negative sampling (Mikolov et al., 2013)
changes only the vectors of the words that are read and of some random ones. These rows of two shared matrices are
changed by atomic additions, so that nothing is lost where two processes change the same row, and nobody waits.

    python examples/word2vec_hogwild.py            # one process, then one per core
    python examples/word2vec_hogwild.py --processes 4 --start-method spawn

It prints words per second and words that are near to each other, draws a map of them, and exits 0 if every run learnt
which words fit into gaps: of two words, it finds the one that was taken from a text that it has not read in 3 of 4
cases. Kill a worker while it trains: another reads on in its place.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import sysconfig
from collections import Counter as Bag
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
from common.progress import Progress
from common.workers import Outcome, run_together

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import hogwild
from shmtensor.atomics import index_add_atomic_
from shmtensor.hogwild import Counter, Metrics
from shmtensor.nn.functional import normalize, softplus

STRETCH = 128  # words that are read in a step
WINDOW = 5  # words to both sides that count as neighbours; the nearer, the more
NEGATIVES = 64  # random words that a stretch is compared with
NEGATIVE_WEIGHT = 5.0  # of all of them together, for each neighbour
DIMENSIONS = 64
RATE = 0.03  # of learning at the start; falls to 0 in a straight line
RARE = 5  # words that come less often are left out
FREQUENT = 5e-4  # part of the text from which on a word is skipped now and then
NOT_READ = {"test", "site-packages", "dist-packages", "pydoc_data", "lib2to3", "idlelib"}  # folders
HELD_OUT = 20  # of so many stretches, one is not read but tested with
WANTED = 0.75  # test accuracy; 0.5 is chance
SECONDS_BETWEEN_EVALUATIONS = 0.3
SHOWN = ("list", "float", "socket", "thread", "directory", "exception", "month")


# ---- the text --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    words: list[str]  # by number, the most frequent first
    training: st.Tensor  # numbers of words (stretches, STRETCH), the stretches in random order
    test: st.Tensor  # numbers of words (n,), without those that are frequent
    kept: st.Tensor  # the chance that a word is not skipped, by number
    random: st.Tensor  # numbers of words, each as often as it is to be drawn
    nearness: st.Tensor  # how much of a neighbour each word of a stretch is to each other (STRETCH, STRETCH)

    def share_memory(self) -> Text:
        for tensor in (self.training, self.test, self.kept, self.random, self.nearness):
            tensor.share_memory_()
        return self


def documents() -> Iterator[str]:
    """The topics of `help()`, and what stands in three quotes in the modules of the standard library."""
    yield from topics.values()
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted([*library.glob("*.py"), *library.glob("*/*.py")]):
        if path.parent.name not in NOT_READ:
            source = path.read_text(encoding="utf-8", errors="ignore")
            yield from re.findall(r'^ *r?"""(.+?)"""', source, re.MULTILINE | re.DOTALL)


def load() -> Text:
    """The text, the same in each call."""
    read = [word for document in documents() for word in re.findall(r"[a-z]{2,}", document.lower())]
    counts = {word: count for word, count in Bag(read).most_common() if count >= RARE}
    number = {word: i for i, word in enumerate(counts)}
    numbers = np.array([number[word] for word in read if word in number])
    part = np.array(list(counts.values())) / len(numbers)
    kept = np.minimum(1, np.sqrt(FREQUENT / part))
    drawn = np.repeat(np.arange(len(part)), np.ceil(200_000 * part**0.75 / (part**0.75).sum()).astype(int))

    stretches = numbers[: len(numbers) // STRETCH * STRETCH].reshape(-1, STRETCH)
    order = np.random.default_rng(0).permutation(len(stretches))
    held_out, training = np.split(stretches[order], [len(stretches) // HELD_OUT])
    test = held_out[kept[held_out] > 0.5]
    return Text(list(counts), *map(st.from_numpy, (training, test, kept, drawn)), nearness())


def nearness() -> st.Tensor:
    """1 for words beside each other, less with distance, 0 beyond the window and for a word and itself."""
    place = st.arange(STRETCH)
    distance = (place - place.unsqueeze(1)).abs()
    return (1 - (distance - 1) / WINDOW).clamp(min=0) * (distance > 0)


# ---- a worker --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vectors:
    """Two vectors for each word: as the word in the middle, and as a neighbour."""

    middle: st.Tensor
    neighbour: st.Tensor

    def share_memory(self) -> Vectors:
        self.middle.share_memory_()
        self.neighbour.share_memory_()
        return self


@dataclass(frozen=True)
class Job:
    """What all processes have in common. Tensors in here go to a process as handles, never as copies."""

    vectors: Vectors
    text: Text
    epochs: int
    seed: int
    places: list[Counter]  # how far each process has come in its range
    counter: Counter  # steps of all
    metrics: Metrics

    @property
    def steps(self) -> int:
        return self.epochs * len(self.text.training)

    def range_of(self, rank: int) -> st.Tensor:
        return self.text.training[rank :: len(self.places)]


def train(rank: int, job: Job) -> None:
    """Read a range of the text as often as there are epochs, from where a process before this one came to."""
    mine, place = job.range_of(rank), job.places[rank]
    st.manual_seed(1_000_003 * job.seed + job.steps * rank + place.value)
    for step in place.until(job.epochs * len(mine)):
        rate = RATE * max(0, 1 - job.counter.value / job.steps)
        loss = learn(job.vectors, job.text, mine[step % len(mine)], rate)
        job.counter.add()
        job.metrics.add(rank, loss=loss)


def learn(vectors: Vectors, text: Text, words: st.Tensor, rate: float) -> float:
    """A step: neighbours pull each other, random words are pushed away. Returns the mean loss of a pair of neighbours.

    All pairs of a stretch are elements of two matrices, so that a step is six products of matrices.
    """
    words = words[st.rand(len(words)) < text.kept[words]]
    random = text.random[st.randint(0, len(text.random), (NEGATIVES,))]
    u, v, r = vectors.middle[words], vectors.neighbour[words], vectors.neighbour[random]
    near = text.nearness[: len(words), : len(words)]
    far = near.sum(1, keepdim=True) * (NEGATIVE_WEIGHT / NEGATIVES)

    scores, random_scores = u @ v.T, u @ r.T
    pull, push = near * (-scores).sigmoid(), far * random_scores.sigmoid()
    index_add_atomic_(vectors.middle, 0, words, pull @ v - push @ r, alpha=rate)
    index_add_atomic_(vectors.neighbour, 0, words, pull.T @ u, alpha=rate)
    index_add_atomic_(vectors.neighbour, 0, random, push.T @ u, alpha=-rate)
    loss = (near * softplus(-scores)).sum() + (far * softplus(random_scores)).sum()
    return (loss / near.sum().clamp(min=1)).item()


# ---- the parent ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """What one training run gave: `curve` has (seconds, accuracy) from start to end."""

    processes: int
    steps: int
    outcome: Outcome
    curve: list[tuple[float, float]]
    vectors: Vectors

    @property
    def label(self) -> str:
        return f"{self.processes} process{'es' if self.processes > 1 else ''}"

    @property
    def accuracy(self) -> float:
        return self.curve[-1][1]


def accuracy_of(vectors: Vectors, test: st.Tensor) -> float:
    """How often the word in a gap fits better between the two words at each side than another word of the test does."""
    around = vectors.neighbour[test]
    around = around[:-4] + around[1:-3] + around[3:-1] + around[4:]
    words = test[2:-2]
    others = words[st.randperm(len(words), generator=st.Generator().manual_seed(0))]
    fits, other_fits = ((around * vectors.middle[which]).sum(1) for which in (words, others))
    return (fits > other_fits)[words != others].float().mean().item()


def run_hogwild(arguments: argparse.Namespace, text: Text, processes: int) -> Run:
    """Learn the vectors with so many processes."""
    st.manual_seed(arguments.seed)
    shape = len(text.words), DIMENSIONS
    vectors = Vectors(*((st.rand(2, *shape) - 0.5) / DIMENSIONS).unbind()).share_memory()
    places = [Counter() for _ in range(processes)]
    job = Job(vectors, text, arguments.epochs, arguments.seed, places, Counter(), Metrics(processes, "loss"))
    curve = [(0.0, accuracy_of(vectors, text.test))]

    def watch(seconds: float) -> None:
        if seconds > curve[-1][0] + SECONDS_BETWEEN_EVALUATIONS:
            curve.append((seconds, accuracy_of(vectors, text.test)))
        progress.show(accuracy=f"{curve[-1][1]:.3f}")

    label = f"{processes} process{'es' if processes > 1 else '  '}"
    with Progress(label, job.counter, job.steps, job.metrics) as progress:
        outcome = run_together(train, (job,), processes, start_method=arguments.start_method, watch=watch)
    curve.append((outcome.seconds, accuracy_of(vectors, text.test)))
    return Run(processes, job.counter.value, outcome, curve, vectors)


def nearest(vectors: Vectors, text: Text, word: str, count: int) -> list[str]:
    """The words whose vectors point in about the same direction as a word's, the nearest first."""
    directions = normalize(vectors.middle, dim=1)
    cosines = directions @ directions[text.words.index(word)]
    return [text.words[i] for i in cosines.topk(count + 1).indices.tolist() if text.words[i] != word]


def print_table(runs: Sequence[Run], text: Text) -> None:
    print("\nprocesses   seconds     words/s   test accuracy   replaced")
    for run in runs:
        seconds, replaced = run.outcome.seconds, run.outcome.replaced
        speed = run.steps * STRETCH / seconds
        print(f"{run.processes:9}{seconds:10.2f}{speed:12,.0f}{run.accuracy:16.3f}{replaced:11}")
    print(f"\nnearest words ({runs[-1].label}):")
    for word in SHOWN:
        print(f"{word:>12}: {', '.join(nearest(runs[-1].vectors, text, word, 6))}")
    print()


def draw_plot(runs: Sequence[Run], text: Text, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), width_ratios=(2, 3), layout="constrained")
    for run in runs:
        left.plot(*zip(*run.curve, strict=True), label=f"{run.label}: {run.accuracy:.3f}")
    left.axhline(WANTED, color="grey", linestyle=":", linewidth=1)
    left.set(title="Test accuracy", xlabel="seconds", ylim=(0.45, 0.95))
    left.grid(alpha=0.3)
    left.legend(loc="lower right")

    groups = [[word, *nearest(runs[-1].vectors, text, word, 5)] for word in SHOWN]
    shown = [text.words.index(word) for group in groups for word in group]
    directions = normalize(runs[-1].vectors.middle[shown], dim=1)
    centred = directions - directions.mean(0)
    _, _, axes = st.linalg.svd(centred, full_matrices=False)
    points = iter((centred @ axes[:2].T).tolist())
    for color, group in enumerate(groups):
        for word in group:
            x, y = next(points)
            right.plot(x, y, ".", color=f"C{color}")
            weight = "bold" if word == group[0] else "normal"
            right.annotate(word, (x, y), (3, 2), textcoords="offset points", color=f"C{color}", weight=weight, size=9)
    right.set(title="Some words and the words nearest to them", xticks=[], yticks=[])
    right.margins(0.15, 0.08)
    figure.suptitle("Word vectors of Python's documentation: two matrices in shared memory, no locks")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def parse_arguments() -> argparse.Namespace:
    def at_least_one(text: str) -> int:
        if (number := int(text)) < 1:
            raise argparse.ArgumentTypeError(f"{number} is less than 1")
        return number

    parser = argparse.ArgumentParser(
        description="Learn vectors of words with many processes in shared memory, lock-free."
    )
    processes = max(2, os.cpu_count() or 1)
    method = mp.get_start_method()
    plot = Path(__file__).parent / "output" / "word2vec_hogwild.png"
    add = parser.add_argument
    add(
        "--processes",
        type=at_least_one,
        default=processes,
        metavar="N",
        help="of the second run (default: %(default)s)",
    )
    add("--epochs", type=at_least_one, default=10, metavar="N", help="default: %(default)s")
    add("--quick", action="store_const", dest="epochs", const=5, help="5 epochs")
    add("--seed", type=int, default=0, metavar="N", help="of vectors and random words (default: %(default)s)")
    add("--start-method", choices=mp.get_all_start_methods(), default=method, help="default: %(default)s")
    add("--plot", type=Path, default=plot, metavar="FILE", help="default: %(default)s")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    hogwild.set_single_thread()  # the processes share the cores with this one
    text = load().share_memory()
    words = text.training.numel()
    print(f"{words:,} words to read, {len(text.words):,} different ones; {arguments.epochs} epochs", flush=True)
    try:
        runs = [run_hogwild(arguments, text, processes) for processes in sorted({1, arguments.processes})]
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print_table(runs, text)
    draw_plot(runs, text, arguments.plot)
    print(f"accuracy over time, and a map of words: {arguments.plot}")

    worst = min(run.accuracy for run in runs)
    if worst < WANTED:
        print(
            f"word2vec_hogwild: test accuracy {worst:.3f} is below {WANTED}; train for more --epochs", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
