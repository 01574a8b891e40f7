"""Layers on sequences: recurrent ones and their cells, attention, transformers, embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from networks.draws import Call, Draws, Layer, Step, leaf, require


def _recurrent(call: Call) -> Any:
    layer = call.layers[0]
    x, lengths = call.x, call.given["lengths"]
    if lengths is not None:
        x = call.library.nn.utils.rnn.pack_padded_sequence(x, lengths, layer.batch_first, enforce_sorted=False)
    made, last = layer(x, call.given["first"])
    call.sides.extend(last if isinstance(last, tuple) else [last])
    if lengths is not None:
        made, found = call.library.nn.utils.rnn.pad_packed_sequence(made, layer.batch_first)
        assert found.tolist() == lengths
    return made


def recurrent(name: str) -> Any:
    def draw(r: Draws, shape: Any) -> Step:
        size, layers, batch_first, both = r.number(2, 4), r.number(1, 3), r.chance(), r.chance()
        how = {"num_layers": layers, "bias": r.chance(0.7), "batch_first": batch_first, "bidirectional": both}
        if name == "RNN":
            how["nonlinearity"] = r.one_of("tanh", "relu")
        if name == "LSTM" and r.chance():
            how["proj_size"] = r.number(1, size - 1)
        dropout = r.one_of(0, 0, 0, 0.5)
        samples, steps = (shape[0], shape[1]) if batch_first else (shape[1], shape[0])
        first: Any = None
        if r.chance():
            count = layers * (1 + both)
            first = leaf(r.values(count, samples, how.get("proj_size", size)))
            if name == "LSTM":
                first = (first, leaf(r.values(count, samples, size)))
        lengths = [r.number(1, steps) for _ in range(samples)] if r.chance(0.3) else None
        layer = Layer(name, (shape[2], size), how | {"dropout": dropout if layers > 1 else 0})
        return Step(_recurrent, (layer,), {"first": first, "lengths": lengths}, dropout > 0)

    return draw


def _by_cell(call: Call) -> Any:
    state, made = call.given["first"], []
    for one in call.x:
        state = call.layers[0](one, state)
        made.append(state[0] if isinstance(state, tuple) else state)
    if isinstance(state, tuple):
        call.sides.append(state[1])
    return call.library.stack(made)


def cell(name: str) -> Any:
    def draw(r: Draws, shape: Any) -> Step:
        size = r.number(2, 4)
        how = {"nonlinearity": r.one_of("tanh", "relu")} if name == "RNNCell" else {}
        first: Any = None
        if r.chance():
            first = leaf(r.values(shape[1], size))
            if name == "LSTMCell":
                first = (first, leaf(r.values(shape[1], size)))
        return Step(_by_cell, (Layer(name, (shape[2], size, r.chance(0.7)), how),), {"first": first})

    return draw


def _heads(r: Draws, size: int) -> int:
    return int(r.one_of(*[n for n in range(1, size + 1) if size % n == 0]))


def _mask(r: Draws, *shape: int) -> Any:
    """None, a float mask that is added to scores, or a boolean mask of ignored keys; the first key always counts."""
    kind = r.one_of(None, "numbers", "bool")
    if kind is None:
        return None
    if kind == "numbers":
        return r.values(*shape)
    mask = r.random.random(shape) < 0.4
    mask[..., 0] = False
    return mask


def _padding(r: Draws, *shape: int) -> Any:
    mask = r.random.random(shape) < 0.3
    mask[..., 0] = False
    return mask if r.chance() else None


def _matching(mask: Any, other: Any) -> Any:
    """A mask of the same kind as another one, since torch warns of two kinds."""
    if mask is None or other is None or mask.dtype == other.dtype:
        return mask
    return np.where(mask, -np.inf, 0.0) if other.dtype.kind == "f" else mask > 0.8


def _attention(call: Call) -> Any:
    given = dict(call.given)
    keys, values = given.pop("keys"), given.pop("values")
    x = call.x
    made, weights = call.layers[0](x, x if keys is None else keys, x if values is None else values, **given)
    if weights is not None:
        call.sides.append(weights)
    return made


def attention(r: Draws, shape: Any) -> Step:
    size, batch_first = shape[2], r.chance()
    heads = _heads(r, size)
    samples, steps = (shape[0], shape[1]) if batch_first else (shape[1], shape[0])
    how = {"bias": r.chance(0.7), "add_bias_kv": r.chance(0.3), "add_zero_attn": r.chance(0.3)}
    keys = values = None
    count = steps
    if r.chance():
        count, how["kdim"], how["vdim"] = r.number(1, 4), r.number(1, 4), r.number(1, 4)
        of = (samples, count) if batch_first else (count, samples)
        keys, values = leaf(r.values(*of, how["kdim"])), leaf(r.values(*of, how["vdim"]))
    mask = _mask(r, *r.one_of((steps, count), (samples * heads, steps, count)))
    given = {
        "keys": keys, "values": values, "attn_mask": mask,
        "key_padding_mask": _matching(_padding(r, samples, count), mask),
        "need_weights": r.chance(), "average_attn_weights": r.chance(),
    }  # fmt: skip
    dropout = r.one_of(0.0, 0.0, 0.0, 0.4)
    layer = Layer("MultiheadAttention", (size, heads, dropout), how | {"batch_first": batch_first})
    return Step(_attention, (layer,), given, dropout > 0)


def _block(r: Draws, name: str, size: int, batch_first: bool, dropout: float) -> Layer:
    how = {
        "dropout": dropout, "activation": r.one_of("relu", "gelu"), "layer_norm_eps": r.one_of(1e-5, 1e-3),
        "batch_first": batch_first, "norm_first": r.chance(), "bias": r.chance(0.7),
    }  # fmt: skip
    return Layer(name, (size, _heads(r, size), r.number(2, 8)), how)


def _stack(r: Draws, name: str, block: Layer, size: int) -> Layer:
    norm = Layer("LayerNorm", (size,)) if r.chance() else None
    how = {"enable_nested_tensor": False} if "Encoder" in name else {}
    return Layer(name, (block, r.number(1, 2), norm), how)


def _transformed(call: Call) -> Any:
    given = dict(call.given)
    memory = given.pop("memory", None)
    return call.layers[0](call.x, **given) if memory is None else call.layers[0](call.x, memory, **given)


def encoder(name: str) -> Any:
    def draw(r: Draws, shape: Any) -> Step:
        batch_first, dropout = r.chance(), r.one_of(0.0, 0.0, 0.0, 0.4)
        samples, steps = (shape[0], shape[1]) if batch_first else (shape[1], shape[0])
        layer = _block(r, "TransformerEncoderLayer", shape[2], batch_first, dropout)
        if name == "TransformerEncoder":
            layer = _stack(r, name, layer, shape[2])
        mask = _mask(r, steps, steps)
        given = {
            "src_mask" if name == "TransformerEncoderLayer" else "mask": mask,
            "src_key_padding_mask": _matching(_padding(r, samples, steps), mask),
        }
        return Step(_transformed, (layer,), given, dropout > 0)

    return draw


def decoder(name: str) -> Any:
    def draw(r: Draws, shape: Any) -> Step:
        batch_first, dropout = r.chance(), r.one_of(0.0, 0.0, 0.0, 0.4)
        samples, steps = (shape[0], shape[1]) if batch_first else (shape[1], shape[0])
        count = r.number(1, 4)
        layer = _block(r, "TransformerDecoderLayer", shape[2], batch_first, dropout)
        if name == "TransformerDecoder":
            layer = _stack(r, name, layer, shape[2])
        if name == "Transformer":
            layer = Layer(
                name, layer.args[:2],
                {"num_encoder_layers": r.number(1, 2), "num_decoder_layers": r.number(1, 2),
                 "dim_feedforward": layer.args[2], **layer.how},
            )  # fmt: skip
        of = (samples, count) if batch_first else (count, samples)
        masks = _mask(r, steps, steps), _mask(r, steps, count)
        given: dict[str, Any] = {
            "memory": leaf(r.values(*of, shape[2])), "tgt_mask": masks[0], "memory_mask": masks[1],
            "tgt_key_padding_mask": _matching(_padding(r, samples, steps), masks[0]),
            "memory_key_padding_mask": _matching(_padding(r, samples, count), masks[1]),
        }  # fmt: skip
        if name == "Transformer":
            given["src_mask"] = _mask(r, count, count)
        return Step(_from_source if name == "Transformer" else _transformed, (layer,), given, dropout > 0)

    return draw


def _from_source(call: Call) -> Any:
    given = dict(call.given)
    return call.layers[0](given.pop("memory"), call.x, **given)


def _embedded(call: Call) -> Any:
    """The input, beside vectors of tokens."""
    given = dict(call.given)
    made = call.layers[0](given.pop("tokens"), **given)
    rows = call.x.reshape(call.x.shape[0], -1)
    return call.library.cat([rows, made.reshape(call.x.shape[0], -1)], 1)


def embedding(r: Draws, shape: Any) -> Step:
    count, tokens = r.number(3, 8), r.number(1, 3)
    sparse = r.chance()
    how = {
        "padding_idx": r.one_of(None, -1, 0), "max_norm": r.one_of(None, None, 1.0), "norm_type": r.one_of(2.0, 1.0),
        "scale_grad_by_freq": not sparse and r.chance(), "sparse": sparse,
    }  # fmt: skip
    layer = Layer("Embedding", (count, r.number(1, 4)), how)
    return Step(_embedded, (layer,), {"tokens": r.classes(count, shape[0], tokens)})


def embedding_bag(r: Draws, shape: Any) -> Step:
    """Without `scale_grad_by_freq`: torch divides the gradient of a row by how often another one is used."""
    count, mode = r.number(3, 8), r.one_of("sum", "mean", "max")
    sparse = mode != "max" and r.chance()
    how: dict[str, Any] = {
        "mode": mode, "sparse": sparse, "padding_idx": r.one_of(None, -1, 0), "max_norm": r.one_of(None, None, 1.0),
    }  # fmt: skip
    if r.chance():
        given = {"tokens": r.classes(count, shape[0], r.number(1, 3))}
    else:
        how["include_last_offset"] = r.chance()
        total = r.number(shape[0], 3 * shape[0])
        starts = np.sort(r.random.integers(0, total, shape[0]))
        starts[0] = 0
        given = {"tokens": r.classes(count, total), "offsets": np.append(starts, total)}
        if not how["include_last_offset"]:
            given["offsets"] = starts
    if mode == "sum" and r.chance():
        given["per_sample_weights"] = leaf(r.values(*given["tokens"].shape))
    return Step(_embedded, (Layer("EmbeddingBag", (count, r.number(1, 4)), how),), given)


def several(draw: Any) -> Any:
    """The function that draws a layer that needs more than one sample and step."""

    def drawn(r: Draws, shape: Any) -> Step:
        require(min(shape) > 1)
        made: Step = draw(r, shape)
        return made

    return drawn


SEQUENCES: dict[str, Any] = {
    **{name: (recurrent(name), (3,)) for name in ("RNN", "LSTM", "GRU")},
    **{name: (cell(name), (3,)) for name in ("RNNCell", "LSTMCell", "GRUCell")},
    **{name: (several(encoder(name)), (3,)) for name in ("TransformerEncoderLayer", "TransformerEncoder")},
    **{
        name: (several(decoder(name)), (3,))
        for name in ("TransformerDecoderLayer", "TransformerDecoder", "Transformer")
    },
    "MultiheadAttention": (several(attention), (3,)), "Embedding": (embedding, (2, 3, 4, 5)),
    "EmbeddingBag": (embedding_bag, (2, 3, 4, 5)),
}  # fmt: skip
"""The function that draws a layer of each name, and the numbers of axes."""
