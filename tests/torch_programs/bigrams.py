"""Counts of letter pairs, the probabilities that follow from them, and words drawn from these."""

import torch

WORDS = "emma olivia ava isabella sophia charlotte mia amelia harper evelyn abigail emily ella elizabeth".split()


def main():
    letters = sorted(set("".join(WORDS)))
    stoi = {letter: number + 1 for number, letter in enumerate(letters)}
    stoi["."] = 0
    itos = {number: letter for letter, number in stoi.items()}
    size = len(stoi)

    N = torch.zeros((size, size), dtype=torch.int32)
    pairs = []
    for word in WORDS:
        chars = ["."] + list(word) + ["."]
        for one, other in zip(chars, chars[1:]):
            N[stoi[one], stoi[other]] += 1
            pairs.append((stoi[one], stoi[other]))
    pairs = torch.tensor(pairs)
    again = torch.bincount(pairs[:, 0] * size + pairs[:, 1], minlength=size * size).view(size, size)
    third = torch.zeros(size * size).scatter_add_(0, pairs @ torch.tensor([size, 1]), torch.ones(len(pairs)))
    print("counts agree:", torch.equal(N.long(), again), bool((third.view_as(N) == N).all()))

    P = (N + 1).float()
    P /= P.sum(1, keepdim=True)
    log_likelihood = P[pairs[:, 0], pairs[:, 1]].log().sum()
    print(f"nll {-log_likelihood.item() / len(pairs):.3f}")

    row, likeliest = 0, []
    for _ in range(8):
        row = int(P[row].argmax())
        likeliest.append(itos[row])
    print("".join(likeliest))

    g = torch.Generator().manual_seed(2147483647)
    index, drawn = 0, []
    while len(drawn) < 20:
        index = torch.multinomial(P[index], num_samples=1, replacement=True, generator=g).item()
        drawn.append(index)
    drawn = torch.tensor(drawn)
    print("drawn from the alphabet:", bool(((drawn >= 0) & (drawn < size)).all()), drawn.dtype == torch.int64)
    return {"N": N, "P": P, "log_likelihood": log_likelihood, "rows": P.sum(dim=-1)}
