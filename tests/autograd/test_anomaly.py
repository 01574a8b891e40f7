"""Anomaly mode: reports where the operation was called whose gradient failed, and NaN."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import shmtensor as st
from shmtensor.autograd import Function, detect_anomaly, set_detect_anomaly


class Fails(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        raise KeyError("mine")


def called_here(x: Any) -> Any:
    return Fails.apply(x)


def square_root(x: Any) -> Any:
    return x.sqrt()


def test_nan_is_an_error() -> None:
    x = st.zeros(2, requires_grad=True)
    with detect_anomaly():
        y = square_root(x) * 0
        with pytest.raises(st.errors.GradientError, match="sqrt for its input 0 has NaN") as caught:
            y.sum().backward()
    assert "in square_root" in "".join(caught.value.__notes__)
    (square_root(x) * 0).sum().backward()
    assert x.grad.isnan().all()


def test_the_error_of_nan_keeps_nothing() -> None:
    x = st.zeros(2, requires_grad=True)

    def failed() -> weakref.ref[Any]:
        y = square_root(x) * 0
        with detect_anomaly():
            try:
                (square_root(y) * 0).sum().backward()
            except st.errors.GradientError:
                return weakref.ref(y)
        raise AssertionError

    gc.disable()
    try:
        assert failed()() is None
    finally:
        gc.enable()


def test_infinity_is_none() -> None:
    x = st.zeros(2, requires_grad=True)
    with detect_anomaly():
        square_root(x).sum().backward()
    assert x.grad.isinf().all()


def test_nan_alone_is_not_looked_for_on_request() -> None:
    x = st.zeros(2, requires_grad=True)
    with detect_anomaly(check_nan=False):
        (square_root(x) * 0).sum().backward()
        with pytest.raises(KeyError) as caught:
            called_here(x).sum().backward()
    assert "in called_here" in "".join(caught.value.__notes__)


def test_errors_say_where_the_operation_was_called() -> None:
    x = st.ones(2, requires_grad=True)
    with set_detect_anomaly(True):
        y = called_here(x)
    with pytest.raises(KeyError, match="mine") as caught:
        y.sum().backward()
    assert "in called_here" in "".join(caught.value.__notes__)
    with pytest.raises(KeyError) as caught:
        called_here(x).sum().backward()
    assert not getattr(caught.value, "__notes__", [])


def test_a_changed_tensor_is_found() -> None:
    x, w = st.ones(2, requires_grad=True), st.ones(2)

    def product() -> Any:
        return x * w

    with detect_anomaly():
        y = product()
        w.add_(1)
        with pytest.raises(st.errors.GradientError, match="changed in place") as caught:
            y.sum().backward()
    assert "in product" in "".join(caught.value.__notes__)


def test_switches() -> None:
    set_detect_anomaly(True)
    try:
        x = st.zeros(1, requires_grad=True)
        with pytest.raises(st.errors.GradientError, match="NaN"):
            (x.sqrt() * 0).backward()
        with set_detect_anomaly(False):
            (x.sqrt() * 0).backward()
        with pytest.raises(st.errors.GradientError, match="NaN"):
            (x.sqrt() * 0).backward()
    finally:
        set_detect_anomaly(False)
    (x.sqrt() * 0).backward()
