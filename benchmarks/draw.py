"""Draws charts of the queue benchmarks: one panel for each piece of work, bars on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Figure

BENCHMARKS = ("handover", "fresh", "many_processes")
COLORS = {"shmtensor": "#d1495b", "torch": "#edae49", "stdlib": "#66789b", "faster-fifo": "#00798c"}
OTHERS, MACHINE = "#8f6f9f", "#c9c9c9"
SCALES = {"s": (1e6, "us"), "1/s": (1e-3, "thousand/s"), "B/s": (1e-9, "GB/s")}
COLUMNS = 3


def draw(figures: Sequence[Figure], path: Path, caption: str) -> None:
    """Writes a chart of the figures that have a value. Blocks while it is drawn."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    panels: dict[str, list[Figure]] = {}
    for figure in figures:
        if figure.value:
            panels.setdefault(figure.work, []).append(figure)
    panels = {work: bars for work, bars in panels.items() if len(bars) > 1}  # only panels with something to compare
    rows = -(-len(panels) // COLUMNS)
    picture, grid = plt.subplots(rows, COLUMNS, figsize=(16, 2.7 * rows), squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    for axes, (work, bars) in zip(grid.flat, panels.items(), strict=False):
        scale, unit = SCALES[bars[0].unit]
        values = [(bar.value or 0.0) * scale for bar in bars]
        better = "less is better" if bars[0].unit == "s" else "more is better"
        axes.barh(range(len(bars)), values, color=[color(bar.contender) for bar in bars])
        axes.set_yticks(range(len(bars)), [bar.contender.replace("`", "") for bar in bars], fontsize=8)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlim(min(values) / 5, max(values) * 6)
        for place, value in enumerate(values):
            axes.text(value * 1.1, place, f"{value:,.0f}" if value >= 100 else f"{value:.3g}", va="center", fontsize=8)
        axes.set_title(work.replace("`", ""), fontsize=9, loc="left")
        axes.set_xlabel(f"{unit}; {better}", fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    picture.text(0.01, 0.004, caption, fontsize=8, color="#555555")
    picture.tight_layout(rect=(0, 0.015, 1, 1))
    picture.savefig(path, dpi=90)
    plt.close(picture)


def color(contender: str) -> str:
    if "alone" in contender or contender.startswith("two "):
        return MACHINE
    return next((shade for name, shade in COLORS.items() if contender.startswith(name)), OTHERS)
