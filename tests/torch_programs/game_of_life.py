"""Conway's game of life on a torus, once with roll and once with unfold."""

import torch


def step_roll(board):
    neighbours = sum(
        torch.roll(board, shifts=(i, j), dims=(0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)
    )
    return ((neighbours == 3) | ((neighbours == 2) & (board == 1))).int()


def step_unfold(board):
    padded = torch.cat([board[-1:], board, board[:1]], dim=0)
    padded = torch.cat([padded[:, -1:], padded, padded[:, :1]], dim=1)
    neighbours = padded.unfold(0, 3, 1).unfold(1, 3, 1).sum(dim=(-1, -2)) - board
    return torch.where(board.bool(), (neighbours == 2) | (neighbours == 3), neighbours == 3).to(board.dtype)


def main():
    board = torch.zeros(8, 8, dtype=torch.int32)
    glider = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 1, 1]])
    board[1:4, 1:4] = glider
    other = board.clone()
    population = []
    for _ in range(12):
        board, other = step_roll(board), step_unfold(other)
        assert torch.equal(board, other)
        population.append(board.sum().item())
    for row in board.tolist():
        print("".join(".#"[cell] for cell in row))
    alive = board.nonzero()
    return {"board": board, "alive": alive, "population": population, "corner": alive.min(dim=0).values}
