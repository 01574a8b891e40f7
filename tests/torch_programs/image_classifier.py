"""A small convolutional network: training with a schedule and clipped gradients, evaluation, and its state."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.GroupNorm(2, 8), nn.LeakyReLU(0.1), nn.AvgPool2d(2),
        )  # fmt: skip
        self.head = nn.Linear(8 * 2 * 2, classes)

    def forward(self, x):
        return self.head(torch.flatten(self.features(x), 1))


def fill(model):
    """The same first values with every generator."""
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            values = torch.arange(parameter.numel(), dtype=torch.float32) + 7 * number
            parameter.copy_((torch.sin(values) * 0.3).view(parameter.shape))


def images():
    """Stripes in three directions."""
    row, column = torch.arange(8).view(8, 1), torch.arange(8).view(1, 8)
    kinds = [(row + 0 * column) % 2, (0 * row + column) % 2, (row + column) % 2]
    made, labels = [], []
    for i in range(24):
        noise = torch.sin(torch.arange(64, dtype=torch.float32) * (i + 1)).view(8, 8) * 0.3
        made.append(kinds[i % 3].float() + noise)
        labels.append(i % 3)
    return torch.stack(made).unsqueeze(1), torch.tensor(labels)


def main():
    model = Net(3)
    fill(model)
    print(model)
    x, y = images()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)
    losses = []
    for epoch in range(15):
        model.train()
        for start in range(0, 24, 8):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[start : start + 8]), y[start : start + 8], label_smoothing=0.1)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        schedule.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        scores = model(x)
        right = (scores.argmax(1) == y).sum().item()
    print("right:", right, "of", len(y), "parameters:", sum(p.numel() for p in model.parameters()))
    print("rate:", schedule.get_last_lr(), "batches:", model.features[1].num_batches_tracked.item())
    return losses, scores, dict(model.state_dict())
