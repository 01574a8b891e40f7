"""Recurrent layers: LSTM, GRU, and the plain ones with tanh or relu.

A layer is one product of all its inputs with the input weights, and then a *scan*: one product with the hidden weights
for each step, and for LSTM one kernel, `lstm_step`. A scan is one row. Its backward pass is another one, which gets the
gradient of the hidden weights by one product, too. So the number of calls for a step is small, and does not depend on
sizes.

Inputs of a scan are rows: those of all sequences at the first step, then those at the second, and so on. `sizes` has
their number for each step, which never grows, because shorter sequences come last (`nn.utils.rnn.PackedSequence`).
Gates are in torch's order: input, forget, cell, output of LSTM; reset, update, new of GRU.

Nothing in this module blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ..._native import lstm_step, lstm_step_back
from ..._tensor.core import Tensor
from ..._tensor.dispatch import Array, Module, operation
from ..._tensor.joining import cat, stack
from ...autograd.modes import is_grad_enabled
from ...errors import InvalidArgument
from .affine import linear

Sizes: TypeAlias = tuple[int, ...]


def _steps(sizes: Sizes, reverse: bool) -> list[tuple[int, int]]:
    """(first row, number of rows) of each step, in the order in which they are computed."""
    steps, start = [], 0
    for count in sizes:
        steps.append((start, count))
        start += count
    return steps[::-1] if reverse else steps


def _before(xp: Module, first: Array, results: Array, steps: list[tuple[int, int]]) -> Array:
    """The state before each step, for all rows, from the states after them and the first state."""
    made = xp.empty_like(results)
    last, known = 0, 0
    for start, count in steps:
        shared = min(count, known)
        made[start : start + shared] = results[last : last + shared]
        made[start + shared : start + count] = first[shared:count]
        last, known = start, count
    return made


# -- LSTM --------------------------------------------------------------------------------------------------------------


def _lstm_rule(
    g: Any, result: Any, gates: Tensor, h0: Tensor, c0: Tensor, weight_hh: Tensor, weight_hr: Any, sizes: Sizes,
    reverse: bool,
) -> Any:  # fmt: skip
    inputs = (gates, h0, c0, weight_hh, weight_hr)
    if is_grad_enabled():
        return _differentiated(_lstm_by_steps, g[:3], inputs, sizes, reverse)
    made = _lstm_backward(*g[:3], *result[:1], *result[3:], h0, c0, weight_hh, weight_hr, sizes=sizes, reverse=reverse)
    return made if weight_hr is not None else (*made, None)


@operation(
    name="lstm_scan", function=False, method=False,
    gradient={("gates", "h0", "c0", "weight_hh", "weight_hr"): _lstm_rule},
)  # fmt: skip
def _lstm_scan(
    xp: Module, gates: Array, h0: Array, c0: Array, weight_hh: Array, weight_hr: Array | None = None, *, sizes: Any,
    reverse: bool = False,
) -> Any:  # fmt: skip
    """All steps of one direction of a layer.

    Args:
        gates: what the inputs contribute to the gates, with the biases, (rows, 4 * hidden).
        h0: first output, (sequences, projected).
        c0: first cell state, (sequences, hidden).
        weight_hh: (4 * hidden, projected).
        weight_hr: of the projection of outputs, (projected, hidden).
        sizes: number of rows of each step.
        reverse: begin with the last step.

    Returns:
        (outputs, last output, last cell state, gates after their functions, cell states), for each row where not last.
    """
    hidden = c0.shape[1]
    half = xp.full(4 * hidden, 0.5, gates.dtype)
    half[2 * hidden : 3 * hidden] = 1  # sigmoid(x) is 0.5 * tanh(0.5 * x) + 0.5
    rest = 1 - half
    gates = gates * half
    weight = xp.multiply(weight_hh.T, half, order="C")
    outputs = xp.empty((gates.shape[0], h0.shape[1]), gates.dtype)
    cells = xp.empty((gates.shape[0], hidden), gates.dtype)
    h, c = h0.copy(), c0.copy()
    product = xp.empty((len(h), 4 * hidden), gates.dtype)
    for start, count in _steps(sizes, reverse):
        end = start + count
        now, state = gates[start:end], c[:count]
        now += xp.matmul(h[:count], weight, out=product[:count])
        xp.tanh(now, out=now)
        if not lstm_step(now, state, cells[start:end]):
            now *= half
            now += rest
            state *= now[:, hidden : 2 * hidden]
            state += now[:, :hidden] * now[:, 2 * hidden : 3 * hidden]
            cells[start:end] = state
        made = xp.tanh(state)
        made *= now[:, 3 * hidden :]
        h[:count] = outputs[start:end] = made if weight_hr is None else made @ weight_hr.T
    return outputs, h, c, gates, cells


@operation(name="lstm_scan_backward", function=False, method=False)
def _lstm_backward(
    xp: Module, g_outputs: Array, g_h: Array, g_c: Array, outputs: Array, gates: Array, cells: Array, h0: Array,
    c0: Array, weight_hh: Array, weight_hr: Array | None = None, *, sizes: Any, reverse: bool = False,
) -> Any:  # fmt: skip
    """The gradients of the arguments of `lstm_scan`; the first ones are those of its results."""
    hidden = c0.shape[1]
    steps = _steps(sizes, reverse)
    tanh, before = xp.tanh(cells), _before(xp, c0, cells, steps)
    made = xp.empty_like(gates)
    g_projected = xp.empty_like(outputs)
    g_h, g_c = g_h.copy(), g_c.copy()
    for start, count in reversed(steps):
        end = start + count
        whole = xp.add(g_h[:count], g_outputs[start:end], out=g_projected[start:end])
        if weight_hr is not None:
            whole = whole @ weight_hr
        parts = whole, gates[start:end], tanh[start:end], before[start:end], g_c[:count], made[start:end]
        if not lstm_step_back(*parts):
            _step_back(*parts)
        xp.matmul(made[start:end], weight_hh, out=g_h[:count])
    g_weight = made.T @ _before(xp, h0, outputs, steps)
    if weight_hr is None:
        return made, g_h, g_c, g_weight
    return made, g_h, g_c, g_weight, g_projected.T @ (gates[:, 3 * hidden :] * tanh)


def _step_back(whole: Array, gates: Array, tanh: Array, before: Array, state: Array, into: Array) -> None:
    """The same as the kernel `lstm_step_back`."""
    hidden = state.shape[1]
    i, f, new, o = (gates[:, k * hidden : (k + 1) * hidden] for k in range(4))
    state += whole * o * (1 - tanh * tanh)
    into[:, :hidden] = state * new * i * (1 - i)
    into[:, hidden : 2 * hidden] = state * before * f * (1 - f)
    into[:, 2 * hidden : 3 * hidden] = state * i * (1 - new * new)
    into[:, 3 * hidden :] = whole * tanh * o * (1 - o)
    state *= f


def _lstm_by_steps(
    gates: Tensor, h0: Tensor, c0: Tensor, weight_hh: Tensor, weight_hr: Any, sizes: Sizes, reverse: bool
) -> Any:
    """What `lstm_scan` computes, by rows for each step."""
    hidden = c0.shape[1]
    h, c = h0, c0
    made: list[Any] = []
    for start, count in _steps(sizes, reverse):
        now = gates[start : start + count] + h[:count] @ weight_hh.t()
        i, f, new, o = (now[:, k * hidden : (k + 1) * hidden] for k in range(4))
        state = f.sigmoid() * c[:count] + i.sigmoid() * new.tanh()
        output = o.sigmoid() * state.tanh()
        made.append(output if weight_hr is None else output @ weight_hr.t())
        h, c = _with_rest(made[-1], h), _with_rest(state, c)
    return cat(made[::-1] if reverse else made), h, c


def _with_rest(new: Tensor, old: Tensor) -> Tensor:
    """New states of the first sequences, and the old ones of others."""
    return new if len(new) == len(old) else cat([new, old[len(new) :]])


def _differentiated(
    function: Callable[..., Any], g: Sequence[Any], inputs: tuple[Any, ...], *how: Any
) -> tuple[Any, ...]:
    """The gradients of a function's inputs, which can be differentiated again."""
    from ...autograd import grad

    wanted = [one for one in inputs if one is not None and one.requires_grad]
    found = iter(grad(function(*inputs, *how), wanted, g, create_graph=True, allow_unused=True))
    return tuple([next(found) if one is not None and one.requires_grad else None for one in inputs])


# -- GRU ---------------------------------------------------------------------------------------------------------------


def _gru_rule(
    g: Any, result: Any, gates: Tensor, h0: Tensor, weight_hh: Tensor, bias_hh: Any, sizes: Sizes, reverse: bool
) -> Any:
    if is_grad_enabled():
        return _differentiated(_gru_by_steps, g[:2], (gates, h0, weight_hh, bias_hh), sizes, reverse)
    made = _gru_backward(*g[:2], *result[:1], *result[2:], h0, weight_hh, sizes=sizes, reverse=reverse)
    return made if bias_hh is not None else (*made[:3], None)


@operation(
    name="gru_scan", function=False, method=False, gradient={("gates", "h0", "weight_hh", "bias_hh"): _gru_rule}
)  # fmt: skip
def _gru_scan(
    xp: Module, gates: Array, h0: Array, weight_hh: Array, bias_hh: Array | None = None, *, sizes: Any,
    reverse: bool = False,
) -> Any:  # fmt: skip
    """All steps of one direction of a layer.

    Args:
        gates: what the inputs contribute to the gates, with their bias, (rows, 3 * hidden).
        h0: first output, (sequences, hidden).
        weight_hh: (3 * hidden, hidden).
        bias_hh: (3 * hidden).
        sizes: number of rows of each step.
        reverse: begin with the last step.

    Returns:
        (outputs, last output, gates after their functions, what the outputs contributed to the new gate)
    """
    hidden = h0.shape[1]
    both = slice(0, 2 * hidden)
    gates = gates.copy()
    gates[:, both] *= 0.5  # sigmoid(x) is 0.5 * tanh(0.5 * x) + 0.5
    weight = weight_hh.T.copy()
    weight[:, both] *= 0.5
    bias = xp.zeros(3 * hidden, gates.dtype) if bias_hh is None else bias_hh.copy()
    bias[both] *= 0.5
    outputs = xp.empty((len(gates), hidden), gates.dtype)
    inner = xp.empty_like(outputs)
    h = h0.copy()
    for start, count in _steps(sizes, reverse):
        end = start + count
        now, state = gates[start:end], h[:count]
        of_state = state @ weight
        of_state += bias
        switches = now[:, both]
        switches += of_state[:, both]
        xp.tanh(switches, out=switches)
        switches *= 0.5
        switches += 0.5
        new = now[:, 2 * hidden :]
        inner[start:end] = of_state[:, 2 * hidden :]
        new += now[:, :hidden] * inner[start:end]
        xp.tanh(new, out=new)
        state -= new
        state *= now[:, hidden : 2 * hidden]
        state += new
        outputs[start:end] = state
    return outputs, h, gates, inner


@operation(name="gru_scan_backward", function=False, method=False)
def _gru_backward(
    xp: Module, g_outputs: Array, g_h: Array, outputs: Array, gates: Array, inner: Array, h0: Array, weight_hh: Array,
    *, sizes: Any, reverse: bool = False,
) -> Any:  # fmt: skip
    """The gradients of the arguments of `gru_scan`; the first ones are those of its results."""
    hidden = h0.shape[1]
    steps = _steps(sizes, reverse)
    reset, update, new = (gates[:, k * hidden : (k + 1) * hidden] for k in range(3))
    before = _before(xp, h0, outputs, steps)
    to_new = (1 - update) * (1 - new * new)
    factors = xp.empty((len(gates), 3, hidden), gates.dtype)  # of the gradient of the output
    xp.multiply(to_new * inner, reset * (1 - reset), out=factors[:, 0])
    xp.multiply(before - new, update * (1 - update), out=factors[:, 1])
    xp.multiply(to_new, reset, out=factors[:, 2])
    of_state = xp.empty_like(factors)
    flat = of_state.reshape(len(gates), -1)
    whole = xp.empty_like(outputs)
    g_h = g_h.copy()
    for start, count in reversed(steps):
        end = start + count
        now = xp.add(g_h[:count], g_outputs[start:end], out=whole[start:end])
        xp.multiply(factors[start:end], now[:, None], out=of_state[start:end])
        state = flat[start:end] @ weight_hh
        state += now * update[start:end]
        g_h[:count] = state
    made = of_state.copy()
    xp.multiply(to_new, whole, out=made[:, 2])
    return made.reshape(len(gates), -1), g_h, flat.T @ before, flat.sum(0)


def _gru_by_steps(gates: Tensor, h0: Tensor, weight_hh: Tensor, bias_hh: Any, sizes: Sizes, reverse: bool) -> Any:
    """What `gru_scan` computes, by rows for each step."""
    hidden = h0.shape[1]
    h = h0
    made: list[Any] = []
    for start, count in _steps(sizes, reverse):
        now, of_state = gates[start : start + count], linear(h[:count], weight_hh, bias_hh)
        reset, update = (
            (now[:, k * hidden : (k + 1) * hidden] + of_state[:, k * hidden : (k + 1) * hidden]).sigmoid()
            for k in range(2)
        )
        new = (now[:, 2 * hidden :] + reset * of_state[:, 2 * hidden :]).tanh()
        made.append(new + update * (h[:count] - new))
        h = _with_rest(made[-1], h)
    return cat(made[::-1] if reverse else made), h


# -- plain -------------------------------------------------------------------------------------------------------------


def _plain_rule(
    g: Any, result: Any, gates: Tensor, h0: Tensor, weight_hh: Tensor, sizes: Sizes, reverse: bool, relu: bool
) -> Any:
    if is_grad_enabled():
        return _differentiated(_plain_by_steps, g, (gates, h0, weight_hh), sizes, reverse, relu)
    return _plain_backward(*g, result[0], h0, weight_hh, sizes=sizes, reverse=reverse, relu=relu)


@operation(name="rnn_scan", function=False, method=False, gradient={("gates", "h0", "weight_hh"): _plain_rule})
def _plain_scan(
    xp: Module, gates: Array, h0: Array, weight_hh: Array, *, sizes: Any, reverse: bool = False, relu: bool = False
) -> Any:
    """All steps of one direction of a layer.

    Args:
        gates: what the inputs contribute, with the biases, (rows, hidden).
        h0: first output, (sequences, hidden).
        weight_hh: (hidden, hidden).
        sizes: number of rows of each step.
        reverse: begin with the last step.
        relu: the function is relu instead of tanh.

    Returns:
        (outputs, last output)
    """
    outputs = gates.copy()
    h = h0.copy()
    for start, count in _steps(sizes, reverse):
        now = outputs[start : start + count]
        now += h[:count] @ weight_hh.T
        if relu:
            xp.maximum(now, 0, out=now)
        else:
            xp.tanh(now, out=now)
        h[:count] = now
    return outputs, h


@operation(name="rnn_scan_backward", function=False, method=False)
def _plain_backward(
    xp: Module, g_outputs: Array, g_h: Array, outputs: Array, h0: Array, weight_hh: Array, *, sizes: Any,
    reverse: bool = False, relu: bool = False,
) -> Any:  # fmt: skip
    """The gradients of the arguments of `rnn_scan`; the first ones are those of its results."""
    steps = _steps(sizes, reverse)
    made = (outputs > 0).astype(outputs.dtype) if relu else 1 - outputs * outputs
    g_h = g_h.copy()
    for start, count in reversed(steps):
        now = made[start : start + count]
        now *= g_h[:count] + g_outputs[start : start + count]
        g_h[:count] = now @ weight_hh
    return made, g_h, made.T @ _before(xp, h0, outputs, steps)


def _plain_by_steps(gates: Tensor, h0: Tensor, weight_hh: Tensor, sizes: Sizes, reverse: bool, relu: bool) -> Any:
    """What `rnn_scan` computes, by rows for each step."""
    h = h0
    made: list[Any] = []
    for start, count in _steps(sizes, reverse):
        now = gates[start : start + count] + h[:count] @ weight_hh.t()
        made.append(now.relu() if relu else now.tanh())
        h = _with_rest(made[-1], h)
    return cat(made[::-1] if reverse else made), h


# -- layers ------------------------------------------------------------------------------------------------------------

States: TypeAlias = tuple[Tensor, ...]
"""The hidden state; of LSTM the cell state, too. Each (sequences, size), or (layers * directions, sequences, size)."""


def _bias(biases: Sequence[Any]) -> Any:
    return biases[0] + biases[1] if biases else None


def _lstm_layer(x: Tensor, states: States, weights: Sequence[Any], biases: Sequence[Any], **how: Any) -> Any:
    gates = linear(x, weights[0], _bias(biases))
    outputs, h, c, *_ = _lstm_scan(gates, *states, *weights[1:], **how)
    return outputs, (h, c)


def _gru_layer(x: Tensor, states: States, weights: Sequence[Any], biases: Sequence[Any], **how: Any) -> Any:
    gates = linear(x, weights[0], biases[0] if biases else None)
    outputs, h, *_ = _gru_scan(gates, *states, weights[1], biases[1] if biases else None, **how)
    return outputs, (h,)


def _plain_layer(
    x: Tensor, states: States, weights: Sequence[Any], biases: Sequence[Any], *, relu: bool = False, **how: Any
) -> Any:
    gates = linear(x, weights[0], _bias(biases))
    outputs, h = _plain_scan(gates, *states, weights[1], relu=relu, **how)
    return outputs, (h,)


def _relu_layer(x: Tensor, states: States, weights: Sequence[Any], biases: Sequence[Any], **how: Any) -> Any:
    return _plain_layer(x, states, weights, biases, relu=True, **how)


LAYERS: Final[dict[str, Callable[..., Any]]] = {
    "LSTM": _lstm_layer, "GRU": _gru_layer, "RNN_TANH": _plain_layer, "RNN_RELU": _relu_layer,
}  # fmt: skip
"""One direction of a layer, by torch's names of modes."""


@dataclass(frozen=True, slots=True)
class Network:
    """Recurrent layers.

    Args:
        mode: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU".
        num_layers: number of layers.
        bidirectional: each layer also has a direction that begins with the last step.
        has_biases: weights of a direction are (w_ih, w_hh, b_ih, b_hh), else (w_ih, w_hh); and then w_hr, if outputs
            are projected.
        between: function applied to the rows between two layers, such as dropout; None: none.
    """

    mode: str
    num_layers: int
    bidirectional: bool
    has_biases: bool
    between: Callable[[Tensor], Tensor] | None = None

    def run(self, rows: Tensor, sizes: Sizes, states: States, weights: Sequence[Any]) -> tuple[Tensor, States]:
        """The outputs of the last layer, and the last states of all.

        Args:
            rows: inputs, (rows, input size).
            sizes: number of rows of each step.
            states: first states.
            weights: those of all directions of all layers, one after the other.
        """
        layer = LAYERS[self.mode]
        directions = 2 if self.bidirectional else 1
        each = len(weights) // (self.num_layers * directions)
        parts = self._parts(weights, each)
        last: list[States] = []
        for number in range(self.num_layers):
            if number and self.between is not None:
                rows = self.between(rows)
            outputs = []
            for reverse in range(directions):
                first = tuple([state[number * directions + reverse] for state in states])
                made, after = layer(rows, first, *next(parts), sizes=sizes, reverse=bool(reverse))
                outputs.append(made)
                last.append(after)
            rows = outputs[0] if directions == 1 else cat(outputs, 1)
        return rows, tuple([stack([*each_state]) for each_state in zip(*last, strict=True)])

    def _parts(self, weights: Sequence[Any], each: int) -> Iterator[tuple[list[Any], list[Any]]]:
        """(weights, biases) of each direction of each layer."""
        for start in range(0, len(weights), each):
            own = [*weights[start : start + each]]
            biases = own[2:4] if self.has_biases else []
            yield own[:2] + own[2 + len(biases) :], biases


def cell(mode: str, input: Tensor, states: States, weights: Sequence[Any], biases: Sequence[Any]) -> States:
    """The states after one step.

    Args:
        mode: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU".
        input: (sequences, input size).
        states: those before the step.
        weights: (w_ih, w_hh).
        biases: (b_ih, b_hh), or none.

    Raises:
        InvalidArgument: incompatible sizes.
    """
    for state in states:
        if state.shape != (input.shape[0], weights[1].shape[1]):
            raise InvalidArgument(
                f"a state of shape {state.shape} for inputs of shape {input.shape}; give "
                f"{(input.shape[0], weights[1].shape[1])}"
            )
    _, after = LAYERS[mode](input, states, weights, biases, sizes=(input.shape[0],), reverse=False)
    return after  # type: ignore[no-any-return]
