"""The entries of torch's database of operations, and how many samples of each agree."""

from __future__ import annotations

import traceback
import warnings
from pathlib import Path
from typing import Any


def entries() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return sorted(op_db, key=lambda info: (info.name, info.variant_test_name))


def label(info: Any) -> str:
    return f"{info.name}:{info.variant_test_name}" if info.variant_test_name else str(info.name)


def look(number: int, dtypes: tuple[str, ...], shown: int) -> dict[str, Any]:
    """Run the samples of one entry. Returns its label, whether it is present, counts and the first failures."""
    import torch

    from torch_ops import samples

    warnings.simplefilter("ignore")
    info = entries()[number]
    function = samples.find(f"{info.name}_" if info.variant_test_name == "in_place" else info.name)
    result: dict[str, Any] = {"name": label(info), "present": function is not None, "total": 0, "agree": 0, "why": []}
    for dtype in dtypes:
        kind = getattr(torch, dtype)
        if kind not in info.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        try:
            made = list(info.sample_inputs("cpu", kind, requires_grad=False))
        except Exception:  # torch cannot make its own samples
            continue
        for sample in made:
            result["total"] += 1
            if function is None:
                continue
            try:
                samples.judge(info, function, sample, info.name)
                result["agree"] += 1
            except Exception as problem:
                if len(result["why"]) < shown:
                    where = traceback.extract_tb(problem.__traceback__)[-1]
                    place = f"{Path(where.filename).name}:{where.lineno}"
                    text = f"{type(problem).__name__}: {str(problem)[:200]} ({place})"
                    result["why"].append(f"{dtype} {sample.summary()[:200]} -> {text}")
    return result
