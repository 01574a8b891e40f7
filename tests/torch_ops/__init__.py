"""Judges shmtensor's operations by torch's database of operations: `make torch-ops`."""
