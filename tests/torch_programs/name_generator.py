"""A recurrent network of characters: embedding, LSTM with packed sequences, sampling of the likeliest characters."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

WORDS = ["ada", "alan", "grace", "edsger", "barbara", "donald", "niklaus"]
LETTERS = "." + "".join(sorted(set("".join(WORDS))))


class Generator(nn.Module):
    def __init__(self, letters, size=12):
        super().__init__()
        self.embedding = nn.Embedding(letters, 6, padding_idx=0)
        self.memory = nn.LSTM(6, size, num_layers=2, batch_first=True)
        self.out = nn.Linear(size, letters)

    def forward(self, codes, lengths, state=None):
        packed = pack_padded_sequence(self.embedding(codes), lengths, batch_first=True, enforce_sorted=False)
        hidden, state = self.memory(packed, state)
        hidden, _ = pad_packed_sequence(hidden, batch_first=True)
        return self.out(hidden), state


def fill(model):
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            values = torch.arange(parameter.numel(), dtype=torch.float32) * 1.7 + number
            parameter.copy_((torch.cos(values) * 0.4).view(parameter.shape))


def main():
    model = Generator(len(LETTERS))
    fill(model)
    print(model)
    codes = [torch.tensor([LETTERS.index(c) for c in "." + word + "."]) for word in WORDS]
    inputs = pad_sequence([one[:-1] for one in codes], batch_first=True)
    targets = pad_sequence([one[1:] for one in codes], batch_first=True, padding_value=-100)
    lengths = torch.tensor([len(one) - 1 for one in codes])
    loss_of = nn.CrossEntropyLoss(ignore_index=-100)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for step in range(40):
        scores, _ = model(inputs, lengths)
        loss = loss_of(scores.transpose(1, 2), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    letters, state = [0], None
    with torch.no_grad():
        while len(letters) < 10:
            scores, state = model(torch.tensor([letters[-1:]]), torch.tensor([1]), state)
            letters.append(scores[0, -1].argmax().item())
    print("learned:", losses[-1] < losses[0] / 2)
    return losses[:20], model.embedding.weight.grad[0].tolist()
