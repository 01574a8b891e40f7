"""Benchmarks of shmtensor beside the standard library, torch and other peers. Run with `python benchmarks`."""
