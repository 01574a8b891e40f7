"""Hogwild: several processes train one network in one piece of shared memory, without a single lock.

The weights of a small network live in one shared tensor. Every process draws batches of handwritten digits, computes a
gradient with NumPy and subtracts it from those weights in place, whatever the others are doing at that moment. Updates
sometimes overwrite each other; stochastic gradient descent does not mind (Niu et al., "Hogwild!", NIPS 2011).

    python examples/hogwild.py                     # one process, then one per core
    python examples/hogwild.py --processes 4 --start-method spawn

It shows a bar while it trains, prints a table, draws loss and accuracy over time, and exits 0 if every run reached an
accuracy of 0.95 on digits that it was not trained on.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Parallelism is our business here: one BLAS thread per process. Must be set before NumPy is loaded.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np
from numpy.typing import NDArray

import shmtensor
import shmtensor.multiprocessing as mp

SIZES = (64, 256, 128, 10)  # pixels, two hidden layers, digits
BATCH = 32
RATE = 0.02  # of learning at the start; falls to 0 in a straight line
TEST_IMAGES = 360  # of 1,797; the other 1,437 are trained on
WANTED = 0.95  # test accuracy

Floats = NDArray[np.float32]
Layers = list[tuple[Floats, Floats]]  # (weights, bias) of each layer


# ---- what the processes share ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shared:
    """Everything that the processes have in common. Each field travels to a worker as a handle, never as a copy."""

    parameters: shmtensor.Tensor  # (weights and biases of all layers,) float32: one storage for the whole network
    images: shmtensor.Tensor  # (training images, 64) float32
    labels: shmtensor.Tensor  # (training images,) int64
    board: shmtensor.Tensor  # (processes, 4) float64: each worker writes its own row, the columns are below
    signal: shmtensor.Tensor  # (1,) int64: the parent writes WAIT, GO or STOP


READY, SAMPLES, LOSS, FINISHED = range(4)  # columns of the board; FINISHED is a time of time.monotonic()
WAIT, GO, STOP = range(3)


def count_parameters() -> int:
    return sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(SIZES))


def split_layers(parameters: shmtensor.Tensor) -> Layers:
    """NumPy views of every layer's weights and bias in the one flat tensor. Nothing is copied."""
    layers, start = [], 0
    for inputs, outputs in itertools.pairwise(SIZES):
        weights = parameters.narrow(0, start, inputs * outputs).view(inputs, outputs)
        bias = parameters.narrow(0, start + inputs * outputs, outputs)
        layers.append((weights.numpy(), bias.numpy()))
        start += (inputs + 1) * outputs
    return layers


# ---- the network -----------------------------------------------------------------------------------------------------


def initialise(layers: Layers, rng: np.random.Generator) -> None:
    """He initialisation, in place."""
    for weights, bias in layers:
        weights[...] = rng.standard_normal(weights.shape) * np.sqrt(2 / len(weights))
        bias[...] = 0


def forward(layers: Layers, images: Floats) -> list[Floats]:
    """The input of every layer, and at the end the logarithm of each digit's probability (batch, 10)."""
    values = [images]
    for weights, bias in layers[:-1]:
        values.append(np.maximum(values[-1] @ weights + bias, 0))
    weights, bias = layers[-1]
    scores = values[-1] @ weights + bias
    scores -= scores.max(axis=1, keepdims=True)
    return [*values, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))]


def loss_and_gradients(layers: Layers, images: Floats, labels: NDArray[np.int64]) -> tuple[float, Layers]:
    """Mean cross-entropy of a batch, and its gradient for every layer, by hand."""
    *inputs, log_probability = forward(layers, images)
    rows = np.arange(len(labels))
    loss = -float(log_probability[rows, labels].mean())

    error = np.exp(log_probability)
    error[rows, labels] -= 1
    error /= len(labels)
    gradients: Layers = []
    for (weights, _), values in zip(reversed(layers), reversed(inputs), strict=True):
        gradients.append((values.T @ error, error.sum(axis=0)))
        error = (error @ weights.T) * (values > 0)
    return loss, gradients[::-1]


def evaluate(layers: Layers, images: Floats, labels: NDArray[np.int64]) -> tuple[float, float]:
    """(mean cross-entropy, part of the images recognised)."""
    log_probability = forward(layers, images)[-1]
    loss = -float(log_probability[np.arange(len(labels)), labels].mean())
    return loss, float((log_probability.argmax(axis=1) == labels).mean())


# ---- a worker --------------------------------------------------------------------------------------------------------


def train(rank: int, shared: Shared, total: int, seed: int) -> None:
    """Train until all workers together have seen `total` samples, or the parent says STOP."""
    layers = split_layers(shared.parameters)
    images, labels = shared.images.numpy(), shared.labels.numpy()
    board, signal_ = shared.board.numpy(), shared.signal.numpy()
    row, everyone = board[rank], board[:, SAMPLES]
    rng = np.random.default_rng((seed, rank))

    row[READY] = 1
    while signal_[0] == WAIT:
        time.sleep(0.001)
        parent = mp.parent_process()
        if parent is not None and not parent.is_alive():
            return
    while (seen := everyone.sum()) < total and signal_[0] == GO:
        batch = rng.integers(len(labels), size=BATCH)
        loss, gradients = loss_and_gradients(layers, images[batch], labels[batch])
        rate = np.float32(RATE * (1 - seen / total))
        for (weights, bias), (weights_gradient, bias_gradient) in zip(layers, gradients, strict=True):
            weights -= rate * weights_gradient  # in place, into memory that all workers write: this is Hogwild
            bias -= rate * bias_gradient
        row[LOSS] += 0.02 * (loss - row[LOSS])  # a running mean, for the bar
        row[SAMPLES] += BATCH
    row[FINISHED] = time.monotonic()


# ---- the parent ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Digits:
    """The UCI handwritten digits that scikit-learn ships: 1,797 images of 8x8 pixels, values 0 to 1."""

    train_images: Floats
    train_labels: NDArray[np.int64]
    test_images: Floats
    test_labels: NDArray[np.int64]

    @classmethod
    def load(cls, seed: int) -> Digits:
        from sklearn.datasets import load_digits

        bunch = load_digits()
        images, labels = (bunch.data / 16).astype(np.float32), bunch.target.astype(np.int64)
        order = np.random.default_rng(seed).permutation(len(labels))
        test, rest = order[:TEST_IMAGES], order[TEST_IMAGES:]
        return cls(images[rest], labels[rest], images[test], labels[test])


@dataclass(frozen=True)
class Run:
    """What one training run gave: `curve` has (seconds, training loss, test accuracy) from start to end."""

    processes: int
    seconds: float
    samples: int
    curve: list[tuple[float, float, float]]

    @property
    def accuracy(self) -> float:
        return self.curve[-1][2]


class Bar:
    """A progress bar on stderr; where that is no terminal, a line per quarter."""

    WIDTH = 30

    def __init__(self, label: str) -> None:
        self.label = label
        self.live = sys.stderr.isatty()
        self.quarter = -1

    def show(self, part: float, text: str) -> None:
        part = min(part, 1.0)
        if self.live:
            full = int(part * self.WIDTH)
            line = f"{self.label} [{'#' * full}{'.' * (self.WIDTH - full)}] {part:4.0%}  {text}"
            sys.stderr.write(f"\r{line}\x1b[K")
            sys.stderr.flush()
        elif int(part * 4) > self.quarter:
            self.quarter = int(part * 4)
            print(f"{self.label} {part:4.0%}  {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.live:
            sys.stderr.write("\n")


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Processes started in here do not see Ctrl-C: the parent does, and tells them to stop."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def run_hogwild(digits: Digits, processes: int, epochs: int, seed: int, method: str | None) -> Run:
    """Train a fresh network with so many processes. Raises RuntimeError when one of them dies."""
    shared = Shared(
        parameters=shmtensor.zeros(count_parameters(), shared=True),
        images=shmtensor.from_numpy(digits.train_images).share_memory_(),
        labels=shmtensor.from_numpy(digits.train_labels).share_memory_(),
        board=shmtensor.zeros(processes, 4, dtype=shmtensor.float64, shared=True),
        signal=shmtensor.zeros(1, dtype=shmtensor.int64, shared=True),
    )
    parameters, board, signal_ = shared.parameters.numpy(), shared.board.numpy(), shared.signal.numpy()
    initialise(split_layers(shared.parameters), np.random.default_rng(seed))
    board[:, LOSS] = np.log(10)  # of a network that guesses
    total = epochs * len(digits.train_labels)

    context = mp.get_context(method)
    workers = [context.Process(target=train, args=(rank, shared, total, seed)) for rank in range(processes)]
    bar = Bar(f"{processes} process{'es' if processes > 1 else '  '}")
    try:
        with ignoring_interrupts():
            for worker in workers:
                worker.start()
        deadline = time.monotonic() + 60
        while not board[:, READY].all():
            check(workers)
            if time.monotonic() > deadline:
                raise RuntimeError("the workers were not ready within 60 s")
            workers[0].join(0.001)  # a bounded wait that ends early if it dies

        # The snapshots are evaluated after the race, so that looking does not slow down the runners.
        snapshots = [(0.0, parameters.copy())]
        start = time.monotonic()
        signal_[0] = GO
        while not board[:, FINISHED].all():
            check(workers)
            workers[0].join(0.05)
            elapsed, seen = time.monotonic() - start, board[:, SAMPLES].sum()
            snapshots.append((elapsed, parameters.copy()))
            if len(snapshots) > 200:
                del snapshots[1::2]
            bar.show(seen / total, f"loss {board[:, LOSS].mean():.4f}  {seen / elapsed:9,.0f} samples/s")
        seconds = float(board[:, FINISHED].max()) - start
        snapshots[-1] = (seconds, parameters.copy())
    finally:
        bar.close()
        signal_[0] = STOP
        with ignoring_interrupts():
            end(workers)
    return Run(processes, seconds, int(board[:, SAMPLES].sum()), draw_curve(snapshots, digits))


def check(workers: Sequence[mp.Process]) -> None:
    for rank, worker in enumerate(workers):
        if worker.exitcode:
            raise RuntimeError(f"worker {rank} (pid {worker.pid}) died with exit code {worker.exitcode}")


def end(workers: Sequence[mp.Process]) -> None:
    """Wait for every worker that was started; one that does not come within 5 s is killed."""
    deadline = time.monotonic() + 5
    for worker in workers:
        if worker.pid is not None:
            worker.join(max(0.0, deadline - time.monotonic()))
            if worker.is_alive():
                worker.kill()
                worker.join()


def draw_curve(snapshots: list[tuple[float, Floats]], digits: Digits) -> list[tuple[float, float, float]]:
    curve = []
    for seconds, parameters in snapshots:
        layers = split_layers(shmtensor.from_numpy(parameters))
        loss, _ = evaluate(layers, digits.train_images, digits.train_labels)
        _, accuracy = evaluate(layers, digits.test_images, digits.test_labels)
        curve.append((seconds, loss, accuracy))
    return curve


def print_table(runs: Sequence[Run]) -> None:
    print("\nprocesses   seconds   samples/s   test accuracy")
    for run in runs:
        print(f"{run.processes:9}{run.seconds:10.2f}{run.samples / run.seconds:12,.0f}{run.accuracy:16.3f}")
    print()


def draw_plot(runs: Sequence[Run], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for run in runs:
        seconds, losses, accuracies = zip(*run.curve, strict=True)
        label = f"{run.processes} process{'es' if run.processes > 1 else ''}"
        left.plot(seconds, losses, label=label)
        right.plot(seconds, accuracies, label=f"{label}: {run.accuracy:.3f}")
    left.set(title="Training loss", xlabel="seconds", ylabel="cross-entropy", yscale="log")
    right.set(title="Test accuracy", xlabel="seconds", ylim=(0.8, 1.0))
    right.axhline(WANTED, color="grey", linestyle=":", linewidth=1)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle("Hogwild on handwritten digits: one set of weights in shared memory, no locks")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def parse_arguments() -> argparse.Namespace:
    def at_least_one(text: str) -> int:
        if (number := int(text)) < 1:
            raise argparse.ArgumentTypeError(f"{number} is less than 1")
        return number

    parser = argparse.ArgumentParser(description="Train one network with many processes in shared memory, lock-free.")
    processes = max(2, os.cpu_count() or 1)
    plot = Path(__file__).parent / "output" / "hogwild.png"
    parser.add_argument(
        "--processes",
        type=at_least_one,
        default=processes,
        metavar="N",
        help="of the second run (default: %(default)s)",
    )
    parser.add_argument("--epochs", type=at_least_one, default=300, metavar="N", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default: %(default)s")
    parser.add_argument("--plot", type=Path, default=plot, metavar="PNG", help="default: %(default)s")
    parser.add_argument("--start-method", choices=mp.get_all_start_methods(), help="default: the platform's")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    digits = Digits.load(arguments.seed)
    pixels, *hidden, classes = SIZES
    print(
        f"{len(digits.train_labels):,} images to train on, {len(digits.test_labels)} to test; network "
        f"{pixels}-{'-'.join(map(str, hidden))}-{classes}: {count_parameters():,} parameters in one shared tensor; "
        f"{arguments.epochs} epochs",
        flush=True,
    )
    try:
        runs = [
            run_hogwild(digits, processes, arguments.epochs, arguments.seed, arguments.start_method)
            for processes in sorted({1, arguments.processes})
        ]
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except RuntimeError as error:
        print(f"hogwild: {error}", file=sys.stderr)
        return 1
    print_table(runs)
    draw_plot(runs, arguments.plot)
    print(f"loss and accuracy over time: {arguments.plot}")

    worst = min(run.accuracy for run in runs)
    if worst < WANTED:
        print(f"hogwild: test accuracy {worst:.3f} is below {WANTED}; train for more --epochs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
