"""Hogwild with a network: processes train one model in shared memory, each with an optimizer of its own."""

import torch
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(2, 16)
        self.out = nn.Linear(16, 2)

    def forward(self, x):
        return self.out(torch.tanh(self.hidden(x)))


def points():
    """Two spirals."""
    t = torch.linspace(0.5, 2.5, 40)
    one = torch.stack([t * torch.cos(2 * t), t * torch.sin(2 * t)], 1)
    return torch.cat([one, -one]), torch.cat([torch.zeros(40), torch.ones(40)]).long()


def train(rank, model):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    x, y = points()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.train()
    for epoch in range(60):
        for i in range(rank, 8, 2):
            optimizer.zero_grad()
            F.cross_entropy(model(x[i::8]), y[i::8]).backward()
            optimizer.step()


def main():
    model = Net()
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.sin(torch.arange(parameter.numel()) * 2.0 + number).view(parameter.shape))
    model.share_memory()
    processes = [mp.Process(target=train, args=(rank, model)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    x, y = points()
    with torch.no_grad():
        right = (model(x).argmax(1) == y).float().mean().item()
    print("shared:", all(parameter.is_shared() for parameter in model.parameters()))
    print("gradients here:", any(parameter.grad is not None for parameter in model.parameters()))
    print("learned:", right > 0.8, [process.exitcode for process in processes])


if __name__ == "__main__":
    mp.set_start_method("spawn")
    main()
