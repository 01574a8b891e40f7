"""A checkpoint is written and read: a dictionary of tensors, numbers and lists."""

import os
import tempfile
from collections import OrderedDict

import torch


def main():
    model = OrderedDict()
    model["layer1.weight"] = torch.linspace(-1, 1, 12).view(4, 3)
    model["layer1.bias"] = torch.zeros(4)
    model["layer2.weight"] = torch.arange(8).float().reshape(2, 4) / 8
    momentum = {name: torch.ones_like(value) for name, value in model.items()}

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint.pt")
        torch.save({"epoch": 7, "model_state_dict": model, "momentum": momentum, "losses": [0.5, 0.25]}, path)
        checkpoint = torch.load(path, map_location=torch.device("cpu"), weights_only=True)

    restored = OrderedDict((name, torch.empty_like(value)) for name, value in model.items())
    for name, value in checkpoint["model_state_dict"].items():
        restored[name].copy_(value)
    print("epoch", checkpoint["epoch"], "with", sum(value.numel() for value in restored.values()), "numbers")
    print(all(torch.equal(model[name], restored[name]) for name in model))
    for name, value in restored.items():
        print(f"{name:14} {str(tuple(value.shape)):8} {str(value.dtype).split('.')[-1]}")
    return {"restored": dict(restored), "losses": checkpoint["losses"], "momentum": checkpoint["momentum"]}
