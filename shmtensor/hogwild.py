"""Helpers for Hogwild: processes that train one model in shared memory, without locks (docs/hogwild.md).

Share the parameters (`share_memory_()`) and the state of the optimizer (`Optimizer.share_memory()`), and start
processes that get both. This module adds a counter of steps, metrics, processes with one BLAS thread each, code that
one process runs alone, copies for checkpoints, and read-only tensors for evaluation.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from . import atomics
from ._native import tensor as _tensor
from ._tensor.core import Tensor, wrap
from .errors import DTypeError, InvalidArgument
from .files import save as _save
from .multiprocessing import ProcessContext, start_processes  # its import lets tensors be sent by handle
from .optim.lr_scheduler.base import own, require_optimizer, set_rate
from .optim.optimizer import Optimizer
from .storage.arguments import INTEGERS, require_integer
from .threads import set_num_threads

__all__ = [
    "Counter", "Metrics", "Totals", "alone", "read_only", "run", "save", "scale_rates", "set_single_thread", "snapshot",
]  # fmt: skip

_LINE = 8  # 8-byte numbers in a cache line; several processes should not write to one line


# -- starting processes -----------------------------------------------------------------------------------------------


@overload
def run(
    train: Callable[..., Any],
    args: Sequence[Any] = (),
    processes: int | None = None,
    *,
    start_method: str = "spawn",
    join: Literal[True] = True,
) -> None: ...
@overload
def run(
    train: Callable[..., Any],
    args: Sequence[Any] = (),
    processes: int | None = None,
    *,
    start_method: str = "spawn",
    join: Literal[False],
) -> ProcessContext: ...
@overload
def run(
    train: Callable[..., Any],
    args: Sequence[Any] = (),
    processes: int | None = None,
    *,
    start_method: str = "spawn",
    join: bool,
) -> ProcessContext | None: ...
def run(
    train: Callable[..., Any],
    args: Sequence[Any] = (),
    processes: int | None = None,
    *,
    start_method: str = "spawn",
    join: bool = True,
) -> ProcessContext | None:
    """Start processes that call `train(rank, *args)`, with rank from 0 and one BLAS thread each.

    Blocks until all have ended, unless `join` is False.

    Args:
        train: a function that the children can import; with "fork", any callable.
        args: a tuple or list; tensors in it are sent by handle, so all processes share their memory.
        processes: number of processes; default: the number of cores.
        start_method: "spawn", "fork" or "forkserver".
        join: wait for them; if one fails, the others are ended.

    Returns:
        None, or a ProcessContext to wait for the processes if `join` is False.

    Raises:
        InvalidArgument: an invalid argument.
        ProcessRaisedException, ProcessExitedException: a process failed.
    """
    if not callable(train):
        raise InvalidArgument(f"train must be callable as train(rank, *args), and {train!r} is not")
    count = multiprocessing.cpu_count() if processes is None else processes
    return start_processes(partial(_with_single_thread, train), args, count, join, start_method=start_method)


def _with_single_thread(train: Callable[..., Any], rank: int, *args: Any) -> None:
    set_single_thread()
    train(rank, *args)


def set_single_thread() -> None:
    """Make this process compute with one BLAS thread, as processes that share the cores should. Call it in each child.

    Raises MissingExtra: there is neither OpenBLAS nor the package threadpoolctl.
    """
    set_num_threads(1)


def alone(barrier: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Call `function(*args)` in one process while all others wait, for example to evaluate between two epochs.

    Every process of the barrier must call this. Blocks until all have called it, and the function has returned.

    Args:
        barrier: a `multiprocessing.Barrier` of all processes.
        function: called in the process to which the barrier gives the number 0.
        *args: its arguments.

    Returns:
        The result of the function in the process that called it; None in the others.

    Raises:
        threading.BrokenBarrierError: a process died or timed out, or the function raised in another process.
    """
    result = None
    if barrier.wait() == 0:
        try:
            result = function(*args)
        except BaseException:
            barrier.abort()
            raise
    barrier.wait()
    return result


# -- steps and rates --------------------------------------------------------------------------------------------------


class Counter:
    """An integer in shared memory with which processes count, for example the steps or samples of all together.

    Args:
        value: the initial value.

    Attributes:
        tensor: the int64 tensor of one element with the value.

    Raises:
        DTypeError: not an integer.
        InvalidArgument: not in the range of int64.
    """

    def __init__(self, value: int = 0) -> None:
        self.tensor: Tensor = wrap(np.zeros(1, np.int64)).share_memory_()
        atomics.store(self.tensor, 0, require_integer("value", value, refusal=DTypeError))

    def add(self, n: int = 1) -> int:
        """Add `n` atomically. Returns the previous value; with n=1 each call gets a different one. Does not block."""
        return atomics.fetch_add(self.tensor, 0, n)

    @property
    def value(self) -> int:
        """The integer."""
        return atomics.load(self.tensor, 0)

    def until(self, total: int) -> Iterator[int]:
        """Yield the numbers of steps from the current value to `total` - 1; each number goes to one process.

        Finally the counter is `total` plus the number of processes. A number that a process had when it was killed is
        not yielded again. Raises DTypeError: `total` is not an integer.
        """
        total = require_integer("total", total, refusal=DTypeError)
        while (step := self.add()) < total:
            yield step

    def __int__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value})"


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DTypeError(f"{name} must be a number, not {value!r}") from None


def scale_rates(optimizer: Optimizer, factor: float) -> None:
    """Set the learning rates to `factor` times the initial rates of the groups.

    With a counter of common steps, all processes have the rate of the current step: `scale_rates(optimizer, 1 - step /
    total)`.

    Args:
        optimizer: its rates are set; rates that are tensors are changed in place.
        factor: multiple of the rates at the first call ("initial_lr", as in schedulers).

    Raises:
        DTypeError: not an optimizer, or not a number.
    """
    require_optimizer(optimizer)
    factor = _number("factor", factor)
    for group in optimizer.param_groups:
        set_rate(group, group.setdefault("initial_lr", own(group["lr"])) * factor)


# -- metrics ----------------------------------------------------------------------------------------------------------


class Totals(NamedTuple):
    """Sums and counts of metrics, by name."""

    sums: dict[str, float]
    counts: dict[str, float]

    def means(self, since: Totals | None = None) -> dict[str, float]:
        """Return mean values by name, of the values after `since` if it is given; NaN for no values."""
        means = {}
        for name, total in self.sums.items():
            count = self.counts[name] - (since.counts[name] if since else 0)
            means[name] = (total - (since.sums[name] if since else 0)) / count if count else float("nan")
        return means


class Metrics:
    """Sums and counts of values, one row for each process, which any process reads at any time. Nothing blocks.

    Each process writes to its own row, so no lock is needed. Rows of processes do not share cache lines.

    Args:
        processes: number of processes.
        *names: names of the metrics.

    Attributes:
        tensor: a float64 tensor with one row for each process: sum and count of each metric.

    Raises:
        InvalidArgument: no process, no name, or a duplicate name.
        DTypeError: a number of processes that is not an integer.
    """

    def __init__(self, processes: int, *names: str) -> None:
        processes = require_integer("processes", processes, 1, DTypeError)
        if not names or len(set(names)) != len(names):
            raise InvalidArgument(f"asked for metrics {names}; give at least one name, and different names")
        self._columns = {name: 2 * i for i, name in enumerate(names)}
        width = -(-2 * len(names) // _LINE) * _LINE
        self.tensor: Tensor = wrap(np.zeros((processes, width))).share_memory_()

    def add(self, rank: int, count: float = 1, /, **values: Any) -> None:
        """Add values of metrics to the row of a process.

        Args:
            rank: number of the process, from 0.
            count: number of samples of which the values are means.
            **values: numbers, or tensors of one element, by name.

        Raises:
            InvalidArgument: an unknown name or process.
            DTypeError: a value that is not a number.
        """
        row = self._row(rank)
        for name, value in values.items():
            column = self._columns.get(name)
            if column is None:
                raise InvalidArgument(f"no metric is called {name!r}; there are {', '.join(self._columns)}")
            row[column] += _number(name, value) * count
            row[column + 1] += count

    def totals(self, rank: int | None = None) -> Totals:
        """Return sums and counts of all processes, or of one. Raises InvalidArgument: a rank that does not exist."""
        row = self.tensor._live().sum(axis=0) if rank is None else self._row(rank)
        columns = self._columns.items()
        return Totals({name: float(row[i]) for name, i in columns}, {name: float(row[i + 1]) for name, i in columns})

    def means(self, rank: int | None = None) -> dict[str, float]:
        """Return means of all processes, or of one, by name. Raises InvalidArgument: a rank that does not exist."""
        return self.totals(rank).means()

    def _row(self, rank: int) -> Any:
        rows = self.tensor._live()
        if not isinstance(rank, INTEGERS) or not 0 <= rank < len(rows):
            raise InvalidArgument(f"asked for process {rank!r}; there are {len(rows)}, from 0")
        return rows[rank]


# -- copies and views of what is being trained ------------------------------------------------------------------------


def snapshot(value: Any) -> Any:
    """Copy all tensors in dicts, lists and tuples to memory of this process; other values are unchanged.

    A tensor that occurs several times is one object in the copy as well. Other processes may write meanwhile: each
    element has its value of some time during the copy.
    """
    return _mapped(value, lambda x: wrap(x._live().copy()), {})


def read_only(value: Any) -> Any:
    """Return read-only versions, over the same memory, of all tensors in dicts, lists and tuples, for evaluation.

    Writes to them raise LayoutError. This applies to this process only; to send tensors that receivers cannot write to,
    see `Tensor.share_memory_(readonly=True)`.

    Raises InvalidArgument: a tensor in private memory.
    """
    return _mapped(value, _protected, {})


def save(value: Any, f: Any, **how: Any) -> None:
    """Save a copy while other processes continue to write: `save({"model": model.state_dict()}, "last.shmt")`.

    Blocks while it writes. A file at a path is replaced atomically, when it is complete.

    Args:
        value: a value for `shmtensor.save`.
        f: a path or a file, as for `shmtensor.save`.
        **how: options, as for `shmtensor.save`.

    Raises:
        InvalidArgument, DTypeError, OSError: as `shmtensor.save`.
    """
    _save(snapshot(value), f, **how)


def _protected(x: Tensor) -> Tensor:
    if not x.is_shared():  # private memory may move
        raise InvalidArgument(f"a tensor of shape {x.shape} is in private memory; share it first, or take a snapshot")
    array, storage, epoch = x._located()
    view = array.view()
    view.flags.writeable = False
    return _tensor(view, storage, epoch)


def _mapped(value: Any, function: Callable[[Tensor], Tensor], done: dict[int, Tensor]) -> Any:
    """Return the same containers with `function(tensor)` for each tensor."""
    if isinstance(value, Tensor):
        if id(value) not in done:
            done[id(value)] = function(value)
        return done[id(value)]
    if isinstance(value, dict):
        pairs = [(key, _mapped(one, function, done)) for key, one in value.items()]
        made = copy(value)  # with attributes: the state of a module has its versions in one
        made.update(pairs)
        return made
    if isinstance(value, list | tuple):
        parts = [_mapped(one, function, done) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
