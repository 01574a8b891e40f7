"""Sentences of different lengths: padded, masked, averaged; attention with a causal mask."""

import math

import torch

SENTENCES = ["the cat sat", "the dog sat on the mat", "a cat", "the mat sat on a dog"]


def main():
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    vocabulary = {"<pad>": 0, **{word: number for number, word in enumerate(words, 1)}}
    encoded = [torch.tensor([vocabulary[word] for word in sentence.split()]) for sentence in SENTENCES]
    lengths = torch.tensor([len(one) for one in encoded])
    batch = torch.full((len(encoded), int(lengths.max())), vocabulary["<pad>"], dtype=torch.long)
    for row, one in zip(batch, encoded):
        row[: len(one)] = one
    mask = torch.arange(batch.size(1))[None, :] < lengths[:, None]
    print(batch)
    print(mask.sum(1).tolist(), (batch != 0).equal(mask))

    table = torch.sin(torch.arange(len(vocabulary) * 8, dtype=torch.float32)).reshape(len(vocabulary), 8)
    embedded = table[batch]
    mean = (embedded * mask.unsqueeze(-1)).sum(1) / lengths.unsqueeze(-1)
    longest = embedded.masked_fill(~mask.unsqueeze(-1), -torch.inf).max(dim=1)[0]

    scores = embedded @ embedded.transpose(-2, -1) / math.sqrt(embedded.size(-1))
    causal = torch.tril(torch.ones(scores.shape[-2:], dtype=torch.bool))
    allowed = causal & mask[:, None, :]
    attention = scores.masked_fill(allowed.logical_not(), float("-inf")).softmax(dim=-1)
    output = torch.bmm(attention, embedded)
    order = lengths.argsort(descending=True, stable=True)
    return {
        "batch": batch, "mean": mean, "longest": longest, "attention": attention, "output": output, "order": order,
        "flat": torch.masked_select(batch, mask), "unique": torch.unique(batch, return_counts=True),
    }  # fmt: skip
