"""A polynomial of the third degree is fitted to the sine by gradient descent; the gradients are written by hand."""

import math

import torch


def main():
    dtype = torch.float
    device = torch.device("cpu")
    x = torch.linspace(-math.pi, math.pi, 2000, device=device, dtype=dtype)
    y = torch.sin(x)
    a, b, c, d = (torch.tensor(value, device=device, dtype=dtype) for value in (0.1, -0.2, 0.3, -0.1))

    learning_rate = 1e-6
    losses = []
    for t in range(500):
        y_pred = a + b * x + c * x**2 + d * x**3
        loss = (y_pred - y).pow(2).sum().item()
        if t % 100 == 99:
            print(t, f"{loss:.2f}")
            losses.append(loss)

        grad_y_pred = 2.0 * (y_pred - y)
        grad_a = grad_y_pred.sum()
        grad_b = (grad_y_pred * x).sum()
        grad_c = (grad_y_pred * x**2).sum()
        grad_d = (grad_y_pred * x**3).sum()

        a -= learning_rate * grad_a
        b -= learning_rate * grad_b
        c -= learning_rate * grad_c
        d -= learning_rate * grad_d

    print(f"y = {a.item():.4f} + {b.item():.4f} x + {c.item():.4f} x^2 + {d.item():.4f} x^3")
    return {"coefficients": torch.stack([a, b, c, d]), "losses": losses}
