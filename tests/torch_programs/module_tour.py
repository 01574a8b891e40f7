"""Uses of modules besides training: hooks, members, freezing, copies, states."""

import copy

import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.linear = nn.Linear(size, size)
        self.register_buffer("steps", torch.zeros(1))
        self.register_buffer("cache", torch.zeros(2), persistent=False)
        self.bias = None

    def forward(self, x):
        self.steps += 1
        return x + torch.tanh(self.linear(x)) * self.scale

    def extra_repr(self):
        return f"scale={tuple(self.scale.shape)}"


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(3) for _ in range(3)])
        self.heads = nn.ModuleDict({"mean": nn.Linear(3, 1), "other": nn.Sequential(nn.Linear(3, 2), nn.Tanh())})
        self.weights = nn.ParameterDict({"gain": nn.Parameter(torch.full((2,), 0.5))})

    def forward(self, x, head="mean"):
        for block in self.blocks:
            x = block(x)
        return self.heads[head](x)


def fill(model):
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.sin(torch.arange(parameter.numel()) + float(number)).view(parameter.shape))


def main():
    model = Tower()
    fill(model)
    print(model.blocks, model.heads)
    for name, parameter in model.named_parameters():
        print(name, tuple(parameter.shape), parameter.requires_grad)
    print([name for name, _ in model.named_buffers()], [name for name, _ in model.named_modules()])
    x = torch.linspace(-1, 1, 12).view(4, 3)

    seen = []
    handles = [
        model.blocks[0].register_forward_hook(lambda module, args, output: seen.append(output.detach().clone())),
        model.heads["mean"].register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
        model.blocks[1].register_full_backward_hook(
            lambda module, grad_input, grad_output: seen.append((grad_input[0].clone(), grad_output[0].clone()))
        ),
    ]
    model(x).sum().backward()
    for handle in handles:
        handle.remove()
    model(x).mean().backward()
    print("seen:", len(seen), "steps:", model.blocks[2].steps.item())
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}

    for parameter in model.blocks[0].parameters():
        parameter.requires_grad = False
    print("trained:", sum(p.numel() for p in model.parameters() if p.requires_grad))
    other = copy.deepcopy(model)
    print("copied:", other.blocks[0].scale is not model.blocks[0].scale, other.blocks[0].scale.requires_grad)
    with torch.no_grad():
        other.blocks[0].scale.zero_()
    result = other.load_state_dict(model.state_dict())
    print(result, torch.equal(other.blocks[0].scale, model.blocks[0].scale))
    state = model.state_dict()
    del state["heads.mean.bias"]
    state["extra"] = torch.zeros(1)
    print(other.load_state_dict(state, strict=False))
    try:
        other.load_state_dict(state)
    except RuntimeError as error:
        print(error)
    model.heads["mean"] = nn.Identity()
    del model.blocks[1]
    model.blocks.append(nn.Dropout(0.5))
    print(model.eval().blocks, model.training, [type(module).__name__ for module in model.children()])
    model.double()
    print(model.blocks[0].scale.dtype == torch.float64, model.apply(lambda module: None) is model)
    return seen, gradients, model(x.double()), dict(model.state_dict())
