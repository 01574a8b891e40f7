"""Random networks of every layer, made once of torch's modules and once of shmtensor's."""
