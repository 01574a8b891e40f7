"""A network of two layers, trained with gradients that are propagated back by hand."""

import torch


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    N, D_in, H, D_out = 64, 20, 16, 3

    def wave(rows, columns, step):
        return torch.sin(torch.arange(rows * columns, dtype=torch.float32) ** 2 * step).reshape(rows, columns)

    x = wave(N, D_in, 0.37).to(device)
    target = torch.arange(N, device=device) % D_out
    x[torch.arange(N), target] += 2
    y = torch.zeros(N, D_out, device=device).scatter_(1, target.unsqueeze(1), 1.0)
    w1, w2 = wave(D_in, H, 1.3) * 0.3, wave(H, D_out, 2.1) * 0.3
    velocity = [torch.zeros_like(w1), torch.zeros_like(w2)]

    for t in range(201):
        h = x.mm(w1)
        h_relu = h.clamp(min=0)
        logits = h_relu.mm(w2)
        log_p = torch.log_softmax(logits, dim=1)
        loss = -log_p.gather(1, target[:, None]).mean()
        if t % 100 == 0:
            print(t, "%.3f" % loss.item())

        grad_logits = (log_p.exp() - y) / N
        grad_w2 = h_relu.t().mm(grad_logits)
        grad_h_relu = grad_logits.mm(w2.t())
        grad_h = grad_h_relu.clone()
        grad_h[h < 0] = 0
        grad_w1 = x.t().mm(grad_h)
        for w, g, v in zip((w1, w2), (grad_w1, grad_w2), velocity):
            v.mul_(0.9).add_(g)
            w.add_(v, alpha=-0.5)

    with torch.no_grad():
        _, predicted = torch.max(x.mm(w1).clamp(min=0).mm(w2), 1)
    print("correct:", (predicted == target).sum().item(), "of", target.size(0))
    return {"loss": loss, "predicted": predicted, "w1": w1.detach().cpu().numpy(), "w2": w2}
