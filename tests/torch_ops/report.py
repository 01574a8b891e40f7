"""The output of `python -m torch_ops`, and its known reasons for differences."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from torch_ops.entries import Look


class Known:
    """What one of the files of differences says.

    Args:
        name: of the file.
        order: of gradients; groups of higher orders do not count.
    """

    def __init__(self, name: str, order: int = 0) -> None:
        self.name = name
        self._order = order
        written = tomllib.loads((Path(__file__).parent / name).read_text())
        self.left_out = {one: group["reason"] for group in written["left_out"] for one in group["beginnings"]}
        """Beginnings of names of entries that are not compared, and why."""
        self.reasons = self._reasons(written)
        """Why entries differ."""

    def is_left_out(self, name: str) -> bool:
        """Whether an entry is not compared. `__add__` and the like are."""
        return name.startswith(tuple(self.left_out)) and not name.startswith("__")

    def _reasons(self, written: dict[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        for group in written["group"]:
            if group.get("order", 0) > self._order:
                continue
            for name in group["entries"]:
                if name in found:
                    raise ValueError(f"{self.name} names {name} twice")
                found[name] = group["reason"]
        return found


def report(results: list[Look], names: list[str], known: Known, show: int, is_whole: bool) -> int:
    """Print the results. Returns the exit code: 1 if all entries were compared, and differences and reasons differ.

    Args:
        names: of all entries of the database.
        known: differences and their reasons.
        show: how many failures of each entry are printed.
    """
    differing = [one for one in results if one.differs]
    for one in differing:
        if show or one.name not in known.reasons:
            print(f"{one.name}: {one.state}")
            for why in one.why[:show]:
                print(f"    {why}")
    _print_figures(results)
    if not is_whole:
        return 0
    left_out = {one: sum(name.startswith(one) and known.is_left_out(name) for name in names) for one in known.left_out}
    print("Not compared:")
    for beginning, count in left_out.items():
        print(f"    {count} entries {beginning}*: {known.left_out[beginning]}")
    print("Known differences:")
    for one in differing:
        if one.name in known.reasons:
            print(f"    {one.name}: {one.state}: {known.reasons[one.name]}")
    unexplained = [one.name for one in differing if one.name not in known.reasons]
    idle = sorted(known.reasons.keys() - {one.name for one in differing}) + [
        one for one, n in left_out.items() if not n
    ]
    if unexplained:
        print(f"{len(unexplained)} entries differ without a reason in {known.name}: {unexplained}")
    if idle:
        print(f"{len(idle)} entries agree, or are gone, and have a reason in {known.name}: {idle}")
    return int(bool(unexplained or idle))


def _print_figures(results: list[Look]) -> None:
    present = [one for one in results if one.is_present]
    samples, agreeing = sum(one.samples for one in present), sum(one.agreeing for one in present)
    forms, agreeing_forms = sum(one.forms for one in present), sum(one.agreeing_forms for one in present)
    print(f"{len(present)} of {len(results)} entries present")
    print(f"{agreeing} of {samples} samples of them agree ({agreeing / max(1, samples):.3%})")
    print(
        f"{agreeing_forms} of {forms} other forms of these samples agree (methods, in-place methods, out=, views) "
        f"({agreeing_forms / max(1, forms):.3%})"
    )
    unmade = {one.name: one.unmade for one in present if one.unmade}
    if unmade:
        print(f"torch itself makes no samples of: {unmade}")
