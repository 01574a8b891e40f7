"""One-hot vectors, a confusion matrix, and figures computed from it."""

import torch


def one_hot(labels, classes):
    return torch.eye(classes, dtype=torch.long)[labels]


def main():
    classes = 4
    target = torch.arange(40) % classes
    logits = torch.sin(torch.arange(160.0) * 0.9).view(40, classes) + 1.2 * one_hot(target, classes)
    probability = torch.softmax(logits, dim=-1)
    predicted = probability.argmax(dim=-1)

    confusion = torch.zeros(classes, classes, dtype=torch.int64)
    for t, p in zip(target.view(-1), predicted.view(-1)):
        confusion[t.long(), p.long()] += 1
    print(confusion.numpy())
    true_positive = confusion.diag()
    precision = true_positive / confusion.sum(0).clamp_min(1)
    recall = true_positive.div(confusion.sum(1))
    f1 = 2 * precision * recall / (precision + recall)
    f1[torch.isnan(f1)] = 0.0
    top2 = torch.topk(probability, 2).indices
    hits = top2.eq(target.unsqueeze(1).expand_as(top2)).any(dim=1).float().mean()
    print(f"accuracy {true_positive.sum().item() / len(target):.3f}, macro F1 {f1.mean():.3f}, top-2 {hits:.3f}")
    entropy = -(probability * probability.log()).sum(-1)
    worst = torch.argsort(entropy, descending=True)[:3]
    return {
        "confusion": confusion, "precision": precision, "recall": recall, "f1": f1, "hits": hits, "worst": worst,
        "hot": one_hot(predicted, classes).sum(dim=0),
    }  # fmt: skip
