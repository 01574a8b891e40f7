"""Logistic regression on two classes in the plane, in mini-batches."""

import torch


def make_data(n):
    angle = torch.linspace(0, 6.28, n)
    inside = torch.stack((torch.cos(angle), torch.sin(angle)), dim=1) - 1.0
    outside = torch.stack((torch.sin(3 * angle), torch.cos(2 * angle)), dim=1) + 1.0
    X = torch.cat((inside, outside))
    y = torch.cat((torch.zeros(n), torch.ones(n)))
    return X, y


def main():
    X, y = make_data(64)
    order = (torch.arange(len(X)) * 37) % len(X)
    X, y = X[order], y[order]
    weight, bias = torch.zeros(2), torch.zeros(1)
    batch_size, lr = 16, 0.5
    history = []
    for epoch in range(20):
        running_loss = 0.0
        for xb, yb in zip(X.split(batch_size), y.split(batch_size)):
            p = torch.sigmoid(xb @ weight + bias)
            loss = -(yb * torch.log(p) + (1 - yb) * torch.log(1 - p)).mean()
            running_loss += loss.item() * xb.size(0)
            delta = (p - yb) / len(xb)
            weight -= lr * (xb.t() @ delta)
            bias -= lr * delta.sum()
        history.append(running_loss / len(X))
    predicted = (torch.sigmoid(X @ weight + bias) > 0.5).float()
    correct = predicted.eq(y).sum().item()
    print(f"loss {history[-1]:.3f}, accuracy {correct}/{len(y)} ({100.0 * correct / len(y):.0f}%)")
    return {"weight": weight, "bias": bias, "history": history, "predicted": predicted.long()}
