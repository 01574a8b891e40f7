"""k-means: points go to the nearest centre, centres to the mean of their points."""

import torch


def kmeans(points, k, iterations=10):
    centres = points[:: len(points) // k][:k].clone()
    for i in range(iterations):
        distances = torch.cdist(points, centres)
        labels = distances.argmin(dim=1)
        moved = torch.zeros_like(centres).index_add_(0, labels, points)
        counts = torch.bincount(labels, minlength=k).clamp(min=1).unsqueeze(-1)
        moved = moved / counts
        shift = (moved - centres).norm(dim=1).max()
        centres = moved
        if shift < 1e-6:
            print(f"converged after {i + 1} iterations")
            break
    return centres, labels


def main():
    t = torch.arange(90.0)
    centre = torch.tensor([[0.0, 0.0], [5.0, 5.0], [-5.0, 5.0]])[torch.arange(90) // 30]
    points = centre + torch.stack([torch.sin(t * 1.7), torch.cos(t * 2.3)], dim=-1)
    centres, labels = kmeans(points, 3)
    for number in range(3):
        members = points[labels == number]
        print(number, tuple(members.shape), [f"{v:.2f}" for v in members.mean(dim=0).tolist()])
    inertia = (points - centres[labels]).square().sum()
    return {"centres": centres, "labels": labels, "inertia": inertia}
