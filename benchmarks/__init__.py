"""Benchmarks that compare shmtensor with the standard library, torch and other peers. Run with `python benchmarks`."""
