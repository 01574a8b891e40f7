"""Principal components by the singular value decomposition, and the first one by power iteration."""

import torch


def main():
    t = torch.linspace(0, 20, 200, dtype=torch.double)
    latent = torch.stack((torch.sin(t), 0.3 * torch.cos(2.2 * t)), dim=1)
    mixing = torch.tensor([[1.0, 0.5, -1.0, 2.0], [0.3, -1.0, 0.8, 0.1]], dtype=torch.double)
    data = latent @ mixing + 0.01 * torch.sin(torch.outer(t, torch.arange(1.0, 5.0, dtype=torch.double)))

    centered = data - data.mean(dim=0, keepdim=True)
    U, S, Vh = torch.linalg.svd(centered, full_matrices=False)
    explained = S**2 / (S**2).sum()
    sign = torch.sign(Vh[torch.arange(4), Vh.abs().argmax(dim=1)])
    components = Vh * sign[:, None]
    projected = centered @ components[:2].T

    covariance = torch.cov(data.T)
    vector = torch.ones(4, dtype=torch.double)
    for _ in range(100):
        vector = covariance @ vector
        vector /= torch.linalg.vector_norm(vector)
    eigenvalue = vector @ covariance @ vector
    largest = torch.linalg.eigvalsh(covariance)[-1]
    print("explained:", " ".join(f"{100 * share:.1f}%" for share in explained[:2].tolist()))
    print("power iteration agrees:", torch.isclose(eigenvalue, largest).item())
    low_rank = (U[:, :2] * S[:2]) @ Vh[:2]
    return {
        "components": components[:2], "projected": projected, "std": projected.std(dim=0), "eigenvalue": eigenvalue,
        "error": (low_rank - centered).abs().max(),
    }  # fmt: skip
