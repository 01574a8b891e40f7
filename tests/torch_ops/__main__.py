"""Compare shmtensor with torch on the samples of torch's database of operations (`op_db`).

Run as `python -m torch_ops` in an environment with torch. Prints what is present and agrees, and fails if an entry that
`differences.toml` does not name disagrees, or one that it names agrees.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from torch_ops.entries import entries, label, look
from torch_ops.report import is_left_out, report

DTYPES = ("float32", "float64", "complex64", "int64", "int32", "uint8", "bool")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m torch_ops", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="entries to compare (default: all)")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="element types, separated by commas")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N failures of each entry")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    listed = entries()
    numbers = [
        number
        for number, info in enumerate(listed)
        if not is_left_out(info.name)
        if not asked.names or info.name in asked.names or label(info) in asked.names
    ]
    dtypes = tuple(asked.dtypes.split(","))
    with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
        results = list(
            pool.map(look, numbers, [dtypes] * len(numbers), [max(asked.show, 1)] * len(numbers), chunksize=4)
        )
    is_whole = not asked.names and asked.dtypes == ",".join(DTYPES)
    return report(results, [label(info) for info in listed], asked.show, is_whole)


if __name__ == "__main__":
    sys.exit(main())
