"""A Kalman filter that follows a body of constant speed."""

import torch


def main():
    dt = 0.1
    F = torch.tensor([[1, dt], [0, 1]])
    H = torch.tensor([[1.0, 0.0]])
    Q = 1e-3 * torch.eye(2)
    R = torch.full((1, 1), 0.25)
    x, P = torch.zeros(2, 1), torch.eye(2) * 10

    steps = torch.arange(100).float()
    truth = 0.5 + 1.2 * steps * dt
    measured = truth + 0.5 * torch.sin(steps * 12.9898)
    estimates = torch.empty(100, 2)
    for i, z in enumerate(measured):
        x = F @ x
        P = F @ P @ F.mT + Q
        innovation = z - H @ x
        S = H @ P @ H.T + R
        K = P @ H.T @ torch.inverse(S)
        x = x + K @ innovation
        P = (torch.eye(2) - K @ H) @ P
        estimates[i] = x.squeeze()
    rmse = torch.sqrt(torch.mean((estimates[50:, 0] - truth[50:]) ** 2))
    print(f"speed {x[1].item():.2f}, rmse {rmse.item():.2f}")
    return {"estimates": estimates, "P": P, "rmse": rmse, "trace": P.trace()}
