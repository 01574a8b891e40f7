"""The Ray and Dask cluster examples, run as a user runs them. They must leave nothing behind."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator

import pytest
from examples_world import BOUND, Place, a_place

pytestmark = [pytest.mark.any_python, pytest.mark.timeout(400)]


@pytest.fixture
def place() -> Iterator[Place]:
    if importlib.util.find_spec("tqdm") is None:
        pytest.skip("no tqdm")
    with a_place() as made:
        yield made


@pytest.mark.ray
def test_actors_pass_batches(place: Place) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("no Ray")
    process = place.start("ray_cluster.py", "--batches", "8", "--megabytes", "2")
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    rows = re.findall(r"^(one|two) nodes?, .*? +(\d+) +([\d.]+) +([\d.]+)$", output, re.MULTILINE)
    assert [(nodes, int(batches)) for nodes, batches, *_ in rows] == [("one", 8)] * 2 + [("one", 4)] + [("two", 4)] * 2
    assert all(float(milliseconds) > 0 for _, _, milliseconds, _ in rows)


@pytest.mark.dask
def test_workers_keep_results_in_stores(place: Place) -> None:
    if importlib.util.find_spec("distributed") is None:
        pytest.skip("no Dask")
    process = place.start("dask_cluster.py", "--parts", "12", "--megabytes", "2", "--memory", "4M")
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    rows = re.findall(r"^tcp://\S+ +(\d+) +([\d.]+) +([\d.]+)$", output, re.MULTILINE)
    assert len(rows) == 2 and sum(int(results) for results, *_ in rows) == 12
    assert sum(float(files) for *_, files in rows) > 10
    assert re.search(r"^mean 0\.5\d+, deviation 0\.28\d+$", output, re.MULTILINE) or "mean 0.49" in output
