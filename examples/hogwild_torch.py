"""Hogwild with PyTorch: torch's modules, autograd and optimizer, in shmtensor's shared memory.

Several processes train one `torch.nn.Module`, without locks (hogwild.py explains how). `share_module` moves its weights
into shared memory; the rest of the program is the same as with torch.multiprocessing. The digits are tensors of
shmtensor, which `torch()` passes to torch without a copy.

    python examples/hogwild_torch.py                     # one process, then one per core
    python examples/hogwild_torch.py --processes 4 --start-method spawn

It shows a progress bar, prints a table, draws loss and accuracy over time, and exits with 0 if every run reached an
accuracy of 0.95 on digits that it was not trained on. Kill a worker while it trains: another takes its place.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import dataclass

import torch
from common import digit_runs, digits
from common.digit_runs import BATCH, Run
from common.digits import Digits
from torch import nn
from torch.nn.functional import cross_entropy

from shmtensor import hogwild
from shmtensor.hogwild import Counter, Metrics
from shmtensor.integrations.torch import share_module

RATE = 0.1  # initial learning rate; falls linearly to 0


def new_model() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    )


# ---- a worker --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """The data that all processes share. Torch tensors, too, are sent to a process as handles."""

    model: nn.Module
    data: Digits
    steps: int  # of all processes together
    seed: int
    counter: Counter
    metrics: Metrics


def train(rank: int, job: Job) -> None:
    """Take steps until none is left. Each step has a number that no other process gets."""
    torch.set_num_threads(1)  # the processes share the cores
    optimizer = torch.optim.SGD(job.model.parameters(), lr=RATE)  # it has no state, so each process has its own
    for step in job.counter.until(job.steps):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / job.steps)
        images, labels = job.data.batch(step, BATCH, job.seed)
        loss = cross_entropy(job.model(images.torch()), labels.torch())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # in place, in memory that all processes write to: this is Hogwild
        job.metrics.add(rank, loss=loss.item())


# ---- the parent ------------------------------------------------------------------------------------------------------


def snapshot(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def run_hogwild(data: Digits, test: Digits, processes: int, epochs: int, seed: int, start_method: str) -> Run:
    """Train a fresh network with `processes` processes."""
    torch.manual_seed(seed)
    model = share_module(new_model())
    steps = epochs * (len(data) // BATCH)
    job = Job(model, data, steps, seed, Counter(), Metrics(processes, "loss"))
    return digit_runs.train_together(
        train,
        job,
        processes,
        start_method,
        snapshot=lambda: snapshot(model),
        evaluate=lambda state: evaluate(state, data, test),
    )


def evaluate(state: dict[str, torch.Tensor], data: Digits, test: Digits) -> tuple[float, float]:
    """(Cross-entropy of the training images, accuracy on the test images)."""
    model = new_model()
    model.load_state_dict(state)
    with torch.no_grad():
        loss = cross_entropy(model(data.images.torch()), data.labels.torch())
        recognised = model(test.images.torch()).argmax(1) == test.labels.torch()
    return loss.item(), recognised.float().mean().item()


def run_all(arguments: Namespace, numbers: list[int]) -> list[Run]:
    hogwild.set_single_thread()  # the processes share the cores with this one
    torch.set_num_threads(1)
    data, test = digits.load()
    data.share_memory()
    print(f"{len(data):,} images to train on, {len(test)} to test; {arguments.epochs} epochs", flush=True)
    return [
        run_hogwild(data, test, processes, arguments.epochs, arguments.seed, arguments.start_method)
        for processes in numbers
    ]


if __name__ == "__main__":
    sys.exit(
        digit_runs.main(
            "hogwild_torch",
            "Train one torch module with many processes in our shared memory.",
            "Hogwild with PyTorch: one torch module in our shared memory, no locks",
            run_all,
        )
    )
