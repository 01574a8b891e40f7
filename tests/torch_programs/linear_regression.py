"""Linear regression in three ways: normal equations, least squares, and gradient descent."""

import torch


def main():
    n, features = 100, 3
    grid = torch.arange(n * features, dtype=torch.float64).view(n, features)
    X = torch.sin(grid * 0.7) + torch.cos(grid.pow(2) * 0.01)
    true_weight = torch.tensor([1.5, -2.0, 0.5], dtype=torch.float64)
    y = X @ true_weight + 3 + 0.01 * torch.sin(torch.arange(n, dtype=torch.float64))

    A = torch.cat([X, torch.ones(n, 1, dtype=X.dtype)], dim=1)
    normal = torch.linalg.solve(A.T @ A, A.T @ y)
    least = torch.linalg.lstsq(A, y.unsqueeze(1)).solution.squeeze(1)

    w = torch.zeros(features + 1, dtype=torch.float64)
    for _ in range(2000):
        error = A.mv(w) - y
        w.sub_(A.t().mv(error), alpha=0.1 / n)
    residual = torch.norm(A @ normal - y)
    print("weights", [round(one, 3) for one in normal.tolist()])
    print("close:", torch.allclose(normal, least), torch.allclose(normal, w, atol=1e-3))
    return {"normal": normal, "least": least, "descent": w, "residual": residual}
