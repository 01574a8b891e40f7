"""Averages of models equal torch's."""

import inspect

import numpy as np
import pytest

import shmtensor
from shmtensor import nn
from shmtensor.errors import InvalidArgument
from shmtensor.optim import swa_utils

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
theirs = torch.optim.swa_utils


def models():
    mine = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    change(mine, other, 0)
    return mine, other


def change(mine, other, seed):
    rng = np.random.default_rng(seed)
    with shmtensor.no_grad(), torch.no_grad():
        for ours, its in (
            *zip(mine.parameters(), other.parameters(), strict=True),
            *zip(mine.buffers(), other.buffers(), strict=True),
        ):
            values = rng.random(ours.shape) * 10
            ours.copy_(values)
            its.copy_(torch.tensor(values))


def same(mine, other):
    ours, its = mine.state_dict(), other.state_dict()
    assert list(ours) == list(its)
    for name, value in ours.items():
        np.testing.assert_allclose(value.detach().numpy(), its[name].numpy(), rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda module: {},
        lambda module: {"avg_fn": module.get_ema_avg_fn(0.9)},
        lambda module: {"multi_avg_fn": module.get_ema_multi_avg_fn(0.9)},
        lambda module: {"avg_fn": module.get_swa_avg_fn()},
        lambda module: {"multi_avg_fn": module.get_swa_multi_avg_fn()},
    ],
)
def test_averages_as_torch(make, buffers):
    mine, other = models()
    if buffers:  # an average of integers depends on the library's rounding
        del mine[1], other[1]
    average = swa_utils.AveragedModel(mine, use_buffers=buffers, **make(swa_utils))
    expected = theirs.AveragedModel(other, use_buffers=buffers, **make(theirs))
    for seed in range(1, 5):
        change(mine, other, seed)
        average.update_parameters(mine)
        expected.update_parameters(other)
        same(average, expected)
    assert average.n_averaged.item() == 4
    if not buffers:
        average.eval()
        expected.eval()
        x = np.ones((2, 3), np.float32)
        found = average(shmtensor.tensor(x)).detach().numpy()
        np.testing.assert_allclose(found, expected(torch.tensor(x)).detach().numpy(), rtol=1e-5)


def test_averages_of_buffers():
    mine = nn.BatchNorm1d(2)
    average = swa_utils.AveragedModel(mine, use_buffers=True)
    for value in (1, 3):
        with shmtensor.no_grad():
            mine.running_mean.fill_(value)
        average.update_parameters(mine)
    assert average.module.running_mean.tolist() == [2, 2]


def test_statistics_of_batches():
    mine, other = models()
    rng = np.random.default_rng(0)
    batches = rng.standard_normal((5, 8, 3)).astype(np.float32)
    mine.eval()
    other.eval()
    swa_utils.update_bn([shmtensor.tensor(one) for one in batches], mine)
    theirs.update_bn([torch.tensor(one) for one in batches], other)
    np.testing.assert_allclose(mine[1].running_mean.numpy(), other[1].running_mean.numpy(), rtol=1e-4)
    np.testing.assert_allclose(mine[1].running_var.numpy(), other[1].running_var.numpy(), rtol=1e-4)
    assert mine[1].momentum == 0.1
    assert not mine.training
    before = mine[1].running_mean.clone()
    swa_utils.update_bn([(shmtensor.tensor(one), 7) for one in batches], mine, "cpu")
    np.testing.assert_allclose(mine[1].running_mean.numpy(), before.numpy())
    swa_utils.update_bn(7, nn.Linear(1, 1))  # nothing normalizes: no batch is asked for


def test_names_and_arguments():
    assert sorted(swa_utils.__all__) == sorted(theirs.__all__)
    for name in ("AveragedModel", "update_bn", "get_ema_avg_fn", "get_swa_multi_avg_fn"):
        ours, its = (inspect.signature(getattr(module, name)) for module in (swa_utils, theirs))
        found = [(one.name, one.default) for one in ours.parameters.values()]
        assert found == [(one.name, one.default) for one in its.parameters.values()]


def test_refusals():
    with pytest.raises(InvalidArgument, match="Only one of avg_fn and multi_avg_fn"):
        swa_utils.AveragedModel(nn.Linear(1, 1), avg_fn=max, multi_avg_fn=max)
    for make in (swa_utils.get_ema_avg_fn, swa_utils.get_ema_multi_avg_fn):
        with pytest.raises(InvalidArgument, match="Invalid decay value 2"):
            make(2)
