"""Benchmarks of shmtensor beside torch.multiprocessing and the standard library. Run with `python benchmarks`."""
