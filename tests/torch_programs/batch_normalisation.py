"""Images in batches: normalised per channel, in other orders of axes, cropped, flipped and averaged."""

import torch


def batch_norm(x, gamma, beta, running_mean, running_var, momentum=0.1, eps=1e-5):
    flat = x.permute(1, 0, 2, 3).flatten(1)
    mean, var = flat.mean(dim=1), flat.var(dim=1, unbiased=False)
    n = flat.shape[1]
    running_mean.mul_(1 - momentum).add_(mean, alpha=momentum)
    running_var.mul_(1 - momentum).add_(var * n / (n - 1), alpha=momentum)
    normalised = (x - mean[None, :, None, None]) / torch.sqrt(var + eps).view(1, -1, 1, 1)
    return gamma.reshape(1, -1, 1, 1) * normalised + beta.reshape(1, -1, 1, 1)


def main():
    pixels = (torch.arange(4 * 8 * 8 * 3) * 37 % 256).to(torch.uint8).view(4, 8, 8, 3)
    images = pixels.permute(0, 3, 1, 2).contiguous().float().div(255)
    print(tuple(images.shape), images.is_contiguous(), images.stride())
    running_mean, running_var = torch.zeros(3), torch.ones(3)
    out = batch_norm(images, torch.tensor([1.0, 2.0, 0.5]), torch.zeros(3), running_mean, running_var)
    print("mean", [f"{abs(v):.2f}" for v in out.mean(dim=(0, 2, 3)).tolist()])

    patches = images.unfold(2, 4, 4).unfold(3, 4, 4)
    pooled = patches.amax(dim=(-1, -2))
    crops = images[:, :, 2:6, 2:6].flip(-1)
    grey = torch.einsum("nchw,c->nhw", images, torch.tensor([0.299, 0.587, 0.114]))
    std, mean = torch.std_mean(images, dim=(0, 2, 3))
    back = (images * 255).round().clamp(0, 255).to(torch.uint8).movedim(1, -1)
    print("round trip:", torch.equal(back, pixels))
    return {
        "out": out, "running": (running_mean, running_var), "pooled": pooled, "crops": crops, "grey": grey,
        "std": std, "mean": mean, "padded": torch.cat([torch.zeros(4, 3, 1, 8), images], dim=2).shape[2],
    }  # fmt: skip
