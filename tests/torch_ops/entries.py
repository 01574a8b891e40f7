"""The entries of torch's database of operations, and how many samples of each agree."""

from __future__ import annotations

import re
import traceback
import warnings
from pathlib import Path
from typing import Any


def entries() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return sorted(op_db, key=lambda info: (info.name, info.variant_test_name))


def label(info: Any) -> str:
    return f"{info.name}:{info.variant_test_name}" if info.variant_test_name else str(info.name)


def function_of(info: Any) -> Any:
    """Our callable for an entry; None if there is none."""
    from torch_ops.samples import ARRANGED, find

    return ARRANGED.get(label(info)) or find(f"{info.name}_" if info.variant_test_name == "in_place" else info.name)


def summary(dtype: str, sample: Any) -> str:
    """A sample in few words."""
    return (
        f"{dtype} " + re.sub(r""", (device|dtype|broadcasts_input|name)=("cpu"|[\w.']+)""", "", sample.summary())[:200]
    )


class Look:
    """What was found out about one entry."""

    def __init__(self, name: str, shown: int) -> None:
        self.name = name
        self.shown = shown
        """Number of failures whose text is kept."""
        self.is_present = False
        self.samples = self.agreeing = 0
        self.forms = self.agreeing_forms = 0
        """Of the samples' methods, in-place methods and calls with `out=`."""
        self.unmade: list[str] = []
        """Types of which torch cannot make its own samples."""
        self.why: list[str] = []

    @property
    def differs(self) -> bool:
        """Whether it is absent, or something of it does not agree, or nothing was compared."""
        agrees = self.agreeing == self.samples > 0 and self.agreeing_forms == self.forms
        return not (self.is_present and agrees)

    @property
    def state(self) -> str:
        """Its figures."""
        if not self.is_present:
            return "absent"
        return f"{self.agreeing} of {self.samples}, forms {self.agreeing_forms} of {self.forms}"

    def note(self, what: str, problem: Exception) -> None:
        """Keep the text of a failure."""
        if len(self.why) < self.shown:
            where = traceback.extract_tb(problem.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            self.why.append(f"{what} -> {type(problem).__name__}: {str(problem)[:200]} ({place})")


def look(number: int, dtypes: tuple[str, ...], shown: int) -> Look:
    """Run the samples of one entry."""
    import torch

    warnings.simplefilter("ignore")
    info = entries()[number]
    function = function_of(info)
    found = Look(label(info), shown)
    found.is_present = function is not None
    for dtype in dtypes:
        kind = getattr(torch, dtype)
        if function is None or kind not in info.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        try:
            made = list(info.sample_inputs("cpu", kind, requires_grad=False))
        except Exception:  # torch cannot make its own samples
            found.unmade.append(dtype)
            continue
        for sample in made:
            _look_at_sample(found, info, function, sample, dtype)
    return found


def _look_at_sample(found: Look, info: Any, function: Any, sample: Any, dtype: str) -> None:
    from torch_ops.forms import forms
    from torch_ops.samples import Case

    what = summary(dtype, sample)
    found.samples += 1
    try:
        case = Case(info, function, sample)
        case.check(case.by_us(function))
    except Exception as problem:
        found.note(what, problem)
        return
    found.agreeing += 1
    for form, judge in forms(case):
        found.forms += 1
        try:
            judge()
            found.agreeing_forms += 1
        except Exception as problem:
            found.note(f"{form}: {what}", problem)
