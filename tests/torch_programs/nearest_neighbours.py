"""Classification by the nearest neighbours: cdist, topk and mode; and which ones, as a matrix of hits."""

import torch


def main():
    labels = torch.arange(60) % 3
    centres = torch.tensor([[0.0, 0.0, 0.0], [2.0, 2.0, 0.0], [0.0, 2.0, 2.0]])
    noise = torch.sin(torch.arange(180.0) * 7.1).view(60, 3)
    data = centres[labels] + 0.9 * noise
    train, test = data[:45], data[45:]
    y_train, y_test = labels[:45], labels[45:]

    distances = torch.cdist(test, train, p=2.0)
    values, indices = distances.topk(5, dim=1, largest=False)
    votes = y_train[indices]
    predicted = votes.mode(dim=1).values

    confusion = torch.zeros(3, 3, dtype=torch.long)
    confusion.index_put_((y_test, predicted), torch.tensor(1), accumulate=True)
    print("confusion:", confusion.tolist())
    similarity = test @ test.T
    similarity.fill_diagonal_(float("-inf"))
    best = similarity.max(dim=1)
    return {
        "distances": values, "votes": votes, "predicted": predicted, "confusion": confusion, "best": best.values,
        "which": best.indices, "accuracy": (predicted == y_test).float().mean().item(),
    }  # fmt: skip
