"""Hogwild: several processes train one network in shared memory, without locks.

Every process draws batches of handwritten digits, computes gradients, and updates the same weights in place, without
waiting for the others. Updates sometimes overwrite each other; stochastic gradient descent tolerates this (Niu et al.,
"Hogwild!", NIPS 2011).

    python examples/hogwild.py                     # one process, then one per core
    python examples/hogwild.py --processes 4 --start-method spawn

It shows a progress bar, prints a table, draws loss and accuracy over time, and exits with 0 if every run reached an
accuracy of 0.95 on digits that it was not trained on. Kill a worker while it trains: another takes its place.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import dataclass

from common import digit_runs, digits
from common.digit_runs import BATCH, Run
from common.digits import Digits

import shmtensor as st
from shmtensor import hogwild, nn, optim
from shmtensor.hogwild import Counter, Metrics
from shmtensor.nn.functional import cross_entropy

RATE = 0.1  # initial learning rate; falls linearly to 0


def new_model() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    )


# ---- a worker --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """The data that all processes share. Its tensors are sent to a process as handles, never as copies."""

    model: nn.Module
    optimizer: optim.Optimizer
    data: Digits
    steps: int  # of all processes together
    seed: int
    counter: Counter
    metrics: Metrics


def train(rank: int, job: Job) -> None:
    """Take steps until none is left. Each step has a number that no other process gets."""
    for step in job.counter.until(job.steps):
        hogwild.scale_rates(job.optimizer, 1 - step / job.steps)
        images, labels = job.data.batch(step, BATCH, job.seed)
        loss = cross_entropy(job.model(images), labels)
        job.optimizer.zero_grad()
        loss.backward()
        job.optimizer.step()  # in place, in memory that all processes write to: this is Hogwild
        job.metrics.add(rank, loss=loss)


# ---- the parent ------------------------------------------------------------------------------------------------------


def run_hogwild(data: Digits, test: Digits, processes: int, epochs: int, seed: int, start_method: str) -> Run:
    """Train a fresh network with `processes` processes."""
    st.manual_seed(seed)
    model = new_model()
    model.share_memory()
    optimizer = optim.SGD(model.parameters(), lr=RATE)
    optimizer.share_memory()
    steps = epochs * (len(data) // BATCH)
    job = Job(model, optimizer, data, steps, seed, Counter(), Metrics(processes, "loss"))
    return digit_runs.train_together(
        train,
        job,
        processes,
        start_method,
        snapshot=lambda: hogwild.snapshot(model.state_dict()),
        evaluate=lambda state: evaluate(state, data, test),
    )


def evaluate(state: dict[str, st.Tensor], data: Digits, test: Digits) -> tuple[float, float]:
    """(Cross-entropy of the training images, accuracy on the test images)."""
    model = new_model()
    model.load_state_dict(state)
    with st.no_grad():
        loss = cross_entropy(model(data.images), data.labels)
        recognised = model(test.images).argmax(1) == test.labels
    return loss.item(), recognised.float().mean().item()


def run_all(arguments: Namespace, numbers: list[int]) -> list[Run]:
    hogwild.set_single_thread()  # the processes share the cores with this one
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
            "hogwild",
            "Train one network with many processes in shared memory, lock-free.",
            "Hogwild on handwritten digits: one set of weights in shared memory, no locks",
            run_all,
        )
    )
