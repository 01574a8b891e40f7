"""Random networks of every layer beside torch's: results, losses, gradients and buffers are equal in float64."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from networks.plans import NAMES, Plan, network, plan, tensors, weighted
from tiers import first

import shmtensor as st

pytestmark = pytest.mark.torch
torch: Any = pytest.importorskip("torch")

SEEDS = range(4 * len(NAMES))
NEAR = 1e-10
"""How near numbers have to be, relative to the largest of a tensor, if that is above 1."""
LEFT_OUT = {
    "Module": "the class of the networks themselves",
    "RNNBase": "the base of recurrent layers, computes nothing",
    "RNNCellBase": "the base of cells, computes nothing",
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """torch's threads wait for each other actively, which takes long where processors are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def array(value: Any) -> Any:
    """A tensor's numbers; None is left."""
    if value is None:
        return None
    if getattr(value, "is_sparse", False):
        value = value.to_dense()
    return np.asarray(value.detach().numpy())


def outcome(planned: Plan, library: Any, model: Any, training: bool) -> dict[str, Any]:
    """Results of the steps, loss, gradients of inputs and parameters, and the state after the pass, by name."""
    x, given, leaves = tensors(planned, library)
    model.train(training)
    model.zero_grad()
    results, sides = model(x, given)
    loss = sum([weighted(one, library) for one in [results[-1], *sides]])
    loss.backward()
    found = {f"result {number}": one for number, one in enumerate(results)}
    found |= {f"other result {number}": one for number, one in enumerate(sides)} | {"loss": loss}
    found |= {f"gradient of input {number}": one.grad for number, one in enumerate(leaves)}
    found |= {f"gradient of {name}": one.grad for name, one in model.named_parameters()}
    found |= {f"state {name}": one for name, one in model.state_dict().items()}
    return {name: array(one) for name, one in found.items()}


def require_equal(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Compare what two networks did; numbers are as near as the largest of a tensor allows."""
    assert [*ours] == [*theirs]
    for name, wanted in theirs.items():
        found = ours[name]
        assert (found is None) == (wanted is None), f"{name}: {found}, not {wanted}"
        if wanted is not None:
            assert found.shape == wanted.shape and found.dtype == wanted.dtype, name
            scale = max(1.0, float(np.abs(wanted).max(initial=0)))
            if not np.allclose(found, wanted, 0, NEAR * scale, equal_nan=True):
                raise AssertionError(f"{name} is off by up to {np.abs(found - wanted).max()} of {scale}")


@pytest.mark.parametrize("seed", first(SEEDS, 12))
def test_a_random_network_computes_what_torchs_does(seed: int) -> None:
    planned = plan(seed, torch)
    masks: dict[int, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        theirs, ours = network(planned, torch, masks), network(planned, st, masks)
        state = {key: st.from_numpy(value.numpy().copy()) for key, value in theirs.state_dict().items()}
        assert repr(ours.load_state_dict(state)) == "<All keys matched successfully>"
        for training in planned.modes:
            found = outcome(planned, st, ours, training)
            try:
                require_equal(found, outcome(planned, torch, theirs, training))
            except AssertionError as error:
                steps = "\n".join(f"{number}: {step.layers}" for number, step in enumerate(planned.steps))
                raise AssertionError(f"seed {seed}, training={training}: {error}\n{steps}") from None


def classes_of(library: Any) -> set[str]:
    """Names of the classes of modules."""
    return {
        name
        for name, one in inspect.getmembers(library.nn, inspect.isclass)
        if issubclass(one, library.nn.Module) and not name.startswith("_")
    }


def test_every_module_is_drawn() -> None:
    assert {*NAMES} | {*LEFT_OUT} == classes_of(st) & classes_of(torch)
    assert not {*NAMES} & {*LEFT_OUT}


@pytest.mark.exhaustive
def test_the_seeds_have_every_module() -> None:
    found: set[str] = set()
    for seed in SEEDS[: len(NAMES)]:
        found |= plan(seed, torch).names
    assert {*NAMES} <= found
