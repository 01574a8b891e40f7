"""output="jax": JAX arrays over the memory of batches. In separate programs, since JAX warns of every fork."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from loader_world import Rows
from manager_world import World
from tiers import first

DTYPES = ["float32", "int32", "uint8", "bool", "float16", "complex64"]

PROGRAM = """
import gc, os
import jax, numpy as np
import shmtensor as st
from shmtensor.data import DataLoader, outputs
from test_loader_jax import DTYPES, Typed
pointers = []
convert = outputs.converter("jax")
def watched(tensor):
    array = convert(tensor)
    if tensor.is_shared():  # of private memory, JAX copies what is not aligned to 64 bytes
        pointers.append(tensor.data_ptr() == array.unsafe_buffer_pointer())
    return array

def loader(dataset, workers, **more):
    if workers:
        more["multiprocessing_context"] = "forkserver"
    made = DataLoader(dataset, 8, num_workers=workers, output="jax", **more)
    made._convert = watched
    return made

def blocks():
    gc.collect()
    return st.manager.client.default().native.stats().blocks

def main():
    {body}

if __name__ == "__main__":
    main()
    print("fine")
"""

TYPES = """
    for name, array in next(iter(loader(Typed(), WORKERS))).items():
        assert isinstance(array, jax.Array) and str(array.dtype) == name and array.shape == (8, 3), name
    for batch in loader(Typed(), WORKERS):
        assert np.array_equal(np.asarray(batch["int32"])[:, 0], np.asarray(batch["float32"])[:, 0])
    assert len(pointers) >= WORKERS * len(DTYPES) and all(pointers), "JAX has copied"
"""

KEPT = """
    made = loader(Typed(), 2, persistent_workers=True, shuffle=True)
    list(made)
    before, kept = blocks(), []
    for epoch in range(3):
        for batch in made:
            kept.append((batch["float32"], np.array(batch["float32"])))
            if len(kept) % 5 == 4:
                break
        assert all(np.array_equal(array, copy) for array, copy in kept)
    assert len({array.unsafe_buffer_pointer() for array, _ in kept}) == len(kept)
    assert all(st.from_dlpack(array).is_shared() for array, _ in kept)
    assert blocks() >= before + len(kept)
    del batch
    kept.clear()
    assert blocks() <= before
"""

WIDE = """
    class Wide:
        def __len__(self):
            return 24
        def __getitem__(self, index):
            return index, float(index)
    for wide in (False, True):
        jax.config.update("jax_enable_x64", wide)
        whole, real = next(iter(loader(Wide(), 0)))
        bits = 64 if wide else 32
        assert str(whole.dtype) == f"int{bits}" and str(real.dtype) == f"float{bits}"
        assert whole.tolist() == real.tolist() == list(range(8))
"""

CASES = {
    "types, 2 workers": TYPES.replace("WORKERS", "2"),
    "types, no workers": TYPES.replace("WORKERS", "0"),
    "kept": KEPT,
    "64 bits": WIDE,
}


class Typed(Rows):
    """A sample of each type that JAX shares by DLPack."""

    def __init__(self) -> None:
        super().__init__(24)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return {name: np.full(3, index).astype(name) for name in DTYPES}


@pytest.mark.parametrize("case", first(CASES))
def test_batches_of_jax(here: World, case: str) -> None:
    if any(importlib.util.find_spec(name) is None for name in ("jax", "ml_dtypes")):
        pytest.skip("no jax")
    paths = f"{Path(__file__).parent}:{here.env['PYTHONPATH']}"
    code = PROGRAM.replace("{body}", CASES[case].strip())
    assert here.run(code, env={"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"}) == "fine\n"
