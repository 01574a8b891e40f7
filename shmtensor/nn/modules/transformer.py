"""Transformers: encoders, decoders, and their layers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ..._tensor.creation import full
from ..._tensor.methods import Tensor
from ...errors import InvalidArgument
from .. import functional, init
from .attention import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm


def _activation(named: Any) -> Any:
    """A function, given itself or by name. Raises InvalidArgument: a name other than relu and gelu."""
    if not isinstance(named, str):
        return functional.relu if named is None else named
    if named not in ("relu", "gelu"):
        raise InvalidArgument(f"activation should be relu/gelu, not {named}")
    return getattr(functional, named)


def _copies(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


class TransformerEncoderLayer(Module):
    """Attention of a sequence to itself, and two linear maps, each with dropout, a sum and LayerNorm.

    Args:
        d_model: size of inputs and results.
        nhead: number of heads.
        dim_feedforward: size between the linear maps.
        dropout: probability of dropout.
        activation: function between the linear maps: one of tensors, "relu" or "gelu".
        layer_norm_eps: eps of LayerNorm.
        batch_first: tensors are (N, L, size) instead of (L, N, size).
        norm_first: LayerNorm comes before attention and linear maps instead of after the sums.
        bias: whether linear maps and LayerNorm have biases.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.

    Raises:
        InvalidArgument: another name of an activation, or heads that do not divide d_model.
    """

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        how = {"device": device, "dtype": dtype}
        self.self_attn: MultiheadAttention = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, **how
        )
        self.linear1: Linear = Linear(d_model, dim_feedforward, bias, **how)
        self.dropout: Dropout = Dropout(dropout)
        self.linear2: Linear = Linear(dim_feedforward, d_model, bias, **how)
        self.norm_first = norm_first
        self.norm1: LayerNorm = LayerNorm(d_model, layer_norm_eps, bias=bias, **how)
        self.norm2: LayerNorm = LayerNorm(d_model, layer_norm_eps, bias=bias, **how)
        self.dropout1: Dropout = Dropout(dropout)
        self.dropout2: Dropout = Dropout(dropout)
        self.activation: Any = _activation(activation)

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """The results, of the shape of src.

        Args:
            src: (L, N, d_model), (N, L, d_model) with batch_first, or (L, d_model).
            src_mask: (L, L) or (N * heads, L, L): which pairs do not count.
            src_key_padding_mask: (N, L): which elements do not count.
            is_causal: src_mask is the causal mask, for which later elements do not count.
        """
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = src + self._sa_block(self.norm1(src), *masks)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(src + self._sa_block(src, *masks))
        return self.norm2(x + self._ff_block(x))  # type: ignore[no-any-return]

    def _sa_block(self, x: Tensor, mask: Any, padding: Any, is_causal: bool) -> Tensor:
        made, _ = self.self_attn(
            x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=is_causal
        )
        return self.dropout1(made)  # type: ignore[no-any-return]

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))  # type: ignore[no-any-return]


class TransformerDecoderLayer(Module):
    """Attention of a sequence to itself and to another one, and two linear maps.

    Args:
        d_model: size of inputs and results.
        nhead: number of heads.
        dim_feedforward: size between the linear maps.
        dropout: probability of dropout.
        activation: function between the linear maps: one of tensors, "relu" or "gelu".
        layer_norm_eps: eps of LayerNorm.
        batch_first: tensors are (N, L, size) instead of (L, N, size).
        norm_first: LayerNorm comes before attention and linear maps instead of after the sums.
        bias: whether linear maps and LayerNorm have biases.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.

    Raises:
        InvalidArgument: another name of an activation, or heads that do not divide d_model.
    """

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        how = {"device": device, "dtype": dtype}
        self.self_attn: MultiheadAttention = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, **how
        )
        self.multihead_attn: MultiheadAttention = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, **how
        )
        self.linear1: Linear = Linear(d_model, dim_feedforward, bias, **how)
        self.dropout: Dropout = Dropout(dropout)
        self.linear2: Linear = Linear(dim_feedforward, d_model, bias, **how)
        self.norm_first = norm_first
        self.norm1: LayerNorm = LayerNorm(d_model, layer_norm_eps, bias=bias, **how)
        self.norm2: LayerNorm = LayerNorm(d_model, layer_norm_eps, bias=bias, **how)
        self.norm3: LayerNorm = LayerNorm(d_model, layer_norm_eps, bias=bias, **how)
        self.dropout1: Dropout = Dropout(dropout)
        self.dropout2: Dropout = Dropout(dropout)
        self.dropout3: Dropout = Dropout(dropout)
        self.activation: Any = _activation(activation)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """The results, of the shape of tgt.

        Args:
            tgt: (L, N, d_model), (N, L, d_model) with batch_first, or (L, d_model).
            memory: the result of the encoder, (S, N, d_model).
            tgt_mask: which pairs of tgt do not count.
            memory_mask: which pairs of tgt and memory do not count.
            tgt_key_padding_mask: which elements of tgt do not count.
            memory_key_padding_mask: which elements of memory do not count.
            tgt_is_causal: tgt_mask is the causal mask, for which later elements do not count.
            memory_is_causal: memory_mask is the causal mask, for which later elements do not count.
        """
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = tgt + self._sa_block(self.norm1(tgt), *own)
            x = x + self._mha_block(self.norm2(x), memory, *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(tgt + self._sa_block(tgt, *own))
        x = self.norm2(x + self._mha_block(x, memory, *other))
        return self.norm3(x + self._ff_block(x))  # type: ignore[no-any-return]

    def _sa_block(self, x: Tensor, mask: Any, padding: Any, is_causal: bool) -> Tensor:
        made, _ = self.self_attn(
            x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=is_causal
        )
        return self.dropout1(made)  # type: ignore[no-any-return]

    def _mha_block(self, x: Tensor, memory: Tensor, mask: Any, padding: Any, is_causal: bool) -> Tensor:
        made, _ = self.multihead_attn(
            x, memory, memory, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=is_causal
        )
        return self.dropout2(made)  # type: ignore[no-any-return]

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))  # type: ignore[no-any-return]


class TransformerEncoder(Module):
    """Several layers of an encoder, one after the other.

    Args:
        encoder_layer: the layer that is copied.
        num_layers: number of layers.
        norm: module applied to the results; None: none.
        enable_nested_tensor: has no effect.
        mask_check: has no effect.
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers: ModuleList = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """The results of the last layer; arguments are those of a layer."""
        output = src
        for layer in self.layers:
            output = layer(output, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return output if self.norm is None else self.norm(output)


class TransformerDecoder(Module):
    """Several layers of a decoder, one after the other.

    Args:
        decoder_layer: the layer that is copied.
        num_layers: number of layers.
        norm: module applied to the results; None: none.
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers: ModuleList = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """The results of the last layer; arguments are those of a layer."""
        output = tgt
        for layer in self.layers:
            output = layer(
                output, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask, memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal), memory_is_causal=memory_is_causal,
            )  # fmt: skip
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """An encoder and a decoder.

    Args:
        d_model: size of inputs and results.
        nhead: number of heads.
        num_encoder_layers: number of layers of the encoder.
        num_decoder_layers: number of layers of the decoder.
        dim_feedforward: size between the linear maps of a layer.
        dropout: probability of dropout.
        activation: function between the linear maps: one of tensors, "relu" or "gelu".
        custom_encoder: another encoder.
        custom_decoder: another decoder.
        layer_norm_eps: eps of LayerNorm.
        batch_first: tensors are (N, L, size) instead of (L, N, size).
        norm_first: LayerNorm comes before attention and linear maps instead of after the sums.
        bias: whether linear maps and LayerNorm have biases.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.

    Raises:
        InvalidArgument: another name of an activation, or heads that do not divide d_model.
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1, activation: str | Callable[[Tensor], Tensor] = "relu",
        custom_encoder: Any = None, custom_decoder: Any = None, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        settings: Any = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
                         bias, device, dtype)  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder: Any = custom_encoder
        if custom_encoder is None:
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*settings), num_encoder_layers, norm())
        self.decoder: Any = custom_decoder
        if custom_decoder is None:
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*settings), num_decoder_layers, norm())
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """The results of the decoder, of the shape of tgt.

        Args:
            src: input of the encoder.
            tgt: input of the decoder.
            src_mask: which pairs of src do not count.
            tgt_mask: which pairs of tgt do not count.
            memory_mask: which pairs of tgt and src do not count in the decoder.
            src_key_padding_mask: which elements of src do not count.
            tgt_key_padding_mask: which elements of tgt do not count.
            memory_key_padding_mask: which elements of src do not count in the decoder.
            src_is_causal: src_mask is the causal mask, for which later elements do not count.
            tgt_is_causal: tgt_mask is the causal mask, for which later elements do not count.
            memory_is_causal: memory_mask is the causal mask, for which later elements do not count.

        Raises:
            InvalidArgument: incompatible sizes.
        """
        axis = 0 if self.batch_first else 1
        if src.dim() == 3 and src.shape[axis] != tgt.shape[axis]:
            raise InvalidArgument("the batch number of src and tgt must be equal")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise InvalidArgument("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(  # type: ignore[no-any-return]
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The mask for which later elements do not count: -inf above the diagonal, else 0, (sz, sz)."""
        return full((sz, sz), float("-inf"), device=device, dtype=dtype).triu(1)
