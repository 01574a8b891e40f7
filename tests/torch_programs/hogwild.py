"""Hogwild: processes train one model, which lies in shared memory, and report through a queue."""

import torch
import torch.multiprocessing as mp


def worker(rank, weight, queue, received, X, y):
    torch.set_num_threads(1)
    for epoch in range(200):
        for i in range(rank, len(X), 2):
            error = X[i] @ weight - y[i]
            weight.sub_(X[i] * error, alpha=0.1)
    queue.put((rank, torch.tensor(float(epoch + 1))))
    received.wait()  # torch's sender must live until its tensor has arrived


def main():
    grid = torch.arange(60, dtype=torch.float32).view(20, 3)
    X = torch.sin(grid**2)
    y = X @ torch.tensor([1.0, -2.0, 3.0])
    weight = torch.zeros(3)
    weight.share_memory_()
    queue, received = mp.Queue(), mp.Event()
    processes = [mp.Process(target=worker, args=(rank, weight, queue, received, X, y)) for rank in range(2)]
    for process in processes:
        process.start()
    reports = sorted((rank, epochs.item()) for rank, epochs in (queue.get() for _ in processes))
    received.set()
    for process in processes:
        process.join()
    print("shared:", weight.is_shared(), "reports:", reports)
    print("weights:", [round(value, 2) for value in weight.tolist()])


if __name__ == "__main__":
    mp.set_start_method("spawn")
    main()
