"""The inputs that the fuzzer found (run.py), with the ordinary build; and a short round against a live manager."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from manager_world import world
from tiers import first

pytestmark = pytest.mark.any_python

FUZZ = Path(__file__).parent
REPLAY = """
import os, sys
from pathlib import Path
import target
made = target.Target(sys.argv[1])
for path in sorted(Path(sys.argv[2]).iterdir()):
    made.one(path.read_bytes())
found = target.seeds(made)
assert all(made.one(data) is None for data in found.values())
print(len(list(Path(sys.argv[2]).iterdir())))
sys.stdout.flush()
os._exit(0)  # what it mapped was written over
"""


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fuzz_{name}", FUZZ / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = path
    return module


def test_the_corpus_again(tmp_path: Path) -> None:
    load("corpus").unpack(tmp_path)
    with world() as here:
        here.env["PYTHONPATH"] += f":{FUZZ}"
        address = os.fsdecode(here.serve())
        assert int(here.run(REPLAY, address, str(tmp_path))) >= 10
        assert not here.observe(os.fsencode(address))["stats"]["clients"]


def test_the_corpus_is_small_and_the_same_inputs_are_the_same_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = load("corpus")
    kept = corpus.ARCHIVE.read_bytes()
    assert len(kept) < 200_000
    corpus.unpack(tmp_path / "inputs")
    monkeypatch.setattr(corpus, "ARCHIVE", tmp_path / "again.zip")
    corpus.pack(tmp_path / "inputs")
    assert corpus.ARCHIVE.read_bytes() == kept


@pytest.mark.parametrize("seed", first([1, 2]))
def test_a_live_manager_battered(seed: int) -> None:
    run = load("run")
    manager = run.Manager()
    run.batter(manager.address, 1500, seed)
    _memory, descriptors = run.settled(manager.process.pid)
    sent, _connections = run.batter(manager.address, 1500, seed + 100)
    assert sent >= 1500
    assert run.settled(manager.process.pid)[1] <= descriptors
    manager.close()
