"""What `python -m torch_ops` prints, and the reasons for differences that it knows."""

from __future__ import annotations

import tomllib
from pathlib import Path

from torch_ops.entries import Look

DIFFERENCES = Path(__file__).parent / "differences.toml"


def reasons() -> dict[str, str]:
    """The reason of each entry that `differences.toml` names. Raises ValueError: an entry that is there twice."""
    known: dict[str, str] = {}
    for group in tomllib.loads(DIFFERENCES.read_text())["group"]:
        for name in group["entries"]:
            if name in known:
                raise ValueError(f"{DIFFERENCES.name} names {name} twice")
            known[name] = group["reason"]
    return known


def report(results: list[Look], show: int, is_whole: bool) -> int:
    """Print the results. Returns the exit code: 1 if all entries were asked for, and reasons and differences differ."""
    known = reasons()
    differing = [one for one in results if one.differs]
    for one in differing:
        if show or one.name not in known:
            print(f"{one.name}: {one.state}")
            for why in one.why[:show]:
                print(f"    {why}")
    _print_figures(results)
    if not is_whole:
        return 0
    print("Known differences:")
    for one in differing:
        if one.name in known:
            print(f"    {one.name}: {one.state}: {known[one.name]}")
    unexplained = [one.name for one in differing if one.name not in known]
    idle = sorted(known.keys() - {one.name for one in differing})
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
    print(f"{agreeing} of {samples} samples of them agree ({agreeing / max(1, samples):.2%})")
    print(
        f"{agreeing_forms} of {forms} methods, in-place methods and calls with out= of agreeing samples agree "
        f"({agreeing_forms / max(1, forms):.2%})"
    )
    unmade = {one.name: one.unmade for one in present if one.unmade}
    if unmade:
        print(f"torch itself makes no samples of: {unmade}")
