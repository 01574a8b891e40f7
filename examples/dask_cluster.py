"""A Dask cluster whose workers keep their results in shared memory, and spill them to files when that is full."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time

from distributed import Client, LocalCluster, as_completed
from tqdm import tqdm

import shmtensor as st
from shmtensor.integrations.dask import StoreMapping


def load(number: int, megabytes: float) -> dict[str, st.Tensor]:
    """A part of the data: random numbers from 0 to 1, with `number` as the seed."""
    generator = st.Generator().manual_seed(number)
    return {"values": st.rand(int(megabytes * 1e6) // 4, generator=generator)}


def summary(part: dict[str, st.Tensor]) -> st.Tensor:
    """Number, sum and sum of squares of a part."""
    values = part["values"].double()
    return st.tensor([float(values.numel()), values.sum().item(), (values * values).sum().item()])


def add(*summaries: st.Tensor) -> st.Tensor:
    return st.stack(summaries).double().sum(0)


def kept(dask_worker: object) -> tuple[int, int, int]:
    """(results in the store of a worker, bytes of them in shared memory, bytes in files)"""
    stats = dask_worker.data.store.stats()  # type: ignore[attr-defined]
    return stats.objects, stats.nbytes, stats.spilled_nbytes


def run(client: Client, parts: int, megabytes: float) -> float:
    """Load parts, kill a worker, and compute the mean and deviation of all. Returns the mean."""
    start = time.perf_counter()
    data = client.map(load, range(parts), megabytes=megabytes, pure=False)
    for _ in tqdm(as_completed(data), total=parts, unit=" parts", desc="loading", disable=None, dynamic_ncols=True):
        pass
    loaded = time.perf_counter() - start
    print("worker                        results   MB in memory   MB in files")
    for address, (objects, memory, files) in client.run(kept).items():
        print(f"{address:30}{objects:7}{memory / 1e6:15.1f}{files / 1e6:14.1f}")

    address, pid = next(iter(client.run(os.getpid).items()))
    print(f"killing the worker at {address}: its parts are computed again, and its memory is free")
    os.kill(pid, signal.SIGKILL)
    start = time.perf_counter()
    summaries = client.map(summary, data, pure=False)
    count, total, squares = client.submit(add, *summaries).result().tolist()
    mean = total / count
    deviation = (squares / count - mean * mean) ** 0.5
    print(
        f"loaded {parts} parts of {megabytes:g} MB in {loaded:.2f} s, computed in {time.perf_counter() - start:.2f} s"
    )
    print(f"mean {mean:.4f}, deviation {deviation:.4f}")
    return float(mean)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--parts", type=int, default=40, metavar="N", help="of the data (default: %(default)s)")
    add("--megabytes", type=float, default=8.0, metavar="MB", help="of a part (default: %(default)s)")
    add("--workers", type=int, default=2, metavar="N", help="default: %(default)s")
    add("--memory", default="100M", metavar="SIZE", help="of results in each worker (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.parts < 1 or arguments.workers < 1 or arguments.megabytes < 0.01:
        parser.error("at least one part of 0.01 MB, and one worker")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="dask-", ignore_cleanup_errors=True) as folder,
            LocalCluster(
                n_workers=arguments.workers,
                threads_per_worker=1,
                dashboard_address=None,
                local_directory=folder,
                data=(StoreMapping, {"max_bytes": arguments.memory}),
                silence_logs=50,
            ) as cluster,
            Client(cluster) as client,
        ):
            mean = run(client, arguments.parts, arguments.megabytes)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    if abs(mean - 0.5) > 0.01:
        print(f"dask_cluster: the mean of numbers from 0 to 1 is {mean:.4f}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
