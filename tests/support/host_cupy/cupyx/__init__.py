"""A stand-in for cupyx, as far as shmtensor uses it."""
