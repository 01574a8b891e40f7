"""Attention with several heads."""

from __future__ import annotations

from typing import Any

from ..._tensor.creation import empty
from ..._tensor.methods import Tensor
from ...errors import InvalidArgument
from .. import functional, init
from ..parameter import Parameter
from .linear import NonDynamicallyQuantizableLinear
from .module import Module


class MultiheadAttention(Module):
    """Attention of queries to keys with several heads; inputs and results are projected.

    Args:
        embed_dim: size of queries and results.
        num_heads: number of heads, among which embed_dim is divided.
        dropout: probability of dropout of the weights of attention.
        bias: whether projections have biases.
        add_bias_kv: add a learned key and value.
        add_zero_attn: add a key and a value of zeros.
        kdim: size of keys; None: embed_dim.
        vdim: size of values; None: embed_dim.
        batch_first: tensors are (N, L, size) instead of (L, N, size).
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.

    Raises:
        InvalidArgument: sizes that are not positive, or do not divide.
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None
    _qkv_same_embed_dim: bool = True  # for older pickles, which lack it

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if embed_dim <= 0 or num_heads <= 0:
            raise InvalidArgument(
                f"embed_dim and num_heads must be greater than 0, got {embed_dim=} and {num_heads=} instead"
            )
        if embed_dim % num_heads:
            raise InvalidArgument(f"embed_dim must be divisible by num_heads; got {embed_dim=} and {num_heads=}")
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim: int = embed_dim if kdim is None else kdim
        self.vdim: int = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim: int = embed_dim // num_heads
        one = self._qkv_same_embed_dim
        shapes: dict[str, tuple[int, ...] | None] = {
            "in_proj_weight": (3 * embed_dim, embed_dim) if one else None,
            "q_proj_weight": None if one else (embed_dim, embed_dim),
            "k_proj_weight": None if one else (embed_dim, self.kdim),
            "v_proj_weight": None if one else (embed_dim, self.vdim),
            "in_proj_bias": (3 * embed_dim,) if bias else None,
        }
        ends = dict.fromkeys(("bias_k", "bias_v"), (1, 1, embed_dim) if add_bias_kv else None)
        how = {"device": device, "dtype": dtype}
        for name, shape in {**shapes, **ends}.items():
            self.register_parameter(name, None if shape is None else Parameter(empty(shape, **how)))
        self.out_proj: NonDynamicallyQuantizableLinear = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias, **how
        )
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for added in (self.bias_k, self.bias_v):
            if added is not None:
                init.xavier_normal_(added)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """The results, and the weights of attention.

        Args:
            query: (L, N, embed_dim), (N, L, embed_dim) with batch_first, or (L, embed_dim).
            key: (S, N, kdim), of the same form.
            value: (S, N, vdim), of the same form.
            key_padding_mask: (N, S): True, or -inf, for keys that do not count.
            need_weights: return the weights, too.
            attn_mask: (L, S) or (N * heads, L, S): True for pairs that do not count, or numbers added to the scores.
            average_attn_weights: return the mean of the weights over heads, (N, L, S), instead of (N, heads, L, S).
            is_causal: attn_mask is the causal mask, for which later keys do not count.

        Returns:
            (results, weights), of the form of query; without need_weights, None for the weights.
        """
        exchanged = self.batch_first and query.dim() == 3
        if exchanged:
            query, key, value = [one.transpose(0, 1) for one in (query, key, value)]
        output, weights = functional.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k,
            self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias,
            training=self.training, key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim, q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight, v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights, is_causal=is_causal,
        )  # fmt: skip
        return (output.transpose(0, 1) if exchanged else output), weights
