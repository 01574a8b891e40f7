"""Memory of loaders: after many epochs, and with a dataset that many workers read."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.loader_data import InMemory
from benchmarks.measure import Figure, have, read_lines, run_contender

ROUNDS = 100
WARM_UP = 30
WORKERS = 8
LARGEST = 4 * 10**9  # bytes of the dataset, if four times as much is available
PEERS_LARGEST = 2 * 10**8
TEXT = 2_048  # bytes of a string
SHAPE = (3, 64, 64)


def group_pss() -> int:
    """Resident bytes of this process, its workers and the manager; each counts its share of a shared page (PSS)."""
    mark = f"SHMTENSOR_RUNTIME_DIR={os.environ['SHMTENSOR_RUNTIME_DIR']}".encode()
    total = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                lines = read_lines(f"{entry}/smaps_rollup")
                total += next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue  # it has ended
    return total


# ---- after many epochs -----------------------------------------------------------------------------------------------


def epoch(loader: Any) -> None:
    for _ in loader:
        pass


def reset(loader: Any) -> None:
    next(iter(loader))


def early_break(loader: Any) -> None:
    for number, _ in enumerate(loader):
        if number == 3:
            break


USES: dict[str, Callable[[Any], None]] = {"epochs": epoch, "resets": reset, "early breaks": early_break}
"""The ways to use a loader; a reset drops an iterator after its first batch."""


def resident(use: str, persistent: bool) -> tuple[int, int]:
    """Bytes after the warm-up and after all rounds."""
    from shmtensor.data import DataLoader

    loader = DataLoader(InMemory(1_024, (3, 32, 32), 1_024), 64, num_workers=2, persistent_workers=persistent)
    before = 0
    for number in range(WARM_UP + ROUNDS):
        if number == WARM_UP:
            gc.collect()
            before = group_pss()
        USES[use](loader)
    gc.collect()
    return before, group_pss()


# ---- a dataset that many workers read --------------------------------------------------------------------------------


class Texts:
    """The length and the first character of each string of a list."""

    def __init__(self, texts: Any) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Any:
        import numpy as np

        text = self.texts[index]
        return np.array((len(text), ord(text[0])), np.int32)


def tensor(nbytes: int) -> Any:
    import shmtensor

    return shmtensor.ones(nbytes // (4 * 3 * 64 * 64), *SHAPE, dtype=shmtensor.float32, shared=True)


def array(nbytes: int) -> Any:
    import numpy as np

    return np.ones((nbytes // (4 * 3 * 64 * 64), *SHAPE), np.float32)


def shared_list(nbytes: int) -> Any:
    from shmtensor.data import SharedList

    some = [f"{number:>{TEXT}}" for number in range(1_000)]  # so that the list itself takes little memory
    return Texts(SharedList([some[number % 1_000] for number in range(nbytes // TEXT)]))


def python_list(nbytes: int) -> Any:
    return Texts([f"{number:>{TEXT}}" for number in range(nbytes // TEXT)])


def read_by_all(library: str, data: str, nbytes: int, method: str) -> tuple[int, int]:
    """Bytes of the data, and of all processes together after an epoch in random order."""
    dataset = {"tensor": tensor, "array": array, "SharedList": shared_list, "list": python_list}[data](nbytes)
    batch = 16 if data in ("tensor", "array") else 1_024
    options = {"num_workers": WORKERS, "persistent_workers": True, "multiprocessing_context": method}
    if library == "torch":
        from torch.utils.data import DataLoader as Loader
    else:
        from shmtensor.data import DataLoader as Loader  # type: ignore[assignment]
    loader = Loader(dataset, batch, shuffle=True, **options)
    epoch(loader)
    return nbytes, group_pss()


def affordable() -> int:
    """Bytes of the dataset: the largest, or a quarter of what is available."""
    lines = read_lines("/proc/meminfo")
    available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    return min(LARGEST, available // 4)


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    for use in USES:
        for persistent in (True, False):
            before, after = run_contender("loader_memory:resident", use, persistent)
            workers = "persistent" if persistent else "new"
            note = f"{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB after"
            yield Figure(
                f"memory that {ROUNDS} {use} take, {workers} workers", "shmtensor", after - before, "B", "flat", note
            )
    nbytes = affordable()
    for method in ("fork", "spawn"):
        for data, called in (("tensor", "shared tensor"), ("SharedList", "SharedList of str")):
            yield row("shmtensor", data, called, nbytes, method, "1.1 x the data")
    yield row("shmtensor", "array", "NumPy array", nbytes, "fork", "1.1 x the data")
    yield row("shmtensor", "array", "NumPy array, which the program keeps", nbytes, "spawn", "2 x the data")
    for library in ["shmtensor", *(["torch"] if have("torch") else [])]:
        yield row(library, "list", "list of str", PEERS_LARGEST, "fork", "")


def row(library: str, data: str, called: str, nbytes: int, method: str, target: str) -> Figure:
    size, pss = run_contender("loader_memory:read_by_all", library, data, nbytes, method)
    work = f"memory of {size / 1e9:.1f} GB, {called}, with {WORKERS} workers by {method}"
    return Figure(work, library, pss, "B", target, f"{pss / size:.2f} x the data")
