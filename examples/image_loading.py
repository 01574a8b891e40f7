"""Workers decode, crop and flip photographs, while a network learns to classify them.

For each sample, a worker decodes a whole JPEG file, takes a random square of it, and scales, flips and lights it at
random. The same data is loaded without workers, with one, with several, with threads of one worker, and by torch's
DataLoader if torch is installed. After an epoch without training, a small convolutional network is trained.

    python examples/image_loading.py
    python examples/image_loading.py --workers 4 --epochs 8

Random numbers depend on the sample, not on the worker: with any number of workers, the network sees the same crops in
the same order, and reaches the same accuracy. It is tested on a quarter of each photograph that it has not seen. It
exits with 0 if the test accuracy is at least 0.9.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import photographs
from common.photographs import Crops
from tqdm import tqdm

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import hogwild, nn, optim
from shmtensor.nn.functional import cross_entropy

CROPS = 960  # in an epoch
QUICK_CROPS = 480
TEST_CROPS = 300
BATCH = 24
RATE = 0.005  # initial learning rate; falls to 0 as a cosine
WANTED = 0.9  # test accuracy
EVALUATED = 6  # batches between two tests
WIDTH = 23  # characters of a label


# ---- loaders ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """How samples are loaded: the number of workers and of threads in each, and which loader."""

    workers: int
    threads: int = 1
    torch: bool = False

    @property
    def label(self) -> str:
        crew = f"{self.workers or 'no'} worker{'s' * (self.workers != 1)}"
        return f"{'torch with ' * self.torch}{crew}{f' with {self.threads} threads' * (self.threads > 1)}"

    def loader(self, crops: Crops, seed: int, start_method: str) -> Any:
        """Batches of crops (24, 32, 32, 3) uint8, and their labels (24,) int64, in another order in each epoch."""
        method = start_method if self.workers else None
        if self.torch:
            return self.torch_loader(CropsOfTorch(crops.photographs, crops.length), seed, method)
        return st.data.DataLoader(
            crops, BATCH, shuffle=True, num_workers=self.workers, threads=self.threads,
            persistent_workers=self.workers > 0, multiprocessing_context=method, seed=seed,
        )  # fmt: skip

    def torch_loader(self, crops: Crops, seed: int, method: str | None) -> Any:
        import torch.utils.data

        torch.set_num_threads(1)
        return torch.utils.data.DataLoader(
            crops, BATCH, shuffle=True, num_workers=self.workers,
            persistent_workers=self.workers > 0, multiprocessing_context=method,
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip


class CropsOfTorch(Crops):
    """The same for torch's DataLoader, which has no generator for each sample: its workers have seeds."""

    def random(self, index: int) -> np.random.Generator:
        import torch

        return np.random.default_rng((torch.initial_seed(), index))


# ---- loading, and training on what comes -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """The result of a setting: `curve` has (seconds of training, test accuracy)."""

    setting: Setting
    first_batch: float  # seconds from `iter()` of a loader whose workers have not been started
    speed: float  # images a second of that epoch, in which nothing is trained
    curve: list[tuple[float, float]]

    @property
    def accuracy(self) -> float:
        return self.curve[-1][1]


def decoding_alone(crops: Crops) -> float:
    """Images a second of making samples in this process, without a loader."""
    count = len(crops) // 2
    start = time.perf_counter()
    for index in tqdm(range(count), desc=f"{'decoding alone':{WIDTH}}", unit=" images", disable=None):
        crops[index]
    return count / (time.perf_counter() - start)


def run(arguments: argparse.Namespace, setting: Setting, crops: Crops, test: Callable[[Any], float]) -> Run:
    """Load an epoch, and train a fresh network on more of them."""
    st.manual_seed(arguments.seed)
    loader = setting.loader(crops, arguments.seed, arguments.start_method)
    batches = (1 + arguments.epochs) * len(loader)
    with tqdm(total=batches, desc=f"{setting.label:{WIDTH}}", unit=" batches", disable=None, dynamic_ncols=True) as bar:
        first_batch, speed = loaded(loader, bar)
        return Run(setting, first_batch, speed, trained(loader, arguments.epochs, test, bar))


def loaded(loader: Any, bar: Any) -> tuple[float, float]:
    """Seconds to the first batch, and images a second, of an epoch whose batches are dropped."""
    count, first = 0, 0.0
    start = time.perf_counter()
    for _, labels in loader:
        first = first or time.perf_counter() - start
        count += len(labels)
        bar.update()
    return first, count / (time.perf_counter() - start)


def trained(loader: Any, epochs: int, test: Callable[[Any], float], bar: Any) -> list[tuple[float, float]]:
    """Train a network, and return (seconds, test accuracy) at intervals."""
    model = new_model()
    optimizer = optim.Adam(model.parameters(), lr=RATE)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    curve = [(0.0, test(model))]
    start = time.perf_counter()
    for epoch in range(epochs):
        for number, (crops, labels) in enumerate(loader, 1 + epoch * len(loader)):
            loss = cross_entropy(model(as_input(crops)), ours(labels))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if number % EVALUATED == 0:
                curve.append((time.perf_counter() - start, test(model)))
            bar.update()
            bar.set_postfix(loss=f"{loss.item():.3f}", accuracy=f"{curve[-1][1]:.3f}", refresh=False)
    return [*curve, (time.perf_counter() - start, test(model))]


def new_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(24 * (photographs.PIXELS // 4) ** 2, 3),
    )  # fmt: skip


def ours(batch: Any) -> st.Tensor:
    """A batch as a shmtensor tensor over the same memory."""
    return batch if isinstance(batch, st.Tensor) else st.from_torch(batch)


def as_input(crops: Any) -> st.Tensor:
    """The network's input for crops (n, 32, 32, 3) uint8: (n, 3, 32, 32) float32, centred at 0."""
    return ours(crops).permute(0, 3, 1, 2).float() / 255 - 0.5


# ---- what is shown ---------------------------------------------------------------------------------------------------


def print_table(alone: float, runs: Sequence[Run]) -> None:
    print(f"\n{'loader':{WIDTH}}  ms to first batch   images/s   x decoding   s of training   test accuracy")
    print(f"{'decoding alone':{WIDTH + 19}}{alone:11,.0f}")
    for one in runs:
        figures = f"{1000 * one.first_batch:19,.0f}{one.speed:11,.0f}{one.speed / alone:13.2f}{one.curve[-1][0]:16.2f}"
        print(f"{one.setting.label:{WIDTH}}{figures}{one.accuracy:16.3f}")
    print()


def draw_plot(alone: float, runs: Sequence[Run], crops: Crops, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(13, 4), layout="constrained")
    left, middle, right = figure.subfigures(1, 3, squeeze=False, width_ratios=(2, 3, 3))[0]
    left.suptitle("Crops to train on")
    for number, axes in enumerate(left.subplots(5, len(crops.photographs)).flat):
        axes.imshow(crops[number][0])
        axes.set(xticks=[], yticks=[])

    middle.suptitle("Loading alone, images a second")
    axes = middle.subplots()
    colors = [f"C{number}" for number in range(len(runs))]
    bars = axes.barh([one.setting.label for one in runs], [one.speed for one in runs], color=colors)
    axes.bar_label(bars, fmt="{:,.0f}", label_type="center", color="white")
    for times in (1, 2):
        axes.axvline(times * alone, color="grey", linestyle=":", linewidth=1)
        top = axes.get_xaxis_transform()
        axes.text(times * alone, 1, f"{times} x decoding", transform=top, ha="center", va="bottom", fontsize="small")
    axes.invert_yaxis()

    right.suptitle("Training: test accuracy")
    axes = right.subplots()
    for one, color in zip(runs, colors, strict=True):
        axes.plot(*zip(*one.curve, strict=True), color=color, label=f"{one.setting.label}: {one.accuracy:.3f}")
    axes.axhline(WANTED, color="grey", linestyle=":", linewidth=1)
    axes.set(xlabel="seconds", ylim=(0.3, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def parse_arguments() -> argparse.Namespace:
    def at_least_one(text: str) -> int:
        if (number := int(text)) < 1:
            raise argparse.ArgumentTypeError(f"{number} is less than 1")
        return number

    parser = argparse.ArgumentParser(description="Load photographs with workers, and train a network on them.")
    workers = max(2, os.cpu_count() or 1)
    method = mp.get_start_method()
    plot = Path(__file__).parent / "output" / "image_loading.png"
    add = parser.add_argument
    add("--workers", type=at_least_one, default=workers, metavar="N", help="at most (default: %(default)s)")
    add("--epochs", type=at_least_one, default=3, metavar="N", help="of training (default: %(default)s)")
    add("--crops", type=at_least_one, default=CROPS, metavar="N", help="of an epoch (default: %(default)s)")
    add("--quick", action="store_true", help="fewer crops, and only with that many workers")
    add("--no-torch", action="store_true", help="leave out torch's DataLoader, even if it is installed")
    add("--seed", type=int, default=0, metavar="N", help="of weights, order and crops (default: %(default)s)")
    add("--start-method", choices=mp.get_all_start_methods(), default=method, help="default: %(default)s")
    add("--plot", type=Path, default=plot, metavar="FILE", help="default: %(default)s")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.crops = QUICK_CROPS
    return arguments


def settings_of(arguments: argparse.Namespace) -> list[Setting]:
    workers = arguments.workers
    if arguments.quick:
        return [Setting(workers)]
    found = [Setting(count) for count in sorted({0, 1, workers})] + [Setting(1, threads=workers)] * (workers > 1)
    if importlib.util.find_spec("torch") is not None and not arguments.no_torch:
        found += [Setting(count, torch=True) for count in (0, workers)]
    return found


def main() -> int:
    arguments = parse_arguments()
    hogwild.set_single_thread()  # the workers share the cores with this process
    files = photographs.files()
    crops = Crops(files.values(), arguments.crops)
    held_out, labels = photographs.crops_to_test(files.values(), TEST_CROPS)
    test_crops, test_labels = as_input(st.from_numpy(held_out)), st.from_numpy(labels)
    epochs = f"{arguments.epochs} epoch{'s' * (arguments.epochs > 1)} of training"
    print(f"{len(crops):,} crops an epoch of {', '.join(files)}; {epochs}", flush=True)

    def test(model: Any) -> float:
        with st.no_grad():
            return float((model(test_crops).argmax(1) == test_labels).float().mean())

    try:
        alone = decoding_alone(crops)
        runs = [run(arguments, setting, crops, test) for setting in settings_of(arguments)]
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print_table(alone, runs)
    draw_plot(alone, runs, crops, arguments.plot)
    print(f"loading, and accuracy over time: {arguments.plot}")

    worst = min(one.accuracy for one in runs)
    if worst < WANTED:
        print(f"image_loading: test accuracy {worst:.3f} is below {WANTED}; train for more --epochs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
