"""Attention. Nothing in this module blocks, except dropout while another thread draws random numbers."""

from __future__ import annotations

import math
from typing import Any

from ..._tensor.activations import softmax
from ..._tensor.core import Tensor
from ..._tensor.creation import ones
from ..._tensor.dispatch import export
from ..._tensor.joining import cat
from ..._tensor.masks import where
from ...errors import DTypeError, InvalidArgument
from .affine import linear
from .dropouts import dropout
from .padding import pad
from .rows import function


def _weights(scores: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    """The softmax of scores with a mask; 0 where everything is masked."""
    if is_causal:
        mask = ones(scores.shape[-2:], dtype="bool").tril()
    if mask is None:
        return softmax(scores, -1)
    scores = where(mask, scores, -math.inf) if mask.dtype.name == "bool" else scores + mask
    dead = (scores.detach() == -math.inf).all(-1, keepdims=True)
    if not bool(dead.any()):
        return softmax(scores, -1)
    return where(dead, 0, softmax(where(dead, 0, scores), -1))  # type: ignore[no-any-return]


@function
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.mT * scale + mask) @ value.

    Args:
        query: (..., length, n).
        key: (..., size, n).
        value: (..., size, m).
        attn_mask: numbers that are added to the scores, or bool: False masks.
        dropout_p: probability with which a weight becomes 0.
        is_causal: each position attends only to itself and to earlier ones.
        scale: default 1 / sqrt(n).
        enable_gqa: several heads (axis -3) of the query share one of key and value.

    Returns:
        (..., length, m).

    Raises InvalidArgument: incompatible shapes, or a mask with is_causal.
    """
    if attn_mask is not None and is_causal:
        raise InvalidArgument("scaled_dot_product_attention with attn_mask and is_causal; give one of them")
    if min(query.ndim, key.ndim, value.ndim) < 2 or query.shape[-1] != key.shape[-1]:
        raise InvalidArgument(
            f"scaled_dot_product_attention of shapes {query.shape}, {key.shape} and {value.shape}; give (..., length, "
            "n), (..., size, n) and (..., size, m)"
        )
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None and query.shape[-1] else 1.0 if scale is None else scale
    weights = _weights((query * factor).matmul(key.mT), attn_mask, is_causal)
    if dropout_p:
        weights = dropout(weights, dropout_p)
    return weights.matmul(value)


# -- several heads -----------------------------------------------------------------------------------------------------


def _projected(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    separate: tuple[Tensor | None, Tensor | None, Tensor | None] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value times their weights."""
    biases: Any = (None,) * 3 if bias is None else bias.chunk(3)
    if separate is not None:
        q, k, v = separate
        if q is None or k is None or v is None:
            raise InvalidArgument("multi_head_attention_forward with separate weights; give all three")
        return linear(query, q, biases[0]), linear(key, k, biases[1]), linear(value, v, biases[2])
    if weight is None:
        raise InvalidArgument("multi_head_attention_forward without in_proj_weight; give it, or separate weights")
    if query is key and key is value:
        made: Any = linear(query, weight, bias).chunk(3, -1)
        return made  # type: ignore[no-any-return]
    q, k, v = weight.chunk(3)
    return linear(query, q, biases[0]), linear(key, k, biases[1]), linear(value, v, biases[2])


def _added(mask: Tensor | None, dtype: Any) -> Tensor | None:
    """A mask as numbers that are added to scores; True in a bool mask excludes."""
    if mask is None or mask.dtype.is_floating_point:
        return mask
    if mask.dtype.name != "bool":
        raise DTypeError(f"a mask of {mask.dtype.name}; give bool or floating-point numbers")
    return where(mask, -math.inf, 0.0).to(dtype)  # type: ignore[no-any-return]


def _with_edge(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else pad(mask, (0, 1))


def _merged(mask: Tensor | None, padding: Tensor | None, batch: int, heads: int) -> Tensor | None:
    """The two masks as one, that broadcasts to (batch, heads, length, size)."""
    if mask is not None:
        mask = mask.reshape(1, 1, *mask.shape) if mask.ndim == 2 else mask.reshape(batch, heads, *mask.shape[1:])
    if padding is None:
        return mask
    padding = padding.reshape(batch, 1, 1, -1)
    return padding if mask is None else mask + padding


@function
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of several heads, each over its part of the projected embeddings.

    Args:
        query: (length, batch, embedding), or without batch.
        key, value: (size, batch, their embeddings).
        embed_dim_to_check: size of the embedding.
        num_heads: number of heads, which divides `embed_dim_to_check`.
        in_proj_weight, in_proj_bias: (3 * embedding, embedding), (3 * embedding): weights of query, key and value.
        bias_k, bias_v: an additional key and value.
        add_zero_attn: add a key and a value of zeros.
        dropout_p: probability with which a weight becomes 0, in training.
        out_proj_weight, out_proj_bias: weights of the result.
        training: whether dropout is applied.
        key_padding_mask: (batch, size): True, or -inf, for keys that are ignored.
        need_weights: return the weights, too.
        attn_mask: (length, size) or (batch * heads, length, size): the same for pairs of positions.
        use_separate_proj_weight: use q_proj_weight, k_proj_weight and v_proj_weight.
        static_k, static_v: keys and values that are projected already, (batch * heads, size, head).
        average_attn_weights: return the mean of the heads' weights.
        is_causal: declares that `attn_mask` is the causal mask, which then is not read.

    Returns:
        The result (length, batch, embedding), and the weights (batch, length, size), with heads after the batch if they
        are not averaged; None without need_weights.

    Raises:
        InvalidArgument: incompatible shapes; is_causal without a mask.
        DTypeError: masks of integers.
    """
    if is_causal and attn_mask is None:
        raise InvalidArgument("multi_head_attention_forward with is_causal; give attn_mask, too")
    has_batch = query.ndim == 3
    if not has_batch:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    if width != embed_dim_to_check or width % num_heads:
        raise InvalidArgument(
            f"multi_head_attention_forward of embeddings of {width} with {num_heads} heads; "
            "give a number of heads that divides it"
        )
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None
    else:
        is_causal = False
    mask, padding = _added(attn_mask, query.dtype), _added(key_padding_mask, query.dtype)
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _projected(query, key, value, in_proj_weight, in_proj_bias, separate)
    if bias_k is not None and bias_v is not None:
        k, v = cat([k, bias_k.expand(1, batch, -1)]), cat([v, bias_v.expand(1, batch, -1)])
        mask, padding = _with_edge(mask), _with_edge(padding)
    q, k, v = [_by_head(one, batch, num_heads) for one in (q, k, v)]
    if static_k is not None:
        k = static_k.reshape(batch, num_heads, *static_k.shape[1:])
    if static_v is not None:
        v = static_v.reshape(batch, num_heads, *static_v.shape[1:])
    if add_zero_attn:
        k, v = [pad(one, (0, 0, 0, 1)) for one in (k, v)]
        mask, padding = _with_edge(mask), _with_edge(padding)
    whole = _merged(mask, padding, batch, num_heads)
    scores = (q * (1 / math.sqrt(q.shape[-1]))).matmul(k.mT)
    weights = _weights(scores, whole, is_causal) if not need_weights else softmax(
        scores if whole is None else scores + whole, -1
    )  # fmt: skip
    if dropout_p and training:
        weights = dropout(weights, dropout_p)
    made = weights.matmul(v).permute(2, 0, 1, 3).reshape(length, batch, width)
    made = linear(made, out_proj_weight, out_proj_bias)
    shown = None
    if need_weights:
        shown = weights.mean(1) if average_attn_weights else weights
    if has_batch:
        return made, shown
    return made.squeeze(1), None if shown is None else shown.squeeze(0)


def _by_head(x: Tensor, batch: int, heads: int) -> Tensor:
    """(length, batch, embedding) as (batch, heads, length, part)."""
    return x.reshape(x.shape[0], batch, heads, -1).permute(1, 2, 0, 3)


__all__ = export(globals())
