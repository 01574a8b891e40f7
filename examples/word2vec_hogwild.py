"""Hogwild with word vectors: processes learn the words of Python's documentation, each from its own part of it.

The text comes with the Python installation: the topics of `help()` and the docstrings of the standard library. Every
process reads its own range of it repeatedly. Skip-gram with negative sampling (Mikolov et al., 2013) changes only the
vectors of the words that are read and of some random ones. These rows of two shared matrices are changed by atomic
additions, so that no change is lost when two processes change the same row, and no process waits.

    python examples/word2vec_hogwild.py            # one process, then one per core
    python examples/word2vec_hogwild.py --processes 4 --start-method spawn
    python examples/word2vec_hogwild.py --gensim   # and gensim's Word2Vec with as many threads, if it is installed
    python examples/word2vec_hogwild.py --autograd # gradients from backward(), steps by an optimizer

It prints words per second and groups of near words, draws a map of them, and exits with 0 if every run learnt which
words fit into gaps: of two words, it finds the one that was taken from unread text in 3 of 4 cases. Kill a worker while
it trains: another takes its place and continues in its range.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import sysconfig
from collections import Counter as Bag
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from common.progress import Progress
from common.workers import run_together

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import hogwild, nn, optim
from shmtensor.atomics import index_add_atomic_
from shmtensor.hogwild import Counter, Metrics
from shmtensor.nn.functional import binary_cross_entropy_with_logits, normalize

STRETCH = 128  # words that are read in a step
WINDOW = 5  # words on either side that count as neighbours, nearer ones more
NEGATIVES = 5  # weight of all random words together, relative to a neighbour
DRAWN = 32  # random words with which all words of a stretch are compared
DIMENSIONS = 64
RATE = 0.025  # initial learning rate; falls linearly to 0
RARE = 5  # words that occur less often are left out
FREQUENT = 5e-4  # words that make up more of the text than this are skipped at random
NOT_READ = {"test", "site-packages", "dist-packages", "pydoc_data", "lib2to3", "idlelib"}  # folders
HELD_OUT = 20  # one stretch in this many is kept for tests
WANTED = 0.75  # test accuracy; 0.5 is chance
STEPS_BETWEEN_LOSSES = 32  # the bar shows the mean of these losses
SECONDS_BETWEEN_EVALUATIONS = 0.4
SHOWN = ("list", "float", "socket", "thread", "directory", "exception", "month")


# ---- the text --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    words: list[str]  # by number, the most frequent first
    training: st.Tensor  # numbers of words (stretches, STRETCH), the stretches in random order
    test: st.Tensor  # numbers of words (n,), without frequent ones
    kept: st.Tensor  # the chance that a word is not skipped, by number
    random: st.Tensor  # numbers of words, each in proportion to its chance of being drawn
    wanted: st.Tensor  # 0 for the random words, 1 for the words of the stretch (STRETCH, DRAWN + STRETCH)
    weight: st.Tensor  # the weight of each of these for each word of a stretch

    def share_memory(self) -> Text:
        for tensor in (self.training, self.test, self.kept, self.random, self.wanted, self.weight):
            tensor.share_memory_()
        return self


def documents() -> Iterator[str]:
    """The topics of `help()`, and the triple-quoted strings in the modules of the standard library."""
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
    kept = np.minimum(1, np.sqrt(FREQUENT / part) + FREQUENT / part).astype(np.float32)
    drawn = np.repeat(np.arange(len(part)), np.ceil(200_000 * part**0.75 / (part**0.75).sum()).astype(int))

    stretches = numbers[: len(numbers) // STRETCH * STRETCH].reshape(-1, STRETCH)
    order = np.random.default_rng(0).permutation(len(stretches))
    held_out, training = np.split(stretches[order], [len(stretches) // HELD_OUT])
    test = held_out[kept[held_out] > 0.5]
    wanted, weight = wanted_and_weight()
    return Text(
        list(counts), st.from_numpy(training), st.from_numpy(test), st.from_numpy(kept), st.from_numpy(drawn), wanted,
        weight,
    )  # fmt: skip


def wanted_and_weight() -> tuple[st.Tensor, st.Tensor]:
    """The wanted answers for random words and for the words of a stretch, and the weight of each answer.

    The weight of a word is 1 beside another, less with distance, and 0 beyond the window and for the word itself.
    """
    place = st.arange(STRETCH)
    distance = (place - place.unsqueeze(1)).abs()
    near = (1 - (distance - 1) / WINDOW).clamp(min=0) * (distance > 0)
    far = (near.sum(1, keepdim=True) * (NEGATIVES / DRAWN)).expand(STRETCH, DRAWN)
    wanted = st.cat([st.zeros(STRETCH, DRAWN), st.ones(STRETCH, STRETCH)], 1)
    return wanted, st.cat([far, near], 1)


# ---- a worker --------------------------------------------------------------------------------------------------------


class Vectors(nn.Module):
    """Two vectors for each word: as the word in the middle, and as a neighbour."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.middle = nn.Embedding(words, DIMENSIONS, sparse=True)
        self.neighbour = nn.Embedding(words, DIMENSIONS, sparse=True)
        for table in self.parameters():
            nn.init.uniform_(table, -0.5 / DIMENSIONS, 0.5 / DIMENSIONS)


@dataclass(frozen=True)
class Job:
    """The data that all processes share. Its tensors are sent to a process as handles, never as copies."""

    vectors: Vectors
    text: Text
    epochs: int
    seed: int
    autograd: bool
    places: list[Counter]  # the position of each process in its range
    counter: Counter  # steps of all processes
    metrics: Metrics

    @property
    def steps(self) -> int:
        return self.epochs * len(self.text.training)

    def range_of(self, rank: int) -> st.Tensor:
        return self.text.training[rank :: len(self.places)]


def train(rank: int, job: Job) -> None:
    """Read a range of the text once in each epoch, beginning at the position of a killed predecessor, if any."""
    mine, place = job.range_of(rank), job.places[rank]
    st.manual_seed(1_000_003 * job.seed + job.steps * rank + place.value)
    learn = steps_by_autograd(job.vectors) if job.autograd else steps_by_hand(job.vectors)
    for step in place.until(job.epochs * len(mine)):
        question = Question(job.text, mine[step % len(mine)])
        learn(question, max(0, 1 - job.counter.value / job.steps))
        job.counter.add()
        if step % STEPS_BETWEEN_LOSSES == 0:
            with st.no_grad():
                job.metrics.add(rank, loss=question.loss(job.vectors) / question.weight.sum())


class Question:
    """Which of some words are neighbours of each word of a stretch? Its own words are, random words are not."""

    def __init__(self, text: Text, stretch: st.Tensor) -> None:
        self.words = stretch[st.rand(len(stretch)) < text.kept[stretch]]
        random = text.random[st.randint(0, len(text.random), (DRAWN,))]
        self.others = st.cat([random, self.words])
        part = slice(len(self.words)), slice(len(self.others))
        self.wanted, self.weight = text.wanted[part], text.weight[part]

    def loss(self, vectors: Vectors) -> st.Tensor:
        """The loss over all pairs of words, which are the elements of one matrix product."""
        scores = vectors.middle(self.words) @ vectors.neighbour(self.others).T
        return binary_cross_entropy_with_logits(scores, self.wanted, weight=self.weight, reduction="sum")


Learn = Callable[[Question, float], None]  # a step, with a factor of the rate


def steps_by_autograd(vectors: Vectors) -> Learn:
    """The gradients of the tables are sparse: they have only the rows that were read, which the optimizer updates."""
    optimizer = optim.SGD(vectors.parameters(), lr=RATE)

    def learn(question: Question, factor: float) -> None:
        hogwild.scale_rates(optimizer, factor)
        optimizer.zero_grad()
        question.loss(vectors).backward()
        optimizer.step()

    return learn


def steps_by_hand(vectors: Vectors) -> Learn:
    """The same steps in less time: the gradient of this loss is the error of each answer, so no loss is computed."""
    middle, neighbour = vectors.middle.weight.detach(), vectors.neighbour.weight.detach()

    def learn(question: Question, factor: float) -> None:
        words, others = question.words, question.others
        u, v = middle[words], neighbour[others]
        error = (question.wanted - (u @ v.T).sigmoid()) * question.weight
        index_add_atomic_(middle, 0, words, error @ v, alpha=RATE * factor)
        index_add_atomic_(neighbour, 0, others, error.T @ u, alpha=RATE * factor)

    return learn


# ---- the parent ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """The result of a training run: `curve` has (seconds, accuracy) from start to end."""

    label: str
    processes: int
    words: int
    curve: list[tuple[float, float]]
    middle: st.Tensor  # the vectors of words in the middle
    replaced: int = 0

    @property
    def seconds(self) -> float:
        return self.curve[-1][0]

    @property
    def speed(self) -> float:
        return self.words / self.seconds

    @property
    def accuracy(self) -> float:
        return self.curve[-1][1]


def accuracy_of(middle: st.Tensor, neighbour: st.Tensor, test: st.Tensor) -> float:
    """How often the word of a gap fits better between the two words on each side than another word of the test."""
    around = neighbour[test]
    around = around[:-4] + around[1:-3] + around[3:-1] + around[4:]
    words = test[2:-2]
    others = words[st.randperm(len(words), generator=st.Generator().manual_seed(0))]
    fits, other_fits = ((around * middle[which]).sum(1) for which in (words, others))
    found = (fits > other_fits).float() + (fits == other_fits).float() / 2
    return float(found[words != others].mean())


def run_hogwild(arguments: argparse.Namespace, text: Text, processes: int) -> Run:
    """Learn the vectors with `processes` processes."""
    st.manual_seed(arguments.seed)
    vectors = Vectors(len(text.words)).share_memory()
    middle, neighbour = vectors.middle.weight.detach(), vectors.neighbour.weight.detach()
    places, counter, metrics = [Counter() for _ in range(processes)], Counter(), Metrics(processes, "loss")
    job = Job(vectors, text, arguments.epochs, arguments.seed, arguments.autograd, places, counter, metrics)
    curve = [(0.0, accuracy_of(middle, neighbour, text.test))]

    def watch(seconds: float) -> None:
        if seconds > curve[-1][0] + SECONDS_BETWEEN_EVALUATIONS:
            curve.append((seconds, accuracy_of(middle, neighbour, text.test)))
        progress.show(accuracy=f"{curve[-1][1]:.3f}")

    label = f"{processes} process{'es' if processes > 1 else ''}"
    with Progress(f"{label:11}", counter, job.steps, metrics) as progress:
        outcome = run_together(train, (job,), processes, start_method=arguments.start_method, watch=watch)
    curve.append((outcome.seconds, accuracy_of(middle, neighbour, text.test)))
    return Run(label, processes, counter.value * STRETCH, curve, middle, outcome.replaced)


def run_gensim(arguments: argparse.Namespace, text: Text, threads: int) -> Run:
    """Learn the vectors with gensim's Word2Vec, from the same text with the same settings."""
    from common import gensim_words

    curve: list[tuple[float, float]] = []
    tables: list[st.Tensor] = []

    def watch(seconds: float, *now: Any) -> None:
        tables[:] = map(st.from_numpy, now)
        curve.append((seconds, accuracy_of(tables[0], tables[1], text.test)))

    stretches = [[text.words[number] for number in stretch] for stretch in text.training.tolist()]
    settings = {
        "vector_size": DIMENSIONS, "window": WINDOW, "negative": NEGATIVES, "sample": FREQUENT, "alpha": RATE,
        "epochs": arguments.epochs, "seed": arguments.seed,
    }  # fmt: skip
    gensim_words.learn(text.words, stretches, threads, settings, watch)
    label = f"gensim, {threads} thread{'s' if threads > 1 else ''}"
    return Run(label, threads, arguments.epochs * text.training.numel(), curve, tables[0])


def nearest(middle: st.Tensor, text: Text, word: str, count: int) -> list[str]:
    """The words with the largest cosine similarity to a word, the nearest first."""
    directions = normalize(middle, dim=1)
    cosines = directions @ directions[text.words.index(word)]
    return [text.words[i] for i in cosines.topk(count + 1).indices.tolist() if text.words[i] != word]


def print_table(runs: Sequence[Run], peers: Sequence[Run], text: Text) -> None:
    print("\nprocesses   seconds     words/s   test accuracy   replaced")
    for run in runs:
        print(f"{run.processes:9}{run.seconds:10.2f}{run.speed:12,.0f}{run.accuracy:16.3f}{run.replaced:11}")
    if peers:
        print("\ngensim, threads   seconds     words/s   test accuracy")
        for run in peers:
            print(f"{run.processes:15}{run.seconds:10.2f}{run.speed:12,.0f}{run.accuracy:16.3f}")
    print(f"\nnearest words ({runs[-1].label}):")
    for word in SHOWN:
        print(f"{word:>12}: {', '.join(nearest(runs[-1].middle, text, word, 6))}")
    print()


def draw_plot(runs: Sequence[Run], peers: Sequence[Run], text: Text, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (speeds, curves, words) = plt.subplots(1, 3, figsize=(15, 5), width_ratios=(3, 5, 8), layout="constrained")
    for i, run in enumerate([*runs, *peers]):
        peer = run in peers
        color = f"C{i - len(runs) if peer else i}"
        bar = speeds.bar(run.label.replace(", ", "\n"), run.speed / 1e6, color=color, alpha=0.5 if peer else 1)
        speeds.bar_label(bar, fmt="%.2f")
        label = f"{run.label}: {run.accuracy:.3f}"
        curves.plot(*zip(*run.curve, strict=True), color=color, linestyle="--" if peer else "-", label=label)
    speeds.set(title="Million words per second")
    speeds.tick_params("x", labelsize=8)
    curves.axhline(WANTED, color="grey", linestyle=":", linewidth=1)
    curves.set(title="Test accuracy", xlabel="seconds", ylim=(0.45, 0.9))
    curves.grid(alpha=0.3)
    curves.legend(loc="lower right")
    draw_map(words, runs[-1].middle, text)
    figure.suptitle("Word vectors of Python's documentation: two matrices in shared memory, no locks")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def draw_map(plot: Any, middle: st.Tensor, text: Text) -> None:
    """Draw some words and those near to them, projected so that they are farthest apart."""
    groups = [[word, *nearest(middle, text, word, 5)] for word in SHOWN]
    directions = normalize(middle[[text.words.index(word) for group in groups for word in group]], dim=1)
    centred = directions - directions.mean(0)
    _, _, axes = st.linalg.svd(centred, full_matrices=False)
    points = iter((centred @ axes[:2].T).tolist())
    for color, group in enumerate(groups):
        placed = [next(points) for _ in group]
        middle_x = sum(x for x, _ in placed) / len(placed)
        for word, (x, y) in zip(group, placed, strict=True):
            side, align = (4, "left") if x > middle_x else (-4, "right")  # away from the others
            weight = "bold" if word == group[0] else "normal"
            how = {"ha": align, "va": "center", "color": f"C{color}", "weight": weight, "size": 9}
            plot.plot(x, y, ".", color=f"C{color}")
            plot.annotate(word, (x, y), (side, 0), textcoords="offset points", **how)
    plot.set(title="Some words and the words nearest to them", xticks=[], yticks=[])
    plot.margins(0.15, 0.08)


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
    add("--autograd", action="store_true", help="compute gradients by backward()")
    add("--gensim", action="store_true", help="compare with gensim's Word2Vec, which must be installed")
    add("--start-method", choices=mp.get_all_start_methods(), default=method, help="default: %(default)s")
    add("--plot", type=Path, default=plot, metavar="FILE", help="default: %(default)s")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    hogwild.set_single_thread()  # the processes share the cores with this one
    text = load().share_memory()
    words = text.training.numel()
    print(f"{words:,} words to read, {len(text.words):,} different ones; {arguments.epochs} epochs", flush=True)
    counts = sorted({1, arguments.processes})
    try:
        runs = [run_hogwild(arguments, text, processes) for processes in counts]
        peers = [run_gensim(arguments, text, threads) for threads in counts] if arguments.gensim else []
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print_table(runs, peers, text)
    draw_plot(runs, peers, text, arguments.plot)
    print(f"words per second, accuracy over time, and a map of words: {arguments.plot}")

    worst = min(run.accuracy for run in runs)
    if worst < WANTED:
        print(
            f"word2vec_hogwild: test accuracy {worst:.3f} is below {WANTED}; train for more --epochs", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
