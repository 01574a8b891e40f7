"""Tensors in Dask's messages, and results of workers in stores; what kills leave. Needs Dask."""

from __future__ import annotations

import copyreg
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

as_before = dict(copyreg.dispatch_table)
distributed = pytest.importorskip("distributed")
copyreg.dispatch_table.clear()  # it registers how every exception is pickled (tblib), also for the tests of other files
copyreg.dispatch_table.update(as_before)

from dask.base import tokenize  # noqa: E402
from dask.sizeof import sizeof  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402
from distributed.protocol import deserialize, serialize, serialize_bytes  # noqa: E402
from distributed.protocol.serialize import deserialize_bytes  # noqa: E402
from manager_world import BOUND, until  # noqa: E402

import shmtensor as st  # noqa: E402
from shmtensor.integrations.dask import StoreMapping, register  # noqa: E402
from shmtensor.manager import client as managers  # noqa: E402
from shmtensor.nn import Parameter  # noqa: E402

pytestmark = [
    pytest.mark.dask,
    pytest.mark.any_python,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),  # those of Dask itself
]


# -- messages ----------------------------------------------------------------------------------------------------------

KINDS = {
    "all of a storage": (lambda: st.arange(24).reshape(2, 3, 4).float(), True),
    "rows": (lambda: st.arange(24).reshape(4, 6)[1:3], True),
    "a view with gaps": (lambda: st.arange(24).reshape(4, 6)[1:3, ::2], False),
    "a transposed view": (lambda: st.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1), True),
    "expanded": (lambda: st.arange(4.0).expand(3, 4), True),
    "one number": (lambda: st.tensor(2.5), True),
    "no element": (lambda: st.zeros(0, 3), False),
    "in shared memory": (lambda: st.arange(10, shared=True)[2:], True),
    "read-only": (lambda: st.ones(4).share_memory_(readonly=True), True),
    "a leaf": (lambda: st.ones(3, requires_grad=True), True),
}
TYPES = ["bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def same(one: st.Tensor, other: st.Tensor) -> bool:
    return (
        one.shape == other.shape
        and one.dtype == other.dtype
        and one.requires_grad == other.requires_grad
        and one.tolist() == other.tolist()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_is_the_memory_of_the_tensor(kind: str) -> None:
    make, is_same_memory = KINDS[kind]
    tensor = make()
    header, (frame,) = serialize(tensor)
    assert header["serializer"] == "dask"
    memory = np.frombuffer(frame, np.uint8) if len(frame) else np.empty(0, np.uint8)
    assert np.may_share_memory(memory, tensor.detach().numpy()) == is_same_memory
    assert memory.nbytes == sizeof(tensor)  # nothing of the storage beside it
    got = deserialize(header, [bytearray(frame)])
    assert same(got, tensor)
    if kind != "expanded":
        got.detach()[...] = 1


@pytest.mark.parametrize("dtype", TYPES)
def test_types(dtype: str) -> None:
    tensor = st.arange(6).reshape(2, 3).to(getattr(st, dtype))
    assert same(deserialize_bytes(serialize_bytes(tensor)), tensor)
    assert same(deserialize_bytes(serialize_bytes({"x": [tensor.T]}))["x"][0], tensor.T)


def test_a_frame_that_cannot_be_written_is_copied() -> None:
    header, (frame,) = serialize(st.ones(3))
    got = deserialize(header, [bytes(frame)])
    assert got.add_(1).tolist() == [2, 2, 2]
    shifted = memoryview(bytearray(b"x" + bytes(frame)))[1:]
    assert deserialize(header, [shifted]).tolist() == [1, 1, 1]


def test_subclasses_are_pickled() -> None:
    header, frames = serialize(Parameter(st.ones(3)))
    assert header["serializer"] == "pickle"
    assert isinstance(deserialize(header, frames), Parameter)


def test_tokens_tell_contents() -> None:
    x = st.arange(10)
    assert tokenize(x[2:4]) == tokenize(st.tensor([2, 3])) != tokenize(x[3:5])
    assert tokenize(x) != tokenize(x.int())


# -- the mapping -------------------------------------------------------------------------------------------------------


def test_a_mapping_of_dasks_keys(tmp_path: Path) -> None:
    data = StoreMapping()
    values: dict[Any, Any] = {
        "tensor": st.arange(5),
        ("x", 1, (2, "y")): np.arange(6.0).reshape(2, 3).T,
        3: {"a": [st.ones(2), (np.zeros(1), "text", None)]},
        "plain": object(),
        "number": 5,
    }
    for key, value in values.items():
        data[key] = value
    assert len(data) == 5 and set(data) == set(values) and all(key in data for key in values)
    assert len(data.store) == 3
    assert data["tensor"].tolist() == [0, 1, 2, 3, 4] and data["tensor"].is_shared()
    assert np.array_equal(data["x", 1, (2, "y")], values["x", 1, (2, "y")])
    assert data[3]["a"][0].tolist() == [1, 1] and data[3]["a"][1][1:] == ("text", None)
    assert data["plain"] is values["plain"] and data["number"] == 5
    data["tensor"] = st.zeros(2)  # again
    data["plain"] = np.ones(1)
    data[3] = "no array any more"
    assert data["tensor"].tolist() == [0, 0] and data["plain"][0] == 1 and data[3] == "no array any more"
    assert len(data) == 5 and len(data.store) == 3
    for key in list(data):
        del data[key]
    assert not data and list(data) == [] and len(data.store) == 0
    for read in (lambda: data["tensor"], lambda: data.pop("tensor")):
        with pytest.raises(KeyError):
            read()
    with pytest.raises(KeyError):
        del data["tensor"]


@pytest.mark.parametrize(
    "value",
    [
        lambda: [st.ones(2, requires_grad=True)],
        lambda: [np.ones(2), object()],
        lambda: np.ma.masked_array([1, 2], [True, False]),
        lambda: np.array(["text"]),
        lambda: {"x": np.ones(2), "y": {1, 2}},
        lambda: np.float64(3),
    ],
)
def test_what_a_store_does_not_take_stays_as_it_is(value: Any) -> None:
    data, made = StoreMapping(), value()
    data["x"] = made
    assert data["x"] is made and len(data.store) == 0


def test_results_go_to_files_and_come_back(tmp_path: Path) -> None:
    data = StoreMapping("1M", str(tmp_path))
    for i in range(8):
        data[i] = np.full(50_000, i)
    assert data.spilled_total.disk >= 5 * 400_000
    assert list(tmp_path.rglob("*.safetensors"))
    assert [int(data[i].sum()) for i in range(8)] == [50_000 * i for i in range(8)]
    data.clear()
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_result_without_room_stays_in_private_memory(caplog: pytest.LogCaptureFixture) -> None:
    data = StoreMapping("1M")
    data["x"] = np.ones(1 << 20)
    assert data["x"].sum() == 1 << 20 and len(data.store) == 0
    assert "stays in private memory" in caplog.text


# -- a cluster ---------------------------------------------------------------------------------------------------------


def blocks() -> int:
    """Live blocks of the group, which this process and the workers are in."""
    gc.collect()
    return managers.default().stats().live_blocks


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Client]:
    before = blocks()
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            local_directory=str(tmp_path),
            data=(StoreMapping, {"max_bytes": "4M"}),
            memory_limit="1GiB",
        ) as made,
        Client(made) as client,
    ):
        yield client
    until(lambda: blocks() == before, "the memory of the workers to be free")


def make(i: int) -> st.Tensor:
    return st.full((50_000,), float(i))


def total(*tensors: st.Tensor) -> float:
    return float(sum(tensor.sum().item() for tensor in tensors))


def stored(dask_worker: Any) -> list[int]:
    return [len(dask_worker.data), len(dask_worker.data.store)]


def test_results_of_workers_are_in_stores(cluster: Client) -> None:
    before = blocks()
    futures = cluster.map(make, range(10), pure=False)
    assert cluster.submit(total, *futures).result(BOUND) == 50_000 * 45
    kept = cluster.run(stored)
    assert sum(count for _, count in kept.values()) >= 10
    assert blocks() >= before + 10
    assert sum(cluster.nbytes(summary=False).values()) >= 10 * 200_000
    got = cluster.gather(futures[3])
    assert type(got) is st.Tensor and got.tolist() == [3.0] * 50_000
    del futures
    until(lambda: sum(count for _, count in cluster.run(stored).values()) == 0, "the results to be forgotten")
    until(lambda: blocks() == before, "their memory to be free")


def test_results_beyond_the_limit_are_spilled(cluster: Client) -> None:
    futures = cluster.map(make, range(100), pure=False)  # 20 MB, of which workers keep 8
    assert cluster.submit(total, *futures[:50]).result(BOUND) == 50_000 * sum(range(50))
    spilled = cluster.run(lambda dask_worker: dask_worker.data.spilled_total.disk)
    assert sum(spilled.values()) > 5_000_000
    assert cluster.gather(futures[99])[0].item() == 99


def test_results_of_a_killed_worker_are_computed_again(cluster: Client) -> None:
    futures = cluster.map(make, range(20), pure=False)
    distributed.wait(futures, timeout=BOUND)
    pids = cluster.run(os.getpid)
    address = next(address for address in pids if cluster.has_what()[address])
    os.kill(pids[address], signal.SIGKILL)
    until(lambda: len(cluster.nthreads()) == 2 and address not in cluster.nthreads(), "another worker", 3 * BOUND)
    assert cluster.submit(total, *futures).result(3 * BOUND) == 50_000 * sum(range(20))


def test_a_killed_workers_memory_is_free(cluster: Client) -> None:
    before = blocks()
    address = next(iter(cluster.nthreads()))
    future = cluster.submit(make, 7, workers=[address], allow_other_workers=False, pure=False)
    distributed.wait(future, timeout=BOUND)
    assert blocks() == before + 1
    pid = cluster.run(os.getpid, workers=[address])[address]
    future.cancel()
    os.kill(pid, signal.SIGKILL)
    until(lambda: blocks() <= before, "its memory to be free")


def test_workers_without_a_mapping_can_be_registered(tmp_path: Path) -> None:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(tmp_path)
        ) as made,
        Client(made) as client,
    ):
        register(client)
        register(client)
        mine = st.arange(6).reshape(2, 3).T
        assert client.submit(lambda x: x.tolist(), mine).result(BOUND) == mine.tolist()
        scattered = client.scatter(mine)
        assert same(client.submit(lambda x: x + 0, scattered).result(BOUND), mine)
