"""Recurrent layers and cells: RNN, LSTM, GRU."""

from __future__ import annotations

import math
import numbers
import warnings
from functools import partial
from typing import Any, Final

from ..._tensor.creation import empty, zeros
from ..._tensor.methods import Tensor
from ...errors import DTypeError, InvalidArgument, type_name
from .. import functional, init
from ..functional.recurrent import Network, cell
from ..parameter import Parameter
from ..utils.rnn import PackedSequence
from .module import Module

_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class RNNBase(Module):
    """Recurrent layers: the base of RNN, LSTM and GRU.

    Args:
        mode: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU".
        input_size: size of inputs.
        hidden_size: size of states.
        num_layers: number of layers.
        bias: whether there are biases.
        batch_first: inputs and outputs are (N, L, size) instead of (L, N, size).
        dropout: probability of dropout between layers.
        bidirectional: each layer also has a direction that begins with the last step.
        proj_size: size to which outputs of LSTM are projected; 0: they are not.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.

    Raises:
        InvalidArgument: sizes that are not positive, dropout that is not a probability, or another mode.
        DTypeError: a size that is not an integer.
    """

    proj_size: int = 0  # for older pickles, which lack it

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout: float = _probability(dropout, num_layers)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._require_sizes()
        output = proj_size or hidden_size
        directions = 2 if bidirectional else 1
        rows = _GATES[mode] * hidden_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            inputs = input_size if layer == 0 else output * directions
            shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, inputs), "weight_hh": (rows, output)}
            if bias:
                shapes.update(bias_ih=(rows,), bias_hh=(rows,))
            if proj_size:
                shapes["weight_hr"] = (proj_size, hidden_size)
            for direction in range(directions):
                names = {f"{name}_l{layer}{'_reverse' * direction}": shape for name, shape in shapes.items()}
                for name, shape in names.items():
                    setattr(self, name, Parameter(empty(shape, device=device, dtype=dtype)))
                self._all_weights.append([*names])
        self.reset_parameters()

    def _require_sizes(self) -> None:
        if not isinstance(self.hidden_size, int):
            raise DTypeError(f"hidden_size should be of type int, got: {type_name(self.hidden_size)}")
        for name in ("hidden_size", "num_layers"):
            if getattr(self, name) <= 0:
                raise InvalidArgument(f"{name} must be greater than zero")
        if self.proj_size < 0:
            raise InvalidArgument("proj_size should be a positive integer or zero to disable projections")
        if self.proj_size >= self.hidden_size:
            raise InvalidArgument("proj_size has to be smaller than hidden_size")
        if self.mode not in _GATES:
            raise InvalidArgument(f"Unrecognized RNN mode: {self.mode}")

    def reset_parameters(self) -> None:
        """Draw the parameters uniformly from -b to b, where b = 1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Do nothing: weights need not be contiguous here."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each direction of each layer."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def extra_repr(self) -> str:
        """The arguments that are not defaults."""
        parts = [f"{self.input_size}, {self.hidden_size}"]
        if self.proj_size:
            parts.append(f"proj_size={self.proj_size}")
        defaults = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False}
        parts += [f"{name}={getattr(self, name)}" for name, value in defaults.items() if getattr(self, name) != value]
        return ", ".join(parts)

    # -- computing -----------------------------------------------------------------------------------------------------

    def _run(self, rows: Tensor, sizes: tuple[int, ...], states: tuple[Tensor, ...]) -> Any:
        between = partial(functional.dropout, p=self.dropout, training=True) if self.dropout and self.training else None
        network = Network(self.mode, self.num_layers, self.bidirectional, self.bias, between)
        own = self.__dict__
        return network.run(rows, sizes, states, [own[name] for names in self._all_weights for name in names])

    def _first(self, given: Any, rows: Tensor, count: int, single: bool) -> tuple[Tensor, ...]:
        """The first states: those that are given, or zeros. Raises InvalidArgument: other shapes."""
        number = self.num_layers * (2 if self.bidirectional else 1)
        sizes = [self.proj_size or self.hidden_size, *[self.hidden_size] * (self.mode == "LSTM")]
        if given is None:
            return tuple([zeros(number, count, size, dtype=rows.dtype) for size in sizes])
        states = tuple(given) if self.mode == "LSTM" else (given,)
        if len(states) != len(sizes):
            raise InvalidArgument(f"{len(states)} first states; give {len(sizes)}")
        if single:
            states = tuple([state.unsqueeze(1) for state in states])
        for name, state, size in zip(("hx", "cx"), states, sizes, strict=False):
            if state.shape != (number, count, size):
                wanted = (number, size) if single else (number, count, size)
                raise InvalidArgument(f"{name} has shape {state.shape}; the inputs need {wanted}")
        return states

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The outputs of the last layer at each step, and the last states of all layers.

        Args:
            input: (L, N, input_size), (N, L, input_size) with batch_first, (L, input_size), or a PackedSequence.
            hx: first states, (layers * directions, N, size); of LSTM (h, c); None: zeros.

        Returns:
            (outputs, states); for a PackedSequence, the outputs are a PackedSequence.

        Raises:
            InvalidArgument: incompatible shapes.
        """
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.dim() not in (2, 3):
            raise InvalidArgument(f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        if input.shape[-1] != self.input_size:
            raise InvalidArgument(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}"
            )
        single = input.dim() == 2
        if single:
            input = input.unsqueeze(1)
        elif self.batch_first:
            input = input.transpose(0, 1)
        length, count = input.shape[:2]
        if not length:
            raise InvalidArgument("a sequence without steps; give at least one")
        rows = input.reshape(length * count, self.input_size)
        rows, states = self._run(rows, (count,) * length, self._first(hx, rows, count, single))
        output = rows.reshape(length, count, rows.shape[-1])
        if single:
            output, states = output.squeeze(1), tuple([state.squeeze(1) for state in states])
        elif self.batch_first:
            output = output.transpose(0, 1)
        return output, states if self.mode == "LSTM" else states[0]

    def _forward_packed(self, input: PackedSequence, hx: Any) -> Any:
        sizes = tuple(input.batch_sizes.tolist())
        states = self._first(hx, input.data, sizes[0], False)
        if hx is not None and input.sorted_indices is not None:
            states = tuple([state.index_select(1, input.sorted_indices) for state in states])
        rows, states = self._run(input.data, sizes, states)
        if input.unsorted_indices is not None:
            states = tuple([state.index_select(1, input.unsorted_indices) for state in states])
        output = PackedSequence(rows, input.batch_sizes, input.sorted_indices, input.unsorted_indices)
        return output, states if self.mode == "LSTM" else states[0]


def _probability(dropout: Any, num_layers: int) -> float:
    if isinstance(dropout, bool) or not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1:  # type: ignore[operator]
        raise InvalidArgument(
            "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
        )
    if dropout and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
            f"greater than 1, but got {dropout=} and {num_layers=}",
            stacklevel=4,
        )
    return float(dropout)  # type: ignore[arg-type]


class RNN(RNNBase):
    """Layers of `h = tanh(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh)`.

    Args:
        input_size: size of inputs.
        hidden_size: size of states.
        num_layers: number of layers.
        nonlinearity: "tanh" or "relu".
        bias: whether there are biases.
        batch_first: inputs and outputs are (N, L, size) instead of (L, N, size).
        dropout: probability of dropout between layers.
        bidirectional: each layer also has a direction that begins with the last step.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.

    Raises:
        InvalidArgument: as RNNBase, and another nonlinearity.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        if nonlinearity not in ("tanh", "relu"):
            raise InvalidArgument(f"Unknown nonlinearity {nonlinearity!r}. Select from 'tanh' or 'relu'.")
        self.__dict__["nonlinearity"] = nonlinearity
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, device=device, dtype=dtype,
        )  # fmt: skip


class LSTM(RNNBase):
    """Layers of long short-term memory.

    Args:
        input_size: size of inputs.
        hidden_size: size of states.
        num_layers: number of layers.
        bias: whether there are biases.
        batch_first: inputs and outputs are (N, L, size) instead of (L, N, size).
        dropout: probability of dropout between layers.
        bidirectional: each layer also has a direction that begins with the last step.
        proj_size: size to which outputs are projected; 0: they are not.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.

    Raises:
        InvalidArgument, DTypeError: as RNNBase.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device,
            dtype,
        )  # fmt: skip


class GRU(RNNBase):
    """Layers of gated recurrent units.

    Args:
        input_size: size of inputs.
        hidden_size: size of states.
        num_layers: number of layers.
        bias: whether there are biases.
        batch_first: inputs and outputs are (N, L, size) instead of (L, N, size).
        dropout: probability of dropout between layers.
        bidirectional: each layer also has a direction that begins with the last step.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.

    Raises:
        InvalidArgument, DTypeError: as RNNBase.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device,
            dtype=dtype,
        )  # fmt: skip


# -- cells -------------------------------------------------------------------------------------------------------------


class RNNCellBase(Module):
    """One step of a recurrent layer.

    Args:
        input_size: size of inputs.
        hidden_size: size of states.
        bias: whether there are biases.
        num_chunks: number of gates.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.
    """

    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None
    _mode: str

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(empty(rows, input_size, device=device, dtype=dtype))
        self.weight_hh = Parameter(empty(rows, hidden_size, device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(empty(rows, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters uniformly from -b to b, where b = 1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        """The arguments that are not defaults."""
        parts = [f"{self.input_size}, {self.hidden_size}"]
        if not self.bias:
            parts.append(f"bias={self.bias}")
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            parts.append(f"nonlinearity={self.nonlinearity}")
        return ", ".join(parts)

    def _step(self, mode: str, input: Tensor, given: Any, count: int) -> tuple[Tensor, ...]:
        """The states after a step, of an input with or without an axis of sequences."""
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise InvalidArgument(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        if input.shape[-1] != self.input_size:
            raise InvalidArgument(f"{name}: input of shape {input.shape}, and input_size is {self.input_size}")
        single = input.dim() == 1
        x = input.unsqueeze(0) if single else input
        if given is None:
            states = (zeros(x.shape[0], self.hidden_size, dtype=input.dtype),) * count
        else:
            for state in given:
                if state.dim() != input.dim():
                    raise InvalidArgument(f"{name}: Expected hidden to be {input.dim()}D, got {state.dim()}D instead")
            states = tuple([state.unsqueeze(0) for state in given]) if single else tuple(given)
        biases = () if self.bias_ih is None else (self.bias_ih, self.bias_hh)
        after = cell(mode, x, states, (self.weight_ih, self.weight_hh), biases)
        return tuple([state.squeeze(0) for state in after]) if single else after


class RNNCell(RNNCellBase):
    """`tanh(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh)`.

    Args:
        input_size: size of inputs.
        hidden_size: size of states.
        bias: whether there are biases.
        nonlinearity: "tanh" or "relu".
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The state after a step: (N, input_size), (N, hidden_size) -> (N, hidden_size).

        Raises InvalidArgument: incompatible shapes, or another nonlinearity.
        """
        if self.nonlinearity not in ("tanh", "relu"):
            raise InvalidArgument(f"Unknown nonlinearity: {self.nonlinearity}; use 'tanh' or 'relu'")
        return self._step(f"RNN_{self.nonlinearity.upper()}", input, None if hx is None else (hx,), 1)[0]


class LSTMCell(RNNCellBase):
    """One step of long short-term memory.

    Args:
        input_size: size of inputs.
        hidden_size: size of states.
        bias: whether there are biases.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The states (h, c) after a step: (N, input_size), (h, c) -> (h, c). Raises InvalidArgument: shapes."""
        h, c = self._step("LSTM", input, hx, 2)
        return h, c


class GRUCell(RNNCellBase):
    """One step of a gated recurrent unit.

    Args:
        input_size: size of inputs.
        hidden_size: size of states.
        bias: whether there are biases.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The state after a step: (N, input_size), (N, hidden_size) -> (N, hidden_size).

        Raises InvalidArgument: incompatible shapes.
        """
        return self._step("GRU", input, None if hx is None else (hx,), 1)[0]
