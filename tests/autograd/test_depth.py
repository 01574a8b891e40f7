"""Graphs of a million operations: nothing recurses, and each costs little memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shmtensor as st

LENGTH = 1_000_000
PAGE = os.sysconf("SC_PAGE_SIZE")


def in_use() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def chain(x: Any, length: int) -> Any:
    for _ in range(length):
        x = -x
    return x


def chain_of_objects() -> Any:
    class Negative(st.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return -x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return -g

    def make(x: Any, length: int) -> Any:
        for _ in range(length):
            x = Negative.apply(x)
        return x

    return make


@pytest.mark.exhaustive
def test_a_long_chain() -> None:
    x = st.ones(1, requires_grad=True)
    before = in_use()
    y = chain(x, LENGTH)
    assert (in_use() - before) / LENGTH < 500
    y.backward()
    assert x.grad.tolist() == [1]
    y.backward()
    assert x.grad.tolist() == [2]
    del y
    assert (in_use() - before) / LENGTH < 120


@pytest.mark.parametrize("make", [chain, chain_of_objects()], ids=["operations", "functions"])
@pytest.mark.parametrize(
    "end", [lambda y: None, lambda y: y.backward(), lambda y: y.retain_grad()], ids=["alone", "pass", "kept"]
)
def test_a_chain_is_dropped(make: Callable[[Any, int], Any], end: Callable[[Any], None]) -> None:
    x = st.ones(1, requires_grad=True)
    y = make(x, 20_000)
    end(y)
    del y
    gc.collect()
    (x * 2).backward()


def test_a_chain_that_keeps_tensors_is_dropped() -> None:
    x = st.ones(1, requires_grad=True)
    y = x
    for _ in range(50_000):
        y = y * x.detach()
    y.backward()
    assert x.grad.tolist() == [1]
    del y


def test_a_chain_in_a_cycle_is_collected() -> None:
    for make in (chain, chain_of_objects()):
        x = st.ones(1, requires_grad=True)
        y = make(x, 20_000)
        y.grad_fn.metadata["itself"] = y
        del x, y
        gc.collect()


def test_a_chain_whose_first_node_is_held() -> None:
    x = st.ones(1, requires_grad=True)
    nodes, y = [], x
    for _ in range(100_000):
        y = -y
        nodes.append(y.grad_fn)
    nodes.reverse()
    del y
    while nodes:
        nodes.pop()


def test_a_chain_of_second_derivatives() -> None:
    x = st.full((1,), 1.0, requires_grad=True)
    y = x
    for _ in range(20_000):
        y = y * 1.0
    (first,) = st.autograd.grad(y * y, x, create_graph=True)
    first.backward()
    assert x.grad.tolist() == [2]


@pytest.mark.exhaustive
def test_many_changes_in_place() -> None:
    x = st.ones(1, requires_grad=True)
    y, z = x * 1, st.zeros(4)
    for _ in range(5_000):
        y += 1
        z[1:3] += x
    (y + z.sum()).backward()
    assert x.grad.tolist() == [1 + 10_000]
    del y, z


def test_a_wide_graph() -> None:
    x = st.ones(1, requires_grad=True)
    y = st.cat([x * 1 for _ in range(20_000)])
    y.sum().backward()
    assert x.grad.tolist() == [20_000]


def test_a_program_with_a_small_stack() -> None:
    program = """
import resource, threading
import shmtensor as st
def run():
    x = st.ones(1, requires_grad=True)
    y = x
    for _ in range(100_000):
        y = -y
    y.backward()
    del y
    print(x.grad.item())
threading.stack_size(256 * 1024)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=100)
    assert done.stdout == "1.0\n"
