"""Batches in a random order, by randperm and index_select; training and validation sets."""

import torch


def batches(X, y, batch_size, generator):
    order = torch.randperm(len(X), generator=generator)
    for start in range(0, len(X), batch_size):
        chosen = order[start : start + batch_size]
        yield X.index_select(0, chosen), torch.index_select(y, 0, chosen)


def main():
    torch.manual_seed(0)
    generator = torch.Generator()
    generator.manual_seed(1)
    X = torch.arange(50.0).unsqueeze(1).repeat(1, 2) / 50
    y = 3 * X[:, 0] - 1
    train, valid = X[:40], X[40:]
    weight, bias = torch.randn(2, 1), torch.rand(1)
    seen = 0
    for epoch in range(400):
        for xb, yb in batches(train, y[:40], 8, generator):
            error = (xb @ weight + bias).squeeze(-1) - yb
            weight -= 0.1 * 2 * xb.T @ error.unsqueeze(-1) / xb.size(0)
            bias -= 0.1 * 2 * error.mean()
            seen += xb.shape[0]
    with torch.no_grad():
        error = (valid @ weight + bias).flatten() - y[40:]
    print(f"seen {seen}; weights add up to {weight.sum().item():.2f}, bias {bias.item():.2f}")
    every = torch.cat([xb for xb, _ in batches(X, y, 7, generator)]).sort(dim=0)[0]
    return {
        "total": weight.sum().round(decimals=3), "is_small": bool(error.abs().max() < 1e-2), "every": every,
        "last": [len(xb) for xb, _ in batches(X, y, 7, generator)],
    }  # fmt: skip
