"""`python benchmarks [name ...]`: run benchmarks, print their tables, and with --write save them."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from benchmarks import (
    attach,
    busy,
    channel,
    cluster,
    daemon,
    descriptors,
    draw,
    fresh,
    gpu,
    gpu_loading,
    handover,
    heap,
    loader,
    loader_memory,
    many_processes,
    measure,
    observers,
    randoms,
    share,
    steady,
    store,
    tensors,
    torch_tensors,
    training,
    words,
    worker_pool,
)
from benchmarks.measure import ROOT, ContenderFailed, Figure
from benchmarks.transports import ICEORYX2_PREFIX

BENCHMARKS = {
    "heap": heap,
    "share": share,
    "descriptors": descriptors,
    "attach": attach,
    "handover": handover,
    "fresh": fresh,
    "many_processes": many_processes,
    "busy": busy,
    "steady": steady,
    "daemon": daemon,
    "tensors": tensors,
    "training": training,
    "words": words,
    "loader": loader,
    "store": store,
    "observers": observers,
    "channel": channel,
    "worker_pool": worker_pool,
    "cluster": cluster,
    "loader_memory": loader_memory,
    "gpu": gpu,
    "gpu_loading": gpu_loading,
    "random": randoms,
    "torch": torch_tensors,
}
HERE = Path(__file__).parent
REPORTS = ROOT / "docs" / "reports"
MARKS = ("<!-- results -->", "<!-- end of results -->")
SCALES = {
    "s": ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1.0, "s")),
    "B": ((1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")),
    "1/s": ((1.0, "/s"), (1e3, "k/s"), (1e6, "M/s")),
    "B/s": ((1e6, "MB/s"), (1e9, "GB/s")),
    "core": ((1e-2, "%"),),
}
RATES = ("1/s", "B/s")  # higher is better


def show_value(figure: Figure) -> str:
    if figure.value is None:
        return "-"
    scales = SCALES.get(figure.unit)
    if scales is None:
        return f"{figure.value:,.0f}"
    scale, unit = next(pair for pair in reversed(scales) if figure.value >= pair[0] or pair is scales[0])
    return (
        f"{figure.value / scale:.3g} {unit}" if figure.value / scale < 1000 else f"{figure.value / scale:,.0f} {unit}"
    )


def show_table(title: str, figures: Sequence[Figure]) -> str:
    """A Markdown table. The ratio is a contender's figure divided by that of the first shmtensor row of the same work.

    For rates it is the inverse, so that above 1 the contender always takes longer.
    """
    lines = [
        f"### {title}",
        "",
        "| work | contender | figure | ratio | wanted | note |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]
    base: dict[str, float] = {}
    for figure in figures:
        if figure.value and figure.contender.startswith("shmtensor"):
            base.setdefault(figure.work, figure.value)
        ratio = figure.value / base[figure.work] if figure.value and figure.work in base else None
        if ratio is not None and figure.unit in RATES:
            ratio = 1 / ratio
        words = "" if ratio is None else f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"
        lines.append(
            f"| {figure.work} | {figure.contender} | {show_value(figure)} | {words} | {figure.target} | {figure.note} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--write", action="store_true", help="write the figures to docs/reports and update README.md")
    arguments = parser.parse_args()
    names = arguments.names or list(BENCHMARKS)
    for name in names:
        if name not in BENCHMARKS:
            parser.error(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")

    if (
        subprocess.run(
            [sys.executable, "-P", "-c", "import shmtensor._native"], check=False, capture_output=True
        ).returncode
        != 0
    ):
        print(f"shmtensor is not installed in {sys.prefix}: run `make bench`, or pip install .", file=sys.stderr)
        return 2
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    for variable in ("SHMTENSOR_MANAGER", "SHMTENSOR_GROUP"):
        os.environ.pop(variable, None)
    print(f"{measure.machine()}; {measure.today()}\n", flush=True)
    if not measure.have("torch"):
        print("torch is not installed: its rows are left out\n", flush=True)

    failures = 0
    drawn: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="shmtensor-bench-", ignore_cleanup_errors=True) as folder:
        os.environ["SHMTENSOR_RUNTIME_DIR"] = folder
        for name in names:
            figures: list[Figure] = []
            title = (BENCHMARKS[name].__doc__ or name).splitlines()[0].rstrip(".")
            try:
                for figure in BENCHMARKS[name].measure():
                    figures.append(figure)
                    print(f"{figure.work}: {figure.contender}: {show_value(figure)}", file=sys.stderr, flush=True)
            except ContenderFailed as error:
                print(f"benchmarks: {name} is not complete: {error}", file=sys.stderr)
                failures += 1
            if name in draw.BENCHMARKS:
                drawn += figures
            print(show_table(title, figures), end="\n\n", flush=True)
            if arguments.write and figures:
                write_result(name, title, figures)
        stop_manager(folder)
    for left in Path("/dev/shm").glob(f"{ICEORYX2_PREFIX}*"):
        left.unlink(missing_ok=True)
    if arguments.write:
        write_readme()
        drawn = kept(draw.BENCHMARKS)
    if drawn and measure.have("matplotlib"):
        path = REPORTS / "queues.png" if arguments.write else ROOT / "build" / "queues.png"
        path.parent.mkdir(exist_ok=True)
        draw.draw(drawn, path, f"{measure.machine()}; {measure.today()}")
        print(f"drawn: {path}")
    return 1 if failures else 0


def stop_manager(folder: str) -> None:
    """End the manager that contenders have started, if any: it would otherwise recreate the files in its folder."""
    command = [sys.executable, "-P", "-m", "shmtensor.manager", "stop", "--address", f"{folder}/manager.sock"]
    subprocess.run(command, check=False, capture_output=True)


def write_result(name: str, title: str, figures: Sequence[Figure]) -> None:
    folder = REPORTS / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "title": title,
        "machine": measure.machine(),
        "date": measure.today(),
        "figures": [dataclasses.asdict(figure) for figure in figures],
    }
    (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def kept(names: Sequence[str]) -> list[Figure]:
    paths = [path for name in names if (path := REPORTS / "benchmarks" / f"{name}.json").exists()]
    return [Figure(**figure) for path in paths for figure in json.loads(path.read_text())["figures"]]


def write_readme() -> None:
    """Write the table of every saved result between the marks in README.md."""
    parts = []
    for name in BENCHMARKS:
        path = REPORTS / "benchmarks" / f"{name}.json"
        if path.exists():
            content = json.loads(path.read_text())
            table = show_table(content["title"], [Figure(**figure) for figure in content["figures"]])
            parts.append(f"{table}\n\n{content['machine']}; {content['date']}")
    readme = HERE / "README.md"
    before, _, rest = readme.read_text().partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    body = "\n\n".join(parts)
    readme.write_text(f"{before}{MARKS[0]}\n\n{body}\n\n{MARKS[1]}{after}")


if __name__ == "__main__":
    sys.exit(main())
