"""The compared loaders: ours, torch's with and without our context, SPDL's, Grain's, used as their documentation does.

Each is iterated once for an epoch. Workers stay from epoch to epoch if the loader supports that.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from benchmarks.measure import have

WORKERS = 2
OURS, CONTEXT, TORCH = "shmtensor", "torch with shmtensor's context", "torch"
SPDL, GRAIN_PROCESSES, GRAIN_THREADS = "SPDL, threads", "Grain `DataLoader`, processes", "Grain `MapDataset`, threads"


def ours(dataset: Any, batch: int, persistent: bool = True) -> Iterable[Any]:
    import shmtensor.data

    return shmtensor.data.DataLoader(dataset, batch, num_workers=WORKERS, persistent_workers=persistent)


def torch(dataset: Any, batch: int, persistent: bool = True, context: Any = None) -> Iterable[Any]:
    import torch.utils.data

    torch.set_num_threads(1)
    return torch.utils.data.DataLoader(
        dataset, batch, num_workers=WORKERS, persistent_workers=persistent, multiprocessing_context=context
    )


def torch_with_context(dataset: Any, batch: int, persistent: bool = True) -> Iterable[Any]:
    from shmtensor.integrations.torch import context

    return torch(dataset, batch, persistent, context("fork"))


class Spdl:
    """SPDL: a source of lists of indices, and a stage that loads and stacks samples in threads."""

    def __init__(self, dataset: Any, batch: int) -> None:
        self.dataset = dataset
        self.batches = [range(start, start + batch) for start in range(0, len(dataset), batch)]

    def load(self, indices: range) -> Any:
        import numpy as np

        return np.stack([self.dataset[index] for index in indices])

    def __iter__(self) -> Iterator[Any]:
        from spdl.pipeline import PipelineBuilder

        builder = PipelineBuilder().add_source(self.batches)
        builder.pipe(self.load, concurrency=WORKERS, output_order="input").add_sink(2 * WORKERS)
        pipeline = builder.build(num_threads=WORKERS)
        with pipeline.auto_stop():
            yield from pipeline


class GrainProcesses:
    """Grain's DataLoader, without threads, as its documentation advises for data in memory.

    It starts processes for each iterator, so one endless iterator is used for all epochs.
    """

    AHEAD = 12  # batches that it may have loaded between two epochs
    LENGTH = 12  # batches

    def __init__(self, dataset: Any, batch: int) -> None:
        import grain
        from absl import flags

        flags.FLAGS.mark_as_parsed()  # Grain reads its options there
        sampler = grain.samplers.IndexSampler(num_records=len(dataset), num_epochs=None, seed=0)
        operations = [grain.transforms.Batch(batch)]
        loader = grain.DataLoader(
            data_source=dataset, sampler=sampler, operations=operations, worker_count=WORKERS,
            read_options=grain.ReadOptions(num_threads=0, prefetch_buffer_size=0),
        )  # fmt: skip
        self.batches = iter(loader)

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.AHEAD):
            next(self.batches)
        return itertools.islice(self.batches, self.LENGTH)


def grain_threads(dataset: Any, batch: int) -> Iterable[Any]:
    import grain

    options = grain.ReadOptions(num_threads=WORKERS, prefetch_buffer_size=2 * WORKERS)
    return grain.MapDataset.source(dataset).batch(batch).to_iter_dataset(options)


class SamplesAlone:
    """Processes that make samples and discard them, each its part: the upper bound of any loader."""

    def __init__(self, dataset: Any, processes: int) -> None:
        context = multiprocessing.get_context("fork")
        self.pipes = []
        for number in range(processes):
            pipe, theirs = context.Pipe()
            context.Process(target=self.make, args=(dataset, number, processes, theirs), daemon=True).start()
            self.pipes.append(pipe)

    @staticmethod
    def make(dataset: Any, number: int, processes: int, pipe: Any) -> None:
        indices = range(number, len(dataset), processes)
        while pipe.recv():
            for index in indices:
                dataset[index]
            pipe.send(indices)

    def __iter__(self) -> Iterator[range]:
        for pipe in self.pipes:
            pipe.send(True)
        for pipe in self.pipes:
            yield pipe.recv()


LOADERS: dict[str, tuple[str, Callable[[Any, int], Iterable[Any]]]] = {
    OURS: ("shmtensor", ours),
    CONTEXT: ("torch", torch_with_context),
    TORCH: ("torch", torch),
    SPDL: ("spdl", Spdl),
    GRAIN_PROCESSES: ("grain", GrainProcesses),
    GRAIN_THREADS: ("grain", grain_threads),
}
"""The module that each loader needs, and the function that makes it. Those that fork come first."""


def installed() -> list[str]:
    return [name for name, (module, _) in LOADERS.items() if have(module)]
