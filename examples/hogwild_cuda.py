"""Hogwild on a GPU: several processes train one network whose weights are on the device, without locks.

It differs from hogwild.py in two ways: weights, optimizer state and images are on the GPU, and the processes are
spawned, since a GPU cannot be used in a forked child. Nothing is copied between the processes: all use the same device
memory. No process waits for the streams of another, as in every Hogwild; `put` ensures that the weights are complete
when a process receives them (docs/gpu.md).

    python examples/hogwild_cuda.py                     # one process, then one per core
    python examples/hogwild_cuda.py --processes 4

It exits with 0 if every run reached an accuracy of 0.95 on digits that it was not trained on, and with 2 without a GPU.
"""

from __future__ import annotations

import sys
from argparse import Namespace

from common import digit_runs, digits
from common.digit_runs import BATCH, Run
from common.digits import Digits
from hogwild import RATE, Job, evaluate, new_model, train

import shmtensor as st
from shmtensor import hogwild, optim
from shmtensor.hogwild import Counter, Metrics


def run_hogwild(data: Digits, test: Digits, processes: int, epochs: int, seed: int) -> Run:
    """Train a fresh network with `processes` processes."""
    st.manual_seed(seed)
    model = new_model().to("cuda")
    model.share_memory()
    optimizer = optim.SGD(model.parameters(), lr=RATE)
    optimizer.share_memory()
    steps = epochs * (len(data) // BATCH)
    on_device = Digits(data.images.to("cuda"), data.labels.to("cuda")).share_memory()
    job = Job(model, optimizer, on_device, steps, seed, Counter(), Metrics(processes, "loss"))
    return digit_runs.train_together(
        train,
        job,
        processes,
        "spawn",
        snapshot=lambda: {name: weights.cpu() for name, weights in hogwild.snapshot(model.state_dict()).items()},
        evaluate=lambda state: evaluate(state, data, test),
    )


def run_all(arguments: Namespace, numbers: list[int]) -> list[Run]:
    hogwild.set_single_thread()
    data, test = digits.load()
    print(f"{st.cuda.get_device_name()}: {len(data):,} images to train on, {len(test)} to test", flush=True)
    return [run_hogwild(data, test, processes, arguments.epochs, arguments.seed) for processes in numbers]


if __name__ == "__main__":
    if not st.cuda.is_available():
        print(f"hogwild_cuda: no GPU can be used: {st.cuda.status()}", file=sys.stderr)
        sys.exit(2)
    sys.exit(
        digit_runs.main(
            "hogwild_cuda",
            "Train one network on a GPU with many processes, lock-free.",
            "Hogwild on a GPU: one set of weights on the device, no locks",
            run_all,
        )
    )
