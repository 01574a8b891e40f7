"""Random networks of every layer, made once from torch's modules and once from shmtensor's."""
