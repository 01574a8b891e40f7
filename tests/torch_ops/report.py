"""What `python -m torch_ops` prints, and the reasons for differences that it knows."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from torch_ops.entries import Look

DIFFERENCES = Path(__file__).parent / "differences.toml"
KNOWN = tomllib.loads(DIFFERENCES.read_text())
LEFT_OUT = {one: group["reason"] for group in KNOWN["left_out"] for one in group["beginnings"]}
"""Beginnings of names of entries that are not compared, and why."""


def is_left_out(name: str) -> bool:
    """Whether an entry is not compared. `__add__` and the like are."""
    return name.startswith(tuple(LEFT_OUT)) and not name.startswith("__")


def reasons(known: dict[str, Any]) -> dict[str, str]:
    """The reason of each entry that `differences.toml` names. Raises ValueError: an entry that is there twice."""
    found: dict[str, str] = {}
    for group in known["group"]:
        for name in group["entries"]:
            if name in found:
                raise ValueError(f"{DIFFERENCES.name} names {name} twice")
            found[name] = group["reason"]
    return found


def report(results: list[Look], names: list[str], show: int, is_whole: bool) -> int:
    """Print the results. Returns the exit code: 1 if all entries were compared, and differences and reasons differ.

    Args:
        names: of all entries of the database.
        show: how many failures of each entry are printed.
    """
    known = reasons(KNOWN)
    differing = [one for one in results if one.differs]
    for one in differing:
        if show or one.name not in known:
            print(f"{one.name}: {one.state}")
            for why in one.why[:show]:
                print(f"    {why}")
    _print_figures(results)
    if not is_whole:
        return 0
    left_out = {one: sum(name.startswith(one) and is_left_out(name) for name in names) for one in LEFT_OUT}
    print("Not compared:")
    for beginning, count in left_out.items():
        print(f"    {count} entries {beginning}*: {LEFT_OUT[beginning]}")
    print("Known differences:")
    for one in differing:
        if one.name in known:
            print(f"    {one.name}: {one.state}: {known[one.name]}")
    unexplained = [one.name for one in differing if one.name not in known]
    idle = sorted(known.keys() - {one.name for one in differing}) + [one for one, n in left_out.items() if not n]
    if unexplained:
        print(f"{len(unexplained)} entries differ without a reason in {DIFFERENCES.name}: {unexplained}")
    if idle:
        print(f"{len(idle)} entries agree, or are gone, and have a reason in {DIFFERENCES.name}: {idle}")
    return int(bool(unexplained or idle))


def _print_figures(results: list[Look]) -> None:
    present = [one for one in results if one.is_present]
    samples, agreeing = sum(one.samples for one in present), sum(one.agreeing for one in present)
    forms, agreeing_forms = sum(one.forms for one in present), sum(one.agreeing_forms for one in present)
    print(f"{len(present)} of {len(results)} entries present")
    print(f"{agreeing} of {samples} samples of them agree ({agreeing / max(1, samples):.3%})")
    print(
        f"{agreeing_forms} of {forms} methods, in-place methods, calls with out= and views of these samples agree "
        f"({agreeing_forms / max(1, forms):.3%})"
    )
    unmade = {one.name: one.unmade for one in present if one.unmade}
    if unmade:
        print(f"torch itself makes no samples of: {unmade}")
