"""Compare shmtensor with torch on the samples of torch's database of operations (`op_db`).

Run as `python -m torch_ops` in an environment with torch. With `--grad`, gradients are compared instead. Prints which
operations are present and agree. Fails if an entry disagrees that `differences.toml` (`gradients.toml`) does not name,
or if an entry agrees that it names.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from torch_ops import gradients
from torch_ops.entries import entries, label, look
from torch_ops.report import Known, report

DTYPES = ("float32", "float64", "complex64", "int64", "int32", "uint8", "bool")
GRADIENT_DTYPES = ("float64", "complex128")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m torch_ops", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="entries to compare (default: all)")
    parser.add_argument("--dtypes", help="element types, separated by commas")
    parser.add_argument("--grad", type=int, choices=(0, 1, 2), default=0, help="compare gradients; 2: also second ones")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N failures of each entry")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    listed = entries()
    usual = GRADIENT_DTYPES if asked.grad else DTYPES
    dtypes = tuple(asked.dtypes.split(",")) if asked.dtypes else usual
    known = Known("gradients.toml" if asked.grad else "differences.toml", asked.grad)
    numbers = [
        number
        for number, info in enumerate(listed)
        if not known.is_left_out(info.name)
        if not asked.names or info.name in asked.names or label(info) in asked.names
        if not asked.grad or gradients.is_differentiable(info)
    ]
    if asked.names and not numbers:
        parser.error(f"torch's database has no entry {' '.join(asked.names)}; its names are torch's, such as clamp")
    judge = partial(gradients.look, order=asked.grad) if asked.grad else look
    with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
        results = list(
            pool.map(judge, numbers, [dtypes] * len(numbers), [max(asked.show, 1)] * len(numbers), chunksize=4)
        )
    is_whole = not asked.names and dtypes == usual
    return report(results, [label(info) for info in listed], known, asked.show, is_whole)


if __name__ == "__main__":
    sys.exit(main())
