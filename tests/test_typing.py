"""Type information, with mypy and pyright: every public name and no other, and the types that factories return.

The types of all public names are complete, and the examples are programs with checked types.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pkgutil
import re
import subprocess
import sys
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path

import pytest

import shmtensor
import shmtensor.multiprocessing as mp

pytestmark = pytest.mark.any_python

GOOD = """
from typing import Any, assert_type

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor.ipc import broadcast, connection, pool, queues, synchronize

assert_type(mp.Queue(), queues.Queue[Any])
assert_type(mp.Queue(3, maxbytes=10, name="x"), queues.Queue[Any])
assert_type(mp.SimpleQueue(name="x"), queues.SimpleQueue[Any])
assert_type(mp.JoinableQueue(), queues.JoinableQueue[Any])
assert_type(mp.Broadcast(3, policy="drop_oldest"), broadcast.Broadcast[Any])
assert_type(mp.Broadcast(3).reader(), broadcast.BroadcastReader[Any])
assert_type(mp.Pool(2), pool.Pool)
assert_type(mp.Pipe(), tuple[connection.Connection, connection.Connection])
assert_type(mp.Lock(), synchronize.Lock)
assert_type(mp.RLock(name="x"), synchronize.RLock)
assert_type(mp.Semaphore(3), synchronize.Semaphore)
assert_type(mp.BoundedSemaphore(3), synchronize.BoundedSemaphore)
assert_type(mp.Condition(), synchronize.Condition)
assert_type(mp.Event(), synchronize.Event)
assert_type(mp.Barrier(3), synchronize.Barrier)
assert_type(mp.Process(target=print), mp.Process)
assert_type(mp.get_context("spawn"), mp.SpawnContext)
assert_type(mp.get_context("spawn").Queue(), queues.Queue[Any])
assert_type(mp.get_context("fork").Process(), mp.ForkProcess)
assert_type(mp.get_context(mp.get_start_method()).Broadcast(3), broadcast.Broadcast[Any])
assert_type(mp.cpu_count(), int)
assert_type(mp.Lock().acquire(timeout=1), bool)
assert_type(mp.spawn(print, (), 2, join=False), mp.ProcessContext)
assert_type(mp.start_processes(print, (), 2, False), mp.ProcessContext)
assert_type(st.hogwild.run(print, (), 2, join=False), mp.ProcessContext)
assert_type(st.zeros(3), st.Tensor)
assert_type(st.linalg.qr(st.eye(3)).Q, st.Tensor)
assert_type(st.linalg.svd(st.eye(3)).Vh, st.Tensor)
assert_type(st.svd(st.eye(3)).V, st.Tensor)
assert_type(st.eye(3).gesv(st.eye(3)).solution, st.Tensor)
assert_type(st.random.uniform_(st.eye(3)), st.Tensor)
assert_type(st.fft.fft(st.eye(3)), st.Tensor)
assert_type(st.fft.fftn(st.eye(3), s=(2, 2)), st.Tensor)
assert_type(st.fft.fftshift(st.fft.fftfreq(3)), st.Tensor)
assert_type(st.special.bessel_j0(st.eye(3)), st.Tensor)
assert_type(st.special.expit(st.eye(3)), st.Tensor)
assert_type(st.nn.Linear(2, 3), st.nn.Linear)
assert_type(st.nn.Linear(2, 3).weight, st.nn.Parameter)
assert_type(st.nn.functional.relu(st.eye(3)), st.Tensor)
assert_type(st.optim.SGD([st.eye(3)]), st.optim.SGD)
assert_type(st.array_api.sum(st.eye(3), axis=0), st.Tensor)
assert_type(st.array_api.nonzero(st.eye(3)), tuple[st.Tensor, ...])
assert_type(st.array_api.unique_all(st.eye(3)).values, st.Tensor)
assert_type(st.array_api.finfo(st.array_api.float32).bits, int)
assert_type(st.array_api.linalg.solve(st.eye(3), st.eye(3)), st.Tensor)
assert_type(st.array_api.linalg.svd(st.eye(3)).Vh, st.Tensor)
assert_type(st.eye(3).ndim, int)
assert_type(st.array_api.fft.fft(st.array_api.linspace(0, 1, 3)), st.Tensor)

numbers: mp.Queue[int] = mp.Queue()
assert_type(numbers.get(), int)
assert_type(numbers.get_many(3), list[int])
frames: mp.Broadcast[tuple[int, st.Tensor]] = mp.Broadcast(4)
frames.put((1, st.zeros(3)))
with frames.reader() as reader:
    assert_type(reader.latest(), tuple[int, st.Tensor])
    assert_type(reader.qsize(), int)
    for message in reader:
        assert_type(message[1], st.Tensor)


@st.no_grad()
def evaluate(x: st.Tensor) -> st.Tensor:
    return x


@st.inference_mode
def infer(x: st.Tensor) -> st.Tensor:
    with st.enable_grad():
        return x


assert_type(evaluate(st.eye(3)), st.Tensor)
assert_type(infer(st.eye(3)), st.Tensor)


def work(queue: mp.Queue, cast: mp.Broadcast) -> None:
    assert_type(queue.get(), Any)


async def use(reader: broadcast.BroadcastReader[str]) -> None:
    assert_type(await reader.aget(), str)
    assert_type(await numbers.aget(), int)
    async for message in reader:
        assert_type(message, str)
"""
WRONG = """
import shmtensor as st
import shmtensor.multiprocessing as mp

st.zeroes(3)  # wrong
st.no_grad()(3)  # wrong
st.eye(3).ndim()  # wrong
st.Tensr  # wrong
st.fft.fftt  # wrong
st.nn.Liner(2, 3)  # wrong
st.nn.functional.reluu  # wrong
st.nn.modules.Conv2  # wrong
st.array_api.summ  # wrong
st.array_api.sort(st.eye(3), dim=0)  # wrong
st.array_api.linalg.solv  # wrong
mp.Quueue()  # wrong
mp.Queue(maxsize="3")  # wrong
mp.Queue(maxlen=3)  # wrong
mp.Broadcast(3, policies="block")  # wrong
mp.Pool("2")  # wrong
mp.get_context("fork").Quueue()  # wrong
mp.Broadcast(3).reader().latst()  # wrong
numbers: mp.Queue[int] = mp.Queue()
numbers.put("3")  # wrong
"""
SUBMODULES = [
    one.name for one in pkgutil.iter_modules(multiprocessing.__path__)
    if one.name != "spawn" and not one.name.startswith("popen_")
]  # fmt: skip
"""Of the standard package; `spawn` is torch's function here."""


def names() -> str:
    """A program that uses every name there is."""
    lines = [f"st.{name}" for name in dir(shmtensor)]
    for module in (
        "array_api", "array_api.linalg", "fft", "linalg", "nn", "nn.functional", "nn.modules", "nn.utils", "optim",
        "random", "special",
    ):  # fmt: skip
        lines += [f"st.{module}.{name}" for name in attrgetter(module)(shmtensor).__all__]
    lines += [f"mp.{name}" for name in [*mp.__all__, *SUBMODULES, "SUBDEBUG", "SUBWARNING"]]
    return "\n".join(["import shmtensor as st", "import shmtensor.multiprocessing as mp", *lines, ""])


PROGRAMS = {"good.py": GOOD, "wrong.py": WRONG, "names.py": names()}


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("typing")
    for name, text in PROGRAMS.items():
        (made / name).write_text(text)
    return made


# Modules whose classes have bases of a library, and are unknown where it is not installed.
WITH_BASES_OF = {
    "integrations.dask.registration": "distributed",
    "integrations.ray.transport": "ray",
    "manager.monitor.openmetrics": "prometheus_client",
    "manager.monitor.screen": "textual",
}
EXAMPLES = Path(__file__).parents[1] / "examples"


def lines_that_are_wrong() -> set[tuple[str, int]]:
    return {("wrong.py", number) for number, line in enumerate(WRONG.split("\n"), 1) if line.endswith("# wrong")}


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_mypy(where: Path) -> None:
    pytest.importorskip("mypy")
    options = ["--no-error-summary", "--config-file=", f"--cache-dir={where / 'cache'}", "--strict"]
    command = [sys.executable, "-m", "mypy", *options, *PROGRAMS]
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    found = {(file, int(line)) for file, line in re.findall(r"^(\w+\.py):(\d+): error", done.stdout, re.MULTILINE)}
    assert found == lines_that_are_wrong(), done.stdout + done.stderr


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_pyright(where: Path) -> None:
    pytest.importorskip("basedpyright", reason="pyright as a package with all that it needs")
    (where / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard", "reportUnusedExpression": false}')
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, *PROGRAMS]
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(PROGRAMS)
    errors = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    found = {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in errors}
    assert found == lines_that_are_wrong(), "\n".join(one["file"] + ": " + one["message"] for one in errors)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_types_of_public_names_are_complete(tmp_path: Path) -> None:
    pytest.importorskip("basedpyright", reason="pyright as a package with all that it needs")
    # This pyright asks the first Python in PATH for its libraries; an editable install it would not find.
    found_first = {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(Path(shmtensor.__file__).parents[1])}
    environment = {name: os.pathsep.join([first, os.environ.get(name, "")]) for name, first in found_first.items()}
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--verifytypes", "shmtensor", "--ignoreexternal"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    report = json.loads(done.stdout)["typeCompleteness"]
    assert report["pyTypedPath"] and sum(report["exportedSymbolCounts"].values()) > 8000
    unknown = tuple(f"shmtensor.{name}." for name, library in WITH_BASES_OF.items() if find_spec(library) is None)
    incomplete = [
        "\n".join([one["name"], *[problem["message"] for problem in one["diagnostics"]]])
        for one in report["symbols"]
        if one["isExported"] and not one["isTypeKnown"] and not one["name"].startswith(unknown)
    ]
    assert not incomplete, "\n\n".join(incomplete)
    assert report["completenessScore"] == 1 or unknown


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_examples(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    configuration = EXAMPLES.parent / "pyproject.toml"  # strict; types of other libraries are not read
    options = ["--no-error-summary", "--strict", f"--config-file={configuration}", f"--cache-dir={tmp_path}"]
    programs = sorted(path.name for path in EXAMPLES.glob("*.py"))
    assert "hogwild.py" in programs
    command = [sys.executable, "-m", "mypy", *options, *programs, "common"]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_submodule_of_the_standard_package_is_here() -> None:
    assert "queues" in SUBMODULES
    for name in SUBMODULES:
        assert getattr(mp, name).__name__ == f"multiprocessing.{name}"
