"""Ray's actors pass tensors: as handles in one group, as bytes into another; what kills leave. Needs Ray."""

from __future__ import annotations

import gc
import pickle
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("ray.experimental.rdt")

from manager_world import BOUND, until  # noqa: E402
from ray_world import THERE, blocks, end, kill, ones, start, two_nodes  # noqa: E402

import shmtensor as st  # noqa: E402
from shmtensor.integrations.ray import handle, open_handle, pack_handle, register  # noqa: E402
from shmtensor.ipc.codec import encode_for_wire  # noqa: E402

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # which actors cannot import

pytestmark = [
    pytest.mark.ray,
    pytest.mark.any_python,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),  # those of Ray itself
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with two_nodes():
        yield


@pytest.fixture(scope="module")
def actors(cluster: None) -> Iterator[list[Any]]:
    made = [start(), start(), start(THERE)]
    yield made
    end(*made)


@pytest.fixture
def parts(actors: list[Any]) -> Iterator[list[Any]]:
    """Two actors in the group of this process, and one in another group. A test that kills one puts another there."""
    before = blocks()
    yield actors
    for actor in actors:
        get(actor.do.remote(lambda part: (part.kept.clear(), gc.collect())))  # Ray's errors leave cycles behind
    until(lambda: blocks() == before and not get(actors[2].own_blocks.remote()), "the memory to be free")


def get(ref: Any) -> Any:
    return ray.get(ref, timeout=3 * BOUND)


KINDS = {
    "all of a storage": lambda: st.arange(24).reshape(2, 3, 4).float(),
    "a view with gaps": lambda: st.arange(24).reshape(4, 6)[1:3, ::2],
    "a transposed view": lambda: st.arange(24.0).reshape(4, 6).T,
    "expanded": lambda: st.arange(4.0).expand(3, 4),
    "one number": lambda: st.tensor(2.5),
    "no element": lambda: st.zeros(0, 3),
    "bfloat16": lambda: st.full((5,), 1.5, dtype=st.bfloat16),
    "complex": lambda: st.arange(4).to(st.complex128) * 1j,
    "bool": lambda: st.arange(5) > 2,
}


def values_of(_: Any, tensor: Any) -> Any:
    return tuple(tensor.shape), str(tensor.dtype), tensor.is_shared(), tensor.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_arrives(parts: list[Any], kind: str) -> None:
    made = KINDS[kind]()
    wanted = tuple(made.shape), str(made.dtype), made.tolist()
    source = parts[0]
    ref = source.give.remote(lambda _, make=KINDS[kind]: make())
    for receiver in (parts[1], parts[2]):
        shape, dtype, shared, values = get(receiver.do.remote(values_of, ref))
        assert (shape, dtype, values) == wanted
        assert shared or not made.numel()


def test_actors_of_one_group_share_memory(parts: list[Any]) -> None:
    def make(part: Any) -> Any:
        part.kept.append(st.zeros(1000))
        return {"rows": [part.kept[0][10:20]], "name": "x"}

    before = blocks()
    ref = parts[0].give.remote(make)

    def add(_: Any, got: Any) -> Any:
        got["rows"][0].add_(1)
        return got["name"]

    assert get(parts[1].do.remote(add, ref)) == "x"
    assert get(parts[0].do.remote(lambda part: part.kept[0].sum().item())) == 10
    assert blocks() == before + 1
    mine = get(ref)  # the driver is in the group, too
    mine["rows"][0].add_(1)
    assert get(parts[0].do.remote(lambda part: part.kept[0].sum().item())) == 20


def test_an_actor_of_another_group_gets_a_copy(parts: list[Any]) -> None:
    def make(part: Any) -> Any:
        part.kept.append(st.zeros(1 << 20))
        return part.kept[0]

    ref = parts[0].give.remote(make)

    def add(part: Any, got: Any) -> Any:
        part.kept.append(got.add_(1))
        return got.sum().item(), got.is_shared()

    assert get(parts[2].do.remote(add, ref)) == (1 << 20, True)
    assert get(parts[0].do.remote(lambda part: part.kept[0].sum().item())) == 0
    assert get(parts[2].own_blocks.remote()) == 1


def test_memory_that_was_lent_stays_so(parts: list[Any]) -> None:
    def make(part: Any) -> Any:
        part.kept.append(st.ones(10).share_memory_(readonly=True))
        return part.kept[0]

    def write(_: Any, got: Any) -> str:
        try:
            got.add_(1)
        except st.errors.LayoutError:
            return "refused"
        return "written"

    assert get(parts[1].do.remote(write, parts[0].give.remote(make))) == "refused"


def test_a_leaf_arrives_as_one(parts: list[Any]) -> None:
    ref = parts[0].give.remote(lambda _: st.ones(3, requires_grad=True))
    for receiver in (parts[1], parts[2]):
        assert get(receiver.do.remote(lambda _, got: (got.requires_grad, got.is_leaf), ref)) == (True, True)


def test_memory_is_held_under_the_object_until_nobody_refers_to_it(parts: list[Any]) -> None:
    before = blocks()
    ref = parts[0].give.remote(ones, 1000)
    get(parts[1].do.remote(lambda part, got: part.kept.append(got), ref))
    assert get(parts[0].held.remote("shmtensor")) == [ref.hex()]
    assert blocks() == before + 1
    del ref
    until(lambda: get(parts[0].held.remote("shmtensor")) == [], "the source to let the memory go")
    assert get(parts[1].do.remote(lambda part: part.kept[0].sum().item())) == 1000  # it has a hold of its own
    get(parts[1].do.remote(lambda part: part.kept.clear()))
    until(lambda: blocks() == before, "the memory to be free")


def test_a_receiver_outlives_the_source(parts: list[Any]) -> None:
    before = blocks()
    ref = parts[0].give.remote(ones, 1000)
    get(parts[1].do.remote(lambda part, got: part.kept.append(got), ref))
    source, parts[0] = parts[0], start()
    kill(source)
    assert get(parts[1].do.remote(lambda part: part.kept[0].sum().item())) == 1000
    assert blocks() == before + 1
    get(parts[1].do.remote(lambda part: part.kept.clear()))
    until(lambda: blocks() == before, "the memory to be free")
    with pytest.raises(ray.exceptions.RayError):  # it comes too late
        get(parts[1].do.remote(lambda part, got: part.kept.append(got), ref))


def test_the_memory_of_a_killed_source_is_free(parts: list[Any]) -> None:
    before = blocks()
    ref = parts[0].give.remote(ones, 1 << 20)
    ray.wait([ref], timeout=BOUND)
    until(lambda: blocks() == before + 1, "the tensor to be there")
    source, parts[0] = parts[0], start()
    kill(source)
    until(lambda: blocks() == before, "the memory to be free")


def test_the_hold_of_a_killed_receiver_ends(parts: list[Any]) -> None:
    before = blocks()
    ref = parts[0].give.remote(ones, 1000)
    get(parts[1].do.remote(lambda part, got: part.kept.append(got), ref))
    receiver, parts[1] = parts[1], start()
    del ref
    until(lambda: get(parts[0].held.remote("shmtensor")) == [], "the source to let the memory go")
    assert blocks() == before + 1
    kill(receiver)
    until(lambda: blocks() == before, "the memory to be free")


def test_a_source_of_another_group_is_killed(parts: list[Any]) -> None:
    ref = parts[2].give.remote(ones, 1000)
    assert get(parts[0].do.remote(lambda _, got: got.sum().item(), ref)) == 1000
    source, parts[2] = parts[2], start(THERE)
    kill(source)
    with pytest.raises(ray.exceptions.RayError):
        get(parts[0].do.remote(lambda _, got: got.sum().item(), ref))
    assert get(parts[0].do.remote(lambda _: "alive")) == "alive"


def test_a_tensor_of_the_driver(parts: list[Any]) -> None:
    mine = st.zeros(10)
    ref = ray.put([mine, "x"], _tensor_transport="shmtensor")
    get(parts[1].do.remote(lambda _, got: got[0].add_(1).shape, ref))
    assert mine.sum().item() == 10
    assert get(parts[2].do.remote(lambda _, got: got[0].sum().item(), ref)) == 10


def test_tensors_are_received_into_buffers(parts: list[Any]) -> None:
    from ray.experimental import set_target_for_ref

    ref = parts[0].give.remote(lambda _: [st.ones(4), st.arange(3)])
    targets = [st.zeros(4), st.zeros(3, dtype=st.int64)]
    set_target_for_ref(ref, targets)
    got = get(ref)
    assert [one is target for one, target in zip(got, targets, strict=True)] == [True, True]
    assert targets[0].sum() == 4 and targets[1].tolist() == [0, 1, 2]


# -- torch -------------------------------------------------------------------------------------------------------------


def torch_kinds() -> dict[str, Any]:
    import torch

    return {
        "a transposed view": torch.arange(24.0).reshape(4, 6)[1:, ::2].T,
        "bfloat16": torch.full((5,), 1.5, dtype=torch.bfloat16),
        "bool": torch.arange(5) > 2,
        "conjugated": (torch.arange(4) * 1j).conj(),
        "one number": torch.tensor(3, dtype=torch.int16),
        "no element": torch.zeros(0, 3),
        "a leaf": torch.ones(3, requires_grad=True),
    }


@pytest.mark.torch
def test_torch_tensors_arrive(parts: list[Any]) -> None:
    pytest.importorskip("torch")
    wanted = torch_kinds()
    for kind, tensor in wanted.items():
        ref = parts[0].give_torch.remote(lambda _, kind=kind: torch_kinds()[kind])
        for receiver in (parts[1], parts[2]):

            def describe(_: Any, got: Any) -> Any:
                return tuple(got.shape), got.dtype, got.is_conj(), got.requires_grad, got.tolist(), got.is_shared()

            *found, shared = get(receiver.do.remote(describe, ref))
            assert tuple(found) == describe(None, tensor)[:-1], kind
            assert shared or not tensor.numel()


@pytest.mark.torch
def test_torch_tensors_share_memory(parts: list[Any]) -> None:
    pytest.importorskip("torch")

    def make(part: Any) -> Any:
        import torch

        part.kept.append(torch.zeros(10, 10))
        return part.kept[0][3]

    get(parts[1].do.remote(lambda _, got: got.add_(1).shape, parts[0].give_torch.remote(make)))
    assert get(parts[0].do.remote(lambda part: part.kept[0].sum().item())) == 10


@pytest.mark.torch
def test_a_copy_is_kept_by_the_transport_alone(parts: list[Any]) -> None:
    """What torch, or a mapped file, shares is not the manager's memory."""
    pytest.importorskip("torch")
    before = blocks()

    def shared_by_torch(_: Any) -> Any:
        import torch

        return torch.arange(100).share_memory_()

    def shared_by_a_file(_: Any) -> Any:
        with tempfile.NamedTemporaryFile() as file:
            storage = st.FloatStorage.from_file(file.name, shared=True, size=100)
        return st.empty(0).set_(storage).fill_(49.5)

    refs = [parts[0].give_torch.remote(shared_by_torch), parts[0].give.remote(shared_by_a_file)]
    ray.wait(refs, num_returns=2, timeout=BOUND)
    for ref in refs:
        for receiver in (parts[1], parts[2]):
            assert get(receiver.do.remote(lambda _, got: got.sum().item(), ref)) == 4950
    assert blocks() == before + 2
    del refs, ref
    until(lambda: blocks() == before, "the copies to be free")


# -- handles -----------------------------------------------------------------------------------------------------------


def keep(part: Any, tensor: Any) -> None:
    part.kept.append(tensor)


def test_a_handle_arrives_as_its_tensor(parts: list[Any]) -> None:
    get(parts[0].do.remote(lambda part: part.kept.append(st.zeros(10)[2:5])))

    def add(_: Any, got: Any) -> Any:
        return got.add_(1).tolist()

    assert get(parts[0].lend.remote(parts[1], "do", add)) == [1, 1, 1]
    assert get(parts[0].do.remote(lambda part: part.kept[0].tolist())) == [1, 1, 1]
    assert get(parts[0].lend.remote(parts[2], "do", add)) == [2, 2, 2]
    assert get(parts[0].do.remote(lambda part: part.kept[0].tolist())) == [1, 1, 1]


def test_a_handle_holds_nothing(parts: list[Any]) -> None:
    before = blocks()
    mine = st.ones(1000)
    reference = ray.put(handle(mine))
    assert blocks() == before + 1
    get(parts[0].do.remote(keep, reference))
    del mine
    assert get(parts[0].do.remote(lambda part: part.kept.pop().sum().item())) == 1000
    until(lambda: blocks() == before, "the memory to be free")
    with pytest.raises(ray.exceptions.RayError):
        get(parts[0].do.remote(keep, reference))


@pytest.mark.torch
def test_a_handle_of_a_torch_tensor(parts: list[Any]) -> None:
    torch = pytest.importorskip("torch")
    mine = torch.zeros(4)
    get(parts[0].do.remote(lambda _, got: got.add_(2).shape, handle(mine)))
    assert mine.tolist() == [2, 2, 2, 2]


def test_a_handle_as_bytes(parts: list[Any]) -> None:
    mine = st.zeros(4, 6)
    for part in (mine[1:3, ::2], mine.t(), mine[0, 0], st.empty(0, 3)):
        data = pack_handle(part)
        assert isinstance(data, bytes) and len(data) < 300
        assert get(parts[0].do.remote(lambda _, got: open_handle(got).add_(1).shape, data)) == part.shape
    assert mine[0].tolist() == [2, 1, 1, 1, 1, 1] and mine[1].tolist() == [2, 1, 2, 1, 2, 1]
    assert get(parts[2].do.remote(lambda _, got: open_handle(got).tolist(), pack_handle(mine))) == mine.tolist()
    data = pack_handle(st.zeros(3))
    until(lambda: gone(data), "a handle that nobody keeps to be stale")


def gone(data: bytes) -> bool:
    try:
        open_handle(data)
    except st.errors.StaleHandle:
        return True
    return False


@pytest.mark.torch
def test_a_handle_of_a_torch_tensor_as_bytes(parts: list[Any]) -> None:
    torch = pytest.importorskip("torch")
    mine = torch.zeros(4, dtype=torch.bfloat16, requires_grad=True)
    assert get(parts[0].do.remote(lambda _, got: open_handle(got).requires_grad, pack_handle(mine)))
    get(parts[0].do.remote(lambda _, got: open_handle(got).add_(2).shape, pack_handle(mine.detach())))
    assert mine.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("data", [b"", b"x" * 40, 5, None, encode_for_wire(7), encode_for_wire((True,) * 20), b"\x01"])
def test_bytes_that_are_no_handle(data: Any) -> None:
    with pytest.raises(st.errors.InvalidArgument, match="not the bytes of a handle"):
        open_handle(data)


def test_a_handle_is_not_of_a_copy(tmp_path: Path) -> None:
    """Nobody would keep it."""
    storage = st.FloatStorage.from_file(tmp_path / "x", shared=True, size=10)
    mapped = st.empty(0).set_(storage)
    with pytest.raises(st.errors.InvalidArgument, match="mapped file"):
        pickle.dumps(handle(mapped))
    mine = mapped.clone()
    assert pickle.loads(pickle.dumps(handle(mine))).storage().size() == 10


@pytest.mark.torch
def test_a_handle_is_not_of_what_torch_shares() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(st.errors.InvalidArgument, match="share_memory_"):
        pickle.dumps(handle(torch.ones(3).share_memory_()))


# -- without the hook --------------------------------------------------------------------------------------------------


def test_by_value(parts: list[Any]) -> None:
    def send(_: Any, *shape: int) -> Any:
        from shmtensor.integrations.ray.registration import register_by_value

        register_by_value()
        return st.arange(1 << 20)[:: 1 << 10].reshape(32, 32).T

    ref = parts[0].do.remote(send)
    got = get(ref)
    assert np.array_equal(got.numpy(), (np.arange(1 << 20)[:: 1 << 10]).reshape(32, 32).T)
    assert get(parts[1].do.remote(lambda _, tensor: tensor.shape, ref)) == (32, 32)


def test_registering_again_changes_nothing() -> None:
    assert register() is True
    assert register() is True
